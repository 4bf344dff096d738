#include "core/inspect.h"

#include <string.h>

#include "api/check.h"
#include "store/store.h"

dibs_status dibs_query(dibs_runtime *rt, const char *name, dibs_owner *out)
{
    struct dibs__error error;

    if (!out)
        return dibs__fail(DIBS_INVALID, "out is NULL");
    memset(out, 0, sizeof *out);
    if (dibs__check_name(rt, name) == 0)
        return DIBS_INVALID;
    return dibs__return(dibs__owner_query(rt, name, out, NULL, NULL, &error), &error);
}

/* DIBS_OK or DIBS_INVALID, for the arguments of a query that fills in an array. */
static dibs_status check_array(const dibs_runtime *rt, const char *name, const void *out, size_t max, int most,
                               size_t *count)
{
    if (!count)
        return dibs__fail(DIBS_INVALID, "count is NULL");
    *count = 0;
    if (!out)
        return dibs__fail(DIBS_INVALID, "out is NULL");
    if (max < 1 || max > (size_t)most)
        return dibs__fail(DIBS_INVALID, "max is %zu, not from 1 to %d", max, most);
    return dibs__check_name(rt, name) > 0 ? DIBS_OK : DIBS_INVALID;
}

dibs_status dibs_query_waiters(dibs_runtime *rt, const char *name, dibs_waiter *out, size_t max, size_t *count)
{
    struct dibs__error error;
    dibs_owner owner = {0};

    if (check_array(rt, name, out, max, DIBS_WAITERS_MAX, count) != DIBS_OK)
        return DIBS_INVALID;
    memset(out, 0, max * sizeof *out);
    struct dibs__waiters waiters = {.items = out, .most = max};
    dibs_status status = dibs__owner_query(rt, name, &owner, &waiters, NULL, &error);
    *count = status == DIBS_OK ? waiters.count : 0;
    return dibs__return(status, &error);
}

dibs_status dibs_query_sharers(dibs_runtime *rt, const char *name, dibs_sharer *out, size_t max, size_t *count)
{
    struct dibs__error error;
    dibs_owner owner = {0};

    if (check_array(rt, name, out, max, DIBS_SHARERS_MAX, count) != DIBS_OK)
        return DIBS_INVALID;
    memset(out, 0, max * sizeof *out);
    struct dibs__sharers sharers = {.items = out, .most = max};
    dibs_status status = dibs__owner_query(rt, name, &owner, NULL, &sharers, &error);
    *count = status == DIBS_OK ? sharers.count : 0;
    return dibs__return(status, &error);
}

dibs_status dibs_force_unlock(dibs_runtime *rt, const char *name, const char *token)
{
    struct dibs__error error;

    if (dibs__check_name(rt, name) == 0)
        return DIBS_INVALID;
    return dibs__return(dibs__owner_force_unlock(rt, name, token, &error), &error);
}

dibs_status dibs_forget(dibs_runtime *rt, const char *name)
{
    struct dibs__error error;

    if (dibs__check_name(rt, name) == 0)
        return DIBS_INVALID;
    return dibs__return(dibs__owner_forget(rt, name, &error), &error);
}

dibs_status dibs_list(dibs_runtime *rt, const char *pattern, dibs_list_fn *fn, void *arg)
{
    struct dibs__error error;

    if (!rt || !fn)
        return dibs__fail(DIBS_INVALID, "%s is NULL", rt ? "fn" : "the runtime");
    if (pattern && strnlen(pattern, DIBS_PATTERN_MAX + 1) > DIBS_PATTERN_MAX)
        return dibs__fail(DIBS_INVALID, "pattern is longer than %d bytes", DIBS_PATTERN_MAX);
    return dibs__return(dibs__list(rt, pattern, fn, arg, &error), &error);
}

dibs_status dibs_examine(dibs_runtime *rt, dibs_finding_fn *fn, void *arg)
{
    struct dibs__error error;

    if (!rt || !fn)
        return dibs__fail(DIBS_INVALID, "%s is NULL", rt ? "fn" : "the runtime");
    return dibs__return(dibs__examine(rt, 0, fn, arg, &error), &error);
}

dibs_status dibs_admit(dibs_runtime *rt, uint32_t longest_ms, dibs_finding_fn *fn, void *arg)
{
    struct dibs__error error;

    if (!rt || !fn)
        return dibs__fail(DIBS_INVALID, "%s is NULL", rt ? "fn" : "the runtime");
    if (!dibs__check_lease("longest_ms", longest_ms))
        return DIBS_INVALID;
    return dibs__return(dibs__examine(rt, longest_ms, fn, arg, &error), &error);
}
