/*
 * The end of attempts, releases and retractions. A release goes to every member that may have the token.
 * Releases that are not answered are left to the scheduler's thread, or turned into retractions.
 *
 * Lock discipline: quorum_parts.h.
 */
#include <stdlib.h>

#include "base/wait_event.h"
#include "store/quorum/quorum_parts.h"

#define LOOK_AGAIN (DIBS__NS_PER_MS / 10) /* how often a thread checks whether the scheduler's is done */

/* A release that was begun, or is being finished. All sets are sets of members. */
struct releasing {
    struct dibs__claim *claim; /* has ended; with a reference */
    const struct dibs__op *op;
    uint32_t open;     /* a release is under way there */
    uint32_t absent;   /* the token had nothing there, so nothing was sent */
    uint32_t followed; /* an ask or a renewal that was sent before may set the lock there after the release */
    uint32_t pending;  /* an ask, or a release after a split vote, has not been answered there */
    uint32_t done, not_held;
    bool again;
};

/* ------------------------------------------------------------------ one member */

/* What must be done at a member when the claim ends. */
enum ending {
    LEFT_TO_OP,    /* an operation is under way: the scheduler's thread cleans up when it is over */
    ATTEMPT_THERE, /* no lock was granted to the attempt, which need only be concluded */
    LOCK_THERE     /* the token has the lock there, or may have it */
};

static enum ending ending_of(const struct dibs__claim *claim, size_t i) DIBS__REQUIRES(dibs__quorum_mutex)
{
    const struct dibs__member_state *state = &claim->states[i];

    if (dibs__pending_op_is_detached(&claim->ops[i]))
        return LEFT_TO_OP;
    return state->phase == DIBS__MEMBER_GRANTED || state->topping_up ? LOCK_THERE : ATTEMPT_THERE;
}

void dibs__claim_retract(struct dibs__quorum *q, struct dibs__claim *claim)
{
    dibs__quorum_mutex_lock(&q->mutex);
    bool was_listed = dibs__claim_end(q, claim);
    dibs__quorum_mutex_unlock(&q->mutex);
    if (!was_listed)
        return;
    for (size_t i = 0; i < q->count; i++) {
        dibs__quorum_mutex_lock(&q->mutex);
        enum ending ending = ending_of(claim, i);
        dibs__quorum_mutex_unlock(&q->mutex);
        if (ending == LOCK_THERE)
            dibs__member_retract(&claim->ops[i]);
        if (ending != LEFT_TO_OP)
            dibs__member_conclude(&claim->ops[i], false);
    }
    dibs__claim_unref(q, claim);
}

/* While the lock is held, the members' attempts stay with the claim: they are concluded when it ends. */
void dibs__quorum_conclude(struct dibs__store *base, struct dibs__attempt *attempt, bool held)
{
    struct dibs__quorum *q = dibs__quorum_of(base);
    struct dibs__claim *claim = dibs__claim_of(attempt);

    if (claim && !held)
        dibs__claim_retract(q, claim);
    attempt->store_state.outer = 0;
    attempt->in_store = false;
    if (!held)
        dibs__attempt_clear(attempt);
}

/* --------------------------------------------------------------------- the begin */

/* Whether the scheduler's thread is looking for a reply of an operation of this claim. */
static bool is_looked_at(const struct dibs__quorum *q, const struct dibs__claim *claim)
    DIBS__REQUIRES(dibs__quorum_mutex)
{
    bool looked_at = false;

    for (size_t i = 0; i < q->count; i++)
        looked_at = looked_at || claim->ops[i].is_looked_at;
    return looked_at;
}

/*
 * Waits until the scheduler's thread is done, which takes no longer than that thread needs the processor. Lets
 * go of the mutex meanwhile.
 */
static void await_scheduler(struct dibs__quorum *q, const struct dibs__claim *claim, int64_t deadline)
    DIBS__REQUIRES(dibs__quorum_mutex)
{
    while (is_looked_at(q, claim) && dibs__quorum_now(q) < deadline) {
        struct dibs__wait_event wait_event;
        dibs__quorum_mutex_unlock(&q->mutex);
        dibs__wait_event_init(&wait_event);
        dibs__wait_event_wait(&wait_event, q->config.clock, dibs__quorum_now(q) + LOOK_AGAIN);
        dibs__quorum_mutex_lock(&q->mutex);
    }
}

/*
 * Takes back the operations that were not answered for the calling thread, so that a late grant is released
 * with the rest.
 */
static uint32_t take_back(struct dibs__quorum *q, struct dibs__claim *claim) DIBS__REQUIRES(dibs__quorum_mutex)
{
    uint32_t taken = 0;

    for (size_t i = 0; i < q->count; i++)
        if (dibs__detached_take(q, &claim->ops[i]))
            taken |= (uint32_t)1 << i;
    return taken;
}

/*
 * Takes the token's claim out of the table, together with its operations under way, so that nobody else retracts
 * a late grant meanwhile. NULL: no memory.
 */
static struct dibs__claim *take_claim(struct dibs__quorum *q, const struct dibs__op *op, uint32_t *pending)
{
    const struct dibs__release *release = &op->release;
    struct dibs__claim *claim = dibs__claim_of_token(q, op->name, release->token, release->lease_ms);

    if (!claim)
        return NULL;
    dibs__quorum_mutex_lock(&q->mutex);
    await_scheduler(q, claim, op->deadline);
    bool was_listed = dibs__claim_end(q, claim);
    *pending = take_back(q, claim);
    dibs__quorum_mutex_unlock(&q->mutex);
    if (was_listed)
        dibs__claim_unref(q, claim); /* the other reference is enough */
    return claim;
}

/* Takes an ask that is over meanwhile out of the pending ones. */
static void note_answered(struct dibs__quorum *q, struct releasing *releasing, size_t i)
{
    struct dibs__pending_op *op = &releasing->claim->ops[i];
    struct dibs__error unused;

    if (!dibs__set_has(releasing->pending, i) || op->begun.kind != DIBS__OP_ASK)
        return;
    enum dibs__progress progress = dibs__pending_op_progress(op, NULL);
    if (progress != DIBS__OP_OVER && progress != DIBS__OP_BROKEN)
        return;
    releasing->pending &= ~((uint32_t)1 << i);
    dibs__member_note(q, op, dibs__pending_op_finish(op, 0, &unused));
}

/* Begins the release at a member where the token has the lock, or may have it. False: nothing was begun. */
static bool begin_at(struct dibs__quorum *q, struct releasing *releasing, size_t i)
{
    struct dibs__claim *claim = releasing->claim;
    struct dibs__pending_op *op = &claim->ops[i];
    const struct dibs__release *release = &releasing->op->release;
    uint32_t bit = (uint32_t)1 << i;

    dibs__quorum_mutex_lock(&q->mutex);
    enum ending ending = ending_of(claim, i);
    bool topping_up = claim->states[i].topping_up, stuck = claim->states[i].stuck, in_doubt = claim->states[i].in_doubt;
    dibs__quorum_mutex_unlock(&q->mutex);
    if (ending != LOCK_THERE) {
        if (ending == ATTEMPT_THERE)
            dibs__member_conclude(op, false);
        /* A member in doubt may have the lock until the token is retracted. */
        releasing->absent |= ending != LEFT_TO_OP && !in_doubt ? bit : 0;
        return false;
    }
    if (topping_up || stuck || in_doubt)
        releasing->followed |= bit;
    else
        dibs__member_conclude(op, true);
    dibs__pending_op_begin(op, (struct dibs__op){.kind = DIBS__OP_RELEASE,
                                                 .name = claim->name,
                                                 .release = {.token = claim->token,
                                                             .lease_ms = release->lease_ms,
                                                             .fence = release->fence,
                                                             .contended = release->contended}});
    return true;
}

void dibs__quorum_release_begin(struct dibs__store *base, struct dibs__op *op)
{
    struct dibs__quorum *q = dibs__quorum_of(base);
    struct releasing *releasing = calloc(1, sizeof *releasing);

    DIBS__REQUIRE(!op->state);
    if (!releasing || !(releasing->claim = take_claim(q, op, &releasing->pending))) {
        free(releasing);
        return;
    }
    op->state = releasing;
    releasing->op = op;
    for (size_t i = 0; i < q->count; i++)
        note_answered(q, releasing, i);
    for (size_t i = 0; i < q->count; i++)
        if (!dibs__set_has(releasing->pending, i) && begin_at(q, releasing, i))
            releasing->open |= (uint32_t)1 << i;
}

/* -------------------------------------------------------------------- the finish */

static void land_release(struct dibs__fan_out *fan_out, const struct dibs__pending_op *op, dibs_status status)
{
    struct releasing *releasing = fan_out->context;
    uint32_t bit = (uint32_t)1 << op->member->index;

    releasing->again |= op->begun.release.again;
    if (status == DIBS_OK)
        releasing->done |= bit;
    else if (status == DIBS_NOT_HELD)
        releasing->not_held |= bit;
}

/*
 * A pending ask or release has been finished. If it turns out that the member has granted the lock, it must
 * release it too.
 */
static void land_pending(struct dibs__fan_out *fan_out, struct dibs__pending_op *op, enum dibs__op_kind what,
                         dibs_status status)
{
    struct releasing *releasing = fan_out->context;
    uint32_t bit = (uint32_t)1 << op->member->index;

    releasing->pending &= ~bit;
    if (what == DIBS__OP_ASK)
        dibs__member_note(fan_out->quorum, op, status);
    else
        dibs__member_left(fan_out->quorum, op, status);
    if (begin_at(fan_out->quorum, releasing, op->member->index))
        fan_out->open |= bit;
    else if (status == DIBS_UNAVAILABLE)
        releasing->absent &= ~bit; /* the member may have the lock until the token is retracted */
}

static void land(struct dibs__fan_out *fan_out, struct dibs__pending_op *op, enum dibs__op_kind what,
                 dibs_status status)
{
    const struct releasing *releasing = fan_out->context;

    if (dibs__set_has(releasing->pending, op->member->index))
        land_pending(fan_out, op, what, status);
    else
        land_release(fan_out, op, status);
}

/* Whether a majority can grant the lock to others now, and no member said that the token had lost the lock before. */
static bool is_free(const struct dibs__quorum *q, const struct releasing *releasing)
{
    return releasing->done && !releasing->not_held &&
           dibs__set_count(releasing->done | releasing->absent) >= q->majority;
}

static bool is_decided(const struct dibs__fan_out *fan_out, int64_t now)
{
    const struct releasing *releasing = fan_out->context;
    size_t majority = fan_out->quorum->majority;

    if (dibs__set_count(releasing->done) >= majority)
        return true;
    if (dibs__set_count(releasing->done | releasing->absent | fan_out->open) < majority)
        return true;
    return is_free(fan_out->quorum, releasing) &&
           (!(fan_out->open & ~fan_out->unsent & ~releasing->pending) || dibs__fan_out_is_overdue(fan_out, now));
}

/* A pending operation leads to a release as soon as it is answered. */
static int least_to_release(const struct dibs__fan_out *fan_out)
{
    const struct releasing *releasing = fan_out->context;

    if (releasing->pending | releasing->absent)
        return 1;
    return dibs__least_to_decide(fan_out->quorum, dibs__set_count(releasing->done), fan_out->open);
}

static dibs_status outcome(const struct dibs__fan_out *fan_out)
{
    const struct releasing *releasing = fan_out->context;
    size_t majority = fan_out->quorum->majority, gone = dibs__set_count(releasing->not_held);

    if (dibs__set_count(releasing->done) >= majority || is_free(fan_out->quorum, releasing))
        return DIBS_OK;
    if (fan_out->quorum->count - gone < majority || (gone > 0 && fan_out->error->status == DIBS_OK && !fan_out->open))
        return DIBS_NOT_HELD;
    if (fan_out->error->status == DIBS_OK)
        dibs__error_set(fan_out->error, DIBS_UNAVAILABLE, "fewer than %zu of %zu masters confirmed the release",
                        majority, fan_out->quorum->count);
    return fan_out->error->status;
}

/*
 * Retracts the token where something that was sent before may set the lock again after the release. If the release is
 * still under way there, the attempt is concluded when that is over.
 */
static void retract_followed(const struct dibs__quorum *q, const struct releasing *releasing, uint32_t open)
{
    for (size_t i = 0; i < q->count; i++) {
        struct dibs__pending_op *op = &releasing->claim->ops[i];
        if (dibs__set_has(releasing->followed, i))
            dibs__member_retract(op);
        if (dibs__set_has(releasing->followed & ~open, i))
            dibs__member_conclude(op, false);
    }
}

static dibs_status finish(struct dibs__quorum *q, struct dibs__op *op, struct releasing *releasing,
                          struct dibs__error *error)
{
    struct dibs__claim *claim = releasing->claim;
    struct dibs__fan_out fan_out = {.quorum = q,
                                    .ops = claim->ops,
                                    .open = releasing->open | releasing->pending,
                                    .deadline = op->deadline,
                                    .context = releasing,
                                    .is_decided = is_decided,
                                    .least = least_to_release,
                                    .land = land,
                                    .error = error};

    dibs__fan_out_run(&fan_out);
    dibs_status status = outcome(&fan_out);
    retract_followed(q, releasing, fan_out.open);
    dibs__detached_add(q, claim, fan_out.open);
    op->release.again = releasing->again;
    return status;
}

/*
 * The next attempt is not asked for here: its own thread asks at once. Otherwise its ask could overtake the
 * release at some member.
 */
dibs_status dibs__quorum_release_finish(struct dibs__store *base, struct dibs__op *op, struct dibs__error *error)
{
    struct dibs__quorum *q = dibs__quorum_of(base);
    struct dibs__release *release = &op->release;
    dibs_status status;

    release->again = false;
    release->next_status = DIBS_BUSY;
    if (release->next.attempt)
        *release->next.answer = (struct dibs__answer){.again_ms = 0};
    error->status = DIBS_OK;
    if (!op->state)
        dibs__quorum_release_begin(base, op);
    struct releasing *releasing = op->state;
    op->state = NULL;
    if (releasing) {
        status = finish(q, op, releasing, error);
        dibs__claim_unref(q, releasing->claim);
        free(releasing);
    } else {
        status = dibs__quorum_no_memory(error);
        dibs__quorum_retract(base, op->name, release->token, release->lease_ms, release->fence);
    }
    dibs__quorum_note_reply(q, status);
    return status;
}

void dibs__quorum_retract(struct dibs__store *base, const char *name, const char *token, uint32_t lease_ms,
                          uint64_t fence)
{
    struct dibs__quorum *q = dibs__quorum_of(base);
    struct dibs__claim *claim = dibs__claim_find(q, token);

    if (claim) {
        dibs__claim_retract(q, claim);
        dibs__claim_unref(q, claim);
        return;
    }
    for (size_t i = 0; i < q->count; i++)
        q->members[i].store->ops->retract(q->members[i].store, name, token, lease_ms, fence);
}
