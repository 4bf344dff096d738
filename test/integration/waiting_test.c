/* Waiting: as long as requested, no longer than needed. */
#include <inttypes.h>

#include "redis/scripts.h"
#include "support/agent.h"
#include "support/fixture.h"
#include "support/queue.h"
#include "support/script_server.h"

TEST_ON(a_timed_wait_ends_in_time, fixture *f)
{
    static const int64_t waits[] = {50, 200, 700};

    fixture_open(f, LONG_LEASE_MS);
    dibs_runtime *second = test_runtime(open_runtime(f->server, 0));
    assert_status(DIBS_OK, dibs_lock(second, "x"));
    for (size_t i = 0; i < sizeof waits / sizeof *waits; i++) {
        int64_t begin = now_ms();
        int64_t took;

        assert_status(DIBS_TIMEOUT, dibs_timedlock(f->rt, "x", waits[i]));
        took = now_ms() - begin;
        assert_that(took >= waits[i] - 1, "%" PRId64 " ms", took);
        assert_that(took <= waits[i] + 10000, "%" PRId64 " ms", took);
    }
    assert_int_equal(stats_of(f->rt).timed_out, 3);
    /* The waiters have left nothing in the queue. */
    await_waiters(f->rt, "x", 0);
    assert_status(DIBS_OK, dibs_unlock(second, "x"));
}

TEST_ON(a_timed_wait_among_threads_ends_in_time, fixture *f)
{
    actor *other = actor_start();

    fixture_open_holding(f, LONG_LEASE_MS, "x");
    int64_t begin = now_ms();
    assert_status(DIBS_TIMEOUT, actor_lock(other, f->rt, "x", 300));
    assert_true(now_ms() - begin >= 299);
    assert_true(now_ms() - begin <= 10300);
    assert_status(DIBS_BUSY, actor_lock(other, f->rt, "x", 0));
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
}

/* Whether the call came back so soon after its time that it did not give up waiting for the server (3 ms). */
static bool is_in_time(int64_t began, int64_t wait_ms)
{
    return now_ms() - began <= wait_ms + 1;
}

static void stall_retractions(script_server *net)
{
    script_server_add(net,
                      (script_rule){.match = dibs__scripts[DIBS__SCRIPT_retract].sha, .action = SCRIPT_STALL_REQUEST});
}

/* Lets the retractions reach the server, and waits until the queue is empty. */
static void let_retractions_through(server *s, script_server *net)
{
    script_server_clear(net);
    script_server_release(net);
    queue_await(s, "x", 0);
    stall_retractions(net);
}

/*
 * Retractions in the background do not reach the server here. This concerns only calls that the machine ran in time,
 * and there must be some: the others may leave the queue a moment later.
 */
TEST_ON(a_waiter_has_left_the_queue_when_its_call_returns, fixture *f)
{
    enum { WAIT_MS = 5, IN_TIME = 40 };
    script_server *net = fixture_between(f);
    const int64_t end = now_ms() + LIMIT_MS / 2;
    int in_time = 0;

    f->urls[0] = script_server_url(net);
    fixture_open_connected(f, LONG_LEASE_MS);
    dibs_runtime *second = test_runtime(open_runtime(f->server, LONG_LEASE_MS));
    assert_status(DIBS_OK, dibs_lock(second, "x"));
    stall_retractions(net);
    for (int i = 0; in_time < IN_TIME && now_ms() < end; i++) {
        const dibs_lock_options options = {.flags = i % 2 ? DIBS_FAIR : 0};
        int64_t began = now_ms();
        assert_status(DIBS_TIMEOUT, dibs_lock_with(f->rt, "x", WAIT_MS, &options));
        bool counts = is_in_time(began, WAIT_MS);
        if (counts)
            queue_assert_gone(f->server, "x");
        else
            let_retractions_through(f->server, net);
        in_time += counts;
    }
    assert_true(in_time > 0);
    script_server_clear(net);
    script_server_release(net);
    assert_status(DIBS_OK, dibs_unlock(second, "x"));
}

TEST_ON(one_try_does_not_wait, fixture *f)
{
    fixture_open(f, LONG_LEASE_MS);
    dibs_runtime *second = test_runtime(open_runtime(f->server, 0));
    assert_status(DIBS_OK, dibs_lock(second, "x"));
    for (int i = 0; i < 20; i++) {
        assert_status(DIBS_BUSY, dibs_trylock(f->rt, "x"));
        assert_status(DIBS_BUSY, dibs_timedlock(f->rt, "x", 0));
        assert_status(DIBS_BUSY, dibs_lock_with(f->rt, "x", 0, NULL));
    }
    assert_int_equal(stats_of(f->rt).busy, 60);
    assert_int_equal(stats_of(f->rt).timed_out, 0);
    await_waiters(f->rt, "x", 0);
    assert_status(DIBS_OK, dibs_unlock(second, "x"));
    lock_and_release(f->rt, "x", 0);
}

/* Each waits without limit while the other holds, with a lease that would not end in time by itself. */
TEST_ON(a_release_in_another_process_wakes_a_waiter, fixture *f)
{
    fixture_open(f, LONG_LEASE_MS);
    process *agent = agent_start(f->server->url, LONG_LEASE_MS);
    for (int i = 0; i < 20; i++) {
        assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
        agent_begin_lock(agent, "x", DIBS_WAIT_FOREVER);
        queue_await(f->server, "x", 1);
        assert_false(process_try_read(agent));
        assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
        assert_status(DIBS_OK, agent_result(agent));
        assert_status(DIBS_BUSY, dibs_trylock(f->rt, "x"));
        process_write(agent, "unlock x");
        assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
        assert_status(DIBS_OK, agent_result(agent));
        assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    }
}

TEST_ON(every_waiter_is_served, fixture *f)
{
    enum { AGENTS = 6 };
    process *agents[AGENTS];

    fixture_open_holding(f, LONG_LEASE_MS, "x");
    for (int i = 0; i < AGENTS; i++) {
        agents[i] = agent_start(f->server->url, LONG_LEASE_MS);
        agent_begin_lock(agents[i], "x", DIBS_WAIT_FOREVER);
        queue_await(f->server, "x", i + 1);
    }
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    for (int i = 0; i < AGENTS; i++) {
        process *agent = agent_granted(agents, AGENTS);

        assert_status(DIBS_BUSY, dibs_trylock(f->rt, "x"));
        assert_status(DIBS_OK, agent_unlock(agent, "x"));
    }
    await_waiters(f->rt, "x", 0);
}

/* The wait for a holder that died lasts as long as its lease, and no longer. */
TEST_ON(a_dead_holder_costs_its_lease, fixture *f)
{
    fixture_open(f, LONG_LEASE_MS);
    process *holder = agent_start(f->server->url, SAFE_LEASE_MS);
    assert_status(DIBS_OK, agent_lock(holder, "x", 0));
    process_kill(holder);
    int64_t killed = now_ms();
    assert_status(DIBS_OK, dibs_timedlock(f->rt, "x", LIMIT_MS));
    assert_true(now_ms() - killed <= SAFE_LEASE_MS + 10000);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    process_free(holder);
}

TEST_ON(a_waiter_gets_in_when_a_foreign_key_expires, fixture *f)
{
    int64_t begin;

    fixture_open(f, LONG_LEASE_MS);
    for (int lease = 50; lease <= 1600; lease *= 2) {
        begin = now_ms();
        server_do(f->server, "SET lock:x by-hand PX %d", lease);
        assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
        assert_true(now_ms() - begin >= lease - 2);
        assert_true(now_ms() - begin <= lease + 10000);
        assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    }
}

/* No push tells of the deletion: the waiter finds out by asking again. */
TEST_ON(a_waiter_gets_in_when_a_foreign_key_is_deleted, fixture *f)
{
    long long asks;
    actor *waiter = actor_start();

    fixture_open(f, LONG_LEASE_MS);
    for (int i = 0; i < 5; i++) {
        int64_t begin;

        server_do(f->server, i % 2 ? "SET lock:x by-hand PX 600000" : "SET lock:x by-hand");
        asks = server_asks(f->server);
        actor_begin_lock(waiter, f->rt, "x", DIBS_WAIT_FOREVER);
        server_await_ask(f->server, asks);
        begin = now_ms();
        server_do(f->server, "DEL lock:x");
        assert_status(DIBS_OK, actor_result(waiter));
        assert_true(now_ms() - begin <= 10000);
        assert_status(DIBS_OK, actor_unlock(waiter, f->rt, "x"));
    }
}

static int64_t actor_remaining(actor *a, dibs_runtime *rt)
{
    dibs_hold hold;

    assert_status(DIBS_OK, actor_hold(a, rt, "x", &hold));
    return hold.remaining_ms;
}

static void expect_owner(fixture *f, const char *token)
{
    assert_string_equal(server_text(f->server, "GET lock:x"), token);
}

/*
 * The pushes are lost on the way, though the subscription looks sound. The waiter's next ask finds what the store has
 * granted, and the lease counts for no longer than the store keeps it.
 */
TEST_ON(a_lost_push_costs_time_and_nothing_else, fixture *f)
{
    script_server *net = fixture_between(f);
    dibs_runtime *deaf = test_runtime(open_url(script_server_url(net), &(dibs_config){.lease_ms = SAFE_LEASE_MS}));
    actor *waiter = actor_start();

    fixture_open(f, LONG_LEASE_MS);
    script_server_drop_pushes(net, true);
    for (int i = 0; i < 3; i++) {
        int64_t believed;

        assert_status(DIBS_OK, dibs_timedlock(f->rt, "x", LIMIT_MS));
        actor_begin_lock(waiter, deaf, "x", DIBS_WAIT_FOREVER);
        queue_await(f->server, "x", 1);
        assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
        assert_int_equal(queue_size(f->server, "x"), 0); /* the waiter owns the lock, and does not know it */
        const char *token = server_value(f->server, "lock:x");
        assert_status(DIBS_OK, actor_result(waiter));
        believed = now_ms();
        believed += actor_remaining(waiter, deaf);
        assert_true(believed <= server_integer(f->server, "PTTL lock:x") + now_ms());
        assert_status(DIBS_BUSY, dibs_trylock(f->rt, "x"));
        assert_status(DIBS_OK, actor_check(waiter, deaf, "x"));
        expect_owner(f, token);
        assert_status(DIBS_OK, actor_unlock(waiter, deaf, "x"));
    }
    assert_int_equal(stats_of(deaf).granted, 0);
}

/* The waiter's connections break while it waits. */
TEST_ON(a_waiter_survives_broken_connections, fixture *f)
{
    script_server *net = fixture_between(f);
    dibs_runtime *rt = test_runtime(
        open_url(script_server_url(net), &(dibs_config){.lease_ms = LONG_LEASE_MS, .outage_ms = LIMIT_MS}));
    actor *waiter = actor_start();

    fixture_open(f, LONG_LEASE_MS);
    for (int i = 0; i < 5; i++) {
        assert_status(DIBS_OK, dibs_timedlock(f->rt, "x", LIMIT_MS));
        actor_begin_lock(waiter, rt, "x", DIBS_WAIT_FOREVER);
        queue_await(f->server, "x", 1);
        script_server_cut(net);
        /* Whether or not the waiter is subscribed again when it is granted: it must get the lock. */
        assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
        actor_gets(waiter, rt, "x");
    }
}

/* The waiter gives up just about when it is granted: in the end nobody holds it, or the waiter knows that it does. */
TEST_ON(giving_up_while_granted_leaves_no_lock_behind, fixture *f)
{
    actor *waiter = actor_start();

    fixture_open(f, LONG_LEASE_MS);
    dibs_runtime *second = test_runtime(open_runtime(f->server, LONG_LEASE_MS));
    for (int i = 0; i < 100; i++) {
        dibs_status status;

        assert_status(DIBS_OK, dibs_timedlock(f->rt, "x", LIMIT_MS));
        actor_begin_lock(waiter, second, "x", 1 + rand() % 10);
        pause_ms(rand() % 12);
        assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
        status = actor_result(waiter);
        if (status == DIBS_OK)
            assert_status(DIBS_OK, actor_unlock(waiter, second, "x"));
        else if (status != DIBS_UNAVAILABLE) /* a slow machine answers later than in so few milliseconds */
            assert_status(DIBS_TIMEOUT, status);
        assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS));
    }
    queue_await(f->server, "x", 0);
}

/* A distant store: each answer takes 40 ms. It did answer that the lock is taken, so this is no outage. */
TEST_ON(a_slow_store_is_not_an_unreachable_one, fixture *f)
{
    script_server *net = fixture_between(f);
    dibs_runtime *far = test_runtime(open_url(
        script_server_url(net),
        &(dibs_config){.lease_ms = LONG_LEASE_MS, .connect_timeout_ms = LIMIT_MS, .command_timeout_ms = LIMIT_MS}));

    fixture_open_holding(f, LONG_LEASE_MS, "x");
    script_server_delay(net, 40);
    assert_status(DIBS_BUSY, dibs_trylock(far, "x"));
    for (int i = 0; i < 5; i++) {
        int64_t begin = now_ms();

        assert_status(DIBS_TIMEOUT, dibs_timedlock(far, "x", 300));
        assert_true(now_ms() - begin >= 299);
    }
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    lock_and_release(far, "x", LIMIT_MS);
}

TESTS(fixture_setup, fixture_teardown)
