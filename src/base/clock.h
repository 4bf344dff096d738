/*
 * The clock by which leases are measured, and the ways to sleep until a time on it. It is an ops struct, so that tests
 * can move the clock.
 */
#ifndef DIBS_BASE_CLOCK_H
#define DIBS_BASE_CLOCK_H

#include <poll.h>
#include <stdint.h>

#include "base/futex.h"
#include "base/mutex.h"

#define DIBS__NS_PER_MS INT64_C(1000000)
#define DIBS__NEVER INT64_MAX /* a deadline that never comes */

struct dibs__clock {
    /* Nanoseconds since some start. The clock runs on while the machine is suspended. */
    int64_t (*now)(const struct dibs__clock *clock);

    /*
     * Unlocks the mutex and sleeps until the cond is signalled or now() reaches the deadline. May also return early
     * without a reason. The mutex is locked again on return. The cond must have been initialised by dibs__cond_init
     * (mutex.h).
     */
    void (*wait)(const struct dibs__clock *clock, pthread_cond_t *cond, struct dibs__mutex *mutex, int64_t deadline);

    /*
     * Calls poll(2) until a descriptor is ready or now() reaches the deadline. After a suspension of the machine, a
     * deadline that has passed is noticed within a second. Returns the number of ready descriptors, or 0 if a signal
     * came.
     */
    int (*poll)(const struct dibs__clock *clock, struct pollfd *fds, nfds_t count, int64_t deadline);

    /*
     * Sleeps while *word equals `value`, until dibs__futex_wake() is called or now() reaches the deadline. May also
     * return early without a reason.
     */
    void (*sleep)(const struct dibs__clock *clock, atomic_uint *word, unsigned value, int64_t deadline);
};

extern const struct dibs__clock dibs__system_clock;

static inline int64_t dibs__now(const struct dibs__clock *clock)
{
    return clock->now(clock);
}

static inline int64_t dibs__earlier(int64_t one, int64_t other)
{
    return one < other ? one : other;
}

/* base + ms, or DIBS__NEVER if that would overflow. */
int64_t dibs__after_ms(int64_t base, int64_t ms);

/* The milliseconds left until the deadline, rounded up; 0 if it has passed. */
int64_t dibs__ms_until(int64_t deadline, int64_t now);

#endif
