/* What the benchmark "tasks" measures: the sides of its cells. */
#ifndef BENCH_TASKS_SIDES_H
#define BENCH_TASKS_SIDES_H

#include "support/grid.h"

/*
 * One thread and one queue for so many tasks as the condition, a struct pairs_condition, has threads; each task has a
 * name of its own. The figures are PAIRS_FIGURES. The polled one sleeps in poll(2) on the queue's descriptor.
 */
void tasks_one_queue(const void *condition, double out[]);
void tasks_polled_queue(const void *condition, double out[]);

enum { ENTER_LEAVE, ENTER_THREAD, ENTER_TASK, ENTER_RATIO, ENTER_FIGURES };
extern const struct figure enter_figures[ENTER_FIGURES];
void tasks_enter(const void *condition, double out[]);

enum {
    WAITING_THREADS,
    WAITING_BYTES,
    WAITING_RESIDENT,
    WAITING_BEGIN,
    WAITING_GRANT,
    WAITING_CANCEL,
    WAITING_KEYS,
    WAITING_FIGURES
};
extern const struct figure waiting_figures[WAITING_FIGURES];

struct waiting_condition {
    unsigned tasks, names;
};
void tasks_waiting(const void *condition, double out[]);

enum { GRANT_THREAD, GRANT_QUEUE, GRANT_POLL, GRANT_RATIO, GRANT_POLL_RATIO, GRANT_FIGURES };
extern const struct figure grant_figures[GRANT_FIGURES];
void tasks_grants(const void *condition, double out[]);

#endif
