#include <string.h>

#include "api/check.h"
#include "base/error.h"
#include "core/runtime.h"

static int64_t command_deadline(const dibs_runtime *rt)
{
    return dibs__after_ms(dibs__now(rt->clock), rt->settings.command_timeout_ms);
}

dibs_status dibs_query(dibs_runtime *rt, const char *name, dibs_owner *out)
{
    struct dibs__visit visit;
    struct dibs__error error;

    if (!out)
        return dibs__fail(DIBS_INVALID, "out is NULL");
    memset(out, 0, sizeof *out);
    if (dibs__check_name(rt, name) == 0)
        return DIBS_INVALID;
    dibs_status status = dibs__visit_begin(&visit, rt);
    if (status != DIBS_OK)
        return dibs__cannot_visit(status);
    struct dibs__store *store = visit.core->store;
    struct dibs__query query = {.name = name, .deadline = command_deadline(rt)};
    status = dibs__store_query(store, &query, out, &error);
    dibs__visit_end(&visit);
    if (status != DIBS_OK) {
        memset(out, 0, sizeof *out);
        return dibs__fail_with(&error);
    }
    out->fence *= DIBS__FENCE_STEPS;
    return DIBS_OK;
}

dibs_status dibs_force_unlock(dibs_runtime *rt, const char *name, const char *token)
{
    struct dibs__visit visit;
    struct dibs__error error;
    char quoted[DIBS__QUOTED_MAX];

    if (dibs__check_name(rt, name) == 0)
        return DIBS_INVALID;
    dibs_status status = dibs__visit_begin(&visit, rt);
    if (status != DIBS_OK)
        return dibs__cannot_visit(status);
    struct dibs__store *store = visit.core->store;
    status = store->ops->force_unlock(store, name, token, command_deadline(rt), &error);
    dibs__visit_end(&visit);
    if (status == DIBS_NOT_HELD)
        return dibs__fail(status, "another token holds %s", dibs__quote(quoted, name));
    return status == DIBS_OK ? DIBS_OK : dibs__fail_with(&error);
}
