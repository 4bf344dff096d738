/* Reads the time, and lets it pass. */
#include "support/wait.h"

#include <time.h>

#include "support/common/timing.h"

int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void pause_ms(int64_t ms)
{
    if (ms > 0)
        pause_us((uint64_t)ms * 1000);
}

void pause_until(int64_t ms)
{
    pause_ms(ms - now_ms());
}
