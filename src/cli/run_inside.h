/*
 * "dibs run" inside the COMMAND of another: the tokens of the locks that those around it hold.
 */
#ifndef DIBS_CLI_RUN_INSIDE_H
#define DIBS_CLI_RUN_INSIDE_H

#include <stdbool.h>

/* Whether there is any token; whether that one is among them. */
bool run_inside_any(void);
bool run_inside_has(const char *token);

/* Sets for COMMAND the token of its lock; those that were found stay known. */
void run_inside_set(const char *token);

#endif
