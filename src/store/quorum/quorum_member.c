/*
 * One member's part in the asks of a token: how the member is asked, what its answer means, and how its grant is given
 * back.
 *
 * No thread waits any more for operations that are detached: asks and releases that were begun. The scheduler's thread
 * looks for their replies, soon at first, then less often, and gives them up when the command timeout has passed. An
 * operation that could not be sent is given up at once, so that its retraction does not have to wait.
 *
 * Lock discipline: quorum_parts.h. While the scheduler's thread looks at a pending operation, its is_looked_at is set,
 * and no other thread takes the operation.
 */
#include "store/quorum/quorum_parts.h"

#define LOOK_FIRST (2 * DIBS__NS_PER_MS)
#define LOOK_LAST (50 * DIBS__NS_PER_MS)

static void begin_ask(struct dibs__pending_op *op, const struct dibs__attempt *attempt)
{
    op->attempt.lease_ms = attempt->lease_ms;
    op->attempt.shared = attempt->shared;
    op->attempt.limit = attempt->limit;
    op->attempt.wait = attempt->wait;
    op->answer = (struct dibs__answer){.fence = 0};
    dibs__pending_op_begin(op, dibs__op_ask(&op->attempt, &op->answer, 0));
}

/* An operation that is detached and not pending: the scheduler's thread has noted its answer, and is not done yet. */
bool dibs__member_ask(struct dibs__pending_op *op, const struct dibs__attempt *attempt)
{
    struct dibs__quorum *q = op->member->quorum;
    struct dibs__member_state *state = &op->claim->states[op->member->index];
    bool trusted =
        !dibs__member_is_distrusted(op->member) && !atomic_load_explicit(&op->member->strange, memory_order_relaxed);

    dibs__quorum_mutex_lock(&q->mutex);
    bool is_pending = state->phase == DIBS__MEMBER_PENDING, is_detached = dibs__pending_op_is_detached(op);
    bool taken_back = is_pending && dibs__detached_take(q, op);
    bool asks =
        attempt && trusted && !is_pending && !is_detached && state->phase != DIBS__MEMBER_RETIRED && !state->stuck;
    if (asks)
        state->phase = DIBS__MEMBER_PENDING;
    dibs__quorum_mutex_unlock(&q->mutex);
    if (asks)
        begin_ask(op, attempt);
    return taken_back || asks;
}

void dibs__member_retract(struct dibs__pending_op *op)
{
    struct dibs__store *store = op->member->store;
    const struct dibs__claim *claim = op->claim;

    op->attempt.in_store = false;
    store->ops->retract(store, claim->name, claim->token, atomic_load(&claim->longest_ms), claim->fence);
}

/* Called when the claim has ended and nothing is under way: leaves nothing of it at the member. */
static void clear_member(struct dibs__quorum *q, struct dibs__pending_op *op)
{
    struct dibs__member_state *state = &op->claim->states[op->member->index];

    dibs__quorum_mutex_lock(&q->mutex);
    bool has_lock = state->phase == DIBS__MEMBER_GRANTED || state->topping_up;
    state->phase = DIBS__MEMBER_RETIRED;
    dibs__quorum_mutex_unlock(&q->mutex);
    if (has_lock)
        dibs__member_retract(op);
    dibs__member_conclude(op, false);
}

static enum dibs__member_phase state_after(const struct dibs__pending_op *op, dibs_status status)
{
    if (op->answer.retired == DIBS__RETIRED)
        return DIBS__MEMBER_RETIRED;
    return status == DIBS_OK ? DIBS__MEMBER_GRANTED : status == DIBS_BUSY ? DIBS__MEMBER_TAKEN : DIBS__MEMBER_NOTHING;
}

enum dibs__claim_state dibs__member_note(struct dibs__quorum *q, struct dibs__pending_op *op, dibs_status status)
{
    struct dibs__member_state *state = &op->claim->states[op->member->index];

    dibs__quorum_mutex_lock(&q->mutex);
    state->phase = state_after(op, status);
    state->in_doubt = (status == DIBS_UNAVAILABLE && op->was_sent && op->answer.why != DIBS__WHY_NO_VOTE) ||
                      (status != DIBS_OK && status != DIBS_BUSY && op->attempt.in_store);
    state->stuck = state->stuck || op->answer.retired == DIBS__STUCK;
    state->fence = op->answer.fence;
    if (status == DIBS_OK) /* otherwise the member never granted it, as the store state says */
        state->lease = op->attempt.lease;
    enum dibs__claim_state claim_state = op->claim->state;
    dibs__quorum_mutex_unlock(&q->mutex);
    if (op->answer.why == DIBS__WHY_STEPPED)
        dibs__vote_distrust(op->member);
    else if (op->answer.why == DIBS__WHY_NO_VOTE)
        dibs__vote_want(q, atomic_load(&op->claim->longest_ms)); /* the master may know of no lease that long */
    return claim_state;
}

void dibs__member_leave(struct dibs__quorum *q, struct dibs__pending_op *op)
{
    const struct dibs__claim *claim = op->claim;

    dibs__quorum_mutex_lock(&q->mutex);
    op->claim->states[op->member->index].phase = DIBS__MEMBER_PENDING;
    dibs__quorum_mutex_unlock(&q->mutex);
    dibs__pending_op_begin(
        op, (struct dibs__op){
                .kind = DIBS__OP_RELEASE,
                .name = claim->name,
                .release = {.token = claim->token, .lease_ms = atomic_load(&claim->longest_ms), .quiet = true}});
}

/*
 * If a release had to be sent twice, the first sending may still arrive, and take back what a later ask was
 * granted. So the token is retired there.
 */
void dibs__member_left(struct dibs__quorum *q, struct dibs__pending_op *op, dibs_status status)
{
    struct dibs__member_state *state = &op->claim->states[op->member->index];
    bool is_gone = (status == DIBS_OK || status == DIBS_NOT_HELD) && !op->begun.release.again;

    dibs__quorum_mutex_lock(&q->mutex);
    state->phase = is_gone ? DIBS__MEMBER_NOTHING : DIBS__MEMBER_RETIRED;
    bool ended = op->claim->state == DIBS__CLAIM_ENDED;
    dibs__quorum_mutex_unlock(&q->mutex);
    if (is_gone)
        op->attempt.in_store = false;
    if (ended)
        clear_member(q, op);
}

/* -------------------------------------------------------------------- detached */

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

/*
 * An answer that comes when the lock is already held. A grant is one more vote, unless the claim has ended meanwhile.
 * The answer may be older than a change that the member has reported.
 */
static void take_late_answer(struct dibs__quorum *q, struct dibs__pending_op *op)
{
    const struct dibs__claim *claim = op->claim;
    struct dibs__member_state *state = &op->claim->states[op->member->index];

    dibs__quorum_mutex_lock(&q->mutex);
    bool is_told = claim->state != DIBS__CLAIM_ENDED && state->passed_over;
    state->passed_over = false;
    dibs__quorum_mutex_unlock(&q->mutex);
    if (is_told)
        q->config.listener.changed(q->config.listener.context, claim->name);
}

/*
 * The ask of a detached operation is over. A late grant is one more vote if the claim is held; otherwise it is given
 * back. If the claim has ended, `land` clears the member.
 */
static void land_late(struct dibs__quorum *q, struct dibs__pending_op *op, dibs_status status)
{
    enum dibs__claim_state state = dibs__member_note(q, op, status);

    if (state == DIBS__CLAIM_HELD)
        take_late_answer(q, op);
    else if (state != DIBS__CLAIM_ENDED && (status == DIBS_OK || dibs__pending_op_is_unconfirmed(op)))
        dibs__member_leave(q, op);
}

/* Finishes an operation. That may begin another one: a late grant of a claim that is not held is given back. */
static void land(struct dibs__quorum *q, struct dibs__pending_op *op, int64_t now)
{
    struct dibs__claim *claim = op->claim;
    bool was_ask = op->begun.kind == DIBS__OP_ASK;
    struct dibs__error unused;
    dibs_status status = dibs__pending_op_finish(op, 0, &unused);

    if (was_ask)
        land_late(q, op, status);
    else
        dibs__member_left(q, op, status);
    if (op->begun.kind != DIBS__OP_NONE) {
        put_back(q, op, now);
        return;
    }
    dibs__quorum_mutex_lock(&q->mutex);
    if (claim->state == DIBS__CLAIM_ENDED && claim->states[op->member->index].phase != DIBS__MEMBER_RETIRED) {
        /* Whoever ended the claim has left this member to the operation, and does so as long as that is detached. */
        dibs__quorum_mutex_unlock(&q->mutex);
        clear_member(q, op);
        dibs__quorum_mutex_lock(&q->mutex);
    }
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
