/*
 * What the files of a subscriber share, and nobody else includes. doc/ARCHITECTURE.md says what each file is for.
 *
 * The link is that of a channel (channel.h), which makes it, reads it and writes to it. The serial of the subscription
 * is that of the link.
 *
 * Fields that threads share with the scheduler are atomics. One of them needs more than that:
 *
 * - confirmed: only rises. A thread that confirms a serial looks afterwards whether that is still the current one. If
 *   it is, the scheduler will find it confirmed when it comes to tell that the subscription was lost.
 *
 * `mutex` guards the slots. It is held for some assignments, never across I/O or a callback; the mutex of the channel
 * is locked beneath it.
 */
#ifndef DIBS_REDIS_SUBSCRIBER_PARTS_H
#define DIBS_REDIS_SUBSCRIBER_PARTS_H

#include "base/backoff.h"
#include "redis/channel.h"
#include "redis/subscriber.h"

DIBS__MUTEX_CLASS(subscriber_mutex);

/*
 * The states of the subscription of one slot:
 *
 *     DUE     to be asked for at `act_at`
 *     ASKED   SSUBSCRIBE was sent; a refusal does not say what it refuses, so at `act_at` it counts as refused
 *     STANDS  the server confirmed it
 *
 * At the end of the link, all are due again. A subscription that nobody has asked about until `kept_until` is ended by
 * SUNSUBSCRIBE, and forgotten. Before the server confirms the next one of that slot, it says that this one has ended.
 */
enum dibs__slot_state { DIBS__SLOT_DUE, DIBS__SLOT_ASKED, DIBS__SLOT_STANDS };

struct dibs__slot {
    struct dibs__slot *next DIBS__GUARDED_BY(subscriber_mutex);
    unsigned number; /* read-only */
    enum dibs__slot_state state DIBS__GUARDED_BY(subscriber_mutex);
    uint64_t serial DIBS__GUARDED_BY(subscriber_mutex); /* 0 unless the state is STANDS */
    int64_t kept_until DIBS__GUARDED_BY(subscriber_mutex);
    int64_t act_at DIBS__GUARDED_BY(subscriber_mutex);
    struct dibs__backoff backoff DIBS__GUARDED_BY(subscriber_mutex); /* of subscriptions that nothing confirms */
};

#define DIBS__SLOT_BUCKETS 64 /* a power of two */

struct dibs__slots {
    struct dibs__slot *buckets[DIBS__SLOT_BUCKETS] DIBS__GUARDED_BY(subscriber_mutex); /* by the slot's last bits */
    uint64_t last_serial DIBS__GUARDED_BY(subscriber_mutex);
    uint64_t link DIBS__GUARDED_BY(subscriber_mutex); /* serial of the link that they are on; 0: none */
    atomic_uint count;                                /* atomic; changed under mutex; number of slots in the buckets */
    _Atomic int64_t due; /* atomic; changed under mutex; when something must be done about a slot, or earlier */
    atomic_bool asked;   /* atomic; set by the scheduler; SSUBSCRIBE was sent on this link */
    atomic_bool lost;    /* atomic; one was lost: the scheduler must tell that messages may have been lost */
};

struct dibs__subscriber {
    struct dibs__endpoint *endpoint;     /* read-only after new */
    struct dibs__subscriber_hooks hooks; /* read-only after new */
    struct dibs__channel *channel;       /* read-only after new */

    bool hears_wanted; /* the scheduler thread's; changes must be heard */
    bool hears_asked;  /* the scheduler thread's; changes were subscribed to on this link */
    bool relied_on;    /* the scheduler thread's; there was a subscription, and no try has failed since */
    uint64_t stood;    /* the scheduler thread's; serial of the subscription whose end is not dealt with; 0: none */
    int64_t stood_at;  /* the scheduler thread's; when that was confirmed */
    unsigned unconfirmed_count; /* the scheduler thread's; number of subscriptions in a row that nothing confirmed */
    struct dibs__backoff retry; /* the scheduler thread's; pauses between subscriptions that nothing confirms */

    atomic_bool wanted;             /* atomic; set for good: a subscription must exist */
    _Atomic int64_t received_at;    /* atomic; when a reply was last received */
    atomic_uint_fast64_t confirmed; /* atomic; the newest subscription that the server is known to have had */
    atomic_uint_fast64_t hears;     /* atomic; the newest subscription that hears changes */

    struct dibs__mutex mutex;
    struct dibs__slots slots; /* has its own guards */
};

/*
 * Takes a reply about the subscription of a slot, or a message on its channel, received on the link of that serial.
 * False: the reply is neither.
 */
bool dibs__slots_take(struct dibs__subscriber *subscriber, uint64_t link, const redisReply *reply, int64_t now)
    DIBS__EXCLUDES(subscriber_mutex);

/* Whether the error may be the answer to a command about a slot. */
bool dibs__slots_explain(const struct dibs__subscriber *subscriber, const redisReply *error);

/* Called by the scheduler while there is a subscription: sends what is due. False: the link is gone, or no memory. */
bool dibs__slots_ask(struct dibs__subscriber *subscriber, int64_t now) DIBS__EXCLUDES(subscriber_mutex);

/* Called by the scheduler when the link has ended. */
void dibs__slots_drop(struct dibs__subscriber *subscriber) DIBS__EXCLUDES(subscriber_mutex);

void dibs__slots_free(struct dibs__slots *slots);

#endif
