/* The waiters of a lock: what dibs_query_waiters tells of its queue. */
#include "integration/queue_setup.h"
#include "support/masters.h"
#include "support/queue.h"

enum { ROOM = 4 };

static const dibs_waiter none;

static size_t waiters_of(dibs_runtime *rt, const char *name, dibs_waiter *out, size_t max)
{
    size_t count = 99;

    memset(out, 1, ROOM * sizeof *out);
    assert_status(DIBS_OK, dibs_query_waiters(rt, name, out, max, &count));
    for (size_t i = count; i < max; i++)
        assert_memory_equal(&out[i], &none, sizeof none);
    return count;
}

TEST_IN_SCENE(waiters_are_listed_in_queue_order)
{
    dibs_waiter out[ROOM];

    fixture_open(c->f, LONG_LEASE_MS);
    expect_taken(ask(c->s, "dibs:c", "1", "dibs:2"));
    assert_int_equal(waiters_of(c->f->rt, "x", out, ROOM), 3);
    assert_string_equal(out[0].token, "dibs:a");
    assert_string_equal(out[2].token, "dibs:c");
    assert_in_range(out[0].asked_ms, 0, LIMIT_MS);
    assert_int_equal(waiters_of(c->f->rt, "x", out, 2), 2);
    assert_int_equal(release(c->s, "dibs:b"), -1); /* leaves a gap */
    assert_int_equal(waiters_of(c->f->rt, "x", out, ROOM), 2);
    assert_string_equal(out[1].token, "dibs:c");
    assert_int_equal(waiters_of(c->f->rt, "nobody waits", out, ROOM), 0);
}

/* The token of a client with such a label can't control a terminal. */
TEST_ON(a_token_that_does_not_print_is_escaped, fixture *f)
{
    dibs_waiter out[ROOM];

    fixture_open(f, LONG_LEASE_MS);
    assert_int_equal(ask(f->server, "holder", "1", "").code, 1);
    expect_taken(ask(f->server, "a\x1b[31m", "1", "dibs:1"));
    assert_int_equal(waiters_of(f->rt, "x", out, ROOM), 1);
    assert_string_equal(out[0].token, "a\\x1b[31m");
    server_do(f->server, "FLUSHALL");
}

TEST_ON(a_long_queue_is_listed_from_its_head, fixture *f)
{
    enum { WAITERS = 2100 }; /* so many that a look reads only the first places */
    dibs_waiter *out = calloc(DIBS_WAITERS_MAX, sizeof *out);
    size_t count;

    fixture_open(f, LONG_LEASE_MS);
    assert_int_equal(ask(f->server, "holder", "1", "").code, 1);
    for (int i = 0; i < WAITERS; i++)
        expect_taken(ask(f->server, formatted("dibs:%d", i), "1", "dibs:1"));
    assert_status(DIBS_OK, dibs_query_waiters(f->rt, "x", out, DIBS_WAITERS_MAX, &count));
    assert_int_equal(count, DIBS_WAITERS_MAX);
    assert_string_equal(out[1023].token, "dibs:1023");
    for (int i = 1; i < WAITERS - 1; i++) {
        assert_int_equal(release(f->server, formatted("dibs:%d", i)), -1); /* leaves a gap */
    }
    assert_int_equal(waiters_of(f->rt, "x", out, ROOM), 2);
    assert_string_equal(out[1].token, formatted("dibs:%d", WAITERS - 1));
    free(out);
    server_do(f->server, "FLUSHALL");
}

/* More have left at its head than a look may list. */
TEST_ON(a_long_queue_is_listed_behind_many_gaps, fixture *f)
{
    enum { GONE = 3000, WAITERS = 2100 };
    dibs_waiter out[ROOM];

    fixture_open(f, LONG_LEASE_MS);
    server_do(f->server, "EVAL %s 1 dibs:queue:{lock:x} %d %d",
              "for i = ARGV[1] + 1, ARGV[1] + ARGV[2] do "
              "redis.call('HSET', KEYS[1], i .. '', '1 30000 1000 6 dibs:1dibs:' .. i, 'dibs:' .. i, i .. ' 1') "
              "end "
              "redis.call('HSET', KEYS[1], '', '1 ' .. ARGV[1] + ARGV[2] .. ' ' .. ARGV[2] .. ' 9999999999') "
              "return redis.call('PEXPIRE', KEYS[1], 600000)",
              GONE, WAITERS);
    assert_int_equal(owner_of(f->rt, "x").waiters, WAITERS);
    assert_int_equal(waiters_of(f->rt, "x", out, ROOM), ROOM);
    assert_string_equal(out[0].token, formatted("dibs:%d", GONE + 1));
    assert_string_equal(out[ROOM - 1].token, formatted("dibs:%d", GONE + ROOM));
    server_do(f->server, "FLUSHALL");
}

static bool somebody_waits(dibs_runtime *rt)
{
    dibs_owner owner;

    return dibs_query(rt, "mine", &owner) == DIBS_OK && owner.waiters > 0;
}

/* A store in memory does not know when an entry asked last. */
static void expect_own_waiter(const char *url, bool asked_known)
{
    dibs_runtime *rt = open_url(url, NULL);
    actor *waits = actor_start();
    dibs_waiter out[ROOM];

    assert_status(DIBS_OK, dibs_lock(rt, "mine"));
    actor_begin_lock_with(waits, rt, "mine", LONG_LEASE_MS, &(dibs_lock_options){.flags = DIBS_FAIR});
    await_that(somebody_waits(rt));
    dibs_owner owner = owner_of(rt, "mine");
    assert_int_equal(waiters_of(rt, "mine", out, ROOM), 1);
    assert_memory_equal(out[0].token, owner.token, strlen("dibs:"));
    assert_string_not_equal(out[0].token, owner.token);
    assert_int_equal(out[0].asked_ms >= 0, asked_known);
    assert_status(DIBS_OK, dibs_unlock(rt, "mine"));
    actor_gets(waits, rt, "mine");
    actor_end(waits);
    dibs_close(rt);
}

TEST_ON(waiters_of_this_process_are_listed, fixture *f)
{
    expect_own_waiter(f->server->url, true);
    expect_own_waiter("mem:", false);
}

/* A look may have come to its end before that master answered: then it is not known there yet. */
TEST_WITH(of_a_quorum_the_longest_queue_is_listed, masters_setup_3, masters_teardown, masters *m)
{
    masters_open_connected(m, LONG_LEASE_MS);
    for (size_t i = 0; i < m->count; i++) {
        assert_int_equal(ask(m->servers[i], "holder", "1", "").code, 1);
        expect_taken(ask(m->servers[i], "dibs:a", "1", "dibs:1"));
    }
    for (size_t i = 0; i < m->count; i++) {
        dibs_waiter out[ROOM];
        expect_taken(ask(m->servers[i], "dibs:b", "1", "dibs:2"));
        await_that(waiters_of(m->rt, "x", out, ROOM) == 2);
        assert_int_equal(release(m->servers[i], "dibs:b"), -1);
    }
    masters_do(m, m->count, "DEL " KEYS);
}

/* Its fence stays: the next one has to be larger. */
TEST_IN_SCENE(a_lock_that_somebody_waits_for_is_not_forgotten)
{
    fixture_open(c->f, LONG_LEASE_MS);
    server_do(c->s, "DEL lock:x");
    assert_status(DIBS_BUSY, dibs_forget(c->f->rt, "x"));
    assert_int_equal(server_integer(c->s, "EXISTS dibs:fence:{lock:x}"), 1);
    server_do(c->s, "DEL dibs:queue:{lock:x}");
    assert_status(DIBS_OK, dibs_forget(c->f->rt, "x"));
    assert_int_equal(server_integer(c->s, "EXISTS dibs:fence:{lock:x}"), 0);
    assert_status(DIBS_INVALID, dibs_forget(c->f->rt, ""));
}

TEST_ON(query_waiters_refuses_wrong_arguments, fixture *f)
{
    dibs_waiter out[ROOM];
    size_t count = 99;

    fixture_open(f, LONG_LEASE_MS);
    assert_status(DIBS_INVALID, dibs_query_waiters(f->rt, "x", out, ROOM, NULL));
    assert_status(DIBS_INVALID, dibs_query_waiters(f->rt, "x", NULL, ROOM, &count));
    assert_int_equal(count, 0);
    assert_status(DIBS_INVALID, dibs_query_waiters(f->rt, "x", out, 0, &count));
    assert_status(DIBS_INVALID, dibs_query_waiters(f->rt, "x", out, DIBS_WAITERS_MAX + 1, &count));
    assert_status(DIBS_INVALID, dibs_query_waiters(f->rt, "", out, ROOM, &count));
}

TESTS(fixture_setup, fixture_teardown)
