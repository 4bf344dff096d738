/*
 * Lock discipline: that of cells.h. The word of a waiter is changed under the mutex. A waiter that is COMPLETE leaves
 * without the mutex, so no field of it is touched afterwards: its thread is woken by the address of the word alone,
 * once the mutex is free (dibs__waiters_unlock).
 */
#include "core/waiters.h"

#include <stdlib.h>

void dibs__waiters_remove(struct dibs__waiter *waiter)
{
    struct dibs__cell *cell = waiter->cell;

    DIBS__REQUIRE(waiter->links.previous);
    DIBS__LIST_REMOVE(*(waiter->one_try ? &cell->tries : &cell->waiters), waiter, links);
}

/*
 * Whether the thread sleeps and must be woken, by the address of its word; the waiter may already be gone. A begun
 * acquire is told here. It looks at the cell only under the mutex, so it can't be gone before the mutex is unlocked.
 */
static bool set_state(struct dibs__waiter *waiter, unsigned state) DIBS__REQUIRES(dibs__shard_mutex)
{
    DIBS__REQUIRE(!dibs__waiter_is_complete(waiter));
    if (!waiter->told)
        return atomic_exchange(&waiter->state, state) == DIBS__WAITER_ASLEEP;
    atomic_store(&waiter->state, state);
    dibs__wait_event_wake(waiter->told);
    return false;
}

static void wake_when_unlocked(struct dibs__shard *shard, const atomic_uint *word) DIBS__REQUIRES(dibs__shard_mutex)
{
    if (shard->to_wake)
        dibs__futex_wake(shard->to_wake);
    shard->to_wake = word;
}

void dibs__waiters_unlock(struct dibs__shard *shard)
{
    const atomic_uint *word = shard->to_wake;

    shard->to_wake = NULL;
    dibs__shard_mutex_unlock(&shard->mutex);
    if (word)
        dibs__futex_wake(word);
}

void dibs__waiters_wake(struct dibs__shard *shard, struct dibs__waiter *waiter)
{
    dibs__shard_mutex_held(&shard->mutex);
    if (set_state(waiter, DIBS__WAITER_WOKEN))
        wake_when_unlocked(shard, &waiter->state);
}

void dibs__waiters_complete(struct dibs__cell *cell, struct dibs__waiter *waiter)
{
    dibs__shard_mutex_held(&cell->shard->mutex);
    dibs__waiters_remove(waiter);
    dibs__outage_set(&waiter->outage, cell->outage);
    waiter->outage_since = cell->outage_since;
    if (set_state(waiter, DIBS__WAITER_COMPLETE))
        wake_when_unlocked(cell->shard, &waiter->state);
}

void dibs__waiters_fail(struct dibs__waiter *waiter, struct dibs__outage *outage)
{
    dibs__waiters_remove(waiter);
    dibs__outage_set(&waiter->outage, outage);
    waiter->answer = outage ? outage->error.status : DIBS_BUSY;
    if (set_state(waiter, DIBS__WAITER_COMPLETE))
        dibs__futex_wake(&waiter->state);
}

void dibs__waiters_fail_tries(struct dibs__cell *cell, struct dibs__outage *outage)
{
    dibs__shard_mutex_held(&cell->shard->mutex);
    while (cell->tries)
        dibs__waiters_fail(cell->tries, outage);
}

void dibs__waiters_note_outage(struct dibs__cell *cell, struct dibs__outage *outage, int64_t now)
{
    dibs__shard_mutex_held(&cell->shard->mutex);
    if (!cell->outage)
        cell->outage_since = now;
    dibs__outage_set(&cell->outage, outage);
}

bool dibs__waiters_fit(const struct dibs__lease *lease, const struct dibs__waiter *waiter)
{
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): a cell that is PARKED has a lease */
    return lease->asked_ms == waiter->wish.lease_ms && lease->fixed == !!(waiter->wish.flags & DIBS_FIXED_LEASE);
}

bool dibs__waiter_is_handed(const struct dibs__waiter *waiter)
{
    return waiter->lease && !waiter->lease->asker;
}

void dibs__waiters_take_over(struct dibs__cell *cell, struct dibs__waiter *waiter)
{
    dibs__shard_mutex_held(&cell->shard->mutex);
    DIBS__REQUIRE(dibs__cell_is_held(cell) && !cell->lease->turnless && dibs__waiters_fit(cell->lease, waiter));
    cell->state = DIBS__CELL_HELD;
    atomic_fetch_add_explicit(&cell->lease->step, 1, memory_order_relaxed);
    dibs__lease_ref(cell->lease);
    waiter->lease = cell->lease;
}

void dibs__waiters_mark_free(struct dibs__cell *cell)
{
    dibs__shard_mutex_held(&cell->shard->mutex);
    DIBS__REQUIRE(dibs__cell_is_held(cell));
    cell->state = DIBS__CELL_FREE;
    cell->lease = NULL;
}

void dibs__waiters_pass_on(struct dibs__cell *cell)
{
    struct dibs__waiter *next = cell->waiters ? cell->waiters : cell->tries;

    dibs__shard_mutex_held(&cell->shard->mutex);
    DIBS__REQUIRE(!dibs__cell_is_held(cell) && !cell->lease);
    cell->state = next ? DIBS__CELL_ASKED : DIBS__CELL_FREE;
    if (next) {
        dibs__waiters_complete(cell, next);
        return;
    }
    cell->said_taken = false;
    dibs__waiters_note_outage(cell, NULL, 0);
    dibs__cell_drop_if_unused(cell);
}

bool dibs__waiters_pass_on_with(struct dibs__cell *cell, struct dibs__lease *lease)
{
    struct dibs__waiter *first = cell->waiters;

    dibs__shard_mutex_held(&cell->shard->mutex);
    DIBS__REQUIRE(!dibs__cell_is_held(cell) && lease->asker);
    if (!first || !dibs__waiters_fit(lease, first))
        return false;
    dibs__lease_ref(lease);
    first->lease = lease;
    cell->state = DIBS__CELL_ASKED;
    dibs__waiters_complete(cell, first);
    return true;
}
