/*
 * The thread that asks the store for a lease: how it learns what the store says
 * of its attempt while it sleeps between two asks, and how the attempt passes to another
 * thread.
 */
#ifndef DIBS_CORE_ASKER_H
#define DIBS_CORE_ASKER_H

#include "core/cells.h"
#include "core/waiters.h"

/* The thread with the turn begins to ask for the lease: from now on it hears what the store says of the token. */
void dibs__asker_begin(struct dibs__cell *cell, struct dibs__lease *lease);

/* The same for a turnless lease. NULL: no memory. */
struct dibs__cell *dibs__asker_begin_turnless(struct dibs__cells *cells, struct dibs__lease *lease);

/* The same for `next`, which the holder of `lease` asks for on behalf of the next waiter while it releases `lease`. */
void dibs__asker_begin_behind(struct dibs__cells *cells, struct dibs__lease *lease, struct dibs__lease *next);

/* The attempt goes on under a new token. What was pushed for the old one is forgotten. */
void dibs__asker_set_token(struct dibs__cell *cell, struct dibs__lease *lease, const struct dibs__token *token);

/* How the asking thread sleeps before it asks again. */
struct dibs__sleep {
    int64_t deadline;
    struct dibs__wait_event *wait_event; /* of the calling thread */
    struct dibs__store *store;           /* that will push the grant */
    const struct dibs__outage *outage;   /* why the ask failed; NULL: the store said that the name is taken */
};

/*
 * Sleeps until the deadline, until the store pushes a grant of the lease, until
 * dibs__cells_ask_again, until acquires must end, or until a third of the
 * shortest lease has passed that is wanted by a thread waiting behind this one:
 * so each waits as if it asked by itself. Returns what was pushed, and forgets
 * it. Threads with one try, and those whose time ends meanwhile, are told why
 * this thread sleeps.
 */
struct dibs__push dibs__asker_sleep(struct dibs__cells *cells, struct dibs__cell *cell, struct dibs__lease *lease,
                                    const struct dibs__sleep *sleep);

/*
 * The same in steps, for a begun acquire, whose wait event has `tell` set and is told
 * whenever dibs__asker_rests may say more. From dibs__asker_rest on the acquire
 * rests. dibs__asker_rests: true: it goes on resting, at most until *until;
 * false, or with `end`: it rests no longer, and *push is what was pushed.
 */
void dibs__asker_rest(struct dibs__cells *cells, struct dibs__cell *cell, struct dibs__lease *lease,
                      const struct dibs__sleep *sleep);
bool dibs__asker_rests(struct dibs__cells *cells, struct dibs__cell *cell, struct dibs__lease *lease, bool end,
                       int64_t *until, struct dibs__push *push);

/*
 * From now on the asking thread is told of changes of the lock, which a foreign
 * client has: it then asks again, at once if there was no change for a while.
 * True: it was not told before, or has been told of one since the last call.
 */
bool dibs__asker_expect_change(struct dibs__cell *cell, struct dibs__lease *lease);

/* The store granted a turnless lease: nothing is asked any more. */
void dibs__asker_end_turnless(struct dibs__cells *cells, struct dibs__lease *lease);

/* A turnless lease is not asked for any more, and was not granted. */
void dibs__asker_give_up_turnless(struct dibs__cell *cell, struct dibs__lease *lease);

/*
 * The store granted a lease by itself: notes that, and wakes the thread that asks
 * for it. False: no thread here asks for that token or holds its lease.
 */
bool dibs__cells_push(struct dibs__cells *cells, const struct dibs__grant *grant);

/*
 * The lease of that token which threads here ask for or hold, or the process keeps, and its cell; locks its shard,
 * which the caller unlocks. NULL: there is none.
 */
struct dibs__lease *dibs__cells_lock_token(struct dibs__cells *cells, const char *name, const char *token,
                                           struct dibs__shard **shard, struct dibs__cell **cell)
    DIBS__ACQUIRES(dibs__shard_mutex);

#define DIBS__HELD_MOST 64

/*
 * The lock may have changed: the threads that expect that ask again. Returns how
 * many leases of the name there are here that were granted: beside the one that
 * lives, some whose release is not answered yet, or whose loss is not seen to
 * yet. Fills in the first DIBS__HELD_MOST of them, each with a reference, which
 * becomes the caller's.
 */
size_t dibs__cells_changed(struct dibs__cells *cells, const char *name, struct dibs__lease *held[DIBS__HELD_MOST]);

/* Any lock may have changed: all threads that wait for the store ask again. */
void dibs__cells_all_changed(struct dibs__cells *cells);

/* Grants may have been missed: all threads that wait for the store ask again. */
void dibs__cells_ask_again(struct dibs__cells *cells);

/* Wakes all threads that wait, so that they see that the runtime is closing. */
void dibs__cells_wake_all(struct dibs__cells *cells);

#endif
