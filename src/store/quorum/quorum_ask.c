/*
 * Asks. The ask of a token is begun at all members, and the calling thread waits until a majority
 * granted the lock, or can't any more. Two majorities share a member, whose master votes for one
 * token at a time, so two tokens never have the lock. The fence of the hold is the largest that this
 * majority gave. It is raised at the others of the majority, so that the next holder's fence is
 * larger, whichever majority grants it. Without a majority the grants are given back at once, and waiters are not
 * told, so the members' queues stay as they are.
 *
 * Lock discipline: quorum_parts.h.
 */

#include <inttypes.h>

#include "base/random.h"
#include "store/quorum/quorum_parts.h"

#define POLL_LEAST_MS 50 /* how often a waiter asks while another has the lock: hints come sooner */
#define POLL_MOST_MS 100
#define SPLIT_MOST 5      /* the pause after a split vote doubles this many times, */
#define SPLIT_LEAST_MS 1  /* from this, or from the time that the ask took, */
#define SPLIT_LAST_MS 50  /* up to this */
#define LEAVE_LEAST_MS 10 /* how long a thread waits at least for its grants to be given back */
#define TRY_LEAST_MS 100  /* how long a single try waits for members that may make up a majority */
#define RAISE_MS 100      /* the least time that raises have, if the command timeout is not shorter */

/* One ask of the quorum that is being finished. */
struct asking {
    struct dibs__claim *claim;
    struct dibs__attempt *attempt;
    int64_t deadline;
    uint32_t granted, refused, raised; /* sets of members; raised: their fence is as large as the claim's */
    uint32_t unconfirmed; /* members that granted the lock, which their replicas or their disk did not confirm */
    uint32_t lost;        /* members that did not have the lock any more when their fence was to be raised */
    bool raising;
    uint64_t fence;
    int64_t began;
};

/* ------------------------------------------------------------------- the begin */

static void begin_at_all(struct dibs__quorum *q, struct dibs__claim *claim, const struct dibs__attempt *attempt)
{
    uint32_t spared, fit = dibs__members_to_ask(q, &spared);

    for (size_t i = 0; i < q->count; i++)
        if (dibs__member_ask(&claim->ops[i], dibs__set_has(fit, i) ? attempt : NULL))
            claim->open |= (uint32_t)1 << i;
    claim->spared = spared & ~claim->open;
}

void dibs__quorum_ask_begin(struct dibs__store *base, struct dibs__op *op)
{
    struct dibs__quorum *q = dibs__quorum_of(base);
    struct dibs__attempt *attempt = op->ask.attempt;
    struct dibs__claim *claim = dibs__claim_of(attempt);

    DIBS__REQUIRE(!op->state && !attempt->fair);
    if (!claim)
        claim = dibs__claim_new(q, attempt);
    attempt->store_state.outer = (uintptr_t)claim;
    op->state = claim;
    if (!claim)
        return;
    claim->open = claim->spared = 0;
    if (dibs__vote_is_announced(&q->voting, attempt->lease_ms))
        begin_at_all(q, claim, attempt);
}

/* --------------------------------------------------------------- the majority */

static bool can_be_had(const struct dibs__fan_out *fan_out, uint32_t have)
{
    return dibs__set_count(have | fan_out->open) >= fan_out->quorum->majority;
}

static int64_t patient_until(const struct dibs__fan_out *fan_out)
{
    const struct asking *asking = fan_out->context;

    return asking->attempt->wait ? 0 : dibs__after_ms(asking->began, TRY_LEAST_MS);
}

/* Whether the others can't be a majority, or take long, while a majority is possible with those that rest. */
static bool needs_spared(const struct dibs__fan_out *fan_out, int64_t now)
{
    const struct asking *asking = fan_out->context;

    return asking->claim->spared && can_be_had(fan_out, asking->granted | asking->claim->spared) &&
           (!can_be_had(fan_out, asking->granted) || dibs__fan_out_is_overdue(fan_out, now));
}

/*
 * If a majority has answered, no time is lost with members that must be connected first, or that take much
 * longer than usual. If a majority can't be had any more, it remains to be seen whether the lock is taken or
 * too few members can be reached. A single try has no second one, so it waits a little longer for members that may make
 * up a majority: the refusal may be about a lock that is just being given back.
 */
static bool is_voted(const struct dibs__fan_out *fan_out, int64_t now)
{
    const struct asking *asking = fan_out->context;
    uint32_t replied = asking->granted | asking->refused;
    size_t majority = fan_out->quorum->majority;

    if (dibs__set_count(asking->granted) >= majority)
        return true;
    if (needs_spared(fan_out, now))
        return true;
    if (!can_be_had(fan_out, asking->granted))
        return dibs__set_count(replied) >= majority || !can_be_had(fan_out, replied);
    bool awaits_more = fan_out->open & ~fan_out->unsent;
    return dibs__set_count(replied) >= majority &&
           (!awaits_more || (now >= patient_until(fan_out) && dibs__fan_out_is_overdue(fan_out, now)));
}

/* An operation other than an ask leads to another one as soon as it is answered. */
static int least_votes(const struct dibs__fan_out *fan_out)
{
    const struct asking *asking = fan_out->context;

    for (size_t i = 0; i < fan_out->quorum->count; i++)
        if (dibs__set_has(fan_out->open, i) && (asking->raising || fan_out->ops[i].begun.kind != DIBS__OP_ASK))
            return 1;
    return dibs__least_to_decide(fan_out->quorum, dibs__set_count(asking->granted), fan_out->open);
}

static bool is_raised(const struct dibs__fan_out *fan_out, int64_t now)
{
    const struct asking *asking = fan_out->context;

    (void)now;
    return dibs__set_count(asking->raised) >= fan_out->quorum->majority || !can_be_had(fan_out, asking->raised);
}

static void begin_raise(struct dibs__fan_out *fan_out, struct dibs__pending_op *op)
{
    const struct asking *asking = fan_out->context;

    dibs__pending_op_begin(op, (struct dibs__op){.kind = DIBS__OP_RAISE,
                                                 .name = asking->claim->name,
                                                 .raise = {.token = asking->claim->token,
                                                           .fence = asking->fence,
                                                           .lease_ms = asking->attempt->lease_ms}});
    fan_out->open |= (uint32_t)1 << op->member->index;
}

/* The members that are being raised. */
static uint32_t raises(const struct dibs__fan_out *fan_out)
{
    uint32_t set = 0;

    for (size_t i = 0; i < fan_out->quorum->count; i++)
        if (dibs__set_has(fan_out->open, i) && fan_out->ops[i].begun.kind == DIBS__OP_RAISE)
            set |= (uint32_t)1 << i;
    return set;
}

/* Whether the members that are raised or being raised are not yet a majority. */
static bool needs_more(const struct dibs__fan_out *fan_out)
{
    const struct asking *asking = fan_out->context;

    return dibs__set_count(asking->raised | raises(fan_out)) < fan_out->quorum->majority;
}

/*
 * A larger fence came while others were being raised: raises those members again; members whose raise is still
 * under way are raised again once it has landed.
 */
static void raise_again(struct dibs__fan_out *fan_out, uint64_t fence)
{
    struct asking *asking = fan_out->context;
    uint32_t lower = asking->raised;

    asking->fence = fence;
    asking->raised = 0;
    for (size_t i = 0; i < fan_out->quorum->count; i++)
        if (dibs__set_has(lower, i))
            begin_raise(fan_out, &fan_out->ops[i]);
}

/* The member granted the lock. While fences are being raised, its own is raised too, if it is needed. */
static void count_grant(struct dibs__fan_out *fan_out, struct dibs__pending_op *op)
{
    struct asking *asking = fan_out->context;
    uint32_t bit = (uint32_t)1 << op->member->index;

    asking->granted |= bit;
    if (asking->raising && op->answer.fence > asking->fence)
        raise_again(fan_out, op->answer.fence);
    if (asking->raising && op->answer.fence == asking->fence)
        asking->raised |= bit;
    else if (asking->raising && needs_more(fan_out))
        begin_raise(fan_out, op);
}

static void land_ask(struct dibs__fan_out *fan_out, struct dibs__pending_op *op, dibs_status status)
{
    struct asking *asking = fan_out->context;

    dibs__member_note(fan_out->quorum, op, status);
    if (status == DIBS_OK)
        count_grant(fan_out, op);
    else if (status == DIBS_BUSY)
        asking->refused |= (uint32_t)1 << op->member->index;
    else if (dibs__pending_op_is_unconfirmed(op))
        asking->unconfirmed |= (uint32_t)1 << op->member->index;
}

/* The grant of an earlier ask has been given back: now the member can be asked again. */
static void land_leave(struct dibs__fan_out *fan_out, struct dibs__pending_op *op, dibs_status status)
{
    struct asking *asking = fan_out->context;

    dibs__member_left(fan_out->quorum, op, status);
    if (!asking->raising && dibs__member_ask(op, asking->attempt))
        fan_out->open |= (uint32_t)1 << op->member->index;
}

static void land_raise(struct dibs__fan_out *fan_out, struct dibs__pending_op *op, dibs_status status)
{
    struct asking *asking = fan_out->context;
    uint32_t bit = (uint32_t)1 << op->member->index;

    if (status == DIBS_OK && op->begun.raise.fence == asking->fence)
        asking->raised |= bit;
    else if (status == DIBS_OK)
        begin_raise(fan_out, op);
    if (status != DIBS_NOT_HELD)
        return;
    asking->granted &= ~bit;
    asking->lost |= bit;
    dibs__quorum_mutex_lock(&fan_out->quorum->mutex);
    asking->claim->states[op->member->index].phase = DIBS__MEMBER_TAKEN;
    dibs__quorum_mutex_unlock(&fan_out->quorum->mutex);
}

static void land(struct dibs__fan_out *fan_out, struct dibs__pending_op *op, enum dibs__op_kind what,
                 dibs_status status)
{
    if (what == DIBS__OP_ASK)
        land_ask(fan_out, op, status);
    else if (what == DIBS__OP_RELEASE)
        land_leave(fan_out, op, status);
    else
        land_raise(fan_out, op, status);
}

/* ------------------------------------------------------------------- the fence */

/*
 * Raises to the largest fence of a majority those of its fences that are smaller. Where the ask was finished late, as
 * one of many begun calls may be, its time is over though a majority has granted: the raises have a time of their own.
 */
static void raise_fences(struct dibs__fan_out *fan_out)
{
    struct asking *asking = fan_out->context;
    uint32_t timeout_ms = fan_out->quorum->config.command_timeout_ms;
    int64_t now = dibs__quorum_now(fan_out->quorum);

    if (now >= fan_out->deadline)
        fan_out->deadline = dibs__after_ms(now, timeout_ms < RAISE_MS ? timeout_ms : RAISE_MS);

    for (size_t i = 0; i < fan_out->quorum->count; i++)
        if (dibs__set_has(asking->granted, i) && fan_out->ops[i].answer.fence > asking->fence)
            asking->fence = fan_out->ops[i].answer.fence;
    asking->raising = true;
    for (size_t i = 0; i < fan_out->quorum->count; i++) {
        if (!dibs__set_has(asking->granted, i))
            continue;
        if (fan_out->ops[i].answer.fence == asking->fence)
            asking->raised |= (uint32_t)1 << i;
        else
            begin_raise(fan_out, &fan_out->ops[i]);
    }
    fan_out->is_decided = is_raised;
    dibs__fan_out_run(fan_out);
}

/* Abandons the raises, and returns the set of members whose asks and releases are still under way. */
static uint32_t abandon_raises(struct dibs__fan_out *fan_out)
{
    uint32_t raised = raises(fan_out);

    for (size_t i = 0; i < fan_out->quorum->count; i++)
        if (dibs__set_has(raised, i))
            dibs__pending_op_abandon(&fan_out->ops[i]);
    return fan_out->open & ~raised;
}

/* ------------------------------------------------------------------ the outcome */

static int64_t proof_of(const struct dibs__fan_out *fan_out)
{
    const struct asking *asking = fan_out->context;
    int64_t proof = DIBS__NEVER;

    for (size_t i = 0; i < fan_out->quorum->count; i++)
        if (dibs__set_has(asking->granted, i))
            proof = dibs__earlier(proof, fan_out->ops[i].attempt.proof);
    return proof;
}

/* Called when a majority granted the lock. An ask by the owner leaves the fence as it is. */
static bool is_owner_still(const struct dibs__quorum *q, const struct dibs__claim *claim)
{
    return claim->fence > 0 && dibs__quorum_now(q) < claim->until;
}

static void hold(struct dibs__fan_out *fan_out, uint64_t generation, struct dibs__answer *answer)
{
    struct dibs__quorum *q = fan_out->quorum;
    const struct asking *asking = fan_out->context;
    struct dibs__claim *claim = asking->claim;
    struct dibs__attempt *attempt = asking->attempt;

    attempt->proof = proof_of(fan_out);
    attempt->in_store = true;
    attempt->lease.words[0] = generation;
    claim->fence = answer->fence = asking->fence;
    claim->until = dibs__after_ms(attempt->proof, attempt->lease_ms);
    claim->splits = 0;
    dibs__quorum_mutex_lock(&q->mutex);
    claim->state = DIBS__CLAIM_HELD;
    dibs__quorum_mutex_unlock(&q->mutex);
}

static void land_given_back(struct dibs__fan_out *fan_out, struct dibs__pending_op *op, enum dibs__op_kind what,
                            dibs_status status)
{
    (void)what;
    dibs__member_left(fan_out->quorum, op, status);
}

static bool is_never_decided(const struct dibs__fan_out *fan_out, int64_t now)
{
    (void)fan_out, (void)now;
    return false;
}

/*
 * Gives back the grants that are no majority. Waits for that up to four times as long as the ask took, but not beyond
 * the deadline of the ask, or a moment if that has passed.
 */
static void give_back(struct dibs__quorum *q, struct asking *asking)
{
    struct dibs__claim *claim = asking->claim;
    struct dibs__error unused = {DIBS_OK, ""};
    int64_t now = dibs__quorum_now(q), took = 4 * (now - asking->began), soon = dibs__after_ms(now, LEAVE_LEAST_MS);
    int64_t until = dibs__earlier(now + took, asking->deadline);
    uint32_t granted = asking->granted | asking->unconfirmed;
    struct dibs__fan_out fan_out = {.quorum = q,
                                    .ops = claim->ops,
                                    .open = granted,
                                    .deadline = until > soon ? until : soon,
                                    .context = asking,
                                    .is_decided = is_never_decided,
                                    .land = land_given_back,
                                    .error = &unused};

    if (!granted)
        return;
    for (size_t i = 0; i < q->count; i++)
        if (dibs__set_has(granted, i))
            dibs__member_leave(q, &claim->ops[i]);
    dibs__fan_out_run(&fan_out);
    dibs__detached_add(q, claim, fan_out.open);
}

/* When to ask again if no hint comes before. After a split vote that is soon, but not at the same time for all. */
static int64_t pause_ms(const struct dibs__quorum *q, const struct asking *asking)
{
    struct dibs__claim *claim = asking->claim;
    int64_t pause = dibs__jitter(POLL_LEAST_MS, POLL_MOST_MS);
    int64_t took_ms = (dibs__quorum_now(q) - asking->began) / DIBS__NS_PER_MS;

    if (asking->granted) {
        int64_t least = took_ms > SPLIT_LEAST_MS ? took_ms : SPLIT_LEAST_MS;
        int64_t most = least << (claim->splits < SPLIT_MOST ? claim->splits : SPLIT_MOST);
        claim->splits++;
        most = most > SPLIT_LAST_MS ? SPLIT_LAST_MS : most;
        return dibs__jitter(SPLIT_LEAST_MS, most + 1);
    }
    claim->splits = 0;
    for (size_t i = 0; i < q->count; i++) {
        int64_t its = claim->ops[i].answer.again_ms;
        if (dibs__set_has(asking->refused, i) && its > 0 && its < pause)
            pause = its;
    }
    return pause;
}

/* Whether the token is in the queues of a majority. *retired: at some member nothing may be asked under it any more. */
static bool is_queued(struct dibs__quorum *q, const struct dibs__claim *claim, bool *retired)
{
    size_t count = 0;

    *retired = false;
    dibs__quorum_mutex_lock(&q->mutex);
    for (size_t i = 0; i < q->count; i++) {
        const struct dibs__member_state *state = &claim->states[i];
        count += state->phase == DIBS__MEMBER_TAKEN && claim->ops[i].attempt.in_store;
        *retired = *retired || state->phase == DIBS__MEMBER_RETIRED || state->stuck;
    }
    dibs__quorum_mutex_unlock(&q->mutex);
    return count >= q->majority;
}

/* Called when a majority granted the lock, and no majority raised its fence. */
static dibs_status tell_unraised(const struct dibs__quorum *q, const struct asking *asking, struct dibs__error *error)
{
    struct dibs__error why = *error;

    if (asking->lost)
        return dibs__error_set(error, DIBS_UNAVAILABLE,
                               "%u of %zu masters did not have the lock any more when its fence was raised there: its "
                               "lease of %" PRIu32 " ms may be too short for two round trips",
                               dibs__set_count(asking->lost), q->count, asking->attempt->lease_ms);
    return dibs__error_set(error, DIBS_UNAVAILABLE,
                           "fewer than %zu of %zu masters confirmed the fence of the lock%s%.*s", q->majority, q->count,
                           why.status == DIBS_OK ? "" : ": ", why.status == DIBS_OK ? 0 : (int)sizeof why.detail / 2,
                           why.detail);
}

/* Resets the attempt to one that has never asked. */
static void set_back(struct dibs__attempt *attempt)
{
    attempt->store_state.outer = 0;
    dibs__attempt_clear(attempt);
}

/* Called when no majority granted the lock, or its fence was not raised. */
static dibs_status fail(struct dibs__fan_out *fan_out, struct dibs__answer *answer, struct dibs__error *error)
{
    struct dibs__quorum *q = fan_out->quorum;
    struct asking *asking = fan_out->context;
    struct dibs__attempt *attempt = asking->attempt;
    bool replied = dibs__set_count(asking->granted | asking->refused) >= q->majority, retired;

    give_back(q, asking);
    answer->again_ms = pause_ms(q, asking);
    attempt->in_store = is_queued(q, asking->claim, &retired);
    if (retired) {
        dibs__claim_retract(q, asking->claim);
        set_back(attempt);
        answer->retired = DIBS__RETIRED;
    }
    if (replied && asking->refused)
        return DIBS_BUSY;
    bool is_final = error->status != DIBS_OK && error->status != DIBS_UNAVAILABLE;
    if (!asking->refused && asking->unconfirmed && !is_final) {
        struct dibs__error why = *error;
        answer->why = DIBS__WHY_TOO_FEW_REPLICAS;
        return dibs__error_set(error, DIBS_UNAVAILABLE, "fewer than %zu of %zu masters confirmed the lock: %.*s",
                               q->majority, q->count, (int)sizeof why.detail / 2, why.detail);
    }
    if (asking->raising && !is_final)
        return tell_unraised(q, asking, error);
    return dibs__quorum_no_majority(q, dibs__set_count(fan_out->answered), error);
}

/* Asks the members that rest as well. */
static void ask_the_spared(struct dibs__fan_out *fan_out)
{
    struct asking *asking = fan_out->context;
    uint32_t spared = asking->claim->spared;

    asking->claim->spared = 0;
    for (size_t i = 0; i < fan_out->quorum->count; i++)
        if (dibs__set_has(spared, i) && dibs__member_ask(&fan_out->ops[i], asking->attempt))
            fan_out->open |= (uint32_t)1 << i;
    dibs__fan_out_run(fan_out);
}

static dibs_status ask(struct dibs__quorum *q, struct asking *asking, struct dibs__answer *answer,
                       struct dibs__error *error)
{
    uint64_t generation = atomic_load(&q->generation);
    struct dibs__claim *claim = asking->claim;
    struct dibs__fan_out fan_out = {.quorum = q,
                                    .ops = claim->ops,
                                    .open = claim->open,
                                    .deadline = asking->deadline,
                                    .context = asking,
                                    .is_decided = is_voted,
                                    .decides_at = patient_until,
                                    .least = least_votes,
                                    .land = land,
                                    .error = error};

    dibs__fan_out_run(&fan_out);
    int64_t now = dibs__quorum_now(q);
    if (dibs__set_count(asking->granted) < q->majority && now < fan_out.deadline && needs_spared(&fan_out, now))
        ask_the_spared(&fan_out);
    bool granted = dibs__set_count(asking->granted) >= q->majority;
    if (granted && is_owner_still(q, claim)) {
        asking->fence = claim->fence;
        asking->raised = asking->granted;
    } else if (granted) {
        raise_fences(&fan_out);
    }
    bool had = dibs__set_count(asking->raised) >= q->majority;
    if (had)
        hold(&fan_out, generation, answer);
    fan_out.open = abandon_raises(&fan_out);
    dibs__detached_add(q, claim, fan_out.open);
    return had ? DIBS_OK : fail(&fan_out, answer, error);
}

static dibs_status announce_and_begin(struct dibs__quorum *q, const struct asking *asking, struct dibs__error *error)
{
    struct dibs__attempt *attempt = asking->attempt;
    unsigned answered;

    if (asking->claim->open | asking->claim->spared) /* it was begun */
        return DIBS_OK;
    if (!dibs__vote_is_announced(&q->voting, attempt->lease_ms) &&
        dibs__vote_announce(q, attempt->lease_ms, asking->deadline, &answered, error) != DIBS_OK)
        return error->status;
    begin_at_all(q, asking->claim, attempt);
    return DIBS_OK;
}

dibs_status dibs__quorum_ask_finish(struct dibs__store *base, struct dibs__op *op, struct dibs__error *error)
{
    struct dibs__quorum *q = dibs__quorum_of(base);
    struct dibs__attempt *attempt = op->ask.attempt;
    struct dibs__answer *answer = op->ask.answer;

    *answer = (struct dibs__answer){.fence = 0};
    error->status = DIBS_OK;
    if (!op->state)
        dibs__quorum_ask_begin(base, op);
    if (!op->state)
        return dibs__quorum_no_memory(error);
    struct asking asking = {
        .claim = op->state, .attempt = attempt, .deadline = op->deadline, .began = dibs__quorum_now(q)};
    op->state = NULL;
    attempt->number++;
    attempt->proof = asking.began;
    dibs_status status = announce_and_begin(q, &asking, error);
    if (status == DIBS_OK)
        status = ask(q, &asking, answer, error);
    dibs__quorum_note_reply(q, status);
    answer->last_reply_at = atomic_load_explicit(&q->last_reply_at, memory_order_relaxed);
    return status;
}
