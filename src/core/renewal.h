/*
 * The scheduler: one thread of a runtime that keeps all its leases alive,
 * notices those that are lost, and drives what the store has to do in the
 * background. It never waits for one of them.
 *
 * A lease is renewed from a third of itself on (sooner if the runtime says
 * so), and again until that succeeds or the lease is over.
 */
#ifndef DIBS_CORE_RENEWAL_H
#define DIBS_CORE_RENEWAL_H

#include "core/lease.h"

struct dibs__renewal_config {
    const struct dibs__clock *clock;
    uint32_t renew_ms; /* 0: a third of the lease */
    void *context;     /* of these two, which are called by the scheduler's thread with no lock held */
    void (*lost)(void *context, struct dibs__lease *lease, bool gone, const char *why); /* gone: the store said so */
    void (*at_risk)(void *context, struct dibs__lease *lease, const char *why);
    atomic_uint_fast64_t *renewed,
        *failed; /* where to count, and how often the leases that are no more were reentered */
    atomic_uint_fast64_t *reentered;
};

struct dibs__renewals;

/* NULL: no memory or no descriptor. start: false where no thread could be had. stop ends the thread. */
struct dibs__renewals *dibs__renewals_new(const struct dibs__renewal_config *config);
bool dibs__renewals_start(struct dibs__renewals *renewals, struct dibs__store *store);
void dibs__renewals_stop(struct dibs__renewals *renewals);
void dibs__renewals_free(struct dibs__renewals *renewals); /* stopped, and the store closed; NULL is fine */

/* Any thread: the store has something to do. */
void dibs__renewals_wake(struct dibs__renewals *renewals);

/* Room for one more lease, before the store is asked for it; false: no memory. Each is added, or given up. */
bool dibs__renewals_reserve(struct dibs__renewals *renewals);
void dibs__renewals_unreserve(struct dibs__renewals *renewals);

/* A lease that was granted to a request sent at proof, with what the store noted of it. Takes a reference. */
void dibs__renewals_add(struct dibs__renewals *renewals, struct dibs__lease *lease, uint32_t lease_ms, int64_t proof,
                        const struct dibs__lease_memo *memo);

/*
 * Its thread gives it up: afterwards no renewal of it begins. A callback that
 * was due may still come. False: a request may be out that sets the lease again
 * in a store that forgot it; only what is retracted now comes behind it.
 */
bool dibs__renewals_remove(struct dibs__renewals *renewals, struct dibs__lease *lease);

/* Waits, at most until the deadline, while the lease is to be set again in a store that may have forgotten it. */
void dibs__renewals_settle(struct dibs__renewals *renewals, struct dibs__lease *lease, int64_t deadline);

/* The scheduler's: another server is asked now. Leases that it has not confirmed are renewed there at once. */
void dibs__renewals_doubt_all(struct dibs__renewals *renewals);

/* As dibs_extend, for the thread that holds the lease: waits for the store at most until the deadline. */
dibs_status dibs__renewals_extend(struct dibs__renewals *renewals, struct dibs__lease *lease, uint32_t lease_ms,
                                  int64_t deadline, struct dibs__error *error);

/* Takes some lease out, as remove does, with a reference for the caller; NULL: there is none. */
struct dibs__lease *dibs__renewals_take_any(struct dibs__renewals *renewals);

/* Waits until the store has nothing to confirm any more, at most until the deadline. */
void dibs__renewals_drain(struct dibs__renewals *renewals, int64_t deadline);

/* How many leases are kept alive, and how often all that ever were have been reentered. */
void dibs__renewals_count(struct dibs__renewals *renewals, uint64_t *leases, uint64_t *reentered);

#endif
