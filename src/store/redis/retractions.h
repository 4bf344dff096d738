/*
 * The tokens that are being retracted: of attempts whose outcome is in doubt, and
 * of releases that the server did not confirm. The scheduler deletes each token
 * again and again, until the server says that it is gone for good, or nothing
 * of it can be left. Tokens go in batches. A few batches may be under way, so
 * that a renewal never waits behind more than those.
 */
#ifndef DIBS_STORE_REDIS_RETRACTIONS_H
#define DIBS_STORE_REDIS_RETRACTIONS_H

#include "base/mutex.h"
#include "store/redis/route.h"
#include "store/store.h"

DIBS__MUTEX_CLASS(dibs__redis_mutex); /* of a store on one server */

struct dibs__retractions;
struct dibs__forwarded_retraction;

/*
 * Those of a store that is opened so. wake of the listener is called, from any thread, when there is something new to
 * do; changed by the scheduler's, with no mutex held, when a retraction may have changed the lock of that name, of
 * which the server does not tell the connection that it went over. `unconfirmed` of the counters also counts the
 * retractions of others. Those of a node of a cluster go each by itself, since each has a slot of its own. mutex: the
 * store's. NULL: no memory.
 */
struct dibs__retractions *dibs__retractions_new(const struct dibs__store_config *config, struct dibs__mutex *mutex);
void dibs__retractions_free(struct dibs__retractions *retractions); /* its channels are freed already */

/*
 * Any thread. lease_ms: the longest lease that the token may have; when it must
 * be over at the server, the token is given up. Where memory is out, the key is
 * left to its expiry. fence: of the token, 0 where none is known; with it what
 * waiters leave to the token ends (rule 13).
 */
void dibs__retractions_add(struct dibs__retractions *retractions, const char *name, const char *token,
                           uint32_t lease_ms, uint64_t fence, const struct dibs__route *route);

/* As dibs__redis_take_forwarded and dibs__redis_give_strays. */
void dibs__retractions_take(struct dibs__retractions *retractions, const struct dibs__forwarded_retraction *forwarded);
void dibs__retractions_give(struct dibs__retractions *retractions);

size_t dibs__retractions_count(struct dibs__retractions *retractions); /* not confirmed yet */

/*
 * The scheduler's: sends what is due; until when the next is due. carrier: takes
 * what can't follow its ask. Where it does not stand, that waits for another
 * connection, but not past its own end. changed_at: when its server took the
 * place of another; 0: never.
 */
void dibs__retractions_attend(struct dibs__retractions *retractions, struct dibs__channel *carrier, int64_t changed_at);
int64_t dibs__retractions_deadline(struct dibs__retractions *retractions);

#endif
