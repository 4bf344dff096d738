/*
 * A real cluster of a test's own, on free ports of 127.0.0.1: masters, among which the slots are divided evenly, and
 * one replica for each if the test wants them. Used by the test's own thread only. A failure here fails the test. A
 * cluster takes some 3 seconds to start, so the tests of a program share one.
 */
#ifndef DIBS_TEST_CLUSTER_H
#define DIBS_TEST_CLUSTER_H

#include "support/common/cluster_join.h"
#include "support/server.h"

#define CLUSTER_MASTERS_MAX 5
#define CLUSTER_NODES_MAX (2 * CLUSTER_MASTERS_MAX)
#define CLUSTER_ID_MAX 64 /* with the NUL */

typedef struct cluster_options {
    size_t masters;           /* 0: three */
    bool with_replicas;       /* one of each master */
    uint32_t node_timeout_ms; /* 0: 2000; a master that is away for longer is failed over to its replica */
    const char *config;       /* more lines for each redis.conf */
    const char *password;     /* of all nodes; not in url */
    const char *tls;          /* a folder of certificates.h: all speak TLS alone; url is rediss-cluster:// */
} cluster_options;

typedef struct cluster {
    size_t masters, count;            /* at the start: the masters come first, then the replica of each */
    server *nodes[CLUSTER_NODES_MAX]; /* each also answers server_... for itself alone */
    char ids[CLUSTER_NODES_MAX][CLUSTER_ID_MAX];
    const char *url; /* redis-cluster://, with all that were masters at the start */
} cluster;

/* On return all nodes know each other, serve, and each replica follows its master. options may be NULL. */
cluster *cluster_start(const cluster_options *options);
void cluster_stop(cluster *c); /* NULL is fine */

/* As server_assert_no_locks, of each master that runs. */
void cluster_assert_no_locks(cluster *c);

/* The slot of a key; the node that the nodes say has it. */
unsigned cluster_slot(cluster *c, const char *key);
server *cluster_owner(cluster *c, unsigned slot);

/* "name0", "name1"...: the first name whose lock, under the prefix "lock:", is at that node. */
const char *cluster_name_at(cluster *c, const server *node, unsigned first);

/* Waits until all nodes that run say that the cluster serves, and agree on who has the slot. */
void cluster_await_ok(cluster *c);
void cluster_await_owner(cluster *c, unsigned slot, const server *node);

/* Waits until another node than this one, which was killed, has the slot; returns it. */
server *cluster_await_failover(cluster *c, unsigned slot, const server *dead);

/* Moves a slot with its keys. Its steps: from the first to the third the source answers ASK for a key that it lacks. */
void cluster_move_slot(cluster *c, unsigned slot, server *to);
void cluster_open_slot(cluster *c, unsigned slot, server *to);
void cluster_move_keys(cluster *c, unsigned slot, server *to);
void cluster_close_slot(cluster *c, unsigned slot, server *to);

/* Moves one key, of a slot that is open. */
void cluster_move_key(cluster *c, const char *key, server *to);

#endif
