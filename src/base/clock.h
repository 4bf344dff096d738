/* The clock that leases are counted on, and the two ways to sleep by it. An ops struct, so that tests move it. */
#ifndef DIBS_BASE_CLOCK_H
#define DIBS_BASE_CLOCK_H

#include <poll.h>
#include <stdint.h>

#include "base/mutex.h"

#define DIBS__NS_PER_MS INT64_C(1000000)
#define DIBS__NEVER INT64_MAX /* the deadline that does not come */

/*
 * now:  nanoseconds since some start, running on while the machine sleeps.
 * wait: lets go of mutex and sleeps until cond is signalled, or now() reaches
 *       the deadline, or for no reason; mutex is held again on return.
 * poll: poll(2) until something is ready or now() reaches the deadline, which
 *       is noticed within a second even where the machine was suspended
 *       meanwhile; returns how many are ready, 0 also for a signal.
 * A cond that is waited on with the clock is made by dibs__cond_init().
 */
struct dibs__clock {
    int64_t (*now)(const struct dibs__clock *clock);
    void (*wait)(const struct dibs__clock *clock, pthread_cond_t *cond, struct dibs__mutex *mutex, int64_t deadline);
    int (*poll)(const struct dibs__clock *clock, struct pollfd *fds, nfds_t count, int64_t deadline);
};

extern const struct dibs__clock dibs__system_clock;

static inline int64_t dibs__now(const struct dibs__clock *clock)
{
    return clock->now(clock);
}

/* base + ms, DIBS__NEVER instead of an overflow. */
int64_t dibs__after_ms(int64_t base, int64_t ms);

/* What is left until the deadline in whole milliseconds, rounded up; 0 when it has passed. */
int64_t dibs__ms_until(int64_t deadline, int64_t now);

/* Returns 0 or an error number, as pthread_cond_init does. */
int dibs__cond_init(pthread_cond_t *cond);

#endif
