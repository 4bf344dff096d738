/*
 * The tokens that are being retracted: those of attempts whose outcome is in doubt, and of releases that the server did
 * not confirm. The scheduler deletes each token again and again, until the server says that it is gone for good, or
 * nothing of it can be left. Tokens are sent in batches. Only a few batches may be under way, so that a renewal never
 * waits behind more than those.
 */
#ifndef DIBS_STORE_REDIS_RETRACTIONS_H
#define DIBS_STORE_REDIS_RETRACTIONS_H

#include "base/mutex.h"
#include "redis/channel.h"
#include "store/redis/redis.h"

DIBS__MUTEX_CLASS(dibs__redis_mutex); /* of a store on one server */

/*
 * The route that an ask took. As long as that connection is open, its retraction follows it there. If it is not, the
 * retraction goes over another one, and is final only when nothing of the ask can be under way any more: the server has
 * ended that connection, or its clock has passed not_after.
 */
struct dibs__route {
    struct dibs__channel *channel; /* NULL: nothing is under way. The background channel: something may be, on the
                                      connection of that serial or a later one */
    uint64_t serial;
    struct dibs__link_id link;
    int64_t not_after;
};

struct dibs__retractions;

/*
 * Makes the retractions of a store that is opened with that configuration. `wake` of the listener is called, from any
 * thread, when there is something new to do. `changed` is called by the scheduler, with no mutex held, when a
 * retraction may have changed the lock of that name, and the server does not report that to the connection it was sent
 * on. `unconfirmed` of the counters also counts the retractions of other stores. At a node of a cluster each retraction
 * is sent by itself, since each has a slot of its own. mutex: the store's. NULL: no memory.
 */
struct dibs__retractions *dibs__retractions_new(const struct dibs__store_config *config, struct dibs__mutex *mutex);
void dibs__retractions_free(struct dibs__retractions *retractions); /* the channels must have been freed */

/*
 * Any thread. lease_ms: the longest lease that the token may have; once that must be over at the server, the token is
 * given up. If memory is out, the key is left to its expiry. fence: of the token, 0 if none is known; with it, waiters
 * stop leaving the lock to the token (rule 13). route: of what may still be under way; NULL: nothing is.
 */
void dibs__retractions_add(struct dibs__retractions *retractions, const char *name, const char *token,
                           uint32_t lease_ms, uint64_t fence, const struct dibs__route *route);

/* As dibs__redis_take_forwarded and dibs__redis_give_strays. */
void dibs__retractions_take(struct dibs__retractions *retractions, const struct dibs__forwarded_retraction *forwarded);
void dibs__retractions_give(struct dibs__retractions *retractions);

size_t dibs__retractions_count(struct dibs__retractions *retractions); /* how many are not confirmed yet */

/*
 * The scheduler's: attend sends what is due; deadline says when the next is due. carrier: the channel for retractions
 * that can't follow their asks. If it is not connected, these wait for another connection, but not past their own end.
 * changed_at: when the carrier's server took the place of another; 0: never.
 */
void dibs__retractions_attend(struct dibs__retractions *retractions, struct dibs__channel *carrier, int64_t changed_at);
int64_t dibs__retractions_deadline(struct dibs__retractions *retractions);

#endif
