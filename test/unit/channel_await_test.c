/* A thread sends, does something else, and collects the reply later. */
#include "unit/channel_setup.h"

static struct dibs__request *begin_echo(struct rig *r, uint64_t serial, const char *text)
{
    struct dibs__error error;
    struct echo echo;
    struct dibs__request *request = dibs__channel_send(r->channel, serial, echo_of(&echo, text), 0, &error);

    assert_non_null(request);
    return request;
}

TEST_ON(an_awaited_request_can_still_be_waited_for, struct rig *r)
{
    uint64_t serial = open_now(r);

    fake_redis_hold(r->fake, true);
    struct dibs__request *request = begin_echo(r, serial, "later");
    assert_false(await_reply(r, request, moved_clock_now(&r->clock)));
    assert_false(look_for_reply(r, request));
    assert_int_equal(dibs__channel_load(r->channel), 1);
    fake_redis_hold(r->fake, false);
    assert_true(await_reply(r, request, after(r, COMMAND_MS / 2)));
    assert_int_equal(dibs__channel_load(r->channel), 0);
    assert_true(look_for_reply(r, request)); /* any number of times */
    assert_true(wait_echo(r, request, "later"));
}

/*
 * The scheduler's thread looks for votes like this: it would otherwise wake itself repeatedly until the server answers.
 */
TEST_ON(a_thread_that_only_looks_wakes_nobody, struct rig *r)
{
    uint64_t serial = open_now(r);

    fake_redis_hold(r->fake, true);
    assert_true(submit_echo(r, serial, "nobody's", NULL, NULL));
    struct dibs__request *request = begin_echo(r, serial, "later");
    unsigned before = atomic_load(&r->unattended);
    for (int i = 0; i < 10; i++)
        assert_false(look_for_reply(r, request));
    assert_int_equal(atomic_load(&r->unattended), before);
    fake_redis_hold(r->fake, false);
    assert_true(wait_echo(r, request, "later"));
}

/* This works also after the deadline of the thread, which has waited elsewhere. */
TEST_ON(a_reply_in_the_socket_is_taken, struct rig *r)
{
    struct dibs__request *request = begin_echo(r, open_now(r), "there");

    await_bytes(r);
    moved_clock_advance(&r->clock, MS(COMMAND_MS + 1)); /* a command of its own would have timed out */
    assert_true(wait_echo_until(r, request, "there", 0));
    assert_true(stands(r));
}

TEST_ON(the_end_of_the_connection_ends_an_await, struct rig *r)
{
    uint64_t serial = open_now(r);

    fake_redis_hold(r->fake, true);
    struct dibs__request *request = begin_echo(r, serial, "lost");
    fake_redis_await(r->fake, "ECHO lost", 1);
    fake_redis_cut(r->fake);
    assert_true(await_reply(r, request, after(r, COMMAND_MS / 2)));
    expect_in_doubt(r, request, after(r, COMMAND_MS));
}

/* A quorum polls as long as a request has neither its reply nor timed out. */
TEST_ON(the_command_timeout_ends_an_await, struct rig *r)
{
    uint64_t serial = open_now(r);

    fake_redis_hold(r->fake, true);
    struct dibs__request *request = begin_echo(r, serial, "never");
    assert_false(look_for_reply(r, request));
    moved_clock_advance(&r->clock, MS(COMMAND_MS));
    assert_true(look_for_reply(r, request));
    assert_true(await_reply(r, request, after(r, COMMAND_MS)));
    expect_in_doubt(r, request, after(r, COMMAND_MS));
}

/* No thread sleeps for that reply, so the reading goes to a thread with a later request. */
TEST_ON(a_request_that_is_left_keeps_nobody_from_reading, struct rig *r)
{
    uint64_t serial = open_now(r);
    struct caller first = {.r = r, .text = "first", .serial = serial, .deadline = after(r, 10)};
    struct caller last = {.r = r, .text = "last", .serial = serial, .deadline = after(r, 10 * COMMAND_MS)};

    fake_redis_hold(r->fake, true);
    begin_reading(&first);
    struct dibs__request *left = begin_echo(r, serial, "left");
    begin(&last);
    moved_clock_await_waiting(&r->clock, 1);
    moved_clock_advance(&r->clock, MS(10));
    expect_unknown(&first, DIBS_UNAVAILABLE); /* the reader leaves: "left" is the next in the row, "last" reads */
    fake_redis_hold(r->fake, false);
    expect_right(&last);
    assert_true(wait_echo(r, left, "left"));
}

/* A thread that awaited without a result passes the reading on, too. */
TEST_ON(a_thread_that_awaits_without_result_passes_the_reading_on, struct rig *r)
{
    uint64_t serial = open_now(r);
    struct caller other = {.r = r, .text = "other", .serial = serial, .deadline = after(r, 10 * COMMAND_MS)};

    fake_redis_hold(r->fake, true);
    struct dibs__request *left = begin_echo(r, serial, "left");
    begin(&other);
    fake_redis_await(r->fake, "ECHO other", 1);
    assert_false(await_reply(r, left, moved_clock_now(&r->clock)));
    fake_redis_hold(r->fake, false);
    expect_right(&other);
    assert_true(look_for_reply(r, left));
    assert_true(wait_echo(r, left, "left"));
}

/* What the socket does not take is the scheduler's to send: the thread only waits for replies. */
TEST_ON(unsent_bytes_are_left_to_the_scheduler, struct rig *r)
{
    uint64_t serial = open_now(r);
    unsigned before = atomic_load(&r->unattended);

    struct dibs__request *request = begin_echo(r, serial, ignored_text(r));
    assert_int_equal(atomic_load(&r->unattended), before + 1);
    fake_redis_ignore_peers(r->fake, false);
    while (fake_redis_count(r->fake, "ECHO yyyy") == 0)
        attend(r, false);
    assert_true(await_reply(r, request, after(r, COMMAND_MS / 2)));
    assert_true(wait_echo(r, request, "long"));
}

/* A thread that waits gives its command up while the socket is full, and another thread, whose command comes behind it,
 * reads. */
TEST_ON(unsent_bytes_survive_a_thread_that_gives_up, struct rig *r)
{
    uint64_t serial = open_now(r);
    struct caller first = {.r = r, .text = ignored_text(r), .serial = serial, .deadline = after(r, 10)};
    struct caller last = {.r = r, .text = "last", .serial = serial, .deadline = after(r, 10 * COMMAND_MS)};

    begin(&first);
    moved_clock_settle(&r->clock, 1);
    begin(&last);
    moved_clock_settle(&r->clock, 2);
    unsigned before = atomic_load(&r->unattended);
    moved_clock_advance(&r->clock, MS(10));
    expect_unknown(&first, DIBS_UNAVAILABLE);
    assert_true(atomic_load(&r->unattended) > before);
    fake_redis_ignore_peers(r->fake, false);
    while (fake_redis_count(r->fake, "ECHO last") == 0)
        attend(r, false);
    expect_right(&last);
}

TESTS(setup, teardown)
