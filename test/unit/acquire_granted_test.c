/* Grants that the store makes by itself, at every awkward moment of an acquire. */
#include "unit/acquire_setup.h"

TEST_ON(a_grant_ends_the_wait_without_another_ask, stage *s)
{
    actor *asker = stage_waiter(s, "a", FOREVER, 1);
    unsigned asked = acquires(s);

    moved_clock_advance(&s->clock, MS(100));
    assert_status(DIBS_OK, dibs_unlock(spy.second, "a"));
    assert_status(DIBS_OK, actor_result(asker));
    assert_int_equal(acquires(s), asked);
    assert_int_equal(stats_of(s->rt).granted, 1);
    assert_int_equal(stats_of(s->rt).contended, 1);
    assert_int_equal(stats_of(s->rt).handed_off, 0);
    assert_status(DIBS_OK, actor_unlock(asker, s->rt, "a"));
    expect_nothing_left(s);
}

/* The lease counts from the ask that the grant names, not from when the grant came. */
TEST_ON(a_granted_lease_counts_from_its_ask, stage *s)
{
    actor *asker = stage_waiter(s, "a", FOREVER, 1);
    dibs_hold hold;

    moved_clock_advance(&s->clock, MS(9000));
    assert_status(DIBS_OK, dibs_unlock(spy.second, "a"));
    assert_status(DIBS_OK, actor_result(asker));
    assert_status(DIBS_OK, actor_hold(asker, s->rt, "a", &hold));
    assert_int_equal(hold.remaining_ms, believed(LEASE) / MS(1) - 9000);
    assert_status(DIBS_OK, actor_unlock(asker, s->rt, "a"));
    expect_nothing_left(s);
}

static void free_it(stage *s)
{
    dibs_force_unlock(spy.second, "a", NULL);
}

TEST_ON(a_grant_may_come_before_its_ask_is_answered, stage *s)
{
    actor *asker = actor_start();
    unsigned asked = acquires(s);

    spy.taken = free_it;
    assert_status(DIBS_OK, actor_lock(asker, s->rt, "a", FOREVER));
    assert_int_equal(acquires(s), asked + 1);
    assert_int_equal(stats_of(s->rt).granted, 1);
    assert_status(DIBS_OK, actor_check(asker, s->rt, "a"));
    assert_status(DIBS_OK, actor_unlock(asker, s->rt, "a"));
    assert_status(DIBS_OK, dibs_query(spy.second, "a", &(dibs_owner){0}));
    dibs_unlock_all(spy.second); /* that runtime's lock was taken by force */
    expect_nothing_left(s);
}

static void free_it_too_late(stage *s)
{
    free_it(s);
    moved_clock_advance(&s->clock, MS(100));
}

/*
 * The grant comes when the asker's time is over: the next waiter of the process gets the lock, or else the store gets
 * it back.
 */
TEST_ON(a_grant_at_the_end_of_the_wait_is_passed_on_or_given_back, stage *s)
{
    for (int others = 0; others < 2; others++) {
        actor *asker = actor_start(), *next = NULL;
        if (others) {
            faults_block_acquires(&s->faults);
            actor_begin_lock(asker, s->rt, "a", 100);
            faults_await_blocked(&s->faults);
            next = stage_waiter(s, "a", FOREVER, 1);
            spy.taken = free_it_too_late;
            faults_unblock_acquires(&s->faults);
        } else {
            spy.taken = free_it_too_late;
            actor_begin_lock(asker, s->rt, "a", 100);
        }
        assert_status(DIBS_TIMEOUT, actor_result(asker));
        if (next)
            actor_gets(next, s->rt, "a");
        dibs_unlock_all(spy.second);
        expect_nothing_left(s);
    }
}

TEST_ON(a_grant_for_a_concluded_attempt_is_refused, stage *s)
{
    actor *asker = stage_waiter(s, "a", 100, 1);

    assert_false(push(s, "", spy.number, false));
    assert_false(push(s, "another's", spy.number, false));
    moved_clock_advance(&s->clock, MS(100));
    assert_status(DIBS_TIMEOUT, actor_result(asker));
    assert_false(push(s, spy.token, spy.number, false));
    assert_int_equal(in_queue(), 0);
}

/* This holds also where other threads wait for the name: only the token counts. */
TEST_ON(a_grant_for_a_concluded_attempt_is_not_the_next_ones, stage *s)
{
    char old[DIBS__TOKEN_MAX];
    actor *asker = stage_waiter(s, "a", 100, 1);

    strcpy(old, spy.token);
    moved_clock_advance(&s->clock, MS(100));
    assert_status(DIBS_TIMEOUT, actor_result(asker));
    asker = stage_waiter(s, "a", FOREVER, 1);
    assert_string_not_equal(old, spy.token);
    unsigned asked = acquires(s);
    assert_false(push(s, old, spy.number, false));
    stage_await_waiting(s, 1);
    assert_int_equal(acquires(s), asked);
    expect_the_lock_next(s, asker);
}

static void push_it(stage *s)
{
    push(s, spy.token, spy.number, false);
}

/* The grant does not count for the next token of the same attempt either, whose asks have the same numbers. */
TEST_ON(a_grant_for_a_retired_token_is_not_the_next_tokens, stage *s)
{
    unsigned asked = acquires(s);

    faults_set(&s->faults, &s->faults.unanswered, true);
    spy.taken = push_it;
    actor *asker = stage_waiter(s, "a", FOREVER, 1);
    faults_set(&s->faults, &s->faults.unanswered, false);
    actor_await_asleep(asker);
    assert_int_equal(acquires(s), asked + 1); /* the waiter asks when its pause is over, and not before */
    assert_false(push(s, spy.token, spy.number, false));
    moved_clock_advance(&s->clock, MS(10));
    await_asks(s, asked + 2, 1);
    assert_true(actor_busy(asker));
    assert_int_equal(spy.number, 1);
    expect_the_lock_next(s, asker);
}

/*
 * A store may note with an attempt until when another client owns the lock: until then the attempt leaves the lock to
 * that client, also under a new token. Otherwise the attempt might get the lock from a replacement server before the
 * holder could restore its lease there.
 */
TEST_ON(the_stores_state_outlives_the_token, stage *s)
{
    char first[DIBS__TOKEN_MAX];

    spy.note = OWNER;
    actor *asker = stage_waiter(s, "a", FOREVER, 1);
    spy.note = 0;
    strcpy(first, spy.token);
    faults_set(&s->faults, &s->faults.unanswered, true);
    unsigned asked = acquires(s);
    dibs__askers_wake(s->rt->core->cells, DIBS__ASKERS_MISSED);
    await_asks(s, asked + 1, 1); /* the outcome of the ask is in doubt, so its token is retired */
    assert_string_equal(spy.token, first);
    assert_int_equal(spy.noted, OWNER);
    faults_set(&s->faults, &s->faults.unanswered, false);
    moved_clock_advance(&s->clock, MS(10));
    await_asks(s, asked + 2, 1);
    assert_string_not_equal(spy.token, first);
    assert_int_equal(spy.noted, OWNER);
    expect_the_lock_next(s, asker);
}

TEST_ON(a_grant_of_a_held_lease_changes_nothing, stage *s)
{
    actor *asker = stage_waiter(s, "a", FOREVER, 1);
    dibs_hold before, after;

    assert_status(DIBS_OK, dibs_unlock(spy.second, "a"));
    assert_status(DIBS_OK, actor_result(asker));
    assert_status(DIBS_OK, actor_hold(asker, s->rt, "a", &before));
    assert_true(push(s, spy.token, spy.number, false)); /* as after a broken connection: the grant is not refused */
    assert_status(DIBS_OK, actor_hold(asker, s->rt, "a", &after));
    assert_int_equal(after.fence, before.fence);
    assert_int_equal(after.remaining_ms, before.remaining_ms);
    assert_status(DIBS_OK, actor_unlock(asker, s->rt, "a"));
    assert_false(push(s, spy.token, spy.number, false));
    expect_nothing_left(s);
}

/* A grant that names an older ask, or asks to be confirmed, proves nothing: the waiter asks the store. */
TEST_ON(a_grant_that_proves_nothing_makes_the_waiter_ask, stage *s)
{
    actor *asker = stage_waiter(s, "a", FOREVER, 1);
    unsigned asked = acquires(s);

    for (int confirm = 0; confirm < 2; confirm++) {
        uint64_t number = spy.number;
        assert_true(push(s, spy.token, confirm ? number : number - 1, confirm));
        await_asks(s, asked + 1 + (unsigned)confirm, 1);
        assert_true(actor_busy(asker));
        assert_int_equal(spy.number, number + 1);
    }
    assert_int_equal(in_queue(), 1);
    expect_the_lock_next(s, asker);
}

/* The process was stopped meanwhile: the waiter asks, and the store tells who owns the lock by now. */
TEST_ON(a_grant_whose_lease_is_over_is_refused, stage *s)
{
    actor *asker = stage_waiter(s, "a", FOREVER, 1);
    unsigned asked = acquires(s);

    moved_clock_stop_the_woken(&s->clock);
    assert_status(DIBS_OK, dibs_unlock(spy.second, "a"));
    moved_clock_await_standing(&s->clock, 1);
    moved_clock_advance(&s->clock, MS(LEASE));
    assert_status(DIBS_OK, dibs_trylock(spy.second, "a"));
    moved_clock_let_the_woken_go(&s->clock);
    stage_await_waiting(s, 1);
    assert_true(actor_busy(asker));
    assert_int_equal(acquires(s), asked + 2);
    expect_the_lock_next(s, asker);
}

TEST_ON(a_grant_that_got_lost_costs_a_third_of_a_lease, stage *s)
{
    actor *asker = stage_waiter(s, "a", FOREVER, 1);

    faults_set(&s->faults, &s->faults.pushes_lost, true);
    assert_status(DIBS_OK, dibs_unlock(spy.second, "a"));
    assert_int_equal(faults_count(&s->faults, &s->faults.pushes), 1);
    moved_clock_advance(&s->clock, MS(LEASE) / 3 - 1);
    stage_await_waiting(s, 1);
    assert_true(actor_busy(asker));
    moved_clock_advance(&s->clock, 1);
    assert_status(DIBS_OK, actor_result(asker));
    assert_int_equal(stats_of(s->rt).granted, 0);
    assert_status(DIBS_OK, actor_unlock(asker, s->rt, "a"));
    expect_nothing_left(s);
}

/* Where the waiter has left, the grant is retracted with the attempt. */
TEST_ON(a_grant_that_got_lost_is_retracted_with_its_attempt, stage *s)
{
    actor *asker = stage_waiter(s, "a", 5000, 1);

    faults_set(&s->faults, &s->faults.pushes_lost, true);
    assert_status(DIBS_OK, dibs_unlock(spy.second, "a"));
    moved_clock_advance(&s->clock, MS(5000));
    assert_status(DIBS_TIMEOUT, actor_result(asker));
    expect_nothing_left(s);
}

TEST_ON(a_shutdown_retracts_all_attempts, stage *s)
{
    actor *asker = stage_waiter(s, "a", FOREVER, 1), *next = stage_waiter(s, "a", FOREVER, 2);

    assert_int_equal(in_queue(), 1);
    dibs_shutdown(s->rt);
    assert_status(DIBS_CLOSED, actor_result(asker));
    assert_status(DIBS_CLOSED, actor_result(next));
    assert_int_equal(in_queue(), 0);
}

TESTS(setup, teardown)
