#include "core/examine.h"

#include "api/check.h"

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
