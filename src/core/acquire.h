/* The first acquire: how a thread gets a lock that it does not hold. */
#ifndef DIBS_CORE_ACQUIRE_H
#define DIBS_CORE_ACQUIRE_H

#include "core/core.h"

/* What a call asks for, its arguments checked and defaults filled in. */
struct dibs__wish {
    int64_t wait_ms;   /* DIBS_WAIT_FOREVER, 0 (one try) or a time */
    uint32_t lease_ms; /* not 0 */
    uint32_t flags;    /* those of dibs_lock_options; DIBS_NO_REENTRY has no effect here */
};

/* As dibs_lock_with, for a name that the thread does not hold; within a visit. The error is filled on failure alone. */
dibs_status dibs__acquire(struct dibs__core *core, const char *name, size_t name_size, const struct dibs__wish *wish,
                          struct dibs__error *error);

#endif
