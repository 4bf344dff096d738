/* Locks whose slot is in the middle of a migration: ASK, TRYAGAIN, and what is done while slots move. */
#include <arpa/inet.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "integration/cluster_setup.h"
#include "support/queue.h"
#include "support/tracking.h"

#define HELD_UP_MS 150 /* so long something must not come to its end */

static int setup(void **state)
{
    static const cluster_options options = {.node_timeout_ms = 60000}; /* a node that is stopped remains a member */

    return setup_with(state, &options);
}

static void expect_held_up(actor *a)
{
    pause_ms(HELD_UP_MS);
    if (!actor_busy(a))
        fail_msg("the call has ended: %s", dibs_status_name(actor_result(a)));
}

/* A name whose slot is being moved: from that node to the next. */
struct moving {
    const char *name;
    unsigned slot;
    server *from, *to;
};

static struct moving name_at(struct scene *s, size_t node)
{
    server *from = s->c->nodes[node];
    const char *name = new_name(s, from);

    return (struct moving){name, slot_of(s, name), from, other_than(s, from)};
}

/* ------------------------------------------------------------------------------ ASK */

/* No node has a key of the lock: a new lock begins at the node that gets the slot. */
TEST_ON(a_new_lock_begins_where_its_slot_goes, struct scene *s)
{
    open_on_cluster(s, SAFE_LEASE_MS);
    struct moving m = name_at(s, 0);
    cluster_open_slot(s->c, m.slot, m.to);
    assert_status(DIBS_OK, dibs_trylock(s->rt, m.name));
    assert_true(has_lock(m.to, m.name));
    dibs_owner owner = owner_of(s->rt, m.name);
    assert_true(owner.held);
    pause_ms(2 * SAFE_LEASE_MS); /* it is renewed there, too */
    assert_status(DIBS_OK, dibs_check(s->rt, m.name));
    uint64_t fence = fence_of(s->rt, m.name);
    assert_status(DIBS_OK, dibs_extend(s->rt, m.name, LONG_LEASE_MS));
    assert_status(DIBS_OK, dibs_unlock(s->rt, m.name));
    assert_false(has_lock(m.to, m.name));
    cluster_close_slot(s->c, m.slot, m.to);
    assert_status(DIBS_OK, dibs_trylock(s->rt, m.name));
    assert_true(fence_of(s->rt, m.name) > fence);
    assert_status(DIBS_OK, dibs_unlock(s->rt, m.name));
}

TEST_ON(a_lock_that_moved_before_its_slot_is_followed, struct scene *s)
{
    open_on_cluster(s, SAFE_LEASE_MS);
    struct moving m = name_at(s, 1);
    assert_status(DIBS_OK, dibs_trylock(s->rt, m.name));
    cluster_open_slot(s->c, m.slot, m.to);
    cluster_move_keys(s->c, m.slot, m.to);
    assert_true(has_lock(m.to, m.name));
    pause_ms(2 * SAFE_LEASE_MS);
    assert_status(DIBS_OK, dibs_check(s->rt, m.name));
    assert_status(DIBS_OK, dibs_unlock(s->rt, m.name));
    assert_false(has_lock(m.to, m.name));
    assert_status(DIBS_OK, dibs_trylock(s->rt, m.name));
    assert_status(DIBS_OK, dibs_force_unlock(s->rt, m.name, NULL));
    assert_false(has_lock(m.to, m.name));
    assert_status(DIBS_LOST, dibs_unlock(s->rt, m.name));
    cluster_close_slot(s->c, m.slot, m.to);
    lock_and_release(s->rt, m.name, 0);
}

/* A retraction follows, too: a lock is taken, and its runtime closed, while the old node has no key of the lock. */
TEST_ON(a_retraction_follows_its_slot, struct scene *s)
{
    open_on_cluster(s, LONG_LEASE_MS);
    struct moving m = name_at(s, 2);
    assert_status(DIBS_OK, dibs_trylock(s->rt, m.name));
    cluster_open_slot(s->c, m.slot, m.to);
    cluster_move_keys(s->c, m.slot, m.to);
    close_runtime(&s->rt);
    assert_false(has_lock(m.to, m.name));
    cluster_close_slot(s->c, m.slot, m.to);
    open_on_cluster(s, LONG_LEASE_MS);
    assert_status(DIBS_OK, dibs_trylock(s->rt, m.name));
    cluster_move_slot(s->c, m.slot, m.from);
    close_runtime(&s->rt);
    assert_false(has_lock(m.from, m.name));
}

/* The new node knows a lease that moved with its slot: if the key is gone there, somebody deleted it. */
TEST_ON(a_lock_that_is_deleted_after_a_move_is_not_restored, struct scene *s)
{
    open_on_cluster(s, SAFE_LEASE_MS);
    struct moving m = name_at(s, 0);
    assert_status(DIBS_OK, dibs_lock(s->rt, m.name));
    pause_ms(SAFE_LEASE_MS); /* the server that renews it is known */
    cluster_move_slot(s->c, m.slot, m.to);
    server_do(m.to, "DEL lock:%s", m.name);
    await_lost(s->rt, m.name);
    assert_status(DIBS_LOST, dibs_unlock(s->rt, m.name));
    pause_ms(SAFE_LEASE_MS / 3);
    assert_false(has_lock(m.to, m.name));
}

/* ------------------------------------------------------------------------- TRYAGAIN */

/* The fence is there, the key and the queue are not: the node says TRYAGAIN until all is on one side. */
TEST_ON(an_acquire_waits_for_a_lock_in_two_parts, struct scene *s)
{
    open_on_cluster(s, LONG_LEASE_MS);
    struct moving m = name_at(s, 0);
    lock_and_release(s->rt, m.name, 0);
    cluster_open_slot(s->c, m.slot, m.to);
    actor *a = actor_locking(s->rt, m.name, LIMIT_MS);
    expect_held_up(a);
    cluster_move_keys(s->c, m.slot, m.to);
    assert_status(DIBS_OK, actor_result(a));
    assert_true(has_lock(m.to, m.name));
    cluster_close_slot(s->c, m.slot, m.to);
    assert_status(DIBS_OK, actor_unlock(a, s->rt, m.name));
}

TEST_ON(a_release_waits_for_a_lock_in_two_parts, struct scene *s)
{
    actor *a = actor_start();

    open_patient_on_cluster(s, LONG_LEASE_MS);
    struct moving m = name_at(s, 0);
    assert_status(DIBS_OK, actor_lock(a, s->rt, m.name, 0));
    cluster_open_slot(s->c, m.slot, m.to);
    actor_begin_unlock(a, s->rt, m.name);
    expect_held_up(a);
    cluster_move_keys(s->c, m.slot, m.to);
    assert_status(DIBS_OK, actor_result(a));
    assert_false(has_lock(m.to, m.name));
    cluster_close_slot(s->c, m.slot, m.to);
}

/*
 * The node has all keys, so it runs the script, which deletes the lock's before it sets it for the next thread: that is
 * refused, because a key that is gone may be at the other node by now. An entry of a dead waiter makes all keys be
 * there.
 */
TEST_ON(a_release_that_a_migration_cuts_short_is_no_loss, struct scene *s)
{
    actor *a = actor_start(), *b = actor_start();

    s->config.command_timeout_ms = LIMIT_MS;
    s->config.handoff_ms = DIBS_NO_HANDOFF;
    open_on_cluster(s, LONG_LEASE_MS);
    struct moving m = name_at(s, 0);
    assert_status(DIBS_OK, actor_lock(a, s->rt, m.name, 0));
    actor_begin_lock(b, s->rt, m.name, DIBS_WAIT_FOREVER);
    assert_true(comes_to(s->rt, STAT(contended), 1));
    server_do(m.from, "HSET dibs:queue:{lock:%s} %b %s 1 %s dead:1 %s", m.name, "", (size_t)0, "1 1 1 9999999999",
              "1 1000 1000 6 dibs:9dead:1", "1 1");
    cluster_open_slot(s->c, m.slot, m.to);
    actor_begin_unlock(a, s->rt, m.name);
    await_that(!has_lock(m.from, m.name));
    cluster_move_keys(s->c, m.slot, m.to);
    cluster_close_slot(s->c, m.slot, m.to);
    assert_status(DIBS_OK, actor_result(a));
    actor_gets(b, s->rt, m.name);
}

/* After outage_ms it is given up. */
TEST_ON(a_migration_is_waited_for_no_longer_than_an_outage, struct scene *s)
{
    s->config.outage_ms = 300;
    open_on_cluster(s, LONG_LEASE_MS);
    struct moving m = name_at(s, 1);
    lock_and_release(s->rt, m.name, 0);
    cluster_open_slot(s->c, m.slot, m.to);
    int64_t before = now_ms();
    assert_status(DIBS_UNAVAILABLE, dibs_timedlock(s->rt, m.name, LIMIT_MS));
    assert_true(now_ms() - before >= 300);
    cluster_move_keys(s->c, m.slot, m.to);
    cluster_close_slot(s->c, m.slot, m.to);
    lock_and_release(s->rt, m.name, 0);
}

/* ---------------------------------------------------------------------- CLUSTERDOWN */

TEST_ON(an_acquire_waits_for_a_slot_without_a_node, struct scene *s)
{
    open_patient_on_cluster(s, LONG_LEASE_MS);
    struct moving m = name_at(s, 2);
    lock_and_release(s->rt, m.name, 0);
    server_do(m.from, "DEL dibs:fence:{lock:%s}", m.name);
    server_do(m.from, "CLUSTER DELSLOTS %u", m.slot);
    actor *a = actor_locking(s->rt, m.name, LIMIT_MS);
    expect_held_up(a);
    server_do(m.from, "CLUSTER ADDSLOTS %u", m.slot);
    actor_gets(a, s->rt, m.name);
    actor_end(a);
    cluster_await_ok(s->c);
}

/* ----------------------------------------------------------------------- in doubt */

/* The port at this end of a connection to the node: `wanted`, or any if that is 0. 0: there is none. */
static unsigned own_port(const server *node, unsigned wanted)
{
    for (int fd = 0; fd < 1024; fd++) {
        struct sockaddr_in own = {0}, its = {0};
        socklen_t size = sizeof own, its_size = sizeof its;
        if (getsockname(fd, (struct sockaddr *)&own, &size) != 0 || own.sin_family != AF_INET ||
            getpeername(fd, (struct sockaddr *)&its, &its_size) != 0 || ntohs(its.sin_port) != node->port)
            continue;
        if (!wanted || ntohs(own.sin_port) == wanted)
            return ntohs(own.sin_port);
    }
    return 0;
}

/*
 * A node is stopped until the connection is given up because of another ask, whose time is over. Then it executes the
 * ask, which is not too late, and the asking thread can't know that. No connection to the node can be made meanwhile,
 * and the lock of nobody moves along with its slot.
 */
TEST_ON(an_ask_in_doubt_moves_with_its_slot, struct scene *s)
{
    enum { TIMEOUT_MS = 6000 }; /* the ask is in time for half of it after the other has ended */
    actor *hasty = actor_start(), *a = actor_start();

    s->config.command_timeout_ms = TIMEOUT_MS;
    s->config.outage_ms = LIMIT_MS;
    open_on_cluster(s, 10 * LONG_LEASE_MS);
    const char *other = new_name(s, s->c->nodes[2]);
    struct moving m = name_at(s, 2);
    lock_and_release(s->rt, m.name, 0);
    unsigned port = own_port(m.from, 0);
    assert_int_not_equal(port, 0);
    server_do(m.from, "CONFIG SET maxclients 1");
    server_pause(m.from);
    actor_begin_lock(hasty, s->rt, other, 0);
    pause_ms(TIMEOUT_MS / 2);
    actor_begin_lock(a, s->rt, m.name, LIMIT_MS);
    assert_status(DIBS_UNAVAILABLE, actor_result(hasty));
    await_that(own_port(m.from, port) == 0);
    server_resume(m.from);
    await_or_say(has_lock(m.from, m.name), "the ask was not executed");
    assert_true(actor_busy(a));
    const char *before = server_text(m.from, "GET lock:%s", m.name);
    cluster_move_slot(s->c, m.slot, m.to);
    assert_status(DIBS_OK, actor_result(a));
    assert_string_not_equal(server_text(m.to, "GET lock:%s", m.name), before);
    assert_status(DIBS_OK, actor_unlock(a, s->rt, m.name));
    server_do(m.from, "CONFIG SET maxclients 10000");
}

/* --------------------------------------------------------------------- retractions */

/*
 * A slot is being moved to a node that is stopped. The unlock of a lock in it fails, and its retraction
 * waits at that node, to which the other one redirects it. Then the slot stays where it was, which changes nothing in
 * the map of the slots: the retraction must come back by itself, and is the only script that the other node is sent.
 */
TEST_ON(a_retraction_leaves_a_node_that_is_away, struct scene *s)
{
    s->config.command_timeout_ms = 1000;
    open_on_cluster(s, 10 * LONG_LEASE_MS);
    struct moving m = name_at(s, 0);
    assert_status(DIBS_OK, dibs_trylock(s->rt, m.name));
    cluster_open_slot(s->c, m.slot, m.to);
    cluster_move_keys(s->c, m.slot, m.to);
    server_pause(m.to);
    assert_status(DIBS_UNAVAILABLE, dibs_unlock(s->rt, m.name));
    long long before = server_asks(m.from);
    server_do(m.from, "CLUSTER SETSLOT %u STABLE", m.slot);
    server_await_ask(m.from, before);
    server_resume(m.to);
    server_do(m.to, "CLUSTER SETSLOT %u STABLE", m.slot);
    server_do(m.to, "FLUSHDB");
}

/* --------------------------------------------------------------------------- shared */

static const dibs_lock_options shared = {.flags = DIBS_SHARED};

static void move_sharers(struct scene *s, const struct moving *m)
{
    cluster_move_key(s->c, formatted("dibs:share:{lock:%s}", m->name), m->to);
}

/* Two clients share the lock, and one waits for it exclusively. */
struct sharing {
    actor *readers[2], *writer;
};

static struct sharing begin_sharing(struct scene *s, const struct moving *m)
{
    struct sharing sharing = {.writer = actor_start()};

    for (int i = 0; i < 2; i++) {
        sharing.readers[i] = actor_start();
        assert_status(DIBS_OK, actor_lock_with(sharing.readers[i], s->rt, m->name, 0, &shared));
    }
    actor_begin_lock(sharing.writer, s->rt, m->name, LIMIT_MS);
    queue_await(m->from, m->name, 1);
    return sharing;
}

static void end_sharing(struct scene *s, const char *name, struct sharing *sharing)
{
    assert_true(actor_busy(sharing->writer));
    assert_status(DIBS_OK, actor_unlock(sharing->readers[1], s->rt, name));
    actor_gets(sharing->writer, s->rt, name);
    for (int i = 0; i < 2; i++)
        actor_end(sharing->readers[i]);
    actor_end(sharing->writer);
}

/* The other node already knows the sharers; the node that has the remaining keys does not. */
TEST_ON(a_sharer_waits_for_the_rest_of_its_lock, struct scene *s)
{
    open_patient_on_cluster(s, LONG_LEASE_MS);
    struct moving m = name_at(s, 0);
    struct sharing sharing = begin_sharing(s, &m);
    cluster_open_slot(s->c, m.slot, m.to);
    move_sharers(s, &m);
    actor_begin_unlock(sharing.readers[0], s->rt, m.name);
    expect_held_up(sharing.readers[0]);
    cluster_move_keys(s->c, m.slot, m.to);
    assert_status(DIBS_OK, actor_result(sharing.readers[0]));
    cluster_close_slot(s->c, m.slot, m.to);
    end_sharing(s, m.name, &sharing);
}

static void move_all_but_sharers(struct scene *s, const struct moving *m)
{
    static const char *const keys[] = {"lock:%s", "dibs:fence:{lock:%s}", "dibs:queue:{lock:%s}"};

    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        cluster_move_key(s->c, formatted(keys[i], m->name), m->to);
}

/* Its process is told that the key was deleted, and looks at the lease at the other node, which has no more yet. */
TEST_ON(a_sharer_is_not_lost_when_only_the_lock_has_moved, struct scene *s)
{
    open_patient_on_cluster(s, LONG_LEASE_MS);
    struct moving m = name_at(s, 1);
    const char *lock = formatted("lock:%s", m.name);
    struct sharing sharing = begin_sharing(s, &m);
    await_that(tracked_pairs(m.from) > 0);
    server_do(m.to, "CONFIG RESETSTAT");
    cluster_open_slot(s->c, m.slot, m.to);
    cluster_move_key(s->c, lock, m.to);
    /* Whether a client has been told by the next node to try again, or takes its lease for lost. */
    await_that(server_calls(m.to, "asking") > 1 || actor_check(sharing.readers[0], s->rt, m.name) != DIBS_OK);
    cluster_move_keys(s->c, m.slot, m.to);
    cluster_close_slot(s->c, m.slot, m.to);
    for (int i = 0; i < 2; i++)
        assert_status(DIBS_OK, actor_check(sharing.readers[i], s->rt, m.name));
    assert_status(DIBS_OK, actor_unlock(sharing.readers[0], s->rt, m.name));
    end_sharing(s, m.name, &sharing);
}

/* The other way round. */
TEST_ON(a_sharer_waits_until_its_part_has_moved, struct scene *s)
{
    open_patient_on_cluster(s, LONG_LEASE_MS);
    struct moving m = name_at(s, 1);
    struct sharing sharing = begin_sharing(s, &m);
    cluster_open_slot(s->c, m.slot, m.to);
    move_all_but_sharers(s, &m);
    actor_begin_unlock(sharing.readers[0], s->rt, m.name);
    expect_held_up(sharing.readers[0]);
    cluster_move_keys(s->c, m.slot, m.to);
    assert_status(DIBS_OK, actor_result(sharing.readers[0]));
    cluster_close_slot(s->c, m.slot, m.to);
    end_sharing(s, m.name, &sharing);
}

/* Nobody may begin to share the lock while the other node still has its sharers. */
TEST_ON(a_new_sharer_waits_until_the_sharers_have_moved, struct scene *s)
{
    actor *reader = actor_start();

    open_patient_on_cluster(s, LONG_LEASE_MS);
    struct moving m = name_at(s, 2);
    assert_status(DIBS_OK, dibs_lock_with(s->rt, m.name, 0, &shared));
    uint64_t fence = fence_of(s->rt, m.name);
    assert_status(DIBS_OK, dibs_unlock(s->rt, m.name));
    cluster_open_slot(s->c, m.slot, m.to);
    move_all_but_sharers(s, &m);
    actor_begin_lock_with(reader, s->rt, m.name, LIMIT_MS, &shared);
    expect_held_up(reader);
    cluster_move_keys(s->c, m.slot, m.to);
    assert_status(DIBS_OK, actor_result(reader));
    cluster_close_slot(s->c, m.slot, m.to);
    dibs_hold hold;
    assert_status(DIBS_OK, actor_hold(reader, s->rt, m.name, &hold));
    assert_true(hold.fence > fence);
    assert_status(DIBS_OK, actor_unlock(reader, s->rt, m.name));
}

struct forgetting {
    dibs_runtime *rt;
    const char *name;
    dibs_status status;
};

static void forget(void *arg)
{
    struct forgetting *call = arg;

    call->status = dibs_forget(call->rt, call->name);
}

/* Without its fence, nobody would look for those sharers: the slot could not move after the next one had begun. */
TEST_ON(a_lock_is_forgotten_with_the_sharers_that_have_not_moved, struct scene *s)
{
    actor *a = actor_start();

    open_patient_on_cluster(s, LONG_LEASE_MS);
    struct moving m = name_at(s, 2);
    assert_status(DIBS_OK, dibs_lock_with(s->rt, m.name, 0, &shared));
    assert_status(DIBS_OK, dibs_unlock(s->rt, m.name));
    cluster_open_slot(s->c, m.slot, m.to);
    move_all_but_sharers(s, &m);
    struct forgetting call = {s->rt, m.name, DIBS_OK};
    actor_begin(a, forget, &call);
    expect_held_up(a);
    cluster_move_keys(s->c, m.slot, m.to);
    actor_finish(a);
    assert_status(DIBS_OK, call.status);
    cluster_close_slot(s->c, m.slot, m.to);
    assert_int_equal(server_integer(m.to, "EXISTS dibs:fence:{lock:%s} dibs:share:{lock:%s}", m.name, m.name), 0);
}

/*
 * A lock that was never shared is released to a reader while its slot moves: neither node can know that before the slot
 * has moved, or stays after all.
 */
static void release_to_a_reader(struct scene *s, bool moves)
{
    actor *reader = actor_start(), *holder = actor_start();

    open_patient_on_cluster(s, LONG_LEASE_MS);
    struct moving m = name_at(s, 0);
    assert_status(DIBS_OK, actor_lock(holder, s->rt, m.name, 0));
    actor_begin_lock_with(reader, s->rt, m.name, LIMIT_MS, &shared);
    queue_await(m.from, m.name, 1); /* else the lock is released to nobody */
    cluster_open_slot(s->c, m.slot, m.to);
    actor_begin_unlock(holder, s->rt, m.name);
    expect_held_up(holder);
    assert_true(actor_busy(reader));
    if (moves) {
        cluster_move_keys(s->c, m.slot, m.to);
        cluster_close_slot(s->c, m.slot, m.to);
    } else {
        server_do(m.from, "CLUSTER SETSLOT %u STABLE", m.slot);
        server_do(m.to, "CLUSTER SETSLOT %u STABLE", m.slot);
    }
    assert_status(DIBS_OK, actor_result(holder));
    actor_gets(reader, s->rt, m.name);
}

TEST_ON(a_lock_is_released_to_a_reader_when_its_slot_has_moved, struct scene *s)
{
    release_to_a_reader(s, true);
}

TEST_ON(a_lock_is_released_to_a_reader_when_its_slot_stays, struct scene *s)
{
    release_to_a_reader(s, false);
}

/* ---------------------------------------------------------------- while slots move */

/* A waiter is granted the lock after the move. */
TEST_ON(a_slot_moves_while_its_lock_is_waited_for, struct scene *s)
{
    open_on_cluster(s, LONG_LEASE_MS);
    struct moving m = name_at(s, 1);
    dibs_runtime *holder = test_runtime(open_url(s->c->url, &(dibs_config){.lease_ms = LONG_LEASE_MS}));
    assert_status(DIBS_OK, dibs_lock(holder, m.name));
    uint64_t fence = fence_of(holder, m.name);
    actor *a = actor_locking(s->rt, m.name, LIMIT_MS);
    queue_await(m.from, m.name, 1);
    cluster_move_slot(s->c, m.slot, m.to);
    assert_status(DIBS_OK, dibs_unlock(holder, m.name));
    assert_status(DIBS_OK, actor_result(a));
    dibs_hold hold;
    assert_status(DIBS_OK, actor_hold(a, s->rt, m.name, &hold));
    assert_true(hold.fence > fence);
    assert_status(DIBS_OK, actor_unlock(a, s->rt, m.name));
}

#define THREADS 4
#define NAMES 12
#define MOVES 40

struct crowd {
    dibs_runtime *rt;
    atomic_bool ending;
    atomic_int inside[NAMES];
    _Atomic uint64_t fences[NAMES];
    atomic_uint rounds, overlaps, backwards, failures;
    const char *names[NAMES];
};

static bool has_failed(struct crowd *crowd, dibs_status status)
{
    if (status == DIBS_OK)
        return false;
    print_error("%s: %s\n", dibs_status_name(status), dibs_last_error());
    atomic_fetch_add(&crowd->failures, 1);
    return true;
}

static void lock_all_the_time(void *arg)
{
    struct crowd *crowd = arg;
    unsigned i = 0;

    while (!atomic_load(&crowd->ending)) {
        i = (i + 7) % NAMES;
        if (has_failed(crowd, dibs_timedlock(crowd->rt, crowd->names[i], LIMIT_MS)))
            continue;
        uint64_t fence = fence_of(crowd->rt, crowd->names[i]);
        atomic_fetch_add(&crowd->overlaps, (unsigned)atomic_fetch_add(&crowd->inside[i], 1));
        atomic_fetch_add(&crowd->backwards, atomic_exchange(&crowd->fences[i], fence) >= fence);
        atomic_fetch_sub(&crowd->inside[i], 1);
        has_failed(crowd, dibs_unlock(crowd->rt, crowd->names[i]));
        atomic_fetch_add(&crowd->rounds, 1);
    }
}

TEST_ON(slots_move_to_and_fro_while_threads_lock, struct scene *s)
{
    static struct crowd crowd;
    actor *actors[THREADS];

    /* Two nodes may each take the other for the owner of a slot, for more than three seconds (cluster_close_slot). */
    s->config.command_timeout_ms = LIMIT_MS / 2;
    s->config.outage_ms = LIMIT_MS;
    open_on_cluster(s, LONG_LEASE_MS);
    memset(&crowd, 0, sizeof crowd);
    for (int i = 0; i < NAMES; i++)
        crowd.names[i] = new_name(s, s->c->nodes[0]);
    crowd.rt = s->rt;
    for (int i = 0; i < THREADS; i++)
        actor_begin(actors[i] = actor_start(), lock_all_the_time, &crowd);
    await_that(atomic_load(&crowd.rounds) > 0);
    for (int i = 0; i < MOVES; i++) {
        unsigned slot = slot_of(s, crowd.names[i % NAMES]);
        server *owner = cluster_owner(s->c, slot);
        cluster_move_slot(s->c, slot, s->c->nodes[(owner == s->c->nodes[i % 3] ? i + 1 : i) % 3]);
    }
    atomic_store(&crowd.ending, true);
    for (int i = 0; i < THREADS; i++) {
        actor_finish(actors[i]);
        actor_end(actors[i]);
    }
    print_message("# %u rounds\n", atomic_load(&crowd.rounds));
    assert_int_equal(atomic_load(&crowd.overlaps), 0);
    assert_int_equal(atomic_load(&crowd.backwards), 0);
    assert_int_equal(atomic_load(&crowd.failures), 0);
    assert_int_equal(stats_of(s->rt).lost, 0);
}

TESTS_OF(setup, teardown, NULL, stop_cluster)
