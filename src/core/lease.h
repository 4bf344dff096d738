/*
 * A lease: what the store granted to this process, and until when it is sure to last.
 *
 * Whether it is lost is one atomic: the deadline, or LOST in its place. Whoever
 * finds the deadline passed makes it LOST, and nothing makes it good again, so
 * every thread agrees for ever after (invariant 2) and none waits for another.
 */
#ifndef DIBS_CORE_LEASE_H
#define DIBS_CORE_LEASE_H

#include <stdatomic.h>

#include "base/clock.h"
#include "store/store.h"

#define DIBS__FENCE_STEPS 1024 /* fences within one grant of the store's */

/* LEFT: sent, and its call did not wait for the answer. */
enum dibs__extending {
    DIBS__NOT_EXTENDING,
    DIBS__EXTEND_ASKED,
    DIBS__EXTEND_SENT,
    DIBS__EXTEND_LEFT,
    DIBS__EXTEND_DONE
};

/* What the store said by itself of an attempt: a grant. */
struct dibs__push {
    uint64_t number, fence; /* fence 0: nothing was said */
    bool confirm;
};

/* The attempt at a lease, until it is granted or given up. */
struct dibs__asking {
    struct dibs__bid ask; /* the asking thread's, as is answer: where another thread asked, it is passed on with */
    bool answered;        /* the turn, and then */
    dibs_status status;   /* this is what it was told */
    struct dibs__answer answer;
    struct dibs__push push;  /* guarded by the cell's mutex (cell.c) */
    bool hinted;             /* to ask again at once; guarded by the cell's mutex */
    pthread_cond_t *sleeper; /* of the asking thread; NULL: it does not sleep; guarded by the cell's mutex */
    bool listed;             /* among those of the cell and by its token; guarded by the cell's mutex */
    struct dibs__lease *next, *previous; /* among those of the cell; guarded by the cell's mutex */
    struct dibs__lease *chain;           /* among those whose tokens share a bucket; guarded by the cell's mutex */
    uint64_t hash;                       /* of the token that it is listed with; guarded by the cell's mutex */
};

struct dibs__lease {
    atomic_uint references;
    uint64_t runtime; /* serial of the runtime; these are read-only after the grant */
    uint64_t store_fence;
    uint32_t asked_ms; /* how long it was asked for */
    bool fixed, fair;
    int64_t granted_at;
    char token[DIBS__TOKEN_MAX]; /* while it is asked for, guarded by the cell's mutex */
    struct dibs__asking bid;
    atomic_uint step;     /* hand-overs within the process; written under the cell's mutex */
    atomic_bool extended; /* it may not be as long any more as was asked */
    /* the longest that it was ever extended to, or was to be; 0: never. Written under the renewal's mutex */
    _Atomic uint32_t extended_ms;
    _Atomic int64_t deadline;   /* ns, or DIBS__LEASE_LOST */
    atomic_bool loss_told;      /* somebody sees to what follows from the loss */
    _Atomic uint64_t reentered; /* written by the holding thread only */

    uint32_t lease_ms;            /* guarded by the renewal's mutex (renewal.c) */
    int64_t due;                  /* guarded by the renewal's mutex; when the scheduler must look at it next */
    int64_t renew_at, risk_at;    /* guarded by the renewal's mutex */
    struct dibs__lease_memo memo; /* guarded by the renewal's mutex; the store's own */
    bool in_doubt;                /* guarded by the renewal's mutex; another server answers than the one that proved it:
                                     to be renewed, or set again there */
    bool unanswered;              /* guarded by the renewal's mutex; a request that may set it again there had no
                                     answer: it may still come */
    bool failed;                  /* guarded by the renewal's mutex; a renewal failed since the lease was last proved */
    bool in_flight;               /* guarded by the renewal's mutex; being renewed now */
    uint32_t cut_ms;   /* guarded by the renewal's mutex; an extension that may still arrive would cut the lease to this
                          length; 0: there is none */
    size_t heap_place; /* guarded by the renewal's mutex; DIBS__NOT_SCHEDULED: it is not kept alive */
    enum dibs__extending extending;      /* guarded by the renewal's mutex */
    uint32_t extend_ms;                  /* guarded by the renewal's mutex; to this length */
    dibs_status extend_status;           /* guarded by the renewal's mutex; when done */
    bool listed;                         /* guarded by the renewal's mutex; among all leases that threads hold */
    struct dibs__lease *next, *previous; /* guarded by the renewal's mutex; in that list */

    size_t name_size; /* read-only; without the NUL */
    char name[];
};

#define DIBS__LEASE_LOST INT64_C(0)
#define DIBS__NOT_SCHEDULED SIZE_MAX

/* With one reference, the caller's, and not granted yet. NULL: no memory. */
struct dibs__lease *dibs__lease_new(uint64_t runtime, const char *name, size_t name_size);
void dibs__lease_ref(struct dibs__lease *lease);
void dibs__lease_unref(struct dibs__lease *lease); /* the last frees it; NULL is fine */

/* When a lease of lease_ms that the store gave to a request sent at `proof` is over here: 1 % + 2 ms before. */
int64_t dibs__lease_deadline(int64_t proof, uint32_t lease_ms);

/* Whether it is lost; makes it so where the deadline has passed. */
static inline bool dibs__lease_is_lost(struct dibs__lease *lease, int64_t now)
{
    int64_t deadline = atomic_load_explicit(&lease->deadline, memory_order_acquire);

    while (deadline != DIBS__LEASE_LOST && now >= deadline)
        if (atomic_compare_exchange_weak(&lease->deadline, &deadline, DIBS__LEASE_LOST))
            return true;
    return deadline == DIBS__LEASE_LOST;
}

/* It is gone, whatever its deadline says. */
void dibs__lease_lose(struct dibs__lease *lease);

/* Moves the deadline of one that is not lost. False: it is. `earlier_only`: never to a later time. */
bool dibs__lease_move(struct dibs__lease *lease, int64_t deadline, bool earlier_only, int64_t now);

/* The fence of whoever holds it now: the store's grant, and the hand-over in it. */
uint64_t dibs__lease_fence(const struct dibs__lease *lease);

/* How long the store may keep its key after it was renewed or extended last. */
uint32_t dibs__lease_longest_ms(const struct dibs__lease *lease);

/* What is left in whole ms, rounded down; 0: lost. */
int64_t dibs__lease_remaining_ms(struct dibs__lease *lease, int64_t now);

#endif
