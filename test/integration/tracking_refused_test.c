/*
 * If the server may not or cannot tell of changes, or its messages get lost, the library works without them: the next
 * renewal finds losses, and waiters poll a foreign holder's key every 50 to 100 ms.
 */
#include "support/fixture.h"
#include "support/queue.h"
#include "support/script_server.h"
#include "support/tracking.h"

#define RENEW_MS 200

/* ------------------------------------------------------------------- as before */

/* Nothing is told. */
static void expect_untold(fixture *f)
{
    dibs_stats stats = stats_of(f->rt);

    assert_int_equal(stats.tracking, 0);
    assert_int_equal(stats.invalidations, 0);
}

/* The thread holds "x". */
static void expect_renewals(fixture *f)
{
    await_renewed(f->rt, stats_of(f->rt).renewed + 3);
    assert_status(DIBS_OK, dibs_check(f->rt, "x"));
    assert_int_equal(stats_of(f->rt).lost, 0);
    expect_deletion_told(f, "x");
}

static void expect_polling(fixture *f)
{
    server_do(f->server, "SET lock:x by-hand PX 600000");
    actor *thread = actor_locking(f->rt, "x", DIBS_WAIT_FOREVER);
    for (int i = 0; i < 10; i++)
        server_await_ask(f->server, server_asks(f->server));
    int64_t since = now_ms();
    server_do(f->server, "DEL lock:x");
    assert_status(DIBS_OK, actor_result(thread));
    assert_in_range(now_ms() - since, 0, SOON_MS);
    assert_status(DIBS_OK, actor_unlock(thread, f->rt, "x"));
    actor_end(thread);
}

static void expect_pushes(fixture *f)
{
    dibs_runtime *other = open_runtime(f->server, LONG_LEASE_MS);
    uint64_t granted = stats_of(f->rt).granted;

    assert_status(DIBS_OK, dibs_lock(other, "x"));
    actor *thread = actor_locking(f->rt, "x", DIBS_WAIT_FOREVER);
    queue_await(f->server, "x", 1);
    actor_await_asleep(thread);
    assert_status(DIBS_OK, dibs_unlock(other, "x"));
    assert_status(DIBS_OK, actor_result(thread));
    assert_int_equal(stats_of(f->rt).granted, granted + 1);
    assert_status(DIBS_OK, actor_unlock(thread, f->rt, "x"));
    actor_end(thread);
    dibs_close(other);
}

/* A lock that is deleted in the background: no command of that is refused. */
static void expect_no_error_of_deleting(fixture *f)
{
    actor *thread = actor_start();
    uint64_t errors = stats_of(f->rt).store_errors;

    assert_status(DIBS_OK, actor_lock(thread, f->rt, "z", 0));
    actor_end(thread);
    assert_true(server_wait_gone(f->server, "lock:z", LIMIT_MS));
    assert_int_equal(stats_of(f->rt).orphaned, 1);
    expect_works(f, f->rt, "z");
    assert_int_equal(stats_of(f->rt).store_errors, errors);
}

/* It is not tried again as long as the connections stand. */
static void expect_no_more_tries(fixture *f)
{
    long long calls = tracking_calls(f->server);

    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    assert_status(DIBS_OK, dibs_lock(f->rt, "y"));
    await_renewed(f->rt, stats_of(f->rt).renewed + 6);
    assert_int_equal(tracking_calls(f->server), calls);
    assert_status(DIBS_OK, dibs_unlock_all(f->rt));
}

/* -------------------------------------------------------------- access rules */

static void open_as(fixture *f, const char *rules)
{
    f->urls[0] = server_account(f->server, "u", rules);
    f->config.renew_ms = RENEW_MS;
    fixture_open_patient(f, LONG_LEASE_MS);
}

static bool has_text(const redisReply *reply, const char *text)
{
    if (reply->str && strstr(reply->str, text))
        return true;
    for (size_t i = 0; reply->type == REDIS_REPLY_ARRAY && i < reply->elements; i++)
        if (has_text(reply->element[i], text))
            return true;
    return false;
}

static bool is_refused(server *s, const char *what)
{
    redisReply *log = server_command(s, "ACL LOG");
    bool found = has_text(log, what);

    freeReplyObject(log);
    return found;
}

static void await_refused(server *s, const char *what)
{
    await_or_say(is_refused(s, what), "%s is not refused", what);
}

/* `what` is the command, channel or key that the rules forbid. */
static void expect_as_before(fixture *f, const char *rules, const char *what)
{
    open_as(f, rules);
    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    await_refused(f->server, what);
    expect_renewals(f);
    expect_polling(f);
    assert_int_equal(stats_of(f->rt).tracking, 0);
}

TEST_ON(locks_work_without_the_right_to_client_tracking, fixture *f)
{
    expect_as_before(f, "~* &* +@all -client|tracking", "client|tracking");
    expect_pushes(f);
    expect_no_more_tries(f);
    expect_untold(f);
    expect_no_error_of_deleting(f);
}

TEST_ON(locks_work_without_the_right_to_client, fixture *f)
{
    expect_as_before(f, "~* &* +@all -client", "client");
    expect_no_more_tries(f);
    expect_untold(f);
}

TEST_ON(locks_work_without_the_right_to_the_invalidation_channel, fixture *f)
{
    expect_as_before(f, "~* resetchannels &dibs:* +@all", "__redis__:invalidate");
    assert_int_equal(tracking_calls(f->server), 0); /* here the other runtime of expect_pushes has not tracked yet */
    assert_int_equal(stats_of(f->rt).reconnects, 0);
    expect_pushes(f);
    expect_untold(f);
}

TEST_ON(locks_work_without_the_right_to_any_channel, fixture *f)
{
    expect_as_before(f, "~* resetchannels +@all", "dibs:");
    assert_int_equal(tracking_calls(f->server), 0);
}

/* The account may write no key but these. */
TEST_ON(locks_work_without_the_right_to_the_probes_key, fixture *f)
{
    expect_as_before(f, "~lock:* ~dibs:fence:* ~dibs:queue:* &* +@all", "dibs:probe:");
    expect_pushes(f);
    expect_untold(f);
}

/* What doc/ACCOUNTS.md names. */
TEST_ON(tracking_needs_only_the_documented_rights, fixture *f)
{
    open_as(f,
            "~lock:* ~dibs:* &dibs:* &__redis__:invalidate -@all +evalsha +eval +script|exists +script|load +get +mget "
            "+set +incrby +del +exists +pttl +pexpire +time +ping +hset +hget +hmget +hdel +hkeys +hlen +zadd +zrem "
            "+zrange +zrangebyscore +zcard +client|id "
            "+client|setname +client|kill +info +subscribe +publish +pubsub|numsub +client|tracking +client|caching");
    lock_tracked(f, "x");
    assert_status(DIBS_OK, dibs_extend(f->rt, "x", LONG_LEASE_MS));
    expect_no_error_of_deleting(f);
    expect_deletion_told(f, "x");
    expect_pushes(f);
    assert_int_equal(stats_of(f->rt).tracking, 1);
}

/* The right is granted later: from the next connection on it is used. */
TEST_ON(a_tracking_right_granted_later_is_used, fixture *f)
{
    expect_as_before(f, "~* &* +@all -client|tracking", "client|tracking");
    server_do(f->server, "ACL SETUSER u +client|tracking +client|caching");
    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    server_do(f->server, "CLIENT KILL TYPE normal SKIPME yes");
    assert_that(comes_to(f->rt, STAT(tracking), 1), "it is not tried again");
    await_tracked(f->server, f->rt, 1);
    events_forget(&f->events);
    expect_deletion_told(f, "x");
}

/* ------------------------------------------------------------- versions of servers */

static void open_through(fixture *f, script_server *net, uint32_t lease_ms)
{
    f->urls[0] = script_server_url(net);
    fixture_open(f, lease_ms);
}

static void close_through(fixture *f, script_server *net)
{
    close_runtime(&f->rt);
    script_server_stop(net);
}

/* The server says that it is of that version. */
static script_server *start_version(const fixture *f, const char *version, char reply[256])
{
    script_server *net = script_server_start(&(script_options){.backend = f->server->socket_path});

    const char *text = formatted("# Server\r\nredis_version:%s\r\nrun_id:%040d\r\n", version, 7);
    snprintf(reply, 256, "$%zu\r\n%s\r\n", strlen(text), text);
    script_server_answer(net, "\r\nserver\r\n", reply);
    return net;
}

TEST_ON(old_servers_are_not_tracked, fixture *f)
{
    static const char *const versions[] = {"2.8.24", "5.0.14", "6.2.14", "7.0.0", "7.0.4", "?", ""};
    char reply[256];

    f->config.renew_ms = RENEW_MS;
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
        script_server *net = start_version(f, versions[i], reply);
        open_through(f, net, LONG_LEASE_MS);
        assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
        await_renewed(f->rt, stats_of(f->rt).renewed + 2);
        if (i % 3 == 0) {
            expect_renewals(f);
            expect_polling(f);
            events_forget(&f->events);
        } else {
            assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
        }
        expect_untold(f);
        assert_int_equal(tracking_calls(f->server), 0);
        close_through(f, net);
    }
}

TEST_ON(new_servers_are_tracked, fixture *f)
{
    static const char *const versions[] = {"7.0.5", "7.0.15", "7.2.4", "8.0.0", "10.0.0", "7.1"};
    char reply[256];

    f->config.command_timeout_ms = LIMIT_MS;
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
        script_server *net = start_version(f, versions[i], reply);
        open_through(f, net, LONG_LEASE_MS);
        lock_tracked(f, "x");
        assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
        close_through(f, net);
    }
}

/* ----------------------------------------------------------- messages that are lost */

/* No message ever arrives: the library finds that out within a command timeout, and does not rely on tracking. */
static void expect_found_out(fixture *f, void (*drop)(script_server *net, bool on), bool pushes)
{
    script_server *net = fixture_between(f);

    f->config.renew_ms = RENEW_MS;
    drop(net, true);
    open_through(f, net, LONG_LEASE_MS);
    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    await_that(tracking_calls(f->server) >= 2);
    pause_ms(1200);
    expect_renewals(f);
    expect_polling(f);
    expect_untold(f);
    if (pushes)
        expect_pushes(f);
}

TEST(tracking_is_off_behind_a_proxy_that_swallows_changes)
{
    expect_found_out(*state, script_server_drop_changes, true);
}

TEST(tracking_is_off_behind_a_proxy_that_swallows_all_messages)
{
    expect_found_out(*state, script_server_drop_pushes, false);
}

/*
 * Until the server has answered the probe, the library works without tracking; the close does not wait for the answer
 * either.
 */
TEST_ON(locks_work_while_tracking_is_probed, fixture *f)
{
    script_server *net = fixture_between(f);

    script_server_add(net, (script_rule){.match = "\r\nTRACKING\r\n", .nth = 1, .action = SCRIPT_STALL_REQUEST});
    f->config.command_timeout_ms = LIMIT_MS;
    open_through(f, net, LONG_LEASE_MS);
    assert_status(DIBS_OK, dibs_lock(f->rt, "y"));
    script_server_await_fired(net, 0);
    expect_polling(f);
    expect_untold(f);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "y"));
    int64_t since = now_ms();
    close_runtime(&f->rt);
    assert_in_range(now_ms() - since, 0, SOON_MS);
}

/*
 * Messages get lost after tracking was confirmed: a renewal finds a loss, and a waiter asks after a third of its lease.
 */
TEST_ON(lost_tracking_messages_cost_time_and_nothing_else, fixture *f)
{
    script_server *net = fixture_between(f);

    f->config.renew_ms = RENEW_MS;
    f->config.command_timeout_ms = LIMIT_MS;
    open_through(f, net, 3000);
    lock_tracked(f, "x");
    script_server_drop_changes(net, true);
    expect_deletion_told(f, "x");
    script_server_drop_changes(net, false);
    server_do(f->server, "FLUSHALL");
    server_do(f->server, "SET lock:x by-hand PX 600000");
    actor *thread = actor_locking(f->rt, "x", DIBS_WAIT_FOREVER);
    await_tracked(f->server, f->rt, 1);
    script_server_drop_changes(net, true);
    int64_t since = now_ms();
    server_do(f->server, "DEL lock:x");
    assert_status(DIBS_OK, actor_result(thread));
    assert_in_range(now_ms() - since, 0, 1000 + SOON_MS);
    assert_status(DIBS_OK, actor_unlock(thread, f->rt, "x"));
}

/* ------------------------------------------------------------ a reason that passes */

static bool is_refused_for_lack_of_memory(server *s)
{
    redisReply *reply = server_command(s, "INFO errorstats");
    bool found = has_text(reply, "errorstat_OOM");

    freeReplyObject(reply);
    return found;
}

TEST_ON(it_is_tried_again_once_the_server_has_memory, fixture *f)
{
    open_with_tracked(f, LONG_LEASE_MS, "x");
    server_do(f->server, "CONFIG SET maxmemory 1");
    kill_tracker(f->server);
    await_or_say(is_refused_for_lack_of_memory(f->server), "the probe's key was not refused");
    long long looks = server_calls(f->server, "mget");
    server_do(f->server, "CONFIG SET maxmemory 0");
    await_that(server_calls(f->server, "mget") > looks);
    expect_deletion_told(f, "x");
}

TESTS(fixture_setup, fixture_teardown)
