/*
 * What the files of the store on a cluster share; no other file includes it. doc/ARCHITECTURE.md says what each
 * file is for.
 *
 * Lock discipline: `mutex` guards which nodes there are, and whether they are open. It is held while a node is opened,
 * which only takes memory, but not while a node is asked anything, nor while its store is closed. `down` changes under
 * the mutex, and the listener is told before the mutex is released. A node reports that it can or can't be reached
 * while its own mutex is held.
 *
 * The stores of the nodes. A node is opened by the first thread that needs it. The scheduler's thread closes it when
 * the map does not name it and nobody uses it. `users` counts the users: operations under way, attempts that the node
 * may know of, and batches. In a node that is closed it is DIBS__NODE_CLOSED, so nobody can begin to use the node
 * without opening it. The place of a node that is closed, and that the map does not name, is used again.
 */
#ifndef DIBS_STORE_CLUSTER_PARTS_H
#define DIBS_STORE_CLUSTER_PARTS_H

#include "base/backoff.h"
#include "base/mutex.h"
#include "redis/slot.h"
#include "redis/url.h"
#include "store/redis/redis.h"

#define DIBS__NODES_MAX 128
#define DIBS__NO_NODE 255 /* the owner of a slot that no node has, as far as is known */
#define DIBS__NODE_CLOSED (-1)
#define DIBS__MAP_MS 15000     /* about how often the map is asked for in any case */
#define DIBS__MAP_FIRST_MS 20  /* the first pause before the map is asked for again */
#define DIBS__PAUSE_FIRST_MS 2 /* the first pause of an operation that was redirected */

_Static_assert(DIBS__NODES_MAX <= DIBS__NO_NODE, "a node's place fits into a byte");

DIBS__MUTEX_CLASS(dibs__cluster_mutex);

struct dibs__cluster;

struct dibs__node {
    struct dibs__cluster *cluster;                    /* read-only */
    unsigned place;                                   /* read-only; index in the table of nodes */
    struct dibs__node_hooks hooks;                    /* read-only while the node is open */
    char *host DIBS__GUARDED_BY(dibs__cluster_mutex); /* NULL: the place is free */
    unsigned port DIBS__GUARDED_BY(dibs__cluster_mutex);
    struct dibs__store *member;  /* read-only while the node is open */
    atomic_int users;            /* atomic; number of users, or DIBS__NODE_CLOSED */
    atomic_bool in_map;          /* atomic; the map names the node */
    atomic_bool down;            /* atomic; the node can't be reached */
    _Atomic int64_t down_since;  /* atomic; set before `down` */
    atomic_uint_fast64_t server; /* atomic; as dibs__redis_server; 0: not known */
    bool watching;               /* scheduler thread only; the node reports changes */
    size_t fd_count; /* scheduler thread only; number of descriptors of the last interest; 0: the node was not open */
    int64_t idle_since; /* scheduler thread only; since when the node is not needed; 0: it is */
};

struct dibs__cluster {
    struct dibs__store store;         /* read-only after open */
    struct dibs__store_config config; /* read-only after open */
    struct dibs__url url;             /* read-only after open */
    unsigned seeds;                   /* read-only after open; number of nodes that the URL names, which come first */
    struct dibs__mutex mutex;
    struct dibs__error open_error DIBS__GUARDED_BY(dibs__cluster_mutex); /* why a node could not be opened */
    bool is_closing DIBS__GUARDED_BY(dibs__cluster_mutex);               /* no node is opened any more */
    struct dibs__node nodes[DIBS__NODES_MAX];                            /* each has its own guards */
    atomic_uint node_count; /* atomic; changed under mutex; number of places that were ever taken */

    _Atomic unsigned char owners[DIBS__SLOTS]; /* atomic; of each slot the place of the node that has it */
    atomic_uint asked[DIBS__SLOTS / 32]; /* atomic; one bit for each slot: a node has answered ASK for it since the map
                                            came last, so locks of it may be at another node */
    atomic_bool mapped;                  /* atomic; a node has told who has the slots */
    atomic_bool map_wanted;              /* atomic; the map may be wrong: a node must be asked for it soon */
    atomic_bool map_changed;             /* atomic; slots have other owners, which must be reported */
    atomic_uint corrections;             /* atomic; how often a node corrected the map */
    atomic_uint known_corrections; /* atomic; how many of these came before the last map was asked for: another one may
                                      mean a slot that moved, or a replica that took over */
    bool watched;                  /* scheduler thread only; a node has reported changes, now or before */
    bool map_asked;                /* scheduler thread only; a node is being asked for the map */
    unsigned map_asked_after;      /* scheduler thread only; the number of corrections when it was asked for */
    int64_t map_at;                /* scheduler thread only; the map is not asked for before */
    int64_t map_due;               /* scheduler thread only; the map is asked for then in any case */
    struct dibs__backoff map_backoff; /* scheduler thread only */
    unsigned map_turn;                /* scheduler thread only; the place of the node that is asked next */
    int64_t tidy_at;                  /* scheduler thread only; when to look for nodes that can be closed */

    atomic_bool down;    /* written under mutex; the listener was told that the cluster can't be reached */
    atomic_int unserved; /* atomic; a slot that was needed, and that no node has; -1: none */
};

static inline struct dibs__cluster *dibs__cluster_of(struct dibs__store *store)
{
    return (struct dibs__cluster *)store;
}

/* -------------------------------------------------------------------- nodes.c */

/* The node with that address, which gets a place if it has none. NULL: no memory, or no place. */
struct dibs__node *dibs__node_at(struct dibs__cluster *cluster, const char *host, unsigned port);

/* As dibs__node_at for a node that `by` has named, which is in use. host "": the host of `by`. */
struct dibs__node *dibs__node_named_by(const struct dibs__node *by, const char *host, unsigned port);

/* Begins to use the node, and opens it if it is closed. False: no memory, or the node has lost its place. */
bool dibs__node_use(struct dibs__node *node);
void dibs__node_unuse(struct dibs__node *node);

/* The scheduler's: whether the node is open. It stays open until the scheduler's thread closes it. */
static inline bool dibs__node_is_open(const struct dibs__node *node)
{
    return atomic_load_explicit(&node->users, memory_order_acquire) != DIBS__NODE_CLOSED;
}

/* The scheduler's. False: somebody uses the node. */
bool dibs__node_close(struct dibs__node *node);

/* When the cluster is closed: closes the nodes that are open, and frees. */
void dibs__nodes_free(struct dibs__cluster *cluster);

/*
 * Called when it may have changed whether the cluster can be reached. detail: why it may be out of reach; NULL: it may
 * only have come into reach.
 */
void dibs__cluster_see_reach(struct dibs__cluster *cluster, const char *detail);

/* ---------------------------------------------------------------------- map.c */

unsigned dibs__cluster_slot(const struct dibs__cluster *cluster, const char *name);

/*
 * The node that has the slot; it is in use then. NULL: none is known, or it can't be opened, as the error, which may be
 * NULL, says. Never blocks.
 */
struct dibs__node *dibs__map_use_owner(struct dibs__cluster *cluster, unsigned slot, struct dibs__error *error);

/* A node answered ASK for the slot. */
static inline void dibs__map_note_asked(struct dibs__cluster *cluster, unsigned slot)
{
    atomic_fetch_or(&cluster->asked[slot / 32], 1u << slot % 32);
}

static inline bool dibs__map_is_asked(const struct dibs__cluster *cluster, unsigned slot)
{
    return atomic_load_explicit(&cluster->asked[slot / 32], memory_order_relaxed) >> slot % 32 & 1;
}

/* A node said that the slot is at `node`. */
void dibs__map_correct(struct dibs__cluster *cluster, unsigned slot, const struct dibs__node *node);

/* Whether a map was asked for since a node last corrected it. */
static inline bool dibs__map_is_certain(const struct dibs__cluster *cluster)
{
    return atomic_load(&cluster->corrections) == atomic_load(&cluster->known_corrections);
}

/* Any thread. The map may be wrong: a node must be asked for it soon. */
void dibs__map_want(struct dibs__cluster *cluster);

/* Asks the nodes of the URL in turn, on the calling thread, until one answers. A status of dibs_open. */
dibs_status dibs__map_fetch(struct dibs__cluster *cluster, int64_t deadline, struct dibs__error *error);

/* The scheduler's: attend asks for the map if it is time; deadline says when it must be called at the latest. */
int64_t dibs__map_deadline(const struct dibs__cluster *cluster);
void dibs__map_attend(struct dibs__cluster *cluster, int64_t now);

/* --------------------------------------------------------------- operations.c */

/* Sleeps for the next pause of the backoff, until the deadline at most. */
void dibs__cluster_pause(const struct dibs__cluster *cluster, struct dibs__backoff *backoff, int64_t deadline);

void dibs__cluster_begin(struct dibs__store *base, struct dibs__op *op);
enum dibs__progress dibs__cluster_progress(struct dibs__store *base, const struct dibs__op *op,
                                           struct dibs__wait *wait);
dibs_status dibs__cluster_finish(struct dibs__store *base, struct dibs__op *op, struct dibs__error *error);
void dibs__cluster_conclude(struct dibs__store *base, struct dibs__attempt *attempt, bool held);
void dibs__cluster_listen(struct dibs__store *base, const char *name, struct dibs__wait_event *wait_event,
                          int64_t until);
void dibs__cluster_retract(struct dibs__store *base, const char *name, const char *token, uint32_t lease_ms,
                           uint64_t fence);
uint64_t dibs__cluster_tell_when_free(struct dibs__store *base, const char *name, uint64_t since);
bool dibs__cluster_can_keep(struct dibs__store *base, const char *name);

/* --------------------------------------------------------------------- walk.c */

dibs_status dibs__cluster_walk(struct dibs__store *base, const struct dibs__walk *walk, struct dibs__error *error);
dibs_status dibs__cluster_examine(struct dibs__store *base, struct dibs__examination *examination,
                                  struct dibs__error *error);

/* ----------------------------------------------------------------- renewals.c */

void dibs__cluster_renew(struct dibs__store *base, struct dibs__batch *batch);
bool dibs__cluster_is_unconfirmed(struct dibs__store *base, const struct dibs__lease_store_state *lease);

/* Whether that is the server of a master that the map names. */
bool dibs__cluster_has_server(const struct dibs__cluster *cluster, uint64_t server);

#endif
