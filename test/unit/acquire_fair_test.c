/* DIBS_FAIR: first come, first served, over the threads of all runtimes. */
#include "support/fixture.h"
#include "support/stage.h"

#define LEASE 30000
#define CROWD 8
#define FOREVER DIBS_WAIT_FOREVER

static const dibs_lock_options fair = {.flags = DIBS_FAIR};

/* A store that two runtimes share, and the longest handoff_ms: a lease that is not handed over then must never be. */
static int setup(void **state)
{
    int status = stage_setup(state);
    stage *s = *state;

    s->settings.handoff_ms = 3600000;
    stage_open_at(s, "mem:fair", LEASE);
    return status;
}

/* A thread that waits for "a". */
struct asker {
    actor *actor;
    dibs_runtime *rt;
};

/* Begins the call, and waits until `waiting` threads sleep. */
static void begin(struct asker *asker, stage *s, size_t waiting, dibs_runtime *rt, const dibs_lock_options *options,
                  int64_t wait_ms)
{
    *asker = (struct asker){actor_start(), rt};
    actor_begin_lock_with(asker->actor, rt, "a", wait_ms, options);
    stage_await_waiting(s, waiting);
}

static void expect(struct asker *asker, dibs_status status)
{
    assert_status(status, actor_result(asker->actor));
}

static uint64_t fence_in(struct asker *asker)
{
    dibs_hold hold;

    assert_status(DIBS_OK, actor_hold(asker->actor, asker->rt, "a", &hold));
    return hold.fence;
}

static void unlock(struct asker *asker)
{
    assert_status(DIBS_OK, actor_unlock(asker->actor, asker->rt, "a"));
}

static unsigned in_queue(stage *s)
{
    dibs_owner owner = owner_of(s->rt, "a");
    return owner.waiters;
}

static void expect_nothing_left(stage *s)
{
    assert_int_equal(in_queue(s), 0);
    assert_int_equal(stats_of(s->rt).holds, 0);
    assert_int_equal(stats_of(s->rt).leases, 0);
    lock_and_release(s->rt, "a", 0);
}

/* -------------------------------------------------------------------- order */

TEST_ON(fair_threads_of_all_runtimes_are_served_in_order_of_arrival, stage *s)
{
    dibs_runtime *rts[] = {s->rt, stage_open_another(s, LEASE), stage_open_another(s, LEASE)};
    struct asker askers[CROWD];

    assert_status(DIBS_OK, dibs_lock_with(rts[2], "a", 0, &fair));
    for (size_t i = 0; i < CROWD; i++) /* two of one, two of the other */
        begin(&askers[i], s, i + 1, rts[i / 2 % 2], &fair, FOREVER);
    assert_int_equal(in_queue(s), CROWD);
    uint64_t fence = fence_of(rts[2], "a");
    moved_clock_advance(&s->clock, MS(100));
    assert_status(DIBS_OK, dibs_unlock(rts[2], "a"));
    for (size_t i = 0; i < CROWD; i++) {
        expect(&askers[i], DIBS_OK);
        assert_int_equal(in_queue(s), CROWD - 1 - i);
        stage_await_waiting(s, CROWD - 1 - i);
        assert_true(fence_in(&askers[i]) > fence);
        fence = fence_in(&askers[i]);
        unlock(&askers[i]);
    }
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(stats_of(rts[i]).granted, CROWD / 2);
        assert_int_equal(stats_of(rts[i]).contended, CROWD / 2);
        assert_int_equal(stats_of(rts[i]).handed_off, 0);
    }
    expect_nothing_left(s);
    dibs_close(rts[1]);
    dibs_close(rts[2]);
}

/* The next in the queue may not run yet, but no other thread gets the lock. */
TEST_ON(nobody_passes_a_fair_queue, stage *s)
{
    dibs_runtime *second = test_runtime(stage_open_another(s, LEASE));
    struct asker first, next;

    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    begin(&first, s, 1, s->rt, &fair, FOREVER);
    begin(&next, s, 2, second, &fair, FOREVER);
    moved_clock_stop_the_woken(&s->clock);
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    moved_clock_await_standing(&s->clock, 1);
    assert_status(DIBS_BUSY, dibs_trylock(s->rt, "a"));
    assert_status(DIBS_BUSY, dibs_trylock(second, "a"));
    assert_status(DIBS_BUSY, dibs_lock_with(s->rt, "a", 0, &fair));
    moved_clock_let_the_woken_go(&s->clock);
    expect(&first, DIBS_OK);
    moved_clock_stop_the_woken(&s->clock);
    unlock(&first);
    moved_clock_await_standing(&s->clock, 1);
    assert_status(DIBS_BUSY, dibs_trylock(s->rt, "a"));
    assert_status(DIBS_BUSY, dibs_trylock(second, "a"));
    moved_clock_let_the_woken_go(&s->clock);
    expect(&next, DIBS_OK);
    unlock(&next);
    expect_nothing_left(s);
}

/* Each release goes through the store, in one command, and no ask follows it. */
TEST_ON(a_fair_lease_is_not_handed_over, stage *s)
{
    struct asker askers[CROWD];

    assert_status(DIBS_OK, dibs_lock_with(s->rt, "a", 0, &fair));
    for (size_t i = 0; i < CROWD; i++)
        begin(&askers[i], s, i + 1, s->rt, i % 2 ? &fair : NULL, FOREVER);
    assert_int_equal(in_queue(s), CROWD / 2 + 1); /* all waiters that are not fair share one place */
    uint64_t commands = stats_of(s->rt).store_commands;
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    expect(&askers[0], DIBS_OK);
    assert_int_equal(stats_of(s->rt).store_commands, commands + 1);
    assert_int_equal(stats_of(s->rt).granted, 1);
    assert_int_equal(stats_of(s->rt).handed_off, 0);
    dibs_shutdown(s->rt);
    for (size_t i = 1; i < CROWD; i++)
        expect(&askers[i], DIBS_CLOSED);
    assert_int_equal(in_queue(s), 0);
    unlock(&askers[0]);
}

/* --------------------------------------------------- fair and not, in one process */

/*
 * Within the process a lease is handed over for handoff_ms, even past the place of a fair waiter; then it goes back to
 * the store.
 */
TEST_ON(a_fair_waiter_waits_no_longer_than_handoff_ms, stage *s)
{
    struct asker in_order, plain, last;

    dibs_close(s->rt);
    s->settings.handoff_ms = 10;
    stage_open_holding(s, LEASE);
    begin(&in_order, s, 1, s->rt, &fair, FOREVER);
    begin(&plain, s, 2, s->rt, NULL, FOREVER);
    begin(&last, s, 3, s->rt, NULL, FOREVER);
    moved_clock_advance(&s->clock, MS(10) - 1);
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    expect(&plain, DIBS_OK);
    assert_int_equal(stats_of(s->rt).handed_off, 1);
    moved_clock_advance(&s->clock, 1);
    unlock(&plain);
    expect(&in_order, DIBS_OK);
    stage_await_waiting(s, 1);
    assert_int_equal(in_queue(s), 1); /* the last waiter, queued by the same release */
    unlock(&in_order);
    expect(&last, DIBS_OK);
    assert_int_equal(stats_of(s->rt).handed_off, 1);
    assert_int_equal(stats_of(s->rt).granted, 2);
    unlock(&last);
    expect_nothing_left(s);
}

/* In the store's queue all waiters are in order of arrival, whether fair or not. */
TEST_ON(a_plain_waiter_keeps_its_place_among_fair_ones, stage *s)
{
    static const dibs_lock_options *const kinds[] = {&fair, NULL, &fair};
    enum { COUNT = sizeof kinds / sizeof kinds[0] };
    dibs_runtime *second = test_runtime(stage_open_another(s, LEASE));
    struct asker askers[COUNT];

    assert_status(DIBS_OK, dibs_lock(second, "a"));
    for (size_t i = 0; i < COUNT; i++)
        begin(&askers[i], s, i + 1, s->rt, kinds[i], FOREVER);
    assert_int_equal(in_queue(s), COUNT);
    assert_status(DIBS_OK, dibs_unlock(second, "a"));
    for (size_t i = 0; i < COUNT; i++) {
        expect(&askers[i], DIBS_OK);
        stage_await_waiting(s, COUNT - 1 - i);
        unlock(&askers[i]);
    }
    assert_int_equal(stats_of(s->rt).granted, COUNT);
    expect_nothing_left(s);
}

/* ------------------------------------------------------------------- how it ends */

TEST_ON(a_fair_waiter_that_gives_up_leaves_the_others_their_places, stage *s)
{
    struct asker askers[4];

    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    for (size_t i = 0; i < 4; i++)
        begin(&askers[i], s, i + 1, s->rt, &fair, i % 2 ? FOREVER : 100);
    assert_int_equal(in_queue(s), 4);
    moved_clock_advance(&s->clock, MS(100));
    for (size_t i = 0; i < 4; i += 2)
        expect(&askers[i], DIBS_TIMEOUT);
    stage_await_waiting(s, 2);
    assert_int_equal(in_queue(s), 2); /* the place of a fair waiter does not pass to another */
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    for (size_t i = 1; i < 4; i += 2) {
        expect(&askers[i], DIBS_OK);
        unlock(&askers[i]);
    }
    assert_int_equal(stats_of(s->rt).timed_out, 2);
    expect_nothing_left(s);
}

TEST_ON(a_single_fair_try_is_busy_and_takes_no_place, stage *s)
{
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    actor *other = actor_start();
    assert_status(DIBS_BUSY, actor_lock_with(other, s->rt, "a", 0, &fair));
    assert_int_equal(in_queue(s), 0);
    assert_status(DIBS_OK, dibs_lock_with(s->rt, "a", 0, &fair)); /* the acquire of the holder is nested */
    assert_int_equal(hold_of(s->rt, "a").count, 2);
    assert_status(DIBS_OK, dibs_unlock_all(s->rt));
    assert_status(DIBS_OK, actor_lock_with(other, s->rt, "a", 0, &fair));
    assert_status(DIBS_OK, actor_unlock(other, s->rt, "a"));
    expect_nothing_left(s);
}

/* A waiter keeps its place if it asks again within half of its lease; it asks at least every third of one. */
TEST_ON(a_fair_waiter_asks_at_least_every_third_of_a_lease, stage *s)
{
    dibs_runtime *second = test_runtime(stage_open_another(s, LEASE));
    struct asker askers[2];

    assert_status(DIBS_OK, dibs_lock_with(second, "a", 0, &(dibs_lock_options){.lease_ms = 86400000}));
    for (size_t i = 0; i < 2; i++)
        begin(&askers[i], s, i + 1, s->rt, &fair, FOREVER);
    for (unsigned third = 1; third <= 6; third++) {
        unsigned asked = faults_count(&s->faults, &s->faults.acquires);
        moved_clock_advance(&s->clock, MS(LEASE) / 3);
        stage_await_waiting(s, 2);
        assert_int_equal(faults_count(&s->faults, &s->faults.acquires), asked + 2);
        assert_int_equal(in_queue(s), 2);
    }
    assert_status(DIBS_OK, dibs_unlock(second, "a"));
    for (size_t i = 0; i < 2; i++) {
        expect(&askers[i], DIBS_OK);
        unlock(&askers[i]);
    }
    expect_nothing_left(s);
}

TEST_ON(a_fair_lease_that_is_lost_goes_to_the_next, stage *s)
{
    struct asker next;

    assert_status(DIBS_OK, dibs_lock_with(s->rt, "a", 0, &(dibs_lock_options){.flags = DIBS_FAIR | DIBS_FIXED_LEASE}));
    begin(&next, s, 1, s->rt, &fair, FOREVER);
    stage_advance(s, believed(LEASE));
    expect(&next, DIBS_OK);
    assert_status(DIBS_LOST, dibs_unlock(s->rt, "a"));
    assert_status(DIBS_OK, actor_check(next.actor, s->rt, "a"));
    unlock(&next);
    expect_nothing_left(s);
}

TEST_ON(a_thread_that_ends_with_a_fair_lease_leaves_it_to_the_next, stage *s)
{
    actor *holder = actor_start();
    struct asker next;

    assert_status(DIBS_OK, actor_lock_with(holder, s->rt, "a", 0, &fair));
    begin(&next, s, 1, s->rt, &fair, FOREVER);
    actor_end(holder);
    expect(&next, DIBS_OK);
    assert_int_equal(stats_of(s->rt).orphaned, 1);
    unlock(&next);
    expect_nothing_left(s);
}

TESTS(setup, stage_teardown)
