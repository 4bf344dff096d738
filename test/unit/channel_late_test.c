/* A process that was stopped: replies that came in time are taken although they are read late. */
#include "unit/channel_setup.h"

/* The thread was stopped between sending and waiting, for longer than a command may take; the server was not. */
TEST_ON(a_reply_that_came_in_time_is_taken_late, struct rig *r)
{
    struct dibs__request *request = sent_echo(r, open_now(r), "late");

    await_bytes(r);
    moved_clock_advance(&r->clock, MS(2 * COMMAND_MS));
    assert_true(wait_echo(r, request, "late"));
    assert_true(stands(r));
    assert_int_equal(dibs__channel_load(r->channel), 0);
}

/* Also where the caller's time was shorter than the command timeout: then the outcome is not in doubt. */
TEST_ON(a_reply_is_taken_when_only_the_callers_time_is_over, struct rig *r)
{
    struct dibs__request *request = sent_echo(r, open_now(r), "short");

    await_bytes(r);
    assert_true(wait_echo_until(r, request, "short", 0));
}

/* The requests before it are answered on the way. */
TEST_ON(all_replies_that_came_in_time_are_taken_late, struct rig *r)
{
    enum { COUNT = 200 };
    struct dibs__request *requests[COUNT];
    char text[COUNT][16];
    uint64_t serial = open_now(r);

    for (int i = 0; i < COUNT; i++) {
        snprintf(text[i], sizeof text[i], "late-%d", i);
        requests[i] = sent_echo(r, serial, text[i]);
    }
    fake_redis_await(r->fake, "ECHO", COUNT);
    await_bytes(r);
    moved_clock_advance(&r->clock, MS(2 * COMMAND_MS));
    for (int i = COUNT - 1; i >= 0; i--)
        assert_that(wait_echo(r, requests[i], text[i]), "%s", text[i]);
    assert_true(stands(r));
}

/* The scheduler's poll began before the process was stopped, and saw nothing. */
TEST_ON(a_reply_that_nobody_waits_for_is_taken_late, struct rig *r)
{
    struct submits all;
    struct submitted list[SUBMITS];

    submit_all(r, open_now(r), &all, list);
    fake_redis_await(r->fake, "ECHO", SUBMITS);
    await_bytes(r);
    moved_clock_advance(&r->clock, MS(2 * COMMAND_MS));
    dibs__channel_attend(r->channel, false, 0, moved_clock_now(&r->clock));
    assert_true(stands(r));
    attend_until(r, false, &all.done, SUBMITS);
    assert_int_equal(all.broken, 0);
    assert_int_equal(all.in_order, SUBMITS);
}

TESTS(setup, teardown)
