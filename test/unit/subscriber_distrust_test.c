/*
 * A subscription that is distrusted: it is replaced, with growing pauses where that does not help, and trusted again.
 */
#include "unit/subscriber_setup.h"

TEST_ON(a_distrusted_subscription_is_replaced, struct rig *r)
{
    uint64_t first = subscribed(r);
    unsigned woken = r->woken;

    moved_clock_advance(&r->clock, MS(100));
    dibs__subscriber_distrust(r->subscriber, first);
    assert_int_equal(r->woken, woken + 1);
    assert_int_equal(serial_of(r), 0);
    assert_true(deadline_of(r) <= moved_clock_now(&r->clock));
    dibs__subscriber_distrust(r->subscriber, first);
    assert_int_equal(r->woken, woken + 1);
    attend(r);
    assert_int_equal(pass_pause(r), 0);
    assert_true(subscribed(r) > first);
    assert_int_equal(r->subscribed, 2);
    assert_int_equal(fake_redis_count(r->fake, "CLIENT KILL ID 1"), 1);
}

TEST_ON(distrusting_another_subscription_does_nothing, struct rig *r)
{
    uint64_t first = subscribed(r);

    dibs__subscriber_distrust(r->subscriber, first);
    uint64_t second = subscribed_again(r);
    unsigned woken = r->woken;
    dibs__subscriber_distrust(r->subscriber, first);
    dibs__subscriber_distrust(r->subscriber, 0);
    dibs__subscriber_distrust(r->subscriber, second + 1);
    assert_int_equal(serial_of(r), second);
    attend_all(r);
    assert_int_equal(serial_of(r), second);
    fake_redis_cut(r->fake);
    ATTEND_UNTIL(r, serial_of(r) == 0);
    dibs__subscriber_distrust(r->subscriber, 0);
    assert_int_equal(r->woken, woken);
    assert_int_equal(fake_redis_accepted(r->fake), 2);
}

TEST_ON(a_subscription_may_be_distrusted_at_once, struct rig *r)
{
    r->distrusted_by_hook = 1;
    serial_of(r);
    ATTEND_UNTIL(r, r->subscribed == 1);
    assert_int_equal(serial_of(r), 0);
    assert_int_equal(subscribed_again(r), 2);
}

/*
 * Distrusts the subscription as soon as it is confirmed. Returns for how long the next one is put off; *hints: how many
 * hints that gave.
 */
static int64_t distrust_at_once(struct rig *r, unsigned *hints)
{
    unsigned before = r->subscribed;

    dibs__subscriber_distrust(r->subscriber, subscribed(r));
    ATTEND_UNTIL(r, !is_connected(r));
    *hints = r->subscribed - before;
    return pass_pause(r);
}

/* Nothing ever confirms that the server knows a listener: subscribing again does not help, and backs off. */
TEST_ON(replacing_unconfirmed_subscriptions_backs_off, struct rig *r)
{
    static const int64_t longest[] = {10, 10, 20, 40, 80, 160, 320, 640, 1280, 2000, 2000};
    unsigned hints;

    serial_of(r);
    for (unsigned i = 0; i < sizeof longest / sizeof *longest; i++) {
        int64_t pause = distrust_at_once(r, &hints);
        assert_that(pause >= MS(longest[i]) / 2 && pause <= MS(longest[i]), "%u: %lld", i, (long long)pause);
        assert_that(hints == (i < 2), "%u: %u hints", i,
                    hints); /* no waiter relied on the subscription, so none need be told */
    }
}

/*
 * When the subscription is lost, it is replaced at once, and so is the next; both losses are told, and the pauses start
 * over.
 */
static void expect_trusted_again(struct rig *r, uint64_t serial)
{
    unsigned hints;

    moved_clock_advance(&r->clock, MS(100));
    dibs__subscriber_distrust(r->subscriber, serial);
    ATTEND_UNTIL(r, !is_connected(r));
    assert_int_equal(pass_pause(r), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(distrust_at_once(r, &hints), MS(10));
        assert_int_equal(hints, 1);
    }
    assert_true(distrust_at_once(r, &hints) >= MS(10));
    assert_int_equal(hints, 0);
}

static void deafen(struct rig *r)
{
    unsigned hints;

    serial_of(r);
    for (int i = 0; i < 8; i++)
        distrust_at_once(r, &hints);
}

TEST_ON(a_confirmed_subscription_is_trusted_again, struct rig *r)
{
    deafen(r);
    uint64_t serial = subscribed(r);
    assert_true(dibs__subscriber_confirm(r->subscriber, serial));
    assert_true(dibs__subscriber_confirm(r->subscriber, serial));
    expect_trusted_again(r, serial);
}

TEST_ON(a_message_confirms_a_subscription, struct rig *r)
{
    deafen(r);
    uint64_t serial = subscribed(r);
    fake_redis_push(r->fake, MESSAGE(2, "hi"));
    ATTEND_UNTIL(r, r->message_count == 1);
    expect_trusted_again(r, serial);
}

/* A confirmation of one subscription says nothing about another. */
TEST_ON(confirming_another_subscription_does_nothing, struct rig *r)
{
    unsigned hints;

    deafen(r);
    uint64_t serial = subscribed(r);
    assert_false(dibs__subscriber_confirm(r->subscriber, serial - 1));
    assert_true(distrust_at_once(r, &hints) >= MS(500));
    assert_int_equal(hints, 0);
    assert_false(dibs__subscriber_confirm(r->subscriber, serial)); /* too late: that subscription is over */
}

/* Each subscription had been confirmed before it broke. */
TEST_ON(a_broken_subscription_is_replaced_and_told, struct rig *r)
{
    for (unsigned i = 1; i <= 8; i++) {
        assert_true(dibs__subscriber_confirm(r->subscriber, subscribed(r)));
        assert_int_equal(r->subscribed, i);
        fake_redis_cut(r->fake);
        ATTEND_UNTIL(r, !is_connected(r));
        assert_true(pass_pause(r) <= MS(10));
    }
}

/* A server that takes each SUBSCRIBE and hangs up. */
TEST_ON(replacing_breaking_subscriptions_backs_off, struct rig *r)
{
    int64_t pause = 0;

    for (unsigned i = 1; i <= 12; i++) {
        subscribed(r);
        fake_redis_cut(r->fake);
        ATTEND_UNTIL(r, !is_connected(r));
        pause = pass_pause(r);
    }
    assert_true(pause >= MS(UNCONFIRMED_LAST_MS) / 2);
    assert_int_equal(r->subscribed, 2);
}

/* A thread that waits for a subscription gets one sooner. */
TEST_ON(an_awaited_subscription_is_not_put_off_for_long, struct rig *r)
{
    struct waiter w;

    deafen(r);
    uint64_t serial = subscribed(r);
    dibs__subscriber_distrust(r->subscriber, serial);
    ATTEND_UNTIL(r, !is_connected(r));
    int64_t put_off = deadline_of(r);
    assert_true(put_off > after(r, COMMAND_MS / 2));
    unsigned woken = r->woken;
    begin(&w, r, DIBS__NEVER);
    assert_int_equal(r->woken, woken + 1);
    assert_true(deadline_of(r) <= after(r, COMMAND_MS / 2));
    assert_true(pass_pause(r) > 0);
    uint64_t next = subscribed(r);
    expect_subscribed(&w, next);
}

/* The same where the thread comes before the scheduler has ended the distrusted one. */
TEST_ON(a_subscription_awaited_before_the_last_has_ended_is_not_put_off, struct rig *r)
{
    struct waiter w;

    deafen(r);
    dibs__subscriber_distrust(r->subscriber, subscribed(r));
    begin(&w, r, after(r, COMMAND_MS));
    ATTEND_UNTIL(r, !is_connected(r));
    assert_true(deadline_of(r) <= after(r, COMMAND_MS / 2));
    pass_pause(r);
    uint64_t next = subscribed(r);
    expect_subscribed(&w, next);
}

/* What lies in the socket is read before it is decided whether anything has confirmed the subscription. */
TEST_ON(a_message_in_the_socket_confirms_a_distrusted_subscription, struct rig *r)
{
    deafen(r);
    uint64_t serial = subscribed(r);
    int server = take_over(r);
    feed_text(server, MESSAGE(4, "last"));
    dibs__subscriber_distrust(r->subscriber, serial);
    ATTEND_UNTIL(r, !is_connected(r));
    assert_int_equal(r->message_count, 1);
    assert_true(pass_pause(r) <= MS(10));
    subscribed(r);
}

/* The subscription may be sound, and the distrust wrong. */
TEST_ON(a_distrusted_subscription_still_tells_of_grants, struct rig *r)
{
    uint64_t serial = subscribed(r);
    int server = take_over(r);

    feed_text(server, MESSAGE(4, "last"));
    dibs__subscriber_distrust(r->subscriber, serial);
    attend(r);
    assert_int_equal(r->message_count, 1);
}

TESTS(setup, teardown)
