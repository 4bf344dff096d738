/*
 * Kept leases on a cluster: each node tells of the changes of its own slots, and a lease is kept only while the node
 * does that has its slot.
 */
#include "integration/cluster_setup.h"
#include "integration/kept_setup.h"

#define NODES 3
#define SOME_PAIRS (3 * IN_A_ROW)
#define TOLD_MS 200 /* by then the store was told that a lease is wanted, or kept */

static int setup(void **state)
{
    static const cluster_options options = {.with_replicas = true, .node_timeout_ms = 60000}; /* no failover */

    return setup_with(state, &options);
}

static void open_keeping_on_cluster(struct scene *s)
{
    s->config.keep_ms = KEEP_LONG_MS;
    open_on_cluster(s, 0);
}

static dibs_runtime *open_other(const struct scene *s)
{
    dibs_config config = {.urls = s->urls, .url_count = 1};
    dibs_runtime *other;

    assert_status(DIBS_OK, open_in_time(&other, &config));
    return other;
}

/* Before a lease that nobody uses would be given back in any case. */
static void await_gone(server *node, const char *name)
{
    assert_true(within(KEEP_LONG_MS / 2, !has_lock(node, name)));
}

/* The fence of the last hold on a name that is kept. */
static uint64_t keep_with_fence(dibs_runtime *rt, const char *name)
{
    keep(rt, name);
    assert_status(DIBS_OK, dibs_lock(rt, name));
    uint64_t fence = fence_of(rt, name);
    assert_status(DIBS_OK, dibs_unlock(rt, name));
    return fence;
}

/* Long before a lease that nobody uses is given back; with a larger fence. */
static void expect_had(dibs_runtime *rt, const char *name, uint64_t fence)
{
    assert_status(DIBS_OK, dibs_timedlock(rt, name, KEEP_LONG_MS / 2));
    assert_true(fence_of(rt, name) > fence);
    assert_status(DIBS_OK, dibs_unlock(rt, name));
}

/* -------------------------------------------------------------------- in quiet */

TEST_ON(names_of_all_nodes_are_kept_and_recalled, struct scene *s)
{
    const char *names[NODES];
    uint64_t fences[NODES];

    open_keeping_on_cluster(s);
    dibs_runtime *other = test_runtime(open_other(s));
    for (size_t i = 0; i < NODES; i++)
        keep(s->rt, names[i] = new_name(
                        s, s->c->nodes[i])); /* when a node is first connected to, what is kept is given back */
    for (size_t i = 0; i < NODES; i++)
        fences[i] = keep_with_fence(s->rt, names[i]);
    assert_int_equal(stats_of(s->rt).kept, NODES);
    uint64_t retaken = stats_of(s->rt).retaken;
    for (size_t i = 0; i < NODES; i++)
        fences[i] = keep_with_fence(s->rt, names[i]);
    assert_int_equal(stats_of(s->rt).retaken, retaken + 2 * NODES);
    for (size_t i = 0; i < NODES; i++) {
        await_shown_kept(other, names[i]);
        expect_had(other, names[i], fences[i]);
    }
    assert_int_equal(stats_of(s->rt).kept, 0);
    assert_int_equal(stats_of(s->rt).lost, 0);
}

/* ------------------------------------------------------------- a node that does not tell */

TEST_ON(what_a_node_kept_is_given_back_when_it_ceases_to_tell, struct scene *s)
{
    open_keeping_on_cluster(s);
    const char *here = new_name(s, s->c->nodes[0]), *there = new_name(s, s->c->nodes[1]);
    keep(s->rt, there);
    keep(s->rt, here);
    keep(s->rt, there);
    await_shown_kept(s->rt, here);
    server_do(s->c->nodes[0], "CLIENT KILL TYPE pubsub");
    await_gone(s->c->nodes[0], here);
    await_gone(s->c->nodes[1], there);
    assert_int_equal(stats_of(s->rt).lost, 0);
    keep(s->rt, here);
    keep(s->rt, there);
}

static int teardown_telling(void **state)
{
    server_do(scene.c->nodes[0], "ACL SETUSER default +client|tracking");
    return teardown(state);
}

/* The others do, so leases are kept; not those of its slots. */
TEST_WITH(nothing_is_kept_of_a_node_that_may_not_tell, setup, teardown_telling, struct scene *s)
{
    server *mute = s->c->nodes[0];

    server_do(mute, "ACL SETUSER default -client|tracking");
    open_keeping_on_cluster(s);
    const char *here = new_name(s, s->c->nodes[0]), *there = new_name(s, s->c->nodes[1]);
    keep(s->rt, there);
    for (int i = 0; i < SOME_PAIRS; i++) {
        lock_and_release(s->rt, here, DIBS_WAIT_FOREVER);
        lock_and_release(s->rt, there, DIBS_WAIT_FOREVER);
        assert_false(has_lock(mute, here));
    }
    keep(s->rt, there);
}

/* ------------------------------------------------------------------- slots that move */

TEST_ON(a_kept_lease_is_given_back_when_its_slot_moves, struct scene *s)
{
    open_keeping_on_cluster(s);
    dibs_runtime *other = test_runtime(open_other(s));
    const char *name = new_name(s, s->c->nodes[0]);
    uint64_t fence = keep_with_fence(s->rt, name);
    await_shown_kept(other, name);
    cluster_move_slot(s->c, slot_of(s, name), s->c->nodes[1]);
    await_gone(s->c->nodes[1], name);
    expect_had(other, name, fence);
    fence = keep_with_fence(s->rt, name);
    await_shown_kept(other, name);
    expect_had(other, name, fence);
}

/*
 * Nobody tells of changes at the node that the slot moves to. What is known of the use of a lease stands at the old
 * node when the lock has moved, and must still follow it, though another process asked for the lock meanwhile.
 */
TEST_ON(nothing_is_kept_while_its_slot_moves, struct scene *s)
{
    server *from = s->c->nodes[1], *to = s->c->nodes[2];

    open_keeping_on_cluster(s);
    dibs_runtime *other = test_runtime(open_other(s));
    const char *name = new_name(s, s->c->nodes[1]);
    unsigned slot = slot_of(s, name);
    uint64_t fence = keep_with_fence(s->rt, name);
    pause_ms(TOLD_MS); /* what was shown before is that it was kept before */
    await_shown_kept(s->rt, name);
    cluster_open_slot(s->c, slot, to);
    cluster_move_key(s->c, formatted("dibs:fence:{lock:%s}", name), to);
    cluster_move_key(s->c, formatted("lock:%s", name), to);
    await_gone(to, name);
    assert_true(has_key(from, formatted("dibs:kept:{lock:%s}", name)));
    for (int i = 0; i < SOME_PAIRS; i++) {
        lock_and_release(s->rt, name, DIBS_WAIT_FOREVER);
        assert_false(has_lock(to, name));
    }
    assert_status(DIBS_OK, dibs_lock(s->rt, name));
    assert_true(fence_of(s->rt, name) > fence);
    actor *a = actor_locking(other, name, LIMIT_MS);
    pause_ms(TOLD_MS);
    assert_status(DIBS_OK, dibs_unlock(s->rt, name));
    actor_gets(a, other, name);
    cluster_move_keys(s->c, slot, to);
    cluster_close_slot(s->c, slot, to);
    keep(s->rt, name);
    assert_int_equal(stats_of(s->rt).lost, 0);
}

/* ---------------------------------------------------------------------------- failover */

TEST_ON(after_a_failover_no_kept_lease_is_taken, struct scene *s)
{
    open_keeping_on_cluster(s);
    const char *here = new_name(s, s->c->nodes[0]), *there = new_name(s, s->c->nodes[1]);
    unsigned slot = slot_of(s, here);
    keep(s->rt, there);
    uint64_t fence = keep_with_fence(s->rt, here);
    await_shown_kept(s->rt, here);
    server_integer(s->c->nodes[0], "WAIT 1 1000");
    for (size_t i = 0; i < s->c->count; i++)
        server_do(s->c->nodes[i], "CONFIG SET cluster-node-timeout 1000"); /* only from now on is there a failover */
    server_kill(s->c->nodes[0]);
    await_none_kept(s->rt);
    uint64_t retaken = stats_of(s->rt).retaken;
    cluster_await_failover(s->c, slot, s->c->nodes[0]);
    assert_status(DIBS_OK, dibs_timedlock(s->rt, here, LIMIT_MS));
    assert_true(fence_of(s->rt, here) > fence);
    assert_int_equal(stats_of(s->rt).retaken, retaken);
    assert_status(DIBS_OK, dibs_unlock(s->rt, here));
    keep(s->rt, here);
}

TESTS_OF(setup, teardown, NULL, stop_cluster)
