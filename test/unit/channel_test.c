/* A channel: each caller gets the reply to its own command, and what is submitted is answered once and in order. */
#include "unit/channel_crowd.h"

/* ---------------------------------------------------------- replies in order */

enum { THREADS = 16, ROUNDS = 200 };

TEST(each_of_many_threads_gets_its_own_replies)
{
    let_threads_echo(*state, THREADS, ROUNDS, "", NULL);
}

static void read_and_write(struct rig *r)
{
    dibs__channel_attend(r->channel, false, POLLIN | POLLOUT, moved_clock_now(&r->clock));
}

TEST(the_scheduler_reads_beside_many_threads)
{
    let_threads_echo(*state, THREADS, ROUNDS, "", read_and_write);
}

TEST_ON(a_reader_that_leaves_early_passes_the_reading_on, struct rig *r)
{
    struct caller pair[2];

    begin_two(r, pair, 10, 10 * COMMAND_MS);
    assert_int_equal(dibs__channel_load(r->channel), 2);
    moved_clock_advance(&r->clock, MS(10));
    expect_unknown(&pair[0], DIBS_UNAVAILABLE);
    fake_redis_hold(r->fake, false);
    expect_right(&pair[1]);
    assert_true(stands(r));
    assert_int_equal(dibs__channel_load(r->channel), 0);
    assert_int_equal(fake_redis_accepted(r->fake), 1);
}

TEST_ON(a_thread_that_does_not_read_may_leave_early, struct rig *r)
{
    struct caller pair[2];

    begin_two(r, pair, COMMAND_MS, 10);
    moved_clock_advance(&r->clock, MS(10));
    expect_unknown(&pair[1], DIBS_UNAVAILABLE);
    fake_redis_hold(r->fake, false);
    expect_right(&pair[0]);
    assert_true(echoes(r, pair[0].serial, "third"));
    assert_true(stands(r));
}

TEST_ON(a_late_reply_is_not_given_to_the_next, struct rig *r)
{
    uint64_t serial = open_now(r);

    fake_redis_hold(r->fake, true);
    struct dibs__request *request = sent_echo(r, serial, "late");
    fake_redis_await(r->fake, "ECHO late", 1);
    expect_in_doubt(r, request, moved_clock_now(&r->clock));
    assert_true(r->unattended > 0);
    assert_int_equal(dibs__channel_load(r->channel), 1);
    fake_redis_hold(r->fake, false);
    assert_true(echoes(r, serial, "next"));
    assert_int_equal(open_now(r), serial);
    assert_int_equal(fake_redis_accepted(r->fake), 1);
}

TEST_ON(the_scheduler_reads_what_nobody_waits_for, struct rig *r)
{
    uint64_t serial = open_now(r);

    fake_redis_hold(r->fake, true); /* otherwise the reply might be there at the caller's last look */
    expect_in_doubt(r, sent_echo(r, serial, "left"), moved_clock_now(&r->clock));
    fake_redis_hold(r->fake, false);
    REPEAT_UNTIL(dibs__channel_load(r->channel) == 0, attend(r, false));
    assert_true(stands(r));
}

/* ----------------------------------------------------------------- scheduler */

TEST_ON(submitted_commands_are_answered_once_and_in_order, struct rig *r)
{
    struct submits all;
    struct submitted list[SUBMITS];

    submit_all(r, open_now(r), &all, list);
    attend_until(r, false, &all.done, SUBMITS);
    assert_int_equal(all.done, SUBMITS);
    assert_int_equal(all.in_order, SUBMITS);
    assert_int_equal(all.broken, 0);
    assert_int_equal(dibs__channel_load(r->channel), 0);
}

TEST_ON(submitted_commands_fail_once_and_in_order_when_the_link_breaks, struct rig *r)
{
    struct submits all;
    struct submitted list[SUBMITS];
    uint64_t serial = open_now(r);

    fake_redis_hold(r->fake, true);
    submit_all(r, serial, &all, list);
    fake_redis_cut(r->fake);
    attend_until(r, false, &all.done, SUBMITS);
    assert_false(stands(r));
    assert_int_equal(all.done, SUBMITS);
    assert_int_equal(all.in_order, SUBMITS);
    assert_int_equal(all.broken, SUBMITS);
}

TEST_ON(the_end_of_the_channel_fails_what_is_in_flight, struct rig *r)
{
    uint64_t serial = open_now(r);
    atomic_uint broken = 0;

    fake_redis_hold(r->fake, true);
    assert_true(submit_echo(r, serial, "one", count_broken, &broken));
    dibs__channel_free(r->channel);
    r->channel = NULL;
    assert_int_equal(broken, 1);
}

/* ------------------------------------------------------------------- opening */

static const struct dibs__command ping = {.words = (const char *[]){"PING", NULL}};

static struct dibs__request *sent_behind_ping(struct rig *r, uint64_t serial, const char *text)
{
    struct dibs__error error;
    struct echo echo;

    echo_of(&echo, text);
    echo.command.before = &ping;
    echo.command.before_count = 1;
    struct dibs__request *request =
        dibs__channel_send(r->channel, serial, &echo.command, moved_clock_now(&r->clock), &error);
    assert_non_null(request);
    return request;
}

/* The reply to the PING is dropped, whatever it says. */
TEST_ON(a_command_goes_right_behind_a_ping, struct rig *r)
{
    static const char *const answers[] = {"+PONG\r\n", "-NOPERM no right to PING\r\n"};
    uint64_t serial = open_now(r);

    for (unsigned i = 0; i < 2; i++) {
        fake_redis_answer(r->fake, "PING", answers[i]);
        struct dibs__request *first = sent_behind_ping(r, serial, "first"), *then = sent_echo(r, serial, "then");
        assert_true(wait_echo(r, first, "first"));
        assert_true(wait_echo(r, then, "then"));
        assert_int_equal(fake_redis_count(r->fake, "PING"), i + 1);
        assert_int_equal(fake_redis_place(r->fake, "ECHO first", i + 1), fake_redis_place(r->fake, "PING", i + 1) + 1);
    }
    assert_int_equal(r->errors, 0);
}

/* The connection breaks behind the reply to the PING: whether the command was executed is not known. */
TEST_ON(a_command_whose_ping_alone_is_answered_is_in_doubt, struct rig *r)
{
    uint64_t serial = open_now(r);

    fake_redis_answer(r->fake, "PING", "+PONG\r\n");
    fake_redis_answer(r->fake, "ECHO", "");
    struct dibs__request *request = sent_behind_ping(r, serial, "first");
    fake_redis_await(r->fake, "ECHO", 1);
    fake_redis_cut(r->fake);
    expect_in_doubt(r, request, after(r, COMMAND_MS));
}

TEST_ON(the_clock_of_another_connection_is_not_taken, struct rig *r)
{
    struct dibs__link_view view;
    uint64_t serial = open_now(r);

    dibs__channel_set_clock(r->channel, serial, 77, INT64_MAX);
    dibs__channel_set_clock(r->channel, serial + 1, 88, INT64_MAX);
    assert_true(dibs__channel_view(r->channel, &view));
    assert_int_equal(view.server_ahead_us, 77);
    assert_string_equal(view.id.run_id, FAKE_RUN_ID);
    assert_int_equal(view.id.client, 1);
}

/*
 * A reply that is read late shows a time that has passed. A client that relied on it would send requests that are
 * already too late.
 */
TEST_ON(a_reply_that_is_read_late_sets_no_clock_back, struct rig *r)
{
    uint64_t serial = open_now(r);
    struct dibs__link_view view;

    dibs__channel_set_clock(r->channel, serial, 1000, INT64_MAX);
    dibs__channel_set_clock(r->channel, serial, 300, INT64_MAX);
    assert_true(dibs__channel_view(r->channel, &view));
    assert_int_equal(view.server_ahead_us, 1000);
}

TEST_ON(a_server_clocks_bound_can_only_be_lowered, struct rig *r)
{
    uint64_t serial = open_now(r);
    struct dibs__link_view view;

    dibs__channel_set_clock(r->channel, serial, 1000, INT64_MAX);
    dibs__channel_set_clock(r->channel, serial, INT64_MIN, 2000);
    dibs__channel_set_clock(r->channel, serial + 1, INT64_MIN, 100);
    assert_true(dibs__channel_view(r->channel, &view));
    assert_int_equal(view.server_ahead_us, 1000);
    dibs__channel_set_clock(r->channel, serial, INT64_MIN, -500);
    assert_true(dibs__channel_view(r->channel, &view));
    assert_int_equal(view.server_ahead_us, -500);
}

TESTS(setup, teardown)
