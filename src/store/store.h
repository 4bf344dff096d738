/*
 * The contract between the core and a store, which keeps the locks. A store knows names and tokens,
 * and grants a name to a token for the length of a lease. It knows nothing of threads, holds or
 * runtimes.
 *
 * The life of one lock. An attempt represents one acquire. The core asks for it, several times if
 * need be, until the lock is granted: by the answer to an ask, or later through the listener, by
 * which the store reports what no caller is waiting for at that moment. Once the lock is granted,
 * or the caller gives up, the attempt is concluded. The lease is renewed in batches. It ends by a
 * release, which a caller waits for, or by a retraction, which runs in the background.
 *
 * Operations. A request to a store, such as an ask or a release, is a struct dibs__op; its kind
 * says which operation it is and which member of the union is used. Three functions carry out every
 * kind, so that one thread can have several stores work at the same time without a thread for each.
 *   begin    sends what can be sent without waiting. It never blocks, and does not
 *            report errors. If there is no connection, it sends nothing: a connection
 *            is made in the background, and finish carries out the whole operation.
 *            An operation that was begun but not sent may be begun again.
 *   progress says how far the operation is, and has the calling thread woken when that
 *            changes. So one thread can wait for the replies to many operations, at
 *            any number of stores, in one poll(2). Everything else is left to finish.
 *   finish   waits for the reply until the deadline at most, and does everything else:
 *            it sends the request again if the connection broke, moves to another
 *            connection, reads the reply and retracts. It takes a reply that has
 *            already come even after the deadline, so a store that hangs does not cost
 *            the caller the replies of the others. (With min_replicas or durable,
 *            finish also waits for the replicas or the disk, and needs time before the
 *            deadline for that.) The outcome is final when finish returns.
 * Every operation that was begun must be finished, once, by one thread, before anything else is
 * done with its attempt, and before the store is closed. Until then the struct stays at its
 * address, and only its deadline may be changed. Calling finish without begin carries out the whole
 * operation, which is all that a caller with one store needs.
 *
 * Calls block until their deadline at most (by the clock given at the opening) and may come from
 * any thread. Calls marked "the scheduler's" come only from the scheduler's thread, and never
 * block. A call that fails fills its error; a call that succeeds leaves the error alone.
 */
#ifndef DIBS_STORE_STORE_H
#define DIBS_STORE_STORE_H

#include <poll.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/wait.h"

#define DIBS__TOKEN_MAX 192    /* including the NUL */
#define DIBS__TOKEN_SHARED '~' /* in the token of a shared acquire; the limit follows, and ends the token */
#define DIBS__TOKEN_KEEPS '!'  /* ends a token whose lease may be kept by its process */

/* The limit at the end of a sharer's token; -1: the token is no sharer's. A mark before the end is part of a label. */
int64_t dibs__token_limit(const char *token);

#define DIBS__LEASE_MAX_MS 86400000
#define DIBS__PREFIX_MAX 512 /* maximum length of a key_prefix in bytes */

struct dibs__redirect;

/* What a store remembers with an attempt. Private to the store; zero at first. */
struct dibs__attempt_store_state {
    uint64_t words[5];
    uint64_t outer; /* of a store that is built on other stores; `words` then belongs to one of those */
};

/* What a store remembers with a lease. Private to the store, which sets it with the grant and with each renewal. */
struct dibs__lease_store_state {
    uint64_t words[2];
};

/*
 * What a store remembers of an extension that was sent but never answered. Private to the store; zero: there is
 * none.
 */
struct dibs__extension_store_state {
    uint64_t words[2];
};

/*
 * One acquire as the store sees it: one token, and its asks, which are numbered. A grant that comes
 * through the listener names the ask that proves it. Used by one thread at a time. Before the first
 * ask, all fields from `number` on are zero.
 *
 * When the token is retired, or the attempt is concluded as not held, the store clears all fields
 * that it sets, from `number` on; in store_state it keeps only what it knows of the lock. The
 * attempt may then go on: the caller only has to give it a new token before the next ask.
 */
struct dibs__attempt {
    const char *name, *token; /* the token is unique to the attempt */
    uint32_t lease_ms;
    bool wait;   /* if the lock is taken, the token joins the queue of the name, if the store can do that now */
    bool shared; /* others may hold the lock too, if they share it. The token has DIBS__TOKEN_SHARED, then the limit */
    uint32_t limit; /* with shared: how many may hold the lock at a time; 0: any number */
    bool fair;      /* with wait: the token must join the queue; if it cannot, the ask fails */

    uint64_t number; /* set by the store: number of the last ask; zero before the first ask of a token */
    int64_t proof; /* set by the store: the time just before the last ask was sent. A lease that the ask proves lasts at
                      least from then */
    bool in_store; /* set by the store: it may know the token, in the queue or as the owner */
    bool may_release; /* set by the store: in_store, and no ask is in doubt. Then the attempt may be concluded as held
                         and its token released, which also takes it out of the queue, instead of being retracted in the
                         background */
    struct dibs__lease_store_state lease; /* set by the store: state of the lease that the last ask proves */
    struct dibs__attempt_store_state store_state;
};

/* For a store: clears what it has set, except store_state. */
static inline void dibs__attempt_clear(struct dibs__attempt *attempt)
{
    attempt->number = 0;
    attempt->proof = 0;
    attempt->in_store = attempt->may_release = false;
    attempt->lease = (struct dibs__lease_store_state){.words = {0}};
}

/* What became of the token of an ask. */
enum dibs__retirement {
    DIBS__NOT_RETIRED,
    DIBS__RETIRED, /* the store retracts the token: the next ask needs a new one */
    DIBS__STUCK /* only of a member: the next ask needs a new token. An ask under the old one may still arrive, so the
                   old one is retracted only once the attempt is concluded; until then a renewal may set the lock */
};

/* Why an ask was not granted, if the status does not say so. */
enum dibs__why {
    DIBS__WHY_UNTOLD,
    DIBS__WHY_KEPT, /* with DIBS_BUSY: the holder may merely keep the lease, unused, and was asked to give it back. All
                       reasons below come with DIBS_UNAVAILABLE */
    DIBS__WHY_TOO_FEW_REPLICAS, /* the lock was granted, but the replicas or the disk did not confirm that in time */
    DIBS__WHY_NO_VOTE,          /* of a member: its master may not vote now, so nothing counts as granted */
    DIBS__WHY_STEPPED /* as DIBS__WHY_NO_VOTE: the master's clock was set, so it may have forgotten locks too early */
};

struct dibs__answer {
    uint64_t fence;   /* if granted: the store's fence, below 2^53; if step is 0, larger than any before for the name */
    uint32_t step;    /* if granted: 0. If the process was granted that fence before, and nobody was granted the lock
                         since: the next_step of its release; then fence and step together are larger than any before */
    int64_t again_ms; /* if taken: ask again after this time, unless the listener reports something before */
    enum dibs__retirement retired;
    enum dibs__why why;
    int64_t told_ms; /* if taken by another kind of client: used in place of again_ms if tell_when_free says that the
                        listener will be told; else 0 */
    int64_t last_reply_at; /* with DIBS_UNAVAILABLE: when the servers that have the name last gave an answer other than
                              that they can't serve now; 0: not known */
    int64_t server_us;     /* if granted by a member of a quorum: the master's clock; 0: not told */
};

/* What a vote does in addition to looking. */
enum dibs__vote_what {
    DIBS__VOTE_LOOKS,     /* nothing */
    DIBS__VOTE_ADMITS,    /* a master that does not know whether it may vote may vote after wait_ms; a longer wait is
                             shortened to that */
    DIBS__VOTE_DISTRUSTS, /* a master that knows may not vote before wait_ms has passed, even if it waits already */
    DIBS__VOTE_FLOORS,    /* a master whose wait is over may vote, with fences above the floor */
};

/*
 * Looks at a member of a quorum, and may change it: whether its master may vote. A master that lost
 * its data does not know what it granted. So it must not grant anything before the longest lease
 * that it may have granted is over, and after that only with a fence larger than any that it
 * forgot. That it may vote is noted in a key at the master, which is lost with the rest of the
 * data. A master that runs in another process than the one that wrote the key may have come back
 * with older data.
 */
struct dibs__vote {
    enum dibs__vote_what what;
    uint32_t longest_ms; /* the length of leases that will be asked for. Set if the master knows whether it may vote, or
                            did before it was restarted: the longest length that was announced to it */
    int64_t wait_ms;
    uint64_t floor; /* for a master that is admitted or floored; 0: none yet, so it may not vote */
    uint64_t mark; /* a master that does not know is admitted only if it still has this mark; 0: whatever its mark. Set:
                      the mark of a master that does not know, which it was given when it was first looked at, and
                      forgets with the rest; else 0 */
    uint64_t quorum;   /* the number of the quorum; 0: not known. Set: that of the quorum to which the master belongs */
    int64_t server_us; /* set: the master's clock */
    bool known;        /* set: the master knows whether it may vote */
    bool restarted;    /* set, if it does not: it knew in an earlier process */
    int64_t votes_in_ms; /* set, if it is known: after which time the wait is over; 0: it is over */
    bool ready;          /* set: the master may vote now */
    uint64_t highest;    /* set: the master has given no larger fence, as far as it knows */
    uint64_t process;    /* set: a number for the master's process; 0: not known */
    int64_t began;       /* private to the store */
};

/* A grant that the store made by itself, to a token in the queue. */
struct dibs__grant {
    const char *name, *token;
    uint64_t number; /* the ask that proves the grant */
    uint64_t fence;  /* 0: nothing was granted, but the lock may be free. If number is 0 as well, this is a recall: the
                        token has the lock, and another asks for it */
    bool confirm;    /* the grant does not suffice: the waiter must ask again */
};

/* The first entries of a lock's queue. */
struct dibs__waiters {
    dibs_waiter *items;
    size_t most, count; /* count: set, also if the query fails */
};

/* Those who share a lock, the newest first. The fences are those of the store. */
struct dibs__sharers {
    dibs_sharer *items;
    size_t most, count; /* count: set by a query that does not fail */
    bool by_majority;   /* of a quorum: only those that a majority of the masters name */
};

/* ------------------------------------------------------------------- operations */

enum dibs__op_kind {
    DIBS__OP_NONE,
    DIBS__OP_ASK,
    DIBS__OP_RELEASE,
    DIBS__OP_QUERY,
    DIBS__OP_FORCE,
    DIBS__OP_FORGET,
    DIBS__OP_VOTE, /* VOTE and RAISE: only for a store that can be a member of a quorum */
    DIBS__OP_RAISE,
    DIBS__OP_KINDS
};

/*
 * Asks for the lock of an attempt. DIBS_OK: granted; DIBS_BUSY: taken; DIBS_UNAVAILABLE, DIBS_DENIED,
 * DIBS_STORE_ERROR, DIBS_NO_MEMORY, DIBS_INVALID. An ask with `wait` that finds the lock taken may be granted
 * through the listener at any time after begin, even before finish returns.
 */
struct dibs__ask {
    struct dibs__attempt *attempt;
    struct dibs__answer *answer; /* filled by finish */
};

/*
 * Ends a hold in the store. If next has an attempt, an ask for it follows in the same round trip. DIBS_OK: the
 * token had the lock, and no longer has it; DIBS_NOT_HELD: the token did not have it. With any other status the
 * store goes on in the background, as if retract had been called.
 */
struct dibs__release {
    const char *token;
    uint32_t lease_ms;  /* as for retract, which takes over if the store does not answer */
    uint64_t fence;     /* as for retract */
    uint32_t next_step; /* of the steps of that fence, which the core counts, the first that no holder had; 0: the fence
                           is not granted again */
    int64_t granted_at; /* with next_step: when the core took the grant of the token */
    bool contended;     /* others may wait for the lock: they should get it soon, if need be before the caller has its
                           answer */
    bool shared;        /* the token is a sharer's */
    bool quiet;         /* waiters are not told; only for a member of a quorum */
    struct dibs__ask next; /* the attempt is for the same name, and not fair. A member of a quorum ignores it: the
                              caller asks separately */
    bool again;            /* set: the release had to be sent twice, so the first sending may have released the lock */
    dibs_status next_status; /* set if next has an attempt, as by an ask; the error is that of the release alone */
};

/* Looks at a lock, as dibs_query. */
struct dibs__query {
    dibs_owner *owner; /* filled by finish; all zero before, and if the query fails. The fence is the store's */
    struct dibs__waiters *waiters; /* filled by finish; NULL: not wanted. Of a quorum: the waiters at one master */
    struct dibs__sharers *sharers; /* filled by finish; NULL: not wanted. Of a quorum: the sharers at each master */
    bool any_type; /* a key whose type is not that of a lock counts as no key; else it is a DIBS_STORE_ERROR */
    bool unsure;   /* set by a quorum: masters that did not answer may know of an owner, or of a sharer, that is missing
                      here */
};

/* As dibs_force_unlock. */
struct dibs__force {
    const char *token; /* NULL: whoever holds the lock */
    bool is_shown;     /* the token is written as a query shows it, which may escape a token that is not of dibs */
    bool in_doubt;     /* set by the store, false before: a request that was not answered may have taken the lock from
                          the token, at this node or at one that was asked before */
};

/*
 * Raises the fence of a lock that the token has at a member of a quorum. DIBS_OK: the token has the lock, and
 * every later fence is larger than this one; DIBS_NOT_HELD: the token does not have the lock.
 */
struct dibs__raise {
    const char *token;
    uint64_t fence;
    uint32_t lease_ms;
};

/*
 * The caller fills in the fields before the union, and in the union everything that is not marked as set or
 * filled by the store. `state` and `redirect` are zero at first.
 */
struct dibs__op {
    enum dibs__op_kind kind;
    const char *name; /* of the lock; not used by a vote */
    int64_t deadline;
    union {
        struct dibs__ask ask;
        struct dibs__release release;
        struct dibs__query query;
        struct dibs__force force;
        struct dibs__vote *vote; /* DIBS_OK: the master was looked at, and did what was asked for */
        struct dibs__raise raise;
        /* FORGET has no fields of its own: as dibs_forget. */
    };
    void *state;                     /* private to the store: what was begun; NULL: nothing was */
    struct dibs__redirect *redirect; /* for a node of a cluster (store/redis/redis.h); NULL: the store is none */
};

static inline struct dibs__op dibs__op_ask(struct dibs__attempt *attempt, struct dibs__answer *answer, int64_t deadline)
{
    return (struct dibs__op){
        .kind = DIBS__OP_ASK, .name = attempt->name, .deadline = deadline, .ask = {attempt, answer}};
}

/* ---------------------------------------------------------------------- the rest */

/* A walk over the names of the locks that somebody may hold. */
struct dibs__walk {
    const char *pattern; /* a glob as in Redis; NULL: all names */
    void *context;
    bool (*goes_on)(void *context); /* called before each round trip; false: the walk ends with DIBS_CLOSED */
    bool (*found)(void *context, const char *name); /* must not call the store; false: no memory */
};

/* An examination: what a store reports of its servers, in sentences. */
struct dibs__examination {
    void *context;
    bool (*goes_on)(void *context);                            /* as of a walk */
    bool (*found)(void *context, const dibs_finding *finding); /* copies the finding; false: no memory */
    uint32_t admit_ms; /* of a quorum: its masters are admitted, assuming leases of that length; 0: they are not */
    bool no_memory;    /* set: something was not found out, or not reported, because there was no memory */

    /* The fields from here on are set by a store on one server. */
    bool reached;
    uint64_t server; /* a number for the server's process and data; 0: not known */
    bool clock_known;
    int64_t ahead_us; /* the server's clock minus this host's */
};

#define DIBS__FINDING_MAX 512 /* bytes of a text or a remedy including the NUL; longer text is cut */

/* Reports a finding. The text is given as for printf. remedy: "" if the verdict is ok. */
void dibs__found(struct dibs__examination *examination, const char *server, const char *subject, dibs_verdict verdict,
                 const char *remedy, const char *format, ...) DIBS__PRINTF(6, 7);

/* What a renewal tells the store about the use of a lease that its process may keep. */
enum dibs__use {
    DIBS__USE_UNTOLD, /* nothing new */
    DIBS__USE_HELD,   /* somebody in this process uses the lease */
    DIBS__USE_KEPT,   /* nobody in this process uses the lease: it is kept */
    DIBS__USE_WANTED  /* somebody uses the lease, and it will be released after that use: it need not be recalled any
                         more */
};

enum dibs__renewed {
    DIBS__UNANSWERED,
    DIBS__RENEWED,
    DIBS__GONE,
    DIBS__WATCHED /* of a batch with `watch`: the token has the lock, and the listener will be told when that changes */
};

#define DIBS__BATCH_MAX 192

/*
 * Belongs to the store until done is called, which happens once, on the scheduler's thread, perhaps before
 * renew returns.
 */
struct dibs__batch {
    bool watch; /* the locks of the items are not renewed, but watched; only if store->watches */
    size_t count;
    struct dibs__renewal {
        const char *name, *token;
        uint32_t lease_ms;
        uint64_t fence;
        enum dibs__use use; /* sent with the renewal, together with the fence: later grants have larger ones */
        bool raised;        /* set, with use: the store has that fence */
        bool wanted;        /* set, with use: others wait for the lock */
        bool extension;     /* sets the lease to lease_ms; without it a lease is never made shorter */
        bool fixed;  /* the lease keeps the end that it had: lease_ms is what the holder counts on, and the store may
                        give a little more */
        bool look;   /* the lock is only looked at, because of a change; WATCHED if the token has it. The lease stays as
                        it is, so that nobody is told of another change */
        bool top_up; /* of a member of a quorum: if nobody holds the lock, it is set for the token, but not after a
                        forced unlock. Until the answer, a retraction of the token must arrive behind it */
        struct dibs__lease_store_state store_state; /* as the grant or the last renewal of the lease left it, zero if
                                                       the store never granted the lease; set */
        uint32_t pending_extension_ms; /* as the last renewal left it, zero after the grant; set: an extension that was
                                          sent and never answered may still arrive, and would cut the lease to this
                                          length. 0: there is none */
        struct dibs__extension_store_state pending_extension; /* as pending_extension_ms */
        enum dibs__renewed result;
        dibs_status status; /* set if unanswered for a reason of its own; else DIBS_OK: the batch's reason holds */
        bool was_anothers;  /* set, by a member of a quorum, if the lock is gone: it was granted to another since, or
                               taken away by force */
        bool sent;          /* set, by a member of a quorum: something of the item may reach the server */
        int64_t again_ms; /* set if the item is renewed and pending_extension_ms is less than lease_ms: after this time
                             a renewal makes the whole of lease_ms sure */
        struct dibs__redirect *redirect; /* for a node of a cluster; else NULL */
        void *context;
    } items[DIBS__BATCH_MAX];
    int64_t proof; /* the time just before the first request was sent: any of the requests may be the one that renewed
                      an item */
    int64_t server_us; /* set, by a member of a quorum: the master's clock between proof and done; 0: not told */
    void (*done)(struct dibs__batch *batch, const struct dibs__error *error); /* error: why items are unanswered */

    /*
     * For renewals by a store with several servers, so that no server waits for another: as done, but for some
     * of the items and before done. `part` has copies of these items, and a proof of its own; it belongs to the
     * store again when landed returns. After that, done is called with count 0. The store decides for each
     * batch whether to divide it.
     */
    void (*landed)(struct dibs__batch *batch, struct dibs__batch *part, const struct dibs__error *error);
    void *context;
};

/*
 * What a store reports. The functions are called by any thread, also within the store's own calls,
 * and with none of the store's mutexes held. The exception is `reachable`, which is called under a
 * mutex so that its calls come in the right order.
 *
 * The functions with `context` report what means the same whichever store reports it: a store that
 * is built on others passes them on to each of those unchanged, and takes no part in these reports.
 * It handles the functions with `source` itself; `source` says which of the others reports.
 */
struct dibs__listener {
    void *context;
    void (*wake)(void *context);                  /* interest must be called again */
    void (*wake_by)(void *context, int64_t when); /* interest names that time, or an earlier one, from now on */
    void (*ask_again)(void *context);             /* grants may have been missed: every waiter must ask */

    /*
     * Only called by a store that watches. A hint: the lock that was watched may be gone or have another owner;
     * NULL: any lock. The hint may come late, twice, or because of what this process did itself.
     */
    void (*changed)(void *context, const char *name);

    void *source;
    bool (*granted)(void *source, const struct dibs__grant *grant); /* false: no attempt or lease here has the token */
    void (*server_changed)(void *source); /* the scheduler's: renewals go to another server now; is_unconfirmed must be
                                             called again for every lease */
    void (*reachable)(void *source, bool up, const char *detail); /* called only when it changes */
    void (*watching)(void *source, bool on); /* the scheduler's; only called by a store that watches. true: changes of
                                                watched locks are reported from now on; false: something that was
                                                watched is not watched any more, and true may follow at once */
};

struct dibs__counters {
    atomic_uint_fast64_t commands, errors, reconnects;
    atomic_uint_fast64_t tracking;      /* 1: the listener is told of changes; else 0 */
    atomic_uint_fast64_t invalidations; /* how often the listener was told of a change of one lock, or of all */
    atomic_uint_fast64_t unconfirmed;   /* how many retractions are not confirmed now */
};

struct dibs__store;

/* How far an operation is that was begun. */
enum dibs__progress {
    DIBS__OP_AWAITED,   /* it was sent, and the reply is awaited */
    DIBS__OP_OVER,      /* it was sent, and finish will not wait for the reply: it has come, or its time is over */
    DIBS__OP_IMMEDIATE, /* nothing was sent, and finish carries out the whole operation without waiting */
    DIBS__OP_UNSENT,    /* nothing was sent, because there is no connection; one is being made */
    DIBS__OP_CONNECTED, /* nothing was sent, and by now there is a connection: begin again. If that does not help,
                           finish has more to do than to wait for one reply */
    DIBS__OP_FAILED, /* nothing was sent, and no connection could be made: finish says why, even after the deadline */
    DIBS__OP_BROKEN  /* it was sent, and its connection broke, or the node of a cluster answered with an error, for
                        example because the lock has moved: finish may need time to send it again, there or elsewhere */
};

static inline bool dibs__op_was_sent(enum dibs__progress progress)
{
    return progress == DIBS__OP_AWAITED || progress == DIBS__OP_OVER || progress == DIBS__OP_BROKEN;
}

struct dibs__store_ops {
    /*
     * Connects a store that was just opened; called twice or never. The first call has wait
     * false: it blocks only for the resolver, so that the caller can do something else meanwhile. The second
     * call, unless the first failed, has wait true: it blocks until connect_timeout_ms have passed since the
     * first. A status of dibs_open.
     */
    dibs_status (*connect)(struct dibs__store *store, bool wait, struct dibs__error *error);

    void (*begin)(struct dibs__store *store, struct dibs__op *op);
    const struct dibs__op_row *rows; /* for dibs__rows_begin and dibs__rows_finish, by the kind of the operation */

    /*
     * Says how far an operation is that was begun, and takes what has come. Never blocks. As long
     * as the answer is AWAITED or UNSENT, the wait (base/wait.h) is registered for what comes next:
     * the thread sleeps and then calls this again, or ends the wait. A thread must end all of its
     * waits before it does anything else that takes time, since it may be the one that receives for
     * other threads. wait NULL: the caller does not want to wait.
     *
     * Fair asks that were begun one after the other, and sent, arrive in that order as long as no
     * connection breaks; but not if replicas or the disk are waited for.
     */
    enum dibs__progress (*progress)(struct dibs__store *store, const struct dibs__op *op, struct dibs__wait *wait);

    dibs_status (*finish)(struct dibs__store *store, struct dibs__op *op, struct dibs__error *error);

    /*
     * The attempt is over, or goes on under a new token. If it is not held, the store retracts in the
     * background what the attempt may have left. Never blocks. A second call changes nothing.
     */
    void (*conclude)(struct dibs__store *store, struct dibs__attempt *attempt, bool held);

    /*
     * Reports each name that somebody held throughout the call, and perhaps others; some of them twice.
     * DIBS_OK: all were reported; DIBS_UNAVAILABLE, DIBS_DENIED, DIBS_STORE_ERROR, DIBS_NO_MEMORY, DIBS_CLOSED.
     * Each round trip takes a command timeout at most.
     */
    dibs_status (*walk)(struct dibs__store *store, const struct dibs__walk *walk, struct dibs__error *error);

    /* As dibs_examine: DIBS_OK, DIBS_NO_MEMORY, DIBS_CLOSED. With admit_ms as dibs_admit: also DIBS_UNAVAILABLE. */
    dibs_status (*examine)(struct dibs__store *store, struct dibs__examination *examination, struct dibs__error *error);

    /*
     * Waits until the wait event is woken, for example by a callback of the listener, or until the
     * time. Meanwhile the calling thread may be the one that reads what the server pushes, for all
     * threads, on the connection that serves the name. wait_event NULL: does not block; it says
     * that somebody waits for a push without calling listen, so the store must soon read by itself.
     * A store whose listen is NULL has nothing to read: the thread only sleeps
     * (dibs__store_listen).
     */
    void (*listen)(struct dibs__store *store, const char *name, struct dibs__wait_event *wait_event, int64_t until);

    /*
     * Releases in the background, until the store confirms it or a lease of lease_ms (the longest that the
     * token may have) must be over at the server anyway. fence: of the grant, 0 if none is known. Waiters that
     * saw the token at another server leave the lock to the token until then at most. Never blocks, never fails
     * the caller.
     */
    void (*retract)(struct dibs__store *store, const char *name, const char *token, uint32_t lease_ms, uint64_t fence);

    /*
     * The scheduler's: renews each lease that its token still has, in the order of the calls. The
     * store alone decides whether it restores a lease that it may have forgotten. A renewal never
     * shortens a lease; if more is left than the renewal asks for, a member of a quorum answers
     * DIBS__UNANSWERED (rule 52).
     *
     * A batch with `watch` has the listener told of changes of the locks instead. DIBS__WATCHED: it
     * will be told; DIBS__GONE: the lock seems to have another owner, which a renewal must find
     * out; DIBS__UNANSWERED: the lock is not watched. Until the listener is told that watching is
     * on, nothing is watched; the first such batch makes the store begin to watch.
     */
    void (*renew)(struct dibs__store *store, struct dibs__batch *batch);

    /*
     * Whether renewals are answered by another server now than the one that confirmed the lease last. That
     * server may not know the lease, which must be renewed at once. Never blocks, takes no lock, may be called
     * with a lock of the caller's held.
     */
    bool (*is_unconfirmed)(struct dibs__store *store, const struct dibs__lease_store_state *lease);

    /*
     * Any thread. Called when another kind of client has the lock. Returns non-zero if `changed` of the
     * listener will say when the lock is free, or may be; 0 if not. since: what the last call for the name
     * returned, or 0. Never blocks. NULL: the store never tells.
     */
    uint64_t (*tell_when_free)(struct dibs__store *store, const char *name, uint64_t since);

    /*
     * Any thread. Whether a lease of that name may be kept now, which requires that asks for the lock recall it
     * and that changes are reported. If not, the store begins to watch, with that name as its probe. Never
     * blocks. NULL: no lease may ever be kept.
     */
    bool (*can_keep)(struct dibs__store *store, const char *name);

    /*
     * What the calling thread begins between a call with `on` and a call without goes out together, at the end:
     * one write for many requests. The thread must not wait for any of them in between. Calls can be nested.
     * NULL: nothing would be gained.
     */
    void (*gather)(struct dibs__store *store, bool on);

    /*
     * The scheduler's event loop. interest says what to poll for (at most fd_max descriptors) and until when;
     * attend then handles what has happened.
     */
    size_t (*interest)(struct dibs__store *store, struct pollfd *fds, int64_t *deadline);
    void (*attend)(struct dibs__store *store, const struct pollfd *fds, size_t count);

    /*
     * Frees the store. No thread is inside, and all that was begun is finished. Batches that are under way are
     * done, unanswered.
     */
    void (*close)(struct dibs__store *store);
};

struct dibs__store {
    const struct dibs__store_ops *ops;
    size_t fd_max;     /* the largest number of descriptors that interest fills in */
    bool watches;      /* renew takes batches with `watch` */
    bool answers_keep; /* the answer to a sent ask may be taken later: nobody else waits for it */
};

/* How a store carries out operations of one kind: a row of its table. */
struct dibs__op_row {
    void (*begin)(struct dibs__store *store, struct dibs__op *op); /* NULL: finish carries out the whole operation */
    dibs_status (*finish)(struct dibs__store *store, struct dibs__op *op, struct dibs__error *error);
};

/* begin and finish of a store that has such a table. */
static inline void dibs__rows_begin(struct dibs__store *store, struct dibs__op *op)
{
    if (store->ops->rows[op->kind].begin)
        store->ops->rows[op->kind].begin(store, op);
}

static inline dibs_status dibs__rows_finish(struct dibs__store *store, struct dibs__op *op, struct dibs__error *error)
{
    return store->ops->rows[op->kind].finish(store, op, error);
}

/* What the calling thread begins between on and off goes out together (gather). */
static inline void dibs__store_gather(struct dibs__store *store, bool on)
{
    if (store->ops->gather)
        store->ops->gather(store, on);
}

/* clock: the one given at the opening. */
static inline void dibs__store_listen(struct dibs__store *store, const struct dibs__clock *clock, const char *name,
                                      struct dibs__wait_event *wait_event, int64_t until)
{
    if (store->ops->listen)
        store->ops->listen(store, name, wait_event, until);
    else if (wait_event)
        dibs__wait_event_wait(wait_event, clock, until);
}

/* How a thread waits for the reply to an operation that it began. */
struct dibs__waiting {
    const struct dibs__clock *clock;     /* the one given at the opening */
    int64_t until;                       /* the latest time */
    struct dibs__wait_event *wait_event; /* NULL: the thread waits for the reply alone */
    const atomic_bool *cancelled; /* used only with a wait event, which is woken when this is set: ends the wait */
    struct dibs__wait *watch;     /* set: the thread does not wait. While the reply is awaited, the wait event of the
                                     watch, which must have `tell`, is told when there may be news; the scheduler reads
                                     meanwhile. The watch must be ended before the operation is awaited or finished */
};

/* What is known of such a reply. */
enum dibs__awaited {
    DIBS__HAS_COME,      /* finish will not wait */
    DIBS__STILL_AWAITED, /* the time is over, or the wait was cancelled */
    DIBS__NOT_AWAITED    /* finish has more to do than to wait: nothing was sent, or the connection broke */
};

/* Waits as long as the reply is awaited. */
enum dibs__awaited dibs__op_await(struct dibs__store *store, const struct dibs__op *op,
                                  const struct dibs__waiting *waiting);

struct dibs__tls;

/* What is needed to be let in and is not in the URL. NULL: not given. */
struct dibs__access {
    char *tls_ca_file, *tls_cert_file, *tls_key_file, *tls_server_name;
    char *sentinel_user, *sentinel_password;
    struct dibs__tls *tls; /* written while the runtime is opened: made of the tls_ fields by the first store that needs
                              it; NULL: no store did */
};

void dibs__access_free(struct dibs__access *access); /* NULL is fine; every store that was given it is closed */

struct dibs__store_config {
    const char *url;             /* of the store; of a quorum the first */
    const char *const *urls;     /* of the members of a quorum */
    size_t url_count;            /* number of urls; 0 or 1: there is one store, that of url */
    struct dibs__access *access; /* outlives the store; NULL: nothing is given, and no URL uses TLS */
    const char *key_prefix;      /* outlives the store */
    const char *client_name;     /* outlives the store */
    const char *runtime_id; /* outlives the store; grants for this runtime are sent to the channel dibs:<runtime_id> */
    uint32_t connect_timeout_ms, command_timeout_ms;
    uint32_t min_replicas, replica_timeout_ms;
    bool durable;                        /* a grant counts only once the server has it on disk */
    uint32_t lease_ms;                   /* of most leases; a quorum announces it to its masters. 0: not known */
    uint32_t spin_us;                    /* how long a waiting thread polls at most; 0: not at all */
    const struct dibs__node_hooks *node; /* set for a node of a cluster (store/redis/redis.h); else NULL */
    bool is_member; /* the store is one master of a quorum: it grants asks only if the master may vote. A release does
                       not grant the lock to the first in the queue, but tells it that the lock may be free: a grant
                       with fence 0 and confirm */
    const _Atomic uint64_t *quorum; /* with is_member: the number of that quorum; 0, or NULL: not known */
    const struct dibs__clock *clock;
    struct dibs__listener listener;
    struct dibs__counters *counters;
};

/*
 * Opens the store of config->url, or the quorum of config->urls. Nothing is connected, so that can't fail: `connect`
 * does that, or the first operation. A status of dibs_open; *out is NULL on failure.
 */
dibs_status dibs__store_open(struct dibs__store **out, const struct dibs__store_config *config,
                             struct dibs__error *error);

#endif
