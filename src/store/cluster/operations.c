/* The operations of store.h that a thread waits for, and what belongs to one name. */
#include "store/cluster/cluster_parts.h"

/* ----------------------------------------------------------- an attempt and its node */

/* What the cluster notes with an attempt: 1 more than the place of the node that may know it, which is in use; 0: none.
 */
static uint64_t *place_of(struct dibs__attempt *attempt)
{
    return &attempt->store_state.outer[0];
}

/* No node may know the attempt any more. */
static void leave_node(struct dibs__cluster *cluster, struct dibs__attempt *attempt)
{
    if (*place_of(attempt) > 0)
        dibs__node_unuse(&cluster->nodes[*place_of(attempt) - 1]);
    *place_of(attempt) = 0;
}

/*
 * The attempt is about to be asked for at the node. A slot that has moved carried
 * what was in it, also the attempt's place in the queue. Where an ask at the other
 * node is in doubt, the token is retired: its retraction begins there, and follows
 * the slot. False: that is so.
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
    if (!dibs__node_use(node)) /* it is in use already */
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

/* The queue moves with the slot, so the release finds the token wherever the slot is by then. */
bool dibs__cluster_may_release(const struct dibs__store *base, const struct dibs__attempt *attempt)
{
    (void)base;
    return attempt->store_state.outer[0] > 0 && attempt->in_store && !dibs__redis_attempt_is_in_doubt(attempt);
}

/* ------------------------------------------------------------------------- asks */

void dibs__cluster_ask_begin(struct dibs__store *base, struct dibs__attempt *attempt)
{
    struct dibs__cluster *cluster = dibs__cluster_of(base);
    struct dibs__cluster_op *cluster_op = dibs__cluster_op_new(cluster, attempt->name);

    if (!cluster_op)
        return;
    if (*place_of(attempt) > 0 &&
        *place_of(attempt) != cluster_op->node->place + 1u) { /* it may have to be retired: by finish */
        dibs__cluster_op_end(cluster, cluster_op, NULL, DIBS_OK);
        return;
    }
    come_to(cluster, attempt, cluster_op->node);
    attempt->begun.redirect = &cluster_op->redirect;
    cluster_op->node->member->ops->ask_begin(cluster_op->node->member, attempt);
}

/* A server that is known by its answer alone so far. */
static void note_server(struct dibs__node *node, const struct dibs__attempt *attempt)
{
    if (atomic_load_explicit(&node->server, memory_order_relaxed) == 0)
        atomic_store(&node->server, dibs__redis_lease_server(&attempt->lease));
}

dibs_status dibs__cluster_ask_finish(struct dibs__store *base, struct dibs__attempt *attempt,
                                     struct dibs__answer *answer, struct dibs__error *error)
{
    struct dibs__cluster *cluster = dibs__cluster_of(base);
    struct dibs__cluster_op here, *cluster_op;

    *answer = (struct dibs__answer){.fence = 0};
    dibs_status status =
        dibs__cluster_op_take(cluster, &attempt->begun, &here, attempt->name, attempt->deadline, &cluster_op, error);
    if (!cluster_op)
        return status;
    do {
        if (!come_to(cluster, attempt, cluster_op->node)) {
            *answer = (struct dibs__answer){.retired = true};
            status =
                dibs__error_set(error, DIBS_UNAVAILABLE, "%s: an ask at another node is in doubt", cluster->url.shown);
            break;
        }
        status = cluster_op->node->member->ops->ask_finish(cluster_op->node->member, attempt, answer, error);
    } while (status == DIBS_UNAVAILABLE && !answer->retired &&
             (dibs__cluster_op_goes_on(cluster, cluster_op, attempt->deadline, !attempt->wait) ||
              (!attempt->wait && !answer->too_few_replicas &&
               dibs__cluster_op_finds_heir(cluster, cluster_op, attempt->deadline, false))));
    if (status == DIBS_OK)
        note_server(cluster_op->node, attempt);
    attempt->begun.redirect = NULL;
    dibs__cluster_op_end(cluster, cluster_op, &here, status);
    return status;
}

/* --------------------------------------------------------------------- releases */

void dibs__cluster_release_begin(struct dibs__store *base, struct dibs__release *release)
{
    struct dibs__cluster *cluster = dibs__cluster_of(base);
    struct dibs__cluster_op *cluster_op = dibs__cluster_op_new(cluster, release->name);
    struct dibs__attempt *next = release->next;

    if (!cluster_op)
        return;
    if (next && *place_of(next) > 0 && *place_of(next) != cluster_op->node->place + 1u) {
        dibs__cluster_op_end(cluster, cluster_op, NULL, DIBS_OK);
        return;
    }
    if (next)
        come_to(cluster, next, cluster_op->node);
    release->begun.redirect = &cluster_op->redirect;
    cluster_op->node->member->ops->release_begin(cluster_op->node->member, release);
}

/* One leg: the release, and what it says of the next attempt, unless the token of that is retired by now. */
static dibs_status release_at(struct dibs__cluster *cluster, struct dibs__cluster_op *cluster_op,
                              struct dibs__release *release, struct dibs__attempt *next, struct dibs__release *sum,
                              struct dibs__error *error)
{
    struct dibs__store *member = cluster_op->node->member;

    if (next && !sum->next_answer.retired && !come_to(cluster, next, cluster_op->node)) {
        sum->next_status = DIBS_UNAVAILABLE;
        sum->next_answer = (struct dibs__answer){.retired = true};
    }
    release->next = sum->next_answer.retired ? NULL : next;
    dibs_status status = member->ops->release_finish(member, release, error);
    sum->again = sum->again || release->again || cluster_op->redirect.in_doubt;
    if (release->next) {
        sum->next_status = release->next_status;
        sum->next_answer = release->next_answer;
    }
    return status;
}

dibs_status dibs__cluster_release_finish(struct dibs__store *base, struct dibs__release *release,
                                         struct dibs__error *error)
{
    struct dibs__cluster *cluster = dibs__cluster_of(base);
    struct dibs__release sum = {.next_status = DIBS_BUSY};
    struct dibs__attempt *next = release->next;
    struct dibs__cluster_op here, *cluster_op;
    dibs_status status =
        dibs__cluster_op_take(cluster, &release->begun, &here, release->name, release->deadline, &cluster_op, error);

    if (cluster_op) {
        do
            status = release_at(cluster, cluster_op, release, next, &sum, error);
        while (status == DIBS_UNAVAILABLE &&
               (dibs__cluster_op_goes_on(cluster, cluster_op, release->deadline, true) ||
                dibs__cluster_op_finds_heir(cluster, cluster_op, release->deadline, true)));
        if (status != DIBS_OK && status != DIBS_NOT_HELD)
            cluster_op->node->member->ops->retract(cluster_op->node->member, release->name, release->token,
                                                   release->lease_ms, release->fence);
        release->begun.redirect = NULL;
        dibs__cluster_op_end(cluster, cluster_op, &here, status);
    } else {
        dibs__cluster_retract(base, release->name, release->token, release->lease_ms, release->fence);
    }
    release->next = next;
    release->again = sum.again;
    release->next_status = sum.next_status;
    release->next_answer = sum.next_answer;
    return status;
}

/* Any node that is known can begin with it: it goes on from there. */
void dibs__cluster_retract(struct dibs__store *base, const char *name, const char *token, uint32_t lease_ms,
                           uint64_t fence)
{
    struct dibs__cluster *cluster = dibs__cluster_of(base);
    struct dibs__node *node = dibs__map_use_owner(cluster, dibs__cluster_slot(cluster, name));

    if (!node && dibs__node_use(&cluster->nodes[0]))
        node = &cluster->nodes[0];
    if (!node)
        return;
    node->member->ops->retract(node->member, name, token, lease_ms, fence);
    dibs__node_unuse(node);
}

/* ------------------------------------------------------------------------ others */

void dibs__cluster_query_begin(struct dibs__store *base, struct dibs__query *query)
{
    struct dibs__cluster_op *cluster_op = dibs__cluster_op_new(dibs__cluster_of(base), query->name);

    if (!cluster_op)
        return;
    query->begun.redirect = &cluster_op->redirect;
    cluster_op->node->member->ops->query_begin(cluster_op->node->member, query);
}

dibs_status dibs__cluster_query_finish(struct dibs__store *base, struct dibs__query *query, dibs_owner *owner,
                                       struct dibs__error *error)
{
    struct dibs__cluster *cluster = dibs__cluster_of(base);
    struct dibs__cluster_op here, *cluster_op;
    dibs_status status =
        dibs__cluster_op_take(cluster, &query->begun, &here, query->name, query->deadline, &cluster_op, error);

    if (!cluster_op)
        return status;
    do
        status = cluster_op->node->member->ops->query_finish(cluster_op->node->member, query, owner, error);
    while (status == DIBS_UNAVAILABLE && (dibs__cluster_op_goes_on(cluster, cluster_op, query->deadline, true) ||
                                          dibs__cluster_op_finds_heir(cluster, cluster_op, query->deadline, false)));
    query->begun.redirect = NULL;
    dibs__cluster_op_end(cluster, cluster_op, &here, status);
    return status;
}

dibs_status dibs__cluster_force_unlock(struct dibs__store *base, const char *name, const char *token, int64_t deadline,
                                       struct dibs__error *error)
{
    struct dibs__cluster *cluster = dibs__cluster_of(base);
    struct dibs__begun begun = {.state = NULL};
    struct dibs__cluster_op here, *cluster_op;
    dibs_status status = dibs__cluster_op_take(cluster, &begun, &here, name, deadline, &cluster_op, error);

    if (!cluster_op)
        return status;
    do
        status = dibs__redis_force_at(cluster_op->node->member, name, token, deadline, &cluster_op->redirect, error);
    while (status == DIBS_UNAVAILABLE && dibs__cluster_op_goes_on(cluster, cluster_op, deadline, true));
    dibs__cluster_op_end(cluster, cluster_op, &here, status);
    return status;
}

dibs_status dibs__cluster_forget(struct dibs__store *base, const char *name, int64_t deadline,
                                 struct dibs__error *error)
{
    struct dibs__cluster *cluster = dibs__cluster_of(base);
    struct dibs__begun begun = {.state = NULL};
    struct dibs__cluster_op here, *cluster_op;
    dibs_status status = dibs__cluster_op_take(cluster, &begun, &here, name, deadline, &cluster_op, error);

    if (!cluster_op)
        return status;
    do
        status = dibs__redis_forget_at(cluster_op->node->member, name, deadline, &cluster_op->redirect, error);
    while (status == DIBS_UNAVAILABLE && dibs__cluster_op_goes_on(cluster, cluster_op, deadline, true));
    dibs__cluster_op_end(cluster, cluster_op, &here, status);
    return status;
}

bool dibs__cluster_await(struct dibs__store *base, const struct dibs__begun *begun, int64_t until)
{
    const struct dibs__cluster_op *cluster_op = (const struct dibs__cluster_op *)begun->redirect;

    (void)base;
    return cluster_op && cluster_op->node->member->ops->await(cluster_op->node->member, begun, until);
}

/* What could not set out is finish's to send, which has the map asked for where there is none. */
enum dibs__sent dibs__cluster_is_sent(struct dibs__store *base, const struct dibs__begun *begun)
{
    const struct dibs__cluster_op *cluster_op = (const struct dibs__cluster_op *)begun->redirect;

    (void)base;
    return cluster_op ? cluster_op->node->member->ops->is_sent(cluster_op->node->member, begun)
                      : DIBS__UNSENT_CONNECTED;
}

/* ----------------------------------------------------------------------- waiting */

void dibs__cluster_listen(struct dibs__store *base, const char *name, struct dibs__wait_event *wait_event,
                          int64_t until)
{
    struct dibs__cluster *cluster = dibs__cluster_of(base);
    struct dibs__node *node = dibs__map_use_owner(cluster, dibs__cluster_slot(cluster, name));

    if (node) {
        node->member->ops->listen(node->member, name, wait_event, until);
        dibs__node_unuse(node);
    } else {
        dibs__wait_event_wait(wait_event, cluster->config.clock, until);
    }
}

void dibs__cluster_unheard(struct dibs__store *base, const char *name)
{
    struct dibs__cluster *cluster = dibs__cluster_of(base);
    struct dibs__node *node = dibs__map_use_owner(cluster, dibs__cluster_slot(cluster, name));

    if (!node)
        return;
    node->member->ops->unheard(node->member, name);
    dibs__node_unuse(node);
}

/* What it returns says which node told so: another one is to be told anew. */
uint64_t dibs__cluster_tell_when_free(struct dibs__store *base, const char *name, uint64_t since)
{
    struct dibs__cluster *cluster = dibs__cluster_of(base);
    struct dibs__node *node = dibs__map_use_owner(cluster, dibs__cluster_slot(cluster, name));

    if (!node)
        return 0;
    uint64_t before = since % DIBS__NODES_MAX == node->place ? since / DIBS__NODES_MAX : 0;
    uint64_t on = node->member->ops->tell_when_free(node->member, name, before);
    unsigned place = node->place;
    dibs__node_unuse(node);
    return on > 0 ? on * DIBS__NODES_MAX + place : 0;
}
