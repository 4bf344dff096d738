/* min_replicas where it goes wrong: no replica, and connections that break before WAIT is answered. */
#include <inttypes.h>

#include "integration/replicas_setup.h"
#include "support/fixture.h"
#include "support/script_server.h"
#include "support/tasks.h"

/* The test's server has no replica, so a grant is never acknowledged, and is retracted. */
static void expect_taken_back(fixture *f, dibs_runtime *rt, script_server *net, script_rule rule)
{
    unsigned fired = script_server_fired(net);

    script_server_add(net, rule);
    assert_status(DIBS_UNAVAILABLE, dibs_trylock(rt, "x"));
    assert_true(script_server_fired(net) > fired);
    script_server_clear(net);
    assert_status(DIBS_NOT_HELD, dibs_check(rt, "x"));
    assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS));
}

TEST_ON(a_connection_may_break_before_the_replicas_answer, fixture *f)
{
    script_server *net = fixture_between(f);
    dibs_config config = {
        .lease_ms = LONG_LEASE_MS, .min_replicas = 1, .replica_timeout_ms = 200, .command_timeout_ms = LIMIT_MS / 4};
    dibs_runtime *rt = test_runtime(open_url(script_server_url(net), &config));

    fixture_open(f, 0);
    for (int i = 0; i < 2; i++) {
        /* At first, the outcome of the ask is in doubt. */
        expect_taken_back(f, rt, net, (script_rule){.match = "lock:x", .nth = 1, .action = SCRIPT_CLOSE_AFTER});
        expect_taken_back(f, rt, net, (script_rule){.match = "lock:x", .nth = 1, .action = SCRIPT_CLOSE_BEFORE});
        /* The whole grant arrives, and the connection is gone just before WAIT is sent, or just after. */
        expect_taken_back(f, rt, net,
                          (script_rule){.match = "lock:x", .nth = 1, .action = SCRIPT_TRUNCATE, .count = 1000});
        expect_taken_back(f, rt, net, (script_rule){.match = "WAIT\r\n", .action = SCRIPT_CLOSE_BEFORE});
        expect_taken_back(f, rt, net, (script_rule){.match = "WAIT\r\n", .action = SCRIPT_CLOSE_AFTER});
        expect_taken_back(f, rt, net, (script_rule){.match = "WAIT\r\n", .action = SCRIPT_TRUNCATE, .count = 1});
    }
    expect_works(f, f->rt, "x");
}

/* As above, but the server itself is stopped, and then killed. */
TEST_ON(a_server_may_die_before_the_replicas_answer, fixture *f)
{
    f->config.min_replicas = 1;
    f->config.outage_ms = LIMIT_MS;
    fixture_open_patient(f, LONG_LEASE_MS);
    assert_status(DIBS_UNAVAILABLE, dibs_trylock(f->rt, "x")); /* that connection is open */
    server_pause(f->server);
    actor *asker = actor_locking(f->rt, "x", 0);
    actor_await_asleep(asker);
    server_kill(f->server);
    assert_status(DIBS_UNAVAILABLE, actor_result(asker));
    actor_end(asker);
    server_restart(f->server);
    assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS));
}

/* Nothing was written, so there is nothing for replicas to acknowledge. */
TEST_ON(a_taken_lock_is_busy_at_once, fixture *f)
{
    f->config.min_replicas = 1;
    f->config.replica_timeout_ms = LIMIT_MS;
    fixture_open_patient(f, 0);
    server_do(f->server, "SET lock:x by-hand PX %d", LONG_LEASE_MS);
    for (int i = 0; i < 3; i++) {
        int64_t begin = now_ms();
        int64_t took;

        assert_status(DIBS_BUSY, dibs_trylock(f->rt, "x"));
        took = now_ms() - begin;
        assert_that(took < LIMIT_MS / 2, "%" PRId64 " ms", took);
    }
    assert_status(DIBS_TIMEOUT, dibs_timedlock(f->rt, "x", 50));
    server_do(f->server, "DEL lock:x");
}

#define RIVALS 2

/*
 * When one runtime is granted the lock, the other finds it taken for a moment. This neither restarts the outage budget
 * of the other nor is its reason in the end. Each runtime stands for a process.
 */
TEST_ON(rivals_without_replicas_give_up, fixture *f)
{
    static const int64_t waits[] = {DIBS_WAIT_FOREVER, 2500};
    dibs_config config = {.lease_ms = LONG_LEASE_MS, .min_replicas = 1, .replica_timeout_ms = 100, .outage_ms = 2000};
    actor *actors[RIVALS];
    dibs_runtime *rts[RIVALS];

    for (size_t i = 0; i < RIVALS; i++) {
        actors[i] = actor_start();
        rts[i] = open_url(f->server->url, &config);
    }
    for (size_t round = 0; round < sizeof waits / sizeof waits[0]; round++) {
        int64_t begin = now_ms();
        for (size_t i = 0; i < RIVALS; i++)
            actor_begin_lock(actors[i], rts[i], "x", waits[round]);
        for (size_t i = 0; i < RIVALS; i++)
            assert_status(DIBS_UNAVAILABLE, actor_result(actors[i]));
        assert_that(now_ms() - begin <= 2500 + SLACK_MS, "%" PRId64 " ms", now_ms() - begin);
        assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS));
    }
    for (size_t i = 0; i < RIVALS; i++) {
        assert_true(stats_of(rts[i]).contended > 0 && stats_of(rts[i]).timed_out == 0);
        actor_end(actors[i]);
        dibs_close(rts[i]);
    }
}

static bool hears(server *s)
{
    redisReply *clients = server_command(s, "CLIENT LIST TYPE pubsub");
    bool one_hears = clients->type == REDIS_REPLY_STRING && clients->len > 0;

    freeReplyObject(clients);
    return one_hears;
}

/*
 * What was cancelled while it waited for replicas does not ask for the lock again, although a new subscription, which
 * may have missed messages, makes others ask at once.
 */
TEST_ON(a_cancelled_call_waits_for_replicas_once, fixture *f)
{
    dibs_config config = {.lease_ms = LONG_LEASE_MS, .min_replicas = 1, .replica_timeout_ms = 2000};
    dibs_runtime *rt = open_url(f->server->url, &config);
    dibs_task *task = task_of_runtime(rt);
    dibs_queue *q = queue_new();
    long long waits = server_calls(f->server, "wait"); /* dibs_open looks whether the account may WAIT */

    begin_lock(task, "x", DIBS_WAIT_FOREVER, NULL, q);
    await_info(f->server, "clients", "blocked_clients:1"); /* by WAIT */
    await_that(hears(f->server));
    server_do(f->server, "CLIENT KILL TYPE pubsub");
    await_that(hears(f->server));
    dibs_task_cancel(task);
    expect_done(q, DIBS_DONE_LOCK, DIBS_CANCELLED, task);
    assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS));
    dibs_task_free(task);
    dibs_queue_free(q);
    dibs_close(rt);
    assert_int_equal(server_calls(f->server, "wait"), waits + 1);
}

TESTS(fixture_setup, fixture_teardown)
