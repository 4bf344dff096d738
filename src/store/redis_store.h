/*
 * The store on one Redis server, as its files share it: redis.c has it and its
 * connections, redis_ask.c what threads ask for, redis_renew.c the renewals.
 *
 * Lock discipline: `mutex` guards which of the exclusive channels are in use,
 * and `healed`. It is a leaf. The rest is read-only after open or has its own guard.
 */
#ifndef DIBS_STORE_REDIS_STORE_H
#define DIBS_STORE_REDIS_STORE_H

#include "redis/call.h"
#include "redis/subscriber.h"
#include "store/keys.h"
#include "store/retractions.h"
#include "store/store.h"

#define DIBS__SHARED 4
#define DIBS__EXCLUSIVE 8 /* only with min_replicas */

struct dibs__redis_store {
    struct dibs__store store; /* read-only after open, but for what says otherwise */
    struct dibs__store_config config;
    char *key_prefix;
    struct dibs__endpoint endpoint;
    struct dibs__channel *channels[DIBS__SHARED + DIBS__EXCLUSIVE];
    size_t channel_count;
    struct dibs__channel *background;
    struct dibs__retractions *retractions;
    struct dibs__subscriber *subscriber;
    atomic_bool down;
    atomic_bool reopened;       /* a connection was made, maybe to another server */
    struct dibs__route healed;  /* guarded by mutex; of the last request that sets leases again; channel NULL: none */
    uint64_t background_server; /* the scheduler thread's: that of the background channel when it was looked at last */
    pthread_mutex_t mutex;
    pthread_cond_t exclusive_freed;              /* an exclusive channel is not in use any more */
    bool in_use[DIBS__SHARED + DIBS__EXCLUSIVE]; /* guarded by mutex */
};

static inline struct dibs__redis_store *dibs__redis_of(struct dibs__store *store)
{
    return (struct dibs__redis_store *)store;
}

/* redis.c: the least busy of the shared channels, the first among equals: so few threads use few connections. */
size_t dibs__redis_pick(struct dibs__redis_store *store);

/* An exclusive channel for the caller, to be given back; false where none came free until the deadline. */
bool dibs__redis_take_exclusive(struct dibs__redis_store *store, int64_t deadline, size_t *out);
void dibs__redis_give_back(struct dibs__redis_store *store, size_t exclusive);

/* What came of a call: unless it is DIBS_UNAVAILABLE, the store was heard. */
void dibs__redis_heard(struct dibs__redis_store *store, dibs_status status);

/* Whether a command may be sent once more: its connection broke, there is time, and it was not sent too often. */
bool dibs__redis_once_more(struct dibs__redis_store *store, dibs_status status, int *resends, int64_t deadline);

/*
 * Until when, on the server's clock in us, a command that is sent now on that
 * connection may be executed. Every command that would do harm later carries
 * this time: whether a later connection can end this one is known only then.
 */
int64_t dibs__redis_not_after(struct dibs__redis_store *store, const struct dibs__link_view *view, int64_t now);

/*
 * Whether nothing that was sent on the channel's connection of that serial can
 * arrive behind a command on the connection that view shows: that is the same
 * connection, or a later one before which the server ended the others.
 */
static inline bool dibs__redis_is_behind(const struct dibs__link_view *view, uint64_t serial)
{
    return view->serial == serial || view->unended < serial;
}

/* The status of a reply that is none of those expected; verb: "acquiring". */
dibs_status dibs__redis_reply_error(struct dibs__redis_store *store, const char *verb, const char *name,
                                    const redisReply *reply, struct dibs__error *error);

/* A call about a lock: its keys come first. The arguments must live as long as the call. */
struct dibs__lock_call {
    struct dibs__call call;
    struct dibs__key keys[DIBS__KEYS];
};
void dibs__lock_call_init(struct dibs__lock_call *call, const struct dibs__redis_store *store, enum dibs__script script,
                          const char *name);
void dibs__lock_call_add(struct dibs__lock_call *call, const char *text);

/* redis_ask.c: acquire, conclude, release and retract of store.h, and what the subscriber hears. */
dibs_status dibs__redis_acquire(struct dibs__store *base, struct dibs__ask *ask, struct dibs__answer *answer,
                                struct dibs__error *error);
void dibs__redis_conclude(struct dibs__store *base, struct dibs__ask *ask, bool held);
dibs_status dibs__redis_release(struct dibs__store *base, struct dibs__release *release, struct dibs__error *error);
void dibs__redis_retract(struct dibs__store *base, const char *name, const char *token);
void dibs__redis_on_push(void *context, const char *bytes, size_t size);

/* redis_renew.c: renew of store.h. */
void dibs__redis_renew(struct dibs__store *base, struct dibs__batch *batch);

#endif
