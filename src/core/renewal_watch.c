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

int64_t dibs__renewals_first_watch(const struct dibs__renewals *r, int64_t granted_at)
{
    if (r->watching == DIBS__WATCHING_OFF || !r->store->watches)
        return DIBS__NEVER;
    return ((granted_at + WATCH_AGE) / WATCH_GRID + 1) * WATCH_GRID;
}

/* Takes what the store said of a lock that it was asked to watch. */
static void take_watch(struct dibs__renewals *r, const struct dibs__renewal *item, int64_t now)
    DIBS__REQUIRES(dibs__renewals_mutex)
{
    struct dibs__lease *lease = item->context;

    if (!dibs__due_has(lease) || item->result == DIBS__WATCHED)
        return;
    if (item->result == DIBS__GONE)
        dibs__renewal_state_hint(lease, now);
    else if (r->watching == DIBS__WATCHING_ON)
        lease->renewal_state.watch_at = dibs__after_ms(now, DIBS__WATCH_AGAIN_MS);
    dibs__renewals_reschedule(r, lease, NULL);
}

void dibs__renewals_watch_done(struct dibs__batch *batch, const struct dibs__error *error)
{
    struct dibs__renewals *r = batch->context;
    int64_t now = dibs__now(r->config.clock);

    (void)error;
    dibs__renewals_mutex_lock(&r->mutex);
    for (size_t i = 0; i < batch->count; i++)
        take_watch(r, &batch->items[i], now);
    dibs__renewals_mutex_unlock(&r->mutex);
    for (size_t i = 0; i < batch->count; i++)
        dibs__lease_unref(batch->items[i].context);
    free(batch);
}

static void watch_soon(struct dibs__renewals *r, struct dibs__lease *lease, int64_t now)
    DIBS__REQUIRES(dibs__renewals_mutex)
{
    int64_t first = dibs__renewals_first_watch(r, lease->granted_at);

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
    dibs__renewals_each(r, on ? watch_soon : watch_no_more);
    dibs__renewals_mutex_unlock(&r->mutex);
}

void dibs__renewals_hint(struct dibs__renewals *r, struct dibs__lease *lease)
{
    dibs__renewals_mutex_lock(&r->mutex);
    if (!lease) {
        dibs__renewals_each(r, hint);
    } else if (dibs__due_has(lease)) {
        hint(r, lease, dibs__now(r->config.clock));
        dibs__renewals_reschedule(r, lease, NULL);
    }
    dibs__renewals_mutex_unlock(&r->mutex);
}
