/* How one thread sleeps until another wakes it. A wake before the sleep is not lost. */
#ifndef DIBS_BASE_SLEEPER_H
#define DIBS_BASE_SLEEPER_H

#include "base/clock.h"

/*
 * The mutex is a leaf, and held for a few instructions only, so neither thread
 * waits for it. The thread that wakes needs no other mutex: a woken thread must
 * not run into one that the waking thread still holds.
 */
DIBS__MUTEX_CLASS(dibs__sleeper_mutex);

struct dibs__sleeper {
    struct dibs__mutex mutex;
    pthread_cond_t cond;
    bool woken DIBS__GUARDED_BY(dibs__sleeper_mutex);
};

/* False: no mutex or condition variable is to be had. */
bool dibs__sleeper_init(struct dibs__sleeper *sleeper);
void dibs__sleeper_destroy(struct dibs__sleeper *sleeper);

/* Returns once it was woken since the last sleep, or at the deadline, or for no reason. */
void dibs__sleeper_sleep(struct dibs__sleeper *sleeper, const struct dibs__clock *clock, int64_t deadline);

/* The sleeper must outlive this call, which may end after the thread that sleeps has gone on. */
void dibs__sleeper_wake(struct dibs__sleeper *sleeper);

#endif
