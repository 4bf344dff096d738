/*
 * The turn: the right of one thread of a process to be the one that asks the store for a name. The other threads wait
 * for the turn, or for a lease that is handed over to them: when its holder gives it up, a lease passes to another
 * thread of the process without the store, or is released in the store.
 *
 * As in Go's sync.Mutex, a running thread may take a parked lease before a thread that sleeps, but not before one that
 * has waited for a long time.
 */
#ifndef DIBS_CORE_TURN_H
#define DIBS_CORE_TURN_H

#include "core/waiters.h"

/*
 * Begins the wait of an acquire until it is handed a lease or has the turn to ask for one, at most until the deadline.
 * With one_try it waits only while nothing is known of the name, that is, while the thread with the turn asks for the
 * first time.
 *
 * False: the wait goes on until dibs__turn_goes_on says otherwise. The waiter must stay where it is until then. True:
 * the wait has ended, and *status is one of these:
 *
 * DIBS_OK: see waiter->lease. A turn must be ended by dibs__turn_granted or dibs__turn_give_up.
 *     DIBS_BUSY       at the deadline, or with one_try: the name is taken
 *     DIBS_TIMEOUT    at the deadline: nothing was known of the name
 *     DIBS_CLOSED     the runtime is closing
 *     DIBS_NO_MEMORY
 *     the status of an outage that the thread with the turn rides out: at the deadline, or with one_try, or when
 *         that thread gives up and `budget` has passed as well (so that all threads give up at once, and not one
 *         after the other)
 *     the status of a failure of the thread with the turn: with one_try
 */
bool dibs__turn_begin(struct dibs__cells *cells, struct dibs__waiter *waiter, dibs_status *status);

/* Sleeps until dibs__turn_goes_on may say something new. For a thread that waits, whose waiter has no `told`. */
void dibs__turn_sleep(const struct dibs__cells *cells, struct dibs__waiter *waiter);

/*
 * True: the wait goes on. False: it has ended, and *status is set. leave: a wait that has not ended yet ends now, with
 * DIBS_CANCELLED.
 */
bool dibs__turn_goes_on(struct dibs__cells *cells, struct dibs__waiter *waiter, bool leave, dibs_status *status);

/* The store granted the lease. The thread that asked for it had the turn, which ends, or the lease is turnless. */
void dibs__turn_granted(struct dibs__cells *cells, struct dibs__lease *lease);

/* What a thread that leaves without the lock knows of the name. */
enum dibs__learned {
    DIBS__LEARNED_FAILURE, /* its ask failed */
    DIBS__LEARNED_OUTAGE,  /* its asks failed for as long as the thread may ride out an outage */
    DIBS__LEARNED_TAKEN,   /* another owner has the lock */
    DIBS__LEARNED_NOTHING  /* its wait ended before the store answered */
};
struct dibs__leaving {
    enum dibs__learned learned;
    const struct dibs__error *error; /* the error of the failure or outage */
    bool pass_on;                    /* the next thread may go on with the attempt if it wants such a lease */
};

/*
 * The thread that asks leaves without the lock. If it had the turn, the next thread gets that. True: the next thread
 * goes on with the attempt, which is no longer the caller's. lease NULL: there is no attempt yet.
 */
bool dibs__turn_give_up(struct dibs__cells *cells, struct dibs__cell *cell, struct dibs__lease *lease,
                        const struct dibs__leaving *leaving);

/* ------------------------------------------------------------ the end of a use */

/* What becomes of a lease that its holder gives up. */
enum dibs__parting {
    DIBS__PART_HANDED,  /* another thread has the lease, or will take it: nothing is left to do */
    DIBS__PART_RELEASE, /* the caller releases the lease in the store, then calls dibs__handover_end */
    DIBS__PART_KEPT,    /* the process keeps the lease: the caller calls dibs__renewals_use_changed */
    DIBS__PART_REQUEUE  /* as RELEASE, and the same round trip asks for the lease that the next waiter here wants */
};

/* recallable: as in dibs__kept_keep. *next: filled for DIBS__PART_REQUEUE: what the next waiter here wants. */
enum dibs__parting dibs__handover_part(struct dibs__cells *cells, struct dibs__lease *lease, unsigned recallable,
                                       int64_t now, struct dibs__wish *next);

/*
 * The lock of that name was forced open: a lease that the process may have been granted before is not handed over any
 * more, nor kept. Returns the lease that was parked, with a reference, which the caller must give back. NULL: none was.
 */
struct dibs__lease *dibs__handover_forced(struct dibs__cells *cells, const char *name, size_t name_size);

/*
 * The lease was released or lost: the next waiter gets the turn. Only the first call for a lease does anything. next:
 * the lease that was asked for together with the release; NULL: there is none. True: the store has answered for `next`,
 * and the next waiter goes on with its attempt. False: the caller must give up `next`.
 */
bool dibs__handover_end(struct dibs__cells *cells, struct dibs__lease *lease, struct dibs__lease *next);

#endif
