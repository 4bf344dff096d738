/*
 * What the files of the store on one Redis server share; doc/ARCHITECTURE.md says what each of them is for.
 *
 * Lock discipline: `mutex` guards which exclusive channels are in use and who waits for one, `relocks`, `restored`, the
 * retractions, and the probe and the foreign locks of tracking.c. `down` changes under the mutex, and the listener is
 * told before the mutex is released, so that it is told of every change, in order. Nothing else of the listener is
 * called with the mutex held.
 */
#ifndef DIBS_STORE_REDIS_STORE_H
#define DIBS_STORE_REDIS_STORE_H

#include "redis/call.h"
#include "redis/sentinel.h"
#include "redis/subscriber.h"
#include "store/redis/codec.h"
#include "store/redis/redis.h"
#include "store/redis/relocks.h"
#include "store/store.h"

/* Number of common channels; with the background channel and the subscription that makes five connections. */
#define DIBS__COMMON 3
/* How often a command is sent again when its connection broke: all common connections may have ended unnoticed. */
#define DIBS__RESENDS DIBS__COMMON
/* Number of exclusive channels, made only if grants are confirmed: see dibs__redis_confirms. */
#define DIBS__EXCLUSIVE 8

DIBS__MUTEX_CLASS(dibs__redis_mutex); /* of a store on one server */

struct dibs__redis_store;

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

enum dibs__tracking_state {
    DIBS__TRACKING_IDLE,    /* not tried yet with this pair, or there is no pair */
    DIBS__TRACKING_PROBING, /* the probe was written, and the server has not reported it yet */
    DIBS__TRACKING_ON,
    DIBS__TRACKING_REFUSED /* tracking does not work with this pair, for now or for good */
};

/* A name whose lock a foreign client has; the key of the lock must be read. */
struct dibs__foreign {
    struct dibs__redis_store *store;
    struct dibs__foreign *next;
    char name[];
};

/* How the server reports changes (tracking.c). */
struct dibs__tracking {
    atomic_bool wanted; /* atomic; set for good by the first caller that must be told of changes */
    enum dibs__tracking_state state;
    uint64_t link, subscription; /* scheduler thread only; the serials of the pair */
    unsigned unanswered;         /* scheduler thread only; number of unanswered commands that begin the tracking */
    bool enabled;  /* scheduler thread only; the first of those commands was accepted: the server tracks */
    bool refused;  /* scheduler thread only; one of those commands was refused, or could not be sent */
    bool for_now;  /* scheduler thread only; with refused: nothing was refused for good */
    int64_t until; /* scheduler thread only; while probing: when the server must have reported the probe; once refused:
                      when the tracking is tried again */
    uint64_t last; /* scheduler thread only; number of the last tracking that was on */
    atomic_uint_fast64_t on; /* atomic; number of the tracking that is on; 0: none is */
    atomic_bool heard;       /* atomic; the server has reported the probe */
    atomic_bool flushed; /* atomic; since the probing began, the server has reported a change of all keys, perhaps in
                            place of the probe's */
    struct dibs__key probe DIBS__GUARDED_BY(dibs__redis_mutex); /* size 0: no name is known for it yet */
    struct dibs__foreign *foreign DIBS__GUARDED_BY(dibs__redis_mutex);
};

struct dibs__redis_store {
    struct dibs__store store;                                           /* read-only after open */
    struct dibs__store_config config;                                   /* read-only after open */
    struct dibs__endpoint endpoint;                                     /* has its own guards */
    struct dibs__channel *channels[DIBS__COMMON + DIBS__EXCLUSIVE + 1]; /* read-only after open; behind the common and
                                                                           the exclusive ones comes `background` */
    size_t channel_count;                  /* read-only after open; number of common and exclusive channels */
    struct dibs__channel *background;      /* read-only after open; only the scheduler thread sends on it */
    struct dibs__retractions *retractions; /* read-only after open */
    struct dibs__subscriber *subscriber;   /* read-only after open */
    struct dibs__sentinel *sentinel;       /* read-only after open; NULL: the URL gives the server's address */
    uint64_t told;                         /* scheduler thread only; endpoint.told when the thread last looked at it */
    struct dibs__tracking tracking;        /* has its own guards */
    atomic_bool down;    /* written under mutex; the listener was told that the server can't be reached */
    atomic_bool doubted; /* atomic; the scheduler must test the open connections, because the server did not answer on a
                            new one */
    atomic_bool reopened;            /* atomic; a connection was made, perhaps to another server */
    _Atomic uint64_t renewal_server; /* atomic, written by the scheduler thread; where renewals go; 0: not known */
    _Atomic uint64_t first_server;   /* atomic; the server that first answered an ask; 0: none has */
    _Atomic uint64_t no_delete_if;   /* atomic; a server that does not let this client delete a key by its value (rule
                                        71); 0: none is known */
    _Atomic int64_t last_reply_at; /* atomic; when the server last gave an answer other than that it can't serve now */
    _Atomic int64_t changed_at; /* atomic, written by the scheduler thread; when renewal_server last took the place of
                                   another server; 0: never */
    struct dibs__mutex mutex;
    pthread_cond_t exclusive_freed; /* waited on with mutex; an exclusive channel is no longer in use */
    bool in_use[DIBS__COMMON + DIBS__EXCLUSIVE] DIBS__GUARDED_BY(dibs__redis_mutex);
    unsigned choosy DIBS__GUARDED_BY(dibs__redis_mutex); /* number of threads that wait for a connected one */
    struct dibs__relocks *relocks DIBS__GUARDED_BY(dibs__redis_mutex); /* NULL: nothing was noted yet */
    /*
     * Requests that restore leases may still arrive from this connection of the background channel or a later one,
     * until not_after. channel NULL: there are none.
     */
    struct dibs__route restored DIBS__GUARDED_BY(dibs__redis_mutex);
};

static inline struct dibs__redis_store *dibs__redis_of(struct dibs__store *store)
{
    return (struct dibs__redis_store *)store;
}

/* Whether a grant counts only once replicas or the disk have it. */
static inline bool dibs__redis_confirms(const struct dibs__redis_store *store)
{
    return store->config.min_replicas > 0 || store->config.durable;
}

/* The number of the quorum that the server is a member of; 0: not known, or there is none. */
static inline uint64_t dibs__redis_quorum(const struct dibs__redis_store *store)
{
    return store->config.quorum ? atomic_load_explicit(store->config.quorum, memory_order_relaxed) : 0;
}

/*
 * Whether the server tracks what the background channel reads on the connection of that serial. The scheduler's.
 */
static inline bool dibs__tracking_is_on(const struct dibs__tracking *tracking, uint64_t serial)
{
    return tracking->state == DIBS__TRACKING_ON && tracking->link == serial;
}

/* --------------------------------------------------------------- channels.c */

/*
 * DIBS_STORE_ERROR if grants must be on the server's disk, and the server can't reliably tell whether they are; else
 * DIBS_OK.
 */
dibs_status dibs__redis_check_disk(const struct dibs__redis_store *store, const struct dibs__link_view *view,
                                   struct dibs__error *error);

struct dibs__channel_hooks dibs__redis_hooks(struct dibs__redis_store *store);

/*
 * Returns the least busy of the common channels that are connected, and the first among equals, so that few threads use
 * few connections. If all of those are busy, and a thread waits for a reply on the one that is returned, one more is
 * connected in the background. If none is connected, the caller must connect the one that is returned.
 */
size_t dibs__redis_pick(struct dibs__redis_store *store);

/* Whether another channel of the same kind, common or exclusive, is connected, as far as a look can tell. */
bool dibs__redis_another_is_connected(struct dibs__redis_store *store, size_t channel);

#define DIBS__AT_ONCE_MS 1 /* again_ms of an answer if the lock is free or about to be */

/*
 * A script freed the lock but did not serve its whole queue, because the queue is long. Continues in the background
 * until somebody has the lock, or nobody waits.
 */
void dibs__redis_go_on(struct dibs__redis_store *store, const char *name);

/* The server that renewals go to or, as long as they go nowhere, that first answered an ask; 0: neither is known. */
uint64_t dibs__redis_known_server(const struct dibs__redis_store *store);

/* When this server took the place of another, as far as is known; 0: it did not. */
int64_t dibs__redis_changed_at(const struct dibs__redis_store *store, uint64_t server);

/*
 * Whether waiters may leave a lock to its owner, for lease_ms at most, because they saw that owner at another server:
 * the store has another server now, or has had this one for less than that time.
 */
bool dibs__redis_changed_within(const struct dibs__redis_store *store, uint64_t server, uint32_t lease_ms);

/*
 * Notes the status of a call: unless it is DIBS_UNAVAILABLE, or memory ran out here, the server has answered; if the
 * server served the call, it can be reached.
 */
void dibs__redis_note_reply(struct dibs__redis_store *store, dibs_status status);

/*
 * The time, on the server's clock in us, until which a command that is sent now on that connection may be executed.
 * Every command that would do harm later carries this time, because only a later connection knows whether it can end
 * this one.
 */
int64_t dibs__redis_not_after(const struct dibs__redis_store *store, const struct dibs__link_view *view, int64_t now);

/*
 * The server rejected a command on that connection as too late, and told its clock in us. Corrects what is known of
 * that clock, and fills the error.
 */
dibs_status dibs__redis_late(struct dibs__redis_store *store, struct dibs__channel *channel, uint64_t serial,
                             int64_t server_us, struct dibs__error *error);

/* The status of a reply that is an error, or that the script never gives. verb: for example "acquiring". */
dibs_status dibs__redis_reply_error(const struct dibs__redis_store *store, const char *verb, const char *name,
                                    const redisReply *reply, struct dibs__error *error);

/* -------------------------------------------------------------- lock_call.c */

/*
 * A script about one lock, with all that is needed to wait for its reply later. What an operation has begun is a struct
 * whose first member is this one. It takes some KiB, so it is on the heap: the stack of a thread may be small.
 */
struct dibs__lock_call {
    struct dibs__request *request; /* NULL: nothing is under way */
    const struct dibs__op *op;
    size_t channel;
    unsigned tries; /* number of tries to connect that channel that had ended when the call began to wait for one */
    struct dibs__link_view view; /* of the connection that the call goes over */
    struct dibs__call call;
    bool is_plain; /* the last sending was a plain command, so a refusal of scripts does not concern it */
    bool decided;  /* sending the call again would not help */
    bool in_doubt; /* the last sending was not answered, but may have been executed */
    bool repeated; /* an earlier sending may have been executed */
    struct dibs__key keys[DIBS__KEYS];
    char room[1024]; /* for the words, unless they are longer */
};

/* Allocates a struct of that size whose first member is a lock call, about the lock of the operation. NULL: no memory.
 */
void *dibs__lock_call_new(size_t size, const struct dibs__redis_store *store, const struct dibs__op *op);
void dibs__lock_call_free(struct dibs__lock_call *call); /* NULL is fine */

dibs_status dibs__lock_call_no_memory(struct dibs__error *error);

/* Begins the words of a script with the keys of the lock and, with with_member, the key of a member of a quorum. */
void dibs__lock_call_write(struct dibs__lock_call *call, enum dibs__script script, bool with_member);

/*
 * Sets call->view to the connection of call->channel. False: there is none, and one is made in the background. Never
 * blocks.
 */
bool dibs__lock_call_standing(struct dibs__redis_store *store, struct dibs__lock_call *call);

/*
 * Sends the script that was written or, unless `plain` is NULL, that command, on the connection of call->view. error
 * NULL: the call is only begun, and this never blocks. DIBS_INVALID: the server is part of a cluster, and no script may
 * use all keys of the lock, because they are in several of its slots. This is so for every lock of a member of a
 * quorum.
 */
dibs_status dibs__lock_call_send(struct dibs__redis_store *store, struct dibs__lock_call *call,
                                 const struct dibs__command *plain, struct dibs__error *error);

/* What an operation adds to dibs__lock_call_run. */
struct dibs__lock_call_ops {
    /*
     * The channel of the call could not be connected. Chooses another one; false: the call may not go over another.
     * NULL: each sending goes over the channel that dibs__redis_pick returns then.
     */
    bool (*moves)(struct dibs__redis_store *store, struct dibs__lock_call *call);

    /* Sends the call on the connection of call->view, unless it may not go there. error NULL: as above. */
    dibs_status (*send)(struct dibs__redis_store *store, struct dibs__lock_call *call, struct dibs__error *error);

    /* Called if the sending is in doubt, before anything else is sent. NULL: nothing is done. */
    void (*doubt)(struct dibs__redis_store *store, struct dibs__lock_call *call);

    /*
     * Reads the reply; fills exchange->error unless it returns DIBS_OK, DIBS_BUSY or DIBS_NOT_HELD. Clears
     * call->decided if the call must be sent again, with DIBS_UNAVAILABLE. Sets exchange->reply to NULL if it keeps the
     * reply.
     */
    dibs_status (*read)(struct dibs__redis_store *store, struct dibs__lock_call *call, struct dibs__exchange *exchange);
};

/*
 * Connects, sends the call, waits for its reply, and reads it, until the deadline of the operation at most. Sends the
 * call again if its connection broke, or could not be made while it may go over another channel. A call that was begun
 * is only waited for at first. DIBS_UNAVAILABLE also if the node redirected the call. Afterwards nothing is under way,
 * and what the status tells of the server is noted.
 */
dibs_status dibs__lock_call_run(struct dibs__redis_store *store, struct dibs__lock_call *call,
                                const struct dibs__lock_call_ops *ops, struct dibs__error *error);

/* ------------------------------------------------------------- redis_attempt.c */

/*
 * What the store notes with an attempt: the contents of its store_state, which is declared as integers, hence the
 * attribute.
 */
struct __attribute__((__may_alias__)) dibs__redis_attempt {
    int64_t seen_until;        /* another token has the lock until then, as seen_server said; 0: no owner was seen */
    uint64_t seen_server;      /* the server that named that owner; another server may not know the owner */
    uint64_t seen_fence;       /* the last fence that seen_server had given */
    struct dibs__route *doubt; /* of an ask whose outcome is unknown; NULL: there is none */
    unsigned channel;          /* index of the common channel for the asks of the token, plus 1; 0: not chosen yet */
    bool may_lack_fence;       /* the token was asked for by plain commands (ask.c), and no script has answered since: K
                                  may be the token's without a fence of its own */
};

static inline struct dibs__redis_attempt *dibs__redis_attempt_of(struct dibs__attempt *attempt)
{
    return (struct dibs__redis_attempt *)&attempt->store_state;
}

/* One ask as it is sent. */
struct dibs__sending {
    struct dibs__attempt *attempt;
    uint64_t subscription; /* the one that will receive a grant; 0: the token does not queue */
    unsigned slot;         /* of the lock; set if the server has sharded channels */
    uint64_t slot_serial;  /* of the slot's subscription, whose channel the ask names; 0: the ask names the runtime's
                              channel */
    char channel[DIBS__SLOT_CHANNEL_MAX]; /* set with slot_serial */
    int64_t not_after;
    bool leave;                 /* a free lock is left to its former owner */
    struct dibs__relock relock; /* what plain commands ask for; fence 0: a script asks */
};

/* Numbers a new ask of the attempt, which goes over the connection of the call, and composes its words. */
struct dibs__ask_words dibs__sending_compose(struct dibs__redis_store *store, struct dibs__sending *sending,
                                             const struct dibs__lock_call *call);

/*
 * The outcome of the sending is unknown. If the next connection of the same channel may prove the end of this one, asks
 * continue there under the same token; else the token is retired.
 */
void dibs__sending_doubt(struct dibs__redis_store *store, const struct dibs__sending *sending,
                         const struct dibs__lock_call *call, struct dibs__answer *answer);

/* Reads what the server said of the ask. *decided: sending the ask again would not help. */
dibs_status dibs__sending_read(struct dibs__redis_store *store, const struct dibs__sending *sending,
                               const struct dibs__lock_call *call, const redisReply *reply, bool *decided,
                               struct dibs__answer *answer, struct dibs__error *error);

/*
 * Nothing is asked under the token any more, because an ask in doubt can neither be waited for nor followed. The token
 * is retracted, by the route of the ask in doubt; at a member of a quorum only once the attempt is concluded.
 */
void dibs__redis_attempt_retire(struct dibs__redis_store *store, struct dibs__attempt *attempt,
                                struct dibs__answer *answer);

/* Resets the attempt, whose token is being retracted. What is known of the lock stays. */
void dibs__redis_attempt_set_back(struct dibs__attempt *attempt);

/*
 * Sets may_release when an ask of the attempt has ended. It is never set at a member of a quorum, where a top-up may be
 * under way, and a release is one of several.
 */
static inline void dibs__redis_attempt_asked(const struct dibs__redis_store *store, struct dibs__attempt *attempt)
{
    attempt->may_release = attempt->in_store && !store->config.is_member && !dibs__redis_attempt_of(attempt)->doubt;
}

/* Whether a sending whose outcome is unknown may still arrive after what is sent on the connection of `view`. */
bool dibs__redis_attempt_may_be_overtaken(struct dibs__attempt *attempt, const struct dibs__link_view *view);

/* Fills the error, because a fair attempt needs a right that is missing. Returns DIBS_DENIED. */
dibs_status dibs__redis_attempt_no_right(const struct dibs__redis_store *store, const char *to,
                                         struct dibs__error *error);

void dibs__redis_conclude(struct dibs__store *base, struct dibs__attempt *attempt, bool held);

/* ------------------------------------------------------------- retractions.c */

struct dibs__retractions *dibs__retractions_new(struct dibs__redis_store *store); /* NULL: no memory */
void dibs__retractions_free(struct dibs__retractions *retractions); /* the channels must have been freed */

/*
 * Any thread. lease_ms: the longest lease that the token may have; once that must be over at the server, the token is
 * given up. If memory is out, the key is left to its expiry. fence: of the token, 0 if none is known; with it, waiters
 * stop leaving the lock to the token (rule 13). route: of what may still be under way; NULL: nothing is.
 */
void dibs__retractions_add(struct dibs__retractions *retractions, const char *name, const char *token,
                           uint32_t lease_ms, uint64_t fence, const struct dibs__route *route);

/*
 * The scheduler's: attend sends what is due; deadline says when the next is due. carrier: the channel for retractions
 * that can't follow their asks. If it is not connected, these wait for another connection, but not past their own end.
 * changed_at: when the carrier's server took the place of another; 0: never.
 */
void dibs__retractions_attend(struct dibs__retractions *retractions, struct dibs__channel *carrier, int64_t changed_at);
int64_t dibs__retractions_deadline(struct dibs__retractions *retractions);

/* -------------------------------------------------------------------- node.c */

/*
 * Whether the reply redirects the command. If so, notes that in the redirect, unless it is NULL, and tells the cluster
 * where the slot is. node NULL: the server is no node of a cluster. all_moved: an ASK says that none of the command's
 * keys is there any more, since it has only one, or the server tells where they are parted. Otherwise the command must
 * be sent again later.
 */
bool dibs__redis_turned_away(const struct dibs__node_hooks *node, struct dibs__redirect *redirect,
                             const redisReply *reply, bool all_moved);

/* ----------------------------------------------- the operations of store.h */

void dibs__redis_ask_begin(struct dibs__store *base, struct dibs__op *op);
dibs_status dibs__redis_ask_finish(struct dibs__store *base, struct dibs__op *op, struct dibs__error *error);
void dibs__redis_release_begin(struct dibs__store *base, struct dibs__op *op);
dibs_status dibs__redis_release_finish(struct dibs__store *base, struct dibs__op *op, struct dibs__error *error);
/* Writes the token as it is, so that dibs_force_unlock accepts it, or escaped if it does not print or does not fit. */
void dibs__redis_show_token(char *out, size_t size, const char *token, size_t token_size);

dibs_status dibs__redis_force(struct dibs__store *base, struct dibs__op *op, struct dibs__error *error);

enum dibs__progress dibs__redis_progress(struct dibs__store *base, const struct dibs__op *op, struct dibs__wait *wait);

void dibs__redis_retract(struct dibs__store *base, const char *name, const char *token, uint32_t lease_ms,
                         uint64_t fence);

/* The operations that have no more state than their call (stateless.c). */
void dibs__redis_call_begin(struct dibs__store *base, struct dibs__op *op);
dibs_status dibs__redis_call_finish(struct dibs__store *base, struct dibs__op *op, struct dibs__error *error);

/* ---------------------------------------------------------------- tracking.c */

void dibs__tracking_free(struct dibs__redis_store *store);

/* The scheduler's part. attend is called after those of the subscriber and the background channel. */
int64_t dibs__tracking_deadline(const struct dibs__tracking *tracking);
void dibs__tracking_attend(struct dibs__redis_store *store, int64_t now);

/* Any thread. Names a lock that is watched, or would be: the probe gets its key from that name if it has none. */
void dibs__tracking_offer(struct dibs__redis_store *store, const char *name);

/*
 * The scheduler's: leases must be watched, the first of them of that name. Returns the number of the tracking that is
 * on; 0: none is, so nothing can be watched yet.
 */
uint64_t dibs__tracking_watch(struct dibs__redis_store *store, const char *name);

/*
 * The server has read the keys of these leases, which the tracking `on` must watch. Sets their results, unless that
 * tracking is over. False: the reply does not fit the leases.
 */
bool dibs__tracking_take_look(const struct dibs__redis_store *store, uint64_t on, struct dibs__renewal *items,
                              size_t count, const redisReply *reply);

/*
 * Any thread: the server reported that the key, which a NUL follows, was changed; NULL: all keys may have been.
 * context: the store.
 */
void dibs__tracking_changed(void *context, const char *key, size_t size);

/*
 * As can_keep of store.h: while the server reports changes, of whatever name, the subscription is open that recalls
 * come on.
 */
bool dibs__redis_can_keep(struct dibs__store *base, const char *name);
uint64_t dibs__redis_tell_when_free(struct dibs__store *base, const char *name, uint64_t since);

/* walk.c */
dibs_status dibs__redis_walk(struct dibs__store *base, const struct dibs__walk *walk, struct dibs__error *error);

/* examine.c */
dibs_status dibs__redis_examine(struct dibs__store *base, struct dibs__examination *examination,
                                struct dibs__error *error);

void dibs__redis_renew(struct dibs__store *base, struct dibs__batch *batch);
bool dibs__redis_is_unconfirmed(struct dibs__store *base, const struct dibs__lease_store_state *lease);

/* What the store notes with a lease: the contents of its store_state, which is declared as integers. */
struct __attribute__((__may_alias__)) dibs__redis_lease {
    uint64_t server;      /* the server that confirmed the lease last; 0: not known */
    int64_t confirmed_at; /* when the last confirmed request was sent */
};

static inline struct dibs__redis_lease *dibs__redis_lease_of(struct dibs__lease_store_state *store_state)
{
    return (struct dibs__redis_lease *)store_state;
}

#endif
