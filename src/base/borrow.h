/*
 * What a function was handed, or points into, must not change under its hands.
 * Completions (see dibs__channel_submit) change shared texts and free what they
 * were called for, so they run at one place, where their thread holds no such
 * pointers, and not within one another: each would take a part of the stack.
 *
 * In test builds (DIBS_CHECKED) each thread counts what it has borrowed, and ends
 * the process where a completion would run meanwhile. Others do nothing here.
 */
#ifndef DIBS_BASE_BORROW_H
#define DIBS_BASE_BORROW_H

#ifdef DIBS_CHECKED
/* From the first to the second, the calling thread holds pointers that a completion may make wrong. May be nested. */
void dibs__borrow_begin(void);
void dibs__borrow_end(void);

/* Around completions. Requires that the calling thread has borrowed nothing, and runs none already. */
void dibs__completion_begin(void);
void dibs__completion_end(void);
#else
static inline void dibs__borrow_begin(void)
{
}

static inline void dibs__borrow_end(void)
{
}

static inline void dibs__completion_begin(void)
{
}

static inline void dibs__completion_end(void)
{
}
#endif

#endif
