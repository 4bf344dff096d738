/* What the parts of the fault rig's worker share. */
#ifndef DIBS_FAULT_WORKER_H
#define DIBS_FAULT_WORKER_H

#include <dibs.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fault/judge.h"

#define URLS_MAX 7

typedef struct worker {
    judge_head *judge;
    const char *urls[URLS_MAX];
    size_t url_count; /* more than one: the masters of a quorum */
    unsigned process;
    uint64_t seed;
    uint32_t lease_ms, timeout_ms;
    dibs_runtime *rt;
    _Atomic(dibs_runtime *) opened; /* `rt` for on_event, which may be called before dibs_open returns */
    _Atomic uint64_t events;        /* the fact that on_event was told */
    uint64_t holds;                 /* of the burst; 0: there is none */
    bool closes;                    /* the burst has a runtime of its own, which is closed */
} worker;

typedef struct worker_thread {
    pthread_t id;
    worker *worker;
    judge_slot *slot;
    dibs_queue *queue;
    dibs_task *task; /* the task that the thread has entered, which owns its locks; NULL: the thread owns them itself */
    uint64_t random; /* never 0 */
} worker_thread;

/* ------------------------------------------------- judge.c: the shared file */

/* NULL: the file is not as expected. */
judge_head *judge_open(const char *path);

judge_slot *slot_of(judge_head *judge, unsigned process, unsigned thread);

/*
 * The resource that the locks protect: it accepts a write, or the read of a sharer, unless it has seen a write with a
 * larger fence.
 */
bool judge_accepts(judge_head *judge, const hold_record *r);

/* The next record of the thread, cleared. Waits while the rig has not taken the oldest. */
hold_record *begin_record(worker_thread *t);
void publish_record(worker_thread *t, hold_record *r);

/* ------------------------------------------------------- hold.c: single holds */

/* Acquires a lock that is drawn, works under it and releases it. */
void work_round(worker_thread *t, uint64_t phase);

/* --------------------------------------------- burst.c: many releases at once */

/* Acquires w->holds locks and releases all of them at once. */
void make_burst(worker *w);

/* ---------------------------------------------------------- worker.c, random.c */

/* A worker may be started while the store is away: tries until the store is back. */
dibs_status open_runtime(worker *w, dibs_runtime **out);

uint64_t draw(worker_thread *t);
uint64_t between(worker_thread *t, uint64_t low, uint64_t high);
bool chance(worker_thread *t, unsigned percent);

#endif
