/*
 * What "dibs hold" may be tied to: a process, and standard input. Once one of them has ended, dibs gives up the lock,
 * whether it holds the lock or still waits for it.
 */
#ifndef DIBS_CLI_RUN_TIE_H
#define DIBS_CLI_RUN_TIE_H

#include <poll.h>
#include <stdbool.h>

#include "cli/run.h"

#define RUN_TIES 2

/* Must be called once, before the others. If the plan ties dibs to nothing, they do nothing. */
void run_tie_begin(void);

/* Fills in what poll(2) must watch; a descriptor of -1 watches nothing. */
void run_tie_watch(struct pollfd fds[RUN_TIES]);

/* How long poll(2) may take: most_ms (-1: no limit), or less if the end of a process must be looked for. */
int run_tie_timeout(int most_ms);

/* Returns what has ended, such as "process 7", or NULL. Reads standard input. Called by one thread at a time. */
const char *run_tie_ended(void);

#endif
