/* Begun calls and their completions: exactly one for each call, and one for a loss. */
#include <poll.h>
#include <pthread.h>

#include "core/done.h"
#include "support/fixture.h"
#include "support/stage.h"
#include "support/tasks.h"

#define LEASE 30000
#define FOREVER DIBS_WAIT_FOREVER

static const dibs_lock_options fair = {.flags = DIBS_FAIR}, fixed = {.flags = DIBS_FIXED_LEASE},
                               no_reentry = {.flags = DIBS_NO_REENTRY};

static stage *s;        /* Each test has a runtime on it, */
static dibs_queue *q;   /* a queue, */
static dibs_task *task; /* and a task of the runtime. */

static int setup(void **state)
{
    stage_setup(state);
    s = *state;
    stage_open_at(s, "mem:completions", LEASE);
    q = queue_new();
    task = task_of_runtime(s->rt);
    return 0;
}

static int teardown(void **state)
{
    dibs_task_free(task);
    dibs_queue_free(q);
    return stage_teardown(state);
}

/* ------------------------------------------------------------------ lock and unlock */

TEST(a_begun_lock_is_held_once_its_completion_is_taken)
{
    int mark;

    assert_status(DIBS_OK, dibs_lock_begin(task, "a", 0, NULL, q, &mark));
    dibs_completion c = expect_done(q, DIBS_DONE_LOCK, DIBS_OK, task);
    assert_ptr_equal(c.arg, &mark);
    assert_status(DIBS_OK, dibs_task_enter(task));
    assert_int_equal(fence_of(s->rt, "a"), c.fence);
    assert_status(DIBS_OK, dibs_task_leave(task));
    assert_status(DIBS_OK, dibs_unlock_begin(task, "a", q, NULL));
    dibs_completion u = expect_done(q, DIBS_DONE_UNLOCK, DIBS_OK, task);
    assert_null(u.arg);
    assert_int_equal(u.fence, c.fence);
    assert_status(DIBS_OK, dibs_trylock(s->rt, "a"));
    assert_true(fence_of(s->rt, "a") > c.fence);
    expect_none(q);
    assert_int_equal(stats_of(s->rt).begun, 2);
    assert_int_equal(stats_of(s->rt).acquired, 2);
    assert_int_equal(stats_of(s->rt).released, 1);
}

/* Each failure of a blocking call, in turn. */
TEST(each_failure_of_a_begun_call_is_told)
{
    stage_rival(s, LEASE, "a");
    assert_status(DIBS_BUSY, task_lock(task, "a", 0, q));
    begin_lock(task, "a", 1000, NULL, q);
    await_that(owner_of(s->rt, "a").waiters > 0);
    expect_none(q);
    moved_clock_advance(&s->clock, MS(1001));
    dibs_completion c = expect_done(q, DIBS_DONE_LOCK, DIBS_TIMEOUT, task);
    assert_non_null(strstr(c.detail, "1000 ms"));
    await_that(owner_of(s->rt, "a").waiters == 0);
    faults_acquire(&s->faults, DIBS_DENIED, 1);
    assert_status(DIBS_DENIED, task_lock(task, "b", FOREVER, q));
    faults_acquire(&s->faults, DIBS_UNAVAILABLE, 1);
    assert_status(DIBS_UNAVAILABLE, task_lock(task, "b", 0, q));
    assert_status(DIBS_OK, task_lock(task, "b", 0, q));
    faults_release(&s->faults, DIBS_UNAVAILABLE, 1);
    assert_status(DIBS_UNAVAILABLE, task_unlock(task, "b", q));
    faults_confirm(&s->faults);
    assert_status(DIBS_NOT_HELD, task_unlock(task, "b", q));
    assert_status(DIBS_OK, task_lock_with(task, "c", 0, &fixed, q));
    moved_clock_advance(&s->clock, believed(LEASE));
    begin_unlock(task, "c", q);
    dibs_completion last;
    do
        last = next_done(q);
    while (last.kind == DIBS_DONE_LOST);
    assert_int_equal(last.status, DIBS_LOST);
}

TEST(a_call_that_needs_no_store_completes_at_once)
{
    assert_status(DIBS_OK, task_lock(task, "a", 0, q));
    unsigned asks = faults_count(&s->faults, &s->faults.acquires), releases = s->faults.releases;
    dibs_completion c[8];
    begin_lock(task, "a", FOREVER, NULL, q);
    begin_lock(task, "a", FOREVER, &no_reentry, q);
    begin_unlock(task, "a", q);
    begin_unlock(task, "other", q);
    dibs_task_cancel(task);
    begin_lock(task, "b", FOREVER, NULL, q);
    begin_lock(task, "a", FOREVER, NULL, q);
    begin_unlock(task, "a", q);
    assert_int_equal(stats_of(s->rt).untaken, 7);
    assert_int_equal(dibs_queue_take(q, c, 8, 0), 7);
    static const struct {
        dibs_done_kind kind;
        dibs_status status;
        bool has_fence;
    } want[] = {{DIBS_DONE_LOCK, DIBS_OK, true},         {DIBS_DONE_LOCK, DIBS_BUSY, true},
                {DIBS_DONE_UNLOCK, DIBS_OK, true},       {DIBS_DONE_UNLOCK, DIBS_NOT_HELD, false},
                {DIBS_DONE_LOCK, DIBS_CANCELLED, false}, {DIBS_DONE_LOCK, DIBS_OK, true},
                {DIBS_DONE_UNLOCK, DIBS_OK, true}};
    for (int i = 0; i < 7; i++) {
        assert_int_equal(c[i].kind, want[i].kind);
        assert_int_equal(c[i].status, want[i].status);
        assert_int_equal(c[i].fence > 0, want[i].has_fence);
        assert_int_equal(c[i].detail[0] == '\0', c[i].status == DIBS_OK);
    }
    assert_int_equal(faults_count(&s->faults, &s->faults.acquires), asks);
    assert_int_equal(faults_count(&s->faults, &s->faults.releases), releases);
    assert_int_equal(stats_of(s->rt).untaken, 0);
    assert_int_equal(stats_of(s->rt).cancelled, 1);
    assert_int_equal(stats_of(s->rt).not_held, 1);
    assert_status(DIBS_OK, task_unlock(task, "a", q));
}

TEST(a_task_does_one_thing_at_a_time)
{
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    assert_status(DIBS_OK, dibs_task_enter(task));
    assert_status(DIBS_BUSY, dibs_lock_begin(task, "a", FOREVER, NULL, q, NULL));
    assert_status(DIBS_BUSY, dibs_unlock_begin(task, "a", q, NULL));
    assert_status(DIBS_OK, dibs_task_leave(task));
    begin_lock(task, "a", FOREVER, NULL, q);
    assert_status(DIBS_BUSY, dibs_lock_begin(task, "b", FOREVER, NULL, q, NULL));
    assert_status(DIBS_BUSY, dibs_unlock_begin(task, "a", q, NULL));
    assert_status(DIBS_BUSY, dibs_task_enter(task));
    expect_none(q);
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    expect_done(q, DIBS_DONE_LOCK, DIBS_OK, task);
    assert_status(DIBS_OK, task_lock(task, "a", FOREVER, q));
    begin_unlock(task, "a", q);
    begin_unlock(task, "a", q); /* the one before is complete, though nobody took its completion */
    expect_done(q, DIBS_DONE_UNLOCK, DIBS_OK, task);
    expect_done(q, DIBS_DONE_UNLOCK, DIBS_OK, task);
    expect_none(q);
    assert_int_equal(stats_of(s->rt).begun, 4);
}

TEST(begun_calls_refuse_wrong_arguments)
{
    static const dibs_lock_options short_lease = {.lease_ms = 1}, unknown = {.flags = 1u << 31};
    char too_long[DIBS_NAME_MAX + 2];
    dibs_completion c;

    memset(too_long, 'x', sizeof too_long);
    too_long[DIBS_NAME_MAX + 1] = '\0';
    assert_status(DIBS_INVALID, dibs_lock_begin(NULL, "a", 0, NULL, q, NULL));
    assert_status(DIBS_INVALID, dibs_lock_begin(task, NULL, 0, NULL, q, NULL));
    assert_status(DIBS_INVALID, dibs_lock_begin(task, "a", 0, NULL, NULL, NULL));
    assert_status(DIBS_INVALID, dibs_lock_begin(task, "", 0, NULL, q, NULL));
    assert_status(DIBS_INVALID, dibs_lock_begin(task, too_long, 0, NULL, q, NULL));
    assert_status(DIBS_INVALID, dibs_lock_begin(task, "a", -2, NULL, q, NULL));
    assert_status(DIBS_INVALID, dibs_lock_begin(task, "a", 0, &short_lease, q, NULL));
    assert_status(DIBS_INVALID, dibs_lock_begin(task, "a", 0, &unknown, q, NULL));
    assert_status(DIBS_INVALID, dibs_unlock_begin(NULL, "a", q, NULL));
    assert_status(DIBS_INVALID, dibs_unlock_begin(task, NULL, q, NULL));
    assert_status(DIBS_INVALID, dibs_unlock_begin(task, "a", NULL, NULL));
    assert_status(DIBS_INVALID, dibs_unlock_begin(task, too_long, q, NULL));
    assert_status(DIBS_INVALID, dibs_queue_new(NULL));
    assert_int_equal(dibs_queue_fd(NULL), -1);
    assert_int_equal(dibs_queue_take(NULL, &c, 1, FOREVER), 0);
    assert_int_equal(dibs_queue_take(q, NULL, 1, FOREVER), 0);
    assert_int_equal(dibs_queue_take(q, &c, 0, FOREVER), 0);
    assert_int_equal(dibs_queue_take(q, &c, 1, -2), 0);
    dibs_queue_free(NULL);
    expect_none(q);
    assert_int_equal(stats_of(s->rt).begun, 0);
    assert_status(DIBS_OK, task_lock(task, "a", 0, q)); /* the task is free, and its queue unchanged */
}

/* A thread that waits reads what the server tells; a begun call has none. */
TEST(the_store_is_told_of_a_wait_without_a_thread)
{
    dibs_runtime *holder = stage_rival(s, LEASE, "a");
    assert_status(DIBS_BUSY, task_lock(task, "a", 0, q));
    assert_int_equal(faults_count(&s->faults, &s->faults.unheard), 0);
    begin_lock(task, "a", FOREVER, NULL, q);
    await_that(faults_count(&s->faults, &s->faults.unheard) > 0);
    assert_status(DIBS_OK, dibs_unlock(holder, "a"));
    expect_done(q, DIBS_DONE_LOCK, DIBS_OK, task);
    assert_status(DIBS_OK, task_unlock(task, "a", q));
}

/* ------------------------------------------------------------------------ cancel */

/* A wait for the turn, one in the store's queue, and a fair one. */
TEST(a_cancelled_wait_completes_at_once_and_leaves_nothing)
{
    static const struct {
        bool elsewhere;
        const dibs_lock_options *options;
    } cases[] = {{false, NULL}, {true, NULL}, {true, &fair}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dibs_runtime *holder = stage_open_another(s, LEASE);
        dibs_task *waiting = task_of_runtime(s->rt);
        dibs_runtime *at = cases[i].elsewhere ? holder : s->rt;
        assert_status(DIBS_OK, dibs_lock(at, "a"));
        begin_lock(waiting, "a", FOREVER, cases[i].options, q);
        await_that(cases[i].elsewhere ? owner_of(s->rt, "a").waiters > 0 : stats_of(s->rt).contended > 0);
        expect_none(q);
        dibs_task_cancel(waiting);
        dibs_completion c;
        assert_int_equal(dibs_queue_take(q, &c, 1, 0), 1); /* it is there when dibs_task_cancel returns */
        assert_int_equal(c.status, DIBS_CANCELLED);
        assert_non_null(strstr(c.detail, "cancelled"));
        assert_status(DIBS_CANCELLED, task_lock(waiting, "a", 0, q));
        dibs_task_cancel(waiting);
        await_that(owner_of(s->rt, "a").waiters == 0);
        assert_int_equal(stats_of(s->rt).cancelled, 2 * (i + 1));
        assert_status(DIBS_OK, dibs_unlock(at, "a"));
        lock_and_release(s->rt, "a", LIMIT_MS);
        expect_none(q);
        dibs_task_free(waiting);
        dibs_close(holder);
    }
}

/* The store grants the lock, but too late. */
TEST(a_grant_after_a_cancel_is_given_back)
{
    dibs_runtime *other = test_runtime(stage_open_another(s, LEASE));

    for (int is_fair = 0; is_fair < 2; is_fair++) {
        dibs_task *next = test_task(task_of_runtime(s->rt));
        faults_block_acquires(&s->faults);
        begin_lock(next, "a", FOREVER, is_fair ? &fair : NULL, q);
        faults_await_blocked(&s->faults);
        dibs_task_cancel(next);
        dibs_completion c;
        assert_int_equal(dibs_queue_take(q, &c, 1, 0), 1);
        assert_int_equal(c.status, DIBS_CANCELLED);
        faults_unblock_acquires(&s->faults);
        lock_and_release(other, "a", LIMIT_MS);
        await_that(stats_of(s->rt).leases == 0);
        expect_none(q);
        assert_status(DIBS_OK, task_lock(task, "a", FOREVER, q)); /* nor is the name blocked in this process */
        assert_status(DIBS_OK, task_unlock(task, "a", q));
    }
    assert_int_equal(stats_of(s->rt).holds, 0);
}

/*
 * A grant and a cancel at the same moment: the call ends with one of both, and in either case the lock can be acquired
 * again.
 */
TEST_WITH(a_lock_that_is_handed_over_while_it_is_cancelled_is_not_stranded, stage_setup, stage_teardown,
          stage *unopened)
{
    enum { ROUNDS = 400 };
    unsigned granted = 0;

    s = unopened;
    s->settings.handoff_ms = 10;
    stage_open(s, LEASE);
    q = test_queue(queue_new());
    actor *holder = actor_start();
    for (int i = 0; i < ROUNDS; i++) {
        task = task_of_runtime(s->rt);
        assert_status(DIBS_OK, actor_lock(holder, s->rt, "a", FOREVER));
        begin_lock(task, "a", FOREVER, NULL, q);
        actor_begin_unlock(holder, s->rt, "a");
        for (volatile int spin = 0; spin < (i % 40) * 100; spin++)
            continue;
        dibs_task_cancel(task);
        assert_status(DIBS_OK, actor_result(holder));
        dibs_completion c = next_done(q);
        assert_true(c.status == DIBS_OK || c.status == DIBS_CANCELLED);
        if (c.status == DIBS_OK) {
            granted++;
            assert_status(DIBS_OK, task_unlock(task, "a", q));
        }
        expect_none(q);
        dibs_task_free(task);
    }
    print_message("# %u of %d were granted\n", granted, ROUNDS);
    lock_and_release(s->rt, "a", FOREVER);
    assert_int_equal(stats_of(s->rt).holds, 0);
}

TEST(releases_are_never_cancelled)
{
    assert_status(DIBS_OK, task_lock(task, "a", 0, q));
    dibs_task_cancel(task);
    begin_unlock(task, "a", q);
    dibs_task_cancel(task);
    expect_done(q, DIBS_DONE_UNLOCK, DIBS_OK, task);
    assert_status(DIBS_OK, dibs_trylock(s->rt, "a"));
}

/* -------------------------------------------------------------------------- free */

TEST(the_completion_still_comes_after_the_task_was_freed)
{
    dibs_task *waiting = task_of_runtime(s->rt), *asking = task_of_runtime(s->rt), *holder = task_of_runtime(s->rt);

    assert_status(DIBS_OK, task_lock(holder, "a", 0, q));
    begin_lock(waiting, "a", FOREVER, NULL, q);
    dibs_task_free(waiting);
    expect_done(q, DIBS_DONE_LOCK, DIBS_CANCELLED, waiting);
    faults_block_acquires(&s->faults);
    begin_lock(asking, "b", FOREVER, NULL, q);
    faults_await_blocked(&s->faults);
    dibs_task_free(asking);
    expect_done(q, DIBS_DONE_LOCK, DIBS_CANCELLED, asking);
    faults_unblock_acquires(&s->faults);
    assert_status(DIBS_OK, dibs_timedlock(s->rt, "b", FOREVER));
    begin_unlock(holder, "a", q);
    dibs_task_free(holder);
    expect_done(q, DIBS_DONE_UNLOCK, DIBS_OK, holder);
    assert_status(DIBS_OK, dibs_timedlock(s->rt, "a", FOREVER));
    expect_none(q);
    assert_int_equal(stats_of(s->rt).holds, 2);
}

/* The task is freed while the lock is granted: the lock is released, whatever the completion says. */
TEST(a_lock_for_a_freed_task_is_given_up)
{
    enum { ROUNDS = 300 };

    for (int i = 0; i < ROUNDS; i++) {
        dibs_task *freed = task_of_runtime(s->rt);
        begin_lock(freed, "a", FOREVER, NULL, q);
        for (volatile int spin = 0; spin < (i % 50) * 200; spin++)
            continue;
        dibs_task_free(freed);
        dibs_completion c = next_done(q);
        assert_true(c.status == DIBS_OK || c.status == DIBS_CANCELLED);
        expect_none(q);
    }
    lock_and_release(s->rt, "a", FOREVER);
    await_that(stats_of(s->rt).leases == 0);
    assert_int_equal(stats_of(s->rt).holds, 0);
}

TEST(begun_calls_go_on_without_their_queue)
{
    dibs_queue *gone = queue_new();
    dibs_task *never = test_task(task_of_runtime(s->rt));

    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    begin_lock(task, "a", FOREVER, NULL, gone);
    begin_lock(never, "a", FOREVER, NULL, gone);
    dibs_queue_free(gone);
    dibs_task_cancel(never);
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    while (dibs_task_enter(task) == DIBS_BUSY)
        pause_ms(1);
    assert_status(DIBS_OK, dibs_check(s->rt, "a"));
    assert_status(DIBS_OK, dibs_task_leave(task));
    assert_int_equal(stats_of(s->rt).untaken, 0);
    stage_advance(s, MS(LEASE) / 2); /* the lease is renewed, and there is no queue to tell its loss to */
    faults_renewal_gone(&s->faults, "a");
    stage_advance(s, MS(LEASE) / 2);
    events_await(&s->events, DIBS_EVENT_LOST, "a");
    assert_status(DIBS_LOST, task_unlock(task, "a", q));
    expect_none(q);
}

/* -------------------------------------------------------------------------- losses */

static dibs_task *with_a_fixed_lock(const char *name)
{
    dibs_task *holder = task_of_runtime(s->rt);

    assert_status(DIBS_OK, task_lock_with(holder, name, 0, &fixed, q));
    return holder;
}

TEST(a_loss_is_told_once_with_the_queue_and_arg_of_the_acquire)
{
    dibs_queue *other = test_queue(queue_new());

    assert_status(DIBS_OK, task_lock_with(task, "a", 0, &fixed, q));
    assert_status(DIBS_OK, dibs_lock_begin(task, "a", 0, NULL, other, NULL));
    dibs_completion again = expect_done(other, DIBS_DONE_LOCK, DIBS_OK, task);
    assert_false(is_readable(q));
    stage_advance(s, believed(LEASE));
    dibs_completion c = expect_done(q, DIBS_DONE_LOST, DIBS_LOST, task);
    assert_ptr_equal(c.arg, task);
    assert_string_equal(c.name, "a");
    assert_int_equal(c.fence, again.fence);
    stage_advance(s, MS(LEASE));
    assert_string_equal(c.name, "a"); /* until the next begin */
    assert_status(DIBS_LOST, task_check(task, s->rt, "a"));
    assert_string_equal(c.name, "a");
    assert_status(DIBS_LOST, task_unlock(task, "a", other));
    assert_status(DIBS_LOST, task_unlock(task, "a", other));
    assert_status(DIBS_NOT_HELD, task_unlock(task, "a", other));
    stage_settle(s);
    expect_none(q);
    expect_none(other);
    events_await(&s->events, DIBS_EVENT_LOST, "a");
    assert_int_equal(events_count(&s->events, DIBS_EVENT_LOST, NULL), 1);
}

/* Nested unlocks do not end the hold; the last one may block, and may find the loss itself. */
TEST(no_loss_is_told_once_the_last_unlock_has_begun)
{
    dibs_task *begun = test_task(with_a_fixed_lock("a")), *blocking = test_task(with_a_fixed_lock("b")),
              *nested = test_task(with_a_fixed_lock("c")), *all = test_task(with_a_fixed_lock("d"));
    assert_status(DIBS_OK, task_lock(nested, "c", 0, q));
    assert_status(DIBS_OK, task_unlock(nested, "c", q));
    faults_release(&s->faults, DIBS_NOT_HELD, FOR_EVER); /* the unlock finds the key gone */
    assert_status(DIBS_LOST, task_unlock(begun, "a", q));
    assert_status(DIBS_OK, dibs_task_enter(blocking));
    assert_status(DIBS_LOST, dibs_unlock(s->rt, "b"));
    assert_status(DIBS_OK, dibs_task_leave(blocking));
    assert_status(DIBS_OK, dibs_task_enter(all));
    assert_status(DIBS_LOST, dibs_unlock_all(s->rt));
    assert_status(DIBS_OK, dibs_task_leave(all));
    stage_advance(s, believed(LEASE));
    dibs_completion c = expect_done(q, DIBS_DONE_LOST, DIBS_LOST, nested);
    assert_string_equal(c.name, "c");
    expect_none(q);
}

TEST(no_loss_is_told_of_what_was_locked_by_a_thread_or_is_given_up_by_free)
{
    dibs_task *blocking = test_task(task_of_runtime(s->rt)), *freed = with_a_fixed_lock("b");

    assert_status(DIBS_OK, dibs_task_enter(blocking));
    assert_status(DIBS_OK, dibs_lock_with(s->rt, "a", 0, &fixed));
    assert_status(DIBS_OK, dibs_task_leave(blocking));
    assert_status(DIBS_OK, task_lock(blocking, "a", 0, q)); /* the first acquire was not begun */
    dibs_task_free(freed);
    stage_advance(s, believed(LEASE));
    events_await(&s->events, DIBS_EVENT_LOST, "a");
    expect_none(q);
}

/* Before that unlock is complete, the task has not given up the rest of what it held. */
TEST(no_loss_is_told_of_a_task_that_was_freed_during_an_unlock)
{
    static const dibs_lock_options soon = {.flags = DIBS_FIXED_LEASE, .lease_ms = 300};

    dibs_task *freed = task_of_runtime(s->rt), *asking = test_task(task_of_runtime(s->rt));
    assert_status(DIBS_OK, task_lock_with(freed, "a", 0, &soon, q));
    assert_status(DIBS_OK, task_lock(freed, "b", 0, q));
    faults_block_acquires(&s->faults);
    begin_lock(asking, "c", FOREVER, NULL, q); /* the store in memory holds up the only worker with it */
    faults_await_blocked(&s->faults);
    begin_unlock(freed, "b", q);
    dibs_task_free(freed);
    stage_advance(s, believed(soon.lease_ms));
    events_await(&s->events, DIBS_EVENT_LOST, "a");
    stage_settle(s); /* a loss is told behind its event */
    bool any = is_readable(q);
    faults_unblock_acquires(&s->faults);
    assert_false(any);
    expect_done(q, DIBS_DONE_LOCK, DIBS_OK, asking);
    expect_done(q, DIBS_DONE_UNLOCK, DIBS_OK, freed);
    expect_none(q);
}

/* A loss and the unlock at the same moment: the loss never comes after the unlock, whatever their results. */
TEST(a_loss_never_comes_behind_its_unlock)
{
    enum { ROUNDS = 300 };
    unsigned told = 0;

    for (int i = 0; i < ROUNDS; i++) {
        dibs_task *holder = with_a_fixed_lock("a");
        stage_settle(s);
        moved_clock_advance(&s->clock, believed(LEASE)); /* the scheduler begins to tell */
        for (volatile int spin = 0; spin < (i % 100) * 200; spin++)
            continue;
        begin_unlock(holder, "a", q);
        dibs_completion c = next_done(q);
        if (c.kind == DIBS_DONE_LOST) {
            told++;
            c = next_done(q);
        }
        assert_int_equal(c.kind, DIBS_DONE_UNLOCK);
        assert_int_equal(c.status, DIBS_LOST);
        dibs_task_free(holder);
        stage_settle(s);
        expect_none(q);
    }
    print_message("# %u of %d were told\n", told, ROUNDS);
}

/* One loss lies in the queue when its task is freed, and one was taken before. */
TEST(a_loss_may_outlive_its_task)
{
    dibs_task *one = with_a_fixed_lock("a"), *two = with_a_fixed_lock("b");

    stage_advance(s, believed(LEASE));
    dibs_completion first = next_done(q);
    assert_non_null(first.name);
    dibs_task_free(first.task);
    dibs_task *left = first.task == one ? two : one;
    dibs_task_free(left);
    dibs_completion second = expect_done(q, DIBS_DONE_LOST, DIBS_LOST, left);
    assert_null(second.name);
    assert_true(second.fence > 0);
    expect_none(q);
}

/* As long as the completion of a call has room for a detail, so that what is freed too early has its bytes overwritten.
 */
#define LONG_NAME 255

/* Loses the lock of a long name. The completion that says so, and has that name, is taken. */
static dibs_completion take_a_loss(char letter)
{
    char name[LONG_NAME + 1] = "";

    memset(name, letter, LONG_NAME);
    assert_status(DIBS_OK, task_lock_with(task, name, 0, &fixed, q));
    stage_advance(s, believed(LEASE));
    dibs_completion c = expect_done(q, DIBS_DONE_LOST, DIBS_LOST, task);
    assert_string_equal(c.name, name);
    return c;
}

TEST(the_next_begin_may_be_given_the_name_of_a_loss)
{
    assert_status(DIBS_LOST, task_unlock(task, take_a_loss('a').name, q));
    assert_status(DIBS_LOST, task_lock(task, take_a_loss('b').name, 0, q));
    dibs_completion c = take_a_loss('c');
    assert_status(DIBS_OK, dibs_lock_names_begin(task, &c.name, 1, 0, NULL, q, task));
    expect_done(q, DIBS_DONE_LOCK, DIBS_LOST, task);
    assert_int_equal(stats_of(s->rt).holds, 2);
}

/* -------------------------------------------------------------------------- queues */

TEST(the_descriptor_is_readable_just_while_a_completion_waits)
{
    dibs_completion c[4];

    begin_unlock(task, "a", q); /* before there is a descriptor */
    int fd = dibs_queue_fd(q);
    assert_true(fd >= 0);
    for (int i = 0; i < 20; i++) {
        assert_true(is_readable(q));
        begin_unlock(task, "a", q);
        begin_unlock(task, "a", q);
        assert_true(is_readable(q));
        assert_int_equal(dibs_queue_take(q, c, 2, 0), 2);
        assert_true(is_readable(q));
        assert_int_equal(dibs_queue_take(q, c, 4, 0), 1);
        assert_false(is_readable(q));
        assert_int_equal(dibs_queue_take(q, c, 4, 0), 0);
        assert_false(is_readable(q));
        begin_unlock(task, "a", q);
    }
    assert_int_equal(dibs_queue_fd(q), fd);
}

/* What `first` of dibs__done_push sees, which takes place before the call is complete. */
struct glance {
    struct pollfd fd;
    int readable;
};

static void look_at_descriptor(void *context)
{
    struct glance *glance = context;

    glance->readable = poll(&glance->fd, 1, 0);
}

TEST(a_call_is_complete_once_the_descriptor_is_readable)
{
    struct glance glance = {.fd = {.fd = dibs_queue_fd(q), .events = POLLIN}, .readable = -1};
    struct dibs__done *done = dibs__done_new(DIBS_DONE_UNLOCK, q, task, NULL, NULL);

    assert_non_null(done);
    dibs__done_push(done, look_at_descriptor, &glance);
    assert_int_equal(glance.readable, 0);
    assert_true(is_readable(q));
    assert_int_equal(next_done(q).kind, DIBS_DONE_UNLOCK);
}

struct taker {
    dibs_queue *queue;
    int64_t wait_ms;
    size_t taken;
    dibs_completion out[8];
};

static void take(void *arg)
{
    struct taker *t = arg;

    t->taken = dibs_queue_take(t->queue, t->out, 8, t->wait_ms);
}

TEST(take_waits_for_one_completion_and_no_longer_than_its_time)
{
    dibs_completion c;

    struct taker first = {.queue = q, .wait_ms = FOREVER}, second = first;
    int64_t began = now_ms();
    assert_int_equal(dibs_queue_take(q, &c, 1, 30), 0);
    assert_true(now_ms() - began >= 30 && now_ms() - began < 30 + SLACK_MS);
    actor *a = actor_running(take, &first), *b = actor_running(take, &second);
    actor_await_asleep(a);
    actor_await_asleep(b);
    begin_unlock(task, "a", q);
    while (actor_busy(a) && actor_busy(b))
        pause_ms(1);
    begin_unlock(task, "a", q);
    actor_finish(a);
    actor_finish(b);
    assert_int_equal(first.taken, 1);
    assert_int_equal(second.taken, 1);
}

/* The thread does not end inside, and the queue does not stay locked. */
TEST(take_is_no_cancellation_point)
{
    struct taker taker = {.queue = q, .wait_ms = FOREVER};
    actor *a = actor_running(take, &taker);

    actor_await_asleep(a);
    actor_cancel_begin(a);
    pause_ms(20);
    begin_unlock(task, "a", q);
    actor_join(a);
    assert_int_equal(taker.taken, 1);
    expect_none(q);
}

struct cancelled {
    dibs_task *task, *waits;
    dibs_queue *queue;
    int done;
};

/* The thread is cancelled from the first line on, and ends at its next cancellation point. */
static void call_all(void *arg)
{
    struct cancelled *c = arg;
    dibs_completion out;

    pthread_cancel(pthread_self());
    dibs_queue_fd(c->queue);
    if (dibs_unlock_begin(c->task, "a", c->queue, NULL) == DIBS_OK)
        c->done++;
    c->done += (int)dibs_queue_take(c->queue, &out, 1, DIBS_WAIT_FOREVER);
    if (dibs_unlock_begin(c->task, "a", c->queue, NULL) == DIBS_OK)
        c->done++;
    dibs_task_cancel(c->waits);
    dibs_queue_free(c->queue);
    c->done++;
}

/* The calls that write to the descriptor, empty it and close it; also where the runtime is closed. */
TEST(begun_calls_are_no_cancellation_points)
{
    struct cancelled c = {.task = task_of_runtime(s->rt)};

    assert_status(DIBS_OK, dibs_lock(s->rt, "b"));
    for (int closed = 0; closed < 2; closed++) {
        c.queue = queue_new();
        c.done = 0;
        c.waits = closed ? NULL : task_of_runtime(s->rt);
        if (closed)
            dibs_close(s->rt);
        else
            begin_lock(c.waits, "b", FOREVER, NULL, c.queue);
        actor_join(actor_running(call_all, &c));
        assert_int_equal(c.done, 4);
        dibs_task_free(c.waits);
    }
    dibs_task_free(c.task);
    s->rt = NULL;
}

TEST(completions_of_a_task_come_in_order)
{
    enum { TASKS = 20, CALLS = 30 };
    dibs_task *tasks[TASKS];
    dibs_completion c[64];

    intptr_t last[TASKS] = {0}, begun[TASKS] = {0};

    for (int t = 0; t < TASKS; t++)
        tasks[t] = test_task(task_of_runtime(s->rt));
    for (int left = TASKS * CALLS; left > 0;) {
        for (int t = 0; t < TASKS; t++) {
            dibs_status status = DIBS_OK;
            while (begun[t] < CALLS && status == DIBS_OK) {
                status = begun[t] % 2 ? dibs_unlock_begin(tasks[t], "a", q, (void *)(begun[t] + 1))
                                      : dibs_lock_begin(tasks[t], "a", FOREVER, NULL, q, (void *)(begun[t] + 1));
                begun[t] += status == DIBS_OK;
            }
            assert_true(status == DIBS_OK || status == DIBS_BUSY);
        }
        size_t count = dibs_queue_take(q, c, 64, 1);
        for (size_t i = 0; i < count; i++) {
            int t = 0;
            while (tasks[t] != c[i].task)
                t++;
            assert_int_equal(c[i].status, DIBS_OK);
            assert_int_equal((intptr_t)c[i].arg, ++last[t]);
            left--;
        }
    }
    assert_int_equal(stats_of(s->rt).begun, TASKS * CALLS);
}

struct counted {
    dibs_queue *queue;
    dibs_runtime *rt;
    uint64_t calls, taken, most_missing;
};

/* Polls, so as to take each completion at once. */
static void take_and_count(void *arg)
{
    struct counted *c = arg;
    dibs_completion out;

    while (c->taken < c->calls) {
        if (dibs_queue_take(c->queue, &out, 1, 0) == 0)
            continue;
        uint64_t begun = stats_of(c->rt).begun;
        if (++c->taken > begun && c->taken - begun > c->most_missing)
            c->most_missing = c->taken - begun;
    }
}

/* The calls of one begin at a time: those that complete at once, and those that ask the store. */
TEST(who_takes_a_completion_finds_its_call_counted)
{
    enum { ROUNDS = 20000 };
    struct counted c = {.queue = q, .rt = s->rt, .calls = 2 * ROUNDS};
    actor *a = actor_running(take_and_count, &c);

    for (int i = 0; i < 2 * ROUNDS; i++) {
        dibs_status status;
        do
            status = i % 2 ? dibs_unlock_begin(task, "a", q, NULL) : dibs_lock_begin(task, "a", FOREVER, NULL, q, NULL);
        while (status == DIBS_BUSY);
        assert_status(DIBS_OK, status);
    }
    actor_finish(a);
    assert_int_equal(c.most_missing, 0);
}

/* Fair acquires that one thread begins are granted in that order. */
TEST(fair_acquires_reach_the_store_in_order)
{
    enum { TASKS = 200 };
    dibs_task *tasks[TASKS];

    dibs_runtime *other = stage_rival(s, LEASE, "a");
    for (int i = 0; i < TASKS; i++) {
        tasks[i] = test_task(task_of_runtime(s->rt));
        begin_lock(tasks[i], "a", FOREVER, &fair, q);
    }
    dibs_owner owner = {.waiters = 0};
    while (owner.waiters < TASKS)
        assert_status(DIBS_OK, dibs_query(s->rt, "a", &owner));
    assert_status(DIBS_OK, dibs_unlock(other, "a"));
    for (int i = 0; i < TASKS; i++) {
        expect_done(q, DIBS_DONE_LOCK, DIBS_OK, tasks[i]);
        assert_status(DIBS_OK, task_unlock(tasks[i], "a", q));
    }
}

/* As where no connection stands: asks are not sent before they are finished, and that takes its time. */
static void send_none(void)
{
    faults_set(&s->faults, &s->faults.unsent, true);
    faults_block_acquires(&s->faults);
}

TEST(a_fair_ask_that_is_not_sent_holds_up_no_others)
{
    dibs_queue *unlocks = test_queue(queue_new());
    dibs_task *holding = test_task(task_of_runtime(s->rt)), *first = test_task(task_of_runtime(s->rt)),
              *second = test_task(task_of_runtime(s->rt));

    assert_status(DIBS_OK, task_lock(holding, "h", 0, q));
    send_none();
    begin_lock(first, "a", FOREVER, &fair, q);
    begin_lock(second, "b", FOREVER, &fair, q);
    faults_await_blocked(&s->faults);
    assert_status(DIBS_OK, task_unlock(holding, "h", unlocks));
    assert_int_equal(faults_count(&s->faults, &s->faults.inside), 1); /* the second waits for the first to be sent */
    faults_unblock_acquires(&s->faults);
    for (int i = 0; i < 2; i++) /* the names are two: the later completion may overtake the other */
        assert_status(DIBS_OK, next_done(q).status);
}

TEST(fair_asks_that_are_not_sent_at_once_keep_their_order)
{
    enum { TASKS = 100 };
    dibs_task *tasks[TASKS];

    send_none();
    for (int i = 0; i < TASKS; i++) {
        tasks[i] = task_of_runtime(s->rt);
        begin_lock(tasks[i], "a", FOREVER, &fair, q);
    }
    faults_await_blocked(&s->faults);
    faults_unblock_acquires(&s->faults);
    for (int i = 0; i < TASKS; i++) {
        expect_done(q, DIBS_DONE_LOCK, DIBS_OK, tasks[i]);
        dibs_task_free(tasks[i]); /* and what it holds */
    }
}

/* Its own time counts, not that of the first. */
TEST(a_fair_call_asks_at_last_when_its_time_is_over)
{
    send_none();
    dibs_task *first = test_task(task_of_runtime(s->rt)), *second = test_task(task_of_runtime(s->rt));
    begin_lock(first, "a", FOREVER, &fair, q);
    begin_lock(second, "b", 100, &fair, q);
    faults_await_blocked(&s->faults);
    stage_advance(s, 101 * INT64_C(1000000));
    await_that(faults_count(&s->faults, &s->faults.inside) == 2);
    faults_unblock_acquires(&s->faults);
    for (int i = 0; i < 2; i++)
        assert_status(DIBS_OK, next_done(q).status);
}

/* It has its place in the queue, so it does not wait for an earlier call when it asks again; and it hears its grant. */
TEST(a_fair_call_in_the_queue_stands_in_no_line)
{
    dibs_queue *others = test_queue(queue_new());
    dibs_task *holding = test_task(task_of_runtime(s->rt)), *waiting = test_task(task_of_runtime(s->rt)),
              *first = test_task(task_of_runtime(s->rt));

    assert_status(DIBS_OK, task_lock(holding, "a", 0, others));
    begin_lock(waiting, "a", FOREVER, &fair, q);
    await_that(owner_of(s->rt, "a").waiters > 0);
    stage_advance(s, LEASE / 3 * INT64_C(1000000) - 1000000); /* it asks again in 1 ms */
    pthread_mutex_lock(&s->faults.mutex);
    s->faults.only = "b";
    pthread_mutex_unlock(&s->faults.mutex);
    send_none();
    begin_lock(first, "b", FOREVER, &fair, others);
    faults_await_blocked(&s->faults);
    unsigned asked = faults_count(&s->faults, &s->faults.acquires);
    stage_advance(s, 50 * INT64_C(1000000));
    await_that(faults_count(&s->faults, &s->faults.acquires) > asked);
    assert_status(DIBS_OK, task_unlock(holding, "a", others));
    expect_done(q, DIBS_DONE_LOCK, DIBS_OK, waiting);
    faults_unblock_acquires(&s->faults);
    expect_done(others, DIBS_DONE_LOCK, DIBS_OK, first);
}

TEST(cancel_and_shutdown_reach_fair_calls_that_have_not_asked)
{
    enum { TASKS = 4 };
    dibs_task *tasks[TASKS];

    send_none();
    dibs_queue *firsts = test_queue(queue_new());
    for (int i = 0; i < TASKS; i++) {
        tasks[i] = test_task(task_of_runtime(s->rt));
        begin_lock(tasks[i], "a", FOREVER, &fair, i == 0 ? firsts : q);
    }
    faults_await_blocked(&s->faults);
    dibs_task_cancel(tasks[1]);
    expect_done(q, DIBS_DONE_LOCK, DIBS_CANCELLED, tasks[1]);
    dibs_shutdown(s->rt);
    for (int i = 2; i < TASKS; i++) /* in either order */
        assert_status(DIBS_CLOSED, next_done(q).status);
    faults_unblock_acquires(&s->faults);
    next_done(firsts);
}

TEST(one_queue_serves_several_runtimes_and_outlives_them)
{
    dibs_runtime *other = stage_open_another(s, LEASE);
    dibs_task *one = task_of_runtime(s->rt), *two = task_of_runtime(other);

    assert_status(DIBS_OK, task_lock(one, "a", 0, q));
    assert_status(DIBS_BUSY, task_lock(two, "a", 0, q));
    begin_lock(two, "a", FOREVER, NULL, q);
    begin_unlock(one, "a", q);
    dibs_completion c = next_done(q), d = next_done(q);
    assert_true(c.task != d.task && c.status == DIBS_OK && d.status == DIBS_OK);
    begin_unlock(one, "a", q);
    dibs_task_free(one);
    dibs_task_free(two);
    dibs_close(other);
    dibs_close(s->rt);
    expect_done(q, DIBS_DONE_UNLOCK, DIBS_NOT_HELD, one);
    expect_none(q);
    s->rt = NULL;
}

/* ---------------------------------------------------------------- shutdown and close */

TEST(begun_calls_complete_before_close_returns)
{
    enum { WAITING = 50 };
    dibs_task *tasks[WAITING];
    dibs_completion c[WAITING + 4];

    dibs_runtime *other = test_runtime(stage_open_another(s, LEASE));
    dibs_task *holder = test_task(task_of_runtime(s->rt)), *unlocking = test_task(task_of_runtime(s->rt));
    assert_status(DIBS_OK, dibs_lock(other, "a"));
    assert_status(DIBS_OK, task_lock(holder, "b", 0, q));
    assert_status(DIBS_OK, task_lock(unlocking, "c", 0, q));
    for (int i = 0; i < WAITING; i++) {
        tasks[i] = test_task(task_of_runtime(s->rt));
        begin_lock(tasks[i], i % 2 ? "a" : "b", FOREVER, i % 3 == 0 ? &fair : NULL, q);
    }
    begin_unlock(unlocking, "c", q);
    dibs_close(s->rt);
    assert_int_equal(dibs_queue_take(q, c, WAITING + 4, 0), WAITING + 1);
    for (int i = 0; i <= WAITING; i++)
        assert_int_equal(c[i].status, c[i].kind == DIBS_DONE_UNLOCK ? DIBS_OK : DIBS_CLOSED);
    assert_status(DIBS_CLOSED, dibs_lock_begin(holder, "a", FOREVER, NULL, q, NULL));
    assert_status(DIBS_CLOSED, dibs_lock_begin(holder, "b", FOREVER, NULL, q, NULL));
    assert_status(DIBS_LOST, task_unlock(holder, "b", q));
    assert_status(DIBS_NOT_HELD, task_unlock(holder, "b", q));
    assert_int_equal(stats_of(s->rt).untaken, 0);
    expect_none(q); /* no loss is told of what dibs_close releases */
    assert_status(DIBS_OK, dibs_timedlock(other, "b", LIMIT_MS));
    await_that(owner_of(other, "a").waiters == 0);
    s->rt = NULL;
}

TEST(shutdown_ends_begun_acquires_alone)
{
    dibs_task *holder = test_task(task_of_runtime(s->rt)), *waiter = test_task(task_of_runtime(s->rt));

    assert_status(DIBS_OK, task_lock(holder, "a", 0, q));
    assert_status(DIBS_OK, task_lock(holder, "a", 0, q));
    begin_lock(waiter, "a", FOREVER, NULL, q);
    dibs_shutdown(s->rt);
    expect_done(q, DIBS_DONE_LOCK, DIBS_CLOSED, waiter);
    assert_status(DIBS_CLOSED, dibs_lock_begin(waiter, "a", FOREVER, NULL, q, NULL));
    assert_status(DIBS_OK, task_check(holder, s->rt, "a"));
    assert_status(DIBS_OK, task_unlock(holder, "a", q));
    assert_status(DIBS_OK, task_unlock(holder, "a", q));
    expect_none(q);
}

/* ------------------------------------------------------------------- from on_event */

struct reaction {
    dibs_queue *queue;
    dibs_task *task;
    atomic_int status;
};

static void begin_in_callback(const dibs_event *event, void *arg)
{
    struct reaction *r = arg;

    if (event->kind == DIBS_EVENT_NOT_HELD)
        atomic_store(&r->status, (int)dibs_lock_begin(r->task, event->name, FOREVER, NULL, r->queue, r->task));
}

TEST_WITH(on_event_may_begin_calls, stage_setup, stage_teardown, stage *unopened)
{
    struct reaction r = {.queue = test_queue(queue_new())};

    s = unopened;
    atomic_init(&r.status, -1);
    s->settings.on_event = begin_in_callback;
    s->settings.on_event_arg = &r;
    stage_open(s, LEASE);
    r.task = test_task(task_of_runtime(s->rt));
    assert_status(DIBS_NOT_HELD, dibs_unlock(s->rt, "a"));
    expect_done(r.queue, DIBS_DONE_LOCK, DIBS_OK, r.task);
    await_that(atomic_load(&r.status) >= 0); /* the completion may come before the begin has returned */
    assert_int_equal(atomic_load(&r.status), DIBS_OK);
    assert_status(DIBS_OK, task_unlock(r.task, "a", r.queue));
}

TESTS(setup, teardown)
