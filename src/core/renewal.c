#include <stdlib.h>

#include "core/renewal_parts.h"

#define WATCH_AGE (20 * DIBS__NS_PER_MS)  /* a lease is at least this old when its lock is watched, */
#define WATCH_GRID (10 * DIBS__NS_PER_MS) /* at the next multiple of this time, so that many go together */
#define PACE DIBS__NS_PER_MS              /* leases with a change to look at are due at multiples of this time, */
#define PACE_MOST 96                      /* at most this many at each, */
#define PACE_LATER 2                      /* and at least this many such times after the change */

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

void dibs__renewals_unpace(struct dibs__renewals *r, struct dibs__lease *lease)
{
    DIBS__REQUIRE(!lease->renewal_state.paced || r->paced > 0);
    if (lease->renewal_state.paced)
        r->paced--;
    lease->renewal_state.paced = false;
}

/* When the store should begin to watch the lock of a lease that was granted at that time; DIBS__NEVER: never. */
static int64_t first_watch(const struct dibs__renewals *r, int64_t granted_at) DIBS__REQUIRES(dibs__renewals_mutex)
{
    if (r->watching == DIBS__WATCHING_OFF || !r->store->watches)
        return DIBS__NEVER;
    return ((granted_at + WATCH_AGE) / WATCH_GRID + 1) * WATCH_GRID;
}

void dibs__renewals_take_out(struct dibs__renewals *r, struct dibs__lease *lease)
{
    dibs__renewals_mutex_held(&r->mutex);
    dibs__due_remove(&r->due, lease);
    dibs__renewals_unpace(r, lease);
    struct dibs__extending *extending = lease->renewal_state.extending;
    bool awaited = extending && dibs__extension_lose(&extending->extension);
    if (awaited || lease->renewal_state.unconfirmed)
        pthread_cond_broadcast(&r->changed);
    dibs__count_more(&r->config.stats->reentered, atomic_load_explicit(&lease->reentered, memory_order_relaxed));
    dibs__count_more(&r->config.stats->retaken, atomic_load_explicit(&lease->keeping.retaken, memory_order_relaxed));
}

void dibs__renewals_reschedule(struct dibs__renewals *r, struct dibs__lease *lease, struct dibs__lease *beside)
{
    dibs__renewals_mutex_held(&r->mutex);
    int64_t due = dibs__renewal_state_plan(lease, dibs__due_at(beside));

    dibs__due_move(&r->due, lease, due, beside);
    dibs__scheduler_wake_by(r->config.scheduler, due);
}

/* Keeps the lease alive from now on. other: when another lease is due (dibs__renewal_state_plan). */
static void schedule(struct dibs__renewals *r, struct dibs__lease *lease, struct dibs__lease *beside, int64_t other)
    DIBS__REQUIRES(dibs__renewals_mutex)
{
    int64_t due = dibs__renewal_state_plan(lease, other);

    dibs__due_add(&r->due, lease, due, beside);
    dibs__scheduler_wake_by(r->config.scheduler, due);
}

/* Calls fn for each lease that is kept alive; fn may change when the lease is due. */
static void each(struct dibs__renewals *r, void (*fn)(struct dibs__renewals *r, struct dibs__lease *lease, int64_t now))
    DIBS__REQUIRES(dibs__renewals_mutex)
{
    int64_t now = dibs__now(r->config.clock);
    struct dibs__lease *lease, *beside = NULL;

    dibs__renewals_mutex_held(&r->mutex);
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
    if (r->store->ops->is_unconfirmed(r->store, &lease->renewal_state.store_state))
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
        dibs__renewals_take_out(r, lease);
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
        dibs__renewals_take_out(r, lease);
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
    dibs__renewals_mutex_lock(&r->mutex);
    if (dibs__due_has(lease)) {
        if (!lease->renewal_state.extending)
            lease->renewal_state.extending = calloc(1, sizeof *lease->renewal_state.extending);
        dibs__renewal_state_use_changed(lease, r->config.kept_ms);
        dibs__renewals_reschedule(r, lease, NULL);
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
    dibs__renewals_reschedule(r, lease, NULL);
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
    if (status != DIBS_OK && status != DIBS_LOST)
        dibs__error_set(error, status, "%s",
                        status == DIBS_NO_MEMORY && !lease->renewal_state.extending ? "no memory for an extension"
                        : lease->renewal_state.failed                               ? r->last_failure.detail
                                                      : "the store did not answer in time");
    dibs__renewals_mutex_unlock(&r->mutex);
    return status;
}

void dibs__renewals_count(struct dibs__renewals *r, struct dibs__renewals_counts *out)
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
    else if (r->watching == DIBS__WATCHING_ON || no_memory)
        lease->renewal_state.watch_at = dibs__after_ms(now, DIBS__WATCH_AGAIN_MS);
    dibs__renewals_reschedule(r, lease, NULL);
}

void dibs__renewals_watch_done(struct dibs__batch *batch, const struct dibs__error *error)
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
    dibs__renewals_unpace(r, lease);
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
    r->watching = on ? DIBS__WATCHING_ON : DIBS__WATCHING_OFF;
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
        dibs__renewals_reschedule(r, lease, NULL);
    }
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

void dibs__renewals_free(struct dibs__renewals *r)
{
    if (!r)
        return;
    pthread_cond_destroy(&r->changed);
    dibs__mutex_destroy(&r->mutex);
    free(r);
}
