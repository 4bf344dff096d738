/* The scheduler: what is renewed, exactly when, and what becomes of a lease that can't be. */
#include <stdio.h>
#include <string.h>

#include "support/actor.h"
#include "support/fixture.h"
#include "support/stage.h"
#include "support/test.h"
#include "support/wait.h"

#define LEASE 30000 /* ms; a third: 10 s */

static const dibs_lock_options fixed = {.flags = DIBS_FIXED_LEASE};

static unsigned renewals(stage *s)
{
    return faults_count(&s->faults, &s->faults.renewals);
}

static unsigned batches(stage *s)
{
    return faults_count(&s->faults, &s->faults.batches);
}

static struct renewal_record last_renewal(stage *s)
{
    unsigned count = renewals(s);

    assert_true(count > 0);
    return s->faults.records[count - 1];
}

/* ---------------------------------------------------------------- when */

/* With lease_ms and renew_ms, each renewal is sent exactly `period` ns after the one before, and none earlier. */
static const struct pace {
    uint32_t lease_ms, renew_ms;
    int64_t period;
} paces[] = {
    {30000, 0, MS(10000)},       {20, 0, MS(20) / 3},       {1000, 0, MS(1000) / 3},
    {30000, 5000, MS(5000)},     {30000, 15000, MS(10000)}, /* a third is sooner */
    {86400000, 0, MS(28800000)}, {86400000, 1, MS(1)},
};

static void renewal_comes_exactly_at_its_time(void **state)
{
    stage *s = *state;

    for (size_t i = 0; i < sizeof paces / sizeof paces[0]; i++) {
        const struct pace *pace = &paces[i];
        s->settings.renew_ms = pace->renew_ms;
        stage_open(s, pace->lease_ms);
        assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
        for (unsigned round = 0; round < 4; round++) {
            unsigned before = renewals(s);
            stage_advance(s, pace->period - 1);
            assert_int_equal(renewals(s), before);
            stage_advance(s, 1);
            assert_int_equal(renewals(s), before + 1);
            assert_int_equal(last_renewal(s).lease_ms, pace->lease_ms);
            assert_status(DIBS_OK, dibs_check(s->rt, "a"));
        }
        assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
        dibs_close(s->rt);
        s->rt = NULL;
    }
}

static void a_lease_of_its_own_is_renewed_at_its_own_third(void **state)
{
    stage *s = *state;
    const dibs_lock_options short_lease = {.lease_ms = 300};

    s->settings.renew_ms = 5000;
    stage_open(s, LEASE);
    assert_status(DIBS_OK, dibs_lock(s->rt, "long"));
    assert_status(DIBS_OK, dibs_lock_with(s->rt, "short", 0, &short_lease));
    stage_advance(s, MS(100));
    assert_int_equal(renewals(s), 1);
    assert_string_equal(last_renewal(s).name, "short");
    assert_int_equal(last_renewal(s).lease_ms, 300);
}

static void a_nested_acquire_with_a_shorter_lease_shortens_nothing(void **state)
{
    stage *s = *state;
    const dibs_lock_options short_and_fixed = {.lease_ms = 20, .flags = DIBS_FIXED_LEASE};

    stage_open(s, LEASE);
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    assert_status(DIBS_OK, dibs_lock_with(s->rt, "a", 0, &short_and_fixed));
    assert_int_equal(hold_of(s->rt, "a").remaining_ms, believed(LEASE) / MS(1));
    stage_advance(s, MS(10000));
    assert_int_equal(last_renewal(s).lease_ms, LEASE);
    assert_int_equal(hold_of(s->rt, "a").remaining_ms, believed(LEASE) / MS(1));
}

static void nothing_is_renewed_after_the_unlock(void **state)
{
    stage *s = *state;

    stage_open(s, LEASE);
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    assert_int_equal(stats_of(s->rt).leases, 0);
    stage_advance(s, MS(LEASE) * 3);
    assert_int_equal(renewals(s), 0);
    assert_int_equal(stats_of(s->rt).lost, 0);
}

/* ---------------------------------------------------------------- many */

#define MANY 1000

static void lock_many(stage *s, unsigned count)
{
    char name[32];

    for (unsigned i = 0; i < count; i++) {
        snprintf(name, sizeof name, "many-%u", i);
        assert_status(DIBS_OK, dibs_lock(s->rt, name));
    }
}

static void many_leases_are_renewed_once_a_period_in_few_batches(void **state)
{
    stage *s = *state;

    stage_open(s, LEASE);
    lock_many(s, MANY);
    for (unsigned period = 1; period <= 3; period++) {
        stage_advance(s, MS(10000));
        assert_int_equal(renewals(s), period * MANY);
        assert_int_equal(batches(s), period * ((MANY + DIBS__BATCH_MAX - 1) / DIBS__BATCH_MAX));
    }
    assert_int_equal(stats_of(s->rt).renewed, 3 * MANY);
    for (unsigned i = 0; i < 3 * MANY; i++) /* in the order in which they fell due: a round ends before the next */
        assert_int_equal(s->faults.records[i].at - s->faults.records[0].at, MS(10000) * (i / MANY));
    assert_status(DIBS_OK, dibs_unlock_all(s->rt));
}

static void six_that_are_due_make_six(void **state)
{
    stage *s = *state;

    stage_open(s, LEASE);
    lock_many(s, 6);
    for (int i = 0; i < 1000; i++)
        stage_advance(s, MS(10)); /* awake a thousand times, due once */
    assert_int_equal(renewals(s), 6);
}

static void the_earliest_is_renewed_first(void **state)
{
    stage *s = *state;
    char name[32];

    stage_open(s, LEASE);
    for (unsigned i = 0; i < 50; i++) { /* the last has the shortest lease */
        snprintf(name, sizeof name, "%u", i);
        const dibs_lock_options options = {.lease_ms = 3000 - 30 * i};
        assert_status(DIBS_OK, dibs_lock_with(s->rt, name, 0, &options));
    }
    for (unsigned ms = 500; ms <= 1000; ms += 10)
        stage_advance(s, ms == 500 ? MS(500) : MS(10));
    for (unsigned i = 0; i < 50; i++) {
        snprintf(name, sizeof name, "%u", 49 - i);
        assert_string_equal(s->faults.records[i].name, name);
    }
}

/* ------------------------------------------------------------- failing */

static void a_batch_that_failed_is_tried_again(void **state)
{
    stage *s = *state;

    stage_open(s, LEASE);
    lock_many(s, 300);
    faults_renewal(&s->faults, DIBS_UNAVAILABLE, 3);
    stage_advance(s, MS(10000));
    assert_int_equal(stats_of(s->rt).renew_failed, 300);
    stage_advance(s, MS(1000)); /* a twentieth of the lease, but a second at most */
    assert_int_equal(stats_of(s->rt).renewed, 300 - DIBS__BATCH_MAX);
    stage_advance(s, MS(1000));
    assert_int_equal(stats_of(s->rt).renewed, 300);
    assert_int_equal(stats_of(s->rt).lost, 0);
    assert_int_equal(hold_of(s->rt, "many-0").remaining_ms / 10, believed(LEASE) / MS(10));
}

/* However the store refuses, the lease goes on until its deadline, and not a nanosecond longer. */
static void what_can_not_be_renewed_is_lost_at_its_deadline(void **state)
{
    static const dibs_status refusals[] = {DIBS_UNAVAILABLE, DIBS_DENIED, DIBS_STORE_ERROR, DIBS_NO_MEMORY};
    stage *s = *state;
    char name[32];

    stage_open(s, LEASE);
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        snprintf(name, sizeof name, "refused-%zu", i);
        faults_renewal(&s->faults, refusals[i], FOR_EVER);
        assert_status(DIBS_OK, dibs_lock(s->rt, name));
        uint64_t fence = fence_of(s->rt, name);
        stage_advance(s, believed(LEASE) - 1);
        assert_status(DIBS_OK, dibs_check(s->rt, name));
        assert_int_equal(events_count(&s->events, DIBS_EVENT_LOST, name), 0);
        stage_advance(s, 1);
        assert_status(DIBS_LOST, dibs_check(s->rt, name));
        recorded_event lost = events_await(&s->events, DIBS_EVENT_LOST, name);
        assert_non_null(strstr(lost.detail, dibs_status_name(refusals[i])));
        assert_int_equal(lost.fence, fence);
        assert_int_equal(stats_of(s->rt).lost, i + 1);
        assert_int_equal(faults_count(&s->faults, &s->faults.retractions), i + 1);
        assert_status(DIBS_LOST, dibs_unlock(s->rt, name));
    }
}

/* It was renewed since. Then all stood still for longer than the lease. */
static void an_old_failure_is_not_the_reason_of_a_new_loss(void **state)
{
    stage *s = *state;

    stage_open(s, LEASE);
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    faults_renewal(&s->faults, DIBS_DENIED, 1);
    stage_advance(s, MS(10000));
    assert_int_equal(stats_of(s->rt).renew_failed, 1);
    stage_advance(s, MS(2000));
    assert_int_equal(stats_of(s->rt).renewed, 1);
    moved_clock_advance(&s->clock, MS(LEASE));
    recorded_event lost = events_await(&s->events, DIBS_EVENT_LOST, "a");
    assert_null(strstr(lost.detail, dibs_status_name(DIBS_DENIED)));
    assert_status(DIBS_LOST, dibs_unlock(s->rt, "a"));
}

static void what_the_store_says_is_gone_is_lost_at_once(void **state)
{
    stage *s = *state;

    stage_open(s, LEASE);
    lock_many(s, 3);
    faults_renewal_gone(&s->faults, "many-1");
    stage_advance(s, MS(10000));
    assert_status(DIBS_OK, dibs_check(s->rt, "many-0"));
    assert_status(DIBS_LOST, dibs_check(s->rt, "many-1"));
    assert_status(DIBS_OK, dibs_check(s->rt, "many-2"));
    events_await(&s->events, DIBS_EVENT_LOST, "many-1");
    assert_int_equal(events_count(&s->events, DIBS_EVENT_LOST, NULL), 1);
    assert_int_equal(stats_of(s->rt).leases, 2);
    stage_advance(s, MS(10000));
    assert_int_equal(renewals(s), 5);
}

static void a_key_taken_by_another_hand_is_found_gone(void **state)
{
    stage *s = *state;

    stage_open(s, LEASE);
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    assert_status(DIBS_OK, dibs_force_unlock(s->rt, "a", NULL));
    assert_status(DIBS_OK, dibs_check(s->rt, "a")); /* not to be known without I/O */
    stage_advance(s, MS(10000));
    assert_status(DIBS_LOST, dibs_check(s->rt, "a"));
    assert_status(DIBS_LOST, dibs_unlock(s->rt, "a"));
}

static void at_risk_is_told_once_at_half_of_the_lease(void **state)
{
    stage *s = *state;

    stage_open(s, LEASE);
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    faults_renewal(&s->faults, DIBS_UNAVAILABLE, FOR_EVER);
    stage_advance(s, MS(LEASE / 2) - 1);
    assert_int_equal(events_count(&s->events, DIBS_EVENT_AT_RISK, NULL), 0);
    stage_advance(s, 1);
    recorded_event risk = events_await(&s->events, DIBS_EVENT_AT_RISK, "a");
    assert_int_equal(risk.fence, fence_of(s->rt, "a"));
    stage_advance(s, believed(LEASE) - MS(LEASE / 2) - 1);
    faults_renewal(&s->faults, DIBS_OK, 0);
    for (int i = 0; i < 6; i++)
        stage_advance(s, MS(5000) - (i == 0));
    assert_status(DIBS_LOST, dibs_check(s->rt, "a"));
    assert_int_equal(events_count(&s->events, DIBS_EVENT_AT_RISK, NULL), 1);
}

static void at_risk_is_told_again_after_a_renewal_that_succeeded(void **state)
{
    stage *s = *state;

    stage_open(s, LEASE);
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    for (unsigned i = 1; i <= 2; i++) {
        faults_renewal(&s->faults, DIBS_UNAVAILABLE, FOR_EVER);
        stage_advance(s, MS(16000));
        faults_renewal(&s->faults, DIBS_OK, 0);
        stage_advance(s, MS(1000));
        assert_int_equal(stats_of(s->rt).renewed, i);
    }
    stage_advance(s, MS(10000));
    assert_status(DIBS_OK, dibs_check(s->rt, "a"));
    dibs_close(s->rt); /* all events are told by then */
    s->rt = NULL;
    assert_int_equal(events_count(&s->events, DIBS_EVENT_AT_RISK, "a"), 2);
}

/* ------------------------------------------------------------- late answers */

static void an_answer_counts_from_when_its_request_was_sent(void **state)
{
    stage *s = *state;

    stage_open(s, LEASE);
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    faults_hold_renewals(&s->faults);
    stage_advance(s, MS(10000));
    stage_advance(s, MS(19000));
    assert_int_equal(renewals(s), 1); /* in flight: not sent again */
    faults_renewal(&s->faults, DIBS_UNAVAILABLE, FOR_EVER);
    faults_let_renewals_go(&s->faults);
    dibs__renewals_wake(s->rt->core->renewals);
    stage_settle(s);
    assert_int_equal(hold_of(s->rt, "a").remaining_ms, (believed(LEASE) - MS(19000)) / MS(1));
    assert_int_equal(renewals(s), 2); /* the next third had passed meanwhile */
}

/* The request reached the store in time and its answer did not: the holder was told LOST, and stays told. */
static void an_answer_after_the_deadline_heals_nothing(void **state)
{
    stage *s = *state;
    dibs_owner owner;

    stage_open(s, LEASE);
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    faults_hold_renewals(&s->faults);
    stage_advance(s, MS(10000));
    faults_let_renewals_go(&s->faults); /* told when the scheduler wakes: at the deadline */
    moved_clock_advance(&s->clock, believed(LEASE) - MS(10000));
    assert_status(DIBS_LOST, dibs_check(s->rt, "a"));
    stage_settle(s);
    assert_status(DIBS_LOST, dibs_check(s->rt, "a"));
    assert_int_equal(stats_of(s->rt).lost, 1);
    assert_status(DIBS_OK, dibs_query(s->rt, "a", &owner)); /* the store had prolonged it: retracted */
    assert_false(owner.held);
    assert_status(DIBS_LOST, dibs_unlock(s->rt, "a"));
}

static void an_answer_for_a_lock_that_was_released_is_thrown_away(void **state)
{
    stage *s = *state;

    stage_open(s, LEASE);
    lock_many(s, 2);
    faults_hold_renewals(&s->faults);
    stage_advance(s, MS(10000));
    assert_status(DIBS_OK, dibs_unlock(s->rt, "many-0"));
    assert_status(DIBS_OK, dibs_lock(s->rt, "many-0")); /* a new lease of the same name */
    faults_renewal_gone(&s->faults, "many-0");
    faults_let_renewals_go(&s->faults);
    dibs__renewals_wake(s->rt->core->renewals);
    stage_settle(s);
    assert_int_equal(stats_of(s->rt).renewed, 1);
    assert_status(DIBS_OK, dibs_check(s->rt, "many-0"));
    assert_int_equal(stats_of(s->rt).lost, 0);
}

static void closing_while_a_renewal_is_in_flight(void **state)
{
    stage *s = *state;

    stage_open(s, LEASE);
    lock_many(s, 300);
    faults_hold_renewals(&s->faults);
    stage_advance(s, MS(10000));
    dibs_close(s->rt);
    s->rt = NULL;
    assert_int_equal(events_count(&s->events, DIBS_EVENT_LOST, NULL), 0);
}

/* ------------------------------------------------------------------ fixed */

static void a_fixed_lease_is_never_renewed_and_ends_on_time(void **state)
{
    stage *s = *state;

    stage_open(s, LEASE);
    assert_status(DIBS_OK, dibs_lock_with(s->rt, "a", 0, &fixed));
    stage_advance(s, believed(LEASE) - 1);
    assert_status(DIBS_OK, dibs_check(s->rt, "a"));
    stage_advance(s, 1);
    assert_status(DIBS_LOST, dibs_check(s->rt, "a"));
    events_await(&s->events, DIBS_EVENT_LOST, "a");
    assert_int_equal(events_count(&s->events, DIBS_EVENT_AT_RISK, NULL), 0);
    assert_int_equal(renewals(s), 0);
}

/* ----------------------------------------------- another server answers now */

#define HOUR (INT64_C(3600) * 1000) /* ms */

struct extension {
    dibs_runtime *rt;
    dibs_status status;
};

static void extend_a(void *arg)
{
    struct extension *extension = arg;

    extension->status = dibs_extend(extension->rt, "a", LEASE);
}

/* As the store does it: on the scheduler's thread, or on none while that sleeps. */
static void another_server(stage *s, uint64_t number)
{
    stage_settle(s);
    dibs__renewals_doubt_all(s->rt->core->renewals, number);
    stage_settle(s);
}

static void another_server_is_asked_for_all_leases_at_once(void **state)
{
    stage *s = *state;

    stage_open(s, LEASE);
    lock_many(s, 300);
    stage_advance(s, MS(1));
    another_server(s, 1);
    assert_int_equal(renewals(s), 300);
    assert_int_equal(batches(s), 2);
    for (unsigned i = 0; i < 300; i++)
        assert_true(s->faults.records[i].lease_ms == LEASE && s->faults.records[i].set_again);
    assert_int_equal(hold_of(s->rt, "many-0").remaining_ms, believed(LEASE) / MS(1));
    stage_advance(s, MS(10000) - 1); /* and then a third of a lease later, as ever */
    assert_int_equal(renewals(s), 300);
    stage_advance(s, 1);
    assert_int_equal(renewals(s), 600);
    assert_int_equal(stats_of(s->rt).lost, 0);
}

/* Also those that are never renewed: with what they have left, and they end when they would have ended. */
static void a_fixed_lease_keeps_its_end_at_another_server(void **state)
{
    stage *s = *state;

    stage_open(s, LEASE);
    assert_status(DIBS_OK, dibs_lock_with(s->rt, "a", 0, &fixed));
    stage_advance(s, MS(12000));
    int64_t left = hold_of(s->rt, "a").remaining_ms;
    assert_int_equal(left, (believed(LEASE) - MS(12000)) / MS(1));
    faults_renewal(&s->faults, DIBS_UNAVAILABLE, 1);
    another_server(s, 1);
    assert_int_equal(renewals(s), 1);
    assert_int_equal(last_renewal(s).lease_ms, left + 1);
    stage_advance(s, MS(1000)); /* it failed, and is tried again */
    assert_int_equal(renewals(s), 2);
    assert_int_equal(last_renewal(s).lease_ms, left + 1 - 1000);
    assert_int_equal(hold_of(s->rt, "a").remaining_ms, left - 1000);
    stage_advance(s, believed(LEASE) - MS(13000) - 1);
    assert_int_equal(renewals(s), 2);
    assert_status(DIBS_OK, dibs_check(s->rt, "a"));
    stage_advance(s, 1);
    assert_status(DIBS_LOST, dibs_check(s->rt, "a"));
}

/* An extension that its caller gave up takes nothing from the renewal that is due. */
static void a_fixed_lease_is_in_doubt_until_it_is_answered(void **state)
{
    stage *s = *state;
    actor *other = actor_start();

    s->settings.command_timeout_ms = 5;
    stage_open(s, LEASE);
    assert_status(DIBS_OK, actor_lock_with(other, s->rt, "a", 0, &fixed));
    faults_renewal(&s->faults, DIBS_UNAVAILABLE, FOR_EVER);
    another_server(s, 1);
    struct extension e = {s->rt, DIBS_INVALID};
    actor_begin(other, extend_a, &e);
    stage_await_waiting(s, 1);
    stage_advance(s, MS(5)); /* its time, before the next try */
    actor_finish(other);
    assert_status(DIBS_UNAVAILABLE, e.status);
    faults_renewal(&s->faults, DIBS_OK, 0);
    stage_advance(s, MS(1000));
    assert_int_equal(stats_of(s->rt).renewed, 1);
    assert_status(DIBS_OK, actor_unlock(other, s->rt, "a"));
    actor_end(other);
}

static void extend_briefly(void *arg)
{
    struct extension *extension = arg;

    extension->status = dibs_extend(extension->rt, "a", 400);
}

/* To a shorter time: the lease is as long as it was at the store, and renewed in time to be so here. */
static void an_extension_that_is_refused_costs_no_lease(void **state)
{
    stage *s = *state;
    actor *other = actor_start();

    stage_open(s, LEASE);
    struct extension e = {.rt = s->rt};
    assert_status(DIBS_OK, actor_lock(other, s->rt, "a", 0));
    faults_renewal(&s->faults, DIBS_DENIED, 1);
    actor_begin(other, extend_briefly, &e);
    actor_finish(other);
    assert_status(DIBS_DENIED, e.status);
    for (int ms = 0; ms < 2000; ms += 50)
        stage_advance(s, MS(50));
    assert_status(DIBS_OK, actor_check(other, s->rt, "a"));
    assert_status(DIBS_OK, actor_unlock(other, s->rt, "a"));
    actor_end(other);
}

static void extend_to_a_minute(void *arg)
{
    struct extension *extension = arg;

    extension->status = dibs_extend(extension->rt, "a", 60000);
}

/* Its caller has left, and was told that it is not known what came of it: nobody asks for it once more. */
static void an_extension_that_was_left_is_not_repeated(void **state)
{
    stage *s = *state;
    actor *other = actor_start();

    stage_open(s, LEASE);
    assert_status(DIBS_OK, actor_lock(other, s->rt, "a", 0));
    struct extension e = {s->rt, DIBS_INVALID};
    faults_hold_renewals(&s->faults);
    faults_renewal(&s->faults, DIBS_UNAVAILABLE, 1);
    actor_begin(other, extend_to_a_minute, &e);
    stage_await_waiting(s, 1);
    stage_advance(s, MS(1000)); /* the command timeout */
    actor_finish(other);
    assert_status(DIBS_UNAVAILABLE, e.status);
    assert_int_equal(renewals(s), 1);
    assert_int_equal(last_renewal(s).lease_ms, 60000);
    faults_let_renewals_go(&s->faults);
    dibs__renewals_wake(s->rt->core->renewals);
    stage_settle(s);
    stage_advance(s, MS(10000));
    assert_true(renewals(s) > 1);
    for (unsigned i = 1; i < renewals(s); i++)
        assert_int_equal(s->faults.records[i].lease_ms, LEASE);
    assert_status(DIBS_OK, actor_unlock(other, s->rt, "a"));
    actor_end(other);
}

/* Past the hour another may have had it, and the store forgotten that. */
static void what_was_proved_an_hour_ago_is_not_set_again(void **state)
{
    const dibs_lock_options day = {.lease_ms = 86400000, .flags = DIBS_FIXED_LEASE};
    stage *s = *state;

    stage_open(s, LEASE);
    assert_status(DIBS_OK, dibs_lock_with(s->rt, "a", 0, &day));
    stage_advance(s, MS(HOUR * 9 / 10));
    another_server(s, 1);
    assert_true(last_renewal(s).set_again);
    stage_advance(s, MS(HOUR));
    another_server(s, 2);
    assert_int_equal(renewals(s), 2);
    assert_false(last_renewal(s).set_again);
}

struct release {
    stage *s;
    const char *name;
    dibs_status status;
};

static void unlock_it(void *arg)
{
    struct release *release = arg;

    release->status = dibs_unlock(release->s->rt, release->name);
}

/* It may have to be set again there, and the answer to that is not there yet. */
static void begin_unlock_at_another_server(actor *holder, struct release *release, uint32_t lease_ms)
{
    stage *s = release->s;

    stage_open(s, lease_ms);
    assert_status(DIBS_OK, actor_lock(holder, s->rt, release->name, 0));
    faults_hold_renewals(&s->faults);
    another_server(s, 1);
    actor_begin(holder, unlock_it, release);
    stage_await_waiting(s, 1);
}

/* What is released is not set again behind its release: an unlock waits for the answer. */
static void an_unlock_waits_for_the_answer_of_another_server(void **state)
{
    stage *s = *state;
    actor *holder = actor_start();
    struct release release = {s, "a", DIBS_INVALID};

    begin_unlock_at_another_server(holder, &release, LEASE);
    assert_true(actor_busy(holder));
    assert_int_equal(faults_count(&s->faults, &s->faults.releases), 0);
    faults_let_renewals_go(&s->faults);
    dibs__renewals_wake(s->rt->core->renewals);
    actor_finish(holder);
    assert_status(DIBS_OK, release.status);
    assert_int_equal(faults_count(&s->faults, &s->faults.releases), 1);
    assert_int_equal(faults_count(&s->faults, &s->faults.retractions), 0);
    actor_end(holder);
}

/* For half of its time: then it releases, and retracts behind what is still under way. */
static void an_unlock_waits_only_so_long_for_another_server(void **state)
{
    stage *s = *state;
    actor *holder = actor_start();
    struct release release = {s, "a", DIBS_INVALID};

    begin_unlock_at_another_server(holder, &release, LEASE);
    moved_clock_advance(&s->clock, MS(500) - 1);
    stage_await_waiting(s, 1);
    assert_int_equal(faults_count(&s->faults, &s->faults.releases), 0);
    moved_clock_advance(&s->clock, 1);
    actor_finish(holder);
    assert_status(DIBS_OK, release.status);
    assert_int_equal(faults_count(&s->faults, &s->faults.releases), 1);
    assert_int_equal(faults_count(&s->faults, &s->faults.retractions), 1);
    faults_let_renewals_go(&s->faults);
    actor_end(holder);
}

static bool is_back(void *arg)
{
    return !actor_busy(arg);
}

/* What can't be set again any more is not waited for: the lease is over before that half is. */
static void an_unlock_stops_waiting_when_its_lease_is_lost(void **state)
{
    stage *s = *state;
    actor *holder = actor_start();
    struct release release = {s, "a", DIBS_INVALID};

    begin_unlock_at_another_server(holder, &release, 300);
    moved_clock_advance(&s->clock, believed(300));
    bool woken = wait_until(is_back, holder, LIMIT_MS);
    moved_clock_advance(&s->clock, MS(500)); /* so that the thread ends, whatever came of it */
    actor_finish(holder);
    assert_true(woken);
    assert_true(release.status == DIBS_LOST || release.status == DIBS_OK); /* whose key outlasts it by the margin */
    faults_let_renewals_go(&s->faults);
    actor_end(holder);
}

/* Its connection broke: it may have reached the store all the same, and come there after the release. */
static void an_unlock_is_retracted_behind_a_request_without_an_answer(void **state)
{
    stage *s = *state;
    actor *holder = actor_start();
    struct release release = {s, "a", DIBS_INVALID};

    stage_open(s, LEASE);
    assert_status(DIBS_OK, actor_lock(holder, s->rt, "a", 0));
    faults_renewal(&s->faults, DIBS_UNAVAILABLE, FOR_EVER);
    another_server(s, 1);
    assert_int_equal(renewals(s), 1);
    actor_begin(holder, unlock_it, &release);
    stage_await_waiting(s, 1);
    moved_clock_advance(&s->clock, MS(500));
    actor_finish(holder);
    assert_status(DIBS_OK, release.status);
    assert_int_equal(faults_count(&s->faults, &s->faults.retractions), 1);
    actor_end(holder);
}

/* An ordinary renewal can't set anything again: nobody waits for it. */
static void an_unlock_waits_for_no_other_renewal(void **state)
{
    stage *s = *state;

    stage_open(s, LEASE);
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    faults_hold_renewals(&s->faults);
    stage_advance(s, MS(10000));
    assert_int_equal(renewals(s), 1);
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    assert_int_equal(faults_count(&s->faults, &s->faults.retractions), 0);
    faults_let_renewals_go(&s->faults);
}

/* The connection of its thread was to another server than the scheduler's by then. */
static void a_lease_that_another_server_granted_is_renewed_at_once(void **state)
{
    stage *s = *state;

    stage_open(s, LEASE);
    another_server(s, 1);
    assert_status(DIBS_OK, dibs_lock(s->rt, "a")); /* the store in memory says 0 */
    stage_settle(s);
    assert_int_equal(renewals(s), 1);
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
}

/* As the store says which server granted the lease, so it is known: of the one that is asked anyway nothing is in
 * doubt. */
static void a_lease_of_the_server_that_is_asked_has_its_time(void **state)
{
    static const struct {
        uint64_t server;
        unsigned renewals; /* at once */
    } rows[] = {{7, 0}, {8, 1}, {0, 1}};
    stage *s = *state;

    stage_open(s, LEASE);
    another_server(s, 7);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct dibs__renewals *r = s->rt->core->renewals;
        struct dibs__lease *lease = dibs__lease_new(s->rt->serial, "a", 1);
        unsigned before = renewals(s);
        lease->asked_ms = LEASE;
        atomic_store(&lease->deadline, moved_clock_now(&s->clock) + believed(LEASE));
        assert_true(dibs__renewals_reserve(r));
        dibs__renewals_add(r, lease, LEASE, moved_clock_now(&s->clock), rows[i].server);
        stage_settle(s);
        assert_int_equal(renewals(s), before + rows[i].renewals);
        assert_true(dibs__renewals_remove(r, lease));
        dibs__lease_unref(lease);
    }
}

/* ---------------------------------------------------------------- suspend */

static void after_hours_of_suspend_everything_is_lost_and_nothing_renewed(void **state)
{
    stage *s = *state;

    stage_open(s, LEASE);
    lock_many(s, 300);
    stage_advance(s, MS(INT64_C(8) * 3600 * 1000));
    assert_int_equal(renewals(s), 0);
    assert_int_equal(stats_of(s->rt).lost, 300);
    assert_int_equal(stats_of(s->rt).leases, 0);
    assert_int_equal(stats_of(s->rt).holds, 300);
    assert_status(DIBS_LOST, dibs_check(s->rt, "many-0"));
    assert_status(DIBS_LOST, dibs_check(s->rt, "many-299"));
    assert_status(DIBS_LOST, dibs_unlock_all(s->rt));
    assert_status(DIBS_OK, dibs_trylock(s->rt, "many-0"));
    assert_status(DIBS_OK, dibs_unlock(s->rt, "many-0"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, stage_setup, stage_teardown)
    const struct CMUnitTest tests[] = {
        TEST(renewal_comes_exactly_at_its_time),
        TEST(a_lease_of_its_own_is_renewed_at_its_own_third),
        TEST(a_nested_acquire_with_a_shorter_lease_shortens_nothing),
        TEST(nothing_is_renewed_after_the_unlock),
        TEST(many_leases_are_renewed_once_a_period_in_few_batches),
        TEST(six_that_are_due_make_six),
        TEST(the_earliest_is_renewed_first),
        TEST(a_batch_that_failed_is_tried_again),
        TEST(what_can_not_be_renewed_is_lost_at_its_deadline),
        TEST(an_old_failure_is_not_the_reason_of_a_new_loss),
        TEST(what_the_store_says_is_gone_is_lost_at_once),
        TEST(a_key_taken_by_another_hand_is_found_gone),
        TEST(at_risk_is_told_once_at_half_of_the_lease),
        TEST(at_risk_is_told_again_after_a_renewal_that_succeeded),
        TEST(an_answer_counts_from_when_its_request_was_sent),
        TEST(an_answer_after_the_deadline_heals_nothing),
        TEST(an_answer_for_a_lock_that_was_released_is_thrown_away),
        TEST(closing_while_a_renewal_is_in_flight),
        TEST(a_fixed_lease_is_never_renewed_and_ends_on_time),
        TEST(another_server_is_asked_for_all_leases_at_once),
        TEST(a_fixed_lease_keeps_its_end_at_another_server),
        TEST(a_fixed_lease_is_in_doubt_until_it_is_answered),
        TEST(an_extension_that_was_left_is_not_repeated),
        TEST(what_was_proved_an_hour_ago_is_not_set_again),
        TEST(an_unlock_waits_for_the_answer_of_another_server),
        TEST(an_unlock_waits_only_so_long_for_another_server),
        TEST(an_unlock_stops_waiting_when_its_lease_is_lost),
        TEST(an_unlock_is_retracted_behind_a_request_without_an_answer),
        TEST(an_unlock_waits_for_no_other_renewal),
        TEST(a_lease_that_another_server_granted_is_renewed_at_once),
        TEST(a_lease_of_the_server_that_is_asked_has_its_time),
        TEST(an_extension_that_is_refused_costs_no_lease),
        TEST(after_hours_of_suspend_everything_is_lost_and_nothing_renewed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
