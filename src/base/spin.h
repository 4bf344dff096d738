/*
 * Whether a thread polls for something before it sleeps, and for how long.
 *
 * To sleep and to be woken takes a thread longer than a fast server takes to
 * answer, and costs as much processor time. So a thread that waits polls first,
 * for about as long as such waits took lately. But where the wait is longer, or
 * where other threads want the processor, polling only takes it from them:
 *   - one thread fewer than there are processors may poll at a time, in the
 *     whole process; with one processor none may;
 *   - after waits that outlasted the polling, or after the polling thread was
 *     put off the processor, nobody polls for a while: 1 ms at first, and up to
 *     a second where polling again does no better.
 *
 * A thread that has polled for a while yields once: a server on the same machine
 * may have been put on the very processor on which the thread polls for it.
 *
 * The idea is that of adaptive mutexes (spin, then block); the bound is the
 * user's: spin_us of dibs_config.
 */
#ifndef DIBS_BASE_SPIN_H
#define DIBS_BASE_SPIN_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/clock.h"

/* What is known of the waits of one kind. Any thread may use it. */
struct dibs__spin {
    int others;            /* read-only after init; how many threads of the process may poll at a time */
    int64_t most;          /* read-only after init; ns; 0: nobody polls */
    _Atomic int64_t usual; /* atomic; how long the waits took lately that polling saw the end of */
    _Atomic int64_t until; /* atomic; nobody polls before this time */
    _Atomic int64_t well;  /* atomic; when polling last saw the end of a wait */
    _Atomic int64_t pause; /* atomic; how long the last pause was */
    atomic_int credit;     /* atomic; how many waits in a row polling may miss */
};

/* most_us: the longest that a thread polls for one wait; 0: not at all. A clock that a test moves makes it 0. */
void dibs__spin_init(struct dibs__spin *spin, const struct dibs__clock *clock, uint32_t most_us);

/* One wait. The calling thread's. */
struct dibs__spinning {
    struct dibs__spin *spin;
    int64_t began, last, end;
    bool yielded; /* the thread has let others run that wait for its processor */
    bool put_off; /* the thread was put off the processor meanwhile */
};

/*
 * begin: false: the thread is to sleep at once, and nothing is to be ended.
 *     if (dibs__spin_begin(&spinning, spin, clock)) {
 *         while (!(seen = look()) && dibs__spin_goes_on(&spinning, clock))
 *             continue;
 *         dibs__spin_end(&spinning, seen);
 *     }
 */
bool dibs__spin_begin(struct dibs__spinning *spinning, struct dibs__spin *spin, const struct dibs__clock *clock);
bool dibs__spin_goes_on(struct dibs__spinning *spinning, const struct dibs__clock *clock);
void dibs__spin_end(struct dibs__spinning *spinning, bool seen);

/* In a forked child: the threads that polled are not there. */
void dibs__spin_after_fork(void);

#endif
