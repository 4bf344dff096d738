/*
 * Checks that completions run only where they may.
 *
 * A function must be able to rely on what it was handed, and on what it points into. Completions (see
 * dibs__channel_submit) change and free the objects that they were called for. So they run at one place, where their
 * thread holds no such pointers, and they do not nest, because each level would use more of the stack.
 *
 * In test builds (DIBS_CHECKED), each thread counts what it has borrowed, and ends the process if a completion runs
 * meanwhile. In other builds nothing is called.
 */
#ifndef DIBS_BASE_BORROW_H
#define DIBS_BASE_BORROW_H

/*
 * Between begin and end, the calling thread holds pointers that a completion could invalidate. The pairs may be nested.
 */
void dibs__borrow_begin(void);
void dibs__borrow_end(void);

/* Called around a completion. The calling thread must have borrowed nothing, and must not be running a completion. */
void dibs__completion_begin(void);
void dibs__completion_end(void);

#ifndef DIBS_CHECKED
#define dibs__borrow_begin() ((void)0)
#define dibs__borrow_end() ((void)0)
#define dibs__completion_begin() ((void)0)
#define dibs__completion_end() ((void)0)
#endif

#endif
