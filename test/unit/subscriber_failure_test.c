/* Failed subscriptions: which threads are told, and when the next try is made. */
#include "unit/subscriber_setup.h"

TEST_ON(a_waiter_without_the_channel_right_is_told_so, struct rig *r)
{
    struct waiter w;

    fake_redis_answer(r->fake, "SUBSCRIBE", NOPERM);
    begin(&w, r, DIBS__NEVER);
    ATTEND_UNTIL(r, r->errors == 1);
    expect_failed(&w, DIBS_DENIED);
    assert_non_null(strstr(w.error.detail, "NOPERM"));
    assert_int_equal(serial_of(r), 0);
    fake_redis_answer(r->fake, "SUBSCRIBE", CONFIRMED);
    int64_t pause = pass_pause(r);
    assert_true(pause >= MS(3000) && pause <= MS(6000));
    assert_int_equal(fake_redis_accepted(r->fake), 1);
    subscribed(r);
    assert_int_equal(fake_redis_accepted(r->fake), 2);
    assert_int_equal(r->subscribed, 1);
}

TEST_ON(each_failed_subscription_makes_the_next_wait_longer, struct rig *r)
{
    static const int64_t longest[] = {10, 20, 40, 80, 160, 320, 500, 500};

    fake_redis_refuse(r->fake, true);
    serial_of(r);
    for (unsigned i = 0; i < sizeof longest / sizeof *longest; i++) {
        expect_failed_try(r, i + 1);
        int64_t pause = pass_pause(r);
        assert_that(pause >= MS(longest[i]) / 2 && pause <= MS(longest[i]), "%u: %lld", i, (long long)pause);
    }
    fake_redis_refuse(r->fake, false);
    subscribed(r);
    fake_redis_refuse(r->fake, true);
    fake_redis_cut(r->fake);
    ATTEND_UNTIL(r, serial_of(r) == 0);
    pass_pause(r);
    expect_failed_try(r, 10);
    assert_true(pass_pause(r) <= MS(10));
}

/* Threads that wait for it meanwhile cut no pause short: each of them would have the server tried again at once. */
TEST_ON(the_pauses_after_failed_tries_grow_though_threads_wait, struct rig *r)
{
    int64_t pause = 0;

    fake_redis_refuse(r->fake, true);
    serial_of(r);
    for (unsigned i = 1; i <= 9; i += 2) {
        struct waiter w;
        expect_failed_try(r, i);
        begin(&w, r, DIBS__NEVER);
        pause = pass_pause(r);
        expect_failed_try(r, i + 1);
        expect_failed(&w, DIBS_UNAVAILABLE);
        pass_pause(r);
    }
    assert_true(pause >= MS(250));
    fake_redis_refuse(r->fake, false);
}

/*
 * Users of the subscription are told at the first failure, and when there is a new one. Before the first subscription
 * there is nobody to tell.
 */
TEST_ON(users_are_told_when_a_subscription_cannot_be_replaced, struct rig *r)
{
    fake_redis_refuse(r->fake, true);
    serial_of(r);
    expect_failed_try(r, 1);
    assert_int_equal(r->subscribed, 0);
    pass_pause(r);
    fake_redis_refuse(r->fake, false);
    subscribed(r);
    assert_int_equal(r->subscribed, 1);
    fake_redis_refuse(r->fake, true);
    fake_redis_cut(r->fake);
    ATTEND_UNTIL(r, serial_of(r) == 0);
    assert_int_equal(r->subscribed, 1);
    for (unsigned i = 0; i < 3; i++) {
        pass_pause(r);
        expect_failed_try(r, i + 3);
        assert_int_equal(r->subscribed, 2);
    }
    pass_pause(r);
    fake_redis_refuse(r->fake, false);
    subscribed(r);
    assert_int_equal(r->subscribed, 3);
}

/* Expects that a try is given up in time where the server is silent from that command on. */
static void expect_given_up_in_time(struct rig *r, const char *prefix)
{
    struct waiter w;
    int64_t until = after(r, CONNECT_MS);

    fake_redis_hold(r->fake, true);
    begin(&w, r, DIBS__NEVER);
    ATTEND_UNTIL(r, fake_redis_count(r->fake, prefix) == 1);
    attend_all(r);
    assert_true(deadline_of(r) == until);
    moved_clock_set(&r->clock, until - 1);
    attend(r);
    moved_clock_await_waiting(&r->clock, 1);
    moved_clock_set(&r->clock, until);
    attend(r);
    expect_failed(&w, DIBS_UNAVAILABLE);
    fake_redis_hold(r->fake, false);
    assert_true(pass_pause(r) <= MS(10));
    subscribed(r);
}

TEST(a_subscription_gives_up_connecting_after_the_timeout)
{
    expect_given_up_in_time(*state, "CLIENT KILL ID 9223372036854775807");
}

TEST_ON(an_unconfirmed_subscription_is_given_up, struct rig *r)
{
    struct waiter w;

    fake_redis_answer(r->fake, "SUBSCRIBE", "");
    begin(&w, r, DIBS__NEVER);
    ATTEND_UNTIL(r, fake_redis_count(r->fake, "SUBSCRIBE") == 1);
    attend_all(r);
    moved_clock_advance(&r->clock, MS(CONNECT_MS) - 1);
    attend(r);
    assert_int_equal(fake_redis_accepted(r->fake), 1);
    moved_clock_await_waiting(&r->clock, 1);
    moved_clock_advance(&r->clock, 1);
    attend(r);
    expect_failed(&w, DIBS_UNAVAILABLE);
}

TESTS(setup, teardown)
