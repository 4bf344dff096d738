/*
 * What "dibs run" and "dibs hold" say while they wait: who has the lock, and since when; or that replicas or the disk
 * have not confirmed it yet.
 */
#ifndef DIBS_CLI_RUN_WAITING_H
#define DIBS_CLI_RUN_WAITING_H

#include <pthread.h>
#include <stdbool.h>

#include "cli/run.h"

struct run_waiting {
    const struct run_plan *plan;
    dibs_runtime *rt;
    int after_ms;     /* pause before the first look */
    bool tells_owner; /* says who has the lock: on a terminal, or with -v */
    int over[2];      /* a pipe; one end is closed when the wait is over */
    pthread_t thread;
    bool started;
};

/* To be called before and after a wait. */
void run_waiting_begin(struct run_waiting *waiting, const struct run_plan *plan, dibs_runtime *rt);
void run_waiting_end(struct run_waiting *waiting);

#endif
