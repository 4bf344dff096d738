/*
 * Leases by the time at which they are due, the earliest first: a heap of groups.
 * Leases that were renewed together are due together, and are kept as one group: so
 * the heap has an entry for each batch of leases, not for each lease. Guarded by the
 * renewals' mutex.
 *
 * The leases of a group are linked in a ring (renewal_state.next, renewal_state.previous).
 * One of them, the leader, stands in the heap for the group. All links lie in the
 * leases, so a lease that was granted is never refused for lack of memory.
 */
#ifndef DIBS_CORE_HEAP_H
#define DIBS_CORE_HEAP_H

#include "core/lease.h"

/* All zero: an empty heap. */
struct dibs__heap {
    struct dibs__lease *first; /* the leader that is due first; NULL: the heap is empty */
    struct dibs__lease *last;  /* the leader of the group that was made last, mostly; NULL: the heap is empty */
    size_t count;              /* of leases */
};

/*
 * renewal_state.due is set. Takes no reference: the caller's must last until the
 * lease is removed. beside: a lease in the heap which may be due at the same time,
 * then both become one group; NULL: none is known.
 */
void dibs__heap_add(struct dibs__heap *heap, struct dibs__lease *lease, struct dibs__lease *beside)
    DIBS__REQUIRES(dibs__renewals_mutex);

/* The lease, which is in the heap, becomes due at that time. beside: another lease, as for dibs__heap_add. */
void dibs__heap_move(struct dibs__heap *heap, struct dibs__lease *lease, int64_t due, struct dibs__lease *beside)
    DIBS__REQUIRES(dibs__renewals_mutex);

/* The lease must be in the heap. */
void dibs__heap_remove(struct dibs__heap *heap, struct dibs__lease *lease) DIBS__REQUIRES(dibs__renewals_mutex);

/* Removes all leases: linked by renewal_state.next, in the order in which they were due. */
struct dibs__lease *dibs__heap_take_all(struct dibs__heap *heap) DIBS__REQUIRES(dibs__renewals_mutex);

/* The leader of another group, until each came once: behind heap->first, in no order. NULL: there are no more. */
struct dibs__lease *dibs__heap_other(const struct dibs__lease *leader) DIBS__REQUIRES(dibs__renewals_mutex);

static inline bool dibs__heap_has(const struct dibs__lease *lease) DIBS__REQUIRES(dibs__renewals_mutex)
{
    return lease->renewal_state.place != DIBS__HEAP_NOWHERE;
}

/* When the lease is due; DIBS__NEVER: it is not in the heap, or NULL. */
static inline int64_t dibs__heap_due(const struct dibs__lease *lease) DIBS__REQUIRES(dibs__renewals_mutex)
{
    return lease && dibs__heap_has(lease) ? lease->renewal_state.due : DIBS__NEVER;
}

#endif
