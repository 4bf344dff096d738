/* The store on one Redis server. Its scripts: src/redis/scripts. */
#ifndef DIBS_STORE_REDIS_REDIS_H
#define DIBS_STORE_REDIS_REDIS_H

#include "store/store.h"

struct dibs__url;

dibs_status dibs__redis_open(struct dibs__store **out, const struct dibs__store_config *config,
                             struct dibs__error *error);

/* The same for a URL that is taken apart already, which is emptied; that of the config does not matter. */
dibs_status dibs__redis_open_at(struct dibs__store **out, struct dibs__url *url,
                                const struct dibs__store_config *config, struct dibs__error *error);

/* ------------------------------------------------------ a node of a cluster */

/* Why a node did nothing. */
enum dibs__redirect_kind {
    DIBS__REDIRECT_NONE,  /* it did something, or can't be reached */
    DIBS__REDIRECT_MOVED, /* another node has the slot */
    DIBS__REDIRECT_ASK,   /* the slot is moving, and nothing of the lock is here any more: ask the other node */
    DIBS__REDIRECT_AGAIN  /* the slot is moving, and so is the lock, in parts: later */
};

/*
 * Of one operation at a node of a cluster; outlives the operation. What a node
 * turned away is DIBS_UNAVAILABLE, has done nothing, and the store does not go on
 * with it.
 */
struct dibs__redirect {
    bool asking; /* another node named this one by ASK, though the slot is not here yet. Set to false with AGAIN where
                    this one has got the slot meanwhile, and gives it to a third: it was asked for one key alone, and
                    may have others still */
    enum dibs__redirect_kind kind; /* set where the node turned the operation away; zero before */
    void *to;                      /* set with MOVED and ASK: what `redirected` returned */
    bool in_doubt;                 /* set by a release that failed: the node may have done it. Nothing is retracted */
};

/* A retraction that another node must go on with. */
struct dibs__forwarded_retraction {
    const char *name, *token;
    uint64_t fence;    /* of the token; 0: not known */
    int64_t ends;      /* nothing of the token is left then */
    int64_t not_after; /* in us of the server's clock; before, the retraction is not final; 0: it is */
    bool asking;       /* as of the redirect */
    unsigned hops;     /* how often it went from node to node */
};

/* Called from any thread, with no lock of the store's held. */
struct dibs__node_hooks {
    void *context;

    /* The other node has the slot now, or (ask) what this one lacks of it. host "": the host of this node. */
    void *(*redirected)(void *context, bool ask, unsigned slot, const char *host, unsigned port);

    /* What `redirected` returned must go on with it; NULL: the node that has the slot. */
    void (*forward)(void *context, void *to, const struct dibs__forwarded_retraction *forwarded);

    /* Whether another node has the slot of that name, as far as is known. May be called with any lock held. */
    bool (*is_away)(void *context, const char *name);
};

/* Slots from first to last, which a master has. host "": that of the server which said so. */
struct dibs__slot_range {
    unsigned first, last;
    const char *host;
    unsigned port;
};

/* What the node says of all slots; error: why it says nothing. */
typedef void dibs__slots_fn(void *context, const struct dibs__slot_range *ranges, size_t count,
                            const struct dibs__error *error);

/* The scheduler's: false: there is no connection, and `told` is not called; else it is, once, on that thread. */
bool dibs__redis_ask_slots(struct dibs__store *store, dibs__slots_fn *told, void *context);

/* The same, on the calling thread, which connects if need be and waits until the deadline. */
dibs_status dibs__redis_await_slots(struct dibs__store *store, int64_t deadline, dibs__slots_fn *told, void *context,
                                    struct dibs__error *error);

/* A number for the server that renewals go to; 0: not known. That of the server that confirmed a lease last. */
uint64_t dibs__redis_server(struct dibs__store *store);
uint64_t dibs__redis_lease_server(const struct dibs__lease_store_state *lease);

/* The slot of a lease moved here with all that was in it: this server knows what the other one knew. */
void dibs__redis_lease_came(struct dibs__store *store, struct dibs__lease_store_state *lease);

/* Whether an ask of the attempt is in doubt. Then its token must be concluded where that ask went. */
bool dibs__redis_attempt_is_in_doubt(const struct dibs__attempt *attempt);

/* The server that said last who has the lock that the attempt is for; 0: none did. */
uint64_t dibs__redis_attempt_server(const struct dibs__attempt *attempt);

/* The attempt, with no ask in doubt, goes on at this store. knows: its server has what the other one had. */
void dibs__redis_attempt_came(struct dibs__store *store, struct dibs__attempt *attempt, bool knows);

/* Goes on with a retraction of another node. Any thread. */
void dibs__redis_take_forwarded(struct dibs__store *store, const struct dibs__forwarded_retraction *forwarded);

/* The scheduler's: forwards the retractions whose names are away. Those under way come back, and follow then. */
void dibs__redis_give_strays(struct dibs__store *store);

/* How many of its retractions are not confirmed. */
size_t dibs__redis_unconfirmed(struct dibs__store *store);

/* `gather` of every store that stands on stores on Redis. */
void dibs__redis_gather(struct dibs__store *store, bool on);

#endif
