#include <string.h>

#include "api/check.h"
#include "base/error.h"
#include "core/lock.h"

static dibs_status check_options(int64_t wait_ms, const dibs_lock_options *options)
{
    if (wait_ms < DIBS_WAIT_FOREVER)
        return dibs__fail(DIBS_INVALID, "wait_ms is negative, and not DIBS_WAIT_FOREVER");
    if (!options)
        return DIBS_OK;
    if (options->flags & ~(uint32_t)(DIBS_FAIR | DIBS_FIXED_LEASE))
        return dibs__fail(DIBS_INVALID, "flags has an unknown bit: 0x%x", options->flags);
    return options->lease_ms == 0 || dibs__check_lease("lease_ms", options->lease_ms) ? DIBS_OK : DIBS_INVALID;
}

static struct dibs__hold *find_hold(const dibs_runtime *rt, const char *name, size_t size)
{
    return dibs__holds_find(rt->serial, name, size);
}

static dibs_status not_held(const char *name)
{
    char quoted[DIBS__QUOTED_MAX];

    return dibs__fail(DIBS_NOT_HELD, "the calling thread does not hold %s", dibs__quote(quoted, name));
}

static dibs_status lost(const char *name)
{
    char quoted[DIBS__QUOTED_MAX];

    return dibs__fail(DIBS_LOST, "the lease of %s ended while the calling thread held it", dibs__quote(quoted, name));
}

/* ------------------------------------------------------------------ acquire */

static dibs_status reenter(dibs_runtime *rt, struct dibs__hold *hold)
{
    struct dibs__lease *lease = hold->lease;

    if (atomic_load_explicit(&rt->closing, memory_order_relaxed))
        return dibs__fail(DIBS_CLOSED, "the runtime is closing");
    if (dibs__lease_is_lost(lease, dibs__now(rt->clock)))
        return lost(lease->name);
    if (hold->count == UINT32_MAX)
        return dibs__fail(DIBS_OVERFLOW, "the lock is held %u times, the most that can be counted", hold->count);
    hold->count++;
    uint64_t reentered = atomic_load_explicit(&lease->reentered, memory_order_relaxed); /* only this thread writes it */
    atomic_store_explicit(&lease->reentered, reentered + 1, memory_order_relaxed);
    return DIBS_OK;
}

dibs_status dibs_lock_with(dibs_runtime *rt, const char *name, int64_t wait_ms, const dibs_lock_options *options)
{
    size_t size = dibs__check_name(rt, name);
    struct dibs__visit visit;

    if (size == 0 || check_options(wait_ms, options) != DIBS_OK)
        return DIBS_INVALID;
    struct dibs__hold *hold = find_hold(rt, name, size);
    if (hold)
        return reenter(rt, hold);
    if (atomic_load(&rt->closing))
        return dibs__fail(DIBS_CLOSED, "the runtime is closing");
    dibs_status status = dibs__visit_begin(&visit, rt);
    if (status != DIBS_OK)
        return dibs__cannot_visit(status);
    uint32_t lease_ms = options && options->lease_ms ? options->lease_ms : rt->settings.lease_ms;
    uint32_t flags = options ? options->flags : 0;
    status = dibs__lock_acquire(visit.core, name, size, wait_ms, lease_ms, flags);
    dibs__visit_end(&visit);
    return status;
}

dibs_status dibs_lock(dibs_runtime *rt, const char *name)
{
    return dibs_lock_with(rt, name, DIBS_WAIT_FOREVER, NULL);
}

dibs_status dibs_trylock(dibs_runtime *rt, const char *name)
{
    return dibs_lock_with(rt, name, 0, NULL);
}

dibs_status dibs_timedlock(dibs_runtime *rt, const char *name, int64_t wait_ms)
{
    return dibs_lock_with(rt, name, wait_ms, NULL);
}

/* ------------------------------------------------------------------- unlock */

/* dibs_close has released the lock, or is about to: all that is left of it is this thread's entry. */
static dibs_status let_go(struct dibs__hold *hold)
{
    struct dibs__lease *lease = dibs__holds_remove(hold);
    char quoted[DIBS__QUOTED_MAX];

    dibs__fail(DIBS_LOST, "the runtime was closed before %s was unlocked", dibs__quote(quoted, lease->name));
    dibs__lease_unref(lease);
    return DIBS_LOST;
}

/* The last unlock. */
static dibs_status release(dibs_runtime *rt, struct dibs__hold *hold)
{
    struct dibs__visit visit;
    dibs_status status = dibs__visit_begin(&visit, rt);

    if (status == DIBS_CLOSED)
        return let_go(hold);
    if (status != DIBS_OK)
        return dibs__cannot_visit(status);
    status = dibs__lock_release(visit.core, hold);
    dibs__visit_end(&visit);
    return status;
}

dibs_status dibs_unlock(dibs_runtime *rt, const char *name)
{
    size_t size = dibs__check_name(rt, name);

    if (size == 0)
        return DIBS_INVALID;
    struct dibs__hold *hold = find_hold(rt, name, size);
    if (!hold)
        return not_held(name);
    if (hold->count == 1)
        return release(rt, hold);
    hold->count--;
    return dibs__lease_is_lost(hold->lease, dibs__now(rt->clock)) ? lost(name) : DIBS_OK;
}

dibs_status dibs_unlock_all(dibs_runtime *rt)
{
    uint32_t cursor = DIBS__HOLDS_ALL;
    struct dibs__hold *hold;
    dibs_status first = DIBS_OK;

    if (!rt)
        return dibs__fail(DIBS_INVALID, "the runtime is NULL");
    while ((hold = dibs__holds_next(rt->serial, &cursor))) { /* each in a visit of its own: dibs_close waits for one */
        dibs_status status = release(rt, hold);
        if (first == DIBS_OK)
            first = status;
    }
    return first;
}

dibs_status dibs_extend(dibs_runtime *rt, const char *name, uint32_t lease_ms)
{
    size_t size = dibs__check_name(rt, name);
    struct dibs__visit visit;
    struct dibs__error error;

    if (size == 0 || !dibs__check_lease("lease_ms", lease_ms))
        return DIBS_INVALID;
    struct dibs__hold *hold = find_hold(rt, name, size);
    if (!hold)
        return not_held(name);
    if (dibs__lease_is_lost(hold->lease, dibs__now(rt->clock)))
        return lost(name);
    dibs_status status = dibs__visit_begin(&visit, rt);
    if (status != DIBS_OK)
        return dibs__cannot_visit(status);
    int64_t deadline = dibs__after_ms(dibs__now(rt->clock), rt->settings.command_timeout_ms);
    status = dibs__renewals_extend(visit.core->renewals, hold->lease, lease_ms, deadline, &error);
    dibs__visit_end(&visit);
    if (status == DIBS_OK || status == DIBS_LOST)
        return status == DIBS_OK ? DIBS_OK : lost(name);
    return dibs__fail_with(&error);
}

/* ----------------------------------------------------------- the holder's view */

dibs_status dibs_check(dibs_runtime *rt, const char *name)
{
    size_t size = dibs__check_name(rt, name);

    if (size == 0)
        return DIBS_INVALID;
    struct dibs__hold *hold = find_hold(rt, name, size);
    if (!hold)
        return not_held(name);
    return dibs__lease_is_lost(hold->lease, dibs__now(rt->clock)) ? lost(name) : DIBS_OK;
}

dibs_status dibs_hold_of(dibs_runtime *rt, const char *name, dibs_hold *out)
{
    size_t size = dibs__check_name(rt, name);

    if (!out)
        return dibs__fail(DIBS_INVALID, "out is NULL");
    memset(out, 0, sizeof *out);
    if (size == 0)
        return DIBS_INVALID;
    struct dibs__hold *hold = find_hold(rt, name, size);
    if (!hold)
        return not_held(name);
    int64_t now = dibs__now(rt->clock);
    out->count = hold->count;
    out->fence = hold->fence;
    out->lost = dibs__lease_is_lost(hold->lease, now);
    out->remaining_ms = dibs__lease_remaining_ms(hold->lease, now);
    return out->lost ? lost(name) : DIBS_OK;
}
