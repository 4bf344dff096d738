/* Grants on a cluster of three masters: at every node, before, during and after a slot moves, and after a failover. */
#include "integration/cluster_setup.h"
#include "support/queue.h"

static int setup(void **state)
{
    return setup_with(state, &(cluster_options){.with_replicas = true});
}

/* A second runtime, whose thread waits for a lock that s->rt holds. */
struct waiting {
    struct scene *s;
    dibs_runtime *rt;
    actor *actor;
    const char *name;
    unsigned slot;
};

static struct waiting waiter(struct scene *s, const server *node)
{
    struct waiting w = {.s = s, .actor = actor_start()};

    if (!s->rt)
        open_on_cluster(s, LONG_LEASE_MS);
    w.rt = test_runtime(
        open_url(s->c->url, &(dibs_config){.lease_ms = LONG_LEASE_MS, .outage_ms = LIMIT_MS, .label = "waiter"}));
    w.name = new_name(s, node);
    w.slot = slot_of(s, w.name);
    return w;
}

/* How many subscribers the channel of an entry has at the node. */
static long long listeners(server *node, const char *channel)
{
    bool sharded = channel[strlen(channel) - 1] == '}';
    redisReply *reply = server_command(node, "PUBSUB %s %s", sharded ? "SHARDNUMSUB" : "NUMSUB", channel);
    long long count = reply->element[1]->integer;

    freeReplyObject(reply);
    return count;
}

/* sharded: only a sharded channel will do. */
static bool can_be_told(server *node, const char *name, bool sharded)
{
    queue_entry entry;

    return queue_find(node, name, 0, &entry) && (!sharded || entry.channel[strlen(entry.channel) - 1] == '}') &&
           listeners(node, entry.channel) == 1;
}

/* The waiter begins to wait. */
static void begin(struct waiting *w)
{
    assert_status(DIBS_OK, dibs_timedlock(w->s->rt, w->name, LIMIT_MS));
    actor_begin_lock(w->actor, w->rt, w->name, DIBS_WAIT_FOREVER);
}

/* The waiter is in the queue at the node, and listens there. */
static void await_told(struct waiting *w, server *node)
{
    await_or_say(can_be_told(node, w->name, false), "%s can't be told", w->name);
}

/* The lock is released, and the waiter has it. */
static void pass_on(struct waiting *w)
{
    assert_status(DIBS_OK, dibs_unlock(w->s->rt, w->name));
    assert_status(DIBS_OK, actor_result(w->actor));
}

static void finish(struct waiting *w)
{
    pass_on(w);
    assert_status(DIBS_BUSY, dibs_trylock(w->s->rt, w->name));
    assert_status(DIBS_OK, actor_unlock(w->actor, w->rt, w->name));
}

static void finish_by_push(struct waiting *w)
{
    uint64_t granted = stats_of(w->rt).granted;

    finish(w);
    assert_int_equal(stats_of(w->rt).granted, granted + 1);
}

/*
 * As finish_by_push, where the waiter may have got the lock by an ask of its own, as when it begins to listen at the
 * node: then once more.
 */
static void finish_by_push_at_last(struct waiting *w, server *node)
{
    uint64_t granted = stats_of(w->rt).granted;
    int64_t limit = now_ms() + LIMIT_MS;

    for (finish(w); stats_of(w->rt).granted == granted; finish(w)) {
        assert_that(now_ms() < limit, "%s is never granted by a push", w->name);
        begin(w);
        await_told(w, node);
    }
}

/* Until the sharded channel of the slot is subscribed, entries name the runtime's own. */
static void begin_sharded(struct waiting *w, server *node)
{
    begin(w);
    await_told(w, node);
    for (int64_t limit = now_ms() + LIMIT_MS; !can_be_told(node, w->name, true);) {
        assert_that(now_ms() < limit, "%s never waits on a sharded channel", w->name);
        finish(w);
        begin(w);
        await_told(w, node);
    }
}

/* -------------------------------------------------------------------- at rest */

TEST_ON(grants_arrive_at_every_node, struct scene *s)
{
    for (size_t i = 0; i < s->c->masters; i++) {
        struct waiting w = waiter(s, s->c->nodes[i]);
        begin(&w);
        await_told(&w, s->c->nodes[i]);
        finish_by_push_at_last(&w, s->c->nodes[i]);
        begin_sharded(&w, s->c->nodes[i]);
        finish_by_push(&w);
    }
}

TEST_ON(one_runtime_waits_at_all_nodes, struct scene *s)
{
    struct waiting all[3] = {waiter(s, s->c->nodes[0])};

    for (size_t i = 1; i < 3; i++)
        all[i] = (struct waiting){s, all[0].rt, actor_start(), .name = new_name(s, s->c->nodes[i])};
    for (size_t i = 0; i < 3; i++)
        begin_sharded(&all[i], s->c->nodes[i]);
    for (size_t i = 3; i-- > 0;) /* to begin to listen at one node has those at the others ask once more */
        finish_by_push_at_last(&all[i], s->c->nodes[i]);
}

/*
 * The subscriber of each node receives what is published. The copies arrive when the lock is already held, or held
 * again: none of them ends a hold.
 */
TEST_ON(a_grant_that_arrives_from_all_nodes_is_taken_once, struct scene *s)
{
    struct waiting w = waiter(s, s->c->nodes[0]), others[2];

    for (size_t i = 0; i < 2; i++) { /* from now on it listens at the other nodes, too */
        others[i] = (struct waiting){s, w.rt, w.actor, .name = new_name(s, s->c->nodes[i + 1])};
        begin(&others[i]);
        await_told(&others[i], s->c->nodes[i + 1]);
        finish_by_push_at_last(&others[i], s->c->nodes[i + 1]);
    }
    for (int i = 0; i < 20; i++) { /* each in a slot of its own: the first grant of a slot is published */
        w.name = new_name(s, s->c->nodes[0]);
        begin(&w);
        await_told(&w, s->c->nodes[0]);
        assert_status(DIBS_OK, dibs_unlock(s->rt, w.name));
        actor_gets(w.actor, w.rt, w.name);
        assert_status(DIBS_OK, actor_lock(w.actor, w.rt, w.name, LIMIT_MS));
        assert_status(DIBS_OK, actor_check(w.actor, w.rt, w.name));
        assert_status(DIBS_OK, actor_unlock(w.actor, w.rt, w.name));
    }
    assert_int_equal(stats_of(w.rt).lost, 0);
}

/* ------------------------------------------------------------------ slots move */

/* The lease is long: without a message, the waiter would ask again only after minutes. */
TEST_ON(a_grant_arrives_after_the_slot_has_moved, struct scene *s)
{
    server *from = s->c->nodes[1], *to = other_than(s, from);
    struct waiting w = waiter(s, from);

    begin_sharded(&w, from);
    cluster_move_slot(s->c, w.slot, to);
    await_told(&w, to);
    finish_by_push_at_last(&w, to);
    begin_sharded(&w, to);
    cluster_move_slot(s->c, w.slot, from);
    await_told(&w, from);
    finish_by_push_at_last(&w, from);
    begin_sharded(&w, from); /* the slot that has come back is subscribed to again */
    finish_by_push_at_last(&w, from);
}

/* A waiter that does not listen at the new node yet asks by itself, or because of a hint. */
TEST_ON(a_waiter_gets_a_lock_released_while_its_slot_moves, struct scene *s)
{
    struct waiting w = waiter(s, s->c->nodes[2]);

    for (int i = 0; i < 6; i++) {
        server *from = s->c->nodes[i % 2 == 0 ? 2 : 0], *to = s->c->nodes[i % 2 == 0 ? 0 : 2];
        begin_sharded(&w, from);
        cluster_open_slot(s->c, w.slot, to);
        if (i % 3 == 1)
            pass_on(&w);
        cluster_move_keys(s->c, w.slot, to);
        if (i % 3 == 2)
            pass_on(&w);
        cluster_close_slot(s->c, w.slot, to);
        if (i % 3 == 0)
            pass_on(&w);
        assert_status(DIBS_OK, actor_unlock(w.actor, w.rt, w.name));
    }
}

/* --------------------------------------------------------------------- failover */

/* The waiter's subscriptions are lost with the node. They are made again at the replica that takes its place. */
TEST_ON(a_grant_arrives_after_a_failover, struct scene *s)
{
    server *dead = s->c->nodes[1];
    struct waiting w = waiter(s, dead);

    begin_sharded(&w, dead);
    server_do(dead, "WAIT 1 %d", LIMIT_MS);
    server_kill(dead);
    server *next = cluster_await_failover(s->c, w.slot, dead);
    await_told(&w, next);
    uint64_t granted = stats_of(w.rt).granted;
    dibs_status status = dibs_unlock(s->rt, w.name); /* the holder may not know yet where the slot is */
    assert_true(status == DIBS_OK || status == DIBS_UNAVAILABLE);
    actor_gets(w.actor, w.rt, w.name);
    if (stats_of(w.rt).granted == granted) { /* it asked by itself when it began to listen */
        begin(&w);
        await_told(&w, next);
        finish_by_push_at_last(&w, next);
    }
    begin_sharded(&w, next);
    finish_by_push_at_last(&w, next);
    assert_int_equal(stats_of(s->rt).lost, 0);
}

TESTS_OF(setup, teardown, NULL, stop_cluster)
