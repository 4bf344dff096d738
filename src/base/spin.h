/*
 * Whether a thread polls for something before it sleeps, and for how long.
 *
 * To sleep and to be woken often takes longer than a fast server takes to answer. So a thread that waits may poll
 * first. Whether that pays is measured, on an account of time for all waits of one kind:
 *   - A wait whose end polling saw pays in the usual time of a wait that sleeps at once, less its own. So it is charged
 *     where the thread was put off the processor, or kept the server from it.
 *   - A wait whose end polling did not see is charged the time of the polling.
 *   - While the account is not below zero, threads poll; but one wait in 128 sleeps, so that the usual time is known.
 *   - Below zero they sleep, and each wait pays in 1/128 of its time. So polling is soon tried again, and trying takes
 *     no more than that.
 * The account is bounded on both sides, so that what was long ago, good or bad, does not count.
 *
 * A thread that has polled for as long as a wait takes that sleeps, or for half of its bound, yields once: the server
 * may wait for that very processor. The time of the yield is part of the wait, but not of the polling. In a process one
 * thread fewer than there are processors may poll at a time, but always one. The idea is that of adaptive mutexes,
 * which spin and then block; the bound is the user's: spin_us of dibs_config.
 */
#ifndef DIBS_BASE_SPIN_H
#define DIBS_BASE_SPIN_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/clock.h"

/* What is known of the waits of one kind. Any thread may use it; where two write at once, one may get lost. */
struct dibs__spin {
    int others;              /* read-only after init; how many threads of the process may poll at a time */
    int64_t most;            /* read-only after init; ns; 0: nobody polls */
    _Atomic int64_t asleep;  /* atomic; ns; how long waits took lately that slept at once */
    _Atomic int64_t account; /* atomic; ns; what polling saved, less what it cost; below 0 nobody polls */
    atomic_uint polls;       /* atomic; how many waits might have polled while the account was not below 0 */
};

/* most_us: the longest that a thread polls for one wait; 0: not at all. A clock that a test moves makes it 0. */
void dibs__spin_init(struct dibs__spin *spin, const struct dibs__clock *clock, uint32_t most_us);

/* One wait. The calling thread's. */
struct dibs__spinning {
    struct dibs__spin *spin; /* NULL: nothing is to be learned from this wait */
    int64_t began;
    int64_t yield;  /* when the thread yields; DIBS__NEVER: it has */
    int64_t end;    /* when it gives up polling */
    int64_t wasted; /* how long it had polled when it gave up */
    bool polls;
};

/*
 *     dibs__spin_begin(&wait, spin, clock);
 *     while (!came && dibs__spin_goes_on(&wait, clock))
 *         came = look();
 *     if (!came)
 *         came = sleep_until_it_comes_or_the_deadline();
 *     dibs__spin_end(&wait, came, clock);
 *
 * With NULL for spin the thread does not poll. Nothing is learned from a wait that is ended with false.
 */
void dibs__spin_begin(struct dibs__spinning *wait, struct dibs__spin *spin, const struct dibs__clock *clock);
bool dibs__spin_goes_on(struct dibs__spinning *wait, const struct dibs__clock *clock);
void dibs__spin_end(struct dibs__spinning *wait, bool came, const struct dibs__clock *clock);

/* In a forked child: the threads that polled are not there. */
void dibs__spin_after_fork(void);

#endif
