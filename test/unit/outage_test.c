/* A local queue while the store can't be reached: nobody is told that somebody else holds the lock. */
#include <string.h>

#include "support/actor.h"
#include "support/fixture.h"
#include "support/stage.h"
#include "support/test.h"
#include "support/wait.h"

#define CROWD 4

/* One asks in vain and rides it out. */
static actor *asker_in_an_outage(stage *s)
{
    actor *asker = actor_start();

    stage_open(s, 0);
    faults_acquire(&s->faults, DIBS_UNAVAILABLE, FOR_EVER);
    actor_begin_lock(asker, s->rt, "x", DIBS_WAIT_FOREVER);
    stage_await_waiting(s, 1);
    return asker;
}

static void who_does_not_wait_is_told_of_it(void **state)
{
    stage *s = *state;
    actor *asker = asker_in_an_outage(s);

    assert_status(DIBS_UNAVAILABLE, dibs_trylock(s->rt, "x"));
    assert_true(dibs_last_error()[0] != '\0');
    assert_status(DIBS_UNAVAILABLE, dibs_trylock(s->rt, "y")); /* which nobody asks for meanwhile */
    assert_int_equal(stats_of(s->rt).busy, 0);
    faults_acquire(&s->faults, DIBS_OK, 0);
    stage_advance(s, MS(200));
    assert_status(DIBS_OK, actor_result(asker));
    assert_status(DIBS_BUSY, dibs_trylock(s->rt, "x"));
    assert_status(DIBS_OK, actor_unlock(asker, s->rt, "x"));
    actor_end(asker);
}

static void who_waits_in_line_is_told_of_it(void **state)
{
    stage *s = *state;
    actor *crowd[CROWD];
    actor *asker;

    s->settings.outage_ms = 3600000;
    asker = asker_in_an_outage(s);
    for (size_t i = 0; i < CROWD; i++) {
        crowd[i] = actor_start();
        actor_begin_lock(crowd[i], s->rt, "x", 400);
        stage_await_waiting(s, i + 2);
    }
    moved_clock_advance(&s->clock, MS(400));
    for (size_t i = 0; i < CROWD; i++) {
        assert_status(DIBS_UNAVAILABLE, actor_result(crowd[i]));
        actor_end(crowd[i]);
    }
    assert_int_equal(stats_of(s->rt).timed_out, 0);
    dibs_shutdown(s->rt);
    assert_status(DIBS_CLOSED, actor_result(asker));
    actor_end(asker);
}

/* Once the store says "taken", that is what the others hear. */
static void the_end_of_an_outage_is_noticed(void **state)
{
    stage *s = *state;
    actor *asker = asker_in_an_outage(s);
    actor *waiter = actor_start();

    assert_status(DIBS_UNAVAILABLE, dibs_trylock(s->rt, "x"));
    faults_acquire(&s->faults, DIBS_BUSY, FOR_EVER);
    unsigned asked = faults_count(&s->faults, &s->faults.acquires);
    moved_clock_advance(&s->clock, MS(200));
    stage_await_waiting(s, 1);
    assert_true(faults_count(&s->faults, &s->faults.acquires) > asked);
    assert_status(DIBS_BUSY, dibs_trylock(s->rt, "x"));
    actor_begin_lock(waiter, s->rt, "x", 400);
    stage_await_waiting(s, 2);
    moved_clock_advance(&s->clock, MS(400));
    assert_status(DIBS_TIMEOUT, actor_result(waiter));
    actor_end(waiter);
    dibs_shutdown(s->rt);
    assert_status(DIBS_CLOSED, actor_result(asker));
    actor_end(asker);
}

/* It had not heard of the store for longer than outage_ms because it was told to wait: that is no outage. */
static void who_slept_for_long_rides_it_out_from_then_on(void **state)
{
    stage *s = *state;
    actor *asker = actor_start();

    s->url = "mem:long";
    stage_open(s, 0);
    dibs_runtime *holder = stage_open_another(s, 86400000);
    assert_status(DIBS_OK, dibs_lock(holder, "x"));
    actor_begin_lock(asker, s->rt, "x", DIBS_WAIT_FOREVER);
    stage_await_waiting(s, 1);
    faults_acquire(&s->faults, DIBS_UNAVAILABLE, FOR_EVER);
    moved_clock_advance(&s->clock, MS(10000)); /* a third of its lease: it asks again */
    stage_await_waiting(s, 1);
    assert_true(actor_busy(asker));
    faults_acquire(&s->faults, DIBS_OK, 0);
    assert_status(DIBS_OK, dibs_unlock(holder, "x"));
    moved_clock_advance(&s->clock, MS(200));
    assert_status(DIBS_OK, actor_result(asker));
    assert_status(DIBS_OK, actor_unlock(asker, s->rt, "x"));
    dibs_close(holder);
    actor_end(asker);
}

/* They have waited for x for 10 s, longer than outage_ms. */
static void begin_behind_a_thread(stage *s, actor *waiters[CROWD], int64_t wait_of_the_first)
{
    s->settings.handoff_ms = DIBS_NO_HANDOFF;
    stage_open(s, 86400000);
    assert_status(DIBS_OK, dibs_lock(s->rt, "x"));
    for (size_t i = 0; i < CROWD; i++) {
        waiters[i] = actor_start();
        actor_begin_lock(waiters[i], s->rt, "x", i == 0 ? wait_of_the_first : DIBS_WAIT_FOREVER);
        stage_await_waiting(s, i + 1);
    }
    moved_clock_advance(&s->clock, MS(10000));
}

/* The same behind a thread of this process, whose release finds the store away: they have their patience still. */
static void who_waited_behind_a_thread_here_rides_it_out(void **state)
{
    stage *s = *state;
    actor *waiters[CROWD];

    begin_behind_a_thread(s, waiters, DIBS_WAIT_FOREVER);
    faults_acquire(&s->faults, DIBS_UNAVAILABLE, FOR_EVER);
    faults_release(&s->faults, DIBS_UNAVAILABLE, 1);
    assert_status(DIBS_UNAVAILABLE, dibs_unlock(s->rt, "x"));
    for (int ms = 0; ms < 4800; ms += 200) {
        stage_await_waiting(s, CROWD);
        moved_clock_advance(&s->clock, MS(200));
    }
    stage_await_waiting(s, CROWD);
    faults_confirm(&s->faults);
    faults_acquire(&s->faults, DIBS_OK, 0);
    moved_clock_advance(&s->clock, MS(200));
    for (size_t i = 0; i < CROWD; i++) {
        assert_status(DIBS_OK, actor_result(waiters[i]));
        assert_status(DIBS_OK, actor_unlock(waiters[i], s->rt, "x"));
        actor_end(waiters[i]);
    }
}

struct asked {
    stage *s;
    unsigned count;
};

static bool has_asked(void *arg)
{
    const struct asked *asked = arg;

    return faults_count(&asked->s->faults, &asked->s->faults.acquires) > asked->count;
}

/* And all leave at once when it is over, not one after the other. */
static void who_waited_behind_a_thread_here_leaves_with_the_first(void **state)
{
    stage *s = *state;
    actor *waiters[CROWD];

    begin_behind_a_thread(s, waiters, 12000);
    faults_acquire(&s->faults, DIBS_UNAVAILABLE, FOR_EVER);
    faults_release(&s->faults, DIBS_UNAVAILABLE, 1);
    struct asked before = {s, faults_count(&s->faults, &s->faults.acquires) + 1}; /* the unlock asks, and the first */
    assert_status(DIBS_UNAVAILABLE, dibs_unlock(s->rt, "x"));
    assert_true(wait_until(has_asked, &before, LIMIT_MS));
    stage_await_waiting(s, CROWD);
    for (int ms = 0; ms < 2000; ms += 200) { /* the time of the first, which asks on: the next has what is left */
        stage_await_waiting(s, CROWD);
        moved_clock_advance(&s->clock, MS(200));
    }
    assert_status(DIBS_UNAVAILABLE, actor_result(waiters[0]));
    stage_await_waiting(s, CROWD - 1);
    moved_clock_advance(&s->clock, MS(3000) - 1);
    stage_await_waiting(s, CROWD - 1);
    moved_clock_advance(&s->clock, MS(200) + 1);
    for (size_t i = 1; i < CROWD; i++)
        assert_status(DIBS_UNAVAILABLE, actor_result(waiters[i]));
    for (size_t i = 0; i < CROWD; i++)
        actor_end(waiters[i]);
}

/* Its own time was over before the store's was: nobody knows whether the store can be reached. */
static void who_has_less_time_than_the_store_runs_out_of_it(void **state)
{
    static const struct {
        int64_t answered; /* ns after the wait began, which was for 5 ms */
        dibs_status status;
    } rows[] = {{MS(8) - 1, DIBS_UNAVAILABLE}, {MS(8), DIBS_TIMEOUT}, {MS(1000), DIBS_TIMEOUT}};
    stage *s = *state;
    actor *asker = actor_start();

    stage_open(s, 0);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        faults_block_acquires(&s->faults);
        faults_acquire(&s->faults, DIBS_UNAVAILABLE, 1);
        actor_begin_lock(asker, s->rt, "x", 5);
        faults_await_blocked(&s->faults);
        moved_clock_advance(&s->clock, rows[i].answered);
        faults_unblock_acquires(&s->faults);
        assert_status(rows[i].status, actor_result(asker));
    }
    assert_int_equal(stats_of(s->rt).timed_out, 2);
    actor_end(asker);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, stage_setup, stage_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(who_does_not_wait_is_told_of_it),
        TEST(who_waits_in_line_is_told_of_it),
        TEST(the_end_of_an_outage_is_noticed),
        TEST(who_slept_for_long_rides_it_out_from_then_on),
        TEST(who_waited_behind_a_thread_here_rides_it_out),
        TEST(who_waited_behind_a_thread_here_leaves_with_the_first),
        TEST(who_has_less_time_than_the_store_runs_out_of_it),
    };

    return cmocka_run_group_tests_name("outage", tests, NULL, NULL);
}
