/*
 * The core of a runtime: its parts, and how its leases begin and end: how a lease that is not granted yet is made,
 * with its attempt, and dropped ungranted; and what follows from the end of a lease. Made by dibs_open (assembly.h),
 * and again in a forked child; the handle that the user has (runtime.h) outlives it.
 */
#ifndef DIBS_CORE_CORE_H
#define DIBS_CORE_CORE_H

#include "core/asker.h"
#include "core/cells.h"
#include "core/events.h"
#include "core/metrics.h"
#include "core/renewal.h"
#include "core/scheduler.h"
#include "core/settings.h"
#include "core/stats.h"
#include "core/workers.h"

/* What a core is made from. The pointers must last as long as the core. */
struct dibs__core_config {
    uint64_t serial; /* of the runtime; no other runtime of this process has the same */
    const struct dibs__settings *settings;
    const struct dibs__clock *clock;
    const atomic_bool *closing; /* acquires end with DIBS_CLOSED once it is set */
};

struct dibs__core {
    struct dibs__core_config config;   /* read-only */
    struct dibs__scheduler *scheduler; /* read-only */
    struct dibs__workers *workers;     /* read-only */
    struct dibs__cells *cells;         /* read-only */
    struct dibs__renewals *renewals;   /* read-only */
    struct dibs__store *store;         /* read-only */
    struct dibs__events *events;       /* read-only; NULL: there is no on_event */
    char id[33];                       /* read-only; 128 random bits */
    struct dibs__token_form tokens;    /* read-only */
    atomic_uint_fast64_t sequence;     /* atomic; of the next token */
    struct dibs__counters counters;    /* has its own atomics */
    struct dibs__stats stats;          /* has its own atomics */
    struct dibs__metrics *metrics;     /* has its own atomics */
    struct dibs__core *next_abandoned; /* in the list of those of parent processes; guarded by the process's */
};

/*
 * Makes all that the lease will need before the store is asked, so that a grant never has to be refused for lack of
 * memory. keeps: the process may keep the lease, which is then neither fair nor shared nor fixed. NULL: no memory.
 */
struct dibs__lease *dibs__attempt_new(struct dibs__core *core, const char *name, size_t name_size,
                                      struct dibs__metrics_group *group, const struct dibs__wish *wish, bool keeps);

/*
 * Ends an ungranted attempt: what it may have left in the store is retracted. may_wait: if the store can say at once
 * that nothing is left, waits for that, at most LEAVE_MS. Takes over the caller's reference.
 */
void dibs__attempt_drop(struct dibs__core *core, struct dibs__lease *lease, bool may_wait);

/* Gives the attempt a new token. Its lease must be listed in the cell. */
void dibs__attempt_renew_token(struct dibs__core *core, struct dibs__cell *cell, struct dibs__lease *lease);

/* Has the store delete the key of the lease in the background, if the key still belongs to the lease. */
void dibs__core_retract(struct dibs__core *core, struct dibs__lease *lease);

/*
 * Ends a lease that nobody here uses any more: it is no longer kept alive, and is retracted as above. What follows for
 * its cell is the caller's.
 */
void dibs__core_give_back(struct dibs__core *core, struct dibs__lease *lease);

/*
 * Does what follows from the loss of the lease. Only the first call does anything. The loss is reported unless the
 * lease was on its way to the next holder here, or kept, or `why` is NULL. gone: the store said that the key is gone.
 */
void dibs__core_lost(struct dibs__core *core, struct dibs__lease *lease, bool gone, const char *why);

/* Whether grants have to reach replicas or the disk, which is awaited after the reply, on a connection for each ask. */
static inline bool dibs__core_confirms(const struct dibs__core *core)
{
    return core->config.settings->min_replicas > 0 || core->config.settings->durable;
}

static inline int64_t dibs__core_now(const struct dibs__core *core)
{
    return dibs__now(core->config.clock);
}

/* When a command that begins now must have its reply. */
static inline int64_t dibs__core_command_deadline(const struct dibs__core *core)
{
    return dibs__after_ms(dibs__core_now(core), core->config.settings->command_timeout_ms);
}

#endif
