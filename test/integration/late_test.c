/*
 * Requests that reach the store late: a stuck renewal, an ask or an extension whose time is over. They change nothing.
 */
#include <inttypes.h>

#include "redis/scripts.h"
#include "support/fixture.h"
#include "support/script_server.h"

#define FAR_MS 300000 /* more than any lease of these tests but LONG_LEASE_MS */

/* --------------------------------------------------- through a slow network */

static void open_as_u(fixture *f, script_server *net, uint32_t lease_ms, uint32_t command_timeout_ms)
{
    f->urls[0] = formatted("unix://u:pw@%s", script_server_url(net) + strlen("unix://"));
    f->config.command_timeout_ms = command_timeout_ms;
    fixture_open(f, lease_ms);
}

/* The account may not end its old connections: what is stuck in one may arrive at any time. */
static void open_without_client_kill(fixture *f, script_server *net)
{
    server_do(f->server, "ACL SETUSER u on >pw ~* &* +@all -client +client|id +client|setname");
    open_as_u(f, net, 3 * SAFE_LEASE_MS, 500);
}

TEST_ON(a_stuck_renewal_does_not_undo_an_extension, fixture *f)
{
    script_server *net = fixture_between(f);
    long long asks;

    open_without_client_kill(f, net);
    assert_status(DIBS_OK, dibs_timedlock(f->rt, "x", LIMIT_MS));
    script_server_add(net, (script_rule){.match = RENEWAL_OF_X, .nth = 1, .action = SCRIPT_STALL_REQUEST});
    await_that(script_server_fired(net) > 0);
    script_server_clear(net);
    /* The scheduler gives that connection up, and extends over another. */
    await_or_say(dibs_extend(f->rt, "x", LONG_LEASE_MS) == DIBS_OK, "%s", dibs_last_error());
    assert_true(server_integer(f->server, "PTTL lock:x") > FAR_MS);
    asks = server_asks(f->server);
    script_server_release(net);
    server_await_ask(f->server, asks);
    assert_true(server_integer(f->server, "PTTL lock:x") > FAR_MS);
    assert_true(hold_of(f->rt, "x").remaining_ms > FAR_MS);
    dibs_unlock_all(f->rt); /* otherwise the release goes on in the background */
    assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS));
}

#define CUT_SHORT_MS 20000 /* the expiry that the stuck extension would set */

struct bystander {
    fixture *f;
    script_server *net;
};

/* The stuck request stays on its way although its connection breaks towards the client. */
static void cut_when_stuck(void *arg)
{
    struct bystander *by = arg;

    await_that(script_server_fired(by->net) > 0);
    script_server_clear(by->net);
    script_server_cut(by->net);
}

static void release_when_long(void *arg)
{
    struct bystander *by = arg;

    await_that(server_integer(by->f->server, "PTTL lock:x") > FAR_MS);
    long long asks = server_asks(by->f->server);
    script_server_release(by->net);
    server_await_ask(by->f->server, asks);
}

/*
 * The extension is sent again over the next connection, and a longer one after it, before the stuck one arrives in
 * time.
 */
TEST_ON(a_stuck_extension_is_taken_into_account, fixture *f)
{
    script_server *net = fixture_between(f);
    struct bystander by = {f, net};
    actor *other = actor_start();

    server_do(f->server, "ACL SETUSER u on >pw ~* &* +@all -client +client|id +client|setname");
    open_as_u(f, net, LONG_LEASE_MS, 3000);
    assert_status(DIBS_OK, dibs_timedlock(f->rt, "x", LIMIT_MS));
    script_server_add(net, (script_rule){.match = FULL_RENEWAL_OF_X, .nth = 1, .action = SCRIPT_STALL_REQUEST});
    actor_begin(other, cut_when_stuck, &by);
    assert_status(DIBS_OK, dibs_extend(f->rt, "x", CUT_SHORT_MS));
    actor_finish(other);
    actor_begin(other, release_when_long, &by);
    /*
     * The extension is sure once the time of the stuck one is over, which is hardly sooner than its own time: a slow
     * machine needs another.
     */
    await_or_say(dibs_extend(f->rt, "x", LONG_LEASE_MS) == DIBS_OK, "%s", dibs_last_error());
    actor_finish(other);
    int64_t believed_ms = hold_of(f->rt, "x").remaining_ms;
    assert_true(server_integer(f->server, "PTTL lock:x") + SLACK_MS > believed_ms);
    assert_true(believed_ms > FAR_MS);
    actor_end(other);
    dibs_unlock_all(f->rt);
    assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS));
}

static void withdraw_and_cut_when_stuck(void *arg)
{
    struct bystander *by = arg;

    await_that(script_server_fired(by->net) > 0);
    script_server_clear(by->net);
    server_do(by->f->server, "ACL SETUSER u -client|kill");
    script_server_cut(by->net);
}

/* The next connection finds that it can't end the last any more: an ask on its way may still be executed. */
TEST_ON(a_stuck_ask_leaves_nothing_though_the_right_to_kill_is_withdrawn, fixture *f)
{
    script_server *net = fixture_between(f);
    struct bystander by = {f, net};
    actor *other = actor_start();

    server_do(f->server, "ACL SETUSER u on >pw ~* &* +@all");
    open_as_u(f, net, LONG_LEASE_MS, 3000);
    script_server_add(net, (script_rule){.match = "lock:x", .nth = 1, .action = SCRIPT_STALL_REQUEST});
    actor_begin(other, withdraw_and_cut_when_stuck, &by);
    assert_status(DIBS_OK, dibs_timedlock(f->rt, "x", LIMIT_MS));
    actor_finish(other);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    long long asks = server_asks(f->server);
    script_server_release(net);
    server_await_ask(f->server, asks);
    assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS));
}

/* The forced unlock ended with its outcome in doubt. When it arrives, the lock belongs to somebody who came since. */
TEST_ON(a_forced_unlock_that_is_stuck_ends_nobody_who_came_since, fixture *f)
{
    script_server *net = fixture_between(f);
    dibs_runtime *holder = test_runtime(open_runtime(f->server, LONG_LEASE_MS));

    open_without_client_kill(f, net);
    assert_status(DIBS_OK, dibs_lock(holder, "x"));
    script_server_add(net,
                      (script_rule){.match = dibs__scripts[DIBS__SCRIPT_force].text, .action = SCRIPT_STALL_REQUEST});
    assert_status(DIBS_UNAVAILABLE, dibs_force_unlock(f->rt, "x", NULL));
    assert_true(script_server_fired(net) > 0);
    assert_status(DIBS_OK, dibs_unlock(holder, "x"));
    assert_status(DIBS_OK, dibs_lock(holder, "x"));
    script_server_clear(net);
    long long asks = server_asks(f->server);
    script_server_release(net);
    server_await_ask(f->server, asks);
    assert_true(server_has(f->server, "lock:x"));
    assert_status(DIBS_OK, dibs_unlock(holder, "x"));
}

/*
 * Nobody can end the connection in which the ask is stuck. The ask carries the time after which it is ignored, and its
 * retraction is confirmed only after that. However late the ask arrives, it leaves nothing.
 */
TEST_ON(a_stuck_ask_leaves_nothing, fixture *f)
{
    script_server *net = fixture_between(f);

    open_without_client_kill(f, net);
    script_server_add(net, (script_rule){.match = "lock:x", .nth = 1, .action = SCRIPT_STALL_REQUEST});
    assert_status(DIBS_UNAVAILABLE, dibs_trylock(f->rt, "x"));
    int64_t until = now_ms() + 2 * (int64_t)f->config.command_timeout_ms;
    dibs_close(f->rt); /* waits for the retraction */
    f->rt = NULL;
    pause_until(until);
    long long asks = server_asks(f->server);
    script_server_release(net);
    server_await_ask(f->server, asks);
    assert_false(server_has(f->server, "lock:x"));
    assert_false(server_has(f->server, "dibs:queue:{lock:x}"));
}

/*
 * The server reported 1970 when the connection was made, and today's time since: every request seems to arrive too
 * late.
 */
TEST_ON(a_server_clock_that_jumps_ahead_stops_no_call, fixture *f)
{
    script_server *net = fixture_between(f);

    script_server_answer(net, "TIME\r\n", "*2\r\n$1\r\n1\r\n$1\r\n0\r\n");
    open_without_client_kill(f, net);
    assert_true(script_server_fired(net) > 0);
    for (int i = 0; i < 3; i++) {
        assert_status(DIBS_OK, dibs_timedlock(f->rt, "x", LIMIT_MS));
        assert_that(within(SLACK_MS, dibs_extend(f->rt, "x", LONG_LEASE_MS) == DIBS_OK), "%s", dibs_last_error());
        assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    }
}

/* ------------------------------------------------------ the scripts themselves */

static long long server_us(server *s)
{
    redisReply *reply = server_command(s, "TIME");
    long long seconds;
    long long us;

    assert_int_equal(reply->elements, 2);
    assert_int_equal(sscanf(reply->element[0]->str, "%lld", &seconds), 1);
    assert_int_equal(sscanf(reply->element[1]->str, "%lld", &us), 1);
    freeReplyObject(reply);
    return seconds * 1000000 + us;
}

/* One lock of renew.lua: its answer. */
static long long renew(server *s, const char *token, const char *lease, const char *set)
{
    redisReply *reply = server_command(s, "EVAL %s 2 lock:x dibs:fence:{lock:x} %s %s 77 %s %s",
                                       dibs__scripts[DIBS__SCRIPT_renew].text, token, lease, set, "");
    long long result;

    assert_int_equal(reply->type, REDIS_REPLY_ARRAY);
    assert_int_equal(reply->elements, 2);
    result = reply->element[0]->integer;
    freeReplyObject(reply);
    return result;
}

static long long pttl(server *s)
{
    return server_integer(s, "PTTL lock:x");
}

TEST_ON(only_an_extension_shortens, fixture *f)
{
    server *s = f->server;

    server_do(s, "SET lock:x mine PX 200000");
    assert_int_equal(renew(s, "mine", "100000", ""), 4);
    assert_in_range(pttl(s), 100001, 200000);
    assert_int_equal(renew(s, "mine", "400000", ""), 1);
    assert_in_range(pttl(s), 200001, 400000);
    assert_int_equal(renew(s, "mine", "100000", "0"), 1);
    assert_in_range(pttl(s), 1, 100000);
    assert_int_equal(renew(s, "mine", "400000", "0"), 1);
    assert_in_range(pttl(s), 200001, 400000);
    assert_int_equal(renew(s, "another's", "500000", ""), 0);
    assert_int_equal(renew(s, "another's", "500000", "0"), 0);
    assert_in_range(pttl(s), 200001, 400000);
    server_do(s, "DEL lock:x");
}

TEST_ON(a_late_extension_is_ignored, fixture *f)
{
    server *s = f->server;

    const char *past = formatted("%lld", server_us(s) - 1);
    const char *future = formatted("%lld", server_us(s) + 1000000LL * LIMIT_MS);
    server_do(s, "SET lock:x mine PX 200000");
    assert_true(renew(s, "mine", "100000", past) < -atoll(past)); /* the server's time, turned round */
    assert_in_range(pttl(s), 100001, 200000);
    assert_true(renew(s, "mine", "400000", past) < -atoll(past));
    assert_in_range(pttl(s), 100001, 200000);
    assert_int_equal(renew(s, "mine", "100000", future), 1);
    assert_in_range(pttl(s), 1, 100000);
    server_do(s, "DEL lock:x");
}

/* The code and the number of acquire.lua; the fence: granted. */
static void acquire(server *s, const char *token, const char *not_after, long long out[2])
{
    redisReply *reply = server_command(s,
                                       "EVAL %s 3 lock:x dibs:fence:{lock:x} dibs:queue:{lock:x} "
                                       "%s 1 100000 %s %s",
                                       dibs__scripts[DIBS__SCRIPT_acquire].text, token, "", not_after);

    bool granted = reply->type == REDIS_REPLY_INTEGER;
    assert_true(granted || reply->elements >= 2);
    out[0] = granted ? 1 : reply->element[0]->integer;
    out[1] = granted ? reply->integer : reply->element[1]->integer;
    freeReplyObject(reply);
}

/* To a server whose clock has jumped ahead, each ask looks like a late one. */
TEST_ON(a_late_ask_is_ignored, fixture *f)
{
    server *s = f->server;
    long long answer[2];
    long long before = server_us(s);

    const char *past = formatted("%lld", before - 1);
    const char *future = formatted("%lld", before + 1000000LL * LIMIT_MS);
    acquire(s, "mine", past, answer);
    assert_int_equal(answer[0], -1);
    assert_true(answer[1] >= before);
    assert_true(answer[1] <= server_us(s));
    assert_int_equal(server_integer(s, "DBSIZE"), 0);
    acquire(s, "mine", future, answer);
    assert_int_equal(answer[0], 1);
    assert_true(answer[1] >= before);
    /*
     * An ask that its owner sends again too late renews nothing. Another attempt's late ask is told the same; one in
     * time is told that the lock is taken.
     */
    server_do(s, "PEXPIRE lock:x 50000");
    acquire(s, "mine", past, answer);
    assert_int_equal(answer[0], -1);
    assert_in_range(pttl(s), 1, 50000);
    acquire(s, "another's", past, answer);
    assert_int_equal(answer[0], -1);
    assert_true(answer[1] >= before);
    acquire(s, "another's", future, answer);
    assert_int_equal(answer[0], 0);
    assert_in_range(answer[1], 1, 50000);
    server_do(s, "DEL lock:x");
}

TESTS(fixture_setup, fixture_teardown)
