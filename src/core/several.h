/*
 * One call for the locks of several names: all or none.
 *
 * The names are wanted in the order of their bytes, which all calls keep to (rule 68):
 * while a call waits for a name, it holds only names before it. So of some calls
 * that wait for each other the one with the last name waits for nobody, and each
 * wait is first come, first served: no call waits for ever.
 *
 * What is free need not be asked for one by one. In a round the call asks for
 * all names that it does not have yet, with one try each, in one round trip to
 * each server. If one of them is taken, the call gives back those names after it
 * that it was granted, waits for it, and begins another round for those after it.
 *
 * Giving back is wasted work, for other calls as well. After some rounds
 * that met a taken name, a round asks for no more than twice as many names as the
 * one before was granted up to the taken one. So all rounds of a call together
 * ask for a number of names that is proportional to that of its names.
 *
 * | state | event | next |
 * | --- | --- | --- |
 * | ROUND | there is more than one name to ask for | TRIES |
 * | ROUND | there is one | WAITS |
 * | ROUND | there is none | ENDED: all are held; BACK where one was lost |
 * | TRIES | all are granted | ROUND |
 * | TRIES | one is taken, and there is time, or its lease is merely kept elsewhere | BACK, then WAITS |
 * | TRIES | one is taken, and there is one try; one fails; cancelled | BACK, then ENDED |
 * | WAITS | the name is granted | ROUND |
 * | WAITS | it is not | BACK, then ENDED |
 *
 * No step blocks but dibs__several_finish.
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
    bool is_asked;             /* there is something to finish: a try, or a release */
    bool is_waiting;           /* the try waits for what another owner here is told */
    struct dibs__lease *held;  /* the owner held the lock before: with a reference of the call; NULL: it did not */
    struct dibs__lease *lease; /* granted to the call: with one reference; NULL: it is not */
    int64_t acquired_at;       /* of the lease */
    struct dibs__attempt_store_state known; /* what the last acquire of the name left */
    struct dibs__several *several;
    union {
        struct {
            struct dibs__acquire acquire;
            struct dibs__waiter waiter;
            struct dibs__outage outage;
        };
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

/* What the caller must do before it calls dibs__several_go_on again. */
enum dibs__several_next {
    DIBS__SEVERAL_FINISHES, /* call dibs__several_finish; dibs__several_await says whether that will not wait */
    DIBS__SEVERAL_RESTS,    /* `tell` is awaited, at most until *until */
    DIBS__SEVERAL_ACQUIRES, /* dibs__several_acquire, then the caller drives that acquire, then dibs__several_acquired
                             */
    DIBS__SEVERAL_ENDS      /* `error` says how; with DIBS_OK it has a lease of each name */
};

/* Used by one thread at a time. */
struct dibs__several {
    struct dibs__core *core;                     /* read-only */
    struct dibs__wish wish;                      /* read-only; wait_ms is that of the whole call */
    int64_t began;                               /* read-only */
    int64_t wait_until;                          /* when the wait ends; 0: one try, that waits for nobody */
    void (*tell)(struct dibs__several *several); /* read-only; called by any thread, maybe with a shard's mutex held */
    void *context;                               /* read-only; the caller's */
    bool cancelled;                              /* the call must end with DIBS_CANCELLED */
    enum dibs__several_state state;
    bool is_back;                 /* BACK: the releases were begun */
    bool has_failed;              /* the call ends without the locks, once all are given back; `error` says why */
    bool is_final;                /* `error` is that of a name for which waiting is no use */
    int64_t deadline;             /* of what is under way */
    _Atomic(const char *) wanted; /* atomic; the first name that the call has not got */
    size_t got;                   /* all names before that one are held */
    size_t end;                   /* of the round: behind the last name */
    size_t missing;               /* of the round: the first name that was not granted; `end`: all were */
    size_t window;                /* so many names a round asks for at most */
    unsigned misses;              /* rounds that met a taken name */
    struct dibs__error error;     /* of the name `missing`, or why the call fails */
    struct dibs__error scratch;   /* of the step that is under way */
    size_t count;                 /* read-only; of the names, in the order of their bytes, each once */
    struct dibs__several_name names[];
};

/* names: any order; each is copied. tell, context: the caller sets them. NULL: no memory. */
struct dibs__several *dibs__several_new(struct dibs__core *core, const char *const *names, size_t count,
                                        const struct dibs__wish *wish);

/* The owner holds all of the names already: there is nothing to ask for. */
bool dibs__several_is_held(const struct dibs__several *several);

/* Nothing is under way. NULL is fine. */
void dibs__several_free(struct dibs__several *several);

enum dibs__several_next dibs__several_go_on(struct dibs__several *several, int64_t *until);
bool dibs__several_await(struct dibs__several *several, const struct dibs__waiting *waiting);
bool dibs__several_watch(struct dibs__several *several, struct dibs__wait *wait); /* as dibs__op_watch, of one reply */
void dibs__several_finish(struct dibs__several *several);

/* Makes *acquire one for the name that is waited for; all zero before. error: as of struct dibs__acquire. */
void dibs__several_acquire(struct dibs__several *several, struct dibs__acquire *acquire, struct dibs__outage *outage,
                           struct dibs__error *error);
void dibs__several_acquired(struct dibs__several *several, const struct dibs__acquire *acquire);

/* Ended with DIBS_OK: all is given back nevertheless. dibs__several_go_on must be called again. */
void dibs__several_undo(struct dibs__several *several);

/* Ended with DIBS_OK: the leases are counted as acquired. */
void dibs__several_count(const struct dibs__several *several);

/*
 * The same: the owner of that table, or the calling thread (NULL), holds the names. It has room for them. To be called
 * by the thread that goes on with the locks, or, for a begun call, by the one that completes it.
 */
void dibs__several_hold(struct dibs__several *several, struct dibs__holder *holder);

/* A failure that concerns one lock names it. */
void dibs__several_explain(struct dibs__error *error, const char *name);

#endif
