/* Whole operations of a store, for a caller that uses only one store. */
#ifndef DIBS_TEST_STORE_CALL_H
#define DIBS_TEST_STORE_CALL_H

#include "store/store.h"

static inline dibs_status store_do(struct dibs__store *store, struct dibs__op *op)
{
    struct dibs__error error;

    return store->ops->finish(store, op, &error);
}

/* The error is filled on failure. */
static inline dibs_status store_ask(struct dibs__store *store, struct dibs__attempt *attempt, int64_t deadline,
                                    struct dibs__answer *answer, struct dibs__error *error)
{
    struct dibs__op op = dibs__op_ask(attempt, answer, deadline);

    return store->ops->finish(store, &op, error);
}

/* A release of that lock, to be completed by the caller. */
static inline struct dibs__op store_release_op(const char *name, const char *token, uint32_t lease_ms, int64_t deadline)
{
    return (struct dibs__op){.kind = DIBS__OP_RELEASE,
                             .name = name,
                             .deadline = deadline,
                             .release = {.token = token, .lease_ms = lease_ms}};
}

/* token NULL: any holder. */
static inline dibs_status store_force(struct dibs__store *store, const char *name, const char *token, int64_t deadline)
{
    return store_do(store, &(struct dibs__op){
                               .kind = DIBS__OP_FORCE, .name = name, .deadline = deadline, .force = {.token = token}});
}

static inline dibs_status store_forget(struct dibs__store *store, const char *name, int64_t deadline)
{
    return store_do(store, &(struct dibs__op){.kind = DIBS__OP_FORGET, .name = name, .deadline = deadline});
}

#endif
