/*
 * The holder of a lock that is deleted, overwritten or taken away learns of it at once, long before its lease would be
 * renewed, which here takes 10 s and more.
 */
#include "support/fixture.h"
#include "support/restart.h"
#include "support/tracking.h"

/* ------------------------------------------------------------- what ends a lock */

static void expect_loss_by(fixture *f, const char *command)
{
    open_with_tracked(f, 0, "x");
    int64_t since = now_ms();
    server_do(f->server, command);
    expect_told_of_loss(f, "x", since);
    server_do(f->server, "FLUSHALL");
    expect_works(f, f->rt, "x");
}

#define ENDED_BY(name, command)                                                                                        \
    TEST_ON(a_loss_by_##name##_is_noticed, fixture *f)                                                                 \
    {                                                                                                                  \
        expect_loss_by(f, command);                                                                                    \
    }

ENDED_BY(del, "DEL lock:x")
ENDED_BY(unlink, "UNLINK lock:x")
ENDED_BY(getdel, "GETDEL lock:x")
ENDED_BY(flushdb, "FLUSHDB")
ENDED_BY(flushdb_async, "FLUSHDB ASYNC")
ENDED_BY(flushall, "FLUSHALL")
ENDED_BY(set, "SET lock:x another PX 600000")
ENDED_BY(setex, "SETEX lock:x 600 another")
ENDED_BY(append, "APPEND lock:x more")
ENDED_BY(rename, "RENAME lock:x lock:y")
ENDED_BY(move, "MOVE lock:x 1")
ENDED_BY(overwriting_rename, "EVAL redis.call('SET','y','another','PX',60000)redis.call('RENAME','y','lock:x') 0")
ENDED_BY(overwriting_copy, "EVAL redis.call('SET','y','another','PX',60000)redis.call('COPY','y','lock:x','REPLACE') 0")
ENDED_BY(pexpire, "PEXPIRE lock:x 1")
ENDED_BY(pexpireat, "PEXPIREAT lock:x 1")
ENDED_BY(a_script, "EVAL return(redis.call('DEL','lock:x')) 0")

/* The mark of a sharer's token may stand in a label, too: that holder shares nothing. */
TEST_ON(a_loss_to_sharers_is_noticed_by_who_holds_alone, fixture *f)
{
    f->config.label = "a~0:b";
    open_with_tracked(f, 0, "beside"); /* so that the server tells of changes */
    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    server_do(f->server, "SET lock:x dibs:shared PX 600000"); /* before the lease is watched */
    int64_t since = now_ms();
    expect_told_of_loss(f, "x", since);
    server_do(f->server, "FLUSHALL");
}

TEST_ON(a_loss_in_a_transaction_is_noticed, fixture *f)
{
    open_with_tracked(f, 0, "x");
    int64_t since = now_ms();
    server_do(f->server, "MULTI");
    server_do(f->server, "DEL lock:x");
    server_do(f->server, "SET lock:x another PX 600000");
    server_do(f->server, "EXEC");
    expect_told_of_loss(f, "x", since);
    server_do(f->server, "FLUSHALL");
}

/* The key is the one that was used least recently, and gives way to many others. */
TEST_ON(a_loss_by_eviction_is_noticed, fixture *f)
{
    enum { MOST = 200000 };
    int64_t since = 0;

    fixture_open_patient(f, 0);
    server_do(f->server, "CONFIG SET maxmemory-policy allkeys-lru maxmemory-samples 64");
    lock_tracked(f, "x");
    server_do(f->server, "CONFIG SET maxmemory %lld", server_info(f->server, "used_memory") + 1000000);
    for (int i = 0; i < MOST && (i % 16 > 0 || server_has(f->server, "lock:x")); i++) {
        since = now_ms();
        server_do(f->server, "SET filler:%d %01000d PX 600000", i, i);
    }
    assert_false(server_has(f->server, "lock:x"));
    expect_told_of_loss(f, "x", since);
    assert_true(server_info(f->server, "evicted_keys") > 0);
    server_do(f->server, "CONFIG SET maxmemory 0");
    expect_works(f, f->rt, "x");
}

TEST_ON(a_loss_by_a_forced_unlock_is_noticed, fixture *f)
{
    dibs_runtime *other = test_runtime(open_runtime(f->server, LONG_LEASE_MS));

    fixture_open_patient(f, 0);
    for (int i = 0; i < 2; i++) {
        lock_tracked(f, "x");
        dibs_owner owner = owner_of(other, "x");
        int64_t since = now_ms();
        assert_status(DIBS_OK, dibs_force_unlock(other, "x", i == 0 ? NULL : owner.token));
        expect_told_of_loss(f, "x", since);
        events_forget(&f->events);
        server_do(f->server, "FLUSHALL"); /* the fence was read too: this empties the table */
    }
}

/* The lock is deleted before the server tracks it: the first look finds that. */
TEST_ON(a_loss_before_tracking_begins_is_noticed, fixture *f)
{
    fixture_open_patient(f, 0);
    for (int i = 0; i < 3; i++) { /* the first lease of all, and later ones */
        assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
        server_do(f->server, "DEL lock:x");
        int64_t since = now_ms();
        expect_told_of_loss(f, "x", since);
        events_forget(&f->events);
        lock_tracked(f, "beside");
        assert_status(DIBS_OK, dibs_unlock(f->rt, "beside"));
    }
}

/* One of many, in the middle of the table, after the connection that tracked them was ended. */
TEST_ON(the_loss_of_one_of_many_locks_is_noticed, fixture *f)
{
    enum { MANY = 500 };

    fixture_open_patient(f, LONG_LEASE_MS);
    for (int i = 0; i < MANY; i++)
        assert_status(DIBS_OK, dibs_lock(f->rt, formatted("x%d", i)));
    await_tracked(f->server, f->rt, MANY);
    kill_tracker(f->server);
    await_tracked(f->server, f->rt, 2 * MANY);
    for (int i = 0; i < MANY; i += 97)
        expect_deletion_told(f, formatted("x%d", i));
    assert_int_equal(events_count(&f->events, DIBS_EVENT_LOST, NULL), (MANY + 96) / 97);
    assert_status(DIBS_OK, dibs_unlock_all(f->rt));
}

/* A fixed lease is never renewed: only tracking can show before its end that it is lost. */
TEST_ON(the_loss_of_a_fixed_lease_is_noticed, fixture *f)
{
    const dibs_lock_options fixed = {.lease_ms = LONG_LEASE_MS, .flags = DIBS_FIXED_LEASE};

    fixture_open_patient(f, 0);
    assert_status(DIBS_OK, dibs_lock_with(f->rt, "x", 0, &fixed));
    await_tracked(f->server, f->rt, 1);
    expect_deletion_told(f, "x");
}

/* ------------------------------------------------------- what does not end it */

static long long left(fixture *f)
{
    return server_integer(f->server, "PTTL lock:x");
}

/* Each change makes one message, which makes one renewal; that one reads the key again, so that the next is told too.
 */
static void expect_life_after(fixture *f, const char *command)
{
    enum { TIMES = 20 };

    open_with_tracked(f, 0, "x");
    int64_t since = now_ms();
    dibs_stats before = stats_of(f->rt);
    for (unsigned i = 1; i <= TIMES; i++) {
        server_do(f->server, command);
        await_invalidations(f->rt, before.invalidations + i);
        await_renewed(f->rt, before.renewed + i);
    }
    pause_ms(200);
    dibs_stats after = stats_of(f->rt);
    int64_t took = now_ms() - since, others = took / 10000 + took / 5000; /* renewals of the period; PING */
    assert_int_equal(after.invalidations - before.invalidations, TIMES);
    assert_true(after.renewed - before.renewed <= TIMES + (uint64_t)took / 10000);
    assert_true(after.store_commands - before.store_commands <= TIMES + (uint64_t)others);
    expect_no_loss(f);
    assert_status(DIBS_OK, dibs_check(f->rt, "x"));
}

/* The other client's time is longer: a renewal never shortens it. */
TEST_ON(a_longer_expiry_is_no_loss, fixture *f)
{
    expect_life_after(f, "PEXPIRE lock:x 600000");
    assert_in_range(left(f), 30001, 600000);
    unlock_for_good(f, "x");
}

/* The lease is given its length again. */
TEST_ON(a_shorter_expiry_is_no_loss, fixture *f)
{
    expect_life_after(f, "PEXPIRE lock:x 20000");
    assert_in_range(left(f), 20001 - 10000, 30000);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
}

TEST_ON(a_removed_expiry_is_no_loss, fixture *f)
{
    expect_life_after(f, "PERSIST lock:x");
    assert_in_range(left(f), 1, 30000);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
}

/* By the time of the look, the change that the message tells of is undone. */
TEST_ON(a_key_renamed_and_renamed_back_is_no_loss, fixture *f)
{
    expect_life_after(f, "EVAL redis.call('RENAME','lock:x','y')redis.call('RENAME','y','lock:x') 0");
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
}

/* A fixed lease is looked at, but gets no more time by that. */
TEST_ON(a_touched_fixed_lease_gets_no_more_time, fixture *f)
{
    const dibs_lock_options fixed = {.lease_ms = 3000, .flags = DIBS_FIXED_LEASE};

    fixture_open_patient(f, 0);
    assert_status(DIBS_OK, dibs_lock_with(f->rt, "x", 0, &fixed));
    int64_t granted = now_ms();
    await_tracked(f->server, f->rt, 1);
    for (unsigned i = 1; i <= 5; i++) {
        server_do(f->server, "PEXPIRE lock:x 2900");
        await_invalidations(f->rt, i);
        await_renewed(f->rt, i);
    }
    await_lost(f->rt, "x");
    assert_in_range(now_ms() - granted, 0, 3000 + SOON_MS);
    assert_status(DIBS_LOST, dibs_unlock(f->rt, "x"));
    assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS));
}

/* The server's messages do not name the database. */
TEST_ON(a_change_in_another_database_is_no_loss, fixture *f)
{
    open_with_tracked(f, 0, "x");
    dibs_stats before = stats_of(f->rt);
    server_do(f->server, "SELECT 1");
    server_do(f->server, "SET lock:x another PX 600000");
    server_do(f->server, "SELECT 0");
    await_invalidations(f->rt, before.invalidations + 1);
    await_renewed(f->rt, before.renewed + 1);
    server_do(f->server, "SELECT 1");
    server_do(f->server, "FLUSHDB");
    server_do(f->server, "SELECT 0");
    await_invalidations(f->rt, before.invalidations + 2);
    await_renewed(f->rt, before.renewed + 2);
    expect_no_loss(f);
    await_tracked(f->server, f->rt, 1);
    expect_deletion_told(f, "x");
}

/* ------------------------------------------------------------ what is broken */

/* The connection of one kind is ended; the lock is tracked again, and its loss is told. */
static void expect_told_after(fixture *f, void (*end)(server *s))
{
    open_with_tracked(f, 0, "x");
    for (int i = 0; i < 3; i++) {
        long long pairs = tracked_pairs(f->server);
        end(f->server);
        await_tracked(f->server, f->rt, pairs + 1);
    }
    assert_int_equal(stats_of(f->rt).lost, 0);
    expect_deletion_told(f, "x");
}

TEST(a_loss_is_noticed_after_the_background_connection_broke)
{
    expect_told_after(*state, kill_tracker);
}

/*
 * The background connection is open, so the table has its pair already; only a new CLIENT TRACKING shows that it works.
 */
TEST_ON(a_loss_is_noticed_after_the_subscription_broke, fixture *f)
{
    open_with_tracked(f, 0, "x");
    for (int i = 0; i < 3; i++) {
        long long calls = tracking_calls(f->server), looks = server_calls(f->server, "mget");
        kill_subscription(f->server);
        await_that(tracking_calls(f->server) >= calls + 2 && server_calls(f->server, "mget") > looks);
        await_tracked(f->server, f->rt, 1);
    }
    expect_deletion_told(f, "x");
}

TEST(a_loss_is_noticed_after_all_connections_broke)
{
    expect_told_after(*state, kill_all);
}

/* A loss while nothing is tracked is found by the look when tracking begins again. */
TEST_ON(a_loss_while_nothing_is_tracked_is_noticed, fixture *f)
{
    open_with_tracked(f, 0, "x");
    int64_t since = now_ms();
    server_do(f->server, "MULTI");
    server_do(f->server, "CLIENT KILL TYPE pubsub");
    server_do(f->server, "DEL lock:x");
    server_do(f->server, "EXEC");
    expect_told_of_loss(f, "x", since);
}

/*
 * The thread that blocked has just stopped reading the messages of the server, and leaves them to the next thread that
 * blocks within 50 ms, unless this process holds a lock. A loss that is noticed sooner was read by another thread. A
 * busy machine is slow by itself, so that some rounds are enough.
 */
enum { EARLY_MS = 35, ROUNDS = 100, EARLY_ROUNDS = 5 };

static bool is_loss_known_early_after_a_blocked_call(fixture *f)
{
    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    await_tracked(f->server, f->rt, 2);
    assert_status(DIBS_TIMEOUT, dibs_timedlock(f->rt, "b", 5));
    int64_t blocked = now_ms();
    server_do(f->server, "DEL lock:x");
    await_that(dibs_check(f->rt, "x") == DIBS_LOST);
    bool early = now_ms() - blocked < EARLY_MS;
    assert_status(DIBS_LOST, dibs_unlock(f->rt, "x"));
    return early;
}

TEST_ON(a_loss_is_noticed_soon_after_a_thread_blocked, fixture *f)
{
    int early = 0;

    fixture_open_patient(f, LONG_LEASE_MS);
    dibs_runtime *holder = test_runtime(open_runtime(f->server, LONG_LEASE_MS));
    assert_status(DIBS_OK, dibs_lock(holder, "b"));
    for (int i = 0; i < ROUNDS && early < EARLY_ROUNDS; i++)
        early += is_loss_known_early_after_a_blocked_call(f);
    assert_that(early == EARLY_ROUNDS, "%d of %d losses were known within %d ms", early, ROUNDS, EARLY_MS);
    assert_status(DIBS_OK, dibs_unlock(holder, "b"));
}

static void expect_told_after_restart(fixture *f, const char *config)
{
    server_stop(f->server);
    f->server = server_start(&(server_options){.config = config});
    f->urls[0] = f->server->url;
    open_with_tracked(f, LONG_LEASE_MS, "x");
    for (int i = 0; i < 2; i++) {
        uint64_t renewed = stats_of(f->rt).renewed;
        restart(f->server);
        await_renewed(f->rt, renewed + 1);
        await_tracked(f->server, f->rt, 1);
        assert_true(server_has(f->server, "lock:x"));
    }
    expect_deletion_told(f, "x");
}

TEST(a_loss_is_noticed_after_a_restart)
{
    expect_told_after_restart(*state, "appendonly yes\nappendfsync always");
}

TEST(a_loss_is_noticed_after_a_restart_that_forgets)
{
    expect_told_after_restart(*state, NULL);
}

/* --------------------------------------------------------------------- names */

static void expect_told_of_name(fixture *f, const char *name)
{
    lock_tracked(f, name);
    expect_deletion_told(f, name);
}

TEST(a_loss_is_noticed_for_any_name)
{
    with_odd_names(*state, expect_told_of_name);
}

TEST_ON(a_loss_is_noticed_in_another_database, fixture *f)
{
    f->urls[0] = formatted("%s?db=3", f->server->url);
    open_with_tracked(f, 0, "x");
    server_do(f->server, "SELECT 3");
    expect_deletion_told(f, "x");
    server_do(f->server, "SELECT 0");
}

TESTS(fixture_setup, fixture_teardown)
