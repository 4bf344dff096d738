/*
 * Lock discipline: that of cells.h. A waiter sleeps on its own word until
 *     it is COMPLETE: it has what waiter->lease says, or its `answer`; or
 *     the cell is PARKED, the waiter is the first, and the lease fits, or
 *     the runtime is closing, or its deadline passes.
 * waiters.c says how a waiter is woken.
 *
 * Something is known of a name if the name is held here, is `said_taken`, or has an `outage`. While nothing is known of
 * a name, threads with one try wait in `tries`: another thread has the turn, and what the store tells that thread
 * answers all of them at once. One of them gets the turn only if that thread leaves without having been told anything,
 * and no thread is among the `waiters`.
 */
#include "core/turn.h"

#include <stdlib.h>

#include "core/asker.h"
#include "core/kept.h"

#define LONG_WAIT (1 * DIBS__NS_PER_MS) /* after this wait a thread gets the lease before any running thread */

/* ------------------------------------------------------------------- waiting */

/*
 * Takes the turn or a lease if the caller need not wait for it: the name is free, its lease is lost, or its lease is
 * kept or parked and fits. False: the caller must wait.
 */
static bool take_at_once(struct dibs__cells *cells, struct dibs__cell *cell, struct dibs__waiter *waiter)
    DIBS__REQUIRES(dibs__shard_mutex)
{
    if (cell->state == DIBS__CELL_KEPT && dibs__kept_take(cells, cell, waiter))
        return true;
    if (dibs__cell_is_held(cell) && dibs__lease_is_lost(cell->lease, dibs__now(cells->clock))) {
        dibs__waiters_mark_free(cell);
        if (cell->waiters)
            dibs__waiters_pass_on(cell);
    }
    if (cell->state == DIBS__CELL_PARKED && dibs__waiters_fit(cell->lease, waiter)) {
        dibs__waiters_take_over(cell, waiter);
        return true;
    }
    if (cell->state != DIBS__CELL_FREE)
        return false;
    cell->state = DIBS__CELL_ASKED;
    waiter->keeps = cells->keep > 0 && !(waiter->wish.flags & DIBS_FIXED_LEASE) && dibs__kept_is_habit(cells, cell);
    return true;
}

static bool is_first_at_parked(const struct dibs__cell *cell, const struct dibs__waiter *waiter)
    DIBS__REQUIRES(dibs__shard_mutex)
{
    return cell->state == DIBS__CELL_PARKED && cell->waiters == waiter && dibs__waiters_fit(cell->lease, waiter);
}

static bool is_over(const struct dibs__cells *cells, const struct dibs__cell *cell, const struct dibs__waiter *waiter)
    DIBS__REQUIRES(dibs__shard_mutex)
{
    return dibs__waiter_is_complete(waiter) || is_first_at_parked(cell, waiter) || atomic_load(cells->closing) ||
           dibs__now(cells->clock) >= waiter->deadline;
}

static bool is_known(const struct dibs__cell *cell) DIBS__REQUIRES(dibs__shard_mutex)
{
    return dibs__cell_is_held(cell) || cell->said_taken || cell->outage;
}

/* The status for a thread that did not get the name. */
static dibs_status what_is_known(const struct dibs__cell *cell, struct dibs__waiter *waiter)
    DIBS__REQUIRES(dibs__shard_mutex)
{
    if (!is_known(cell))
        return DIBS_TIMEOUT;
    if (!cell->outage)
        return DIBS_BUSY;
    dibs__outage_set(&waiter->outage, cell->outage);
    return waiter->outage->error.status;
}

/* Has the thread with the turn ask again early enough for the thread that begins to wait behind it, too. */
static void ask_sooner(struct dibs__cell *cell, const struct dibs__waiter *waiter, int64_t now)
    DIBS__REQUIRES(dibs__shard_mutex)
{
    int64_t by = dibs__after_ms(now, waiter->wish.lease_ms / 3);

    if (cell->state != DIBS__CELL_ASKED || !cell->lease || by >= cell->lease->asker->ask_by)
        return;
    cell->lease->asker->ask_by = by;
    dibs__wait_event_wake(cell->lease->asker->wait_event);
}

/*
 * The waiter begins to wait for the name, behind others of this process. (For the store's queue see
 * src/redis/scripts/join.lua.)
 */
static void enter(struct dibs__cell *cell, struct dibs__waiter *waiter, int64_t now) DIBS__REQUIRES(dibs__shard_mutex)
{
    atomic_init(&waiter->state, DIBS__WAITER_AWAKE);
    waiter->answer = DIBS_OK;
    waiter->shard = cell->shard;
    waiter->since = now;
    DIBS__LIST_APPEND(*(waiter->one_try ? &cell->tries : &cell->waiters), waiter, links);
    if (!waiter->one_try)
        ask_sooner(cell, waiter, now);
}

/* Ends a wait that is over, or that must end, and returns its status. */
static dibs_status end_wait(const struct dibs__cells *cells, struct dibs__waiter *waiter)
    DIBS__REQUIRES(dibs__shard_mutex)
{
    struct dibs__cell *cell = waiter->cell;

    if (dibs__waiter_is_complete(waiter))
        return waiter->answer;
    /* Even after its deadline the thread takes a parked lease, because no other thread was woken to take it. */
    bool takes_parked = is_first_at_parked(cell, waiter);
    dibs__waiters_remove(waiter);
    if (takes_parked) {
        dibs__waiters_take_over(cell, waiter);
        return DIBS_OK;
    }
    return atomic_load(cells->closing) ? DIBS_CLOSED : what_is_known(cell, waiter);
}

bool dibs__turn_begin(struct dibs__cells *cells, struct dibs__waiter *waiter, dibs_status *status)
{
    struct dibs__shard *shard;
    bool ended = true;

    DIBS__REQUIRE(waiter->name_size > 0);
    waiter->lease = waiter->unfit = NULL;
    dibs__outage_set(&waiter->outage, NULL);
    waiter->keeps = false;
    waiter->retaken_at = 0;
    waiter->cell = dibs__cells_lock_or_add(cells, waiter->name, waiter->name_size, &shard);
    if (!waiter->cell) {
        *status = DIBS_NO_MEMORY;
    } else if (take_at_once(cells, waiter->cell, waiter)) {
        *status = DIBS_OK;
    } else if (waiter->one_try && is_known(waiter->cell)) {
        *status = what_is_known(waiter->cell, waiter);
    } else {
        enter(waiter->cell, waiter, dibs__now(cells->clock));
        ended = is_over(cells, waiter->cell, waiter);
        if (ended)
            *status = end_wait(cells, waiter);
    }
    dibs__waiters_unlock(shard);
    return ended;
}

/* Does not sleep if the waiter was woken since it looked at the cell. */
void dibs__turn_sleep(const struct dibs__cells *cells, struct dibs__waiter *waiter)
{
    unsigned state = DIBS__WAITER_AWAKE;

    if (atomic_compare_exchange_strong(&waiter->state, &state, DIBS__WAITER_ASLEEP))
        cells->clock->sleep(cells->clock, &waiter->state, DIBS__WAITER_ASLEEP, waiter->deadline);
}

bool dibs__turn_goes_on(struct dibs__cells *cells, struct dibs__waiter *waiter, bool leave, dibs_status *status)
{
    struct dibs__shard *shard = waiter->shard;

    if (!waiter->told && dibs__waiter_is_complete(waiter)) { /* so the thread does not run into the mutex */
        *status = waiter->answer;
        return false;
    }
    dibs__shard_mutex_lock(&shard->mutex);
    bool complete = dibs__waiter_is_complete(waiter);
    if (!complete)
        atomic_store(&waiter->state, DIBS__WAITER_AWAKE); /* it need not be woken for what happened before */
    bool goes_on = !leave && !is_over(cells, waiter->cell, waiter);
    if (!goes_on)
        *status = end_wait(cells, waiter);
    if (!goes_on && leave && !complete && *status != DIBS_OK)
        *status = DIBS_CANCELLED;
    dibs__waiters_unlock(shard);
    return goes_on;
}

/* ------------------------------------------------------------ the turn's end */

/* The thread with the turn was granted the lease: it holds the name. */
static void hold(struct dibs__cell *cell, struct dibs__lease *lease) DIBS__REQUIRES(dibs__shard_mutex)
{
    DIBS__REQUIRE(cell->state == DIBS__CELL_ASKED && !cell->lease);
    dibs__waiters_note_outage(cell, NULL, 0);
    cell->said_taken = false;
    dibs__waiters_fail_tries(cell, NULL);
    if (atomic_load(&lease->loss_told)) { /* the lease was lost meanwhile, and dibs__handover_end came first */
        dibs__cell_unlist(cell, lease);
        dibs__waiters_pass_on(cell);
        return;
    }
    cell->state = DIBS__CELL_HELD;
    cell->lease = lease;
}

void dibs__turn_granted(struct dibs__cells *cells, struct dibs__lease *lease)
{
    struct dibs__shard *shard;
    struct dibs__cell *cell = dibs__cells_lock(cells, lease->name, lease->name_size, &shard);
    struct dibs__asker *asker = lease->asker;

    DIBS__REQUIRE(asker && !asker->wait_event);
    if (lease->listing.previous) { /* a lease that was lost meanwhile is not listed */
        DIBS__LIST_REMOVE(cell->asked, lease, listing);
        DIBS__LIST_APPEND(cell->granted, lease, listing);
    }
    lease->asker = NULL;
    if (!lease->turnless)
        hold(cell, lease);
    dibs__waiters_unlock(shard);
    free(asker);
}

/* Waiters that may not ride out the outage any longer leave with the error of the thread that met it. */
static void fail_exhausted(struct dibs__cell *cell, struct dibs__outage *outage, int64_t now)
    DIBS__REQUIRES(dibs__shard_mutex)
{
    for (struct dibs__waiter *at = cell->waiters, *next; at; at = next) {
        next = at->links.next;
        if (now >= at->budget)
            dibs__waiters_fail(at, outage);
    }
}

/* Lets the other threads know what the thread with the turn has found out. */
static void share_findings(struct dibs__cell *cell, const struct dibs__leaving *leaving, int64_t now)
    DIBS__REQUIRES(dibs__shard_mutex)
{
    bool failed = leaving->learned == DIBS__LEARNED_FAILURE || leaving->learned == DIBS__LEARNED_OUTAGE;
    struct dibs__outage *outage = failed ? dibs__outage_new(leaving->error, false) : NULL;

    cell->said_taken = leaving->learned == DIBS__LEARNED_TAKEN;
    if (cell->said_taken || (failed && leaving->error->status != DIBS_UNAVAILABLE)) /* the store has answered */
        dibs__waiters_note_outage(cell, NULL, 0);
    if (leaving->learned == DIBS__LEARNED_OUTAGE)
        fail_exhausted(cell, outage, now);
    if (failed || cell->said_taken)
        dibs__waiters_fail_tries(cell, outage);
    dibs__outage_set(&outage, NULL);
}

bool dibs__turn_give_up(struct dibs__cells *cells, struct dibs__cell *cell, struct dibs__lease *lease,
                        const struct dibs__leaving *leaving)
{
    struct dibs__shard *shard = cell->shard;
    bool had_turn = !lease || !lease->turnless, passed = false;

    dibs__shard_mutex_lock(&shard->mutex);
    DIBS__REQUIRE(!had_turn || (cell->state == DIBS__CELL_ASKED && !cell->lease));
    if (had_turn) {
        share_findings(cell, leaving, dibs__now(cells->clock));
        passed = leaving->pass_on && dibs__waiters_pass_on_with(cell, lease);
    }
    if (lease && !passed)
        dibs__cell_unlist(cell, lease);
    if (!had_turn)
        dibs__cell_drop_if_unused(cell);
    else if (!passed)
        dibs__waiters_pass_on(cell);
    dibs__waiters_unlock(shard);
    return passed;
}

/* ------------------------------------------------------------ the end of a use */

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
    if (first->told || now - first->since > LONG_WAIT) { /* a begun acquire needs no thread to wake for it */
        dibs__waiters_take_over(cell, first);
        dibs__waiters_complete(cell, first);
    } else {
        cell->state = DIBS__CELL_PARKED;
        dibs__waiters_wake(cell->shard, first);
    }
}

enum dibs__parting dibs__handover_part(struct dibs__cells *cells, struct dibs__lease *lease, unsigned recallable,
                                       int64_t now, struct dibs__wish *next)
{
    enum dibs__parting parting = DIBS__PART_RELEASE;
    struct dibs__shard *shard;
    struct dibs__cell *cell = dibs__cells_lock(cells, lease->name, lease->name_size, &shard);

    DIBS__REQUIRE(!lease->asker);
    bool held = cell && cell->state == DIBS__CELL_HELD && cell->lease == lease;
    if (held && cell->waiters) {
        const struct dibs__waiter *first = cell->waiters;
        *next = first->wish;
        parting = DIBS__PART_REQUEUE;
        if (!lease->keeping.forced && may_be_handed(cells, lease, now) && dibs__waiters_fit(lease, first)) {
            hand_over(cell, now);
            parting = DIBS__PART_HANDED;
        }
    } else if (held && cells->keep > 0 && dibs__kept_keep(cells, cell, recallable, now)) {
        parting = DIBS__PART_KEPT;
    }
    dibs__waiters_unlock(shard);
    return parting;
}

static void set_forced(struct dibs__lease *list) DIBS__REQUIRES(dibs__shard_mutex)
{
    for (struct dibs__lease *lease = list; lease; lease = lease->listing.next)
        lease->keeping.forced = true;
}

/* Takes the parked lease out of the cell, with a reference, the caller's. The first waiter gets the turn instead. */
static struct dibs__lease *take_parked_out(struct dibs__cell *cell) DIBS__REQUIRES(dibs__shard_mutex)
{
    struct dibs__lease *lease = cell->lease;

    dibs__lease_ref(lease);
    atomic_store(&lease->loss_told, true); /* a loss from now on concerns nobody */
    dibs__waiters_mark_free(cell);
    dibs__cell_unlist(cell, lease);
    dibs__waiters_pass_on(cell);
    return lease;
}

struct dibs__lease *dibs__handover_forced(struct dibs__cells *cells, const char *name, size_t name_size)
{
    struct dibs__shard *shard;
    struct dibs__cell *cell = dibs__cells_lock(cells, name, name_size, &shard);
    struct dibs__lease *parked = NULL;

    if (cell) {
        set_forced(cell->asked); /* of a grant whose answer is on its way */
        set_forced(cell->granted);
        if (cell->state == DIBS__CELL_PARKED)
            parked = take_parked_out(cell);
    }
    dibs__waiters_unlock(shard);
    return parked;
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
