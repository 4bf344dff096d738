/*
 * A minority of the masters is down, silent, slow, wiped or has a foreign key: this blocks no call, and leaves nothing.
 */
#include "support/fixture.h"
#include "support/masters.h"

#define PAIRS 100

static size_t minority(const masters *m)
{
    return m->count - m->majority;
}

/* Once more where the thread was stopped for all of the wait: then nothing is known. */
static dibs_status try_to_have(dibs_runtime *rt, const char *name, int64_t wait_ms)
{
    int64_t limit = now_ms() + LIMIT_MS;
    dibs_status status;

    do
        status = dibs_timedlock(rt, name, wait_ms);
    while (status == DIBS_TIMEOUT && strstr(dibs_last_error(), "the store had not answered") && now_ms() < limit);
    return status;
}

/* Nobody has the lock: the answer must not be that it is taken, however short the wait is. */
TEST_ON_THREE_AND_FIVE(masters_without_replicas_confirm_nothing, masters *m)
{
    static const struct {
        const char *name;
        int64_t wait_ms;
    } cases[] = {{"a", 0}, {"b", 100}, {"c", 300}, {"d", 1000}};

    m->config.min_replicas = 1;
    masters_open(m, LONG_LEASE_MS);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_status(DIBS_UNAVAILABLE, try_to_have(m->rt, cases[i].name, cases[i].wait_ms));
        assert_that(strstr(dibs_last_error(), "masters confirmed the lock: ") != NULL, "%s", dibs_last_error());
    }
}

/* It is opened as long as a majority could confirm a lock. */
TEST_ON_THREE_AND_FIVE(masters_that_refuse_to_confirm_are_told_at_the_open, masters *m)
{
    dibs_runtime *rt;

    m->config.min_replicas = 1;
    for (size_t i = 0; i < m->count; i++)
        m->urls[i] = server_account(m->servers[i], "u", "~* &* +@all");
    masters_do(m, minority(m), "ACL SETUSER u -wait");
    assert_status(DIBS_OK, dibs_open(&rt, &m->config));
    dibs_close(rt);
    for (size_t i = minority(m); i < m->count; i++)
        server_do(m->servers[i], "ACL SETUSER u -wait");
    assert_status(DIBS_DENIED, dibs_open(&rt, &m->config));
    assert_non_null(strstr(dibs_last_error(), "refused WAIT"));
}

static void expect_nothing_left(masters *m)
{
    for (size_t i = 0; i < m->count; i++)
        await_that(server_integer(m->servers[i], "EXISTS lock:a lock:a:q") == 0);
}

TEST_ON_THREE_AND_FIVE(a_master_down_from_the_start_is_no_obstacle, masters *m)
{
    masters_each(m, minority(m), server_kill);
    masters_open(m, LONG_LEASE_MS);
    for (int i = 0; i < PAIRS; i++)
        lock_and_release(m->rt, "a", LIMIT_MS);
    masters_each(m, minority(m), server_restart);
    lock_and_release(m->rt, "a", LIMIT_MS);
    expect_nothing_left(m);
}

TEST_ON_THREE_AND_FIVE(a_master_that_goes_down_is_no_obstacle, masters *m)
{
    masters_open_connected(m, LONG_LEASE_MS);
    assert_status(DIBS_OK, dibs_lock(m->rt, "a"));
    masters_each(m, minority(m), server_kill);
    assert_status(DIBS_OK, dibs_unlock(m->rt, "a"));
    for (int i = 0; i < PAIRS; i++)
        lock_and_release(m->rt, "a", LIMIT_MS);
    assert_int_equal(events_count(&m->events, DIBS_EVENT_STORE_DOWN, NULL), 0);
    masters_each(m, minority(m), server_restart);
    lock_and_release(m->rt, "a", LIMIT_MS);
    expect_nothing_left(m);
}

/* The thread waits for the asks at the other masters if no majority can release the lock without them. */
TEST_ON_THREE_AND_FIVE(a_master_that_fails_before_the_others_answer_is_no_obstacle, masters *m)
{
    actor *a = actor_start();

    m->config.command_timeout_ms = 4 * LIMIT_MS; /* longer than this test waits */
    masters_open_connected(m, 10 * LONG_LEASE_MS);
    for (size_t i = 0; i < minority(m); i++)
        server_pause(m->servers[m->count - 1 - i]);
    assert_status(DIBS_OK, actor_lock(a, m->rt, "a", DIBS_WAIT_FOREVER));
    masters_each(m, minority(m), server_kill);
    actor_begin_unlock(a, m->rt, "a");
    actor_await_asleep(a);
    assert_true(actor_busy(a));
    for (size_t i = 0; i < minority(m); i++)
        server_resume(m->servers[m->count - 1 - i]);
    assert_status(DIBS_OK, actor_result(a));
    masters_await_keys(m, "a", 0);
    actor_end(a);
    masters_each(m, minority(m), server_restart);
}

/* What is sent to it breaks, and can't be sent again before the command timeout: the others decide before that. */
TEST_ON_THREE_AND_FIVE(a_silent_master_whose_connection_broke_is_no_obstacle, masters *m)
{
    m->config.command_timeout_ms = m->config.connect_timeout_ms = LIMIT_MS;
    masters_open_connected(m, LONG_LEASE_MS);
    for (size_t i = 0; i < minority(m); i++) {
        server_do(m->servers[i], "CLIENT KILL TYPE normal SKIPME yes");
        server_pause(m->servers[i]);
    }
    int64_t began = now_ms();
    for (int i = 0; i < 10; i++) {
        lock_and_release(m->rt, "a", 0);
    }
    assert_true(now_ms() - began < LIMIT_MS / 8);
    masters_each(m, minority(m), server_resume);
    lock_and_release(m->rt, "a", LIMIT_MS);
    expect_nothing_left(m);
}

/* The silent master is asked, but rarely, and its asks are retracted when it goes on. */
TEST_ON_THREE_AND_FIVE(a_silent_master_is_no_obstacle, masters *m)
{
    long long asked[MASTERS_MAX];

    masters_open_connected(m, LONG_LEASE_MS);
    for (size_t i = 0; i < minority(m); i++) {
        asked[i] = masters_asks(m, i);
        server_pause(m->servers[i]);
    }
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < PAIRS; i++)
            lock_and_release(m->rt, "a", LIMIT_MS);
        pause_ms(20);
    }
    masters_each(m, minority(m), server_resume);
    expect_nothing_left(m);
    for (size_t i = 0; i < minority(m); i++) {
        long long more = masters_asks(m, i) - asked[i];
        assert_that(more < 10 * PAIRS / 3, "%lld scripts at a master that was silent", more);
    }
}

/* No connection is open when the lock is released: the release follows as soon as one is. */
TEST_ON_THREE_AND_FIVE(a_master_that_loses_its_connections_releases_later, masters *m)
{
    m->config.command_timeout_ms = 4 * LIMIT_MS; /* longer than this test waits */
    masters_open_connected(m, 10 * LONG_LEASE_MS);
    masters_lock_at_all(m, "a");
    for (size_t i = 0; i < minority(m); i++) {
        server_do(m->servers[i], "CONFIG SET maxclients 1");
        server_do(m->servers[i], "CLIENT KILL TYPE normal SKIPME yes");
    }
    pause_ms(100); /* so that the library knows that they are broken: otherwise it would send the release */
    assert_status(DIBS_OK, dibs_unlock(m->rt, "a"));
    assert_int_equal(masters_with_key(m, "a"), minority(m));
    masters_do(m, minority(m), "CONFIG SET maxclients 10000");
    masters_await_keys(m, "a", 0);
}

/* A slow master that was resting was not asked, and gets its key by the extension. */
static bool all_have_it(masters *m)
{
    return dibs_extend(m->rt, "a", LONG_LEASE_MS) == DIBS_OK && masters_with_key(m, "a") == m->count;
}

/* Answers of a slow master come late: they count as one more vote, or are given back. */
TEST_ON_THREE_AND_FIVE(a_slow_master_is_not_waited_for, masters *m)
{
    masters_open_connected(m, LONG_LEASE_MS);
    for (int round = 0; round < 5; round++) {
        masters_await_all(m);
        masters_do(m, minority(m), "CLIENT PAUSE 60");
        assert_status(DIBS_OK, dibs_lock(m->rt, "a"));
        if (round % 2 == 0)
            await_that(all_have_it(m));
        assert_status(DIBS_OK, dibs_unlock(m->rt, "a"));
        lock_and_release(m->rt, "a", LIMIT_MS);
        expect_nothing_left(m);
    }
}

TEST_ON_THREE_AND_FIVE(a_foreign_key_at_a_minority_is_no_obstacle, masters *m)
{
    masters_open_connected(m, LONG_LEASE_MS);
    masters_do(m, minority(m), "SET lock:a foreign PX 600000");
    for (int i = 0; i < PAIRS; i++)
        lock_and_release(m->rt, "a", LIMIT_MS);
    assert_int_equal(masters_with_value(m, "a", "foreign"), minority(m));
    masters_do(m, minority(m), "DEL lock:a");
    expect_nothing_left(m);
}

/* The votes that were granted are given back at once. */
TEST_ON_THREE_AND_FIVE(a_foreign_key_at_a_majority_makes_the_lock_busy, masters *m)
{
    masters_open_connected(m, LONG_LEASE_MS);
    masters_do(m, m->majority, "SET lock:a foreign PX 600000");
    assert_status(DIBS_BUSY, dibs_trylock(m->rt, "a"));
    masters_await_keys(m, "a", m->majority);
    assert_status(DIBS_TIMEOUT, dibs_timedlock(m->rt, "a", 100));
    masters_await_keys(m, "a", m->majority);
    masters_do(m, m->majority, "DEL lock:a");
    expect_nothing_left(m);
    lock_and_release(m->rt, "a", LIMIT_MS);
}

/* Busy: a slow master has not taken back yet what it granted to the try before. */
static bool is_had(dibs_runtime *rt)
{
    dibs_status status = dibs_trylock(rt, "a");

    assert_that(status == DIBS_OK || status == DIBS_UNAVAILABLE || status == DIBS_BUSY, "%s", dibs_status_name(status));
    return status == DIBS_OK;
}

/* Masters that come back have lost their data, and wait for the longest lease. */
TEST_ON_THREE_AND_FIVE(without_a_majority_no_lock_is_granted, masters *m)
{
    m->config.outage_ms = 1000;
    masters_open_connected(m, SAFE_LEASE_MS);
    masters_each(m, m->majority, server_kill);
    assert_status(DIBS_UNAVAILABLE, dibs_trylock(m->rt, "a"));
    assert_non_null(strstr(dibs_last_error(), "masters answered, which is no majority"));
    assert_status(DIBS_UNAVAILABLE, dibs_lock(m->rt, "a"));
    masters_await_keys(m, "a", 0);
    events_await(&m->events, DIBS_EVENT_STORE_DOWN, NULL);
    masters_each(m, m->majority, server_restart);
    events_await(&m->events, DIBS_EVENT_STORE_UP, NULL);
    await_that(is_had(m->rt));
    assert_status(DIBS_OK, dibs_unlock(m->rt, "a"));
    expect_nothing_left(m);
}

/* A master that answers a look may still have no vote: a waiter gives up when the outage has lasted for outage_ms. */
TEST_ON_THREE_AND_FIVE(a_query_does_not_prolong_an_outage, masters *m)
{
    dibs_owner owner;

    m->config.outage_ms = 500;
    masters_open_connected(m, 2 * LIMIT_MS);
    for (size_t i = 0; i + 1 < m->majority; i++)
        server_do(m->servers[i], "FLUSHALL");
    server_kill(m->servers[m->count - 1]);
    actor *a = actor_locking(m->rt, "a", 4 * LIMIT_MS);
    for (int64_t end = now_ms() + LIMIT_MS; actor_busy(a) && now_ms() < end; pause_ms(20))
        assert_status(DIBS_OK, dibs_query(m->rt, "a", &owner));
    assert_false(actor_busy(a));
    assert_status(DIBS_UNAVAILABLE, actor_result(a));
    actor_end(a);
    server_restart(m->servers[m->count - 1]);
}

/* Renewals reach the master again. So another master may fail without a loss of the lock. */
TEST_ON_THREE_AND_FIVE(a_master_that_returns_is_topped_up, masters *m)
{
    masters_open_connected(m, SAFE_LEASE_MS);
    masters_each(m, minority(m), server_pause);
    assert_status(DIBS_OK, dibs_lock(m->rt, "a"));
    masters_await_keys(m, "a", m->majority);
    masters_each(m, minority(m), server_resume);
    masters_await_keys(m, "a", m->count);
    for (size_t i = 0; i < minority(m); i++)
        server_kill(m->servers[m->count - 1 - i]);
    pause_ms(2 * SAFE_LEASE_MS);
    assert_status(DIBS_OK, dibs_check(m->rt, "a"));
    assert_status(DIBS_OK, dibs_unlock(m->rt, "a"));
}

/* The unanswered ask may still arrive: nothing proves that its connection has ended. */
TEST_ON_THREE_AND_FIVE(a_master_is_topped_up_though_no_connection_can_be_ended, masters *m)
{
    enum { TIMEOUT_MS = 600 }; /* a machine that is slow for a moment answers in time */

    masters_do(m, m->count, "ACL SETUSER default -client|kill");
    m->config.command_timeout_ms = TIMEOUT_MS;
    masters_open_connected(m, SAFE_LEASE_MS);
    masters_each(m, minority(m), server_pause);
    assert_status(DIBS_OK, dibs_lock(m->rt, "a"));
    pause_ms(TIMEOUT_MS + 100); /* the ask is given up */
    masters_each(m, minority(m), server_resume);
    masters_await_keys(m, "a", m->count);
    assert_status(DIBS_OK, dibs_unlock(m->rt, "a"));
    lock_and_release(m->rt, "a", LIMIT_MS);
    expect_nothing_left(m);
}

/* A master that lost its data has the lock again after a renewal. */
TEST_ON_THREE_AND_FIVE(a_wiped_master_is_topped_up, masters *m)
{
    masters_open_connected(m, SAFE_LEASE_MS);
    assert_status(DIBS_OK, dibs_lock(m->rt, "a"));
    masters_await_keys(m, "a", m->count);
    for (size_t i = 0; i < minority(m); i++) {
        server_kill(m->servers[i]);
        server_restart(m->servers[i]);
    }
    masters_await_keys(m, "a", m->count);
    masters_do(m, minority(m), "FLUSHALL");
    masters_await_keys(m, "a", m->count);
    assert_status(DIBS_OK, dibs_check(m->rt, "a"));
    assert_status(DIBS_OK, dibs_unlock(m->rt, "a"));
    expect_nothing_left(m);
}

TESTS(NULL, NULL)
