/* The nodes of a cluster: a store for each that is in use, and what it reports. */
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

/* -------------------------------------------------------------- grants, servers */

static const struct dibs__listener *listener_of(const struct dibs__node *node)
{
    return &node->cluster->config.listener;
}

/*
 * What is published at one node of a cluster may be heard at all of them. A grant then comes several times, which does
 * no harm to a token that has the lock already. If nobody wants the lock any more, it is given back by the node that
 * has the slot.
 */
static bool on_granted(void *source, const struct dibs__grant *grant)
{
    struct dibs__node *node = source;
    struct dibs__cluster *cluster = node->cluster;
    const struct dibs__listener *listener = listener_of(node);

    if (!listener->granted(listener->source, grant))
        dibs__cluster_retract(&cluster->store, grant->name, grant->token, DIBS__LEASE_MAX_MS, grant->fence);
    return true;
}

/* The node has another server now, or its first one. */
static void on_server_changed(void *source)
{
    struct dibs__node *node = source;
    const struct dibs__listener *listener = listener_of(node);

    atomic_store(&node->server, dibs__redis_server(node->member));
    node->cluster->map_at = 0; /* there is a node now that can be asked for the map */
    listener->server_changed(listener->source);
}

/* ------------------------------------------------------------------------- tracking */

/* Whether any node reports changes, as the statistics then say. */
static bool note_watching(struct dibs__cluster *cluster)
{
    unsigned count = atomic_load(&cluster->node_count);
    bool any = false;

    for (unsigned i = 0; i < count; i++)
        any = any || cluster->nodes[i].watching;
    atomic_store_explicit(&cluster->config.counters->tracking, any, memory_order_relaxed);
    return any;
}

/*
 * If a node begins to report changes, all leases are looked at again, also those of other nodes. If one stops while
 * another goes on, all leases are looked at again as well, and all kept leases are given back. What a node does not
 * watch is tried again from time to time.
 */
static void on_watching(void *source, bool on)
{
    struct dibs__node *node = source;
    struct dibs__cluster *cluster = node->cluster;
    const struct dibs__listener *listener = listener_of(node);

    node->watching = on;
    cluster->watched = cluster->watched || on;
    bool any = note_watching(cluster);
    if (!on)
        listener->watching(listener->source, false);
    if (any)
        listener->watching(listener->source, true);
}

/* ---------------------------------------------------------------------- reachability */

/* Whether there is no node that might answer: each that is known was tried. */
static bool are_all_away(const struct dibs__cluster *cluster)
{
    unsigned count = atomic_load(&cluster->node_count);
    bool mapped = atomic_load(&cluster->mapped), away = true;

    for (unsigned i = 0; i < count && away; i++) {
        const struct dibs__node *node = &cluster->nodes[i];
        away = (mapped && !atomic_load(&node->in_map)) || atomic_load(&node->down);
    }
    return away;
}

void dibs__cluster_see_reach(struct dibs__cluster *cluster, const char *detail)
{
    const struct dibs__listener *listener = &cluster->config.listener;
    int unserved = atomic_load(&cluster->unserved);

    if (unserved >= 0 && atomic_load(&cluster->owners[unserved]) != DIBS__NO_NODE)
        atomic_store(&cluster->unserved, unserved = -1);
    if (!detail && !atomic_load(&cluster->down))
        return;
    dibs__cluster_mutex_lock(&cluster->mutex);
    bool down = unserved >= 0 || are_all_away(cluster);
    if (down != atomic_load(&cluster->down) && (!down || detail)) {
        atomic_store(&cluster->down, down);
        listener->reachable(listener->source, !down, down ? detail : cluster->url.shown);
    }
    dibs__cluster_mutex_unlock(&cluster->mutex);
}

static void on_reachable(void *source, bool up, const char *detail)
{
    struct dibs__node *node = source;

    if (!up)
        atomic_store(&node->down_since, dibs__now(node->cluster->config.clock));
    atomic_store(&node->down, !up);
    if (!up)
        dibs__map_want(node->cluster);
    dibs__cluster_see_reach(node->cluster, up ? NULL : detail);
}

/* ----------------------------------------------------------------------------- hooks */

static void *on_redirected(void *context, bool ask, unsigned slot, const char *host, unsigned port)
{
    const struct dibs__node *from = context;
    struct dibs__node *node = dibs__node_named_by(from, host, port);

    if (ask)
        dibs__map_note_asked(from->cluster, slot);
    else if (node)
        dibs__map_correct(from->cluster, slot, node);
    return node;
}

static void on_forward(void *context, void *to, const struct dibs__forwarded_retraction *forwarded)
{
    struct dibs__cluster *cluster = ((const struct dibs__node *)context)->cluster;
    struct dibs__node *node = to;

    if (!node)
        node = dibs__map_use_owner(cluster, dibs__cluster_slot(cluster, forwarded->name), NULL);
    else if (!dibs__node_use(node))
        node = NULL;
    if (!node)
        return;
    dibs__redis_take_forwarded(node->member, forwarded);
    dibs__node_unuse(node);
}

static bool is_away(void *context, const char *name)
{
    const struct dibs__node *node = context;
    unsigned char owner = atomic_load(&node->cluster->owners[dibs__cluster_slot(node->cluster, name)]);

    return owner != node->place && owner != DIBS__NO_NODE;
}

/* The configuration with which the store of the node is opened: what it reports, and to whom. */
static struct dibs__store_config config_of(struct dibs__node *node)
{
    struct dibs__store_config config = node->cluster->config;

    node->hooks = (struct dibs__node_hooks){node, on_redirected, on_forward, is_away};
    config.node = &node->hooks;
    config.listener.source = node;
    config.listener.granted = on_granted;
    config.listener.server_changed = on_server_changed;
    config.listener.reachable = on_reachable;
    config.listener.watching = on_watching;
    return config;
}

/* ------------------------------------------------------------ opening, closing */

static bool open_member(struct dibs__node *node) DIBS__REQUIRES(dibs__cluster_mutex)
{
    struct dibs__cluster *cluster = node->cluster;
    struct dibs__store_config config = config_of(node);
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
    const struct dibs__listener *listener = listener_of(node);

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
        note_watching(node->cluster);
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
