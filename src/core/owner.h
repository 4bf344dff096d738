/* A lock as the store has it, whoever owns it: queries, and taking the lock away. The names were checked. */
#ifndef DIBS_CORE_OWNER_H
#define DIBS_CORE_OWNER_H

#include "core/runtime.h"

struct dibs__waiters;
struct dibs__sharers;

/*
 * As dibs_query; *out is all zero before, and on failure. waiters and sharers, unless NULL, are filled as by
 * dibs_query_waiters and dibs_query_sharers.
 */
dibs_status dibs__owner_query(dibs_runtime *runtime, const char *name, dibs_owner *out, struct dibs__waiters *waiters,
                              struct dibs__sharers *sharers, struct dibs__error *error);

/* As dibs_force_unlock. */
dibs_status dibs__owner_force_unlock(dibs_runtime *runtime, const char *name, const char *token,
                                     struct dibs__error *error);

/* As dibs_forget. */
dibs_status dibs__owner_forget(dibs_runtime *runtime, const char *name, struct dibs__error *error);

#endif
