/*
 * Cells: one for each name that threads of this process hold, ask for or wait
 * for. They exclude each other here first, so that one thread at a time asks
 * the store for a name: who has the turn. A lease that came from the store may
 * go from thread to thread here; as in Go's sync.Mutex a running thread may
 * take it before one that sleeps, but not before one that waited for long.
 *
 * Threads that ask for a fair lock have no turns: each asks the store itself.
 */
#ifndef DIBS_CORE_CELL_H
#define DIBS_CORE_CELL_H

#include "core/lease.h"

struct dibs__cells;
struct dibs__cell;

/* While *closing, acquires end with DIBS_CLOSED. handoff_ms: how long a lease may stay here. NULL: no memory. */
struct dibs__cells *dibs__cells_new(const struct dibs__clock *clock, const atomic_bool *closing, uint32_t handoff_ms);
void dibs__cells_free(struct dibs__cells *cells); /* nobody is inside; NULL is fine */

/* What a thread that wanted a name got. */
enum dibs__turn_kind {
    DIBS__TURN_TO_ASK, /* it is to ask the store: with an attempt of its own, or where lease is set, with that one */
    DIBS__TURN_HANDED  /* lease is its own now: from another thread */
};

struct dibs__turn {
    const char *name;
    size_t name_size;
    uint32_t lease_ms; /* a lease that another asked for will do if it is such a one */
    bool fixed;
    int64_t deadline;
    int64_t patience;                /* until when the caller rides out an unreachable store */
    atomic_uint_fast64_t *contended; /* where to count that it waits, when it begins to */
    struct dibs__error *outage;      /* filled where that is the status */

    bool waited;          /* from here on: set */
    int64_t outage_since; /* since when those who had the turn before can't reach the store; 0: they could */
    enum dibs__turn_kind kind;
    struct dibs__lease *lease; /* one reference, the caller's; NULL: none */
    struct dibs__cell *cell;
};

/*
 * Waits until the calling thread is handed the name or has the turn to ask for
 * it, at most until the deadline (0: does not wait). DIBS_OK: see kind; a turn
 * is to be ended by dibs__cell_granted or dibs__cell_give_up. DIBS_BUSY: not by
 * the deadline; DIBS_CLOSED; DIBS_NO_MEMORY; or the status of the outage that
 * the thread with the turn rides out: at the deadline, or when that thread
 * gives up and `patience` has passed as well (so all give up, not one after the
 * other).
 */
dibs_status dibs__cell_take_turn(struct dibs__cells *cells, struct dibs__turn *turn);

/* The thread with the turn begins to ask for the lease: from now on it hears what the store says of its token. */
void dibs__cell_bid(struct dibs__cells *cells, struct dibs__cell *cell, struct dibs__lease *lease);

/* The same without a turn, for a fair lease. NULL: no memory. */
struct dibs__cell *dibs__cells_bid_fair(struct dibs__cells *cells, struct dibs__lease *lease);

/* The attempt goes on with another token. */
void dibs__cell_set_token(struct dibs__cells *cells, struct dibs__cell *cell, struct dibs__lease *lease,
                          const char *token);

/*
 * The asking thread sleeps before it asks again: until the deadline, until the
 * store grants the lease by itself, until it is hinted, or until acquires are
 * to end. Returns what the store said, and forgets it. outage: why the store
 * could not be asked, which others whose time ends meanwhile are told; NULL: it
 * said "taken".
 */
struct dibs__push dibs__cell_sleep(struct dibs__cells *cells, struct dibs__cell *cell, struct dibs__lease *lease,
                                   int64_t deadline, const struct dibs__error *outage);

/* The store granted the lease to the thread with the turn: the name is held, the turn ends. */
void dibs__cell_granted(struct dibs__cells *cells, struct dibs__cell *cell, struct dibs__lease *lease);

/*
 * The asking thread got nothing: the next has the turn. outage: why, where the
 * store can't be reached, else NULL. Where `pass_on`, the attempt goes on in
 * the hands of the next thread, if it fits: true, and the caller has nothing
 * more to do with it. lease NULL: there was none yet.
 */
bool dibs__cell_give_up(struct dibs__cells *cells, struct dibs__cell *cell, struct dibs__lease *lease, bool pass_on,
                        const struct dibs__error *outage);

/* What becomes of a lease whose holder has no more use for it. */
enum dibs__parting {
    DIBS__PART_HANDED,  /* another thread has it, or will: nothing is left to do */
    DIBS__PART_RELEASE, /* to be released in the store, then dibs__cells_end */
    DIBS__PART_REQUEUE  /* the same, and to be asked for again, as the next who waits here wants it */
};
struct dibs__wanted {
    uint32_t lease_ms;
    bool fixed;
};
enum dibs__parting dibs__cells_part(struct dibs__cells *cells, struct dibs__lease *lease, struct dibs__wanted *next);

/* Another attempt, `next`, is going to be asked for by the holder of `lease`, who is about to release it. */
void dibs__cells_bid_behind(struct dibs__cells *cells, struct dibs__lease *lease, struct dibs__lease *next);

/*
 * The lease is no more, released or lost: the next waiter has the turn. Only
 * the first call for a lease does anything. next: the attempt behind it, NULL:
 * none; where it is answered, it goes to that waiter if it fits; false: it was
 * not taken over.
 */
bool dibs__cells_end(struct dibs__cells *cells, struct dibs__lease *lease, struct dibs__lease *next);

/* The store granted a lease by itself. False: nobody here asks for that token or has it. */
bool dibs__cells_push(struct dibs__cells *cells, const struct dibs__grant *grant);

/* Grants may have been missed: all who wait for the store ask again. */
void dibs__cells_ask_again(struct dibs__cells *cells);

/* Wakes all who wait; they see that the runtime is closing. */
void dibs__cells_wake_all(struct dibs__cells *cells);

#endif
