/*
 * A clock that stands still until the test moves it. A thread that sleeps by this clock really sleeps, and wakes when
 * the test has moved the clock past its deadline. So a test of a lease of one hour takes no time, and knows the time of
 * each event to the nanosecond.
 */
#ifndef DIBS_TEST_MOVED_CLOCK_H
#define DIBS_TEST_MOVED_CLOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/clock.h"

#define MS(n) ((int64_t)(n)*DIBS__NS_PER_MS)

struct moved_clock {
    struct dibs__clock clock; /* to be given to the library */
    _Atomic int64_t time;     /* ns; written under mutex */
    pthread_mutex_t mutex;    /* guards the list; the library's mutexes come before it */
    struct sleeper *sleepers;
    bool stopped; /* guarded by mutex */
    size_t standing;
    pthread_cond_t go;
};

void moved_clock_init(struct moved_clock *clock); /* at 1,000 s */
void moved_clock_destroy(struct moved_clock *clock);

int64_t moved_clock_now(const struct moved_clock *clock);

/*
 * Moves the clock on, and wakes the threads whose deadline has come: they have left their sleep when this returns. From
 * any thread that holds no mutex of the library.
 */
void moved_clock_advance(struct moved_clock *clock, int64_t ns);
void moved_clock_set(struct moved_clock *clock, int64_t time); /* requires that time is not before now */

/*
 * The first tells how many threads sleep in wait() or sleep(), and were not woken there; the second waits until there
 * are that many. Fails the test after LIMIT_MS.
 */
size_t moved_clock_waiting(struct moved_clock *clock);
void moved_clock_await_waiting(struct moved_clock *clock, size_t count);

/*
 * Threads that the machine does not run. From the first call on, a thread that is woken in wait(), also by its
 * deadline, stands there without its mutex, and counts as a sleeper no more. The second lets all of them go on. The
 * third waits until that many stand.
 */
void moved_clock_stop_the_woken(struct moved_clock *clock);
void moved_clock_let_the_woken_go(struct moved_clock *clock);
void moved_clock_await_standing(struct moved_clock *clock, size_t count);

/*
 * Waits until that many threads sleep in poll() with nothing to do: none of their descriptors is ready, and their
 * deadlines are to come. Unless another thread is inside the library, the schedulers then have no work left.
 */
void moved_clock_settle(struct moved_clock *clock, size_t schedulers);

#endif
