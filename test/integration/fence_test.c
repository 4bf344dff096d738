/* The fence: larger for every later hold of a name, by any thread and after any fault. */
#include "support/agent.h"
#include "support/fixture.h"

static void check_range(uint64_t fence)
{
    assert_true(fence > 0);
    assert_true(fence < (uint64_t)1 << 63);
}

/* Locks and unlocks, and returns the new fence, which must be larger than the last one. */
static uint64_t next_fence(dibs_runtime *rt, const char *name, uint64_t last)
{
    assert_status(DIBS_OK, dibs_timedlock(rt, name, LIMIT_MS));
    uint64_t fence = fence_of(rt, name);
    check_range(fence);
    assert_that(fence > last, "%llu after %llu", (unsigned long long)fence, (unsigned long long)last);
    assert_status(DIBS_OK, dibs_unlock(rt, name));
    return fence;
}

TEST_ON(a_fence_rises_with_every_hold, fixture *f)
{
    uint64_t fence = 0;

    fixture_open_patient(f, 0);
    for (int i = 0; i < 2000; i++)
        fence = next_fence(f->rt, "x", fence);
}

TEST_ON(a_fence_rises_through_a_flush, fixture *f)
{
    uint64_t fence = 0;

    fixture_open(f, 0);
    for (int i = 0; i < 20; i++) {
        fence = next_fence(f->rt, "x", fence);
        server_do(f->server, i % 2 ? "FLUSHALL" : "SCRIPT FLUSH");
    }
}

TEST_ON(a_fence_rises_through_a_restart_without_persistence, fixture *f)
{
    uint64_t fence = 0;

    fixture_open(f, 0);
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 50; k++)
            fence = next_fence(f->rt, "x", fence);
        server_kill(f->server);
        server_restart(f->server);
    }
    next_fence(f->rt, "x", fence);
}

TEST_ON(a_fence_rises_across_runtimes_and_processes, fixture *f)
{
    uint64_t fence = 0;

    fixture_open(f, 0);
    dibs_runtime *second = test_runtime(open_runtime(f->server, 0));
    process *agent = agent_start(f->server->url, 0);
    for (int i = 0; i < 30; i++) {
        uint64_t its;

        fence = next_fence(f->rt, "x", fence);
        fence = next_fence(second, "x", fence);
        assert_status(DIBS_OK, agent_lock(agent, "x", LIMIT_MS));
        its = agent_fence(agent, "x");
        check_range(its);
        assert_true(its > fence);
        fence = its;
        assert_status(DIBS_OK, agent_unlock(agent, "x"));
    }
}

/* In whatever order the waiters of other processes get the lock. */
TEST_ON(a_fence_rises_with_grants_to_waiters, fixture *f)
{
    enum { AGENTS = 4 };
    process *agents[AGENTS];

    fixture_open(f, 0);
    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    uint64_t last = fence_of(f->rt, "x");
    for (int i = 0; i < AGENTS; i++) {
        agents[i] = agent_start(f->server->url, 0);
        agent_begin_lock(agents[i], "x", LIMIT_MS);
    }
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    for (int i = 0; i < AGENTS; i++) {
        process *agent = agent_granted(agents, AGENTS);
        uint64_t fence = agent_fence(agent, "x");

        assert_true(fence > last);
        last = fence;
        assert_status(DIBS_OK, agent_unlock(agent, "x"));
    }
}

/* From thread to thread inside the process, without a request to the store each time. */
TEST_ON(a_fence_rises_with_handovers, fixture *f)
{
    actor *actors[2] = {actor_start(), actor_start()};
    uint64_t fence = 0;

    f->config.handoff_ms = 60000;
    fixture_open(f, 0);
    assert_status(DIBS_OK, actor_lock(actors[0], f->rt, "x", 0));
    /* More hand-overs than the 1,023 that fit between two fences of the store. */
    for (int i = 0; i < 1500; i++) {
        actor *holder = actors[i % 2];
        actor *next = actors[(i + 1) % 2];
        dibs_hold hold;

        assert_status(DIBS_OK, actor_hold(holder, f->rt, "x", &hold));
        check_range(hold.fence);
        assert_that(hold.fence > fence, "%d", i);
        fence = hold.fence;
        actor_begin_lock(next, f->rt, "x", DIBS_WAIT_FOREVER);
        if (i % 100 == 0)
            actor_await_asleep(next); /* otherwise the waiter may not be there in time */
        assert_status(DIBS_OK, actor_unlock(holder, f->rt, "x"));
        assert_status(DIBS_OK, actor_result(next));
    }
    actor_end(actors[0]);
    actor_end(actors[1]);
    assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS));
}

TEST_ON(each_name_has_its_own_fence_and_nesting_keeps_it, fixture *f)
{
    uint64_t a;

    fixture_open(f, 0);
    assert_status(DIBS_OK, dibs_lock(f->rt, "a"));
    assert_status(DIBS_OK, dibs_lock(f->rt, "b"));
    a = fence_of(f->rt, "a");
    check_range(fence_of(f->rt, "b"));
    assert_status(DIBS_OK, dibs_lock(f->rt, "a"));
    assert_int_equal(fence_of(f->rt, "a"), a);
    assert_status(DIBS_OK, dibs_extend(f->rt, "a", 60000));
    assert_int_equal(fence_of(f->rt, "a"), a);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "a"));
    assert_int_equal(fence_of(f->rt, "a"), a);
    assert_status(DIBS_OK, dibs_unlock_all(f->rt));
}

TEST_ON(query_shows_the_holders_fence, fixture *f)
{
    uint64_t fence;

    fixture_open(f, 0);
    for (int i = 0; i < 5; i++) {
        assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
        fence = fence_of(f->rt, "x");
        dibs_owner owner = owner_of(f->rt, "x");
        /*
         * The fence of the same grant. A holder's own fence may be ahead by the hand-overs inside its process; there
         * were none here.
         */
        assert_int_equal(owner.fence / 1024, fence / 1024);
        assert_true(owner.fence <= fence);
        assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
        owner = owner_of(f->rt, "x");
        assert_false(owner.held);
        assert_int_equal(owner.fence / 1024, fence / 1024);
    }
}

/* The key of the fence expires, and outlives the lock by an hour. */
TEST_ON(the_key_of_a_fence_expires_an_hour_after_the_lock, fixture *f)
{
    fixture_open(f, 1000);
    next_fence(f->rt, "x", 0);
    redisReply *keys =
        server_command(f->server, "KEYS dibs:fence:*"); /* tracking may have begun, whose probe lives for 100 ms */
    assert_true(keys->elements >= 1);
    for (size_t i = 0; i < keys->elements; i++) {
        long long left = server_integer(f->server, "PTTL %s", keys->element[i]->str);

        assert_true(left > 3500000);
    }
    freeReplyObject(keys);
}

/* What another program may have written into the key of a fence. */
static const char *const malformed[] = {"inf",  "-inf",  "nan",  "-1",  "9007199254740991",     "9007199254740992",
                                        "1e15", "1e300", "0x7f", "1.5", "18446744073709551615", "text",
                                        ""};

enum { MALFORMED = sizeof malformed / sizeof malformed[0] };

static void write_malformed(fixture *f, size_t i)
{
    print_message("# %s\n", malformed[i]);
    server_do(f->server, "SET dibs:fence:{lock:x} %s PX 100000", malformed[i]);
}

/* It is no fence, and prevents no grant. */
TEST_ON(a_malformed_fence_counts_as_none, fixture *f)
{
    uint64_t fence = 0;

    fixture_open(f, LONG_LEASE_MS);
    fence = next_fence(f->rt, "x", fence);
    for (size_t i = 0; i < MALFORMED; i++) {
        write_malformed(f, i);
        dibs_owner owner = owner_of(f->rt, "x");
        assert_true(owner.fence < (uint64_t)1 << 63);
        fence = next_fence(f->rt, "x", fence);
        fence = next_fence(f->rt, "x", fence);
        owner = owner_of(f->rt, "x");
        assert_true(owner.fence > 0 && owner.fence <= fence);
    }
}

/* Nor does it keep a sharer out, or hide one: written before the first comes, and before the second. */
TEST_ON(a_malformed_fence_hides_no_sharer, fixture *f)
{
    const dibs_lock_options two = {.flags = DIBS_SHARED, .limit = 2};
    actor *other = actor_start(), *third = actor_start();
    uint64_t fence = 0;

    fixture_open(f, LONG_LEASE_MS);
    for (size_t i = 0; i < 2 * MALFORMED; i++) {
        if (i < MALFORMED)
            write_malformed(f, i);
        assert_status(DIBS_OK, dibs_lock_with(f->rt, "x", LIMIT_MS, &two));
        if (i >= MALFORMED)
            write_malformed(f, i - MALFORMED);
        assert_status(DIBS_OK, actor_lock_with(other, f->rt, "x", LIMIT_MS, &two));
        assert_status(DIBS_BUSY, actor_lock_with(third, f->rt, "x", 0, &two));
        assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
        assert_status(DIBS_BUSY, dibs_trylock(f->rt, "x"));
        assert_status(DIBS_OK, actor_unlock(other, f->rt, "x"));
        fence = next_fence(f->rt, "x", fence);
    }
}

TESTS(fixture_setup, fixture_teardown)
