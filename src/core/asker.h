/*
 * The thread that asks the store for a lease: how it learns what the store says of its attempt while it sleeps between
 * two asks, and how the attempt passes to another thread.
 */
#ifndef DIBS_CORE_ASKER_H
#define DIBS_CORE_ASKER_H

#include "core/cells.h"
#include "core/waiters.h"

/*
 * A thread begins to ask for the lease: from now on it is told what the store says of the token. It has the turn, or
 * needs none because the lease is turnless, or holds the name and asks on behalf of the next waiter. Returns the cell.
 * NULL: no memory; only for a turnless lease, since the others have a cell already.
 */
struct dibs__cell *dibs__asker_begin(struct dibs__cells *cells, struct dibs__lease *lease);

/* The attempt goes on under a new token. What was pushed for the old token is forgotten. */
void dibs__asker_set_token(struct dibs__cell *cell, struct dibs__lease *lease, const struct dibs__token *token);

/*
 * The acquire begins to rest: until the deadline, until the store pushes a grant of the lease, until
 * dibs__askers_wake, until acquires must end, or until a third of the shortest lease has passed that any thread
 * behind this one wants, so that each of those threads waits as if it asked by itself. Threads with one try, and
 * threads whose time ends meanwhile, are told why the acquire rests. wait_event: woken whenever
 * dibs__asker_rests may say something new. outage: why the ask failed; NULL: the store said that the name is taken.
 */
void dibs__asker_rest(struct dibs__cells *cells, struct dibs__cell *cell, struct dibs__lease *lease, int64_t deadline,
                      struct dibs__wait_event *wait_event, struct dibs__outage *outage);

/*
 * True: the acquire goes on resting, at most until *until. False: the rest is over, or `end` is set. *push is then what
 * was pushed, which is forgotten here.
 */
bool dibs__asker_rests(struct dibs__cells *cells, struct dibs__cell *cell, struct dibs__lease *lease, bool end,
                       int64_t *until, struct dibs__push *push);

/*
 * From now on the asking thread is notified of changes of the lock, which a foreign client holds. The thread then asks
 * again, at once if there was no change for a while. True: the thread was not notified of changes before, or a change
 * has come since the last call.
 */
bool dibs__asker_expect_change(struct dibs__cell *cell, struct dibs__lease *lease);

/*
 * Notes a grant that the store made by itself, and wakes the thread that asks for the lease. False: no thread here asks
 * for that token or holds its lease.
 */
bool dibs__askers_push(struct dibs__cells *cells, const struct dibs__grant *grant);

/*
 * Finds the lease of the token which threads here ask for or hold, or which the process keeps, and its cell. Locks the
 * shard, which the caller must unlock. NULL: there is none; the shard is locked even then.
 */
struct dibs__lease *dibs__cells_lock_token(struct dibs__cells *cells, const char *name, const char *token,
                                           struct dibs__shard **shard, struct dibs__cell **cell)
    DIBS__ACQUIRES(dibs__shard_mutex);

#define DIBS__HELD_MOST 64

/*
 * The lock may have changed: the threads that expect changes ask again. Returns how many granted leases of the name
 * there are here: beside the one that is alive, there may be some whose release is not answered yet, or whose loss
 * nobody has dealt with yet. Fills in the first DIBS__HELD_MOST of them, each with a reference, which becomes the
 * caller's.
 */
size_t dibs__askers_changed(struct dibs__cells *cells, const char *name, struct dibs__lease *held[DIBS__HELD_MOST]);

enum dibs__askers_news {
    DIBS__ASKERS_CHANGED, /* any lock may have changed: all acquires that wait for the store ask again */
    DIBS__ASKERS_MISSED,  /* grants may have been missed: all acquires that wait for the store ask again at once */
    DIBS__ASKERS_CLOSING  /* the runtime is closing, which all acquires that wait must see */
};
void dibs__askers_wake(struct dibs__cells *cells, enum dibs__askers_news news);

#endif
