/*
 * Lock discipline: `mutex` (of the class dibs__renewals_mutex) guards the heap, and `renewal_state` of each lease. It
 * is a leaf, apart from the atomics of the scheduler: while it is held, no callback is called, and nothing of the store
 * except is_unconfirmed.
 *
 * A thread that extends a lease sleeps on `changed` until
 *     the extension is no longer pending, or its deadline;
 * a thread that is about to release a lease, until
 *     the lease is confirmed, or no longer kept alive, or its deadline.
 */
#include "core/renewal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/probe.h"
#include "core/due.h"
#include "core/renewal_state.h"

#define WATCH_AGAIN_MS 1000               /* after this time a watch that failed is tried again */
#define WATCH_AGE (20 * DIBS__NS_PER_MS)  /* a lease is at least this old when its lock is watched, */
#define WATCH_GRID (10 * DIBS__NS_PER_MS) /* at the next multiple of this time, so that many go together */
#define PACE DIBS__NS_PER_MS              /* leases with a change to look at are due at multiples of this time, */
#define PACE_MOST 96                      /* at most this many at each, */
#define PACE_LATER 2                      /* and at least this many such times after the change */
#define FAILURES UINT8_MAX                /* number of reasons that are remembered: more than a cluster has nodes */

enum watching {
    WATCHING_UNKNOWN, /* the store was not asked to watch yet */
    WATCHING_OFF,     /* the store does not watch, or has not said so yet */
    WATCHING_ON
};

struct dibs__renewals {
    struct dibs__renewal_config config; /* read-only */
    struct dibs__mutex mutex;
    struct dibs__due due DIBS__GUARDED_BY(dibs__renewals_mutex); /* the leases that are kept alive, with a reference */
    /*
     * Why renewals failed: the last different texts, from place 1 on, or NULL. A lease remembers the place, because
     * each node of a cluster has reasons of its own.
     */
    char *failures[FAILURES + 1] DIBS__GUARDED_BY(dibs__renewals_mutex);
    uint8_t newest_failure DIBS__GUARDED_BY(dibs__renewals_mutex);
    enum watching watching DIBS__GUARDED_BY(dibs__renewals_mutex);
    size_t paced DIBS__GUARDED_BY(dibs__renewals_mutex); /* number of leases to look at because of a change */
    pthread_cond_t changed;                              /* waited on with mutex */
};

/* The number by which a lease remembers that reason; 0: there is no memory for it. */
static uint8_t note_failure(struct dibs__renewals *r, const char *detail) DIBS__REQUIRES(dibs__renewals_mutex)
{
    for (unsigned i = 1; i <= FAILURES && r->failures[i]; i++)
        if (strcmp(r->failures[i], detail) == 0)
            return (uint8_t)i;
    char *copy = strdup(detail);
    if (!copy)
        return 0;
    r->newest_failure = (uint8_t)(r->newest_failure % FAILURES + 1);
    free(r->failures[r->newest_failure]);
    r->failures[r->newest_failure] = copy;
    return r->newest_failure;
}

/* "": there is no reason, or it is not known. */
static const char *failure_text(const struct dibs__renewals *r, uint8_t number) DIBS__REQUIRES(dibs__renewals_mutex)
{
    const char *text = r->failures[number];

    return text ? text : "";
}

/*
 * When to look at a lease because of a change. Not at once, because many changes may come together, and because a key
 * whose life somebody has cut to a millisecond should not be kept alive. Only a limited number of leases is looked at
 * at a time, so that other renewals are not delayed: the lease comes after all leases that wait already. Each lease
 * counts once, however many changes are told meanwhile, so no lease waits for longer than all the others take.
 */
static int64_t pace(struct dibs__renewals *r, struct dibs__lease *lease, int64_t now)
    DIBS__REQUIRES(dibs__renewals_mutex)
{
    int64_t times = (int64_t)(r->paced / PACE_MOST);

    if (!lease->renewal_state.paced) {
        lease->renewal_state.paced = true;
        r->paced++;
    }
    return (now / PACE + 1 + PACE_LATER + times) * PACE;
}

/* The lease no longer waits to be looked at because of a change. */
static void unpace(struct dibs__renewals *r, struct dibs__lease *lease) DIBS__REQUIRES(dibs__renewals_mutex)
{
    DIBS__REQUIRE(!lease->renewal_state.paced || r->paced > 0);
    if (lease->renewal_state.paced)
        r->paced--;
    lease->renewal_state.paced = false;
}

/* When the store should begin to watch the lock of a lease that was granted at that time; DIBS__NEVER: never. */
static int64_t first_watch(const struct dibs__renewals *r, int64_t granted_at) DIBS__REQUIRES(dibs__renewals_mutex)
{
    if (r->watching == WATCHING_OFF || !r->config.store->watches)
        return DIBS__NEVER;
    return ((granted_at + WATCH_AGE) / WATCH_GRID + 1) * WATCH_GRID;
}

/*
 * The lease is no longer kept alive, and the renewals' reference becomes the caller's. A thread that extends the lease
 * learns that it is lost.
 */
static void take_out(struct dibs__renewals *r, struct dibs__lease *lease) DIBS__REQUIRES(dibs__renewals_mutex)
{
    dibs__due_remove(&r->due, lease);
    unpace(r, lease);
    struct dibs__extending *extending = lease->renewal_state.extending;
    bool awaited = extending && dibs__extension_lose(&extending->extension);
    if (awaited || lease->renewal_state.unconfirmed)
        pthread_cond_broadcast(&r->changed);
    dibs__count_more(&r->config.stats->reentered, atomic_load_explicit(&lease->reentered, memory_order_relaxed));
    dibs__count_more(&r->config.stats->retaken, atomic_load_explicit(&lease->keeping.retaken, memory_order_relaxed));
}

/*
 * Called when the lease begins to be kept alive, or may be due at another time. beside: the lease before it in its
 * batch, or NULL. other: when another lease is due (dibs__renewal_state_plan).
 */
static void schedule(struct dibs__renewals *r, struct dibs__lease *lease, struct dibs__lease *beside, int64_t other)
    DIBS__REQUIRES(dibs__renewals_mutex)
{
    int64_t due = dibs__renewal_state_plan(lease, other);

    dibs__due_set(&r->due, lease, due, beside);
    dibs__scheduler_wake_by(r->config.scheduler, due);
}

/* Calls fn for each lease that is kept alive; fn may change when the lease is due. */
static void each(struct dibs__renewals *r, void (*fn)(struct dibs__renewals *r, struct dibs__lease *lease, int64_t now))
    DIBS__REQUIRES(dibs__renewals_mutex)
{
    int64_t now = dibs__now(r->config.clock);
    struct dibs__lease *lease, *beside = NULL;

    for (struct dibs__lease *next = dibs__due_take_all(&r->due); (lease = next); beside = lease) {
        next = lease->renewal_state.next;
        fn(r, lease, now);
        schedule(r, lease, beside, DIBS__NEVER);
    }
}

/* ------------------------------------------------------ for the holding threads */

/* If the server that answers now is not the one that confirmed the lease last, the lease must be renewed at once. */
static void check_server(struct dibs__renewals *r, struct dibs__lease *lease, int64_t now)
    DIBS__REQUIRES(dibs__renewals_mutex)
{
    (void)now;
    if (r->config.store->ops->is_unconfirmed(r->config.store, &lease->renewal_state.store_state))
        dibs__renewal_state_doubt(lease);
}

void dibs__renewals_add(struct dibs__renewals *r, struct dibs__lease *lease, uint32_t lease_ms, int64_t proof,
                        const struct dibs__lease_store_state *store_state)
{
    dibs__lease_ref(lease);
    dibs__renewals_mutex_lock(&r->mutex);
    dibs__renewal_state_begin(lease, lease_ms, proof, store_state, r->config.renew_ms);
    check_server(r, lease, proof);
    lease->renewal_state.watch_at = first_watch(r, lease->granted_at);
    struct dibs__lease *beside = r->due.last;
    schedule(r, lease, beside, dibs__due_at(beside));
    dibs__renewals_mutex_unlock(&r->mutex);
}

bool dibs__renewals_remove(struct dibs__renewals *r, struct dibs__lease *lease)
{
    dibs__renewals_mutex_lock(&r->mutex);
    bool kept_alive = dibs__due_has(lease);
    bool settled = !lease->renewal_state.unconfirmed && !lease->renewal_state.may_come_back;
    if (kept_alive)
        take_out(r, lease);
    dibs__renewals_mutex_unlock(&r->mutex);
    if (kept_alive)
        dibs__lease_unref(lease);
    return settled;
}

struct dibs__lease *dibs__renewals_take_any(struct dibs__renewals *r)
{
    dibs__renewals_mutex_lock(&r->mutex);
    struct dibs__lease *lease = dibs__due_first(&r->due);
    if (lease)
        take_out(r, lease);
    dibs__renewals_mutex_unlock(&r->mutex);
    return lease;
}

static bool is_unsettled(const struct dibs__lease *lease) DIBS__REQUIRES(dibs__renewals_mutex)
{
    return lease->renewal_state.unconfirmed && dibs__due_has(lease);
}

bool dibs__renewals_settle(struct dibs__renewals *r, struct dibs__lease *lease, int64_t deadline)
{
    dibs__renewals_mutex_lock(&r->mutex);
    while (is_unsettled(lease) && dibs__now(r->config.clock) < deadline)
        r->config.clock->wait(r->config.clock, &r->changed, &r->mutex, deadline);
    bool settled = !is_unsettled(lease);
    dibs__renewals_mutex_unlock(&r->mutex);
    return settled;
}

void dibs__renewals_use_changed(struct dibs__renewals *r, struct dibs__lease *lease)
{
    if (!atomic_load_explicit(&lease->keeping.news, memory_order_relaxed) ||
        !atomic_exchange(&lease->keeping.news, false))
        return;
    dibs__renewals_mutex_lock(&r->mutex);
    if (dibs__due_has(lease)) {
        if (!lease->renewal_state.extending)
            lease->renewal_state.extending = calloc(1, sizeof *lease->renewal_state.extending);
        dibs__renewal_state_use_changed(lease, r->config.kept_ms);
        schedule(r, lease, NULL, DIBS__NEVER);
    }
    dibs__renewals_mutex_unlock(&r->mutex);
}

void dibs__renewals_server_changed(struct dibs__renewals *r)
{
    dibs__renewals_mutex_lock(&r->mutex);
    each(r, check_server);
    dibs__renewals_mutex_unlock(&r->mutex);
}

/* Unlocks the mutex while the thread sleeps. False: the deadline came first. */
static bool wait_for_extension(struct dibs__renewals *r, struct dibs__lease *lease, int64_t deadline)
    DIBS__REQUIRES(dibs__renewals_mutex)
{
    while (lease->renewal_state.extending && dibs__extension_pends(&lease->renewal_state.extending->extension)) {
        if (dibs__now(r->config.clock) >= deadline)
            return false;
        r->config.clock->wait(r->config.clock, &r->changed, &r->mutex, deadline);
    }
    return true;
}

/*
 * The scheduler's thread sends the extension, behind a renewal that is in flight: over another connection that renewal
 * could arrive after the extension and undo it.
 */
static dibs_status extend(struct dibs__renewals *r, struct dibs__lease *lease, uint32_t lease_ms, int64_t deadline)
    DIBS__REQUIRES(dibs__renewals_mutex)
{
    if (!wait_for_extension(r, lease, deadline)) /* for an earlier extension, whose call did not wait until its end */
        return DIBS_UNAVAILABLE;
    if (!dibs__due_has(lease))
        return DIBS_LOST;
    if (!lease->renewal_state.extending)
        lease->renewal_state.extending = calloc(1, sizeof *lease->renewal_state.extending);
    if (!lease->renewal_state.extending)
        return DIBS_NO_MEMORY;
    dibs__extension_ask(&lease->renewal_state.extending->extension, lease_ms);
    if (lease_ms > atomic_load_explicit(&lease->extended_ms, memory_order_relaxed))
        atomic_store_explicit(&lease->extended_ms, lease_ms, memory_order_relaxed);
    lease->renewal_state.renew_at = 0;
    schedule(r, lease, NULL, DIBS__NEVER);
    if (wait_for_extension(r, lease, deadline))
        return lease->renewal_state.extending->extension.status;
    dibs__renewal_state_leave_extension(lease);
    return DIBS_UNAVAILABLE;
}

dibs_status dibs__renewals_extend(struct dibs__renewals *r, struct dibs__lease *lease, uint32_t lease_ms,
                                  int64_t deadline, struct dibs__error *error)
{
    dibs__renewals_mutex_lock(&r->mutex);
    dibs_status status = extend(r, lease, lease_ms, deadline);
    const char *why = lease->renewal_state.failed ? failure_text(r, lease->renewal_state.failure) : "";
    if (status != DIBS_OK && status != DIBS_LOST)
        dibs__error_set(error, status, "%s",
                        status == DIBS_NO_MEMORY && !lease->renewal_state.extending ? "no memory for an extension"
                        : *why                                                      ? why
                               : "the store did not answer in time");
    dibs__renewals_mutex_unlock(&r->mutex);
    return status;
}

void dibs__renewals_count(struct dibs__renewals *r, dibs_stats *out)
{
    dibs__renewals_mutex_lock(&r->mutex);
    out->leases = r->due.count;
    out->reentered = atomic_load_explicit(&r->config.stats->reentered, memory_order_relaxed);
    out->retaken = atomic_load_explicit(&r->config.stats->retaken, memory_order_relaxed);
    for (struct dibs__lease *leader = NULL; (leader = dibs__due_leader(&r->due, leader));) {
        const struct dibs__lease *lease = leader;
        do {
            out->reentered += atomic_load_explicit(&lease->reentered, memory_order_relaxed);
            out->retaken += atomic_load_explicit(&lease->keeping.retaken, memory_order_relaxed);
        } while ((lease = lease->renewal_state.next) != leader);
    }
    dibs__renewals_mutex_unlock(&r->mutex);
}

/* ----------------------------------------------- locks that the store watches */

/*
 * Takes what the store said of a lock that it was asked to watch. A store that does not watch yet says when it begins
 * to, unless there was no memory: then it may not have learned that it should.
 */
static void take_watch(struct dibs__renewals *r, const struct dibs__renewal *item, bool no_memory, int64_t now)
    DIBS__REQUIRES(dibs__renewals_mutex)
{
    struct dibs__lease *lease = item->context;

    if (!dibs__due_has(lease) || item->result == DIBS__WATCHED)
        return;
    if (item->result == DIBS__GONE)
        dibs__renewal_state_hint(lease, now);
    else if (r->watching == WATCHING_ON || no_memory)
        lease->renewal_state.watch_at = dibs__after_ms(now, WATCH_AGAIN_MS);
    schedule(r, lease, NULL, DIBS__NEVER);
}

/* `done` of a batch of locks to watch. */
static void watch_done(struct dibs__batch *batch, const struct dibs__error *error)
{
    struct dibs__renewals *r = batch->context;
    int64_t now = dibs__now(r->config.clock);

    dibs__renewals_mutex_lock(&r->mutex);
    for (size_t i = 0; i < batch->count; i++)
        take_watch(r, &batch->items[i], error->status == DIBS_NO_MEMORY, now);
    dibs__renewals_mutex_unlock(&r->mutex);
    for (size_t i = 0; i < batch->count; i++)
        dibs__lease_unref(batch->items[i].context);
    free(batch);
}

static void watch_soon(struct dibs__renewals *r, struct dibs__lease *lease, int64_t now)
    DIBS__REQUIRES(dibs__renewals_mutex)
{
    int64_t first = first_watch(r, lease->granted_at);

    lease->renewal_state.watch_at = first > now ? first : pace(r, lease, now);
}

static void watch_no_more(struct dibs__renewals *r, struct dibs__lease *lease, int64_t now)
    DIBS__REQUIRES(dibs__renewals_mutex)
{
    (void)now;
    unpace(r, lease);
    lease->renewal_state.watch_at = DIBS__NEVER;
}

/* A lease that waits to be looked at already has its time. */
static void hint(struct dibs__renewals *r, struct dibs__lease *lease, int64_t now) DIBS__REQUIRES(dibs__renewals_mutex)
{
    if (lease->renewal_state.paced)
        return;
    dibs__renewal_state_hint(lease, dibs__renewal_state_awaits_hint(lease) ? pace(r, lease, now) : DIBS__NEVER);
}

void dibs__renewals_watching(struct dibs__renewals *r, bool on)
{
    dibs__renewals_mutex_lock(&r->mutex);
    r->watching = on ? WATCHING_ON : WATCHING_OFF;
    each(r, on ? watch_soon : watch_no_more);
    dibs__renewals_mutex_unlock(&r->mutex);
}

void dibs__renewals_hint(struct dibs__renewals *r, struct dibs__lease *lease)
{
    dibs__renewals_mutex_lock(&r->mutex);
    if (!lease) {
        each(r, hint);
    } else if (dibs__due_has(lease)) {
        hint(r, lease, dibs__now(r->config.clock));
        schedule(r, lease, NULL, DIBS__NEVER);
    }
    dibs__renewals_mutex_unlock(&r->mutex);
}

/* ------------------------------------------------------- rounds of what is due */

enum notice_kind { LOST, AT_RISK, KEPT /* its use must be looked at */ };

/* A lease of which something must be told, with a reference. */
struct notice {
    struct dibs__lease *lease;
    enum notice_kind kind;
    uint8_t failure; /* why a renewal has failed since the lease was last confirmed; 0: none has, or nobody knows */
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
    struct sent *sent;  /* what to renew; NULL: nothing */
    struct sent *watch; /* what to watch; NULL: nothing */
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
    sent->batch.watch = done == watch_done;
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
    unpace(r, lease);
    dibs__renewal_state_send(lease, token, item, now);
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
    struct dibs__renewal *item = add_to(r, &round->watch, watch_done, lease, &token);

    if (item)
        *item = (struct dibs__renewal){.name = lease->name, .token = token, .context = lease};
    unpace(r, lease);
    lease->renewal_state.watch_at = item ? DIBS__NEVER : dibs__after_ms(now, WATCH_AGAIN_MS);
}

/* Notes what must be told of the lease. Takes over the reference. */
static void add_notice(struct round *round, struct dibs__lease *lease, enum notice_kind kind)
    DIBS__REQUIRES(dibs__renewals_mutex)
{
    round->notices[round->count++] =
        (struct notice){lease, kind, lease->renewal_state.failed ? lease->renewal_state.failure : 0};
}

/* The last lease of a batch of the round, beside which the next one is due; NULL: there is none. */
static struct dibs__lease *last_of(const struct round *round)
{
    const struct sent *sent = round->sent ? round->sent : round->watch;

    return sent ? sent->batch.items[sent->batch.count - 1].context : NULL;
}

/* Whether to look at the lease now. A lease that is due a little later goes along with what is sent anyway. */
static bool is_due(const struct round *round, const struct dibs__lease *lease, int64_t now)
    DIBS__REQUIRES(dibs__renewals_mutex)
{
    return dibs__due_at(lease) <= now || (round->sent && dibs__renewal_state_is_due(lease, now));
}

/* The lease is due: sorts it into the round. */
static void look_at(struct dibs__renewals *r, struct round *round, struct dibs__lease *lease, int64_t now)
    DIBS__REQUIRES(dibs__renewals_mutex)
{
    struct dibs__lease *beside = last_of(round);

    if (dibs__lease_is_lost(lease, now)) {
        take_out(r, lease);
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
    if (dibs__renewal_state_is_due(lease, now) && !add_to_batch(r, round, lease, now))
        dibs__renewal_state_put_off(lease, now);
    if (dibs__renewal_state_is_to_watch(lease, now))
        add_to_watch(r, round, lease, now);
    schedule(r, lease, beside, dibs__due_at(beside));
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
        if (!lease || !is_due(round, lease, now))
            break;
        look_at(r, round, lease, now);
    }
    if (round->watch && r->watching == WATCHING_UNKNOWN)
        r->watching = WATCHING_OFF; /* the store tells when it begins to watch */
    round->more = dibs__due_at(dibs__due_first(&r->due)) <= now;
    dibs__renewals_mutex_unlock(&r->mutex);
}

static void carry_out(struct dibs__renewals *r, struct round *round)
{
    for (size_t i = 0; i < round->count; i++) {
        const struct notice *notice = &round->notices[i];
        char why[DIBS__DETAIL_MAX];
        dibs__renewals_mutex_lock(&r->mutex);
        snprintf(why, sizeof why, "%s", failure_text(r, notice->failure));
        dibs__renewals_mutex_unlock(&r->mutex);
        if (notice->kind == LOST)
            r->config.lost(r->config.context, notice->lease, false, why);
        else if (notice->kind == AT_RISK)
            dibs__events_emit(r->config.events, DIBS_EVENT_AT_RISK, notice->lease->name,
                              dibs__lease_fence(notice->lease), "half of the lease has gone without a renewal%s%s",
                              *why ? ": " : "", why);
        else
            r->config.look_kept(r->config.context, notice->lease);
        dibs__lease_unref(notice->lease);
    }
    if (round->sent)
        r->config.store->ops->renew(r->config.store, &round->sent->batch);
    if (round->watch)
        r->config.store->ops->renew(r->config.store, &round->watch->batch);
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
    uint8_t failure; /* the number of the error; 0: there is none */
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
        take_out(r, lease);
        dibs__lease_unref(lease); /* the item has one more */
        return true;
    }
    if (!dibs__lease_is_lost(lease, landing->now)) { /* else the answer is late, and the next round tells of the loss */
        if (item->result == DIBS__RENEWED)
            DIBS__PROBE(renew, lease->name, item->lease_ms);
        if (!item->extension && !item->look)
            *(item->result == DIBS__RENEWED ? &landing->renewed : &landing->failed) += 1;
        if (!item->look)
            lease->renewal_state.failure = landing->failure;
        if (dibs__renewal_state_take_result(lease, item, landing->batch->proof, landing->error->status, landing->now))
            pthread_cond_broadcast(&r->changed);
    }
    schedule(r, lease, landing->beside, dibs__due_at(landing->beside));
    landing->beside = lease;
    return false;
}

/* Items whose lease is gone, or wanted by others, keep their context and its reference. */
static void land(struct dibs__renewals *r, struct dibs__batch *batch, const struct dibs__error *error)
{
    struct landing landing = {.batch = batch, .error = error, .now = dibs__now(r->config.clock)};

    dibs__renewals_mutex_lock(&r->mutex);
    if (error->status != DIBS_OK)
        landing.failure = note_failure(r, error->detail);
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

/* ---------------------------------------------------------------- lifecycle */

struct dibs__renewals *dibs__renewals_new(const struct dibs__renewal_config *config)
{
    struct dibs__renewals *r = calloc(1, sizeof *r);

    if (!r)
        return NULL;
    r->config = *config;
    if (dibs__mutex_and_cond_init(&r->mutex, &r->changed))
        return r;
    free(r);
    return NULL;
}

void dibs__renewals_free(struct dibs__renewals *r)
{
    if (!r)
        return;
    dibs__renewals_mutex_lock(&r->mutex);
    for (unsigned i = 1; i <= FAILURES; i++)
        free(r->failures[i]);
    dibs__renewals_mutex_unlock(&r->mutex);
    pthread_cond_destroy(&r->changed);
    dibs__mutex_destroy(&r->mutex);
    free(r);
}
