/*
 * The state of a store in memory is a space: its locks, their owners and their queues. Each runtime
 * that opens mem: has a space of its own; all that open mem:NAME share the space of that name.
 *
 * Lock discipline: a space's `mutex` guards its locks and their queues; it is a leaf. The list
 * of named spaces is guarded by the mutex of the process, which is never held together with a space's.
 */
#ifndef DIBS_STORE_MEMORY_SPACE_H
#define DIBS_STORE_MEMORY_SPACE_H

#include "base/list.h"
#include "base/process.h"
#include "store/store.h"

DIBS__MUTEX_CLASS(dibs__space_mutex);

/* A runtime that uses a space. */
struct dibs__space_user {
    struct dibs__listener listener; /* read-only after open */
    const char *prefix;             /* read-only after open; comes before its names in the space */
    size_t prefix_size;             /* read-only after open */
    bool is_member; /* read-only after open; its tokens get no grants, only hints when the lock may be free */
    size_t pushes DIBS__GUARDED_BY(dibs__space_mutex); /* grants that are being delivered to the listener */
};

/*
 * A token that waits, or that was served. Guarded by the space's mutex while it is in a queue; once it was
 * served, it belongs to the thread that tells its user.
 */
struct dibs__space_waiter {
    struct dibs__space_waiter *next;
    struct dibs__space_user *user;
    uint64_t number; /* of the token's newest ask */
    uint32_t lease_ms;
    uint64_t fence; /* set when the token is served; 0: it gets a hint */
    char token[DIBS__TOKEN_MAX];
};

/* What one owner of a lock was granted. Guarded by the space's mutex. */
struct dibs__space_hold {
    struct dibs__space_hold *next; /* the next older one */
    int64_t granted, expires;
    uint64_t fence;
    char token[DIBS__TOKEN_MAX];
};

/* A lock that somebody holds or waits for. Guarded by the space's mutex. */
struct dibs__space_lock {
    const char *name;                 /* stored behind the struct */
    struct dibs__space_waiter *first; /* the queue, in the order of arrival */
    struct dibs__space_hold *holds;   /* the newest first: none, one that is not shared, or those of sharers */
    uint32_t hold_count;
    struct dibs__space_hold own;                /* the one that is not shared: granting it needs no memory */
    DIBS__LINKS(struct dibs__space_lock) links; /* in the list of all locks of the space */
};

struct dibs__space {
    struct dibs__mutex mutex;
    pthread_cond_t pushed;                             /* signals that the pushes of a user have become zero */
    void *by_name DIBS__GUARDED_BY(dibs__space_mutex); /* a tree of struct dibs__space_lock */
    struct dibs__space_lock *locks DIBS__GUARDED_BY(dibs__space_mutex); /* the same, as a list */
    uint64_t last_fence DIBS__GUARDED_BY(dibs__space_mutex);
    bool knows_vote DIBS__GUARDED_BY(dibs__space_mutex); /* whether it knows that it may vote, from votes_from on */
    int64_t votes_from DIBS__GUARDED_BY(dibs__space_mutex);
    bool has_floor DIBS__GUARDED_BY(dibs__space_mutex);      /* whether it may grant: its fences are above the floor */
    uint64_t quorum DIBS__GUARDED_BY(dibs__space_mutex);     /* number of its quorum; 0: not known */
    uint32_t longest_ms DIBS__GUARDED_BY(dibs__space_mutex); /* of the leases that were announced */
    struct dibs__space *next DIBS__GUARDED_BY(dibs__process_mutex);
    unsigned references DIBS__GUARDED_BY(dibs__process_mutex);
    char *name; /* read-only; NULL: the space is private */
};

/* The space of that name; a new one if there is none, or if the name is "". NULL: no memory. */
struct dibs__space *dibs__space_get(const char *name);

/* Whether the space may vote for a lease of that length in the quorum with that number. */
bool dibs__space_votes(const struct dibs__space *space, uint32_t lease_ms, uint64_t quorum, int64_t now)
    DIBS__REQUIRES(dibs__space_mutex);

/* As vote.lua. */
void dibs__space_vote(struct dibs__space *space, struct dibs__vote *vote, int64_t now)
    DIBS__REQUIRES(dibs__space_mutex);

/* Drops the reference of a user that has left the space (dibs__space_leave). The last one frees the space. */
void dibs__space_put(struct dibs__space *space);

static inline bool dibs__space_is_held(const struct dibs__space_lock *lock)
{
    return lock->holds != NULL;
}

/* Whether the lock can be granted to the token beside its present owners. */
bool dibs__space_admits(const struct dibs__space_lock *lock, const char *token);

/* When the lock is free, unless leases are renewed. */
int64_t dibs__space_ends(const struct dibs__space_lock *lock);

/* When the first lease of those who hold the lock ends, unless it is renewed. */
int64_t dibs__space_first_ends(const struct dibs__space_lock *lock);

/* Ends the leases that are over. NULL: nobody holds the lock or waits for it. */
struct dibs__space_lock *dibs__space_find(struct dibs__space *space, const char *name, int64_t now)
    DIBS__REQUIRES(dibs__space_mutex);

/*
 * Adds the lock if there is none, without an owner or a queue: the caller gives it either, or drops it. NULL:
 * no memory.
 */
struct dibs__space_lock *dibs__space_find_or_add(struct dibs__space *space, const char *name, int64_t now)
    DIBS__REQUIRES(dibs__space_mutex);

/* Frees a lock that nobody holds or waits for. False: it is in use. */
bool dibs__space_drop_unused(struct dibs__space *space, struct dibs__space_lock *lock)
    DIBS__REQUIRES(dibs__space_mutex);

/* Grants the lock to the token and takes the token out of the queue. NULL: no memory. */
struct dibs__space_hold *dibs__space_grant(struct dibs__space *space, struct dibs__space_lock *lock, const char *token,
                                           uint32_t lease_ms, int64_t now) DIBS__REQUIRES(dibs__space_mutex);

/* Take the lock away from all its owners, or from one. False: the token does not have the lock. */
void dibs__space_end_all(struct dibs__space_lock *lock) DIBS__REQUIRES(dibs__space_mutex);
bool dibs__space_end_hold(struct dibs__space_lock *lock, const char *token) DIBS__REQUIRES(dibs__space_mutex);

/* What the token was granted; NULL: it does not have the lock. */
struct dibs__space_hold *dibs__space_hold_of(struct dibs__space_lock *lock, const char *token)
    DIBS__REQUIRES(dibs__space_mutex);

/* Raises the fence of a hold to at least `fence`; later fences are larger. */
void dibs__space_raise(struct dibs__space *space, struct dibs__space_hold *hold, uint64_t fence)
    DIBS__REQUIRES(dibs__space_mutex);

/* Makes the lease last that long from now on, unless it lasts longer. */
void dibs__space_prolong(struct dibs__space_hold *hold, uint32_t lease_ms, int64_t now)
    DIBS__REQUIRES(dibs__space_mutex);

/* The token of an attempt that waits joins the queue, or keeps its place there. False: no memory. */
bool dibs__space_take_place(struct dibs__space_user *user, struct dibs__space_lock *lock,
                            const struct dibs__attempt *attempt) DIBS__REQUIRES(dibs__space_mutex);

/* Calls `found` for each lock with the user's prefix that is held. False: `found` returned false. */
bool dibs__space_walk(struct dibs__space *space, const struct dibs__space_user *user, const struct dibs__walk *walk,
                      int64_t now) DIBS__REQUIRES(dibs__space_mutex);

uint32_t dibs__space_count_waiters(const struct dibs__space_lock *lock) DIBS__REQUIRES(dibs__space_mutex);
/* Fill the lists of a query; NULL: not wanted. */
void dibs__space_show_waiters(const struct dibs__space_lock *lock, struct dibs__waiters *waiters)
    DIBS__REQUIRES(dibs__space_mutex);
void dibs__space_show_sharers(const struct dibs__space_lock *lock, struct dibs__sharers *sharers, int64_t now)
    DIBS__REQUIRES(dibs__space_mutex);

/*
 * Grants a free lock to the first in the queue. If the first wants a hint, it gets one instead, and
 * the lock stays free; but if `me`, the token of an ask, is given, the lock is left to `me`. If the
 * first shares the lock, those behind it share it too, up to the limit or to one that wants it
 * exclusively; so they do if the lock is shared already. Returns all tokens of which
 * dibs__space_push must tell; NULL: nobody was served but `me`.
 */
struct dibs__space_waiter *dibs__space_serve(struct dibs__space *space, struct dibs__space_lock *lock, const char *me,
                                             int64_t now) DIBS__REQUIRES(dibs__space_mutex);
struct dibs__space_waiter *dibs__space_serve_name(struct dibs__space *space, const char *name, int64_t now)
    DIBS__REQUIRES(dibs__space_mutex);

/*
 * Takes the token out of the queue, and the lock from the token. True: the token was an owner. The caller must
 * serve the queue.
 */
bool dibs__space_end(struct dibs__space *space, const char *name, const char *token, int64_t now)
    DIBS__REQUIRES(dibs__space_mutex);

/*
 * Tells the users of the tokens that were served. If a grant is not wanted any more, the next in the queue are
 * served.
 */
void dibs__space_push(struct dibs__space *space, const struct dibs__clock *clock, const char *name,
                      struct dibs__space_waiter *served) DIBS__EXCLUDES(dibs__space_mutex);

/* Takes the user's tokens out of all queues, and waits until nothing more is being delivered to its listener. */
void dibs__space_leave(struct dibs__space *space, struct dibs__space_user *user) DIBS__EXCLUDES(dibs__space_mutex);

#endif
