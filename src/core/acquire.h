/*
 * The first acquire of an owner: how the owner gets a lock that it does not hold.
 *
 * An acquire is a state machine, driven by one step after another. dibs__acquire drives one with the calling thread,
 * which sleeps between the steps. A begun acquire (begun.h), whose wait event has `tell`, is driven by
 * whichever thread has news for it: of the steps only dibs__acquire_finish blocks then, and dibs__acquire_await until
 * the time that it is given.
 *
 * | state | event | next |
 * | --- | --- | --- |
 * | (start) | the name is free here, or the call wants a fair or shared lock | ASKS |
 * | (start) | another owner here holds the name or asks for it | WAITS |
 * | (start) | as above, the name is known to be taken, and the call makes one try | ENDED |
 * | (start) | a parked or kept lease that fits is here | ENDED: held |
 * | WAITS | the turn comes | ASKS |
 * | WAITS | a lease is handed over | ENDED: held |
 * | WAITS | the time is over, an outage lasts, closing, cancelled | ENDED |
 * | ASKS | the store grants the lock | ENDED: held |
 * | ASKS | the name is taken | RESTS |
 * | ASKS | as above, and the call makes one try, unless the lease is merely kept elsewhere | ENDED |
 * | ASKS | the store can't be reached | RESTS; ENDED if the outage lasts or the call makes one try |
 * | ASKS | the time is over, the store refuses, closing, cancelled | ENDED |
 * | RESTS | the grant is pushed | ENDED: held |
 * | RESTS | the name may be free, or it is time to ask again | ASKS |
 * | RESTS | the time is over, closing, cancelled | ENDED; in an outage after one short last ask |
 */
#ifndef DIBS_CORE_ACQUIRE_H
#define DIBS_CORE_ACQUIRE_H

#include "core/core.h"
#include "core/holds.h"
#include "core/outage_budget.h"
#include "core/turn.h"

#define DIBS__RECALL_MS 50 /* one try waits this long, plus a round trip, for the answer to a recall */

enum dibs__acquire_state {
    DIBS__ACQUIRE_WAITS, /* waits for the turn, or for a lease to be handed over (turn.h) */
    DIBS__ACQUIRE_ASKS,  /* the store must be asked, or is being asked */
    DIBS__ACQUIRE_RESTS, /* rests until it asks again (asker.h) */
    DIBS__ACQUIRE_ENDED  /* `status` says how */
};

/* One call that wants a lock which its owner does not hold. Used by one thread at a time. */
struct dibs__acquire {
    enum dibs__acquire_state state; /* set once the acquire was started */
    struct dibs__core *core;
    struct dibs__wish wish;
    const char *name;
    size_t name_size;
    struct dibs__cell *cell;
    struct dibs__lease *lease;  /* the lease that is asked for; NULL: there is none yet. ENDED with DIBS_OK: one
                                   reference is the caller's */
    int64_t began;              /* when the call began */
    int64_t wait_until;         /* when the wait ends; 0: the call makes one try, and waits for no holder */
    int64_t try_until;          /* when a call that makes one try ends at the latest */
    struct dibs__waiter waiter; /* must stay in place while the acquire WAITS */
    struct dibs__outage_budget budget;
    struct dibs__wait_event *wait_event;     /* the driver's; woken when the acquire may stop resting, and, unless a
                                                thread sleeps for this acquire alone, when it may stop waiting */
    struct dibs__attempt_store_state *known; /* in a call for several names: what the store noted about this name, kept
                                                from one acquire to the next; NULL: the call is for one name */
    uint64_t tell_epoch;                     /* result of the last tell_when_free; 0: there was none */
    int64_t acquired_at;                     /* when the acquire succeeded */
    struct dibs__metrics_group *group;       /* of the name */
    bool waited;      /* the acquire is counted as contended, and among the acquires that wait now */
    bool cancelled;   /* set by the driver: the call must end with DIBS_CANCELLED, unless the lock was granted */
    bool recalled;    /* the last answer was DIBS__WHY_KEPT */
    bool never_rests; /* one try that must not rest (several.h) */
    bool probes;      /* one try on behalf of a call that will wait: a taken lock is not counted as busy */
    bool counts_end;  /* the driver counts how the call ends (dibs__acquire_count), because a cancel may come first */
    struct dibs__backoff recall; /* pauses between the asks of one try while it waits for the answer to a recall */
    enum dibs__learned learned;  /* why the acquire fails */
    dibs_status status;          /* how the acquire ended; valid in ENDED */
    struct dibs__error *error;   /* the caller's, who may change it between two steps; filled on failure */
};

/* As dibs_lock_with, for a name that the owner does not hold; within a visit. *error is filled only on failure. */
dibs_status dibs__acquire(struct dibs__core *core, const char *name, size_t name_size, const struct dibs__wish *wish,
                          struct dibs__error *error);

/*
 * Enters the lock of an acquire that ended with DIBS_OK into that table, which must have room for it, and records how
 * long the acquire has taken (metrics.h). Takes over the reference to the lease.
 */
void dibs__acquire_hold(const struct dibs__acquire *acquire, struct dibs__holds *holds);

/* The calling thread drives the acquire, which was started, until it has ended. */
void dibs__acquire_run(struct dibs__acquire *acquire);

/* ------------------------------------------------------------------- in steps */

/*
 * The name and the wait event must stay valid until the acquire has ended. The caller may then set what is not zero by
 * default.
 */
void dibs__acquire_init(struct dibs__acquire *acquire, struct dibs__core *core, const char *name, size_t name_size,
                        const struct dibs__wish *wish, struct dibs__wait_event *wait_event, struct dibs__error *error);

void dibs__acquire_start(struct dibs__acquire *acquire);

/* Counts a call that ends with that status among those that were busy or have timed out, if it was or has. */
void dibs__acquire_count(struct dibs__core *core, dibs_status status);

/*
 * To be called again and again, and when something may have changed. RESTS: in WAITS or RESTS, until *until at most.
 * GOES_ON: the next call sends an ask. FINISHES: what can be sent without waiting was sent, and dibs__acquire_finish
 * must be called, by *until; dibs__acquire_await, as dibs__op_await, says whether that call will wait. ENDS: in ENDED.
 */
enum dibs__job_next dibs__acquire_go_on(struct dibs__acquire *acquire, int64_t *until);
enum dibs__awaited dibs__acquire_await(struct dibs__acquire *acquire, const struct dibs__waiting *waiting);
bool dibs__acquire_is_sent(struct dibs__acquire *acquire);
void dibs__acquire_finish(struct dibs__acquire *acquire);

#endif
