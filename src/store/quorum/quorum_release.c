/*
 * The end of bids, releases and retractions. A release goes to every member that may have the
 * token. What is not answered is left to the scheduler's thread, or retracted.
 *
 * Lock discipline: quorum_parts.h.
 */
#include <stdlib.h>

#include "base/wait_event.h"
#include "store/quorum/quorum_parts.h"

#define LOOK_AGAIN (DIBS__NS_PER_MS / 10) /* how often a thread looks whether the scheduler's is done with a reply */

/* A release that was begun, or is being finished. */
struct releasing {
    struct dibs__claim *claim; /* ended; with a reference */
    struct dibs__release *release;
    uint32_t open;     /* where a release is under way */
    uint32_t absent;   /* where the token had nothing, so that nothing was sent */
    uint32_t restored; /* where what was sent before may set the lock behind the release */
    uint32_t stuck;    /* where an ask may still arrive behind the release */
    uint32_t pending;  /* where an ask, or a release after a split vote, was not answered yet */
    uint32_t done, not_held;
    bool again;
};

/* ------------------------------------------------------------------ one member */

/* What is to be done about a part whose claim ends. */
enum ending {
    LEFT_TO_FLIGHT, /* something is under way: the scheduler's thread clears the part when that is over */
    NOTHING_THERE,  /* the token never had anything there, or the member retracts it already */
    BID_THERE,      /* the bid is not concluded, and was not granted */
    LOCK_THERE      /* the lock is the token's, or may be */
};

static enum ending ending_of(const struct dibs__claim *claim, size_t i) DIBS__REQUIRES(dibs__quorum_mutex)
{
    const struct dibs__part *part = &claim->parts[i];

    if (claim->flights && claim->flights[i].detached)
        return LEFT_TO_FLIGHT;
    if (part->state == DIBS__PART_GRANTED || part->topping_up)
        return LOCK_THERE;
    return part->has_bid ? BID_THERE : NOTHING_THERE;
}

/* The bid of a member where the lock is not the token's; with `granted`, where it is. */
static void conclude_bid(struct dibs__quorum *q, struct dibs__claim *claim, size_t i, bool granted)
{
    struct dibs__store *store = q->members[i].store;

    dibs__quorum_mutex_lock(&q->mutex);
    bool has = claim->parts[i].has_bid;
    claim->parts[i].has_bid = false;
    dibs__quorum_mutex_unlock(&q->mutex);
    if (has)
        store->ops->conclude(store, &claim->flights[i].bid, granted);
}

void dibs__claim_retract(struct dibs__quorum *q, struct dibs__claim *claim)
{
    dibs__quorum_mutex_lock(&q->mutex);
    bool was_listed = dibs__claim_end(q, claim);
    claim->users += was_listed;
    dibs__quorum_mutex_unlock(&q->mutex);
    if (!was_listed)
        return;
    for (size_t i = 0; i < q->count; i++) {
        struct dibs__store *store = q->members[i].store;
        dibs__quorum_mutex_lock(&q->mutex);
        enum ending ending = ending_of(claim, i);
        bool has_bid = claim->parts[i].has_bid;
        dibs__quorum_mutex_unlock(&q->mutex);
        if (ending != LEFT_TO_FLIGHT && has_bid)
            conclude_bid(q, claim, i, false);
        if (ending == LOCK_THERE)
            store->ops->retract(store, claim->name, claim->token, claim->lease_ms, claim->fence);
    }
    dibs__claim_leave(q, claim);
    dibs__claim_unref(q, claim);
}

void dibs__claim_forget(struct dibs__bid *bid)
{
    bid->store_state.outer[0] = bid->store_state.outer[1] = 0;
    bid->number = 0;
    bid->proof = 0;
    bid->in_store = false;
    bid->lease = (struct dibs__lease_store_state){.words = {0}};
}

/* The members' bids that were granted are concluded. The others stay with the claim until that ends. */
static void conclude_held(struct dibs__quorum *q, struct dibs__claim *claim)
{
    dibs__claim_use(q, claim);
    for (size_t i = 0; i < q->count; i++) {
        struct dibs__part *part = &claim->parts[i];
        dibs__quorum_mutex_lock(&q->mutex);
        bool granted =
            part->has_bid && part->state == DIBS__PART_GRANTED && !part->stuck && !claim->flights[i].detached;
        if (granted)
            part->has_bid = false;
        dibs__quorum_mutex_unlock(&q->mutex);
        struct dibs__store *store = q->members[i].store;
        if (granted)
            store->ops->conclude(store, &claim->flights[i].bid, true);
    }
    dibs__claim_leave(q, claim);
}

void dibs__quorum_conclude(struct dibs__store *base, struct dibs__bid *bid, bool held)
{
    struct dibs__quorum *q = dibs__quorum_of(base);
    struct dibs__claim *claim = dibs__claim_of(bid);

    DIBS__REQUIRE(!bid->begun.state);
    if (claim && held)
        conclude_held(q, claim);
    else if (claim)
        dibs__claim_retract(q, claim);
    if (!held) {
        dibs__claim_forget(bid);
        return;
    }
    bid->store_state.outer[0] = bid->store_state.outer[1] = 0;
    bid->in_store = false;
}

/* --------------------------------------------------------------------- the begin */

/* Whether the scheduler's thread is just looking for a reply that belongs to the claim. */
static bool is_looked_at(const struct dibs__quorum *q, const struct dibs__claim *claim)
    DIBS__REQUIRES(dibs__quorum_mutex)
{
    bool looked_at = false;

    for (size_t i = 0; claim->flights && i < q->count; i++)
        looked_at = looked_at || (claim->flights[i].detached && claim->flights[i].is_looked_at);
    return looked_at;
}

/* Waits until that is over, which takes no longer than the other thread needs the processor. Lets go of the mutex. */
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

/* The calling thread takes back what was not answered: a late grant is released with the rest. */
static uint32_t take_back(struct dibs__quorum *q, struct dibs__claim *claim) DIBS__REQUIRES(dibs__quorum_mutex)
{
    uint32_t taken = 0;

    for (size_t i = 0; claim->flights && i < q->count; i++)
        if (dibs__detached_take(q, &claim->flights[i]))
            taken |= (uint32_t)1 << i;
    return taken;
}

/*
 * The claim of the token, taken out of the table, with what is under way for
 * it: so no late grant is retracted behind this thread's back. A token that
 * is not known may be anywhere. NULL: no memory.
 */
static struct dibs__claim *take_claim(struct dibs__quorum *q, const struct dibs__release *release, uint32_t *pending)
{
    struct dibs__claim *claim = dibs__claim_find(q, release->token);
    bool known = claim != NULL;

    if (!known)
        claim = dibs__claim_new(q, release->name, release->token, release->lease_ms);
    if (!claim)
        return NULL;
    dibs__quorum_mutex_lock(&q->mutex);
    for (size_t i = 0; i < q->count && !known; i++)
        claim->parts[i].state = DIBS__PART_GRANTED;
    await_scheduler(q, claim, release->deadline);
    bool was_listed = dibs__claim_end(q, claim);
    claim->users++;
    *pending = take_back(q, claim);
    dibs__quorum_mutex_unlock(&q->mutex);
    if (known && was_listed)
        dibs__claim_unref(q, claim); /* one reference is enough */
    return claim;
}

/* What was answered meanwhile is pending no more. */
static void note_answered(struct dibs__quorum *q, struct releasing *releasing, size_t i)
{
    struct dibs__flight *flight = &releasing->claim->flights[i];
    struct dibs__error unused;

    if (!dibs__set_has(releasing->pending, i) || flight->what != DIBS__FLIES_ASK || !dibs__flight_await(flight, 0))
        return;
    releasing->pending &= ~((uint32_t)1 << i);
    dibs__part_note(q, flight, dibs__flight_finish(flight, 0, NULL, &unused));
}

/* Begins the release at a member where the lock is the token's, or may be. False: nothing was begun. */
static bool begin_at(struct dibs__quorum *q, struct releasing *releasing, size_t i)
{
    struct dibs__claim *claim = releasing->claim;
    struct dibs__flight *flight = &claim->flights[i];
    const struct dibs__release *release = releasing->release;
    uint32_t bit = (uint32_t)1 << i;

    dibs__quorum_mutex_lock(&q->mutex);
    enum ending ending = ending_of(claim, i);
    bool topping_up = claim->parts[i].topping_up, stuck = claim->parts[i].stuck;
    dibs__quorum_mutex_unlock(&q->mutex);
    if (ending != LOCK_THERE) {
        if (ending == BID_THERE)
            conclude_bid(q, claim, i, false);
        releasing->absent |= ending != LEFT_TO_FLIGHT ? bit : 0;
        return false;
    }
    if (!stuck)
        conclude_bid(q, claim, i, !topping_up);
    releasing->restored |= topping_up ? bit : 0;
    releasing->stuck |= stuck ? bit : 0;
    flight->of.release = (struct dibs__release){
        .name = claim->name,
        .token = claim->token,
        .lease_ms = release->lease_ms,
        .fence = release->fence,
        .deadline = release->deadline,
        .contended = release->contended,
    };
    dibs__flight_begin(flight, DIBS__FLIES_RELEASE);
    return true;
}

void dibs__quorum_release_begin(struct dibs__store *base, struct dibs__release *release)
{
    struct dibs__quorum *q = dibs__quorum_of(base);
    struct releasing *releasing = calloc(1, sizeof *releasing);

    DIBS__REQUIRE(!release->begun.state);
    if (!releasing || !(releasing->claim = take_claim(q, release, &releasing->pending))) {
        free(releasing);
        return;
    }
    release->begun.state = releasing;
    releasing->release = release;
    if (!dibs__claim_make_flights(q, releasing->claim))
        return;
    for (size_t i = 0; i < q->count; i++)
        note_answered(q, releasing, i);
    for (size_t i = 0; i < q->count; i++)
        if (!dibs__set_has(releasing->pending, i) && begin_at(q, releasing, i))
            releasing->open |= (uint32_t)1 << i;
}

/* -------------------------------------------------------------------- the finish */

static void land_release(struct dibs__fan_out *fan_out, const struct dibs__flight *flight, dibs_status status)
{
    struct releasing *releasing = fan_out->context;
    uint32_t bit = (uint32_t)1 << flight->member->index;

    releasing->again |= flight->of.release.again;
    if (status == DIBS_OK)
        releasing->done |= bit;
    else if (status == DIBS_NOT_HELD)
        releasing->not_held |= bit;
}

/* What was pending is over: a member that granted the lock only now releases it, too. */
static void land_pending(struct dibs__fan_out *fan_out, struct dibs__flight *flight, enum dibs__flying what,
                         dibs_status status)
{
    struct releasing *releasing = fan_out->context;
    uint32_t bit = (uint32_t)1 << flight->member->index;

    releasing->pending &= ~bit;
    fan_out->optional &= ~bit;
    if (what == DIBS__FLIES_ASK)
        dibs__part_note(fan_out->quorum, flight, status);
    else
        dibs__part_left(fan_out->quorum, flight, status);
    if (begin_at(fan_out->quorum, releasing, flight->member->index))
        fan_out->open |= bit;
    else if (status == DIBS_UNAVAILABLE)
        releasing->absent &= ~bit; /* it may have the lock until that is retracted */
}

static void land(struct dibs__fan_out *fan_out, struct dibs__flight *flight, enum dibs__flying what, dibs_status status)
{
    const struct releasing *releasing = fan_out->context;

    if (dibs__set_has(releasing->pending, flight->member->index))
        land_pending(fan_out, flight, what, status);
    else
        land_release(fan_out, flight, status);
}

/* A majority can grant the lock to others now, and no member said that it was another's before. */
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
           (!(fan_out->open & ~fan_out->unsent & ~fan_out->optional) || dibs__fan_out_is_overdue(fan_out, now));
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

/* What may set the lock behind the release is retracted behind that. */
static void retract_restored(struct dibs__quorum *q, const struct releasing *releasing)
{
    const struct dibs__claim *claim = releasing->claim;

    for (size_t i = 0; i < q->count; i++) {
        struct dibs__store *store = q->members[i].store;
        if (dibs__set_has(releasing->restored, i))
            store->ops->retract(store, claim->name, claim->token, claim->lease_ms, claim->fence);
    }
}

/* So is what an ask may leave behind the release. Where that is under way, the bid is concluded when it is over. */
static void conclude_stuck(struct dibs__quorum *q, const struct releasing *releasing, uint32_t open)
{
    for (size_t i = 0; i < q->count; i++)
        if (dibs__set_has(releasing->stuck & ~open, i))
            conclude_bid(q, releasing->claim, i, false);
}

static dibs_status finish(struct dibs__quorum *q, struct dibs__release *release, struct releasing *releasing,
                          struct dibs__error *error)
{
    struct dibs__claim *claim = releasing->claim;
    struct dibs__fan_out fan_out = {.quorum = q,
                                    .flights = claim->flights,
                                    .open = releasing->open | releasing->pending,
                                    .optional = releasing->pending,
                                    .deadline = release->deadline,
                                    .context = releasing,
                                    .is_decided = is_decided,
                                    .land = land,
                                    .error = error};

    dibs__fan_out_run(&fan_out);
    dibs_status status = outcome(&fan_out);
    conclude_stuck(q, releasing, fan_out.open);
    dibs__detached_add(q, claim, fan_out.open);
    retract_restored(q, releasing);
    release->again = releasing->again;
    return status;
}

/* The next bid is asked for by its own thread, at once: its ask must not overtake the release at any member. */
dibs_status dibs__quorum_release_finish(struct dibs__store *base, struct dibs__release *release,
                                        struct dibs__error *error)
{
    struct dibs__quorum *q = dibs__quorum_of(base);
    dibs_status status = DIBS_NO_MEMORY;

    release->again = false;
    release->next_status = DIBS_BUSY;
    release->next_answer = (struct dibs__answer){.again_ms = 0};
    error->status = DIBS_OK;
    if (!release->begun.state)
        dibs__quorum_release_begin(base, release);
    struct releasing *releasing = release->begun.state;
    release->begun.state = NULL;
    if (releasing && releasing->claim->flights)
        status = finish(q, release, releasing, error);
    if (status == DIBS_NO_MEMORY)
        dibs__quorum_no_memory(error);
    if (!releasing || !releasing->claim->flights)
        dibs__quorum_retract(base, release->name, release->token, release->lease_ms, release->fence);
    if (releasing) {
        dibs__claim_leave(q, releasing->claim);
        dibs__claim_unref(q, releasing->claim);
        free(releasing);
    }
    dibs__quorum_count(q, status != DIBS_UNAVAILABLE);
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
