/* The operations of store.h that a thread waits for, and what concerns one name. */
#include "store/cluster/cluster_parts.h"

/* ----------------------------------------------------------- an attempt and its node */

/*
 * What the cluster notes with an attempt: the place of the node that may know the attempt, plus 1; the node is in use.
 * 0: there is none.
 */
static uint64_t *place_of(struct dibs__attempt *attempt)
{
    return &attempt->store_state.outer[0];
}

/* The attempt uses no node any more. */
static void leave_node(struct dibs__cluster *cluster, struct dibs__attempt *attempt)
{
    if (*place_of(attempt) > 0)
        dibs__node_unuse(&cluster->nodes[*place_of(attempt) - 1]);
    *place_of(attempt) = 0;
}

/*
 * The attempt is about to be asked for at the node. A slot that has moved took along what was in it, also the attempt's
 * place in the queue. But if an ask at the other node is in doubt, the token is retired: its retraction begins there,
 * and follows the slot. False: the token was retired.
 */
static bool come_to(struct dibs__cluster *cluster, struct dibs__attempt *attempt, struct dibs__node *node)
{
    uint64_t at = *place_of(attempt);

    if (at == node->place + 1u)
        return true;
    if (at > 0 && dibs__redis_attempt_is_in_doubt(attempt)) {
        struct dibs__store *member = cluster->nodes[at - 1].member;
        member->ops->conclude(member, attempt, false);
        leave_node(cluster, attempt);
        return false;
    }
    if (at > 0)
        dibs__redis_attempt_came(node->member, attempt,
                                 dibs__cluster_has_server(cluster, dibs__redis_attempt_server(attempt)));
    leave_node(cluster, attempt);
    if (!dibs__node_use(node)) /* does not fail: the node is in use already */
        return false;
    *place_of(attempt) = node->place + 1u;
    return true;
}

void dibs__cluster_conclude(struct dibs__store *base, struct dibs__attempt *attempt, bool held)
{
    struct dibs__cluster *cluster = dibs__cluster_of(base);

    if (*place_of(attempt) == 0)
        return;
    struct dibs__store *member = cluster->nodes[*place_of(attempt) - 1].member;
    member->ops->conclude(member, attempt, held);
    leave_node(cluster, attempt);
}

/* -------------------------------------------------------------------- operations */

/* The attempt that the operation asks for; NULL: there is none. */
static struct dibs__attempt *asked_for(const struct dibs__op *op)
{
    return op->kind == DIBS__OP_ASK ? op->ask.attempt : op->kind == DIBS__OP_RELEASE ? op->release.next.attempt : NULL;
}

void dibs__cluster_begin(struct dibs__store *base, struct dibs__op *op)
{
    struct dibs__cluster *cluster = dibs__cluster_of(base);
    struct dibs__cluster_op *cluster_op = dibs__cluster_op_new(cluster, op->name, NULL);
    struct dibs__attempt *attempt = asked_for(op);

    if (!cluster_op)
        return;
    if (attempt && *place_of(attempt) > 0 &&
        *place_of(attempt) != cluster_op->node->place + 1u) { /* its token may have to be retired: finish does that */
        dibs__cluster_op_end(cluster, cluster_op, DIBS_OK);
        return;
    }
    if (attempt)
        come_to(cluster, attempt, cluster_op->node);
    op->redirect = &cluster_op->redirect;
    cluster_op->node->member->ops->begin(cluster_op->node->member, op);
}

/* What could not be begun is left to finish, which asks for the map if there is none. */
enum dibs__progress dibs__cluster_progress(struct dibs__store *base, const struct dibs__op *op, struct dibs__wait *wait)
{
    const struct dibs__cluster_op *cluster_op = (const struct dibs__cluster_op *)op->redirect;

    (void)base;
    return cluster_op ? cluster_op->node->member->ops->progress(cluster_op->node->member, op, wait)
                      : DIBS__OP_CONNECTED;
}

/* Notes the server of a node if only its answer has told of it so far. */
static void note_server(struct dibs__node *node, const struct dibs__attempt *attempt)
{
    if (atomic_load_explicit(&node->server, memory_order_relaxed) == 0)
        atomic_store(&node->server, dibs__redis_lease_server(&attempt->lease));
}

static dibs_status ask_at(struct dibs__cluster *cluster, struct dibs__node *node, struct dibs__op *op,
                          struct dibs__error *error)
{
    if (!come_to(cluster, op->ask.attempt, node)) {
        *op->ask.answer = (struct dibs__answer){.retired = DIBS__RETIRED};
        return dibs__error_set(error, DIBS_UNAVAILABLE, "%s: an ask at another node is in doubt", cluster->url.shown);
    }
    dibs_status status = node->member->ops->finish(node->member, op, error);
    if (status == DIBS_OK)
        note_server(node, op->ask.attempt);
    return status;
}

/* What the releases at several nodes come to. The next attempt is asked for until its token is retired. */
struct sum {
    struct dibs__ask next;
    dibs_status next_status;
    bool again;
};

static dibs_status release_at(struct dibs__cluster *cluster, struct dibs__cluster_op *cluster_op, struct dibs__op *op,
                              struct sum *sum, struct dibs__error *error)
{
    struct dibs__store *member = cluster_op->node->member;
    struct dibs__release *release = &op->release;

    bool asks = sum->next.attempt && !sum->next.answer->retired;

    if (asks && !come_to(cluster, sum->next.attempt, cluster_op->node)) {
        sum->next_status = DIBS_UNAVAILABLE;
        *sum->next.answer = (struct dibs__answer){.retired = DIBS__RETIRED};
        asks = false;
    }
    release->next = asks ? sum->next : (struct dibs__ask){.attempt = NULL};
    dibs_status status = member->ops->finish(member, op, error);
    sum->again = sum->again || release->again || cluster_op->redirect.in_doubt;
    if (asks)
        sum->next_status = release->next_status;
    return status;
}

static dibs_status finish_at(struct dibs__cluster *cluster, struct dibs__cluster_op *cluster_op, struct dibs__op *op,
                             struct sum *sum, struct dibs__error *error)
{
    struct dibs__node *node = cluster_op->node;

    if (op->kind == DIBS__OP_ASK)
        return ask_at(cluster, node, op, error);
    if (op->kind == DIBS__OP_RELEASE)
        return release_at(cluster, cluster_op, op, sum, error);
    return node->member->ops->finish(node->member, op, error);
}

/* The operation ended with DIBS_UNAVAILABLE. True: the caller must repeat it at cluster_op->node. */
static bool goes_on(struct dibs__cluster *cluster, struct dibs__cluster_op *cluster_op, const struct dibs__op *op)
{
    bool is_ask = op->kind == DIBS__OP_ASK, waits = is_ask && op->ask.attempt->wait;

    if (is_ask && op->ask.answer->retired)
        return false;
    if (dibs__cluster_op_goes_on(cluster, cluster_op, op->deadline, !waits))
        return true;
    if (waits || (is_ask && op->ask.answer->why == DIBS__WHY_TOO_FEW_REPLICAS) || op->kind == DIBS__OP_FORCE ||
        op->kind == DIBS__OP_FORGET)
        return false;
    return dibs__cluster_op_finds_heir(cluster, cluster_op, op->deadline, op->kind == DIBS__OP_RELEASE);
}

static void retract_at(struct dibs__store *store, const struct dibs__op *op)
{
    store->ops->retract(store, op->name, op->release.token, op->release.lease_ms, op->release.fence);
}

dibs_status dibs__cluster_finish(struct dibs__store *base, struct dibs__op *op, struct dibs__error *error)
{
    struct dibs__cluster *cluster = dibs__cluster_of(base);
    bool is_release = op->kind == DIBS__OP_RELEASE;
    struct sum sum = {.next_status = DIBS_BUSY};

    if (is_release)
        sum.next = op->release.next;
    else if (op->kind == DIBS__OP_ASK)
        sum.next = op->ask;
    if (sum.next.attempt)
        *sum.next.answer = (struct dibs__answer){.fence = 0};
    struct dibs__cluster_op *cluster_op = dibs__cluster_op_take(cluster, op, error);
    dibs_status status = cluster_op ? DIBS_OK : error->status;
    if (cluster_op) {
        do
            status = finish_at(cluster, cluster_op, op, &sum, error);
        while (status == DIBS_UNAVAILABLE && goes_on(cluster, cluster_op, op));
        if (is_release && status != DIBS_OK && status != DIBS_NOT_HELD)
            retract_at(cluster_op->node->member, op);
        op->redirect = NULL;
        dibs__cluster_op_end(cluster, cluster_op, status);
    } else if (is_release) {
        retract_at(base, op);
    }
    if (is_release) {
        op->release.next = sum.next;
        op->release.again = sum.again;
        op->release.next_status = sum.next_status;
    }
    return status;
}

/* Any node that is known can begin with the retraction, which is forwarded from there. */
void dibs__cluster_retract(struct dibs__store *base, const char *name, const char *token, uint32_t lease_ms,
                           uint64_t fence)
{
    struct dibs__cluster *cluster = dibs__cluster_of(base);
    struct dibs__node *node = dibs__map_use_owner(cluster, dibs__cluster_slot(cluster, name), NULL);

    if (!node && dibs__node_use(&cluster->nodes[0]))
        node = &cluster->nodes[0];
    if (!node)
        return;
    node->member->ops->retract(node->member, name, token, lease_ms, fence);
    dibs__node_unuse(node);
}

/* ----------------------------------------------------------------------- waiting */

void dibs__cluster_listen(struct dibs__store *base, const char *name, struct dibs__wait_event *wait_event,
                          int64_t until)
{
    struct dibs__cluster *cluster = dibs__cluster_of(base);
    struct dibs__node *node = dibs__map_use_owner(cluster, dibs__cluster_slot(cluster, name), NULL);

    if (node) {
        node->member->ops->listen(node->member, name, wait_event, until);
        dibs__node_unuse(node);
    } else if (wait_event) {
        dibs__wait_event_wait(wait_event, cluster->config.clock, until);
    }
}

/* The result also says which node answered: if another one answers next, `since` counts as 0 there. */
uint64_t dibs__cluster_tell_when_free(struct dibs__store *base, const char *name, uint64_t since)
{
    struct dibs__cluster *cluster = dibs__cluster_of(base);
    struct dibs__node *node = dibs__map_use_owner(cluster, dibs__cluster_slot(cluster, name), NULL);

    if (!node)
        return 0;
    uint64_t before = since % DIBS__NODES_MAX == node->place ? since / DIBS__NODES_MAX : 0;
    uint64_t on = node->member->ops->tell_when_free(node->member, name, before);
    unsigned place = node->place;
    dibs__node_unuse(node);
    return on > 0 ? on * DIBS__NODES_MAX + place : 0;
}

/*
 * Recalls come on the channel of the runtime, which all nodes pass on. The node that has the slot reports changes;
 * while the slot moves, it does not report those at the other node.
 */
bool dibs__cluster_can_keep(struct dibs__store *base, const char *name)
{
    struct dibs__cluster *cluster = dibs__cluster_of(base);
    unsigned slot = dibs__cluster_slot(cluster, name);
    struct dibs__node *node = dibs__map_is_asked(cluster, slot) ? NULL : dibs__map_use_owner(cluster, slot, NULL);

    if (!node)
        return false;
    bool can_keep = node->member->ops->can_keep(node->member, name);
    dibs__node_unuse(node);
    return can_keep;
}
