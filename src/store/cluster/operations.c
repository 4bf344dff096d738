/* The operations of store.h that a thread waits for, and what concerns one name. */
#include <stdlib.h>

#include "store/cluster/cluster_parts.h"

#define HOPS_MAX 5
#define HOPS_AT_ONCE 2 /* while a slot changes hands, two nodes may each say that the other one has it */
#define PAUSE_LAST_MS 50
#define HEIR_MS 100 /* how long to wait for a map that names another node than one that just failed */

/* --------------------------------------------------------- on the way through the cluster */

/*
 * One operation on its way through the cluster: it goes to the node that has the slot, as far as is known, and from
 * there to where the nodes redirect it. A node that redirects an operation has done nothing, so repeating it elsewhere
 * is as good as sending it there first.
 */
struct cluster_op {
    struct dibs__redirect redirect; /* must be the first member: `redirect` of the operation points to it */
    struct dibs__node *node;        /* the one that is asked; in use */
    unsigned slot;
    unsigned hops;
    struct dibs__backoff backoff;
};

/*
 * Begins an operation at the owner of the name's slot. Never blocks. NULL: none can be begun, as the error, which may
 * be NULL, says.
 */
static struct cluster_op *new_op(struct dibs__cluster *cluster, const char *name, struct dibs__error *error)
{
    unsigned slot = dibs__cluster_slot(cluster, name);
    struct dibs__node *node = dibs__map_use_owner(cluster, slot, error);
    struct cluster_op *cluster_op = node ? malloc(sizeof *cluster_op) : NULL;

    if (cluster_op)
        *cluster_op = (struct cluster_op){.node = node, .slot = slot, .backoff = {.first_ms = DIBS__PAUSE_FIRST_MS}};
    else if (node)
        dibs__node_unuse(node);
    if (node && !cluster_op && error)
        dibs__error_set(error, DIBS_NO_MEMORY, "no memory for an operation of a cluster");
    return cluster_op;
}

/* The operation that was begun, or one that begins now. NULL: the error says why there is none. */
static struct cluster_op *take_op(struct dibs__cluster *cluster, struct dibs__op *op, struct dibs__error *error)
{
    struct cluster_op *cluster_op = (struct cluster_op *)op->redirect;

    if (cluster_op || (!atomic_load_explicit(&cluster->mapped, memory_order_relaxed) &&
                       dibs__map_fetch(cluster, op->deadline, error) != DIBS_OK))
        return cluster_op;
    cluster_op = new_op(cluster, op->name, error);
    if (cluster_op)
        op->redirect = &cluster_op->redirect;
    return cluster_op;
}

/* Moves the operation to that node. False: the node can't be used. */
static bool go_to(struct cluster_op *cluster_op, struct dibs__node *node, bool asking)
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

/*
 * The operation ended with DIBS_UNAVAILABLE. True: the caller must repeat it at cluster_op->node. may_pause: this may
 * wait until a slot has moved.
 */
static bool is_sent_on(struct dibs__cluster *cluster, struct cluster_op *cluster_op, int64_t deadline, bool may_pause)
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
 * Until when to wait for an heir. If the node has been away for longer, the map has been asked for since: there is
 * nothing to wait for.
 */
static int64_t heir_by(const struct dibs__cluster *cluster, const struct cluster_op *cluster_op, int64_t deadline,
                       bool patient)
{
    const struct dibs__node *node = cluster_op->node;
    int64_t since = atomic_load(&node->down) ? atomic_load(&node->down_since) : dibs__now(cluster->config.clock);
    int64_t soon = dibs__after_ms(since, HEIR_MS);

    return patient || deadline < soon ? deadline : soon;
}

/*
 * The operation ended with DIBS_UNAVAILABLE, and the node did not redirect it. True: another node has the slot now, and
 * the operation must be repeated there. patient: waits for that until the deadline; without it, only as long as it
 * takes to find out whether it is so already.
 */
static bool finds_heir(struct dibs__cluster *cluster, struct cluster_op *cluster_op, int64_t deadline, bool patient)
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

static void end_op(struct dibs__cluster *cluster, struct cluster_op *cluster_op, dibs_status status)
{
    if (status == DIBS_UNAVAILABLE)
        dibs__map_want(cluster);
    dibs__node_unuse(cluster_op->node);
    free(cluster_op);
}

/* ----------------------------------------------------------- an attempt and its node */

/*
 * What the cluster notes with an attempt: the place of the node that may know the attempt, plus 1; the node is in use.
 * 0: there is none.
 */
static uint64_t *place_of(struct dibs__attempt *attempt)
{
    return &attempt->store_state.outer;
}

/* The attempt uses no node any more. */
static void leave_node(struct dibs__cluster *cluster, struct dibs__attempt *attempt)
{
    if (*place_of(attempt) > 0)
        dibs__node_unuse(&cluster->nodes[*place_of(attempt) - 1]);
    *place_of(attempt) = 0;
}

/*
 * Whether the node's server has what the one had that last told of the lock's owner: then the slot moved, and a lock
 * that is free there is free. Where a node has just said that the slot is elsewhere, it may as well have been replaced
 * by a replica that lacks the lock: until a map tells, a free lock is left to the owner.
 */
static bool knows_the_owner(const struct dibs__cluster *cluster, const struct dibs__attempt *attempt)
{
    return dibs__map_is_certain(cluster) && dibs__cluster_has_server(cluster, dibs__redis_attempt_server(attempt));
}

/* The attempt is asked for again at its node. The map may have come since. */
static void stay_at(const struct dibs__cluster *cluster, struct dibs__attempt *attempt, const struct dibs__node *node)
{
    uint64_t seen = dibs__redis_attempt_server(attempt);
    bool is_of_another = seen != 0 && seen != atomic_load_explicit(&node->server, memory_order_relaxed);

    if (is_of_another && !dibs__redis_attempt_is_in_doubt(attempt) && knows_the_owner(cluster, attempt))
        dibs__redis_attempt_came(node->member, attempt, true);
}

/*
 * The attempt is about to be asked for at the node. A slot that has moved took along what was in it, also the attempt's
 * place in the queue. But if an ask at the other node is in doubt, the token is retired: its retraction begins there,
 * and follows the slot. False: the token was retired.
 */
static bool come_to(struct dibs__cluster *cluster, struct dibs__attempt *attempt, struct dibs__node *node)
{
    uint64_t at = *place_of(attempt);

    if (at == node->place + 1u) {
        stay_at(cluster, attempt, node);
        return true;
    }
    if (at > 0 && dibs__redis_attempt_is_in_doubt(attempt)) {
        struct dibs__store *member = cluster->nodes[at - 1].member;
        member->ops->conclude(member, attempt, false);
        leave_node(cluster, attempt);
        return false;
    }
    if (at > 0)
        dibs__redis_attempt_came(node->member, attempt, knows_the_owner(cluster, attempt));
    leave_node(cluster, attempt);
    bool used = dibs__node_use(node); /* does not fail: the node is in use already */
    DIBS__REQUIRE(used);
    (void)used;
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
    struct cluster_op *cluster_op = new_op(cluster, op->name, NULL);
    struct dibs__attempt *attempt = asked_for(op);

    if (!cluster_op)
        return;
    if (attempt && *place_of(attempt) > 0 &&
        *place_of(attempt) != cluster_op->node->place + 1u) { /* its token may have to be retired: finish does that */
        end_op(cluster, cluster_op, DIBS_OK);
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
    const struct cluster_op *cluster_op = (const struct cluster_op *)op->redirect;

    (void)base;
    return cluster_op ? cluster_op->node->member->ops->progress(cluster_op->node->member, op, wait)
                      : DIBS__OP_CONNECTED;
}

static dibs_status ask_at(struct dibs__cluster *cluster, struct dibs__node *node, struct dibs__op *op,
                          struct dibs__error *error)
{
    if (!come_to(cluster, op->ask.attempt, node)) {
        *op->ask.answer = (struct dibs__answer){.retired = DIBS__RETIRED};
        return dibs__error_set(error, DIBS_UNAVAILABLE, "%s: an ask at another node is in doubt", cluster->url.shown);
    }
    dibs_status status = node->member->ops->finish(node->member, op, error);
    /* The answer may be the first to tell of the node's server. */
    if (status == DIBS_OK && atomic_load_explicit(&node->server, memory_order_relaxed) == 0)
        atomic_store(&node->server, dibs__redis_lease_server(&op->ask.attempt->lease));
    return status;
}

/* At each node the next attempt is asked for again, until its token is retired. */
static dibs_status release_at(struct dibs__cluster *cluster, const struct cluster_op *cluster_op, struct dibs__op *op,
                              struct dibs__error *error)
{
    struct dibs__store *member = cluster_op->node->member;
    struct dibs__release *release = &op->release;
    struct dibs__attempt *next = release->next.attempt;
    bool asks = next && !release->next.answer->retired, again = release->again;

    if (asks && !come_to(cluster, next, cluster_op->node)) {
        *release->next.answer = (struct dibs__answer){.retired = DIBS__RETIRED};
        asks = false;
    }
    release->next.attempt = asks ? next : NULL;
    dibs_status status = member->ops->finish(member, op, error);
    release->next.attempt = next;
    release->again = again || release->again || cluster_op->redirect.in_doubt;
    if (next && !asks)
        release->next_status = DIBS_UNAVAILABLE;
    return status;
}

static dibs_status finish_at(struct dibs__cluster *cluster, struct cluster_op *cluster_op, struct dibs__op *op,
                             struct dibs__error *error)
{
    struct dibs__node *node = cluster_op->node;

    if (op->kind == DIBS__OP_ASK)
        return ask_at(cluster, node, op, error);
    if (op->kind == DIBS__OP_RELEASE)
        return release_at(cluster, cluster_op, op, error);
    return node->member->ops->finish(node->member, op, error);
}

/* The operation ended with DIBS_UNAVAILABLE. True: the caller must repeat it at cluster_op->node. */
static bool goes_on(struct dibs__cluster *cluster, struct cluster_op *cluster_op, const struct dibs__op *op)
{
    bool is_ask = op->kind == DIBS__OP_ASK, waits = is_ask && op->ask.attempt->wait;

    if (is_ask && op->ask.answer->retired)
        return false;
    if (is_sent_on(cluster, cluster_op, op->deadline, !waits))
        return true;
    if (waits || (is_ask && op->ask.answer->why == DIBS__WHY_TOO_FEW_REPLICAS) || op->kind == DIBS__OP_FORCE ||
        op->kind == DIBS__OP_FORGET)
        return false;
    return finds_heir(cluster, cluster_op, op->deadline, op->kind == DIBS__OP_RELEASE);
}

static void retract_at(struct dibs__store *store, const struct dibs__op *op)
{
    store->ops->retract(store, op->name, op->release.token, op->release.lease_ms, op->release.fence);
}

dibs_status dibs__cluster_finish(struct dibs__store *base, struct dibs__op *op, struct dibs__error *error)
{
    struct dibs__cluster *cluster = dibs__cluster_of(base);
    bool is_release = op->kind == DIBS__OP_RELEASE;

    if (is_release)
        op->release.again = false;
    if (asked_for(op))
        *(is_release ? op->release.next.answer : op->ask.answer) = (struct dibs__answer){.fence = 0};
    struct cluster_op *cluster_op = take_op(cluster, op, error);
    dibs_status status = cluster_op ? DIBS_OK : error->status;
    if (cluster_op) {
        do
            status = finish_at(cluster, cluster_op, op, error);
        while (status == DIBS_UNAVAILABLE && goes_on(cluster, cluster_op, op));
        if (is_release && status != DIBS_OK && status != DIBS_NOT_HELD)
            retract_at(cluster_op->node->member, op);
        op->redirect = NULL;
        end_op(cluster, cluster_op, status);
    } else if (is_release) {
        op->release.next_status = DIBS_BUSY; /* nobody was asked for */
        retract_at(base, op);
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
