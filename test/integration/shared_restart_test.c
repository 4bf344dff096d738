/* DIBS_SHARED, while the server is restarted: with all its data, or with those of some time before. */
#include "redis/scripts.h"
#include "support/fixture.h"
#include "support/queue.h"
#include "support/restart.h"

#define PERSISTENT "appendonly yes\nappendfsync always"

enum { READERS = 2 };

static const dibs_lock_options shared = {.flags = DIBS_SHARED};

/*
 * Each client is a thread with a runtime of its own: the readers, the one that wants the lock exclusively, and the one
 * that comes last.
 */
struct scene {
    fixture *f;
    dibs_runtime *readers_rt[READERS], *alone_rt;
    actor *readers[READERS], *alone, *late;
};

static struct scene begin_scene(void **state, const char *config)
{
    struct scene s = {.f = *state, .alone = actor_start(), .late = actor_start()};

    if (config) {
        server_stop(s.f->server);
        s.f->server = server_start(&(server_options){.config = config});
        s.f->urls[0] = s.f->server->url;
    }
    fixture_open(s.f, LONG_LEASE_MS);
    s.alone_rt = open_runtime(s.f->server, LONG_LEASE_MS);
    for (int i = 0; i < READERS; i++) {
        s.readers[i] = actor_start();
        s.readers_rt[i] = open_runtime(s.f->server, LONG_LEASE_MS);
    }
    return s;
}

static void end_scene(struct scene *s)
{
    for (int i = 0; i < READERS; i++) {
        assert_int_equal(stats_of(s->readers_rt[i]).lost, 0);
        dibs_close(s->readers_rt[i]);
        actor_end(s->readers[i]);
    }
    assert_int_equal(stats_of(s->f->rt).lost, 0);
    actor_end(s->alone);
    actor_end(s->late);
    dibs_close(s->alone_rt);
    queue_assert_gone(s->f->server, "x");
    assert_false(server_has(s->f->server, "lock:x"));
}

static bool has_sharers(dibs_runtime *rt, uint32_t count, uint64_t fence)
{
    dibs_owner owner;

    return dibs_query(rt, "x", &owner) == DIBS_OK && owner.sharers == count && (!fence || owner.fence == fence);
}

static void await_sharers(dibs_runtime *rt, uint32_t count, uint64_t fence)
{
    await_or_say(has_sharers(rt, count, fence), "%u share the lock, not %u, and the newest fence is %llu",
                 owner_of(rt, "x").sharers, count, (unsigned long long)owner_of(rt, "x").fence);
}

static uint64_t reader_fence(struct scene *s, int i)
{
    dibs_hold hold;

    assert_status(DIBS_OK, actor_hold(s->readers[i], s->readers_rt[i], "x", &hold));
    assert_true(hold.shared);
    return hold.fence;
}

/* Both readers leave, and only then is the lock held exclusively. */
static void readers_leave(struct scene *s)
{
    for (int i = 0; i < READERS; i++) {
        assert_true(actor_busy(s->alone));
        assert_status(DIBS_OK, actor_check(s->readers[i], s->readers_rt[i], "x"));
        assert_status(DIBS_OK, actor_unlock(s->readers[i], s->readers_rt[i], "x"));
    }
}

/* The writer waits until the readers have left. */
static void expect_writer_behind(struct scene *s)
{
    actor_begin_lock(s->alone, s->alone_rt, "x", DIBS_WAIT_FOREVER);
    queue_await(s->f->server, "x", 1);
    readers_leave(s);
    actor_gets(s->alone, s->alone_rt, "x");
}

/* ---------------------------------------------------------------- nothing is lost */

TEST(sharers_and_waiters_go_on_after_a_restart)
{
    struct scene s = begin_scene(state, PERSISTENT);
    uint64_t fences[READERS];
    dibs_hold hold;

    for (int i = 0; i < READERS; i++) {
        assert_status(DIBS_OK, actor_lock_with(s.readers[i], s.readers_rt[i], "x", 0, &shared));
        fences[i] = reader_fence(&s, i);
    }
    actor_begin_lock(s.alone, s.alone_rt, "x", DIBS_WAIT_FOREVER);
    queue_await(s.f->server, "x", 1);
    unsigned long long asks = queue_at(s.f->server, "x", 0).number;
    restart(s.f->server);
    queue_await_ask(s.f->server, "x", asks); /* before, it does not listen and would be passed over */
    actor_begin_lock_with(s.late, s.f->rt, "x", DIBS_WAIT_FOREVER, &shared);
    queue_await(s.f->server, "x", 2);
    await_sharers(s.f->rt, READERS, fences[READERS - 1]);
    for (int i = 0; i < READERS; i++)
        assert_true(reader_fence(&s, i) == fences[i]);
    assert_int_equal(queue_size(s.f->server, "x"), 2);
    readers_leave(&s);
    assert_status(DIBS_OK, actor_result(s.alone));
    assert_status(DIBS_OK, actor_hold(s.alone, s.alone_rt, "x", &hold));
    assert_true(hold.fence > fences[READERS - 1] && !hold.shared);
    assert_true(actor_busy(s.late));
    assert_status(DIBS_OK, actor_unlock(s.alone, s.alone_rt, "x"));
    actor_gets(s.late, s.f->rt, "x");
    end_scene(&s);
}

/* -------------------------------------------------------------------- a snapshot */

/*
 * The snapshot shows another owner, and the readers in the queue. The readers have the lock by now: their leases take
 * the owner's place. Then an ask serves the queue, which must neither let them in once more, nor end what they hold.
 */
TEST(sharers_take_the_place_of_an_owner_of_a_snapshot)
{
    struct scene s = begin_scene(state, NULL);

    assert_status(DIBS_OK, actor_lock(s.alone, s.alone_rt, "x", 0));
    for (int i = 0; i < READERS; i++) {
        actor_begin_lock_with(s.readers[i], s.readers_rt[i], "x", DIBS_WAIT_FOREVER, &shared);
        queue_await(s.f->server, "x", i + 1);
    }
    server_do(s.f->server, "SAVE");
    assert_status(DIBS_OK, actor_unlock(s.alone, s.alone_rt, "x"));
    for (int i = 0; i < READERS; i++)
        assert_status(DIBS_OK, actor_result(s.readers[i]));
    restart(s.f->server);
    await_sharers(s.f->rt, READERS, 0);
    for (int i = 0; i < READERS; i++)
        queue_await_listening(s.f->server, queue_at(s.f->server, "x", i).channel);
    assert_status(DIBS_OK, dibs_lock_with(s.f->rt, "x", LIMIT_MS, &shared));
    assert_int_equal(owner_of(s.f->rt, "x").sharers, READERS + 1);
    assert_status(DIBS_OK, dibs_unlock(s.f->rt, "x"));
    assert_int_equal(owner_of(s.f->rt, "x").sharers, READERS);
    assert_true(owner_of(s.f->rt, "x").fence == reader_fence(&s, READERS - 1));
    expect_writer_behind(&s);
    end_scene(&s);
}

/* The snapshot shows sharers that have left since, one or more. The exclusive holder keeps the lock. */
TEST(a_writer_takes_the_place_of_sharers_of_a_snapshot)
{
    for (int ghosts = 1; ghosts <= READERS; ghosts++) {
        struct scene s = begin_scene(state, NULL);
        for (int i = 0; i < ghosts; i++)
            assert_status(DIBS_OK, actor_lock_with(s.readers[i], s.readers_rt[i], "x", 0, &shared));
        server_do(s.f->server, "SAVE");
        for (int i = 0; i < ghosts; i++)
            assert_status(DIBS_OK, actor_unlock(s.readers[i], s.readers_rt[i], "x"));
        assert_status(DIBS_OK, actor_lock(s.alone, s.alone_rt, "x", 0));
        restart(s.f->server);
        await_sharers(s.alone_rt, 0, 0);
        assert_status(DIBS_OK, actor_check(s.alone, s.alone_rt, "x"));
        assert_status(DIBS_BUSY, dibs_lock_with(s.f->rt, "x", 0, &shared));
        assert_status(DIBS_OK, actor_unlock(s.alone, s.alone_rt, "x"));
        assert_status(DIBS_OK, dibs_lock_with(s.f->rt, "x", LIMIT_MS, &shared));
        assert_int_equal(owner_of(s.f->rt, "x").sharers, 1);
        assert_status(DIBS_OK, dibs_unlock(s.f->rt, "x"));
        end_scene(&s);
        server_do(s.f->server, "FLUSHALL");
        close_runtime(&s.f->rt);
    }
}

/* The snapshot shows a sharer with a short lease that has left since, beside others, but not the one that came last. */
TEST(a_sharer_of_a_snapshot_stays_no_longer_than_its_lease)
{
    const dibs_lock_options brief = {.flags = DIBS_SHARED, .lease_ms = SAFE_LEASE_MS};
    struct scene s = begin_scene(state, NULL);

    assert_status(DIBS_OK, actor_lock_with(s.readers[0], s.readers_rt[0], "x", 0, &shared));
    assert_status(DIBS_OK, actor_lock_with(s.late, s.f->rt, "x", 0, &brief));
    server_do(s.f->server, "SAVE");
    assert_status(DIBS_OK, actor_unlock(s.late, s.f->rt, "x"));
    assert_status(DIBS_OK, actor_lock_with(s.readers[1], s.readers_rt[1], "x", 0, &shared));
    restart(s.f->server);
    await_sharers(s.f->rt, READERS, reader_fence(&s, 1)); /* for a moment three share it */
    assert_status(DIBS_OK, actor_check(s.readers[1], s.readers_rt[1], "x"));
    expect_writer_behind(&s);
    end_scene(&s);
}

/* ---------------------------------------------------------------- all is lost */

/* A client without a runtime shares the lock: it restores nothing. */
static void share_from_elsewhere(server *s, const char *token, uint32_t lease_ms)
{
    redisReply *reply = server_command(s, "EVAL %s 3 lock:x dibs:fence:{lock:x} dibs:queue:{lock:x} %s 1 %u %s 0",
                                       dibs__scripts[DIBS__SCRIPT_acquire_shared].text, token, lease_ms, "");

    assert_int_equal(reply->type, REDIS_REPLY_INTEGER);
    freeReplyObject(reply);
}

/*
 * Two share the lock, and the lease of one ends long before that of the other. The server forgets both. A waiter leaves
 * the lock to them for as long as it last saw the longer lease.
 */
TEST_ON(a_waiter_leaves_a_lost_lock_to_the_sharer_with_the_longest_lease, fixture *f)
{
    enum { LONG_MS = 4 * SAFE_LEASE_MS, SHORT_MS = SAFE_LEASE_MS };
    actor *waiter = actor_start();

    fixture_open(f, LONG_LEASE_MS);
    share_from_elsewhere(f->server, "dibs:long~0", LONG_MS);
    share_from_elsewhere(f->server, "dibs:short~0", SHORT_MS);
    int64_t from = now_ms();
    actor_begin_lock(waiter, f->rt, "x", LIMIT_MS);
    queue_await(f->server, "x", 1);
    restart(f->server);
    assert_status(DIBS_OK, actor_result(waiter));
    assert_that(now_ms() >= from + LONG_MS - SHORT_MS, "the waiter has the lock after %lld ms",
                (long long)(now_ms() - from));
    assert_status(DIBS_OK, actor_unlock(waiter, f->rt, "x"));
}

/* The server kept the last fence, and lost who shared the lock. */
TEST_ON(the_newest_sharer_is_shown_though_it_has_the_last_fence, fixture *f)
{
    const char *token = "dibs:t~0";

    fixture_open(f, LONG_LEASE_MS);
    server_do(f->server, "SET dibs:fence:{lock:x} 100");
    redisReply *reply = server_command(f->server, "EVAL %s 2 lock:x dibs:fence:{lock:x} %s 600000 100 %s 0",
                                       dibs__scripts[DIBS__SCRIPT_renew].text, token, "");
    assert_int_equal(reply->element[0]->integer, 2);
    freeReplyObject(reply);
    dibs_owner owner = owner_of(f->rt, "x");
    assert_int_equal(owner.sharers, 1);
    assert_string_equal(owner.token, token);
    assert_status(DIBS_OK, dibs_force_unlock(f->rt, "x", token));
}

/* The server evicted the list of who shares the lock, and not the lock itself. */
TEST_ON(a_list_of_sharers_that_is_made_again_expires, fixture *f)
{
    fixture_open(f, LONG_LEASE_MS);
    server_do(f->server, "SET dibs:fence:{lock:x} 100 PX 7200000");
    server_do(f->server, "SET lock:x dibs:shared PX 600000");
    redisReply *reply = server_command(f->server, "EVAL %s 2 lock:x dibs:fence:{lock:x} dibs:t~0 600000 100 %s 0",
                                       dibs__scripts[DIBS__SCRIPT_renew].text, "");
    assert_int_equal(reply->element[0]->integer, 2);
    freeReplyObject(reply);
    assert_true(server_integer(f->server, "PTTL dibs:share:{lock:x}") > 600000);
    assert_status(DIBS_OK, dibs_force_unlock(f->rt, "x", "dibs:t~0"));
}

/* What is no fence has no place among the sharers that come back. */
TEST_ON(a_malformed_fence_hides_no_restored_sharer, fixture *f)
{
    static const char *const texts[] = {"-1", "nan", "inf", "1e300"};

    fixture_open(f, LONG_LEASE_MS);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        server_do(f->server, "SET dibs:fence:{lock:x} %s PX 7200000", texts[i]);
        redisReply *reply = server_command(f->server, "EVAL %s 2 lock:x dibs:fence:{lock:x} dibs:t~0 600000 100 %s 0",
                                           dibs__scripts[DIBS__SCRIPT_renew].text, "");
        assert_int_equal(reply->element[0]->integer, 2);
        freeReplyObject(reply);
        assert_status(DIBS_BUSY, dibs_trylock(f->rt, "x"));
        assert_int_equal(owner_of(f->rt, "x").sharers, 1);
        assert_status(DIBS_OK, dibs_force_unlock(f->rt, "x", "dibs:t~0"));
    }
}

TESTS(fixture_setup, fixture_teardown)
