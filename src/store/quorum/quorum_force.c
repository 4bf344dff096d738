/*
 * The forced unlock, and dibs_forget. If a forced unlock names no token, a majority says who holds the lock, and that
 * token is forced at all masters (PROTOCOL.md, rule 22). A token that only a minority has is left alone: it may belong
 * to a thread that is just acquiring the lock, and it keeps others from a majority for a lease at most. Lock
 * discipline: quorum_parts.h.
 */
#include <stdlib.h>

#include "store/quorum/quorum_parts.h"

#define AGAIN_FIRST_MS 2 /* the first pause before the masters are asked again, */
#define AGAIN_LAST_MS 50 /* and the longest */

/* At which members an operation was done, and which refused it; the others failed. */
struct outcome {
    uint32_t done, refused;
};

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
 * Carries out the operation at the members of the set, one after the other; each gets its share of the time that is
 * left. A member that refuses answers DIBS_NOT_HELD or DIBS_BUSY. The error is the worst of those that failed.
 */
static struct outcome at_each(struct dibs__quorum *q, const struct dibs__op *op, uint32_t set,
                              struct dibs__error *error)
{
    struct dibs__member *order[DIBS__MEMBERS_MAX] = {NULL};
    struct outcome outcome = {.done = 0};

    dibs__quorum_put_in_order(q, order);
    for (size_t i = 0; i < q->count; i++) {
        uint32_t bit = (uint32_t)1 << order[i]->index;
        struct dibs__error its = {DIBS_OK, ""};
        if (!(set & bit))
            continue;
        dibs_status status = dibs__quorum_finish_at(order[i], op, dibs__set_count(set), &its);
        set &= ~bit;
        if (status == DIBS_OK)
            outcome.done |= bit;
        else if (status == DIBS_NOT_HELD || status == DIBS_BUSY)
            outcome.refused |= bit;
        else
            dibs__error_keep_worst(error, &its);
    }
    return outcome;
}

/* ------------------------------------------------------------------ forced unlock */

/* Forces the token at the members of *set, and takes those that fail out of it. DIBS_NOT_HELD: a majority says so. */
static dibs_status force(struct dibs__quorum *q, const struct dibs__op *op, const char *token, uint32_t *set,
                         struct dibs__error *error)
{
    struct dibs__op its = *op;

    its.force.token = token;
    const struct outcome outcome = at_each(q, &its, *set, error);
    *set = outcome.done | outcome.refused;
    if (dibs__set_count(outcome.done) >= q->majority)
        return DIBS_OK;
    if (q->count - dibs__set_count(outcome.refused) < q->majority)
        return DIBS_NOT_HELD;
    if (dibs__set_count(*set) < q->majority || error->status != DIBS_UNAVAILABLE)
        return dibs__quorum_no_majority(q, dibs__set_count(*set), error);
    struct dibs__error why = *error;
    return dibs__error_set(error, DIBS_UNAVAILABLE,
                           "the lock was taken away at %u of %zu masters, and another has it at %u: %.*s",
                           dibs__set_count(outcome.done), q->count, dibs__set_count(outcome.refused),
                           (int)sizeof why.detail / 2, why.detail);
}

/* Forces each of the sharers that a majority names. DIBS_NOT_HELD: none of them has the lock by now. */
static dibs_status force_sharers(struct dibs__quorum *q, const struct dibs__op *op, const struct dibs__sharers *sharers,
                                 struct dibs__error *error)
{
    dibs_status all = DIBS_NOT_HELD;
    uint32_t set = dibs__quorum_all(q);

    for (size_t i = 0; i < sharers->count; i++) {
        dibs_status status = force(q, op, sharers->items[i].token, &set, error);
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
        return force(q, &its, owner.token, &(uint32_t){dibs__quorum_all(q)}, error);
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
    return op->force.token ? force(q, op, op->force.token, &(uint32_t){dibs__quorum_all(q)}, error)
                           : force_any(q, op, error);
}

/* --------------------------------------------------------------------- forget */

/*
 * A master that does not answer keeps its fence until that expires; the others nevertheless forget theirs. What
 * only a minority has may belong to a lock that was released a moment ago: these masters are asked again.
 */
dibs_status dibs__quorum_forget(struct dibs__store *base, struct dibs__op *op, struct dibs__error *error)
{
    struct dibs__quorum *q = dibs__quorum_of(base);
    struct dibs__backoff backoff = {.first_ms = AGAIN_FIRST_MS};
    uint32_t in_use = dibs__quorum_all(q);

    error->status = DIBS_OK;
    do
        in_use = at_each(q, op, in_use, error).refused; /* somebody has the lock there, or waits for it */
    while (in_use && dibs__set_count(in_use) < q->majority &&
           dibs__quorum_pause(q, &backoff, AGAIN_LAST_MS, op->deadline));
    return in_use ? DIBS_BUSY : error->status;
}
