/*
 * Locks as the store has them, whoever owns them: queries, lists, taking a lock away, and what endangers locks. The
 * arguments were checked.
 */
#ifndef DIBS_CORE_INSPECT_H
#define DIBS_CORE_INSPECT_H

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

/* As dibs_list. */
dibs_status dibs__list(dibs_runtime *runtime, const char *pattern, dibs_list_fn *fn, void *arg,
                       struct dibs__error *error);

/* admit_ms 0: as dibs_examine; otherwise as dibs_admit with that longest lease. */
dibs_status dibs__examine(dibs_runtime *runtime, uint32_t admit_ms, dibs_finding_fn *fn, void *arg,
                          struct dibs__error *error);

#endif
