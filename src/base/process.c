#include "base/process.h"

#include <stdatomic.h>
#include <stddef.h>

#include "base/once.h"

#define FORGETS 4 /* as many modules have something to forget */

static struct dibs__mutex mutex = DIBS__MUTEX_INITIALIZER;
static void (*forgets[FORGETS])(void) DIBS__GUARDED_BY(dibs__process_mutex);
static struct dibs__once watching;        /* guards itself; runs watch_forks */
static atomic_uint generation;            /* atomic; changed in a forked child while it has one thread */
static _Thread_local atomic_bool is_here; /* atomic, for signal handlers: this thread holds the mutex, or is about to */

void dibs__process_lock(void)
{
    atomic_store_explicit(&is_here, true, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    dibs__process_mutex_lock(&mutex);
}

void dibs__process_unlock(void)
{
    dibs__process_mutex_unlock(&mutex);
    atomic_signal_fence(memory_order_seq_cst);
    atomic_store_explicit(&is_here, false, memory_order_relaxed);
}

void dibs__process_wait(pthread_cond_t *cond)
{
    dibs__mutex_wait(&mutex, cond);
}

bool dibs__process_is_locked_here(void)
{
    return atomic_load_explicit(&is_here, memory_order_relaxed);
}

/* --------------------------------------------------------------------- forks */

static void after_fork_in_child(void) DIBS__RELEASES(dibs__process_mutex)
{
    atomic_fetch_add(&generation, 1);
    dibs__once_was_done(&watching);
    for (size_t i = 0; i < FORGETS && forgets[i]; i++)
        forgets[i]();
    dibs__process_unlock();
}

static bool watch_forks(void)
{
    return pthread_atfork(dibs__process_lock, dibs__process_unlock, after_fork_in_child) == 0;
}

bool dibs__process_watch_forks(void)
{
    return dibs__once(&watching, watch_forks);
}

bool dibs__process_at_fork(void (*forget)(void))
{
    size_t i = 0;

    if (!dibs__process_watch_forks())
        return false;
    dibs__process_lock();
    while (i < FORGETS && forgets[i] && forgets[i] != forget)
        i++;
    DIBS__REQUIRE(i < FORGETS);
    forgets[i] = forget;
    dibs__process_unlock();
    return true;
}

unsigned dibs__fork_generation(void)
{
    return atomic_load_explicit(&generation, memory_order_relaxed);
}
