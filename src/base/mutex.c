#include "base/mutex.h"

#ifdef DIBS_CHECKED
#include <stdatomic.h>
#include <stdint.h>

/* Only the calling thread writes its own number there, so a relaxed look is enough to compare with that. */
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

static void let_go(struct dibs__mutex *mutex)
{
    DIBS__REQUIRE(dibs__mutex_is_mine(mutex));
    set_owner(mutex, 0);
}

static void take_again(struct dibs__mutex *mutex)
{
    set_owner(mutex, pthread_self());
}
#else
static void let_go(struct dibs__mutex *mutex)
{
    (void)mutex;
}

static void take_again(struct dibs__mutex *mutex)
{
    (void)mutex;
}
#endif

int dibs__mutex_init(struct dibs__mutex *mutex)
{
#ifdef DIBS_CHECKED
    atomic_init(&mutex->owner, 0);
#endif
    return pthread_mutex_init(&mutex->native, NULL);
}

void dibs__mutex_destroy(struct dibs__mutex *mutex)
{
    pthread_mutex_destroy(&mutex->native);
}

int dibs__mutex_wait(struct dibs__mutex *mutex, pthread_cond_t *cond)
{
    let_go(mutex);
    int error = pthread_cond_wait(cond, &mutex->native);
    take_again(mutex);
    return error;
}

int dibs__mutex_wait_until(struct dibs__mutex *mutex, pthread_cond_t *cond, const struct timespec *until)
{
    let_go(mutex);
#ifdef __APPLE__
    int error = pthread_cond_timedwait_relative_np(cond, &mutex->native, until);
#else
    int error = pthread_cond_timedwait(cond, &mutex->native, until);
#endif
    take_again(mutex);
    return error;
}
