/*
 * One call for the locks of several names: all or none.
 *
 * All calls acquire their names in the order of their bytes (rule 68): while a call waits for a name, it holds only
 * names before that one. So among calls that wait for each other, the one that holds the last of these names waits for
 * nobody; and each wait is first come, first served. Hence no call waits for ever.
 *
 * Names that are free need not be asked for one by one. In a round, the call asks for all names that it does not have
 * yet, with one try each, in one round trip to each server. If one of the names is taken, the call gives back those
 * after it that it was granted, waits for that name, and begins another round for the names after it.
 *
 * Giving back is wasted work, for other calls as well. After some rounds that met a taken name, a round asks for at
 * most twice as many names as the round before was granted up to the taken one. So all rounds of a call together ask
 * for a number of names that is proportional to the number of its names.
 *
 * | state | event | next |
 * | --- | --- | --- |
 * | ROUND | there is more than one name to ask for | TRIES |
 * | ROUND | there is one | WAITS |
 * | ROUND | there is none | ENDED: all are held; BACK if one was lost |
 * | TRIES | all are granted | ROUND |
 * | TRIES | one is taken, and the call may wait, or its lease is merely kept elsewhere | BACK, then WAITS |
 * | TRIES | one is taken, and the call makes one try; one fails; cancelled | BACK, then ENDED |
 * | WAITS | the name is granted | ROUND |
 * | WAITS | the name is not granted | BACK, then ENDED |
 *
 * Only dibs__several_finish blocks, and dibs__several_await until the time that it is given. If the wait event has no
 * `tell`, a thread waits with it, and dibs__several_finish waits for the single name until that is granted or fails.
 */
#ifndef DIBS_CORE_SEVERAL_H
#define DIBS_CORE_SEVERAL_H

#include "core/acquire.h"
#include "core/release.h"

struct dibs__several;

/* One name of a call. */
struct dibs__several_name {
    const char *name;          /* read-only */
    size_t size;               /* read-only */
    bool is_asked;             /* a try or a release must be finished */
    bool is_waiting;           /* the try waits for what the store tells another owner here */
    struct dibs__lease *held;  /* the lease by which the owner held the lock before, with one reference; NULL: none */
    struct dibs__lease *lease; /* the lease that was granted to the call, with one reference; NULL: there is none */
    int64_t acquired_at;       /* when `lease` was acquired */
    struct dibs__attempt_store_state known; /* what the store noted with the last acquire of the name */
    union {
        struct dibs__acquire acquire;
        struct dibs__unlocking unlocking;
    };
};

enum dibs__several_state {
    DIBS__SEVERAL_ROUND,
    DIBS__SEVERAL_TRIES,
    DIBS__SEVERAL_BACK,
    DIBS__SEVERAL_WAITS,
    DIBS__SEVERAL_ENDED
};

/* Used by one thread at a time. */
struct dibs__several {
    struct dibs__core *core;             /* read-only */
    struct dibs__wish wish;              /* read-only; wait_ms is that of the whole call */
    int64_t began;                       /* read-only */
    int64_t wait_until;                  /* when the wait ends; 0: the call makes one try, and waits for nobody */
    struct dibs__wait_event *wait_event; /* read-only; the caller's; woken when a rest may be over */
    bool cancelled;                      /* the call must end with DIBS_CANCELLED */
    enum dibs__several_state state;
    bool is_back;                 /* in BACK: the releases were begun */
    bool has_failed;              /* the call ends without the locks, once all are given back; `error` says why */
    bool is_final;                /* `error` is that of a name for which it is no use to wait */
    int64_t deadline;             /* of the requests that are under way */
    int64_t tried_at;             /* when the tries of the round began; set in TRIES */
    _Atomic(const char *) wanted; /* atomic; the first name that the call does not have yet */
    size_t got;                   /* index; all names before it are held */
    size_t end;                   /* index behind the last name of the round */
    size_t missing;               /* index of the first name of the round that was not granted; `end`: all were */
    size_t window;                /* a round asks for at most this many names */
    unsigned misses;              /* rounds that met a taken name */
    struct dibs__error error;     /* of the name at `missing`, or why the call fails */
    struct dibs__error scratch;   /* filled by the step that is under way */
    size_t count;                 /* read-only; number of names, which are in the order of their bytes, each once */
    struct dibs__several_name names[];
};

/* names: in any order; each is copied. The caller sets wait_event. NULL: no memory. */
struct dibs__several *dibs__several_new(struct dibs__core *core, const char *const *names, size_t count,
                                        const struct dibs__wish *wish);

/* The owner holds all of the names already: there is nothing to ask for. */
bool dibs__several_is_held(const struct dibs__several *several);

/* The first name that is neither held nor granted; there must be one. Belongs to the call. */
const char *dibs__several_first_wanted(const struct dibs__several *several);

/* Nothing may be under way. NULL is fine. */
void dibs__several_free(struct dibs__several *several);

/*
 * To be called again and again. FINISHES: dibs__several_finish must be called, by *until; dibs__several_await, as
 * dibs__op_await, says whether that call will wait. RESTS: until the wait event is woken, at most until *until. ENDS:
 * `error` says how; with DIBS_OK the call has a lease of each name.
 */
enum dibs__job_next dibs__several_go_on(struct dibs__several *several, int64_t *until);
enum dibs__awaited dibs__several_await(struct dibs__several *several, const struct dibs__waiting *waiting);
void dibs__several_finish(struct dibs__several *several);

/* The acquire of the name that the call waits for; NULL: it does not wait for a single name. */
static inline struct dibs__acquire *dibs__several_waits(struct dibs__several *several)
{
    return several->state == DIBS__SEVERAL_WAITS ? &several->names[several->missing].acquire : NULL;
}

/* Has a call that ended with DIBS_OK give all its locks back. dibs__several_go_on must be called again. */
void dibs__several_undo(struct dibs__several *several);

/*
 * Enters the locks of a call that ended with DIBS_OK into that table, which must have room for them, and records how
 * long the call has waited for them (metrics.h). Called by the thread that goes on with the locks, or, for a begun
 * call, by the one that completes it.
 */
void dibs__several_hold(struct dibs__several *several, struct dibs__holds *holds);

/* Puts the name before the sentence of a failure that concerns one lock, unless the sentence has it. */
void dibs__several_explain(struct dibs__error *error, const char *name);

#endif
