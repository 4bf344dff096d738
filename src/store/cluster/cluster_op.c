/*
 * One operation on its way through the cluster: it goes to the node that has the slot, as far as is known, and from
 * there to where the nodes redirect it. A node that redirects an operation has done nothing, so repeating it elsewhere
 * is as good as sending it there first.
 */
#include <stdlib.h>

#include "store/cluster/cluster_parts.h"

#define HOPS_MAX 5
#define HOPS_AT_ONCE 2 /* while a slot changes hands, two nodes may each say that the other one has it */
#define PAUSE_LAST_MS 50
#define HEIR_MS 100 /* how long to wait for a map that names another node than one that just failed */

struct dibs__cluster_op *dibs__cluster_op_new(struct dibs__cluster *cluster, const char *name,
                                              struct dibs__error *error)
{
    unsigned slot = dibs__cluster_slot(cluster, name);
    struct dibs__node *node = dibs__map_use_owner(cluster, slot, error);
    struct dibs__cluster_op *cluster_op = node ? malloc(sizeof *cluster_op) : NULL;

    if (cluster_op)
        *cluster_op = (struct dibs__cluster_op){.node = node,
                                                .slot = slot,
                                                .was_away = atomic_load(&node->down),
                                                .backoff = {.first_ms = DIBS__PAUSE_FIRST_MS}};
    else if (node)
        dibs__node_unuse(node);
    if (node && !cluster_op && error)
        dibs__error_set(error, DIBS_NO_MEMORY, "no memory for an operation of a cluster");
    return cluster_op;
}

struct dibs__cluster_op *dibs__cluster_op_take(struct dibs__cluster *cluster, struct dibs__op *op,
                                               struct dibs__error *error)
{
    struct dibs__cluster_op *cluster_op = (struct dibs__cluster_op *)op->redirect;

    if (cluster_op || (!atomic_load_explicit(&cluster->mapped, memory_order_relaxed) &&
                       dibs__map_fetch(cluster, op->deadline, error) != DIBS_OK))
        return cluster_op;
    cluster_op = dibs__cluster_op_new(cluster, op->name, error);
    if (cluster_op)
        op->redirect = &cluster_op->redirect;
    return cluster_op;
}

/* Moves the operation to that node. False: the node can't be used. */
static bool go_to(struct dibs__cluster_op *cluster_op, struct dibs__node *node, bool asking)
{
    if (!node || !dibs__node_use(node))
        return false;
    dibs__node_unuse(cluster_op->node);
    cluster_op->node = node;
    cluster_op->redirect = (struct dibs__redirect){.asking = asking};
    return true;
}

void dibs__cluster_pause(const struct dibs__cluster *cluster, struct dibs__backoff *backoff, int64_t deadline)
{
    const struct dibs__clock *clock = cluster->config.clock;
    int64_t until = dibs__after_ms(dibs__now(clock), dibs__backoff_next(backoff, PAUSE_LAST_MS));

    clock->poll(clock, NULL, 0, until < deadline ? until : deadline);
}

bool dibs__cluster_op_goes_on(struct dibs__cluster *cluster, struct dibs__cluster_op *cluster_op, int64_t deadline,
                              bool may_pause)
{
    struct dibs__redirect said = cluster_op->redirect;
    bool again = said.kind == DIBS__REDIRECT_AGAIN;

    if (said.kind == DIBS__REDIRECT_NONE || dibs__now(cluster->config.clock) >= deadline || (again && !may_pause) ||
        (!again && ++cluster_op->hops > HOPS_MAX))
        return false;
    if (again || (may_pause && cluster_op->hops > HOPS_AT_ONCE))
        dibs__cluster_pause(cluster, &cluster_op->backoff, deadline);
    if (!again)
        return go_to(cluster_op, said.to, said.kind == DIBS__REDIRECT_ASK);
    cluster_op->hops = 0; /* a node that gets the slot may say AGAIN as well, for what the other still has */
    unsigned char place = atomic_load(&cluster->owners[cluster_op->slot]);
    return place != DIBS__NO_NODE && go_to(cluster_op, &cluster->nodes[place], false);
}

/*
 * Until when to wait for an heir. If the node was away before, the map is being asked for all the time: there is
 * nothing to wait for.
 */
static int64_t heir_by(const struct dibs__cluster *cluster, const struct dibs__cluster_op *cluster_op, int64_t deadline,
                       bool patient)
{
    int64_t now = dibs__now(cluster->config.clock), soon = cluster_op->was_away ? now : dibs__after_ms(now, HEIR_MS);

    return patient || deadline < soon ? deadline : soon;
}

bool dibs__cluster_op_finds_heir(struct dibs__cluster *cluster, struct dibs__cluster_op *cluster_op, int64_t deadline,
                                 bool patient)
{
    int64_t until = heir_by(cluster, cluster_op, deadline, patient);

    if (cluster_op->redirect.kind != DIBS__REDIRECT_NONE || ++cluster_op->hops > HOPS_MAX)
        return false;
    for (;;) {
        unsigned char place = atomic_load(&cluster->owners[cluster_op->slot]);
        int64_t now = dibs__now(cluster->config.clock);
        if (now >= deadline)
            return false;
        if (place != DIBS__NO_NODE && place != cluster_op->node->place)
            return go_to(cluster_op, &cluster->nodes[place], false);
        if (now >= until)
            return false;
        dibs__map_want(cluster);
        dibs__cluster_pause(cluster, &cluster_op->backoff, until);
    }
}

void dibs__cluster_op_end(struct dibs__cluster *cluster, struct dibs__cluster_op *cluster_op, dibs_status status)
{
    if (status == DIBS_UNAVAILABLE)
        dibs__map_want(cluster);
    dibs__node_unuse(cluster_op->node);
    free(cluster_op);
}
