#include "core/lock.h"

#include "core/begun.h"
#include "core/release.h"

const char *dibs__lock_owner(const dibs_runtime *runtime)
{
    return dibs__task_inside(runtime->serial) ? "task" : "thread";
}

dibs_status dibs__lock_not_held(const char *owner, const char *name, struct dibs__error *error)
{
    return dibs__error_set(error, DIBS_NOT_HELD, "the calling %s does not hold %s", owner, DIBS__QUOTED(name));
}

dibs_status dibs__lock_lost(const char *owner, const char *name, struct dibs__error *error)
{
    return dibs__error_set(error, DIBS_LOST, "the lease of %s ended while the calling %s held it", DIBS__QUOTED(name),
                           owner);
}

/* ---------------------------------------------------------------------- lock */

static dibs_status held_already(const char *owner, const struct dibs__hold *hold, uint32_t flags,
                                struct dibs__error *error)
{
    return dibs__error_set(error, DIBS_BUSY,
                           flags & DIBS_NO_REENTRY
                               ? "this %s holds %s already"
                               : "this %s shares %s, and can't have it alone before it has unlocked it",
                           owner, DIBS__QUOTED(hold->lease->name));
}

dibs_status dibs__lock_refuse(const dibs_runtime *runtime, const char *owner, const struct dibs__hold *hold,
                              uint32_t flags, struct dibs__error *error)
{
    if (atomic_load_explicit(&runtime->closing, memory_order_relaxed))
        return dibs__error_set(error, DIBS_CLOSED, "the runtime is closing");
    if (dibs__lock_is_lost(runtime, hold))
        return dibs__lock_lost(owner, hold->lease->name, error);
    if (!dibs__lock_may_reenter(hold, flags))
        return held_already(owner, hold, flags, error);
    DIBS__REQUIRE(hold->count == UINT32_MAX);
    return dibs__error_set(error, DIBS_OVERFLOW, "the lock is held %u times, the most that can be counted",
                           hold->count);
}

dibs_status dibs__lock_first(dibs_runtime *runtime, const char *name, size_t name_size, const struct dibs__wish *wish,
                             struct dibs__error *error)
{
    struct dibs__visit visit;
    dibs_status status = dibs__visit_begin_if_open(&visit, runtime, error);

    if (status != DIBS_OK)
        return status;
    dibs_task *task = dibs__task_inside(runtime->serial);
    status = task ? dibs__wanting_call(dibs__wanting_new(task, &visit, name, name_size, wish), error)
                  : dibs__acquire(visit.core, name, name_size, wish, error);
    dibs__visit_end(&visit);
    return status;
}

/* -------------------------------------------------------------------- unlock */

dibs_status dibs__lock_forget(struct dibs__lease *lease, struct dibs__error *error)
{
    dibs__error_set(error, DIBS_LOST, "the runtime was closed before %s was unlocked", DIBS__QUOTED(lease->name));
    dibs__loss_unwatch(lease);
    dibs__lease_unref(lease);
    return DIBS_LOST;
}

dibs_status dibs__unlock_last(dibs_runtime *runtime, struct dibs__hold *hold, struct dibs__error *error)
{
    struct dibs__visit visit;
    dibs_status status = dibs__visit_begin(&visit, runtime, error);

    if (status == DIBS_CLOSED)
        return dibs__lock_forget(dibs__holds_remove(dibs__holds_here(runtime->serial), hold), error);
    if (status != DIBS_OK)
        return status;
    status = dibs__release(visit.core, hold, error);
    dibs__visit_end(&visit);
    return status;
}

/*
 * Most often the cause is a guard that was moved to another thread, and nobody
 * looks at the status of its unlock. A forked child that gives up what its parent
 * holds makes no such mistake, and would need a core of its own to report it.
 */
dibs_status dibs__unlock_not_held(dibs_runtime *runtime, const char *owner, const char *name, struct dibs__error *error)
{
    struct dibs__visit visit;

    if (!dibs__runtime_is_unused(runtime) && dibs__visit_begin(&visit, runtime, error) == DIBS_OK) {
        dibs__count(&visit.core->stats.not_held);
        dibs__events_emit(visit.core->events, DIBS_EVENT_NOT_HELD, name, 0,
                          "whoever unlocked it did not hold it: nothing was unlocked");
        dibs__visit_end(&visit);
    }
    return dibs__lock_not_held(owner, name, error);
}

dibs_status dibs__unlock_all(dibs_runtime *runtime, struct dibs__error *error)
{
    uint32_t cursor = DIBS__HOLDS_ALL;
    dibs_status first = DIBS_OK;
    struct dibs__error later;
    struct dibs__hold *hold;

    /* Each unlock is a visit of its own, so that dibs_close need not wait for all of them. */
    while ((hold = dibs__holds_next(dibs__holds_here(runtime->serial), runtime->serial, &cursor))) {
        dibs_status status = dibs__unlock_last(runtime, hold, first == DIBS_OK ? error : &later);
        if (first == DIBS_OK)
            first = status;
    }
    return first;
}

/* -------------------------------------------------------- the lease of a hold */

dibs_status dibs__extend(dibs_runtime *runtime, const char *name, size_t name_size, uint32_t lease_ms,
                         struct dibs__error *error)
{
    struct dibs__hold *hold = dibs__holds_find(runtime->serial, name, name_size);
    struct dibs__visit visit;

    if (!hold)
        return dibs__lock_not_held(dibs__lock_owner(runtime), name, error);
    if (dibs__lock_is_lost(runtime, hold))
        return dibs__lock_lost(dibs__lock_owner(runtime), name, error);
    dibs_status status = dibs__visit_begin(&visit, runtime, error);
    if (status != DIBS_OK)
        return status;
    status = dibs__renewals_extend(visit.core->renewals, hold->lease, lease_ms, dibs__core_command_deadline(visit.core),
                                   error);
    dibs__visit_end(&visit);
    return status == DIBS_LOST ? dibs__lock_lost(dibs__lock_owner(runtime), name, error) : status;
}

dibs_status dibs__hold_of(const dibs_runtime *runtime, const char *name, size_t name_size, dibs_hold *out,
                          struct dibs__error *error)
{
    struct dibs__hold *hold = dibs__holds_find(runtime->serial, name, name_size);

    if (!hold)
        return dibs__lock_not_held(dibs__lock_owner(runtime), name, error);
    int64_t now = dibs__now(runtime->clock);
    out->count = hold->count;
    out->fence = dibs__lease_fence(hold->lease);
    out->lost = dibs__lease_is_lost(hold->lease, now);
    out->shared = hold->lease->shared;
    out->remaining_ms = dibs__lease_remaining_ms(hold->lease, now);
    return out->lost ? dibs__lock_lost(dibs__lock_owner(runtime), name, error) : DIBS_OK;
}

/* When the runtime is closed, its part of each token is gone, and so is every lease: hence DIBS_LOST. */
dibs_status dibs__token_of(dibs_runtime *runtime, const char *name, size_t name_size, char *out,
                           struct dibs__error *error)
{
    struct dibs__hold *hold = dibs__holds_find(runtime->serial, name, name_size);
    struct dibs__visit visit;

    if (!hold)
        return dibs__lock_not_held(dibs__lock_owner(runtime), name, error);
    dibs_status status = dibs__visit_begin(&visit, runtime, error);
    if (status == DIBS_CLOSED)
        return dibs__lock_lost(dibs__lock_owner(runtime), name, error);
    if (status != DIBS_OK)
        return status;
    dibs__token_write(&visit.core->tokens, &hold->lease->token, out);
    dibs__visit_end(&visit);
    return dibs__lock_is_lost(runtime, hold) ? dibs__lock_lost(dibs__lock_owner(runtime), name, error) : DIBS_OK;
}
