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

/* Why the store grants the name to nobody here, though it may be free. */
struct dibs__outage {
    struct dibs__error error;
    bool unmet; /* it does grant it, and takes it back: too few replicas acknowledge */
};

struct dibs__turn {
    const char *name;
    size_t name_size;
    uint32_t lease_ms; /* a lease that another asked for will do if it is such a one */
    bool fixed;
    bool one_try; /* does not wait for the name, only for what the thread with the turn is told of it */
    int64_t deadline;
    int64_t patience;                /* until when the caller rides out an outage */
    atomic_uint_fast64_t *contended; /* where to count that it waits for the name, when it begins to */
    struct dibs__outage *outage;     /* what another thread was told: filled where its status is returned, and with
                                        the turn where outage_since is set */

    bool waited;               /* set: it waited for the name */
    int64_t outage_since;      /* set: since when those who had the turn before meet an outage; 0: they do not */
    enum dibs__turn_kind kind; /* set */
    struct dibs__lease *lease; /* set: one reference, the caller's; NULL: none */
    struct dibs__cell *cell;   /* set */
};

/*
 * Waits until the calling thread is handed the name or has the turn to ask for
 * it, at most until the deadline. With one try it waits only while nothing is
 * known of the name: while the thread with the turn asks, and has not been told
 * of it. DIBS_OK: see kind; a turn is to be ended by dibs__cell_granted or
 * dibs__cell_give_up. Otherwise:
 *     DIBS_BUSY       at the deadline, or with one try: the name is taken
 *     DIBS_TIMEOUT    nothing was known of it at the deadline
 *     DIBS_CLOSED
 *     DIBS_NO_MEMORY
 *     of the outage   that the thread with the turn rides out: at the deadline,
 *                     or with one try, or when that thread gives up and
 *                     `patience` has passed as well (so all give up, not one
 *                     after the other)
 *     of the failure  with one try: that of the thread with the turn
 */
dibs_status dibs__cell_take_turn(struct dibs__cells *cells, struct dibs__turn *turn);

/* The thread with the turn begins to ask for the lease: from now on it hears what the store says of its token. */
void dibs__cell_bid(struct dibs__cells *cells, struct dibs__cell *cell, struct dibs__lease *lease);

/* The same without a turn, for a fair lease. NULL: no memory. */
struct dibs__cell *dibs__cells_bid_fair(struct dibs__cells *cells, struct dibs__lease *lease);

/* The attempt goes on with another token. */
void dibs__cell_set_token(struct dibs__cells *cells, struct dibs__cell *cell, struct dibs__lease *lease,
                          const char *token);

/* How the asking thread sleeps before it asks again. */
struct dibs__sleep {
    int64_t deadline;
    pthread_cond_t *cond;              /* of dibs__cond_init; no other thread sleeps there */
    const struct dibs__outage *outage; /* why it got nothing; NULL: the store said "taken" */
};

/*
 * Sleeps until the deadline, until the store grants the lease by itself, until
 * the thread is hinted, until acquires are to end, or until a third of the
 * shortest lease has passed that is waited for behind it here: so all wait by
 * its asks as if they asked themselves. Returns what the store said, and
 * forgets it. Those who came with one try are told why it sleeps, and those
 * whose time ends meanwhile.
 */
struct dibs__push dibs__cell_sleep(struct dibs__cells *cells, struct dibs__cell *cell, struct dibs__lease *lease,
                                   const struct dibs__sleep *sleep);

/* The store granted the lease to the thread with the turn: the name is held, the turn ends. */
void dibs__cell_granted(struct dibs__cells *cells, struct dibs__cell *cell, struct dibs__lease *lease);

/* What a thread that got nothing knows of the name. */
enum dibs__learned {
    DIBS__LEARNED_FAILURE, /* its ask failed */
    DIBS__LEARNED_OUTAGE,  /* the same, and it has ridden that out for as long as it may */
    DIBS__LEARNED_TAKEN,   /* another has it */
    DIBS__LEARNED_NOTHING  /* its time was over before the store answered */
};
struct dibs__leaving {
    enum dibs__learned learned;
    const struct dibs__error *error; /* of a failure or an outage */
    bool pass_on; /* the attempt may go on in the hands of the next thread, if that wants such a lease */
};

/*
 * The asking thread got nothing: the next has the turn. True: it goes on with
 * the attempt, and the caller has nothing more to do with that. lease NULL:
 * there was none yet.
 */
bool dibs__cell_give_up(struct dibs__cells *cells, struct dibs__cell *cell, struct dibs__lease *lease,
                        const struct dibs__leaving *leaving);

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
