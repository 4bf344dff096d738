/*
 * The end of a lease's use by one thread: the lease passes to another thread of the process without the store, or is
 * released in the store.
 */
#ifndef DIBS_CORE_HANDOVER_H
#define DIBS_CORE_HANDOVER_H

#include "core/cells.h"

/* What becomes of a lease that its holder gives up. */
enum dibs__parting {
    DIBS__PART_HANDED,  /* another thread has the lease, or will take it: nothing is left to do */
    DIBS__PART_RELEASE, /* the caller releases the lease in the store, then calls dibs__handover_end */
    DIBS__PART_KEPT,    /* the process keeps the lease: if next->tells, the caller calls dibs__renewals_use_changed */
    DIBS__PART_REQUEUE  /* as RELEASE, and the same round trip asks for the lease that the next waiter here wants */
};

/* The lease that the next waiter wants: filled for DIBS__PART_REQUEUE. */
struct dibs__wanted {
    uint32_t lease_ms;
    bool fixed;
    bool tells; /* filled for DIBS__PART_KEPT */
};

/* recallable: as in dibs__kept_keep. */
enum dibs__parting dibs__handover_part(struct dibs__cells *cells, struct dibs__lease *lease, unsigned recallable,
                                       int64_t now, struct dibs__wanted *next);

/*
 * The lease was released or lost: the next waiter gets the turn. Only the first call for a lease does anything. next:
 * the lease that was asked for together with the release; NULL: there is none. True: the store has answered for `next`,
 * and the next waiter goes on with its attempt. False: the caller must give up `next`.
 */
bool dibs__handover_end(struct dibs__cells *cells, struct dibs__lease *lease, struct dibs__lease *next);

#endif
