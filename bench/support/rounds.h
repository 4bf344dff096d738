/* Measuring the sides of a cell in turn, each time in a process of its own that starts from nothing. */
#ifndef BENCH_ROUNDS_H
#define BENCH_ROUNDS_H

#include "support/grid.h"

struct side {
    const char *name;
    /* Warms up, then measures for bench_options.round_ms. In a child with no other thread; every figure is NAN before.
     */
    void (*measure)(const void *condition, double figures[]);
};

struct table {
    const char *name;
    const struct figure *figure;
    unsigned figures;
    const struct side *side; /* the first is what the others are compared with */
    unsigned sides;
};

/*
 * Measures a cell of the table: in each of bench_options.rounds rounds every side once, in one order and the other by
 * turns. Fills and shows the grid. From then on targets are those of this cell, whose name must remain. False, after a
 * line on stderr: a side failed.
 */
bool rounds_run(struct grid *grid, const struct table *table, const char *cell, const void *condition);

#endif
