#include <string.h>

#include "api/check.h"
#include "core/lock_names.h"

static dibs_status lock(dibs_runtime *rt, const char *name, int64_t wait_ms, const dibs_lock_options *options)
{
    size_t size = dibs__check_name(rt, name);
    struct dibs__error error;
    struct dibs__wish wish;

    if (!rt || size == 0 || !dibs__check_options(rt, wait_ms, options, &wish))
        return DIBS_INVALID;
    return dibs__return(dibs__lock(rt, name, size, &wish, &error), &error);
}

dibs_status dibs_lock_with(dibs_runtime *rt, const char *name, int64_t wait_ms, const dibs_lock_options *options)
{
    if (rt && name && wait_ms >= DIBS_WAIT_FOREVER && !options && dibs__lock_last_used(rt, name))
        return DIBS_OK;
    return lock(rt, name, wait_ms, options);
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

static dibs_status unlock(dibs_runtime *rt, const char *name)
{
    size_t size = dibs__check_name(rt, name);
    struct dibs__error error;

    return !rt || size == 0 ? DIBS_INVALID : dibs__return(dibs__unlock(rt, name, size, &error), &error);
}

dibs_status dibs_unlock(dibs_runtime *rt, const char *name)
{
    return rt && name && dibs__unlock_last_used(rt, name) ? DIBS_OK : unlock(rt, name);
}

dibs_status dibs_lock_names(dibs_runtime *rt, const char *const *names, size_t count, int64_t wait_ms,
                            const dibs_lock_options *options)
{
    struct dibs__error error;
    struct dibs__wish wish;

    if (!dibs__check_names(rt, names, count) || !dibs__check_options(rt, wait_ms, options, &wish))
        return DIBS_INVALID;
    return dibs__return(dibs__lock_names(rt, names, count, &wish, &error), &error);
}

dibs_status dibs_unlock_names(dibs_runtime *rt, const char *const *names, size_t count)
{
    struct dibs__error error;

    if (!dibs__check_names(rt, names, count))
        return DIBS_INVALID;
    return dibs__return(dibs__unlock_names(rt, names, count, &error), &error);
}

dibs_status dibs_unlock_all(dibs_runtime *rt)
{
    struct dibs__error error;

    if (!rt)
        return dibs__fail(DIBS_INVALID, "the runtime is NULL");
    return dibs__return(dibs__unlock_all(rt, &error), &error);
}

dibs_status dibs_extend(dibs_runtime *rt, const char *name, uint32_t lease_ms)
{
    size_t size = dibs__check_name(rt, name);
    struct dibs__error error;

    if (size == 0 || !dibs__check_lease("lease_ms", lease_ms))
        return DIBS_INVALID;
    return dibs__return(dibs__extend(rt, name, size, lease_ms, &error), &error);
}

static dibs_status check(dibs_runtime *rt, const char *name)
{
    size_t size = dibs__check_name(rt, name);
    struct dibs__error error;

    return !rt || size == 0 ? DIBS_INVALID : dibs__return(dibs__check(rt, name, size, &error), &error);
}

dibs_status dibs_check(dibs_runtime *rt, const char *name)
{
    return rt && name && dibs__check_last_used(rt, name) ? DIBS_OK : check(rt, name);
}

dibs_status dibs_hold_of(dibs_runtime *rt, const char *name, dibs_hold *out)
{
    size_t size = dibs__check_name(rt, name);
    struct dibs__error error;

    if (!out)
        return dibs__fail(DIBS_INVALID, "out is NULL");
    memset(out, 0, sizeof *out);
    return size == 0 ? DIBS_INVALID : dibs__return(dibs__hold_of(rt, name, size, out, &error), &error);
}

dibs_status dibs_token_of(dibs_runtime *rt, const char *name, char out[192])
{
    size_t size = dibs__check_name(rt, name);
    struct dibs__error error;

    if (!out)
        return dibs__fail(DIBS_INVALID, "out is NULL");
    *out = '\0';
    return size == 0 ? DIBS_INVALID : dibs__return(dibs__token_of(rt, name, size, out, &error), &error);
}
