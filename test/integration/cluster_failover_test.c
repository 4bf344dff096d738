/* A master of a cluster is killed, and its replica takes over: without TLS, and, where TLS is built in, with it. */
#include <stdatomic.h>

#include "integration/cluster_setup.h"
#include "support/actor.h"
#include "support/queue.h"

#define THREADS 8
#define NAMES 100
#define HELD 30
#define IDLE 12
#define HELD_MS 6000
#define WAITER_LEASE_MS 2000
#define LOOK_MS 95 /* no call gives up sooner: the library's 100 ms, counted from a moment before or after */

/* No master is failed over that merely stands still for a while on a busy machine, unless a test kills one. */
#define CALM_TIMEOUT_MS 20000
#define KILL_TIMEOUT_MS 1000

static int setup(void **state)
{
    return setup_with(state, &(cluster_options){.with_replicas = true, .node_timeout_ms = CALM_TIMEOUT_MS});
}

#ifdef DIBS_WITH_TLS
static int setup_tls(void **state)
{
    static bool is_second;

    if (!is_second)
        stop_cluster(state); /* that of the tests without TLS */
    is_second = true;
    return setup_with(state, &(cluster_options){.with_replicas = true,
                                                .node_timeout_ms = CALM_TIMEOUT_MS,
                                                .config = "cluster-require-full-coverage no\n",
                                                .tls = certificates_folder()});
}
#endif

/* -------------------------------------------------------------------------- failovers */

static void set_node_timeout(cluster *c, const server *dead, int timeout_ms)
{
    for (size_t i = 0; i < c->count; i++)
        if (c->nodes[i] != dead)
            server_do(c->nodes[i], "CONFIG SET cluster-node-timeout %d", timeout_ms);
}

/* The others notice that soon. */
static void kill_master(cluster *c, server *master)
{
    set_node_timeout(c, NULL, KILL_TIMEOUT_MS);
    server_kill(master);
}

/* Waits for the failover of a killed master; returns who has the slot now. */
static server *await_heir(cluster *c, unsigned slot, const server *master)
{
    server *heir = cluster_await_failover(c, slot, master);

    set_node_timeout(c, master, CALM_TIMEOUT_MS);
    return heir;
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
    const char *name = formatted("crowd%u", i);
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

/* A runtime that does not know of the failover yet may report that the store can't be reached, but not for long. */
static dibs_status try_until_heard(dibs_runtime *rt, const char *name)
{
    int64_t end = now_ms() + LIMIT_MS;
    dibs_status status;

    while ((status = dibs_trylock(rt, name)) == DIBS_UNAVAILABLE && now_ms() < end)
        pause_ms(5);
    return status;
}

/* A grant waits for a replica of its own node, also after the slot has moved to another node. */
TEST_ON(replicas_acknowledge_at_each_node, struct scene *s)
{
    const char *names[3];

    s->config.min_replicas = 1;
    s->config.replica_timeout_ms = 300;
    open_on_cluster(s, LONG_LEASE_MS);
    for (int i = 0; i < 3; i++) {
        names[i] = new_name(s, s->c->nodes[i]);
        long long waits = server_calls(s->c->nodes[i], "wait");
        assert_status(DIBS_OK, dibs_timedlock(s->rt, names[i], LIMIT_MS));
        assert_true(has_lock(s->c->nodes[i + 3], names[i])); /* that is what DIBS_OK means */
        assert_true(server_calls(s->c->nodes[i], "wait") > waits);
        assert_status(DIBS_OK, dibs_unlock(s->rt, names[i]));
    }
    server_pause(s->c->nodes[3]);
    assert_status(DIBS_UNAVAILABLE, dibs_trylock(s->rt, names[0]));
    assert_that(strcasestr(dibs_last_error(), "replica"), "%s", dibs_last_error());
    lock_and_release(s->rt, names[1], LIMIT_MS);
    server_resume(s->c->nodes[3]);
    cluster_await_ok(s->c);
    await_that(server_integer(s->c->nodes[0], "WAIT 1 100") == 1); /* Valkey moves no slot without */
    cluster_move_slot(s->c, slot_of(s, names[0]), s->c->nodes[1]);
    long long waits = server_calls(s->c->nodes[1], "wait");
    assert_status(DIBS_OK, dibs_timedlock(s->rt, names[0], LIMIT_MS));
    assert_true(server_calls(s->c->nodes[1], "wait") > waits);
    assert_status(DIBS_OK, dibs_unlock(s->rt, names[0]));
}

TEST_ON(nodes_that_refuse_to_wait_are_told_at_the_open, struct scene *s)
{
    for (size_t i = 0; i < s->c->count; i++)
        server_do(s->c->nodes[i], "ACL SETUSER u on >pw ~* &* +@all -wait");
    const char *url = formatted("redis-cluster://u:pw@127.0.0.1:%d", s->c->nodes[3]->port); /* a replica */
    expect_not_opened(DIBS_DENIED, url, &(dibs_config){.min_replicas = 1}, "refused WAIT");
    dibs_close(open_url(url, &(dibs_config){.lease_ms = LONG_LEASE_MS}));
    for (size_t i = 0; i < s->c->count; i++)
        server_do(s->c->nodes[i], "ACL DELUSER u");
}

/* A lock that is held while a master is killed stays held, because the replica knew of it. */
TEST_ON(threads_go_on_locking_when_a_master_is_killed, struct scene *s)
{
    static struct crowd crowd;
    actor *actors[THREADS];
    const char *held[HELD];

    s->config.outage_ms = LIMIT_MS;
    open_on_cluster(s, 10 * SAFE_LEASE_MS);
    dibs_runtime *other =
        open_url(s->c->url, &(dibs_config){.outage_ms = LIMIT_MS, .tls_ca_file = s->config.tls_ca_file});
    memset(&crowd, 0, sizeof crowd);
    crowd.rt = s->rt;
    for (int i = 0; i < HELD; i++) {
        held[i] = formatted("held%d", i);
        assert_status(DIBS_OK, dibs_lock(s->rt, held[i]));
    }
    for (int i = 0; i < 3; i++)
        await_that(server_integer(s->c->nodes[i], "WAIT 1 100") == 1);
    for (int i = 0; i < THREADS; i++)
        actor_begin(actors[i] = actor_start(), lock_all_the_time, &crowd);
    pause_ms(300);
    unsigned before = atomic_load(&crowd.rounds);
    kill_master(s->c, s->c->nodes[0]);
    server *heir = await_heir(s->c, 0, s->c->nodes[0]);
    assert_ptr_equal(heir, s->c->nodes[3]);
    const char *name = new_name(s, heir);
    assert_status(DIBS_OK, dibs_timedlock(s->rt, name, LIMIT_MS)); /* by now the runtime knows the new master */
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
        assert_status(DIBS_BUSY, try_until_heard(other, held[i]));
        assert_status(DIBS_OK, dibs_unlock(s->rt, held[i]));
    }
    dibs_close(other);
    server_restart(s->c->nodes[0]);
    cluster_await_ok(s->c);
}

/* The URL names a replica. The replica tells where the masters are, and is not needed any more. */
static void clients_of(server *node, long long *count)
{
    redisReply *reply = server_command(node, "CLIENT LIST");

    *count = 0;
    for (const char *at = reply->str; (at = strstr(at, "name=dibs:")); at++)
        ++*count;
    freeReplyObject(reply);
}

static bool has_no_client(server *s)
{
    long long count;

    clients_of(s, &count);
    return count == 0;
}

TEST_ON(the_replica_of_the_url_is_left_once_the_masters_are_known, struct scene *s)
{
    server *replica = s->c->nodes[5];

    s->urls[0] = formatted("%s://127.0.0.1:%d", scheme_of(s), replica->port);
    open_on_cluster(s, LONG_LEASE_MS);
    assert_status(DIBS_OK, dibs_lock(s->rt, "x"));
    await_that(has_no_client(replica));
    assert_status(DIBS_OK, dibs_unlock(s->rt, "x"));
}

/*
 * The old master lives on as a replica, and names the new one, which never heard of the lock. A waiter leaves the lock
 * to its holder as it does where the old one is dead.
 */
TEST_ON(a_waiter_leaves_a_lock_to_its_holder_though_the_old_master_lives, struct scene *s)
{
    server *master = s->c->nodes[1], *replica = s->c->nodes[4];

    open_on_cluster(s, WAITER_LEASE_MS);
    const char *name = new_name(s, master);
    unsigned slot = slot_of(s, name);
    server_do(master, "SET lock:%s dibs:h:host:1:1:%032d:1 PX %d", name, 1, HELD_MS);
    int64_t until = now_ms() + HELD_MS;
    actor *a = actor_locking(s->rt, name, LIMIT_MS);
    queue_await(master, name, 1);
    await_that(server_integer(master, "WAIT 1 100") == 1);
    server_do(replica, "CLUSTER FAILOVER TAKEOVER");
    server_do(replica, "DEL lock:%s dibs:queue:{lock:%s} dibs:fence:{lock:%s}", name, name, name);
    assert_status(DIBS_OK, actor_result(a));
    print_message("# granted %ld ms before the end\n", (long)(until - now_ms()));
    assert_true(now_ms() >= until - HELD_MS / 4);
    assert_status(DIBS_OK, actor_unlock(a, s->rt, name));
    cluster_await_owner(s->c, slot, replica);
    await_that(strstr(server_text(master, "INFO replication"), "master_link_status:up"));
    server_do(master, "CLUSTER FAILOVER TAKEOVER");
    cluster_await_owner(s->c, slot, master);
    await_that(strstr(server_text(replica, "INFO replication"), "master_link_status:up"));
}

/* The lock never reached the replica: the holder restores it there. */
TEST_ON(a_lock_that_the_new_master_does_not_know_is_restored, struct scene *s)
{
    server *master = s->c->nodes[1], *replica = s->c->nodes[4];

    s->config.outage_ms = LIMIT_MS;
    open_on_cluster(s, 10 * SAFE_LEASE_MS);
    const char *name = new_name(s, master);
    unsigned slot = slot_of(s, name);
    assert_status(DIBS_OK, dibs_lock(s->rt, name));
    uint64_t fence = fence_of(s->rt, name);
    server_do(replica, "ACL SETUSER default -eval -evalsha"); /* nobody renews before the lock is gone */
    kill_master(s->c, master);
    assert_ptr_equal(await_heir(s->c, slot, master), replica);
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

/* There is no failover yet, and the runtime still asks the old master. */
TEST_ON(an_unlock_is_done_at_the_new_master, struct scene *s)
{
    server *master = s->c->nodes[2], *replica = s->c->nodes[5];

    s->config.command_timeout_ms = s->config.outage_ms = LIMIT_MS;
    open_on_cluster(s, LONG_LEASE_MS);
    const char *name = new_name(s, master);
    unsigned slot = slot_of(s, name);
    assert_status(DIBS_OK, dibs_lock(s->rt, name));
    await_that(server_integer(master, "WAIT 1 100") == 1);
    kill_master(s->c, master);
    assert_status(DIBS_OK, dibs_unlock(s->rt, name));
    assert_ptr_equal(await_heir(s->c, slot, master), replica);
    assert_false(has_lock(replica, name));
    dibs_owner owner = owner_of(s->rt, name);
    assert_false(owner.held);
    server_restart(master);
    cluster_await_ok(s->c);
}

/*
 * None of these runtimes has had a connection to the dead master, so none has heard yet that it was replaced. Such a
 * call looks for 100 ms for another master, and not for less; so on a busy machine one or two may not find it in time.
 */
TEST_ON(the_first_look_and_try_after_a_failover_find_the_new_master, struct scene *s)
{
    const unsigned slot = 16383;
    server *master = cluster_owner(s->c, slot);
    dibs_runtime *idle[IDLE];
    dibs_owner owner;
    int found = 0;

    const char *name = new_name(s, master);
    for (int i = 0; i < IDLE; i++)
        idle[i] = open_url(s->c->url, NULL);
    await_that(server_integer(master, "WAIT 1 100") == 1);
    kill_master(s->c, master);
    await_heir(s->c, slot, master);
    for (int i = 0; i < IDLE; i++) {
        int64_t began = now_ms();
        bool finds = (i % 2 == 0 ? dibs_query(idle[i], name, &owner) : dibs_trylock(idle[i], name)) == DIBS_OK;
        assert_true(finds || now_ms() - began >= LOOK_MS);
        assert_status(finds && i % 2 ? DIBS_OK : DIBS_NOT_HELD, dibs_unlock(idle[i], name));
        found += finds;
        dibs_close(idle[i]);
    }
    print_message("# %d of %d found it\n", found, IDLE);
    assert_true(found >= IDLE - 2);
    server_restart(master);
    cluster_await_ok(s->c);
}

#ifdef DIBS_WITH_TLS
/* ---------------------------------------------------------------------- certificates */

/* The certificate of one node names another host, but the other nodes accept it. */
TEST_WITH(a_node_with_a_wrong_certificate_is_refused_and_the_others_are_used, setup_tls, teardown, struct scene *s)
{
    server *odd = s->c->nodes[2], *good = s->c->nodes[1];

    certificate_make(certificates_folder(),
                     &(struct certificate){.file = "elsewhere", .issuer = "ca", .names = "DNS:elsewhere.test"});
    const char *its_name = new_name(s, odd);
    const char *name = new_name(s, good);
    server_pause(s->c->nodes[5]); /* no failover */
    server_certify(odd, "elsewhere");
    cluster_await_owner(s->c, slot_of(s, its_name), odd);
    expect_not_opened(DIBS_DENIED, formatted("rediss-cluster://127.0.0.1:%d", odd->port), &s->config, "certificate");
    s->urls[0] = formatted("rediss-cluster://127.0.0.1:%d,127.0.0.1:%d", odd->port, good->port);
    open_on_cluster(s, LONG_LEASE_MS);
    long long asks = server_asks(odd);
    assert_status(DIBS_OK, dibs_timedlock(s->rt, name, LIMIT_MS));
    assert_status(DIBS_DENIED, dibs_trylock(s->rt, its_name));
    assert_non_null(strstr(dibs_last_error(), "certificate"));
    assert_status(DIBS_OK, dibs_unlock(s->rt, name));
    assert_int_equal(server_asks(odd), asks);
    server_certify(odd, "server");
    server_resume(s->c->nodes[5]);
    cluster_await_ok(s->c);
    lock_and_release(s->rt, its_name, LIMIT_MS);
}

TEST_AGAIN(threads_go_on_locking_when_a_master_is_killed, setup_tls, teardown)
TEST_AGAIN(a_lock_that_the_new_master_does_not_know_is_restored, setup_tls, teardown)
#endif

TESTS_OF(setup, teardown, NULL, stop_cluster)
