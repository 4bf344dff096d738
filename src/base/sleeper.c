#include "base/sleeper.h"

bool dibs__sleeper_init(struct dibs__sleeper *sleeper)
{
    if (dibs__mutex_init(&sleeper->mutex) != 0)
        return false;
    if (dibs__cond_init(&sleeper->cond) == 0) {
        dibs__sleeper_mutex_lock(&sleeper->mutex);
        sleeper->woken = false;
        dibs__sleeper_mutex_unlock(&sleeper->mutex);
        return true;
    }
    dibs__mutex_destroy(&sleeper->mutex);
    return false;
}

void dibs__sleeper_destroy(struct dibs__sleeper *sleeper)
{
    pthread_cond_destroy(&sleeper->cond);
    dibs__mutex_destroy(&sleeper->mutex);
}

void dibs__sleeper_sleep(struct dibs__sleeper *sleeper, const struct dibs__clock *clock, int64_t deadline)
{
    dibs__sleeper_mutex_lock(&sleeper->mutex);
    if (!sleeper->woken)
        clock->wait(clock, &sleeper->cond, &sleeper->mutex, deadline);
    sleeper->woken = false;
    dibs__sleeper_mutex_unlock(&sleeper->mutex);
}

void dibs__sleeper_wake(struct dibs__sleeper *sleeper)
{
    dibs__sleeper_mutex_lock(&sleeper->mutex);
    sleeper->woken = true;
    dibs__sleeper_mutex_unlock(&sleeper->mutex);
    pthread_cond_signal(&sleeper->cond);
}
