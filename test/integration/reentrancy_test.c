/* A thread may lock what it holds: counted, without the store, and only for itself. */
#include "support/fixture.h"

enum { DEPTH = 1000, TRIES = 100 };

static uint64_t commands(dibs_runtime *rt)
{
    return stats_of(rt).store_commands;
}

/* How many commands DEPTH nested pairs cost; the name is held before and after. */
static uint64_t cost_of_nesting(dibs_runtime *rt, const char *name)
{
    uint64_t before = commands(rt);

    for (uint32_t i = 0; i < DEPTH; i++) {
        assert_status(DIBS_OK, dibs_lock(rt, name));
        assert_int_equal(hold_of(rt, name).count, i + 2);
    }
    for (uint32_t i = DEPTH; i > 0; i--) {
        assert_status(DIBS_OK, dibs_unlock(rt, name));
        assert_int_equal(hold_of(rt, name).count, i);
    }
    return commands(rt) - before;
}

/* How many commands DEPTH refusals cost; the name is held before and after. */
static uint64_t cost_of_refusals(dibs_runtime *rt, const char *name)
{
    static const dibs_lock_options refused[] = {{.flags = DIBS_NO_REENTRY}, {.flags = DIBS_NO_REENTRY | DIBS_FAIR}};
    static const int64_t waits[] = {DIBS_WAIT_FOREVER, 0, LIMIT_MS};
    uint64_t before = commands(rt);

    for (uint32_t i = 0; i < DEPTH; i++)
        assert_status(DIBS_BUSY, dibs_lock_with(rt, name, waits[i % 3], &refused[i % 2]));
    return commands(rt) - before;
}

TEST_ON(nesting_costs_no_command, fixture *f)
{
    uint64_t cost = 1;

    fixture_open(f, LONG_LEASE_MS);
    assert_status(DIBS_OK, dibs_lock(f->rt, "deep"));
    uint64_t fence = fence_of(f->rt, "deep");
    /* The runtime may connect, or ask whether a connection still lives, just then: now and then, not each time. */
    for (int i = 0; i < TRIES && cost != 0; i++)
        cost = cost_of_nesting(f->rt, "deep");
    assert_int_equal(cost, 0);
    assert_int_equal(fence_of(f->rt, "deep"), fence);
    assert_true(stats_of(f->rt).reentered >= DEPTH);
    assert_int_equal(stats_of(f->rt).acquired, 1);
    assert_int_equal(stats_of(f->rt).holds, 1);
    assert_true(server_has(f->server, "lock:deep"));
    unlock_for_good(f, "deep");
}

TEST_ON(a_refused_nesting_costs_no_command, fixture *f)
{
    uint64_t cost = 1;

    fixture_open(f, LONG_LEASE_MS);
    assert_status(DIBS_OK, dibs_lock_with(f->rt, "x", 0, &(dibs_lock_options){.flags = DIBS_NO_REENTRY}));
    uint64_t fence = fence_of(f->rt, "x");
    const char *first = server_text(f->server, "GET lock:x");
    for (int i = 0; i < TRIES && cost != 0; i++)
        cost = cost_of_refusals(f->rt, "x");
    assert_int_equal(cost, 0);
    assert_string_equal(dibs_last_error(), "this thread holds \"x\" already");
    assert_int_equal(hold_of(f->rt, "x").count, 1);
    assert_int_equal(fence_of(f->rt, "x"), fence);
    assert_int_equal(stats_of(f->rt).reentered, 0);
    assert_int_equal(stats_of(f->rt).busy, 0);
    assert_string_equal(server_text(f->server, "GET lock:x"), first);
    assert_true(server_integer(f->server, "PTTL lock:x") > LONG_LEASE_MS / 2);
    unlock_for_good(f, "x");
}

TEST_ON(the_last_unlock_releases, fixture *f)
{
    fixture_open(f, 0);
    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    const char *first = server_text(f->server, "GET lock:x");
    assert_status(DIBS_OK, dibs_trylock(f->rt, "x"));
    assert_status(DIBS_OK, dibs_timedlock(f->rt, "x", 5));
    for (int i = 0; i < 3; i++) {
        assert_string_equal(server_text(f->server, "GET lock:x"), first);
        assert_status(DIBS_OK, dibs_check(f->rt, "x"));
        assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    }
    assert_false(server_has(f->server, "lock:x"));
    assert_status(DIBS_NOT_HELD, dibs_check(f->rt, "x"));
    assert_status(DIBS_NOT_HELD, dibs_unlock(f->rt, "x"));
}

TEST_ON(each_thread_has_its_own_count, fixture *f)
{
    actor *other = actor_start();
    dibs_hold hold;

    fixture_open(f, 0);
    assert_status(DIBS_OK, dibs_lock(f->rt, "mine"));
    assert_status(DIBS_OK, dibs_lock(f->rt, "mine"));
    assert_status(DIBS_OK, actor_lock(other, f->rt, "its", 0));
    assert_status(DIBS_NOT_HELD, actor_hold(other, f->rt, "mine", &hold));
    assert_int_equal(hold.count, 0);
    assert_int_equal(hold.fence, 0);
    assert_status(DIBS_BUSY, actor_lock(other, f->rt, "mine", 0));
    assert_status(DIBS_OK, dibs_unlock(f->rt, "mine"));
    assert_int_equal(hold_of(f->rt, "mine").count, 1);
    assert_status(DIBS_BUSY, actor_lock(other, f->rt, "mine", 0));
    assert_status(DIBS_OK, dibs_unlock(f->rt, "mine"));
    for (uint32_t i = 1; i <= 3; i++) {
        assert_status(DIBS_OK, actor_lock(other, f->rt, "mine", 0));
        assert_status(DIBS_OK, actor_hold(other, f->rt, "mine", &hold));
        assert_int_equal(hold.count, i);
    }
    assert_status(DIBS_NOT_HELD, dibs_hold_of(f->rt, "mine", &hold));
    assert_status(DIBS_BUSY, dibs_trylock(f->rt, "its"));
    assert_status(DIBS_OK, actor_unlock_all(other, f->rt));
    lock_and_release(f->rt, "its", 0);
}

TEST_ON(another_thread_cannot_unlock, fixture *f)
{
    actor *other = actor_start();

    fixture_open(f, LONG_LEASE_MS);
    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    dibs_hold before = hold_of(f->rt, "x");
    const char *first = server_text(f->server, "GET lock:x");
    for (int i = 0; i < 3; i++)
        assert_status(DIBS_NOT_HELD, actor_unlock(other, f->rt, "x"));
    assert_status(DIBS_NOT_HELD, actor_extend(other, f->rt, "x", 20));
    assert_status(DIBS_NOT_HELD, actor_check(other, f->rt, "x"));
    assert_status(DIBS_OK, actor_unlock_all(other, f->rt));
    assert_string_equal(server_text(f->server, "GET lock:x"), first);
    assert_true(server_integer(f->server, "PTTL lock:x") > LONG_LEASE_MS / 2);
    assert_int_equal(hold_of(f->rt, "x").count, before.count);
    assert_int_equal(hold_of(f->rt, "x").fence, before.fence);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
}

TEST_ON(unlock_all_gives_up_every_hold, fixture *f)
{
    fixture_open(f, 0);
    dibs_runtime *second = test_runtime(open_runtime(f->server, 0));
    assert_status(DIBS_OK, dibs_unlock_all(f->rt));
    for (int i = 0; i < 3; i++) {
        assert_status(DIBS_OK, dibs_lock(f->rt, "a"));
        assert_status(DIBS_OK, dibs_lock(f->rt, "b"));
    }
    assert_status(DIBS_OK, dibs_lock(f->rt, "c"));
    assert_status(DIBS_OK, dibs_lock(second, "d"));
    assert_status(DIBS_OK, dibs_unlock_all(f->rt));
    for (const char *name = "abc"; *name; name++) {
        const char one[] = {*name, '\0'};

        assert_status(DIBS_NOT_HELD, dibs_check(f->rt, one));
        assert_int_equal(server_integer(f->server, "EXISTS lock:%s", one), 0);
    }
    /* Holds of another runtime belong to another owner. */
    assert_status(DIBS_OK, dibs_check(second, "d"));
    assert_status(DIBS_OK, dibs_unlock_all(second));
}

/* In Redisson the outer lease is cut down to the inner acquire's shorter one. */
TEST_ON(a_nested_acquire_never_shortens_the_lease, fixture *f)
{
    static const dibs_lock_options inner[] = {
        {.lease_ms = 50}, {.flags = DIBS_FIXED_LEASE}, {.lease_ms = 20, .flags = DIBS_FIXED_LEASE}};

    fixture_open(f, LONG_LEASE_MS);
    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    for (size_t i = 0; i < sizeof inner / sizeof *inner; i++) {
        assert_status(DIBS_OK, dibs_lock_with(f->rt, "x", DIBS_WAIT_FOREVER, &inner[i]));
        assert_true(server_integer(f->server, "PTTL lock:x") > LONG_LEASE_MS / 2);
        assert_true(hold_of(f->rt, "x").remaining_ms > LONG_LEASE_MS / 2);
    }
    for (int i = 0; i < 4; i++) {
        assert_true(server_integer(f->server, "PTTL lock:x") > LONG_LEASE_MS / 2);
        assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    }
    assert_status(DIBS_NOT_HELD, dibs_check(f->rt, "x"));
}

/* The option does not leak into the next acquire either. */
TEST_ON(options_last_for_one_hold, fixture *f)
{
    dibs_lock_options shorter = {.lease_ms = 5000};

    fixture_open(f, LONG_LEASE_MS);
    assert_status(DIBS_OK, dibs_lock_with(f->rt, "x", 0, &shorter));
    assert_true(server_integer(f->server, "PTTL lock:x") <= 5000);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    assert_true(server_integer(f->server, "PTTL lock:x") > LONG_LEASE_MS / 2);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
}

TESTS(fixture_setup, fixture_teardown)
