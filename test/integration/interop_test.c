/* dibs and clients that know nothing of it, on the same keys: each excludes the other. */
#include "support/actor.h"
#include "support/fixture.h"
#include "support/process.h"
#include "support/queue.h"

/* ---------------------------------------------------------------- redis-py */

/* The first Python that has redis-py. There must be one: a skipped test would prove nothing. */
static const char *find_python(void)
{
    static const char *const pythons[] = {"python3", "/usr/bin/python3", "/usr/local/bin/python3"};

    for (size_t i = 0; i < sizeof pythons / sizeof *pythons; i++) {
        process *p = process_start((const char *const[]){pythons[i], "-c",
                                                         "import importlib.util as u, sys; "
                                                         "sys.exit(u.find_spec('redis') is None)",
                                                         NULL});
        int status = process_wait(p, LIMIT_MS);

        process_free(p);
        if (status == 0)
            return pythons[i];
    }
    fail_msg("%s", "no Python with redis-py (package python3-redis)");
    return NULL;
}

static process *start_redis_py(const server *s)
{
    return process_start(
        (const char *const[]){find_python(), source_path("test/support/redis_py_lock.py"), s->socket_path, NULL});
}

static void end_redis_py(process *python)
{
    assert_int_equal(process_wait(python, LIMIT_MS), 0);
    process_free(python);
}

TEST_ON(a_dibs_holder_blocks_redis_py, fixture *f)
{
    process *python = start_redis_py(f->server);

    fixture_open(f, SAFE_LEASE_MS);
    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    assert_string_equal(process_ask(python, "acquire lock:x 60 0"), "False");
    /* Longer than the lease: it is renewed, and redis-py can't get in at its end. */
    assert_string_equal(process_ask(python, "acquire lock:x 60 %d", 3 * SAFE_LEASE_MS / 1000), "False");
    assert_status(DIBS_OK, dibs_check(f->rt, "x"));
    process_write(python, "acquire lock:x 60 %d", LIMIT_MS / 1000);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    assert_string_equal(process_read(python), "True");
    assert_status(DIBS_BUSY, dibs_trylock(f->rt, "x"));
    assert_string_equal(process_ask(python, "release lock:x"), "ok");
    end_redis_py(python);
}

TEST_ON(a_redis_py_holder_blocks_dibs, fixture *f)
{
    process *python = start_redis_py(f->server);

    fixture_open(f, LONG_LEASE_MS);
    assert_string_equal(process_ask(python, "acquire lock:x 600 0"), "True");
    assert_status(DIBS_BUSY, dibs_trylock(f->rt, "x"));
    assert_status(DIBS_TIMEOUT, dibs_timedlock(f->rt, "x", 300));
    /* Neither changed the other's token or expiry. */
    assert_string_equal(process_ask(python, "owned lock:x"), "True");
    assert_true(server_integer(f->server, "PTTL lock:x") > 300000);
    assert_string_equal(process_ask(python, "extend lock:x 60"), "ok");
    process_write(python, "release lock:x");
    assert_status(DIBS_OK, dibs_timedlock(f->rt, "x", LIMIT_MS));
    assert_string_equal(process_read(python), "ok");
    assert_string_equal(process_ask(python, "acquire lock:x 60 0"), "False");
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    assert_string_equal(process_ask(python, "acquire lock:x 60 0"), "True");
    assert_string_equal(process_ask(python, "release lock:x"), "ok");
    end_redis_py(python);
}

TEST_ON(dibs_gets_it_when_redis_pys_lease_ends, fixture *f)
{
    process *python = start_redis_py(f->server);
    int64_t begin = now_ms();

    fixture_open(f, LONG_LEASE_MS);
    assert_string_equal(process_ask(python, "acquire lock:x 1 0"), "True");
    assert_status(DIBS_OK, dibs_timedlock(f->rt, "x", LIMIT_MS));
    assert_true(now_ms() - begin >= 1000 - 5);
    assert_string_equal(process_ask(python, "release lock:x"), "LockNotOwnedError");
    assert_status(DIBS_OK, dibs_check(f->rt, "x"));
    assert_true(server_has(f->server, "lock:x"));
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    end_redis_py(python);
}

/* Both hold the lock in turn, many times, as fast as they can. */
TEST_ON(dibs_and_redis_py_take_turns, fixture *f)
{
    process *python = start_redis_py(f->server);

    fixture_open(f, LONG_LEASE_MS);
    for (int i = 0; i < 30; i++) {
        assert_status(DIBS_OK, dibs_timedlock(f->rt, "x", LIMIT_MS));
        process_write(python, "acquire lock:x 60 %d", LIMIT_MS / 1000);
        assert_status(DIBS_OK, dibs_check(f->rt, "x"));
        assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
        assert_string_equal(process_read(python), "True");
        process_write(python, "release lock:x");
        assert_status(DIBS_OK, dibs_timedlock(f->rt, "x", LIMIT_MS));
        assert_string_equal(process_read(python), "ok");
        assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    }
    end_redis_py(python);
}

/* ----------------------------------------------------------------- by hand */

TEST_ON(set_nx_px_by_hand_excludes_and_is_excluded, fixture *f)
{
    char none[64];

    fixture_open(f, LONG_LEASE_MS);
    server_do(f->server, "SET lock:x by-hand NX PX 60000");
    assert_status(DIBS_BUSY, dibs_trylock(f->rt, "x"));
    assert_status(DIBS_TIMEOUT, dibs_timedlock(f->rt, "x", 200));
    assert_string_equal(server_text(f->server, "GET lock:x"), "by-hand");
    server_do(f->server, "DEL lock:x");
    assert_status(DIBS_OK, dibs_timedlock(f->rt, "x", LIMIT_MS));
    assert_false(server_string(f->server, none, sizeof none, "SET lock:x by-hand NX PX 60000"));
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    assert_true(server_string(f->server, none, sizeof none, "SET lock:x by-hand NX PX 60000"));
    server_do(f->server, "DEL lock:x");
}

/* What K holds is just what SET NX PX makes: a string, with an expiry of the lease. */
TEST_ON(the_key_is_a_plain_string_with_the_lease, fixture *f)
{
    f->config.label = "interop";
    fixture_open(f, 50000);
    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    assert_string_equal(server_text(f->server, "TYPE lock:x"), "string");
    assert_in_range(server_integer(f->server, "PTTL lock:x"), 1, 50000);
    const char *token = server_text(f->server, "GET lock:x");
    assert_true(strlen(token) < 192);
    assert_true(strstr(token, "interop") != NULL);
    dibs_owner owner = owner_of(f->rt, "x");
    assert_true(owner.held);
    assert_string_equal(owner.token, token);
    assert_in_range(owner.remaining_ms, 1, 50000);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
}

/* Every acquire has a new token: a late release can't end a later hold. */
TEST_ON(no_token_is_used_twice, fixture *f)
{
    enum { ROUNDS = 20 };
    const char *tokens[ROUNDS];

    fixture_open(f, 0);
    for (int i = 0; i < ROUNDS; i++) {
        assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
        tokens[i] = server_text(f->server, "GET lock:x");
        for (int k = 0; k < i; k++)
            assert_string_not_equal(tokens[i], tokens[k]);
        for (const char *c = tokens[i]; *c; c++)
            assert_in_range(*c, 0x21, 0x7e);
        assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    }
}

/* ------------------------------------------------------ query, force_unlock */

TEST_ON(query_shows_foreign_holders, fixture *f)
{
    static const char binary[] = "\x01\xff\nb\"\0z";
    char long_token[400];
    dibs_owner owner;

    fixture_open(f, 0);
    memset(&owner, 0xff, sizeof owner);
    assert_status(DIBS_OK, dibs_query(f->rt, "x", &owner));
    assert_false(owner.held);
    assert_string_equal(owner.token, "");
    assert_int_equal(owner.waiters, 0);

    server_do(f->server, "SET lock:x by-hand PX 60000");
    assert_status(DIBS_OK, dibs_query(f->rt, "x", &owner));
    assert_true(owner.held);
    assert_string_equal(owner.token, "by-hand");
    assert_in_range(owner.remaining_ms, 1, 60000);
    assert_int_equal(owner.fence, 0);

    server_do(f->server, "SET lock:x %b PX 60000", binary, sizeof binary - 1);
    assert_status(DIBS_OK, dibs_query(f->rt, "x", &owner));
    assert_true(owner.held);
    assert_true(strlen(owner.token) > sizeof binary - 1);
    for (const char *c = owner.token; *c; c++)
        assert_in_range(*c, 0x20, 0x7e);

    memset(long_token, 'k', sizeof long_token - 1);
    long_token[sizeof long_token - 1] = '\0';
    server_do(f->server, "SET lock:x %s", long_token);
    assert_status(DIBS_OK, dibs_query(f->rt, "x", &owner));
    assert_true(owner.held);
    assert_int_equal(owner.remaining_ms, -1);
    assert_true(strlen(owner.token) > 100 && strlen(owner.token) < sizeof owner.token);
    assert_status(DIBS_BUSY, dibs_trylock(f->rt, "x"));
    server_do(f->server, "DEL lock:x");
}

TEST_ON(force_unlock_ends_only_the_token_it_names, fixture *f)
{
    fixture_open(f, LONG_LEASE_MS);
    dibs_runtime *second = test_runtime(open_runtime(f->server, LONG_LEASE_MS));
    assert_status(DIBS_OK, dibs_force_unlock(f->rt, "x", NULL));
    assert_status(DIBS_OK, dibs_force_unlock(f->rt, "x", "nobody"));

    server_do(f->server, "SET lock:x by-hand PX 60000");
    assert_status(DIBS_NOT_HELD, dibs_force_unlock(f->rt, "x", "by-han"));
    assert_status(DIBS_NOT_HELD, dibs_force_unlock(f->rt, "x", "by-hand2"));
    assert_status(DIBS_NOT_HELD, dibs_force_unlock(f->rt, "x", "")); /* not taken for NULL, which is anybody */
    assert_true(server_has(f->server, "lock:x"));
    assert_status(DIBS_OK, dibs_force_unlock(f->rt, "x", "by-hand"));
    assert_false(server_has(f->server, "lock:x"));

    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    assert_status(DIBS_NOT_HELD, dibs_force_unlock(second, "x", "by-hand"));
    dibs_owner owner = owner_of(second, "x");
    assert_status(DIBS_OK, dibs_force_unlock(second, "x", owner.token));
    assert_false(server_has(f->server, "lock:x"));
    assert_status(DIBS_LOST, dibs_unlock(f->rt, "x"));

    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    assert_status(DIBS_OK, dibs_force_unlock(second, "x", NULL));
    assert_status(DIBS_OK, dibs_trylock(second, "x"));
    assert_status(DIBS_LOST, dibs_unlock(f->rt, "x"));
    assert_status(DIBS_OK, dibs_check(second, "x"));
    assert_status(DIBS_OK, dibs_unlock(second, "x"));
}

TEST_ON(a_force_unlocked_holder_learns_by_its_renewal, fixture *f)
{
    fixture_open(f, SAFE_LEASE_MS);
    dibs_runtime *second = test_runtime(open_runtime(f->server, LONG_LEASE_MS));
    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    uint64_t fence = fence_of(f->rt, "x");
    assert_status(DIBS_OK, dibs_force_unlock(second, "x", NULL));
    await_lost(f->rt, "x");
    assert_int_equal(events_await(&f->events, DIBS_EVENT_LOST, "x").fence, fence);
    assert_status(DIBS_OK, dibs_lock(second, "x"));
    assert_true(fence_of(second, "x") > fence);
    assert_status(DIBS_LOST, dibs_unlock(f->rt, "x"));
    assert_status(DIBS_OK, dibs_unlock(second, "x"));
}

/* A foreign client put a hash in the place of the lock. The holder has lost it, and a waiter can leave. */
TEST_ON(a_lock_that_was_replaced_by_a_hash_is_lost, fixture *f)
{
    dibs_runtime *far = test_runtime(open_runtime(f->server, LONG_LEASE_MS));
    actor *waiter = actor_start();

    fixture_open(f, LONG_LEASE_MS);
    assert_status(DIBS_OK, dibs_timedlock(f->rt, "x", LIMIT_MS));
    actor_begin_lock(waiter, far, "x", 2000);
    queue_await(f->server, "x", 1);
    freeReplyObject(
        server_command(f->server, "EVAL %s 0", "redis.call('DEL','lock:x') redis.call('HSET','lock:x','a','b')"));
    assert_status(DIBS_LOST, dibs_unlock(f->rt, "x"));
    assert_true(actor_result(waiter) != DIBS_OK);
    await_that(!server_has(f->server, "dibs:queue:{lock:x}"));
    server_do(f->server, "DEL lock:x");
}

TESTS(fixture_setup, fixture_teardown)
