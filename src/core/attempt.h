/* A lease that is not granted yet, with its attempt: how both are made before the first ask, and dropped ungranted. */
#ifndef DIBS_CORE_ATTEMPT_H
#define DIBS_CORE_ATTEMPT_H

#include "core/asker.h"
#include "core/core.h"

/* What a call asks for, its arguments checked and defaults filled in. */
struct dibs__wish {
    int64_t wait_ms;   /* DIBS_WAIT_FOREVER, 0 (one try) or a time */
    uint32_t lease_ms; /* not 0 */
    uint32_t flags;    /* those of dibs_lock_options; DIBS_NO_REENTRY has no effect here */
    uint32_t limit;    /* with DIBS_SHARED; 0: any number */
};

/*
 * All that a lease will need, made before the store is asked for it: what was
 * granted must not be refused. keeps: the process may keep the lease; neither
 * fair nor shared nor fixed. NULL: no memory.
 */
struct dibs__lease *dibs__attempt_new(struct dibs__core *core, const char *name, size_t name_size, uint16_t group,
                                      const struct dibs__wish *wish, bool keeps);

/* The attempt was not granted: what it may have left in the store is retracted. Takes the caller's reference. */
void dibs__attempt_drop(struct dibs__core *core, struct dibs__lease *lease);

/*
 * The same for an attempt that ran out of time behind a holder: where the store can
 * say at once that nothing is left, waits for that, LEAVE_MS at most.
 */
void dibs__attempt_leave(struct dibs__core *core, struct dibs__lease *lease);

/* The attempt of a lease that is listed goes on under a new token. */
void dibs__attempt_renew_token(struct dibs__core *core, struct dibs__cell *cell, struct dibs__lease *lease);

#endif
