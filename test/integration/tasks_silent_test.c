/* Tasks and begun calls on a server that does not answer, or whose replicas do not. */
#include <stdlib.h>

#include "support/fixture.h"
#include "support/tasks.h"
#include "support/test.h"
#include "support/wait.h"

#define FOREVER DIBS_WAIT_FOREVER
#define SILENT_MS 300

static bool is_free(void *arg)
{
    const fixture *f = arg;
    dibs_owner a, b;

    return dibs_query(f->rt, "a", &a) == DIBS_OK && dibs_query(f->rt, "b", &b) == DIBS_OK && !a.held && !b.held &&
           a.waiters == 0 && b.waiters == 0;
}

/* The call that asks still returns at once, and its ask is retracted. */
static void a_cancel_does_not_wait_for_a_silent_server(void **state)
{
    fixture *f = *state;
    actor *a = actor_start();

    f->config.command_timeout_ms = f->config.connect_timeout_ms = LIMIT_MS;
    fixture_open_connected(f, LONG_LEASE_MS);
    dibs_queue *q = queue_new();
    dibs_task *begun = task_of_runtime(f->rt), *blocking = task_of_runtime(f->rt);
    assert_status(DIBS_OK, task_lock(begun, "first", 0, q));
    assert_status(DIBS_OK, task_unlock(begun, "first", q));
    server_pause(f->server);
    int64_t began = now_ms();
    begin_lock(begun, "a", FOREVER, NULL, q);
    actor_begin_task_lock(a, f->rt, blocking, "b", FOREVER, NULL);
    dibs_completion c;
    assert_int_equal(dibs_queue_take(q, &c, 1, 100), 0);
    actor_await_asleep(a);
    dibs_task_cancel(begun);
    dibs_task_cancel(blocking);
    assert_int_equal(dibs_queue_take(q, &c, 1, 0), 1);
    assert_int_equal(c.status, DIBS_CANCELLED);
    assert_status(DIBS_CANCELLED, actor_task_result(a));
    assert_true(now_ms() - began < LIMIT_MS / 2);
    server_resume(f->server);
    assert_true(wait_until(is_free, f, LIMIT_MS));
    assert_status(DIBS_OK, dibs_timedlock(f->rt, "a", LIMIT_MS));
    assert_status(DIBS_OK, dibs_timedlock(f->rt, "b", LIMIT_MS));
    assert_status(DIBS_OK, dibs_unlock_all(f->rt));
    expect_none(q);
    actor_end(a);
    dibs_task_free(begun);
    dibs_task_free(blocking);
    dibs_queue_free(q);
}

/* A cancel wakes the thread, which need not look for one. */
static void a_blocking_call_sleeps_while_the_server_is_silent(void **state)
{
    fixture *f = *state;
    actor *a = actor_start();

    f->config.command_timeout_ms = f->config.connect_timeout_ms = LIMIT_MS;
    fixture_open_connected(f, LONG_LEASE_MS);
    dibs_task *task = task_of_runtime(f->rt);
    server_pause(f->server);
    actor_begin_task_lock(a, f->rt, task, "b", FOREVER, NULL);
    actor_await_asleep(a);
    long before = actor_sleeps(a);
    pause_ms(SILENT_MS);
    long times = actor_sleeps(a) - before;
    assert_that(times < SILENT_MS / 30, "it slept %ld times", times);
    actor_await_asleep(a);
    dibs_task_cancel(task);
    assert_status(DIBS_CANCELLED, actor_task_result(a));
    server_resume(f->server);
    assert_true(wait_until(is_free, f, LIMIT_MS));
    actor_end(a);
    dibs_task_free(task);
}

static void take_keeps_its_time_while_the_server_is_silent(void **state)
{
    enum { TASKS = 30 };
    static const dibs_lock_options fair = {.flags = DIBS_FAIR};
    fixture *f = *state;
    dibs_task *tasks[TASKS];
    dibs_completion c;

    f->config.command_timeout_ms = f->config.connect_timeout_ms = LIMIT_MS;
    fixture_open_connected(f, LONG_LEASE_MS);
    dibs_queue *q = queue_new();
    server_pause(f->server);
    for (int i = 0; i < TASKS; i++) {
        tasks[i] = task_of_runtime(f->rt);
        begin_lock(tasks[i], "a", FOREVER, i % 2 ? &fair : NULL, q);
    }
    for (int i = 0; i < 5; i++) {
        int64_t began = now_ms();
        assert_int_equal(dibs_queue_take(q, &c, 1, 10), 0);
        assert_true(now_ms() - began < LIMIT_MS / 2);
    }
    server_resume(f->server);
    for (int i = 0; i < TASKS; i++)
        dibs_task_free(tasks[i]);
    for (int i = 0; i < TASKS; i++)
        next_done(q);
    expect_none(q);
    assert_true(wait_until(is_free, f, LIMIT_MS));
    dibs_queue_free(q);
}

/* No replica acknowledges: the grant is given back, also where the call was cancelled meanwhile. */
static void a_grant_without_replicas_is_given_back(void **state)
{
    fixture *f = *state;

    f->config.min_replicas = 1;
    f->config.replica_timeout_ms = 100;
    f->config.outage_ms = 300;
    fixture_open(f, LONG_LEASE_MS);
    dibs_queue *q = queue_new();
    dibs_task *task = task_of_runtime(f->rt), *other = task_of_runtime(f->rt);
    assert_status(DIBS_UNAVAILABLE, task_lock(task, "a", 0, q));
    assert_status(DIBS_UNAVAILABLE, task_lock(task, "a", FOREVER, q));
    begin_lock(other, "a", FOREVER, NULL, q);
    pause_ms(50);
    dibs_task_cancel(other);
    dibs_completion c = next_done(q);
    assert_true(c.status == DIBS_CANCELLED || c.status == DIBS_UNAVAILABLE);
    assert_true(wait_until(is_free, f, LIMIT_MS));
    dibs_task_free(task);
    dibs_task_free(other);
    dibs_queue_free(q);
}

#define FIXTURE(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE(a_cancel_does_not_wait_for_a_silent_server),
        FIXTURE(a_blocking_call_sleeps_while_the_server_is_silent),
        FIXTURE(take_keeps_its_time_while_the_server_is_silent),
        FIXTURE(a_grant_without_replicas_is_given_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
