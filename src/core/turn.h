/*
 * The turn: the right of one thread of a process to be the one that asks the
 * store for a name. The other threads wait for the turn, or for a lease that is
 * handed over to them.
 *
 * As in Go's sync.Mutex a running thread may take a lease that was left before
 * one that sleeps, but not before one that has waited for long.
 */
#ifndef DIBS_CORE_TURN_H
#define DIBS_CORE_TURN_H

#include "core/cells.h"

/* What a thread that wanted a name got. */
enum dibs__turn_kind {
    DIBS__TURN_TO_ASK, /* the turn: the thread is to ask the store, and goes on with the bid of `lease` if it is set */
    DIBS__TURN_HANDED  /* `lease`, which another thread held before */
};

/* Why the store grants the name to no thread here, though the name may be free. */
struct dibs__outage {
    struct dibs__error error;
    bool unmet; /* the store grants the name and takes it back, because too few replicas acknowledge */
};

/* An outage that the threads with the turn ride out, one after the other. */
struct dibs__long_outage {
    struct dibs__outage last; /* as it was met last */
    int64_t since;            /* when the first of these threads met it */
};

struct dibs__turn {
    /* What the caller wants. */
    const char *name;
    size_t name_size;
    uint32_t lease_ms; /* a lease that another thread asked for is taken only if its length and `fixed` are the same */
    bool fixed;
    bool one_try;                    /* waits only while nothing is known of the name */
    int64_t deadline;                /* when the wait ends */
    int64_t patience;                /* until when the caller rides out an outage */
    atomic_uint_fast64_t *contended; /* counts this wait, once the caller begins to wait for the name */
    atomic_int_fast64_t *waiting;    /* then counts the caller among the threads that wait, who must take that back */

    /* What the caller gets. */
    struct dibs__outage *outage; /* what another thread was told: filled where the status is that outage's, and with
                                    the turn where outage_since is set */
    bool waited;                 /* set: the caller waited for the name */
    int64_t outage_since;      /* set: since when the threads that had the turn before met an outage; 0: they did not */
    enum dibs__turn_kind kind; /* set */
    struct dibs__lease *lease; /* set: one reference, the caller's; NULL: there is none */
    struct dibs__cell *cell;   /* set */
};

/*
 * Waits until the calling thread is handed a lease or has the turn to ask for
 * one, at most until the deadline. With one_try the thread waits only while
 * nothing is known of the name, that is, while the thread with the turn asks
 * for the first time.
 *
 * DIBS_OK: see kind. A turn must be ended by dibs__turn_granted or
 * dibs__turn_give_up. Otherwise:
 *     DIBS_BUSY       at the deadline, or with one_try: the name is taken
 *     DIBS_TIMEOUT    at the deadline: nothing was known of the name
 *     DIBS_CLOSED     the runtime is closing
 *     DIBS_NO_MEMORY
 *     the status of an outage that the thread with the turn rides out: at the
 *         deadline, or with one_try, or when that thread gives up and
 *         `patience` has passed as well (so that all give up at once, and not
 *         one after the other)
 *     the status of a failure of the thread with the turn: with one_try
 */
dibs_status dibs__turn_take(struct dibs__cells *cells, struct dibs__turn *turn);

/*
 * The same in steps, for a begun acquire: dibs__turn_begin returns at once. True:
 * *status is what dibs__turn_take would have returned. False: the waiter, whose
 * `tell` is set and whose other fields are zero, is told whenever
 * dibs__turn_goes_on may say more; it and the turn stay where they are until that
 * has returned false.
 */
bool dibs__turn_begin(struct dibs__cells *cells, struct dibs__turn *turn, struct dibs__waiter *waiter,
                      dibs_status *status);

/* False: *status is set. leave: the wait ends now, if it has not ended yet, with DIBS_CANCELLED. True: it goes on. */
bool dibs__turn_goes_on(struct dibs__cells *cells, struct dibs__waiter *waiter, bool leave, dibs_status *status);

/* The store granted the lease to the thread with the turn: the name is held, and the turn ends. */
void dibs__turn_granted(struct dibs__cell *cell, struct dibs__lease *lease);

/* What a thread that leaves without the lock knows of the name. */
enum dibs__learned {
    DIBS__LEARNED_FAILURE, /* its ask failed */
    DIBS__LEARNED_OUTAGE,  /* its asks failed for as long as the thread may ride that out */
    DIBS__LEARNED_TAKEN,   /* another has the lock */
    DIBS__LEARNED_NOTHING  /* its wait ended before the store answered */
};
struct dibs__leaving {
    enum dibs__learned learned;
    const struct dibs__error *error; /* of a failure or an outage */
    bool pass_on;                    /* the next thread may go on with the bid, if it wants such a lease */
};

/*
 * The thread with the turn leaves without the lock, and the next thread gets
 * the turn. True: the next thread goes on with the bid, which is not the
 * caller's any more. lease NULL: there is no bid yet.
 */
bool dibs__turn_give_up(struct dibs__cells *cells, struct dibs__cell *cell, struct dibs__lease *lease,
                        const struct dibs__leaving *leaving);

/* ------------------------------------------------- for asker.c and handover.c */

/*
 * Unlocks the shard's mutex, and then wakes the thread that was called or
 * nudged under it: a woken thread must not run into a mutex that is still held.
 * Where dibs__turn_call, dibs__turn_nudge, dibs__turn_pass_on or
 * dibs__turn_pass_on_with was called, the mutex must be unlocked by this.
 */
void dibs__turn_unlock(struct dibs__shard *shard) DIBS__RELEASES(dibs__shard_mutex);

/* The thread of the waiter wakes, and looks at the cell again. */
void dibs__turn_nudge(struct dibs__shard *shard, struct dibs__waiter *waiter) DIBS__REQUIRES(dibs__shard_mutex);

/* The waiter leaves the queue, and its thread wakes and has what its turn says. */
void dibs__turn_call(struct dibs__cell *cell, struct dibs__waiter *waiter) DIBS__REQUIRES(dibs__shard_mutex);

/* Whether a thread with those wishes may have the lease. */
bool dibs__turn_fits(const struct dibs__lease *lease, const struct dibs__turn *turn);

/* The thread takes over the lease that the cell holds, with the next fence. */
void dibs__turn_take_over(struct dibs__cell *cell, struct dibs__turn *turn) DIBS__REQUIRES(dibs__shard_mutex);

/* The name is not held here any more. */
void dibs__turn_let_go(struct dibs__cell *cell) DIBS__REQUIRES(dibs__shard_mutex);

/* The next thread gets the turn. No thread may have it, or the name. Without a waiter the cell may be removed. */
void dibs__turn_pass_on(struct dibs__cell *cell) DIBS__REQUIRES(dibs__shard_mutex);

/* The first waiter gets the turn and goes on with the bid of `lease`. False: it wants another lease, or none waits. */
bool dibs__turn_pass_on_with(struct dibs__cell *cell, struct dibs__lease *lease) DIBS__REQUIRES(dibs__shard_mutex);

/* Ends the wait of all threads with one try: with that error, or, where it is NULL, because the name is taken. */
void dibs__turn_answer_tries(struct dibs__cell *cell, const struct dibs__error *error)
    DIBS__REQUIRES(dibs__shard_mutex);

/* The thread with the turn met that outage; NULL: it met none. Without memory nothing is known of the name. */
void dibs__turn_note_outage(struct dibs__cell *cell, const struct dibs__outage *outage, int64_t now)
    DIBS__REQUIRES(dibs__shard_mutex);

#endif
