/*
 * One member's part in the asks of a token: how the member is asked, what its answer means, and how its grant
 * is given back. Lock discipline: quorum_parts.h.
 */
#include "store/quorum/quorum_parts.h"

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

/* Called when the claim has ended and nothing is under way: leaves nothing of it at the member. */
static void clear_member(struct dibs__quorum *q, struct dibs__pending_op *op)
{
    dibs__quorum_mutex_lock(&q->mutex);
    op->claim->states[op->member->index].phase = DIBS__MEMBER_RETIRED;
    dibs__quorum_mutex_unlock(&q->mutex);
    dibs__member_conclude(op, false);
}

/*
 * An answer that comes when the lock is already held. A grant is one more vote, unless the claim has ended meanwhile.
 * The answer may be older than a change that the member has reported.
 */
static void take_late_answer(struct dibs__quorum *q, struct dibs__pending_op *op, bool granted)
{
    const struct dibs__claim *claim = op->claim;
    struct dibs__member_state *state = &op->claim->states[op->member->index];
    struct dibs__store *store = op->member->store;

    if (granted)
        dibs__member_conclude(op, true);
    dibs__quorum_mutex_lock(&q->mutex);
    bool ended = claim->state == DIBS__CLAIM_ENDED, passed_over = state->passed_over;
    state->passed_over = false;
    dibs__quorum_mutex_unlock(&q->mutex);
    if (ended && granted)
        store->ops->retract(store, claim->name, claim->token, atomic_load(&claim->longest_ms), claim->fence);
    else if (!ended && passed_over)
        q->config.listener.changed(q->config.listener.context, claim->name);
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
    state->in_doubt = status == DIBS_UNAVAILABLE && op->was_sent && op->answer.why != DIBS__WHY_NO_VOTE;
    state->stuck = state->stuck || op->answer.retired == DIBS__STUCK;
    state->fence = op->answer.fence;
    if (status == DIBS_OK) /* otherwise the member never granted it, as the store state says */
        state->lease = op->attempt.lease;
    enum dibs__claim_state claim_state = op->claim->state;
    dibs__quorum_mutex_unlock(&q->mutex);
    if (op->answer.why == DIBS__WHY_STEPPED)
        dibs__vote_distrust(op->member);
    else if (op->answer.why == DIBS__WHY_NO_VOTE)
        dibs__vote_want(q, 0);
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

void dibs__member_land_late(struct dibs__quorum *q, struct dibs__pending_op *op, dibs_status status)
{
    enum dibs__claim_state state = dibs__member_note(q, op, status);

    if (state == DIBS__CLAIM_ENDED)
        clear_member(q, op);
    else if (state == DIBS__CLAIM_HELD)
        take_late_answer(q, op, status == DIBS_OK);
    else if (status == DIBS_OK)
        dibs__member_leave(q, op);
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
