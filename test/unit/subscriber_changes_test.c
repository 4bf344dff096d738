/* A subscriber that is told of changed keys: when it asks for that, and what becomes of the messages. */
#include "unit/subscriber_setup.h"

#define SUBSCRIBE_CHANGES "SUBSCRIBE __redis__:invalidate"
#define CHANNEL "$20\r\n__redis__:invalidate\r\n"
#define HEARD "*3\r\n$9\r\nsubscribe\r\n" CHANNEL ":2\r\n"
#define CHANGE(keys) "*3\r\n$7\r\nmessage\r\n" CHANNEL keys

/* ------------------------------------------------------------------- helpers */

struct heard {
    bool hears;
    uint64_t serial;
    int64_t client;
};

static struct heard hear(struct rig *r)
{
    struct heard heard = {.client = -7};

    heard.hears = dibs__subscriber_hear_changes(r->subscriber, &heard.serial, &heard.client);
    return heard;
}

static unsigned asked(struct rig *r)
{
    return fake_redis_count(r->fake, SUBSCRIBE_CHANGES);
}

/* The subscription is confirmed and gets messages of changes. */
static uint64_t hearing(struct rig *r)
{
    fake_redis_answer(r->fake, SUBSCRIBE_CHANGES, HEARD);
    subscribed(r);
    ATTEND_UNTIL(r, hear(r).hears);
    return hear(r).serial;
}

static void expect_key(struct rig *r, size_t i, const char *key)
{
    assert_int_equal(r->changes[i].size, strlen(key));
    assert_memory_equal(r->changes[i].bytes, key, strlen(key));
}

/* -------------------------------------------------------------- to be heard */

TEST_ON(changes_are_asked_for_only_where_wanted, struct rig *r)
{
    subscribed(r);
    attend_all(r);
    moved_clock_advance(&r->clock, MS(SILENCE_MS));
    attend_all(r);
    assert_int_equal(fake_redis_count(r->fake, "SUBSCRIBE"), 1);
    assert_int_equal(asked(r), 0);
}

TEST_ON(no_change_arrives_without_a_subscription, struct rig *r)
{
    struct heard heard = hear(r);

    assert_false(heard.hears);
    assert_int_equal(heard.serial, 0);
    assert_int_equal(asked(r), 0);
}

TEST_ON(a_confirmed_subscription_has_a_serial_and_a_client, struct rig *r)
{
    fake_redis_answer(r->fake, SUBSCRIBE_CHANGES, HEARD);
    fake_redis_answer(r->fake, "CLIENT ID", ":4711\r\n");
    uint64_t serial = subscribed(r);
    attend_all(r);
    assert_false(hear(r).hears);
    assert_true(deadline_of(r) <= moved_clock_now(&r->clock)); /* there is something to send */
    unsigned woken = r->woken;
    ATTEND_UNTIL(r, hear(r).hears);
    assert_true(r->woken > woken);
    assert_true(hear(r).serial == serial);
    assert_true(hear(r).client == 4711);
    attend_all(r);
    assert_int_equal(asked(r), 1);
    assert_true(serial_of(r) == serial);
    assert_int_equal(r->subscribed, 1);
}

/* Where changes are wanted before there is a subscription, they are asked for after the own channel. */
TEST_ON(changes_wanted_earlier_are_asked_for_once_subscribed, struct rig *r)
{
    hear(r);
    fake_redis_answer(r->fake, SUBSCRIBE_CHANGES, HEARD);
    subscribed(r);
    ATTEND_UNTIL(r, hear(r).hears);
    assert_int_equal(asked(r), 1);
    assert_true(fake_redis_place(r->fake, SUBSCRIBE_CHANGES, 1) > fake_redis_place(r->fake, "SUBSCRIBE dibs:test", 1));
}

TEST_ON(a_subscription_works_where_changes_are_not_allowed, struct rig *r)
{
    fake_redis_answer(r->fake, SUBSCRIBE_CHANGES, NOPERM);
    uint64_t serial = subscribed(r);
    hear(r);
    ATTEND_UNTIL(r, r->errors == 1);
    attend_all(r);
    assert_false(hear(r).hears);
    assert_true(serial_of(r) == serial);
    fake_redis_push(r->fake, MESSAGE(5, "still"));
    ATTEND_UNTIL(r, r->message_count == 1);
    moved_clock_advance(&r->clock, MS(SILENCE_MS));
    ATTEND_UNTIL(r, fake_redis_count(r->fake, "PING") == 1);
    attend_all(r);
    assert_true(serial_of(r) == serial);
    assert_int_equal(asked(r), 1);
    assert_int_equal(r->change_count, 0);
}

TEST_ON(no_change_is_trusted_without_a_client_id, struct rig *r)
{
    fake_redis_answer(r->fake, "CLIENT ID", NOPERM);
    fake_redis_answer(r->fake, SUBSCRIBE_CHANGES, HEARD);
    subscribed(r);
    hear(r);
    ATTEND_UNTIL(r, asked(r) == 1);
    attend_all(r);
    assert_false(hear(r).hears);
}

TEST_ON(each_new_subscription_asks_for_changes, struct rig *r)
{
    uint64_t first = hearing(r);

    fake_redis_hold(r->fake, true);
    fake_redis_cut(r->fake);
    ATTEND_UNTIL(r, !is_connected(r));
    assert_false(hear(r).hears);
    fake_redis_hold(r->fake, false);
    uint64_t second = subscribed_again(r);
    assert_true(second > first);
    ATTEND_UNTIL(r, hear(r).hears);
    assert_true(hear(r).serial == second);
    assert_true(hear(r).client == fake_redis_accepted(r->fake));
    assert_int_equal(asked(r), 2);
}

/* A distrusted subscription is not relied on, though it still exists. */
TEST_ON(a_distrusted_subscription_tells_no_change, struct rig *r)
{
    uint64_t serial = hearing(r);

    dibs__subscriber_distrust(r->subscriber, serial);
    assert_false(hear(r).hears);
    uint64_t next = subscribed_again(r);
    ATTEND_UNTIL(r, hear(r).hears);
    assert_true(next > serial && hear(r).serial == next);
}

/* ------------------------------------------------------------------ messages */

TEST_ON(the_keys_of_a_message_are_told_one_by_one, struct rig *r)
{
    hearing(r);
    int server = take_over(r);
    feed_text(server, CHANGE("*3\r\n$1\r\na\r\n$0\r\n\r\n$4\r\nlock\r\n") CHANGE("*1\r\n$1\r\nb\r\n"));
    attend(r);
    assert_int_equal(r->change_count, 4);
    expect_key(r, 0, "a");
    expect_key(r, 1, "");
    expect_key(r, 2, "lock");
    expect_key(r, 3, "b");
    assert_int_equal(r->message_count, 0);
}

TEST_ON(a_message_without_keys_tells_of_all, struct rig *r)
{
    hearing(r);
    int server = take_over(r);
    feed_text(server, CHANGE("$-1\r\n") CHANGE("*-1\r\n"));
    attend(r);
    assert_int_equal(r->change_count, 2);
    assert_true(r->changes[0].size == NO_KEY && r->changes[1].size == NO_KEY);
}

TEST_ON(an_empty_list_tells_of_nothing, struct rig *r)
{
    uint64_t serial = hearing(r);
    int server = take_over(r);

    feed_text(server, CHANGE("*0\r\n"));
    attend(r);
    assert_int_equal(r->change_count, 0);
    assert_true(serial_of(r) == serial && hear(r).hears);
}

TEST_ON(a_message_of_another_shape_tells_of_nothing, struct rig *r)
{
    static const char *const others[] = {
        CHANGE(":7\r\n"),
        CHANGE("$1\r\na\r\n"),
        CHANGE("+a\r\n"),
        CHANGE("*2\r\n:1\r\n*1\r\n$1\r\na\r\n"),
        CHANGE("*1\r\n$-1\r\n"),
        "*2\r\n$7\r\nmessage\r\n" CHANNEL,
        "*4\r\n$7\r\nmessage\r\n" CHANNEL "*1\r\n$1\r\na\r\n$1\r\nb\r\n",
        "*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidatf\r\n*1\r\n$1\r\na\r\n",
        "*3\r\n$7\r\nmessage\r\n$9\r\ndibs:test\r\n*1\r\n$1\r\na\r\n",
        "*3\r\n$7\r\nmessage\r\n$9\r\ndibs:test\r\n$-1\r\n",
        "*3\r\n$8\r\npmessage\r\n" CHANNEL "*1\r\n$1\r\na\r\n",
        "*3\r\n$11\r\nunsubscribe\r\n" CHANNEL ":1\r\n",
    };
    uint64_t serial = hearing(r);
    int server = take_over(r);

    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        feed_text(server, others[i]);
        attend(r);
        assert_that(r->change_count == 0 && r->message_count == 0 && serial_of(r) == serial, "%s", others[i]);
    }
    feed_text(server, CHANGE("*1\r\n$1\r\na\r\n") MESSAGE(4, "good"));
    attend(r);
    assert_int_equal(r->change_count, 1);
    assert_int_equal(r->message_count, 1);
}

TEST_ON(grants_and_changes_arrive_on_one_connection, struct rig *r)
{
    hearing(r);
    fake_redis_push(r->fake, CHANGE("*1\r\n$1\r\na\r\n"));
    ATTEND_UNTIL(r, r->change_count == 1);
    fake_redis_push(r->fake, MESSAGE(1, "m"));
    ATTEND_UNTIL(r, r->message_count == 1);
    expect_key(r, 0, "a");
}

TESTS(setup, teardown)
