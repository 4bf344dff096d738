/*
 * Cells: one for each name that threads of this process hold, ask for or wait for. The threads exclude each other here
 * first, so that one thread at a time asks the store for a name: the thread that has the turn (turn.h). A lease that
 * the store granted may go from thread to thread here (turn.h).
 *
 * Threads that ask for a fair or shared lock have no turns: each of them asks the store by itself. A lease that is
 * asked for in this way is called turnless.
 *
 * Lock discipline: a cell belongs to the shard that the hash of its name selects. The mutex of the shard
 * (dibs__shard_mutex) guards the cell, the threads that wait in it, `listing` of each lease that is listed in it, and
 * what else lease.h says. While that mutex is held, no store is asked and no callback of the program is called; it is a
 * leaf, but for what doc/ARCHITECTURE.md lists. turn.c and asker.c say what a thread waits for.
 *
 * Each lease that threads here ask the store for, or hold, is listed in its cell, and so are turnless leases. So when
 * the store makes a grant by itself, either its attempt is found there, or its lease is known to be held already. The
 * leases that are asked for come first, in the order in which they were first asked for, and the granted ones come
 * last, so the next lease that the store grants is usually the first. A cell with no turn, no lease and no waiter is
 * removed.
 */
#ifndef DIBS_CORE_CELLS_H
#define DIBS_CORE_CELLS_H

#include "core/lease.h"

#define DIBS__SHARDS 64

struct dibs__cells;
struct dibs__waiter;

/*
 * While *closing is set, acquires end with DIBS_CLOSED. handoff_ms: how long a lease may stay in this process. NULL: no
 * memory.
 */
struct dibs__cells *dibs__cells_new(const struct dibs__clock *clock, const atomic_bool *closing, uint32_t handoff_ms);
void dibs__cells_free(struct dibs__cells *cells); /* no thread may be inside; NULL is fine */

/* ------------------------------------- for the files that work on cells: waiters.c, turn.c, asker.c, kept.c */

/* What the threads of this process do with a name, except those that ask for a fair or shared lock. */
enum dibs__cell_state {
    DIBS__CELL_FREE,   /* no thread uses the name, or waits for it */
    DIBS__CELL_ASKED,  /* one thread has the turn */
    DIBS__CELL_HELD,   /* one thread has the lease */
    DIBS__CELL_PARKED, /* no thread has the lease for the moment; the first thread that comes may take it */
    DIBS__CELL_KEPT    /* no thread here uses the lease or waits for it: the process keeps it (kept.h) */
};

/*
 * `lease` depends on the state. HELD, PARKED and KEPT: the lease that is held, parked or kept, one of `granted`. ASKED:
 * the lease for which the thread with the turn sleeps, one of `asked`; NULL while that thread is awake. FREE: NULL.
 */
struct dibs__cell {
    struct dibs__cell *next DIBS__GUARDED_BY(dibs__shard_mutex);     /* in the shard's bucket */
    struct dibs__shard *shard;                                       /* read-only */
    uint32_t hash;                                                   /* read-only; the low bits of the name's hash */
    uint16_t name_size;                                              /* read-only */
    uint8_t state DIBS__GUARDED_BY(dibs__shard_mutex);               /* a dibs__cell_state */
    bool said_taken DIBS__GUARDED_BY(dibs__shard_mutex);             /* the store said that the name is taken */
    struct dibs__lease *lease DIBS__GUARDED_BY(dibs__shard_mutex);   /* see above */
    struct dibs__lease *asked DIBS__GUARDED_BY(dibs__shard_mutex);   /* list of those with an asker, with a reference */
    struct dibs__lease *granted DIBS__GUARDED_BY(dibs__shard_mutex); /* list of the others, with a reference */
    struct dibs__waiter *waiters DIBS__GUARDED_BY(dibs__shard_mutex); /* list, first come, first served (waiters.h) */
    struct dibs__waiter *tries DIBS__GUARDED_BY(dibs__shard_mutex);   /* list of the waiters with one try (turn.c) */
    struct dibs__outage *outage DIBS__GUARDED_BY(dibs__shard_mutex); /* the one that the threads with the turn ride out,
                                                                        with a reference; NULL: none */
    int64_t outage_since DIBS__GUARDED_BY(dibs__shard_mutex); /* valid with `outage`; when the first of them met it */
    char name[];                                              /* read-only; without a NUL */
};

/* Whether a thread here has the lease, or may take it. Turnless leases do not count. */
static inline bool dibs__cell_is_held(const struct dibs__cell *cell) DIBS__REQUIRES(dibs__shard_mutex)
{
    return cell->state >= DIBS__CELL_HELD;
}

#define DIBS__CELLS_FEW 4

struct dibs__shard {
    struct dibs__mutex mutex;
    struct dibs__cell **buckets DIBS__GUARDED_BY(dibs__shard_mutex);
    struct dibs__cell *
        few[DIBS__CELLS_FEW] DIBS__GUARDED_BY(dibs__shard_mutex); /* the buckets while these are enough */
    size_t bucket_count DIBS__GUARDED_BY(dibs__shard_mutex);      /* a power of two, at least DIBS__CELLS_FEW */
    size_t count DIBS__GUARDED_BY(dibs__shard_mutex);             /* the number of cells */
    const atomic_uint *
        to_wake DIBS__GUARDED_BY(dibs__shard_mutex); /* the word of a sleeping thread, to be woken as soon as the mutex
                                                        is free (waiters.h); NULL: there is none */
    struct dibs__habit *habits DIBS__GUARDED_BY(dibs__shard_mutex); /* of its names; NULL: no lease is kept */
    size_t looked_at DIBS__GUARDED_BY(dibs__shard_mutex); /* the number of leases with a time in keeping.look_at */
};

struct dibs__cells {
    const struct dibs__clock *clock; /* read-only */
    const atomic_bool *closing;      /* read-only; what it points to is atomic */
    int64_t handoff;                 /* read-only; ns */
    int64_t keep;                    /* read-only once threads use the cells; ns; 0: no lease is kept */
    atomic_uint recallable; /* atomic; odd: leases may be kept now, because the store tells of recalls and of changes.
                               The number changes whenever all kept leases are given back */
    struct dibs__shard shards[DIBS__SHARDS];
};

/*
 * Locks the shard of the name, which the caller must unlock, and returns the cell of the name. NULL: there is no cell;
 * the shard is locked even then.
 */
struct dibs__cell *dibs__cells_lock(struct dibs__cells *cells, const char *name, size_t name_size,
                                    struct dibs__shard **shard) DIBS__ACQUIRES(dibs__shard_mutex);

/* The same; if there is no cell, makes it. NULL: no memory. */
struct dibs__cell *dibs__cells_lock_or_add(struct dibs__cells *cells, const char *name, size_t name_size,
                                           struct dibs__shard **shard) DIBS__ACQUIRES(dibs__shard_mutex);

/* Takes the lease out of the list if it is listed. The cell may be unused afterwards. */
void dibs__cell_unlist(struct dibs__cell *cell, struct dibs__lease *lease) DIBS__REQUIRES(dibs__shard_mutex);

/* Removes the cell if it has no turn, no lease and no waiter. */
void dibs__cell_drop_if_unused(struct dibs__cell *cell) DIBS__REQUIRES(dibs__shard_mutex);

#endif
