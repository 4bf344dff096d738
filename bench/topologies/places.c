#include "topologies/places.h"

#include <stdio.h>
#include <string.h>

#include "support/bench.h"
#include "support/common/cleanup.h"
#include "support/common/cluster_join.h"
#include "support/common/naive_lock.h"
#include "support/common/redis_connect.h"
#include "support/common/timing.h"
#include "support/delay.h"

enum { SERVERS = 12, NODES = 3, CLUSTER_LIMIT_MS = 30000, LOOK_US = 20000, URL = 128 };

static const size_t first[] = {0, 1, 4, 9, SERVERS}; /* servers of each topology; the cluster's are the last */

/* A server, and how it is reached now. */
static struct {
    int port, reached_at;
    char url[URL];
} servers[SERVERS];

static struct cluster_server nodes[NODES];
static char cluster_url[URL];

/* ------------------------------------------------------------------------ URLs */

static void name_urls(struct place places[TOPOLOGIES])
{
    size_t length = (size_t)snprintf(cluster_url, URL, "redis-cluster://");

    for (size_t i = 0; i < SERVERS; i++)
        snprintf(servers[i].url, URL, "redis://127.0.0.1:%d", servers[i].reached_at);
    for (size_t i = first[CLUSTER_OF_THREE]; i < SERVERS; i++)
        length += (size_t)snprintf(cluster_url + length, URL - length, "%s127.0.0.1:%d",
                                   i > first[CLUSTER_OF_THREE] ? "," : "", servers[i].reached_at);
    for (size_t t = 0; t < CLUSTER_OF_THREE; t++) {
        places[t].url_count = first[t + 1] - first[t];
        for (size_t i = first[t]; i < first[t + 1]; i++)
            places[t].urls[i - first[t]] = servers[i].url;
    }
    places[CLUSTER_OF_THREE] = (struct place){.urls = {cluster_url}, .url_count = 1};
}

/* --------------------------------------------------------------------- cluster */

static void await_cluster(bool (*is_ready)(void), const char *what)
{
    double limit = now_ns() + CLUSTER_LIMIT_MS * 1e6;

    while (!is_ready()) {
        if (now_ns() > limit)
            cleanup_fail("the nodes of the cluster %s", what);
        pause_us(LOOK_US);
    }
}

static bool is_joined(void)
{
    return cluster_is_joined(nodes, NODES);
}

static void join_cluster(void)
{
    for (size_t i = 0; i < NODES; i++) {
        const size_t server = first[CLUSTER_OF_THREE] + i;
        nodes[i] = (struct cluster_server){redis_connect(servers[server].url), servers[server].port};
        if (!nodes[i].redis)
            cleanup_exit(2);
    }
    if (!cluster_join(nodes, NODES, NODES))
        cleanup_exit(2);
    await_cluster(is_joined, "do not get to know each other");
}

/* Whether all nodes say that all can be reached where they are reached now. */
static bool is_announced(void)
{
    char address[32];
    bool all = true;

    for (size_t i = 0; i < NODES; i++) {
        redisReply *told = naive_command(nodes[i].redis, "CLUSTER NODES");
        for (size_t j = first[CLUSTER_OF_THREE]; j < SERVERS; j++) {
            snprintf(address, sizeof address, ":%d@", servers[j].reached_at);
            all = all && strstr(told->str, address);
        }
        freeReplyObject(told);
    }
    return all;
}

static void announce(void)
{
    for (size_t i = 0; i < NODES; i++)
        freeReplyObject(naive_command(nodes[i].redis, "CONFIG SET cluster-announce-port %d",
                                      servers[first[CLUSTER_OF_THREE] + i].reached_at));
    await_cluster(is_announced, "do not say where they are");
}

/* ---------------------------------------------------------------------- whole */

void places_start(struct place places[TOPOLOGIES])
{
    servers[0].port = bench_tcp_port;
    for (size_t i = 1; i < SERVERS; i++)
        servers[i].port = bench_start_another(i < first[CLUSTER_OF_THREE] ? "" : "cluster-enabled yes\n");
    for (size_t i = 0; i < SERVERS; i++)
        servers[i].reached_at = servers[i].port;
    name_urls(places);
    join_cluster();
}

void places_delay(struct place places[TOPOLOGIES], unsigned delay_us)
{
    static struct wire wires[SERVERS];

    for (size_t i = 0; i < SERVERS; i++)
        wires[i] = (struct wire){.server_port = servers[i].port};
    delay_start(wires, SERVERS, delay_us / 2);
    for (size_t i = 0; i < SERVERS; i++)
        servers[i].reached_at = wires[i].port;
    name_urls(places);
    announce();
}
