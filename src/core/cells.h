/*
 * Cells: one for each name that threads of this process hold, ask for or wait
 * for. The threads exclude each other here first, so that one thread at a time
 * asks the store for a name: the thread that has the turn (turn.h). A lease
 * that came from the store may go from thread to thread here (handover.h).
 *
 * Threads that ask for a fair lock, or a shared one, have no turns: each asks the
 * store by itself. A lease that is asked for so is called turnless.
 *
 * Lock discipline: a cell belongs to the shard that its name falls to. The mutex
 * of the shard (dibs__shard_mutex) guards the cell, the threads that wait in it,
 * and `listing` of each lease that is listed in it, with what else lease.h says.
 * That mutex is a leaf: no other mutex is taken, no store asked and no callback
 * called while it is held. turn.c and asker.c say what a thread waits for.
 *
 * Each lease that threads here ask the store for, or hold, is listed in its cell,
 * also a turnless one. So when the store makes a grant by itself, its attempt is
 * found there, or its lease is known to be held already. The leases that are asked
 * for come first, in the order in which they were first asked for, and those with a
 * grant come last: so the next one that the store grants is mostly the first. A cell
 * with no turn, no lease and no waiter is removed.
 */
#ifndef DIBS_CORE_CELLS_H
#define DIBS_CORE_CELLS_H

#include "core/lease.h"

#define DIBS__SHARDS 64

struct dibs__cells;
struct dibs__waiter;

/* Who waits, first come, first served: linked through the waiters (waiters.h), so entering it needs no memory. */
struct dibs__waiter_list {
    struct dibs__waiter *first DIBS__GUARDED_BY(dibs__shard_mutex);
};

/* While *closing, acquires end with DIBS_CLOSED. handoff_ms: how long a lease may stay here. NULL: no memory. */
struct dibs__cells *dibs__cells_new(const struct dibs__clock *clock, const atomic_bool *closing, uint32_t handoff_ms);
void dibs__cells_free(struct dibs__cells *cells); /* no thread is inside; NULL is fine */

/* ------------------------------------- for the files that work on cells: waiters.c, turn.c, asker.c, handover.c */

/* What the threads of this process do with a name, but for those that ask for a fair or shared lock. */
enum dibs__cell_state {
    DIBS__CELL_FREE,   /* nothing, and no thread waits for the name */
    DIBS__CELL_ASKED,  /* one thread has the turn */
    DIBS__CELL_HELD,   /* one thread has the lease */
    DIBS__CELL_PARKED, /* no thread has the lease for the moment, and the first that comes may take it */
    DIBS__CELL_KEPT    /* nobody here uses the lease, or waits for it: the process keeps it (kept.h) */
};

struct dibs__cell {
    struct dibs__cell *next DIBS__GUARDED_BY(dibs__shard_mutex);   /* in the shard's bucket */
    struct dibs__shard *shard;                                     /* read-only */
    uint32_t hash;                                                 /* read-only; the low bits of the name's */
    uint16_t name_size;                                            /* read-only */
    uint8_t state DIBS__GUARDED_BY(dibs__shard_mutex);             /* a dibs__cell_state */
    bool said_taken DIBS__GUARDED_BY(dibs__shard_mutex);           /* the store told the thread with the turn so */
    struct dibs__lease *lease DIBS__GUARDED_BY(dibs__shard_mutex); /* HELD, PARKED, KEPT: that one, of `granted`.
                                                                      ASKED: of `asked`, for which the thread with the
                                                                      turn sleeps; NULL: it is awake. FREE: NULL */
    struct dibs__lease *asked DIBS__GUARDED_BY(dibs__shard_mutex); /* that have an asker; each with a reference */
    struct dibs__lease **asked_end DIBS__GUARDED_BY(dibs__shard_mutex);
    struct dibs__lease *granted DIBS__GUARDED_BY(dibs__shard_mutex);      /* that have none; each with a reference */
    struct dibs__waiter_list waiters DIBS__GUARDED_BY(dibs__shard_mutex); /* that wait for the name */
    struct dibs__waiter_list tries DIBS__GUARDED_BY(dibs__shard_mutex);   /* with one try (turn.c) */
    struct dibs__long_outage *outage DIBS__GUARDED_BY(dibs__shard_mutex); /* that the thread with the turn rides out */
    char name[];                                                          /* read-only; without a NUL */
};

/* Whether a thread here has the lease, or may take it. A turnless lease does not count. */
static inline bool dibs__cell_is_held(const struct dibs__cell *cell) DIBS__REQUIRES(dibs__shard_mutex)
{
    return cell->state >= DIBS__CELL_HELD;
}

#define DIBS__CELLS_FEW 4

struct dibs__shard {
    struct dibs__mutex mutex;
    struct dibs__cell **buckets DIBS__GUARDED_BY(dibs__shard_mutex);
    struct dibs__cell *
        few[DIBS__CELLS_FEW] DIBS__GUARDED_BY(dibs__shard_mutex); /* the buckets where there are no more */
    size_t bucket_count DIBS__GUARDED_BY(dibs__shard_mutex);      /* a power of two, at least DIBS__CELLS_FEW */
    size_t count DIBS__GUARDED_BY(dibs__shard_mutex);             /* of cells */
    const atomic_uint *
        to_wake DIBS__GUARDED_BY(dibs__shard_mutex);                /* on which a thread sleeps that must be woken as
                                                                       soon as the mutex is free (waiters.h); NULL: none */
    struct dibs__habit *habits DIBS__GUARDED_BY(dibs__shard_mutex); /* of the names that fall to it (kept.h); NULL: no
                                                                       lease is kept */
    size_t looked_at DIBS__GUARDED_BY(dibs__shard_mutex);           /* leases whose keeping has a time in look_at */
};

struct dibs__cells {
    const struct dibs__clock *clock; /* read-only */
    const atomic_bool *closing;      /* read-only; what it points to is atomic */
    int64_t handoff;                 /* read-only; ns */
    int64_t keep;                    /* read-only once threads come; ns; 0: no lease is kept */
    atomic_uint recallable; /* atomic; odd: leases may be kept now, for the store tells of recalls and of changes;
                               another number whenever all that were kept are given back */
    struct dibs__shard shards[DIBS__SHARDS];
};

/* Locks the shard of the name, which *hash (filled) is of, and returns it. */
struct dibs__shard *dibs__cells_lock_shard(struct dibs__cells *cells, const char *name, size_t name_size,
                                           uint64_t *hash) DIBS__ACQUIRES(dibs__shard_mutex);

/* The cell of the lease; locks its shard, which the caller unlocks. NULL: there is no cell. */
struct dibs__cell *dibs__cells_lock_cell(struct dibs__cells *cells, const struct dibs__lease *lease,
                                         struct dibs__shard **shard) DIBS__ACQUIRES(dibs__shard_mutex);

/* NULL: there is none. */
struct dibs__cell *dibs__shard_find(struct dibs__shard *shard, uint64_t hash, const char *name, size_t name_size)
    DIBS__REQUIRES(dibs__shard_mutex);

/* NULL: no memory. */
struct dibs__cell *dibs__shard_find_or_add(struct dibs__shard *shard, uint64_t hash, const char *name, size_t name_size)
    DIBS__REQUIRES(dibs__shard_mutex);

/* Lists the lease, which has an asker, in its cell, which takes a reference. */
void dibs__cell_list(struct dibs__cell *cell, struct dibs__lease *lease) DIBS__REQUIRES(dibs__shard_mutex);

/* The lease, which has an asker, was told of: so the next of which the store tells comes before it. */
void dibs__cell_list_last(struct dibs__cell *cell, struct dibs__lease *lease) DIBS__REQUIRES(dibs__shard_mutex);

/* The lease is granted, and has no asker from now on: for the caller to free once the mutex is unlocked. */
struct dibs__asker *dibs__cell_take_asker(struct dibs__cell *cell, struct dibs__lease *lease)
    DIBS__REQUIRES(dibs__shard_mutex);

/* Takes the lease out of the list, if it is listed. The cell may be unused afterwards. */
void dibs__cell_unlist(struct dibs__cell *cell, struct dibs__lease *lease) DIBS__REQUIRES(dibs__shard_mutex);

/* Removes the cell if it has no turn, no lease and no waiter. */
void dibs__cell_drop_if_unused(struct dibs__cell *cell) DIBS__REQUIRES(dibs__shard_mutex);

#endif
