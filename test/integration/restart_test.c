/* The store is restarted or fails over: what is held is restored, unless another held it since. */
#include <unistd.h>

#include "redis/scripts.h"
#include "support/agent.h"
#include "support/fixture.h"
#include "support/queue.h"
#include "support/restart.h"
#include "support/script_server.h"

#define FENCE "dibs:fence:{lock:x}"

/* ----------------------------------------------------------------- helpers */

static void await_agent_lost(process *agent)
{
    await_that(agent_check(agent, "x") == DIBS_LOST);
}

static void expect_no_loss(fixture *f)
{
    assert_int_equal(events_count(&f->events, DIBS_EVENT_LOST, NULL), 0);
    assert_int_equal(stats_of(f->rt).lost, 0);
}

/* --------------------------------------------- the server forgot the locks */

TEST_ON(holders_keep_their_locks_through_a_restart, fixture *f)
{
    fixture_open(f, LEASE_MS);
    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    uint64_t fence = fence_of(f->rt, "x");
    const char *token = server_value(f->server, "lock:x");
    for (int i = 0; i < 3; i++) {
        server_kill(f->server);
        assert_status(DIBS_OK, dibs_check(f->rt, "x"));
        server_restart(f->server);
        assert_status(DIBS_OK, dibs_check(f->rt, "x"));
        server_await_value(f->server, "lock:x", token);
        assert_in_range(server_integer(f->server, "PTTL lock:x"), 1, LEASE_MS);
        assert_true(strtoull(server_value(f->server, FENCE), NULL, 10) == fence / 1024);
        assert_true(server_integer(f->server, "PTTL " FENCE) > 3000000);
        assert_status(DIBS_OK, dibs_check(f->rt, "x"));
        assert_true(fence_of(f->rt, "x") == fence);
    }
    assert_int_equal(hold_of(f->rt, "x").count, 2);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    assert_true(server_has(f->server, "lock:x"));
    unlock_for_good(f, "x");
    expect_no_loss(f);
    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    assert_true(fence_of(f->rt, "x") > fence);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
}

TEST_ON(many_locks_are_restored, fixture *f)
{
    enum { MANY = 300 }; /* more than one batch */

    fixture_open(f, LONG_LEASE_MS);
    for (int i = 0; i < MANY; i++)
        assert_status(DIBS_OK, dibs_lock(f->rt, formatted("many-%d", i)));
    restart(f->server);
    await_locks(f->server, MANY);
    expect_no_loss(f);
    assert_status(DIBS_OK, dibs_unlock_all(f->rt));
    assert_int_equal(locks_in(f->server), 0);
}

TEST_ON(each_process_restores_its_own_locks, fixture *f)
{
    enum { AGENTS = 3 };
    process *agents[AGENTS];
    const char *name[AGENTS];

    for (int i = 0; i < AGENTS; i++) {
        name[i] = formatted("of-%d", i);
        agents[i] = agent_start(f->server->url, LONG_LEASE_MS);
        assert_status(DIBS_OK, agent_lock(agents[i], name[i], 0));
    }
    restart(f->server);
    await_locks(f->server, AGENTS);
    for (int i = 0; i < AGENTS; i++) {
        assert_status(DIBS_OK, agent_check(agents[i], name[i]));
        assert_status(DIBS_OK, agent_unlock(agents[i], name[i]));
        agent_stop(agents[i]);
    }
}

TEST_ON(a_lease_that_was_handed_over_is_restored, fixture *f)
{
    actor *first = actor_start(), *second = actor_start();

    f->config.handoff_ms = LIMIT_MS;
    fixture_open(f, LONG_LEASE_MS);
    assert_status(DIBS_OK, actor_lock(first, f->rt, "x", 0));
    actor_begin_lock(second, f->rt, "x", LIMIT_MS);
    actor_await_asleep(second);
    const char *token = server_value(f->server, "lock:x");
    server_kill(f->server);
    assert_status(DIBS_OK, actor_unlock(first, f->rt, "x"));
    assert_status(DIBS_OK, actor_result(second));
    server_restart(f->server);
    server_await_value(f->server, "lock:x", token);
    assert_status(DIBS_OK, actor_unlock(second, f->rt, "x"));
    assert_false(server_has(f->server, "lock:x"));
}

TEST_ON(a_fixed_lease_keeps_its_end, fixture *f)
{
    dibs_lock_options fixed = {.flags = DIBS_FIXED_LEASE};

    fixture_open(f, LEASE_MS);
    int64_t before = now_ms();
    assert_status(DIBS_OK, dibs_lock_with(f->rt, "x", 0, &fixed));
    int64_t after = now_ms();
    const char *token = server_value(f->server, "lock:x");
    restart(f->server);
    server_await_value(f->server, "lock:x", token);
    assert_true(now_ms() + server_integer(f->server, "PTTL lock:x") <= after + LEASE_MS + LEASE_MS / 10);
    await_lost(f->rt, "x");
    assert_true(now_ms() >= before + LEASE_MS * 9 / 10);
    assert_that(now_ms() < after + LEASE_MS + SLACK_MS, "it ends %lld ms late",
                (long long)(now_ms() - after - LEASE_MS));
    assert_status(DIBS_LOST, dibs_unlock(f->rt, "x"));
    assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS));
}

TEST_ON(an_extended_lease_keeps_its_length, fixture *f)
{
    fixture_open_holding(f, LEASE_MS, "x");
    assert_status(DIBS_OK, dibs_extend(f->rt, "x", LONG_LEASE_MS));
    restart(f->server);
    await_locks(f->server, 1);
    assert_in_range(server_integer(f->server, "PTTL lock:x"), LONG_LEASE_MS / 2, LONG_LEASE_MS);
    assert_true(hold_of(f->rt, "x").remaining_ms > LONG_LEASE_MS / 2);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
}

TEST_ON(an_extension_restores_a_lock_too, fixture *f)
{
    dibs_status status;

    fixture_open_holding(f, LEASE_MS, "x");
    restart(f->server);
    int64_t end = now_ms() + LIMIT_MS;
    while ((status = dibs_extend(f->rt, "x", LONG_LEASE_MS)) == DIBS_UNAVAILABLE && now_ms() < end)
        continue;
    assert_status(DIBS_OK, status);
    assert_in_range(server_integer(f->server, "PTTL lock:x"), LONG_LEASE_MS / 2, LONG_LEASE_MS);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    expect_no_loss(f);
}

/* ----------------------------------------------------------------- waiters */

/* A third process takes back an ask, which serves the queue: the waiter looks at once, and does not take the lock. */
static void retract_another(server *s)
{
    unsigned long long before = queue_at(s, "x", 0).number;

    assert_int_equal(server_integer(s, "EVAL %s 3 lock:x dibs:fence:{lock:x} dibs:queue:{lock:x} dibs:another",
                                    dibs__scripts[DIBS__SCRIPT_release].text),
                     0);
    await_that(queue_at(s, "x", 0).number > before);
    assert_false(server_has(s, "lock:x"));
}

/* The holder is slower than the waiter, which alone talks to the server meanwhile. */
TEST_ON(a_waiter_leaves_a_forgotten_lock_to_its_holder, fixture *f)
{
    process *holder = agent_start(f->server->url, LONG_LEASE_MS);
    process *waiter = agent_start(f->server->url, LONG_LEASE_MS);

    fixture_open(f, 0);
    assert_status(DIBS_OK, agent_lock(holder, "x", 0));
    const char *token = server_value(f->server, "lock:x");
    agent_begin_lock(waiter, "x", DIBS_WAIT_FOREVER);
    await_waiters(f->rt, "x", 1);
    process_pause(holder);
    restart(f->server);
    await_waiters(f->rt, "x", 1);
    assert_false(server_has(f->server, "lock:x"));
    retract_another(f->server);
    process_resume(holder);
    server_await_value(f->server, "lock:x", token);
    assert_status(DIBS_OK, agent_check(holder, "x"));
    assert_false(process_try_read(waiter));
    assert_status(DIBS_OK, agent_unlock(holder, "x"));
    assert_status(DIBS_OK, agent_result(waiter)); /* long before the lease that the waiter saw is over */
    assert_status(DIBS_OK, agent_unlock(waiter, "x"));
}

/* No holder restores the lock: the waiter gets it when the lease that it saw is over, and not before. */
TEST_ON(a_waiter_takes_a_forgotten_lock_of_a_dead_holder, fixture *f)
{
    process *holder = agent_start(f->server->url, LEASE_MS);
    process *waiter = agent_start(f->server->url, LONG_LEASE_MS);

    fixture_open(f, 0);
    assert_status(DIBS_OK, agent_lock(holder, "x", 0));
    int64_t asked = now_ms();
    int64_t end = asked + server_integer(f->server, "PTTL lock:x");
    agent_begin_lock(waiter, "x", DIBS_WAIT_FOREVER);
    await_waiters(f->rt, "x", 1);
    process_kill(holder);
    restart(f->server);
    await_waiters(f->rt, "x", 1);
    assert_status(DIBS_OK, agent_result(waiter));
    assert_that(now_ms() >= end - 1, "%lld ms too early", (long long)(end - now_ms()));
    assert_status(DIBS_OK, agent_unlock(waiter, "x"));
    process_free(holder);
}

/* -------------------------------- another client was granted the lock since */

static void expect_told(fixture *f, dibs_runtime *rt, uint64_t fence)
{
    await_lost(rt, "x");
    assert_true(events_await(&f->events, DIBS_EVENT_LOST, "x").fence == fence);
}

/* The holder comes back to the restarted server when a newcomer has the lock, or has released it. */
static void expect_newcomer_keeps_it(fixture *f, bool releases)
{
    script_server *net = fixture_between(f);
    dibs_config config = {.lease_ms = LONG_LEASE_MS, .on_event = events_record, .on_event_arg = &f->events};
    dibs_runtime *holder = open_url(script_server_url(net), &config);

    assert_status(DIBS_OK, dibs_lock(holder, "x"));
    uint64_t fence = fence_of(holder, "x");
    script_server_set_down(net, true);
    restart(f->server);
    dibs_runtime *newcomer = open_runtime(f->server, LONG_LEASE_MS);
    assert_status(DIBS_OK, dibs_trylock(newcomer, "x"));
    assert_true(fence_of(newcomer, "x") > fence);
    if (releases)
        assert_status(DIBS_OK, dibs_unlock(newcomer, "x"));
    script_server_set_down(net, false);
    expect_told(f, holder, fence);
    assert_int_equal(server_has(f->server, "lock:x"), !releases);
    assert_status(releases ? DIBS_NOT_HELD : DIBS_OK, dibs_check(newcomer, "x"));
    assert_status(DIBS_LOST, dibs_unlock(holder, "x"));
    assert_status(releases ? DIBS_NOT_HELD : DIBS_OK, dibs_unlock(newcomer, "x"));
    dibs_close(newcomer);
    dibs_close(holder);
}

TEST(a_newcomer_keeps_a_forgotten_lock)
{
    expect_newcomer_keeps_it(*state, false);
}

TEST(a_lock_that_a_newcomer_had_is_not_restored)
{
    expect_newcomer_keeps_it(*state, true);
}

TEST_ON(a_stopped_process_is_told_of_its_loss, fixture *f)
{
    process *holder = agent_start(f->server->url, LONG_LEASE_MS);

    assert_status(DIBS_OK, agent_lock(holder, "x", 0));
    process_pause(holder);
    restart(f->server);
    fixture_open(f, LONG_LEASE_MS);
    assert_status(DIBS_OK, dibs_trylock(f->rt, "x"));
    process_resume(holder);
    await_agent_lost(holder);
    assert_status(DIBS_LOST, agent_unlock(holder, "x"));
    assert_true(server_has(f->server, "lock:x"));
    assert_status(DIBS_OK, dibs_check(f->rt, "x"));
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
}

/* A foreign client raises no fence, but its lock is seen. */
TEST_ON(a_foreign_owner_keeps_a_forgotten_lock, fixture *f)
{
    process *holder = agent_start(f->server->url, LONG_LEASE_MS);

    assert_status(DIBS_OK, agent_lock(holder, "x", 0));
    process_pause(holder);
    restart(f->server);
    server_do(f->server, "SET lock:x somebody PX %d", LONG_LEASE_MS);
    process_resume(holder);
    await_agent_lost(holder);
    assert_string_equal(server_value(f->server, "lock:x"), "somebody");
    server_do(f->server, "DEL lock:x");
    assert_status(DIBS_LOST, agent_unlock(holder, "x"));
}

/* The fence that it raised is remembered. */
TEST_ON(a_forced_unlock_is_not_undone, fixture *f)
{
    set_up_persistent(f);
    fixture_open(f, LONG_LEASE_MS);
    dibs_runtime *administrator = test_runtime(open_runtime(f->server, 0));
    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    uint64_t fence = fence_of(f->rt, "x");
    assert_status(DIBS_OK, dibs_force_unlock(administrator, "x", NULL));
    restart(f->server);
    expect_told(f, f->rt, fence);
    assert_false(server_has(f->server, "lock:x"));
    assert_status(DIBS_LOST, dibs_unlock(f->rt, "x"));
}

/* -------------------------------------------------- the server kept the locks */

TEST_ON(a_restart_with_persistence_changes_nothing, fixture *f)
{
    set_up_persistent(f);
    fixture_open(f, LEASE_MS);
    process *waiter = agent_start(f->server->url, LONG_LEASE_MS);
    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    assert_status(DIBS_OK, dibs_lock(f->rt, "y"));
    const char *token = server_value(f->server, "lock:x");
    agent_begin_lock(waiter, "x", DIBS_WAIT_FOREVER);
    await_waiters(f->rt, "x", 1);
    for (int i = 0; i < 3; i++) {
        restart(f->server);
        assert_string_equal(server_value(f->server, "lock:x"), token);
        await_waiters(f->rt, "x", 1);
        await_connected(f->rt);
        assert_string_equal(server_value(f->server, "lock:x"), token);
        assert_false(process_try_read(waiter));
    }
    expect_no_loss(f);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    assert_status(DIBS_OK, agent_result(waiter));
    assert_status(DIBS_OK, agent_unlock(waiter, "x"));
    assert_status(DIBS_OK, dibs_unlock(f->rt, "y"));
}

/* ----------------------------------------------------------------- failover */

static bool is_in_step(server *replica)
{
    redisReply *reply = server_command(replica, "INFO replication");
    bool in_step = strstr(reply->str, "master_link_status:up") != NULL;

    freeReplyObject(reply);
    return in_step;
}

static server *start_replica(const server *master)
{
    const char *config = formatted("replicaof 127.0.0.1 %d", master->port);
    server *replica = server_start(&(server_options){.config = config});
    await_or_say(is_in_step(replica), "the replica does not connect");
    return replica;
}

/* The replica is promoted, and has the address that the master had. */
static void fail_over(server *master, server *replica)
{
    server_kill(master);
    server_do(replica, "REPLICAOF NO ONE");
    unlink(master->socket_path);
    assert_int_equal(symlink(replica->socket_path, master->socket_path), 0);
}

/* Locked before the replica hears no more of the master, and after. */
TEST_WITH(a_promoted_replica_gets_the_locks_it_lacks, NULL, NULL, void *none)
{
    server *master = server_start(&(server_options){.tcp = true, .config = "repl-diskless-sync-delay 0"});
    server *replica = start_replica(master);
    const char *token[2];

    dibs_runtime *rt = open_url(formatted("unix://%s", master->socket_path), &(dibs_config){.lease_ms = LONG_LEASE_MS});
    assert_status(DIBS_OK, dibs_lock(rt, "x"));
    token[0] = server_value(master, "lock:x");
    server_await_value(replica, "lock:x", token[0]);
    server_do(replica, "REPLICAOF NO ONE");
    assert_status(DIBS_OK, dibs_lock(rt, "y"));
    token[1] = server_value(master, "lock:y");
    uint64_t fence = fence_of(rt, "y");
    fail_over(master, replica);
    server_await_value(replica, "lock:y", token[1]);
    assert_string_equal(server_value(replica, "lock:x"), token[0]);
    assert_true(fence_of(rt, "y") == fence);
    assert_int_equal(stats_of(rt).lost, 0);
    assert_status(DIBS_OK, dibs_unlock(rt, "x"));
    assert_status(DIBS_OK, dibs_unlock(rt, "y"));
    assert_int_equal(locks_in(replica), 0);
    dibs_close(rt);
    server_stop(master);
    server_stop(replica);
}

/* ------------------------------------------------------ the script by itself */

/* One lock of renew.lua, as another server is asked for it: its answer. */
static long long renew(server *s, const char *fence, const char *restore_by)
{
    redisReply *reply = server_command(s, "EVAL %s 2 lock:x " FENCE " mine 100000 %s %s %s",
                                       dibs__scripts[DIBS__SCRIPT_renew].text, fence, "", restore_by);
    long long result = reply->element[0]->integer;

    assert_int_equal(reply->type, REDIS_REPLY_ARRAY);
    freeReplyObject(reply);
    return result;
}

TEST(the_fence_shows_a_later_holder)
{
    server *s = ((fixture *)*state)->server;

    assert_int_equal(renew(s, "77", ""), 0);
    assert_int_equal(server_integer(s, "DBSIZE"), 0);
    assert_true(renew(s, "77", "1") < -1000000); /* too late: the server's time, turned round */
    assert_int_equal(server_integer(s, "DBSIZE"), 0);
    assert_int_equal(renew(s, "77", "0"), 2);
    assert_in_range(server_integer(s, "PTTL lock:x"), 1, 100000);
    assert_string_equal(server_value(s, FENCE), "77");
    assert_int_equal(renew(s, "77", "0"), 1);
    server_do(s, "DEL lock:x");
    server_do(s, "SET " FENCE " 78 PX 100000");
    assert_int_equal(renew(s, "77", "0"), 0);
    assert_int_equal(renew(s, "78", "0"), 2);
    server_do(s, "SET " FENCE " 76 PX 100000");
    server_do(s, "SET lock:x another PX 100000");
    assert_int_equal(renew(s, "78", "0"), 0);
    server_do(s, "DEL lock:x");
    assert_int_equal(renew(s, "78", "0"), 2);
    assert_string_equal(server_value(s, FENCE), "78");
    server_do(s, "DEL lock:x");
}

/* The server is out of memory: the locks that it has are still renewed. */
TEST(one_refused_restoration_costs_no_other_lease)
{
    server *s = ((fixture *)*state)->server;

    server_do(s, "SET lock:y mine PX 50000");
    server_do(s, "SET dibs:fence:{lock:y} 77 PX 50000");
    server_do(s, "CONFIG SET maxmemory 1");
    redisReply *reply = server_command(
        s, "EVAL %s 4 lock:x lock:y " FENCE " dibs:fence:{lock:y} mine 100000 77 %s 0 mine 100000 77 %s 0",
        dibs__scripts[DIBS__SCRIPT_renew].text, "", "");
    assert_int_equal(reply->elements, 3);
    assert_int_equal(reply->element[0]->type, REDIS_REPLY_ERROR);
    assert_int_equal(reply->element[1]->integer, 1);
    freeReplyObject(reply);
    server_do(s, "CONFIG SET maxmemory 0");
    assert_false(server_has(s, "lock:x"));
    assert_in_range(server_integer(s, "PTTL lock:y"), 50001, 100000);
    server_do(s, "DEL lock:y");
}

TESTS(fixture_setup, fixture_teardown)
