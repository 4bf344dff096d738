/*
 * "dibs run" inside the COMMAND of another "dibs run": the tokens of the locks that the outer ones hold.
 */
#ifndef DIBS_CLI_RUN_INSIDE_H
#define DIBS_CLI_RUN_INSIDE_H

#include <stdbool.h>

#include "cli/run.h"

/*
 * Whether one of those tokens has the lock of name now, as the store says: DIBS_OK. *owner is then the owner with that
 * token, and owner->sharers is more than 0 if the lock is shared. The lock is from now on one of those that this dibs
 * runs under. DIBS_NOT_HELD: none of them has it, or the store does not tell. DIBS_UNAVAILABLE: the store does not
 * answer, and must not be tried again.
 */
dibs_status run_inside_enters(dibs_runtime *rt, const char *name, dibs_owner *owner);

/*
 * Has a thread look at the locks that this dibs runs under, because the outer dibs may end first, or lose them: at
 * least each second. Fits the times of the plan to them. Returns false if no thread or descriptor can be had.
 */
bool run_inside_watch(dibs_runtime *rt);

/*
 * Fits the times of the plan again, since an outer lease may have been made shorter. True: they have
 * changed. To compare what is left of the lease with them, read that first: it may become shorter
 * meanwhile.
 */
bool run_inside_fit(void);

/* How long those locks are sure to be held; less than 0: one is lost. A day at most, and where there is none. */
int64_t run_inside_remaining_ms(void);

/* Ends that thread, which may take one command timeout; must be called before the runtime is closed. */
void run_inside_end(void);

/* Sets the environment of COMMAND and --on-lost, as far as it tells of NAME, and of the locks around it. */
void run_inside_environment(uint64_t fence, const char *token);

/* The same, with the tokens of all names that are locked. */
void run_inside_environment_of(const struct run_lock *lock);

#endif
