/* Work that is done once: by one of many threads, again where it failed, and by a child that was forked meanwhile. */
#include <pthread.h>
#include <unistd.h>

#include "base/once.h"
#include "support/process.h"
#include "support/test.h"

static struct {
    atomic_int runs, failures; /* how often the work ran; how often it is still to fail */
    atomic_bool blocks;        /* the work waits while this is set */
} work;

static bool do_it(void)
{
    atomic_fetch_add(&work.runs, 1);
    (void)within(LIMIT_MS, !atomic_load(&work.blocks));
    if (atomic_load(&work.failures) == 0)
        return true;
    atomic_fetch_sub(&work.failures, 1);
    return false;
}

static int setup(void **state)
{
    atomic_store(&work.runs, 0);
    atomic_store(&work.failures, 0);
    atomic_store(&work.blocks, false);
    return 0;
}

TEST(a_failed_once_is_tried_again)
{
    struct dibs__once once = {0};

    atomic_store(&work.failures, 2);
    assert_false(dibs__once(&once, do_it));
    assert_false(dibs__once(&once, do_it));
    for (int i = 0; i < 3; i++)
        assert_true(dibs__once(&once, do_it));
    assert_int_equal(atomic_load(&work.runs), 3);
}

/* Returns whether the work was done when the call came back. */
static void *call_once(void *once)
{
    bool done = dibs__once(once, do_it);

    return (void *)(intptr_t)(done && !atomic_load(&work.blocks));
}

TEST(many_threads_do_once_and_wait)
{
    enum { THREADS = 8 };
    static struct dibs__once once;
    pthread_t threads[THREADS];
    void *good;

    atomic_store(&work.blocks, true);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, call_once, &once), 0);
    await_that(atomic_load(&work.runs) > 0);
    atomic_store(&work.blocks, false);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], &good);
        assert_non_null(good);
    }
    assert_int_equal(atomic_load(&work.runs), 1);
}

/* The thread that did the work does not exist in the child, so the child does not wait for it. */
TEST(a_childs_once_does_not_wait_for_its_parents_thread)
{
    static struct dibs__once once;
    pthread_t thread;

    void *good;

    atomic_store(&work.blocks, true);
    assert_int_equal(pthread_create(&thread, NULL, call_once, &once), 0);
    await_that(atomic_load(&work.runs) > 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(30);
        atomic_store(&work.blocks, false);
        bool done = dibs__once(&once, do_it) && dibs__once(&once, do_it);
        _exit(done && atomic_load(&work.runs) == 2 ? 0 : 2);
    }
    assert_int_equal(child_wait(pid), 0);
    atomic_store(&work.blocks, false);
    pthread_join(thread, &good);
    assert_non_null(good);
    assert_int_equal(atomic_load(&work.runs), 1);
}

TESTS(setup, NULL)
