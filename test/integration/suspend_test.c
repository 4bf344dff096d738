/*
 * A machine that was suspended for an hour: the clock that runs through suspend has jumped, the one that threads sleep
 * by has not. All earlier holds are lost, and a waiter gets the lock once, with a whole lease.
 *
 * The clock is the function below, in front of the C library's.
 */
#include <dirent.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "support/agent.h"
#include "support/fixture.h"
#include "support/queue.h"

static atomic_int hours; /* that the machine was suspended */

int clock_gettime(clockid_t id, struct timespec *out)
{
    int result = (int)syscall(SYS_clock_gettime, id, out);

    if (result == 0 && id == CLOCK_BOOTTIME)
        out->tv_sec += 3600L * atomic_load(&hours);
    return result;
}

static void suspend(void)
{
    atomic_fetch_add(&hours, 1);
}

/* How often the scheduler has gone to sleep; -1: it is awake now. */
static long scheduler_sleeps(void)
{
    DIR *folder = opendir("/proc/self/task");
    long sleeps = -1;

    assert_non_null(folder);
    for (struct dirent *task; (task = readdir(folder));) {
        char line[200], name[32] = "", letter = 0;
        long count = -1;
        FILE *file = fopen(formatted("/proc/self/task/%s/status", task->d_name), "re");
        while (file && fgets(line, sizeof line, file)) {
            if (sscanf(line, "Name: %31s", name) != 1 && sscanf(line, "State: %c", &letter) != 1)
                sscanf(line, "voluntary_ctxt_switches: %ld", &count);
        }
        if (file)
            fclose(file);
        if (strcmp(name, "dibs-scheduler") == 0 && letter == 'S')
            sleeps = count;
    }
    closedir(folder);
    return sleeps;
}

/* Whether the scheduler has slept since `last`: then it has dealt with what woke it. */
static bool scheduler_slept_on(long *last)
{
    long sleeps = scheduler_sleeps(), before = *last;

    *last = sleeps;
    pause_ms(50);
    return sleeps >= 0 && sleeps == before;
}

/*
 * The scheduler would have slept for a third of the lease, by a clock that stood still meanwhile. (A call that may wait
 * would make the scheduler attend to a subscription, every few seconds.)
 */
TEST_ON(the_scheduler_notices_a_suspension, fixture *f)
{
    long sleeps = -1;

    fixture_open(f, LONG_LEASE_MS);
    assert_status(DIBS_OK, dibs_trylock(f->rt, "x"));
    await_that(scheduler_slept_on(&sleeps));
    suspend();
    events_await(&f->events, DIBS_EVENT_LOST, "x");
    assert_status(DIBS_LOST, dibs_unlock(f->rt, "x"));
}

/* A call finds the loss at once, by the clock alone; the scheduler finds it when it wakes next. */
TEST_ON(locks_held_before_a_suspension_are_lost, fixture *f)
{
    dibs_hold hold;

    fixture_open_holding(f, SAFE_LEASE_MS, "x");
    assert_status(DIBS_OK, dibs_lock(f->rt, "y"));
    suspend();
    assert_status(DIBS_LOST, dibs_check(f->rt, "x"));
    assert_status(DIBS_LOST, dibs_hold_of(f->rt, "x", &hold));
    assert_int_equal(hold.remaining_ms, 0);
    assert_status(DIBS_LOST, dibs_lock(f->rt, "x"));
    assert_status(DIBS_LOST, dibs_unlock(f->rt, "x"));
    events_await(&f->events, DIBS_EVENT_LOST, "x");
    events_await(&f->events, DIBS_EVENT_LOST, "y");
    assert_int_equal(stats_of(f->rt).leases, 0);
    assert_status(DIBS_LOST, dibs_unlock(f->rt, "y"));
    /* The server was not suspended: the keys are there until they are retracted. */
    assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS));
    assert_true(server_wait_gone(f->server, "lock:y", LIMIT_MS));
    expect_works(f, f->rt, "x");
}

static const dibs_lock_options fair = {.flags = DIBS_FAIR};

static void expect_whole_lease(fixture *f, actor *a, uint32_t lease_ms)
{
    dibs_hold hold;

    assert_status(DIBS_OK, actor_hold(a, f->rt, "x", &hold));
    assert_in_range(hold.remaining_ms, lease_ms / 2, lease_ms);
    assert_true(hold.remaining_ms <= server_integer(f->server, "PTTL lock:x") + lease_ms / 100 + 2);
    assert_status(DIBS_OK, actor_unlock(a, f->rt, "x"));
}

/* A push that names an ask from before the suspension proves nothing. */
TEST_ON(a_waiter_asks_again_after_a_suspension, fixture *f)
{
    process *holder = agent_start(f->server->url, LONG_LEASE_MS);
    actor *waiter = actor_start();
    actor *ordered = actor_start();

    fixture_open(f, LONG_LEASE_MS);
    for (int i = 0; i < 5; i++) {
        uint64_t commands;

        assert_status(DIBS_OK, agent_lock(holder, "x", LIMIT_MS));
        actor_begin_lock(waiter, f->rt, "x", DIBS_WAIT_FOREVER);
        queue_await(f->server, "x", 1);
        queue_await_listening(f->server, queue_at(f->server, "x", 0).channel);
        actor_begin_lock_with(ordered, f->rt, "x", DIBS_WAIT_FOREVER, &fair);
        queue_await(f->server, "x", 2);
        commands = stats_of(f->rt).store_commands;
        suspend();
        assert_status(DIBS_OK, agent_unlock(holder, "x"));
        assert_status(DIBS_OK, actor_result(waiter));
        assert_true(actor_busy(ordered));
        assert_true(stats_of(f->rt).store_commands > commands);
        suspend(); /* and that is as long as this was held, too */
        assert_status(DIBS_LOST, actor_unlock(waiter, f->rt, "x"));
        assert_status(DIBS_OK, actor_result(ordered));
        expect_whole_lease(f, ordered, LONG_LEASE_MS);
    }
    agent_stop(holder);
    queue_assert_gone(f->server, "x");
}

/* A lease that is being handed over, or is reserved for a waiter, is not taken over. */
TEST_ON(a_lease_handed_over_before_a_suspension_is_not_taken, fixture *f)
{
    actor *waiter = actor_start();

    f->config.handoff_ms = LONG_LEASE_MS;
    fixture_open(f, LONG_LEASE_MS);
    for (int i = 0; i < 5; i++) {
        assert_status(DIBS_OK, dibs_timedlock(f->rt, "x", LIMIT_MS));
        actor_begin_lock(waiter, f->rt, "x", DIBS_WAIT_FOREVER);
        actor_await_asleep(waiter);
        suspend();
        assert_status(DIBS_LOST, dibs_unlock(f->rt, "x"));
        assert_status(DIBS_OK, actor_result(waiter));
        expect_whole_lease(f, waiter, LONG_LEASE_MS);
    }
}

TESTS(fixture_setup, fixture_teardown)
