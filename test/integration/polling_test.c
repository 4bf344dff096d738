/*
 * The wait that polls before it sleeps, on a real server: right results where several threads poll and sleep by turns,
 * after a fork, and with half a processor; and no polling where replies take longer than the bound.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/child.h"
#include "support/fixture.h"
#include "support/script_server.h"

enum { THREADS = 8, ROUNDS = 400, SPIN_US = 300, DELAY_MS = 10, SLOW_ROUNDS = 60 };

/* -------------------------------------------------------------------- a crowd */

/* Half of the acquires are of a name of the thread's own, half of one that all want, and that guards `counter`. */
struct crowd {
    dibs_runtime *rt;
    long counter;
    atomic_uint failed;
    atomic_uint number;
};

static void *lock_and_count(void *arg)
{
    struct crowd *crowd = arg;

    const char *own = formatted("own-%u", atomic_fetch_add(&crowd->number, 1));
    for (int i = 0; i < ROUNDS; i++) {
        crowd->failed += dibs_lock(crowd->rt, own) != DIBS_OK || dibs_unlock(crowd->rt, own) != DIBS_OK;
        crowd->failed += dibs_lock(crowd->rt, "shared") != DIBS_OK;
        crowd->counter++;
        crowd->failed += dibs_unlock(crowd->rt, "shared") != DIBS_OK;
    }
    return NULL;
}

static void expect_a_right_count(dibs_runtime *rt, int threads)
{
    struct crowd crowd = {.rt = rt};
    pthread_t ids[THREADS];

    for (int i = 0; i < threads; i++)
        assert_int_equal(pthread_create(&ids[i], NULL, lock_and_count, &crowd), 0);
    for (int i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
    assert_int_equal(atomic_load(&crowd.failed), 0);
    assert_int_equal(crowd.counter, (long)threads * ROUNDS);
}

static void open_polling(fixture *f)
{
    f->config.spin_us = SPIN_US;
    fixture_open(f, LONG_LEASE_MS);
}

TEST_ON(a_lone_thread_polls, fixture *f)
{
    open_polling(f);
    expect_a_right_count(f->rt, 1);
}

TEST_ON(threads_poll_and_sleep_by_turns, fixture *f)
{
    open_polling(f);
    expect_a_right_count(f->rt, THREADS);
}

/* --------------------------------------------------------------------- a fork */

static void *lock_until_told(void *arg)
{
    struct crowd *crowd = arg;

    while (atomic_load(&crowd->number) == 0)
        crowd->failed += dibs_lock(crowd->rt, "parent") != DIBS_OK || dibs_unlock(crowd->rt, "parent") != DIBS_OK;
    return NULL;
}

/* A child that hangs in the sanitizer's allocator, and is killed, does not keep its lock from the next for long. */
static void lock_in_child(dibs_runtime *rt)
{
    const dibs_lock_options brief = {.lease_ms = SAFE_LEASE_MS};

    for (int i = 0; i < 50; i++) {
        CHILD_WANTS(DIBS_OK, dibs_lock_with(rt, "child", DIBS_WAIT_FOREVER, &brief));
        CHILD_WANTS(DIBS_OK, dibs_unlock(rt, "child"));
    }
}

/* The child has none of the parent's threads. Some of them were polling at the fork. */
TEST_ON(a_child_of_polling_threads_polls_for_itself, fixture *f)
{
    pthread_t thread;

    open_polling(f);
    struct crowd crowd = {.rt = f->rt};
    assert_int_equal(pthread_create(&thread, NULL, lock_until_told, &crowd), 0);
    for (int i = 0; i < 5; i++)
        run_child(lock_in_child, f->rt);
    atomic_store(&crowd.number, 1);
    pthread_join(thread, NULL);
    assert_int_equal(atomic_load(&crowd.failed), 0);
}

/* ------------------------------------------------------------- a slow network */

static double seconds(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* A thread that polled through these waits would run for all of their time. */
TEST_ON(a_thread_sleeps_where_replies_are_slow, fixture *f)
{
    script_server *net = fixture_between(f);

    f->urls[0] = script_server_url(net);
    f->config.spin_us = 10000; /* as long as the replies take, so the thread polls for a while */
    fixture_open_connected(f, LONG_LEASE_MS);
    script_server_delay(net, DELAY_MS);
    double wall = seconds(CLOCK_MONOTONIC), ran = seconds(CLOCK_THREAD_CPUTIME_ID);
    for (int i = 0; i < SLOW_ROUNDS; i++) {
        lock_and_release(f->rt, "slow", DIBS_WAIT_FOREVER);
    }
    wall = seconds(CLOCK_MONOTONIC) - wall;
    ran = seconds(CLOCK_THREAD_CPUTIME_ID) - ran;
    script_server_delay(net, 0);
    assert_true(wall >= 2 * SLOW_ROUNDS * DELAY_MS / 1e3);
    assert_that(ran < wall / 2, "the thread ran for %.3f of %.3f s", ran, wall);
}

/* ------------------------------------------------------------ half a processor */

static bool write_text(const char *folder, const char *file, const char *text)
{
    int fd = open(formatted("%s/%s", folder, file), O_WRONLY | O_CLOEXEC);
    bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return done;
}

/* Makes a control group that may use half a processor, and moves the calling process there. False: not allowed. */
static bool enter_half_a_processor(const char *parent, char *folder, size_t size)
{
    snprintf(folder, size, "%s/dibs-test-%ld", parent, (long)getpid());
    if (mkdir(folder, 0700) != 0)
        return false;
    bool limited = write_text(folder, "cpu.max", "50000 100000") || write_text(folder, "cpu.cfs_quota_us", "50000");
    if (limited && write_text(folder, "cgroup.procs", "0"))
        return true;
    rmdir(folder);
    return false;
}

static volatile sig_atomic_t busy;

/* Without the right to make groups: another process that is busy on the same processor takes half of it. */
static pid_t share_a_processor(void)
{
    cpu_set_t all, one;

    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&one);
    for (size_t cpu = 0; CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &all))
            CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    pid_t child = fork_child();
    if (child == 0)
        for (;;)
            busy++;
    return child;
}

static int work_with_half(fixture *f)
{
    struct crowd crowd = {.number = 0};
    pthread_t ids[2];

    if (open_in_time(&crowd.rt, &f->config) != DIBS_OK)
        return 1;
    for (int i = 0; i < 2; i++)
        if (pthread_create(&ids[i], NULL, lock_and_count, &crowd) != 0)
            return 2;
    for (int i = 0; i < 2; i++)
        pthread_join(ids[i], NULL);
    dibs_close(crowd.rt);
    return atomic_load(&crowd.failed) == 0 && crowd.counter == 2L * ROUNDS ? 0 : 3;
}

TEST_ON(polling_works_on_half_a_processor, fixture *f)
{
    static const char *const parents[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/cpu"};
    char folder[128];
    int status;

    f->config.spin_us = SPIN_US;
    pid_t worker = fork_child();
    if (worker == 0) {
        bool limited = false;
        for (size_t i = 0; i < 2 && !limited; i++)
            limited = enter_half_a_processor(parents[i], folder, sizeof folder);
        pid_t rival = limited ? 0 : share_a_processor();
        int result = work_with_half(f);
        if (rival > 0) {
            kill(rival, SIGKILL);
            waitpid(rival, NULL, 0);
        }
        _exit(result);
    }
    assert_int_equal(waitpid(worker, &status, 0), worker);
    for (size_t i = 0; i < 2; i++) {
        snprintf(folder, sizeof folder, "%s/dibs-test-%ld", parents[i], (long)worker);
        rmdir(folder);
    }
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

TESTS(fixture_setup, fixture_teardown)
