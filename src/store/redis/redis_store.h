/*
 * The store on one Redis server, as its files share it:
 *   redis_store.c  opening, closing, and the scheduler's part
 *   channels.c     which connection is used for what, and whether the server can be reached
 *   lock_call.c    one script about one lock, on one of those connections
 *   redis_attempt.c    what is known of an attempt, and what the server says of its asks
 *   relocks.c      fences that the process may use again; relock.c: an ask for one of them
 *   ask.c, release.c, query.c, walk.c, force.c, renew.c, member.c, examine.c: the operations of store.h
 *   retractions.c  tokens that are deleted in the background; retract_batch.c: their way to the server
 *   node.c         what a node of a cluster does beside: which slots are where; redirect.c: what it turns away
 *   tracking.c     how the server tells that locks have changed
 *   codec.c, keys.c, push.c: the forms of what is sent and received
 *
 * Lock discipline: `mutex` guards which of the exclusive channels are in use,
 * `relocks`, `restored`, the retractions, and what tracking.c shares. It also makes one
 * thing of a change of `down` and of telling the listener, so that each change is
 * told, and in order: that call alone is made while it is held.
 */
#ifndef DIBS_STORE_REDIS_STORE_H
#define DIBS_STORE_REDIS_STORE_H

#include "redis/call.h"
#include "redis/sentinel.h"
#include "redis/subscriber.h"
#include "store/redis/keys.h"
#include "store/redis/redis.h"
#include "store/redis/redirect.h"
#include "store/redis/relocks.h"
#include "store/redis/retractions.h"
#include "store/redis/route.h"
#include "store/store.h"

#define DIBS__SHARED 3             /* with the one of the scheduler and that of the subscriber five connections */
#define DIBS__RESENDS DIBS__SHARED /* of a command whose connection broke: all shared ones may have ended unnoticed */
#define DIBS__EXCLUSIVE 8          /* only where grants are confirmed: see dibs__redis_confirms */

struct dibs__redis_store;

enum dibs__tracking_state {
    DIBS__TRACKING_IDLE,    /* not tried yet with the pair, or there is none */
    DIBS__TRACKING_PROBING, /* the probe was written; the server has not told of it yet */
    DIBS__TRACKING_ON,
    DIBS__TRACKING_REFUSED /* it does not work with this pair, for now or for good */
};

/* A name that a foreign client has, and whose key must be read. */
struct dibs__foreign {
    struct dibs__redis_store *store;
    struct dibs__foreign *next;
    char name[];
};

/* How the server tells of changes (tracking.c). The fields are the scheduler thread's where nothing else is said. */
struct dibs__tracking {
    atomic_bool wanted; /* atomic; set for good by the first that has something to watch */
    enum dibs__tracking_state state;
    uint64_t link, subscription;                                /* the serials of the pair */
    unsigned unanswered;                                        /* of the commands that begin to track */
    bool enabled;                                               /* the first of them was accepted: the server tracks */
    bool refused;                                               /* one of them was not */
    bool for_now;                                               /* what was refused may be granted later */
    int64_t until;                                              /* when the server must have told of the probe; refused:
                                                                   when it is tried again */
    uint64_t last;                                              /* of the trackings that were on */
    atomic_uint_fast64_t on;                                    /* atomic; which tracking is on; 0: none is */
    atomic_bool heard;                                          /* atomic; the server has told of the probe */
    atomic_bool flushed;                                        /* atomic; meanwhile all keys were deleted, maybe the
                                                                   probe's before the server told of it */
    struct dibs__key probe DIBS__GUARDED_BY(dibs__redis_mutex); /* empty: no name is known for it yet */
    struct dibs__foreign *foreign DIBS__GUARDED_BY(dibs__redis_mutex);
};

struct dibs__redis_store {
    struct dibs__store store;                                       /* read-only after open */
    struct dibs__store_config config;                               /* read-only after open */
    struct dibs__endpoint endpoint;                                 /* has its own guards */
    struct dibs__channel *channels[DIBS__SHARED + DIBS__EXCLUSIVE]; /* read-only after open */
    size_t channel_count;                                           /* read-only after open */
    struct dibs__channel *background;      /* read-only after open; the scheduler thread's to use */
    struct dibs__retractions *retractions; /* read-only after open */
    struct dibs__subscriber *subscriber;   /* read-only after open */
    struct dibs__sentinel *sentinel;       /* read-only after open; NULL: the URL has the address of the server */
    uint64_t told;                         /* the scheduler thread's; what the sentinels had told when it looked last */
    struct dibs__tracking tracking;        /* has its own guards */
    atomic_bool down;                      /* written under the mutex; the listener was told so */
    atomic_bool doubted;             /* atomic: other connections stand, but the server was silent to a new one, so the
                                        scheduler must try them */
    atomic_bool reopened;            /* atomic: a connection was made, maybe to another server */
    _Atomic uint64_t renewal_server; /* atomic, written by the scheduler's thread: the server that renewals go to; 0:
                                        not known */
    _Atomic uint64_t first_server;   /* atomic: the one that gave the first answer to an ask; 0: none did */
    _Atomic uint64_t no_delete_if;   /* atomic: the server that does not let us delete a key by its value (rule 71); 0:
                                        none is known */
    _Atomic int64_t last_reply_at; /* atomic: when the server last gave an answer other than that it can't serve now */
    _Atomic int64_t changed_at;    /* atomic, written by the scheduler's thread: when that was another server last */
    struct dibs__mutex mutex;
    pthread_cond_t exclusive_freed; /* an exclusive channel is not in use any more */
    bool in_use[DIBS__SHARED + DIBS__EXCLUSIVE] DIBS__GUARDED_BY(dibs__redis_mutex);
    unsigned
        choosy DIBS__GUARDED_BY(dibs__redis_mutex); /* threads that wait for an exclusive channel that is connected */
    struct dibs__relocks *relocks DIBS__GUARDED_BY(dibs__redis_mutex); /* NULL: nothing was noted yet */
    /* Of what restores leases: the first connection of those from which it may still come, and the last not-after;
       channel NULL: none. */
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

/* The number of the quorum that the server is a member of; 0: not known, or of none. */
static inline uint64_t dibs__redis_quorum(const struct dibs__redis_store *store)
{
    return store->config.quorum ? atomic_load_explicit(store->config.quorum, memory_order_relaxed) : 0;
}

/* --------------------------------------------------------------- channels.c */

/* DIBS_STORE_ERROR where grants must be on the server's disk, and nothing reliable tells whether they are. */
dibs_status dibs__redis_check_disk(const struct dibs__redis_store *store, const struct dibs__link_view *view,
                                   struct dibs__error *error);

struct dibs__channel_hooks dibs__redis_hooks(struct dibs__redis_store *store);

/*
 * The least busy of the shared channels that are connected, the first among
 * equals: so few threads use few connections. Where all of those are busy, one
 * more is connected in the background. Where none is connected, the caller
 * must connect the one that is returned.
 */
size_t dibs__redis_pick(struct dibs__redis_store *store);

/* Whether a channel other than this one, of its kind, stands, as far as a look can tell. */
bool dibs__redis_another_is_connected(struct dibs__redis_store *store, size_t channel);

/*
 * An exclusive channel for the caller, which must give it back; false where none came
 * free until the deadline. One that is connected, if there is a free one, and
 * with `connected` only such a one.
 */
bool dibs__redis_take_exclusive(struct dibs__redis_store *store, bool connected, int64_t deadline, size_t *out);
void dibs__redis_give_back(struct dibs__redis_store *store, size_t exclusive);

/*
 * An exclusive channel that is not connected will be, in the background, if there is one that nobody uses. Returns
 * which, with *tries as of dibs__channel_need; channel_count: none is free.
 */
size_t dibs__redis_want_exclusive(struct dibs__redis_store *store, unsigned *tries);

#define DIBS__AT_ONCE_MS 1 /* an answer's again_ms where the lock is free or about to be */

/*
 * A script freed the lock, but did not serve its queue to the end, because that
 * is long: goes on in the background until somebody has the lock, or nobody waits.
 */
void dibs__redis_go_on(struct dibs__redis_store *store, const char *name);

/* The server that renewals go to, or, before they go anywhere, that asks went to; 0: there was none yet. */
uint64_t dibs__redis_known_server(const struct dibs__redis_store *store);

/* When this server took the place of another, as far as is known; 0: it did not. */
int64_t dibs__redis_changed_at(const struct dibs__redis_store *store, uint64_t server);

/*
 * Whether waiters may leave a lock to its owner because they saw that, for lease_ms at most, at another server than
 * this one: the store's server is another, or has been for less than that time.
 */
bool dibs__redis_changed_within(const struct dibs__redis_store *store, uint64_t server, uint32_t lease_ms);

/* Notes the status of a call: unless that is DIBS_UNAVAILABLE, the server was heard; if it served, it can be reached.
 */
void dibs__redis_note_reply(struct dibs__redis_store *store, dibs_status status);

/*
 * Whether a command may be sent again: its connection broke, there is time, it was not sent too often, and its node did
 * not turn it away.
 */
struct dibs__lock_call;
bool dibs__redis_once_more(struct dibs__redis_store *store, const struct dibs__lock_call *call, dibs_status status,
                           int *resends, int64_t deadline);

/*
 * Until when, on the server's clock in us, a command that is sent now on that
 * connection may be executed. Every command that would do harm later carries
 * this time: whether a later connection can end this one is known only then.
 */
int64_t dibs__redis_not_after(const struct dibs__redis_store *store, const struct dibs__link_view *view, int64_t now);

/* The server called a command on that connection too late, and told its clock in us: notes that, fills the error. */
dibs_status dibs__redis_late(struct dibs__redis_store *store, struct dibs__channel *channel, uint64_t serial,
                             int64_t server_us, struct dibs__error *error);

/* The status of a reply that is an error, or none that the script gives. verb: "acquiring". */
dibs_status dibs__redis_reply_error(const struct dibs__redis_store *store, const char *verb, const char *name,
                                    const redisReply *reply, struct dibs__error *error);

/* -------------------------------------------------------------- lock_call.c */

/*
 * A script about one lock, with all that it takes to wait for its reply later.
 * What is begun hangs from a struct whose first member is this one. Some KiB:
 * on the heap, for the stack of a thread may be a small one.
 */
struct dibs__lock_call {
    struct dibs__request *request;   /* NULL: nothing is under way */
    struct dibs__redirect *redirect; /* of a node of a cluster; else NULL */
    size_t channel;
    unsigned tries;              /* how many had ended to connect that channel when the call waited for it */
    struct dibs__link_view view; /* of the connection that the call goes over */
    struct dibs__call call;
    bool is_plain;            /* what was sent last is no script, so a refusal of scripts is none of it */
    struct dibs__error error; /* of what is begun, until it is finished */
    struct dibs__key keys[DIBS__KEYS];
};

/* A struct of that size that begins with a lock call, about the lock of the operation; for free(3). NULL: no memory. */
void *dibs__lock_call_new(size_t size, const struct dibs__redis_store *store, const struct dibs__op *op);

dibs_status dibs__lock_call_no_memory(struct dibs__error *error);

/* Begins the words of a script: the keys are added; with_member: that of a member of a quorum behind them. */
void dibs__lock_call_write(struct dibs__lock_call *call, enum dibs__script script, bool with_member);

/*
 * The connection of call->channel. To connect blocks, at most until the
 * deadline; standing shows one that stands, and asks for one in the background
 * where none does.
 */
dibs_status dibs__lock_call_connect(struct dibs__redis_store *store, struct dibs__lock_call *call, int64_t deadline,
                                    struct dibs__error *error);
bool dibs__lock_call_standing(struct dibs__redis_store *store, struct dibs__lock_call *call);

/*
 * DIBS_INVALID where the server is part of a cluster and the keys of the lock
 * would lie in several of its slots: no script may touch them all. So it is
 * with every lock of a member of a quorum.
 */
dibs_status dibs__lock_call_check_slots(const struct dibs__redis_store *store, const struct dibs__lock_call *call,
                                        struct dibs__error *error);

/* Sends the script that was written, or that plain command. NULL error: begins, never blocks. */
dibs_status dibs__lock_call_send(struct dibs__redis_store *store, struct dibs__lock_call *call,
                                 const struct dibs__command *plain, int64_t deadline, struct dibs__error *error);

/* As dibs__call_finish. Afterwards nothing is under way. Where the node turned the call away: DIBS_UNAVAILABLE. */
dibs_status dibs__lock_call_finish(struct dibs__redis_store *store, struct dibs__lock_call *call,
                                   struct dibs__exchange *exchange);

/* ------------------------------------------------------------- redis_attempt.c */

/* What the store notes with an attempt. Lies in the store state, whatever type that has. */
struct __attribute__((__may_alias__)) dibs__redis_attempt {
    int64_t seen_until;        /* the lock is another's until then, as seen_server said; 0: none was seen */
    uint64_t seen_server;      /* a server other than this one may not know that owner */
    uint64_t seen_fence;       /* the last fence that seen_server had given */
    struct dibs__route *doubt; /* of an ask whose outcome is unknown; NULL: there is none */
    unsigned route;            /* 1 more than the shared channel that the asks of the token go over; 0: none yet */
    bool relocked; /* by plain commands (relock.c), and no script has answered since: K may be the token's without a
                      fence of its own */
};

static inline struct dibs__redis_attempt *dibs__redis_attempt_of(struct dibs__attempt *attempt)
{
    return (struct dibs__redis_attempt *)&attempt->store_state;
}

/* One ask as it is sent. */
struct dibs__sending {
    struct dibs__attempt *attempt;
    uint64_t subscription; /* that will hear of a grant; 0: the token does not queue */
    unsigned slot;         /* of the lock; set where the server has sharded channels */
    uint64_t slot_serial;  /* of the slot's subscription, whose channel is named; 0: the runtime's own is */
    char channel[DIBS__SLOT_CHANNEL_MAX]; /* set with slot_serial */
    int64_t not_after;
    bool leave;                 /* a lock that is free is left to its owner */
    struct dibs__relock relock; /* what plain commands ask for; fence 0: a script asks */
};

/* The words of the ask on the connection of the call, for the codec: a new ask of the attempt begins. */
struct dibs__ask_words dibs__sending_begin(struct dibs__redis_store *store, struct dibs__sending *sending,
                                           const struct dibs__lock_call *call);

/*
 * The outcome of the sending is unknown. Where the next connection of the same
 * channel may prove the end of this one, asks go on there under the same token;
 * else that token is retired.
 */
void dibs__sending_doubt(struct dibs__redis_store *store, const struct dibs__sending *sending,
                         const struct dibs__lock_call *call, struct dibs__answer *answer);

/* What the server said of the ask. *decided: so that sending it again would not help. */
dibs_status dibs__sending_read(struct dibs__redis_store *store, const struct dibs__sending *sending,
                               const struct dibs__lock_call *call, const redisReply *reply, bool *decided,
                               struct dibs__answer *answer, struct dibs__error *error);

/* relock.c: the ask by plain commands, and what they said. Not granted: a script must ask next. */
dibs_status dibs__sending_relock(struct dibs__redis_store *store, struct dibs__sending *sending,
                                 struct dibs__lock_call *call, int64_t deadline, struct dibs__error *error);
dibs_status dibs__sending_read_relock(struct dibs__redis_store *store, const struct dibs__sending *sending,
                                      const struct dibs__exchange *exchange, bool *decided,
                                      struct dibs__answer *answer);

/*
 * Nothing is asked for under the token any more, because an ask in doubt can
 * neither be waited for nor followed. The token is retracted, by the way that
 * the ask in doubt went; at a member of a quorum once the attempt is concluded.
 */
void dibs__redis_attempt_retire(struct dibs__redis_store *store, struct dibs__attempt *attempt,
                                struct dibs__answer *answer);

/* Sets back the attempt, whose token is being retracted. What is known of the lock stays. */
void dibs__redis_attempt_set_back(struct dibs__attempt *attempt);

/* An ask of the attempt has ended. At a member of a quorum a top-up may be under way, and its release is one of
 * several.
 */
static inline void dibs__redis_attempt_asked(const struct dibs__redis_store *store, struct dibs__attempt *attempt)
{
    attempt->may_release = attempt->in_store && !store->config.is_member && !dibs__redis_attempt_of(attempt)->doubt;
}

/* Whether a sending whose outcome is unknown may still arrive after what is sent on the connection of `view`. */
bool dibs__redis_attempt_may_be_overtaken(struct dibs__attempt *attempt, const struct dibs__link_view *view);

/* A right that a fair attempt needs is missing: DIBS_DENIED. */
dibs_status dibs__redis_attempt_no_right(const struct dibs__redis_store *store, const char *to,
                                         struct dibs__error *error);

void dibs__redis_conclude(struct dibs__store *base, struct dibs__attempt *attempt, bool held);

/* ----------------------------------------------- the operations of store.h */

void dibs__redis_ask_begin(struct dibs__store *base, struct dibs__op *op);
dibs_status dibs__redis_ask_finish(struct dibs__store *base, struct dibs__op *op, struct dibs__error *error);
void dibs__redis_release_begin(struct dibs__store *base, struct dibs__op *op);
dibs_status dibs__redis_release_finish(struct dibs__store *base, struct dibs__op *op, struct dibs__error *error);
/* The token as it is, so that dibs_force_unlock takes it; escaped if it does not print or does not fit. */
void dibs__redis_show_token(char *out, size_t size, const char *token, size_t token_size);

dibs_status dibs__redis_force(struct dibs__store *base, struct dibs__op *op, struct dibs__error *error);

enum dibs__progress dibs__redis_progress(struct dibs__store *base, const struct dibs__op *op, struct dibs__wait *wait);

void dibs__redis_retract(struct dibs__store *base, const char *name, const char *token, uint32_t lease_ms,
                         uint64_t fence);

/*
 * query.c: runs a call on a shared channel, again where its connection broke or
 * could not be made though another stands. write: the words, for the connection
 * that the call shows. *repeated: an earlier sending may have been executed.
 */
typedef void dibs__write_fn(const struct dibs__redis_store *store, struct dibs__lock_call *call, const void *context);
dibs_status dibs__redis_run_shared(struct dibs__redis_store *store, struct dibs__lock_call *call, dibs__write_fn *write,
                                   const void *context, struct dibs__exchange *exchange, bool *repeated);

/* An operation that is one script on a shared channel. query.c: how it is begun and finished. */
struct dibs__shared_op {
    dibs__write_fn *write; /* context: the operation */

    /* What the server said. DIBS_TIMEOUT: nothing was done, because the server's clock is not what was believed; the
     * error has another status. */
    dibs_status (*read)(struct dibs__redis_store *store, const struct dibs__op *op, const struct dibs__lock_call *call,
                        const redisReply *reply, struct dibs__error *error);
};

extern const struct dibs__shared_op dibs__redis_query, dibs__redis_vote, dibs__redis_raise, dibs__redis_forget;

void dibs__redis_shared_begin(struct dibs__redis_store *store, const struct dibs__shared_op *how, struct dibs__op *op);
dibs_status dibs__redis_shared_finish(struct dibs__redis_store *store, const struct dibs__shared_op *how,
                                      struct dibs__op *op, struct dibs__error *error);

/* query.c: DIBS_OK: exchange->reply is what the server said of the owner, read into *owner; the caller's. */
struct dibs__query_reply;
dibs_status dibs__redis_look(struct dibs__redis_store *store, struct dibs__lock_call *call, const char *name,
                             struct dibs__query_reply *owner, struct dibs__exchange *exchange);

/* ---------------------------------------------------------------- tracking.c */

void dibs__tracking_free(struct dibs__redis_store *store);

/* The scheduler's part. To attend: behind the subscriber and the background connection. */
int64_t dibs__tracking_deadline(const struct dibs__tracking *tracking);
void dibs__tracking_attend(struct dibs__redis_store *store, int64_t now);

/* Any thread: a name that is watched, or would be; it gives the probe its key, where that lacks one. */
void dibs__tracking_offer(struct dibs__redis_store *store, const char *name);

/*
 * The scheduler's: leases must be watched, the first of that name. Which tracking is on; 0: none is, so nothing can be
 * watched yet.
 */
uint64_t dibs__tracking_watch(struct dibs__redis_store *store, const char *name);

/*
 * The server read the keys of these leases, which that tracking is to watch: sets their results, unless it is not on
 * any more. False: that is no such reply.
 */
bool dibs__tracking_take_look(const struct dibs__redis_store *store, uint64_t on, struct dibs__renewal *items,
                              size_t count, const redisReply *reply);

/* Any thread: the server told that the key was changed; NULL: that all may have been. context: the store. */
void dibs__tracking_changed(void *context, const char *key, size_t size);

/* As recalls of store.h: while the server tells of changes, of whatever name, the subscription stands on which recalls
 * come. */
bool dibs__redis_recalls(struct dibs__store *base, const char *name);
uint64_t dibs__redis_tell_when_free(struct dibs__store *base, const char *name, uint64_t since);

/* walk.c */
dibs_status dibs__redis_walk(struct dibs__store *base, const struct dibs__walk *walk, struct dibs__error *error);

/* examine.c */
dibs_status dibs__redis_examine(struct dibs__store *base, struct dibs__examination *examination,
                                struct dibs__error *error);

void dibs__redis_renew(struct dibs__store *base, struct dibs__batch *batch);
bool dibs__redis_is_unconfirmed(struct dibs__store *base, const struct dibs__lease_store_state *lease);

/* What the store notes with a lease. Lies in the store state, whatever type that has. */
struct __attribute__((__may_alias__)) dibs__redis_lease {
    uint64_t server;      /* that confirmed the lease last; 0: not known */
    int64_t confirmed_at; /* when the request that was confirmed so was sent */
};

/* What the store notes with extensions that were sent and never answered. Lies in the store state, too. */
struct __attribute__((__may_alias__)) dibs__redis_extension {
    uint64_t serial;   /* of the connection that the first of them went over */
    int64_t not_after; /* the server ignores the last of them after this time */
};

static inline struct dibs__redis_lease *dibs__redis_lease_of(struct dibs__lease_store_state *store_state)
{
    return (struct dibs__redis_lease *)store_state;
}

static inline struct dibs__redis_extension *dibs__redis_extension_of(struct dibs__extension_store_state *store_state)
{
    return (struct dibs__redis_extension *)store_state;
}

#endif
