/*
 * Leases by the time at which they are due, the earliest first: a binary heap
 * of groups. Leases that were renewed together are due together, and are kept
 * as one group: so the heap has an entry for each batch of leases, not for each
 * lease. Guarded by the renewals' mutex.
 *
 * The leases of a group are linked in a ring (renewal_state.next, renewal_state.previous).
 * One of them, the leader, knows the group's place (renewal_state.place).
 */
#ifndef DIBS_CORE_HEAP_H
#define DIBS_CORE_HEAP_H

#include "core/lease.h"

/* All zero: an empty heap. */
struct dibs__heap {
    struct dibs__lease **leaders;
    size_t groups, room;
    size_t count;    /* of leases */
    size_t reserved; /* places that were promised */
};

/* Promises a place for one more lease. False: no memory. */
bool dibs__heap_reserve(struct dibs__heap *heap) DIBS__REQUIRES(dibs__renewals_mutex);

/* A promised place is not needed. */
void dibs__heap_unreserve(struct dibs__heap *heap) DIBS__REQUIRES(dibs__renewals_mutex);

/*
 * Takes a promised place. renewal_state.due is set. Takes no reference: the caller's
 * must last until the lease is removed. beside: a lease in the heap which may be
 * due at the same time, then both become one group; NULL: none is known.
 */
void dibs__heap_add(struct dibs__heap *heap, struct dibs__lease *lease, struct dibs__lease *beside)
    DIBS__REQUIRES(dibs__renewals_mutex);

/* The lease, which is in the heap, becomes due at that time. beside: another lease, as for dibs__heap_add. */
void dibs__heap_move(struct dibs__heap *heap, struct dibs__lease *lease, int64_t due, struct dibs__lease *beside)
    DIBS__REQUIRES(dibs__renewals_mutex);

/* The lease must be in the heap. */
void dibs__heap_remove(struct dibs__heap *heap, struct dibs__lease *lease) DIBS__REQUIRES(dibs__renewals_mutex);

/* Removes all leases, whose places stay promised: linked by renewal_state.next, in the order in which they were due. */
struct dibs__lease *dibs__heap_take_all(struct dibs__heap *heap) DIBS__REQUIRES(dibs__renewals_mutex);

/* A lease that is due first; NULL: the heap is empty. */
struct dibs__lease *dibs__heap_first(const struct dibs__heap *heap) DIBS__REQUIRES(dibs__renewals_mutex);

/* A lease of the group that was made last, mostly: to be `beside` a lease that is added. NULL: the heap is empty. */
struct dibs__lease *dibs__heap_last(const struct dibs__heap *heap) DIBS__REQUIRES(dibs__renewals_mutex);

static inline bool dibs__heap_has(const struct dibs__lease *lease) DIBS__REQUIRES(dibs__renewals_mutex)
{
    return lease->renewal_state.place != 0;
}

/* When the lease is due; DIBS__NEVER: it is not in the heap, or NULL. */
static inline int64_t dibs__heap_due(const struct dibs__lease *lease) DIBS__REQUIRES(dibs__renewals_mutex)
{
    return lease && dibs__heap_has(lease) ? lease->renewal_state.due : DIBS__NEVER;
}

void dibs__heap_free(struct dibs__heap *heap); /* the memory of the heap, not the leases */

#endif
