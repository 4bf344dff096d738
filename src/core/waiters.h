/*
 * The waiters for a name in this process: what each wants and gets, how it is woken, and how the turn or a lease goes
 * to the next one. For turn.c, asker.c and kept.c.
 */
#ifndef DIBS_CORE_WAITERS_H
#define DIBS_CORE_WAITERS_H

#include "core/cells.h"
#include "core/outage_budget.h"

/*
 * What a waiting thread does. Changed under the shard's mutex; only the thread itself goes from AWAKE to ASLEEP without
 * the mutex.
 */
enum dibs__waiter_state {
    DIBS__WAITER_AWAKE,   /* the thread looks at the cell, or goes to sleep */
    DIBS__WAITER_ASLEEP,  /* the thread sleeps, or is about to wake by itself */
    DIBS__WAITER_WOKEN,   /* the thread must look at the cell again */
    DIBS__WAITER_COMPLETE /* the thread leaves without looking at the cell again: the waiter may be gone at once */
};

/*
 * What a call wants of a name, what it gets, and how it waits for that: on the stack of a thread; or of a begun
 * acquire, for which no thread waits (begun.h). While the call waits, the shard's mutex guards all fields that are not
 * read-only; before that, and once COMPLETE, they are the call's.
 */
struct dibs__waiter {
    /* What the caller wants: read-only. */
    const char *name;
    size_t name_size;
    struct dibs__wish wish; /* neither fair nor shared; a lease that another thread asked for is taken only if its
                               length is the same, and it is fixed or not, as this one */
    bool one_try;           /* the caller waits only while nothing is known of the name */
    int64_t deadline;       /* when the wait ends */
    int64_t budget;         /* until when the caller rides out an outage */
    struct dibs__wait_event *told; /* NULL, or woken under the shard's mutex instead of a thread that sleeps by `state`;
                                      its `tell` may lock the workers' mutex */

    /* What the caller gets. */
    struct dibs__outage *outage; /* set if the status is that of an outage, to what another thread was told; or with the
                                    turn, to the outage that the previous threads with the turn met. With one reference,
                                    the caller's; NULL: there is none */
    bool keeps;                  /* set, with the turn: the process may keep the lease (kept.h) */
    int64_t retaken_at;          /* set, with a lease that nobody here used, because the process had kept it: when the
                                    caller took it, which must call dibs__renewals_use_changed; else 0 */
    struct dibs__lease *unfit;   /* set, with the turn: a kept lease that must be given back first, with one reference,
                                    the caller's; NULL: there is none */
    int64_t outage_since;        /* set, with the turn and `outage`: when the outage began */
    struct dibs__lease *lease; /* set: with one reference, the caller's. A granted lease was handed over: the caller has
                                  it. Otherwise the caller has the turn, must ask the store, and goes on with the
                                  attempt of that lease; NULL: begins one */
    struct dibs__cell *cell;   /* set */

    /* How it waits: only from the begin of a wait on. */
    DIBS__LINKS(struct dibs__waiter) links DIBS__GUARDED_BY(dibs__shard_mutex); /* in a list of the cell */
    atomic_uint state;         /* atomic; a dibs__waiter_state; the thread sleeps on this word */
    dibs_status answer;        /* what the thread must return; DIBS_OK: what `lease` says */
    struct dibs__shard *shard; /* read-only; the shard of the cell, which may be gone once COMPLETE */
    int64_t since;             /* read-only; when the wait began */
};

/* Takes the waiter out of its list. */
void dibs__waiters_remove(struct dibs__waiter *waiter) DIBS__REQUIRES(dibs__shard_mutex);

/*
 * Unlocks the shard's mutex, and then wakes the thread whose waiter was woken or completed under the mutex, so that the
 * woken thread does not run into a mutex that is still held. After dibs__waiters_complete, dibs__waiters_wake,
 * dibs__waiters_pass_on or dibs__waiters_pass_on_with the mutex must be unlocked by this function.
 */
void dibs__waiters_unlock(struct dibs__shard *shard) DIBS__RELEASES(dibs__shard_mutex);

/* Whether the waiter, whose wait has ended well, has a lease that was handed over; otherwise it has the turn. */
bool dibs__waiter_is_handed(const struct dibs__waiter *waiter);

/* Whether the wait has ended: the thread has what `lease` says, or its `answer`. */
static inline bool dibs__waiter_is_complete(const struct dibs__waiter *waiter)
{
    return atomic_load_explicit(&waiter->state, memory_order_acquire) == DIBS__WAITER_COMPLETE;
}

/* Wakes the thread of the waiter, which looks at the cell again. */
void dibs__waiters_wake(struct dibs__shard *shard, struct dibs__waiter *waiter) DIBS__REQUIRES(dibs__shard_mutex);

/* Takes the waiter out of its list, and wakes its thread, which then has what `lease` says. */
void dibs__waiters_complete(struct dibs__cell *cell, struct dibs__waiter *waiter) DIBS__REQUIRES(dibs__shard_mutex);

/*
 * Takes the waiter out of its list, and wakes its thread, which then returns the status of the outage; NULL: DIBS_BUSY.
 * Each failed waiter is woken at once, even where many fail.
 */
void dibs__waiters_fail(struct dibs__waiter *waiter, struct dibs__outage *outage) DIBS__REQUIRES(dibs__shard_mutex);

/* Whether the lease is what the waiter wants. */
bool dibs__waiters_fit(const struct dibs__lease *lease, const struct dibs__waiter *waiter);

/* Hands the lease that the cell holds to the waiter, with the next fence. */
void dibs__waiters_take_over(struct dibs__cell *cell, struct dibs__waiter *waiter) DIBS__REQUIRES(dibs__shard_mutex);

/* Marks that no thread here holds the name any longer. */
void dibs__waiters_mark_free(struct dibs__cell *cell) DIBS__REQUIRES(dibs__shard_mutex);

/*
 * Gives the turn to the next thread. No thread may have the turn or the name. Without a waiter the cell may be removed.
 */
void dibs__waiters_pass_on(struct dibs__cell *cell) DIBS__REQUIRES(dibs__shard_mutex);

/*
 * Gives the turn to the first waiter, which goes on with the attempt of `lease`. False: no thread waits, or the first
 * one wants another lease.
 */
bool dibs__waiters_pass_on_with(struct dibs__cell *cell, struct dibs__lease *lease) DIBS__REQUIRES(dibs__shard_mutex);

/* Ends the wait of all threads with one try: with the outage, or, where it is NULL, because the name is taken. */
void dibs__waiters_fail_tries(struct dibs__cell *cell, struct dibs__outage *outage) DIBS__REQUIRES(dibs__shard_mutex);

/* The thread with the turn met that outage; NULL: it met none. */
void dibs__waiters_note_outage(struct dibs__cell *cell, struct dibs__outage *outage, int64_t now)
    DIBS__REQUIRES(dibs__shard_mutex);

#endif
