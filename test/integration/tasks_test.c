/* Tasks and begun calls on every kind of store: one table of cases. */
#include "support/cluster.h"
#include "support/fixture.h"
#include "support/masters.h"
#include "support/sentinels.h"
#include "support/tasks.h"

#define FOREVER DIBS_WAIT_FOREVER

/* A kind of store, which all cases share. */
struct place {
    const char *urls[MASTERS_MAX];
    size_t url_count;
    void *servers;
    bool has_order; /* DIBS_FAIR */
};

/* What each case begins with: two runtimes, and a queue and a task of the first. */
static const struct place *place;
static dibs_runtime *rt, *other;
static dibs_queue *q;
static dibs_task *task;

static dibs_runtime *open_one(void)
{
    const dibs_config config = {.urls = place->urls,
                                .url_count = place->url_count,
                                .lease_ms = LONG_LEASE_MS,
                                .connect_timeout_ms = 10000,
                                .command_timeout_ms = 10000};
    dibs_runtime *opened = NULL;

    assert_status(DIBS_OK, dibs_open(&opened, &config));
    return opened;
}

/* Asks of another process from just before may still be on their way to a quorum's masters, and split the votes. */
static int64_t patience(void)
{
    return place->url_count > 1 ? LIMIT_MS : 0;
}

/* --------------------------------------------------------------------------- cases */

static void locks_and_unlocks(void)
{
    uint64_t last = 0;

    for (int i = 0; i < 20; i++) {
        begin_lock(task, "a", patience(), NULL, q);
        dibs_completion c = expect_done(q, DIBS_DONE_LOCK, DIBS_OK, task);
        assert_true(c.fence > last);
        last = c.fence;
        assert_status(DIBS_OK, task_check(task, rt, "a"));
        assert_status(DIBS_BUSY, dibs_trylock(other, "a"));
        begin_unlock(task, "a", q);
        assert_int_equal(expect_done(q, DIBS_DONE_UNLOCK, DIBS_OK, task).fence, last);
    }
    assert_status(DIBS_OK, dibs_timedlock(other, "a", LIMIT_MS));
    assert_status(DIBS_BUSY, task_lock(task, "a", 0, q));
    assert_status(DIBS_TIMEOUT, task_lock(task, "a", 60, q));
    assert_status(DIBS_OK, dibs_unlock(other, "a"));
    await_nobody(rt, "a");
    expect_none(q);
}

/* A thread in a task acts for that task, not for itself, nor for the task around it. */
static void a_thread_acts_for_the_innermost_task(void)
{
    dibs_task *inner = task_of_runtime(rt);

    assert_status(DIBS_OK, dibs_lock(rt, "own"));
    assert_status(DIBS_OK, dibs_task_enter(task));
    assert_status(DIBS_NOT_HELD, dibs_check(rt, "own"));
    assert_status(DIBS_NOT_HELD, dibs_unlock(rt, "own"));
    assert_status(DIBS_BUSY, dibs_trylock(rt, "own"));
    assert_status(DIBS_OK, dibs_lock(rt, "a"));
    assert_status(DIBS_OK, dibs_trylock(rt, "a"));
    assert_status(DIBS_OK, dibs_extend(rt, "a", LONG_LEASE_MS));
    assert_status(DIBS_OK, dibs_task_enter(inner));
    assert_status(DIBS_BUSY, dibs_trylock(rt, "a"));
    assert_status(DIBS_OK, dibs_lock(rt, "b"));
    assert_status(DIBS_INVALID, dibs_task_leave(task));
    assert_status(DIBS_OK, dibs_task_leave(inner));
    dibs_hold hold = hold_of(rt, "a");
    assert_int_equal(hold.count, 2);
    assert_status(DIBS_OK, dibs_unlock_all(rt));
    assert_status(DIBS_OK, dibs_task_leave(task));
    assert_status(DIBS_OK, dibs_check(rt, "own"));
    assert_status(DIBS_OK, task_check(inner, rt, "b"));
    dibs_task_free(inner);
    assert_status(DIBS_OK, dibs_timedlock(rt, "b", LIMIT_MS));
    assert_status(DIBS_OK, dibs_unlock_all(rt));
    await_nobody(rt, "a");
}

/* The completion is there when the begin returns. */
static dibs_completion done_at_once(dibs_done_kind kind, dibs_status status)
{
    dibs_completion c;

    assert_int_equal(dibs_queue_take(q, &c, 1, 0), 1);
    assert_int_equal(c.kind, kind);
    assert_int_equal(c.status, status);
    assert_int_equal(c.detail[0] == '\0', status == DIBS_OK);
    return c;
}

static void a_call_that_needs_no_store_completes_at_once(void)
{
    static const dibs_lock_options no_reentry = {.flags = DIBS_NO_REENTRY};

    begin_lock(task, "a", FOREVER, NULL, q);
    uint64_t fence = expect_done(q, DIBS_DONE_LOCK, DIBS_OK, task).fence;
    begin_lock(task, "a", FOREVER, NULL, q);
    assert_int_equal(done_at_once(DIBS_DONE_LOCK, DIBS_OK).fence, fence);
    begin_lock(task, "a", FOREVER, &no_reentry, q);
    done_at_once(DIBS_DONE_LOCK, DIBS_BUSY);
    dibs_task_cancel(task);
    begin_lock(task, "a", FOREVER, NULL, q);
    done_at_once(DIBS_DONE_LOCK, DIBS_OK);
    begin_lock(task, "b", 0, NULL, q);
    assert_int_equal(done_at_once(DIBS_DONE_LOCK, DIBS_CANCELLED).fence, 0);
    for (int i = 0; i < 2; i++) {
        begin_unlock(task, "a", q);
        assert_int_equal(done_at_once(DIBS_DONE_UNLOCK, DIBS_OK).fence, fence);
    }
    begin_unlock(task, "a", q);
    assert_int_equal(expect_done(q, DIBS_DONE_UNLOCK, DIBS_OK, task).fence, fence);
    begin_unlock(task, "a", q);
    assert_int_equal(done_at_once(DIBS_DONE_UNLOCK, DIBS_NOT_HELD).fence, 0);
    await_nobody(rt, "a");
}

static void waits_for_another_process(void)
{
    dibs_task *waits = task_of_runtime(rt);

    assert_status(DIBS_OK, dibs_lock(other, "a"));
    begin_lock(waits, "a", FOREVER, NULL, q);
    await_waiters(other, "a", 1);
    expect_none(q);
    assert_status(DIBS_OK, dibs_unlock(other, "a"));
    expect_done(q, DIBS_DONE_LOCK, DIBS_OK, waits);
    dibs_task_free(waits); /* gives it up */
    lock_and_release(other, "a", LIMIT_MS);
    await_nobody(other, "a");
}

/* Begun and blocking, in its turn and fairly. */
static void cancels_leave_nothing(void)
{
    static const dibs_lock_options fair = {.flags = DIBS_FAIR};
    actor *a = actor_start();

    assert_status(DIBS_OK, dibs_lock(other, "a"));
    for (int i = 0; i < 4; i++) {
        const dibs_lock_options *options = i % 2 && place->has_order ? &fair : NULL;
        dibs_task *waits = task_of_runtime(rt);
        if (i < 2)
            begin_lock(waits, "a", FOREVER, options, q);
        else
            actor_begin_task_lock(a, rt, waits, "a", FOREVER, options);
        await_waiters(other, "a", 1);
        dibs_task_cancel(waits);
        if (i < 2)
            expect_done(q, DIBS_DONE_LOCK, DIBS_CANCELLED, waits);
        else
            assert_status(DIBS_CANCELLED, actor_task_result(a));
        await_waiters(other, "a", 0);
        dibs_task_free(waits);
    }
    assert_status(DIBS_OK, dibs_unlock(other, "a"));
    await_nobody(rt, "a");
    expect_none(q);
    actor_end(a);
}

/* Cancelled, or freed, while the lock comes: either the completion says that it came, or it goes to the next. */
static void a_cancel_strands_no_lock(void)
{
    enum { ROUNDS = 40 };

    for (int i = 0; i < ROUNDS; i++) {
        dibs_task *waits = task_of_runtime(rt);
        assert_status(DIBS_OK, dibs_timedlock(other, "a", LIMIT_MS));
        begin_lock(waits, "a", FOREVER, NULL, q);
        if (i % 4 == 0)
            await_waiters(other, "a", 1);
        assert_status(DIBS_OK, dibs_unlock(other, "a"));
        for (volatile int spin = 0; spin < i * 5000; spin++)
            continue;
        if (i % 2)
            dibs_task_cancel(waits);
        else
            dibs_task_free(waits);
        dibs_completion c = next_done(q);
        assert_int_equal(c.kind, DIBS_DONE_LOCK);
        assert_true(c.status == DIBS_OK || c.status == DIBS_CANCELLED);
        if (i % 2 && c.status == DIBS_OK)
            assert_status(DIBS_OK, task_unlock(waits, "a", q));
        if (i % 2)
            dibs_task_free(waits);
    }
    expect_none(q);
    await_nobody(other, "a");
}

static void fair_acquires_are_granted_in_order(void)
{
    enum { TASKS = 40 };
    static const dibs_lock_options fair = {.flags = DIBS_FAIR};
    dibs_queue *unlocks = queue_new(); /* an unlock may be told after the grant that it brings */
    dibs_task *tasks[TASKS];

    assert_status(DIBS_OK, dibs_lock(other, "a"));
    for (int i = 0; i < TASKS; i++) {
        tasks[i] = task_of_runtime(rt);
        if (place->has_order)
            begin_lock(tasks[i], "a", FOREVER, &fair, q);
        else
            assert_status(DIBS_INVALID, dibs_lock_begin(tasks[i], "a", FOREVER, &fair, q, NULL));
    }
    assert_status(DIBS_OK, dibs_unlock(other, "a"));
    for (int i = 0; i < TASKS; i++) {
        if (place->has_order) {
            expect_done(q, DIBS_DONE_LOCK, DIBS_OK, tasks[i]);
            assert_status(DIBS_OK, task_unlock(tasks[i], "a", unlocks));
        }
        dibs_task_free(tasks[i]);
    }
    expect_none(q);
    await_nobody(other, "a");
    dibs_queue_free(unlocks);
}

/* A loss by force: told once, and not after the unlock has begun. */
static void a_forced_unlock_is_a_loss(void)
{
    static const dibs_lock_options soon_renewed = {.lease_ms = 3000};
    dibs_task *told = task_of_runtime(rt), *quiet = task_of_runtime(rt);

    assert_status(DIBS_OK, task_lock_with(told, "a", 0, &soon_renewed, q));
    assert_status(DIBS_OK, task_lock(quiet, "b", 0, q));
    assert_status(DIBS_OK, dibs_force_unlock(rt, "a", NULL));
    dibs_completion c = expect_done(q, DIBS_DONE_LOST, DIBS_LOST, told);
    assert_string_equal(c.name, "a");
    assert_ptr_equal(c.arg, told);
    assert_status(DIBS_LOST, task_check(told, rt, "a"));
    assert_status(DIBS_LOST, task_unlock(told, "a", q));
    assert_status(DIBS_OK, task_unlock(quiet, "b", q));
    expect_none(q);
    dibs_task_free(told);
    dibs_task_free(quiet);
    close_runtime(&rt);
    expect_none(q);
}

/* Many tasks on a few names, all driven by this thread, which unlocks where nothing else comes. */
static void many_tasks_take_turns(void)
{
    enum { TASKS = 100, NAMES = 5 };
    static const char *const names[NAMES] = {"m0", "m1", "m2", "m3", "m4"};
    dibs_task *tasks[TASKS], *inside[NAMES] = {NULL};
    dibs_completion c;
    int ended = 0, held = 0;

    for (int i = 0; i < TASKS; i++) {
        tasks[i] = task_of_runtime(rt);
        assert_status(DIBS_OK, dibs_lock_begin(tasks[i], names[i % NAMES], FOREVER, NULL, q, &inside[i % NAMES]));
    }
    while (ended < TASKS) {
        bool any = dibs_queue_take(q, &c, 1, held > 0 ? 0 : LIMIT_MS) > 0;
        assert_true(any ? c.status == DIBS_OK : held > 0);
        if (any && c.kind == DIBS_DONE_LOCK) {
            dibs_task **its = c.arg;
            assert_null(*its);
            *its = c.task;
            held++;
        } else if (any) {
            ended++;
        } else {
            int i = 0;
            while (!inside[i])
                i++;
            dibs_task *ends = inside[i];
            inside[i] = NULL;
            held--;
            assert_status(DIBS_OK, dibs_unlock_begin(ends, names[i], q, NULL));
        }
    }
    expect_none(q);
    for (int i = 0; i < TASKS; i++)
        dibs_task_free(tasks[i]);
    for (int i = 0; i < NAMES; i++)
        await_nobody(rt, names[i]);
}

static void close_completes_all(void)
{
    enum { TASKS = 20 };
    dibs_task *tasks[TASKS], *unlocks = task_of_runtime(rt), *holds = task_of_runtime(rt);
    dibs_completion c[TASKS + 2];

    assert_status(DIBS_OK, dibs_lock(other, "a"));
    assert_status(DIBS_OK, task_lock(unlocks, "b", 0, q));
    assert_status(DIBS_OK, task_lock(holds, "c", 0, q));
    for (int i = 0; i < TASKS; i++) {
        tasks[i] = task_of_runtime(rt);
        begin_lock(tasks[i], "a", FOREVER, NULL, q);
    }
    begin_unlock(unlocks, "b", q);
    close_runtime(&rt);
    assert_int_equal(dibs_queue_take(q, c, TASKS + 2, 0), TASKS + 1);
    for (int i = 0; i <= TASKS; i++)
        assert_int_equal(c[i].status, c[i].kind == DIBS_DONE_LOCK ? DIBS_CLOSED : DIBS_OK);
    assert_status(DIBS_LOST, task_unlock(holds, "c", q));
    for (int i = 0; i < TASKS; i++)
        dibs_task_free(tasks[i]);
    dibs_task_free(unlocks);
    dibs_task_free(holds);
    assert_status(DIBS_OK, dibs_unlock(other, "a"));
    await_nobody(other, "a");
    await_nobody(other, "b");
    await_nobody(other, "c");
}

/* ------------------------------------------------------------------------- bad uses */

static void a_busy_task_takes_no_other_call(void)
{
    dibs_task *busy = task_of_runtime(rt);

    assert_status(DIBS_OK, dibs_lock(rt, "a"));
    assert_status(DIBS_OK, dibs_task_enter(busy));
    assert_status(DIBS_BUSY, dibs_task_enter(busy));
    assert_status(DIBS_BUSY, dibs_lock_begin(busy, "b", 0, NULL, q, NULL));
    assert_status(DIBS_BUSY, dibs_unlock_begin(busy, "b", q, NULL));
    assert_status(DIBS_OK, dibs_task_leave(busy));
    assert_status(DIBS_INVALID, dibs_task_leave(busy));
    begin_lock(busy, "a", FOREVER, NULL, q);
    assert_status(DIBS_BUSY, dibs_task_enter(busy));
    assert_status(DIBS_INVALID, dibs_task_leave(busy));
    assert_status(DIBS_BUSY, dibs_lock_begin(busy, "b", 0, NULL, q, NULL));
    assert_status(DIBS_BUSY, dibs_unlock_begin(busy, "a", q, NULL));
    dibs_task_free(busy);
    expect_done(q, DIBS_DONE_LOCK, DIBS_CANCELLED, busy);
    expect_none(q);
    assert_status(DIBS_OK, dibs_unlock(rt, "a"));
    await_nobody(rt, "a");
}

/* What was begun goes on, an acquire and an unlock. */
static void a_queue_is_freed_with_calls_under_way(void)
{
    dibs_queue *gone = queue_new();
    dibs_task *waits = task_of_runtime(rt), *unlocks = task_of_runtime(rt);

    assert_status(DIBS_OK, dibs_lock(rt, "a"));
    assert_status(DIBS_OK, task_lock(unlocks, "b", 0, q));
    begin_lock(waits, "a", FOREVER, NULL, gone);
    begin_unlock(unlocks, "b", gone);
    dibs_queue_free(gone);
    assert_status(DIBS_OK, dibs_unlock(rt, "a"));
    int64_t until = now_ms() + LIMIT_MS;
    while (dibs_task_enter(waits) == DIBS_BUSY)
        assert_true(now_ms() < until);
    assert_status(DIBS_OK, dibs_check(rt, "a"));
    assert_status(DIBS_OK, dibs_unlock(rt, "a"));
    assert_status(DIBS_OK, dibs_task_leave(waits));
    await_nobody(rt, "b");
    assert_status(DIBS_OK, task_lock(waits, "b", LIMIT_MS, q)); /* the task is whole */
    dibs_task_free(waits);
    dibs_task_free(unlocks);
}

static void calls_after_close(void)
{
    dibs_task *idle = task_of_runtime(rt), *none = task;

    assert_status(DIBS_OK, task_lock(task, "a", 0, q));
    assert_status(DIBS_OK, task_lock(task, "a", 0, q));
    dibs_close(rt);
    assert_status(DIBS_CLOSED, dibs_task_new(rt, &none));
    assert_null(none);
    assert_status(DIBS_CLOSED, dibs_lock_begin(task, "b", 0, NULL, q, NULL));
    assert_status(DIBS_OK, dibs_task_enter(task));
    assert_status(DIBS_LOST, dibs_check(rt, "a"));
    assert_status(DIBS_LOST, dibs_unlock(rt, "a"));
    assert_status(DIBS_CLOSED, dibs_trylock(rt, "b"));
    assert_status(DIBS_OK, dibs_task_leave(task));
    begin_unlock(task, "a", q);
    done_at_once(DIBS_DONE_UNLOCK, DIBS_LOST);
    begin_unlock(task, "a", q);
    done_at_once(DIBS_DONE_UNLOCK, DIBS_NOT_HELD);
    dibs_task_cancel(idle);
    dibs_task_free(idle);
    expect_none(q);
    rt = NULL; /* it is closed */
}

static void null_everywhere(void)
{
    dibs_task *none = task;
    dibs_completion c;

    assert_status(DIBS_INVALID, dibs_task_new(NULL, &none));
    assert_null(none);
    assert_status(DIBS_INVALID, dibs_task_new(rt, NULL));
    assert_status(DIBS_INVALID, dibs_task_enter(NULL));
    assert_status(DIBS_INVALID, dibs_task_leave(NULL));
    dibs_task_cancel(NULL);
    dibs_task_free(NULL);
    assert_status(DIBS_INVALID, dibs_queue_new(NULL));
    assert_int_equal(dibs_queue_fd(NULL), -1);
    assert_int_equal(dibs_queue_take(NULL, &c, 1, FOREVER), 0);
    assert_int_equal(dibs_queue_take(q, NULL, 1, FOREVER), 0);
    assert_int_equal(dibs_queue_take(q, &c, 0, FOREVER), 0);
    dibs_queue_free(NULL);
    assert_status(DIBS_INVALID, dibs_lock_begin(NULL, "a", 0, NULL, q, NULL));
    assert_status(DIBS_INVALID, dibs_lock_begin(task, NULL, 0, NULL, q, NULL));
    assert_status(DIBS_INVALID, dibs_lock_begin(task, "a", 0, NULL, NULL, NULL));
    assert_status(DIBS_INVALID, dibs_unlock_begin(NULL, "a", q, NULL));
    assert_status(DIBS_INVALID, dibs_unlock_begin(task, NULL, q, NULL));
    assert_status(DIBS_INVALID, dibs_unlock_begin(task, "a", NULL, NULL));
    expect_none(q);
    assert_status(DIBS_OK, dibs_lock_begin(task, "a", 0, NULL, q, NULL)); /* as arg, NULL is fine */
    assert_null(next_done(q).arg);
}

typedef void tasks_case(void);

static const struct {
    const char *name;
    tasks_case *run;
} cases[] = {
#define CASE(name)                                                                                                     \
    {                                                                                                                  \
#name, name                                                                                                    \
    }
    CASE(locks_and_unlocks),
    CASE(a_thread_acts_for_the_innermost_task),
    CASE(a_call_that_needs_no_store_completes_at_once),
    CASE(waits_for_another_process),
    CASE(cancels_leave_nothing),
    CASE(a_cancel_strands_no_lock),
    CASE(fair_acquires_are_granted_in_order),
    CASE(a_forced_unlock_is_a_loss),
    CASE(many_tasks_take_turns),
    CASE(close_completes_all),
    CASE(a_busy_task_takes_no_other_call),
    CASE(a_queue_is_freed_with_calls_under_way),
    CASE(calls_after_close),
    CASE(null_everywhere),
#undef CASE
};

static void run_cases(const struct place *p)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        print_message("# %s\n", cases[i].name);
        place = p;
        rt = open_one();
        other = open_one();
        q = queue_new();
        task = task_of_runtime(rt);
        cases[i].run();
        dibs_task_free(task);
        dibs_queue_free(q);
        dibs_close(other);
        dibs_close(rt);
    }
}

/* -------------------------------------------------------------------------- stores */

TEST(tasks_work_in_memory)
{
    run_cases(&(struct place){.urls = {"mem:tasks"}, .url_count = 1, .has_order = true});
}

TEST(tasks_work_on_a_server)
{
    server *s = test_server(server_start(NULL));

    run_cases(&(struct place){.urls = {s->url}, .url_count = 1, .has_order = true});
    server_assert_no_locks(s);
}

TEST(tasks_work_over_tcp)
{
    server *s = test_server(server_start(&(server_options){.tcp = true}));

    run_cases(&(struct place){.urls = {s->url}, .url_count = 1, .has_order = true});
    server_assert_no_locks(s);
}

TEST(tasks_work_with_sentinels)
{
    sentinels *s = sentinels_start(NULL);

    run_cases(&(struct place){.urls = {s->url}, .url_count = 1, .has_order = true});
    server_assert_no_locks(s->data[0]);
    sentinels_stop(s);
}

TEST(tasks_work_on_a_cluster)
{
    cluster *c = cluster_start(NULL);

    run_cases(&(struct place){.urls = {c->url}, .url_count = 1, .has_order = true});
    cluster_assert_no_locks(c);
    cluster_stop(c);
}

TEST_WITH(tasks_work_on_a_quorum, masters_setup_3, masters_teardown, const masters *m)
{
    struct place p = {.url_count = m->count};

    memcpy(p.urls, m->urls, sizeof p.urls);
    run_cases(&p);
}

TESTS(NULL, NULL)
