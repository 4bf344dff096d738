/* A release and the ask of the next thread of the process in one round trip. */
#include "unit/acquire_setup.h"

/* The release by the first thread of s->rt asks for the second; each way in which that may be answered. */
TEST_ON(a_release_asks_for_the_next_local_waiter, stage *s)
{
    static const struct {
        dibs_status release, ask; /* what the store answers to the release and to the ask */
        dibs_status unlock;
        bool unanswered;
    } rows[] = {
        {DIBS_OK, DIBS_OK, DIBS_OK, false},         {DIBS_OK, DIBS_UNAVAILABLE, DIBS_OK, false},
        {DIBS_OK, DIBS_NO_MEMORY, DIBS_OK, false},  {DIBS_OK, DIBS_OK, DIBS_OK, true},
        {DIBS_DENIED, DIBS_OK, DIBS_DENIED, false}, {DIBS_UNAVAILABLE, DIBS_OK, DIBS_UNAVAILABLE, false},
        {DIBS_NOT_HELD, DIBS_OK, DIBS_LOST, false},
    };

    assert_status(DIBS_OK, dibs_unlock(spy.second, "a"));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_status(DIBS_OK, dibs_trylock(s->rt, "a"));
        actor *next = stage_waiter(s, "a", FOREVER, 1);
        faults_release(&s->faults, rows[i].release, 1);
        faults_acquire(&s->faults, rows[i].ask, 1);
        faults_set(&s->faults, &s->faults.unanswered, rows[i].unanswered);
        assert_status(rows[i].unlock, dibs_unlock(s->rt, "a"));
        faults_set(&s->faults, &s->faults.unanswered, false);
        faults_confirm(&s->faults);
        for (int ms = 0; ms < 1000 && actor_busy(next); ms++) { /* the second thread rides out a failed ask */
            moved_clock_advance(&s->clock, MS(1));
            pause_ms(1);
        }
        actor_gets(next, s->rt, "a");
        assert_int_equal(stats_of(s->rt).leases, 0);
        lock_and_release(spy.second, "a", 0);
    }
}

static actor *leaver; /* its time is over in 100 ms */

/* The thread has left when this returns. Where it only was awake, the unlock might still have the turn pass to it. */
static void pass_100_ms(stage *s)
{
    moved_clock_advance(&s->clock, MS(100));
    actor_finish(leaver);
}

/*
 * The unlock asks for a thread that has left when the answer comes, be it a grant or a place in the queue. The attempt
 * then is concluded: a grant that comes later is refused, so that the store retracts it.
 */
TEST_ON(a_grant_to_a_waiter_that_left_is_given_back, stage *s)
{
    assert_status(DIBS_OK, dibs_unlock(spy.second, "a"));
    for (int others = 0; others < 2; others++) {
        assert_status(DIBS_OK, dibs_trylock(s->rt, "a"));
        actor *stranger = others ? stranger_of(s, 1) : NULL;
        actor *next = stage_waiter(s, "a", 100, 1 + (size_t)others);
        unsigned asked = acquires(s);
        leaver = next;
        spy.releasing = pass_100_ms;
        assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
        assert_status(DIBS_TIMEOUT, actor_result(next));
        assert_int_equal(acquires(s), asked + 1);
        assert_true(spy.behind[0] != '\0');
        assert_false(push(s, spy.behind, 1, false));
        if (others)
            actor_gets(stranger, spy.third, "a");
        expect_nothing_left(s);
        assert_status(DIBS_OK, dibs_unlock(spy.second, "a"));
    }
}

/* From the release on, the next thread is in the store's queue, behind another process. */
TEST_ON(an_ask_with_a_release_may_queue, stage *s)
{
    assert_status(DIBS_OK, dibs_unlock(spy.second, "a"));
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    actor *stranger = stranger_of(s, 1), *next = stage_waiter(s, "a", FOREVER, 2);
    unsigned asked = acquires(s);
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    assert_status(DIBS_OK, actor_result(stranger));
    stage_await_waiting(s, 1);
    assert_int_equal(in_queue(), 1);
    assert_int_equal(acquires(s), asked + 1);
    assert_status(DIBS_OK, actor_unlock(stranger, spy.third, "a"));
    assert_status(DIBS_OK, actor_result(next));
    assert_int_equal(acquires(s), asked + 1);
    assert_int_equal(stats_of(s->rt).granted, 1);
    assert_status(DIBS_OK, actor_unlock(next, s->rt, "a"));
    expect_nothing_left(s);
}

TESTS(setup, teardown)
