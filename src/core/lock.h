/*
 * The calls on the locks of the calling thread: what each does to the thread's holds, and when it must visit the core.
 * The names were checked; *error is filled only on failure.
 *
 * What needs no I/O is inline, because it is called most: a re-entry and its unlock, and dibs_check. Each has a short
 * path for the name that the thread used last: a hold has that name, so the name needs no further check.
 *
 * Each of the three reads the clock once. Nothing else shows in time that a lease has ended: the process may have been
 * stopped, or the machine suspended, since the thread's last call.
 */
#ifndef DIBS_CORE_LOCK_H
#define DIBS_CORE_LOCK_H

#include "core/acquire.h"
#include "core/holds.h"
#include "core/runtime.h"

/* ------------------------------------------------ first, last, and what fails: not inline */

/* Acquires a lock that the thread does not hold. */
dibs_status dibs__lock_first(dibs_runtime *runtime, const char *name, size_t name_size, const struct dibs__wish *wish,
                             struct dibs__error *error);

/* Releases the lock and removes the hold, whatever its count. */
dibs_status dibs__unlock_last(dibs_runtime *runtime, struct dibs__hold *hold, struct dibs__error *error);

/* An unlock of a lock that is not held: counts it, tells on_event, DIBS_NOT_HELD. owner: as dibs__lock_owner. */
dibs_status dibs__unlock_not_held(dibs_runtime *runtime, const char *owner, const char *name,
                                  struct dibs__error *error);

/*
 * Says why a hold can't be entered again: the runtime is closing, the lease is lost, the flags or the kind of the
 * hold forbid it, or the count is at its maximum.
 */
dibs_status dibs__lock_refuse(const dibs_runtime *runtime, const char *owner, const struct dibs__hold *hold,
                              uint32_t flags, struct dibs__error *error);

/*
 * Drops the lease of a hold that was removed, and whose lock dibs_close has
 * released or is about to release. Takes over the reference. DIBS_LOST.
 */
dibs_status dibs__lock_forget(struct dibs__lease *lease, struct dibs__error *error);

/* Each fills in its error: DIBS_NOT_HELD, DIBS_LOST. */
dibs_status dibs__lock_not_held(const char *owner, const char *name, struct dibs__error *error);
dibs_status dibs__lock_lost(const char *owner, const char *name, struct dibs__error *error);

/* The word for the owner for which the calling thread acts in that runtime: "thread" or "task". */
const char *dibs__lock_owner(const dibs_runtime *runtime);

static inline bool dibs__lock_is_lost(const dibs_runtime *runtime, const struct dibs__hold *hold)
{
    return dibs__lease_is_lost(hold->lease, dibs__now(runtime->clock));
}

/* ------------------------------------------------------------------------- the calls */

/* A thread that shares the lock may not ask for it alone: it would wait for itself, or another that waits for it. */
static inline bool dibs__lock_may_reenter(const struct dibs__hold *hold, uint32_t flags)
{
    return !(flags & DIBS_NO_REENTRY) && (flags & DIBS_SHARED || !hold->lease->shared);
}

/* False: the runtime is closing, the lease is lost, or the count is at its maximum. */
static inline bool dibs__lock_can_count(const dibs_runtime *runtime, const struct dibs__hold *hold)
{
    DIBS__REQUIRE(hold->count > 0 && !hold->lease->asker);
    return !atomic_load_explicit(&runtime->closing, memory_order_relaxed) && hold->count < UINT32_MAX &&
           !dibs__lock_is_lost(runtime, hold);
}

/* Counts the hold up. False: as dibs__lock_can_count. */
static inline bool dibs__lock_reenter(const dibs_runtime *runtime, struct dibs__hold *hold)
{
    bool can = dibs__lock_can_count(runtime, hold);

    if (can)
        dibs__hold_count_up(hold);
    return can;
}

/* As dibs_lock_with. */
static inline dibs_status dibs__lock(dibs_runtime *runtime, const char *name, size_t name_size,
                                     const struct dibs__wish *wish, struct dibs__error *error)
{
    struct dibs__hold *hold = dibs__holds_find(runtime->serial, name, name_size);

    if (!hold)
        return dibs__lock_first(runtime, name, name_size, wish, error);
    if (dibs__lock_may_reenter(hold, wish->flags) && dibs__lock_reenter(runtime, hold))
        return DIBS_OK;
    return dibs__lock_refuse(runtime, dibs__lock_owner(runtime), hold, wish->flags, error);
}

/* The same for the name that the thread used last, without options. False: nothing was done; dibs__lock says why. */
static inline bool dibs__lock_last_used(dibs_runtime *runtime, const char *name)
{
    struct dibs__hold *hold = dibs__holds_find_last(runtime->serial, name);

    return hold && !hold->lease->shared && dibs__lock_reenter(runtime, hold);
}

/* As dibs_unlock. */
static inline dibs_status dibs__unlock(dibs_runtime *runtime, const char *name, size_t name_size,
                                       struct dibs__error *error)
{
    struct dibs__hold *hold = dibs__holds_find(runtime->serial, name, name_size);

    if (!hold)
        return dibs__unlock_not_held(runtime, dibs__lock_owner(runtime), name, error);
    DIBS__REQUIRE(hold->count > 0);
    if (hold->count == 1)
        return dibs__unlock_last(runtime, hold, error);
    hold->count--;
    return dibs__lock_is_lost(runtime, hold) ? dibs__lock_lost(dibs__lock_owner(runtime), name, error) : DIBS_OK;
}

/* The same for the name used last, if the hold remains and its lease is not lost. False: nothing was done. */
static inline bool dibs__unlock_last_used(dibs_runtime *runtime, const char *name)
{
    struct dibs__hold *hold = dibs__holds_find_last(runtime->serial, name);

    if (!hold || hold->count == 1 || dibs__lock_is_lost(runtime, hold))
        return false;
    hold->count--;
    return true;
}

/* As dibs_check. */
static inline dibs_status dibs__check(const dibs_runtime *runtime, const char *name, size_t name_size,
                                      struct dibs__error *error)
{
    struct dibs__hold *hold = dibs__holds_find(runtime->serial, name, name_size);

    if (!hold)
        return dibs__lock_not_held(dibs__lock_owner(runtime), name, error);
    return dibs__lock_is_lost(runtime, hold) ? dibs__lock_lost(dibs__lock_owner(runtime), name, error) : DIBS_OK;
}

/* True: this is the name that the thread used last, and its lease is not lost. False says nothing. */
static inline bool dibs__check_last_used(const dibs_runtime *runtime, const char *name)
{
    struct dibs__hold *hold = dibs__holds_find_last(runtime->serial, name);

    return hold && !dibs__lock_is_lost(runtime, hold);
}

/* As dibs_hold_of; *out is all zero before. */
dibs_status dibs__hold_of(const dibs_runtime *runtime, const char *name, size_t name_size, dibs_hold *out,
                          struct dibs__error *error);

/* As dibs_token_of; *out is "" before. */
dibs_status dibs__token_of(dibs_runtime *runtime, const char *name, size_t name_size, char *out,
                           struct dibs__error *error);

/* As dibs_unlock_all; the error is that of the first hold that failed. */
dibs_status dibs__unlock_all(dibs_runtime *runtime, struct dibs__error *error);

/* As dibs_extend. */
dibs_status dibs__extend(dibs_runtime *runtime, const char *name, size_t name_size, uint32_t lease_ms,
                         struct dibs__error *error);

#endif
