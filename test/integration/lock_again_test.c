/*
 * A name that the process released a moment ago is locked again by plain commands (rule 70), if nobody else wanted it.
 * This works only within 20 ms, so each test goes on until it has happened.
 */
#include "support/fixture.h"
#include "support/queue.h"
#include "support/script_server.h"

#define FENCES_A_GRANT 1024
#define KEY_OF_FENCE "dibs:fence:{lock:x}"

static void pair(dibs_runtime *rt)
{
    lock_and_release(rt, "x", DIBS_WAIT_FOREVER);
}

static const dibs_lock_options alone = {.flags = 0}, shared = {.flags = DIBS_SHARED};

static void lock_and_unlock(dibs_runtime *rt, const dibs_lock_options *options)
{
    assert_status(DIBS_OK, dibs_lock_with(rt, "x", DIBS_WAIT_FOREVER, options));
    assert_status(DIBS_OK, dibs_unlock(rt, "x"));
}

/* The scripts that run while the calling thread gets the lock. */
static long long scripts_of_a_lock(fixture *f, const dibs_lock_options *options)
{
    long long before = server_asks(f->server);

    assert_status(DIBS_OK, dibs_lock_with(f->rt, "x", 0, options));
    return server_asks(f->server) - before;
}

static void relock_without_a_script(fixture *f, const dibs_lock_options *options)
{
    int64_t limit = now_ms() + LIMIT_MS;
    uint64_t last = 0, fence;
    bool again = false;

    fixture_open(f, LONG_LEASE_MS);
    while (!again) {
        assert_true(now_ms() < limit);
        assert_status(DIBS_OK, dibs_lock_with(f->rt, "x", DIBS_WAIT_FOREVER, options));
        last = fence_of(f->rt, "x");
        assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
        again = scripts_of_a_lock(f, options) == 0;
        fence = fence_of(f->rt, "x");
        assert_true(fence > last);
        assert_true(!again || fence / FENCES_A_GRANT == last / FENCES_A_GRANT);
        assert_in_range(server_integer(f->server, "PTTL lock:x"), LONG_LEASE_MS / 2, LONG_LEASE_MS);
        unlock_for_good(f, "x");
    }
}

TEST(relocking_runs_no_script_and_raises_the_fence)
{
    relock_without_a_script(*state, &alone);
}

TEST(a_sharer_relocks_without_a_script)
{
    relock_without_a_script(*state, &shared);
}

/* The server knows from the fences whether anybody had the lock alone since a sharer (rule 61). */
TEST_ON(a_sharers_fence_is_not_used_alone, fixture *f)
{
    enum { ROUNDS = 50 };

    fixture_open(f, LONG_LEASE_MS);
    for (unsigned i = 0; i < ROUNDS; i++) {
        const dibs_lock_options *first = i % 2 ? &alone : &shared, *then = i % 2 ? &shared : &alone;
        lock_and_unlock(f->rt, first);
        assert_true(scripts_of_a_lock(f, then) > 0);
        assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    }
}

/* Others share the lock on after the release, so the process does not try in vain to have K by plain commands. */
TEST_ON(a_sharer_that_leaves_others_asks_by_a_script, fixture *f)
{
    enum { ROUNDS = 50 };

    fixture_open(f, LONG_LEASE_MS);
    dibs_runtime *other = test_runtime(open_runtime(f->server, LONG_LEASE_MS));
    assert_status(DIBS_OK, dibs_lock_with(other, "x", 0, &shared));
    long long sets = server_calls(f->server, "set");
    for (unsigned i = 0; i < ROUNDS; i++)
        lock_and_unlock(f->rt, &shared);
    assert_true(server_calls(f->server, "set") - sets < ROUNDS / 2); /* for K once; the others are of the tracking */
}

/* Each hold has a larger fence, whichever process had the lock before, although each process reuses fences. */
TEST_ON(relocking_raises_the_fence_across_processes, fixture *f)
{
    enum { ROUNDS = 600 };
    uint64_t last = 0;
    long long scripts;

    fixture_open(f, LONG_LEASE_MS);
    dibs_runtime *other = test_runtime(open_runtime(f->server, LONG_LEASE_MS));
    scripts = server_asks(f->server);
    for (unsigned i = 0; i < ROUNDS; i++) {
        dibs_runtime *rt = i * i % 7 < 3 ? f->rt : other;
        assert_status(DIBS_OK, dibs_lock(rt, "x"));
        assert_true(fence_of(rt, "x") > last);
        last = fence_of(rt, "x");
        assert_status(DIBS_OK, dibs_unlock(rt, "x"));
    }
    assert_true(server_asks(f->server) - scripts < 2 * ROUNDS);
}

/* Without the old fence there is a new one, which expires. */
TEST_ON(relocking_replaces_a_missing_fence, fixture *f)
{
    fixture_open(f, LONG_LEASE_MS);
    for (int i = 0; i < 20; i++) {
        assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
        uint64_t last = fence_of(f->rt, "x");
        assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
        server_do(f->server, i % 2 ? "FLUSHALL" : "SET " KEY_OF_FENCE " 1 PX 7200000");
        assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
        assert_true(fence_of(f->rt, "x") > last);
        assert_true(server_integer(f->server, "PTTL " KEY_OF_FENCE) > 3600000);
        assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    }
}

TEST_ON(relocking_finds_a_foreign_holder, fixture *f)
{
    fixture_open(f, LONG_LEASE_MS);
    pair(f->rt);
    server_do(f->server, "SET lock:x by-hand PX %d", LONG_LEASE_MS);
    assert_status(DIBS_BUSY, dibs_trylock(f->rt, "x"));
    assert_string_equal(server_text(f->server, "GET lock:x"), "by-hand");
    server_do(f->server, "DEL lock:x");
    lock_and_release(f->rt, "x", 0);
}

/* The lock is free, but a waiter has not been told so: the waiter was first and gets it. */
TEST_ON(relocking_passes_no_waiter, fixture *f)
{
    actor *waiter = actor_start();
    int64_t limit = now_ms() + LIMIT_MS;
    bool given_back = false;

    server_do(f->server, "ACL SETUSER default -client|tracking"); /* so that the waiter is not told of the DEL below */
    fixture_open(f, LONG_LEASE_MS);
    dibs_runtime *other = test_runtime(open_runtime(f->server, LONG_LEASE_MS));
    while (!given_back) {
        assert_true(now_ms() < limit);
        pair(f->rt);
        server_do(f->server, "SET lock:x by-hand PX %d", LONG_LEASE_MS);
        actor_begin_lock(waiter, other, "x", DIBS_WAIT_FOREVER);
        queue_await(f->server, "x", 1);
        queue_await_listening(f->server, queue_at(f->server, "x", 0).channel);
        long long sets = server_calls(f->server, "set");
        server_do(f->server, "DEL lock:x");
        assert_status(DIBS_BUSY, dibs_trylock(f->rt, "x"));
        given_back = server_calls(f->server, "set") > sets + 1; /* for the try by plain commands, and for the waiter */
        actor_gets(waiter, other, "x");
        await_waiters(f->rt, "x", 0);
    }
}

/* ------------------------------------------------------ broken connections */

typedef struct cutter {
    fixture *f;
    script_server *net;
    dibs_runtime *rt;
    uint64_t fence; /* of the last hold */
} cutter;

static void expect_larger_fence(cutter *c, dibs_runtime *rt)
{
    assert_true(fence_of(rt, "x") > c->fence);
    c->fence = fence_of(rt, "x");
}

/* False: the server did not answer within command_timeout_ms, as may happen on a busy machine; the release goes on. */
static bool unlock_in_time(cutter *c)
{
    dibs_status status = dibs_unlock(c->rt, "x");

    assert_true(status == DIBS_OK || status == DIBS_UNAVAILABLE);
    return status == DIBS_OK;
}

static void check_hold(cutter *c)
{
    assert_status(DIBS_OK, dibs_check(c->rt, "x"));
    dibs_owner owner = owner_of(c->f->rt, "x");
    assert_true(owner.held);
    expect_larger_fence(c, c->rt);
    unlock_in_time(c);
}

/* Whatever became of the commands: the lock is held, with a larger fence, or soon free, also as seen by others. */
static void cut_once(cutter *c, script_rule rule)
{
    int64_t limit = now_ms() + LIMIT_MS;
    unsigned fired = script_server_fired(c->net);
    dibs_status status = DIBS_OK;

    while (script_server_fired(c->net) == fired) {
        assert_true(now_ms() < limit);
        assert_status(DIBS_OK, dibs_timedlock(c->rt, "x", LIMIT_MS));
        if (!unlock_in_time(c))
            continue;
        script_server_add(c->net, rule);
        status = dibs_trylock(c->rt, "x");
        script_server_clear(c->net);
        script_server_release(c->net);
        if (status == DIBS_OK)
            check_hold(c);
        else
            assert_status(DIBS_UNAVAILABLE, status);
    }
    await_nobody(c->f->rt, "x");
    assert_status(DIBS_OK, dibs_timedlock(c->f->rt, "x", LIMIT_MS));
    expect_larger_fence(c, c->f->rt);
    assert_status(DIBS_OK, dibs_unlock(c->f->rt, "x"));
}

static const char *const commands[] = {"\r\nEXISTS\r\n", "\r\nSET\r\n$6\r\nlock:x\r\n", "\r\nGET\r\n"};

static cutter cutter_open(fixture *f, uint32_t command_timeout_ms)
{
    dibs_config config = {.lease_ms = LONG_LEASE_MS, .command_timeout_ms = command_timeout_ms};
    cutter c = {.f = f, .net = script_server_start(&(script_options){.backend = f->server->socket_path})};

    c.rt = open_url(script_server_url(c.net), &config);
    fixture_open(f, LONG_LEASE_MS);
    return c;
}

static void cutter_close(cutter *c)
{
    assert_int_equal(stats_of(c->rt).lost, 0);
    dibs_close(c->rt);
    script_server_stop(c->net);
}

TEST(relocking_may_be_cut_at_any_byte)
{
    cutter c = cutter_open(*state, 2000);

    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        script_rule rule = {.match = commands[i], .nth = 1, .action = SCRIPT_TRUNCATE};
        do
            cut_once(&c, rule);
        while (rule.count++ < script_server_cut_length(c.net));
        for (rule.action = SCRIPT_CLOSE_BEFORE; rule.action <= SCRIPT_CLOSE_AFTER; rule.action++)
            cut_once(&c, rule);
    }
    cutter_close(&c);
}

/* The network delays the commands, or their replies, for longer than the command timeout. */
TEST(late_relocking_commands_are_harmless)
{
    cutter c = cutter_open(*state, 150);

    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        cut_once(&c, (script_rule){.match = commands[i], .nth = 1, .action = SCRIPT_STALL_REQUEST});
        cut_once(&c, (script_rule){.match = commands[i], .nth = 1, .action = SCRIPT_STALL_REPLY});
    }
    cutter_close(&c);
}

TESTS(fixture_setup, fixture_teardown)
