/* A place in the store's queue that passes to another thread of the process when its owner runs out of time. */
#include "unit/acquire_setup.h"

/*
 * The place in the store's queue passes to the next waiter of the process; another process that came later stays behind
 * it.
 */
TEST_ON(a_waiter_out_of_time_leaves_its_place_to_the_next_local_one, stage *s)
{
    char token[DIBS__TOKEN_MAX];
    actor *asker = stage_waiter(s, "a", 100, 1), *stranger = stranger_of(s, 2), *next = stage_waiter(s, "a", 200, 3),
          *last = stage_waiter(s, "a", FOREVER, 4);

    strcpy(token, spy.token);
    assert_int_equal(in_queue(), 2);
    for (int i = 0; i < 2; i++) {
        unsigned asked = acquires(s);
        moved_clock_advance(&s->clock, MS(100));
        assert_status(DIBS_TIMEOUT, actor_result(i == 0 ? asker : next));
        await_asks(s, asked + 1, 3 - (size_t)i);
        assert_string_equal(spy.token, token);
        assert_int_equal(in_queue(), 2);
    }
    assert_int_equal(faults_count(&s->faults, &s->faults.retractions), 0);
    assert_status(DIBS_OK, dibs_unlock(spy.second, "a"));
    assert_status(DIBS_OK, actor_result(last));
    assert_true(actor_busy(stranger));
    assert_status(DIBS_OK, actor_unlock(last, s->rt, "a"));
    actor_gets(stranger, spy.third, "a");
    expect_nothing_left(s);
}

/* The next waiter wants another lease than the place is for: it has to queue at the end. */
TEST_ON(a_place_is_left_only_to_a_waiter_with_the_same_options, stage *s)
{
    static const dibs_lock_options others[] = {{.lease_ms = 20000}, {.flags = DIBS_FIXED_LEASE}};

    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        actor *asker = stage_waiter(s, "a", 100, 1), *stranger = stranger_of(s, 2),
              *next = stage_waiter_with(s, "a", FOREVER, &others[i], 3);
        unsigned asked = acquires(s);
        moved_clock_advance(&s->clock, MS(100));
        assert_status(DIBS_TIMEOUT, actor_result(asker));
        await_asks(s, asked + 1, 2);
        assert_int_equal(in_queue(), 2);
        assert_status(DIBS_OK, dibs_unlock(spy.second, "a"));
        assert_status(DIBS_OK, actor_result(stranger));
        assert_true(actor_busy(next));
        assert_status(DIBS_OK, actor_unlock(stranger, spy.third, "a"));
        actor_gets(next, s->rt, "a");
        expect_nothing_left(s);
    }
}

TEST_ON(a_place_that_nobody_takes_over_is_given_up, stage *s)
{
    actor *asker = stage_waiter(s, "a", 100, 1), *stranger = stranger_of(s, 2);

    moved_clock_advance(&s->clock, MS(100));
    assert_status(DIBS_TIMEOUT, actor_result(asker));
    assert_int_equal(in_queue(), 1);
    assert_status(DIBS_OK, dibs_unlock(spy.second, "a"));
    actor_gets(stranger, spy.third, "a");
    expect_nothing_left(s);
}

/* Where the store refuses the ask, the place is given up, and the next waiter asks under a new token. */
TEST_ON(a_refused_waiter_leaves_no_place, stage *s)
{
    char token[DIBS__TOKEN_MAX];
    actor *asker = stage_waiter(s, "a", FOREVER, 1), *next = stage_waiter(s, "a", FOREVER, 2);

    strcpy(token, spy.token);
    unsigned asked = acquires(s);
    faults_acquire(&s->faults, DIBS_DENIED, 1);
    dibs__askers_wake(s->rt->core->cells, DIBS__ASKERS_MISSED);
    assert_status(DIBS_DENIED, actor_result(asker));
    await_asks(s, asked + 2, 1);
    assert_string_not_equal(spy.token, token);
    assert_int_equal(in_queue(), 1);
    expect_the_lock_next(s, next);
}

/*
 * The grant comes while the place changes hands, and the thread that gets the place does not run yet: it finds the
 * grant as soon as it runs.
 */
TEST_ON(a_grant_while_the_place_changes_hands_is_not_lost, stage *s)
{
    actor *asker = stage_waiter(s, "a", 100, 1), *next = stage_waiter(s, "a", FOREVER, 2);

    moved_clock_stop_the_woken(&s->clock);
    moved_clock_advance(&s->clock, MS(100));
    moved_clock_await_standing(&s->clock, 1);
    assert_status(DIBS_OK,
                  dibs_unlock(spy.second, "a")); /* granted to a thread that is about to give up and looks once more */
    moved_clock_let_the_woken_go(&s->clock);
    actor_gets(asker, s->rt, "a");
    actor_gets(next, s->rt, "a");
    expect_nothing_left(s);
}

/* As above, but the first thread has left the place already. */
TEST_ON(a_grant_before_the_place_has_its_new_owner_is_not_lost, stage *s)
{
    actor *asker = stage_waiter(s, "a", 100, 1), *next = stage_waiter(s, "a", FOREVER, 2);

    faults_block_acquires(&s->faults); /* the next thread asks in its new place, and gets no further */
    moved_clock_advance(&s->clock, MS(100));
    assert_status(DIBS_TIMEOUT, actor_result(asker));
    faults_await_blocked(&s->faults);
    assert_status(DIBS_OK, dibs_unlock(spy.second, "a"));
    assert_int_equal(faults_count(&s->faults, &s->faults.pushes), 1);
    assert_true(actor_busy(next));
    faults_unblock_acquires(&s->faults);
    actor_gets(next, s->rt, "a");
    expect_nothing_left(s);
}

TESTS(setup, teardown)
