/* The store on a cluster: its opening and closing, and the scheduler's part. See cluster_parts.h. */
#include "store/cluster/cluster.h"

#include <stdlib.h>
#include <strings.h>

#include "store/cluster/cluster_parts.h"

#define TIDY_MS 1000 /* how often to look for nodes that are not needed any more */
#define IDLE_MS 5000 /* how long a node is not needed before it is closed */

/* ------------------------------------------------------------ the scheduler */

static size_t interest(struct dibs__store *base, struct pollfd *fds, int64_t *deadline)
{
    struct dibs__cluster *cluster = dibs__cluster_of(base);
    unsigned count = atomic_load(&cluster->node_count);
    size_t used = 0;
    int64_t until;

    *deadline = dibs__map_deadline(cluster);
    *deadline = cluster->tidy_at < *deadline ? cluster->tidy_at : *deadline;
    for (unsigned i = 0; i < count; i++) {
        struct dibs__node *node = &cluster->nodes[i];
        node->fd_count = 0;
        if (!dibs__node_is_open(node))
            continue;
        node->fd_count = node->member->ops->interest(node->member, fds + used, &until);
        used += node->fd_count;
        *deadline = until < *deadline ? until : *deadline;
    }
    return used;
}

/*
 * Closes a node that the map does not name, when it was not needed for a while. True: the node must be looked at again.
 * Before that, the node's retractions are forwarded if their names are elsewhere: such a retraction may have come to
 * the node after the map changed, and while the node is away, it can't redirect the retraction.
 */
static bool close_if_idle(struct dibs__node *node, int64_t now)
{
    bool is_mapped = atomic_load(&node->cluster->mapped);

    if (is_mapped && dibs__node_is_open(node))
        dibs__redis_give_strays(node->member);
    if (!dibs__node_is_open(node) || atomic_load(&node->in_map) || !is_mapped) {
        node->idle_since = 0;
        return false;
    }
    bool used = atomic_load(&node->users) > 0 || dibs__redis_unconfirmed(node->member) > 0;
    if (used || node->idle_since == 0)
        node->idle_since = now;
    return used || now < dibs__after_ms(node->idle_since, IDLE_MS) || !dibs__node_close(node);
}

static void tidy(struct dibs__cluster *cluster, int64_t now)
{
    unsigned count = atomic_load(&cluster->node_count);
    bool again = false;

    if (now < cluster->tidy_at)
        return;
    for (unsigned i = 0; i < count; i++)
        again = close_if_idle(&cluster->nodes[i], now) || again;
    cluster->tidy_at = again ? dibs__after_ms(now, TIDY_MS) : DIBS__NEVER;
}

/* Slots have other owners: waiters must queue there, and leases are looked at, and watched there from now on. */
static void tell_of_changes(struct dibs__cluster *cluster)
{
    const struct dibs__listener *listener = &cluster->config.listener;
    unsigned count = atomic_load(&cluster->node_count);

    if (cluster->map_asked || atomic_load(&cluster->map_wanted) || !atomic_exchange(&cluster->map_changed, false))
        return;
    for (unsigned i = 0; i < count; i++)
        if (dibs__node_is_open(&cluster->nodes[i]))
            dibs__redis_give_strays(cluster->nodes[i].member);
    listener->ask_again(listener->context);
    listener->server_changed(listener->source);
    if (cluster->watched) /* also where that node was the only one, and is gone */
        listener->watching(listener->source, true);
}

static void attend(struct dibs__store *base, const struct pollfd *fds, size_t fd_count)
{
    struct dibs__cluster *cluster = dibs__cluster_of(base);
    unsigned count = atomic_load(&cluster->node_count);
    size_t used = 0;

    for (unsigned i = 0; i < count; i++) {
        struct dibs__node *node = &cluster->nodes[i];
        if (node->fd_count == 0)
            continue;
        node->member->ops->attend(node->member, fds + used, node->fd_count);
        used += node->fd_count;
    }
    DIBS__REQUIRE(used == fd_count);
    (void)fd_count;
    int64_t now = dibs__now(cluster->config.clock);
    dibs__map_attend(cluster, now);
    tell_of_changes(cluster);
    tidy(cluster, now);
}

/* --------------------------------------------------------------- open, close */

static void close_cluster(struct dibs__store *base)
{
    struct dibs__cluster *cluster = dibs__cluster_of(base);

    dibs__nodes_free(cluster);
    dibs__mutex_destroy(&cluster->mutex);
    dibs__url_free(&cluster->url);
    free(cluster);
}

/* Fails if the first master that answers refuses what confirms grants: so do the others, most likely. */
static dibs_status try_to_confirm(struct dibs__cluster *cluster, int64_t deadline, struct dibs__error *error)
{
    unsigned count = atomic_load(&cluster->node_count);
    dibs_status status = DIBS_UNAVAILABLE;

    for (unsigned i = 0; i < count && status == DIBS_UNAVAILABLE && dibs__now(cluster->config.clock) < deadline; i++) {
        struct dibs__node *node = &cluster->nodes[i];
        if (!atomic_load(&node->in_map) || !dibs__node_use(node))
            continue;
        status = node->member->ops->connect(node->member, true, error);
        dibs__node_unuse(node);
    }
    return status == DIBS_UNAVAILABLE ? DIBS_OK : status;
}

/* If the URL names several hosts, one that fails is passed over. */
static dibs_status connect_cluster(struct dibs__store *base, bool wait, struct dibs__error *error)
{
    struct dibs__cluster *cluster = dibs__cluster_of(base);
    struct dibs__node *node = &cluster->nodes[0];
    int64_t deadline = dibs__after_ms(dibs__now(cluster->config.clock), cluster->config.connect_timeout_ms);

    if (wait) {
        dibs_status fetched = dibs__map_fetch(cluster, deadline, error);
        bool confirms = cluster->config.durable || cluster->config.min_replicas > 0;
        return fetched == DIBS_OK && confirms ? try_to_confirm(cluster, deadline, error) : fetched;
    }
    if (!dibs__node_use(node))
        return dibs__error_set(error, DIBS_NO_MEMORY, "no memory or descriptor for a node of a cluster");
    dibs_status status = node->member->ops->connect(node->member, false, error);
    dibs__node_unuse(node);
    return cluster->seeds > 1 ? DIBS_OK : status;
}

static const struct dibs__store_ops cluster_ops = {
    .connect = connect_cluster,
    .begin = dibs__cluster_begin,
    .progress = dibs__cluster_progress,
    .finish = dibs__cluster_finish,
    .conclude = dibs__cluster_conclude,
    .walk = dibs__cluster_walk,
    .examine = dibs__cluster_examine,
    .listen = dibs__cluster_listen,
    .retract = dibs__cluster_retract,
    .renew = dibs__cluster_renew,
    .tell_when_free = dibs__cluster_tell_when_free,
    .can_keep = dibs__cluster_can_keep,
    .is_unconfirmed = dibs__cluster_is_unconfirmed,
    .gather = dibs__redis_gather,
    .interest = interest,
    .attend = attend,
    .close = close_cluster,
};

/* Takes over the URL. NULL: no memory, and the URL still belongs to the caller. */
static struct dibs__cluster *cluster_new(const struct dibs__store_config *config, const struct dibs__url *url)
{
    struct dibs__cluster *cluster = calloc(1, sizeof *cluster);

    if (!cluster || dibs__mutex_init(&cluster->mutex) != 0) {
        free(cluster);
        return NULL;
    }
    int64_t now = dibs__now(config->clock);
    cluster->config = *config;
    cluster->map_at = dibs__after_ms(now, config->connect_timeout_ms);
    cluster->map_due = dibs__after_ms(now, DIBS__MAP_MS);
    cluster->tidy_at = DIBS__NEVER;
    cluster->url = *url;
    for (unsigned i = 0; i < DIBS__NODES_MAX; i++) {
        struct dibs__node *node = &cluster->nodes[i];
        node->cluster = cluster;
        node->place = i;
        atomic_init(&node->users, DIBS__NODE_CLOSED);
    }
    for (unsigned i = 0; i < DIBS__SLOTS; i++)
        atomic_init(&cluster->owners[i], DIBS__NO_NODE);
    atomic_init(&cluster->unserved, -1);
    cluster->map_backoff.first_ms = DIBS__MAP_FIRST_MS;
    return cluster;
}

static dibs_status no_memory(struct dibs__error *error)
{
    return dibs__error_set(error, DIBS_NO_MEMORY, "no memory or descriptor for the store");
}

/*
 * Gives the first places to the hosts of the URL. The first node is opened, so that the number of descriptors to poll
 * is known.
 */
static dibs_status add_hosts(struct dibs__cluster *cluster, struct dibs__error *error)
{
    for (size_t i = 0; i < cluster->url.host_count; i++)
        if (!dibs__node_at(cluster, cluster->url.hosts[i].name, cluster->url.hosts[i].port))
            return no_memory(error);
    cluster->seeds = atomic_load(&cluster->node_count);
    if (!dibs__node_use(&cluster->nodes[0])) {
        dibs__cluster_mutex_lock(&cluster->mutex);
        *error = cluster->open_error;
        dibs__cluster_mutex_unlock(&cluster->mutex);
        return error->status;
    }
    cluster->store =
        (struct dibs__store){&cluster_ops, DIBS__NODES_MAX * cluster->nodes[0].member->fd_max, true, false};
    dibs__node_unuse(&cluster->nodes[0]);
    return DIBS_OK;
}

bool dibs__cluster_is_url(const char *url)
{
    return strncasecmp(url, "redis-cluster://", 16) == 0 || strncasecmp(url, "rediss-cluster://", 17) == 0;
}

dibs_status dibs__cluster_open(struct dibs__store **out, const struct dibs__store_config *config,
                               struct dibs__error *error)
{
    struct dibs__url url;

    if (dibs__url_parse(&url, config->url, error) != DIBS_OK)
        return error->status;
    struct dibs__cluster *cluster = cluster_new(config, &url);
    if (!cluster) {
        dibs__url_free(&url);
        return no_memory(error);
    }
    if (add_hosts(cluster, error) != DIBS_OK) {
        close_cluster(&cluster->store);
        return error->status;
    }
    *out = &cluster->store;
    return DIBS_OK;
}
