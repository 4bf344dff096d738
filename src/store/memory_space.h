/*
 * A space of the store in memory: its locks, their owners and their queues.
 * Each runtime that opens mem: has a space of its own; all that open mem:NAME
 * share the space of that name.
 *
 * Lock discipline: a space's `mutex` guards its locks and their queues; it is a
 * leaf. `named_mutex` guards the list of named spaces and is not held together
 * with the other. It is held across a fork, so that the child finds the list
 * whole.
 */
#ifndef DIBS_STORE_MEMORY_SPACE_H
#define DIBS_STORE_MEMORY_SPACE_H

#include "base/mutex.h"
#include "store/store.h"

DIBS__MUTEX_CLASS(dibs__space_mutex);
DIBS__MUTEX_CLASS(dibs__spaces_mutex);

/* A runtime, as far as a space knows it. */
struct dibs__space_user {
    struct dibs__listener listener;                    /* read-only after open */
    bool is_member;                                    /* read-only after open */
    size_t pushes DIBS__GUARDED_BY(dibs__space_mutex); /* grants that the listener is being told of */
};

/*
 * A token that waits, or that was served. Guarded by the space's mutex while it
 * is in a queue; once it was served, it belongs to the thread that tells its user.
 */
struct dibs__space_waiter {
    struct dibs__space_waiter *next;
    struct dibs__space_user *user;
    uint64_t number; /* of its newest ask */
    uint32_t lease_ms;
    bool hint;   /* it wants no grant, only a hint when the lock may be free */
    bool shared; /* it wants to share the lock, with fewer than `limit` others; 0: with any number */
    uint32_t limit;
    uint64_t fence; /* once it was served; 0: of a hint */
    char token[DIBS__TOKEN_MAX];
};

/* One who shares a lock. Guarded by the space's mutex. */
struct dibs__space_sharer {
    struct dibs__space_sharer *next; /* an older one */
    int64_t granted, expires;
    uint64_t fence;
    char token[DIBS__TOKEN_MAX];
};

/* A name that somebody holds or waits for. Guarded by the space's mutex. */
struct dibs__space_lock {
    const char *name;                   /* behind the struct */
    struct dibs__space_waiter *first;   /* of the queue, in the order of arrival */
    struct dibs__space_sharer *sharers; /* the newest first; NULL: nobody shares the lock */
    uint32_t sharer_count;
    int64_t granted, expires;    /* of the owner who has the lock alone */
    uint64_t fence;              /* of the newest grant */
    char token[DIBS__TOKEN_MAX]; /* of the owner who has the lock alone; "": there is none */
};

struct dibs__space {
    struct dibs__mutex mutex;
    pthread_cond_t pushed;                           /* the pushes of a user have become zero */
    void *locks DIBS__GUARDED_BY(dibs__space_mutex); /* a tree of struct dibs__space_lock by name */
    uint64_t last_fence DIBS__GUARDED_BY(dibs__space_mutex);
    bool knows_vote DIBS__GUARDED_BY(dibs__space_mutex); /* whether it may vote in a quorum: from votes_from on */
    int64_t votes_from DIBS__GUARDED_BY(dibs__space_mutex);
    bool has_floor DIBS__GUARDED_BY(dibs__space_mutex);      /* its fences are large enough; before it may not vote */
    uint64_t quorum DIBS__GUARDED_BY(dibs__space_mutex);     /* that it is a member of; 0: not known */
    uint32_t longest_ms DIBS__GUARDED_BY(dibs__space_mutex); /* of the leases that were announced to it */
    struct dibs__space *next DIBS__GUARDED_BY(dibs__spaces_mutex);
    unsigned references DIBS__GUARDED_BY(dibs__spaces_mutex);
    char *name; /* read-only; NULL: private */
};

bool dibs__spaces_watch_forks(void); /* as dibs__store_watch_forks */

/* The space of that name, a new one where there is none or the name is "". NULL: no memory. */
struct dibs__space *dibs__space_get(const char *name);

/* Whether it may vote for a lease of that length, in the quorum of that number. */
bool dibs__space_votes(const struct dibs__space *space, uint32_t lease_ms, uint64_t quorum, int64_t now)
    DIBS__REQUIRES(dibs__space_mutex);

/* As vote.lua. */
void dibs__space_vote(struct dibs__space *space, struct dibs__vote *vote, int64_t now)
    DIBS__REQUIRES(dibs__space_mutex);

/* The user has left the space (dibs__space_leave). The last reference frees the space. */
void dibs__space_put(struct dibs__space *space);

static inline bool dibs__space_is_held(const struct dibs__space_lock *lock)
{
    return lock->token[0] != '\0' || lock->sharers;
}

/* Whether the token has the lock, alone or shared. */
bool dibs__space_is_owner(const struct dibs__space_lock *lock, const char *token);

/* Whether an attempt of that kind fits beside who has the lock now. */
bool dibs__space_admits(const struct dibs__space_lock *lock, bool shared, uint32_t limit);

/* When the lock, or where there is a limit a part of it, is free at the latest, unless leases are renewed. */
int64_t dibs__space_ends(const struct dibs__space_lock *lock, uint32_t limit);

/* NULL: nobody holds the lock or waits for it. Ends leases that are over. */
struct dibs__space_lock *dibs__space_find(struct dibs__space *space, const char *name, int64_t now)
    DIBS__REQUIRES(dibs__space_mutex);

/* NULL: no memory. A new lock has no owner and no queue: the caller gives it either, or drops it. */
struct dibs__space_lock *dibs__space_find_or_add(struct dibs__space *space, const char *name, int64_t now)
    DIBS__REQUIRES(dibs__space_mutex);

/* True: nobody held the lock or waited for it, and it is freed. */
bool dibs__space_drop_unused(struct dibs__space *space, struct dibs__space_lock *lock)
    DIBS__REQUIRES(dibs__space_mutex);

/* What is granted. */
struct dibs__space_wish {
    const char *token;
    uint32_t lease_ms;
    bool shared;
};

/* The token does not wait any more. The fence is that of the lock then. False: no memory to share it. */
bool dibs__space_grant(struct dibs__space *space, struct dibs__space_lock *lock, const struct dibs__space_wish *wish,
                       int64_t now) DIBS__REQUIRES(dibs__space_mutex);

/* Nobody has the lock any more, or not that sharer. False: the token has no part in it. */
void dibs__space_end_all(struct dibs__space_lock *lock) DIBS__REQUIRES(dibs__space_mutex);
bool dibs__space_end_sharer(struct dibs__space_lock *lock, const char *token) DIBS__REQUIRES(dibs__space_mutex);

/* The token has the lock: its lease. */
struct dibs__space_lease {
    int64_t *expires;
    uint64_t *fence;
};
struct dibs__space_lease dibs__space_lease_of(struct dibs__space_lock *lock, const char *token)
    DIBS__REQUIRES(dibs__space_mutex);
/* The fence of the token, which has the lock, is that one, and later fences are larger. */
void dibs__space_raise(struct dibs__space *space, struct dibs__space_lock *lock, const char *token, uint64_t fence)
    DIBS__REQUIRES(dibs__space_mutex);

/* The token has the lock. */
void dibs__space_prolong(struct dibs__space_lock *lock, const char *token, uint32_t lease_ms, int64_t now)
    DIBS__REQUIRES(dibs__space_mutex);

/* An attempt that waits joins the queue, or keeps its place there. False: no memory. */
bool dibs__space_take_place(struct dibs__space_user *user, struct dibs__space_lock *lock,
                            const struct dibs__attempt *attempt) DIBS__REQUIRES(dibs__space_mutex);

/* Calls found for each lock that is held; false: found was false. */
bool dibs__space_walk(struct dibs__space *space, const struct dibs__walk *walk, int64_t now)
    DIBS__REQUIRES(dibs__space_mutex);

uint32_t dibs__space_count_waiters(const struct dibs__space_lock *lock) DIBS__REQUIRES(dibs__space_mutex);
/* NULL: nobody wants to know. */
void dibs__space_show_waiters(const struct dibs__space_lock *lock, struct dibs__waiters *waiters)
    DIBS__REQUIRES(dibs__space_mutex);
void dibs__space_show_sharers(const struct dibs__space_lock *lock, struct dibs__sharers *sharers, int64_t now)
    DIBS__REQUIRES(dibs__space_mutex);

/*
 * A free lock goes to the first in the queue; where that wants a hint, it stays
 * free, and is for `me`, who asks. Where the first wants to share it, those behind
 * share it too, up to one who wants it alone, or the limit; and so where it is
 * shared already. Returns all whom dibs__space_push must tell; NULL: nobody was
 * served but `me`.
 */
struct dibs__space_waiter *dibs__space_serve(struct dibs__space *space, struct dibs__space_lock *lock, const char *me,
                                             int64_t now) DIBS__REQUIRES(dibs__space_mutex);
struct dibs__space_waiter *dibs__space_serve_name(struct dibs__space *space, const char *name, int64_t now)
    DIBS__REQUIRES(dibs__space_mutex);

/* The token waits no longer, nor does it own the lock. True: it was the owner. The caller must serve the queue. */
bool dibs__space_end(struct dibs__space *space, const char *name, const char *token, int64_t now)
    DIBS__REQUIRES(dibs__space_mutex);

/* Tells the user of the waiter that was served. A grant that nobody waits for any more goes to the next. */
void dibs__space_push(struct dibs__space *space, const struct dibs__clock *clock, const char *name,
                      struct dibs__space_waiter *served) DIBS__EXCLUDES(dibs__space_mutex);

/* The waiters of the user leave their queues; waits until its listener is told of nothing any more. */
void dibs__space_leave(struct dibs__space *space, struct dibs__space_user *user) DIBS__EXCLUDES(dibs__space_mutex);

#endif
