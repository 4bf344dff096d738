/* Tasks: entering and leaving, what each call concerns inside, and what cancel and free do. With threads that wait. */
#include "support/fixture.h"
#include "support/stage.h"
#include "support/tasks.h"

#define LEASE 30000
#define FOREVER DIBS_WAIT_FOREVER

static const dibs_lock_options fair = {.flags = DIBS_FAIR}, no_reentry = {.flags = DIBS_NO_REENTRY};

/* --------------------------------------------------------------- whose the calls are */

TEST_ON(two_tasks_exclude_each_other_also_on_one_thread, stage *s)
{
    dibs_task *one = test_task(task_of_runtime(s->rt)), *two = test_task(task_of_runtime(s->rt));
    assert_status(DIBS_OK, dibs_task_enter(one));
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    assert_status(DIBS_OK, dibs_task_leave(one));
    assert_status(DIBS_BUSY, dibs_trylock(s->rt, "a"));
    assert_status(DIBS_OK, dibs_task_enter(two));
    assert_status(DIBS_BUSY, dibs_trylock(s->rt, "a"));
    assert_status(DIBS_NOT_HELD, dibs_unlock(s->rt, "a"));
    assert_non_null(strstr(dibs_last_error(), "task"));
    assert_status(DIBS_OK, dibs_task_leave(two));
    assert_status(DIBS_OK, dibs_task_enter(one));
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    assert_status(DIBS_OK, dibs_task_leave(one));
    lock_and_release(s->rt, "a", 0);
}

TEST_ON(a_task_moves_from_thread_to_thread_with_its_holds, stage *s)
{
    actor *other = actor_start();
    dibs_hold hold;

    dibs_task *task = test_task(task_of_runtime(s->rt));
    assert_status(DIBS_OK, dibs_task_enter(task));
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    uint64_t fence = fence_of(s->rt, "a");
    assert_status(DIBS_OK, dibs_task_leave(task));
    assert_status(DIBS_NOT_HELD, actor_check(other, s->rt, "a"));
    assert_status(DIBS_OK, actor_enter(other, task));
    assert_status(DIBS_OK, actor_hold(other, s->rt, "a", &hold));
    assert_int_equal(hold.count, 2);
    assert_int_equal(hold.fence, fence);
    assert_status(DIBS_OK, actor_extend(other, s->rt, "a", LEASE));
    assert_status(DIBS_OK, actor_unlock(other, s->rt, "a"));
    assert_status(DIBS_OK, actor_unlock(other, s->rt, "a"));
    assert_status(DIBS_OK, actor_leave(other, task));
    assert_int_equal(stats_of(s->rt).holds, 0);
}

/* Each call of that runtime, while the thread holds the same name itself. */
TEST_ON(the_holds_of_the_thread_are_untouched, stage *s)
{
    dibs_hold hold;

    dibs_task *task = task_of_runtime(s->rt);
    assert_status(DIBS_OK, dibs_lock(s->rt, "own"));
    assert_status(DIBS_OK, dibs_lock(s->rt, "own"));
    assert_status(DIBS_OK, dibs_task_enter(task));
    assert_status(DIBS_NOT_HELD, dibs_check(s->rt, "own"));
    assert_status(DIBS_NOT_HELD, dibs_hold_of(s->rt, "own", &hold));
    assert_status(DIBS_NOT_HELD, dibs_extend(s->rt, "own", LEASE));
    assert_status(DIBS_NOT_HELD, dibs_unlock(s->rt, "own"));
    assert_status(DIBS_BUSY, dibs_trylock(s->rt, "own"));
    for (int i = 0; i < 20; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        assert_status(DIBS_OK, dibs_lock_with(s->rt, name, 0, &no_reentry));
        assert_status(DIBS_BUSY, dibs_lock_with(s->rt, name, 0, &no_reentry));
    }
    assert_status(DIBS_OK, dibs_unlock_all(s->rt));
    assert_status(DIBS_OK, dibs_lock(s->rt, "its"));
    assert_int_equal(stats_of(s->rt).holds, 2);
    assert_status(DIBS_OK, dibs_task_leave(task));
    assert_status(DIBS_NOT_HELD, dibs_check(s->rt, "its"));
    assert_int_equal(hold_of(s->rt, "own").count, 2);
    assert_status(DIBS_OK, dibs_unlock_all(s->rt));
    assert_status(DIBS_OK, task_check(task, s->rt, "its"));
    dibs_task_free(task);
    assert_int_equal(stats_of(s->rt).holds, 0);
}

TEST_WITH(a_call_concerns_the_innermost_task_of_its_runtime, stage_setup, stage_teardown, stage *s)
{
    stage_open_at(s, "mem:tasks", LEASE);
    dibs_runtime *second = test_runtime(stage_open_another(s, LEASE));
    dibs_task *outer = test_task(task_of_runtime(s->rt)), *inner = test_task(task_of_runtime(s->rt)),
              *foreign = test_task(task_of_runtime(second));
    assert_status(DIBS_OK, dibs_task_enter(outer));
    assert_status(DIBS_OK, dibs_lock(s->rt, "outer"));
    assert_status(DIBS_OK, dibs_task_enter(foreign));
    assert_status(DIBS_OK, dibs_check(s->rt, "outer"));
    assert_status(DIBS_OK, dibs_lock(second, "foreign"));
    assert_status(DIBS_OK, dibs_task_enter(inner));
    assert_status(DIBS_NOT_HELD, dibs_check(s->rt, "outer"));
    assert_status(DIBS_OK, dibs_check(second, "foreign"));
    assert_status(DIBS_OK, dibs_lock(s->rt, "inner"));
    assert_status(DIBS_OK, dibs_task_leave(inner));
    assert_status(DIBS_NOT_HELD, dibs_check(s->rt, "inner"));
    assert_status(DIBS_OK, dibs_task_leave(foreign));
    assert_status(DIBS_NOT_HELD, dibs_check(second, "foreign"));
    assert_status(DIBS_OK, dibs_check(s->rt, "outer"));
    assert_status(DIBS_OK, dibs_task_leave(outer));
}

/* -------------------------------------------------------------------- entering */

TEST_ON(an_entered_task_is_busy, stage *s)
{
    actor *other = actor_start();

    dibs_task *task = test_task(task_of_runtime(s->rt));
    assert_status(DIBS_OK, dibs_task_enter(task));
    assert_status(DIBS_BUSY, dibs_task_enter(task));
    assert_status(DIBS_BUSY, actor_enter(other, task));
    assert_status(DIBS_INVALID, actor_leave(other, task));
    assert_status(DIBS_OK, dibs_task_leave(task));
    assert_status(DIBS_INVALID, dibs_task_leave(task));
    assert_status(DIBS_OK, actor_enter(other, task));
    assert_status(DIBS_BUSY, dibs_task_enter(task));
    assert_status(DIBS_INVALID, dibs_task_leave(task));
    assert_status(DIBS_OK, actor_leave(other, task));
}

TEST_ON(tasks_are_left_in_the_opposite_order, stage *s)
{
    enum { DEPTH = 5 };
    dibs_task *tasks[DEPTH];

    for (int i = 0; i < DEPTH; i++) {
        tasks[i] = test_task(task_of_runtime(s->rt));
        assert_status(DIBS_OK, dibs_task_enter(tasks[i]));
        assert_status(DIBS_OK, dibs_lock(s->rt, (char[]){(char)('a' + i), '\0'}));
    }
    for (int i = DEPTH - 1; i >= 0; i--) {
        for (int wrong = 0; wrong < DEPTH; wrong++)
            if (wrong != i)
                assert_status(DIBS_INVALID, dibs_task_leave(tasks[wrong]));
        assert_status(DIBS_OK, dibs_check(s->rt, (char[]){(char)('a' + i), '\0'}));
        assert_status(DIBS_OK, dibs_task_leave(tasks[i]));
    }
}

TEST_ON(a_thread_that_ends_leaves_its_tasks_whose_holds_stay, stage *s)
{
    void (*const ends[])(actor *) = {actor_end, actor_exit, actor_cancel};

    dibs_task *outer = task_of_runtime(s->rt), *inner = task_of_runtime(s->rt);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        actor *a = actor_start();
        assert_status(DIBS_OK, actor_enter(a, outer));
        assert_status(DIBS_OK, actor_lock(a, s->rt, "outer", 0));
        assert_status(DIBS_OK, actor_enter(a, inner));
        assert_status(DIBS_OK, actor_lock(a, s->rt, "inner", 0));
        ends[i](a);
        assert_status(DIBS_OK, task_check(outer, s->rt, "outer"));
        assert_status(DIBS_OK, task_check(inner, s->rt, "inner"));
    }
    assert_int_equal(stats_of(s->rt).orphaned, 0);
    assert_int_equal(stats_of(s->rt).holds, 2);
    dibs_task_free(inner);
    dibs_task_free(outer);
    stage_settle(s);
    assert_int_equal(events_count(&s->events, DIBS_EVENT_ORPHANED, NULL), 0);
    assert_int_equal(stats_of(s->rt).leases, 0);
}

TEST_ON(entering_works_after_shutdown_and_close_so_that_a_loss_can_be_read, stage *s)
{
    dibs_task *none = (dibs_task *)s;
    dibs_hold hold;

    dibs_task *task = test_task(task_of_runtime(s->rt));
    assert_status(DIBS_OK, dibs_task_enter(task));
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    assert_status(DIBS_OK, dibs_task_leave(task));
    dibs_shutdown(s->rt);
    assert_status(DIBS_CLOSED, dibs_task_new(s->rt, &none));
    assert_null(none);
    assert_status(DIBS_OK, dibs_task_enter(task));
    assert_status(DIBS_OK, dibs_check(s->rt, "a"));
    assert_status(DIBS_CLOSED, dibs_trylock(s->rt, "b"));
    assert_status(DIBS_OK, dibs_task_leave(task));
    dibs_close(s->rt);
    assert_status(DIBS_CLOSED, dibs_task_new(s->rt, &none));
    assert_status(DIBS_OK, dibs_task_enter(task));
    assert_status(DIBS_BUSY, dibs_task_enter(task));
    assert_status(DIBS_LOST, dibs_check(s->rt, "a"));
    assert_status(DIBS_LOST, dibs_hold_of(s->rt, "a", &hold));
    assert_int_equal(hold.count, 2);
    assert_status(DIBS_LOST, dibs_unlock(s->rt, "a"));
    assert_status(DIBS_LOST, dibs_unlock(s->rt, "a"));
    assert_status(DIBS_NOT_HELD, dibs_unlock(s->rt, "a"));
    assert_status(DIBS_CLOSED, dibs_lock(s->rt, "a"));
    dibs_task_cancel(task);
    assert_status(DIBS_OK, dibs_task_leave(task));
    s->rt = NULL;
}

/* ---------------------------------------------------------------------- cancel */

TEST_ON(a_cancelled_task_keeps_what_it_holds_and_acquires_no_more, stage *s)
{
    dibs_task *task = test_task(task_of_runtime(s->rt));
    assert_status(DIBS_OK, dibs_task_enter(task));
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    unsigned asks = faults_count(&s->faults, &s->faults.acquires);
    dibs_task_cancel(task);
    dibs_task_cancel(task);
    for (int i = 0; i < 2; i++) {
        assert_status(DIBS_CANCELLED, dibs_trylock(s->rt, "b"));
        assert_status(DIBS_CANCELLED, dibs_lock(s->rt, "b"));
        assert_status(DIBS_CANCELLED, dibs_timedlock(s->rt, "b", 1000));
        assert_status(DIBS_CANCELLED, dibs_lock_with(s->rt, "b", FOREVER, &fair));
        assert_non_null(strstr(dibs_last_error(), "b"));
    }
    assert_int_equal(stats_of(s->rt).cancelled, 8);
    assert_int_equal(faults_count(&s->faults, &s->faults.acquires), asks);
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    assert_status(DIBS_OK, dibs_check(s->rt, "a"));
    assert_int_equal(hold_of(s->rt, "a").count, 2);
    assert_status(DIBS_OK, dibs_extend(s->rt, "a", LEASE));
    stage_advance(s, MS(LEASE) / 2);
    assert_true(stats_of(s->rt).renewed > 0);
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    assert_status(DIBS_CANCELLED, dibs_trylock(s->rt, "a"));
    assert_status(DIBS_OK, dibs_task_leave(task));
    lock_and_release(s->rt, "b", 0);
}

/*
 * The task waits behind a thread of this process, for its turn; behind another process, in the store's queue; or
 * fairly.
 */
TEST_WITH(a_cancel_ends_a_tasks_wait_at_once, stage_setup, stage_teardown, stage *s)
{
    static const struct {
        bool elsewhere;
        const dibs_lock_options *options;
    } cases[] = {{false, NULL}, {true, NULL}, {true, &fair}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        actor *waiter = actor_start();
        s->url = "mem:tasks";
        dibs_runtime *holder = stage_open_another(s, LEASE);
        stage_open(s, LEASE);
        dibs_task *task = task_of_runtime(s->rt);
        dibs_runtime *at = cases[i].elsewhere ? holder : s->rt;
        assert_status(DIBS_OK, dibs_lock(at, "a"));
        actor_begin_task_lock(waiter, s->rt, task, "a", FOREVER, cases[i].options);
        await_that(cases[i].elsewhere ? owner_of(s->rt, "a").waiters > 0 : stats_of(s->rt).contended > 0);
        assert_status(DIBS_BUSY, dibs_task_enter(task));
        dibs_task_cancel(task);
        assert_status(DIBS_CANCELLED, actor_result(waiter));
        await_that(owner_of(s->rt, "a").waiters == 0);
        assert_int_equal(stats_of(s->rt).cancelled, 1);
        assert_status(DIBS_OK, dibs_unlock(at, "a"));
        lock_and_release(s->rt, "a", LIMIT_MS);
        actor_end(waiter);
        dibs_task_free(task);
        dibs_close(s->rt);
        dibs_close(holder);
        s->rt = NULL;
    }
}

/* A cancel in the midst of a call: the clock cancels the task when its calling thread looks at it for the nth time. */
static _Thread_local dibs_task *cancelled_by_clock;
static _Thread_local int looks_before_cancel;

static int64_t now_and_cancel(const struct dibs__clock *clock)
{
    if (cancelled_by_clock && looks_before_cancel-- == 0)
        dibs_task_cancel(cancelled_by_clock);
    return moved_clock_now((const struct moved_clock *)clock);
}

TEST_WITH(a_cancelled_try_is_not_counted_as_busy, stage_setup, stage_teardown, stage *s)
{
    bool was_busy = false;

    s->clock.clock.now = now_and_cancel;
    s->url = "mem:tasks";
    dibs_runtime *holder = test_runtime(stage_open_another(s, LEASE));
    stage_open(s, LEASE);
    assert_status(DIBS_OK, dibs_lock(holder, "a"));
    for (int looks = 0; !was_busy; looks++) {
        dibs_stats before = stats_of(s->rt);
        dibs_task *task = task_of_runtime(s->rt);
        assert_status(DIBS_OK, dibs_task_enter(task));
        looks_before_cancel = looks;
        cancelled_by_clock = task;
        dibs_status status = dibs_trylock(s->rt, "a");
        cancelled_by_clock = NULL;
        was_busy = status == DIBS_BUSY;
        assert_true(was_busy || status == DIBS_CANCELLED);
        assert_int_equal(stats_of(s->rt).busy - before.busy, was_busy);
        assert_int_equal(stats_of(s->rt).cancelled - before.cancelled, !was_busy);
        dibs_task_free(task);
    }
}

/* A waiter of this process behind a cancelled one still gets the lock. */
TEST_WITH(a_cancelled_tasks_rivals_go_on_waiting, stage_setup, stage_teardown, stage *s)
{
    enum { CROWD = 8 };
    actor *crowd[CROWD];
    dibs_task *tasks[CROWD];

    stage_open_at(s, "mem:tasks", LEASE);
    dibs_runtime *holder = stage_rival(s, LEASE, "a");
    for (int i = 0; i < CROWD; i++) {
        crowd[i] = actor_start();
        tasks[i] = task_of_runtime(s->rt);
        actor_begin_task_lock(crowd[i], s->rt, tasks[i], "a", FOREVER, NULL);
        while (stats_of(s->rt).contended < (uint64_t)i + 1)
            pause_ms(1);
    }
    for (int i = 0; i < CROWD; i += 2)
        dibs_task_cancel(tasks[i]);
    for (int i = 0; i < CROWD; i += 2)
        assert_status(DIBS_CANCELLED, actor_result(crowd[i]));
    assert_status(DIBS_OK, dibs_unlock(holder, "a"));
    for (int i = 1; i < CROWD; i += 2) {
        assert_status(DIBS_OK, actor_result(crowd[i]));
        dibs_task_free(tasks[i]);
    }
    for (int i = 0; i < CROWD; i++) {
        actor_end(crowd[i]);
        if (i % 2 == 0)
            dibs_task_free(tasks[i]);
    }
}

/* ------------------------------------------------------------------------ free */

TEST_ON(freeing_a_task_releases_every_hold, stage *s)
{
    char name[16];

    dibs_task *task = task_of_runtime(s->rt);
    assert_status(DIBS_OK, dibs_task_enter(task));
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof name, "%d", i);
        for (int depth = 0; depth <= i % 3; depth++)
            assert_status(DIBS_OK, dibs_lock(s->rt, name));
    }
    assert_status(DIBS_OK, dibs_task_leave(task));
    dibs_task_free(task);
    assert_int_equal(stats_of(s->rt).holds, 0);
    assert_int_equal(stats_of(s->rt).leases, 0);
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof name, "%d", i);
        assert_status(DIBS_OK, dibs_timedlock(s->rt, name, LIMIT_MS));
    }
    assert_status(DIBS_OK, dibs_unlock_all(s->rt));
    assert_int_equal(stats_of(s->rt).orphaned, 0);
}

TEST_WITH(freeing_a_task_leaves_it_wherever_it_is_nested, stage_setup, stage_teardown, stage *s)
{
    enum { DEPTH = 3 };

    for (int freed = 0; freed < DEPTH; freed++) {
        dibs_task *tasks[DEPTH];
        stage_open(s, LEASE);
        assert_status(DIBS_OK, dibs_lock(s->rt, "own"));
        for (int i = 0; i < DEPTH; i++) {
            tasks[i] = task_of_runtime(s->rt);
            assert_status(DIBS_OK, dibs_task_enter(tasks[i]));
            assert_status(DIBS_OK, dibs_lock(s->rt, (char[]){(char)('a' + i), '\0'}));
        }
        dibs_task_free(tasks[freed]);
        for (int i = DEPTH - 1; i >= 0; i--) {
            if (i == freed)
                continue;
            assert_status(DIBS_OK, dibs_check(s->rt, (char[]){(char)('a' + i), '\0'}));
            assert_status(DIBS_OK, dibs_task_leave(tasks[i]));
            dibs_task_free(tasks[i]);
        }
        assert_status(DIBS_OK, dibs_check(s->rt, "own"));
        close_runtime(&s->rt);
    }
}

TEST_ON(a_task_may_be_freed_after_close, stage *s)
{
    dibs_task *held = task_of_runtime(s->rt), *entered = task_of_runtime(s->rt), *idle = task_of_runtime(s->rt);
    assert_status(DIBS_OK, dibs_task_enter(held));
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    assert_status(DIBS_OK, dibs_task_leave(held));
    assert_status(DIBS_OK, dibs_task_enter(entered));
    assert_status(DIBS_OK, dibs_lock(s->rt, "b"));
    dibs_close(s->rt);
    dibs_task_free(entered);
    dibs_task_free(held);
    dibs_task_free(idle);
    s->rt = NULL;
}

/* The store does not answer; dibs_task_free does not wait for it, and the name is free in the end. */
TEST_WITH(freeing_a_task_does_not_wait_for_the_store, stage_setup, stage_teardown, stage *s)
{
    stage_open_at(s, "mem:tasks", LEASE);
    dibs_runtime *other = test_runtime(stage_open_another(s, LEASE));
    dibs_task *task = task_of_runtime(s->rt);
    assert_status(DIBS_OK, dibs_task_enter(task));
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    unsigned releases = faults_count(&s->faults, &s->faults.releases);
    dibs_task_free(task);
    assert_int_equal(faults_count(&s->faults, &s->faults.releases), releases);
    assert_status(DIBS_OK, dibs_timedlock(other, "a", LIMIT_MS));
}

/* --------------------------------------------------------------------- as threads */

TEST_ON(a_tasks_loss_is_told_as_an_event, stage *s)
{
    static const dibs_lock_options fixed = {.flags = DIBS_FIXED_LEASE};

    dibs_task *task = task_of_runtime(s->rt);
    assert_status(DIBS_OK, dibs_task_enter(task));
    assert_status(DIBS_OK, dibs_lock_with(s->rt, "a", 0, &fixed));
    uint64_t fence = fence_of(s->rt, "a");
    assert_status(DIBS_OK, dibs_task_leave(task));
    stage_advance(s, believed(LEASE));
    assert_int_equal(events_await(&s->events, DIBS_EVENT_LOST, "a").fence, fence);
    assert_status(DIBS_LOST, task_check(task, s->rt, "a"));
    assert_status(DIBS_OK, dibs_task_enter(task));
    assert_status(DIBS_LOST, dibs_lock(s->rt, "a"));
    assert_status(DIBS_LOST, dibs_unlock(s->rt, "a"));
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    assert_true(fence_of(s->rt, "a") > fence);
    dibs_task_free(task);
    assert_int_equal(events_count(&s->events, DIBS_EVENT_LOST, NULL), 1);
}

TEST_WITH(a_lease_is_handed_from_task_to_task, stage_setup, stage_teardown, stage *s)
{
    actor *waiter = actor_start();

    s->settings.handoff_ms = 10;
    stage_open(s, LEASE);
    dibs_task *one = test_task(task_of_runtime(s->rt)), *two = test_task(task_of_runtime(s->rt));
    assert_status(DIBS_OK, dibs_task_enter(one));
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    uint64_t fence = fence_of(s->rt, "a");
    actor_begin_task_lock(waiter, s->rt, two, "a", FOREVER, NULL);
    await_that(stats_of(s->rt).contended > 0);
    unsigned asks = faults_count(&s->faults, &s->faults.acquires);
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    assert_status(DIBS_OK, actor_result(waiter));
    assert_int_equal(stats_of(s->rt).handed_off, 1);
    assert_int_equal(faults_count(&s->faults, &s->faults.acquires), asks);
    assert_status(DIBS_OK, dibs_task_leave(one));
    assert_status(DIBS_OK, dibs_task_enter(two));
    assert_int_equal(fence_of(s->rt, "a"), fence + 1);
}

TEST_ON(task_calls_refuse_null_or_do_nothing, stage *s)
{
    dibs_task *task = (dibs_task *)s;

    assert_status(DIBS_INVALID, dibs_task_new(NULL, &task));
    assert_null(task);
    assert_status(DIBS_INVALID, dibs_task_new(s->rt, NULL));
    assert_status(DIBS_INVALID, dibs_task_new(NULL, NULL));
    assert_status(DIBS_INVALID, dibs_task_enter(NULL));
    assert_status(DIBS_INVALID, dibs_task_leave(NULL));
    dibs_task_cancel(NULL);
    dibs_task_free(NULL);
}

TEST_WITH(the_statuses_know_of_tasks, NULL, NULL, void *none)
{
    assert_int_equal(DIBS_CANCELLED, DIBS_OVERFLOW + 1);
    assert_string_equal(dibs_status_name(DIBS_CANCELLED), "DIBS_CANCELLED");
    assert_non_null(strstr(dibs_status_text(DIBS_BUSY), "task"));
    assert_non_null(strstr(dibs_status_text(DIBS_NOT_HELD), "thread or task"));
    assert_non_null(strstr(dibs_status_text(DIBS_LOST), "thread or task"));
}

TESTS(stage_setup_open, stage_teardown)
