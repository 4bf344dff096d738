/*
 * What the files of the renewals share; no other file includes it:
 *
 *     renewal.c        for the threads that hold leases; changes of locks that the store watches; making and ending
 *     renewal_round.c  for the scheduler: what is due, and what the store said
 *
 * Lock discipline: `mutex` (of the class dibs__renewals_mutex) guards the heap, and `renewal_state` of each lease. It
 * is a leaf, apart from the atomics of the scheduler: while it is held, no callback is called, and nothing of the store
 * except is_unconfirmed.
 *
 * A thread that extends a lease sleeps on `changed` until
 *     the extension is no longer pending, or its deadline;
 * a thread that is about to release a lease, until
 *     the lease is confirmed, or no longer kept alive, or its deadline.
 */
#ifndef DIBS_CORE_RENEWAL_PARTS_H
#define DIBS_CORE_RENEWAL_PARTS_H

#include "core/due.h"
#include "core/renewal.h"
#include "core/renewal_state.h"

#define DIBS__WATCH_AGAIN_MS 1000 /* after this time a watch that failed is tried again */

enum dibs__watching {
    DIBS__WATCHING_UNKNOWN, /* the store was not asked to watch yet */
    DIBS__WATCHING_OFF,     /* the store does not watch, or has not said so yet */
    DIBS__WATCHING_ON
};

struct dibs__renewals {
    struct dibs__renewal_config config; /* read-only */
    struct dibs__store *store;          /* read-only after the scheduler was started */
    struct dibs__mutex mutex;
    struct dibs__due due DIBS__GUARDED_BY(dibs__renewals_mutex); /* the leases that are kept alive, with a reference */
    struct dibs__error last_failure DIBS__GUARDED_BY(dibs__renewals_mutex); /* the last failure of a renewal */
    enum dibs__watching watching DIBS__GUARDED_BY(dibs__renewals_mutex);
    size_t paced DIBS__GUARDED_BY(dibs__renewals_mutex); /* number of leases to look at because of a change */
    pthread_cond_t changed;                              /* waited on with mutex */
};

/* ---------------------------------------------------------------- renewal.c */

/*
 * The lease is no longer kept alive, and the renewals' reference becomes the caller's. A thread that extends the lease
 * learns that it is lost.
 */
void dibs__renewals_take_out(struct dibs__renewals *r, struct dibs__lease *lease) DIBS__REQUIRES(dibs__renewals_mutex);

/* Called when the lease may be due at another time. beside: the lease before it in its batch, or NULL. */
void dibs__renewals_reschedule(struct dibs__renewals *r, struct dibs__lease *lease, struct dibs__lease *beside)
    DIBS__REQUIRES(dibs__renewals_mutex);

/* The lease no longer waits to be looked at because of a change. */
void dibs__renewals_unpace(struct dibs__renewals *r, struct dibs__lease *lease) DIBS__REQUIRES(dibs__renewals_mutex);

/* `done` of a batch of locks to watch. */
void dibs__renewals_watch_done(struct dibs__batch *batch, const struct dibs__error *error);

#endif
