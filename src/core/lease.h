/*
 * A lease: what the store granted to this process, and until when the lease is sure to last.
 *
 * Whether a lease is lost is one atomic, `deadline`, which holds DIBS__LEASE_LOST once the lease is lost. Whichever
 * thread finds that the deadline has passed writes LOST there, and nothing is ever written over LOST. So all threads
 * agree from then on, and none waits for another (invariant 2 in doc/ARCHITECTURE.md).
 *
 * A lease has no single owner: the last dibs__lease_unref frees it. The acquire that asks for the lease has a
 * reference, which becomes the hold's with the grant. The cell that lists the lease has one, the renewals have one
 * while they keep the lease alive, and so does whoever looks at the lease without the mutex of any of these.
 */
#ifndef DIBS_CORE_LEASE_H
#define DIBS_CORE_LEASE_H

#include <stdatomic.h>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/heap.h"
#include "base/list.h"
#include "core/extension.h"
#include "core/token.h"
#include "store/store.h"

#define DIBS__FENCE_STEPS 1024 /* fences within one grant of the store */
#define DIBS__RAISE 1000       /* by how many of the store's fences a kept lease is raised at a time */

DIBS__MUTEX_CLASS(dibs__shard_mutex);    /* of a shard of cells (cells.h) */
DIBS__MUTEX_CLASS(dibs__renewals_mutex); /* of the renewals of a runtime (renewal.c) */

struct dibs__done;
struct dibs__metrics_group;

/* What a call asks for, its arguments checked and defaults filled in. */
struct dibs__wish {
    int64_t wait_ms;   /* DIBS_WAIT_FOREVER, 0 (one try) or a time */
    uint32_t lease_ms; /* not 0 */
    uint32_t flags;    /* those of dibs_lock_options; DIBS_NO_REENTRY has no effect on an attempt */
    uint32_t limit;    /* with DIBS_SHARED; 0: any number */
};

/* A grant that the store made by itself, as it was pushed to this process. */
struct dibs__push {
    uint64_t number, fence; /* fence 0: nothing was pushed */
    bool confirm;
    bool again; /* the thread must ask again, whatever was pushed; set when its sleep ends */
};

/*
 * What belongs to the thread that asks the store for a lease (asker.h). It is freed when the lease is granted, or with
 * the lease. Another thread may take over the turn and with it the attempt; everything here is then that thread's.
 */
struct dibs__asker {
    struct dibs__attempt attempt; /* the asking thread's */
    struct dibs__op ask;          /* the asking thread's: the ask under way, or the last one */
    struct dibs__answer answer;   /* the asking thread's: the answer to `ask`, or to an ask that another thread made */
    int64_t grace;                /* the asking thread's: when `ask` must have returned for the call to end in time */
    dibs_status status;           /* the asking thread's: the status of the answer; only if `answered` */
    bool answered; /* the asking thread's: the store has answered an ask that another thread made for this lease */
    bool behind;   /* the asking thread's: a thread here waited in the store's queue before the first ask */
    bool hinted DIBS__GUARDED_BY(dibs__shard_mutex);         /* the thread must ask again at once */
    bool expects DIBS__GUARDED_BY(dibs__shard_mutex);        /* the thread is notified of changes of the lock */
    bool changed DIBS__GUARDED_BY(dibs__shard_mutex);        /* a change has come since dibs__asker_expect_change */
    bool change_pending DIBS__GUARDED_BY(dibs__shard_mutex); /* the thread must ask because of a change */
    int64_t rest_until DIBS__GUARDED_BY(dibs__shard_mutex);  /* but not before this time */
    struct dibs__backoff rest DIBS__GUARDED_BY(dibs__shard_mutex); /* the pause between two asks because of changes */
    struct dibs__push push DIBS__GUARDED_BY(dibs__shard_mutex);    /* a push that the thread has not looked at yet */
    struct dibs__wait_event *wait_event DIBS__GUARDED_BY(dibs__shard_mutex); /* the sleeping thread's, else NULL */
    int64_t ask_by DIBS__GUARDED_BY(dibs__shard_mutex); /* when the thread asks again; only if `wait_event` is set */
    char token[];                                       /* the asking thread's: the text of the token */
};

/* What a lease needs only if it is extended, or shortened while it is kept. Guarded by the renewals' mutex. */
struct dibs__extending {
    struct dibs__extension extension;
    struct dibs__extension_store_state pending_extension; /* the store's own; of renewal_state.pending_extension_ms */
};

/* What keeps a lease alive after its grant (renewal_state.h, renewal.h). */
struct dibs__renewal_state {
    bool unconfirmed;   /* the server that answers now is not the one that confirmed the lease last */
    bool may_come_back; /* a request that may restore the lease was not answered, and may still arrive */
    bool failed;        /* a renewal has failed since the lease was last confirmed */
    bool in_flight;     /* a request that renews or looks at the lease is on its way */
    bool changed;       /* the store reported a change while a request was in flight: another request must follow */
    bool paced; /* counted in `paced` of the renewals, among the leases that wait to be looked at because of a change */
    bool grouped;      /* the lease is kept alive, in a group of leases that are due together (due.h) */
    uint8_t failure;   /* the number of the reason of the last failure (renewal.c); 0: not known */
    uint32_t lease_ms; /* the length of the lease from the next renewal on */
    uint32_t renew_ms; /* the longest time until the next renewal; 0: a third of the lease */
    struct dibs__lease *next, *previous; /* in the ring of its group */
    struct dibs__heap_node node;         /* when to look at the lease next; in the heap: the leaders of groups */
    int64_t renew_at;                    /* when to send the next renewal */
    int64_t look_at;  /* when to look at the lock of a shared lease because of a change; DIBS__NEVER: there was none, or
                         the lease is not shared */
    int64_t watch_at; /* when to have the store watch the lock; DIBS__NEVER: it watches already, or can't */
    int64_t risk_at;  /* when to tell that the lease is at risk */
    int64_t kept_at;  /* when to look whether anybody uses the lease (kept.h) */
    uint32_t kept_ms; /* the length of the lease while it is kept; 0: lease_ms */
    enum dibs__use use;            /* how the lease is used, as the renewals were last told */
    enum dibs__use known_use;      /* what the store knows of it */
    uint32_t pending_extension_ms; /* an extension that was never answered may still arrive and cut the lease to this
                                      length; 0: there is none */
    struct dibs__lease_store_state store_state; /* the store's own */
    struct dibs__extending *extending;          /* NULL: the lease was never extended or kept */
};

/*
 * What becomes of a lease that the process may keep (kept.h). The renewals learn of it through the atomics
 * (dibs__renewals_use_changed). They are set under the shard's mutex, except for retaken; the renewals clear raise,
 * tell and news without it.
 */
struct dibs__keeping {
    _Atomic int64_t look_at; /* atomic; when to look whether anybody uses the lease; DIBS__NEVER: no look is needed */
    atomic_uint use;         /* atomic; a dibs__use: what the store must know; never UNTOLD */
    atomic_bool raise;       /* atomic; set when more steps are needed, cleared by the renewals: see `steps` */
    atomic_bool tell;        /* atomic; set when the store must be told the use again, cleared by the renewals */
    atomic_bool news;        /* atomic; set when one of these has changed: dibs__renewals_use_changed must be called */
    int64_t since DIBS__GUARDED_BY(dibs__shard_mutex);    /* when the lease was last used; only while it is kept */
    int64_t asked_at DIBS__GUARDED_BY(dibs__shard_mutex); /* when the store was last asked about waiters; 0: never */
    bool recalled DIBS__GUARDED_BY(dibs__shard_mutex);    /* another process has asked for the lock */
    bool forced DIBS__GUARDED_BY(dibs__shard_mutex);      /* the lock was forced open here; not only of leases that may
                                                             be kept */
    atomic_uint retaken; /* atomic; how often the lease was used again; written by the holding thread alone */
};

#define DIBS__LEASE_LOST INT64_C(0)

struct dibs__lease {
    atomic_uint references; /* atomic */
    atomic_uint step;       /* atomic; the number of hand-overs within the process; written under the shard's mutex */
    atomic_uint steps; /* atomic; the largest step whose fence is sure to belong to this lease; it only grows, by what
                          the store answers; written under the renewals' mutex */
    _Atomic int64_t deadline;     /* atomic; ns, or DIBS__LEASE_LOST */
    _Atomic uint64_t reentered;   /* atomic; the number of nested acquires; written by the holding thread alone */
    _Atomic uint32_t extended_ms; /* atomic; the longest extension that was asked for in the life of the lease; 0: none,
                                     so its length is asked_ms; written under the renewals' mutex */
    atomic_bool loss_told;        /* atomic; some thread has taken on what follows from the loss */
    atomic_bool unclaimed; /* atomic; the last holder left the lease to the next one here, who has not claimed it yet.
                              Set under the shard's mutex. Whoever clears it decides: either the next holder has the
                              lease, or nobody had it when it was lost, and no loss is reported */
    _Atomic(struct dibs__done *) loss; /* atomic; the completion that tells the holder of a loss; whoever takes it out
                                          of here pushes or drops it (done.h); NULL: nobody is told */

    bool contended;     /* the thread had to wait for the lock; the asking thread's until the grant, then read-only */
    bool fixed;         /* read-only */
    bool turnless;      /* read-only; the store was asked without a turn: the lease is fair or shared */
    bool shared;        /* read-only */
    bool given_up;      /* the holder's: a call that gives up several names has come across this one */
    uint16_t name_size; /* read-only; without the NUL */
    uint32_t asked_ms;  /* read-only; the length that was asked for */
    uint64_t runtime;   /* read-only; the serial number of the runtime */
    struct dibs__metrics_group *group; /* read-only; of the name (metrics.h) */
    uint64_t store_fence;              /* the fence of the grant; the asking thread's until the grant, then read-only */
    int64_t granted_at;                /* the asking thread's until the grant, then read-only */
    int64_t granted_in;                /* likewise; how long the ask took that was granted */
    struct dibs__token token; /* written by the asking thread under the shard's mutex; read-only after the grant */

    struct dibs__asker *asker; /* NULL once the lease is granted. Written by the asking thread alone, under the shard's
                                  mutex; that thread reads it without the mutex */
    struct dibs__keeping keeping;                                                /* has its own guards */
    DIBS__LINKS(struct dibs__lease) listing DIBS__GUARDED_BY(dibs__shard_mutex); /* in a list of its cell (cells.h) */
    struct dibs__renewal_state renewal_state DIBS__GUARDED_BY(dibs__renewals_mutex);

    char name[]; /* read-only */
};

/*
 * A lease that is not granted yet, with an asker and one reference, the caller's. token_size: the size in bytes of the
 * longest token, with the NUL, for which the asker has room. NULL: no memory.
 */
struct dibs__lease *dibs__lease_new(uint64_t runtime, const char *name, size_t name_size, size_t token_size);
void dibs__lease_ref(struct dibs__lease *lease);
void dibs__lease_unref(struct dibs__lease *lease); /* the last call frees the lease; NULL is fine */

/* When a lease ends here that the store gave to a request sent at `proof`: 1 % + 2 ms before it ends in the store. */
int64_t dibs__lease_deadline(int64_t proof, uint32_t lease_ms);

/* Whether the lease is lost. This call itself makes a lease lost for good when its deadline has passed. */
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

/* Claims a lease that was left to the calling thread, which has it from then on. False: the lease was lost before. */
static inline bool dibs__lease_claim(struct dibs__lease *lease)
{
    return atomic_exchange_explicit(&lease->unclaimed, false, memory_order_acq_rel);
}

/*
 * Moves the deadline of a lease that is not lost; with `earlier_only` never to a later time. False: the lease is lost.
 */
bool dibs__lease_move(struct dibs__lease *lease, int64_t deadline, bool earlier_only, int64_t now);

/* The fence of the present holder, made of the store's fence and the number of hand-overs since. */
uint64_t dibs__lease_fence(const struct dibs__lease *lease);

/* Whether there is a fence left for one more holder. */
static inline bool dibs__lease_has_step(const struct dibs__lease *lease)
{
    return atomic_load_explicit(&lease->step, memory_order_relaxed) <
           atomic_load_explicit(&lease->steps, memory_order_acquire);
}

/* The largest fence, as the store counts them, that a holder of this lease may have. */
uint64_t dibs__lease_top_fence(const struct dibs__lease *lease);

/* The longest time for which the store may keep the key after the last renewal or extension of the lease. */
uint32_t dibs__lease_longest_ms(const struct dibs__lease *lease);

/* The time left in whole ms, rounded down; 0: the lease is lost. */
int64_t dibs__lease_remaining_ms(struct dibs__lease *lease, int64_t now);

#endif
