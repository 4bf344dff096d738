/*
 * What "dibs run" and "dibs hold" say while they wait: who has the lock, and since when.
 */
#ifndef DIBS_CLI_RUN_WAITING_H
#define DIBS_CLI_RUN_WAITING_H

#include <pthread.h>
#include <stdbool.h>

#include "cli/run.h"

struct run_waiting {
    const struct run_plan *plan;
    dibs_runtime *rt;
    int after_ms; /* when it says so first, and again until there is an owner to name */
    int over[2];  /* a pipe, closed at one end when the wait is over */
    pthread_t thread;
    bool started;
};

/* Around a wait. Where nobody would read it, nothing is said. */
void run_waiting_begin(struct run_waiting *waiting, const struct run_plan *plan, dibs_runtime *rt);
void run_waiting_end(struct run_waiting *waiting);

#endif
