/* What a subscriber receives: messages are passed on, and what breaks the subscription ends it. */
#include "support/odd_transport.h"
#include "unit/subscriber_setup.h"

/* ------------------------------------------------------------------- helpers */

static void expect_messages(struct rig *r, const char *const *texts, size_t count)
{
    assert_int_equal(r->message_count, count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(r->messages[i].size, strlen(texts[i]));
        assert_memory_equal(r->messages[i].bytes, texts[i], strlen(texts[i]));
    }
}

/* ------------------------------------------------------------------ messages */

TEST_ON(messages_arrive_in_order, struct rig *r)
{
    static const char *const texts[] = {"first", "2", "third"};

    fake_redis_answer(r->fake, "SUBSCRIBE", CONFIRMED MESSAGE(5, "first"));
    subscribed(r);
    int server = take_over(r);
    feed_text(server, MESSAGE(1, "2") MESSAGE(5, "third"));
    attend(r);
    expect_messages(r, texts, 3);
}

TEST_ON(messages_arrive_over_an_odd_transport, struct rig *r)
{
    static const char *const texts[] = {"first", "2", "third"};

    r->endpoint.transport = &odd_transport;
    subscribed(r);
    fake_redis_push(r->fake, MESSAGE(5, "first") MESSAGE(1, "2") MESSAGE(5, "third"));
    ATTEND_UNTIL(r, r->message_count == 3);
    expect_messages(r, texts, 3);
}

TEST_ON(a_message_may_come_in_pieces, struct rig *r)
{
    static const char *const texts[] = {"whole"};
    static const char bytes[] = MESSAGE(5, "whole");

    subscribed(r);
    int server = take_over(r);
    for (size_t i = 0; i < strlen(bytes); i++) {
        assert_int_equal(r->message_count, 0);
        feed(server, &bytes[i], 1);
        attend(r);
    }
    expect_messages(r, texts, 1);
}

TEST_ON(a_message_may_hold_any_bytes, struct rig *r)
{
    static const char bytes[] = MESSAGE(8, "\0\r\n*3\r\n\xff") MESSAGE(0, "");

    subscribed(r);
    int server = take_over(r);
    feed(server, bytes, sizeof bytes - 1);
    attend(r);
    assert_int_equal(r->message_count, 2);
    assert_int_equal(r->messages[0].size, 8);
    assert_memory_equal(r->messages[0].bytes, "\0\r\n*3\r\n\xff", 8);
    assert_int_equal(r->messages[1].size, 0);
}

TEST_ON(more_than_is_read_at_once_arrives_whole, struct rig *r)
{
    enum { COUNT = 1500 };
    char bytes[COUNT * sizeof MESSAGE(6, "n-0000")];
    size_t used = 0;

    subscribed(r);
    int server = take_over(r);
    for (int i = 0; i < COUNT; i++)
        used += (size_t)snprintf(bytes + used, sizeof bytes - used, MESSAGE(6, "n-%04d"), i);
    feed(server, bytes, used);
    attend(r);
    assert_true(r->message_count > 0 && r->message_count < COUNT);
    attend_all(r);
    assert_int_equal(r->message_count, COUNT);
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(strtol(r->messages[i].bytes + 2, NULL, 10), i);
}

TEST_ON(other_replies_are_not_passed_on, struct rig *r)
{
    static const char *const others[] = {
        PONG,
        CONFIRMED,
        ":7\r\n",
        "+OK\r\n",
        "$-1\r\n",
        "*-1\r\n",
        "*0\r\n",
        "$7\r\nmessage\r\n",
        "*1\r\n$7\r\nmessage\r\n",
        "*2\r\n$7\r\nmessage\r\n$9\r\ndibs:test\r\n",
        "*3\r\n$7\r\nmessage\r\n$9\r\ndibs:test\r\n$-1\r\n",
        "*3\r\n$7\r\nmessage\r\n$9\r\ndibs:test\r\n:5\r\n",
        "*3\r\n$7\r\nmessage\r\n$9\r\ndibs:test\r\n*1\r\n$1\r\na\r\n",
        "*3\r\n$7\r\nmessage\r\n$-1\r\n$1\r\na\r\n",
        "*3\r\n$-1\r\n$9\r\ndibs:test\r\n$1\r\na\r\n",
        "*3\r\n:1\r\n:2\r\n:3\r\n",
        "*3\r\n+message\r\n+dibs:test\r\n$1\r\na\r\n",
        "*3\r\n$7\r\nmessage\r\n$9\r\ndibs:text\r\n$1\r\na\r\n",
        "*3\r\n$8\r\nmessages\r\n$9\r\ndibs:test\r\n$1\r\na\r\n",
        "*4\r\n$7\r\nmessage\r\n$9\r\ndibs:test\r\n$1\r\na\r\n$1\r\nb\r\n",
        "*4\r\n$8\r\npmessage\r\n$1\r\n*\r\n$9\r\ndibs:test\r\n$1\r\na\r\n",
        "*1\r\n*1\r\n*1\r\n$7\r\nmessage\r\n",
        "*3\r\n$11\r\nunsubscribe\r\n$5\r\nother\r\n:1\r\n",
    };
    static const char *const texts[] = {"good"};
    uint64_t serial = subscribed(r);
    int server = take_over(r);

    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        feed_text(server, others[i]);
        attend(r);
        assert_that(r->message_count == 0 && serial_of(r) == serial, "%s", others[i]);
    }
    feed_text(server, MESSAGE(4, "good"));
    attend(r);
    expect_messages(r, texts, 1);
    assert_int_equal(r->subscribed, 1);
}

/* What came before it in the same packet is good. */
TEST_ON(a_malformed_reply_ends_the_subscription, struct rig *r)
{
    static const char *const ends[] = {
        MESSAGE(1, "a") "-ERR what is that\r\n",
        MESSAGE(1, "a") "HTTP/1.1 400 Bad Request\r\n",
        MESSAGE(1, "a") "*1000000000\r\n",
        MESSAGE(1, "a") "*3\r\n$11\r\nunsubscribe\r\n$9\r\ndibs:test\r\n:0\r\n",
    };
    uint64_t last = subscribed(r);

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        fake_redis_push(r->fake, ends[i]);
        uint64_t serial = subscribed_again(r);
        assert_that(serial > last && r->message_count == i + 1, "%s", ends[i]);
        last = serial;
    }
    assert_int_equal(r->errors, 1);
}

/* It breaks in the packet that confirms it: then there was a subscription, and it is lost. */
TEST_ON(a_subscription_that_breaks_at_once_was_still_made, struct rig *r)
{
    struct dibs__error error;
    uint64_t serial;

    fake_redis_answer(r->fake, "SUBSCRIBE", CONFIRMED MESSAGE(5, "first") "-ERR no more\r\n");
    serial_of(r);
    ATTEND_UNTIL(r, r->subscribed == 1);
    assert_int_equal(serial_of(r), 0);
    assert_int_equal(r->message_count, 1);
    /* a subscription that broke is no failed try: its reason is not told */
    assert_status(DIBS_UNAVAILABLE, dibs__subscriber_await(r->subscriber, 0, &serial, &error));
    fake_redis_answer(r->fake, "SUBSCRIBE", CONFIRMED);
    assert_int_equal(pass_pause(r), MS(10));
    assert_int_equal(subscribed(r), 2);
}

TESTS(setup, teardown)
