/* How a channel sends and receives, what ends its connection, and what waiting threads are told then. */
#include "unit/channel_setup.h"

/* ------------------------------------------------------------------ breaking */

TEST_ON(a_request_that_waited_its_full_time_ends_the_connection, struct rig *r)
{
    struct caller pair[2];
    atomic_uint broken = 0;

    begin_two(r, pair, 10 * COMMAND_MS, 10 * COMMAND_MS);
    moved_clock_advance(&r->clock, MS(COMMAND_MS - 1));
    assert_true(submit_echo(r, pair[0].serial, "third", count_broken, &broken));
    assert_int_equal(dibs__channel_load(r->channel), 3);
    moved_clock_advance(&r->clock, MS(1));
    expect_unknown(&pair[0], DIBS_UNAVAILABLE);
    expect_unknown(&pair[1], DIBS_UNAVAILABLE);
    attend_until(r, false, &broken, 1);
    assert_int_equal(broken, 1);
    assert_false(stands(r));
    assert_int_equal(dibs__channel_load(r->channel), 0);
    fake_redis_hold(r->fake, false);
    uint64_t serial = open_now(r);
    assert_true(serial > pair[0].serial);
    assert_true(echoes(r, serial, "again"));
    assert_int_equal(r->reopened, 1);
}

TEST_ON(the_scheduler_ends_a_connection_that_does_not_answer, struct rig *r)
{
    uint64_t serial = open_now(r);
    atomic_uint broken = 0;

    fake_redis_hold(r->fake, true);
    assert_true(submit_echo(r, serial, "one", count_broken, &broken));
    int64_t deadline = DIBS__NEVER;
    struct pollfd fd = dibs__channel_interest(r->channel, false, &deadline);
    assert_true(fd.fd >= 0 && (fd.events & POLLIN));
    assert_true(deadline == after(r, COMMAND_MS));
    moved_clock_set(&r->clock, deadline - 1);
    dibs__channel_attend(r->channel, false, 0, deadline - 1);
    assert_true(stands(r));
    moved_clock_set(&r->clock, deadline);
    dibs__channel_attend(r->channel, false, 0, deadline);
    assert_false(stands(r));
    assert_int_equal(broken, 1);
}

TEST_ON(an_unsent_command_is_known_not_to_have_run, struct rig *r)
{
    uint64_t serial = open_now(r);
    struct dibs__error error;
    redisReply *reply;

    struct dibs__request *first = sent_echo(r, serial, ignored_text(r)), *second = sent_echo(r, serial, "second");
    assert_true(r->unattended > 0); /* the rest must still be written */
    fake_redis_cut(r->fake);
    bool unknown = true;
    assert_status(DIBS_UNAVAILABLE, wait_for(r->channel, second, after(r, 1), &reply, &unknown, &error));
    assert_false(unknown);
    expect_in_doubt(r, first, after(r, 1));
}

static bool wants_to_write(struct rig *r)
{
    int64_t deadline = DIBS__NEVER;
    struct pollfd fd = dibs__channel_interest(r->channel, false, &deadline);
    return fd.fd >= 0 && (fd.events & POLLOUT);
}

TEST_ON(bytes_that_did_not_fit_are_sent_when_there_is_room, struct rig *r)
{
    uint64_t serial = open_now(r);

    struct dibs__request *first = sent_echo(r, serial, ignored_text(r)), *second = sent_echo(r, serial, "second");
    assert_true(wants_to_write(r)); /* the scheduler: it sleeps until the socket has room */
    fake_redis_ignore_peers(r->fake, false);
    REPEAT_UNTIL(fake_redis_count(r->fake, "ECHO second") > 0, attend(r, false));
    assert_true(wait_echo(r, first, "long"));
    assert_false(wants_to_write(r));
    assert_true(wait_echo(r, second, "second"));
}

/* A thread that sends and may wait for the socket. */
struct sender {
    struct rig *r;
    uint64_t serial;
    const char *text;
    struct dibs__error error;
    struct dibs__request *request;
};

static void *run_sender(void *arg)
{
    struct sender *s = arg;
    struct echo echo;

    s->request =
        dibs__channel_send(s->r->channel, s->serial, echo_of(&echo, s->text), after(s->r, COMMAND_MS), &s->error);
    return NULL;
}

/* The sender sleeps until the socket has room: it is found in poll, with nothing to do. */
TEST_ON(a_sender_sleeps_while_the_socket_is_full, struct rig *r)
{
    struct sender sender = {.r = r, .serial = open_now(r)};
    pthread_t thread;

    sender.text = ignored_text(r);
    assert_int_equal(pthread_create(&thread, NULL, run_sender, &sender), 0);
    moved_clock_settle(&r->clock, 1);
    fake_redis_ignore_peers(r->fake, false);
    pthread_join(thread, NULL);
    assert_true(sender.request && wait_echo(r, sender.request, "long"));
}

TEST_ON(nothing_is_sent_on_a_closed_connection, struct rig *r)
{
    uint64_t old = open_now(r);
    struct dibs__error error = {DIBS_OK, ""};
    atomic_uint broken = 0;

    fake_redis_cut(r->fake);
    attend_until_broken(r);
    assert_null(send_echo(r, old, "none", &error));
    assert_int_equal(error.status, DIBS_UNAVAILABLE);
    uint64_t serial = open_now(r);
    assert_true(serial > old);
    error.status = DIBS_OK;
    assert_null(send_echo(r, old, "none", &error));
    assert_int_equal(error.status, DIBS_UNAVAILABLE);
    assert_false(submit_echo(r, old, "none", count_broken, &broken));
    assert_true(echoes(r, serial, "new"));
    assert_int_equal(fake_redis_count(r->fake, "ECHO none"), 0);
    assert_int_equal(broken, 0);
    assert_int_equal(r->reopened, 1);
}

TEST_ON(an_unexpected_reply_breaks_the_connection, struct rig *r)
{
    open_now(r);
    fake_redis_push(r->fake, ":7\r\n");
    attend_until_broken(r);
    uint64_t serial = open_now(r);
    fake_redis_answer(r->fake, "ECHO two", "$3\r\ntwo\r\n:7\r\n");
    assert_true(echoes(r, serial, "two"));
    attend_until_broken(r);
}

TEST_ON(garbage_fails_waiting_calls_with_a_store_error, struct rig *r)
{
    uint64_t serial = open_now(r);
    struct caller caller = {.r = r, .text = "junk", .serial = serial, .deadline = after(r, COMMAND_MS)};
    fake_redis_answer(r->fake, "ECHO junk", "HTTP/1.1 200 OK\r\n\r\n");
    begin(&caller);
    expect_unknown(&caller, DIBS_STORE_ERROR);
    assert_false(stands(r));
}

TEST_ON(a_server_that_hangs_up_fails_all_in_flight, struct rig *r)
{
    struct caller pair[2];

    begin_two(r, pair, COMMAND_MS, COMMAND_MS);
    fake_redis_await(r->fake, "ECHO second", 1);
    fake_redis_cut(r->fake);
    expect_unknown(&pair[0], DIBS_UNAVAILABLE);
    expect_unknown(&pair[1], DIBS_UNAVAILABLE);
    assert_false(stands(r));
}

/* ----------------------------------------------------- wanted, and looked at */

/* No thread uses the connection, so only a look finds its end. */
TEST_ON(a_look_finds_the_end_of_an_idle_connection, struct rig *r)
{
    assert_false(dibs__channel_look(r->channel));
    open_now(r);
    assert_true(dibs__channel_look(r->channel));
    fake_redis_cut(r->fake);
    assert_true(dibs__channel_is_connected(r->channel));
    await_that(!dibs__channel_look(r->channel));
    assert_false(dibs__channel_is_connected(r->channel));
    assert_true(open_now(r) > 0);
}

/* Unread bytes may be a good reply. */
TEST_ON(a_look_leaves_replies_alone, struct rig *r)
{
    struct dibs__request *request = sent_echo(r, open_now(r), "there");

    await_bytes(r);
    assert_true(dibs__channel_look(r->channel));
    assert_true(wait_echo(r, request, "there"));
}

static const char *const of_a_replica[] = {
    "-READONLY You can't write against a read only replica.\r\n",
    "-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.\r\n",
    "-ERR Error running script (call to f_1): @user_script:1: -READONLY You can't write against a read only "
    "replica.\r\n",
    "*2\r\n:1\r\n-READONLY You can't write against a read only replica.\r\n",
};

static bool is_refused(struct rig *r, uint64_t serial)
{
    struct dibs__error error;
    struct dibs__request *request = send_echo(r, serial, "x", &error);

    return request && !wait_echo(r, request, "x");
}

/*
 * The address may lead to another server by now, so the connection is given up, but not repeatedly while the address
 * leads to a replica.
 */
TEST_ON(a_server_that_became_a_replica_is_left, struct rig *r)
{
    for (size_t i = 0; i < sizeof of_a_replica / sizeof *of_a_replica; i++) {
        uint64_t serial = open_now(r);

        fake_redis_answer(r->fake, "ECHO", of_a_replica[i]);
        moved_clock_advance(&r->clock, MS(500) - 1);
        assert_true(is_refused(r, serial));
        assert_true(stands(r));
        moved_clock_advance(&r->clock, 1);
        assert_true(is_refused(r, serial));
        assert_false(stands(r));
        assert_true(open_now(r) > serial);
        assert_int_equal(r->endpoint.address_count, 1);
        assert_int_equal(r->endpoint.failures, i + 1);
    }
    fake_redis_answer(r->fake, "ECHO", "-OOM command not allowed\r\n");
    moved_clock_advance(&r->clock, MS(500));
    assert_true(is_refused(r, open_now(r)));
    assert_true(stands(r));
}

/* ------------------------------------------------------------------- polling */

/* By the clock of these tests no wait takes any time, which is less than the usual time assumed at first. */
TEST_ON(a_reply_seen_by_polling_is_credited, struct rig *r)
{
    uint64_t serial = open_now(r);

    dibs__spin_init(&r->endpoint.spin, &dibs__system_clock, 100);
    int64_t usual = atomic_load(&r->endpoint.spin.asleep);
    assert_true(echoes(r, serial, "polled"));
    assert_true(atomic_load(&r->endpoint.spin.account) > 0);
    assert_true(atomic_load(&r->endpoint.spin.asleep) == usual);
}

TEST_ON(a_reply_after_a_sleep_is_measured, struct rig *r)
{
    uint64_t serial = open_now(r);

    dibs__spin_init(&r->endpoint.spin, &dibs__system_clock, 100);
    atomic_store(&r->endpoint.spin.account, -1);
    int64_t usual = atomic_load(&r->endpoint.spin.asleep);
    assert_true(echoes(r, serial, "slept for"));
    assert_true(atomic_load(&r->endpoint.spin.asleep) < usual);
}

TESTS(setup, teardown)
