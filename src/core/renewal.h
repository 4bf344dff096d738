/*
 * Renewals: keep the leases of a runtime alive, and notice those that are lost.
 *
 * A lease is renewed when a third of it has passed (sooner if the runtime says
 * so), and again until that succeeds or the lease is over. The renewals are
 * polled by the scheduler; the store sends them and answers in the background.
 */
#ifndef DIBS_CORE_RENEWAL_H
#define DIBS_CORE_RENEWAL_H

#include "core/lease.h"
#include "core/scheduler.h"

struct dibs__renewal_config {
    const struct dibs__clock *clock;
    struct dibs__scheduler *scheduler; /* that polls the renewals */
    uint32_t renew_ms;                 /* 0: a third of the lease */
    const struct dibs__token_form *tokens;
    void *context; /* of the callbacks */

    /* Called by the scheduler's thread with no lock held. gone: the store said so. why: "" or a sentence. */
    void (*lost)(void *context, struct dibs__lease *lease, bool gone, const char *why);
    void (*at_risk)(void *context, struct dibs__lease *lease, const char *why);

    /* As these, of leases that may be kept (keeper.h): it is time to look at one; others wait for its lock. */
    void (*look_kept)(void *context, struct dibs__lease *lease);
    void (*wanted)(void *context, struct dibs__lease *lease);
    uint32_t kept_ms; /* how long a lease is that is kept, at most */

    atomic_uint_fast64_t *renewed;   /* counts renewals that succeeded */
    atomic_uint_fast64_t *failed;    /* counts renewals that did not */
    atomic_uint_fast64_t *reentered; /* counts the re-entries of the leases that are no more */
    atomic_uint_fast64_t *retaken;   /* and how often they were used again after they had been kept */
};

struct dibs__renewals;

/* NULL: no memory. */
struct dibs__renewals *dibs__renewals_new(const struct dibs__renewal_config *config);
void dibs__renewals_free(struct dibs__renewals *renewals); /* the scheduler is stopped, and the store closed; NULL is
                                                              fine */

/* The store that renewals are sent to. Before the scheduler is started. */
void dibs__renewals_set_store(struct dibs__renewals *renewals, struct dibs__store *store);

/* What the scheduler polls. */
struct dibs__polled dibs__renewals_polled(struct dibs__renewals *renewals);

/* Keeps a lease alive that was granted to a request which was about to be sent at proof. Takes a reference. store
 * state: what the store notes with the lease. */
void dibs__renewals_add(struct dibs__renewals *renewals, struct dibs__lease *lease, uint32_t lease_ms, int64_t proof,
                        const struct dibs__lease_store_state *store_state);

/*
 * The holder gives up the lease: afterwards no renewal of it begins. A callback
 * that was due may still come. False: a request may be under way that restores
 * the lease in a store that forgot it; only what is retracted now comes behind
 * that request.
 */
bool dibs__renewals_remove(struct dibs__renewals *renewals, struct dibs__lease *lease);

/* What should become of a lease that may be kept has changed (`keeping`): the store is told soon. Any thread. */
void dibs__renewals_kept(struct dibs__renewals *renewals, struct dibs__lease *lease);

/* Waits while the lease is unconfirmed and being renewed or restored, at most until then. False: it still is. */
bool dibs__renewals_settle(struct dibs__renewals *renewals, struct dibs__lease *lease, int64_t deadline);

/* The scheduler's: renewals go to another server now. The leases that this server did not confirm are unconfirmed: they
 * are renewed or restored there at once. */
void dibs__renewals_server_changed(struct dibs__renewals *renewals);

/* The scheduler's: the store watches locks from now on, or no longer. */
void dibs__renewals_watching(struct dibs__renewals *renewals, bool on);

/* The store says that the lock of the lease may have changed; NULL: those of all leases. They are renewed soon. */
void dibs__renewals_hint(struct dibs__renewals *renewals, struct dibs__lease *lease);

/* As dibs_extend, for the thread that holds the lease: waits for the store at most until the deadline. */
dibs_status dibs__renewals_extend(struct dibs__renewals *renewals, struct dibs__lease *lease, uint32_t lease_ms,
                                  int64_t deadline, struct dibs__error *error);

/* Removes some lease; its reference becomes the caller's. NULL: there is none. */
struct dibs__lease *dibs__renewals_take_any(struct dibs__renewals *renewals);

struct dibs__renewals_counts {
    uint64_t leases;             /* that are kept alive */
    uint64_t reentered, retaken; /* as of dibs_stats, of all leases that ever were */
};

void dibs__renewals_count(struct dibs__renewals *renewals, struct dibs__renewals_counts *out);

#endif
