/* A subscriber's subscriptions of slots: when they are made, kept, replaced and ended, and what is told of them. */
#include "unit/subscriber_setup.h"

#define SLOT 5259
#define OTHER 42
#define LEASE_MS 30000
#define KEPT_MS 60000
#define PAUSE_MOST_MS 1000 /* the first */

#define BULK "$16\r\n"
#define EVENT(size, event, channel, rest) "*3\r\n$" #size "\r\n" event "\r\n" BULK channel "\r\n" rest
#define SUBSCRIBED(channel) EVENT(10, "ssubscribe", channel, ":1\r\n")
#define ENDED(channel) EVENT(12, "sunsubscribe", channel, ":0\r\n")
#define PUSHED(channel, size, text) EVENT(8, "smessage", channel, "$" #size "\r\n" text "\r\n")

/* The channels of the slots, as the library names them: see the first test. */
#define CHANNEL "dibs:test:{O@M@}"
#define OTHER_CHANNEL "dibs:test:{FBJA}"
#define MOVED "-MOVED 5259 127.0.0.1:7000\r\n"

static const char *channel_of(struct rig *r, unsigned slot)
{
    static char channel[DIBS__SLOT_CHANNEL_MAX];

    dibs__subscriber_slot_channel(r->subscriber, slot, channel);
    return channel;
}

static uint64_t slot_of(struct rig *r, unsigned slot)
{
    return dibs__subscriber_slot(r->subscriber, slot, LEASE_MS);
}

static bool want(struct rig *r, unsigned slot)
{
    return dibs__subscriber_want_slot(r->subscriber, slot, LEASE_MS);
}

static unsigned asked(struct rig *r)
{
    return fake_redis_count(r->fake, "SSUBSCRIBE");
}

/* The slot's subscription is confirmed. */
static uint64_t standing(struct rig *r)
{
    fake_redis_answer(r->fake, "SSUBSCRIBE " CHANNEL, SUBSCRIBED(CHANNEL));
    subscribed(r);
    assert_true(want(r, SLOT));
    ATTEND_UNTIL(r, slot_of(r, SLOT) != 0);
    attend_all(r);
    return slot_of(r, SLOT);
}

/* The time passes, and the server is not silent meanwhile, nor late: what it is asked is answered in that second. */
static void pass(struct rig *r, int64_t ms)
{
    for (; ms > 0; ms -= COMMAND_MS) {
        uint_fast64_t received = r->endpoint.received;
        moved_clock_advance(&r->clock, MS(ms < COMMAND_MS ? ms : COMMAND_MS));
        fake_redis_publish(r->fake, PONG);
        ATTEND_UNTIL(r, r->endpoint.received > received);
        attend_all(r);
        fake_redis_settle(r->fake);
        attend_all(r);
    }
}

TEST_ON(each_slot_has_a_channel_in_it, struct rig *r)
{
    assert_string_equal(channel_of(r, SLOT), CHANNEL);
    assert_string_equal(channel_of(r, OTHER), OTHER_CHANNEL);
    assert_int_equal(dibs__slot_of(CHANNEL, strlen(CHANNEL)), SLOT);
    assert_int_equal(dibs__slot_of(OTHER_CHANNEL, strlen(OTHER_CHANNEL)), OTHER);
}

TEST_ON(a_slot_is_subscribed_to_once_it_is_wanted, struct rig *r)
{
    subscribed(r);
    attend_all(r);
    assert_int_equal(slot_of(r, SLOT), 0);
    assert_int_equal(asked(r), 0);
    unsigned woken = r->woken;
    uint64_t serial = standing(r);
    assert_true(serial != 0 && r->woken > woken);
    want(r, SLOT);
    attend_all(r);
    assert_int_equal(asked(r), 1);
    assert_true(slot_of(r, SLOT) == serial);
    assert_int_equal(slot_of(r, OTHER), 0);
    assert_int_equal(r->subscribed, 1); /* nobody relied on the slot before: nobody need ask again */
}

TEST_ON(several_slots_are_subscribed_side_by_side, struct rig *r)
{
    uint64_t serial = standing(r);

    fake_redis_answer(r->fake, "SSUBSCRIBE " OTHER_CHANNEL, SUBSCRIBED(OTHER_CHANNEL));
    want(r, OTHER);
    ATTEND_UNTIL(r, slot_of(r, OTHER) != 0);
    assert_true(slot_of(r, OTHER) != serial);
    assert_true(slot_of(r, SLOT) == serial);
    fake_redis_publish(r->fake, ENDED(OTHER_CHANNEL));
    ATTEND_UNTIL(r, slot_of(r, OTHER) == 0);
    assert_true(slot_of(r, SLOT) == serial);
}

TEST_ON(messages_of_a_slot_arrive, struct rig *r)
{
    standing(r);
    fake_redis_publish(r->fake, PUSHED(CHANNEL, 5, "hello"));
    ATTEND_UNTIL(r, r->message_count == 1);
    assert_memory_equal(r->messages[0].bytes, "hello", 5);
    fake_redis_publish(r->fake, PUSHED("dibs:none:{O@M@}", 5, "alien"));
    fake_redis_publish(r->fake, MESSAGE(4, "more"));
    ATTEND_UNTIL(r, r->message_count == 2);
    assert_memory_equal(r->messages[1].bytes, "more", 4);
}

/* The slot has moved, or the server became a replica. */
TEST_ON(all_users_are_told_when_the_server_ends_a_slot, struct rig *r)
{
    uint64_t serial = standing(r);

    assert_true(dibs__subscriber_confirm_slot(r->subscriber, SLOT, serial));
    fake_redis_publish(r->fake, ENDED(CHANNEL));
    ATTEND_UNTIL(r, r->subscribed == 2);
    assert_int_equal(slot_of(r, SLOT), 0);
    assert_false(dibs__subscriber_confirm_slot(r->subscriber, SLOT, serial));
    attend_all(r);
    assert_int_equal(r->subscribed, 2);
    assert_int_equal(asked(r), 1);
    assert_true(serial_of(r) != 0);
    assert_int_equal(fake_redis_accepted(r->fake), 1);
}

/* The slot may have come back, so it is subscribed again after a pause, but not for ever. */
TEST_ON(an_ended_slot_is_subscribed_again_while_it_may_be_wanted, struct rig *r)
{
    uint64_t serial = standing(r);

    fake_redis_publish(r->fake, ENDED(CHANNEL));
    ATTEND_UNTIL(r, r->subscribed == 2);
    fake_redis_answer(r->fake, "SSUBSCRIBE " CHANNEL, MOVED);
    pass(r, KEPT_MS / 2);
    unsigned times = asked(r);
    assert_true(times > 1 && times < 10);
    assert_int_equal(slot_of(r, SLOT), 0);
    assert_true(serial_of(r) != 0);
    fake_redis_answer(r->fake, "SSUBSCRIBE " CHANNEL, SUBSCRIBED(CHANNEL));
    assert_false(want(r, SLOT)); /* there is none soon */
    pass(r, KEPT_MS - 1000);
    assert_true(slot_of(r, SLOT) > serial);
    assert_int_equal(fake_redis_accepted(r->fake), 1);
}

TEST_ON(an_unwanted_slot_is_not_subscribed_for_ever, struct rig *r)
{
    fake_redis_answer(r->fake, "SSUBSCRIBE " CHANNEL, MOVED);
    subscribed(r);
    want(r, SLOT);
    pass(r, 2 * KEPT_MS);
    unsigned times = asked(r);
    pass(r, 2 * KEPT_MS);
    assert_int_equal(asked(r), times);
    assert_true(times > 1 && times < 10);
    want(r, SLOT);
    ATTEND_UNTIL(r, asked(r) == times + 1);
}

TEST_ON(an_unused_slot_is_unsubscribed, struct rig *r)
{
    uint64_t serial = standing(r);

    fake_redis_answer(r->fake, "SUNSUBSCRIBE", ENDED(CHANNEL));
    pass(r, KEPT_MS - 1000);
    assert_true(slot_of(r, SLOT) == serial);
    pass(r, KEPT_MS - 1000);
    assert_int_equal(fake_redis_count(r->fake, "SUNSUBSCRIBE"), 0);
    ATTEND_UNTIL(r, fake_redis_count(r->fake, "SUNSUBSCRIBE") == 1 || (pass(r, 1000), false));
    assert_int_equal(slot_of(r, SLOT), 0);
    pass(r, KEPT_MS);
    assert_int_equal(fake_redis_count(r->fake, "SUNSUBSCRIBE " CHANNEL), 1);
    assert_int_equal(asked(r), 1);
    assert_int_equal(r->subscribed, 1);
    want(r, SLOT);
    ATTEND_UNTIL(r, slot_of(r, SLOT) > serial);
}

/* An entry of the queue counts for half of a lease. */
TEST_ON(a_slot_is_kept_for_half_of_a_long_lease, struct rig *r)
{
    standing(r);
    assert_true(dibs__subscriber_slot(r->subscriber, SLOT, 6 * KEPT_MS) != 0);
    pass(r, 3 * KEPT_MS - 1000);
    assert_int_equal(fake_redis_count(r->fake, "SUNSUBSCRIBE"), 0);
    pass(r, 2000);
    ATTEND_UNTIL(r, fake_redis_count(r->fake, "SUNSUBSCRIBE") == 1);
}

TEST_ON(a_slot_wanted_while_it_ends_is_subscribed_again, struct rig *r)
{
    uint64_t serial = standing(r);

    fake_redis_answer(r->fake, "SUNSUBSCRIBE", "");
    pass(r, KEPT_MS);
    ATTEND_UNTIL(r, fake_redis_count(r->fake, "SUNSUBSCRIBE") == 1);
    fake_redis_answer(r->fake, "SSUBSCRIBE " CHANNEL, "");
    want(r, SLOT);
    ATTEND_UNTIL(r, asked(r) == 2);
    assert_int_equal(slot_of(r, SLOT), 0);
    fake_redis_publish(r->fake, ENDED(CHANNEL));
    fake_redis_publish(r->fake, SUBSCRIBED(CHANNEL));
    ATTEND_UNTIL(r, slot_of(r, SLOT) > serial);
    assert_int_equal(r->subscribed, 1);
    assert_int_equal(asked(r), 2);
}

TEST_ON(a_new_link_subscribes_its_slots_again, struct rig *r)
{
    uint64_t serial = standing(r);

    fake_redis_cut(r->fake);
    dibs__subscriber_confirm(r->subscriber, serial_of(r));
    subscribed_again(r);
    ATTEND_UNTIL(r, slot_of(r, SLOT) != 0);
    assert_true(slot_of(r, SLOT) > serial);
    assert_int_equal(asked(r), 2);
    assert_false(dibs__subscriber_confirm_slot(r->subscriber, SLOT, serial));
}

TEST_ON(a_distrusted_slot_is_replaced_after_growing_pauses, struct rig *r)
{
    uint64_t serial = standing(r);
    int64_t began = moved_clock_now(&r->clock), pauses[4];

    for (unsigned i = 0; i < 4; i++) {
        dibs__subscriber_distrust_slot(r->subscriber, SLOT, serial);
        assert_int_equal(slot_of(r, SLOT), 0);
        ATTEND_UNTIL(r, r->subscribed == 2 + i);
        dibs__subscriber_distrust_slot(r->subscriber, SLOT, serial);
        assert_int_equal(slot_of(r, SLOT), 0);
        want(r, SLOT);
        ATTEND_UNTIL(r, slot_of(r, SLOT) != 0 || (pass(r, 100), false));
        serial = slot_of(r, SLOT);
        pauses[i] = moved_clock_now(&r->clock) - began;
        began = moved_clock_now(&r->clock);
    }
    assert_true(pauses[0] >= MS(PAUSE_MOST_MS / 2) && pauses[0] <= MS(PAUSE_MOST_MS + 200));
    assert_true(pauses[3] >= MS(4 * PAUSE_MOST_MS) && pauses[3] <= MS(8 * PAUSE_MOST_MS + 200));
    assert_int_equal(fake_redis_accepted(r->fake), 1);
    dibs__subscriber_confirm_slot(r->subscriber, SLOT, serial);
    dibs__subscriber_distrust_slot(r->subscriber, SLOT, serial);
    began = moved_clock_now(&r->clock);
    ATTEND_UNTIL(r, slot_of(r, SLOT) != 0 || (pass(r, 100), false));
    assert_true(moved_clock_now(&r->clock) - began <= MS(PAUSE_MOST_MS + 200));
}

/* No answer about a slot ends the link; an answer to nothing that was asked does. */
TEST_ON(a_refused_slot_leaves_the_others, struct rig *r)
{
    static const char *const refusals[] = {
        MOVED, "-ASK 5259 127.0.0.1:7000\r\n", "-CLUSTERDOWN Hash slot not served\r\n",
        "-NOPERM No permissions to access a channel\r\n", "-ERR unknown command\r\n"};
    uint64_t serial = subscribed(r);

    want(r, SLOT);
    for (unsigned i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        unsigned before = asked(r);
        fake_redis_answer(r->fake, "SSUBSCRIBE " CHANNEL, refusals[i]);
        want(r, SLOT);
        ATTEND_UNTIL(r, asked(r) > before || (pass(r, 1000), false));
        attend_all(r);
        assert_true(serial_of(r) == serial);
        assert_int_equal(slot_of(r, SLOT), 0);
    }
    assert_int_equal(fake_redis_accepted(r->fake), 1);
}

TEST_ON(an_error_without_slots_ends_the_link, struct rig *r)
{
    subscribed(r);
    fake_redis_publish(r->fake, MOVED);
    ATTEND_UNTIL(r, serial_of(r) == 0);
}

/* Bytes that look like messages of slots, but are none. */
TEST_ON(nonsense_about_slots_changes_nothing, struct rig *r)
{
    static const char *const texts[] = {
        "*3\r\n$10\r\nssubscribe\r\n$-1\r\n:1\r\n",
        EVENT(10, "ssubscribe", "dibs:test:{O@MA}", ":1\r\n"),
        EVENT(10, "ssubscribe", OTHER_CHANNEL, ":1\r\n"),
        EVENT(12, "sunsubscribe", OTHER_CHANNEL, ":1\r\n"),
        EVENT(8, "smessage", CHANNEL, ":1\r\n"),
        EVENT(8, "smessagE", CHANNEL, "$1\r\nx\r\n"),
        "*3\r\n:1\r\n:2\r\n:3\r\n",
        "*2\r\n$8\r\nsmessage\r\n" BULK CHANNEL "\r\n",
    };
    uint64_t serial = standing(r);

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        fake_redis_publish(r->fake, texts[i]);
    fake_redis_publish(r->fake, PUSHED(CHANNEL, 4, "last"));
    ATTEND_UNTIL(r, r->message_count > 0);
    assert_int_equal(r->message_count, 1);
    assert_true(slot_of(r, SLOT) == serial);
    assert_int_equal(slot_of(r, OTHER), 0);
}

TESTS(setup, teardown)
