/*
 * A runtime: the parts put together, and what a fork, the end of a thread and
 * the closing mean for them.
 *
 * The handle (dibs_runtime) outlives a fork; what it is made of (dibs__core)
 * does not. Its threads are not in the child, its mutexes may be locked there
 * for ever, its connections are the parent's. So the child leaves all of it
 * alone and makes a core anew, when it first uses the handle.
 *
 * The handle outlives dibs_close, too, and is never freed, so that a call of
 * another thread that comes too late finds there that it is closed. That is
 * about 150 bytes for each runtime that was ever opened.
 */
#ifndef DIBS_CORE_RUNTIME_H
#define DIBS_CORE_RUNTIME_H

#include "core/cell.h"
#include "core/events.h"
#include "core/renewal.h"
#include "store/store.h"

typedef dibs_status dibs__store_opener(struct dibs__store **out, const struct dibs__store_config *config,
                                       struct dibs__error *error);

/* What dibs_open was told, checked, defaults filled in. Read-only after open. */
struct dibs__settings {
    char *url, *key_prefix, *label;
    const char *reserved;        /* names may not begin so: with key_prefix before it, it is "dibs:"; NULL: any may */
    uint32_t lease_ms, renew_ms; /* renew_ms 0: a third of each lease */
    uint32_t connect_timeout_ms, command_timeout_ms, outage_ms, handoff_ms;
    uint32_t min_replicas, replica_timeout_ms;
    dibs_event_fn *on_event;
    void *on_event_arg;
    dibs__store_opener *open_store; /* NULL: dibs__store_open; tests put a store of their own in its place */
};

void dibs__settings_free(struct dibs__settings *settings); /* its strings; the numbers stay */

struct dibs__core;

struct dibs_runtime {
    uint64_t serial;                 /* of no other runtime in this process; read-only */
    struct dibs__settings settings;  /* read-only; its strings only in a visit, for dibs_close frees them */
    const struct dibs__clock *clock; /* read-only */
    atomic_bool closing;             /* from dibs_shutdown, or dibs_close, on */
    bool closed;                     /* guarded by the registry's mutex: dibs_close has begun */
    atomic_uint visits;              /* threads inside, and DIBS__VISITS_CLOSED where no more may come */
    atomic_uint generation;          /* of the process that core belongs to */
    struct dibs__core *core;         /* written before generation, and by who closes when nobody is inside */
    struct dibs_runtime *next;       /* guarded by the registry's mutex */
};

#define DIBS__VISITS_CLOSED (1u << 31)

struct dibs__core {
    dibs_runtime *runtime;           /* read-only */
    struct dibs__store *store;       /* read-only */
    struct dibs__cells *cells;       /* read-only */
    struct dibs__renewals *renewals; /* read-only */
    struct dibs__events *events;     /* read-only; NULL: nobody listens */
    char id[33];                     /* read-only; 128 random bits */
    char host[57];                   /* read-only */
    long pid;                        /* read-only */
    atomic_uint_fast64_t sequence;   /* atomic; of tokens */
    struct dibs__counters counters;
    struct {
        atomic_uint_fast64_t acquired, reentered, released, busy, timed_out, contended, granted, handed_off, renewed,
            renew_failed, lost, orphaned, holds, events_dropped;
    } stats;
    struct dibs__core *abandoned; /* the core of the parent process, and so on; guarded by the registry's mutex */
};

/* Takes over *settings (emptied, also on failure). A status of dibs_open; the error is filled. */
dibs_status dibs__runtime_open(dibs_runtime **out, struct dibs__settings *settings, const struct dibs__clock *clock,
                               struct dibs__error *error);
void dibs__runtime_close(dibs_runtime *runtime); /* the second time it does nothing */
void dibs__runtime_shutdown(dibs_runtime *runtime);

/*
 * Every call that does more than look at the thread's own holds is a visit:
 * closing waits for it, and the thread can't be cancelled in it. DIBS_OK;
 * DIBS_CLOSED: dibs_close has begun (on_event may visit until it has returned
 * for the last time); DIBS_NO_MEMORY: the core could not be made anew after a
 * fork (no memory, thread or descriptor). Only what has begun is ended.
 */
struct dibs__visit {
    struct dibs__core *core;
    int cancel_state;
};
dibs_status dibs__visit_begin(struct dibs__visit *visit, dibs_runtime *runtime);
void dibs__visit_end(struct dibs__visit *visit);

/* The store deletes the key of the lease in the background, if it is still the lease's. */
void dibs__core_retract(struct dibs__core *core, struct dibs__lease *lease);

/* The lease is lost: sees to all that follows, once however often it is called. gone: the store said so. */
void dibs__core_lost(struct dibs__core *core, struct dibs__lease *lease, bool gone, const char *why);

static inline void dibs__count(atomic_uint_fast64_t *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

static inline int64_t dibs__core_now(const struct dibs__core *core)
{
    return dibs__now(core->runtime->clock);
}

#endif
