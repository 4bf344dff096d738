/* Long queues: one script removes some of the dead waiters, the next goes on, and no live waiter is passed over. */
#include <pthread.h>

#include "integration/queue_setup.h"
#include "support/queue.h"

enum {
    DEAD = 100000,
    STEP = 256 + 4,   /* dead entries that one script may remove, and how many more for another lock */
    PASSED = 101 * 30 /* gaps that one script may pass */
};

/* Puts so many waiters that asked long ago into the queue of the lock, behind so many gaps. */
static void add_dead(server *s, const char *name, int left, int count)
{
    server_do(s, "EVAL %s 1 dibs:queue:{lock:%s} %d %d",
              "local left, count = tonumber(ARGV[1]), tonumber(ARGV[2]) "
              "for i = left + 1, left + count do "
              "redis.call('HSET', KEYS[1], i .. '', '1 " LEASE " 1000 6 dibs:9dead:' .. i, 'dead:' .. i, i .. ' 1') "
              "end "
              "redis.call('HSET', KEYS[1], '', '1 ' .. left + count .. ' ' .. count .. ' 9999999999') "
              "return redis.call('PEXPIRE', KEYS[1], 600000)",
              name, left, count);
}

static long long retract(server *s, const char *token)
{
    redisReply *reply = server_command(s, "EVAL %s 3 " KEYS " %s 0", dibs__scripts[DIBS__SCRIPT_retract].text, token);
    assert_int_equal(reply->type, REDIS_REPLY_ARRAY);
    long long code = field(reply, 1);

    freeReplyObject(reply);
    return code;
}

/* Retracts a token until the queue was served. Each script takes some out, and none too many. Returns how many scripts.
 */
static int serve_in_steps(server *s, const char *token)
{
    long long before = queue_size(s, "x"), after;
    int steps = 1;

    for (; retract(s, token) == 2; steps++, before = after) {
        assert_false(server_has(s, "lock:x"));
        after = queue_size(s, "x");
        assert_in_range(before - after, 1, STEP);
    }
    assert_in_range(before - queue_size(s, "x"), 0, STEP);
    return steps;
}

static scene set_long_scene(void **state)
{
    fixture *f = *state;
    scene c = {f, f->server, wait_event_open(f->server, "dibs:1", false), wait_event_open(f->server, "dibs:2", false)};

    assert_int_equal(ask(c.s, "holder", "1", "").code, 1);
    add_dead(c.s, "x", 0, DEAD);
    expect_taken(ask(c.s, "dibs:b", "1", "dibs:2"));
    return c;
}

/* ------------------------------------------------------------ script by script */

TEST(a_release_serves_a_long_queue_in_steps)
{
    scene c = set_long_scene(state);

    assert_int_equal(release(c.s, "holder"), 3);
    assert_false(server_has(c.s, "lock:x"));
    assert_in_range(queue_size(c.s, "x"), DEAD + 1 - STEP, DEAD);
    assert_in_range(serve_in_steps(c.s, "holder"), DEAD / STEP, DEAD);
    expect_owner(c.s, "dibs:b");
    expect_told(c.b, "1", fence(c.s), "dibs:b");
    queue_assert_gone(c.s, "x");
    clear_scene(&c);
}

/* More wait to share than one script lets in: the others are not left until they ask by themselves. */
TEST_ON(a_release_lets_in_in_steps_all_who_wait_to_share, fixture *f)
{
    enum { SHARERS = 200 };
    redisContext *listens = wait_event_open(f->server, "dibs:1", false);
    long long left = SHARERS;

    assert_int_equal(ask(f->server, "holder", "1", "").code, 1);
    for (int i = 0; i < SHARERS; i++)
        expect_taken(ask(f->server, formatted("dibs:%d~0", i), "1", "dibs:1"));
    long long code = release(f->server, "holder");
    for (; code == 3 || code == 2; code = retract(f->server, "nobody")) {
        long long now = queue_size(f->server, "x");
        assert_true(now < left);
        left = now;
    }
    assert_true(left < SHARERS);
    queue_assert_gone(f->server, "x");
    for (int i = 0; i < SHARERS; i++)
        assert_int_equal(release(f->server, formatted("dibs:%d~0", i)), i == SHARERS - 1 ? 1 : 4);
    wait_event_close(listens);
}

TEST(a_forced_unlock_serves_a_long_queue_in_steps)
{
    scene c = set_long_scene(state);

    assert_int_equal(force(c.s, "holder"), 2);
    assert_false(server_has(c.s, "lock:x"));
    assert_in_range(queue_size(c.s, "x"), DEAD + 1 - STEP, DEAD);
    serve_in_steps(c.s, "nobody");
    expect_owner(c.s, "dibs:b");
    clear_scene(&c);
}

/* Each ask goes on, too; until the end is reached, a new ask gets a place behind the earlier ones. */
TEST(an_ask_passes_no_live_waiter)
{
    scene c = set_long_scene(state);
    int n = 0;

    server_do(c.s, "DEL lock:x");
    while (!server_has(c.s, "lock:x")) {
        long long before = queue_size(c.s, "x");
        answer a = ask(c.s, "dibs:a", formatted("%d", ++n), "dibs:1");
        assert_int_equal(a.code, 0);
        if (server_has(c.s, "lock:x"))
            break;
        assert_int_equal(a.number, 0);
        assert_int_equal(a.by_dibs, 1);
        assert_int_equal(a.listeners, 1);
        assert_in_range(before + 1 - queue_size(c.s, "x"), 1, STEP + 1);
        assert_int_equal(server_integer(c.s, "HEXISTS dibs:queue:{lock:x} dibs:a"), 1);
    }
    assert_in_range(n, DEAD / STEP, DEAD);
    expect_owner(c.s, "dibs:b");
    expect_release_to(c.s, "dibs:b", "dibs:a");
    clear_scene(&c);
}

TEST(a_release_with_an_ask_passes_no_live_waiter)
{
    scene c = set_long_scene(state);
    redisReply *reply = server_command(c.s, "EVAL %s 3 " KEYS " holder dibs:a 1 " LEASE " dibs:1 0",
                                       dibs__scripts[DIBS__SCRIPT_requeue].text);

    assert_int_equal(field(reply, 0), 3);
    assert_int_equal(read_answer(reply->element[1]).code, 0);
    assert_int_equal(read_answer(reply->element[1]).number, 0);
    freeReplyObject(reply);
    assert_in_range(queue_size(c.s, "x"), DEAD + 2 - STEP, DEAD + 1);
    serve_in_steps(c.s, "holder");
    expect_owner(c.s, "dibs:b");
    assert_string_equal(queue_at(c.s, "x", 0).token, "dibs:a");
    clear_scene(&c);
}

/* Gaps are passed in steps as well, also while memory is out. */
TEST_IN_SCENE(many_gaps_in_a_queue_are_passed_in_steps)
{
    long long before = 0, first;

    server_do(c->s, "DEL dibs:queue:{lock:x}");
    add_dead(c->s, "x", DEAD, 1000);
    expect_taken(ask(c->s, "dibs:b", "1", "dibs:2"));
    assert_int_equal(release(c->s, "holder"), 3);
    server_do(c->s, "CONFIG SET maxmemory-policy noeviction");
    server_do(c->s, "CONFIG SET maxmemory 1");
    do {
        const char *summary = server_text(c->s, "HGET dibs:queue:{lock:x} %b", "", (size_t)0);
        first = strtoll(summary, NULL, 10);
        assert_in_range(first - before, 1, PASSED);
        before = first;
    } while (retract(c->s, "holder") == 2);
    server_do(c->s, "CONFIG SET maxmemory 0");
    assert_string_equal(server_value(c->s, "lock:x"), "dibs:b");
    queue_assert_gone(c->s, "x");
}

/* There are more gaps before the only one that waits than a script passes at a time. */
TEST_IN_SCENE(a_waiter_behind_many_gaps_is_told)
{
    server_do(c->s, "DEL dibs:queue:{lock:x}");
    add_dead(c->s, "x", 300, 0);
    expect_taken(ask(c->s, "dibs:b", "1", "dibs:2"));
    expect_release_to(c->s, "holder", "dibs:b");
}

/* All retractions of a call share the limit of one script; none waits until the queue of another lock is served. */
TEST_ON(many_retractions_share_the_budget_of_one_script, fixture *f)
{
    enum { LOCKS = 3 };

    add_dead(f->server, "a", 0, 1000);
    add_dead(f->server, "b", 0, 1000);
    add_dead(f->server, "c", 0, 3);
    redisReply *reply = server_command(f->server,
                                       "EVAL %s 9 lock:a dibs:fence:{lock:a} dibs:queue:{lock:a} lock:b "
                                       "dibs:fence:{lock:b} dibs:queue:{lock:b} lock:c dibs:fence:{lock:c} "
                                       "dibs:queue:{lock:c} dibs:1 0 dibs:1 0 dibs:1 0",
                                       dibs__scripts[DIBS__SCRIPT_retract].text);
    assert_int_equal(field(reply, 1), 2);
    assert_int_equal(field(reply, 2), 2);
    assert_int_equal(field(reply, 3), 0);
    freeReplyObject(reply);
    long long a = 1000 - queue_size(f->server, "a"), b = 1000 - queue_size(f->server, "b");
    assert_in_range(a, 1, STEP);
    assert_in_range(b, 1, STEP);
    assert_in_range(a + b, 2, STEP);
    queue_assert_gone(f->server, "c");
    server_do(f->server, "DEL dibs:queue:{lock:a} dibs:queue:{lock:b}");
}

/* ---------------------------------------------------------------- the library */

/*
 * The lease is so long that a waiter would ask again much later: getting the lock before that shows that another script
 * went on.
 */
enum { WAITERS_LEASE_MS = 100 * LIMIT_MS };

struct waiter {
    dibs_runtime *rt;
    dibs_status status;
};

static void *wait_and_release(void *arg)
{
    struct waiter *w = arg;

    w->status = dibs_timedlock(w->rt, "x", LIMIT_MS);
    if (w->status == DIBS_OK)
        assert_status(DIBS_OK, dibs_unlock(w->rt, "x"));
    return NULL;
}

static void who_lives_has_the_lock_soon(fixture *f, bool forced)
{
    dibs_runtime *other = open_runtime(f->server, WAITERS_LEASE_MS);
    struct waiter w = {other, DIBS_BUSY};
    pthread_t thread;

    fixture_open_connected(f, WAITERS_LEASE_MS);
    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    add_dead(f->server, "x", 0, DEAD);
    assert_int_equal(pthread_create(&thread, NULL, wait_and_release, &w), 0);
    queue_await(f->server, "x", DEAD + 1);
    if (forced) {
        assert_status(DIBS_OK, dibs_force_unlock(other, "x", NULL));
        await_lost(f->rt, "x");
    }
    assert_status(forced ? DIBS_LOST : DIBS_OK, dibs_unlock(f->rt, "x"));
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_status(DIBS_OK, w.status);
    dibs_close(other);
}

TEST(a_waiter_behind_many_dead_gets_the_lock_soon_after_an_unlock)
{
    who_lives_has_the_lock_soon(*state, false);
}

TEST(a_waiter_behind_many_dead_gets_the_lock_soon_after_a_forced_unlock)
{
    who_lives_has_the_lock_soon(*state, true);
}

/* A single try still gets a free lock whose waiters are all dead. */
TEST_ON(a_try_gets_a_free_lock_with_only_dead_waiters, fixture *f)
{
    f->config.command_timeout_ms = LIMIT_MS;
    fixture_open_connected(f, LONG_LEASE_MS);
    add_dead(f->server, "x", 0, 20 * STEP);
    lock_and_release(f->rt, "x", 0);
    queue_assert_gone(f->server, "x");
}

TESTS(fixture_setup, fixture_teardown)
