/* Very many messages at once: all are processed soon, and nothing that is due meanwhile is late. */
#include <stdatomic.h>

#include "support/fixture.h"
#include "support/tracking.h"

enum { MANY = 5000 };

#define KNOWN_MS                                                                                                       \
    (LIMIT_MS / 12) /* within this time all are known; a renewal of their lease is due after 40 times that */

static void lock_many(dibs_runtime *rt)
{
    for (int i = 0; i < MANY; i++)
        assert_status(DIBS_OK, dibs_lock(rt, formatted("many:%d", i)));
}

static void expect_all_lost(dibs_runtime *rt)
{
    for (int i = 0; i < MANY; i++)
        assert_status(DIBS_LOST, dibs_unlock(rt, formatted("many:%d", i)));
}

static void expect_all_known(dibs_runtime *rt, uint64_t count, int64_t since)
{
    assert_that(comes_to(rt, STAT(lost), count), "%lld are lost", (long long)stats_of(rt).lost);
    int64_t took = now_ms() - since;
    assert_that(took < KNOWN_MS, "all are known after %lld ms", (long long)took);
}

static void all_at_once(void **state, const char *command)
{
    fixture *f = *state;

    fixture_open_patient(f, LONG_LEASE_MS);
    lock_many(f->rt);
    await_tracked(f->server, f->rt, MANY);
    dibs_stats before = stats_of(f->rt);
    int64_t since = now_ms();
    server_do(f->server, command);
    expect_all_known(f->rt, MANY, since);
    /* Not one command for each, but one for each batch. */
    assert_in_range(stats_of(f->rt).store_commands - before.store_commands, 1, MANY / 20);
    expect_all_lost(f->rt);
    expect_works(f, f->rt, "many:1");
}

TEST(a_flushall_loses_all_locks_soon)
{
    all_at_once(state, "FLUSHALL");
}

TEST(a_flushdb_async_loses_all_locks_soon)
{
    all_at_once(state, "FLUSHDB ASYNC");
}

/* ------------------------------------------------------- what is due meanwhile */

/* Events of the lease, counted, because among thousands the fixture keeps only the first; and those of NOTHING. */
struct seen {
    dibs_runtime *rt;
    atomic_uint at_risk, lost, marks;
};

#define NOTHING "nothing"

static void see(const dibs_event *event, void *arg)
{
    struct seen *seen = arg;
    bool is_short = event->name && strcmp(event->name, "short") == 0;

    if (event->kind == DIBS_EVENT_AT_RISK && is_short)
        atomic_fetch_add(&seen->at_risk, 1);
    if (event->kind == DIBS_EVENT_LOST && is_short)
        atomic_fetch_add(&seen->lost, 1);
    if (event->kind == DIBS_EVENT_NOT_HELD)
        atomic_fetch_add(&seen->marks, 1);
}

/* Events come in order: those before this one have come. Where too many wait it is dropped, and asked for again. */
static bool is_marked(struct seen *seen)
{
    unsigned before = atomic_load(&seen->marks);

    assert_status(DIBS_NOT_HELD, dibs_unlock(seen->rt, NOTHING));
    pause_ms(5);
    return atomic_load(&seen->marks) > before;
}

/* How often the lease was at risk until now. */
static unsigned times_at_risk(struct seen *seen)
{
    await_that(is_marked(seen));
    return atomic_load(&seen->at_risk);
}

/*
 * A lease that is renewed each third of its length, next while the others are lost: it is not at risk then, which it
 * would be if that renewal were late by a sixth of it: by two seconds, because a virtual machine may stand still for
 * one. Each of the others has a message of its own.
 */
TEST_ON(a_flood_of_messages_delays_no_renewal, fixture *f)
{
    enum { SHORT = 12000, ROUNDS = 2 };
    static const dibs_lock_options brief = {.lease_ms = SHORT};
    struct seen seen = {.rt = NULL};

    f->config.on_event = see;
    f->config.on_event_arg = &seen;
    fixture_open_patient(f, LONG_LEASE_MS);
    seen.rt = f->rt;
    assert_status(DIBS_OK, dibs_lock_with(f->rt, "short", 0, &brief));
    for (int round = 1; round <= ROUNDS; round++) {
        uint64_t lost = stats_of(f->rt).lost;
        lock_many(f->rt);
        await_tracked(f->server, f->rt, MANY);
        await_renewed(f->rt, stats_of(f->rt).renewed + 1);
        unsigned at_risk = times_at_risk(&seen); /* to lock so many may have taken long */
        await_that(server_integer(f->server, "PTTL lock:short") < SHORT * 2 / 3 + 50);
        uint64_t renewed = stats_of(f->rt).renewed;
        int64_t since = now_ms();
        server_do(f->server, "EVAL %s 0", "for i = 0, 4999 do redis.call('DEL', 'lock:many:' .. i) end");
        expect_all_known(f->rt, lost + MANY, since);
        await_renewed(f->rt, renewed + 1);
        assert_int_equal(times_at_risk(&seen), at_risk);
        expect_all_lost(f->rt);
    }
    assert_int_equal(atomic_load(&seen.lost), 0);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "short"));
    dibs_close(f->rt); /* its last event comes before the end of `seen` */
    f->rt = NULL;
}

/*
 * The server's table is too small for all keys, so the server tells of keys that have not changed. Each look enters its
 * key again: this goes on, but must neither cost a lock nor keep the processor busy.
 */
TEST_ON(a_tracking_table_that_is_too_small_costs_no_lock, fixture *f)
{
    server_do(f->server, "CONFIG SET tracking-table-max-keys 1000");
    fixture_open_patient(f, LONG_LEASE_MS);
    lock_many(f->rt);
    await_invalidations(f->rt, MANY);
    dibs_stats before = stats_of(f->rt);
    pause_ms(2000);
    dibs_stats after = stats_of(f->rt);
    assert_that(after.store_commands - before.store_commands < 1000, "%lld commands in 2 s",
                (long long)(after.store_commands - before.store_commands));
    assert_int_equal(after.lost, 0);
    assert_status(DIBS_OK, dibs_unlock_all(f->rt));
}

/* A client without dibs has the lock, and keeps changing its key: the waiter asks as often as without messages. */
TEST_ON(a_foreign_key_that_keeps_changing_causes_little_load, fixture *f)
{
    enum { STREAM_MS = 1500, REST_LEAST_MS = 50, FIRST = 8 };

    fixture_open_patient(f, LONG_LEASE_MS);
    server_do(f->server, "SET lock:x by-hand PX 600000");
    actor *thread = actor_locking(f->rt, "x", DIBS_WAIT_FOREVER);
    await_tracked(f->server, f->rt, 1);
    uint64_t messages = stats_of(f->rt).invalidations;
    long long asks = server_asks(f->server);
    int64_t since = now_ms();
    while (now_ms() - since < STREAM_MS)
        server_do(f->server, "PEXPIRE lock:x 600000");
    int64_t took = now_ms() - since;
    asks = server_asks(f->server) - asks;
    assert_in_range(stats_of(f->rt).invalidations - messages, 5, UINT64_MAX);
    assert_that(asks <= FIRST + took / REST_LEAST_MS, "%lld asks in %lld ms", asks, (long long)took);
    assert_true(actor_busy(thread));
    since = now_ms();
    server_do(f->server, "DEL lock:x");
    assert_status(DIBS_OK, actor_result(thread));
    assert_true(now_ms() - since < KNOWN_MS);
    assert_status(DIBS_OK, actor_unlock(thread, f->rt, "x"));
}

TESTS(fixture_setup, fixture_teardown)
