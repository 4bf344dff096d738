/* A thread that ends while it holds locks: they are released, and an event tells of it. */
#include <dibs_metrics.h>
#include <pthread.h>

#include "support/fixture.h"
#include "support/queue.h"
#include "support/script_server.h"
#include "support/tasks.h"

typedef void ending(actor *a);

static const struct way {
    const char *what;
    ending *ends;
} ways[] = {{"returns", actor_end}, {"pthread_exit", actor_exit}, {"cancelled", actor_cancel}};

TEST_ON(the_lock_of_a_thread_that_ends_is_released, fixture *f)
{
    fixture_open(f, LONG_LEASE_MS);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        actor *a = actor_start();
        dibs_hold hold;

        print_message("# %s\n", ways[i].what);
        const char *name = formatted("way-%zu", i);
        for (int depth = 0; depth < 3; depth++)
            assert_status(DIBS_OK, actor_lock(a, f->rt, name, 0));
        assert_status(DIBS_OK, actor_hold(a, f->rt, name, &hold));
        ways[i].ends(a);
        assert_int_equal(events_await(&f->events, DIBS_EVENT_ORPHANED, name).fence, hold.fence);
        assert_status(DIBS_OK, dibs_timedlock(f->rt, name, LIMIT_MS));
        assert_true(fence_of(f->rt, name) > hold.fence);
        assert_status(DIBS_OK, dibs_unlock(f->rt, name));
        assert_int_equal(stats_of(f->rt).orphaned, i + 1);
        assert_int_equal(events_count(&f->events, DIBS_EVENT_ORPHANED, name), 1);
    }
    assert_true(comes_to_nothing(f->rt));
    assert_int_equal(stats_of(f->rt).lost, 0);
    assert_int_equal(events_count(&f->events, DIBS_EVENT_LOST, NULL), 0);
}

TEST_ON(all_locks_of_a_thread_that_ends_are_released, fixture *f)
{
    enum { NAMES = 20 };
    actor *a = actor_start();
    const char *name[NAMES];

    fixture_open(f, LONG_LEASE_MS);
    for (int i = 0; i < NAMES; i++) {
        name[i] = formatted("name-%d", i);
        for (int depth = 0; depth <= i % 3; depth++)
            assert_status(DIBS_OK, actor_lock(a, f->rt, name[i], 0));
    }
    assert_status(DIBS_OK, dibs_lock(f->rt, "mine"));
    actor_end(a);
    for (int i = 0; i < NAMES; i++) {
        events_await(&f->events, DIBS_EVENT_ORPHANED, name[i]);
        assert_true(server_wait_gone(f->server, formatted("lock:%s", name[i]), LIMIT_MS));
    }
    assert_int_equal(stats_of(f->rt).orphaned, NAMES);
    assert_status(DIBS_OK, dibs_check(f->rt, "mine"));
    assert_true(server_has(f->server, "lock:mine"));
    assert_status(DIBS_OK, dibs_unlock(f->rt, "mine"));
}

TEST_ON(an_unlocked_lock_is_no_orphan, fixture *f)
{
    actor *a = actor_start();

    fixture_open(f, 0);
    for (int i = 0; i < 10; i++) {
        assert_status(DIBS_OK, actor_lock(a, f->rt, "x", 0));
        assert_status(DIBS_OK, actor_unlock(a, f->rt, "x"));
    }
    actor_end(a);
    assert_int_equal(stats_of(f->rt).orphaned, 0);
    assert_int_equal(stats_of(f->rt).released, 10);
    assert_int_equal(events_count(&f->events, DIBS_EVENT_ORPHANED, NULL), 0);
}

/* "None of these calls is a cancellation point": the cancel waits until the lock has come, and the lock is not lost. */
TEST_ON(a_cancel_does_not_break_into_a_wait, fixture *f)
{
    fixture_open_holding(f, LONG_LEASE_MS, "x");
    actor *a = actor_locking(f->rt, "x", DIBS_WAIT_FOREVER);
    actor_await_asleep(a);
    actor_cancel_begin(a);
    pause_ms(100); /* time for a broken library to show its fault; a sound one passes in any case */
    assert_true(actor_busy(a));
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    actor_join(a);
    events_await(&f->events, DIBS_EVENT_ORPHANED, "x");
    lock_and_release(f->rt, "x", LIMIT_MS);
}

TEST_ON(a_waiting_thread_gets_the_lock_of_a_thread_that_ends, fixture *f)
{
    fixture_open(f, LONG_LEASE_MS);
    for (int i = 0; i < 10; i++) {
        actor *dying = actor_start();
        actor *waiter = actor_start();
        dibs_hold before;
        dibs_hold after;

        for (int depth = 0; depth < 3; depth++)
            assert_status(DIBS_OK, actor_lock(dying, f->rt, "x", LIMIT_MS));
        assert_status(DIBS_OK, actor_hold(dying, f->rt, "x", &before));
        actor_begin_lock(waiter, f->rt, "x", DIBS_WAIT_FOREVER);
        actor_await_asleep(waiter);
        actor_end(dying);
        assert_status(DIBS_OK, actor_result(waiter));
        assert_status(DIBS_OK, actor_hold(waiter, f->rt, "x", &after));
        assert_int_equal(after.count, 1);
        assert_true(after.fence > before.fence);
        assert_status(DIBS_OK, actor_unlock(waiter, f->rt, "x"));
        actor_end(waiter);
    }
}

TEST_ON(another_runtime_gets_the_lock_of_a_thread_that_ends, fixture *f)
{
    actor *dying = actor_start();

    fixture_open(f, LONG_LEASE_MS);
    dibs_runtime *second = test_runtime(open_runtime(f->server, 0));
    assert_status(DIBS_OK, actor_lock(dying, f->rt, "x", 0));
    assert_status(DIBS_BUSY, dibs_trylock(second, "x"));
    actor_end(dying);
    lock_and_release(second, "x", LIMIT_MS);
}

TEST_ON(a_thread_may_end_after_its_runtime, fixture *f)
{
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        actor *a = actor_start();
        dibs_runtime *second = open_runtime(f->server, 0);

        fixture_open(f, LONG_LEASE_MS);
        assert_status(DIBS_OK, actor_lock(a, f->rt, "x", 0));
        assert_status(DIBS_OK, actor_lock(a, f->rt, "x", 0));
        assert_status(DIBS_OK, actor_lock(a, second, "y", 0));
        close_runtime(&f->rt);
        assert_false(server_has(f->server, "lock:x"));
        /* The thread goes on with another runtime, then ends. */
        assert_status(DIBS_OK, actor_check(a, second, "y"));
        assert_status(DIBS_OK, actor_lock(a, second, "x", 0));
        assert_status(DIBS_OK, actor_unlock(a, second, "x"));
        ways[i].ends(a);
        assert_true(server_wait_gone(f->server, "lock:y", LIMIT_MS));
        dibs_close(second);
    }
}

TEST_ON(a_thread_may_end_with_a_lost_lock, fixture *f)
{
    fixture_open(f, SAFE_LEASE_MS);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        actor *a = actor_start();

        const char *name = formatted("lost-%zu", i);
        assert_status(DIBS_OK, actor_lock(a, f->rt, name, 0));
        assert_status(DIBS_OK, actor_lock(a, f->rt, name, 0));
        server_do(f->server, "SET lock:%s other PX 600000", name);
        events_await(&f->events, DIBS_EVENT_LOST, name);
        assert_status(DIBS_LOST, actor_check(a, f->rt, name));
        ways[i].ends(a);
        /* The lock that was lost belongs to another now. */
        assert_int_equal(server_integer(f->server, "EXISTS lock:%s", name), 1);
        assert_status(DIBS_BUSY, dibs_trylock(f->rt, name));
        server_do(f->server, "DEL lock:%s", name);
        lock_and_release(f->rt, name, LIMIT_MS);
    }
    assert_true(comes_to_nothing(f->rt));
}

/* What the destructor of a thread's own data finds. */
struct late {
    pthread_key_t key;
    dibs_runtime *rt;
    unsigned round;
    dibs_status checked, unlocked;
};

/* Destructors come in any order, but those of a second round behind all of the first. */
static void call_late(void *arg)
{
    struct late *late = arg;

    if (++late->round == 1) {
        assert_int_equal(pthread_setspecific(late->key, late), 0);
        return;
    }
    late->checked = dibs_check(late->rt, "x");
    late->unlocked = dibs_unlock(late->rt, "x");
}

static void set_late(void *arg)
{
    assert_int_equal(pthread_setspecific(((struct late *)arg)->key, arg), 0);
}

/* It saw the lock that it had used last still held, in memory that had been freed. */
TEST_ON(a_destructor_that_comes_later_finds_that_the_lock_is_released, fixture *f)
{
    struct late late = {.rt = NULL};

    fixture_open(f, LONG_LEASE_MS);
    late.rt = f->rt;
    assert_int_equal(pthread_key_create(&late.key, call_late), 0);
    for (int depth = 1; depth <= 2; depth++) {
        actor *a = actor_start();

        late.round = 0;
        actor_begin(a, set_late, &late);
        actor_finish(a);
        for (int i = 0; i < depth; i++)
            assert_status(DIBS_OK, actor_lock(a, f->rt, "x", LIMIT_MS));
        actor_end(a);
        assert_int_equal(late.round, 2);
        assert_status(DIBS_NOT_HELD, late.checked);
        assert_status(DIBS_NOT_HELD, late.unlocked);
    }
    assert_int_equal(stats_of(f->rt).orphaned, 2);
    assert_int_equal(pthread_key_delete(late.key), 0);
}

/* The memory of a program that starts a thread for each task must not grow. */
TEST_ON(many_threads_that_end_leave_nothing, fixture *f)
{
    fixture_open(f, LONG_LEASE_MS);
    for (int i = 0; i < 200; i++) {
        actor *a = actor_start();

        assert_status(DIBS_OK, actor_lock(a, f->rt, i % 2 ? "a" : "b", LIMIT_MS));
        actor_end(a);
    }
    assert_true(server_wait_gone(f->server, "lock:a", LIMIT_MS));
    assert_true(server_wait_gone(f->server, "lock:b", LIMIT_MS));
    assert_true(comes_to_nothing(f->rt));
    assert_int_equal(stats_of(f->rt).orphaned, 200);
}

/*
 * The server could not release the lock just then: the release is sent again, although the process has nothing else to
 * do.
 */
TEST_ON(a_release_that_was_refused_is_tried_again, fixture *f)
{
    script_server *net = fixture_between(f);

    f->urls[0] = script_server_url(net);
    fixture_open(f, LONG_LEASE_MS);
    for (unsigned i = 1; i <= 3; i++) {
        actor *a = actor_start();
        unsigned fired = script_server_fired(net);

        assert_status(DIBS_OK, actor_lock(a, f->rt, "x", LIMIT_MS));
        for (unsigned nth = 1; nth <= i; nth++)
            script_server_add(net, (script_rule){.match = ASK_OR_RELEASE_OF_X,
                                                 .nth = nth,
                                                 .action = SCRIPT_REPLACE,
                                                 .bytes = "-ERR a failure of the test's\r\n"});
        actor_end(a);
        assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS));
        assert_int_equal(script_server_fired(net), fired + i);
        script_server_clear(net);
    }
}

static void take_one(void *queue)
{
    dibs_completion done;

    dibs_queue_take(queue, &done, 1, DIBS_WAIT_FOREVER);
}

struct cancelling {
    dibs_task *task;
    bool returned;
};

static void cancel_while_cancelled(void *arg)
{
    struct cancelling *cancelling = arg;

    pthread_cancel(pthread_self());
    dibs_task_cancel(cancelling->task);
    cancelling->returned = true;
}

struct writing {
    dibs_runtime *rt;
    FILE *out;
    bool returned;
};

static void write_while_cancelled(void *arg)
{
    struct writing *writing = arg;

    pthread_cancel(pthread_self());
    writing->returned = dibs_stats_write_prometheus(writing->rt, writing->out) == DIBS_OK;
}

/* It wakes the thread that drives the calls, with the mutex of the calls locked. */
TEST_ON(a_thread_that_was_cancelled_cancels_a_task, fixture *f)
{
    dibs_queue *queue = test_queue(queue_new()), *driven = test_queue(queue_new());
    actor *driver = actor_start(), *canceller = actor_start();

    fixture_open(f, LONG_LEASE_MS);
    dibs_runtime *other = test_runtime(open_url(f->server->url, NULL));
    dibs_task *waits = test_task(task_of_runtime(f->rt)), *next = test_task(task_of_runtime(f->rt));
    struct cancelling cancelling = {.task = waits};
    assert_status(DIBS_OK, dibs_lock(other, "x"));
    begin_lock(waits, "x", DIBS_WAIT_FOREVER, NULL, queue);
    assert_status(DIBS_OK, task_lock(next, "y", LIMIT_MS, driven));
    queue_await(f->server, "x", 1);
    actor_begin(driver, take_one, driven);
    actor_await_asleep(driver);
    actor_begin(canceller, cancel_while_cancelled, &cancelling);
    actor_join(canceller);
    assert_true(cancelling.returned);
    expect_done(queue, DIBS_DONE_LOCK, DIBS_CANCELLED, waits);
    begin_unlock(next, "y", driven);
    actor_finish(driver);
}

/* Each part of the page is a write(2) of its own, which is a cancellation point. */
TEST_ON(a_thread_that_was_cancelled_writes_the_whole_page, fixture *f)
{
    actor *a = actor_start();

    fixture_open(f, LONG_LEASE_MS);
    struct writing writing = {f->rt, tmpfile(), false};
    assert_non_null(writing.out);
    setvbuf(writing.out, NULL, _IONBF, 0);
    actor_begin(a, write_while_cancelled, &writing);
    actor_join(a);
    assert_true(writing.returned);
    fclose(writing.out);
}

TESTS(fixture_setup, fixture_teardown)
