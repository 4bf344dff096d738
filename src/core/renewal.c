/*
 * Lock discipline: `mutex` (of the class dibs__renewals_mutex) guards the heap,
 * the ring of leases that are lost but held, and `upkeep` of each lease. It is a leaf but for the atomics
 * of the scheduler: no callback is called while it is held, and nothing of the
 * store but is_unproven.
 *
 * A thread that extends a lease sleeps on `changed` until
 *     the extension does not pend any more, or its deadline;
 * a thread that is about to release a lease, until
 *     the lease is not unproven, or not kept alive any more, or its deadline.
 */
#include "core/renewal.h"

#include <stdlib.h>
#include <string.h>

#include "core/heap.h"
#include "core/upkeep.h"

struct dibs__renewals {
    struct dibs__renewal_config config; /* read-only */
    struct dibs__store *store;          /* read-only after the scheduler was started */
    struct dibs__mutex mutex;
    struct dibs__heap heap DIBS__GUARDED_BY(dibs__renewals_mutex);          /* of the leases that are kept alive */
    struct dibs__lease *ended DIBS__GUARDED_BY(dibs__renewals_mutex);       /* a ring of the others that threads hold;
                                                                               NULL: there are none */
    struct dibs__error last_failure DIBS__GUARDED_BY(dibs__renewals_mutex); /* of a renewal */
    pthread_cond_t changed;                                                 /* waited on with mutex */
};

static void enter_ended(struct dibs__renewals *r, struct dibs__lease *lease) DIBS__REQUIRES(dibs__renewals_mutex)
{
    struct dibs__lease *first = r->ended ? r->ended : lease;

    lease->upkeep.next = lease->upkeep.previous = lease;
    if (r->ended) {
        lease->upkeep.next = first;
        lease->upkeep.previous = first->upkeep.previous;
        first->upkeep.previous->upkeep.next = lease;
        first->upkeep.previous = lease;
    }
    r->ended = first;
}

static void leave_ended(struct dibs__renewals *r, struct dibs__lease *lease) DIBS__REQUIRES(dibs__renewals_mutex)
{
    struct dibs__lease *next = lease->upkeep.next, *previous = lease->upkeep.previous;

    next->upkeep.previous = previous;
    previous->upkeep.next = next;
    if (r->ended == lease)
        r->ended = next != lease ? next : NULL;
}

/* The lease is not kept alive any more. A thread that extends it learns that it is lost. */
static void unschedule(struct dibs__renewals *r, struct dibs__lease *lease) DIBS__REQUIRES(dibs__renewals_mutex)
{
    dibs__heap_remove(&r->heap, lease);
    struct dibs__extending *extending = lease->upkeep.extending;
    bool awaited = extending && dibs__extension_lose(&extending->extension);
    if (awaited || lease->upkeep.unproven)
        pthread_cond_broadcast(&r->changed);
}

/* When the lease is due may have changed. beside: the lease before it in its batch, or NULL. */
static void reschedule(struct dibs__renewals *r, struct dibs__lease *lease, struct dibs__lease *beside)
    DIBS__REQUIRES(dibs__renewals_mutex)
{
    int64_t due = dibs__upkeep_plan(lease, dibs__heap_due(beside));

    dibs__heap_move(&r->heap, lease, due, beside);
    dibs__scheduler_wake_by(r->config.scheduler, due);
}

/* ------------------------------------------------------- rounds of what is due */

/* A lease of which something is to be told, with a reference. */
struct told {
    struct dibs__lease *lease;
    bool failed; /* its renewals failed since it was confirmed last: the reason to be told */
};

/* A batch with the texts of its tokens, one behind the other. */
struct sent {
    struct dibs__batch batch; /* the first member: what is done is freed by it */
    char *end;                /* of the texts */
    char tokens[];
};

/* What one round found to do once the mutex is unlocked. */
struct round {
    struct told lost[DIBS__BATCH_MAX], at_risk[DIBS__BATCH_MAX];
    size_t lost_count, risk_count;
    struct sent *sent;          /* NULL: nothing is to be sent */
    char why[DIBS__DETAIL_MAX]; /* why renewals failed */
    bool more;
};

static void batch_done(struct dibs__batch *batch, const struct dibs__error *error);

/* NULL: no memory. */
static struct sent *new_sent(struct dibs__renewals *r)
{
    struct sent *sent = malloc(sizeof *sent + DIBS__BATCH_MAX * r->config.tokens->most);

    if (!sent)
        return NULL;
    sent->batch.count = 0;
    sent->batch.done = batch_done;
    sent->batch.context = r;
    sent->end = sent->tokens;
    return sent;
}

/* Adds the lease to the round's batch. False: no memory for a batch. */
static bool add_to_batch(struct dibs__renewals *r, struct round *round, struct dibs__lease *lease, int64_t now)
    DIBS__REQUIRES(dibs__renewals_mutex)
{
    if (!round->sent)
        round->sent = new_sent(r);
    if (!round->sent)
        return false;
    struct dibs__batch *batch = &round->sent->batch;
    DIBS__REQUIRE(batch->count < DIBS__BATCH_MAX);
    const char *token = round->sent->end;
    round->sent->end = dibs__token_write(r->config.tokens, &lease->token, round->sent->end) + 1;
    dibs__upkeep_send(lease, token, &batch->items[batch->count++], now);
    dibs__lease_ref(lease);
    return true;
}

static struct told to_tell(struct dibs__lease *lease) DIBS__REQUIRES(dibs__renewals_mutex)
{
    dibs__lease_ref(lease);
    return (struct told){lease, lease->upkeep.failed};
}

/* The lease before this one in the round's batch; NULL: there is none. */
static struct dibs__lease *last_of(const struct round *round)
{
    return round->sent ? round->sent->batch.items[round->sent->batch.count - 1].context : NULL;
}

/* Whether the lease is to be looked at. What is due a little later goes along with what is sent. */
static bool is_due(const struct dibs__renewals *r, const struct round *round, const struct dibs__lease *lease,
                   int64_t now) DIBS__REQUIRES(dibs__renewals_mutex)
{
    return lease->upkeep.due <= now || (round->sent && dibs__upkeep_is_due(lease, now, r->config.renew_ms));
}

/* The lease is due: sorts it into the round. */
static void look_at(struct dibs__renewals *r, struct round *round, struct dibs__lease *lease, int64_t now)
    DIBS__REQUIRES(dibs__renewals_mutex)
{
    struct dibs__lease *beside = last_of(round);

    if (dibs__lease_is_lost(lease, now)) {
        unschedule(r, lease);
        enter_ended(r, lease);
        round->lost[round->lost_count++] = to_tell(lease);
        return;
    }
    if (now >= lease->upkeep.risk_at) {
        lease->upkeep.risk_at = DIBS__NEVER;
        round->at_risk[round->risk_count++] = to_tell(lease);
    }
    if (dibs__upkeep_is_due(lease, now, r->config.renew_ms) && !add_to_batch(r, round, lease, now))
        dibs__upkeep_retry(lease, now);
    reschedule(r, lease, beside);
}

/* Takes what is due, at most as much as a round holds. */
static void collect(struct dibs__renewals *r, struct round *round)
{
    int64_t now = dibs__now(r->config.clock);
    struct dibs__lease *lease;

    round->lost_count = round->risk_count = 0;
    round->sent = NULL;
    dibs__renewals_mutex_lock(&r->mutex);
    for (size_t i = 0; i < DIBS__BATCH_MAX; i++) {
        lease = dibs__heap_first(&r->heap);
        if (!lease || !is_due(r, round, lease, now))
            break;
        look_at(r, round, lease, now);
    }
    round->more = dibs__heap_due(dibs__heap_first(&r->heap)) <= now;
    memcpy(round->why, r->last_failure.detail, sizeof round->why);
    dibs__renewals_mutex_unlock(&r->mutex);
}

static void carry_out(struct dibs__renewals *r, struct round *round)
{
    for (size_t i = 0; i < round->risk_count; i++) {
        r->config.at_risk(r->config.context, round->at_risk[i].lease, round->at_risk[i].failed ? round->why : "");
        dibs__lease_unref(round->at_risk[i].lease);
    }
    for (size_t i = 0; i < round->lost_count; i++) {
        r->config.lost(r->config.context, round->lost[i].lease, false, round->lost[i].failed ? round->why : "");
        dibs__lease_unref(round->lost[i].lease);
    }
    if (round->sent)
        r->store->ops->renew(r->store, &round->sent->batch);
}

static size_t interest(void *context, struct pollfd *fds, int64_t *deadline)
{
    struct dibs__renewals *r = context;

    (void)fds;
    dibs__renewals_mutex_lock(&r->mutex);
    *deadline = dibs__heap_due(dibs__heap_first(&r->heap));
    dibs__renewals_mutex_unlock(&r->mutex);
    return 0;
}

static void attend(void *context, const struct pollfd *fds, size_t count)
{
    struct dibs__renewals *r = context;
    struct round round;

    (void)fds, (void)count;
    do {
        collect(r, &round);
        carry_out(r, &round);
    } while (round.more);
}

/* ---------------------------------------------------------- what the store said */

/* What becomes of a batch, lease by lease. */
struct landing {
    const struct dibs__batch *batch;
    const struct dibs__error *error;
    int64_t now;
    struct dibs__lease *beside; /* the lease before, in the heap; NULL: there is none */
    unsigned renewed, failed;
};

/* What the store said of one lease. True: the store said that the lease is gone. */
static bool take_result(struct dibs__renewals *r, struct landing *landing, const struct dibs__renewal *item)
    DIBS__REQUIRES(dibs__renewals_mutex)
{
    struct dibs__lease *lease = item->context;

    if (dibs__upkeep_land(lease, item))
        pthread_cond_broadcast(&r->changed);
    if (!dibs__heap_has(lease))
        return false;
    if (item->result == DIBS__GONE) {
        dibs__lease_lose(lease);
        unschedule(r, lease);
        enter_ended(r, lease);
        return true;
    }
    if (!dibs__lease_is_lost(lease, landing->now)) { /* else it came too late, and the next round tells of the loss */
        if (!item->extension)
            *(item->result == DIBS__RENEWED ? &landing->renewed : &landing->failed) += 1;
        if (dibs__upkeep_take_result(lease, item, landing->batch->proof, landing->error->status, landing->now,
                                     r->config.renew_ms))
            pthread_cond_broadcast(&r->changed);
    }
    reschedule(r, lease, landing->beside);
    landing->beside = lease;
    return false;
}

/* The items whose leases are gone keep their context, with its reference. */
static void land(struct dibs__renewals *r, struct dibs__batch *batch, const struct dibs__error *error)
{
    struct landing landing = {.batch = batch, .error = error, .now = dibs__now(r->config.clock)};

    dibs__renewals_mutex_lock(&r->mutex);
    if (error->status != DIBS_OK)
        r->last_failure = *error;
    for (size_t i = 0; i < batch->count; i++) {
        if (take_result(r, &landing, &batch->items[i]))
            continue;
        dibs__lease_unref(batch->items[i].context);
        batch->items[i].context = NULL;
    }
    atomic_fetch_add_explicit(r->config.renewed, landing.renewed, memory_order_relaxed);
    atomic_fetch_add_explicit(r->config.failed, landing.failed, memory_order_relaxed);
    dibs__renewals_mutex_unlock(&r->mutex);
}

static void batch_done(struct dibs__batch *batch, const struct dibs__error *error)
{
    struct dibs__renewals *r = batch->context;

    land(r, batch, error);
    for (size_t i = 0; i < batch->count; i++) {
        if (!batch->items[i].context)
            continue;
        r->config.lost(r->config.context, batch->items[i].context, true, "its key is no longer in the store");
        dibs__lease_unref(batch->items[i].context);
    }
    free(batch);
}

/* ------------------------------------------------------ for the holding threads */

bool dibs__renewals_reserve(struct dibs__renewals *r)
{
    dibs__renewals_mutex_lock(&r->mutex);
    bool reserved = dibs__heap_reserve(&r->heap);
    dibs__renewals_mutex_unlock(&r->mutex);
    return reserved;
}

void dibs__renewals_unreserve(struct dibs__renewals *r)
{
    dibs__renewals_mutex_lock(&r->mutex);
    dibs__heap_unreserve(&r->heap);
    dibs__renewals_mutex_unlock(&r->mutex);
}

/* Where another server answers now than the one that confirmed the lease, the lease is to be renewed at once. */
static void doubt(const struct dibs__renewals *r, struct dibs__lease *lease) DIBS__REQUIRES(dibs__renewals_mutex)
{
    if (r->store->ops->is_unproven(r->store, &lease->upkeep.memo))
        dibs__upkeep_doubt(lease);
}

void dibs__renewals_add(struct dibs__renewals *r, struct dibs__lease *lease, uint32_t lease_ms, int64_t proof,
                        const struct dibs__lease_memo *memo)
{
    dibs__lease_ref(lease);
    dibs__renewals_mutex_lock(&r->mutex);
    dibs__upkeep_begin(lease, lease_ms, proof, memo, r->config.renew_ms);
    doubt(r, lease);
    DIBS__REQUIRE(!lease->upkeep.listed);
    lease->upkeep.listed = true;
    struct dibs__lease *beside = dibs__heap_last(&r->heap);
    lease->upkeep.due = dibs__upkeep_plan(lease, dibs__heap_due(beside));
    dibs__heap_add(&r->heap, lease, beside);
    dibs__scheduler_wake_by(r->config.scheduler, lease->upkeep.due);
    dibs__renewals_mutex_unlock(&r->mutex);
}

/* True: the renewals' reference is the caller's now. False: the lease was taken out before. */
static bool take_out(struct dibs__renewals *r, struct dibs__lease *lease) DIBS__REQUIRES(dibs__renewals_mutex)
{
    if (!lease->upkeep.listed)
        return false;
    lease->upkeep.listed = false;
    if (dibs__heap_has(lease))
        unschedule(r, lease);
    else
        leave_ended(r, lease);
    atomic_fetch_add_explicit(r->config.reentered, atomic_load_explicit(&lease->reentered, memory_order_relaxed),
                              memory_order_relaxed);
    return true;
}

bool dibs__renewals_remove(struct dibs__renewals *r, struct dibs__lease *lease)
{
    dibs__renewals_mutex_lock(&r->mutex);
    bool taken = take_out(r, lease), settled = !lease->upkeep.unproven && !lease->upkeep.may_come_back;
    dibs__renewals_mutex_unlock(&r->mutex);
    if (taken)
        dibs__lease_unref(lease);
    return settled;
}

struct dibs__lease *dibs__renewals_take_any(struct dibs__renewals *r)
{
    dibs__renewals_mutex_lock(&r->mutex);
    struct dibs__lease *lease = r->ended ? r->ended : dibs__heap_first(&r->heap);
    if (lease)
        take_out(r, lease);
    dibs__renewals_mutex_unlock(&r->mutex);
    return lease;
}

void dibs__renewals_settle(struct dibs__renewals *r, struct dibs__lease *lease, int64_t deadline)
{
    dibs__renewals_mutex_lock(&r->mutex);
    while (lease->upkeep.unproven && dibs__heap_has(lease) && dibs__now(r->config.clock) < deadline)
        r->config.clock->wait(r->config.clock, &r->changed, &r->mutex, deadline);
    dibs__renewals_mutex_unlock(&r->mutex);
}

void dibs__renewals_server_changed(struct dibs__renewals *r)
{
    struct dibs__lease *lease, *beside = NULL;

    dibs__renewals_mutex_lock(&r->mutex);
    for (struct dibs__lease *next = dibs__heap_take_all(&r->heap); (lease = next); beside = lease) {
        next = lease->upkeep.next;
        doubt(r, lease);
        lease->upkeep.due = dibs__upkeep_plan(lease, dibs__heap_due(beside));
        dibs__heap_add(&r->heap, lease, beside);
        dibs__scheduler_wake_by(r->config.scheduler, lease->upkeep.due);
    }
    dibs__renewals_mutex_unlock(&r->mutex);
}

/* Unlocks the mutex while the thread sleeps. False: the deadline came first. */
static bool wait_for_extension(struct dibs__renewals *r, struct dibs__lease *lease, int64_t deadline)
    DIBS__REQUIRES(dibs__renewals_mutex)
{
    while (lease->upkeep.extending && dibs__extension_pends(&lease->upkeep.extending->extension)) {
        if (dibs__now(r->config.clock) >= deadline)
            return false;
        r->config.clock->wait(r->config.clock, &r->changed, &r->mutex, deadline);
    }
    return true;
}

/*
 * The scheduler's thread sends the extension, behind a renewal that is in
 * flight: over another connection that renewal could arrive after the extension
 * and undo it.
 */
static dibs_status extend(struct dibs__renewals *r, struct dibs__lease *lease, uint32_t lease_ms, int64_t deadline)
    DIBS__REQUIRES(dibs__renewals_mutex)
{
    if (!wait_for_extension(r, lease, deadline)) /* for an earlier one that its call did not wait for */
        return DIBS_UNAVAILABLE;
    if (!dibs__heap_has(lease))
        return DIBS_LOST;
    if (!lease->upkeep.extending)
        lease->upkeep.extending = calloc(1, sizeof *lease->upkeep.extending);
    if (!lease->upkeep.extending)
        return DIBS_NO_MEMORY;
    dibs__extension_ask(&lease->upkeep.extending->extension, lease_ms);
    if (lease_ms > atomic_load_explicit(&lease->extended_ms, memory_order_relaxed))
        atomic_store_explicit(&lease->extended_ms, lease_ms, memory_order_relaxed);
    lease->upkeep.renew_at = 0;
    reschedule(r, lease, NULL);
    if (wait_for_extension(r, lease, deadline))
        return lease->upkeep.extending->extension.status;
    dibs__upkeep_leave_extension(lease);
    return DIBS_UNAVAILABLE;
}

dibs_status dibs__renewals_extend(struct dibs__renewals *r, struct dibs__lease *lease, uint32_t lease_ms,
                                  int64_t deadline, struct dibs__error *error)
{
    dibs__renewals_mutex_lock(&r->mutex);
    dibs_status status = extend(r, lease, lease_ms, deadline);
    if (status != DIBS_OK && status != DIBS_LOST)
        dibs__error_set(error, status, "%s",
                        status == DIBS_NO_MEMORY && !lease->upkeep.extending ? "no memory for an extension"
                        : lease->upkeep.failed                               ? r->last_failure.detail
                                                                             : "the store did not answer in time");
    dibs__renewals_mutex_unlock(&r->mutex);
    return status;
}

static uint64_t reentered_in(const struct dibs__lease *ring) DIBS__REQUIRES(dibs__renewals_mutex)
{
    const struct dibs__lease *lease = ring;
    uint64_t sum = 0;

    do
        sum += atomic_load_explicit(&lease->reentered, memory_order_relaxed);
    while ((lease = lease->upkeep.next) != ring);
    return sum;
}

void dibs__renewals_count(struct dibs__renewals *r, uint64_t *leases, uint64_t *reentered)
{
    dibs__renewals_mutex_lock(&r->mutex);
    *leases = r->heap.count;
    *reentered = atomic_load_explicit(r->config.reentered, memory_order_relaxed);
    for (size_t i = 0; i < r->heap.groups; i++)
        *reentered += reentered_in(r->heap.leaders[i]);
    if (r->ended)
        *reentered += reentered_in(r->ended);
    dibs__renewals_mutex_unlock(&r->mutex);
}

/* ---------------------------------------------------------------- lifecycle */

struct dibs__renewals *dibs__renewals_new(const struct dibs__renewal_config *config)
{
    struct dibs__renewals *r = calloc(1, sizeof *r);

    if (!r)
        return NULL;
    r->config = *config;
    if (dibs__cond_init(&r->changed) != 0)
        goto no_cond;
    if (dibs__mutex_init(&r->mutex) != 0)
        goto no_mutex;
    return r;
no_mutex:
    pthread_cond_destroy(&r->changed);
no_cond:
    free(r);
    return NULL;
}

void dibs__renewals_set_store(struct dibs__renewals *r, struct dibs__store *store)
{
    DIBS__REQUIRE(!r->store && store);
    r->store = store;
}

struct dibs__polled dibs__renewals_polled(struct dibs__renewals *r)
{
    return (struct dibs__polled){.context = r, .interest = interest, .attend = attend};
}

void dibs__renewals_free(struct dibs__renewals *r)
{
    if (!r)
        return;
    dibs__renewals_mutex_lock(&r->mutex);
    dibs__heap_free(&r->heap);
    dibs__renewals_mutex_unlock(&r->mutex);
    pthread_cond_destroy(&r->changed);
    dibs__mutex_destroy(&r->mutex);
    free(r);
}
