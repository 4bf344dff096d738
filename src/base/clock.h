/* The clock of leases, and the ways to sleep by it. An ops struct, so that tests can move it. */
#ifndef DIBS_BASE_CLOCK_H
#define DIBS_BASE_CLOCK_H

#include <poll.h>
#include <stdint.h>

#include "base/futex.h"
#include "base/mutex.h"

#define DIBS__NS_PER_MS INT64_C(1000000)
#define DIBS__NEVER INT64_MAX /* the deadline that never comes */

struct dibs__clock {
    /* Nanoseconds since some start. The clock runs on while the machine is suspended. */
    int64_t (*now)(const struct dibs__clock *clock);

    /*
     * Lets go of the mutex and sleeps until the cond is signalled or now()
     * reaches the deadline; it may also return early, for no reason. The mutex
     * is held again on return. The cond was made by dibs__cond_init (mutex.h).
     */
    void (*wait)(const struct dibs__clock *clock, pthread_cond_t *cond, struct dibs__mutex *mutex, int64_t deadline);

    /*
     * poll(2) until a descriptor is ready or now() reaches the deadline. After a
     * suspension of the machine, a deadline that has passed is noticed within a
     * second. Returns how many are ready; 0 also when a signal came.
     */
    int (*poll)(const struct dibs__clock *clock, struct pollfd *fds, nfds_t count, int64_t deadline);

    /*
     * Sleeps while *word is `value` until dibs__futex_wake() or until now()
     * reaches the deadline; it may also return early, for no reason.
     */
    void (*sleep)(const struct dibs__clock *clock, atomic_uint *word, unsigned value, int64_t deadline);
};

extern const struct dibs__clock dibs__system_clock;

static inline int64_t dibs__now(const struct dibs__clock *clock)
{
    return clock->now(clock);
}

/* base + ms; where that would overflow, DIBS__NEVER. */
int64_t dibs__after_ms(int64_t base, int64_t ms);

/* How many milliseconds are left until the deadline, rounded up; 0 when it has passed. */
int64_t dibs__ms_until(int64_t deadline, int64_t now);

#endif
