#include "core/list.h"

#include <string.h>

#include "api/check.h"

dibs_status dibs_list(dibs_runtime *rt, const char *pattern, dibs_list_fn *fn, void *arg)
{
    struct dibs__error error;

    if (!rt || !fn)
        return dibs__fail(DIBS_INVALID, "%s is NULL", rt ? "fn" : "the runtime");
    if (pattern && strnlen(pattern, DIBS_PATTERN_MAX + 1) > DIBS_PATTERN_MAX)
        return dibs__fail(DIBS_INVALID, "pattern is longer than %d bytes", DIBS_PATTERN_MAX);
    return dibs__return(dibs__list(rt, pattern, fn, arg, &error), &error);
}
