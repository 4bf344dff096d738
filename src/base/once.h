/* Initialization that a process does once, on first use, and that may fail: pthread_once(3) with a second chance. */
#ifndef DIBS_BASE_ONCE_H
#define DIBS_BASE_ONCE_H

#include <stdatomic.h>
#include <stdbool.h>

/* Static, and all zero at first; one for each initialization. */
struct dibs__once {
    atomic_long by; /* atomic; the id of the process in which a thread runs `init`; 0: none does; -1: it was done */
};

/*
 * Runs `init` unless it has succeeded before. One thread at a time runs it, and
 * others wait meanwhile. Returns whether it has succeeded: after a failure, the
 * next call runs it again. In a child that was forked while a thread of its
 * parent ran `init`, the next call runs it again.
 */
bool dibs__once(struct dibs__once *once, bool (*init)(void));

/*
 * For a forked child that knows that `init` succeeded before the fork, although
 * the parent's thread may not have noted so yet. A handler that runs at forks
 * knows, for example, that it was registered.
 */
void dibs__once_was_done(struct dibs__once *once);

#endif
