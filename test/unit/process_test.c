/* The mutex of the process, and what a forked child forgets. */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/process.h"
#include "support/process.h"
#include "support/test.h"

static int forgotten, locked_when_forgotten;

static void forget(void)
{
    forgotten++;
    locked_when_forgotten += dibs__process_is_locked_here();
}

static bool a_child_has_forgotten_once(unsigned generation)
{
    return forgotten == 1 && locked_when_forgotten == 1 && !dibs__process_is_locked_here() &&
           dibs__fork_generation() == generation + 1;
}

TEST(each_child_forgets_once_what_was_added_twice)
{
    assert_true(dibs__process_at_fork(forget));
    assert_true(dibs__process_at_fork(forget));
    unsigned generation = dibs__fork_generation();
    pid_t pid = fork();
    if (pid == 0) {
        bool good = a_child_has_forgotten_once(generation);
        pid_t grandchild = fork();
        if (grandchild == 0)
            _exit(forgotten == 2 && dibs__fork_generation() == generation + 2 ? 0 : 2);
        _exit(good && child_wait_for(grandchild, LIMIT_MS) == 0 ? 0 : 1);
    }
    assert_int_equal(child_wait(pid), 0);
    assert_int_equal(forgotten, 0);
    assert_int_equal(dibs__fork_generation(), generation);
}

TEST(a_thread_knows_whether_it_has_locked)
{
    assert_true(dibs__process_watch_forks());
    assert_false(dibs__process_is_locked_here());
    dibs__process_lock();
    assert_true(dibs__process_is_locked_here());
    dibs__process_unlock();
    assert_false(dibs__process_is_locked_here());
}

static atomic_bool stops;
static int pair[2] DIBS__GUARDED_BY(dibs__process_mutex);

static void *change_both(void *unused)
{
    while (!atomic_load(&stops)) {
        dibs__process_lock();
        pair[0]++;
        pair[1]++;
        dibs__process_unlock();
    }
    return unused;
}

/* While another thread changes what the mutex guards. */
TEST(a_child_finds_whole_what_the_mutex_guards)
{
    pthread_t thread;

    assert_true(dibs__process_watch_forks());
    assert_int_equal(pthread_create(&thread, NULL, change_both, NULL), 0);
    for (int i = 0; i < 50; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            dibs__process_lock();
            bool whole = pair[0] == pair[1];
            dibs__process_unlock();
            _exit(whole ? 0 : 1);
        }
        assert_int_equal(child_wait(pid), 0);
    }
    atomic_store(&stops, true);
    pthread_join(thread, NULL);
}

TESTS(NULL, NULL)
