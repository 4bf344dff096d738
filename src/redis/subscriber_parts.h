/*
 * What the files of a subscriber share, and nobody else includes:
 *
 *     subscriber.c       the serial, waiting for it, trusting it; the reading role, and what is received
 *     subscriber_poll.c  what the scheduler's event loop calls: tries, PINGs, the end of a subscription
 *     subscriber_slots.c the subscriptions of slots, all on the link of the subscription
 *
 * Lock discipline
 *
 * Only the scheduler's thread makes, writes to and frees the link. The thread that has the reading role reads from the
 * link, without a lock. `role_holder` says which thread that is. The link is freed only while the scheduler's thread
 * has the role:
 *
 * - A thread that begins to wait in listen takes the role, unless another such thread has it. From the scheduler's
 *   thread it takes the role only while that thread is in poll(2). At the end of its wait, the thread gives the role to
 *   the one that has waited longest. If none waits, nobody has the role for some time, because most likely another
 *   thread will wait soon. Then the scheduler's thread takes it. That time is short if some messages are for no thread
 *   in listen (`unheard`).
 * - The scheduler's thread asks for the role if the subscription must end or a PING was not answered (`recalled`): the
 *   reading thread comes back from its poll(2), and leaves the role to the scheduler's thread.
 *
 * So while a thread waits in listen, some thread always reads, and each message wakes at most one thread more than the
 * one that it is for.
 *
 * Other fields are atomics that threads share with the scheduler:
 *
 * - wanted (of the connector): set by any thread, for good.
 * - needed (of the connector): set by a thread that waits for a subscription. That thread reads unconfirmed_count
 *   afterwards. The scheduler looks at these two in the opposite order, so one of the two threads sees what the other
 *   has done.
 * - serial: set to a new number only by the scheduler, and to 0 by any thread: this is how a subscription is
 *   distrusted, and how a reading thread says that the link can't be used any more. The scheduler then finds a
 *   subscription without a serial, and ends it.
 * - confirmed: only rises. A thread that confirms a serial looks afterwards whether that is still the current one. If
 *   it is, the scheduler will find it confirmed when it comes to tell that the subscription was lost.
 *
 * `mutex` guards the reading role, how the tries ended, and the slots. It is held for some assignments, never across
 * I/O or a callback; only the mutex of a sleeper is locked beneath it. A new serial is set under it, so that a waiting
 * thread misses none. A thread that waits for a subscription sleeps on `changed` until serial is not 0, or a try that
 * ended meanwhile has failed, or the last try was denied (the next is seconds away), or its deadline. A thread that
 * waits in listen sleeps by its wait event until it is woken, or has the reading role, or its time has come.
 */
#ifndef DIBS_REDIS_SUBSCRIBER_PARTS_H
#define DIBS_REDIS_SUBSCRIBER_PARTS_H

#include "base/list.h"
#include "redis/subscriber.h"

#define DIBS__CHANGES "__redis__:invalidate" /* the channel on which Redis tells which keys have changed */
#define DIBS__UNCONFIRMED_FIRST_MS 10        /* the first pause between subscriptions that nothing confirms */

DIBS__MUTEX_CLASS(subscriber_mutex);

/* The owner of the reading role. */
enum dibs__role_holder {
    DIBS__ROLE_HOLDER_SCHEDULER, /* the scheduler's thread, which is about to use it; or there is no subscription */
    DIBS__ROLE_HOLDER_POLL,   /* the scheduler's thread, once its poll(2) has returned; a thread may take it before that
                               */
    DIBS__ROLE_HOLDER_THREAD, /* a thread in listen */
    DIBS__ROLE_HOLDER_NOBODY, /* no thread is in listen; the scheduler's thread takes the role at `idle_until` */
};

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
    atomic_uint count;   /* atomic; changed under mutex; number of slots in the buckets */
    _Atomic int64_t due; /* atomic; changed under mutex; when something must be done about a slot, or earlier */
    atomic_bool asked;   /* atomic; set by the scheduler; SSUBSCRIBE was sent on this link */
    atomic_bool lost;    /* atomic; one was lost: the scheduler must tell that messages may have been lost */
};

/* A thread in listen that does not have the reading role. It is on the thread's stack. */
struct dibs__listening {
    DIBS__LINKS(struct dibs__listening) links DIBS__GUARDED_BY(subscriber_mutex);
    struct dibs__wait_event *wait_event; /* read-only */
    atomic_bool reads; /* atomic; set under mutex; the thread has got the role, and is no longer listed */
};

struct dibs__subscriber {
    struct dibs__endpoint *endpoint;     /* read-only after new */
    struct dibs__subscriber_hooks hooks; /* read-only after new */

    struct dibs__connector connector; /* the scheduler thread's; any thread may set `wanted` and `needed` */
    struct dibs__link *link; /* the scheduler thread's, read by the reading role; the link of the current subscription;
                                NULL: there is none */
    bool hears_wanted;       /* the scheduler thread's; changes must be heard */
    bool hears_asked;        /* the scheduler thread's; changes were subscribed to on this link */
    bool relied_on;          /* the scheduler thread's; there was a subscription, and no try has failed since */
    uint64_t last_serial;    /* the scheduler thread's, read by the reading role; serial of the newest subscription */
    int64_t pinged_after; /* the scheduler thread's; `last_received_at` when PING was sent; as long as these are equal,
                             the PING is not answered */
    int64_t pinged_until; /* the scheduler thread's; while a PING is not answered: when an answer must have come */
    int64_t stood_at;     /* the scheduler thread's; when the last subscription was confirmed */
    struct dibs__backoff retry; /* the scheduler thread's; pauses between subscriptions that nothing confirms */
    struct dibs__wake bell;     /* has its own atomic; ends the poll(2) of a thread that has the reading role */

    _Atomic int64_t last_received_at; /* atomic; written by the reading role; when something was last received */
    atomic_bool recalled;           /* atomic; changed under mutex; the scheduler's thread asks for the reading role */
    atomic_bool unheard;            /* atomic; set under mutex, for good; some messages are for no thread in listen */
    atomic_uint unconfirmed_count;  /* atomic; written by the scheduler; number of subscriptions in a row that nothing
                                       confirmed */
    atomic_uint_fast64_t serial;    /* atomic; serial of the current subscription, if it is trusted; 0: there is none */
    atomic_uint_fast64_t confirmed; /* atomic; the newest subscription that the server is known to have had */
    atomic_uint_fast64_t hears;     /* atomic; the newest subscription that hears changes */
    atomic_uint tries;              /* atomic; changed under mutex; number of tries that have ended */

    struct dibs__slots slots; /* has its own guards */

    struct dibs__mutex mutex;
    pthread_cond_t changed;
    struct dibs__error failure DIBS__GUARDED_BY(subscriber_mutex); /* error of the last try; DIBS_OK: it succeeded */
    enum dibs__role_holder role_holder DIBS__GUARDED_BY(subscriber_mutex);
    int64_t idle_until DIBS__GUARDED_BY(subscriber_mutex);            /* valid with DIBS__ROLE_HOLDER_NOBODY */
    struct dibs__listening *first DIBS__GUARDED_BY(subscriber_mutex); /* in the order in which they came */
};

/* True: a subscription was replaced because nothing confirmed it, and nothing confirmed the next one either. */
static inline bool dibs__subscriber_is_unconfirmed(const struct dibs__subscriber *subscriber)
{
    return atomic_load(&subscriber->unconfirmed_count) > 1;
}

/* The reading role, for the compiler's analysis: a thread has it between taking and leaving it. */
extern struct dibs__mutex_class dibs__reading_role;

/* --------------------------------------------------------------- subscriber.c */

/* Takes the replies that have been received. Any status but DIBS_OK: the link can't be used any more. */
dibs_status dibs__subscriber_take(struct dibs__subscriber *subscriber, int64_t now, struct dibs__error *error)
    DIBS__REQUIRES(dibs__reading_role) DIBS__EXCLUDES(subscriber_mutex);

/* Receives, at most one buffer full, and then takes the replies. The caller comes back for the rest. */
dibs_status dibs__subscriber_read(struct dibs__subscriber *subscriber, int64_t now, struct dibs__error *error)
    DIBS__REQUIRES(dibs__reading_role) DIBS__EXCLUDES(subscriber_mutex);

/*
 * Called by the scheduler: takes the reading role if it can. False: a thread has it, or nobody has it and nobody needs
 * it yet. need: the scheduler's thread needs the role soon, whoever has it now.
 */
bool dibs__subscriber_take_reading(struct dibs__subscriber *subscriber, bool need, int64_t now)
    DIBS__EXCLUDES(subscriber_mutex);

/* The calling thread has the role, and begins to use it. Not analysed: the role is a variable. */
static inline void dibs__subscriber_begin_reading(const struct dibs__subscriber *subscriber)
    DIBS__ACQUIRES(dibs__reading_role) DIBS__UNANALYSED
{
    (void)subscriber;
}

/* Called by the scheduler, which has the role: if there is a subscription, a thread may read from now on. */
void dibs__subscriber_end_reading(struct dibs__subscriber *subscriber) DIBS__RELEASES(dibs__reading_role)
    DIBS__EXCLUDES(subscriber_mutex);

/* --------------------------------------------------------- subscriber_slots.c */

/*
 * Takes a reply about the subscription of a slot, or a message on its channel. False: the reply is neither. Requires a
 * subscription.
 */
bool dibs__slots_take(struct dibs__subscriber *subscriber, const redisReply *reply, int64_t now)
    DIBS__REQUIRES(dibs__reading_role) DIBS__EXCLUDES(subscriber_mutex);

/* Whether the error may be the answer to a command about a slot. */
bool dibs__slots_explain(const struct dibs__subscriber *subscriber, const redisReply *error);

/* Called by the scheduler while there is a subscription: writes what is due to the link's `out`. */
dibs_status dibs__slots_ask(struct dibs__subscriber *subscriber, int64_t now, struct dibs__error *error)
    DIBS__EXCLUDES(subscriber_mutex);

/* Called by the scheduler when the link has ended. */
void dibs__slots_drop(struct dibs__subscriber *subscriber) DIBS__EXCLUDES(subscriber_mutex);

void dibs__slots_free(struct dibs__slots *slots);

/* ---------------------------------------------------------- subscriber_poll.c */

/* Called by the scheduler: writes a command to the link's `out`. arg NULL: the command has no argument. */
dibs_status dibs__subscriber_write(struct dibs__subscriber *subscriber, const char *command, const char *arg,
                                   struct dibs__error *error);

#endif
