/*
 * Replies that break off, hang, or answer a command that arrives too late: whatever became of the command, nothing is
 * left.
 */
#include "support/delays.h"
#include "support/fixture.h"
#include "support/script_server.h"

#define LOCK "\r\n$8\r\nlock:cut\r\n"
#define ASK_OR_RELEASE "\r\n$1\r\n3\r\n$8\r\nlock:cut\r\n" /* as ASK_OR_RELEASE_OF_X */

#define PROMISED_MS 100

/* How long something was left, counted from the reconnect, or from the end of the call where that was later. */
static delays stranded;

static void expect_nothing_left(fixture *f, script_server *net, int64_t ended)
{
    /* The lease would not end before the test does, so it must be released. */
    await_nobody(f->rt, "cut");
    int64_t back = script_server_back_at(net);
    if (back != 0)
        delays_note(&stranded, now_ms() - (back > ended ? back : ended), PROMISED_MS);
}

/* After an acquire whose reply broke off: held and known, or not held and soon nowhere. */
static void check_after_acquire(fixture *f, dibs_runtime *rt, script_server *net, dibs_status status)
{
    int64_t ended = now_ms();

    if (status == DIBS_OK) {
        const char *token = server_text(f->server, "GET lock:cut");
        dibs_owner owner = owner_of(f->rt, "cut");
        assert_string_equal(owner.token, token);
        assert_status(DIBS_OK, dibs_check(rt, "cut"));
        assert_int_equal(hold_of(rt, "cut").count, 1);
        assert_status(DIBS_OK, dibs_unlock(rt, "cut"));
        ended = now_ms();
    } else {
        assert_status(DIBS_UNAVAILABLE, status);
        assert_status(DIBS_NOT_HELD, dibs_check(rt, "cut"));
        assert_status(DIBS_NOT_HELD, dibs_unlock(rt, "cut"));
    }
    expect_nothing_left(f, net, ended);
}

static void cut_acquire(fixture *f, dibs_runtime *rt, script_server *net, script_rule rule)
{
    unsigned fired = script_server_fired(net);

    script_server_add(net, rule);
    dibs_status status = dibs_trylock(rt, "cut");
    script_server_await_fired(net, fired); /* where its thread was stopped, later than the call ended */
    script_server_clear(net);
    check_after_acquire(f, rt, net, status);
}

static void cut_release(fixture *f, dibs_runtime *rt, script_server *net, script_rule rule)
{
    unsigned fired = script_server_fired(net);

    assert_status(DIBS_OK, dibs_timedlock(rt, "cut", LIMIT_MS));
    rule.match = LOCK; /* on some servers plain commands release it first (rule 71) */
    script_server_add(net, rule);
    dibs_status status = dibs_unlock(rt, "cut");
    int64_t ended = now_ms();
    script_server_await_fired(net, fired);
    script_server_clear(net);
    /* Whether the release was executed or not: never DIBS_LOST, which would mean that another may have been inside. */
    assert_true(status == DIBS_OK || status == DIBS_UNAVAILABLE);
    assert_status(DIBS_NOT_HELD, dibs_check(rt, "cut"));
    expect_nothing_left(f, net, ended);
}

typedef void cut_function(fixture *f, dibs_runtime *rt, script_server *net, script_rule rule);

/* At every byte, up to the whole reply before the connection goes. */
static void cut_everywhere(fixture *f, cut_function *cut)
{
    script_server *net = fixture_between(f);
    dibs_config config = {.lease_ms = SCRIPT_LEASE_MS, .connect_timeout_ms = LIMIT_MS, .command_timeout_ms = LIMIT_MS};
    dibs_runtime *rt = open_url(script_server_url(net), &config);
    size_t count = 0;

    fixture_open(f, 0);
    stranded = (delays){0};
    do {
        cut(f, rt, net, (script_rule){.match = ASK_OR_RELEASE, .nth = 1, .action = SCRIPT_TRUNCATE, .count = count});
    } while (count++ < script_server_cut_length(net));
    assert_true(count > 3);
    for (script_action action = SCRIPT_CLOSE_BEFORE; action <= SCRIPT_CLOSE_AFTER; action++)
        cut(f, rt, net, (script_rule){.match = ASK_OR_RELEASE, .nth = 1, .action = action});
    /* A second break, on the new connection, changes nothing. */
    cut(f, rt, net, (script_rule){.match = ASK_OR_RELEASE, .action = SCRIPT_CLOSE_AFTER});
    cut(f, rt, net, (script_rule){.match = ASK_OR_RELEASE, .action = SCRIPT_CLOSE_BEFORE});
    delays_expect_few_late(&stranded, "nothing was left after the reconnect");
    expect_works(f, rt, "cut");
    dibs_close(rt);
}

TEST(an_acquire_may_be_cut_at_any_byte)
{
    cut_everywhere(*state, cut_acquire);
}

TEST(a_release_may_be_cut_at_any_byte)
{
    cut_everywhere(*state, cut_release);
}

static bool is_connected(dibs_runtime *rt)
{
    dibs_owner owner;

    return dibs_query(rt, "cut", &owner) == DIBS_OK;
}

/* The reply hangs instead: the timeout ends the call. */
TEST_ON(a_reply_that_hangs_ends_at_the_timeout, fixture *f)
{
    static const script_action actions[] = {SCRIPT_TRUNCATE_HANG, SCRIPT_STALL_REPLY, SCRIPT_STALL_REQUEST};
    script_server *net = fixture_between(f);
    dibs_config config = {.lease_ms = SCRIPT_LEASE_MS, .command_timeout_ms = 300};
    dibs_runtime *rt = test_runtime(open_url(script_server_url(net), &config));

    fixture_open(f, 0);
    for (size_t i = 0; i < 3; i++) {
        script_rule rule = {.match = ASK_OR_RELEASE, .nth = 1, .action = actions[i], .count = 3};
        int64_t begin = now_ms();

        await_that(is_connected(rt)); /* so that the call has time for its ask */
        cut_acquire(f, rt, net, rule);
        cut_release(f, rt, net, rule);
        assert_true(now_ms() - begin < LIMIT_MS);
        /* A command that the network kept back reaches the server long after it was given up. */
        script_server_release(net);
        await_nobody(f->rt, "cut");
        expect_works(f, rt, "cut");
        await_nobody(f->rt, "cut");
    }
}

/* The ask of a waiter is kept back by the network and arrives when the waiter has long given up. */
TEST_ON(a_late_ask_leaves_nothing, fixture *f)
{
    script_server *net = fixture_between(f);
    dibs_config config = {.lease_ms = SCRIPT_LEASE_MS, .command_timeout_ms = 200, .connect_timeout_ms = 200};
    dibs_runtime *rt = test_runtime(open_url(script_server_url(net), &config));

    fixture_open(f, LONG_LEASE_MS);
    for (int i = 0; i < 3; i++) {
        dibs_status status;

        assert_status(DIBS_OK, dibs_lock(f->rt, "cut"));
        script_server_add(net, (script_rule){.match = ASK_OR_RELEASE, .nth = 1, .action = SCRIPT_STALL_REQUEST});
        status = dibs_timedlock(rt, "cut", 500);
        assert_true(status == DIBS_TIMEOUT || status == DIBS_UNAVAILABLE);
        script_server_clear(net);
        script_server_release(net);
        await_waiters(f->rt, "cut", 0);
        assert_status(DIBS_OK, dibs_unlock(f->rt, "cut"));
        await_nobody(f->rt, "cut");
    }
}

TESTS(fixture_setup, fixture_teardown)
