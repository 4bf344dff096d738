/*
 * Leases whose locks the store watches: when they are looked at, and what a message that a lock may have changed brings
 * about. A message is a hint: only the answer to the renewal that follows decides.
 */
#include "core/holds.h"
#include "core/runtime.h"
#include "support/failing_malloc.h"
#include "support/fixture.h"
#include "unit/renewal_setup.h"

#define SOON MS(3)       /* from a message, or from the start of watching, at a full ms, to its effect */
#define PACED 96         /* so many at a time, and as many in each ms that follows */
#define WATCH_AGAIN 1000 /* ms until a look that failed is made again */
#define MANY 1000
#define BATCHES(count) (((count) + PACED - 1) / PACED)

/* ------------------------------------------------------------------- helpers */

/* With a store that watches. */
static int setup(void **state)
{
    stage_setup(state);
    stage *s = *state;
    s->faults.watches = true;
    stage_open(s, LEASE);
    return 0;
}

static unsigned looks(stage *s)
{
    return faults_count(&s->faults, &s->faults.looks);
}

/* That much later, so many were made in all. */
static void expect_looks_after(stage *s, int64_t ns, unsigned count)
{
    stage_advance(s, ns);
    assert_int_equal(looks(s), count);
}

static unsigned look_batches(stage *s)
{
    return faults_count(&s->faults, &s->faults.look_batches);
}

static void change(stage *s, const char *name)
{
    faulty_store_change(s->rt->core->store, name);
    stage_settle(s);
}

static void turn(stage *s, bool on)
{
    faulty_store_watching(s->rt->core->store, on);
    stage_settle(s);
}

/* Moves on by small steps, so that nothing comes together only because the clock leapt. */
static void pass(stage *s, int64_t ms)
{
    for (int64_t i = 0; i < ms; i++)
        stage_advance(s, MS(1));
}

/* A lease on "a" is watched, and the store has said that it watches. */
static void hold_watched(stage *s)
{
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    expect_looks_after(s, MS(30), 1);
    turn(s, true);
    expect_looks_after(s, SOON, 2);
    assert_int_equal(renewals(s), 0);
}

static int64_t looked_at(stage *s, unsigned i)
{
    return s->faults.look_records[i].at;
}

/* ---------------------------------------------------------------- the looks */

/* A lease is 20 to 30 ms old then, and looks fall on multiples of 10 ms. */
TEST_ON(the_first_look_is_on_the_grid, stage *s)
{
    static const int64_t begin[] = {0, 1, MS(1), MS(9), MS(10) - 1, MS(10)};
    static const int64_t looked[] = {MS(30), MS(30), MS(30), MS(30), MS(30), MS(40)};
    char name[32];

    turn(s, true);
    int64_t start = moved_clock_now(&s->clock), at = 0;
    assert_int_equal(start % MS(10), 0);
    for (unsigned i = 0; i < sizeof begin / sizeof *begin; i++) {
        stage_advance(s, begin[i] - at);
        at = begin[i];
        snprintf(name, sizeof name, "%u", i);
        assert_status(DIBS_OK, dibs_lock(s->rt, name));
    }
    expect_looks_after(s, MS(20) - 1, 0);
    expect_looks_after(s, 1, 5);
    assert_int_equal(look_batches(s), 1);
    expect_looks_after(s, MS(10), 6);
    for (unsigned i = 0; i < 6; i++)
        assert_int_equal(looked_at(s, i) - start, looked[i]);
    assert_status(DIBS_OK, dibs_unlock_all(s->rt));
}

TEST_ON(a_short_lock_is_never_looked_at, stage *s)
{
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    stage_advance(s, MS(20));
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    expect_looks_after(s, MS(LEASE), 0);
}

/*
 * By the first look the store learns that it should watch locks. Until the store says that it does, there is no other
 * look.
 */
TEST_ON(one_look_is_made_until_the_store_watches, stage *s)
{
    faults_look(&s->faults, DIBS_UNAVAILABLE, 1);
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    expect_looks_after(s, MS(30), 1);
    assert_status(DIBS_OK, dibs_lock(s->rt, "b"));
    expect_looks_after(s, MS(9000), 1);
    assert_int_equal(renewals(s), 0);
    turn(s, true);
    expect_looks_after(s, SOON, 3);
    assert_int_equal(look_batches(s), 2);
    assert_status(DIBS_OK, dibs_lock(s->rt, "c"));
    expect_looks_after(s, MS(30), 4);
    assert_status(DIBS_OK, dibs_unlock_all(s->rt));
}

TEST_ON(a_watched_lock_is_not_looked_at_again, stage *s)
{
    hold_watched(s);
    expect_looks_after(s, MS(9000), 2);
    assert_status(DIBS_OK, dibs_check(s->rt, "a"));
}

TEST_ON(all_locks_are_looked_at_in_batches_when_watching_restarts, stage *s)
{
    lock_many(s, MANY);
    expect_looks_after(s, MS(30), MANY);
    for (unsigned round = 1; round <= 3; round++) {
        unsigned before = look_batches(s), at = round * MANY;
        turn(s, false);
        turn(s, true);
        int64_t start = moved_clock_now(&s->clock);
        assert_int_equal(looks(s), at);
        for (unsigned i = 1; i <= BATCHES(MANY); i++) {
            stage_advance(s, (i == 1 ? SOON : MS(1)) - 1);
            assert_int_equal(look_batches(s), before + i - 1);
            stage_advance(s, 1);
            assert_int_equal(look_batches(s), before + i);
        }
        assert_int_equal(looks(s), at + MANY);
        assert_int_equal(looked_at(s, at) - start, SOON);
        assert_int_equal(looked_at(s, at + PACED) - start, SOON + MS(1));
    }
    assert_int_equal(renewals(s), 0);
    assert_status(DIBS_OK, dibs_unlock_all(s->rt));
}

/* A young lease waits until it is old enough. */
TEST_ON(a_young_lease_may_wait_when_watching_restarts, stage *s)
{
    hold_watched(s);
    turn(s, false);
    assert_status(DIBS_OK, dibs_lock(s->rt, "b"));
    turn(s, true);
    expect_looks_after(s, SOON, 3);
    assert_string_equal(s->faults.look_records[2].name, "a");
    expect_looks_after(s, MS(30), 4);
    assert_string_equal(s->faults.look_records[3].name, "b");
    assert_status(DIBS_OK, dibs_unlock_all(s->rt));
}

TEST_ON(a_look_that_fails_is_made_again_only_while_the_store_watches, stage *s)
{
    hold_watched(s);
    turn(s, false);
    turn(s, true);
    faults_look(&s->faults, DIBS_UNAVAILABLE, 2);
    expect_looks_after(s, SOON, 3);
    expect_looks_after(s, MS(WATCH_AGAIN) - 1, 3);
    expect_looks_after(s, 1, 4);
    turn(s, false);
    expect_looks_after(s, MS(5000), 4);
    assert_int_equal(renewals(s), 0);
}

TEST_ON(a_look_for_which_there_is_no_memory_is_made_again, stage *s)
{
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    stage_settle(s);
    is_spared = true;
    fails_elsewhere = true;
    fail_at = CAN_FAIL ? 1 : 0;
    stage_advance(s, MS(30));
    assert_int_equal(fail_at, 0);
    fails_elsewhere = false;
    assert_int_equal(looks(s), !CAN_FAIL);
    expect_looks_after(s, MS(WATCH_AGAIN), 1);
    assert_status(DIBS_OK, dibs_check(s->rt, "a"));
}

/* The store had no memory even to note that it should watch, so it will never say that it does. */
TEST_ON(the_first_look_is_made_again_if_the_store_has_no_memory, stage *s)
{
    faults_look(&s->faults, DIBS_NO_MEMORY, 1);
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    expect_looks_after(s, MS(30), 1);
    expect_looks_after(s, MS(WATCH_AGAIN) - 1, 1);
    expect_looks_after(s, 1, 2);
    expect_looks_after(s, MS(5000), 2);
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
}

/* Looks and renewals of one lease do not get mixed up. */
TEST_ON(a_look_waits_for_the_renewal_in_flight, stage *s)
{
    hold_watched(s);
    faults_hold_renewals(&s->faults);
    change(s, "a");
    expect_renewals_after(s, SOON, 1);
    turn(s, true);
    expect_looks_after(s, MS(100), 2);
    stage_let_renewals_go(s);
    stage_settle(s);
    assert_int_equal(looks(s), 3);
}

/* ---------------------------------------------------- what a look finds */

TEST_ON(a_lock_that_a_look_finds_gone_is_renewed_first, stage *s)
{
    faults_look_gone(&s->faults, "a");
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    expect_looks_after(s, MS(30), 1);
    assert_int_equal(renewals(s), 1);
    assert_status(DIBS_OK, dibs_check(s->rt, "a"));
    assert_int_equal(stats_of(s->rt).lost, 0);
    assert_int_equal(events_count(&s->events, DIBS_EVENT_LOST, NULL), 0);
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    faults_renewal_gone(&s->faults, "a");
    turn(s, true);
    expect_renewals_after(s, MS(30), 2);
    assert_status(DIBS_LOST, dibs_check(s->rt, "a"));
    events_await(&s->events, DIBS_EVENT_LOST, "a");
    assert_int_equal(events_count(&s->events, DIBS_EVENT_LOST, "a"), 1);
}

TEST_ON(a_lease_may_be_released_while_its_look_is_out, stage *s)
{
    faults_look_gone(&s->faults, "a");
    faults_hold_looks(&s->faults);
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    assert_status(DIBS_OK, dibs_lock(s->rt, "b"));
    expect_looks_after(s, MS(30), 2);
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    faults_let_looks_go(&s->faults);
    dibs__scheduler_wake(s->rt->core->scheduler);
    expect_renewals_after(s, MS(100), 0);
    assert_int_equal(stats_of(s->rt).lost, 0);
    assert_status(DIBS_OK, dibs_unlock(s->rt, "b"));
}

TEST_ON(a_lease_may_be_lost_while_its_look_is_out, stage *s)
{
    faults_hold_looks(&s->faults);
    assert_status(DIBS_OK, dibs_lock_with(s->rt, "a", 0, &fixed));
    stage_advance(s, MS(30));
    stage_advance(s, MS(LEASE));
    assert_status(DIBS_LOST, dibs_check(s->rt, "a"));
    faults_let_looks_go(&s->faults);
    dibs__scheduler_wake(s->rt->core->scheduler);
    expect_renewals_after(s, MS(100), 0);
    assert_int_equal(stats_of(s->rt).lost, 1);
}

/* Closing ends a look without an answer. */
TEST_ON(a_runtime_may_close_while_a_look_is_out, stage *s)
{
    faults_hold_looks(&s->faults);
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    expect_looks_after(s, MS(30), 1);
    close_runtime(&s->rt);
}

/* ------------------------------------------------------------- messages */

TEST_ON(a_message_makes_a_renewal_due_shortly_after, stage *s)
{
    hold_watched(s);
    for (unsigned i = 0; i < 3; i++) {
        change(s, "a");
        expect_renewals_after(s, SOON - 1, i);
        expect_renewals_after(s, 1, i + 1);
        assert_status(DIBS_OK, dibs_check(s->rt, "a"));
        assert_int_equal(hold_of(s->rt, "a").remaining_ms, believed(LEASE) / MS(1));
    }
    assert_int_equal(stats_of(s->rt).lost, 0);
}

TEST_ON(a_loss_is_known_once_the_renewal_is_answered, stage *s)
{
    hold_watched(s);
    faults_renewal_gone(&s->faults, "a");
    change(s, "a");
    assert_status(DIBS_OK, dibs_check(s->rt, "a"));
    stage_advance(s, SOON);
    assert_status(DIBS_LOST, dibs_check(s->rt, "a"));
    events_await(&s->events, DIBS_EVENT_LOST, "a");
    assert_int_equal(events_count(&s->events, DIBS_EVENT_LOST, "a"), 1);
}

/* Late messages, duplicates, and those that the process itself caused are harmless. */
TEST_ON(messages_that_mean_nothing_change_nothing, stage *s)
{
    hold_watched(s);
    change(s, "of nobody");
    lock_and_release(s->rt, "b", DIBS_WAIT_FOREVER);
    change(s, "b"); /* the lease is released */
    expect_renewals_after(s, MS(50), 0);
    change(s, "a");
    change(s, "a");
    change(s, "a");
    expect_renewals_after(s, MS(50), 1);
    assert_status(DIBS_OK, dibs_check(s->rt, "a"));
    assert_int_equal(stats_of(s->rt).lost, 0);
}

/* A message about an older lease of the name finds the present one. */
TEST_ON(a_message_for_an_older_lease_only_renews_the_present_one, stage *s)
{
    hold_watched(s);
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    change(s, "a"); /* not watched yet: the look will see */
    expect_renewals_after(s, MS(10), 0);
    expect_looks_after(s, MS(30), 3);
    change(s, "a");
    expect_renewals_after(s, SOON, 1);
    assert_status(DIBS_OK, dibs_check(s->rt, "a"));
    assert_int_equal(stats_of(s->rt).lost, 0);
}

TEST_ON(a_renewal_makes_up_for_a_lost_message, stage *s)
{
    hold_watched(s);
    faults_renewal_gone(&s->faults, "a"); /* and nothing is told */
    stage_advance(s, MS(9000));
    assert_status(DIBS_OK, dibs_check(s->rt, "a"));
    stage_advance(s, MS(1000));
    assert_status(DIBS_LOST, dibs_check(s->rt, "a"));
}

/* The renewal in flight may have read the lock before it changed. */
TEST_ON(a_message_during_a_renewal_brings_another, stage *s)
{
    hold_watched(s);
    faults_hold_renewals(&s->faults);
    change(s, "a");
    expect_renewals_after(s, SOON, 1);
    change(s, "a");
    expect_renewals_after(s, MS(20), 1);
    faults_let_renewals_go(&s->faults);
    faults_renewal_gone(&s->faults, "none");
    dibs__scheduler_wake(s->rt->core->scheduler);
    expect_renewals_after(s, SOON, 2);
    expect_renewals_after(s, MS(100), 2);
    assert_status(DIBS_OK, dibs_check(s->rt, "a"));
}

/* A message during a renewal is not forgotten if the renewal fails. */
TEST_ON(a_message_during_a_renewal_that_fails_brings_another, stage *s)
{
    hold_watched(s);
    faults_hold_renewals(&s->faults);
    faults_renewal(&s->faults, DIBS_UNAVAILABLE, 1);
    change(s, "a");
    expect_renewals_after(s, SOON, 1);
    change(s, "a");
    stage_let_renewals_go(s);
    stage_settle(s);
    pass(s, 1000);
    assert_in_range(renewals(s), 2, 3);
    assert_status(DIBS_OK, dibs_check(s->rt, "a"));
}

/* The message comes while the extension is in flight: the extension is done, and a renewal follows. */
TEST_ON(a_message_during_an_extension_brings_a_renewal, stage *s)
{
    turn(s, true);
    faults_hold_renewals(&s->faults);
    actor *holder = actor_holding(s->rt, "a");
    actor_begin_extend(holder, s->rt, "a", 2 * LEASE);
    moved_clock_await_waiting(&s->clock, 1);
    stage_settle(s);
    assert_int_equal(renewals(s), 1);
    expect_looks_after(s, MS(30), 0); /* it waits for the extension */
    change(s, "a");
    stage_let_renewals_go(s);
    assert_status(DIBS_OK, actor_result(holder));
    expect_looks_after(s, SOON, 1);
    unsigned before = renewals(s);
    change(s, "a");
    expect_renewals_after(s, SOON, before + 1);
    assert_int_equal(last_renewal(s).lease_ms, 2 * LEASE);
}

TEST_ON(a_fixed_lease_is_asked_for_and_not_prolonged, stage *s)
{
    turn(s, true);
    assert_status(DIBS_OK, dibs_lock_with(s->rt, "a", 0, &fixed));
    expect_looks_after(s, MS(1000), 1);
    assert_int_equal(renewals(s), 0);
    int64_t remaining = hold_of(s->rt, "a").remaining_ms;
    change(s, "a");
    expect_renewals_after(s, SOON, 1);
    assert_in_range(hold_of(s->rt, "a").remaining_ms, remaining - 4, remaining);
    expect_renewals_after(s, MS(10000), 1);
    faults_renewal_gone(&s->faults, "a");
    change(s, "a");
    stage_advance(s, SOON);
    assert_status(DIBS_LOST, dibs_check(s->rt, "a"));
}

/* The renewal that the message asked for is repeated until it is answered. */
TEST_ON(a_fixed_lease_is_asked_for_until_there_is_an_answer, stage *s)
{
    turn(s, true);
    assert_status(DIBS_OK, dibs_lock_with(s->rt, "a", 0, &fixed));
    stage_advance(s, MS(1000));
    faults_renewal(&s->faults, DIBS_UNAVAILABLE, 2);
    change(s, "a");
    expect_renewals_after(s, SOON, 1);
    expect_renewals_after(s, MS(1000), 2);
    faults_renewal_gone(&s->faults, "a");
    expect_renewals_after(s, MS(1000), 3);
    assert_status(DIBS_LOST, dibs_check(s->rt, "a"));
}

/* ------------------------------------------------------- very many at once */

TEST_ON(all_leases_are_renewed_in_batches_when_all_may_have_changed, stage *s)
{
    turn(s, true);
    lock_many(s, MANY);
    expect_looks_after(s, MS(30), MANY);
    change(s, NULL);
    int64_t start = moved_clock_now(&s->clock);
    pass(s, 3 + BATCHES(MANY));
    assert_int_equal(renewals(s), MANY);
    assert_in_range(batches(s), MANY / DIBS__BATCH_MAX, BATCHES(MANY));
    for (unsigned i = 0; i < MANY; i++) { /* a renewal that is due a little later may join the batch */
        int64_t after = s->faults.records[i].at - start;
        assert_true(after >= SOON + MS(i / DIBS__BATCH_MAX) && after <= SOON + MS(i / PACED));
    }
    pass(s, 100);
    assert_int_equal(renewals(s), MANY);
    assert_status(DIBS_OK, dibs_unlock_all(s->rt));
}

/* However many leases one message makes due for renewal. */
TEST_ON(a_due_renewal_is_not_late_when_all_may_have_changed, stage *s)
{
    const dibs_lock_options short_lease = {.lease_ms = 150};

    turn(s, true);
    lock_many(s, 4 * MANY);
    stage_advance(s, MS(30));
    assert_status(DIBS_OK, dibs_lock_with(s->rt, "short", 0, &short_lease)); /* to be renewed after 50 ms */
    int64_t granted = moved_clock_now(&s->clock);
    pass(s, 40);
    change(s, NULL);
    pass(s, 11);
    bool renewed = false;
    for (unsigned i = 0; i < renewals(s); i++)
        renewed =
            renewed || (strcmp(s->faults.records[i].name, "short") == 0 && s->faults.records[i].at <= granted + MS(50));
    assert_true(renewed);
    assert_true(renewals(s) < 4 * MANY);
    pass(s, 60);
    assert_in_range(renewals(s), 4 * MANY + 1, 4 * MANY + 3);
    assert_int_equal(stats_of(s->rt).lost, 0);
    assert_status(DIBS_OK, dibs_unlock_all(s->rt));
}

/* A stream of messages does not put off the renewal that the first one asks for. */
TEST_ON(a_stream_of_messages_does_not_starve_anybody, stage *s)
{
    hold_watched(s);
    for (unsigned i = 0; i < 100; i++) {
        change(s, NULL);
        stage_advance(s, MS(1));
    }
    assert_in_range(renewals(s), 20, 51);
    assert_status(DIBS_OK, dibs_check(s->rt, "a"));
}

/*
 * Whatever messages come meanwhile, a change is known once all leases have been looked at: redis-server also reports
 * that all keys may have changed when another database is flushed.
 */
TEST_ON(a_flood_of_messages_does_not_put_off_what_comes_later, stage *s)
{
    enum { FLOOD_MS = 3000, EACH_MS = 10 };

    turn(s, true);
    lock_many(s, 4 * MANY);
    stage_advance(s, MS(30));
    for (unsigned i = 0; i < FLOOD_MS / EACH_MS; i++) {
        change(s, NULL);
        pass(s, EACH_MS);
    }
    faults_renewal_gone(&s->faults, "many-0");
    change(s, "many-0");
    pass(s, 3 + BATCHES(4 * MANY));
    assert_status(DIBS_LOST, dibs_check(s->rt, "many-0"));
    assert_int_equal(stats_of(s->rt).lost, 1);
    dibs_unlock_all(s->rt);
}

TESTS(setup, stage_teardown)
