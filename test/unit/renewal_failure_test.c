/* Renewals that fail or are answered late: when a lease is at risk, when it is lost, and which events tell of it. */
#include "support/fixture.h"
#include "unit/renewal_setup.h"

/* ------------------------------------------------------------------- failing */

TEST_ON(a_batch_that_failed_is_tried_again, stage *s)
{
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

/* Whatever the refusal of the store, the lease lasts until its deadline, and not a nanosecond longer. */
TEST_ON(a_lease_that_cannot_be_renewed_is_lost_at_its_deadline, stage *s)
{
    static const dibs_status refusals[] = {DIBS_UNAVAILABLE, DIBS_DENIED, DIBS_STORE_ERROR, DIBS_NO_MEMORY};
    char name[32];

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

/* The lease was renewed after the failure; then everything stalled for longer than the lease. */
TEST_ON(an_old_failure_is_not_the_reason_of_a_new_loss, stage *s)
{
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

/* They are renewed by different requests, as the leases of two nodes of a cluster are. */
TEST_ON(the_reason_of_another_lease_is_not_told, stage *s)
{
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    faults_renewal(&s->faults, DIBS_DENIED, FOR_EVER);
    stage_advance(s, MS(10000));
    for (int i = 0; i < 4; i++)
        stage_advance(s, MS(1000));
    assert_int_equal(stats_of(s->rt).renew_failed, 5);
    faults_renewal(&s->faults, DIBS_STORE_ERROR, FOR_EVER);
    assert_status(DIBS_OK, dibs_lock_with(s->rt, "b", 0, &(dibs_lock_options){.lease_ms = 2100}));
    stage_advance(s, MS(750));
    assert_int_equal(stats_of(s->rt).renew_failed, 6); /* that of b */
    stage_advance(s, MS(250));
    recorded_event risk = events_await(&s->events, DIBS_EVENT_AT_RISK, "a");
    assert_non_null(strstr(risk.detail, dibs_status_name(DIBS_DENIED)));
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    assert_status(DIBS_OK, dibs_unlock(s->rt, "b"));
}

/* A cluster has at most 128 nodes. */
TEST_ON(each_lease_knows_its_reason_however_many_there_are, stage *s)
{
    const unsigned count = 128;
    char name[32];

    lock_many(s, count);
    faults_set(&s->faults, &s->faults.apart, true);
    faults_renewal(&s->faults, DIBS_UNAVAILABLE, FOR_EVER);
    for (int i = 0; i < 15; i++)
        stage_advance(s, MS(1000));
    for (unsigned i = 0; i < count; i++) {
        snprintf(name, sizeof name, "many-%u", i);
        recorded_event risk = events_await(&s->events, DIBS_EVENT_AT_RISK, name);
        assert_non_null(strstr(risk.detail, name));
    }
    faults_renewal(&s->faults, DIBS_OK, 0);
    assert_status(DIBS_OK, dibs_unlock_all(s->rt));
}

TEST_ON(a_lease_that_the_store_says_is_gone_is_lost_at_once, stage *s)
{
    lock_many(s, 3);
    faults_renewal_gone(&s->faults, "many-1");
    stage_advance(s, MS(10000));
    assert_status(DIBS_OK, dibs_check(s->rt, "many-0"));
    assert_status(DIBS_LOST, dibs_check(s->rt, "many-1"));
    assert_status(DIBS_OK, dibs_check(s->rt, "many-2"));
    events_await(&s->events, DIBS_EVENT_LOST, "many-1");
    assert_int_equal(events_count(&s->events, DIBS_EVENT_LOST, NULL), 1);
    assert_int_equal(stats_of(s->rt).leases, 2);
    expect_renewals_after(s, MS(10000), 5);
}

TEST_ON(a_key_taken_by_another_hand_is_found_gone, stage *s)
{
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    assert_status(DIBS_OK, dibs_force_unlock(s->rt, "a", NULL));
    assert_status(DIBS_OK, dibs_check(s->rt, "a")); /* the loss cannot be known without I/O */
    stage_advance(s, MS(10000));
    assert_status(DIBS_LOST, dibs_check(s->rt, "a"));
    assert_status(DIBS_LOST, dibs_unlock(s->rt, "a"));
}

TEST_ON(at_risk_is_told_once_at_half_of_the_lease, stage *s)
{
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

TEST_ON(at_risk_is_told_again_after_a_renewal_that_succeeded, stage *s)
{
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

TEST_ON(at_risk_is_told_at_half_of_what_an_extension_may_leave, stage *s)
{
    actor *a = actor_start();

    assert_status(DIBS_OK, actor_lock(a, s->rt, "a", 0));
    faults_hold_renewals(&s->faults);
    actor_begin_extend(a, s->rt, "a", 800);
    await_that(renewals(s) == 1);
    stage_advance(s, MS(400) - 1);
    assert_int_equal(events_count(&s->events, DIBS_EVENT_AT_RISK, NULL), 0);
    stage_advance(s, 1);
    events_await(&s->events, DIBS_EVENT_AT_RISK, "a");
    stage_let_renewals_go(s);
    assert_status(DIBS_OK, actor_result(a));
    assert_status(DIBS_OK, actor_unlock(a, s->rt, "a"));
}

/* -------------------------------------------------------------- late answers */

TEST_ON(an_answer_counts_from_when_its_request_was_sent, stage *s)
{
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    faults_hold_renewals(&s->faults);
    stage_advance(s, MS(10000));
    expect_renewals_after(s, MS(19000), 1); /* under way, so not sent again */
    faults_renewal(&s->faults, DIBS_UNAVAILABLE, FOR_EVER);
    stage_let_renewals_go(s);
    stage_settle(s);
    assert_int_equal(hold_of(s->rt, "a").remaining_ms, (believed(LEASE) - MS(19000)) / MS(1));
    assert_int_equal(renewals(s), 2); /* the next third had passed meanwhile */
}

/*
 * The request reached the store in time, and its answer came too late: the holder was told DIBS_LOST, and that is
 * final.
 */
TEST_ON(an_answer_after_the_deadline_undoes_no_loss, stage *s)
{
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    faults_hold_renewals(&s->faults);
    stage_advance(s, MS(10000));
    faults_let_renewals_go(&s->faults); /* told when the scheduler wakes: at the deadline */
    moved_clock_advance(&s->clock, believed(LEASE) - MS(10000));
    assert_status(DIBS_LOST, dibs_check(s->rt, "a"));
    stage_settle(s);
    assert_status(DIBS_LOST, dibs_check(s->rt, "a"));
    assert_int_equal(stats_of(s->rt).lost, 1);
    dibs_owner owner = owner_of(s->rt, "a"); /* the store had prolonged the lease: it was retracted */
    assert_false(owner.held);
    assert_status(DIBS_LOST, dibs_unlock(s->rt, "a"));
}

TEST_ON(an_answer_for_a_lock_that_was_released_is_thrown_away, stage *s)
{
    lock_many(s, 2);
    faults_hold_renewals(&s->faults);
    stage_advance(s, MS(10000));
    assert_status(DIBS_OK, dibs_unlock(s->rt, "many-0"));
    assert_status(DIBS_OK, dibs_lock(s->rt, "many-0")); /* a new lease of the same name */
    faults_renewal_gone(&s->faults, "many-0");
    stage_let_renewals_go(s);
    stage_settle(s);
    assert_int_equal(stats_of(s->rt).renewed, 1);
    assert_status(DIBS_OK, dibs_check(s->rt, "many-0"));
    assert_int_equal(stats_of(s->rt).lost, 0);
}

TEST_ON(closing_with_a_renewal_in_flight_is_safe, stage *s)
{
    lock_many(s, 300);
    faults_hold_renewals(&s->faults);
    stage_advance(s, MS(10000));
    close_runtime(&s->rt);
    assert_int_equal(events_count(&s->events, DIBS_EVENT_LOST, NULL), 0);
}

TESTS(stage_setup_open, stage_teardown)
