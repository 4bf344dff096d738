/*
 * The first acquire of an owner: how it gets a lock that it does not hold.
 *
 * An acquire is a state machine. dibs__acquire drives one with the calling
 * thread, which blocks. A begun acquire (begun.h) is driven by whoever has a
 * reason to: of the steps below only dibs__acquire_finish blocks, and
 * dibs__acquire_await until the time that it is given.
 *
 * | state | event | next |
 * | --- | --- | --- |
 * | (start) | the name is free here, or the lock is wanted fair or shared | ASKS |
 * | (start) | another owner here holds the name or asks for it | WAITS |
 * | (start) | the same, it is known to be taken, and there is one try | ENDED |
 * | (start) | a parked or kept lease that fits is here | ENDED: held |
 * | WAITS | the turn comes | ASKS |
 * | WAITS | a lease is handed over | ENDED: held |
 * | WAITS | the time is over, an outage lasts, closing, cancelled | ENDED |
 * | ASKS | the store grants the lock | ENDED: held |
 * | ASKS | the name is taken | RESTS |
 * | ASKS | the same, and there is one try; but not where the lease is merely kept elsewhere | ENDED |
 * | ASKS | the store can't be reached | RESTS; ENDED where the outage lasts or there is one try |
 * | ASKS | the time is over, the store refuses, closing, cancelled | ENDED |
 * | RESTS | the grant is pushed | ENDED: held |
 * | RESTS | the name may be free, or it is time to ask again | ASKS |
 * | RESTS | the time is over, closing, cancelled | ENDED; in an outage after one short last ask |
 */
#ifndef DIBS_CORE_ACQUIRE_H
#define DIBS_CORE_ACQUIRE_H

#include "core/attempt.h"
#include "core/outage_budget.h"

#define DIBS__RECALL_MS 50 /* how long one try waits for the answer to a recall, beside a round trip */

enum dibs__acquire_state {
    DIBS__ACQUIRE_WAITS, /* for the turn, or for a lease that is handed over (turn.h) */
    DIBS__ACQUIRE_ASKS,  /* the store must be asked, or is being asked */
    DIBS__ACQUIRE_RESTS, /* until it asks again (asker.h) */
    DIBS__ACQUIRE_ENDED  /* `status` says how */
};

/* One call that wants a lock which its owner does not hold. Used by one thread at a time. */
struct dibs__acquire {
    struct dibs__core *core;
    struct dibs__wish wish;
    const char *name;
    size_t name_size;
    struct dibs__cell *cell;
    struct dibs__lease
        *lease;         /* the lease that is asked for; NULL: none yet. ENDED, held: one reference is the caller's */
    int64_t began;      /* when the call began */
    int64_t wait_until; /* when the wait ends; 0: one try, which waits for no holder */
    int64_t try_until;  /* when one try ends */
    struct dibs__turn turn;
    struct dibs__outage_budget budget;
    struct dibs__wait_event wait_event;      /* with which the acquire is told that it may rest no longer */
    struct dibs__attempt_store_state *known; /* of one of several names: what the store knows of it from one acquire to
                                                the next; NULL: it is the only name */
    uint64_t tell_epoch;                     /* what tell_when_free returned last; 0: nothing */
    int64_t acquired_at;                     /* when it succeeded */
    uint16_t group;                          /* of the name (metrics.h) */
    bool waited;                             /* it is counted as contended, and among those that wait now */
    bool cancelled;                          /* the call ends with DIBS_CANCELLED, unless the lock was granted */
    bool recalled;                           /* the last answer was DIBS__WHY_KEPT */
    bool never_rests;                        /* one try that must not rest (several.h) */
    bool probes; /* one try of a call that goes on to wait: not counted as one that found the lock taken */
    struct dibs__backoff recall; /* of one try, from one ask to the next while it waits for the answer to a recall */
    enum dibs__learned learned;  /* why the acquire fails */
    dibs_status status;          /* ENDED */
    struct dibs__error *error;   /* the caller's, who may change it between two steps; filled where it fails */
};

/* As dibs_lock_with, for a name that the owner does not hold; within a visit. The error is filled on failure alone. */
dibs_status dibs__acquire(struct dibs__core *core, const char *name, size_t name_size, const struct dibs__wish *wish,
                          struct dibs__error *error);

/* ENDED: the lock is the owner's: counted as acquired. */
void dibs__acquire_count(const struct dibs__acquire *acquire);

/* After dibs__acquire_init: the calling thread drives the acquire until it has ended. */
void dibs__acquire_run(struct dibs__acquire *acquire);

/* ------------------------------------------------------------------- in steps */

/* All zero before. The pointers, and name, must last until it has ended. */
void dibs__acquire_init(struct dibs__acquire *acquire, struct dibs__core *core, const char *name, size_t name_size,
                        const struct dibs__wish *wish, struct dibs__outage *outage);

/* waiter: all zero but for `tell`, and stays as long as the acquire WAITS. */
enum dibs__acquire_state dibs__acquire_start(struct dibs__acquire *acquire, struct dibs__waiter *waiter);

/* WAITS: something may have changed. */
enum dibs__acquire_state dibs__acquire_look(struct dibs__acquire *acquire, struct dibs__waiter *waiter);

/*
 * ASKS: sends what can be sent without waiting. Returns ENDED where the acquire
 * was cancelled or the runtime is closing, else ASKS: dibs__acquire_finish must be called, and
 * dibs__acquire_await says whether that will not wait.
 */
enum dibs__acquire_state dibs__acquire_ask(struct dibs__acquire *acquire);
bool dibs__acquire_await(struct dibs__acquire *acquire, const struct dibs__waiting *waiting);
bool dibs__acquire_watch(struct dibs__acquire *acquire, struct dibs__wait *wait); /* as dibs__op_watch */
bool dibs__acquire_is_sent(struct dibs__acquire *acquire);
enum dibs__acquire_state dibs__acquire_finish(struct dibs__acquire *acquire);

/* RESTS: something may have changed. Where it goes on resting, *until is when this must be called again at the latest.
 */
enum dibs__acquire_state dibs__acquire_rest(struct dibs__acquire *acquire, int64_t *until);

#endif
