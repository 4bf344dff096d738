/* A lease that is not granted yet, and its attempt: how both are made before the first ask, and dropped ungranted. */
#ifndef DIBS_CORE_ATTEMPT_H
#define DIBS_CORE_ATTEMPT_H

#include "core/asker.h"
#include "core/core.h"

/* What a call asks for, its arguments checked and defaults filled in. */
struct dibs__wish {
    int64_t wait_ms;   /* DIBS_WAIT_FOREVER, 0 (one try) or a time */
    uint32_t lease_ms; /* not 0 */
    uint32_t flags;    /* those of dibs_lock_options; DIBS_NO_REENTRY has no effect on an attempt */
    uint32_t limit;    /* with DIBS_SHARED; 0: any number */
};

/*
 * Makes all that the lease will need before the store is asked, so that a grant never has to be refused for lack of
 * memory. keeps: the process may keep the lease, which is then neither fair nor shared nor fixed. NULL: no memory.
 */
struct dibs__lease *dibs__attempt_new(struct dibs__core *core, const char *name, size_t name_size, uint16_t group,
                                      const struct dibs__wish *wish, bool keeps);

/*
 * Ends an ungranted attempt: what it may have left in the store is retracted. may_wait: if the store can say at once
 * that nothing is left, waits for that, at most LEAVE_MS. Takes over the caller's reference.
 */
void dibs__attempt_drop(struct dibs__core *core, struct dibs__lease *lease, bool may_wait);

/* Gives the attempt a new token. Its lease must be listed in the cell. */
void dibs__attempt_renew_token(struct dibs__core *core, struct dibs__cell *cell, struct dibs__lease *lease);

#endif
