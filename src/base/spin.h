/*
 * Whether a thread polls before it sleeps, since waking it may take longer than a fast server takes to answer. What
 * pays is measured, on an account for all waits of one kind. A wait counts with its time, up to spin_us:
 *   - One whose end polling saw pays in the usual time of a wait that sleeps at once, less its own.
 *   - One whose end polling did not see is charged spin_us: for so long it polled.
 *   - While the account is not below zero, threads poll; but one wait in 128 sleeps, so that the usual time is known.
 *   - Below zero, which is made -spin_us, they sleep for some 13 ms: each wait pays in 1/128 of its time.
 * A thread that has polled for that usual time, or for half of spin_us, yields once: the server may wait for that very
 * processor. At a time one thread fewer than there are processors polls, but always one; as adaptive mutexes do.
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
    struct dibs__spin *spin; /* NULL: nothing is learned from this wait */
    int64_t began;
    int64_t yield; /* when the thread yields; DIBS__NEVER: it has */
    int64_t end;   /* when it gives up polling; the time of the yield does not count */
    bool polls;
    bool gave_up; /* it has given up polling */
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
