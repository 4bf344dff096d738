/*
 * The forced unlock. If it names no token, a majority says who holds the lock, and that token is forced at all
 * masters (PROTOCOL.md, rule 22). A token that only a minority has is left alone: it may belong to a thread
 * that is just acquiring the lock, and it keeps others from a majority for a lease at most. Lock discipline:
 * quorum_parts.h.
 */
#include <stdlib.h>

#include "store/quorum/quorum_parts.h"

#define AGAIN_FIRST_MS 2 /* the first pause before the masters are asked again who holds the lock, */
#define AGAIN_LAST_MS 50 /* and the longest */

dibs_status dibs__quorum_finish_at(const struct dibs__member *member, const struct dibs__op *op, size_t count,
                                   struct dibs__error *error)
{
    int64_t now = dibs__quorum_now(member->quorum), left = op->deadline - now;
    struct dibs__op its = *op;

    if (op->deadline != DIBS__NEVER)
        its.deadline = now + left / (int64_t)count;
    return member->store->ops->finish(member->store, &its, error);
}

/*
 * Forces the token at one member after the other; each gets its share of the time that is left. *silent: members that
 * failed, which are not asked again. DIBS_NOT_HELD: a majority says so.
 */
static dibs_status force(struct dibs__quorum *q, const struct dibs__op *op, const char *token, uint32_t *silent,
                         struct dibs__error *error)
{
    struct dibs__member *order[DIBS__MEMBERS_MAX] = {NULL};
    struct dibs__op its_op = *op;
    size_t done = 0, not_held = 0;

    its_op.force.token = token;
    dibs__quorum_put_in_order(q, order);
    for (size_t i = 0; i < q->count; i++) {
        struct dibs__error its = {DIBS_OK, ""};
        if (dibs__set_has(*silent, order[i]->index))
            continue;
        dibs_status status = dibs__quorum_finish_at(order[i], &its_op, q->count - i, &its);
        done += status == DIBS_OK;
        not_held += status == DIBS_NOT_HELD;
        if (status == DIBS_OK || status == DIBS_NOT_HELD)
            continue;
        *silent |= (uint32_t)1 << order[i]->index;
        dibs__error_keep_worst(error, &its);
    }
    if (done >= q->majority)
        return DIBS_OK;
    return q->count - not_held < q->majority ? DIBS_NOT_HELD
                                             : dibs__quorum_no_majority(q, (unsigned)(done + not_held), error);
}

/* Forces each of the sharers that a majority names. DIBS_NOT_HELD: none of them has the lock by now. */
static dibs_status force_sharers(struct dibs__quorum *q, const struct dibs__op *op, const struct dibs__sharers *sharers,
                                 struct dibs__error *error)
{
    dibs_status all = DIBS_NOT_HELD;
    uint32_t silent = 0;

    for (size_t i = 0; i < sharers->count; i++) {
        dibs_status status = force(q, op, sharers->items[i].token, &silent, error);
        if (status != DIBS_OK && status != DIBS_NOT_HELD)
            return status;
        all = status == DIBS_OK ? DIBS_OK : all;
    }
    return all;
}

/*
 * Forces whoever has the lock now, or those who share it. DIBS_NOT_HELD: another has it by now, there may be more, or
 * it is not known who has it.
 */
static dibs_status force_holders(struct dibs__quorum *q, const struct dibs__op *op, struct dibs__sharers *sharers,
                                 struct dibs__error *error)
{
    dibs_owner owner = {0};
    struct dibs__op query = {.kind = DIBS__OP_QUERY,
                             .name = op->name,
                             .deadline = op->deadline,
                             .query = {.owner = &owner, .sharers = sharers}};
    struct dibs__op its = *op;

    if (dibs__quorum_query_finish(&q->store, &query, error) != DIBS_OK)
        return error->status;
    error->status = DIBS_OK;
    its.force.is_shown = owner.sharers == 0;
    if (owner.held && owner.sharers == 0)
        return force(q, &its, owner.token, &(uint32_t){0}, error);
    if (!owner.held || sharers->count == 0)
        return query.query.unsure ? DIBS_NOT_HELD : DIBS_OK;
    dibs_status status = force_sharers(q, &its, sharers, error);
    return status == DIBS_OK && sharers->count == sharers->most ? DIBS_NOT_HELD : status;
}

static dibs_status force_any(struct dibs__quorum *q, const struct dibs__op *op, struct dibs__error *error)
{
    struct dibs__backoff backoff = {.first_ms = AGAIN_FIRST_MS};
    struct dibs__sharers sharers = {.most = DIBS_SHARERS_MAX, .by_majority = true};
    dibs_status status;

    sharers.items = calloc(sharers.most, sizeof *sharers.items);
    if (!sharers.items)
        return dibs__quorum_no_memory(error);
    do
        status = force_holders(q, op, &sharers, error);
    while (status == DIBS_NOT_HELD && dibs__quorum_pause(q, &backoff, AGAIN_LAST_MS, op->deadline));
    if (status == DIBS_NOT_HELD)
        status = dibs__error_set(error, DIBS_UNAVAILABLE, "no majority of the masters says who holds the lock");
    free(sharers.items);
    return status;
}

dibs_status dibs__quorum_force(struct dibs__store *base, struct dibs__op *op, struct dibs__error *error)
{
    struct dibs__quorum *q = dibs__quorum_of(base);

    error->status = DIBS_OK;
    return op->force.token ? force(q, op, op->force.token, &(uint32_t){0}, error) : force_any(q, op, error);
}
