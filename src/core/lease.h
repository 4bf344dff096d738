/*
 * A lease: what the store granted to this process, and until when the lease is
 * sure to last.
 *
 * Whether a lease is lost is one atomic, `deadline`, which holds
 * DIBS__LEASE_LOST once the lease is lost. Whichever thread finds the deadline
 * passed writes LOST there, and nothing is ever written over LOST. So all
 * threads agree from then on, and none waits for another (invariant 2 in
 * doc/ARCHITECTURE.md).
 *
 * Nobody owns a lease: dibs__lease_unref frees it with the last reference. The
 * acquire that asks for it has one, which becomes the hold's with the grant; so
 * have the cell that lists it, the renewals while they keep it alive, and whoever
 * looks at it without the mutex of any of these.
 */
#ifndef DIBS_CORE_LEASE_H
#define DIBS_CORE_LEASE_H

#include <stdatomic.h>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/heap.h"
#include "core/extension.h"
#include "core/token.h"
#include "store/store.h"

#define DIBS__FENCE_STEPS 1024 /* fences within one grant of the store */
#define DIBS__RAISE 1000       /* by so much of the store's fences a lease that is kept is raised at a time */

DIBS__MUTEX_CLASS(dibs__shard_mutex);    /* of a shard of cells (cells.h) */
DIBS__MUTEX_CLASS(dibs__renewals_mutex); /* of the renewals of a runtime (renewal.c) */

struct dibs__done;

/* A grant that the store made by itself, as it was pushed to this process. */
struct dibs__push {
    uint64_t number, fence; /* fence 0: nothing was pushed */
    bool confirm;
    bool again; /* whatever was pushed, the thread must ask again; set where its sleep ends */
};

/*
 * What belongs to the thread that asks the store for a lease (asker.h). Freed when
 * the lease is granted, or with the lease. Another thread may take over the turn,
 * and with it the attempt: then all of this becomes that thread's.
 */
struct dibs__asker {
    struct dibs__attempt attempt; /* the asking thread's */
    struct dibs__op ask;          /* the asking thread's: the ask under way, or the last */
    struct dibs__answer answer;   /* the asking thread's: to that ask, or to the one that another thread made */
    int64_t grace;      /* the asking thread's: when that ask has to have returned, so that the call is in time */
    dibs_status status; /* the asking thread's; only where `answered` */
    bool answered;      /* the asking thread's: the store has answered an ask that another thread made */
    bool behind;        /* the asking thread's: a thread here waited in the store's queue before the first ask */
    bool hinted DIBS__GUARDED_BY(dibs__shard_mutex);               /* the thread must ask again at once */
    bool expects DIBS__GUARDED_BY(dibs__shard_mutex);              /* the thread is told of changes of the lock */
    bool changed DIBS__GUARDED_BY(dibs__shard_mutex);              /* the thread was told of one since it said so */
    bool change_pending DIBS__GUARDED_BY(dibs__shard_mutex);       /* it has not asked because of one yet, */
    int64_t rest_until DIBS__GUARDED_BY(dibs__shard_mutex);        /* and does not do so before this time */
    struct dibs__backoff rest DIBS__GUARDED_BY(dibs__shard_mutex); /* from one such ask to the next */
    struct dibs__push push DIBS__GUARDED_BY(dibs__shard_mutex);    /* not looked at yet */
    struct dibs__wait_event *wait_event DIBS__GUARDED_BY(dibs__shard_mutex); /* of the thread; NULL: it is awake */
    int64_t ask_by DIBS__GUARDED_BY(dibs__shard_mutex); /* when the thread asks again; only with `wait_event` */
    char token[];                                       /* the asking thread's: the text of the token */
};

/* Where a lease is listed in its cell while threads of this process ask for it or hold it. */
struct dibs__listing {
    struct dibs__lease *next; /* in the cell */
    struct dibs__lease **at;  /* what points to this lease: the cell, or `next` of another lease; NULL: not listed */
};

/* What only a lease needs that is extended. Guarded by the renewals' mutex. */
struct dibs__extending {
    struct dibs__extension extension;
    uint32_t pending_extension_ms; /* an extension that may still arrive would cut the lease to this length; 0: there is
                        none */
    struct dibs__extension_store_state pending_extension; /* the store's own */
};

/* What keeps a lease alive after its grant (renewal_state.h, renewal.h). */
struct dibs__renewal_state {
    bool listed;                         /* among all leases that threads hold */
    bool unconfirmed;                    /* another server answers now than the one that confirmed the lease last */
    bool may_come_back;                  /* a request that may restore the lease was not answered, and may still
                                            arrive */
    bool failed;                         /* a renewal failed since the lease was confirmed last */
    bool in_flight;                      /* a request that renews or looks at the lease is on its way */
    bool changed;                        /* meanwhile the store told of a change: another must follow */
    bool paced;                          /* counted among those that wait to be looked at because of a change */
    uint32_t lease_ms;                   /* its length from the next renewal on */
    bool grouped;                        /* it is kept alive, in a group of those that are due together (due.h) */
    struct dibs__lease *next, *previous; /* in the ring of its group, or of the leases that are not kept alive but held
                                            by a thread */
    struct dibs__heap_node node;         /* when the renewals must look at the lease next; of a leader: in the heap */
    int64_t renew_at;                    /* when to send the next renewal */
    int64_t look_at;                     /* of a shared lease: when to look at the lock because of a change; else, and
                                            where there was none, DIBS__NEVER */
    int64_t watch_at;                    /* when to have the store watch the lock; DIBS__NEVER: it does, or can't */
    int64_t risk_at;                     /* when to tell that the lease is at risk */
    int64_t kept_at;                     /* when to look whether anybody uses the lease (kept.h) */
    uint32_t kept_ms;                    /* its length while it is kept; 0: lease_ms */
    enum dibs__use known_use;            /* what the store knows of its use */
    struct dibs__lease_store_state store_state; /* the store's own */
    struct dibs__extending *extending;          /* NULL: no extension was ever asked for */
};

/*
 * What becomes of a lease that the process may keep (kept.h). The atomics are written under the shard's mutex, but for
 * raise and retaken, and are how the renewals learn of it: dibs__renewals_kept.
 */
struct dibs__keeping {
    _Atomic int64_t look_at; /* atomic; when to look whether anybody uses the lease; DIBS__NEVER: that is not needed */
    atomic_uint use;         /* atomic; a dibs__use: what the store must know; never UNTOLD */
    atomic_bool raise;       /* atomic; set by who needs more steps, cleared by the renewals: see `steps` */
    atomic_bool tell;        /* atomic; set by who was asked for the lease, cleared by the renewals: the use must be
                                told again */
    int64_t since DIBS__GUARDED_BY(dibs__shard_mutex);    /* while it is kept: when it was used last */
    int64_t asked_at DIBS__GUARDED_BY(dibs__shard_mutex); /* in use, when the store was last asked whether others wait;
                                                             0: never */
    bool recalled DIBS__GUARDED_BY(dibs__shard_mutex);    /* another asked for the lock while the lease was in use */
    atomic_uint retaken; /* atomic; how often it was used again; written by the holding thread alone */
};

#define DIBS__LEASE_LOST INT64_C(0)

struct dibs__lease {
    atomic_uint references;       /* atomic */
    atomic_uint step;             /* atomic; hand-overs within the process; written under the shard's mutex */
    atomic_uint steps;            /* atomic; the largest step whose fence is sure to be the lease's own; grows only,
                                     by what the store answered; written under the renewals' mutex */
    _Atomic int64_t deadline;     /* atomic; ns, or DIBS__LEASE_LOST */
    _Atomic uint64_t reentered;   /* atomic; written by the holding thread alone */
    _Atomic uint32_t extended_ms; /* atomic; the longest extension that was asked for; 0: none; written under the
                                     renewals' mutex */
    atomic_bool extended;         /* atomic; an extension was sent: the length may be another than asked_ms */
    atomic_bool loss_told;        /* atomic; some thread sees to what follows from the loss */
    atomic_bool unclaimed;        /* atomic; its last holder left it to the next one here, who has not taken it yet. Set
                                     under the shard's mutex; whoever clears it decides: the next holder has the lease,
                                     or nobody had it when it was lost, and nobody is told */
    _Atomic(struct dibs__done *) loss; /* atomic; the completion that tells the holder of a loss; whoever takes it out
                                          of here pushes or drops it (done.h); NULL: nobody is told */

    bool contended;           /* the thread had to wait for the lock; the asking thread's until the grant, then
                                 read-only */
    bool fixed;               /* read-only */
    bool turnless;            /* read-only; the store was asked for it without a turn: DIBS_FAIR, or shared */
    bool shared;              /* read-only */
    bool given_up;            /* the holder's: a call that gives up several names has met it */
    uint16_t name_size;       /* read-only; without the NUL */
    uint16_t group;           /* read-only; of the name (metrics.h) */
    uint32_t asked_ms;        /* read-only; the length that was asked for */
    uint64_t runtime;         /* read-only; serial of the runtime */
    uint64_t store_fence;     /* of the grant; the asking thread's until the grant, then read-only */
    int64_t granted_at;       /* the asking thread's until the grant, then read-only */
    struct dibs__token token; /* written by the asking thread under the shard's mutex; read-only after the grant */

    struct dibs__asker *asker;    /* NULL once the lease is granted. Written under the shard's mutex; the asking thread,
                                     which alone writes it, reads it without */
    struct dibs__keeping keeping; /* has its own guards */
    struct dibs__listing listing DIBS__GUARDED_BY(dibs__shard_mutex);
    struct dibs__renewal_state renewal_state DIBS__GUARDED_BY(dibs__renewals_mutex);

    char name[]; /* read-only */
};

/*
 * With one reference, the caller's, and an asker; not granted yet. token_size:
 * bytes of the longest token, with the NUL, for which the asker has room. NULL:
 * no memory.
 */
struct dibs__lease *dibs__lease_new(uint64_t runtime, const char *name, size_t name_size, size_t token_size);
void dibs__lease_ref(struct dibs__lease *lease);
void dibs__lease_unref(struct dibs__lease *lease); /* the last one frees the lease; NULL is fine */

/* When a lease is over here that the store gave to a request sent at `proof`: 1 % + 2 ms before it is over there. */
int64_t dibs__lease_deadline(int64_t proof, uint32_t lease_ms);

/* Whether the lease is lost. Writes: a lease whose deadline has passed becomes lost by this call, for good. */
static inline bool dibs__lease_is_lost(struct dibs__lease *lease, int64_t now)
{
    int64_t deadline = atomic_load_explicit(&lease->deadline, memory_order_acquire);

    while (deadline != DIBS__LEASE_LOST && now >= deadline)
        if (atomic_compare_exchange_weak(&lease->deadline, &deadline, DIBS__LEASE_LOST))
            return true;
    return deadline == DIBS__LEASE_LOST;
}

/* Makes the lease lost, whatever its deadline. */
void dibs__lease_lose(struct dibs__lease *lease);

/* The lease was left to the calling thread, which has it from here on. False: the lease was lost before. */
static inline bool dibs__lease_claim(struct dibs__lease *lease)
{
    return atomic_exchange_explicit(&lease->unclaimed, false, memory_order_acq_rel);
}

/* Moves the deadline of a lease that is not lost; with `earlier_only` never to a later time. False: it is lost. */
bool dibs__lease_move(struct dibs__lease *lease, int64_t deadline, bool earlier_only, int64_t now);

/* The fence of the present holder: the grant of the store, and the hand-overs since. */
uint64_t dibs__lease_fence(const struct dibs__lease *lease);

/* Whether there is one more. */
static inline bool dibs__lease_has_step(const struct dibs__lease *lease)
{
    return atomic_load_explicit(&lease->step, memory_order_relaxed) <
           atomic_load_explicit(&lease->steps, memory_order_acquire);
}

/* As the store counts fences: none that the lease's holders may have is larger than the last of these. */
uint64_t dibs__lease_top_fence(const struct dibs__lease *lease);

/* The most time for which the store may keep the key after the lease was renewed or extended last. */
uint32_t dibs__lease_longest_ms(const struct dibs__lease *lease);

/* What is left in whole ms, rounded down; 0: lost. */
int64_t dibs__lease_remaining_ms(struct dibs__lease *lease, int64_t now);

#endif
