/* Tasks and begun calls on a server that does not answer, or whose replicas do not. */
#include "support/fixture.h"
#include "support/queue.h"
#include "support/tasks.h"

#define FOREVER DIBS_WAIT_FOREVER
#define SILENT_MS 300

static bool is_free(const fixture *f)
{
    dibs_owner a, b;

    return dibs_query(f->rt, "a", &a) == DIBS_OK && dibs_query(f->rt, "b", &b) == DIBS_OK && !a.held && !b.held &&
           a.waiters == 0 && b.waiters == 0;
}

/* No call ends because the server is silent: what ends in a test does not wait for it. */
static void open_patient(fixture *f)
{
    f->config.command_timeout_ms = f->config.connect_timeout_ms = LIMIT_MS;
    fixture_open_connected(f, LONG_LEASE_MS);
}

/* The call that asks still returns at once, and its ask is retracted. */
TEST_ON(a_cancel_does_not_wait_for_a_silent_server, fixture *f)
{
    actor *a = actor_start();

    open_patient(f);
    dibs_queue *q = test_queue(queue_new());
    dibs_task *begun = test_task(task_of_runtime(f->rt)), *blocking = test_task(task_of_runtime(f->rt));
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
    await_that(is_free(f));
    assert_status(DIBS_OK, dibs_timedlock(f->rt, "a", LIMIT_MS));
    assert_status(DIBS_OK, dibs_timedlock(f->rt, "b", LIMIT_MS));
    assert_status(DIBS_OK, dibs_unlock_all(f->rt));
    expect_none(q);
}

static const char *const names[] = {"a", "b"};

struct locking {
    dibs_runtime *rt;
    dibs_task *task;
    dibs_status status;
};

static void lock_names_in_task(void *arg)
{
    struct locking *locking = arg;

    locking->status = dibs_task_enter(locking->task);
    if (locking->status == DIBS_OK)
        locking->status = dibs_lock_names(locking->rt, names, 2, FOREVER, NULL);
    dibs_task_leave(locking->task);
}

/* The asks for all the names are retracted. */
TEST_ON(a_cancel_of_several_names_does_not_wait_for_a_silent_server, fixture *f)
{
    dibs_completion c;

    open_patient(f);
    dibs_queue *q = test_queue(queue_new());
    dibs_task *task = test_task(task_of_runtime(f->rt));
    struct locking blocking = {f->rt, test_task(task_of_runtime(f->rt)), DIBS_OK};
    server_pause(f->server);
    int64_t began = now_ms();
    assert_status(DIBS_OK, dibs_lock_names_begin(task, names, 2, FOREVER, NULL, q, task));
    actor *a = actor_running(lock_names_in_task, &blocking);
    assert_int_equal(dibs_queue_take(q, &c, 1, 100), 0);
    actor_await_asleep(a);
    dibs_task_cancel(task);
    dibs_task_cancel(blocking.task);
    assert_status(DIBS_CANCELLED, next_done(q).status);
    actor_finish(a);
    assert_status(DIBS_CANCELLED, blocking.status);
    assert_true(now_ms() - began < LIMIT_MS / 2);
    server_resume(f->server);
    await_that(is_free(f));
    expect_none(q);
}

/* A cancel wakes the thread, which need not look for one. */
TEST_ON(a_blocking_call_sleeps_while_the_server_is_silent, fixture *f)
{
    actor *a = actor_start();

    open_patient(f);
    dibs_task *task = test_task(task_of_runtime(f->rt));
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
    await_that(is_free(f));
}

TEST_ON(take_keeps_its_time_while_the_server_is_silent, fixture *f)
{
    enum { TASKS = 30 };
    static const dibs_lock_options fair = {.flags = DIBS_FAIR};
    dibs_task *tasks[TASKS];
    dibs_completion c;

    open_patient(f);
    dibs_queue *q = test_queue(queue_new());
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
    await_that(is_free(f));
}

/*
 * A wait for what this process holds needs no store: it ends in time, by a worker, though some asks are not answered,
 * or are to be sent again because their connections broke.
 */
static void a_wait_within_the_process_ends_beside(fixture *f, bool breaks)
{
    enum { ASKS = 5 };
    dibs_task *tasks[ASKS];

    open_patient(f);
    dibs_task *local = test_task(task_of_runtime(f->rt));
    dibs_queue *asks = test_queue(queue_new()), *q = test_queue(queue_new());
    assert_status(DIBS_OK, dibs_lock(f->rt, "held"));
    assert_status(DIBS_OK, task_lock(local, "first", 0, q));
    assert_status(DIBS_OK, task_unlock(local, "first", q));
    if (breaks)
        server_do(f->server, "CLIENT KILL TYPE normal SKIPME yes");
    server_pause(f->server);
    for (int i = 0; i < ASKS; i++) {
        char name[] = {(char)('a' + i), '\0'};
        tasks[i] = test_task(task_of_runtime(f->rt));
        begin_lock(tasks[i], name, FOREVER, NULL, asks);
    }
    dibs_completion c;
    int64_t began = now_ms();
    assert_int_equal(dibs_queue_take(asks, &c, 1, SILENT_MS), 0);
    pause_ms(50); /* the workers are not left to a thread that drives any more */
    begin_lock(local, "held", 100, NULL, q);
    assert_true(within(LIMIT_MS / 2, is_readable(q)));
    assert_true(now_ms() - began < LIMIT_MS / 2);
    expect_done(q, DIBS_DONE_LOCK, DIBS_TIMEOUT, local);
    for (int i = 0; i < ASKS; i++)
        dibs_task_cancel(tasks[i]);
    server_resume(f->server);
    for (int i = 0; i < ASKS; i++)
        assert_status(DIBS_CANCELLED, next_done(asks).status);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "held"));
    await_that(is_free(f));
}

TEST(asks_without_an_answer_hold_up_no_others)
{
    a_wait_within_the_process_ends_beside(*state, false);
}

/* However many others are not answered, or can't be sent, and whatever they are: no thread waits for each. */
static void a_begun_call_ends_in_time_beside_many(fixture *f, bool breaks)
{
    enum { TASKS = 12 };
    dibs_task *tasks[TASKS];
    const char *names[TASKS];

    open_patient(f);
    dibs_task *impatient = test_task(task_of_runtime(f->rt)), *others = test_task(task_of_runtime(f->rt));
    dibs_queue *q = test_queue(queue_new()), *unanswered = test_queue(queue_new());
    for (int i = 0; i < TASKS; i++) {
        names[i] = formatted("n%d", i);
        tasks[i] = test_task(task_of_runtime(f->rt));
        if (i % 3 == 0)
            assert_status(DIBS_OK, task_lock(tasks[i], names[i], 0, unanswered));
    }
    if (breaks)
        server_do(f->server, "CLIENT KILL TYPE normal SKIPME yes");
    server_pause(f->server);
    for (int i = 0; i < TASKS; i++) {
        if (i % 3 == 0)
            begin_unlock(tasks[i], names[i], unanswered);
        else
            begin_lock(tasks[i], names[i], FOREVER, NULL, unanswered);
    }
    assert_status(DIBS_OK,
                  dibs_lock_names_begin(others, (const char *[]){"x", "y"}, 2, FOREVER, NULL, unanswered, NULL));
    pause_ms(50); /* by now they are with the workers */
    int64_t began = now_ms();
    begin_lock(impatient, "a", 200, NULL, q);
    expect_done(q, DIBS_DONE_LOCK, DIBS_TIMEOUT, impatient);
    assert_true(now_ms() - began < LIMIT_MS / 2);
    expect_none(unanswered);
    server_resume(f->server);
    for (int i = 0; i < TASKS + 1; i++)
        assert_status(DIBS_OK, next_done(unanswered).status);
}

TEST(a_begun_call_ends_in_time_beside_many_without_an_answer)
{
    a_begun_call_ends_in_time_beside_many(*state, false);
}

TEST(a_begun_call_ends_in_time_beside_many_without_a_connection)
{
    a_begun_call_ends_in_time_beside_many(*state, true);
}

TEST(asks_on_broken_connections_hold_up_no_others)
{
    a_wait_within_the_process_ends_beside(*state, true);
}

/*
 * None waits until each of those before it has tried to send its ask: a call rests once and tries once after outage_ms
 * at most.
 */
TEST_ON(fair_calls_end_soon_when_an_outage_lasts, fixture *f)
{
    enum { TASKS = 200, OUTAGE_MS = 300, COMMAND_MS = 150, MOST_MS = OUTAGE_MS + 2 * COMMAND_MS, TRIES = 5 };
    static const dibs_lock_options fair = {.flags = DIBS_FAIR};
    int64_t took = INT64_MAX;

    f->config.outage_ms = OUTAGE_MS;
    f->config.command_timeout_ms = COMMAND_MS;
    fixture_open_connected(f, LONG_LEASE_MS);
    dibs_queue *q = test_queue(queue_new());
    for (int i = 0; i < TRIES && took > MOST_MS; i++) { /* the test may stand still itself */
        dibs_task *tasks[TASKS];
        for (int k = 0; k < TASKS; k++)
            tasks[k] = task_of_runtime(f->rt);
        server_pause(f->server);
        int64_t began = now_ms();
        for (int k = 0; k < TASKS; k++)
            begin_lock(tasks[k], formatted("n%d", k), FOREVER, &fair, q);
        for (int k = 0; k < TASKS; k++)
            assert_status(DIBS_UNAVAILABLE, next_done(q).status);
        took = now_ms() - began;
        server_resume(f->server);
        await_that(dibs_forget(f->rt, "n0") == DIBS_OK);
        for (int k = 0; k < TASKS; k++)
            dibs_task_free(tasks[k]);
    }
    assert_that(took <= MOST_MS, "%ld ms", (long)took);
}

/* The connection had been closed unnoticed, and no new one comes. */
TEST_ON(a_cancel_does_not_wait_for_a_broken_connection, fixture *f)
{
    actor *a = actor_start();

    open_patient(f);
    dibs_task *task = test_task(task_of_runtime(f->rt));
    server_do(f->server, "CLIENT KILL TYPE normal SKIPME yes");
    server_pause(f->server);
    int64_t began = now_ms();
    actor_begin_task_lock(a, f->rt, task, "b", FOREVER, NULL);
    pause_ms(50);
    dibs_task_cancel(task);
    assert_status(DIBS_CANCELLED, actor_task_result(a));
    assert_true(now_ms() - began < LIMIT_MS / 2);
    server_resume(f->server);
    await_that(is_free(f));
}

/* Their entries are retracted many at a time: a worker that left the queue for each would wait for the server each
 * time. */
TEST_ON(waits_that_end_together_leave_together, fixture *f)
{
    enum { TASKS = 256 };
    static const dibs_lock_options fair = {.flags = DIBS_FAIR};
    dibs_task *tasks[TASKS];

    fixture_open(f, LONG_LEASE_MS);
    dibs_runtime *other = test_runtime(open_runtime(f->server, 0));
    dibs_queue *q = test_queue(queue_new());
    dibs_task *first = test_task(task_of_runtime(f->rt));
    assert_status(DIBS_OK, dibs_lock(other, "a"));
    begin_lock(first, "a", FOREVER, &fair, q); /* when the subscription stands, all who wait ask once more */
    queue_await(f->server, "a", 1);
    queue_await_listening(f->server, queue_at(f->server, "a", 0).channel);
    await_scheduler(f->rt); /* it has told who waits by now */
    uint64_t sent = stats_of(f->rt).store_commands;
    int64_t end = now_ms() + 2000;
    for (int i = 0; i < TASKS; i++) {
        int64_t left = end - now_ms();
        tasks[i] = test_task(task_of_runtime(f->rt));
        begin_lock(tasks[i], "a", left > 1 ? left : 1, &fair, q);
    }
    for (int i = 0; i < TASKS; i++)
        assert_status(DIBS_TIMEOUT, next_done(q).status);
    queue_await(f->server, "a", 1);
    sent = stats_of(f->rt).store_commands - sent;
    assert_that(sent < TASKS + TASKS / 2, "%lu commands", (unsigned long)sent);
    assert_status(DIBS_OK, dibs_unlock(other, "a"));
    expect_done(q, DIBS_DONE_LOCK, DIBS_OK, first);
    assert_status(DIBS_OK, task_unlock(first, "a", q));
}

/* No replica acknowledges: the grant is given back, also where the call was cancelled meanwhile. */
TEST_ON(a_grant_without_replicas_is_given_back, fixture *f)
{
    f->config.min_replicas = 1;
    f->config.replica_timeout_ms = 100;
    f->config.outage_ms = 300;
    fixture_open(f, LONG_LEASE_MS);
    dibs_queue *q = test_queue(queue_new());
    dibs_task *task = test_task(task_of_runtime(f->rt)), *other = test_task(task_of_runtime(f->rt));
    assert_status(DIBS_UNAVAILABLE, task_lock(task, "a", 0, q));
    assert_status(DIBS_UNAVAILABLE, task_lock(task, "a", FOREVER, q));
    begin_lock(other, "a", FOREVER, NULL, q);
    pause_ms(50);
    dibs_task_cancel(other);
    dibs_completion c = next_done(q);
    assert_true(c.status == DIBS_CANCELLED || c.status == DIBS_UNAVAILABLE);
    await_that(is_free(f));
}

TESTS(fixture_setup, fixture_teardown)
