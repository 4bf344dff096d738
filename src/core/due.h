/*
 * The leases of a runtime that are kept alive, by when they are due. Leases that were renewed together are due
 * together, and are kept as one group, so the heap has a node for each batch of leases, not for each lease. Guarded by
 * the renewals' mutex.
 *
 * The leases of a group are linked in a ring (renewal_state.next, renewal_state.previous). One of them, the leader, is
 * in the heap for the group. All links lie in the leases, so a lease that was granted is never refused for lack of
 * memory.
 */
#ifndef DIBS_CORE_DUE_H
#define DIBS_CORE_DUE_H

#include "core/lease.h"

/* All zero: there are no leases. */
struct dibs__due {
    struct dibs__heap leaders;
    struct dibs__lease *last; /* usually the leader of the group that was made last; NULL: there are no leases */
    size_t count;             /* the number of leases */
};

/* Whether the lease is kept alive. */
static inline bool dibs__due_has(const struct dibs__lease *lease) DIBS__REQUIRES(dibs__renewals_mutex)
{
    return lease->renewal_state.grouped;
}

/* When the lease is due; DIBS__NEVER: the lease is NULL, or not kept alive. */
static inline int64_t dibs__due_at(const struct dibs__lease *lease) DIBS__REQUIRES(dibs__renewals_mutex)
{
    return lease && dibs__due_has(lease) ? lease->renewal_state.node.due : DIBS__NEVER;
}

/*
 * The lease is kept alive from now on, and is due at that time, which is not DIBS__NEVER. Takes no reference: the
 * caller's must last until the lease is removed. beside: another lease that may be due at the same time, in which case
 * both are in one group; NULL: none is known.
 */
void dibs__due_set(struct dibs__due *due, struct dibs__lease *lease, int64_t when, struct dibs__lease *beside)
    DIBS__REQUIRES(dibs__renewals_mutex);

/* The lease must be one that is kept alive. */
void dibs__due_remove(struct dibs__due *due, struct dibs__lease *lease) DIBS__REQUIRES(dibs__renewals_mutex);

/* Removes all leases, and returns them linked by renewal_state.next, in the order in which they were due. */
struct dibs__lease *dibs__due_take_all(struct dibs__due *due) DIBS__REQUIRES(dibs__renewals_mutex);

/* A lease that is due first; NULL: there are no leases. */
struct dibs__lease *dibs__due_first(const struct dibs__due *due) DIBS__REQUIRES(dibs__renewals_mutex);

/*
 * The leader after `after`, the first one after NULL, so that a walk finds each leader once. NULL: there are no more.
 */
struct dibs__lease *dibs__due_leader(const struct dibs__due *due, const struct dibs__lease *after)
    DIBS__REQUIRES(dibs__renewals_mutex);

#endif
