/*
 * One member's part in the asks of a token: how it is asked, what its answer
 * means, and how what it granted is given back. Lock discipline: quorum_parts.h.
 */
#include "store/quorum/quorum_parts.h"

bool dibs__part_take(struct dibs__quorum *q, struct dibs__claim *claim, size_t i, bool *taken_back)
{
    struct dibs__part *part = &claim->parts[i];

    dibs__quorum_mutex_lock(&q->mutex);
    bool flies = part->state == DIBS__PART_ASKED || part->state == DIBS__PART_LEAVING;
    *taken_back = flies && dibs__detached_take(q, &claim->flights[i]);
    bool trusted = !atomic_load_explicit(&q->members[i].distrusted, memory_order_relaxed) &&
                   !atomic_load_explicit(&q->members[i].strange, memory_order_relaxed);
    bool is_looked_at =
        claim->flights[i].detached; /* the scheduler's thread has noted the answer, and is not done yet */
    bool may = *taken_back || (!flies && !is_looked_at && part->state != DIBS__PART_RETIRED && !part->stuck && trusted);
    if (may && !*taken_back) {
        part->state = DIBS__PART_ASKED;
        part->has_bid = true;
    }
    dibs__quorum_mutex_unlock(&q->mutex);
    return may;
}

void dibs__part_ask(struct dibs__flight *flight, const struct dibs__bid *bid)
{
    flight->bid.lease_ms = bid->lease_ms;
    flight->bid.shared = bid->shared;
    flight->bid.limit = bid->limit;
    flight->bid.wait = bid->wait;
    flight->bid.deadline = bid->deadline;
    flight->answer = (struct dibs__answer){.fence = 0};
    dibs__flight_begin(flight, DIBS__FLIES_ASK);
}

void dibs__part_clear(struct dibs__quorum *q, struct dibs__flight *flight)
{
    struct dibs__claim *claim = flight->claim;
    struct dibs__store *store = flight->member->store;
    struct dibs__part *part = &claim->parts[flight->member->index];

    dibs__quorum_mutex_lock(&q->mutex);
    bool has_bid = part->has_bid;
    part->has_bid = false;
    part->state = DIBS__PART_RETIRED;
    dibs__quorum_mutex_unlock(&q->mutex);
    if (has_bid)
        store->ops->conclude(store, &flight->bid, false);
}

/* A grant that comes when the lock is held is one more vote, unless the claim has ended by now. */
static void take_late_grant(struct dibs__quorum *q, struct dibs__flight *flight)
{
    const struct dibs__claim *claim = flight->claim;
    struct dibs__store *store = flight->member->store;

    store->ops->conclude(store, &flight->bid, true);
    dibs__quorum_mutex_lock(&q->mutex);
    flight->claim->parts[flight->member->index].has_bid = false;
    bool ended = claim->state == DIBS__CLAIM_ENDED;
    dibs__quorum_mutex_unlock(&q->mutex);
    if (ended)
        store->ops->retract(store, claim->name, claim->token, claim->lease_ms, claim->fence);
}

static enum dibs__part_state state_after(const struct dibs__flight *flight, dibs_status status)
{
    if (flight->answer.retired && !flight->answer.stuck)
        return DIBS__PART_RETIRED;
    return status == DIBS_OK ? DIBS__PART_GRANTED : status == DIBS_BUSY ? DIBS__PART_TAKEN : DIBS__PART_UNKNOWN;
}

enum dibs__claim_state dibs__part_note(struct dibs__quorum *q, struct dibs__flight *flight, dibs_status status)
{
    struct dibs__part *part = &flight->claim->parts[flight->member->index];

    dibs__quorum_mutex_lock(&q->mutex);
    part->state = state_after(flight, status);
    part->has_bid = part->state != DIBS__PART_RETIRED;
    part->stuck = part->stuck || flight->answer.stuck;
    part->fence = flight->answer.fence;
    part->proof = flight->bid.proof;
    if (status == DIBS_OK) /* else the member never granted it, and the store state says so */
        part->lease = flight->bid.lease;
    enum dibs__claim_state lock_state = flight->claim->state;
    dibs__quorum_mutex_unlock(&q->mutex);
    if (flight->answer.stepped)
        dibs__vote_distrust(flight->member);
    else if (flight->answer.no_vote)
        dibs__vote_want(q, 0);
    return lock_state;
}

void dibs__part_leave(struct dibs__quorum *q, struct dibs__flight *flight)
{
    const struct dibs__claim *claim = flight->claim;

    dibs__quorum_mutex_lock(&q->mutex);
    flight->claim->parts[flight->member->index].state = DIBS__PART_LEAVING;
    dibs__quorum_mutex_unlock(&q->mutex);
    flight->of.release = (struct dibs__release){
        .name = claim->name,
        .token = claim->token,
        .lease_ms = claim->lease_ms,
        .deadline = dibs__after_ms(dibs__quorum_now(q), q->config.command_timeout_ms),
        .quiet = true,
    };
    dibs__flight_begin(flight, DIBS__FLIES_RELEASE);
}

void dibs__part_land_late(struct dibs__quorum *q, struct dibs__flight *flight, dibs_status status)
{
    enum dibs__claim_state state = dibs__part_note(q, flight, status);

    if (state == DIBS__CLAIM_ENDED)
        dibs__part_clear(q, flight);
    else if (status == DIBS_OK && state == DIBS__CLAIM_HELD)
        take_late_grant(q, flight);
    else if (status == DIBS_OK)
        dibs__part_leave(q, flight);
}

/* Of a release that had to be sent twice the first sending may arrive late, and take back what a later ask was granted.
 */
void dibs__part_left(struct dibs__quorum *q, struct dibs__flight *flight, dibs_status status)
{
    struct dibs__part *part = &flight->claim->parts[flight->member->index];
    bool is_gone = (status == DIBS_OK || status == DIBS_NOT_HELD) && !flight->of.release.again;

    dibs__quorum_mutex_lock(&q->mutex);
    part->state = is_gone ? DIBS__PART_NOTHING : DIBS__PART_RETIRED;
    bool ended = flight->claim->state == DIBS__CLAIM_ENDED;
    dibs__quorum_mutex_unlock(&q->mutex);
    if (is_gone)
        flight->bid.in_store = false;
    if (ended)
        dibs__part_clear(q, flight);
}

bool dibs__claim_is_queued(struct dibs__quorum *q, const struct dibs__claim *claim)
{
    size_t count = 0;

    dibs__quorum_mutex_lock(&q->mutex);
    for (size_t i = 0; i < q->count; i++)
        count += claim->parts[i].state == DIBS__PART_TAKEN && claim->flights[i].bid.in_store;
    dibs__quorum_mutex_unlock(&q->mutex);
    return count >= q->majority;
}

bool dibs__claim_is_retired(struct dibs__quorum *q, const struct dibs__claim *claim)
{
    bool retired = false;

    dibs__quorum_mutex_lock(&q->mutex);
    for (size_t i = 0; i < q->count; i++)
        retired = retired || claim->parts[i].state == DIBS__PART_RETIRED || claim->parts[i].stuck;
    dibs__quorum_mutex_unlock(&q->mutex);
    return retired;
}
