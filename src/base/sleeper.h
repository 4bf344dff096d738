/* How one thread sleeps until another wakes it. A wake before the sleep is not lost. */
#ifndef DIBS_BASE_SLEEPER_H
#define DIBS_BASE_SLEEPER_H

#include "base/clock.h"

/* All zero at first. Has no mutex, because a woken thread must not run into one that the waking thread still holds. */
struct dibs__sleeper {
    atomic_uint state; /* atomic; one of the states in sleeper.c */
};

/* Returns when a wake has come since the last sleep, at the deadline, or without a reason. */
void dibs__sleeper_sleep(struct dibs__sleeper *sleeper, const struct dibs__clock *clock, int64_t deadline);

/* Once the sleeping thread sees what it was woken for, the sleeper may be gone, even before this call ends. */
void dibs__sleeper_wake(struct dibs__sleeper *sleeper);

#endif
