/*
 * A lock that nobody is known to wait for is released by plain commands (rule 71), where the server has one that
 * deletes a key by its value. What stands between the library and the server says that it has one, and answers it,
 * where the test's server has none.
 */
#include "support/fixture.h"
#include "support/queue.h"
#include "support/script_server.h"

#define INFO_OF_SERVER "\r\nINFO\r\n$6\r\nserver\r\n"
#define DELIFEQ "\r\nDELIFEQ\r\n$6\r\nlock:x\r\n"
#define DELEX "\r\nDELEX\r\n$6\r\nlock:x\r\n$4\r\nIFEQ\r\n"
#define VALKEY_9 "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.0.0"
#define REDIS_8_4 "redis_version:8.4.0"

/* A runtime on a server that seems to be of that version. */
typedef struct rig {
    fixture *f;
    script_server *net;
    dibs_runtime *rt;
    char info[256];
} rig;

/*
 * From now on, only these rules count, and what the server seems to be. In one step: a connection that is made in
 * between would see another server, and no plain command is sent for a while to one that has changed.
 */
static void set_rules(rig *r, const script_rule *rule)
{
    script_rule rules[2] = {
        {.match = INFO_OF_SERVER, .action = SCRIPT_REPLACE, .bytes = r->info, .uncounted = true},
    };

    if (rule)
        rules[1] = *rule;
    script_server_set(r->net, rules, rule ? 2 : 1);
}

static void rig_open(rig *r, fixture *f, const char *version, uint32_t command_timeout_ms)
{
    dibs_config config = {.lease_ms = LONG_LEASE_MS, .command_timeout_ms = command_timeout_ms};

    const char *info = formatted("# Server\r\n%s\r\nrun_id:0123456789abcdef0123456789abcdef01234567\r\n", version);
    snprintf(r->info, sizeof r->info, "$%zu\r\n%s\r\n", strlen(info), info);
    r->f = f;
    r->net = script_server_start(&(script_options){.backend = f->server->socket_path});
    set_rules(r, NULL);
    r->rt = open_url(script_server_url(r->net), &config);
    if (!f->rt)
        fixture_open(f, LONG_LEASE_MS);
}

static void rig_close(rig *r)
{
    dibs_close(r->rt);
    script_server_stop(r->net);
}

static void answer(rig *r, const char *command, const char *reply)
{
    set_rules(r, &(script_rule){.match = command, .action = SCRIPT_REPLACE, .bytes = reply});
}

/* How often the rule fires while the name is locked and unlocked. */
static unsigned fired_in_a_pair(rig *r)
{
    unsigned before = script_server_fired(r->net);

    lock_and_release(r->rt, "x", LIMIT_MS);
    return script_server_fired(r->net) - before;
}

/* The answer says that K is deleted, but it is not: so one sees that no script runs. */
TEST_ON(where_nobody_waits_no_script_runs, fixture *f)
{
    static const char *const versions[] = {VALKEY_9, REDIS_8_4}, *const commands[] = {DELIFEQ, DELEX};
    rig r;

    for (int i = 0; i < 2; i++) {
        rig_open(&r, f, versions[i], 0);
        answer(&r, commands[i], ":1\r\n");
        assert_int_equal(fired_in_a_pair(&r), 1);
        assert_true(server_has(f->server, "lock:x"));
        server_do(f->server, "DEL lock:x");
        rig_close(&r);
    }
}

TEST_ON(other_servers_are_not_asked, fixture *f)
{
    static const char *const versions[] = {"redis_version:8.2.9", "redis_version:7.2.4\r\nvalkey_version:8.1.1"};
    rig r;

    for (int i = 0; i < 2; i++) {
        rig_open(&r, f, versions[i], 0);
        answer(&r, "\r\nDEL", "-ERR\r\n");
        assert_int_equal(fired_in_a_pair(&r), 0);
        assert_false(server_has(f->server, "lock:x"));
        rig_close(&r);
    }
}

/* Whoever waits is seen behind the deletion, and is granted the lock by the script. */
TEST_ON(who_waits_is_served, fixture *f)
{
    rig r;

    rig_open(&r, f, VALKEY_9, 0);
    answer(&r, DELIFEQ, ":1\r\n");
    assert_status(DIBS_OK, dibs_lock(r.rt, "x"));
    actor *waiter = actor_locking(f->rt, "x", DIBS_WAIT_FOREVER);
    queue_await(f->server, "x", 1);
    assert_status(DIBS_OK, dibs_unlock(r.rt, "x"));
    assert_status(DIBS_OK, actor_result(waiter));
    assert_int_equal(script_server_fired(r.net), 1);
    assert_status(DIBS_OK, actor_unlock(waiter, f->rt, "x"));
    actor_end(waiter);
    rig_close(&r);
}

/* As before, but K is gone, or another's, by the time the script comes: that is no loss. */
TEST_ON(what_was_deleted_is_no_loss, fixture *f)
{
    static const char *const meanwhile[] = {"DEL lock:x", "SET lock:x by-hand PX 600000"};
    rig r;

    server_do(f->server, "ACL SETUSER default -client|tracking"); /* else the holder may be told first */
    rig_open(&r, f, VALKEY_9, 0);
    answer(&r, DELIFEQ, ":1\r\n");
    for (int i = 0; i < 2; i++) {
        assert_status(DIBS_OK, dibs_timedlock(r.rt, "x", LIMIT_MS));
        server_do(f->server, "HSET dibs:queue:{lock:x} dibs:nobody 1:1:1:1:x");
        server_do(f->server, meanwhile[i]);
        assert_status(DIBS_OK, dibs_unlock(r.rt, "x"));
        server_do(f->server, "DEL lock:x dibs:queue:{lock:x}");
    }
    rig_close(&r);
}

/* As before, but the lease would have ended by the time the script comes. */
TEST_ON(what_was_deleted_in_time_is_no_loss, fixture *f)
{
    static const dibs_lock_options options = {.lease_ms = 500};
    actor *holder = actor_start();
    rig r;

    rig_open(&r, f, VALKEY_9, 0);
    answer(&r, DELIFEQ, ":1\r\n");
    actor_begin_lock_with(holder, r.rt, "x", LIMIT_MS, &options);
    assert_status(DIBS_OK, actor_result(holder));
    script_server_add(r.net, (script_rule){.match = ASK_OR_RELEASE_OF_X, .nth = 1, .action = SCRIPT_STALL_REQUEST});
    server_do(f->server, "HSET dibs:queue:{lock:x} dibs:nobody 1:1:1:1:x");
    unsigned fired = script_server_fired(r.net);
    actor_begin_unlock(holder, r.rt, "x");
    script_server_await_fired(r.net, fired + 1); /* DELIFEQ, and the script behind it */
    assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS));
    script_server_release(r.net);
    assert_status(DIBS_OK, actor_result(holder));
    assert_int_equal(stats_of(r.rt).lost, 0);
    server_do(f->server, "DEL dibs:queue:{lock:x}");
    actor_end(holder);
    rig_close(&r);
}

/* The script says what has become of the lock. That the key was not the token's is no reason to ask for scripts only.
 */
TEST_ON(what_is_not_deleted_the_script_tells, fixture *f)
{
    static const char *const meanwhile[] = {"DEL lock:x", "SET lock:x by-hand PX 600000"};
    rig r;

    server_do(f->server, "ACL SETUSER default -client|tracking"); /* else the holder may be told first */
    rig_open(&r, f, VALKEY_9, 0);
    answer(&r, DELIFEQ, ":0\r\n");
    for (unsigned i = 0; i < 2; i++) {
        unsigned before = script_server_fired(r.net);
        assert_status(DIBS_OK, dibs_timedlock(r.rt, "x", LIMIT_MS));
        server_do(f->server, meanwhile[i]);
        assert_status(DIBS_LOST, dibs_unlock(r.rt, "x"));
        assert_int_equal(script_server_fired(r.net) - before, 1);
        server_do(f->server, "DEL lock:x");
    }
    rig_close(&r);
}

/* A server that does not let us use the command is not asked again: each time the script must do it. */
TEST_ON(a_command_that_is_refused_is_not_sent_again, fixture *f)
{
    static const char *const refusals[] = {"-NOPERM no right\r\n", "-ERR unknown command 'DELIFEQ'\r\n"};
    rig r;

    for (int i = 0; i < 2; i++) {
        rig_open(&r, f, VALKEY_9, 0);
        answer(&r, DELIFEQ, refusals[i]);
        assert_int_equal(fired_in_a_pair(&r), 1);
        assert_false(server_has(f->server, "lock:x"));
        assert_int_equal(fired_in_a_pair(&r), 0);
        assert_false(server_has(f->server, "lock:x"));
        rig_close(&r);
    }
}

/* ------------------------------------------------------ broken connections */

/* False: on a busy machine the time of the release was over before it was sent. */
static bool is_cut(rig *r, const script_rule *cut)
{
    unsigned fired = script_server_fired(r->net);

    assert_status(DIBS_OK, dibs_timedlock(r->rt, "x", LIMIT_MS));
    set_rules(r, cut);
    dibs_status status = dibs_unlock(r->rt, "x");
    set_rules(r, NULL);
    bool so = script_server_fired(r->net) > fired;
    script_server_release(r->net);
    assert_true(status == DIBS_OK || status == DIBS_UNAVAILABLE);
    await_nobody(r->f->rt, "x");
    assert_int_equal(stats_of(r->rt).lost, 0);
    return so;
}

/* Whatever became of the commands, the lock is free, and that is no loss. */
static void cut_once(rig *r, script_rule cut)
{
    await_that(is_cut(r, &cut));
}

/* The second is of the queue: where the test stands still, the library also looks whether the lock itself exists. */
static const char *const commands[] = {DELIFEQ, "\r\nEXISTS\r\n$19\r\ndibs:queue:{lock:x}\r\n"};

TEST(cut_at_any_byte)
{
    rig r;

    for (int i = 0; i < 2; i++) {
        script_rule cut = {.match = commands[i], .nth = 1, .action = SCRIPT_TRUNCATE};
        rig_open(&r, *state, VALKEY_9, 2000);
        do
            cut_once(&r, cut);
        while (++cut.count < script_server_cut_length(r.net));
        for (cut.action = SCRIPT_CLOSE_BEFORE; cut.action <= SCRIPT_CLOSE_AFTER; cut.action++)
            cut_once(&r, cut);
        rig_close(&r);
    }
}

/* The network keeps the commands back, or their replies, for longer than is waited for them. */
TEST(commands_that_come_late)
{
    rig r;

    rig_open(&r, *state, VALKEY_9, 150);
    for (int i = 0; i < 2; i++) {
        cut_once(&r, (script_rule){.match = commands[i], .nth = 1, .action = SCRIPT_STALL_REQUEST});
        cut_once(&r, (script_rule){.match = commands[i], .nth = 1, .action = SCRIPT_STALL_REPLY});
    }
    rig_close(&r);
}

/* ------------------------------------------------ a server that has the command */

/* A server that refuses to delete a key by its value has no such command. */
TEST_ON(a_server_that_deletes_by_value_runs_no_script, fixture *f)
{
    enum { PAIRS = 100 };
    redisReply *reply = server_try(f->server, "DELIFEQ nothing x");
    bool has = reply && reply->type == REDIS_REPLY_INTEGER;
    freeReplyObject(reply);
    if (!has) {
        print_message("# NOT RUN: this server has no DELIFEQ\n");
        return;
    }
    fixture_open(f, LONG_LEASE_MS);
    long long deleted = server_calls(f->server, "delifeq");
    for (int i = 0; i < PAIRS; i++) {
        lock_and_release(f->rt, "x", DIBS_WAIT_FOREVER);
        assert_false(server_has(f->server, "lock:x"));
    }
    assert_int_equal(server_calls(f->server, "delifeq") - deleted, PAIRS);
    assert_int_equal(server_calls(f->server, "del"), 0); /* what release.lua does */
}

TESTS(fixture_setup, fixture_teardown)
