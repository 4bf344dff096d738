/*
 * Decides whether a thread polls before it sleeps, because waking it may take longer than a fast server takes to
 * answer. Whether polling pays is measured, by one account for all waits of one kind. A wait counts with its time, up
 * to spin_us:
 *
 * - A wait whose end polling saw pays in the usual time of a wait that sleeps at once, less its own time.
 * - A wait whose end polling did not see is charged spin_us, for which it polled.
 * - While the account is not below zero, threads poll, but one wait in 128 sleeps, so that the usual time is known.
 * - When the account falls below zero, it is set to -spin_us, and threads sleep for some 13 ms (if spin_us is 100):
 *   each wait pays in 1/128 of its time.
 *
 * A thread that has polled for that usual time, or for half of spin_us, yields once, because the server may wait for
 * that very processor. At any time at most one thread fewer than there are processors polls, but always one may, as
 * with adaptive mutexes.
 */
#ifndef DIBS_BASE_SPIN_H
#define DIBS_BASE_SPIN_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/clock.h"

/*
 * What is known of the waits of one kind. Any thread may use it; if two write at the same time, one write may get lost.
 */
struct dibs__spin {
    int others;              /* read-only after init; number of threads of the process that may poll at the same time */
    int64_t most;            /* read-only after init; longest time in ns that a wait polls; 0: nobody polls */
    _Atomic int64_t asleep;  /* atomic; mean time in ns of recent waits that slept at once */
    _Atomic int64_t account; /* atomic; time in ns that polling saved, less what it cost; below 0 nobody polls */
    atomic_uint polls;       /* atomic; number of waits that began while the account was not below 0 */
};

/*
 * most_us: the longest time that a thread polls in one wait; 0: it never polls. With a clock other than the system's,
 * which a test moves, no thread polls.
 */
void dibs__spin_init(struct dibs__spin *spin, const struct dibs__clock *clock, uint32_t most_us);

/* One wait. Used by the calling thread only. */
struct dibs__spinning {
    struct dibs__spin *spin; /* NULL: nothing is learned from this wait */
    int64_t began;
    int64_t yield; /* when the thread yields; DIBS__NEVER: it has yielded */
    int64_t end;   /* when the thread gives up polling; the time of the yield does not count */
    bool polls;
    bool gave_up;
};

/*
 *     dibs__spin_begin(&wait, spin, clock);
 *     while (!came && dibs__spin_goes_on(&wait, clock))
 *         came = look();
 *     if (!came)
 *         came = sleep_until_it_comes_or_the_deadline();
 *     dibs__spin_end(&wait, came, clock);
 *
 * If spin is NULL, the thread does not poll. Nothing is learned from a wait that is ended with false.
 */
void dibs__spin_begin(struct dibs__spinning *wait, struct dibs__spin *spin, const struct dibs__clock *clock);
bool dibs__spin_goes_on(struct dibs__spinning *wait, const struct dibs__clock *clock);
void dibs__spin_end(struct dibs__spinning *wait, bool came, const struct dibs__clock *clock);

/* Called in a forked child, where the threads that polled no longer exist. */
void dibs__spin_after_fork(void);

#endif
