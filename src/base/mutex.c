#include "base/mutex.h"

#include <time.h>

#define NS_PER_S INT64_C(1000000000)

#ifdef DIBS_CHECKED
#include <stdatomic.h>
#include <stdint.h>

/* A thread only compares the owner with itself, and no other thread writes that value, so relaxed order is enough. */
static void set_owner(struct dibs__mutex *mutex, pthread_t owner)
{
    atomic_store_explicit(&mutex->owner, owner, memory_order_relaxed);
}

bool dibs__mutex_is_mine(const struct dibs__mutex *mutex)
{
    return atomic_load_explicit(&((struct dibs__mutex *)(uintptr_t)mutex)->owner, memory_order_relaxed) ==
           pthread_self();
}

void dibs__mutex_lock(struct dibs__mutex *mutex)
{
    DIBS__REQUIRE(!dibs__mutex_is_mine(mutex));
    pthread_mutex_lock(&mutex->native);
    set_owner(mutex, pthread_self());
}

void dibs__mutex_unlock(struct dibs__mutex *mutex)
{
    DIBS__REQUIRE(dibs__mutex_is_mine(mutex));
    set_owner(mutex, 0);
    pthread_mutex_unlock(&mutex->native);
}

#else
static void set_owner(const struct dibs__mutex *mutex, pthread_t owner)
{
    (void)mutex;
    (void)owner;
}
#endif

int dibs__mutex_init(struct dibs__mutex *mutex)
{
    set_owner(mutex, 0);
    return pthread_mutex_init(&mutex->native, NULL);
}

void dibs__mutex_destroy(struct dibs__mutex *mutex)
{
    pthread_mutex_destroy(&mutex->native);
}

/*
 * The clock of a cond does not advance while the machine is suspended. macOS waits for a length of time by a function
 * of its own.
 */
#ifdef __APPLE__
int dibs__cond_init(pthread_cond_t *cond)
{
    return pthread_cond_init(cond, NULL);
}

static int timed_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t ns)
{
    const struct timespec length = {.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};

    return pthread_cond_timedwait_relative_np(cond, mutex, &length);
}
#else
int dibs__cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attributes;
    int error = pthread_condattr_init(&attributes);

    if (error)
        return error;
    error = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    if (!error)
        error = pthread_cond_init(cond, &attributes);
    pthread_condattr_destroy(&attributes);
    return error;
}

static int timed_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t ns)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t part = until.tv_nsec + ns % NS_PER_S;
    until.tv_sec += (time_t)(ns / NS_PER_S + part / NS_PER_S);
    until.tv_nsec = (long)(part % NS_PER_S);
    return pthread_cond_timedwait(cond, mutex, &until);
}
#endif

bool dibs__mutex_and_cond_init(struct dibs__mutex *mutex, pthread_cond_t *cond)
{
    if (dibs__cond_init(cond) != 0)
        return false;
    if (dibs__mutex_init(mutex) == 0)
        return true;
    pthread_cond_destroy(cond);
    return false;
}

int dibs__mutex_wait_for(struct dibs__mutex *mutex, pthread_cond_t *cond, int64_t ns)
{
    DIBS__REQUIRE(dibs__mutex_is_mine(mutex));
    set_owner(mutex, 0);
    int error = ns == INT64_MAX ? pthread_cond_wait(cond, &mutex->native) : timed_wait(cond, &mutex->native, ns);
    set_owner(mutex, pthread_self());
    return error;
}
