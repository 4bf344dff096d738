/* The mutex excludes, lets go while it waits, and in test builds knows who has locked it. */
#include "base/mutex.h"

#include "support/child.h"
#include "support/test.h"

enum { THREADS = 4, ROUNDS = 20000 };

DIBS__MUTEX_CLASS(shared_mutex);

static struct {
    struct dibs__mutex mutex;
    pthread_cond_t changed;
    long count DIBS__GUARDED_BY(shared_mutex);
    bool told DIBS__GUARDED_BY(shared_mutex);
} shared = {.mutex = DIBS__MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void *count(void *arg)
{
    for (int i = 0; i < ROUNDS; i++) {
        shared_mutex_lock(&shared.mutex);
        shared.count++;
        shared_mutex_unlock(&shared.mutex);
    }
    return arg;
}

TEST(threads_exclude_each_other)
{
    pthread_t threads[THREADS];

    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, count, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    shared_mutex_lock(&shared.mutex);
    assert_int_equal(shared.count, THREADS * ROUNDS);
    shared_mutex_unlock(&shared.mutex);
}

static void *tell(void *arg)
{
    shared_mutex_lock(&shared.mutex);
    shared.told = true;
    pthread_cond_signal(&shared.changed);
    shared_mutex_unlock(&shared.mutex);
    return arg;
}

TEST(a_waiting_thread_releases_the_mutex)
{
    pthread_t thread;

    shared_mutex_lock(&shared.mutex);
    assert_int_equal(pthread_create(&thread, NULL, tell, NULL), 0);
    while (!shared.told)
        assert_int_equal(dibs__mutex_wait(&shared.mutex, &shared.changed), 0);
    shared_mutex_held(&shared.mutex);
    shared_mutex_unlock(&shared.mutex);
    pthread_join(thread, NULL);
}

#ifdef DIBS_CHECKED
static struct dibs__mutex wrong = DIBS__MUTEX_INITIALIZER;

static void lock_twice(void)
{
    dibs__mutex_lock(&wrong);
    dibs__mutex_lock(&wrong);
}

static void unlock_what_is_free(void)
{
    dibs__mutex_unlock(&wrong);
}

static void *unlock(void *arg)
{
    dibs__mutex_unlock(&wrong);
    return arg;
}

static void unlock_what_another_has_locked(void)
{
    pthread_t thread;

    dibs__mutex_lock(&wrong);
    if (pthread_create(&thread, NULL, unlock, NULL) == 0)
        pthread_join(thread, NULL);
}

static void wait_without_it(void)
{
    pthread_cond_t cond = PTHREAD_COND_INITIALIZER;

    dibs__mutex_wait(&wrong, &cond);
}

static void require_without_it(void)
{
    shared_mutex_held(&wrong);
}

TEST(misuse_ends_a_test_build)
{
    child_aborts(lock_twice);
    child_aborts(unlock_what_is_free);
    child_aborts(unlock_what_another_has_locked);
    child_aborts(wait_without_it);
    child_aborts(require_without_it);
}
#else
TEST(an_ordinary_build_checks_no_mutex_use)
{
    struct dibs__mutex free_one = DIBS__MUTEX_INITIALIZER;

    shared_mutex_held(&free_one);
    assert_int_equal(sizeof(struct dibs__mutex), sizeof(pthread_mutex_t));
}
#endif

TESTS(NULL, NULL)
