/* The nodes of a cluster: a store for each that is in use. */
#include <stdlib.h>
#include <string.h>

#include "store/cluster/cluster_parts.h"

/* -------------------------------------------------------------------- places */

static struct dibs__node *find(struct dibs__cluster *cluster, const char *host, unsigned port)
    DIBS__REQUIRES(dibs__cluster_mutex)
{
    unsigned count = atomic_load(&cluster->node_count);

    for (unsigned i = 0; i < count; i++) {
        struct dibs__node *node = &cluster->nodes[i];
        if (node->host && node->port == port && strcmp(node->host, host) == 0)
            return node;
    }
    return NULL;
}

/*
 * Finds a place that was never taken or, if there is none, one whose node is closed and not in the map. A host of the
 * URL keeps its place. NULL: there is no place.
 */
static struct dibs__node *find_place(struct dibs__cluster *cluster) DIBS__REQUIRES(dibs__cluster_mutex)
{
    unsigned count = atomic_load(&cluster->node_count);

    if (count < DIBS__NODES_MAX) {
        atomic_store(&cluster->node_count, count + 1);
        return &cluster->nodes[count];
    }
    for (unsigned i = cluster->seeds; i < count; i++) {
        struct dibs__node *node = &cluster->nodes[i];
        if (!atomic_load(&node->in_map) && !dibs__node_is_open(node))
            return node;
    }
    return NULL;
}

struct dibs__node *dibs__node_at(struct dibs__cluster *cluster, const char *host, unsigned port)
{
    dibs__cluster_mutex_lock(&cluster->mutex);
    struct dibs__node *node = find(cluster, host, port);
    char *copy = node ? NULL : strdup(host);
    if (copy && (node = find_place(cluster))) {
        free(node->host);
        node->host = copy;
        node->port = port;
    } else {
        free(copy);
    }
    dibs__cluster_mutex_unlock(&cluster->mutex);
    return node;
}

struct dibs__node *dibs__node_named_by(const struct dibs__node *by, const char *host, unsigned port)
{
    if (!*host) {
        dibs__cluster_mutex_lock(&by->cluster->mutex);
        host = by->host; /* stays, because that node is in use */
        dibs__cluster_mutex_unlock(&by->cluster->mutex);
    }
    return dibs__node_at(by->cluster, host, port);
}

/* ------------------------------------------------------------ opening, closing */

static bool open_member(struct dibs__node *node) DIBS__REQUIRES(dibs__cluster_mutex)
{
    struct dibs__cluster *cluster = node->cluster;
    struct dibs__store_config config = dibs__node_config(node);
    struct dibs__error *error = &cluster->open_error;
    const struct dibs__url *like = &cluster->url;
    struct dibs__url url;

    if (cluster->is_closing || !node->host ||
        dibs__url_at(&url, like->tls, like->user, like->password, node->host, node->port, error) != DIBS_OK)
        return false;
    return dibs__redis_open_at(&node->member, &url, &config, error) == DIBS_OK;
}

static bool use_open(struct dibs__node *node)
{
    int users = atomic_load_explicit(&node->users, memory_order_relaxed);

    while (users != DIBS__NODE_CLOSED)
        if (atomic_compare_exchange_weak_explicit(&node->users, &users, users + 1, memory_order_acquire,
                                                  memory_order_relaxed))
            return true;
    return false;
}

bool dibs__node_use(struct dibs__node *node)
{
    const struct dibs__listener *listener = &node->cluster->config.listener;

    if (use_open(node))
        return true;
    dibs__cluster_mutex_lock(&node->cluster->mutex);
    bool used = use_open(node), opened = !used && open_member(node);
    if (opened)
        atomic_store_explicit(&node->users, 1, memory_order_release);
    dibs__cluster_mutex_unlock(&node->cluster->mutex);
    if (opened)
        listener->wake(listener->context); /* there is more to poll for */
    return used || opened;
}

void dibs__node_unuse(struct dibs__node *node)
{
    int before = atomic_fetch_sub_explicit(&node->users, 1, memory_order_release);

    DIBS__REQUIRE(before > 0);
    (void)before;
}

/* Whoever uses the node from now on opens it anew, perhaps before the store that it had is closed. */
bool dibs__node_close(struct dibs__node *node)
{
    struct dibs__store *member = NULL;
    int none = 0;

    dibs__cluster_mutex_lock(&node->cluster->mutex);
    if (atomic_compare_exchange_strong(&node->users, &none, DIBS__NODE_CLOSED)) {
        member = node->member;
        atomic_store(&node->server, 0);
        atomic_store(&node->down, false);
        node->watching = false;
    }
    dibs__cluster_mutex_unlock(&node->cluster->mutex);
    if (member)
        member->ops->close(member);
    return member != NULL;
}

/*
 * What a node was asked fails when its connection ends. Without is_closing, whoever asked would then go on at other
 * nodes, some of which are closed.
 */
void dibs__nodes_free(struct dibs__cluster *cluster)
{
    dibs__cluster_mutex_lock(&cluster->mutex);
    cluster->is_closing = true;
    dibs__cluster_mutex_unlock(&cluster->mutex);
    for (unsigned i = 0; i < DIBS__NODES_MAX; i++) {
        struct dibs__node *node = &cluster->nodes[i];
        if (dibs__node_is_open(node)) {
            node->member->ops->close(node->member);
            atomic_store(&node->users, DIBS__NODE_CLOSED);
        }
        dibs__cluster_mutex_lock(&cluster->mutex);
        free(node->host);
        dibs__cluster_mutex_unlock(&cluster->mutex);
    }
}
