/*
 * Who waits for a name in this process: what each wants and gets, how it is
 * woken, and how the turn or a lease goes to the next. For turn.c, asker.c and
 * handover.c.
 */
#ifndef DIBS_CORE_WAITERS_H
#define DIBS_CORE_WAITERS_H

#include "core/cells.h"

/* What a thread that wanted a name got. */
enum dibs__turn_kind {
    DIBS__TURN_TO_ASK, /* the turn: the thread must ask the store, and goes on with the attempt of `lease` if it is set
                        */
    DIBS__TURN_HANDED  /* `lease`, which another thread held before */
};

/* Why the store grants the name to no thread here, though the name may be free. */
struct dibs__outage {
    struct dibs__error error;
    bool too_few_replicas; /* the store grants the name and takes it back, because too few replicas acknowledge */
};

/* An outage that the threads with the turn ride out, one after the other. */
struct dibs__long_outage {
    struct dibs__outage last; /* as it was met last */
    int64_t since;            /* when the first of these threads met it */
};

/* What a call wants of a name, and what it gets. */
struct dibs__turn {
    /* What the caller wants. */
    const char *name;
    size_t name_size;
    uint32_t lease_ms; /* a lease that another thread asked for is taken only if its length and `fixed` are the same */
    bool fixed;
    bool one_try;                    /* waits only while nothing is known of the name */
    int64_t deadline;                /* when the wait ends */
    int64_t budget;                  /* until when the caller rides out an outage */
    atomic_uint_fast64_t *contended; /* counts this wait, once the caller begins to wait for the name */
    atomic_int_fast64_t *waiting;    /* then counts the caller among the threads that wait, who must take that back */

    /* What the caller gets. */
    struct dibs__outage *outage; /* what another thread was told: filled where the status is that outage's, and with
                                    the turn where outage_since is set */
    enum dibs__turn_kind kind;   /* set */
    bool waited;                 /* set: the caller waited for the name */
    bool keeps;                  /* set, with the turn: the process may keep the lease (kept.h) */
    bool retaken;                /* set, HANDED: nobody here used the lease before, the process had kept it */
    bool tells;                  /* set, with retaken: the caller must call dibs__renewals_kept */
    int64_t retaken_at;          /* set, with retaken: when the caller took it */
    struct dibs__lease *unfit;   /* set, with the turn: a lease that was kept and must be given back first, one
                                    reference, the caller's; NULL: there is none */
    int64_t outage_since;      /* set: since when the threads that had the turn before met an outage; 0: they did not */
    struct dibs__lease *lease; /* set: one reference, the caller's; NULL: there is none */
    struct dibs__cell *cell;   /* set */
};

/*
 * What a waiting thread does. Changed under the shard's mutex, except that the
 * thread itself goes from AWAKE to ASLEEP without.
 */
enum dibs__waiter_state {
    DIBS__WAITER_AWAKE,   /* it looks at the cell, or goes to sleep */
    DIBS__WAITER_ASLEEP,  /* or about to wake by itself */
    DIBS__WAITER_WOKEN,   /* it must look at the cell again */
    DIBS__WAITER_COMPLETE /* it leaves without a look at the cell: it may be gone at once */
};

/* A thread that waits for a name, on its stack; or a begun acquire, which no thread waits for (begun.h). */
struct dibs__waiter {
    struct dibs__waiter *next DIBS__GUARDED_BY(dibs__shard_mutex);      /* NULL: this is the last */
    struct dibs__waiter *previous DIBS__GUARDED_BY(dibs__shard_mutex);  /* of the first: the last */
    struct dibs__waiter_list *list DIBS__GUARDED_BY(dibs__shard_mutex); /* in which the thread waits; NULL: in none */
    atomic_uint state;         /* atomic; a dibs__waiter_state. The thread sleeps on this word */
    dibs_status answer;        /* what the thread must return, DIBS_OK: what its turn says. Written under the shard's
                                  mutex before COMPLETE, then the thread's */
    struct dibs__shard *shard; /* read-only; of the cell */
    void (*tell)(struct dibs__waiter *waiter); /* read-only; of a begun acquire: called under the shard's mutex instead
                                                  of waking a thread, may lock the workers' mutex; else NULL */
    int64_t since;                             /* read-only; when the thread began to wait */
    struct dibs__turn *turn; /* read-only; its content is guarded by the shard's mutex while the thread waits, and the
                                thread's once it is COMPLETE */
};

/* The waiter becomes the last. It must be in no list. */
void dibs__waiters_add(struct dibs__waiter_list *list, struct dibs__waiter *waiter) DIBS__REQUIRES(dibs__shard_mutex);

/* Takes the waiter out of its list, if it is in one. */
void dibs__waiters_remove(struct dibs__waiter *waiter) DIBS__REQUIRES(dibs__shard_mutex);

/*
 * Unlocks the shard's mutex, and then wakes the thread whose waiter was
 * woken or completed under it: a woken thread must not run into a mutex that is
 * still held.
 * Where dibs__waiters_complete, dibs__waiters_wake, dibs__waiters_pass_on or
 * dibs__waiters_pass_on_with was called, the mutex must be unlocked by this.
 */
void dibs__waiters_unlock(struct dibs__shard *shard) DIBS__RELEASES(dibs__shard_mutex);

/* Its thread leaves: it has what its turn says, or its `answer`. */
static inline bool dibs__waiter_is_complete(const struct dibs__waiter *waiter)
{
    return atomic_load_explicit(&waiter->state, memory_order_acquire) == DIBS__WAITER_COMPLETE;
}

/* The thread of the waiter wakes, and looks at the cell again. */
void dibs__waiters_wake(struct dibs__shard *shard, struct dibs__waiter *waiter) DIBS__REQUIRES(dibs__shard_mutex);

/* The waiter leaves its list, and its thread wakes and has what its turn says. */
void dibs__waiters_complete(struct dibs__cell *cell, struct dibs__waiter *waiter) DIBS__REQUIRES(dibs__shard_mutex);

/*
 * The waiter leaves its list, and its thread wakes and returns that status, not
 * DIBS_OK; error: its sentence, NULL: the waiter has its own. Where many fail,
 * each is woken at once.
 */
void dibs__waiters_fail(struct dibs__waiter *waiter, dibs_status status, const struct dibs__error *error)
    DIBS__REQUIRES(dibs__shard_mutex);

/* Whether a thread with those wishes may have the lease. */
bool dibs__waiters_fit(const struct dibs__lease *lease, const struct dibs__turn *turn);

/* The thread takes over the lease that the cell holds, with the next fence. */
void dibs__waiters_take_over(struct dibs__cell *cell, struct dibs__turn *turn) DIBS__REQUIRES(dibs__shard_mutex);

/* The name is not held here any more. */
void dibs__waiters_mark_free(struct dibs__cell *cell) DIBS__REQUIRES(dibs__shard_mutex);

/* The next thread gets the turn. No thread may have it, or the name. Without a waiter the cell may be removed. */
void dibs__waiters_pass_on(struct dibs__cell *cell) DIBS__REQUIRES(dibs__shard_mutex);

/* The first waiter gets the turn and goes on with the attempt of `lease`. False: it wants another lease, or none waits.
 */
bool dibs__waiters_pass_on_with(struct dibs__cell *cell, struct dibs__lease *lease) DIBS__REQUIRES(dibs__shard_mutex);

/* Ends the wait of all threads with one try: with that error, or, where it is NULL, because the name is taken. */
void dibs__waiters_fail_tries(struct dibs__cell *cell, const struct dibs__error *error)
    DIBS__REQUIRES(dibs__shard_mutex);

/* The thread with the turn met that outage; NULL: it met none. Without memory nothing is known of the name. */
void dibs__waiters_note_outage(struct dibs__cell *cell, const struct dibs__outage *outage, int64_t now)
    DIBS__REQUIRES(dibs__shard_mutex);

#endif
