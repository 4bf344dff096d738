/*
 * The store on one Redis server, as its files share it: redis.c has it and its
 * connections, redis_ask.c what threads ask for, redis_renew.c the renewals.
 *
 * Lock discipline: `mutex` guards which of the exclusive channels are in use,
 * and `healed`. It is a leaf. `reach_mutex` makes one thing of a change of
 * `down` and of telling the listener, so that each is told, and in order. It is
 * held while the listener is called, which may take a leaf of its own. The rest
 * is read-only after open or has its own guard.
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

DIBS__MUTEX_CLASS(dibs__redis_mutex);
DIBS__MUTEX_CLASS(dibs__reach_mutex);

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
    struct dibs__mutex reach_mutex;
    atomic_bool down;           /* written under reach_mutex; the listener was told so */
    atomic_bool doubted;        /* others stand, but the server was silent to a new one: the scheduler is to try them */
    atomic_bool reopened;       /* a connection was made, maybe to another server */
    struct dibs__route healed;  /* guarded by mutex; of what sets leases again: the first connection of those
                                  from which it may still come, and the last not-after; channel NULL: none */
    uint64_t background_server; /* the scheduler thread's: that of the background channel when it was looked at last */
    struct dibs__mutex mutex;
    pthread_cond_t exclusive_freed;              /* an exclusive channel is not in use any more */
    bool in_use[DIBS__SHARED + DIBS__EXCLUSIVE]; /* guarded by mutex */
    unsigned choosy; /* guarded by mutex; threads that wait for an exclusive channel that is connected */
};

static inline struct dibs__redis_store *dibs__redis_of(struct dibs__store *store)
{
    return (struct dibs__redis_store *)store;
}

/*
 * redis.c: the least busy of the shared channels that are connected, the first
 * among equals: so few threads use few connections. Where all of those are
 * busy, one more is connected in the background; where there is none, the
 * caller is to connect the one that is told.
 */
size_t dibs__redis_pick(struct dibs__redis_store *store);

/* Whether a channel other than this one, of its kind, stands, as far as a look can tell. */
bool dibs__redis_another_stands(struct dibs__redis_store *store, size_t channel);

/*
 * An exclusive channel for the caller, to be given back; false where none came
 * free until the deadline. One that is connected, if there is a free one, and
 * with `connected` only such a one.
 */
bool dibs__redis_take_exclusive(struct dibs__redis_store *store, bool connected, int64_t deadline, size_t *out);
void dibs__redis_give_back(struct dibs__redis_store *store, size_t exclusive);

/* What came of a call: unless it is DIBS_UNAVAILABLE, the store was heard; if it served, it can be reached. */
void dibs__redis_heard(struct dibs__redis_store *store, dibs_status status);

/* Whether a command may be sent once more: its connection broke, there is time, and it was not sent too often. */
bool dibs__redis_once_more(struct dibs__redis_store *store, dibs_status status, int *resends, int64_t deadline);

/*
 * Until when, on the server's clock in us, a command that is sent now on that
 * connection may be executed. Every command that would do harm later carries
 * this time: whether a later connection can end this one is known only then.
 */
int64_t dibs__redis_not_after(struct dibs__redis_store *store, const struct dibs__link_view *view, int64_t now);

/* The status of a reply that is none of those expected; verb: "acquiring". */
dibs_status dibs__redis_reply_error(struct dibs__redis_store *store, const char *verb, const char *name,
                                    const redisReply *reply, struct dibs__error *error);

/*
 * DIBS_INVALID where the server is part of a cluster and the keys of that lock
 * would lie in several of its slots: no script may touch them all.
 */
dibs_status dibs__redis_check_slots(const struct dibs__redis_store *store, const struct dibs__link_view *view,
                                    const char *lock_key, struct dibs__error *error);

/*
 * A call about a lock: its keys come first. The arguments must live as long as
 * the call. The keys, some KiB, are not on the stack, which may be a small one.
 * init: DIBS_OK; else DIBS_NO_MEMORY with the error filled, and nothing to free.
 */
struct dibs__lock_call {
    struct dibs__call call;
    struct dibs__key *keys; /* DIBS__KEYS */
};
dibs_status dibs__lock_call_init(struct dibs__lock_call *call, const struct dibs__redis_store *store,
                                 enum dibs__script script, const char *name, struct dibs__error *error);
void dibs__lock_call_free(struct dibs__lock_call *call);
void dibs__lock_call_add(struct dibs__lock_call *call, const char *text);

/* redis_ask.c: acquire, conclude, release and retract of store.h, and what the subscriber hears. */
dibs_status dibs__redis_acquire(struct dibs__store *base, struct dibs__ask *ask, struct dibs__answer *answer,
                                struct dibs__error *error);
void dibs__redis_conclude(struct dibs__store *base, struct dibs__ask *ask, bool held);
dibs_status dibs__redis_release(struct dibs__store *base, struct dibs__release *release, struct dibs__error *error);
void dibs__redis_retract(struct dibs__store *base, const char *name, const char *token, uint32_t lease_ms);
void dibs__redis_on_push(void *context, const char *bytes, size_t size);

/* redis_renew.c: renew of store.h. */
void dibs__redis_renew(struct dibs__store *base, struct dibs__batch *batch);

#endif
