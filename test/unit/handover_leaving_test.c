/* A lease is handed over to a waiter that is about to leave: its time is over, or the runtime shuts down. */
#include "unit/handover_setup.h"

/* The lease is reserved for the first waiter, whose time ends before its thread runs. */
TEST_ON(a_waiter_out_of_time_takes_a_lease_parked_for_it, stage *s)
{
    uint64_t fence = stage_open_holding(s, LEASE);
    actor *first = stage_waiter(s, "a", 5, 1), *second = stage_waiter(s, "a", FOREVER, 2);
    struct asked before = asked(s);
    unlock_to_the_standing(s);
    moved_clock_advance(&s->clock, MS(5));
    moved_clock_let_the_woken_go(&s->clock);
    assert_status(DIBS_OK, actor_result(first));
    assert_int_equal(fence_in(first, s->rt), fence + 1);
    assert_status(DIBS_OK, actor_unlock(first, s->rt, "a"));
    assert_status(DIBS_OK, actor_result(second));
    assert_int_equal(fence_in(second, s->rt), fence + 2);
    expect_untouched(s, before);
    assert_status(DIBS_OK, actor_unlock(second, s->rt, "a"));
    expect_nothing_left(s);
}

/*
 * A running thread takes the lease that is reserved for the first waiter, which then runs out of time. The second
 * waiter gets the lease next, or else the store.
 */
TEST_ON(a_waiter_out_of_time_leaves_the_lease_to_the_next, stage *s)
{
    stage_open(s, LEASE);
    for (int others = 0; others < 2; others++) {
        assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
        actor *first = stage_waiter(s, "a", 5, 1), *second = others ? stage_waiter(s, "a", FOREVER, 2) : NULL;
        unlock_to_the_standing(s);
        assert_status(DIBS_OK, dibs_trylock(s->rt, "a"));
        moved_clock_advance(&s->clock, MS(5));
        moved_clock_let_the_woken_go(&s->clock);
        assert_status(DIBS_TIMEOUT, actor_result(first));
        struct asked before = asked(s);
        assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
        if (others) {
            assert_status(DIBS_OK, actor_result(second));
            expect_untouched(s, before);
            assert_status(DIBS_OK, actor_unlock(second, s->rt, "a"));
        }
        expect_nothing_left(s);
    }
}

/* A lease that was handed to a thread belongs to it, even if the runtime is closed before the thread runs. */
TEST_ON(a_shutdown_as_the_lease_is_handed_over_strands_nothing, stage *s)
{
    static const int64_t waits[] = {0, LONG};

    for (size_t i = 0; i < sizeof waits / sizeof waits[0]; i++) {
        stage_open_holding(s, LEASE);
        actor *first = stage_waiter(s, "a", FOREVER, 1), *second = stage_waiter(s, "a", FOREVER, 2);
        moved_clock_advance(&s->clock, waits[i]);
        unlock_to_the_standing(s);
        dibs_shutdown(s->rt);
        moved_clock_await_standing(&s->clock, 2);
        moved_clock_let_the_woken_go(&s->clock);
        assert_status(DIBS_OK, actor_result(first));
        assert_status(DIBS_CLOSED, actor_result(second));
        assert_status(DIBS_OK, actor_unlock(first, s->rt, "a"));
        expect_nothing_left(s);
        close_runtime(&s->rt);
    }
}

static void close_in_actor(void *arg)
{
    dibs_close(((stage *)arg)->rt);
}

TEST_ON(a_close_as_the_lease_is_handed_over_strands_nothing, stage *s)
{
    static const int64_t waits[] = {0, LONG};

    for (size_t i = 0; i < sizeof waits / sizeof waits[0]; i++) {
        stage_open_holding(s, LEASE);
        actor *first = stage_waiter(s, "a", FOREVER, 1), *second = stage_waiter(s, "a", FOREVER, 2);
        moved_clock_advance(&s->clock, waits[i]);
        unlock_to_the_standing(s);
        actor *closer = actor_running(close_in_actor, s);
        moved_clock_await_standing(&s->clock, 2);
        assert_true(actor_busy(closer));
        moved_clock_let_the_woken_go(&s->clock);
        assert_status(DIBS_OK, actor_result(first));
        assert_status(DIBS_CLOSED, actor_result(second));
        actor_end(closer);
        s->rt = NULL;
        expect_free(s);
        actor_end(first); /* with a hold of a runtime that is gone */
        actor_end(second);
    }
}

/* A waiter that does not run yet; an unlock has asked the store on its behalf and got the lock. */
static actor *one_that_was_asked_for(stage *s)
{
    stage_open_holding(s, LEASE);
    actor *first = stage_waiter(s, "a", FOREVER, 1);
    moved_clock_advance(&s->clock, MS(HANDOFF));
    moved_clock_stop_the_woken(&s->clock);
    struct asked before = asked(s);
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    expect_released_with_an_ask(s, before);
    moved_clock_await_standing(&s->clock, 1);
    return first;
}

TEST_ON(a_shutdown_gives_back_what_was_asked_for_a_waiter, stage *s)
{
    actor *first = one_that_was_asked_for(s);

    dibs_shutdown(s->rt);
    moved_clock_let_the_woken_go(&s->clock);
    assert_status(DIBS_CLOSED, actor_result(first));
    actor_end(first);
    expect_nothing_left(s);
}

/* The granted lease is over by then, and the store has not answered for that long: this is no outage. */
TEST_ON(a_waiter_too_late_for_what_was_asked_for_it_asks_again, stage *s)
{
    actor *first = one_that_was_asked_for(s);

    moved_clock_advance(&s->clock, MS(2 * LEASE));
    moved_clock_let_the_woken_go(&s->clock);
    actor_gets(first, s->rt, "a");
    expect_nothing_left(s);
}

TESTS(setup, stage_teardown)
