/* Holds of a quorum from their grant to their end: renewal, extension, loss, hand-over, fork, close, fences. */
#include <pthread.h>

#include "support/child.h"
#include "support/masters.h"
#include "support/tracking.h"

#define TIMEOUT_MS 300

/* The lock, with a lease of SAFE_LEASE_MS, outlasts two leases without the first masters, and is unlocked. */
static void expect_to_bear_a_stopped_minority(masters *m)
{
    masters_each(m, m->count - m->majority, server_pause);
    pause_ms(2 * SAFE_LEASE_MS);
    assert_status(DIBS_OK, dibs_check(m->rt, "a"));
    masters_each(m, m->count - m->majority, server_resume);
    assert_status(DIBS_OK, dibs_unlock(m->rt, "a"));
    masters_await_keys(m, "a", 0);
}

TEST_ON_THREE_AND_FIVE(a_lease_is_renewed_by_a_majority, masters *m)
{
    masters_open_connected(m, SAFE_LEASE_MS);
    masters_lock_at_all(m, "a");
    expect_to_bear_a_stopped_minority(m);
}

/* No majority answers before the deadline. */
TEST_ON_THREE_AND_FIVE(a_lease_is_lost_without_a_majority, masters *m)
{
    masters_open_connected(m, SAFE_LEASE_MS);
    masters_lock_at_all(m, "a");
    masters_each(m, m->majority, server_pause);
    events_await(&m->events, DIBS_EVENT_LOST, "a");
    assert_status(DIBS_LOST, dibs_check(m->rt, "a"));
    masters_each(m, m->majority, server_resume);
    assert_status(DIBS_LOST, dibs_unlock(m->rt, "a"));
    masters_await_keys(m, "a", 0);
}

/* Where the machine is so slow that the holder sets the first key again before the last is deleted, all once more. */
static bool is_lost_by_deletion(masters *m)
{
    masters_do(m, m->majority, "DEL lock:a");
    return events_count(&m->events, DIBS_EVENT_LOST, "a") > 0;
}

/* A lock that is deleted at a majority is lost, and its keys at the others are retracted. */
TEST_ON_THREE_AND_FIVE(a_lock_that_a_majority_forgot_is_lost, masters *m)
{
    masters_open_connected(m, SAFE_LEASE_MS);
    masters_lock_at_all(m, "a");
    await_that(is_lost_by_deletion(m));
    masters_await_keys(m, "a", 0);
    assert_status(DIBS_LOST, dibs_unlock(m->rt, "a"));
}

enum { SLOW_MS = 300, SLOW_LEASE_MS = 10 * SLOW_MS }; /* so long that the margin does not hide it */

/*
 * Whether the lease counts from before the masters were asked, which took them long. A test that is stopped itself may
 * ask when the masters are not slow any more, or some time after it has looked at the clock.
 */
static bool counts_from_before_asking(masters *m)
{
    for (size_t i = 0; i < m->count; i++)
        server_do(m->servers[i], "CLIENT PAUSE %d", SLOW_MS);
    int64_t began = now_ms();
    assert_status(DIBS_OK, dibs_lock(m->rt, "a"));
    int64_t took = now_ms() - began;
    dibs_hold hold = hold_of(m->rt, "a");
    assert_status(DIBS_OK, dibs_unlock(m->rt, "a"));
    return took >= SLOW_MS / 2 && hold.remaining_ms <= SLOW_LEASE_MS - took + 20;
}

/* The masters are slow, and it is not known when during that time they granted the lock. */
TEST_ON_THREE_AND_FIVE(a_lease_counts_from_before_the_first_sending, masters *m)
{
    masters_open_connected(m, SLOW_LEASE_MS);
    await_that(counts_from_before_asking(m));
}

struct extending {
    masters *m;
    uint32_t lease_ms;
    long long least_ms;
};

static size_t count_extended(const struct extending *extending)
{
    size_t count = 0;

    for (size_t i = 1; i < extending->m->count; i++) {
        long long left = server_integer(extending->m->servers[i], "PTTL lock:a");
        count += left >= extending->least_ms && left <= extending->lease_ms;
    }
    return count;
}

/* The first is stopped. Where a earlier renewal is under way, the next one makes up for the extension. */
static void expect_extended(struct extending *extending)
{
    assert_true(count_extended(extending) >= extending->m->majority);
    await_that(count_extended(extending) == extending->m->count - 1);
}

TEST_ON_THREE_AND_FIVE(an_extension_reaches_a_majority, masters *m)
{
    masters_open_connected(m, LONG_LEASE_MS);
    masters_lock_at_all(m, "a");
    server_pause(m->servers[0]);
    struct extending shorter = {m, 15000, 1}, longer = {m, 2 * LONG_LEASE_MS, LONG_LEASE_MS};
    /* On a busy machine the store may be slow to answer: then it is not known whether the lease was extended. */
    await_that(dibs_extend(m->rt, "a", shorter.lease_ms) == DIBS_OK);
    expect_extended(&shorter);
    await_that(dibs_extend(m->rt, "a", longer.lease_ms) == DIBS_OK);
    expect_extended(&longer);
    server_resume(m->servers[0]);
    assert_status(DIBS_OK, dibs_unlock(m->rt, "a"));
    masters_await_keys(m, "a", 0);
}

/* The last master hears of the extension too late. It must count again when it answers, since the next may fail then.
 */
TEST_ON_THREE_AND_FIVE(an_extension_reaches_a_master_that_missed_it, masters *m)
{
    server *last = m->servers[m->count - 1];

    m->config.command_timeout_ms = TIMEOUT_MS;
    masters_open_connected(m, LONG_LEASE_MS);
    masters_lock_at_all(m, "a");
    server_pause(last);
    await_that(dibs_extend(m->rt, "a", SAFE_LEASE_MS) == DIBS_OK);
    pause_ms(2 * TIMEOUT_MS);
    server_resume(last);
    await_that(server_integer(last, "PTTL lock:a") <= SAFE_LEASE_MS);
    expect_to_bear_a_stopped_minority(m);
}

/* ---------------------------------------------------- queries and forced unlocks */

TEST_ON_THREE_AND_FIVE(a_look_shows_the_majoritys_owner, masters *m)
{
    masters_open_connected(m, LONG_LEASE_MS);
    dibs_owner owner = owner_of(m->rt, "a");
    assert_false(owner.held);
    server_do(m->servers[0], "SET lock:a foreign PX 600000");
    owner = owner_of(m->rt, "a");
    assert_false(owner.held);
    masters_lock_at_all(m, "a");
    owner = owner_of(m->rt, "a");
    assert_true(owner.held);
    const char *token = server_text(m->servers[1], "GET lock:a");
    assert_string_equal(owner.token, token);
    assert_in_range(owner.remaining_ms, 1, LONG_LEASE_MS);
    dibs_hold hold = hold_of(m->rt, "a");
    assert_true(owner.fence >= hold.fence);
    assert_status(DIBS_OK, dibs_unlock(m->rt, "a"));
    server_do(m->servers[0], "DEL lock:a");
    masters_each(m, m->majority, server_kill);
    assert_status(DIBS_UNAVAILABLE, dibs_query(m->rt, "a", &owner));
    masters_each(m, m->majority, server_restart);
}

/* The masters give it a little longer than its holder counts on. */
TEST_ON_THREE_AND_FIVE(a_fixed_lease_is_confirmed_after_a_restart, masters *m)
{
    const dibs_lock_options options = {.flags = DIBS_FIXED_LEASE};

    masters_open_patient(m, LONG_LEASE_MS);
    masters_lock_at_all_with(m, "a", &options);
    server_kill(m->servers[0]);
    server_restart(m->servers[0]);
    await_renewed(m->rt, 1);
    assert_status(DIBS_OK, dibs_unlock(m->rt, "a"));
}

/* A forced unlock goes from master to master, and each has its share of the time: it outlasts a stop of the process. */
#define FORCE_TIMEOUT_MS 3000

TEST_ON_THREE_AND_FIVE(a_forced_unlock_takes_the_lock_on_all_masters, masters *m)
{
    m->config.command_timeout_ms = FORCE_TIMEOUT_MS;
    masters_open_connected(m, SAFE_LEASE_MS);
    masters_lock_at_all(m, "a");
    assert_status(DIBS_NOT_HELD, dibs_force_unlock(m->rt, "a", "another"));
    dibs_owner owner = owner_of(m->rt, "a");
    assert_status(DIBS_OK, dibs_force_unlock(m->rt, "a", owner.token));
    assert_int_equal(masters_with_key(m, "a"), 0);
    events_await(&m->events, DIBS_EVENT_LOST, "a");
    assert_status(DIBS_LOST, dibs_unlock(m->rt, "a"));
    assert_status(DIBS_OK, dibs_lock(m->rt, "a"));
    server_pause(m->servers[0]);
    assert_status(DIBS_OK, dibs_force_unlock(m->rt, "a", NULL));
    server_resume(m->servers[0]);
    events_await(&m->events, DIBS_EVENT_LOST, "a");
    dibs_unlock(m->rt, "a");
    masters_await_keys(m, "a", 0);
}

/* One after the other, beginning at that master; the value lasts for longer than the test. */
static void set_by_hand(masters *m, size_t first, size_t count, const char *value)
{
    for (size_t i = first; i < first + count; i++)
        server_do(m->servers[i], "SET lock:a %s PX %d", value, 10 * LIMIT_MS);
}

static void force_beside_a_minority(masters *m, const char *acquires, const char *holds)
{
    size_t minority = m->count - m->majority;

    set_by_hand(m, 0, minority, acquires);
    assert_status(DIBS_OK, dibs_force_unlock(m->rt, "a", NULL)); /* nobody holds it */
    assert_int_equal(masters_with_value(m, "a", acquires), minority);

    set_by_hand(m, minority, m->majority, holds);
    assert_status(DIBS_OK, dibs_force_unlock(m->rt, "a", NULL));
    assert_int_equal(masters_with_value(m, "a", holds), 0);
    assert_int_equal(masters_with_value(m, "a", acquires), minority);

    server_pause(m->servers[m->count - 1]); /* one more master may have the token */
    set_by_hand(m, 0, m->majority - 1, acquires);
    assert_status(DIBS_UNAVAILABLE, dibs_force_unlock(m->rt, "a", NULL));
    assert_int_equal(masters_with_value(m, "a", acquires), m->majority - 1);
    server_resume(m->servers[m->count - 1]);
    masters_await_all(m);
    masters_do(m, m->majority - 1, "DEL lock:a");
}

/* The key may be the vote of a thread that is just acquiring the lock. */
TEST_ON_THREE_AND_FIVE(a_forced_unlock_without_a_token_leaves_a_minority_alone, masters *m)
{
    m->config.command_timeout_ms = FORCE_TIMEOUT_MS;
    masters_open_connected(m, LONG_LEASE_MS);
    force_beside_a_minority(m, "dibs:acquires", "dibs:holds");
    force_beside_a_minority(m, "dibs:acquires~0", "dibs:holds~0"); /* shared */
    set_by_hand(m, 0, 1, "dibs:first~0");
    set_by_hand(m, 1, 1, "dibs:second~0");
    assert_status(DIBS_OK, dibs_force_unlock(m->rt, "a", NULL));
    assert_int_equal(masters_with_key(m, "a"), 2);
    masters_do(m, 2, "DEL lock:a");
}

/* A client without dibs may have a token that a query would escape. */
TEST_ON_THREE_AND_FIVE(a_forced_unlock_without_a_token_ends_the_majoritys_owner, masters *m)
{
    static const char *const values[] = {"by-hand", "a\\x01b", "\x01\xff"};

    m->config.command_timeout_ms = FORCE_TIMEOUT_MS;
    masters_open_connected(m, LONG_LEASE_MS);
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        const char *script =
            formatted("return redis.call('SET', 'lock:a', \"%s\", 'PX', %d)", values[i], 10 * LIMIT_MS);
        for (size_t at = 0; at < m->majority; at++)
            server_do(m->servers[at], "EVAL %s 0", script);
        assert_int_equal(masters_with_key(m, "a"), m->majority);
        assert_status(DIBS_OK, dibs_force_unlock(m->rt, "a", NULL));
        assert_int_equal(masters_with_key(m, "a"), 0);
    }
}

static bool has_fence(masters *m)
{
    bool any = false;

    for (size_t i = 0; i < m->count; i++)
        any = any || server_has(m->servers[i], "dibs:fence:{lock:a}");
    return any;
}

/* A release reaches a minority a moment later than dibs_unlock returns: a key that ends soon stands for that. */
TEST_ON_THREE_AND_FIVE(a_lock_is_forgotten_though_a_minority_has_it_for_a_moment, masters *m)
{
    masters_open_patient(m, LONG_LEASE_MS);
    masters_lock_at_all(m, "a");
    assert_status(DIBS_BUSY, dibs_forget(m->rt, "a"));
    assert_true(has_fence(m));
    assert_status(DIBS_OK, dibs_unlock(m->rt, "a"));
    masters_await_keys(m, "a", 0);
    server_do(m->servers[0], "SET lock:a late PX 300");
    assert_status(DIBS_OK, dibs_forget(m->rt, "a"));
    assert_false(has_fence(m));
}

/* -------------------------------------------------------------- threads, processes */

static void *lock_once(void *arg)
{
    masters *m = arg;
    static char ok[] = "ok";

    for (int i = 0; i < 20; i++)
        if (dibs_timedlock(m->rt, "a", LIMIT_MS) != DIBS_OK || dibs_unlock(m->rt, "a") != DIBS_OK)
            return NULL;
    return ok;
}

/* The lease is handed over within the process, and the next thread asks when it goes back. */
TEST_ON_THREE_AND_FIVE(threads_hand_the_lease_over, masters *m)
{
    pthread_t threads[4];

    m->config.handoff_ms = 1;
    masters_open_connected(m, LONG_LEASE_MS);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, lock_once, m), 0);
    for (int i = 0; i < 4; i++) {
        void *done;
        pthread_join(threads[i], &done);
        assert_non_null(done);
    }
    masters_await_keys(m, "a", 0);
}

static void child_holds_nothing_and_locks(dibs_runtime *rt)
{
    CHILD_WANTS(DIBS_NOT_HELD, dibs_check(rt, "a"));
    CHILD_WANTS(DIBS_BUSY, dibs_trylock(rt, "a"));
    CHILD_WANTS(DIBS_OK, dibs_timedlock(rt, "b", LIMIT_MS));
    CHILD_WANTS(DIBS_OK, dibs_unlock(rt, "b"));
}

TEST_ON_THREE_AND_FIVE(a_forked_child_holds_nothing_and_can_lock, masters *m)
{
    m->config.connect_timeout_ms = m->config.command_timeout_ms = LIMIT_MS / 4; /* the child connects in a single try */
    masters_open_connected(m, LONG_LEASE_MS);
    masters_lock_at_all(m, "a");
    run_child(child_holds_nothing_and_locks, m->rt);
    masters_do(m, m->count, "DEL lock:b"); /* a majority has the release of the child, but not all masters */
    assert_status(DIBS_OK, dibs_check(m->rt, "a"));
    assert_status(DIBS_OK, dibs_unlock(m->rt, "a"));
    masters_await_keys(m, "a", 0);
}

/* Requests without an answer end with the runtime. */
TEST_ON_THREE_AND_FIVE(a_close_ends_detached_requests, masters *m)
{
    masters_open_connected(m, LONG_LEASE_MS);
    for (int i = 0; i < 3; i++) {
        dibs_runtime *rt = masters_open_another(m, LONG_LEASE_MS);
        server_pause(m->servers[0]);
        assert_status(DIBS_OK, dibs_lock(rt, "a"));
        assert_status(DIBS_OK, dibs_lock(rt, "b"));
        assert_status(DIBS_OK, dibs_unlock(rt, "a"));
        if (i > 0)
            server_resume(m->servers[0]);
        dibs_close(rt);
        if (i == 0)
            server_resume(m->servers[0]);
        dibs_unlock(rt, "b");
        for (size_t at = 1; at < m->count; at++)
            assert_true(server_wait_gone(m->servers[at], "lock:b", LIMIT_MS));
        server_do(m->servers[0], "DEL lock:a lock:b"); /* the server may have read what was sent only after the close */
        pause_ms(50);
        server_do(m->servers[0], "DEL lock:a lock:b");
    }
}

TEST_ON(a_quorum_refuses_invalid_urls_and_fair_locks, masters *m)
{
    dibs_runtime *rt;
    const char *urls[3] = {m->urls[0], m->urls[1], m->urls[0]};
    dibs_config config = {.urls = urls, .url_count = 3};

    assert_status(DIBS_INVALID, dibs_open(&rt, &config));
    assert_non_null(strstr(dibs_last_error(), "same master"));
    urls[2] = "redis-sentinel://127.0.0.1:1/mymaster";
    assert_status(DIBS_INVALID, dibs_open(&rt, &config));
    assert_non_null(strstr(dibs_last_error(), "urls[2]"));
    urls[2] = "redis-cluster://127.0.0.1:1";
    assert_status(DIBS_INVALID, dibs_open(&rt, &config));
    urls[0] = "redis://127.0.0.1:1/0";
    urls[1] = "redis://127.0.0.1:1/1";
    urls[2] = m->urls[0];
    assert_status(DIBS_INVALID, dibs_open(&rt, &config));
    urls[0] = "mem:a";
    urls[1] = "mem:b";
    urls[2] = "mem:a";
    assert_status(DIBS_INVALID, dibs_open(&rt, &config));
    urls[2] = "mem:c";
    assert_status(DIBS_OK, dibs_open(&rt, &config));
    assert_status(DIBS_INVALID, dibs_lock_with(rt, "a", 0, &(dibs_lock_options){.flags = DIBS_FAIR}));
    assert_non_null(strstr(dibs_last_error(), "DIBS_FAIR"));
    assert_status(DIBS_OK, dibs_lock(rt, "a"));
    assert_status(DIBS_OK, dibs_unlock(rt, "a"));
    dibs_close(rt);
}

/* --------------------------------------------------------------------- fences */

/* The masters' clocks, and so their fences, are seconds apart; each holder has another majority. */
TEST_WITH(fences_grow_though_clocks_differ, masters_setup_5_with_clocks, masters_teardown, masters *m)
{
    uint64_t last = 0;

    masters_open_connected(m, LONG_LEASE_MS);
    for (size_t i = 0; i < 30; i++) {
        size_t away = i % m->count, another = (i + 1 + i / m->count % 4) % m->count;
        server_do(m->servers[away], "SET lock:a foreign PX 600000");
        server_do(m->servers[another], "SET lock:a foreign PX 600000");
        assert_status(DIBS_OK, dibs_timedlock(m->rt, "a", LIMIT_MS));
        dibs_hold hold = hold_of(m->rt, "a");
        assert_true(hold.fence > last);
        last = hold.fence;
        assert_status(DIBS_OK, dibs_unlock(m->rt, "a"));
        server_do(m->servers[away], "DEL lock:a");
        server_do(m->servers[another], "DEL lock:a");
    }
}

TESTS(masters_setup_3, masters_teardown)
