/* Renewal: what is renewed, exactly when, and in how many batches. */
#include "core/holds.h"
#include "core/runtime.h"
#include "support/fixture.h"
#include "unit/renewal_setup.h"

/* ---------------------------------------------------------------------- when */

/* With lease_ms and renew_ms, each renewal is sent exactly `period` ns after the one before, and none earlier. */
static const struct pace {
    uint32_t lease_ms, renew_ms;
    int64_t period;
} paces[] = {
    {30000, 0, MS(10000)},       {20, 0, MS(20) / 3},       {1000, 0, MS(1000) / 3},
    {30000, 5000, MS(5000)},     {30000, 15000, MS(10000)}, /* a third of the lease is sooner */
    {86400000, 0, MS(28800000)}, {86400000, 1, MS(1)},
};

TEST_WITH(a_renewal_comes_exactly_at_its_time, stage_setup, stage_teardown, stage *s)
{
    for (size_t i = 0; i < sizeof paces / sizeof paces[0]; i++) {
        const struct pace *pace = &paces[i];
        s->settings.renew_ms = pace->renew_ms;
        stage_open(s, pace->lease_ms);
        assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
        for (unsigned round = 0; round < 4; round++) {
            unsigned before = renewals(s);
            expect_renewals_after(s, pace->period - 1, before);
            expect_renewals_after(s, 1, before + 1);
            assert_int_equal(last_renewal(s).lease_ms, pace->lease_ms);
            assert_status(DIBS_OK, dibs_check(s->rt, "a"));
        }
        assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
        close_runtime(&s->rt);
    }
}

TEST_WITH(a_lease_of_its_own_is_renewed_at_its_own_third, stage_setup, stage_teardown, stage *s)
{
    const dibs_lock_options short_lease = {.lease_ms = 300};

    s->settings.renew_ms = 5000;
    stage_open(s, LEASE);
    assert_status(DIBS_OK, dibs_lock(s->rt, "long"));
    assert_status(DIBS_OK, dibs_lock_with(s->rt, "short", 0, &short_lease));
    expect_renewals_after(s, MS(100), 1);
    assert_string_equal(last_renewal(s).name, "short");
    assert_int_equal(last_renewal(s).lease_ms, 300);
}

TEST_ON(a_nested_acquire_with_a_shorter_lease_shortens_nothing, stage *s)
{
    const dibs_lock_options short_and_fixed = {.lease_ms = 20, .flags = DIBS_FIXED_LEASE};

    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    assert_status(DIBS_OK, dibs_lock_with(s->rt, "a", 0, &short_and_fixed));
    assert_int_equal(hold_of(s->rt, "a").remaining_ms, believed(LEASE) / MS(1));
    stage_advance(s, MS(10000));
    assert_int_equal(last_renewal(s).lease_ms, LEASE);
    assert_int_equal(hold_of(s->rt, "a").remaining_ms, believed(LEASE) / MS(1));
}

TEST_ON(nothing_is_renewed_after_the_unlock, stage *s)
{
    lock_and_release(s->rt, "a", DIBS_WAIT_FOREVER);
    assert_int_equal(stats_of(s->rt).leases, 0);
    expect_renewals_after(s, MS(LEASE) * 3, 0);
    assert_int_equal(stats_of(s->rt).lost, 0);
}

/* ---------------------------------------------------------------------- many */

#define MANY 1000

TEST_ON(many_leases_are_renewed_once_a_period_in_few_batches, stage *s)
{
    lock_many(s, MANY);
    for (unsigned period = 1; period <= 3; period++) {
        expect_renewals_after(s, MS(10000), period * MANY);
        assert_int_equal(batches(s), period * ((MANY + DIBS__BATCH_MAX - 1) / DIBS__BATCH_MAX));
    }
    assert_int_equal(stats_of(s->rt).renewed, 3 * MANY);
    for (unsigned i = 0; i < 3 * MANY;
         i++) /* in the order in which they fell due: one round ends before the next begins */
        assert_int_equal(s->faults.records[i].at - s->faults.records[0].at, MS(10000) * (i / MANY));
    assert_status(DIBS_OK, dibs_unlock_all(s->rt));
}

TEST_ON(six_due_leases_make_six_renewals, stage *s)
{
    lock_many(s, 6);
    for (int i = 0; i < 1000; i++)
        stage_advance(s, MS(10)); /* awake a thousand times, due once */
    assert_int_equal(renewals(s), 6);
}

/*
 * Leases of 6 s that were acquired at different times: 1,000 take at most 5
 * requests a second, and none waits longer than a third. Once they go together
 * none is renewed more often than once a third.
 */
TEST_ON(leases_due_soon_join_the_batch, stage *s)
{
    const dibs_lock_options options = {.lease_ms = 6000};
    char name[32];

    for (unsigned i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "%u", i);
        assert_status(DIBS_OK, dibs_lock_with(s->rt, name, 0, &options));
        if (i % 5 == 4)
            stage_advance(s, MS(10));
    }
    for (unsigned period = 1; period <= 4; period++) {
        for (unsigned ms = 0; ms < 2000; ms += 10)
            stage_advance(s, MS(10));
        assert_in_range(renewals(s), period * MANY, period * MANY + MANY / 4);
        assert_in_range(batches(s), 1, period * 10);
        assert_int_equal(hold_of(s->rt, "0").remaining_ms > 3900, 1);
        assert_int_equal(hold_of(s->rt, "999").remaining_ms > 3900, 1);
    }
    assert_status(DIBS_OK, dibs_unlock_all(s->rt));
}

/* A retry has its own pace, whatever else is sent. */
TEST_ON(failed_renewals_do_not_join_the_batch, stage *s)
{
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    stage_advance(s, MS(500));
    assert_status(DIBS_OK, dibs_lock_with(s->rt, "b", 0, &(dibs_lock_options){.lease_ms = 3 * 10200}));
    faults_renewal(&s->faults, DIBS_UNAVAILABLE, 1);
    stage_advance(s, MS(9500)); /* "b" goes along with "a", and both fail */
    assert_int_equal(renewals(s), 2);
    assert_status(DIBS_OK, dibs_lock_with(s->rt, "c", 0, &(dibs_lock_options){.lease_ms = 3 * 800}));
    expect_renewals_after(s, MS(800), 3);
    assert_string_equal(last_renewal(s).name, "c");
    expect_renewals_after(s, MS(200), 5);
}

TEST_ON(the_earliest_is_renewed_first, stage *s)
{
    char name[32];

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

/* What may have to be retracted later lasts as long as the longest extension. */
TEST_ON(the_longest_extension_is_known, stage *s)
{
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    const struct dibs__lease *lease = dibs__holds_find(s->rt->serial, "a", 1)->lease;
    assert_int_equal(dibs__lease_longest_ms(lease), LEASE);
    for (uint32_t times = 3; times > 1; times--) {
        assert_status(DIBS_OK, dibs_extend(s->rt, "a", times * LEASE));
        assert_int_equal(dibs__lease_longest_ms(lease), 3 * LEASE);
    }
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
}

/* --------------------------------------------------------------------- fixed */

TEST_ON(a_fixed_lease_is_never_renewed_and_ends_on_time, stage *s)
{
    assert_status(DIBS_OK, dibs_lock_with(s->rt, "a", 0, &fixed));
    stage_advance(s, believed(LEASE) - 1);
    assert_status(DIBS_OK, dibs_check(s->rt, "a"));
    stage_advance(s, 1);
    assert_status(DIBS_LOST, dibs_check(s->rt, "a"));
    assert_string_equal(events_await(&s->events, DIBS_EVENT_LOST, "a").detail, "the lease ended under its holder");
    assert_int_equal(events_count(&s->events, DIBS_EVENT_AT_RISK, NULL), 0);
    assert_int_equal(renewals(s), 0);
}

/* ------------------------------------------------------------------- suspend */

TEST_ON(after_hours_of_suspend_everything_is_lost_and_nothing_renewed, stage *s)
{
    lock_many(s, 300);
    expect_renewals_after(s, MS(INT64_C(8) * 3600 * 1000), 0);
    assert_int_equal(stats_of(s->rt).lost, 300);
    assert_int_equal(stats_of(s->rt).leases, 0);
    assert_int_equal(stats_of(s->rt).holds, 300);
    assert_status(DIBS_LOST, dibs_check(s->rt, "many-0"));
    assert_status(DIBS_LOST, dibs_check(s->rt, "many-299"));
    assert_status(DIBS_LOST, dibs_unlock_all(s->rt));
    lock_and_release(s->rt, "many-0", 0);
}

TESTS(stage_setup_open, stage_teardown)
