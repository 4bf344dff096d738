/*
 * Detached pending operations: asks and releases that were begun, and that no thread waits for any
 * more. The scheduler's thread looks for their replies, soon at first, then less often, and gives
 * them up when the command timeout has passed. An operation that could not be sent is given up at
 * once, so that its retraction does not have to wait.
 *
 * Lock discipline: quorum_parts.h. While the scheduler's thread looks at a pending operation, its
 * is_looked_at is set, and no other thread takes the operation.
 */
#include "store/quorum/quorum_parts.h"

#define LOOK_FIRST (2 * DIBS__NS_PER_MS)
#define LOOK_LAST (50 * DIBS__NS_PER_MS)

void dibs__detached_add(struct dibs__quorum *q, struct dibs__claim *claim, uint32_t set)
{
    int64_t at = dibs__quorum_now(q) + LOOK_FIRST;

    if (!set)
        return;
    dibs__quorum_mutex_lock(&q->mutex);
    for (size_t i = 0; i < q->count; i++) {
        if (!dibs__set_has(set, i))
            continue;
        struct dibs__pending_op *op = &claim->ops[i];
        DIBS__REQUIRE(!dibs__pending_op_is_detached(op) && op->begun.kind != DIBS__OP_NONE);
        op->look_at = at;
        DIBS__LIST_APPEND(q->detached, op, links);
        claim->references++;
        atomic_fetch_add(&q->config.counters->unconfirmed, 1);
    }
    dibs__quorum_mutex_unlock(&q->mutex);
    q->config.listener.wake_by(q->config.listener.context, at);
}

/*
 * Takes the operation out of the list; the caller gets the list's reference to the claim. A listed operation
 * counts as unconfirmed, because it may have to be retracted when it is over.
 */
static void take_out(struct dibs__quorum *q, struct dibs__pending_op *op) DIBS__REQUIRES(dibs__quorum_mutex)
{
    DIBS__LIST_REMOVE(q->detached, op, links);
    atomic_fetch_sub(&q->config.counters->unconfirmed, 1);
}

bool dibs__detached_take(struct dibs__quorum *q, struct dibs__pending_op *op)
{
    if (!dibs__pending_op_is_detached(op) || op->is_looked_at)
        return false;
    take_out(q, op);
    DIBS__REQUIRE(op->claim->references > 1);
    op->claim->references--; /* the caller has one of its own */
    return true;
}

int64_t dibs__detached_deadline(struct dibs__quorum *q)
{
    int64_t deadline = DIBS__NEVER;

    dibs__quorum_mutex_lock(&q->mutex);
    for (const struct dibs__pending_op *at = q->detached; at; at = at->links.next)
        deadline = at->look_at < deadline ? at->look_at : deadline;
    dibs__quorum_mutex_unlock(&q->mutex);
    return deadline;
}

/* The next operation that is due, marked as looked at. NULL: none is due. */
static struct dibs__pending_op *take_due(struct dibs__quorum *q, int64_t now)
{
    dibs__quorum_mutex_lock(&q->mutex);
    struct dibs__pending_op *op = q->detached;
    while (op && op->look_at > now)
        op = op->links.next;
    if (op)
        op->is_looked_at = true;
    dibs__quorum_mutex_unlock(&q->mutex);
    return op;
}

/* The longer an operation has taken so far, the later it is looked at again: behind those that are due before. */
static void put_back(struct dibs__quorum *q, struct dibs__pending_op *op, int64_t now)
{
    int64_t pause = now - op->sent_at, end = dibs__pending_op_end(op);

    pause = pause < LOOK_FIRST ? LOOK_FIRST : pause > LOOK_LAST ? LOOK_LAST : pause;
    dibs__quorum_mutex_lock(&q->mutex);
    op->look_at = now + pause < end ? now + pause : end > now ? end : now + LOOK_FIRST;
    op->is_looked_at = false;
    DIBS__LIST_REMOVE(q->detached, op, links);
    DIBS__LIST_APPEND(q->detached, op, links);
    dibs__quorum_mutex_unlock(&q->mutex);
}

/* Finishes an operation. That may begin another one: a late grant of a claim that is not held is given back. */
static void land(struct dibs__quorum *q, struct dibs__pending_op *op, int64_t now)
{
    struct dibs__claim *claim = op->claim;
    bool was_ask = op->begun.kind == DIBS__OP_ASK;
    struct dibs__error unused;
    dibs_status status = dibs__pending_op_finish(op, 0, &unused);

    if (was_ask)
        dibs__member_land_late(q, op, status);
    else
        dibs__member_left(q, op, status);
    if (op->begun.kind != DIBS__OP_NONE) {
        put_back(q, op, now);
        return;
    }
    dibs__quorum_mutex_lock(&q->mutex);
    op->is_looked_at = false;
    take_out(q, op); /* the list's reference belongs to this function now */
    dibs__quorum_mutex_unlock(&q->mutex);
    dibs__claim_unref(q, claim);
}

void dibs__detached_attend(struct dibs__quorum *q, int64_t now)
{
    struct dibs__pending_op *op;

    while ((op = take_due(q, now))) {
        enum dibs__progress progress = dibs__pending_op_progress(op, NULL);
        if (progress != DIBS__OP_AWAITED || now >= dibs__pending_op_end(op)) {
            land(q, op, now);
            continue;
        }
        dibs__pending_op_note_delay(op, now);
        put_back(q, op, now);
    }
}

void dibs__detached_attend_all(struct dibs__quorum *q)
{
    dibs__quorum_mutex_lock(&q->mutex);
    for (struct dibs__pending_op *at = q->detached; at; at = at->links.next)
        at->look_at = 0;
    dibs__quorum_mutex_unlock(&q->mutex);
    dibs__detached_attend(q, dibs__quorum_now(q));
}

void dibs__detached_finish_all(struct dibs__quorum *q)
{
    struct dibs__pending_op *op;

    while ((op = take_due(q, DIBS__NEVER)))
        land(q, op, 0);
}
