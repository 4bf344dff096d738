/*
 * What "dibs run" and "dibs hold" say while they wait: who has the lock, and since when; that replicas or the disk have
 * not confirmed it yet; or that the server does not grant it, though nobody has it.
 */
#ifndef DIBS_CLI_RUN_WAITING_H
#define DIBS_CLI_RUN_WAITING_H

#include "cli/run.h"

/* To be called before and after a wait for the names of *lock. */
void run_waiting_begin(const struct run_lock *lock);
void run_waiting_end(void);

#endif
