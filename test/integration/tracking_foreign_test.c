/* A client that does not use dibs has the lock: waiters are told when it is free, and rarely ask meanwhile. */
#include "support/agent.h"
#include "support/fixture.h"
#include "support/queue.h"
#include "support/restart.h"
#include "support/script_server.h"
#include "support/tracking.h"

enum { MOST = 4 };

/* Threads of the fixture's runtime that want the lock of x. */
struct waiters {
    actor *threads[MOST];
    int count;
};

static void take_by_hand(fixture *f, const char *value)
{
    server_do(f->server, "SET lock:x %s PX 600000", value);
}

/* A thread waits, and the server tracks the lock for it. */
static actor *begin_waiting(fixture *f)
{
    actor *thread = actor_locking(f->rt, "x", DIBS_WAIT_FOREVER);
    await_tracked(f->server, f->rt, 1);
    return thread;
}

/* The same with a new runtime, for a key that is set by hand. */
static actor *begin_waiting_for_foreign(fixture *f)
{
    fixture_open_patient(f, 0);
    take_by_hand(f, "by-hand");
    return begin_waiting(f);
}

static void expect_soon(int64_t since)
{
    int64_t took = now_ms() - since;

    assert_that(took < SOON_MS, "after %lld ms", (long long)took);
}

/* What the thread waited for ended at `since`. */
static void expect_granted(fixture *f, actor *thread, int64_t since)
{
    actor_finish(thread);
    expect_soon(since);
    assert_status(DIBS_OK, actor_check(thread, f->rt, "x"));
    assert_status(DIBS_OK, actor_unlock(thread, f->rt, "x"));
    actor_end(thread);
}

static void expect_granted_by_deletion(fixture *f, actor *thread)
{
    int64_t since = now_ms();

    server_do(f->server, "DEL lock:x");
    expect_granted(f, thread, since);
}

/* ------------------------------------------------------------------- its end */

static void expect_told_of(fixture *f, const char *command)
{
    actor *thread = begin_waiting_for_foreign(f);
    int64_t since = now_ms();
    server_do(f->server, command);
    expect_granted(f, thread, since);
}

#define ENDED_BY(name, command)                                                                                        \
    TEST_ON(a_foreign_release_by_##name##_is_noticed, fixture *f)                                                      \
    {                                                                                                                  \
        expect_told_of(f, command);                                                                                    \
    }

ENDED_BY(del, "DEL lock:x")
ENDED_BY(unlink, "UNLINK lock:x")
ENDED_BY(flushall, "FLUSHALL")
ENDED_BY(pexpire, "PEXPIRE lock:x 1")
ENDED_BY(a_script, "EVAL if(redis.call('GET',KEYS[1])==ARGV[1])then(redis).call('DEL',KEYS[1])end 1 lock:x by-hand")

TEST_ON(a_waiter_is_told_of_a_foreign_keys_expiry, fixture *f)
{
    enum { LIFE_MS = 1500 };

    fixture_open_patient(f, 0);
    int64_t set = now_ms(); /* or later */
    server_do(f->server, "SET lock:x by-hand PX %d", LIFE_MS);
    actor *thread = begin_waiting(f);
    assert_status(DIBS_OK, actor_result(thread));
    assert_in_range(now_ms() - set, LIFE_MS - 100, LIFE_MS + SOON_MS);
    assert_status(DIBS_OK, actor_unlock(thread, f->rt, "x"));
}

/* The key loses its expiry, gets a long one, and then a short one: each change is told. */
TEST_ON(a_waiter_is_told_when_a_foreign_keys_expiry_changes, fixture *f)
{
    fixture_open_patient(f, 0);
    server_do(f->server, "SET lock:x by-hand PX 5000");
    actor *thread = begin_waiting(f);
    server_do(f->server, "PERSIST lock:x");
    await_invalidations(f->rt, 1);
    await_tracked(f->server, f->rt, 1);
    server_do(f->server, "PEXPIRE lock:x 600000");
    await_invalidations(f->rt, 2);
    await_tracked(f->server, f->rt, 1);
    assert_true(actor_busy(thread));
    int64_t since = now_ms();
    server_do(f->server, "PEXPIRE lock:x 300");
    expect_granted(f, thread, since + 300);
}

/* -------------------------------------------------------------- while it waits */

/*
 * For so long the runtime sends hardly anything. Where the machine was slow, what a message or a new connection brings
 * about comes later: then the time begins once more.
 */
static void expect_rest(fixture *f, int64_t ms)
{
    enum { TIMES = 5 };
    uint64_t commands = UINT64_MAX;
    int64_t took = 0;

    for (int i = 0; i < TIMES && commands > 1 + (uint64_t)took / 2000; i++) {
        uint64_t before = stats_of(f->rt).store_commands;
        int64_t since = now_ms();
        pause_ms(ms);
        took = now_ms() - since;
        commands = stats_of(f->rt).store_commands - before;
    }
    assert_that(commands <= 1 + (uint64_t)took / 2000, "%lld commands in %lld ms", (long long)commands,
                (long long)took);
}

TEST_ON(a_waiter_for_a_foreign_key_rarely_asks, fixture *f)
{
    enum { WAIT_MS = 3000 };

    actor *thread = begin_waiting_for_foreign(f);
    pause_ms(200);
    for (int i = 0; i < 2; i++)
        expect_rest(f, WAIT_MS);
    assert_true(actor_busy(thread));
    expect_granted_by_deletion(f, thread);
}

/* Messages do not prolong a wait beyond its limit. */
TEST_ON(a_wait_for_a_foreign_key_ends_in_time, fixture *f)
{
    enum { WAIT_MS = 700 };

    fixture_open_patient(f, 0);
    take_by_hand(f, "by-hand");
    for (int i = 0; i < 3; i++) {
        int64_t since = now_ms();
        assert_status(DIBS_TIMEOUT, dibs_timedlock(f->rt, "x", WAIT_MS));
        assert_in_range(now_ms() - since, WAIT_MS, WAIT_MS + SOON_MS);
    }
    await_tracked(f->server, f->rt, 1);
    assert_status(DIBS_BUSY, dibs_trylock(f->rt, "x"));
    server_do(f->server, "DEL lock:x");
    expect_works(f, f->rt, "x");
}

TEST_ON(a_close_ends_a_wait_for_a_foreign_key, fixture *f)
{
    actor *thread = begin_waiting_for_foreign(f);
    int64_t since = now_ms();
    close_runtime(&f->rt);
    assert_status(DIBS_CLOSED, actor_result(thread));
    expect_soon(since);
    actor_end(thread);
    server_do(f->server, "DEL lock:x");
}

/* ----------------------------------------------------------------- more than one */

static void lock_plainly(void *rt)
{
    (void)(dibs_lock(rt, "x") == DIBS_OK);
}

static void lock_fairly(void *rt)
{
    (void)(dibs_lock_with(rt, "x", DIBS_WAIT_FOREVER, &(dibs_lock_options){.flags = DIBS_FAIR}) == DIBS_OK);
}

/* The threads begin one after the other. */
static struct waiters begin_many(fixture *f, actor_function *function)
{
    struct waiters all = {.count = MOST};

    for (int i = 0; i < all.count; i++) {
        all.threads[i] = actor_start();
        actor_begin(all.threads[i], function, f->rt);
        queue_await(f->server, "x", function == lock_fairly ? i + 1 : 1);
        actor_await_asleep(all.threads[i]);
    }
    await_tracked(f->server, f->rt, 1);
    return all;
}

static bool is_anyone_done(const struct waiters *all)
{
    for (int i = 0; i < all->count; i++)
        if (!actor_busy(all->threads[i]))
            return true;
    return false;
}

/* Which of them has come back, of those that are still there. */
static actor *take_done(struct waiters *all, int *place)
{
    await_that(is_anyone_done(all));
    for (int i = 0; i < all->count; i++) {
        if (actor_busy(all->threads[i]))
            continue;
        actor *done = all->threads[i];
        *place = i;
        memmove(&all->threads[i], &all->threads[i + 1], (size_t)(--all->count - i) * sizeof all->threads[0]);
        return done;
    }
    return NULL;
}

TEST_ON(several_threads_wait_for_a_foreign_key, fixture *f)
{
    int place;

    fixture_open_patient(f, 0);
    take_by_hand(f, "by-hand");
    struct waiters all = begin_many(f, lock_plainly);
    int64_t since = now_ms();
    server_do(f->server, "DEL lock:x");
    while (all.count > 0)
        expect_granted(f, take_done(&all, &place), since);
}

/*
 * The threads have waited for more than half of a lease. After that time a waiter that has not asked loses its place:
 * all ask in time, so the lock goes to the first.
 */
TEST_ON(fair_waiters_for_a_foreign_key_keep_their_places, fixture *f)
{
    enum { WAITER_LEASE_MS = 12000, ROUNDS = 2 };
    int place;

    fixture_open_patient(f, WAITER_LEASE_MS);
    for (int round = 0; round < ROUNDS; round++) {
        take_by_hand(f, "by-hand");
        struct waiters all = begin_many(f, lock_fairly);
        pause_ms(WAITER_LEASE_MS / 2 + 1500);
        int64_t since = now_ms();
        server_do(f->server, "DEL lock:x");
        while (all.count > 0) {
            actor *thread = take_done(&all, &place);
            assert_int_equal(place, 0);
            expect_granted(f, thread, since);
        }
    }
}

/* Several processes wait: one gets the lock by its own ask, the next ones by a release. */
TEST_ON(several_processes_wait_for_a_foreign_key, fixture *f)
{
    enum { AGENTS = 3 };
    process *agents[AGENTS];
    bool served[AGENTS] = {false};

    fixture_open_patient(f, 0);
    take_by_hand(f, "by-hand");
    for (int i = 0; i < AGENTS; i++) {
        agents[i] = agent_start(f->server->url, LONG_LEASE_MS);
        agent_begin_lock(agents[i], "x", DIBS_WAIT_FOREVER);
        queue_await(f->server, "x", i + 1);
    }
    actor *thread = begin_waiting(f);
    queue_await(f->server, "x", AGENTS + 1);
    int64_t since = now_ms();
    server_do(f->server, "DEL lock:x");
    for (int left = AGENTS + 1; left > 0;) {
        for (int i = 0; i < AGENTS; i++) {
            if (served[i] || !process_try_read(agents[i]))
                continue;
            assert_string_equal(agents[i]->line, "DIBS_OK");
            assert_status(DIBS_OK, agent_unlock(agents[i], "x"));
            served[i] = true;
            left--;
        }
        if (thread && !actor_busy(thread)) {
            expect_granted(f, thread, since);
            thread = NULL;
            left--;
        }
        expect_soon(since);
    }
    for (int i = 0; i < AGENTS; i++) /* only now: under a sanitizer a process takes its time to end */
        agent_stop(agents[i]);
}

/* ------------------------------------------------------- one holder after another */

/* Each change is told, and the key read again: so the last one is told as well. */
static void expect_told_of_the_last(fixture *f, const char *const *changes, size_t count)
{
    actor *thread = begin_waiting_for_foreign(f);
    for (size_t i = 0; i < 3 * count; i++) {
        uint64_t messages = stats_of(f->rt).invalidations;
        server_do(f->server, changes[i % count], i);
        await_invalidations(f->rt, messages + 1);
        await_tracked(f->server, f->rt, 1);
    }
    assert_true(actor_busy(thread));
    expect_granted_by_deletion(f, thread);
}

TEST(a_waiter_sees_one_foreign_holder_after_another)
{
    static const char *const changes[] = {
        "SET lock:x another%d PX 600000",
        "EVAL redis.call('DEL','lock:x');redis.call('SET','lock:x','a%d','PX',600000) 0",
        "SET lock:x endless%d",
    };

    expect_told_of_the_last(*state, changes, sizeof changes / sizeof *changes);
}

/* The key is no string: it shows no holder, but the lock is not free either. */
TEST_ON(a_key_of_another_type_is_an_error_until_it_is_gone, fixture *f)
{
    actor *thread = begin_waiting_for_foreign(f);
    server_do(f->server, "EVAL %s 0", "redis.call('DEL','lock:x') redis.call('LPUSH','lock:x','a')");
    assert_status(DIBS_STORE_ERROR, actor_result(thread));
    actor_end(thread);
    server_do(f->server, "DEL lock:x");
    expect_works(f, f->rt, "x");
}

/*
 * A runtime takes the lock over from the foreign client: the waiter then waits for that runtime, and its release grants
 * the lock.
 */
TEST_ON(a_waiter_is_told_when_dibs_takes_a_foreign_lock_over, fixture *f)
{
    fixture_open_patient(f, 0);
    dibs_runtime *second = test_runtime(open_runtime(f->server, LONG_LEASE_MS));
    assert_status(DIBS_OK, dibs_lock(second, "y"));
    const char *token = server_text(f->server, "GET lock:y");
    take_by_hand(f, "by-hand");
    actor *thread = begin_waiting(f);
    /* As if the other runtime's ask had been quicker than the waiter's. */
    server_do(f->server, "RENAME lock:y lock:x");
    await_invalidations(f->rt, 1);
    pause_ms(200);
    assert_true(actor_busy(thread));
    int64_t since = now_ms();
    assert_status(DIBS_OK, dibs_force_unlock(second, "x", token));
    expect_granted(f, thread, since);
    assert_status(DIBS_LOST, dibs_unlock(second, "y"));
}

/* ------------------------------------------------------------- reads that come late */

struct late {
    script_server *net;
    actor *thread;
};

/* A thread waits; the read that makes the server track the lock is on its way. */
static struct late begin_late(fixture *f)
{
    struct late late = {fixture_between(f), actor_start()};

    f->urls[0] = script_server_url(late.net);
    script_server_add(late.net, (script_rule){.match = "\r\nGET\r\n", .nth = 1, .action = SCRIPT_STALL_REQUEST});
    fixture_open_patient(f, 0);
    take_by_hand(f, "by-hand");
    actor_begin_lock(late.thread, f->rt, "x", DIBS_WAIT_FOREVER);
    script_server_await_fired(late.net, 0);
    assert_int_equal(stats_of(f->rt).tracking, 1);
    server_await_rest(f->server);
    return late;
}

/* The holder has released the lock by then without a message: the read shows it. */
TEST_ON(a_read_after_the_foreign_release_tells_of_it, fixture *f)
{
    struct late late = begin_late(f);

    server_do(f->server, "DEL lock:x");
    assert_true(actor_busy(late.thread));
    int64_t since = now_ms();
    script_server_release(late.net);
    expect_granted(f, late.thread, since);
}

/* Another foreign client has the lock by then. */
TEST_ON(a_read_after_a_foreign_change_tells_of_it, fixture *f)
{
    struct late late = begin_late(f);

    take_by_hand(f, "another");
    script_server_release(late.net);
    await_tracked(f->server, f->rt, 1);
    assert_true(actor_busy(late.thread));
    expect_granted_by_deletion(f, late.thread);
}

/* ------------------------------------------------------------- connections that end */

/* The lock is released together with the end of a connection, and again when there is a new connection. */
static void expect_told_in_spite_of(fixture *f, void (*end)(server *s))
{
    fixture_open_patient(f, 0);
    for (int i = 0; i < 3; i++) {
        take_by_hand(f, "by-hand");
        actor *thread = begin_waiting(f);
        int64_t since = now_ms();
        end(f->server);
        server_do(f->server, "DEL lock:x");
        expect_granted(f, thread, since);
    }
    take_by_hand(f, "by-hand");
    actor *thread = begin_waiting(f);
    long long calls = tracking_calls(f->server);
    end(f->server);
    await_tracking_again(f->server, f->rt, calls);
    pause_ms(300);
    expect_rest(f, 1500);
    expect_granted_by_deletion(f, thread);
}

TEST(a_foreign_release_is_noticed_though_the_background_connection_ends)
{
    expect_told_in_spite_of(*state, kill_tracker);
}

TEST(a_foreign_release_is_noticed_though_the_subscription_ends)
{
    expect_told_in_spite_of(*state, kill_subscription);
}

TEST(a_foreign_release_is_noticed_though_all_connections_end)
{
    expect_told_in_spite_of(*state, kill_all);
}

/* The holder's key outlives the restart. Until the waiter is told again, it asks. */
TEST_ON(a_foreign_release_is_noticed_after_a_restart, fixture *f)
{
    server_stop(f->server);
    f->server = server_start(&(server_options){.config = "appendonly yes\nappendfsync always"});
    f->urls[0] = f->server->url;
    f->config.outage_ms = LIMIT_MS;
    actor *thread = begin_waiting_for_foreign(f);
    restart(f->server);
    await_tracking_again(f->server, f->rt, 0);
    await_tracked(f->server, f->rt, 1);
    assert_true(actor_busy(thread));
    expect_granted_by_deletion(f, thread);
}

/* --------------------------------------------------------------------- names */

static void expect_told_of_name(fixture *f, const char *name)
{
    const char *prefix = f->config.key_prefix;

    for (int i = 0; i < 2; i++) {
        server_do(f->server, "SET %s%s by-hand PX 600000", prefix, name);
        actor *thread = actor_locking(f->rt, name, DIBS_WAIT_FOREVER);
        await_tracked(f->server, f->rt, 1);
        int64_t since = now_ms();
        server_do(f->server, "DEL %s%s", prefix, name);
        assert_status(DIBS_OK, actor_result(thread));
        expect_soon(since);
        assert_status(DIBS_OK, actor_unlock(thread, f->rt, name));
        actor_end(thread);
    }
}

TEST(a_foreign_release_is_noticed_for_any_name)
{
    with_odd_names(*state, expect_told_of_name);
}

/* A change in another database is no release; the server's messages do not name the database. */
TEST_ON(a_foreign_release_is_noticed_in_another_database, fixture *f)
{
    f->urls[0] = formatted("%s?db=3", f->server->url);
    fixture_open_patient(f, 0);
    server_do(f->server, "SELECT 3");
    take_by_hand(f, "by-hand");
    actor *thread = begin_waiting(f);
    server_do(f->server, "SELECT 2");
    take_by_hand(f, "another");
    await_invalidations(f->rt, 1);
    server_do(f->server, "DEL lock:x");
    await_tracked(f->server, f->rt, 1);
    assert_true(actor_busy(thread));
    server_do(f->server, "SELECT 3");
    expect_granted_by_deletion(f, thread);
    server_do(f->server, "SELECT 0");
}

TESTS(fixture_setup, fixture_teardown)
