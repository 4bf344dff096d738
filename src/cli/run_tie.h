/*
 * What "dibs hold" may be tied to: a process, and standard input. Once one of them has ended, the lock is of no use to
 * anybody, whether dibs holds it or still waits for it.
 */
#ifndef DIBS_CLI_RUN_TIE_H
#define DIBS_CLI_RUN_TIE_H

#include <poll.h>
#include <stdbool.h>

#include "cli/run.h"

#define RUN_TIES 2

/* To be called once, before the others. Without what the plan ties to, they do nothing. */
void run_tie_begin(const struct run_plan *plan);

/* Fills in what poll(2) must watch, with a descriptor of -1 where there is nothing. */
void run_tie_watch(struct pollfd fds[RUN_TIES]);

/* How long poll(2) may take at most, as what nobody tells has to be looked at; most_ms where there is nothing such. */
int run_tie_timeout(int most_ms);

/* Returns what has ended, as "process 7", or NULL. Reads standard input. For one thread at a time. */
const char *run_tie_ended(void);

#endif
