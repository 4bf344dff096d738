/* Locks on a cluster: where they lie, and how they are followed when their slots move. */
#include "integration/cluster_setup.h"
#include "support/tracking.h"

#define NAMES 60

static int setup(void **state)
{
    return setup_with(state, NULL);
}

/* ----------------------------------------------------------------- where they lie */

TEST_ON(locks_spread_over_the_nodes, struct scene *s)
{
    unsigned at[3] = {0};

    open_on_cluster(s, LONG_LEASE_MS);
    for (int i = 0; i < NAMES; i++)
        assert_status(DIBS_OK, dibs_trylock(s->rt, formatted("spread%d", i)));
    for (int i = 0; i < NAMES; i++) {
        const char *name = formatted("spread%d", i);
        for (int n = 0; n < 3; n++)
            at[n] += has_lock(s->c->nodes[n], name);
        assert_status(DIBS_OK, dibs_unlock(s->rt, name));
    }
    for (int n = 0; n < 3; n++)
        assert_true(at[n] > 0);
    assert_int_equal(at[0] + at[1] + at[2], NAMES);
}

TEST_ON(names_with_one_hash_tag_are_at_one_node, struct scene *s)
{
    unsigned at = 0;

    open_on_cluster(s, LONG_LEASE_MS);
    server *owner = cluster_owner(s->c, cluster_slot(s->c, "{tag}"));
    for (int i = 0; i < 10; i++) {
        const char *name = formatted("%d{tag}", i);
        assert_status(DIBS_OK, dibs_trylock(s->rt, name));
        at += has_lock(owner, name);
        assert_status(DIBS_OK, dibs_unlock(s->rt, name));
    }
    assert_int_equal(at, 10);
}

TEST_ON(a_name_whose_sidecars_lie_elsewhere_is_refused, struct scene *s)
{
    dibs_owner owner;

    open_on_cluster(s, LONG_LEASE_MS);
    assert_status(DIBS_INVALID, dibs_trylock(s->rt, "a}b"));
    assert_status(DIBS_INVALID, dibs_timedlock(s->rt, "{}x", LIMIT_MS));
    assert_status(DIBS_INVALID, dibs_query(s->rt, "}", &owner));
    assert_status(DIBS_INVALID, dibs_force_unlock(s->rt, "}", NULL));
}

/* -------------------------------------------------------------- slots that have moved */

TEST_ON(a_slot_that_has_moved_is_followed, struct scene *s)
{
    server *from = s->c->nodes[2], *to = other_than(s, from);

    open_on_cluster(s, LONG_LEASE_MS);
    const char *name = new_name(s, from);
    lock_and_release(s->rt, name, 0);
    /* The connection of the calls and the scheduler's: each begins with a script. */
    await_that(server_clients(from) >= 2);
    cluster_move_slot(s->c, slot_of(s, name), to);
    long long asks = server_asks(from);
    assert_status(DIBS_OK, dibs_trylock(s->rt, name));
    assert_true(has_lock(to, name));
    dibs_owner owner = owner_of(s->rt, name);
    assert_true(owner.held);
    assert_status(DIBS_OK, dibs_unlock(s->rt, name));
    assert_false(has_lock(to, name));
    assert_int_equal(server_asks(from), asks); /* a redirection costs no script, and is remembered */
}

/* Where threads hand nothing over, the release asks for the next one in the same round trip: at the lock's node. */
TEST_ON(a_release_asks_for_the_next_waiter_as_well, struct scene *s)
{
    server *from = s->c->nodes[0], *to = other_than(s, from);
    actor *other = actor_start();

    s->config.handoff_ms = DIBS_NO_HANDOFF;
    open_on_cluster(s, LONG_LEASE_MS);
    const char *name = new_name(s, from);
    for (int moved = 0; moved < 2; moved++) {
        assert_status(DIBS_OK, dibs_lock(s->rt, name));
        actor_begin_lock(other, s->rt, name, LIMIT_MS);
        actor_await_asleep(other);
        if (moved)
            cluster_move_slot(s->c, slot_of(s, name), to);
        assert_status(DIBS_OK, dibs_unlock(s->rt, name));
        assert_status(DIBS_OK, actor_result(other));
        assert_true(has_lock(moved ? to : from, name));
        assert_status(DIBS_OK, actor_check(other, s->rt, name));
        assert_status(DIBS_OK, actor_unlock(other, s->rt, name));
        assert_false(has_lock(moved ? to : from, name));
    }
}

TEST_ON(a_lock_that_is_held_moves_with_its_slot, struct scene *s)
{
    server *from = s->c->nodes[1], *to = other_than(s, from);

    open_on_cluster(s, SAFE_LEASE_MS);
    const char *name = new_name(s, from);
    assert_status(DIBS_OK, dibs_lock(s->rt, name));
    uint64_t fence = fence_of(s->rt, name);
    cluster_move_slot(s->c, slot_of(s, name), to);
    uint64_t renewed = stats_of(s->rt).renewed;
    pause_ms(2 * SAFE_LEASE_MS);
    assert_status(DIBS_OK, dibs_check(s->rt, name));
    assert_true(stats_of(s->rt).renewed > renewed);
    assert_true(has_lock(to, name));
    assert_status(DIBS_OK, dibs_unlock(s->rt, name));
    assert_status(DIBS_OK, dibs_lock(s->rt, name));
    assert_true(fence_of(s->rt, name) > fence);
    assert_status(DIBS_OK, dibs_unlock(s->rt, name));
}

/*
 * Whether the node tells is found out by a key in the slot of the first lock that was watched there. That slot moves
 * away, and then the connection breaks that was told.
 */
TEST_ON(a_node_tells_of_changes_though_that_slot_has_moved, struct scene *s)
{
    server *from = s->c->nodes[2];
    const char *name[3];

    open_on_cluster(s, SAFE_LEASE_MS);
    for (int i = 0; i < 3; i++)
        name[i] = new_name(s, from);
    assert_status(DIBS_OK, dibs_lock(s->rt, name[0]));
    await_tracked(from, s->rt, 1);
    assert_status(DIBS_OK, dibs_lock(s->rt, name[1]));
    await_tracked(from, s->rt, 2);
    cluster_move_slot(s->c, slot_of(s, name[0]), other_than(s, from));
    long long calls = tracking_calls(from), pairs = tracked_pairs(from);
    kill_tracker(from);
    await_tracking_again(from, s->rt, calls);
    assert_status(DIBS_OK, dibs_lock(s->rt, name[2]));
    await_tracked(from, s->rt, pairs + 1);
    for (int i = 0; i < 3; i++)
        assert_status(DIBS_OK, dibs_unlock(s->rt, name[i]));
}

/* The new node has told nobody yet, and the old one never tells again. */
TEST_ON(a_change_is_told_by_the_node_that_the_slot_has_moved_to, struct scene *s)
{
    server *from = s->c->nodes[1], *to = s->c->nodes[2];

    const char *name = new_name(s, from);
    open_on_cluster(s, SAFE_LEASE_MS);
    assert_status(DIBS_OK, dibs_lock(s->rt, name));
    await_tracked(from, s->rt, 1);
    long long pairs = tracked_pairs(to);
    cluster_move_slot(s->c, slot_of(s, name), to);
    await_tracked(to, s->rt, pairs + 1);
    server_do(to, "DEL lock:%s", name);
    assert_true(within(SOON_MS, dibs_check(s->rt, name) == DIBS_LOST));
    assert_status(DIBS_LOST, dibs_unlock(s->rt, name));
}

TESTS_OF(setup, teardown, NULL, stop_cluster)
