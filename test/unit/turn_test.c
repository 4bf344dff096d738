/* The turn: which thread of the process may ask the store, which one gets the lock next, and when a wait ends. */
#include "support/fixture.h"
#include "unit/turn_setup.h"

/* --------------------------------------------------------------- how it ends */

TEST_ON(one_try_is_busy_and_asks_nobody_where_the_process_holds_it, stage *s)
{
    actor *other = actor_start();

    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    assert_status(DIBS_BUSY, actor_lock(other, s->rt, "a", 0));
    assert_int_equal(acquires(s), 1);
    assert_int_equal(stats_of(s->rt).busy, 1);
    assert_int_equal(stats_of(s->rt).contended, 0);
}

TEST_ON(one_try_is_busy_where_another_process_holds_it, stage *s)
{
    faults_acquire(&s->faults, DIBS_BUSY, FOR_EVER);
    assert_status(DIBS_BUSY, dibs_trylock(s->rt, "a"));
    assert_int_equal(acquires(s), 1);
    assert_status(DIBS_NOT_HELD, dibs_check(s->rt, "a"));
    assert_int_equal(stats_of(s->rt).leases, 0);
}

/* Where this process holds the lock, and where another does. */
TEST_ON(a_wait_ends_at_its_limit_and_not_before, stage *s)
{
    static const int64_t limits[] = {1, 10, 999, 5000, 3600000};
    actor *other = actor_start();
    const dibs_lock_options a_day = {.lease_ms = 86400000};

    for (int by_another = 0; by_another < 2; by_another++) {
        if (by_another)
            faults_acquire(&s->faults, DIBS_BUSY, FOR_EVER);
        else
            assert_status(DIBS_OK, dibs_lock_with(s->rt, "a", 0, &a_day));
        for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
            int64_t start = moved_clock_now(&s->clock);
            actor_begin_lock(other, s->rt, by_another ? "b" : "a", limits[i]);
            stage_await_waiting(s, 1);
            moved_clock_set(&s->clock, start + MS(limits[i]) - 1);
            stage_await_waiting(s, 1);
            assert_true(actor_busy(other));
            moved_clock_advance(&s->clock, 1);
            assert_status(DIBS_TIMEOUT, actor_result(other));
        }
    }
    assert_int_equal(stats_of(s->rt).timed_out, 2 * sizeof limits / sizeof limits[0]);
    assert_int_equal(stats_of(s->rt).leases, 1);
}

TEST_ON(an_endless_wait_is_longer_than_a_year, stage *s)
{
    faults_acquire(&s->faults, DIBS_BUSY, FOR_EVER);
    actor *other = stage_waiter(s, "a", FOREVER, 1);
    moved_clock_advance(&s->clock, MS(INT64_C(366) * 86400000));
    stage_await_waiting(s, 1);
    faults_acquire(&s->faults, DIBS_OK, 0);
    moved_clock_advance(&s->clock, MS(1000));
    actor_gets(other, s->rt, "a");
}

/* --------------------------------------------------------------------- order */

TEST_ON(local_waiters_get_the_turn_in_order_of_arrival, stage *s)
{
    actor *crowd[CROWD];

    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    begin_crowd(s, crowd, 0, FOREVER);
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    for (size_t i = 0; i < CROWD; i++) {
        assert_status(DIBS_OK, actor_result(crowd[i]));
        stage_await_waiting(s, CROWD - 1 - i);
        for (size_t later = i + 1; later < CROWD; later++)
            assert_true(actor_busy(crowd[later]));
        assert_status(DIBS_OK, actor_unlock(crowd[i], s->rt, "a"));
    }
    assert_int_equal(stats_of(s->rt).contended, CROWD);
}

TEST_ON(a_local_waiter_that_gives_up_keeps_the_others_order, stage *s)
{
    static const int64_t waits[] = {5000, FOREVER, 5000, FOREVER, 5000};
    enum { COUNT = sizeof waits / sizeof waits[0] };
    actor *crowd[COUNT];

    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    for (size_t i = 0; i < COUNT; i++)
        crowd[i] = stage_waiter(s, "a", waits[i], i + 1);
    moved_clock_advance(&s->clock, MS(5000));
    for (size_t i = 0; i < COUNT; i += 2)
        assert_status(DIBS_TIMEOUT, actor_result(crowd[i]));
    stage_await_waiting(s, 2);
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    assert_status(DIBS_OK, actor_result(crowd[1]));
    assert_status(DIBS_BUSY, actor_lock(crowd[0], s->rt, "a", 0));
    assert_status(DIBS_OK, actor_unlock(crowd[1], s->rt, "a"));
    actor_gets(crowd[3], s->rt, "a");
}

TEST_ON(one_thread_at_a_time_asks_for_a_name, stage *s)
{
    actor *crowd[CROWD];

    faults_acquire(&s->faults, DIBS_BUSY,
                   FOR_EVER); /* the store answers that the lock is taken, ask again in a second */
    begin_crowd(s, crowd, 0, 10500);
    assert_int_equal(acquires(s), 1);
    for (unsigned second = 1; second <= 10; second++) {
        moved_clock_advance(&s->clock, MS(1000));
        stage_await_waiting(s, CROWD);
        assert_int_equal(acquires(s), second + 1);
    }
    moved_clock_advance(&s->clock, MS(500));
    for (size_t i = 0; i < CROWD; i++)
        assert_status(DIBS_TIMEOUT, actor_result(crowd[i]));
    assert_int_equal(s->faults.inside_most, 1);
}

TEST_ON(other_names_do_not_wait_for_a_turn, stage *s)
{
    faults_block_acquires(&s->faults);
    actor *asker = actor_locking(s->rt, "a", FOREVER);
    faults_await_blocked(&s->faults);
    assert_status(DIBS_NOT_HELD, dibs_unlock(s->rt, "b"));
    faults_unblock_acquires(&s->faults);
    assert_status(DIBS_OK, actor_result(asker));
    assert_status(DIBS_OK, dibs_trylock(s->rt, "b"));
    assert_int_equal(acquires(s), 2);
}

/* -------------------------------------------------------------------- stress */

#define THREADS 8
#define ROUNDS 2000

struct contest {
    dibs_runtime *rt;
    const char *name;
    uint64_t fence; /* of the last holder; guarded by the lock of dibs that is tested */
    unsigned inside, done;
    atomic_uint errors;
};

static void contend(void *arg)
{
    struct contest *contest = arg;
    dibs_hold hold;

    for (unsigned i = 0; i < ROUNDS; i++) {
        dibs_status status = dibs_timedlock(contest->rt, contest->name, i % 3 ? LIMIT_MS : i % 2);
        if (status == DIBS_BUSY || status == DIBS_TIMEOUT)
            continue;
        bool good = status == DIBS_OK && contest->inside++ == 0;
        good = good && dibs_hold_of(contest->rt, contest->name, &hold) == DIBS_OK && hold.fence > contest->fence;
        contest->fence = hold.fence;
        contest->done++;
        contest->inside--;
        good = dibs_unlock(contest->rt, contest->name) == DIBS_OK && good;
        if (!good)
            atomic_fetch_add(&contest->errors, 1);
    }
}

/* On the real clock: threads exclude each other, and each fence is larger than the one before. */
TEST_WITH(threads_taking_turns_exclude_each_other, NULL, NULL, void *none)
{
    struct contest one = {.name = "a"};
    actor *actors[THREADS];

    one.rt = open_url("mem:contest", &(dibs_config){.command_timeout_ms = LIMIT_MS});
    for (int i = 0; i < THREADS; i++)
        actors[i] = actor_running(contend, &one);
    for (int i = 0; i < THREADS; i++)
        actor_end(actors[i]);
    assert_int_equal(atomic_load(&one.errors), 0);
    assert_true(one.done > 0);
    assert_int_equal(stats_of(one.rt).acquired, one.done);
    assert_int_equal(stats_of(one.rt).holds, 0);
    assert_int_equal(stats_of(one.rt).leases, 0);
    dibs_close(one.rt);
}

TESTS(stage_setup_open, stage_teardown)
