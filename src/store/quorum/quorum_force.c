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

/* A token that is forced, and how many members have answered how. */
struct forced {
    const char *token;
    size_t done, not_held;
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

/* Forces all tokens at one member, which gets one of `left` shares of the time, unless one of them fails. */
static void force_at(const struct dibs__member *member, size_t left, const struct dibs__op *op, struct forced *forced,
                     size_t count, struct dibs__error *error)
{
    struct dibs__op its = *op;
    bool failed = false;

    for (size_t i = 0; i < count && !failed; i++) {
        its.force.token = forced[i].token;
        dibs_status status = dibs__quorum_finish_at(member, &its, left, error);
        forced[i].done += status == DIBS_OK;
        forced[i].not_held += status == DIBS_NOT_HELD;
        failed = status != DIBS_OK && status != DIBS_NOT_HELD;
    }
}

/* DIBS_NOT_HELD: a majority says so of each token. */
static dibs_status outcome(const struct dibs__quorum *q, const struct forced *forced, size_t count,
                           struct dibs__error *error)
{
    dibs_status status = DIBS_NOT_HELD;

    for (size_t i = 0; i < count; i++) {
        bool is_done = forced[i].done >= q->majority;
        if (!is_done && q->count - forced[i].not_held >= q->majority)
            return dibs__quorum_no_majority(q, (unsigned)(forced[i].done + forced[i].not_held), error);
        status = is_done ? DIBS_OK : status;
    }
    return status;
}

/* Forces the tokens at one member after the other. */
static dibs_status force(struct dibs__quorum *q, const struct dibs__op *op, struct forced *forced, size_t count,
                         struct dibs__error *error)
{
    struct dibs__member *order[DIBS__MEMBERS_MAX] = {NULL};

    error->status = DIBS_OK;
    dibs__quorum_put_in_order(q, order);
    for (size_t i = 0; i < q->count; i++) {
        struct dibs__error its = {DIBS_OK, ""};
        force_at(order[i], q->count - i, op, forced, count, &its);
        if (its.status != DIBS_NOT_HELD)
            dibs__error_keep_worst(error, &its);
    }
    return outcome(q, forced, count, error);
}

/*
 * Forces whoever has the lock now, or those who share it. DIBS_NOT_HELD: another has it by now, there may be more, or
 * it is not known who has it.
 */
static dibs_status force_holders(struct dibs__quorum *q, const struct dibs__op *op, struct dibs__sharers *sharers,
                                 struct forced *forced, struct dibs__error *error)
{
    dibs_owner owner = {0};
    struct dibs__op query = {.kind = DIBS__OP_QUERY,
                             .name = op->name,
                             .deadline = op->deadline,
                             .query = {.owner = &owner, .sharers = sharers}};
    struct dibs__op its = *op;

    if (dibs__quorum_query_finish(&q->store, &query, error) != DIBS_OK)
        return error->status;
    its.force.is_shown = owner.sharers == 0;
    if (owner.held && owner.sharers == 0)
        return force(q, &its, &(struct forced){.token = owner.token}, 1, error);
    if (!owner.held || sharers->count == 0)
        return query.query.unsure ? DIBS_NOT_HELD : DIBS_OK;
    for (size_t i = 0; i < sharers->count; i++)
        forced[i] = (struct forced){.token = sharers->items[i].token};
    dibs_status status = force(q, &its, forced, sharers->count, error);
    return status == DIBS_OK && sharers->count == sharers->most ? DIBS_NOT_HELD : status;
}

static dibs_status force_any(struct dibs__quorum *q, const struct dibs__op *op, struct dibs__error *error)
{
    struct dibs__backoff backoff = {.first_ms = AGAIN_FIRST_MS};
    struct dibs__sharers sharers = {.most = DIBS_SHARERS_MAX, .by_majority = true};
    struct forced *forced = calloc(sharers.most, sizeof *forced);
    dibs_status status;

    sharers.items = calloc(sharers.most, sizeof *sharers.items);
    if (!sharers.items || !forced)
        status = dibs__quorum_no_memory(error);
    else
        while ((status = force_holders(q, op, &sharers, forced, error)) == DIBS_NOT_HELD)
            if (!dibs__quorum_pause(q, &backoff, AGAIN_LAST_MS, op->deadline)) {
                status = dibs__error_set(error, DIBS_UNAVAILABLE, "no majority of the masters says who holds the lock");
                break;
            }
    free(sharers.items);
    free(forced);
    return status;
}

dibs_status dibs__quorum_force(struct dibs__store *base, struct dibs__op *op, struct dibs__error *error)
{
    struct dibs__quorum *q = dibs__quorum_of(base);

    error->status = DIBS_OK;
    return op->force.token ? force(q, op, &(struct forced){.token = op->force.token}, 1, error)
                           : force_any(q, op, error);
}
