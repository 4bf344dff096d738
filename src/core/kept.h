/*
 * Leases that the process keeps though nobody here uses them: the next acquire of the name takes such a lease again
 * without the store, unless another process asks for the lock before. What follows from that for the store: keeper.h.
 *
 * The cell of a kept lease is KEPT, without a waiter. From there
 *
 *     event                                                   the lease is
 *     an acquire that wants such a lease                      taken: HELD, with the next fence
 *     any other acquire of the name                           given back first
 *     another process asks, or the server tells of a change   given back
 *     nobody has used the lease for keep_ms                   given back
 *     the lease ends                                          given up, and nobody is told
 *
 * A lease may be kept only if its token says so (token.keeps): from the token, others who ask for the lock know that
 * they can recall the lease. Whether the token says so is decided when the lease is asked for, by what the process has
 * done with the name before: its habit.
 *
 * Some time after the last use, the lease is made short in the store, and the store also notes that the lease is kept:
 * dibs__kept_look. Until then nothing is sent, so that a thread in a loop costs the store nothing.
 *
 * All of this is done under the shard's mutex. A lease that is given back is no longer in its cell, so nobody here
 * takes it; its reference is the caller's.
 */
#ifndef DIBS_CORE_KEPT_H
#define DIBS_CORE_KEPT_H

#include "core/waiters.h"

/* The greatest length of a kept lease. */
static inline uint32_t dibs__kept_ms(uint32_t keep_ms)
{
    return keep_ms > 50 ? 4 * keep_ms : 200;
}

/* Whether this value of cells->recallable lets leases be kept. */
static inline bool dibs__kept_allows(unsigned recallable)
{
    return recallable % 2 == 1;
}

/*
 * From now on leases are kept when cells->recallable allows it. Must be called before any thread uses the cells. False:
 * no memory.
 */
bool dibs__kept_begin(struct dibs__cells *cells, uint32_t keep_ms);

/*
 * Whether the lease that is about to be asked for may be kept, because the process has locked the name several times in
 * a row, and no other process asked for it.
 */
bool dibs__kept_is_habit(const struct dibs__cells *cells, const struct dibs__cell *cell)
    DIBS__REQUIRES(dibs__shard_mutex);

/*
 * The last user of the lease that the cell holds gives the lease up now. recallable: the value of cells->recallable
 * from before the store said that it tells of this lock; even: the store does not tell. True: the lease is kept, and
 * the caller must call dibs__renewals_use_changed.
 */
bool dibs__kept_keep(struct dibs__cells *cells, struct dibs__cell *cell, unsigned recallable, int64_t now)
    DIBS__REQUIRES(dibs__shard_mutex);

/*
 * An acquire of a name whose cell is KEPT. True: the acquire has the lease, and must call dibs__renewals_use_changed.
 * False: the cell is FREE, and waiter->unfit is set.
 */
bool dibs__kept_take(struct dibs__cells *cells, struct dibs__cell *cell, struct dibs__waiter *waiter)
    DIBS__REQUIRES(dibs__shard_mutex);

/* The new holder counts that it took the kept lease. */
static inline void dibs__kept_count_retake(struct dibs__lease *lease)
{
    unsigned retaken = atomic_load_explicit(&lease->keeping.retaken, memory_order_relaxed);
    atomic_store_explicit(&lease->keeping.retaken, retaken + 1, memory_order_relaxed); /* no other thread writes it */
}

/*
 * Another process asks for the lock that the token has, or is about to get. Returns its lease with one more reference,
 * the caller's; NULL: there is no such lease here. *give_back: the lease was kept, and the caller must give it back;
 * otherwise `keeping` has news, and the caller must call dibs__renewals_use_changed.
 */
struct dibs__lease *dibs__kept_recall(struct dibs__cells *cells, const char *name, const char *token, bool *give_back);

/*
 * Looks whether anybody uses the lease, when the time for that has come. True: the caller must give it back. False: as
 * for dibs__kept_recall.
 */
bool dibs__kept_look(struct dibs__cells *cells, struct dibs__lease *lease);

/* Takes out the kept lease of that name, which the caller must give back. NULL: none is kept. */
struct dibs__lease *dibs__kept_drop(struct dibs__cells *cells, const char *name, size_t name_size);

/* The same for any kept lease of the shard, whatever its name. */
struct dibs__lease *dibs__kept_drop_any(struct dibs__shard *shard);

/* How many leases are kept. */
uint64_t dibs__kept_count(struct dibs__cells *cells);

#endif
