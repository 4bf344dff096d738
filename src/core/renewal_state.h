/*
 * The renewal state of one lease: when to renew it, what to ask the store for, and what the store's answer means for
 * it. Guarded by the renewals' mutex (renewal.c). Nothing here knows the other leases.
 */
#ifndef DIBS_CORE_RENEWAL_STATE_H
#define DIBS_CORE_RENEWAL_STATE_H

#include "core/lease.h"

/*
 * The lease was granted to a request that was about to be sent at proof. renew_ms: the longest time from a grant or
 * renewal to the next renewal; 0: a third of the lease.
 */
void dibs__renewal_state_begin(struct dibs__lease *lease, uint32_t lease_ms, int64_t proof,
                               const struct dibs__lease_store_state *store_state, uint32_t renew_ms)
    DIBS__REQUIRES(dibs__renewals_mutex);

/* The lease is unconfirmed: it must be renewed or restored at once. */
void dibs__renewal_state_doubt(struct dibs__lease *lease) DIBS__REQUIRES(dibs__renewals_mutex);

/* What must become of the lease, which may be kept, may have changed. kept_ms: its greatest length while it is kept. */
void dibs__renewal_state_use_changed(struct dibs__lease *lease, uint32_t kept_ms) DIBS__REQUIRES(dibs__renewals_mutex);

/*
 * Whether a change of the lock leads to a renewal or look of its own. It does not if the lock is looked at anyway
 * before the store watches it, or if a request is in flight.
 */
bool dibs__renewal_state_awaits_hint(const struct dibs__lease *lease) DIBS__REQUIRES(dibs__renewals_mutex);

/* The store says that the lock may have changed: the lease must be renewed or looked at by that time. */
void dibs__renewal_state_hint(struct dibs__lease *lease, int64_t when) DIBS__REQUIRES(dibs__renewals_mutex);

/*
 * When the renewals must look at the lease: at its deadline, when it is at risk, when it must be renewed, or when the
 * store must begin to watch the lock. If `other`, the time at which another lease is due, is only a moment sooner, it
 * is `other`: then both leases are in one group of the heap.
 */
int64_t dibs__renewal_state_plan(const struct dibs__lease *lease, int64_t other) DIBS__REQUIRES(dibs__renewals_mutex);

/* Whether the store should be asked to watch the lock now. */
bool dibs__renewal_state_is_to_watch(const struct dibs__lease *lease, int64_t now) DIBS__REQUIRES(dibs__renewals_mutex);

/*
 * Whether the lease, at which the renewals look, must be renewed now. This is so also a little before its time, so that
 * leases which are due close together cost one request.
 */
bool dibs__renewal_state_is_due(const struct dibs__lease *lease, int64_t now) DIBS__REQUIRES(dibs__renewals_mutex);

/*
 * Fills in a request that renews the lease, and extends it if that was asked for. No request may be in flight. token:
 * the text of the token; the pointer is kept.
 */
void dibs__renewal_state_send(struct dibs__lease *lease, const char *token, struct dibs__renewal *item, int64_t now)
    DIBS__REQUIRES(dibs__renewals_mutex);

/* The request that was due could not be sent, for lack of memory: sets when to try again. */
void dibs__renewal_state_put_off(struct dibs__lease *lease, int64_t now) DIBS__REQUIRES(dibs__renewals_mutex);

/*
 * The request is no longer in flight. True: the lease was unconfirmed, so threads that wait until it is settled must be
 * woken.
 */
bool dibs__renewal_state_land(struct dibs__lease *lease, const struct dibs__renewal *item)
    DIBS__REQUIRES(dibs__renewals_mutex);

/*
 * Takes what the store said of a lease that is neither gone nor lost. The batch was about to be sent at proof and ended
 * with `status`. True: an extension pends no longer, so threads that wait for that must look.
 */
bool dibs__renewal_state_take_result(struct dibs__lease *lease, const struct dibs__renewal *item, int64_t proof,
                                     dibs_status status, int64_t now) DIBS__REQUIRES(dibs__renewals_mutex);

/* The call that extends the lease no longer waits. */
void dibs__renewal_state_leave_extension(struct dibs__lease *lease) DIBS__REQUIRES(dibs__renewals_mutex);

#endif
