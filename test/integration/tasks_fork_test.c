/* A child that is forked while its parent has tasks, begun calls and queues. */
#include <unistd.h>

#include "support/child.h"
#include "support/fixture.h"
#include "support/tasks.h"

/* What the test's own thread leaves for the child; written only before the fork. */
static dibs_task *task, *second;
static dibs_queue *queue;

static void child_says(bool good, int code)
{
    if (!good)
        _exit(code);
}

/* The next completion is that of t, or of any task, and good. */
static void child_takes(dibs_queue *q, const dibs_task *t, int code)
{
    dibs_completion c;

    child_says(dibs_queue_take(q, &c, 1, LIMIT_MS) == 1 && (t == NULL || c.task == t), code);
    if (c.status != DIBS_OK)
        fprintf(stderr, "in the child: a begun call: %s: %s\n", dibs_status_name(c.status), c.detail);
    child_says(c.status == DIBS_OK, code);
}

/* A child connects in a single try, also on a slow machine. */
static void open_for_children(fixture *f)
{
    f->config.connect_timeout_ms = f->config.command_timeout_ms = LIMIT_MS / 4;
    fixture_open(f, LONG_LEASE_MS);
}

static void work_as_usual(dibs_runtime *rt, dibs_task *t, dibs_queue *q)
{
    dibs_completion c;

    CHILD_WANTS(DIBS_OK, dibs_lock_begin(t, "child", LIMIT_MS, NULL, q, NULL));
    child_takes(q, t, 20);
    CHILD_WANTS(DIBS_OK, dibs_task_enter(t));
    CHILD_WANTS(DIBS_OK, dibs_check(rt, "child"));
    CHILD_WANTS(DIBS_OK, dibs_task_leave(t));
    CHILD_WANTS(DIBS_OK, dibs_unlock_begin(t, "child", q, NULL));
    child_takes(q, t, 21);
    child_says(dibs_queue_take(q, &c, 1, 0) == 0, 22);
}

/* ------------------------------------------------------------- threads in the task */

static void still_inside(dibs_runtime *rt)
{
    CHILD_WANTS(DIBS_BUSY, dibs_task_enter(second));
    CHILD_WANTS(DIBS_BUSY, dibs_task_enter(task));
    CHILD_WANTS(DIBS_NOT_HELD, dibs_check(rt, "a"));
    CHILD_WANTS(DIBS_BUSY, dibs_trylock(rt, "a")); /* it is the parent's */
    CHILD_WANTS(DIBS_OK, dibs_timedlock(rt, "child", LIMIT_MS));
    CHILD_WANTS(DIBS_OK, dibs_unlock(rt, "child"));
    CHILD_WANTS(DIBS_INVALID, dibs_task_leave(task));
    CHILD_WANTS(DIBS_OK, dibs_task_leave(second));
    CHILD_WANTS(DIBS_OK, dibs_task_leave(task));
    CHILD_WANTS(DIBS_NOT_HELD, dibs_check(rt, "own"));
    work_as_usual(rt, task, queue);
    dibs_task_free(second);
    dibs_task_free(task);
    dibs_close(rt);
}

TEST_ON(a_task_that_the_forking_thread_entered_stays_entered, fixture *f)
{
    open_for_children(f);
    queue = test_queue(queue_new());
    task = test_task(task_of_runtime(f->rt));
    second = test_task(task_of_runtime(f->rt));
    assert_status(DIBS_OK, dibs_lock(f->rt, "own"));
    assert_status(DIBS_OK, dibs_task_enter(task));
    assert_status(DIBS_OK, dibs_lock(f->rt, "a"));
    assert_status(DIBS_OK, dibs_task_enter(second));
    assert_status(DIBS_OK, dibs_lock(f->rt, "b"));
    run_child(still_inside, f->rt);
    assert_status(DIBS_OK, dibs_check(f->rt, "b"));
    assert_status(DIBS_OK, dibs_task_leave(second));
    assert_status(DIBS_OK, dibs_check(f->rt, "a"));
    assert_status(DIBS_OK, dibs_task_leave(task));
    assert_status(DIBS_OK, dibs_check(f->rt, "own"));
}

static void it_is_free(dibs_runtime *rt)
{
    CHILD_WANTS(DIBS_OK, dibs_task_enter(task));
    CHILD_WANTS(DIBS_BUSY, dibs_task_enter(task));
    CHILD_WANTS(DIBS_NOT_HELD, dibs_check(rt, "a"));
    CHILD_WANTS(DIBS_OK, dibs_task_leave(task));
    work_as_usual(rt, task, queue);
    dibs_task_free(task);
}

static void it_is_freed_at_once(dibs_runtime *rt)
{
    dibs_task_cancel(task);
    dibs_task_free(task);
}

/* The other thread rests there, or waits for a lock. */
TEST_ON(a_task_that_another_thread_entered_is_free_in_the_child, fixture *f)
{
    actor *a = actor_start();

    open_for_children(f);
    queue = test_queue(queue_new());
    task = test_task(task_of_runtime(f->rt));
    assert_status(DIBS_OK, actor_enter(a, task));
    assert_status(DIBS_OK, actor_lock(a, f->rt, "a", 0));
    run_child(it_is_free, f->rt);
    run_child(it_is_freed_at_once, f->rt);
    assert_status(DIBS_OK, actor_check(a, f->rt, "a"));
    assert_status(DIBS_OK, dibs_lock(f->rt, "b"));
    actor_begin_lock(a, f->rt, "b", DIBS_WAIT_FOREVER);
    while (stats_of(f->rt).contended == 0)
        pause_ms(1);
    run_child(it_is_free, f->rt);
    run_child(it_is_freed_at_once, f->rt);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "b"));
    assert_status(DIBS_OK, actor_result(a));
}

/* ------------------------------------------------------------------ begun calls */

static void no_begun_call_is_its(dibs_runtime *rt)
{
    dibs_completion c;
    dibs_stats stats;

    child_says(dibs_queue_take(queue, &c, 1, 0) == 0, 10);
    dibs_stats_get(rt, &stats);
    child_says(stats.untaken == 0, 11);
    it_is_free(rt);
    child_says(dibs_queue_take(queue, &c, 1, 50) == 0, 12);
}

static void cancels_what_is_its_parents(dibs_runtime *rt)
{
    dibs_completion c;

    dibs_task_cancel(task);
    child_says(dibs_queue_take(queue, &c, 1, 50) == 0, 13); /* the call was the parent's */
    CHILD_WANTS(DIBS_OK, dibs_task_enter(task));
    CHILD_WANTS(DIBS_CANCELLED, dibs_trylock(rt, "child")); /* in the child it was cancelled, too */
    CHILD_WANTS(DIBS_OK, dibs_task_leave(task));
    dibs_task_free(task);
    child_says(dibs_queue_take(queue, &c, 1, 0) == 0, 14);
    dibs_close(rt);
    dibs_queue_free(queue);
}

/* The begun call waits for its turn, or for the server; in the second half a completion has not been taken. */
TEST_ON(a_child_has_no_begun_call_of_its_parent, fixture *f)
{
    open_for_children(f);
    dibs_runtime *other = test_runtime(open_runtime(f->server, LONG_LEASE_MS));
    for (int elsewhere = 0; elsewhere < 2; elsewhere++) {
        dibs_runtime *holder = elsewhere ? other : f->rt;
        queue = queue_new();
        task = task_of_runtime(f->rt);
        second = task_of_runtime(f->rt);
        assert_status(DIBS_OK, dibs_lock(holder, "a"));
        begin_unlock(second, "nothing", queue);
        begin_lock(task, "a", DIBS_WAIT_FOREVER, NULL, queue);
        assert_true(dibs_queue_fd(queue) >= 0);
        run_child(no_begun_call_is_its, f->rt);
        run_child(cancels_what_is_its_parents, f->rt);
        run_child(it_is_freed_at_once, f->rt);
        assert_true(is_readable(queue));
        expect_done(queue, DIBS_DONE_UNLOCK, DIBS_NOT_HELD, second);
        expect_none(queue);
        assert_status(DIBS_OK, dibs_unlock(holder, "a"));
        expect_done(queue, DIBS_DONE_LOCK, DIBS_OK, task);
        expect_none(queue);
        dibs_task_free(task);
        dibs_task_free(second);
        dibs_queue_free(queue);
        while (stats_of(f->rt).leases > 0)
            pause_ms(1);
    }
}

static void has_a_descriptor_of_its_own(dibs_runtime *rt)
{
    dibs_task *t;

    CHILD_WANTS(DIBS_OK, dibs_task_new(rt, &t));
    child_says(dibs_queue_fd(queue) >= 0 && !is_readable(queue), 30);
    CHILD_WANTS(DIBS_OK, dibs_unlock_begin(t, "a", queue, NULL));
    child_says(is_readable(queue), 31);
    dibs_queue_free(queue);
    dibs_task_free(t);
}

static void take_for_ever(void *arg)
{
    dibs_completion *c = arg;

    dibs_queue_take(queue, c, 1, DIBS_WAIT_FOREVER);
}

/* Whether a completion waits in the parent, or a thread takes. */
TEST_ON(the_queue_of_a_child_is_its_own, fixture *f)
{
    actor *a = actor_start();
    dibs_completion c;

    open_for_children(f);
    queue = test_queue(queue_new());
    task = test_task(task_of_runtime(f->rt));
    assert_true(dibs_queue_fd(queue) >= 0);
    begin_unlock(task, "a", queue);
    run_child(has_a_descriptor_of_its_own, f->rt);
    assert_true(is_readable(queue));
    next_done(queue);
    assert_false(is_readable(queue));
    actor_begin(a, take_for_ever, &c);
    actor_await_asleep(a);
    run_child(has_a_descriptor_of_its_own, f->rt);
    run_child(it_is_free, f->rt);
    begin_unlock(task, "a", queue);
    actor_finish(a);
    assert_ptr_equal(c.task, task);
}

/* -------------------------------------------------------------------- exit */

static void exits(dibs_runtime *rt)
{
    const dibs_lock_options brief = {.lease_ms = 3 * SAFE_LEASE_MS};
    dibs_queue *q;
    dibs_task *t[20];

    CHILD_WANTS(DIBS_OK, dibs_queue_new(&q));
    CHILD_WANTS(DIBS_OK, dibs_lock_with(rt, "own", DIBS_WAIT_FOREVER, &brief));
    for (int i = 0; i < 20; i++) {
        CHILD_WANTS(DIBS_OK, dibs_task_new(rt, &t[i]));
        CHILD_WANTS(DIBS_OK, dibs_lock_begin(t[i], "tasks", DIBS_WAIT_FOREVER, &brief, q, NULL));
    }
    child_takes(q, NULL, 40);
    exit(0);
}

/*
 * What the thread itself held is released; what a task holds stays until its lease ends, as with other threads. The end
 * of a process waits 500 ms for its releases: where the server stands still for that long, another child is tried.
 */
TEST_ON(exit_may_come_while_calls_are_begun, fixture *f)
{
    open_for_children(f);
    dibs_status status = DIBS_BUSY;
    for (int i = 0; i < 3 && status == DIBS_BUSY; i++) {
        run_child(exits, f->rt);
        status = dibs_trylock(f->rt, "own");
    }
    assert_status(DIBS_OK, status);
    assert_status(DIBS_BUSY, dibs_trylock(f->rt, "tasks"));
    dibs_owner owner = owner_of(f->rt, "tasks");
    assert_true(owner.held && owner.remaining_ms <= LONG_LEASE_MS);
    assert_status(DIBS_OK, dibs_force_unlock(f->rt, "tasks", NULL));
    assert_status(DIBS_OK, dibs_timedlock(f->rt, "tasks", LIMIT_MS));
    assert_status(DIBS_OK, dibs_unlock_all(f->rt));
}

TESTS(fixture_setup, fixture_teardown)
