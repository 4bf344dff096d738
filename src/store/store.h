/*
 * The contract between the core and what keeps the locks.
 *
 * A store knows names and tokens. It grants a name to a token for a lease;
 * nothing else about threads, holds or runtimes is its business. There are two:
 * memory.c, inside the process, and redis.c.
 *
 * Calls block at most until their deadline (of the clock given at the opening)
 * and may come from any thread, except those said to be the scheduler's: these
 * never block. A failing call fills its error, a good one leaves it alone.
 */
#ifndef DIBS_STORE_STORE_H
#define DIBS_STORE_STORE_H

#include <poll.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/error.h"

#define DIBS__TOKEN_MAX 192 /* with the NUL */
#define DIBS__LEASE_MAX_MS 86400000

/*
 * One attempt at a lock, over all its asks. Its token is unique to it; its asks
 * are numbered, and a grant that comes by the listener names the ask that
 * proves it. One thread at a time.
 */
struct dibs__ask {
    const char *name, *token;
    uint32_t lease_ms;
    bool wait;        /* taken: the token joins the queue of the name, if the store can do that now */
    bool fair;        /* with wait: it must join the queue; where that can't be done the ask fails */
    int64_t deadline; /* of the next ask alone */

    uint64_t number;      /* of the last ask; set by the store, as is the rest. Zero before the first ask of a token */
    int64_t proof;        /* when that was about to be sent: a lease that it proves lasts at least from there */
    uint64_t server;      /* that it was sent to; what it forgets, another server number tells. 0: not known */
    bool in_store;        /* the store may know the token, in the queue or as the owner */
    int64_t seen_until;   /* the store's own: the lock is another's until then, though a server other than */
    uint64_t seen_server; /* this may not know it. 0: none was seen */
    unsigned route;       /* the store's own, as is doubt: an ask whose outcome is unknown */
    void *doubt;
};

struct dibs__answer {
    uint64_t fence;   /* granted: larger than any before for the name; below 2^53 */
    int64_t again_ms; /* taken: ask again after this time, if the listener says nothing before */
    bool spent;       /* the store retracts the token: the next ask has a new one */
    bool unmet;       /* why: it was granted, but too few replicas acknowledged. Else the outcome is unknown */
};

/* A grant that the store made by itself, to a token that was in the queue. */
struct dibs__grant {
    const char *name, *token;
    uint64_t number; /* the ask that proves it */
    uint64_t fence;
    bool confirm; /* it is not enough: the waiter is to ask again */
};

/* The end of a hold in the store, and, where next is not NULL, an ask behind it in the same round trip. */
struct dibs__release {
    const char *name, *token;
    uint32_t lease_ms; /* as for retract, which takes over where the store does not answer */
    int64_t deadline;
    struct dibs__ask *next;  /* of the same name */
    bool again;              /* set: it had to be sent twice, so the first sending may have done it */
    dibs_status next_status; /* set, as acquire would; the error is the release's alone */
    struct dibs__answer next_answer;
};

enum dibs__renewed { DIBS__UNANSWERED, DIBS__RENEWED, DIBS__GONE };

/*
 * An extension that was sent and never answered, and may still arrive: it would
 * cut the lease to lease_ms then. The store's own, kept with the lease. All zero: there is none.
 */
struct dibs__stuck {
    uint32_t lease_ms;
    uint64_t serial;   /* of the connection that it went over; of several the first */
    int64_t not_after; /* the server ignores it after this time; of several the last */
};

#define DIBS__BATCH_MAX 256

/* The caller's, until done is called: once, on the scheduler's thread, maybe before renew returns. */
struct dibs__batch {
    size_t count;
    struct dibs__renewal {
        const char *name, *token;
        uint32_t lease_ms;
        uint64_t fence;
        bool extension;           /* sets the lease to lease_ms; else it is never made shorter */
        bool set_again;           /* where another server answers than `server`, and nobody was granted since */
        uint64_t server;          /* that the lease was proved by last; set where it is renewed */
        struct dibs__stuck stuck; /* as the last renewal of the lease left it; set */
        enum dibs__renewed result;
        dibs_status
            status;       /* set where it is unanswered, if that has a reason of its own; DIBS_OK: it is the batch's */
        uint32_t sure_ms; /* set where it is renewed: so much of lease_ms is sure, whatever arrives late */
        int64_t again_ms; /* set where that is not all of it: a renewal after this time makes it so */
        void *context;
    } items[DIBS__BATCH_MAX];
    int64_t proof; /* when the request was about to be sent */
    void (*done)(struct dibs__batch *batch, const struct dibs__error *error); /* error: why items are unanswered */
    void *context;
};

/* What a store tells. From any thread, also from within its calls; with no lock of the store's held. */
struct dibs__listener {
    void *context;
    void (*wake)(void *context);                                     /* call interest again */
    bool (*granted)(void *context, const struct dibs__grant *grant); /* false: nobody waits for it or has it */
    void (*ask_again)(void *context);                  /* grants may have been missed: whoever waits is to ask */
    void (*forgetful)(void *context, uint64_t server); /* the scheduler's: renewals go there now, and it may not know
                                                          of leases that another server proved */
    void (*reachable)(void *context, bool up, const char *detail); /* only when it changes */
};

struct dibs__counters {
    atomic_uint_fast64_t commands, errors, reconnects;
    _Atomic int64_t heard; /* when the store last gave an answer other than that it can't serve now */
};

struct dibs__store;

struct dibs__store_ops {
    /*
     * DIBS_OK: granted; DIBS_BUSY: taken; DIBS_UNAVAILABLE, DIBS_DENIED,
     * DIBS_STORE_ERROR, DIBS_NO_MEMORY. A waiting ask that was taken may be
     * granted by the listener from now on, and before this returns.
     */
    dibs_status (*acquire)(struct dibs__store *store, struct dibs__ask *ask, struct dibs__answer *answer,
                           struct dibs__error *error);

    /* The attempt is over. Not held: retracts what it may have left, in the background. Never blocks. */
    void (*conclude)(struct dibs__store *store, struct dibs__ask *ask, bool held);

    /*
     * DIBS_OK: the lock was the token's and is no more; DIBS_NOT_HELD: it was
     * not. Otherwise the store goes on by itself, as if retract had been called.
     */
    dibs_status (*release)(struct dibs__store *store, struct dibs__release *release, struct dibs__error *error);

    /*
     * Releases in the background, until it is confirmed, or a lease of lease_ms
     * (the longest that the token may have) must be over at the server anyway.
     * Never blocks, never fails the caller.
     */
    void (*retract)(struct dibs__store *store, const char *name, const char *token, uint32_t lease_ms);

    /* As dibs_query and dibs_force_unlock; the fence of the owner is the store's. */
    dibs_status (*query)(struct dibs__store *store, const char *name, int64_t deadline, dibs_owner *owner,
                         struct dibs__error *error);
    dibs_status (*force_unlock)(struct dibs__store *store, const char *name, const char *token, int64_t deadline,
                                struct dibs__error *error);

    /* The scheduler's: renews the leases that are still their tokens'. In the order of the calls. */
    void (*renew)(struct dibs__store *store, struct dibs__batch *batch);

    /* The scheduler's event loop: what to poll for (at most fd_max), until when at the latest; then goes on. */
    size_t (*interest)(struct dibs__store *store, struct pollfd *fds, int64_t *deadline);
    void (*attend)(struct dibs__store *store, const struct pollfd *fds, size_t count);

    /* How many retractions the store has not confirmed yet. */
    size_t (*unconfirmed)(struct dibs__store *store);

    void (*close)(
        struct dibs__store *store); /* nobody is inside; frees it; batches that are out are done, unanswered */
};

struct dibs__store {
    const struct dibs__store_ops *ops;
    size_t fd_max;
};

struct dibs__store_config {
    const char *url;
    const char *key_prefix;
    const char *client_name;
    const char *runtime_id; /* grants for this runtime are sent to the channel dibs:<runtime_id> */
    uint32_t connect_timeout_ms, command_timeout_ms;
    uint32_t min_replicas, replica_timeout_ms;
    bool connect_later; /* opening does not connect, and does not fail for that: the first call does */
    const struct dibs__clock *clock;
    struct dibs__listener listener;
    struct dibs__counters *counters;
};

/*
 * To be called by who opens stores under a mutex that it holds across forks,
 * before its own pthread_atfork. False: no memory; to be called again.
 */
bool dibs__store_watch_forks(void);

/* Opens the store of config->url (connects). *out = NULL on failure: a status of dibs_open. */
dibs_status dibs__store_open(struct dibs__store **out, const struct dibs__store_config *config,
                             struct dibs__error *error);

#endif
