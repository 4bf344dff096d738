/* What the sides of a table of pairs have in common: threads, each with a lock of its own, and what their pairs cost.
 */
#ifndef BENCH_PAIR_SIDE_H
#define BENCH_PAIR_SIDE_H

#include "support/grid.h"
#include "support/loops.h"

enum { PAIRS_THREADS_MOST = 1024 };

enum {
    PAIRS_TIME,
    PAIRS_RATE,
    PAIRS_CLIENT,
    PAIRS_SERVER,
    PAIRS_SWITCHES,
    PAIRS_CONNECTIONS,
    PAIRS_TURNS,
    PAIRS_FIGURES
};

extern const struct figure pairs_figures[PAIRS_FIGURES];

struct pairs_condition {
    unsigned threads;
    const struct loops *loops; /* NULL: none */
};

/* For struct side; the condition is a struct pairs_condition. */
void pairs_plain(const void *condition, double out[]);
void pairs_polling(const void *condition, double out[]); /* plain hiredis that polls (support/plain.h) */
void pairs_dibs(const void *condition, double out[]);
void pairs_least(const void *condition, double out[]);    /* as PAIR_LEAST */
void pairs_sleeping(const void *condition, double out[]); /* dibs that never polls */
void pairs_nobody(const void *condition, double out[]);   /* nobody locks: what the busy loops do then */

#endif
