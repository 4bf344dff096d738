#include "support/cluster.h"

#include "support/test.h"

enum { MASTERS = 3, NODE_TIMEOUT_MS = 2000, NODE_ID = CLUSTER_ID_MAX };

/* ------------------------------------------------------------------ questions */

static bool runs(const server *node)
{
    return node && node->pid != 0 && !node->paused;
}

/* Any node that can be asked. */
static server *any_node(const cluster *c)
{
    for (size_t i = 0; i < c->count; i++)
        if (runs(c->nodes[i]))
            return c->nodes[i];
    fail_msg("%s", "no node of the cluster runs");
    return NULL;
}

static void id_of(server *node, char id[NODE_ID])
{
    assert_true(server_string(node, id, NODE_ID, "CLUSTER MYID"));
}

static bool info_has(server *node, const char *command, const char *text)
{
    redisReply *reply = server_command(node, command);
    bool has = strstr(reply->str, text) != NULL;

    freeReplyObject(reply);
    return has;
}

unsigned cluster_slot(cluster *c, const char *key)
{
    return (unsigned)server_integer(any_node(c), "CLUSTER KEYSLOT %s", key);
}

static server *node_of(cluster *c, const char *id)
{
    for (size_t i = 0; i < c->count; i++)
        if (strcmp(c->ids[i], id) == 0)
            return c->nodes[i];
    return NULL;
}

/* The master that has the slot, as that node says. NULL: none has. */
static server *owner_by(cluster *c, server *node, unsigned slot)
{
    redisReply *reply = server_command(node, "CLUSTER SLOTS");
    server *owner = NULL;

    for (size_t i = 0; i < reply->elements; i++) {
        const redisReply *range = reply->element[i];
        if (range->element[0]->integer <= slot && slot <= range->element[1]->integer)
            owner = node_of(c, range->element[2]->element[2]->str);
    }
    freeReplyObject(reply);
    return owner;
}

server *cluster_owner(cluster *c, unsigned slot)
{
    server *owner = owner_by(c, any_node(c), slot);

    assert_that(owner != NULL, "nobody has slot %u", slot);
    return owner;
}

const char *cluster_name_at(cluster *c, const server *node, unsigned first)
{
    for (unsigned i = first;; i++)
        if (cluster_owner(c, cluster_slot(c, formatted("lock:name%u", i))) == node)
            return formatted("name%u", i);
}

/* -------------------------------------------------------------------- waiting */

static bool is_ok(const cluster *c)
{
    bool ok = true;

    for (size_t i = 0; i < c->count && ok; i++)
        ok = !runs(c->nodes[i]) || info_has(c->nodes[i], "CLUSTER INFO", "cluster_state:ok");
    return ok;
}

void cluster_await_ok(cluster *c)
{
    await_or_say(is_ok(c), "the cluster does not serve");
}

/* All nodes that run say so. */
static bool is_owned_by(cluster *c, unsigned slot, const server *node)
{
    bool owned = true;

    for (size_t i = 0; i < c->count && owned; i++)
        if (runs(c->nodes[i]))
            owned = owner_by(c, c->nodes[i], slot) == node;
    return owned;
}

void cluster_await_owner(cluster *c, unsigned slot, const server *node)
{
    await_or_say(is_owned_by(c, slot, node), "the nodes do not agree on a slot");
}

static bool is_owned_by_another(cluster *c, unsigned slot, const server *node)
{
    bool owned = true;

    for (size_t i = 0; i < c->count && owned; i++) {
        if (!runs(c->nodes[i]))
            continue;
        const server *owner = owner_by(c, c->nodes[i], slot);
        owned = owner && owner != node;
    }
    return owned;
}

server *cluster_await_failover(cluster *c, unsigned slot, const server *dead)
{
    await_or_say(is_owned_by_another(c, slot, dead), "there is no failover");
    cluster_await_ok(c);
    return cluster_owner(c, slot);
}

/* ---------------------------------------------------------------------- moving */

void cluster_open_slot(cluster *c, unsigned slot, server *to)
{
    server *from = cluster_owner(c, slot);
    char from_id[NODE_ID], to_id[NODE_ID];

    id_of(from, from_id);
    id_of(to, to_id);
    server_do(to, "CLUSTER SETSLOT %u IMPORTING %s", slot, from_id);
    server_do(from, "CLUSTER SETSLOT %u MIGRATING %s", slot, to_id);
}

static void move_key(server *from, server *to, const char *key, size_t size)
{
    redisReply *reply = server_command(from, "MIGRATE 127.0.0.1 %d %b 0 5000", to->port, key, size);

    freeReplyObject(reply);
}

void cluster_move_key(cluster *c, const char *key, server *to)
{
    move_key(cluster_owner(c, cluster_slot(c, key)), to, key, strlen(key));
}

void cluster_move_keys(cluster *c, unsigned slot, server *to)
{
    server *from = cluster_owner(c, slot);
    size_t moved;

    do {
        redisReply *keys = server_command(from, "CLUSTER GETKEYSINSLOT %u 100", slot);
        moved = keys->elements;
        for (size_t i = 0; i < moved; i++)
            move_key(from, to, keys->element[i]->str, keys->element[i]->len);
        freeReplyObject(keys);
    } while (moved > 0);
}

/*
 * The new owner is told first, since no other node may take it for the owner before. Then all other masters: nodes may
 * reject each other's news of the slot, because the epoch that the new owner gave itself may by chance be that of
 * another node.
 */
static void tell_owner(cluster *c, unsigned slot, server *to)
{
    char id[NODE_ID];

    id_of(to, id);
    server_do(to, "CLUSTER SETSLOT %u NODE %s", slot, id);
    for (size_t i = 0; i < c->count; i++) /* a node that has a key written meanwhile refuses, and relies on the epoch */
        if (c->nodes[i] != to && runs(c->nodes[i]) && info_has(c->nodes[i], "INFO replication", "role:master"))
            freeReplyObject(server_try(c->nodes[i], "CLUSTER SETSLOT %u NODE %s", slot, id));
}

static long long epoch_known_to(server *node)
{
    redisReply *reply = server_command(node, "CLUSTER INFO");
    const char *line = strstr(reply->str, "cluster_current_epoch:");
    long long epoch = line ? atoll(line + strlen("cluster_current_epoch:")) : -1;

    freeReplyObject(reply);
    return epoch;
}

static bool know_one_epoch(const cluster *c)
{
    long long epoch = -1;
    bool one = true;

    for (size_t i = 0; i < c->count && one; i++) {
        if (!runs(c->nodes[i]))
            continue;
        long long its = epoch_known_to(c->nodes[i]);
        one = epoch < 0 || its == epoch;
        epoch = its;
    }
    return one;
}

/*
 * By the same chance the new owner may meanwhile have accepted the old one as the owner: then each names the other. The
 * new owner gets the largest epoch of all, and is told again. In the end all nodes know its epoch, so that no later
 * owner gives itself the same.
 */
void cluster_close_slot(cluster *c, unsigned slot, server *to)
{
    enum { USUAL_MS = 3000, MOST_TIMES = 5 };

    tell_owner(c, slot, to);
    for (int i = 0; i < MOST_TIMES && !within(USUAL_MS, is_owned_by(c, slot, to)); i++) {
        server_do(to, "CLUSTER BUMPEPOCH");
        tell_owner(c, slot, to);
    }
    cluster_await_owner(c, slot, to);
    await_or_say(know_one_epoch(c), "the nodes do not agree on an epoch");
    cluster_await_owner(c, slot, to);
}

/* Keys that were written before they moved are moved as well. */
void cluster_move_slot(cluster *c, unsigned slot, server *to)
{
    cluster_open_slot(c, slot, to);
    cluster_move_keys(c, slot, to);
    cluster_close_slot(c, slot, to);
}

/* -------------------------------------------------------------------- starting */

/* Nodes with TLS also speak to each other so. */
static const char *tls_config(const cluster_options *options)
{
    return options->tls || getenv("DIBS_TEST_TLS") ? "tls-cluster yes\ntls-replication yes\n" : "";
}

static void start_nodes(cluster *c, const cluster_options *options)
{
    const char *config =
        formatted("cluster-enabled yes\ncluster-node-timeout %u\nrepl-diskless-sync-delay 0\n%s%s%s\n%s",
                  options->node_timeout_ms ? options->node_timeout_ms : NODE_TIMEOUT_MS, tls_config(options),
                  options->password ? "masterauth " : "", options->password ? options->password : "",
                  options->config ? options->config : "");

    for (size_t i = 0; i < c->count; i++)
        c->nodes[i] = server_start(
            &(server_options){.tcp = true, .config = config, .password = options->password, .tls = options->tls});
}

static void name_url(cluster *c)
{
    c->url = formatted("redis%s-cluster://", c->nodes[0]->options.tls ? "s" : "");
    for (size_t i = 0; i < c->masters; i++)
        c->url = formatted("%s%s127.0.0.1:%d", c->url, i > 0 ? "," : "", c->nodes[i]->port);
}

struct joining {
    struct cluster_server servers[CLUSTER_NODES_MAX];
    size_t count;
};

static void join(cluster *c)
{
    struct joining joining = {.count = c->count};

    for (size_t i = 0; i < c->count; i++) {
        id_of(c->nodes[i], c->ids[i]); /* and the test's own connection is open */
        joining.servers[i] = (struct cluster_server){c->nodes[i]->admin, c->nodes[i]->port};
    }
    assert_that(cluster_join(joining.servers, c->count, c->masters), "the servers do not become a cluster");
    await_or_say(cluster_is_joined(joining.servers, joining.count), "the nodes do not get to know each other");
}

static bool all_follow(const cluster *c)
{
    bool all = true;

    for (size_t i = c->masters; i < c->count && all; i++)
        all = info_has(c->nodes[i], "INFO replication", "master_link_status:up") &&
              info_has(c->nodes[i - c->masters], "INFO replication", "state=online");
    return all;
}

static void add_replicas(cluster *c)
{
    char id[NODE_ID];

    for (size_t i = c->masters; i < c->count; i++) {
        id_of(c->nodes[i - c->masters], id);
        server_do(c->nodes[i], "CLUSTER REPLICATE %s", id);
    }
    await_or_say(all_follow(c), "a replica does not follow its master");
}

cluster *cluster_start(const cluster_options *options)
{
    static const cluster_options none = {.masters = 0};
    cluster *c = calloc(1, sizeof *c);

    assert_non_null(c);
    options = options ? options : &none;
    c->masters = options->masters > 0 ? options->masters : MASTERS;
    c->count = options->with_replicas ? 2 * c->masters : c->masters;
    assert_true(c->count <= CLUSTER_NODES_MAX);
    start_nodes(c, options);
    name_url(c);
    join(c);
    add_replicas(c);
    cluster_await_ok(c);
    for (size_t i = 0; i < c->masters; i++)
        cluster_await_owner(c, cluster_first_slot(i, c->masters), c->nodes[i]);
    return c;
}

void cluster_stop(cluster *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->count; i++)
        server_stop(c->nodes[i]);
    free(c);
}

void cluster_assert_no_locks(cluster *c)
{
    for (size_t i = 0; i < c->count; i++)
        if (runs(c->nodes[i]) && info_has(c->nodes[i], "INFO replication", "role:master"))
            server_assert_no_locks(c->nodes[i]);
}
