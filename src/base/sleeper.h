/* How one thread sleeps until another wakes it. A wake before the sleep is not lost. */
#ifndef DIBS_BASE_SLEEPER_H
#define DIBS_BASE_SLEEPER_H

#include "base/clock.h"

/* Needs no mutex: a woken thread must not run into one that the waking thread still holds. */
struct dibs__sleeper {
    atomic_uint state; /* atomic; how the thread sleeps: sleeper.c */
};

void dibs__sleeper_init(struct dibs__sleeper *sleeper);

/* Returns once it was woken since the last sleep, or at the deadline, or for no reason. */
void dibs__sleeper_sleep(struct dibs__sleeper *sleeper, const struct dibs__clock *clock, int64_t deadline);

/* The sleeper may be gone once the thread that sleeps sees what it was woken for, even before this call ends. */
void dibs__sleeper_wake(struct dibs__sleeper *sleeper);

#endif
