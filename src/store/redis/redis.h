/* The store on one Redis server. Its scripts: src/redis/scripts. */
#ifndef DIBS_STORE_REDIS_REDIS_H
#define DIBS_STORE_REDIS_REDIS_H

#include "base/backoff.h"
#include "store/store.h"

struct dibs__url;

dibs_status dibs__redis_open(struct dibs__store **out, const struct dibs__store_config *config,
                             struct dibs__error *error);

/* As dibs__redis_open for a URL that was parsed already. *url is emptied, and config->url does not matter. */
dibs_status dibs__redis_open_at(struct dibs__store **out, struct dibs__url *url,
                                const struct dibs__store_config *config, struct dibs__error *error);

/* ------------------------------------------------------ a node of a cluster */

/* Why a node did nothing. */
enum dibs__redirect_kind {
    DIBS__REDIRECT_NONE,  /* the node did something, or can't be reached */
    DIBS__REDIRECT_MOVED, /* another node has the slot */
    DIBS__REDIRECT_ASK,   /* the slot is moving, and nothing of the lock is at this node any more: ask the other node */
    DIBS__REDIRECT_AGAIN  /* the slot is moving, and part of the lock is at each node: try again later */
};

/*
 * Belongs to one operation at a node of a cluster, and outlives the operation. An operation that the node redirected
 * ends with DIBS_UNAVAILABLE: the node has done nothing, and the store does not continue the operation.
 */
struct dibs__redirect {
    bool asking; /* another node named this one by ASK, and the slot is not here yet. Set to false, with AGAIN, if this
                    node has got the slot meanwhile and is giving it to a third: it was asked for one key only, and may
                    still have others */
    enum dibs__redirect_kind kind; /* set if the node redirected the operation; zero before */
    void *to;                      /* set with MOVED and ASK: what `redirected` returned */
    bool in_doubt; /* set by a release that failed: the node may have done the release. The store does not retract the
                      token then */
};

/* A retraction that another node must continue. */
struct dibs__forwarded_retraction {
    const char *name, *token;
    uint64_t fence;    /* of the token; 0: not known */
    uint32_t lease_ms; /* how long the owner had the lock for; 0: not known */
    int64_t ends;      /* by then nothing of the token is left */
    int64_t not_after; /* in us of the server's clock: before that time, the retraction is not final; 0: it is final */
    bool asking;       /* as in struct dibs__redirect */
    unsigned hops;     /* how often the retraction went from node to node */
    struct dibs__backoff backoff; /* of the pauses between hops */
};

/* Called from any thread, with no lock of the store's held. */
struct dibs__node_hooks {
    void *context;

    /*
     * The other node has the slot now or, with `ask`, what this one lacks of the slot. host "": the host of this node.
     */
    void *(*redirected)(void *context, bool ask, unsigned slot, const char *host, unsigned port);

    /* The node that `redirected` returned must continue the retraction; to NULL: the node that has the slot. */
    void (*forward)(void *context, void *to, const struct dibs__forwarded_retraction *forwarded);

    /* Whether another node has the slot of that name, as far as is known. May be called with any lock held. */
    bool (*is_away)(void *context, const char *name);
};

/* Slots from first to last, which a master has. host "": that of the server which reported them. */
struct dibs__slot_range {
    unsigned first, last;
    const char *host;
    unsigned port;
};

/* What the node says of all slots; error: why it says nothing. */
typedef void dibs__slots_fn(void *context, const struct dibs__slot_range *ranges, size_t count,
                            const struct dibs__error *error);

/*
 * The scheduler's. True: `told` is called, once, on that thread. False: it is not, because there is no connection or no
 * memory.
 */
bool dibs__redis_ask_slots(struct dibs__store *store, dibs__slots_fn *told, void *context);

/* As dibs__redis_ask_slots, on the calling thread, which connects if need be, and waits until the deadline. */
dibs_status dibs__redis_await_slots(struct dibs__store *store, int64_t deadline, dibs__slots_fn *told, void *context,
                                    struct dibs__error *error);

/* A number for the server that renewals go to, and one for the server that confirmed a lease last; 0: not known. */
uint64_t dibs__redis_server(struct dibs__store *store);
uint64_t dibs__redis_lease_server(const struct dibs__lease_store_state *lease);

/* The slot of a lease moved here with all that was in it: this server knows what the other one knew. */
void dibs__redis_lease_came(struct dibs__store *store, struct dibs__lease_store_state *lease);

/*
 * Whether an ask of the attempt is in doubt. If so, the token must be concluded at the store that the ask was sent to.
 */
bool dibs__redis_attempt_is_in_doubt(const struct dibs__attempt *attempt);

/* The server that last said who has the lock of the attempt; 0: none has said so. */
uint64_t dibs__redis_attempt_server(const struct dibs__attempt *attempt);

/*
 * The attempt, with no ask in doubt, continues at this store. knows: the server of this store has what the other one
 * had.
 */
void dibs__redis_attempt_came(struct dibs__store *store, struct dibs__attempt *attempt, bool knows);

/* Any thread. Continues a retraction that another node forwarded. */
void dibs__redis_take_forwarded(struct dibs__store *store, const struct dibs__forwarded_retraction *forwarded);

/*
 * The scheduler's: forwards the retractions whose names other nodes have. Those that are under way can be forwarded
 * once they have been answered.
 */
void dibs__redis_give_strays(struct dibs__store *store);

/* How many retractions of the store are not confirmed. */
size_t dibs__redis_unconfirmed(struct dibs__store *store);

/* `gather` of every store that is built on stores on Redis. */
void dibs__redis_gather(struct dibs__store *store, bool on);

#endif
