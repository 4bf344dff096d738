/*
 * "dibs run" inside the COMMAND of another "dibs run": the tokens of the locks that the outer ones hold.
 */
#ifndef DIBS_CLI_RUN_INSIDE_H
#define DIBS_CLI_RUN_INSIDE_H

#include <stdbool.h>

#include "cli/run.h"

/*
 * Whether one of those tokens has the lock of name now, as the store says. *owner is then the owner with that token,
 * and owner->sharers is more than 0 if the lock is shared.
 */
bool run_inside_holds(const struct run_plan *plan, dibs_runtime *rt, const char *name, dibs_owner *owner);

/* Adds the token of a lock to the environment of COMMAND, beside those that are there. */
void run_inside_set(const char *token);

#endif
