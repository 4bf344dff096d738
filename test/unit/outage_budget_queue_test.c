/* A local queue while the store can't be reached: no call reports that somebody else holds the lock. */
#include "support/fixture.h"
#include "support/stage.h"

#define CROWD 4

/* A thread that asks without success, and rides the outage out. */
static actor *asker_in_an_outage(stage *s)
{
    stage_open(s, 0);
    faults_acquire(&s->faults, DIBS_UNAVAILABLE, FOR_EVER);
    return stage_waiter(s, "x", DIBS_WAIT_FOREVER, 1);
}

TEST_ON(a_single_try_is_told_of_an_outage, stage *s)
{
    actor *asker = asker_in_an_outage(s);

    assert_status(DIBS_UNAVAILABLE, dibs_trylock(s->rt, "x"));
    assert_true(dibs_last_error()[0] != '\0');
    assert_status(DIBS_UNAVAILABLE, dibs_trylock(s->rt, "y")); /* no thread asks for "y" meanwhile */
    assert_int_equal(stats_of(s->rt).busy, 0);
    faults_acquire(&s->faults, DIBS_OK, 0);
    stage_advance(s, MS(200));
    assert_status(DIBS_OK, actor_result(asker));
    assert_status(DIBS_BUSY, dibs_trylock(s->rt, "x"));
    assert_status(DIBS_OK, actor_unlock(asker, s->rt, "x"));
}

TEST_ON(a_thread_in_line_is_told_of_an_outage, stage *s)
{
    actor *crowd[CROWD];

    s->settings.outage_ms = 3600000;
    actor *asker = asker_in_an_outage(s);
    for (size_t i = 0; i < CROWD; i++)
        crowd[i] = stage_waiter(s, "x", 400, i + 2);
    moved_clock_advance(&s->clock, MS(400));
    for (size_t i = 0; i < CROWD; i++)
        assert_status(DIBS_UNAVAILABLE, actor_result(crowd[i]));
    assert_int_equal(stats_of(s->rt).timed_out, 0);
    dibs_shutdown(s->rt);
    assert_status(DIBS_CLOSED, actor_result(asker));
}

/* Once the store has said that the lock is taken, the others hear that. */
TEST_ON(the_end_of_an_outage_is_noticed, stage *s)
{
    actor *asker = asker_in_an_outage(s);

    assert_status(DIBS_UNAVAILABLE, dibs_trylock(s->rt, "x"));
    faults_acquire(&s->faults, DIBS_BUSY, FOR_EVER);
    unsigned asked = faults_count(&s->faults, &s->faults.acquires);
    moved_clock_advance(&s->clock, MS(200));
    stage_await_waiting(s, 1);
    assert_true(faults_count(&s->faults, &s->faults.acquires) > asked);
    assert_status(DIBS_BUSY, dibs_trylock(s->rt, "x"));
    actor *waiter = stage_waiter(s, "x", 400, 2);
    moved_clock_advance(&s->clock, MS(400));
    assert_status(DIBS_TIMEOUT, actor_result(waiter));
    dibs_shutdown(s->rt);
    assert_status(DIBS_CLOSED, actor_result(asker));
}

/* The machine was suspended while the thread asked: a failure after that may be the first moment of an outage. */
TEST_ON(a_thread_suspended_in_an_ask_has_its_whole_outage_budget, stage *s)
{
    stage_open(s, 0);
    faults_block_acquires(&s->faults);
    actor *asker = actor_locking(s->rt, "x", DIBS_WAIT_FOREVER);
    faults_await_blocked(&s->faults);
    moved_clock_advance(&s->clock, MS(3600000));
    faults_acquire(&s->faults, DIBS_UNAVAILABLE, 1);
    faults_unblock_acquires(&s->faults);
    stage_await_waiting(s, 1);
    assert_true(actor_busy(asker));
    moved_clock_advance(&s->clock, MS(200));
    actor_gets(asker, s->rt, "x");
}

/* The thread had no reply from the store for longer than outage_ms because it was told to wait: that is no outage. */
TEST_ON(a_thread_that_slept_for_long_has_its_whole_outage_budget, stage *s)
{
    stage_open_at(s, "mem:long", 0);
    dibs_runtime *holder = stage_rival(s, 86400000, "x");
    actor *asker = stage_waiter(s, "x", DIBS_WAIT_FOREVER, 1);
    faults_acquire(&s->faults, DIBS_UNAVAILABLE, FOR_EVER);
    moved_clock_advance(&s->clock, MS(10000)); /* a third of its lease: it asks again */
    stage_await_waiting(s, 1);
    assert_true(actor_busy(asker));
    faults_acquire(&s->faults, DIBS_OK, 0);
    assert_status(DIBS_OK, dibs_unlock(holder, "x"));
    moved_clock_advance(&s->clock, MS(200));
    actor_gets(asker, s->rt, "x");
}

/* Waiters that have waited for "x" for 10 s, longer than outage_ms. */
static void begin_behind_a_thread(stage *s, actor *waiters[CROWD], int64_t wait_of_the_first)
{
    s->settings.handoff_ms = DIBS_NO_HANDOFF;
    stage_open(s, 86400000);
    assert_status(DIBS_OK, dibs_lock(s->rt, "x"));
    for (size_t i = 0; i < CROWD; i++)
        waiters[i] = stage_waiter(s, "x", i == 0 ? wait_of_the_first : DIBS_WAIT_FOREVER, i + 1);
    moved_clock_advance(&s->clock, MS(10000));
}

/*
 * The waiters waited for a thread of this process, whose release cannot reach the store: their outage budget begins
 * only then.
 */
TEST_ON(a_thread_in_line_rides_an_outage_out, stage *s)
{
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
    for (size_t i = 0; i < CROWD; i++)
        actor_gets(waiters[i], s->rt, "x");
}

/* All waiters leave at once when the outage budget is over, not one after the other. */
TEST_ON(a_thread_in_line_gives_up_with_the_first, stage *s)
{
    actor *waiters[CROWD];

    begin_behind_a_thread(s, waiters, 12000);
    faults_acquire(&s->faults, DIBS_UNAVAILABLE, FOR_EVER);
    faults_release(&s->faults, DIBS_UNAVAILABLE, 1);
    unsigned before = acquires(s) + 1; /* the asks of the unlock and of the first waiter */
    assert_status(DIBS_UNAVAILABLE, dibs_unlock(s->rt, "x"));
    await_that(acquires(s) > before);
    stage_await_waiting(s, CROWD);
    for (int ms = 0; ms < 2000; ms += 200) { /* the waiter asks again each time: that begins no new outage */
        stage_await_waiting(s, CROWD);
        moved_clock_advance(&s->clock, MS(200));
    }
    /* The time of the first waiter is over: the next asks on, with the outage budget that is left. */
    assert_status(DIBS_UNAVAILABLE, actor_result(waiters[0]));
    stage_await_waiting(s, CROWD - 1);
    moved_clock_advance(&s->clock, MS(3000) - 1);
    stage_await_waiting(s, CROWD - 1);
    moved_clock_advance(&s->clock, MS(200) + 1);
    for (size_t i = 1; i < CROWD; i++)
        assert_status(DIBS_UNAVAILABLE, actor_result(waiters[i]));
}

/* The waiter's own time is over before the command's is: nobody knows whether the store can be reached. */
TEST_ON(a_wait_shorter_than_a_command_times_out, stage *s)
{
    static const struct {
        int64_t answered; /* ns after the wait began, which was for 5 ms */
        dibs_status status;
    } rows[] = {{MS(8) - 1, DIBS_UNAVAILABLE}, {MS(8), DIBS_TIMEOUT}, {MS(1000), DIBS_TIMEOUT}};
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
}

/* ------------------------------------------- grants that too few replicas acknowledge */

/* The store answers, and between two grants without replicas another process holds the lock for a moment. */
static void meet_a_rival(stage *s, size_t waiting)
{
    stage_await_waiting(s, waiting);
    faults_acquire(&s->faults, DIBS_BUSY, 1);
    moved_clock_advance(&s->clock,
                        MS(200)); /* the waiter asks again after a grant without replicas: the lock is taken */
    stage_await_waiting(s, waiting);
    moved_clock_advance(&s->clock, MS(1000)); /* the waiter asks once more: granted, and without replicas again */
}

static actor *asker_without_replicas(stage *s)
{
    stage_open(s, 0);
    faults_set(&s->faults, &s->faults.too_few_replicas, true);
    return stage_waiter(s, "x", DIBS_WAIT_FOREVER, 1);
}

TEST_ON(a_rival_does_not_renew_the_budget_of_a_waiter_without_replicas, stage *s)
{
    actor *asker = asker_without_replicas(s);

    for (int ms = 0; ms < 4800; ms += 1200)
        meet_a_rival(s, 1);
    stage_await_waiting(s, 1);
    assert_true(actor_busy(asker)); /* the asker rides that out for outage_ms, 5,000 */
    moved_clock_advance(&s->clock, MS(200));
    assert_status(DIBS_UNAVAILABLE, actor_result(asker));
}

/* Then another client holds the lock for long: now it is known to be taken, and a later failure is a new outage. */
TEST_ON(grants_without_replicas_are_forgotten, stage *s)
{
    actor *asker = asker_without_replicas(s);

    faults_set(&s->faults, &s->faults.too_few_replicas, false);
    faults_acquire(&s->faults, DIBS_BUSY, FOR_EVER);
    for (int ms = 0; ms < 8000; ms += 1000) { /* longer than outage_ms, 5,000 */
        moved_clock_advance(&s->clock, MS(1000));
        stage_await_waiting(s, 1);
    }
    assert_status(DIBS_BUSY, dibs_trylock(s->rt, "x"));
    actor *other = stage_waiter(s, "x", 400, 2);
    moved_clock_advance(&s->clock, MS(400));
    assert_status(DIBS_TIMEOUT, actor_result(other));
    faults_acquire(&s->faults, DIBS_UNAVAILABLE, 1);
    moved_clock_advance(&s->clock, MS(1000));
    stage_await_waiting(s, 1);
    assert_true(actor_busy(asker));
    faults_acquire(&s->faults, DIBS_OK, 0);
    moved_clock_advance(&s->clock, MS(1000));
    actor_gets(asker, s->rt, "x");
}

struct told {
    dibs_runtime *rt;
    int64_t wait_ms;
    dibs_status status;
    bool of_replicas;
};

static void lock_x(void *arg)
{
    struct told *told = arg;

    told->status = dibs_timedlock(told->rt, "x", told->wait_ms);
    told->of_replicas = strstr(dibs_last_error(), "no replicas") != NULL;
}

static actor *begin_told(struct told *told, dibs_runtime *rt, int64_t wait_ms)
{
    *told = (struct told){.rt = rt, .wait_ms = wait_ms};
    return actor_running(lock_x, told);
}

/* All get DIBS_UNAVAILABLE: the first asker, the thread behind it, the last asker, and a single try. */
TEST_ON(a_wait_without_replicas_ends_with_that_reason, stage *s)
{
    struct told told[CROWD];
    actor *crowd[CROWD];

    stage_open(s, 0);
    faults_set(&s->faults, &s->faults.too_few_replicas, true);
    crowd[0] = begin_told(&told[0], s->rt, 3000);
    stage_await_waiting(s, 1);
    faults_acquire(&s->faults, DIBS_BUSY, FOR_EVER);
    moved_clock_advance(&s->clock, MS(200));
    stage_await_waiting(s, 1);
    crowd[1] = begin_told(&told[1], s->rt, 2000);
    crowd[2] = begin_told(&told[2], s->rt, 3200);
    stage_await_waiting(s, 3);
    crowd[3] = begin_told(&told[3], s->rt, 0);
    actor_finish(crowd[3]);
    for (int ms = 200; ms < 3400; ms += 200) {
        stage_await_waiting(s, ms < 2200 ? 3 : ms < 3000 ? 2 : 1);
        moved_clock_advance(&s->clock, MS(200));
    }
    for (size_t i = 0; i < CROWD; i++) {
        actor_finish(crowd[i]);
        assert_that(told[i].status == DIBS_UNAVAILABLE && told[i].of_replicas, "%zu: %s", i,
                    dibs_status_name(told[i].status));
    }
    assert_int_equal(stats_of(s->rt).timed_out, 0);
}

/* The end of the wait cuts off the last ask, which gets no answer. */
TEST_ON(a_last_ask_without_an_answer_hides_no_lack_of_replicas, stage *s)
{
    struct told told;

    stage_open(s, 0);
    faults_set(&s->faults, &s->faults.too_few_replicas, true);
    actor *asker = begin_told(&told, s->rt, 300);
    stage_await_waiting(s, 1);
    faults_acquire(&s->faults, DIBS_UNAVAILABLE, FOR_EVER);
    moved_clock_advance(&s->clock, MS(400));
    actor_finish(asker);
    assert_true(told.status == DIBS_UNAVAILABLE && told.of_replicas);
}

/* The waiters leave together, not one after the other with an outage budget each. */
TEST_ON(all_waiters_without_replicas_give_up_together, stage *s)
{
    actor *crowd[CROWD] = {asker_without_replicas(s)};

    for (size_t i = 1; i < CROWD; i++)
        crowd[i] = stage_waiter(s, "x", DIBS_WAIT_FOREVER, i + 1);
    for (int ms = 0; ms < 4800; ms += 1200)
        meet_a_rival(s, CROWD);
    stage_await_waiting(s, CROWD);
    moved_clock_advance(&s->clock, MS(200));
    for (size_t i = 0; i < CROWD; i++)
        assert_status(DIBS_UNAVAILABLE, actor_result(crowd[i]));
}

/* The thread has its own outage budget, which counts from when it came, even before it meets a grant without replicas.
 */
TEST_ON(a_later_waiter_without_replicas_has_budget_left, stage *s)
{
    actor *early = asker_without_replicas(s);

    meet_a_rival(s, 1); /* 1,200 ms */
    stage_await_waiting(s, 1);
    actor *late = stage_waiter(s, "x", DIBS_WAIT_FOREVER, 2);
    for (int ms = 1200; ms < 4800; ms += 1200)
        meet_a_rival(s, 2);
    stage_await_waiting(s, 2);
    moved_clock_advance(&s->clock, MS(200)); /* 5,000 */
    assert_status(DIBS_UNAVAILABLE, actor_result(early));
    stage_await_waiting(s, 1);
    assert_true(actor_busy(late));
    meet_a_rival(s, 1); /* 6,200 */
    assert_status(DIBS_UNAVAILABLE, actor_result(late));
}

TESTS(stage_setup, stage_teardown)
