/* What endangers locks in the store, and the admission of masters that an operator vouches for. */
#ifndef DIBS_CORE_EXAMINE_H
#define DIBS_CORE_EXAMINE_H

#include "core/runtime.h"

/* admit_ms 0: as dibs_examine; otherwise as dibs_admit with that longest lease. The arguments were checked. */
dibs_status dibs__examine(dibs_runtime *runtime, uint32_t admit_ms, dibs_finding_fn *fn, void *arg,
                          struct dibs__error *error);

#endif
