/* The seam below a link: channels work on a transport that behaves as an SSL object does. */
#include "support/odd_transport.h"
#include "unit/channel_crowd.h"

static int setup_odd(void **state)
{
    int result = setup(state);
    struct rig *r = *state;

    r->endpoint.transport = &odd_transport;
    return result;
}

enum { THREADS = 4, ROUNDS = 50 };

static void attend_kept_open(struct rig *r)
{
    attend(r, true);
}

/* The scheduler sends what the transport did not take at once. */
TEST(threads_get_their_replies_over_an_odd_transport)
{
    let_threads_echo(*state, THREADS, ROUNDS, "a text that takes more than one piece: ", attend_kept_open);
}

TEST_ON(the_scheduler_connects_over_an_odd_transport, struct rig *r)
{
    struct dibs__link_view view;
    struct submits all;
    struct submitted list[SUBMITS];

    attend_until(r, true, &r->opened, 1);
    assert_true(dibs__channel_view(r->channel, &view));
    submit_all(r, view.serial, &all, list);
    attend_until(r, false, &all.done, SUBMITS);
    assert_int_equal(all.in_order, SUBMITS);
    assert_int_equal(all.broken, 0);
}

/* The reply lies in the socket, then in the transport: neither is late. */
TEST_ON(a_reply_in_time_is_found_over_an_odd_transport, struct rig *r)
{
    struct dibs__error error;
    uint64_t serial = open_now(r);
    struct echo echo;
    struct dibs__request *request =
        dibs__channel_send(r->channel, serial, echo_of(&echo, "in time"), after(r, COMMAND_MS), &error);

    assert_non_null(request);
    fake_redis_await(r->fake, "ECHO", 1);
    await_bytes(r);
    moved_clock_set(&r->clock, after(r, COMMAND_MS + 1));
    assert_true(wait_echo(r, request, "in time"));
    assert_true(stands(r));
}

TEST_ON(the_end_of_an_odd_transport_is_noticed, struct rig *r)
{
    open_now(r);
    fake_redis_cut(r->fake);
    attend_until_broken(r);
    assert_true(echoes(r, open_now(r), "again"));
}

TESTS(setup_odd, teardown)
