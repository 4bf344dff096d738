/*
 * dibs_force_unlock: its effect on the holder and on the waiters; in a store that is out of memory, over connections
 * that were closed, with the token as shown.
 */
#include "support/agent.h"
#include "support/fixture.h"
#include "support/queue.h"

static void begin_scene(fixture *f, process *agent, dibs_owner *owner)
{
    assert_status(DIBS_OK, dibs_timedlock(f->rt, "x", LIMIT_MS));
    agent_begin_lock(agent, "x", DIBS_WAIT_FOREVER);
    queue_await(f->server, "x", 1);
    assert_status(DIBS_OK, dibs_query(f->rt, "x", owner));
}

/* The next waiter has the lock at once. The former holder learns of that by its next renewal or its unlock. */
TEST_ON(a_forced_unlock_serves_the_next_and_the_holder_learns_of_it, fixture *f)
{
    dibs_runtime *operator;
    process *agent = agent_start(f->server->url, LONG_LEASE_MS);
    dibs_owner owner;

    operator= open_runtime(f->server, 0);
    for (int i = 0; i < 4; i++) {
        fixture_open(f, i < 2 ? SAFE_LEASE_MS : LONG_LEASE_MS);
        begin_scene(f, agent, &owner);
        uint64_t fence = fence_of(f->rt, "x");

        assert_status(DIBS_NOT_HELD, dibs_force_unlock(operator, "x", "dibs:somebody else's"));
        assert_status(DIBS_NOT_HELD, dibs_force_unlock(operator, "x", queue_at(f->server, "x", 0).token));
        assert_int_equal(queue_size(f->server, "x"), 1);
        assert_status(DIBS_OK, dibs_force_unlock(operator, "x", i % 2 ? owner.token : NULL));
        assert_status(DIBS_BUSY, dibs_trylock(operator, "x")); /* the next waiter has the lock by now */
        assert_status(DIBS_OK, agent_result(agent));
        assert_true(agent_fence(agent, "x") > fence);
        if (i < 2) {
            events_await(&f->events, DIBS_EVENT_LOST, "x");
            await_lost(f->rt, "x");
            assert_status(DIBS_LOST, dibs_lock(f->rt, "x"));
        }
        assert_status(DIBS_LOST, dibs_unlock(f->rt, "x"));
        assert_status(DIBS_OK, agent_check(agent, "x"));
        assert_status(DIBS_BUSY, dibs_trylock(f->rt, "x"));
        assert_status(DIBS_OK, agent_unlock(agent, "x"));
        queue_assert_gone(f->server, "x");
        close_runtime(&f->rt);
    }
    dibs_close(operator);
}

/* The first sending took the lock away, and the second finds that the next waiter has it: that is not "left alone". */
TEST_ON(a_forced_unlock_whose_answer_was_lost_is_in_doubt, fixture *f)
{
    script_server *net = fixture_between(f);
    dibs_runtime *operator= test_runtime(open_url(script_server_url(net), NULL));
    process *agent = agent_start(f->server->url, LONG_LEASE_MS);
    dibs_owner owner;

    fixture_open(f, LONG_LEASE_MS);
    for (int by_token = 0; by_token <= 1; by_token++) {
        begin_scene(f, agent, &owner);
        script_server_set(net, &(script_rule){.match = owner.token, .nth = 1, .action = SCRIPT_CLOSE_AFTER}, 1);
        dibs_status status = dibs_force_unlock(operator, "x", by_token ? owner.token : NULL);
        assert_int_equal(script_server_fired(net), 1 + by_token);
        script_server_clear(net);
        assert_status(by_token ? DIBS_UNAVAILABLE : DIBS_OK, status);
        assert_status(DIBS_OK, agent_result(agent));
        assert_status(DIBS_OK, agent_unlock(agent, "x"));
        assert_status(DIBS_LOST, dibs_unlock(f->rt, "x"));
    }
}

/* Forced twice with the token that was shown: the second time the lock is the next owner's, who keeps it. */
TEST_ON(a_forced_unlock_by_token_ends_nobody_else, fixture *f)
{
    process *agent = agent_start(f->server->url, LONG_LEASE_MS);
    dibs_owner owner;

    fixture_open(f, LONG_LEASE_MS);
    begin_scene(f, agent, &owner);
    assert_status(DIBS_OK, dibs_force_unlock(f->rt, "x", owner.token));
    assert_status(DIBS_NOT_HELD, dibs_force_unlock(f->rt, "x", owner.token));
    assert_status(DIBS_OK, agent_result(agent));
    assert_status(DIBS_OK, agent_unlock(agent, "x"));
    assert_status(DIBS_LOST, dibs_unlock(f->rt, "x"));
}

TEST_ON(a_forced_unlock_works_on_a_full_server, fixture *f)
{
    fixture_open(f, LONG_LEASE_MS);
    server_do(f->server, "SET lock:x by-hand PX %d", LONG_LEASE_MS);
    server_do(f->server, "SET lock:y by-hand PX %d", LONG_LEASE_MS);
    server_do(f->server, "CONFIG SET maxmemory-policy noeviction");
    server_do(f->server, "CONFIG SET maxmemory 1");
    assert_status(DIBS_STORE_ERROR, dibs_trylock(f->rt, "z"));
    assert_that(strstr(dibs_last_error(), "OOM"), "%s", dibs_last_error());
    assert_status(DIBS_OK, dibs_force_unlock(f->rt, "x", NULL));
    assert_status(DIBS_NOT_HELD, dibs_force_unlock(f->rt, "y", "another"));
    assert_true(server_has(f->server, "lock:y"));
    assert_status(DIBS_OK, dibs_force_unlock(f->rt, "y", "by-hand"));
    assert_status(DIBS_OK, dibs_force_unlock(f->rt, "nobody's", NULL));
    assert_false(server_has(f->server, "lock:x"));
    assert_false(server_has(f->server, "lock:y"));
    dibs_owner owner = owner_of(f->rt, "x");
    assert_false(owner.held);
    assert_true(owner.fence > 0); /* larger than the fence of the former holder */
    server_do(f->server, "CONFIG SET maxmemory 0");
    expect_works(f, f->rt, "x");
}

static void force_by_its_token(fixture *f)
{
    dibs_owner owner = owner_of(f->rt, "x");
    assert_status(DIBS_OK, dibs_force_unlock(f->rt, "x", owner.token));
    assert_false(server_has(f->server, "lock:x"));
}

/* Their tokens are shown cut and escaped. */
TEST_ON(a_forced_unlock_takes_the_token_of_a_client_without_dibs_as_shown, fixture *f)
{
    char text[300];

    memset(text, 'w', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    fixture_open(f, LONG_LEASE_MS);
    server_do(f->server, "SET lock:x %s PX %d", "by\\hand\n\x01", LONG_LEASE_MS);
    force_by_its_token(f);
    server_do(f->server, "SET lock:x %s PX %d", text, LONG_LEASE_MS);
    force_by_its_token(f);
    server_do(f->server, "SET lock:x %s PX %d", text, LONG_LEASE_MS);
    force_by_its_token(f);
    server_do(f->server, "SET lock:x %s PX %d", "dibs:\n", LONG_LEASE_MS);
    force_by_its_token(f);
    server_do(f->server, "SET lock:x %s PX %d", text, LONG_LEASE_MS);
    assert_status(DIBS_NOT_HELD, dibs_force_unlock(f->rt, "x", "by-hand"));
    assert_true(server_has(f->server, "lock:x"));
    force_by_its_token(f);
}

/* A command that was not sent at all is sent again. */
TEST_ON(a_forced_unlock_survives_a_closed_idle_connection, fixture *f)
{
    fixture_open(f, LONG_LEASE_MS);
    for (int i = 0; i < 10; i++) {
        server_do(f->server, "SET lock:x by-hand PX %d", LONG_LEASE_MS);
        server_do(f->server, "CLIENT KILL TYPE normal SKIPME yes");
        assert_status(DIBS_OK, dibs_force_unlock(f->rt, "x", NULL));
        assert_false(server_has(f->server, "lock:x"));
    }
}

/*
 * The account may delete keys, and not set any: nobody is told of a grant that it can't make. The waiter comes later
 * than who asks first, as its fence shows; old: a fence of an earlier hour is not counted up, but set.
 */
static void an_operator_who_may_not_set_keys_grants_nothing(fixture *f, dibs_runtime *operator, uint32_t flags,
                                                            bool old)
{
    dibs_runtime *far = open_runtime(f->server, SAFE_LEASE_MS);
    actor *waiter = actor_start();

    assert_status(DIBS_OK, dibs_timedlock(f->rt, "x", LIMIT_MS));
    if (old)
        server_do(f->server, "DECRBY dibs:fence:{lock:x} 7200000000");
    actor_begin_lock_with(waiter, far, "x", DIBS_WAIT_FOREVER, &(dibs_lock_options){.flags = flags});
    queue_await(f->server, "x", 1);
    assert_status(DIBS_OK, dibs_force_unlock(operator, "x", NULL));
    assert_status(DIBS_LOST, dibs_unlock(f->rt, "x"));
    uint64_t fence = 0;
    dibs_hold hold;
    if (dibs_trylock(f->rt, "x") == DIBS_OK) { /* else the waiter has just asked again */
        fence = fence_of(f->rt, "x");
        assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    }
    assert_status(DIBS_OK, actor_result(waiter));
    assert_status(DIBS_OK, actor_hold(waiter, far, "x", &hold));
    assert_true(hold.fence > fence);
    assert_status(DIBS_OK, actor_unlock(waiter, far, "x"));
    actor_end(waiter);
    dibs_close(far);
}

TEST_ON(a_forced_unlock_without_the_right_to_set_grants_nothing, fixture *f)
{
    const char *url = server_account(f->server, "operator", "~* &* +@all -set");
    dibs_runtime *operator= test_runtime(open_url(url, NULL));

    fixture_open(f, LONG_LEASE_MS);
    for (int old = 1; old >= 0; old--) {
        an_operator_who_may_not_set_keys_grants_nothing(f, operator, DIBS_SHARED, old);
        an_operator_who_may_not_set_keys_grants_nothing(f, operator, 0, old);
    }
}

/* The server lost the fence while there was one sharer: that one has none. */
TEST_ON(a_forced_unlock_of_all_ends_a_sharer_without_a_fence, fixture *f)
{
    const dibs_lock_options shared = {.flags = DIBS_SHARED};
    actor *other = actor_start();

    fixture_open(f, LONG_LEASE_MS);
    assert_status(DIBS_OK, dibs_lock_with(f->rt, "x", LIMIT_MS, &shared));
    server_do(f->server, "DEL dibs:fence:{lock:x}");
    assert_status(DIBS_OK, actor_lock_with(other, f->rt, "x", LIMIT_MS, &shared));
    assert_status(DIBS_OK, dibs_force_unlock(f->rt, "x", NULL));
    assert_false(server_has(f->server, "lock:x"));
    assert_status(DIBS_LOST, actor_unlock(other, f->rt, "x"));
    assert_status(DIBS_LOST, dibs_unlock(f->rt, "x"));
}

/* Characters of the token that would be escaped elsewhere stay as they are. */
TEST_ON(a_forced_unlock_takes_the_token_as_shown, fixture *f)
{
    static const char *const labels[] = {"back\\slash", "\\x41", "\\", "\"quoted\"", "a b%c"};

    fixture_open(f, LONG_LEASE_MS);
    for (size_t i = 0; i < sizeof labels / sizeof labels[0]; i++) {
        dibs_config config = {.lease_ms = LONG_LEASE_MS, .label = labels[i]};
        dibs_runtime *holder = open_url(f->server->url, &config);

        assert_status(DIBS_OK, dibs_lock(holder, "x"));
        dibs_owner owner = owner_of(f->rt, "x");
        assert_true(owner.held);
        assert_that(strstr(owner.token, labels[i]), "%s", owner.token);
        assert_status(DIBS_OK, dibs_force_unlock(f->rt, "x", owner.token));
        assert_false(server_has(f->server, "lock:x"));
        assert_status(DIBS_LOST, dibs_unlock(holder, "x"));
        dibs_close(holder);
    }
}

/* Its runtime knows: nobody begins to hold a lock by a lease that was taken away. */
TEST_ON(a_lease_that_its_runtime_forced_open_is_not_handed_over, fixture *f)
{
    actor *next = actor_start();

    f->config.handoff_ms = LIMIT_MS;
    fixture_open_patient(f, 0);
    dibs_runtime *other = test_runtime(open_runtime(f->server, 0));
    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    actor_begin_lock(next, f->rt, "x", 100);
    await_that(stats_of(f->rt).contended == 1);
    assert_status(DIBS_OK, dibs_force_unlock(f->rt, "x", NULL));
    assert_status(DIBS_OK, dibs_trylock(other, "x"));
    assert_status(DIBS_LOST, dibs_unlock(f->rt, "x"));
    assert_status(DIBS_TIMEOUT, actor_result(next));
    assert_status(DIBS_OK, dibs_unlock(other, "x"));
}

TESTS(fixture_setup, fixture_teardown)
