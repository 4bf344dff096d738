#include <stdlib.h>
#include <string.h>

#include "base/probe.h"
#include "core/renewal_parts.h"

/* ------------------------------------------------------- rounds of what is due */

enum notice_kind { LOST, AT_RISK, KEPT /* its use must be looked at */ };

/* A lease of which something must be told, with a reference. */
struct notice {
    struct dibs__lease *lease;
    enum notice_kind kind;
    bool failed; /* a renewal has failed since the lease was last confirmed, which is the reason to tell */
};

/* A batch, and the texts of its tokens one behind the other. */
struct sent {
    struct dibs__batch batch; /* the first member, because the completion frees the struct by it */
    char *end;                /* the end of the texts */
    char tokens[];
};

/* What one round has found to do once the mutex is unlocked. */
struct round {
    struct notice notices[2 * DIBS__BATCH_MAX];
    size_t count;
    struct sent *sent;          /* what to renew; NULL: nothing */
    struct sent *watch;         /* what to watch; NULL: nothing */
    char why[DIBS__DETAIL_MAX]; /* why renewals failed */
    bool more;
};

typedef void done_fn(struct dibs__batch *batch, const struct dibs__error *error);

static done_fn batch_done;

static void batch_landed(struct dibs__batch *batch, struct dibs__batch *part, const struct dibs__error *error);

/* NULL: no memory. */
static struct sent *new_sent(struct dibs__renewals *r, done_fn *done)
{
    struct sent *sent = malloc(sizeof *sent + DIBS__BATCH_MAX * r->config.tokens->most);

    if (!sent)
        return NULL;
    sent->batch.watch = done == dibs__renewals_watch_done;
    sent->batch.count = 0;
    sent->batch.done = done;
    sent->batch.landed = batch_landed;
    sent->batch.context = r;
    sent->end = sent->tokens;
    return sent;
}

/*
 * Returns a place for the lease in a batch, which is made if necessary. *token: the text of the lease's token. NULL: no
 * memory.
 */
static struct dibs__renewal *add_to(struct dibs__renewals *r, struct sent **sent, done_fn *done,
                                    struct dibs__lease *lease, const char **token) DIBS__REQUIRES(dibs__renewals_mutex)
{
    if (!*sent)
        *sent = new_sent(r, done);
    if (!*sent)
        return NULL;
    DIBS__REQUIRE((*sent)->batch.count < DIBS__BATCH_MAX);
    *token = (*sent)->end;
    (*sent)->end = dibs__token_write(r->config.tokens, &lease->token, (*sent)->end) + 1;
    dibs__lease_ref(lease);
    return &(*sent)->batch.items[(*sent)->batch.count++];
}

/* Adds the lease to what the round renews. False: no memory for a batch. */
static bool add_to_batch(struct dibs__renewals *r, struct round *round, struct dibs__lease *lease, int64_t now)
    DIBS__REQUIRES(dibs__renewals_mutex)
{
    const char *token;
    struct dibs__renewal *item = add_to(r, &round->sent, batch_done, lease, &token);

    if (!item)
        return false;
    dibs__renewals_unpace(r, lease);
    dibs__renewal_state_send(lease, token, item, now, r->config.renew_ms);
    return true;
}

/*
 * Adds the lease to the locks that the store is asked to watch. Once the store has looked at the lock, it tells of
 * changes.
 */
static void add_to_watch(struct dibs__renewals *r, struct round *round, struct dibs__lease *lease, int64_t now)
    DIBS__REQUIRES(dibs__renewals_mutex)
{
    const char *token;
    struct dibs__renewal *item = add_to(r, &round->watch, dibs__renewals_watch_done, lease, &token);

    if (item)
        *item = (struct dibs__renewal){.name = lease->name, .token = token, .context = lease};
    dibs__renewals_unpace(r, lease);
    lease->renewal_state.watch_at = item ? DIBS__NEVER : dibs__after_ms(now, DIBS__WATCH_AGAIN_MS);
}

/* Notes what must be told of the lease. Takes over the reference. */
static void add_notice(struct round *round, struct dibs__lease *lease, enum notice_kind kind)
    DIBS__REQUIRES(dibs__renewals_mutex)
{
    round->notices[round->count++] = (struct notice){lease, kind, lease->renewal_state.failed};
}

/* The last lease of a batch of the round, beside which the next one is due; NULL: there is none. */
static struct dibs__lease *last_of(const struct round *round)
{
    const struct sent *sent = round->sent ? round->sent : round->watch;

    return sent ? sent->batch.items[sent->batch.count - 1].context : NULL;
}

/* Whether to look at the lease now. A lease that is due a little later goes along with what is sent anyway. */
static bool is_due(const struct dibs__renewals *r, const struct round *round, const struct dibs__lease *lease,
                   int64_t now) DIBS__REQUIRES(dibs__renewals_mutex)
{
    return dibs__due_at(lease) <= now || (round->sent && dibs__renewal_state_is_due(lease, now, r->config.renew_ms));
}

/* The lease is due: sorts it into the round. */
static void look_at(struct dibs__renewals *r, struct round *round, struct dibs__lease *lease, int64_t now)
    DIBS__REQUIRES(dibs__renewals_mutex)
{
    struct dibs__lease *beside = last_of(round);

    if (dibs__lease_is_lost(lease, now)) {
        dibs__renewals_take_out(r, lease);
        add_notice(round, lease, LOST);
        return;
    }
    if (now >= lease->renewal_state.risk_at && lease->renewal_state.use != DIBS__USE_KEPT) {
        lease->renewal_state.risk_at = DIBS__NEVER;
        dibs__lease_ref(lease);
        add_notice(round, lease, AT_RISK);
    }
    if (now >= lease->renewal_state.kept_at) {
        lease->renewal_state.kept_at = DIBS__NEVER;
        dibs__lease_ref(lease);
        add_notice(round, lease, KEPT);
    }
    if (dibs__renewal_state_is_due(lease, now, r->config.renew_ms) && !add_to_batch(r, round, lease, now))
        dibs__renewal_state_put_off(lease, now);
    if (dibs__renewal_state_is_to_watch(lease, now))
        add_to_watch(r, round, lease, now);
    dibs__renewals_reschedule(r, lease, beside);
}

/* Takes the leases that are due, at most as many as a round holds. */
static void collect(struct dibs__renewals *r, struct round *round)
{
    int64_t now = dibs__now(r->config.clock);
    struct dibs__lease *lease;

    round->count = 0;
    round->sent = round->watch = NULL;
    dibs__renewals_mutex_lock(&r->mutex);
    for (size_t i = 0; i < DIBS__BATCH_MAX; i++) {
        lease = dibs__due_first(&r->due);
        if (!lease || !is_due(r, round, lease, now))
            break;
        look_at(r, round, lease, now);
    }
    if (round->watch && r->watching == DIBS__WATCHING_UNKNOWN)
        r->watching = DIBS__WATCHING_OFF; /* the store tells when it begins to watch */
    round->more = dibs__due_at(dibs__due_first(&r->due)) <= now;
    memcpy(round->why, r->last_failure.detail, sizeof round->why);
    dibs__renewals_mutex_unlock(&r->mutex);
}

static void carry_out(struct dibs__renewals *r, struct round *round)
{
    for (size_t i = 0; i < round->count; i++) {
        const struct notice *notice = &round->notices[i];
        const char *why = notice->failed ? round->why : "";
        if (notice->kind == LOST)
            r->config.lost(r->config.context, notice->lease, false, why);
        else if (notice->kind == AT_RISK)
            r->config.at_risk(r->config.context, notice->lease, why);
        else
            r->config.look_kept(r->config.context, notice->lease);
        dibs__lease_unref(notice->lease);
    }
    if (round->sent)
        r->store->ops->renew(r->store, &round->sent->batch);
    if (round->watch)
        r->store->ops->renew(r->store, &round->watch->batch);
}

int64_t dibs__renewals_due(struct dibs__renewals *r)
{
    dibs__renewals_mutex_lock(&r->mutex);
    int64_t due = dibs__due_at(dibs__due_first(&r->due));
    dibs__renewals_mutex_unlock(&r->mutex);
    return due;
}

void dibs__renewals_attend(struct dibs__renewals *r)
{
    struct round round;

    do {
        collect(r, &round);
        carry_out(r, &round);
    } while (round.more);
}

/* ---------------------------------------------------------- what the store said */

/* How the answer to a batch is taken, lease by lease. */
struct landing {
    const struct dibs__batch *batch;
    const struct dibs__error *error;
    int64_t now;
    struct dibs__lease *beside; /* the lease before this one, in the heap; NULL: there is none */
    unsigned renewed, failed;
};

/* Takes what the store said of one lease. True: the store said that the lease is gone. */
static bool take_result(struct dibs__renewals *r, struct landing *landing, const struct dibs__renewal *item)
    DIBS__REQUIRES(dibs__renewals_mutex)
{
    struct dibs__lease *lease = item->context;

    if (dibs__renewal_state_land(lease, item))
        pthread_cond_broadcast(&r->changed);
    if (!dibs__due_has(lease))
        return false;
    if (item->result == DIBS__GONE) {
        dibs__lease_lose(lease);
        dibs__renewals_take_out(r, lease);
        dibs__lease_unref(lease); /* the item has one more */
        return true;
    }
    if (!dibs__lease_is_lost(lease, landing->now)) { /* else the answer is late, and the next round tells of the loss */
        if (item->result == DIBS__RENEWED)
            DIBS__PROBE(renew, lease->name, item->lease_ms);
        if (!item->extension && !item->look)
            *(item->result == DIBS__RENEWED ? &landing->renewed : &landing->failed) += 1;
        if (dibs__renewal_state_take_result(lease, item, landing->batch->proof, landing->error->status, landing->now,
                                            r->config.renew_ms))
            pthread_cond_broadcast(&r->changed);
    }
    dibs__renewals_reschedule(r, lease, landing->beside);
    landing->beside = lease;
    return false;
}

/* Items whose lease is gone, or wanted by others, keep their context and its reference. */
static void land(struct dibs__renewals *r, struct dibs__batch *batch, const struct dibs__error *error)
{
    struct landing landing = {.batch = batch, .error = error, .now = dibs__now(r->config.clock)};

    dibs__renewals_mutex_lock(&r->mutex);
    if (error->status != DIBS_OK)
        r->last_failure = *error;
    for (size_t i = 0; i < batch->count; i++) {
        if (take_result(r, &landing, &batch->items[i]) || batch->items[i].wanted)
            continue;
        dibs__lease_unref(batch->items[i].context);
        batch->items[i].context = NULL;
    }
    dibs__count_more(&r->config.stats->renewed, landing.renewed);
    dibs__count_more(&r->config.stats->renew_failed, landing.failed);
    dibs__renewals_mutex_unlock(&r->mutex);
}

static void batch_landed(struct dibs__batch *batch, struct dibs__batch *part, const struct dibs__error *error)
{
    struct dibs__renewals *r = batch->context;

    land(r, part, error);
    for (size_t i = 0; i < part->count; i++) {
        if (!part->items[i].context)
            continue;
        if (part->items[i].wanted)
            r->config.wanted(r->config.context, part->items[i].context);
        else
            r->config.lost(r->config.context, part->items[i].context, true,
                           "its key is gone from the store, or belongs to somebody else");
        dibs__lease_unref(part->items[i].context);
    }
}

static void batch_done(struct dibs__batch *batch, const struct dibs__error *error)
{
    batch_landed(batch, batch, error);
    free(batch);
}
