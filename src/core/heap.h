/*
 * Leases by the time at which they are due, the earliest first: a binary heap
 * of pointers, each lease knowing its place (upkeep.heap_place). Guarded by the
 * renewals' mutex.
 */
#ifndef DIBS_CORE_HEAP_H
#define DIBS_CORE_HEAP_H

#include "core/lease.h"

/* All zero: an empty heap. */
struct dibs__heap {
    struct dibs__lease **leases;
    size_t count, room;
    size_t reserved; /* places that were promised */
};

/* Promises a place for one more lease. False: no memory. */
bool dibs__heap_reserve(struct dibs__heap *heap) DIBS__REQUIRES(dibs__renewals_mutex);

/* A promised place is not needed. */
void dibs__heap_unreserve(struct dibs__heap *heap) DIBS__REQUIRES(dibs__renewals_mutex);

/* Takes a promised place. upkeep.due is set. Takes no reference: the caller's must last until the lease is removed. */
void dibs__heap_add(struct dibs__heap *heap, struct dibs__lease *lease) DIBS__REQUIRES(dibs__renewals_mutex);

/* upkeep.due of a lease in the heap has changed. */
void dibs__heap_move(struct dibs__heap *heap, struct dibs__lease *lease) DIBS__REQUIRES(dibs__renewals_mutex);

/* The lease must be in the heap. */
void dibs__heap_remove(struct dibs__heap *heap, struct dibs__lease *lease) DIBS__REQUIRES(dibs__renewals_mutex);

/* The lease that is due first; NULL: the heap is empty. */
struct dibs__lease *dibs__heap_first(const struct dibs__heap *heap) DIBS__REQUIRES(dibs__renewals_mutex);

static inline bool dibs__heap_has(const struct dibs__lease *lease) DIBS__REQUIRES(dibs__renewals_mutex)
{
    return lease->upkeep.heap_place != 0;
}

void dibs__heap_free(struct dibs__heap *heap); /* the memory of the heap, not the leases */

#endif
