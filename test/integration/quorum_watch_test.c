/*
 * Masters of a quorum tell of changes: the loss of a lock at a majority is noticed at once, long before its lease of 30
 * s would be renewed; a lock that a minority has lost is set there again, as soon.
 */
#include <time.h>

#include "support/masters.h"
#include "support/script_server.h"
#include "support/tracking.h"

#define FLUSH_LEASE_MS 6000 /* much longer than SOON_MS */
#define FLUSHES 5           /* so often at most, until one is told at once */

/* Holds the lock at all masters; those up to `tell` watch it. */
static void hold(masters *m, size_t tell)
{
    masters_open_patient(m, 0);
    masters_lock_at_all(m, "a");
    for (size_t i = 0; i < tell; i++)
        await_tracked(m->servers[i], m->rt, 1);
}

static void expect_told_since(masters *m, int64_t since)
{
    events_await(&m->events, DIBS_EVENT_LOST, "a");
    int64_t took = now_ms() - since;

    assert_that(took < SOON_MS, "the loss is known after %lld ms", (long long)took);
    assert_status(DIBS_LOST, dibs_check(m->rt, "a"));
    assert_status(DIBS_LOST, dibs_unlock(m->rt, "a"));
    assert_true(stats_of(m->rt).invalidations > 0);
}

static bool is_lost(masters *m)
{
    return events_count(&m->events, DIBS_EVENT_LOST, "a") > 0;
}

/* Waits until the lock has all its keys again, and they are watched; or it is lost. */
static void await_watched_again(masters *m)
{
    await_that(masters_with_key(m, "a") == m->count || is_lost(m));
    for (size_t i = 0; i < m->count && !is_lost(m); i++)
        await_tracked(m->servers[i], m->rt, 1);
}

/*
 * Deletes the key at a majority, one master after the other. On a slow machine the first may have its key again before
 * the last loses it, so that no lock is lost: then all once more. Returns since when.
 */
static int64_t delete_at_a_majority(masters *m)
{
    int64_t since = 0;

    for (int64_t limit = now_ms() + LIMIT_MS; !is_lost(m) && now_ms() < limit; await_watched_again(m)) {
        since = now_ms();
        for (size_t i = 0; i < m->majority; i++) {
            server_do(m->servers[i], "DEL lock:a");
            pause_ms(10);
        }
    }
    return since;
}

TEST_ON_THREE_AND_FIVE(a_key_deleted_at_a_majority_is_noticed, masters *m)
{
    hold(m, m->count);
    expect_told_since(m, delete_at_a_majority(m)); /* no renewal in between sets it again */
}

/* Whether the loss is known long before the lease ends. */
static bool is_flush_told(masters *m)
{
    masters_lock_at_all(m, "a");
    for (size_t i = 0; i < m->count; i++)
        await_tracked(m->servers[i], m->rt, 1);
    int64_t since = now_ms();
    masters_do(m, m->majority, "FLUSHALL");
    while (dibs_check(m->rt, "a") == DIBS_OK)
        pause_ms(1);
    int64_t took = now_ms() - since;
    assert_status(DIBS_LOST, dibs_unlock(m->rt, "a"));
    return took < SOON_MS;
}

/*
 * Where the process stands still for TOP_UP_AFTER_MS while it is told of one master after the other, the first is
 * passed over, and the loss is known at the end of the lease; nobody is granted the lock before. So it may be on a slow
 * machine, but not each time.
 */
TEST_ON_THREE_AND_FIVE(a_flush_at_a_majority_is_noticed, masters *m)
{
    bool told = false;

    masters_open_patient(m, FLUSH_LEASE_MS);
    for (int i = 0; i < FLUSHES && !told; i++)
        told = is_flush_told(m);
    assert_true(told);
}

TEST_ON_THREE_AND_FIVE(a_forced_unlock_on_a_quorum_is_noticed, masters *m)
{
    hold(m, m->count);
    dibs_runtime *other = test_runtime(masters_open_another(m, 0));
    int64_t since = now_ms();
    assert_status(DIBS_OK, dibs_force_unlock(other, "a", NULL));
    expect_told_since(m, since);
    assert_status(DIBS_OK, dibs_timedlock(other, "a", LIMIT_MS));
    assert_status(DIBS_OK, dibs_unlock(other, "a"));
}

/*
 * From master to master it takes longer than those that lost the lock count together: the second is told only after the
 * first has refused to set the key again.
 */
TEST_ON_THREE_AND_FIVE(a_forced_unlock_that_takes_long_is_noticed, masters *m)
{
    masters_open_patient(m, LONG_LEASE_MS);
    masters_lock_at_all(m, "a");
    for (size_t i = 0; i < m->count; i++)
        await_tracked(m->servers[i], m->rt, 1);
    for (size_t i = 0; i < m->majority; i++) {
        uint64_t renewed = stats_of(m->rt).renewed;
        server_do(m->servers[i], "INCRBY dibs:fence:{lock:a} 1000000");
        server_do(m->servers[i], "DEL lock:a");
        if (i + 1 < m->majority)
            await_renewed(m->rt, renewed + 2);
    }
    events_await(&m->events, DIBS_EVENT_LOST, "a");
    assert_status(DIBS_LOST, dibs_unlock(m->rt, "a"));
}

/* Deletes the key at the master that has an answer under way, and lets that go once the client was told of the change.
 */
static void delete_behind_an_answer(masters *m, script_server *slow)
{
    dibs_stats before = stats_of(m->rt);

    server_do(m->servers[0], "DEL lock:x");
    await_invalidations(m->rt, before.invalidations + 1);
    await_renewed(m->rt, before.renewed + 1);
    script_server_clear(slow);
    script_server_release(slow);
    masters_await_keys(m, "x", m->count);
}

/* Opens the runtime with that server before the first master. */
static script_server *open_with_a_slow_master(masters *m)
{
    script_server *slow = script_server_start(&(script_options){.backend = m->servers[0]->socket_path});

    m->urls[0] = script_server_url(slow);
    masters_open_patient(m, LONG_LEASE_MS);
    return slow;
}

static void lock_tracked_at_all(masters *m)
{
    masters_lock_at_all(m, "x");
    for (size_t i = 0; i < m->count; i++)
        await_tracked(m->servers[i], m->rt, 1);
}

static void close_with_a_slow_master(masters *m, script_server *slow)
{
    assert_status(DIBS_OK, dibs_unlock(m->rt, "x"));
    close_runtime(&m->rt);
    script_server_stop(slow);
}

/*
 * A renewal of that master is answered late, and says that the master has the key. Meanwhile the key is deleted, and
 * the renewal that follows is not sent there. With three masters the extension would have to wait for that one if the
 * grant of another was not noted yet; so there are five.
 */
TEST_ON(a_change_behind_a_renewal_that_is_answered_late_is_noticed, masters *m)
{
    script_server *slow = open_with_a_slow_master(m);

    lock_tracked_at_all(m);
    /* of a renewal in full: the lock, its fence, and the vote of the master */
    script_server_add(
        slow, (script_rule){.match = "\r\n$1\r\n3\r\n$6\r\nlock:x\r\n", .nth = 1, .action = SCRIPT_STALL_REPLY});
    assert_status(DIBS_OK, dibs_extend(m->rt, "x", LONG_LEASE_MS));
    script_server_await_fired(slow, 0);
    delete_behind_an_answer(m, slow);
    close_with_a_slow_master(m, slow);
}

/* True: it is held, and the slow master has executed an ask. It is not asked if it was slow a moment ago. */
static bool is_asked_there(masters *m, script_server *slow)
{
    assert_status(DIBS_OK, dibs_lock(m->rt, "x"));
    if (within(SOON_MS, script_server_fired(slow) > 0 && server_has(m->servers[0], "lock:x")))
        return true;
    assert_status(DIBS_OK, dibs_unlock(m->rt, "x"));
    return false;
}

/* Locks x while the slow master has an ask to answer, which it has executed, and tells of changes. */
static void lock_behind_an_answer(masters *m, script_server *slow)
{
    /* of an ask: the lock, its fence, its queue, and the vote of the master */
    script_server_add(
        slow, (script_rule){.match = "\r\n$1\r\n4\r\n$6\r\nlock:x\r\n", .nth = 1, .action = SCRIPT_STALL_REPLY});
    await_that(is_asked_there(m, slow));
    for (size_t i = 0; i < m->count; i++)
        await_tracked(m->servers[i], m->rt, 1);
}

/* The same with the ask, whose grant is one more than the majority. */
TEST_ON_THREE_AND_FIVE(a_change_behind_a_grant_that_comes_late_is_noticed, masters *m)
{
    script_server *slow = open_with_a_slow_master(m);

    lock_behind_an_answer(m, slow);
    delete_behind_an_answer(m, slow);
    close_with_a_slow_master(m, slow);
}

/* The same with an ask that is refused late: by then the key that was in its way is gone. */
TEST_ON_THREE_AND_FIVE(a_change_behind_a_refusal_that_comes_late_is_noticed, masters *m)
{
    script_server *slow = open_with_a_slow_master(m);

    server_do(m->servers[0], "SET lock:x foreign PX %d", LONG_LEASE_MS);
    lock_behind_an_answer(m, slow);
    delete_behind_an_answer(m, slow);
    close_with_a_slow_master(m, slow);
}

/* A minority may not tell: of each majority that loses the lock, one master does. */
TEST_ON_THREE_AND_FIVE(one_tracking_master_in_each_majority_is_enough, masters *m)
{
    for (size_t i = m->majority; i < m->count; i++)
        server_do(m->servers[i], "ACL SETUSER default -client|tracking");
    hold(m, m->majority);
    int64_t since = now_ms();
    for (size_t i = 0; i < m->majority; i++)
        server_do(m->servers[m->count - 1 - i], "FLUSHALL");
    expect_told_since(m, since);
}

/*
 * The master has its key again long before a renewal is due: that of this lease is later than the test waits, and that
 * of a fixed one never comes.
 */
static void expect_set_again(masters *m, unsigned flags)
{
    const dibs_lock_options options = {.flags = flags};

    masters_open_patient(m, LONG_LEASE_MS);
    masters_lock_at_all_with(m, "a", &options);
    for (size_t i = 0; i < m->count; i++)
        await_tracked(m->servers[i], m->rt, 1);
    for (int round = 0; round < 2; round++) { /* the second time the keys that are set again are needed */
        uint64_t invalidations = stats_of(m->rt).invalidations;
        for (size_t i = 0; i < m->count - m->majority; i++)
            server_do(m->servers[round == 0 ? i : m->count - 1 - i], "DEL lock:a");
        await_invalidations(m->rt, invalidations + 1);
        masters_await_keys(m, "a", m->count);
        assert_status(DIBS_OK, dibs_check(m->rt, "a"));
    }
    /* A renewal may fail: one that lacks a master which has yet to answer the one before has no majority at times. */
    assert_int_equal(events_count(&m->events, DIBS_EVENT_LOST, NULL), 0);
    assert_status(DIBS_OK, dibs_unlock(m->rt, "a"));
}

TEST_ON_THREE_AND_FIVE(a_key_deleted_at_a_minority_is_set_again, masters *m)
{
    expect_set_again(m, 0);
}

TEST_ON_THREE_AND_FIVE(a_key_of_a_fixed_lease_is_set_again, masters *m)
{
    expect_set_again(m, DIBS_FIXED_LEASE);
}

TEST_ON_THREE_AND_FIVE(a_key_that_is_shared_is_set_again, masters *m)
{
    expect_set_again(m, DIBS_SHARED);
}

/*
 * The lock's fence is the largest of the majority that granted it. The others were slower, and their clocks are ahead,
 * so the fences that they gave are larger. False: one was not asked, because it was slow before.
 */
static bool lock_where_clocks_are_ahead(masters *m)
{
    size_t minority = m->count - m->majority;

    for (size_t i = 0; i < minority; i++) {
        server_do(m->servers[i], "SET dibs:fence:{lock:a} %lld PX 7200000", ((long long)time(NULL) + 5) * 1000000);
        server_pause(m->servers[i]);
    }
    assert_status(DIBS_OK, dibs_lock(m->rt, "a"));
    masters_each(m, minority, server_resume);
    return within(1000, masters_with_key(m, "a") == m->count);
}

/* None of them takes the larger fence for that of a grant to another. */
TEST_ON_THREE_AND_FIVE(a_key_is_set_again_where_the_clock_is_ahead, masters *m)
{
    unsigned tries = 1;

    m->config.command_timeout_ms = LIMIT_MS;
    m->config.renew_ms = SOON_MS / 2;
    masters_open_connected(m, LONG_LEASE_MS);
    for (; !lock_where_clocks_are_ahead(m); tries++) {
        assert_in_range(tries, 1, 9);
        assert_status(DIBS_OK, dibs_unlock(m->rt, "a"));
    }
    masters_do(m, m->count - m->majority, "DEL lock:a");
    masters_await_keys(m, "a", m->count);
    assert_status(DIBS_OK, dibs_unlock(m->rt, "a"));
}

TESTS(masters_setup_5, masters_teardown)
