/* A silent subscription is asked by a PING whether its server is still there. */
#include "unit/subscriber_setup.h"

TEST_ON(a_silent_subscription_is_pinged, struct rig *r)
{
    uint64_t serial = subscribed(r);
    int64_t start = moved_clock_now(&r->clock);

    attend_all(r);
    assert_true(deadline_of(r) == start + MS(SILENCE_MS));
    moved_clock_set(&r->clock, start + MS(SILENCE_MS) - 1);
    attend(r);
    assert_int_equal(r->commands, 5);
    for (unsigned i = 1; i <= 3; i++) {
        moved_clock_set(&r->clock, start + i * MS(SILENCE_MS));
        attend(r);
        fake_redis_await(r->fake, "PING", i);
        ATTEND_UNTIL(r, deadline_of(r) == start + (i + 1) * MS(SILENCE_MS));
        assert_int_equal(fake_redis_count(r->fake, "PING"), i);
    }
    assert_int_equal(r->commands, 5 + 3);
    assert_int_equal(serial_of(r), serial);
    assert_int_equal(r->message_count, 0);
}

TEST_ON(a_talking_server_is_not_pinged, struct rig *r)
{
    subscribed(r);
    for (unsigned i = 1; i <= 3; i++) {
        moved_clock_advance(&r->clock, MS(SILENCE_MS) - 1);
        fake_redis_push(r->fake, MESSAGE(2, "hi"));
        ATTEND_UNTIL(r, r->message_count == i);
    }
    assert_int_equal(r->commands, 5);
}

/* Sends a PING that the server does not answer. */
static uint64_t ping_unanswered(struct rig *r)
{
    uint64_t serial = subscribed(r);

    fake_redis_answer(r->fake, "PING", "");
    attend_all(r);
    moved_clock_advance(&r->clock, MS(SILENCE_MS));
    attend(r);
    fake_redis_await(r->fake, "PING", 1);
    assert_true(deadline_of(r) == after(r, COMMAND_MS));
    moved_clock_advance(&r->clock, MS(COMMAND_MS) - 1);
    attend_all(r);
    assert_int_equal(serial_of(r), serial);
    return serial;
}

TEST_ON(an_unanswered_ping_ends_the_subscription, struct rig *r)
{
    uint64_t serial = ping_unanswered(r);

    moved_clock_advance(&r->clock, 1);
    attend(r);
    assert_int_equal(serial_of(r), 0);
    assert_int_equal(pass_pause(r), 0);
    assert_true(subscribed(r) > serial);
    assert_int_equal(fake_redis_count(r->fake, "PING"), 1);
    assert_int_equal(fake_redis_count(r->fake, "CLIENT KILL ID 1"), 1);
}

/* An answer counts also if it is noticed at the last moment, because the scheduler's poll had not seen it. */
TEST_ON(anything_answers_a_ping, struct rig *r)
{
    uint64_t serial = ping_unanswered(r);

    int server = take_over(r);
    feed(server, ":7\r\n", 4);
    moved_clock_advance(&r->clock, 1);
    dibs__subscriber_attend(r->subscriber, 0, moved_clock_now(&r->clock));
    assert_int_equal(serial_of(r), serial);
    assert_true(deadline_of(r) == after(r, SILENCE_MS));
}

/* The answer may come late behind what else the server sends. */
TEST_ON(messages_put_off_the_end_of_an_unanswered_ping, struct rig *r)
{
    uint64_t serial = ping_unanswered(r);

    for (unsigned i = 1; i <= 3; i++) {
        fake_redis_push(r->fake, MESSAGE(2, "hi"));
        ATTEND_UNTIL(r, r->message_count == i);
        moved_clock_advance(&r->clock, MS(COMMAND_MS) - 1);
        attend_all(r);
        assert_int_equal(serial_of(r), serial);
    }
    moved_clock_advance(&r->clock, 1);
    attend(r);
    assert_int_equal(serial_of(r), 0);
}

/* The subscription stays as it is. */
static void expect_ping_to_be_answered(struct rig *r, const char *refusal)
{
    uint64_t serial = subscribed(r);

    fake_redis_answer(r->fake, "PING", refusal);
    moved_clock_advance(&r->clock, MS(SILENCE_MS));
    ATTEND_UNTIL(r, r->errors == 1);
    assert_true(deadline_of(r) == after(r, SILENCE_MS));
    assert_int_equal(serial_of(r), serial);
}

TEST(a_refused_ping_counts_as_an_answer)
{
    expect_ping_to_be_answered(*state, "-NOPERM this user has no permissions to run the 'ping' command\r\n");
}

TEST(an_unknown_ping_counts_as_an_answer)
{
    expect_ping_to_be_answered(*state, "-ERR unknown command 'PING', with args beginning with: \r\n");
}

/* What did not fit into the socket is kept, and sent as soon as there is room. */
TEST_ON(a_ping_waits_for_room_in_the_socket, struct rig *r)
{
    char bytes[4096] = "";

    subscribed(r);
    int server = take_over(r);
    while (write(polled(r).fd, bytes, sizeof bytes) > 0)
        ;
    moved_clock_advance(&r->clock, MS(SILENCE_MS));
    attend(r);
    assert_int_equal(polled(r).events, POLLIN | POLLOUT);
    while (read(server, bytes, sizeof bytes) > 0)
        ;
    attend(r);
    assert_int_equal(polled(r).events, POLLIN);
    assert_int_equal(read(server, bytes, sizeof bytes), strlen("*1\r\n$4\r\nPING\r\n"));
    assert_memory_equal(bytes, "*1\r\n$4\r\nPING\r\n", strlen("*1\r\n$4\r\nPING\r\n"));
}

TESTS(setup, teardown)
