/* Leases that are not handed over: the waiter then gets one of its own from the store. */
#include "unit/handover_setup.h"

/* The waiter gets a lease of its own, by the one command of the unlock. */
static void expect_not_handed_over(stage *s, const dibs_lock_options *wanted, bool asked_before)
{
    uint64_t fence = fence_of(s->rt, "a"), handed_off = stats_of(s->rt).handed_off;
    actor *next = stage_waiter_with(s, "a", FOREVER, wanted, 1);

    moved_clock_advance(&s->clock, LONG);
    dibs_owner before = owner_of(s->rt, "a");
    struct asked then = asked(s);
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    assert_status(DIBS_OK, actor_result(next));
    expect_asked(s, then, 1, 1, asked_before ? 0 : 1);
    dibs_owner after = owner_of(s->rt, "a");
    assert_string_not_equal(before.token, after.token);
    assert_true(fence_in(next, s->rt) > fence);
    assert_int_equal(fence_in(next, s->rt) % DIBS__FENCE_STEPS, 0);
    assert_int_equal(stats_of(s->rt).handed_off, handed_off);
    assert_status(DIBS_OK, actor_unlock(next, s->rt, "a"));
    expect_nothing_left(s);
}

TEST_ON(a_lease_with_other_options_is_not_handed_over, stage *s)
{
    static const dibs_lock_options the_default = {.lease_ms = LEASE},
                                   fixed_fair = {.flags = DIBS_FIXED_LEASE | DIBS_FAIR};
    static const struct {
        const dibs_lock_options *held, *wanted;
        bool asked_before; /* the waiter has its own place in the store's queue */
    } rows[] = {
        {&fixed, NULL, false},   {NULL, &fixed, false},       {&fixed, &fixed, false}, {&shorter, NULL, false},
        {NULL, &shorter, false}, {&shorter, &fixed, false},   {NULL, &fair, true},     {&fair, NULL, true},
        {&fair, &fair, true},    {&fixed, &fixed_fair, true},
    };

    s->settings.handoff_ms = FOR_LONG;
    stage_open(s, LEASE);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_status(DIBS_OK, dibs_lock_with(s->rt, "a", 0, rows[i].held));
        expect_not_handed_over(s, rows[i].wanted, rows[i].asked_before);
    }
    assert_status(
        DIBS_OK, dibs_lock(s->rt, "a")); /* the same length is the same lease, whether it was named or is the default */
    actor *next = stage_waiter_with(s, "a", FOREVER, &the_default, 1);
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    actor_finish(next);
    assert_int_equal(stats_of(s->rt).handed_off, 1);
    assert_status(DIBS_OK, actor_unlock(next, s->rt, "a"));
}

TEST_ON(no_lease_is_handed_over_where_that_is_switched_off, stage *s)
{
    s->settings.handoff_ms = DIBS_NO_HANDOFF;
    stage_open_holding(s, LEASE);
    expect_not_handed_over(s, NULL, false);
}

TEST_ON(an_extended_lease_is_not_handed_over, stage *s)
{
    static const uint32_t leases[] = {60000, LEASE, 29000};

    s->settings.handoff_ms = FOR_LONG;
    stage_open(s, LEASE);
    for (size_t i = 0; i < sizeof leases / sizeof leases[0]; i++) {
        assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
        assert_status(DIBS_OK, dibs_extend(s->rt, "a", leases[i]));
        expect_not_handed_over(s, NULL, false);
    }
}

/* The answer to the extension could make the lease longer or shorter than its next holder wants. */
TEST_ON(a_lease_with_an_extension_in_flight_is_not_handed_over, stage *s)
{
    s->settings.handoff_ms = FOR_LONG;
    stage_open(s, LEASE);
    actor *holder = actor_holding(s->rt, "a");
    faults_hold_renewals(&s->faults);
    actor_begin_extend(holder, s->rt, "a", 60000);
    stage_await_waiting(s, 1);
    stage_settle(s);
    moved_clock_advance(&s->clock, MS(1000));
    assert_status(DIBS_UNAVAILABLE, actor_result(holder));
    actor *next = stage_waiter(s, "a", FOREVER, 1);
    struct asked before = asked(s);
    assert_status(DIBS_OK, actor_unlock(holder, s->rt, "a"));
    assert_status(DIBS_OK, actor_result(next));
    expect_released_with_an_ask(s, before);
    stage_let_renewals_go(s);
    stage_settle(s);
    assert_status(DIBS_OK, actor_unlock(next, s->rt, "a"));
    expect_nothing_left(s);
}

/* Renewals get no answer: half of a lease is enough for handing over, less is not. */
TEST_ON(a_lease_more_than_half_over_is_not_handed_over, stage *s)
{
    int64_t half = believed(LEASE) - MS(LEASE) / 2;

    s->settings.handoff_ms = FOR_LONG;
    stage_open(s, LEASE);
    faults_renewal(&s->faults, DIBS_UNAVAILABLE, FOR_EVER);
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    stage_advance(s, half - LONG + 1);
    expect_not_handed_over(s, NULL, false);
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    actor *next = stage_waiter(s, "a", FOREVER, 1);
    stage_advance(s, half);
    struct asked before = asked(s);
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    assert_status(DIBS_OK, actor_result(next));
    expect_untouched(s, before);
    assert_status(DIBS_OK, actor_unlock(next, s->rt, "a"));
    expect_nothing_left(s);
}

TEST_ON(a_renewed_lease_is_handed_over_as_often_as_wanted, stage *s)
{
    s->settings.handoff_ms = FOR_LONG;
    stage_open_holding(s, LEASE);
    actor *next = stage_waiter(s, "a", FOREVER, 1);
    for (int i = 0; i < 100; i++)
        stage_advance(s, MS(LEASE) / 3);
    struct asked before = asked(s);
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    assert_status(DIBS_OK, actor_result(next));
    expect_untouched(s, before);
    for (int i = 0; i < 100; i++)
        stage_advance(s, MS(LEASE) / 3);
    assert_status(DIBS_OK, actor_check(next, s->rt, "a")); /* and renewed for the next */
    assert_status(DIBS_OK, actor_unlock(next, s->rt, "a"));
    expect_nothing_left(s);
}

TESTS(setup, stage_teardown)
