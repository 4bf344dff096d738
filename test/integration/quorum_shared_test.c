/* DIBS_SHARED on a quorum of masters: readers and writers, while all are well, or a minority is not. */
#include <inttypes.h>

#include "support/masters.h"
#include "support/queue.h"
#include "support/tasks.h"
#include "support/tracking.h"

enum { READERS = 3 };

static const dibs_lock_options shared = {.flags = DIBS_SHARED};

static dibs_status share(dibs_runtime *rt, int64_t wait_ms, uint32_t limit)
{
    return dibs_lock_with(rt, "a", wait_ms, &(dibs_lock_options){.flags = DIBS_SHARED, .limit = limit});
}

/* How many masters say that so many share the lock. */
static size_t masters_with_sharers(const masters *m, long long count)
{
    size_t with = 0;

    for (size_t i = 0; i < m->count; i++)
        with += server_integer(m->servers[i], "ZCOUNT dibs:share:{lock:a} -inf (0") == count;
    return with;
}

static void await_sharers(const masters *m, long long count, size_t at)
{
    await_or_say(masters_with_sharers(m, count) >= at, "%zu masters say that %lld share the lock, not %zu",
                 masters_with_sharers(m, count), count, at);
}

/* How many sharers a majority has: each of three readers may have the votes of two other masters for a while. */
static void await_told(dibs_runtime *rt, uint32_t sharers)
{
    await_or_say(owner_of(rt, "a").sharers == sharers, "%" PRIu32 " share it, not %" PRIu32, owner_of(rt, "a").sharers,
                 sharers);
}

/* Each reader is a thread; the first has the runtime of the test, the others have another. */
struct crowd {
    dibs_runtime *rts[READERS];
    actor *readers[READERS];
};

static struct crowd crowd_share(masters *m, dibs_runtime *other)
{
    struct crowd crowd = {.rts = {m->rt, other, other}};

    for (int i = 0; i < READERS; i++) {
        crowd.readers[i] = actor_start();
        assert_status(DIBS_OK, actor_lock_with(crowd.readers[i], crowd.rts[i], "a", LIMIT_MS, &shared));
    }
    return crowd;
}

static void crowd_leave(struct crowd *crowd)
{
    for (int i = 0; i < READERS; i++)
        assert_status(DIBS_OK, actor_unlock(crowd->readers[i], crowd->rts[i], "a"));
}

/* ------------------------------------------------------- readers and writers */

TEST_ON(a_quorum_refuses_limits_above_one, masters *m)
{
    actor *a = actor_start();

    masters_open(m, LONG_LEASE_MS);
    assert_status(DIBS_INVALID, share(m->rt, 0, 2));
    assert_that(strstr(dibs_last_error(), "limit is 2") != NULL, "%s", dibs_last_error());
    assert_status(DIBS_OK, share(m->rt, LIMIT_MS, 1));
    assert_status(DIBS_BUSY, actor_lock_with(a, m->rt, "a", 0, &(dibs_lock_options){.flags = DIBS_SHARED, .limit = 1}));
    assert_status(DIBS_OK, actor_lock_with(a, m->rt, "a", LIMIT_MS, &shared));
    assert_status(DIBS_OK, actor_unlock(a, m->rt, "a"));
    assert_status(DIBS_OK, dibs_unlock(m->rt, "a"));
}

static uint64_t actor_fence(actor *a, dibs_runtime *rt)
{
    dibs_hold hold;

    assert_status(DIBS_OK, actor_hold(a, rt, "a", &hold));
    return hold.fence;
}

TEST_ON_THREE_AND_FIVE(readers_share_and_a_writer_has_it_when_all_have_left, masters *m)
{
    actor *writer = actor_start();

    masters_open_connected(m, LONG_LEASE_MS);
    dibs_runtime *other = test_runtime(masters_open_another(m, LONG_LEASE_MS));
    assert_status(DIBS_OK, dibs_lock(m->rt, "a"));
    uint64_t fence = fence_of(m->rt, "a"), most = 0;
    assert_status(DIBS_BUSY, actor_lock_with(writer, other, "a", 0, &shared));
    assert_status(DIBS_OK, dibs_unlock(m->rt, "a"));
    masters_await_keys(m, "a", 0);
    struct crowd crowd = crowd_share(m, other);
    for (int i = 0; i < READERS; i++) {
        uint64_t its = actor_fence(crowd.readers[i], crowd.rts[i]);
        assert_true(its > fence);
        most = its > most ? its : most;
    }
    await_told(other, READERS);
    assert_true(owner_of(other, "a").held && owner_of(other, "a").token[0]);
    assert_status(DIBS_BUSY, dibs_trylock(m->rt, "a"));
    actor_begin_lock(writer, other, "a", LIMIT_MS);
    for (int i = 0; i < READERS; i++) {
        pause_ms(20);
        assert_true(actor_busy(writer));
        assert_status(DIBS_OK, actor_check(crowd.readers[i], crowd.rts[i], "a"));
        assert_status(DIBS_OK, actor_unlock(crowd.readers[i], crowd.rts[i], "a"));
    }
    assert_status(DIBS_OK, actor_result(writer));
    assert_true(actor_fence(writer, other) > most);
    assert_int_equal(owner_of(other, "a").sharers, 0);
    assert_status(DIBS_BUSY, share(m->rt, 0, 0));
    assert_status(DIBS_OK, actor_unlock(writer, other, "a"));
    masters_await_keys(m, "a", 0);
}

static bool waits_at_all(const masters *m)
{
    bool waits = true;

    for (size_t i = 0; i < m->count; i++)
        waits = waits && queue_size(m->servers[i], "a") == 1;
    return waits;
}

/* There is no common queue, but a master that knows of a waiting writer lets no more readers in. */
TEST_ON_THREE_AND_FIVE(readers_without_end_do_not_keep_a_writer_out, masters *m)
{
    masters_open_connected(m, LONG_LEASE_MS);
    dibs_runtime *other = test_runtime(masters_open_another(m, LONG_LEASE_MS));
    assert_status(DIBS_OK, share(m->rt, LIMIT_MS, 0));
    actor *writer = actor_locking(other, "a", LIMIT_MS);
    await_that(waits_at_all(m));
    struct crowd crowd = {.rts = {m->rt, other, m->rt}};
    for (int i = 0; i < READERS; i++) {
        crowd.readers[i] = actor_start();
        assert_status(DIBS_BUSY, actor_lock_with(crowd.readers[i], crowd.rts[i], "a", 0, &shared));
    }
    assert_status(DIBS_OK, dibs_unlock(m->rt, "a"));
    actor_gets(writer, other, "a");
}

/* One release hints all of them, and all are let in: much sooner than by one poll after the other. */
TEST_ON_THREE_AND_FIVE(all_readers_are_let_in_when_a_writer_of_a_quorum_leaves, masters *m)
{
    masters_open_connected(m, LONG_LEASE_MS);
    dibs_runtime *other = test_runtime(masters_open_another(m, LONG_LEASE_MS));
    struct crowd crowd = {.rts = {m->rt, other, other}};
    assert_status(DIBS_OK, dibs_lock(m->rt, "a"));
    for (int i = 0; i < READERS; i++) {
        crowd.readers[i] = actor_start();
        actor_begin_lock_with(crowd.readers[i], crowd.rts[i], "a", LIMIT_MS, &shared);
        actor_await_asleep(crowd.readers[i]);
    }
    assert_status(DIBS_OK, dibs_unlock(m->rt, "a"));
    for (int i = 0; i < READERS; i++)
        assert_status(DIBS_OK, actor_result(crowd.readers[i]));
    for (int i = 0; i < READERS; i++) /* a majority each, and not the same one: none may say that three share it */
        assert_status(DIBS_OK, actor_check(crowd.readers[i], crowd.rts[i], "a"));
    crowd_leave(&crowd);
}

/* -------------------------------------------------------- leases and losses */

TEST_ON_THREE_AND_FIVE(shared_leases_are_renewed_though_a_minority_is_down, masters *m)
{
    masters_open_connected(m, SAFE_LEASE_MS);
    dibs_runtime *other = test_runtime(masters_open_another(m, SAFE_LEASE_MS));
    struct crowd crowd = crowd_share(m, other);
    await_sharers(m, READERS, m->count); /* a slow master has them after the next renewal */
    masters_each(m, m->count - m->majority, server_pause);
    uint64_t renewed = stats_of(other).renewed;
    await_renewed(other, renewed + 8);
    for (int i = 0; i < READERS; i++)
        assert_status(DIBS_OK, actor_check(crowd.readers[i], crowd.rts[i], "a"));
    actor *late = actor_start();
    assert_status(DIBS_OK, actor_lock_with(late, other, "a", LIMIT_MS, &shared));
    assert_status(DIBS_OK, actor_unlock(late, other, "a"));
    masters_each(m, m->count - m->majority, server_resume);
    crowd_leave(&crowd);
    assert_status(DIBS_OK, dibs_timedlock(m->rt, "a", LIMIT_MS));
    assert_status(DIBS_OK, dibs_unlock(m->rt, "a"));
    assert_int_equal(stats_of(m->rt).lost + stats_of(other).lost, 0);
}

static int count_lost(const struct crowd *crowd)
{
    int lost = 0;

    for (int i = 0; i < READERS; i++)
        lost += actor_check(crowd->readers[i], crowd->rts[i], "a") == DIBS_LOST;
    return lost;
}

/* Once is enough, but where the machine is slow: a renewal sets the first key again before the last is deleted. */
static void delete_until_lost(masters *m, const struct crowd *crowd)
{
    int64_t end = now_ms() + LIMIT_MS;

    while (count_lost(crowd) < READERS) {
        masters_do(m, m->count, "DEL lock:a");
        int64_t next = now_ms() + SOON_MS;
        while (count_lost(crowd) < READERS && now_ms() < next)
            assert_true(now_ms() < end);
    }
}

TEST_ON_THREE_AND_FIVE(a_share_lost_by_a_minority_is_set_again_and_by_a_majority_is_lost, masters *m)
{
    masters_open_patient(m, SAFE_LEASE_MS);
    dibs_runtime *other = test_runtime(masters_open_another(m, SAFE_LEASE_MS));
    struct crowd crowd = crowd_share(m, other);
    await_sharers(m, READERS, m->count);
    server_do(m->servers[0], "DEL lock:a dibs:share:{lock:a}");
    await_sharers(m, READERS, m->count);
    for (int i = 0; i < READERS; i++)
        assert_status(DIBS_OK, actor_check(crowd.readers[i], crowd.rts[i], "a"));
    assert_status(DIBS_BUSY, dibs_trylock(m->rt, "a"));
    delete_until_lost(m, &crowd);
    for (int i = 0; i < READERS; i++)
        assert_status(DIBS_LOST, actor_unlock(crowd.readers[i], crowd.rts[i], "a"));
}

/* Once is enough, but where the machine takes 100 ms from master to master: a renewal in between sets the lock again.
 */
static void force_until_lost(masters *m, const char *token, const struct crowd *crowd, int count)
{
    int64_t end = now_ms() + LIMIT_MS;

    while (count_lost(crowd) < count) {
        dibs_status status = dibs_force_unlock(m->rt, "a", token);
        assert_true(status == DIBS_OK || status == DIBS_NOT_HELD);
        int64_t next = now_ms() + SOON_MS;
        while (count_lost(crowd) < count && now_ms() < next)
            assert_true(now_ms() < end);
    }
    assert_int_equal(count_lost(crowd), count);
}

TEST_ON_THREE_AND_FIVE(a_forced_unlock_on_a_quorum_ends_one_sharer_or_all, masters *m)
{
    masters_open_connected(m, 0);
    dibs_runtime *other = test_runtime(masters_open_another(m, 0));
    struct crowd crowd = crowd_share(m, other);
    await_sharers(m, READERS, m->count);
    for (size_t i = 0; i < m->count; i++)
        await_tracked(m->servers[i], other, 2);
    dibs_owner newest = owner_of(m->rt, "a");
    force_until_lost(m, newest.token, &crowd, 1);
    await_told(other, READERS - 1);
    force_until_lost(m, NULL, &crowd, READERS);
    assert_false(owner_of(other, "a").held);
    for (int i = 0; i < READERS; i++)
        assert_status(DIBS_LOST, actor_unlock(crowd.readers[i], crowd.rts[i], "a"));
}

/* Renewals change the key at all masters, and all sharers are told: they look, and change nothing in turn. */
TEST_ON_THREE_AND_FIVE(sharers_on_a_quorum_do_not_renew_because_of_renewals, masters *m)
{
    masters_open_connected(m, SAFE_LEASE_MS);
    dibs_runtime *other = test_runtime(masters_open_another(m, SAFE_LEASE_MS));
    struct crowd crowd = crowd_share(m, other);
    await_sharers(m, READERS, m->count);
    for (size_t i = 0; i < m->count; i++)
        await_tracked(m->servers[i], other, 2);
    long long before = masters_asks(m, 0);
    pause_ms(3LL * SAFE_LEASE_MS);
    await_invalidations(other, 1);
    long long scripts = masters_asks(m, 0) - before;
    print_message("# %lld scripts\n", scripts);
    assert_true(scripts < 200); /* some 40; else each has the other renew every few ms */
    crowd_leave(&crowd);
}

/* ---------------------------------------------------------------------- tasks */

TEST_ON_THREE_AND_FIVE(tasks_share_a_lock_of_a_quorum_and_a_writer_waits_for_all, masters *m)
{
    dibs_task *readers[READERS], *writer;

    masters_open_connected(m, LONG_LEASE_MS);
    dibs_queue *q = test_queue(queue_new());
    writer = test_task(task_of_runtime(m->rt));
    for (int i = 0; i < READERS; i++) {
        readers[i] = task_of_runtime(m->rt);
        assert_status(DIBS_OK, task_lock_with(readers[i], "a", LIMIT_MS, &shared, q));
    }
    await_told(m->rt, READERS);
    begin_lock(writer, "a", LIMIT_MS, NULL, q);
    for (int i = 0; i < READERS; i++)
        dibs_task_free(readers[i]); /* gives up what it holds */
    expect_done(q, DIBS_DONE_LOCK, DIBS_OK, writer);
    assert_status(DIBS_OK, task_unlock(writer, "a", q));
}

TESTS(masters_setup_3, masters_teardown)
