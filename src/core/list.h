/* All locks that are held, whoever holds them. */
#ifndef DIBS_CORE_LIST_H
#define DIBS_CORE_LIST_H

#include "core/runtime.h"

/* As dibs_list; the arguments were checked. */
dibs_status dibs__list(dibs_runtime *runtime, const char *pattern, dibs_list_fn *fn, void *arg,
                       struct dibs__error *error);

#endif
