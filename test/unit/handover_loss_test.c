/*
 * A lease that is lost while it is handed over, or kept for the next thread: which of the two threads is told, and who
 * gets the lock next.
 */
#include "core/acquire.h"
#include "core/runtime.h"
#include "support/turn.h"
#include "unit/handover_setup.h"

static void expect_no_loss_told(stage *s)
{
    assert_int_equal(stats_of(s->rt).lost, 0);
    assert_int_equal(events_count(&s->events, DIBS_EVENT_LOST, NULL), 0);
}

TEST_ON(a_loss_after_the_hand_over_is_told_to_the_new_holder, stage *s)
{
    s->settings.handoff_ms = FOR_LONG;
    stage_open_holding(s, LEASE);
    actor *first = stage_waiter(s, "a", FOREVER, 1);
    moved_clock_advance(&s->clock, LONG);
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    assert_status(DIBS_OK, actor_result(first));
    uint64_t fence = fence_in(first, s->rt);
    actor *second = stage_waiter(s, "a", FOREVER, 1);
    assert_status(DIBS_OK, dibs_force_unlock(s->rt, "a", NULL));
    unsigned acquires = faults_count(&s->faults, &s->faults.acquires);
    stage_advance(s, MS(LEASE) / 3); /* the renewal finds the lease gone */
    assert_status(DIBS_OK, actor_result(second));
    assert_int_equal(faults_count(&s->faults, &s->faults.acquires), acquires + 1);
    assert_true(fence_in(second, s->rt) > fence + DIBS__FENCE_STEPS - 1);
    assert_status(DIBS_LOST, actor_check(first, s->rt, "a"));
    assert_status(DIBS_LOST, actor_unlock(first, s->rt, "a"));
    assert_status(DIBS_NOT_HELD, dibs_check(s->rt, "a"));
    assert_int_equal(stats_of(s->rt).lost, 1);
    recorded_event lost = events_await(&s->events, DIBS_EVENT_LOST, "a");
    assert_int_equal(lost.fence, fence);
    assert_string_equal(
        lost.detail, "the lease ended under its holder: its key is gone from the store, or belongs to somebody else");
    assert_status(DIBS_OK, actor_check(second, s->rt, "a"));
    assert_status(DIBS_OK, actor_unlock(second, s->rt, "a"));
    expect_nothing_left(s);
}

/* The lease is lost while it is reserved for a waiter that does not run: no thread is told that it holds the lock. */
TEST_ON(a_loss_while_the_lease_is_parked_is_told_to_nobody, stage *s)
{
    s->settings.handoff_ms = FOR_LONG;
    stage_open(s, LEASE);
    for (int gone = 0; gone < 2; gone++) {
        assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
        uint64_t fence = fence_of(s->rt, "a");
        actor *first = stage_waiter(s, "a", FOREVER, 1);
        unlock_to_the_standing(s);
        if (gone)
            assert_status(DIBS_OK, dibs_force_unlock(s->rt, "a", NULL));
        faults_renewal(&s->faults, DIBS_UNAVAILABLE, gone ? 0 : FOR_EVER);
        stage_advance(s, gone ? MS(LEASE) / 3 : believed(LEASE));
        faults_renewal(&s->faults, DIBS_OK, 0);
        moved_clock_let_the_woken_go(&s->clock);
        assert_status(DIBS_OK, actor_result(first));
        assert_status(DIBS_OK, actor_check(first, s->rt, "a"));
        assert_true(fence_in(first, s->rt) > fence + DIBS__FENCE_STEPS - 1);
        assert_status(DIBS_OK, actor_unlock(first, s->rt, "a"));
        expect_nothing_left(s);
        expect_no_loss_told(s);
    }
}

/* Its runtime has forced the lock open, and another has it: nobody here takes the parked lease. */
TEST_ON(a_lease_that_was_forced_open_while_it_was_parked_is_not_taken, stage *s)
{
    s->settings.handoff_ms = FOR_LONG;
    stage_open(s, LEASE);
    dibs_runtime *other = test_runtime(stage_open_another(s, LEASE));
    for (int by_token = 0; by_token < 2; by_token++) {
        assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
        actor *first = stage_waiter(s, "a", FOREVER, 1);
        unlock_to_the_standing(s);
        const dibs_owner owner = owner_of(other, "a");
        assert_status(DIBS_OK, dibs_force_unlock(s->rt, "a", by_token ? owner.token : NULL));
        assert_status(DIBS_OK, dibs_trylock(other, "a"));
        uint64_t fence = fence_of(other, "a");
        moved_clock_let_the_woken_go(&s->clock);
        assert_status(DIBS_OK, dibs_unlock(other, "a"));
        assert_status(DIBS_OK, actor_result(first));
        assert_true(fence_in(first, s->rt) > fence);
        assert_status(DIBS_OK, actor_unlock(first, s->rt, "a"));
        expect_nothing_left(s);
        expect_no_loss_told(s);
    }
    assert_int_equal(stats_of(s->rt).handed_off, 0);
}

/* As above, but the lease had been given to the first waiter already, and the second has the turn by then. */
TEST_ON(a_lease_that_was_lost_before_its_new_holder_ran_is_not_held, stage *s)
{
    s->settings.handoff_ms = FOR_LONG;
    stage_open_holding(s, LEASE);
    actor *first = stage_waiter(s, "a", FOREVER, 1), *second = stage_waiter(s, "a", FOREVER, 2);
    moved_clock_advance(&s->clock, LONG);
    unlock_to_the_standing(s);
    assert_status(DIBS_OK, dibs_force_unlock(s->rt, "a", NULL));
    stage_advance(s, MS(LEASE) / 3);
    moved_clock_await_standing(&s->clock, 2);
    moved_clock_let_the_woken_go(&s->clock);
    assert_status(DIBS_OK, actor_result(second));
    stage_await_waiting(s, 1);
    assert_true(actor_busy(first));
    assert_status(DIBS_OK, actor_check(second, s->rt, "a"));
    assert_status(DIBS_OK, actor_unlock(second, s->rt, "a"));
    actor_gets(first, s->rt, "a");
    expect_nothing_left(s);
    assert_int_equal(stats_of(s->rt).contended, 2);
    expect_no_loss_told(s);
}

/* The clock jumps past the deadline of the lease, and the waiter runs at the same time as the scheduler. */
TEST_ON(a_parked_lease_that_ended_while_the_machine_stopped_is_not_taken, stage *s)
{
    static const int64_t waits[] = {0, LONG};

    s->settings.handoff_ms = FOR_LONG;
    stage_open(s, LEASE);
    for (int i = 0; i < 40; i++) {
        assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
        uint64_t fence = fence_of(s->rt, "a");
        actor *first = stage_waiter(s, "a", FOREVER, 1);
        moved_clock_advance(&s->clock, waits[i % 2]);
        unlock_to_the_standing(s);
        moved_clock_advance(&s->clock, MS(2 * LEASE));
        moved_clock_let_the_woken_go(&s->clock);
        assert_status(DIBS_OK, actor_result(first));
        assert_status(DIBS_OK, actor_check(first, s->rt, "a"));
        assert_true(fence_in(first, s->rt) > fence + DIBS__FENCE_STEPS - 1);
        assert_status(DIBS_OK, actor_unlock(first, s->rt, "a"));
        stage_settle(s);
        expect_nothing_left(s);
    }
    expect_no_loss_told(s);
}

/* ---------------------------------------------------------------------------------- kept */

#define KEEP 1000

/* The lease of "a" is kept. */
static void keep(stage *s)
{
    s->settings.handoff_ms = HANDOFF;
    s->settings.keep_ms = KEEP;
    s->faults.watches = true;
    stage_open(s, LEASE);
    stage_settle(s);
    faulty_store_watching(s->rt->core->store, true);
    stage_settle(s);
    for (int i = 0; stats_of(s->rt).kept == 0; i++) {
        assert_true(i < 10);
        lock_and_release(s->rt, "a", DIBS_WAIT_FOREVER);
    }
}

/* The store forgets the lease, and the process learns of that. */
static void lose(stage *s)
{
    assert_status(DIBS_OK, dibs_force_unlock(s->rt, "a", NULL));
    faulty_store_change(s->rt->core->store, "a");
    stage_advance(s, MS(LEASE) / 3);
}

TEST_ON(a_kept_lease_that_was_lost_before_its_new_holder_ran_is_not_held, stage *s)
{
    struct dibs__waiter turn = {.name = "a", .name_size = 1, .wish.lease_ms = LEASE, .one_try = true};

    keep(s);
    assert_status(DIBS_OK, turn_take(s->rt->core->cells, &turn)); /* what an acquire begins with, and no more */
    assert_true(turn.retaken_at > 0);
    assert_int_equal(stats_of(s->rt).kept, 0);
    lose(s);
    assert_false(dibs__lease_claim(turn.lease));
    dibs__lease_unref(turn.lease);
    lock_and_release(s->rt, "a", 0);
    expect_no_loss_told(s);
}

TEST_ON(a_kept_lease_that_is_lost_after_it_was_taken_is_told_to_its_holder, stage *s)
{
    keep(s);
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    assert_int_equal(stats_of(s->rt).retaken, 1);
    uint64_t fence = fence_of(s->rt, "a");
    lose(s);
    assert_int_equal(events_await(&s->events, DIBS_EVENT_LOST, "a").fence, fence);
    assert_int_equal(stats_of(s->rt).lost, 1);
    assert_status(DIBS_LOST, dibs_unlock(s->rt, "a"));
}

TEST_ON(a_kept_lease_that_is_lost_is_told_to_nobody, stage *s)
{
    keep(s);
    faults_renewal(&s->faults, DIBS_UNAVAILABLE, FOR_EVER);
    stage_advance(s, MS(2 * LEASE));
    assert_int_equal(stats_of(s->rt).kept, 0);
    assert_int_equal(stats_of(s->rt).leases, 0);
    expect_no_loss_told(s);
}

TEST_ON(a_thread_that_ends_with_a_handed_over_lease_leaves_an_orphan, stage *s)
{
    static void (*const ends[])(actor *) = {actor_end, actor_exit, actor_cancel};

    s->settings.handoff_ms = FOR_LONG;
    stage_open(s, LEASE);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
        actor *first = stage_waiter(s, "a", FOREVER, 1);
        assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
        assert_status(DIBS_OK, actor_result(first));
        uint64_t fence = fence_in(first, s->rt);
        actor *second = stage_waiter(s, "a", FOREVER, 1);
        ends[i](first);
        assert_status(DIBS_OK, actor_result(second));
        assert_true(fence_in(second, s->rt) > fence + DIBS__FENCE_STEPS - 1);
        assert_int_equal(stats_of(s->rt).orphaned, i + 1);
        assert_int_equal(stats_of(s->rt).holds, 1);
        assert_status(DIBS_OK, actor_unlock(second, s->rt, "a"));
        expect_nothing_left(s);
        if (i == 0)
            assert_int_equal(events_await(&s->events, DIBS_EVENT_ORPHANED, "a").fence, fence);
    }
}

static unsigned told;

static void tell_event(struct dibs__wait_event *event)
{
    told++;
}

/* A cancel tells its call once, so the call must not begin to wait again when it finds that the lease has ended. */
TEST_ON(a_cancelled_call_does_not_wait_again_for_a_lease_that_came_too_late, stage *s)
{
    const struct dibs__wish wish = {.wait_ms = FOREVER, .lease_ms = LEASE};
    struct dibs__wait_event wait_event = {.tell = tell_event};
    struct dibs__error error;
    struct dibs__acquire acquire;

    told = 0;
    stage_open_holding(s, LEASE);
    dibs__acquire_init(&acquire, s->rt->core, "a", 1, &wish, &wait_event, &error);
    dibs__acquire_start(&acquire);
    assert_int_equal(acquire.state, DIBS__ACQUIRE_WAITS);
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    assert_int_equal(told, 1);
    faults_renewal(&s->faults, DIBS_UNAVAILABLE, 100000);
    stage_advance(s, MS(LEASE) + MS(1000));
    faults_renewal(&s->faults, DIBS_UNAVAILABLE, 0);
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    acquire.cancelled = true;
    assert_int_equal(dibs__acquire_go_on(&acquire, &(int64_t){0}), DIBS__JOB_ENDS);
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
}

TESTS(setup, stage_teardown)
