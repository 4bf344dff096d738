/* dibs_examine on several servers: what concerns the sentinels, the nodes of a cluster, the masters of a quorum. */
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/child.h"
#include "support/cluster.h"
#include "support/common/redis_process.h"
#include "support/findings.h"
#include "support/fixture.h"
#include "support/masters.h"
#include "support/sentinels.h"

/* The lease that a clone does not know: it is longer than opening and examining a quorum takes. */
#define CLONED_MS 6000

#define OK DIBS_VERDICT_OK
#define WARN DIBS_VERDICT_WARN
#define BAD DIBS_VERDICT_BAD

static bool take_lock(const char *name, const dibs_owner *owner, void *arg)
{
    return true;
}

/* ------------------------------------------------------------------- sentinels */

TEST(examine_reports_sentinels_that_disagree)
{
    sentinels *s = sentinels_start(NULL);
    dibs_runtime *rt = open_url(s->url, &(dibs_config){.connect_timeout_ms = 3000});

    const findings *found = findings_of(rt);
    assert_string_equal(findings_expect(found, "role", OK, "master")->server,
                        formatted("127.0.0.1:%d", s->data[0]->port));
    findings_expect(found, "sentinels", OK, "There are 3 sentinels, and all name that master");
    findings_expect(found, "replicas", WARN, "min_replicas is 0");
    server_kill(s->sentinels[2]);
    found = findings_of(rt);
    findings_expect(found, "sentinels", WARN, "A sentinel names no master");
    assert_null(findings_find(found, "sentinels", OK, ""));
    dibs_close(rt);
    sentinels_stop(s);
}

TEST(examine_reports_a_sentinel_that_names_another_master)
{
    sentinels *s = sentinels_start(NULL);
    dibs_runtime *rt = open_url(s->url, &(dibs_config){.connect_timeout_ms = 3000});

    server_do(s->sentinels[2], "SENTINEL REMOVE " SENTINEL_MASTER);
    findings_expect(findings_of(rt), "sentinels", WARN, "does not know that name");
    server_do(s->sentinels[2], "SENTINEL MONITOR " SENTINEL_MASTER " 127.0.0.1 %d 2", s->data[1]->port);
    findings_expect(findings_of(rt), "sentinels", WARN, "names another master");
    dibs_close(rt);
    sentinels_stop(s);
}

static bool sees_no_failover(dibs_runtime *rt, const char *words)
{
    return findings_find(findings_of(rt), "sentinels", WARN, words) != NULL;
}

TEST(examine_warns_where_too_few_sentinels_are_left_for_a_failover)
{
    static const char one_of_three[] = "There can be no failover, as 1 of 3 sentinels see it";
    sentinels *s = sentinels_start(NULL);
    dibs_runtime *rt = open_url(s->url, &(dibs_config){.connect_timeout_ms = 3000});

    assert_false(sees_no_failover(rt, "failover"));
    server_do(s->sentinels[0], "SENTINEL SET " SENTINEL_MASTER " quorum 4");
    assert_true(sees_no_failover(rt, one_of_three));
    server_do(s->sentinels[0], "SENTINEL SET " SENTINEL_MASTER " quorum 1");
    assert_false(sees_no_failover(rt, "failover"));
    server_kill(s->sentinels[1]);
    server_kill(s->sentinels[2]);
    server_do(s->sentinels[0], "SENTINEL SET " SENTINEL_MASTER " down-after-milliseconds 600");
    await_that(sees_no_failover(rt, one_of_three)); /* 1 is enough for the quorum, but no majority */
    dibs_close(rt);
    sentinels_stop(s);
}

TEST(examine_warns_of_a_single_sentinel)
{
    server *master = test_server(server_start(&(server_options){.tcp = true}));
    server *sentinel = sentinel_start(master);
    dibs_runtime *rt = open_url(sentinel->url, NULL);

    const findings *found = findings_of(rt);
    findings_expect(found, "sentinels", WARN, "There is 1 sentinel:");
    findings_expect(found, "replicas", WARN, "no replica");
    dibs_close(rt);
    rt = open_url(
        formatted("redis-sentinel://localhost:%d,127.0.0.1:%d/" SENTINEL_MASTER, sentinel->port, sentinel->port), NULL);
    findings_expect(findings_of(rt), "sentinels", WARN, "There is 1 sentinel:"); /* it has two names */
    dibs_close(rt);
    server_stop(sentinel);
}

/* --------------------------------------------------------------------- cluster */

static bool have_no_link_to_the_first(cluster *c)
{
    for (size_t i = 1; i < c->count; i++) {
        const char *nodes = server_text(c->nodes[i], "CLUSTER NODES");
        const char *first = strstr(nodes, c->ids[0]);
        assert_non_null(first);
        if (!memmem(first, strcspn(first, "\n"), " disconnected ", strlen(" disconnected ")))
            return false;
    }
    return true;
}

/* The node of the slot is killed first: each message that it has sent would give the slot back to it. */
static void lose_a_slot(cluster *c)
{
    server_do(c->nodes[0], "CLUSTER DELSLOTS 100");
    server_kill(c->nodes[0]);
    await_that(have_no_link_to_the_first(c));
    for (size_t i = 1; i < c->count; i++)
        server_do(c->nodes[i], "CLUSTER DELSLOTS 100");
    server_restart(c->nodes[0]);
    cluster_await_ok(c);
}

TEST(examine_reports_the_nodes_of_a_cluster)
{
    cluster *c = cluster_start(&(cluster_options){.config = "cluster-require-full-coverage no"});
    dibs_runtime *rt = open_url(c->url, NULL);
    size_t servers = 0;

    const findings *found = findings_of(rt);
    findings_expect(found, "cluster", OK, "Each slot has a master; there are 3 masters");
    findings_expect(found, "replicas", WARN, "no replica");
    findings_expect(found, "rights", OK, "all that");
    for (size_t i = 0; i < found->count; i++)
        servers += strcmp(found->all[i].subject, "connection") == 0;
    assert_int_equal(servers, 3);
    server_kill(c->nodes[2]);
    findings_expect(findings_of(rt), "cluster", BAD, "1 of 3 masters can't be reached");
    server_restart(c->nodes[2]);
    cluster_await_ok(c);
    dibs_close(rt);
    lose_a_slot(c);
    rt = open_url(c->url, NULL);
    findings_expect(findings_of(rt), "cluster", BAD, "1 of 16384 slots have no master");
    assert_status(DIBS_UNAVAILABLE, dibs_list(rt, NULL, take_lock, NULL));
    assert_that(strstr(dibs_last_error(), "no node has the slot 100"), "%s", dibs_last_error());
    server_kill(c->nodes[2]);
    findings_expect(findings_of(rt), "connection", BAD, "No new connection");
    dibs_close(rt);
    cluster_stop(c);
}

/* Slow to start, so two tests share it. */
static cluster *shared;

static cluster *one_master(void)
{
    if (!shared)
        shared = cluster_start(&(cluster_options){.masters = 1, .with_replicas = true});
    return shared;
}

static int stop_shared(void **state)
{
    cluster_stop(shared);
    return 0;
}

/* Rights that only a cluster has use for. */
TEST(examine_reports_missing_rights_on_a_cluster)
{
    static const char *const names[] = {"CLUSTER SLOTS", "SPUBLISH", "PUBSUB SHARDNUMSUB", "SSUBSCRIBE"};
    static const char *const rights[] = {"cluster|slots", "spublish", "pubsub|shardnumsub", "ssubscribe"};
    cluster *c = one_master();

    const char *url = formatted("redis-cluster://u:pw@%s", c->url + strlen("redis-cluster://"));
    server_do(c->nodes[0], "ACL SETUSER u on >pw ~* &* +@all");
    dibs_runtime *rt = test_runtime(open_url(url, NULL));
    findings_expect(findings_of(rt), "rights", OK, "all that");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        server_do(c->nodes[0], "ACL SETUSER u +@all -%s", rights[i]);
        findings_expect(findings_of(rt), "rights", WARN, formatted("may not use %s, so", names[i]));
        assert_int_equal(findings_bad(findings_of(rt), "rights"), 1);
    }
}

TEST(examine_warns_of_a_quorum_of_one)
{
    dibs_runtime *rt = test_runtime(open_url(one_master()->url, NULL));

    findings_expect(findings_of(rt), "cluster", WARN, "There is 1 master:");
    findings_expect(findings_of(rt), "replicas", WARN, "a failover forgets");
}

/* ---------------------------------------------------------------------- quorum */

TEST_WITH(examine_reports_masters_that_fail, masters_setup_3, masters_teardown, masters *m)
{
    m->config.connect_timeout_ms = LIMIT_MS / 4; /* what is killed refuses at once */
    masters_open_connected(m, LONG_LEASE_MS);
    const findings *found = findings_of(m->rt);
    findings_expect(found, "quorum", OK, "All 3 masters can be reached");
    findings_expect(found, "quorum", OK, "The clocks of the masters are at most");
    findings_expect(found, "persistence", OK, "does not vote until the longest lease is over");
    findings_expect(found, "tracking", OK, "can tell at once");
    assert_int_equal(findings_bad(found, "quorum"), 0);
    server_kill(m->servers[0]);
    found = findings_of(m->rt);
    findings_expect(found, "connection", BAD, "No new connection");
    findings_expect(found, "quorum", WARN, "Only 2 of 3 masters can be reached");
    server_kill(m->servers[1]);
    findings_expect(findings_of(m->rt), "quorum", BAD, "no lock can be taken");
    server_restart(m->servers[1]);
    server_restart(m->servers[0]);
    await_that(findings_find(findings_of(m->rt), "quorum", WARN, "lost its data") != NULL);
}

static bool server_waits_for_its_vote(masters *m)
{
    assert_status(DIBS_OK, dibs_lock(m->rt, "a")); /* so that the master is asked for its vote */
    assert_status(DIBS_OK, dibs_unlock(m->rt, "a"));
    return findings_find(findings_of(m->rt), "quorum", WARN, "does not vote for another") != NULL;
}

TEST_WITH(examine_reports_a_master_without_a_vote, masters_setup_3, masters_teardown, masters *m)
{
    masters_open_connected(m, LONG_LEASE_MS);
    server_kill(m->servers[0]);
    server_restart(m->servers[0]);
    await_that(server_waits_for_its_vote(m));
}

TEST_WITH(examine_reports_a_master_that_keeps_data_in_part, masters_setup_3, masters_teardown, masters *m)
{
    server_do(m->servers[1], "CONFIG SET save %s", "60 1");
    server_do(m->servers[2], "CONFIG SET appendonly yes");
    masters_open(m, LONG_LEASE_MS);
    const findings *found = findings_of(m->rt);
    findings_expect(found, "persistence", WARN, "of its last snapshot and the right to vote");
    findings_expect(found, "persistence", WARN, "votes for others");
    server_do(m->servers[2], "CONFIG SET appendfsync always");
    findings_expect(findings_of(m->rt), "persistence", OK, "before each answer");
    server_do(m->servers[1], "CONFIG SET save %s", ""); /* else its end would take long */
    server_do(m->servers[2], "CONFIG SET appendonly no");
}

TEST_WITH(examine_reports_masters_whose_clocks_differ, masters_setup_5_with_clocks, masters_teardown, masters *m)
{
    masters_open(m, LONG_LEASE_MS);
    const findings *found = findings_of(m->rt);
    findings_expect(found, "quorum", WARN, "s apart");
    findings_expect(found, "clock", WARN, "this host's");
}

TEST(examine_notices_one_server_under_two_names)
{
    server *one = test_server(server_start(&(server_options){.tcp = true})),
           *other = test_server(server_start(&(server_options){.tcp = true}));
    const char *urls[] = {one->url, other->url, formatted("redis://localhost:%d", one->port)};
    dibs_runtime *rt;

    /* For half of the command timeout, a new quorum waits for a master that has not answered. */
    assert_status(DIBS_INVALID, dibs_open(&rt, &(dibs_config){.urls = urls,
                                                              .url_count = 3,
                                                              .connect_timeout_ms = LIMIT_MS,
                                                              .command_timeout_ms = LIMIT_MS}));
    assert_string_equal(dibs_last_error(), "urls[0] and urls[2] are the same master");
    assert_false(master_knows(one) || master_knows(other)); /* else they would be masters of a quorum of two */
    urls[2] = test_server(server_start(NULL))->url;
    assert_status(DIBS_OK, open_in_time(&rt, &(dibs_config){.urls = urls, .url_count = 3}));
    assert_status(DIBS_OK, dibs_lock(rt, "a"));
    dibs_close(rt);
}

/* Nobody is at the last URL when the quorum is opened; then a master has that port, too. */
TEST(examine_notices_a_master_that_took_the_place_of_another)
{
    server *one = test_server(server_start(NULL)), *other = test_server(server_start(NULL));
    int port = free_port();
    const char *urls[] = {one->url, other->url, formatted("redis://127.0.0.1:%d", port)};
    dibs_runtime *rt;

    assert_status(DIBS_OK, open_in_time(&rt, &(dibs_config){.urls = urls, .url_count = 3}));
    server_do(one, "CONFIG SET port %d", port);
    await_that(findings_find(findings_of(rt), "quorum", OK, "All 3 masters") != NULL);
    findings_expect(findings_of(rt), "quorum", BAD, "Number 1 and number 3 of the URLs are the same server");
    dibs_close(rt);
}

static bool has_number(server *s)
{
    char noted[256];

    return master_knows(s) && server_string(s, noted, sizeof noted, "GET dibs:vote") &&
           strcmp(strrchr(noted, ' '), " 0") != 0;
}

/* The key assigns that number to another quorum. */
TEST_WITH(examine_reports_a_master_of_another_quorum, masters_setup_3, masters_teardown, masters *m)
{
    masters_open_connected(m, LONG_LEASE_MS);
    for (size_t i = 0; i < m->count; i++)
        await_that(has_number(m->servers[i]));
    char *noted = server_text(m->servers[1], "GET dibs:vote");
    *strrchr(noted, ' ') = '\0';
    server_do(m->servers[1], "SET dibs:vote %s KEEPTTL", strcat(noted, " 77"));
    findings_expect(findings_of(m->rt), "quorum", BAD, "Number 2 of the URLs is a master of another quorum");
}

/* Another server with a copy of the master's data, as after REPLICAOF. */
static server *clone_by_replication(server *master)
{
    server *clone = server_start(NULL);

    server_do(master, "CONFIG SET repl-diskless-sync-delay 0");
    server_do(clone, "REPLICAOF 127.0.0.1 %d", master->port);
    await_that(master_knows(clone));
    server_do(clone, "REPLICAOF NO ONE");
    return clone;
}

/* The same by a copy of the master's disk. */
static server *clone_by_copy(server *master)
{
    server *clone = server_start(NULL);

    server_do(master, "SAVE");
    server_kill(clone);
    assert_int_equal(system(formatted("cp %s/dump.rdb %s/dump.rdb", master->folder, clone->folder)), 0);
    server_restart(clone);
    return clone;
}

static bool open_and_lock(const void *config)
{
    dibs_runtime *rt;

    return dibs_open(&rt, config) == DIBS_OK && dibs_timedlock(rt, "a", LIMIT_MS) == DIBS_OK;
}

/*
 * A lock is granted by the master and another one, behind the clone's back, while the third can't grant it. Then
 * somebody uses the clone in place of the master: with the third it would be a majority. It votes like a master that
 * came back with older data.
 */
static void expect_clone_to_wait(server *(*make)(server *master))
{
    server *s[] = {server_start(&(server_options){.tcp = true}), server_start(NULL), server_start(NULL)};
    const char *urls[] = {s[0]->url, s[1]->url, s[2]->url};
    dibs_config config = {.urls = urls, .url_count = 3, .lease_ms = CLONED_MS};
    dibs_runtime *rt;

    assert_status(DIBS_OK, dibs_open(&rt, &config));
    for (size_t i = 0; i < 3; i++)
        await_that(has_number(s[i]));
    dibs_close(rt);
    server *clone = make(s[0]);
    assert_true(has_number(clone));
    server_do(s[2], "SET lock:a foreign PX 600000");
    int64_t granted = now_ms();
    child_kill(child_that_stays(open_and_lock, &config)); /* its lease goes on */
    server_do(s[2], "DEL lock:a");
    server_kill(s[0]);
    urls[0] = clone->url;
    assert_status(DIBS_OK, dibs_open(&rt, &config));
    findings_expect(findings_of(rt), "quorum", WARN, "Number 1 of the URLs");
    assert_status(DIBS_OK, dibs_timedlock(rt, "a", LIMIT_MS));
    assert_true(now_ms() >= granted + CLONED_MS - CLONED_MS / 50 - 5);
    assert_status(DIBS_OK, dibs_unlock(rt, "a"));
    dibs_close(rt);
    server_stop(clone);
    for (size_t i = 0; i < 3; i++)
        server_stop(s[i]);
}

TEST(a_clone_by_replication_waits)
{
    expect_clone_to_wait(clone_by_replication);
}

TEST(a_clone_by_a_copy_of_the_disk_waits)
{
    expect_clone_to_wait(clone_by_copy);
}

TESTS_OF(NULL, NULL, NULL, stop_shared)
