#include "base/clock.h"

#include <stdbool.h>
#include <time.h>

#ifdef CLOCK_BOOTTIME /* Linux 5.3 and later read it without a system call */
#define LEASE_CLOCK CLOCK_BOOTTIME
#else
#define LEASE_CLOCK CLOCK_MONOTONIC /* on macOS this clock runs on while the machine is suspended */
#endif

#define NS_PER_S INT64_C(1000000000)
#define SLICE_MS 1000 /* after a suspension, a poll notices within this time that its deadline has passed */

static int64_t system_now(const struct dibs__clock *clock)
{
    struct timespec t;

    (void)clock;
    clock_gettime(LEASE_CLOCK, &t);
    return (int64_t)t.tv_sec * NS_PER_S + t.tv_nsec;
}

static int64_t left_until(const struct dibs__clock *clock, int64_t deadline)
{
    return deadline == DIBS__NEVER ? DIBS__NEVER : deadline - system_now(clock);
}

static void system_wait(const struct dibs__clock *clock, pthread_cond_t *cond, struct dibs__mutex *mutex,
                        int64_t deadline)
{
    int64_t left = left_until(clock, deadline);

    if (left > 0)
        dibs__mutex_wait_for(mutex, cond, left);
}

/* The timeout of poll(2) does not advance while the machine is suspended, so the clock is read after each slice. */
static int system_poll(const struct dibs__clock *clock, struct pollfd *fds, nfds_t count, int64_t deadline)
{
    for (;;) {
        int64_t ms = dibs__ms_until(deadline, system_now(clock));
        bool last = ms <= SLICE_MS || deadline == DIBS__NEVER;
        int ready = poll(fds, count, deadline == DIBS__NEVER ? -1 : last ? (int)ms : SLICE_MS);
        if (ready != 0 || last)
            return ready > 0 ? ready : 0;
    }
}

static void system_sleep(const struct dibs__clock *clock, atomic_uint *word, unsigned value, int64_t deadline)
{
    int64_t left = left_until(clock, deadline);

    if (left > 0)
        dibs__futex_wait(word, value, left);
}

const struct dibs__clock dibs__system_clock = {system_now, system_wait, system_poll, system_sleep};

int64_t dibs__after_ms(int64_t base, int64_t ms)
{
    if (ms > (DIBS__NEVER - base) / DIBS__NS_PER_MS)
        return DIBS__NEVER;
    return base + ms * DIBS__NS_PER_MS;
}

int64_t dibs__ms_until(int64_t deadline, int64_t now)
{
    if (deadline <= now)
        return 0;
    return (deadline - now) / DIBS__NS_PER_MS + ((deadline - now) % DIBS__NS_PER_MS != 0);
}
