/*
 * Initialization that a process does once, on first use, and that may fail: like pthread_once(3), but repeated after a
 * failure.
 */
#ifndef DIBS_BASE_ONCE_H
#define DIBS_BASE_ONCE_H

#include <stdatomic.h>
#include <stdbool.h>

/* Must be static, and all zero at first. There is one for each initialization. */
struct dibs__once {
    atomic_long by; /* atomic; the id of the process in which a thread runs `init`; 0: no thread does; -1: `init` has
                       succeeded */
};

/*
 * Runs `init` unless it has succeeded before, and returns whether it has. One thread at a time runs it; others wait
 * meanwhile. After a failure, the next call runs it again, and so does the next call in a child that was forked while a
 * thread of its parent ran it.
 */
bool dibs__once(struct dibs__once *once, bool (*init)(void));

/*
 * Called in a forked child that knows that `init` succeeded before the fork, even if the parent's thread had not yet
 * recorded it. For example, a handler that runs at forks knows that it was registered.
 */
void dibs__once_was_done(struct dibs__once *once);

#endif
