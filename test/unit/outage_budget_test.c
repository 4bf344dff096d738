/*
 * An outage of the store: an acquire rides it out for outage_ms. An error that waiting cannot mend is returned at once.
 */
#include "support/fixture.h"
#include "unit/turn_setup.h"

static void open_in_an_outage(stage *s, uint32_t outage_ms)
{
    s->settings.outage_ms = outage_ms;
    stage_open(s, LEASE);
    faults_acquire(&s->faults, DIBS_UNAVAILABLE, FOR_EVER);
}

TEST_ON(an_outage_is_ridden_out_until_the_store_answers, stage *s)
{
    open_in_an_outage(s, 5000);
    actor *other = actor_locking(s->rt, "a", FOREVER);
    for (int i = 0; i < 16; i++) {
        stage_await_waiting(s, 1);
        moved_clock_advance(&s->clock, MS(200));
    }
    assert_that(acquires(s) >= 16, "%u", acquires(s));
    stage_await_waiting(s, 1); /* else the ask that is under way might be answered */
    faults_acquire(&s->faults, DIBS_OK, 0);
    moved_clock_advance(&s->clock, MS(200));
    actor_gets(other, s->rt, "a");
}

/* Moves the clock until the actor has come back, in that time, because the store can't be reached. */
static void ride(stage *s, actor *a, size_t asleep, int64_t least_ms, int64_t most_ms)
{
    int64_t start = moved_clock_now(&s->clock);

    while (actor_busy(a)) {
        assert_true(moved_clock_now(&s->clock) - start < MS(3600000));
        moved_clock_advance(&s->clock, MS(1));
        /* The actor comes back, or all threads sleep again. */
        await_that(!actor_busy(a) || moved_clock_waiting(&s->clock) == asleep);
    }
    int64_t time = moved_clock_now(&s->clock) - start;
    assert_status(DIBS_UNAVAILABLE, actor_result(a));
    assert_that(time >= MS(least_ms) && time <= MS(most_ms), "%ld ns", (long)time);
}

TEST_ON(one_try_does_not_ride_out_anything, stage *s)
{
    open_in_an_outage(s, 5000);
    assert_status(DIBS_UNAVAILABLE, dibs_trylock(s->rt, "a"));
    assert_int_equal(acquires(s), 1);
}

TEST_ON(an_outage_is_ridden_out_for_outage_ms, stage *s)
{
    static const struct {
        uint32_t outage_ms;
        int64_t wait_ms, least, most; /* ms; an ask comes at most 200 ms after the one before */
    } cases[] = {{1000, FOREVER, 1000, 1200}, {50, FOREVER, 50, 250}, {1000, 300, 300, 300}, {1, FOREVER, 1, 201}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        open_in_an_outage(s, cases[i].outage_ms);
        actor *other = stage_waiter(s, "a", cases[i].wait_ms, 1);
        ride(s, other, 1, cases[i].least, cases[i].most);
        close_runtime(&s->rt);
    }
}

/* Each ask goes out under a new token. State that the store resets with a retired token is not taken for a suspend. */
TEST_ON(an_outage_that_spends_every_token_lasts_no_longer, stage *s)
{
    open_in_an_outage(s, 1000);
    faults_set(&s->faults, &s->faults.spends, true);
    actor *other = stage_waiter(s, "a", FOREVER, 1);
    ride(s, other, 1, 1000, 1200);
}

TEST_ON(an_outage_counts_from_the_stores_last_reply, stage *s)
{
    open_in_an_outage(s, 1000);
    actor *other = actor_locking(s->rt, "a", FOREVER);
    for (int i = 0; i < 20; i++) {
        stage_await_waiting(s, 1);
        moved_clock_advance(&s->clock, MS(500));
        dibs_owner owner;
        assert_status(DIBS_OK, dibs_query(s->rt, "b", &owner)); /* the store answers */
    }
    stage_await_waiting(s, 1);
    ride(s, other, 1, 1000, 1200);
}

TEST_ON(all_waiters_of_an_outage_give_up_together, stage *s)
{
    actor *crowd[CROWD];

    open_in_an_outage(s, 1000);
    begin_crowd(s, crowd, 0, FOREVER);
    ride(s, crowd[0], CROWD, 1000, 1200);
    unsigned asked = acquires(s);
    for (size_t i = 1; i < CROWD; i++)
        assert_status(DIBS_UNAVAILABLE, actor_result(crowd[i])); /* the clock does not move any more */
    assert_int_equal(acquires(s), asked);
}

/*
 * The others do not ask once more when the asker has found that the outage budget is over: each ask may take the
 * command timeout.
 */
TEST_ON(a_waiter_that_gives_up_with_another_does_not_ask_before, stage *s)
{
    actor *crowd[CROWD];

    open_in_an_outage(s, 1000);
    begin_crowd(s, crowd, 0, FOREVER);
    for (int ms = 0; ms < 800; ms += 100) {
        moved_clock_advance(&s->clock, MS(100));
        stage_await_waiting(s, CROWD);
    }
    faults_block_acquires(&s->faults);
    moved_clock_advance(&s->clock, MS(400));
    faults_await_blocked(&s->faults);
    unsigned asked = acquires(s);
    faults_unblock_acquires(&s->faults);
    for (size_t i = 0; i < CROWD; i++)
        assert_status(DIBS_UNAVAILABLE, actor_result(crowd[i]));
    assert_int_equal(acquires(s), asked);
}

/* A thread that came later than those which gave up has outage budget left, and asks on in their place. */
TEST_ON(a_later_waiter_has_outage_budget_left, stage *s)
{
    open_in_an_outage(s, 1000);
    actor *early = stage_waiter(s, "a", FOREVER, 1);
    moved_clock_advance(&s->clock, MS(700));
    stage_await_waiting(s, 1);
    actor *late = stage_waiter(s, "a", FOREVER, 2);
    ride(s, early, 2, 0, 3600000);
    assert_true(actor_busy(late));
    stage_await_waiting(s, 1);
    faults_acquire(&s->faults, DIBS_OK, 0);
    moved_clock_advance(&s->clock, MS(200));
    actor_gets(late, s->rt, "a");
}

/* The asker gets an error that waiting cannot mend at once; the next thread asks for itself. */
TEST_ON(a_refusal_is_reported_at_once, stage *s)
{
    static const dibs_status refusals[] = {DIBS_DENIED, DIBS_STORE_ERROR, DIBS_NO_MEMORY};
    actor *other = actor_start();

    stage_open(s, LEASE);
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        faults_block_acquires(&s->faults);
        faults_acquire(&s->faults, refusals[i], 1);
        actor_begin_lock(other, s->rt, "a", FOREVER);
        faults_await_blocked(&s->faults);
        faults_unblock_acquires(&s->faults);
        assert_status(refusals[i], actor_result(other));
        lock_and_release(s->rt, "a", DIBS_WAIT_FOREVER);
    }
}

TEST_ON(a_grant_that_comes_after_its_lease_is_refused, stage *s)
{
    stage_open(s, LEASE);
    faults_set(&s->faults, &s->faults.late_proof, true);
    assert_status(DIBS_UNAVAILABLE, dibs_trylock(s->rt, "a"));
    assert_status(DIBS_NOT_HELD, dibs_check(s->rt, "a"));
    dibs_owner owner = owner_of(s->rt, "a");
    assert_false(owner.held);
    assert_int_equal(stats_of(s->rt).leases, 0);
}

TEST_ON(an_acquire_without_an_answer_leaves_nothing_behind, stage *s)
{
    stage_open(s, LEASE);
    faults_set(&s->faults, &s->faults.unanswered, true);
    assert_status(DIBS_UNAVAILABLE, dibs_trylock(s->rt, "a"));
    dibs_owner owner = owner_of(s->rt, "a");
    assert_false(owner.held);
    faults_set(&s->faults, &s->faults.unanswered, false);
    lock_and_release(s->rt, "a", 0);
}

TESTS(stage_setup, stage_teardown)
