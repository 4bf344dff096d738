/* The end of a hold: the lease passes to another thread or goes back to the store. Each call is made in a visit. */
#ifndef DIBS_CORE_RELEASE_H
#define DIBS_CORE_RELEASE_H

#include "core/core.h"
#include "core/turn.h"
#include "core/holds.h"

/* As the last dibs_unlock, whatever the count of the hold. Removes the hold. */
dibs_status dibs__release(struct dibs__core *core, struct dibs__hold *hold, struct dibs__error *error);

/*
 * The end of one hold, in steps. Used by one thread at a time; must stay in place until it is finished.
 *
 * If another server answers than the one that confirmed the lease last, a renewal is under way that may restore the
 * lease there. The release should come behind that renewal, so it waits for the answer, but for at most half of the
 * time that the call has. A caller that releases several leases first begins those that can begin, and then waits for
 * the rest, so that all waits run at the same time.
 */
struct dibs__unlocking {
    struct dibs__core *core;
    struct dibs__lease *lease, *next; /* next: asked for behind the release, for the next waiter here; NULL: none */
    struct dibs__wish wanted;         /* what `next` must be */
    bool requeues;                    /* there will be a `next` */
    bool prepared;                    /* `op` is complete, and was begun: it can be awaited */
    bool settled;                     /* no request that may restore the lease is under way */
    int64_t settle_until;             /* until when the release waits for the lease to be confirmed */
    struct dibs__op op;               /* the release; its deadline may be changed before anything is begun */
    char token[DIBS__TOKEN_MAX];
};

/*
 * Gives up the lease of a hold that was removed from its table. True: the caller must call dibs__release_finish.
 * False: *status is final, and the error is filled unless it is DIBS_OK. Takes over the reference. Does not block.
 */
bool dibs__release_lease(struct dibs__unlocking *unlocking, struct dibs__core *core, struct dibs__lease *lease,
                         int64_t now, dibs_status *status, struct dibs__error *error);

/*
 * Waits until the release can be sent, but not after that time, nor longer than the release may wait. Then sends what
 * can be sent without waiting, unless that was done before. False: it can't be sent yet.
 */
bool dibs__release_begin(struct dibs__unlocking *unlocking, int64_t until);

/* Does what is left, and waits for the store. */
dibs_status dibs__release_finish(struct dibs__unlocking *unlocking, struct dibs__error *error);

/*
 * Ends a lease whose owner waits for no reply: its task was freed, or its acquire was cancelled as it was granted. The
 * store deletes the key in the background. The reference stays the caller's. False: the lease was lost before.
 */
bool dibs__release_in_background(struct dibs__core *core, struct dibs__lease *lease);

/* The same for a hold of a thread that has ended. */
void dibs__release_orphaned(struct dibs__core *core, struct dibs__lease *lease);

#endif
