/*
 * The turn: the right of one thread of a process to be the one that asks the
 * store for a name. The other threads wait for the turn, or for a lease that is
 * handed over to them.
 *
 * As in Go's sync.Mutex a running thread may take a lease that was left before
 * one that sleeps, but not before one that has waited for a long time.
 */
#ifndef DIBS_CORE_TURN_H
#define DIBS_CORE_TURN_H

#include "core/waiters.h"

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
 *         `budget` has passed as well (so that all give up at once, and not
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
    bool pass_on;                    /* the next thread may go on with the attempt, if it wants such a lease */
};

/*
 * The thread with the turn leaves without the lock, and the next thread gets
 * the turn. True: the next thread goes on with the attempt, which is not the
 * caller's any more. lease NULL: there is no attempt yet.
 */
bool dibs__turn_give_up(struct dibs__cells *cells, struct dibs__cell *cell, struct dibs__lease *lease,
                        const struct dibs__leaving *leaving);

#endif
