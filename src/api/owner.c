#include "core/owner.h"

#include <string.h>

#include "api/check.h"

dibs_status dibs_query(dibs_runtime *rt, const char *name, dibs_owner *out)
{
    struct dibs__error error;

    if (!out)
        return dibs__fail(DIBS_INVALID, "out is NULL");
    memset(out, 0, sizeof *out);
    if (dibs__check_name(rt, name) == 0)
        return DIBS_INVALID;
    return dibs__return(dibs__owner_query(rt, name, out, &error), &error);
}

dibs_status dibs_force_unlock(dibs_runtime *rt, const char *name, const char *token)
{
    struct dibs__error error;

    if (dibs__check_name(rt, name) == 0)
        return DIBS_INVALID;
    return dibs__return(dibs__owner_force_unlock(rt, name, token, &error), &error);
}
