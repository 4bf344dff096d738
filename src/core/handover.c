/*
 * Lock discipline: that of cells.h. No thread waits here. hand_over() wakes the first waiter.
 */
#include "core/handover.h"

#include "core/asker.h"
#include "core/kept.h"
#include "core/waiters.h"

#define LONG_WAIT (1 * DIBS__NS_PER_MS) /* after this wait a thread gets the lease before any running thread */

/* Whether the lease may go on to another thread of the process now. */
static bool may_be_handed(const struct dibs__cells *cells, const struct dibs__lease *lease, int64_t now)
{
    int64_t half = lease->asked_ms * DIBS__NS_PER_MS / 2;

    return !lease->fixed && now - lease->granted_at < cells->handoff && dibs__lease_has_step(lease) &&
           atomic_load_explicit(&lease->extended_ms, memory_order_relaxed) == 0 &&
           atomic_load_explicit(&lease->deadline, memory_order_relaxed) - now >= half;
}

/*
 * Gives the lease to the first waiter if that has waited for long; otherwise the first thread that comes may take it.
 */
static void hand_over(struct dibs__cell *cell, int64_t now) DIBS__REQUIRES(dibs__shard_mutex)
{
    struct dibs__waiter *first = cell->waiters;

    DIBS__REQUIRE(first && cell->state == DIBS__CELL_HELD);
    atomic_store_explicit(&cell->lease->unclaimed, true, memory_order_relaxed);
    if (first->tell || now - first->since > LONG_WAIT) { /* a begun acquire needs no thread to wake for it */
        dibs__waiters_take_over(cell, first);
        dibs__waiters_complete(cell, first);
    } else {
        cell->state = DIBS__CELL_PARKED;
        dibs__waiters_wake(cell->shard, first);
    }
}

enum dibs__parting dibs__handover_part(struct dibs__cells *cells, struct dibs__lease *lease, unsigned recallable,
                                       int64_t now, struct dibs__wanted *next)
{
    enum dibs__parting parting = DIBS__PART_RELEASE;
    struct dibs__shard *shard;
    struct dibs__cell *cell = dibs__cells_lock(cells, lease->name, lease->name_size, &shard);

    DIBS__REQUIRE(!lease->asker);
    bool held = cell && cell->state == DIBS__CELL_HELD && cell->lease == lease;
    if (held && cell->waiters) {
        const struct dibs__waiter *first = cell->waiters;
        *next = (struct dibs__wanted){.lease_ms = first->lease_ms, .fixed = first->fixed};
        parting = DIBS__PART_REQUEUE;
        if (may_be_handed(cells, lease, now) && dibs__waiters_fit(lease, first)) {
            hand_over(cell, now);
            parting = DIBS__PART_HANDED;
        }
    } else if (held && cells->keep > 0 && dibs__kept_keep(cells, cell, recallable, now, &next->tells)) {
        parting = DIBS__PART_KEPT;
    }
    dibs__waiters_unlock(shard);
    return parting;
}

/* The cell held a lease that is gone. True: the first waiter goes on with the attempt of `next`. */
static bool pass_on_after(struct dibs__cell *cell, struct dibs__lease *next) DIBS__REQUIRES(dibs__shard_mutex)
{
    bool answered = next && next->asker->answered;

    dibs__waiters_mark_free(cell);
    cell->said_taken = answered && next->asker->status == DIBS_BUSY;
    return answered && dibs__waiters_pass_on_with(cell, next);
}

bool dibs__handover_end(struct dibs__cells *cells, struct dibs__lease *lease, struct dibs__lease *next)
{
    struct dibs__shard *shard;
    struct dibs__cell *cell = dibs__cells_lock(cells, lease->name, lease->name_size, &shard);
    bool passed = false;

    DIBS__REQUIRE(lease != next && (!next || next->asker));
    if (cell) {
        bool was_held = dibs__cell_is_held(cell) && cell->lease == lease;
        dibs__cell_unlist(cell, lease);
        passed = was_held && pass_on_after(cell, next);
        if (next && !passed)
            dibs__cell_unlist(cell, next);
        if (was_held && !passed)
            dibs__waiters_pass_on(cell);
        else
            dibs__cell_drop_if_unused(cell);
    }
    dibs__waiters_unlock(shard);
    return passed;
}
