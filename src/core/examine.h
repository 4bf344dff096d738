/* What endangers locks in the store, and the admission of masters that an operator vouches for. */
#ifndef DIBS_CORE_EXAMINE_H
#define DIBS_CORE_EXAMINE_H

#include "core/runtime.h"

/* As dibs_examine; the arguments were checked. */
dibs_status dibs__examine(dibs_runtime *runtime, dibs_finding_fn *fn, void *arg, struct dibs__error *error);

/* As dibs_admit; the arguments were checked. */
dibs_status dibs__admit(dibs_runtime *runtime, uint32_t longest_ms, dibs_finding_fn *fn, void *arg,
                        struct dibs__error *error);

#endif
