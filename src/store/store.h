/*
 * The contract between the core and what keeps the locks. A store knows names
 * and tokens, and grants a name to a token for a lease. Nothing else about
 * threads, holds or runtimes is its business.
 *
 * What happens to one lock. An attempt stands for one acquire. It is asked for,
 * perhaps again and again, until the lock is granted: by the answer to an ask, or
 * later through the listener, by which the store reports what nobody asked for
 * just then. Then, or when its caller gives up, the attempt is concluded. The
 * lease is renewed in batches. It ends by a release, which a caller waits for, or
 * by a retraction, which runs in the background.
 *
 * Operations. What a thread asks of a store, such as an ask or a release, is a
 * struct dibs__op: the kind says what, and which member of its union counts. Three
 * functions carry out every kind, so that one thread can have several stores work
 * at the same time without a thread for each.
 *   begin   sends what can be sent without waiting. It never blocks, and reports
 *           no failure. Where no connection stands nothing is sent: one is made
 *           in the background, and finish does the whole. What was begun and
 *           not sent may be begun again.
 *   progress says how far it is, and has the calling thread woken when that
 *           changes. So one thread waits for the replies of many operations, at
 *           any number of stores, in one poll(2); the rest is left to finish.
 *   finish  waits for the reply at most until the deadline and does all else:
 *           it sends again where a connection broke, moves to another one, reads
 *           the reply and retracts. A reply that has come is taken even after
 *           the deadline, so a store that hangs does not cost the caller the
 *           replies of the others. (With min_replicas or durable, replicas or
 *           the disk are waited for here, which takes time before the deadline.)
 *           The outcome is final when finish returns.
 * What was begun must be finished: once, by one thread, before anything else is
 * done with its attempt, and before the store is closed. Until then the struct
 * stays where it is; of its fields only the deadline may be changed. finish
 * without begin does the whole, and is what a caller with one store wants.
 *
 * Calls block at most until their deadline (by the clock given at the opening)
 * and may come from any thread. Those marked "the scheduler's" come only from its
 * thread, and never block. A call that fails fills its error, one that succeeds leaves the
 * error alone.
 */
#ifndef DIBS_STORE_STORE_H
#define DIBS_STORE_STORE_H

#include <poll.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/wait.h"

#define DIBS__TOKEN_MAX 192    /* with the NUL */
#define DIBS__TOKEN_SHARED '~' /* in the token of a shared acquire; the limit follows, and ends the token */
#define DIBS__TOKEN_KEEPS '!'  /* at the end of a token whose lease its process may keep */
#define DIBS__LEASE_MAX_MS 86400000
#define DIBS__PREFIX_MAX 512 /* bytes of a key_prefix */

struct dibs__redirect;

/* What a store notes with an attempt. The store's own; zero at first. */
struct dibs__attempt_store_state {
    uint64_t words[5];
    uint64_t outer[2]; /* of a store that is built on other stores: `words` are those of one of them */
};

/* What a store notes with a lease. The store's own; it is set with the grant, and with each renewal. */
struct dibs__lease_store_state {
    uint64_t words[2];
};

/* What a store notes with an extension that was sent and never answered. The store's own; zero: there is none. */
struct dibs__extension_store_state {
    uint64_t words[2];
};

/*
 * What stands for an acquire in the store under one token, over all its asks,
 * which are numbered. A grant that comes by the listener names the ask that
 * proves it. Used by one thread at a time. Before the first ask all fields from
 * `number` on are zero.
 *
 * A token may be retired, or an attempt concluded as not held. The store then
 * clears all that it sets, from `number` on, and keeps in store_state only what it
 * knows of the lock. The attempt may go on: the caller only gives it a new token
 * before the next ask.
 */
struct dibs__attempt {
    const char *name, *token; /* the token is unique to the attempt */
    uint32_t lease_ms;
    bool wait;   /* taken: the token joins the queue of the name, if the store can do that now */
    bool shared; /* others may hold the lock too, if they share it. The token has DIBS__TOKEN_SHARED, then the limit */
    uint32_t limit; /* with shared: how many may hold the lock at a time; 0: any number */
    bool fair;      /* with wait: the token must join the queue; where it cannot, the ask fails */
    bool hint; /* with wait: who releases the lock gives it to nobody, but tells the first in the queue that the lock
                  may be free: a grant with fence 0 and confirm. With is_member: always */

    uint64_t number;  /* set by the store: of the last ask; zero before the first ask of a token */
    int64_t proof;    /* set by the store: when the last ask was about to be sent. A lease that the ask
                         proves lasts at least from there */
    bool in_store;    /* set by the store: it may know the token, in the queue or as the owner */
    bool may_release; /* set by the store: in_store, and no ask is in doubt. Then the attempt may be concluded as held
                         and the token released, which also takes it out of the queue, instead of retracting in the
                         background */
    struct dibs__lease_store_state lease; /* set by the store: of a lease that the last ask proves */
    struct dibs__attempt_store_state store_state;
};

/* What became of the token of an ask. */
enum dibs__retirement {
    DIBS__NOT_RETIRED,
    DIBS__RETIRED, /* the store retracts it: the next ask has a new one */
    DIBS__STUCK /* of a member: the next ask has a new one. An ask under the old token may still arrive, so that token
                   is retracted only once the attempt is concluded; until then a renewal may set the lock */
};

/* Why an ask was not granted, where its status does not tell. */
enum dibs__why {
    DIBS__WHY_UNTOLD,
    DIBS__WHY_KEPT, /* DIBS_BUSY: the holder may merely keep the lease, unused; it has been asked to give it back. All
                       below come with DIBS_UNAVAILABLE */
    DIBS__WHY_TOO_FEW_REPLICAS, /* the lock was granted, but replicas, or the disk, did not confirm that in time */
    DIBS__WHY_NO_VOTE,          /* of a member: the master may not vote now, so nothing counts as granted */
    DIBS__WHY_STEPPED           /* the same, because its clock was set: it may have forgotten locks too early */
};

struct dibs__answer {
    uint64_t fence; /* granted: the store's fence, below 2^53; with step 0 larger than any before for the name */
    uint32_t step; /* granted: 0; else the process was granted that fence before, and nobody was granted the lock since:
                      this is the next_step of the release, and the two together are larger than any before */
    int64_t again_ms; /* taken: ask again after this time, if the listener says nothing before */
    enum dibs__retirement retired;
    enum dibs__why why;
    int64_t told_ms; /* taken by another kind of client: as again_ms, where tell_when_free says that the listener is
                        told; else 0 */
    int64_t last_reply_at; /* with DIBS_UNAVAILABLE: when the servers that have the name last gave an answer other than
                         that they can't serve now; 0: not known */
    int64_t server_us;     /* granted, by a member of a quorum: the master's clock; 0: not told */
};

/* What a vote does beside looking. */
enum dibs__vote_what {
    DIBS__VOTE_LOOKS,     /* nothing */
    DIBS__VOTE_ADMITS,    /* a master that does not know may vote after wait_ms; a longer wait is shortened to that */
    DIBS__VOTE_DISTRUSTS, /* a master that knows may vote only from wait_ms on, also where it waits already */
    DIBS__VOTE_FLOORS,    /* a master whose wait is over may vote, with fences above the floor */
};

/*
 * Of a member of a quorum: whether its master may vote. A master that lost its
 * data does not know what it granted, so it must not grant anything before the
 * longest lease that it may have granted is over, and then with a larger fence
 * than any that it forgot. It notes that it may vote in a key of its own; a
 * master that lost its data lost that key, too. A master whose process is
 * another than the one that wrote that key may have come back with older data.
 */
struct dibs__vote {
    enum dibs__vote_what what;
    uint32_t longest_ms; /* leases of this length are about to be asked for; set, where the master knows whether it
                            may vote, or did before it was restarted: the longest that was announced to it */
    int64_t wait_ms;
    uint64_t floor;      /* of a master that is admitted or floored; 0: none yet, so it may not vote */
    uint64_t mark;       /* a master that does not know is admitted only where it still has this mark; 0: whatever its
                            mark. Set: that of one that does not know, which it has had since it was first looked at and
                            forgets with the rest; else 0 */
    uint64_t quorum;     /* the number of the quorum, 0: not known; set: that of which the master is a member */
    int64_t server_us;   /* set: the master's clock */
    bool known;          /* set: the master knows whether it may vote */
    bool restarted;      /* set, where not: it knew in an earlier process */
    int64_t votes_in_ms; /* set, where it is known: 0: the wait is over; else after that time */
    bool ready;          /* set: the master may vote now */
    uint64_t highest;    /* set: the master has given no larger fence, as far as it knows */
    uint64_t process;    /* set: a number for the master's process; 0: not known */
    int64_t began;       /* the store's own */
};

/* A grant that the store made by itself, to a token that was in the queue. */
struct dibs__grant {
    const char *name, *token;
    uint64_t number; /* of the ask that proves the grant */
    uint64_t fence;  /* 0: nothing was granted, but the lock may be free (attempt.hint); with number 0: a recall, the
                        token has the lock, and another asks for it */
    bool confirm;    /* the grant is not enough: the waiter must ask again */
};

/* The first entries of a lock's queue. */
struct dibs__waiters {
    dibs_waiter *items;
    size_t most, count; /* count: set, also where the query fails */
};

/* Those who share a lock, the newest first. The fences are those of the store. */
struct dibs__sharers {
    dibs_sharer *items;
    size_t most, count; /* count: set by a query that does not fail */
    bool by_majority;   /* of a quorum: only those whom a majority of the masters name */
};

/* ------------------------------------------------------------------- operations */

enum dibs__op_kind {
    DIBS__OP_NONE,
    DIBS__OP_ASK,
    DIBS__OP_RELEASE,
    DIBS__OP_QUERY,
    DIBS__OP_FORCE,
    DIBS__OP_FORGET,
    DIBS__OP_VOTE, /* this one and the next: only of a store that can be a member of a quorum */
    DIBS__OP_RAISE,
    DIBS__OP_KINDS
};

/*
 * For an attempt. DIBS_OK: granted; DIBS_BUSY: taken; DIBS_UNAVAILABLE, DIBS_DENIED, DIBS_STORE_ERROR, DIBS_NO_MEMORY,
 * DIBS_INVALID. An ask with `wait` that finds the lock taken may be granted through the listener at any time after
 * begin, even before finish returns.
 */
struct dibs__ask {
    struct dibs__attempt *attempt;
    struct dibs__answer *answer; /* filled by finish */
};

/*
 * The end of a hold in the store, and, where next has an attempt, an ask behind it in the same round trip. DIBS_OK: the
 * lock was the token's and is no more; DIBS_NOT_HELD: it was not. Otherwise the store goes on by itself, as if retract
 * had been called.
 */
struct dibs__release {
    const char *token;
    uint32_t lease_ms;     /* as for retract, which takes over where the store does not answer */
    uint64_t fence;        /* as for retract */
    uint32_t next_step;    /* of the steps of that fence, which core counts: the first that no holder had; 0: the fence
                              is not granted again */
    int64_t granted_at;    /* with next_step: when the store granted the lock to the token */
    bool contended;        /* others may wait for the lock: they should have it soon, if need be before the caller
                              has its answer */
    bool quiet;            /* who waits is not told; of a member of a quorum */
    struct dibs__ask next; /* the attempt is of the same name, and not fair. A member of a quorum leaves it alone:
                              the caller asks by itself */
    bool again;            /* set: the release had to be sent twice, so the first sending may have done it */
    dibs_status next_status; /* set with next, as an ask would; the error is the release's alone */
};

/* A look at a lock, as dibs_query. */
struct dibs__query {
    dibs_owner *owner;             /* filled by finish; all zero before, and where it fails. The fence is the store's */
    struct dibs__waiters *waiters; /* filled by finish; NULL: nobody wants to know. Of a quorum: those of one master */
    struct dibs__sharers *sharers; /* filled by finish; NULL: nobody wants to know. Of a quorum: those of each master */
    bool any_type; /* a key of another type than a lock has is as if there were none; else it is a DIBS_STORE_ERROR */
    bool
        unsure; /* set by a quorum: masters that did not answer may know of an owner, or of a sharer, who is not told */
};

/* As dibs_force_unlock. */
struct dibs__force {
    const char *token; /* NULL: whoever holds the lock */
    bool is_shown;     /* the token is as a query shows it: one that is not of dibs may be escaped there */
};

/*
 * Raises the fence of a lock that the token holds at a member of a quorum. DIBS_OK: the lock is the token's, and every
 * later fence is larger than that one; DIBS_NOT_HELD: it is not the token's.
 */
struct dibs__raise {
    const char *token;
    uint64_t fence;
    uint32_t lease_ms;
};

/* The caller fills in the fields up to the union, and all of the union that is not marked as set or filled by the
   store. `state` and `redirect` are zero at first. */
struct dibs__op {
    enum dibs__op_kind kind;
    const char *name; /* of the lock; not of a vote */
    int64_t deadline;
    union {
        struct dibs__ask ask;
        struct dibs__release release;
        struct dibs__query query;
        struct dibs__force force;
        struct dibs__vote *vote; /* DIBS_OK: the master was looked at, and did what was asked for */
        struct dibs__raise raise;
        /* FORGET has nothing of its own: as dibs_forget. */
    };
    void *state;                     /* the store's own: what was begun; zero: nothing was */
    struct dibs__redirect *redirect; /* of a node of a cluster (store/redis/redis.h); NULL: the store is none */
};

static inline struct dibs__op dibs__op_ask(struct dibs__attempt *attempt, struct dibs__answer *answer, int64_t deadline)
{
    return (struct dibs__op){
        .kind = DIBS__OP_ASK, .name = attempt->name, .deadline = deadline, .ask = {attempt, answer}};
}

/* ---------------------------------------------------------------------- the rest */

/* A walk over the names of the locks that somebody may hold. */
struct dibs__walk {
    const char *pattern; /* a glob as in Redis; NULL: all */
    void *context;
    bool (*goes_on)(void *context); /* asked before each round trip; false: the walk ends with DIBS_CLOSED */
    bool (*found)(void *context, const char *name); /* calls nothing of the store; false: there is no memory */
};

/* An examination: what a store tells of its servers, in sentences (store/findings.h). */
struct dibs__examination {
    void *context;
    bool (*goes_on)(void *context);                            /* as of a walk */
    bool (*found)(void *context, const dibs_finding *finding); /* copies the finding; false: there is no memory */
    uint32_t admit_ms; /* of a quorum: its masters are admitted, with leases as long as that; 0: they are not */
    bool no_memory;    /* set: something was not found out, or not told, because there is no memory */

    /* Set by a store on one server. */
    bool reached;
    uint64_t server; /* a number for its process and data; 0: not known */
    bool clock_known;
    int64_t ahead_us; /* its clock minus this host's */
};

/* What the store is told of the use of a lease that its process may keep. */
enum dibs__use {
    DIBS__USE_UNTOLD, /* nothing new */
    DIBS__USE_HELD,   /* somebody here uses the lease */
    DIBS__USE_KEPT,   /* nobody does: the lease is kept */
    DIBS__USE_WANTED  /* somebody uses it, and it will be released afterwards: it need not be recalled any more */
};

enum dibs__renewed {
    DIBS__UNANSWERED,
    DIBS__RENEWED,
    DIBS__GONE,
    DIBS__WATCHED /* of a batch with `watch`: the lock is the token's, and the listener will be told when that changes
                   */
};

#define DIBS__BATCH_MAX 192

/* The caller's, until done is called: once, on the scheduler's thread, maybe before renew returns. */
struct dibs__batch {
    bool watch; /* what the items name is not renewed, but watched; only where store->watches */
    size_t count;
    struct dibs__renewal {
        const char *name, *token;
        uint32_t lease_ms;
        uint64_t fence;
        enum dibs__use use; /* told with the renewal, together with the fence: later grants have larger ones */
        bool raised;        /* set, with use: the store has that fence */
        bool wanted;        /* set, with use: others wait for the lock */
        bool extension;     /* sets the lease to lease_ms; else it is never made shorter */
        bool fixed;         /* the lease keeps the end that it had: lease_ms is what the holder counts on of it, and the
                               store may give it a little longer */
        bool look;          /* the lock is only looked at, because of a change: WATCHED where it is the token's.
                               The lease stays as it is, so that nobody is told of another change */
        bool top_up;        /* of a member of a quorum: where nobody holds the lock, the token is to; not
                               after a forced unlock. Until then a retraction comes behind it */
        struct dibs__lease_store_state store_state; /* as the grant or the last renewal of the lease left it, zero where
                                         the store never granted it; set */
        uint32_t pending_extension_ms; /* as the last renewal left it, zero with the grant; set: an extension that was
                            sent and never answered may still arrive, and would cut the lease to this
                            length. 0: there is none */
        struct dibs__extension_store_state pending_extension; /* as pending_extension_ms */
        enum dibs__renewed result;
        dibs_status status; /* set where it is unanswered, if that has a reason of its own; else DIBS_OK: the batch's */
        bool was_anothers;  /* set, by a member of a quorum, where the lock is gone: it was granted to another since,
                               or taken away by force */
        bool sent;          /* set, by a member of a quorum: something of it may reach the server */
        int64_t again_ms;   /* set where it is renewed and pending_extension_ms is less than lease_ms: a renewal after
                               this time makes the whole of lease_ms sure */
        struct dibs__redirect *redirect; /* of a node of a cluster; else NULL */
        void *context;
    } items[DIBS__BATCH_MAX];
    int64_t proof; /* when the first request was about to be sent: any of the requests may be what renewed an item */
    int64_t server_us; /* set, of a member of a quorum: the master's clock between proof and done; 0: not told */
    void (*done)(struct dibs__batch *batch, const struct dibs__error *error); /* error: why items are unanswered */

    /*
     * Of renewals by a store of several servers: as done, for some of the items
     * and before done, because no server is to wait for another. `part` has
     * copies of them, and a proof of its own; it is the store's again when
     * landed returns. After that, done is called with count 0. The store decides
     * for each batch whether to divide it.
     */
    void (*landed)(struct dibs__batch *batch, struct dibs__batch *part, const struct dibs__error *error);
    void *context;
};

/*
 * What a store reports. Called by any thread, also within the store's own calls, and with none of its mutexes held, but
 * for `reachable`, which comes under a mutex so that its order is right.
 *
 * What means the same whichever store reports it has `context`: a store that stands on others gives its own context
 * and functions to each of them, and has no part in these reports. The rest it hears itself: `source` says from which.
 */
struct dibs__listener {
    void *context;
    void (*wake)(void *context);                  /* call interest again */
    void (*wake_by)(void *context, int64_t when); /* interest names that time, or an earlier one, from now on */
    void (*ask_again)(void *context);             /* grants may have been missed: whoever waits must ask */

    /* Only of a store that watches. A hint: the lock that was watched may be gone or another's; NULL: any lock. It may
     * come late, twice, or for what this process did itself. */
    void (*changed)(void *context, const char *name);

    void *source;
    bool (*granted)(void *source, const struct dibs__grant *grant); /* false: no attempt or lease here has the token */
    void (*server_changed)(void *source); /* the scheduler's: renewals go to another server now; is_unconfirmed must be
                                             asked again of every lease */
    void (*reachable)(void *source, bool up, const char *detail); /* only when it changes */
    void (*watching)(void *source, bool on); /* only of a store that watches; the scheduler's: true: what is watched is
                                                told from now on; false: something that was watched is not any more,
                                                and true may follow at once */
};

struct dibs__counters {
    atomic_uint_fast64_t commands, errors, reconnects;
    atomic_uint_fast64_t tracking;      /* 1: the listener is told of changes; else 0 */
    atomic_uint_fast64_t invalidations; /* how often it was told of one, or of all */
    atomic_uint_fast64_t unconfirmed;   /* how many retractions are not confirmed now */
};

struct dibs__store;

/* How far it is with what was begun. */
enum dibs__progress {
    DIBS__OP_AWAITED,   /* it was sent, and the reply is awaited */
    DIBS__OP_OVER,      /* it was sent, and finish will not wait for the reply: that is there, or its time is over */
    DIBS__OP_IMMEDIATE, /* nothing was sent, and finish does the whole without waiting */
    DIBS__OP_UNSENT,    /* nothing was sent, because no connection stands; one is being made */
    DIBS__OP_CONNECTED, /* nothing was sent, and a connection stands by now: begin again. If that is no use, finish has
                           more to do than to wait for one reply */
    DIBS__OP_FAILED, /* nothing was sent, and no connection could be made: finish says why, even after the deadline */
    DIBS__OP_BROKEN  /* it was sent, and its connection broke, or the node of a cluster answered by an error, as where
                        it has the lock no more: to finish may take the time to send it again, there or elsewhere */
};

static inline bool dibs__op_was_sent(enum dibs__progress progress)
{
    return progress == DIBS__OP_AWAITED || progress == DIBS__OP_OVER || progress == DIBS__OP_BROKEN;
}

struct dibs__store_ops {
    /*
     * Connects a store that was opened with connect_later; called twice or never.
     * First with wait false, which blocks only for the resolver, so that the
     * caller may do something else meanwhile; then, unless that failed, with wait
     * true, which blocks until connect_timeout_ms have passed since the first
     * call. A status of dibs_open.
     */
    dibs_status (*connect)(struct dibs__store *store, bool wait, struct dibs__error *error);

    void (*begin)(struct dibs__store *store, struct dibs__op *op);

    /*
     * How far it is with what was begun; takes what has come. Never blocks. As long
     * as that is AWAITED or UNSENT, the wait (base/wait.h) is of what comes next:
     * the thread sleeps, and calls this again, or ends the wait. It ends all of its
     * waits before it does anything else that takes time, since it may be the one
     * that receives for other threads. wait NULL: the caller only looks.
     *
     * Fair asks that were begun one after the other, and sent, arrive in that order as
     * long as no connection breaks; but not where replicas or the disk are waited for.
     */
    enum dibs__progress (*progress)(struct dibs__store *store, const struct dibs__op *op, struct dibs__wait *wait);

    dibs_status (*finish)(struct dibs__store *store, struct dibs__op *op, struct dibs__error *error);

    /*
     * The attempt is over, or goes on under a new token. Not held: retracts in the
     * background what the attempt may have left in the store. Never blocks.
     */
    void (*conclude)(struct dibs__store *store, struct dibs__attempt *attempt, bool held);

    /*
     * Tells the walk of each name that somebody held throughout the call, and
     * perhaps of others, some of them twice. DIBS_OK: of all of them;
     * DIBS_UNAVAILABLE, DIBS_DENIED, DIBS_STORE_ERROR, DIBS_NO_MEMORY,
     * DIBS_CLOSED. Each round trip has a command timeout.
     */
    dibs_status (*walk)(struct dibs__store *store, const struct dibs__walk *walk, struct dibs__error *error);

    /* As dibs_examine: DIBS_OK, DIBS_NO_MEMORY, DIBS_CLOSED. With admit_ms: as dibs_admit; DIBS_UNAVAILABLE, too. */
    dibs_status (*examine)(struct dibs__store *store, struct dibs__examination *examination, struct dibs__error *error);

    /*
     * Waits until the wait event is woken, as a callback of the listener may do, at
     * most until the time. Meanwhile the calling thread may be the one that reads
     * for all what the server pushes, on the connection that serves the name.
     * wait_event NULL, which does not block: somebody waits for a push without
     * calling listen, so the store must soon read by itself. listen NULL: a thread
     * has nothing to do but sleep (dibs__store_listen).
     */
    void (*listen)(struct dibs__store *store, const char *name, struct dibs__wait_event *wait_event, int64_t until);

    /*
     * Releases in the background, until it is confirmed, or a lease of lease_ms
     * (the longest that the token may have) must be over at the server anyway.
     * fence: of the grant, 0 where none is known. Waiters that saw the token at
     * another server leave the lock to it no longer than until then.
     * Never blocks, never fails the caller.
     */
    void (*retract)(struct dibs__store *store, const char *name, const char *token, uint32_t lease_ms, uint64_t fence);

    /*
     * The scheduler's: renews the leases that are still their tokens', in the
     * order of the calls. The store alone decides whether a lease that it may
     * have forgotten is restored. A renewal never shortens a lease;
     * where more is left than it asks for, a member of a quorum says
     * DIBS__UNANSWERED (rule 52).
     *
     * A batch with `watch` has the listener told of changes of the locks instead:
     * DIBS__WATCHED; DIBS__GONE: the lock seems to be another's, and a renewal must
     * find out; DIBS__UNANSWERED: that lock is not watched. As long as the
     * listener was not told that watching is on, nothing is watched; with the first
     * such batch the store begins to.
     */
    void (*renew)(struct dibs__store *store, struct dibs__batch *batch);

    /*
     * Whether another server answers renewals now than the one that confirmed
     * the lease last: it may not know the lease, which must be renewed at once.
     * Never blocks, takes no lock, may be called with a lock of the caller's held.
     */
    bool (*is_unconfirmed)(struct dibs__store *store, const struct dibs__lease_store_state *lease);

    /*
     * Any thread; NULL: never. Another kind of client has the lock. Not 0: `changed`
     * of the listener will say that the lock is free, or may be; 0: it will not.
     * since: what the last call for the name returned, or 0. Never blocks.
     */
    uint64_t (*tell_when_free)(struct dibs__store *store, const char *name, uint64_t since);

    /*
     * Any thread. Whether a lease of that name may be kept now: asks for the lock recall it, and changes are reported.
     * Where not, the store begins to watch, with that name as its probe. Never blocks. NULL: no lease ever may.
     */
    bool (*recalls)(struct dibs__store *store, const char *name);

    /*
     * What the calling thread begins from here (`on`) to there goes out together,
     * at the end: one write for many requests. It must wait for none in between.
     * Can be nested. NULL: nothing is gained.
     */
    void (*gather)(struct dibs__store *store, bool on);

    /* The scheduler's event loop: what to poll for (at most fd_max), until when at the latest; then goes on. */
    size_t (*interest)(struct dibs__store *store, struct pollfd *fds, int64_t *deadline);
    void (*attend)(struct dibs__store *store, const struct pollfd *fds, size_t count);

    /* Nobody is inside, and all that was begun is finished; frees the store. Batches that are out are done, unanswered.
     */
    void (*close)(struct dibs__store *store);
};

struct dibs__store {
    const struct dibs__store_ops *ops;
    size_t fd_max;     /* the most descriptors that interest ever fills in */
    bool watches;      /* renew takes batches with `watch` */
    bool answers_keep; /* the answer to an ask that was sent may be taken later: nobody else waits for that */
};

/* How a store carries out operations of one kind, for a table of them. */
struct dibs__op_row {
    void (*begin)(struct dibs__store *store, struct dibs__op *op); /* NULL: finish does the whole */
    dibs_status (*finish)(struct dibs__store *store, struct dibs__op *op, struct dibs__error *error);
};

/* clock: that of the opening. */
static inline void dibs__store_listen(struct dibs__store *store, const struct dibs__clock *clock, const char *name,
                                      struct dibs__wait_event *wait_event, int64_t until)
{
    if (store->ops->listen)
        store->ops->listen(store, name, wait_event, until);
    else
        dibs__wait_event_wait(wait_event, clock, until);
}

/* How a thread waits for the reply of what it began. */
struct dibs__waiting {
    const struct dibs__clock *clock;     /* of the opening */
    int64_t until;                       /* at most */
    struct dibs__wait_event *wait_event; /* NULL: the thread waits for the reply alone */
    const atomic_bool *cancelled;        /* with a wait event, which is woken when this is set: ends the wait */
};

/*
 * True: finish will not wait. False: there is no reply so far; where nothing was
 * sent, that is said at once: then call finish, and don't wait again.
 */
bool dibs__op_await(struct dibs__store *store, const struct dibs__op *op, const struct dibs__waiting *waiting);

/*
 * True: the reply is awaited, and the wait event of the wait, which must tell, is told when there may be news; the
 * scheduler reads meanwhile. The wait must be ended before the operation is awaited or finished. False: finish has
 * something to do.
 */
bool dibs__op_watch(struct dibs__store *store, const struct dibs__op *op, struct dibs__wait *wait);

struct dibs__tls;

/* What the URL does not say of how to be let in. NULL: not given. */
struct dibs__access {
    char *tls_ca_file, *tls_cert_file, *tls_key_file, *tls_server_name;
    char *sentinel_user, *sentinel_password;
    struct dibs__tls *tls; /* written while the runtime is opened: made of the tls_... by the first store that needs it;
                              NULL: none did */
};

void dibs__access_free(struct dibs__access *access); /* NULL is fine; no store is left that was given it */

struct dibs__store_config {
    const char *url;             /* of the store; of a quorum the first */
    const char *const *urls;     /* of the members of a quorum */
    size_t url_count;            /* of those; 0 or 1: there is one store, that of url */
    struct dibs__access *access; /* outlives the store; NULL: nothing is given, and no URL is one of TLS */
    const char *key_prefix;      /* outlives the store */
    const char *client_name;     /* outlives the store */
    const char *runtime_id; /* outlives the store; grants for this runtime are sent to the channel dibs:<runtime_id> */
    uint32_t connect_timeout_ms, command_timeout_ms;
    uint32_t min_replicas, replica_timeout_ms;
    bool durable;      /* a grant counts only once the server has it on disk */
    uint32_t lease_ms; /* of most leases; a quorum tells its masters how long leases may be. 0: not known */
    uint32_t spin_us;  /* how long a waiting thread polls at most; 0: not at all */
    const struct dibs__node_hooks *node; /* the store is a node of a cluster (store/redis/redis.h); NULL: it is none */
    bool is_member; /* the store is one master of a quorum: asks are granted only where the master may vote */
    const _Atomic uint64_t *quorum; /* with is_member: the number of that quorum; 0, or NULL: not known */
    bool connect_later; /* opening does not connect, and does not fail for that: connect does, or the first operation */
    const struct dibs__clock *clock;
    struct dibs__listener listener;
    struct dibs__counters *counters;
};

/*
 * To be called before the first store is opened, under a mutex that is held
 * across forks, before the caller's own pthread_atfork. False: no memory; to be
 * called again.
 */
bool dibs__store_watch_forks(void);

/* Opens the store of config->url, or the quorum of config->urls (connects). *out = NULL on failure: a status of
 * dibs_open. */
dibs_status dibs__store_open(struct dibs__store **out, const struct dibs__store_config *config,
                             struct dibs__error *error);

#endif
