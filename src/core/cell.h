/*
 * Cells: one for each name that threads of this process hold, ask for or wait
 * for. They exclude each other here first, so that one thread at a time asks
 * the store for a name: who has the turn. Turns pass in the order of arrival.
 */
#ifndef DIBS_CORE_CELL_H
#define DIBS_CORE_CELL_H

#include "core/lease.h"

struct dibs__cells;
struct dibs__cell;

/* While *closing, acquires end with DIBS_CLOSED. NULL: no memory. */
struct dibs__cells *dibs__cells_new(const struct dibs__clock *clock, const atomic_bool *closing);
void dibs__cells_free(struct dibs__cells *cells); /* nobody is inside; NULL is fine */

/*
 * Waits until the calling thread has the turn for name, at most until the
 * deadline (0: does not wait). DIBS_OK: *out is to be given to
 * dibs__cell_granted or dibs__cell_give_up. DIBS_BUSY: not by the deadline;
 * DIBS_CLOSED; DIBS_NO_MEMORY; or the status of the outage that the thread with
 * the turn rides out: at the deadline, or when that thread gives up and
 * `patience` has passed as well (so all give up, not one after the other).
 * *waited: it could not have it at once.
 */
struct dibs__turn {
    const char *name;
    size_t name_size;
    int64_t deadline;
    int64_t patience;                /* until when the caller rides out an unreachable store */
    bool waited;                     /* set */
    atomic_uint_fast64_t *contended; /* where to count that it waits, when it begins to */
    struct dibs__error *outage;      /* filled where that is the status */
};
dibs_status dibs__cell_take_turn(struct dibs__cells *cells, struct dibs__turn *turn, struct dibs__cell **out);

/*
 * The thread with the turn sleeps before it asks again: until the deadline,
 * until dibs__cells_maybe_free, or until acquires are to end. outage: why the
 * store could not be asked, which others whose time ends meanwhile are told;
 * NULL: it said "taken".
 */
void dibs__cell_sleep(struct dibs__cells *cells, struct dibs__cell *cell, int64_t deadline,
                      const struct dibs__error *outage);

/* The store granted the lease: the name is held, the turn ends. Takes a reference. */
void dibs__cell_granted(struct dibs__cells *cells, struct dibs__cell *cell, struct dibs__lease *lease);

/* The thread with the turn got nothing: the next has it. outage: why, where the store can't be reached, else NULL. */
void dibs__cell_give_up(struct dibs__cells *cells, struct dibs__cell *cell, const struct dibs__error *outage);

/* The lease is no more, released or lost: the next waiter has the turn. Only the first call for a lease does anything.
 */
void dibs__cells_end(struct dibs__cells *cells, struct dibs__lease *lease);

/* The store has a hint that name may be free: its asker is to ask. */
void dibs__cells_maybe_free(struct dibs__cells *cells, const char *name);

/* Wakes all who wait; they see that the runtime is closing. */
void dibs__cells_wake_all(struct dibs__cells *cells);

#endif
