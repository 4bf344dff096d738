#include "core/owner.h"

/* Carries out the operation in a visit, within a command timeout. */
static dibs_status run(dibs_runtime *runtime, struct dibs__op *op, struct dibs__error *error)
{
    struct dibs__visit visit;
    dibs_status status = dibs__visit_begin(&visit, runtime, error);

    if (status != DIBS_OK)
        return status;
    struct dibs__store *store = visit.core->store;
    op->deadline = dibs__core_command_deadline(visit.core);
    status = store->ops->finish(store, op, error);
    dibs__visit_end(&visit);
    return status;
}

dibs_status dibs__owner_query(dibs_runtime *runtime, const char *name, dibs_owner *out, struct dibs__waiters *waiters,
                              struct dibs__sharers *sharers, struct dibs__error *error)
{
    struct dibs__op op = {
        .kind = DIBS__OP_QUERY, .name = name, .query = {.owner = out, .waiters = waiters, .sharers = sharers}};
    dibs_status status = run(runtime, &op, error);

    if (status != DIBS_OK)
        return status;
    out->fence *= DIBS__FENCE_STEPS;
    for (size_t i = 0; sharers && i < sharers->count; i++)
        sharers->items[i].fence *= DIBS__FENCE_STEPS;
    return DIBS_OK;
}

dibs_status dibs__owner_force_unlock(dibs_runtime *runtime, const char *name, const char *token,
                                     struct dibs__error *error)
{
    struct dibs__op op = {.kind = DIBS__OP_FORCE, .name = name, .force = {.token = token}};
    dibs_status status = run(runtime, &op, error);

    if (status == DIBS_NOT_HELD)
        return dibs__error_set(error, status, "another token holds %s", DIBS__QUOTED(name));
    return status;
}

dibs_status dibs__owner_forget(dibs_runtime *runtime, const char *name, struct dibs__error *error)
{
    struct dibs__op op = {.kind = DIBS__OP_FORGET, .name = name};
    dibs_status status = run(runtime, &op, error);

    if (status == DIBS_BUSY)
        return dibs__error_set(error, status, "somebody holds %s, or waits for it", DIBS__QUOTED(name));
    return status;
}
