#include "support/common/timing.h"

#include <errno.h>
#include <time.h>

static int64_t read_clock(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

uint64_t clock_ns(void)
{
    return (uint64_t)read_clock(CLOCK_MONOTONIC);
}

double now_ns(void)
{
    return (double)read_clock(CLOCK_MONOTONIC);
}

int64_t thread_ns(void)
{
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

void pause_us(uint64_t us)
{
    struct timespec left = {.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000};

    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
        /* a signal: sleep on */
    }
}
