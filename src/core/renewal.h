/*
 * Renewals: keep the leases of a runtime alive, and notice those that are lost.
 *
 * A lease is renewed when a third of it has passed (sooner if renew_ms says so), and the renewal is repeated until it
 * succeeds or the lease ends. The scheduler polls the renewals; the store sends them and answers in the background.
 */
#ifndef DIBS_CORE_RENEWAL_H
#define DIBS_CORE_RENEWAL_H

#include "core/events.h"
#include "core/lease.h"
#include "core/scheduler.h"
#include "core/stats.h"

struct dibs__renewal_config {
    const struct dibs__clock *clock;
    struct dibs__store *store;         /* renewals are sent to it */
    struct dibs__scheduler *scheduler; /* the one that polls the renewals */
    struct dibs__events *events;       /* as of a core */
    uint32_t renew_ms;                 /* 0: a third of the lease */
    const struct dibs__token_form *tokens;
    void *context; /* of the callbacks */

    /*
     * Called by the scheduler's thread with no lock held. gone: the store said that the lease is gone. why: "" or a
     * sentence.
     */
    void (*lost)(void *context, struct dibs__lease *lease, bool gone, const char *why);

    /*
     * Called in the same way, for leases that may be kept (keeper.h): it is time to look at one; others wait for its
     * lock.
     */
    void (*look_kept)(void *context, struct dibs__lease *lease);
    void (*wanted)(void *context, struct dibs__lease *lease);
    uint32_t kept_ms; /* the greatest length of a kept lease */

    struct dibs__stats *stats; /* counts renewals, and takes over what leases counted that are no longer kept alive */
};

struct dibs__renewals;

/* NULL: no memory. */
struct dibs__renewals *dibs__renewals_new(const struct dibs__renewal_config *config);
void dibs__renewals_free(struct dibs__renewals *renewals); /* scheduler stopped, store closed; NULL is fine */

/* The scheduler's: when dibs__renewals_attend must be called at the latest, which does what is due. */
int64_t dibs__renewals_due(struct dibs__renewals *renewals);
void dibs__renewals_attend(struct dibs__renewals *renewals);

/*
 * Keeps a lease alive that was granted to a request which was about to be sent at proof. Takes a reference.
 * store_state: what the store notes with the lease.
 */
void dibs__renewals_add(struct dibs__renewals *renewals, struct dibs__lease *lease, uint32_t lease_ms, int64_t proof,
                        const struct dibs__lease_store_state *store_state);

/*
 * The holder gives up the lease. No renewal of it begins afterwards, but a callback that was due may still come. False:
 * a request may be under way that restores the lease in a store that forgot it; only a retraction that is made now
 * comes behind that request.
 */
bool dibs__renewals_remove(struct dibs__renewals *renewals, struct dibs__lease *lease);

/* If `keeping` of the lease has news, the store is told soon. Any thread. */
void dibs__renewals_use_changed(struct dibs__renewals *renewals, struct dibs__lease *lease);

/* Waits until the deadline at most while the lease is unconfirmed and being renewed or restored. False: it still is. */
bool dibs__renewals_settle(struct dibs__renewals *renewals, struct dibs__lease *lease, int64_t deadline);

/*
 * The scheduler's: renewals go to another server now. The leases that this server did not confirm are unconfirmed, and
 * are renewed or restored there at once.
 */
void dibs__renewals_server_changed(struct dibs__renewals *renewals);

/* The scheduler's: the store watches locks from now on, or no longer. */
void dibs__renewals_watching(struct dibs__renewals *renewals, bool on);

/*
 * The store says that the lock of the lease may have changed; NULL: the locks of all leases. These leases are renewed
 * soon.
 */
void dibs__renewals_hint(struct dibs__renewals *renewals, struct dibs__lease *lease);

/* Does what dibs_extend does, for the thread that holds the lease: waits for the store until the deadline at most. */
dibs_status dibs__renewals_extend(struct dibs__renewals *renewals, struct dibs__lease *lease, uint32_t lease_ms,
                                  int64_t deadline, struct dibs__error *error);

/* Removes any one lease; its reference becomes the caller's. NULL: there is none. */
struct dibs__lease *dibs__renewals_take_any(struct dibs__renewals *renewals);

/* Fills in `leases`, `reentered` and `retaken`. */
void dibs__renewals_count(struct dibs__renewals *renewals, dibs_stats *out);

#endif
