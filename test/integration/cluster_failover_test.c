/* A master of a cluster is killed, and its replica takes over. */
#include <stdatomic.h>
#include <stdlib.h>

#include "integration/cluster_setup.h"

#define THREADS 8
#define NAMES 100
#define HELD 30

static int setup(void **state)
{
    return setup_with(state, &(cluster_options){.with_replicas = true, .node_timeout_ms = 1000});
}

/* ------------------------------------------------------------------------- the crowd */

/* Threads that lock NAMES names, each with its own index of who is inside. */
struct crowd {
    dibs_runtime *rt;
    atomic_bool ending;
    atomic_int inside[NAMES];
    _Atomic uint64_t fences[NAMES];
    atomic_uint rounds, overlaps, backwards, lost, odd;
};

/* An overlap counts if its holder is not told that the lease was lost. */
static void lock_one(struct crowd *crowd, unsigned i)
{
    char name[32];

    snprintf(name, sizeof name, "crowd%u", i);
    dibs_status status = dibs_timedlock(crowd->rt, name, LIMIT_MS);
    if (status != DIBS_OK) {
        if (status != DIBS_UNAVAILABLE)
            print_error("lock: %s: %s\n", dibs_status_name(status), dibs_last_error());
        atomic_fetch_add(&crowd->odd, status != DIBS_UNAVAILABLE);
        return;
    }
    uint64_t fence = fence_of(crowd->rt, name);
    bool alone = atomic_fetch_add(&crowd->inside[i], 1) == 0;
    bool backwards = atomic_exchange(&crowd->fences[i], fence) >= fence;
    atomic_fetch_sub(&crowd->inside[i], 1);
    status = dibs_unlock(crowd->rt, name);
    atomic_fetch_add(&crowd->overlaps, !alone && status == DIBS_OK);
    atomic_fetch_add(&crowd->backwards, backwards && status == DIBS_OK);
    atomic_fetch_add(&crowd->lost, status == DIBS_LOST);
    atomic_fetch_add(&crowd->rounds, status == DIBS_OK);
}

static void lock_all_the_time(void *arg)
{
    struct crowd *crowd = arg;

    for (unsigned i = 0; !atomic_load(&crowd->ending); i += 7)
        lock_one(crowd, i % NAMES);
}

static bool has_replicated(void *arg)
{
    return server_integer(arg, "WAIT 1 100") == 1;
}

/* What is held while a master is killed is held still, because its replica knew of it. */
static void a_master_is_killed_while_threads_lock(void **state)
{
    static struct crowd crowd;
    struct scene *s = *state;
    actor *actors[THREADS];
    char held[HELD][32];

    s->config.outage_ms = LIMIT_MS;
    open_on_cluster(s, 10 * SAFE_LEASE_MS);
    dibs_runtime *other = open_url(s->c->url, &(dibs_config){.outage_ms = LIMIT_MS});
    memset(&crowd, 0, sizeof crowd);
    crowd.rt = s->rt;
    for (int i = 0; i < HELD; i++) {
        snprintf(held[i], sizeof held[i], "held%d", i);
        assert_status(DIBS_OK, dibs_lock(s->rt, held[i]));
    }
    for (int i = 0; i < 3; i++)
        assert_true(wait_until(has_replicated, s->c->nodes[i], LIMIT_MS));
    for (int i = 0; i < THREADS; i++)
        actor_begin(actors[i] = actor_start(), lock_all_the_time, &crowd);
    pause_ms(300);
    unsigned before = atomic_load(&crowd.rounds);
    server_kill(s->c->nodes[0]);
    server *heir = cluster_await_failover(s->c, 0, s->c->nodes[0]);
    assert_ptr_equal(heir, s->c->nodes[3]);
    const char *name = new_name(s, heir);
    assert_status(DIBS_OK, dibs_timedlock(s->rt, name, LIMIT_MS)); /* by now it is known */
    assert_status(DIBS_OK, dibs_unlock(s->rt, name));
    pause_ms(500);
    atomic_store(&crowd.ending, true);
    for (int i = 0; i < THREADS; i++) {
        actor_finish(actors[i]);
        actor_end(actors[i]);
    }
    print_message("# %u rounds before, %u after, %u lost\n", before, atomic_load(&crowd.rounds) - before,
                  atomic_load(&crowd.lost));
    assert_true(atomic_load(&crowd.rounds) > before);
    assert_int_equal(atomic_load(&crowd.overlaps), 0);
    assert_int_equal(atomic_load(&crowd.backwards), 0);
    assert_int_equal(atomic_load(&crowd.odd), 0);
    for (int i = 0; i < HELD; i++) {
        assert_status(DIBS_OK, dibs_check(s->rt, held[i]));
        assert_status(DIBS_BUSY, dibs_trylock(other, held[i]));
        assert_status(DIBS_OK, dibs_unlock(s->rt, held[i]));
    }
    dibs_close(other);
    server_restart(s->c->nodes[0]);
    cluster_await_ok(s->c);
}

/* The replica did not hear of the lock: the holder restores it there. */
static void what_the_new_master_does_not_know_is_restored(void **state)
{
    struct scene *s = *state;
    server *master = s->c->nodes[1], *replica = s->c->nodes[4];
    char name[32];

    s->config.outage_ms = LIMIT_MS;
    open_on_cluster(s, 10 * SAFE_LEASE_MS);
    snprintf(name, sizeof name, "%s", new_name(s, master));
    unsigned slot = slot_of(s, name);
    assert_status(DIBS_OK, dibs_lock(s->rt, name));
    uint64_t fence = fence_of(s->rt, name);
    server_do(replica, "ACL SETUSER default -eval -evalsha"); /* nobody renews before the lock is gone */
    server_kill(master);
    assert_ptr_equal(cluster_await_failover(s->c, slot, master), replica);
    server_do(replica, "DEL lock:%s dibs:fence:{lock:%s}", name, name);
    server_do(replica, "ACL SETUSER default +eval +evalsha");
    int64_t end = now_ms() + LIMIT_MS;
    while (!has_lock(replica, name) && now_ms() < end)
        pause_ms(20);
    assert_true(has_lock(replica, name));
    assert_status(DIBS_OK, dibs_check(s->rt, name));
    assert_status(DIBS_OK, dibs_unlock(s->rt, name));
    assert_status(DIBS_OK, dibs_lock(s->rt, name));
    assert_true(fence_of(s->rt, name) > fence);
    assert_status(DIBS_OK, dibs_unlock(s->rt, name));
    server_restart(master);
    cluster_await_ok(s->c);
}

/* A URL that names a replica: it tells where the masters are, and is not needed any more. */
static void clients_of(server *node, long long *count)
{
    redisReply *reply = server_command(node, "CLIENT LIST");

    *count = 0;
    for (const char *at = reply->str; (at = strstr(at, "name=dibs:")); at++)
        ++*count;
    freeReplyObject(reply);
}

static bool has_no_client(void *arg)
{
    long long count;

    clients_of(arg, &count);
    return count == 0;
}

static void a_node_that_is_not_needed_is_left(void **state)
{
    struct scene *s = *state;
    server *replica = s->c->nodes[5];
    long long count;
    char url[80];

    snprintf(url, sizeof url, "redis-cluster://127.0.0.1:%d", replica->port);
    s->urls[0] = url;
    open_on_cluster(s, LONG_LEASE_MS);
    assert_status(DIBS_OK, dibs_lock(s->rt, "x"));
    clients_of(replica, &count);
    assert_true(count > 0);
    assert_true(wait_until(has_no_client, replica, LIMIT_MS));
    assert_status(DIBS_OK, dibs_unlock(s->rt, "x"));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_master_is_killed_while_threads_lock),
        CASE(a_node_that_is_not_needed_is_left),
        CASE(what_the_new_master_does_not_know_is_restored),
    };

    return cmocka_run_group_tests_name("cluster failover", tests, NULL, stop_cluster);
}
