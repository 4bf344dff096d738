/*
 * What a process has one of: its lists of descriptors, of runtimes and of stores in memory, and the losses that are on
 * their way to a queue. One mutex guards them all. It is held across fork(2), so that a child finds them consistent.
 *
 * In the order of locks it comes behind all others, except those that doc/ARCHITECTURE.md names. It is held for a short
 * time: never across I/O, a callback, or the making of anything that has a thread.
 */
#ifndef DIBS_BASE_PROCESS_H
#define DIBS_BASE_PROCESS_H

#include "base/mutex.h"

DIBS__MUTEX_CLASS(dibs__process_mutex);

void dibs__process_lock(void) DIBS__ACQUIRES(dibs__process_mutex);
void dibs__process_unlock(void) DIBS__RELEASES(dibs__process_mutex);

/* Waits on `cond` for as long as it takes. */
void dibs__process_wait(pthread_cond_t *cond) DIBS__REQUIRES(dibs__process_mutex);

/*
 * For a signal handler: whether it interrupted its thread while that held the mutex, or was about to. Then the handler
 * must not lock it.
 */
bool dibs__process_is_locked_here(void);

/*
 * Has forks take the mutex; before that, it must not be locked. False: no memory; call it again.
 */
bool dibs__process_watch_forks(void);

/*
 * The same. Beside it, has `forget` called in each forked child, with the mutex held, before the child runs anything
 * else. Adding one again does nothing.
 */
bool dibs__process_at_fork(void (*forget)(void));

/* The number of forks between the process that loaded the library and this process. */
unsigned dibs__fork_generation(void);

#endif
