/* Calls for several names at once: what they do to the holds of the calling thread, or of a task. */
#ifndef DIBS_CORE_LOCK_NAMES_H
#define DIBS_CORE_LOCK_NAMES_H

#include "core/lock.h"
#include "core/several.h"

/* As dibs_lock_names and dibs_unlock_names. The names were checked. */
dibs_status dibs__lock_names(dibs_runtime *runtime, const char *const *names, size_t count,
                             const struct dibs__wish *wish, struct dibs__error *error);
dibs_status dibs__unlock_names(dibs_runtime *runtime, const char *const *names, size_t count,
                               struct dibs__error *error);

/*
 * Makes a call for those names, for the owner of that table, and makes room for them in the
 * table. NULL: the store need not be asked, and the error says why: a hold can't be entered again, or DIBS_NO_MEMORY.
 */
struct dibs__several *dibs__lock_names_prepare(dibs_runtime *runtime, struct dibs__visit *visit,
                                               struct dibs__holds *holds, const char *const *names, size_t count,
                                               const struct dibs__wish *wish, struct dibs__error *error);

#endif
