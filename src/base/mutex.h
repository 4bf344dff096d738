/*
 * A mutex whose use is checked: by clang's thread-safety analysis in every build with -Wthread-safety, and in test
 * builds (DIBS_CHECKED) by the mutex itself, which knows the thread that has locked it.
 *
 * In C, that analysis can't name another member of the same struct. So a field is guarded by a class: one name for the
 * mutexes of all objects of a kind. The analysis notices a field that is used without such a mutex, but not one that is
 * used under the mutex of another object.
 *
 *     DIBS__MUTEX_CLASS(cell_mutex)
 *     struct cell {
 *         struct dibs__mutex mutex;
 *         int waiters DIBS__GUARDED_BY(cell_mutex);
 *     };
 *     static void enter(struct cell *cell) DIBS__REQUIRES(cell_mutex)
 *     {
 *         cell->waiters++;
 *     }
 *     ...
 *     cell_mutex_lock(&cell->mutex);
 *     enter(cell);
 *     cell_mutex_unlock(&cell->mutex);
 */
#ifndef DIBS_BASE_MUTEX_H
#define DIBS_BASE_MUTEX_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/require.h"

#ifdef __clang__
#define DIBS__THREAD_SAFETY(x) __attribute__((x))
#else
#define DIBS__THREAD_SAFETY(x)
#endif

#define DIBS__GUARDED_BY(class) DIBS__THREAD_SAFETY(guarded_by(class)) /* a field */

/* A function that is called, and returns, with the mutex locked. It may unlock the mutex in between. */
#define DIBS__REQUIRES(class) DIBS__THREAD_SAFETY(requires_capability(class))
#define DIBS__EXCLUDES(class) DIBS__THREAD_SAFETY(locks_excluded(class))
#define DIBS__ACQUIRES(class) DIBS__THREAD_SAFETY(acquire_capability(class))
#define DIBS__RELEASES(class) DIBS__THREAD_SAFETY(release_capability(class))
#define DIBS__ASSERTS(class) DIBS__THREAD_SAFETY(assert_capability(class))
#define DIBS__UNANALYSED DIBS__THREAD_SAFETY(no_thread_safety_analysis) /* say why beside it */

struct DIBS__THREAD_SAFETY(capability("mutex")) dibs__mutex_class {
    char unused;
};

struct dibs__mutex {
    pthread_mutex_t native;
#ifdef DIBS_CHECKED
    _Atomic(pthread_t) owner; /* atomic; 0: nobody; written by the thread that has locked the mutex */
#endif
};

#define DIBS__MUTEX_INITIALIZER                                                                                        \
    {                                                                                                                  \
        .native = PTHREAD_MUTEX_INITIALIZER                                                                            \
    }

/* Returns 0 or an error number, as pthread_mutex_init does. */
int dibs__mutex_init(struct dibs__mutex *mutex);

void dibs__mutex_destroy(struct dibs__mutex *mutex);

/* Initialises a cond for the waits below. Returns 0 or an error number, as pthread_cond_init does. */
int dibs__cond_init(pthread_cond_t *cond);

/* Initialises both. False: neither, for lack of memory. */
bool dibs__mutex_and_cond_init(struct dibs__mutex *mutex, pthread_cond_t *cond);

/*
 * As pthread_cond_timedwait for `ns` nanoseconds, above 0; INT64_MAX: as pthread_cond_wait. The caller has locked the
 * mutex.
 */
int dibs__mutex_wait_for(struct dibs__mutex *mutex, pthread_cond_t *cond, int64_t ns);

static inline int dibs__mutex_wait(struct dibs__mutex *mutex, pthread_cond_t *cond)
{
    return dibs__mutex_wait_for(mutex, cond, INT64_MAX);
}

#ifdef DIBS_CHECKED
void dibs__mutex_lock(struct dibs__mutex *mutex);
void dibs__mutex_unlock(struct dibs__mutex *mutex);
bool dibs__mutex_is_mine(const struct dibs__mutex *mutex); /* whether the calling thread has locked it */
#else
static inline void dibs__mutex_lock(struct dibs__mutex *mutex)
{
    pthread_mutex_lock(&mutex->native);
}

static inline void dibs__mutex_unlock(struct dibs__mutex *mutex)
{
    pthread_mutex_unlock(&mutex->native);
}

static inline bool dibs__mutex_is_mine(const struct dibs__mutex *mutex)
{
    (void)mutex;
    return true;
}
#endif

/* Declares a class, and the functions that lock, unlock and (in test builds) check a mutex of that class. */
#define DIBS__MUTEX_CLASS(class)                                                                                       \
    extern struct dibs__mutex_class class;                                                                             \
    __attribute__((unused)) DIBS__ACQUIRES(class)                                                                      \
        DIBS__UNANALYSED static inline void class##_lock(struct dibs__mutex *mutex)                                    \
    {                                                                                                                  \
        dibs__mutex_lock(mutex);                                                                                       \
    }                                                                                                                  \
    __attribute__((unused)) DIBS__RELEASES(class)                                                                      \
        DIBS__UNANALYSED static inline void class##_unlock(struct dibs__mutex *mutex)                                  \
    {                                                                                                                  \
        dibs__mutex_unlock(mutex);                                                                                     \
    }                                                                                                                  \
    __attribute__((unused)) DIBS__ASSERTS(class)                                                                       \
        DIBS__UNANALYSED static inline void class##_held(const struct dibs__mutex *mutex)                              \
    {                                                                                                                  \
        DIBS__REQUIRE(dibs__mutex_is_mine(mutex));                                                                     \
    }                                                                                                                  \
    struct dibs__mutex_class

#endif
