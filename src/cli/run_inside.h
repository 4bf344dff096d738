/*
 * "dibs run" inside the COMMAND of another: the tokens of the locks that those around it hold.
 */
#ifndef DIBS_CLI_RUN_INSIDE_H
#define DIBS_CLI_RUN_INSIDE_H

#include <stdbool.h>

#include "cli/run.h"

/*
 * Whether such a token has that lock now: the store decides. *owner is then its part in the lock, with owner->sharers
 * more than 0 where others may have one as well.
 */
bool run_inside_holds(const struct run_plan *plan, dibs_runtime *rt, const char *name, dibs_owner *owner);

/* Sets for COMMAND the token of its lock; those that were found stay known. */
void run_inside_set(const char *token);

#endif
