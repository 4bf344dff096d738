/*
 * Renewals. Each member gets the leases of the caller's batch in a batch of its own, and answers
 * when it can. A lease is renewed once a majority renewed it, and gone once so many members lost it
 * that no majority is left. The caller's batch is done when all of its leases are decided, or all
 * members have answered, so a member that hangs does not delay the others. What it answers later
 * still updates its own state.
 *
 * At a member that did not grant the lock, or lost it, a renewal sets the lock (it tops the lock
 * up), so that the lock survives the loss of one more member. But members that lose the lock within
 * TOP_UP_AFTER_MS of each other count as having lost it together. Otherwise the renewal that
 * follows each of these changes would set the lock again in between. After that time the quorum
 * reports that any lock may have changed. So each lease is renewed once more, which sets the lock;
 * the next regular renewal may be far away, and until then one more loss might lose the lock. A
 * member rarely loses a lock without losing others, too, so it is not noted which leases these are.
 *
 * A batch with `watch` is divided in the same way. One member that lost the lock is reason enough
 * for a renewal, which finds out whether a majority is left. So a loss is known as soon as so many
 * masters have reported it that no majority is left.
 *
 * All of this runs on the scheduler's thread. Lock discipline: quorum_parts.h.
 */
#include <stdlib.h>

#include "store/quorum/quorum_parts.h"

#define TOP_UP_AFTER_MS 100 /* how long a member that lost the lock counts as one that lost it */

/* What the members have answered so far about one lease of the caller's batch. */
struct tally {
    struct dibs__claim *claim;        /* with a reference, until all members have answered */
    unsigned renewed, gone;           /* numbers of members */
    unsigned asked;                   /* number of members that have not answered */
    uint64_t sure[DIBS__MEMBERS_MAX]; /* how long the lease is now sure to last at each member that renewed it */
    int64_t again_ms;
    dibs_status refused; /* by a member for a reason that does not pass by waiting; else DIBS_OK */
    bool decided;
};

/* The caller's batch, and how far it is. */
struct round {
    struct dibs__quorum *quorum;
    struct dibs__batch *batch; /* NULL: it is done */
    unsigned references;       /* held by the batches of the members, and by the thread that begins them */
    size_t count, undecided;   /* numbers of leases */
    uint64_t generation;
    struct dibs__error error;
    struct tally tallies[];
};

/* The batch of one member. */
struct part_batch {
    struct dibs__batch batch; /* must come first: the batch that is done is freed by its address */
    struct round *round;
    struct dibs__member *member;
    unsigned steps;                       /* member->steps when the batch was made */
    size_t at[DIBS__BATCH_MAX];           /* the places of the items in the caller's batch */
    bool was_topping_up[DIBS__BATCH_MAX]; /* an earlier renewal may set the lock at the member */
};

/* ------------------------------------------------------------------ the outcome */

/* Whether the token has the lock at the member. */
static bool has_lock(const struct dibs__renewal *said)
{
    return said->result == DIBS__RENEWED || said->result == DIBS__WATCHED;
}

static struct dibs__claim *claim_of(const struct part_batch *sent, size_t i)
{
    return sent->round->tallies[sent->at[i]].claim;
}

static void unref_round(struct round *round)
{
    if (--round->references > 0)
        return;
    for (size_t i = 0; i < round->count; i++)
        dibs__claim_unref(round->quorum, round->tallies[i].claim);
    free(round);
}

/* A majority renewed the lease: it lasts as long as a majority makes sure of. */
static void settle_renewed(const struct round *round, struct tally *tally, struct dibs__renewal *item)
{
    uint32_t sure = (uint32_t)dibs__nth_largest(tally->sure, tally->renewed, round->quorum->majority);

    item->result = DIBS__RENEWED;
    item->store_state.words[0] = round->generation;
    item->pending_extension_ms = sure < item->lease_ms ? sure : 0;
    item->again_ms = tally->again_ms;
}

/* Decides about the lease if that is possible now. */
static void settle(struct round *round, size_t at)
{
    struct dibs__quorum *q = round->quorum;
    struct tally *tally = &round->tallies[at];
    struct dibs__renewal *item = &round->batch->items[at];

    if (tally->decided || (round->batch->watch && tally->asked > 0))
        return;
    if (round->batch->watch)
        item->result = tally->gone > 0 ? DIBS__GONE : tally->renewed > 0 ? DIBS__WATCHED : DIBS__UNANSWERED;
    else if (tally->renewed >= q->majority)
        settle_renewed(round, tally, item);
    else if (q->count - tally->gone < q->majority)
        item->result = DIBS__GONE;
    else if (tally->asked == 0)
        item->status = tally->refused; /* unanswered; members will say with their next answers what may still arrive */
    else
        return;
    tally->decided = true;
    round->undecided--;
    if (item->result == DIBS__GONE && !round->batch->watch)
        dibs__claim_retract(q, tally->claim);
}

/*
 * Ends the caller's batch once all of its leases are decided. Where some were renewed, the error only says why others
 * were not: its status would count for each of these, and their own may be another.
 */
static void end_if_decided(struct round *round)
{
    struct dibs__batch *batch = round->batch;
    struct dibs__quorum *q = round->quorum;
    bool replied = false, unanswered = false;

    if (!batch || round->undecided > 0)
        return;
    round->batch = NULL;
    for (size_t i = 0; i < batch->count; i++) {
        replied = replied || batch->items[i].result != DIBS__UNANSWERED;
        unanswered = unanswered || batch->items[i].result == DIBS__UNANSWERED;
    }
    if (!unanswered || batch->watch)
        round->error.status = DIBS_OK;
    else if (round->error.status == DIBS_OK)
        dibs__error_set(&round->error, DIBS_UNAVAILABLE, "fewer than %zu of %zu masters renewed the lease", q->majority,
                        q->count);
    else if (replied)
        round->error.status = DIBS_UNAVAILABLE;
    if (replied && !batch->watch)
        dibs__quorum_note_reply(q, DIBS_OK);
    batch->done(batch, &round->error);
}

/* ------------------------------------------------------------------ the top-ups */

/* A member has lost a lock that is held, and can be topped up from that time on. */
static void top_up_later(struct dibs__quorum *q, int64_t from)
{
    q->last_top_up_at = from;
    if (q->top_up_at == 0)
        q->top_up_at = from;
}

int64_t dibs__top_up_deadline(const struct dibs__quorum *q)
{
    return q->top_up_at != 0 ? q->top_up_at : DIBS__NEVER;
}

/* Reports that any lock may have changed: the renewals that follow top up what members have lost. */
void dibs__top_up_attend(struct dibs__quorum *q, int64_t now)
{
    if (now < dibs__top_up_deadline(q))
        return;
    q->top_up_at = now < q->last_top_up_at ? q->last_top_up_at : 0;
    q->config.listener.changed(q->config.listener.context, NULL);
}

/* ------------------------------------------------------------------ the answers */

/* Whether the member lost the lock, and can be topped up by now. */
static bool is_to_top_up(const struct dibs__quorum *q, const struct dibs__member_state *state)
    DIBS__REQUIRES(dibs__quorum_mutex)
{
    return state->phase == DIBS__MEMBER_NOTHING && state->top_up_from != 0 && dibs__quorum_now(q) >= state->top_up_from;
}

/*
 * A member that did not grant the lock has not lost it: another may have it there. But one that is to be topped up
 * has, because a lease that waits for its look is not renewed when a change is told.
 */
static void note_watched(struct part_batch *sent, size_t i)
{
    struct dibs__quorum *q = sent->member->quorum;
    struct dibs__member_state *state = &claim_of(sent, i)->states[sent->member->index];

    dibs__quorum_mutex_lock(&q->mutex);
    if (state->phase != DIBS__MEMBER_GRANTED && sent->batch.items[i].result == DIBS__GONE && !is_to_top_up(q, state))
        sent->batch.items[i].result = DIBS__UNANSWERED;
    dibs__quorum_mutex_unlock(&q->mutex);
}

/*
 * Brings the member's state up to date with its answer about one lease. A master that lost a lock may have lost
 * all that it knew. If the member reported a change while the renewal was under way, the answer may be older
 * than the change.
 */
static void note_part(struct part_batch *sent, size_t i)
{
    const struct dibs__renewal *item = &sent->batch.items[i];
    struct dibs__quorum *q = sent->member->quorum;
    struct dibs__member_state *state = &claim_of(sent, i)->states[sent->member->index];

    dibs__quorum_mutex_lock(&q->mutex);
    bool forgot = item->result == DIBS__GONE && state->phase == DIBS__MEMBER_GRANTED;
    bool passed_over = state->passed_over && item->result != DIBS__UNANSWERED;
    state->renewing = state->passed_over = false;
    state->lease = item->store_state;
    state->pending_extension = item->pending_extension;
    state->pending_extension_ms = item->pending_extension_ms;
    state->in_doubt = state->in_doubt && item->result != DIBS__GONE;
    state->behind = state->behind || (item->extension && item->result == DIBS__UNANSWERED);
    if (has_lock(item))
        state->phase = DIBS__MEMBER_GRANTED;
    if (forgot) {
        state->phase = DIBS__MEMBER_NOTHING;
        state->top_up_from = dibs__after_ms(dibs__quorum_now(q), TOP_UP_AFTER_MS);
        if (claim_of(sent, i)->state == DIBS__CLAIM_HELD)
            top_up_later(q, state->top_up_from);
    }
    if (item->result != DIBS__UNANSWERED || (!item->sent && !sent->was_topping_up[i]))
        state->topping_up = false;
    passed_over = passed_over && claim_of(sent, i)->state == DIBS__CLAIM_HELD;
    dibs__quorum_mutex_unlock(&q->mutex);
    if (forgot)
        dibs__vote_want(q, 0);
    if (passed_over)
        q->config.listener.changed(q->config.listener.context, claim_of(sent, i)->name);
}

/*
 * A top-up that was refused does not count as a loss: the member may not vote yet, or another has the key at
 * the moment, and a later top-up may succeed. But if the member has granted the lock to another since, the lock
 * is gone there: a forced unlock goes from one member to the next, which may take longer than TOP_UP_AFTER_MS.
 */
static void count(struct round *round, size_t at, const struct dibs__renewal *said)
{
    struct tally *tally = &round->tallies[at];

    tally->asked--;
    if (said->result == DIBS__GONE && (!said->top_up || said->was_anothers))
        tally->gone++;
    if (said->result == DIBS__UNANSWERED && said->status != DIBS_OK && said->status != DIBS_UNAVAILABLE)
        tally->refused = said->status;
    if (!has_lock(said))
        return;
    bool cut = said->pending_extension_ms > 0 && said->pending_extension_ms < said->lease_ms;
    tally->sure[tally->renewed++] = cut ? said->pending_extension_ms : said->lease_ms;
    if (cut && (tally->again_ms == 0 || said->again_ms < tally->again_ms))
        tally->again_ms = said->again_ms;
}

/*
 * Notes the master's clock, which the answer shows. While the clock is behind, a renewal ends early once the
 * clock is set right. And a distrusted master may grant what it forgot too early; so may one that was told meanwhile
 * that its clock had been set. None of these counts.
 */
static void note_clock(struct part_batch *sent)
{
    struct dibs__member *member = sent->member;
    struct dibs__batch *batch = &sent->batch;

    if (batch->server_us > 0)
        dibs__member_note_clock(member, batch->proof, batch->server_us);
    bool set_back = atomic_load(&member->set_back);
    bool distrusted = dibs__member_is_distrusted(member) || atomic_load(&member->steps) != sent->steps;
    for (size_t i = 0; i < batch->count; i++) {
        struct dibs__renewal *item = &batch->items[i];
        if (item->result != DIBS__RENEWED || !(set_back || (distrusted && item->top_up)))
            continue;
        item->result = DIBS__UNANSWERED;
        item->status = DIBS_UNAVAILABLE;
    }
}

static void part_done(struct dibs__batch *batch, const struct dibs__error *error)
{
    struct part_batch *sent = (struct part_batch *)batch;
    struct round *round = sent->round;

    note_clock(sent);
    if (round->batch)
        dibs__error_keep_worst(&round->error, error);
    for (size_t i = 0; i < batch->count; i++) {
        if (batch->watch)
            note_watched(sent, i);
        else
            note_part(sent, i);
        if (round->batch) {
            count(round, sent->at[i], &batch->items[i]);
            settle(round, sent->at[i]);
        }
    }
    end_if_decided(round);
    unref_round(round);
    free(sent);
}

/* ------------------------------------------------------------------ the sending */

/*
 * Whether the lease can be renewed at the member. *top_up: that would set the lock there, which is a vote. Whoever has
 * ended the claim meanwhile retracts nothing at a member that did not have the lock, so it is not set there any more.
 */
static bool takes_renewal(const struct dibs__member *member, const struct dibs__claim *claim, int64_t now, bool *top_up)
    DIBS__REQUIRES(dibs__quorum_mutex)
{
    const struct dibs__member_state *state = &claim->states[member->index];

    *top_up = state->phase != DIBS__MEMBER_GRANTED && now >= state->top_up_from;
    bool may_set =
        claim->state != DIBS__CLAIM_ENDED && !dibs__member_is_distrusted(member) && !atomic_load(&member->strange);
    return (!*top_up || may_set) && !state->renewing && state->phase != DIBS__MEMBER_PENDING &&
           state->phase != DIBS__MEMBER_RETIRED;
}

/*
 * Adds the lease to the member's batch. By the fence, a member that must set the lock again recognises that it has
 * granted the lock to another since. The member's clock may be ahead of the clocks of the majority that granted the
 * lock, so the fence that it gave may be larger than that of the hold.
 */
static void add(struct part_batch *sent, struct dibs__claim *claim, const struct dibs__renewal *item, size_t at)
{
    struct dibs__quorum *q = sent->member->quorum;
    struct dibs__member_state *state = &claim->states[sent->member->index];
    struct dibs__renewal *own = &sent->batch.items[sent->batch.count];
    bool watch = sent->batch.watch, top_up = false;

    dibs__quorum_mutex_lock(&q->mutex);
    bool takes = watch || takes_renewal(sent->member, claim, sent->round->batch->proof, &top_up);
    if (takes) {
        *own = (struct dibs__renewal){
            .name = claim->name,
            .token = claim->token,
            .lease_ms = item->lease_ms,
            .fence = top_up && state->fence > item->fence ? state->fence : item->fence,
            .extension = item->extension || state->behind,
            .top_up = top_up,
            .fixed = item->fixed,
            .look = item->look && !top_up && !item->extension && !state->behind,
            .store_state = state->lease,
            .pending_extension_ms = state->pending_extension_ms,
            .pending_extension = state->pending_extension,
        };
        if (item->lease_ms > atomic_load_explicit(&claim->longest_ms, memory_order_relaxed))
            atomic_store_explicit(&claim->longest_ms, item->lease_ms, memory_order_relaxed);
        state->renewing = state->renewing || !watch;
        sent->was_topping_up[sent->batch.count] = state->topping_up;
        state->topping_up = state->topping_up || top_up;
    }
    if (!watch) {
        state->behind = !takes && (item->extension || state->behind);
        state->passed_over = !takes && (state->renewing || state->phase == DIBS__MEMBER_PENDING);
    }
    dibs__quorum_mutex_unlock(&q->mutex);
    if (!takes)
        return;
    sent->at[sent->batch.count++] = at;
    sent->round->tallies[at].asked++;
}

/* NULL: no memory, or nothing to send. */
static struct part_batch *new_part_batch(struct round *round, struct dibs__member *member)
{
    if (round->batch->watch && !member->store->watches)
        return NULL;
    struct part_batch *sent = malloc(sizeof *sent);
    if (!sent) {
        dibs__quorum_no_memory(&round->error);
        return NULL;
    }
    sent->batch.watch = round->batch->watch;
    sent->batch.count = 0;
    sent->batch.server_us = 0;
    sent->batch.done = part_done;
    sent->round = round;
    sent->member = member;
    sent->steps = atomic_load(&member->steps);
    for (size_t i = 0; i < round->batch->count; i++)
        if (sent->batch.watch || dibs__vote_is_announced(&round->quorum->voting, round->batch->items[i].lease_ms))
            add(sent, round->tallies[i].claim, &round->batch->items[i], i);
    if (sent->batch.count > 0)
        return sent;
    free(sent);
    return NULL;
}

/* NULL: no memory. */
static struct round *new_round(struct dibs__quorum *q, struct dibs__batch *batch)
{
    struct round *round = calloc(1, sizeof *round + batch->count * sizeof round->tallies[0]);

    if (!round)
        return NULL;
    round->quorum = q;
    round->batch = batch;
    round->references = 1;
    round->undecided = batch->count;
    round->generation = atomic_load(&q->generation);
    for (; round->count < batch->count; round->count++) {
        const struct dibs__renewal *item = &batch->items[round->count];
        struct dibs__claim *claim = dibs__claim_of_token(q, item->name, item->token, item->lease_ms);
        if (!claim) {
            unref_round(round);
            return NULL;
        }
        round->tallies[round->count].claim = claim;
    }
    return round;
}

/* Leases longer than a majority of the masters knows of must be announced before anything lasts that long (rule 15). */
static void announce(struct dibs__quorum *q, const struct dibs__batch *batch)
{
    for (size_t i = 0; i < batch->count; i++)
        if (!dibs__vote_is_announced(&q->voting, batch->items[i].lease_ms))
            dibs__vote_want(q, batch->items[i].lease_ms);
}

/*
 * A member with an ask to answer gets no renewal, and where another is silent, the renewal would wait for that one. So
 * answers to asks that have arrived are noted first.
 */
void dibs__quorum_renew(struct dibs__store *base, struct dibs__batch *batch)
{
    struct dibs__quorum *q = dibs__quorum_of(base);
    struct part_batch *sent[DIBS__MEMBERS_MAX];
    struct round *round = new_round(q, batch);
    struct dibs__error error;

    batch->proof = dibs__quorum_now(q);
    for (size_t i = 0; i < batch->count; i++) {
        batch->items[i].result = DIBS__UNANSWERED;
        batch->items[i].status = DIBS_OK;
    }
    if (!round) {
        batch->done(batch, (dibs__quorum_no_memory(&error), &error));
        return;
    }
    if (!batch->watch) {
        dibs__detached_attend_all(q);
        announce(q, batch);
    }
    for (size_t i = 0; i < q->count; i++) {
        sent[i] = new_part_batch(round, &q->members[i]);
        round->references += sent[i] != NULL;
    }
    for (size_t i = 0; i < q->count; i++)
        if (sent[i])
            q->members[i].store->ops->renew(q->members[i].store, &sent[i]->batch);
    /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): each part of the batch is freed when its member has done it */
    for (size_t i = 0; round->batch && i < batch->count; i++)
        settle(round, i);
    end_if_decided(round);
    unref_round(round);
}
