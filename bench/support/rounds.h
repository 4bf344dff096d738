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

/*
 * Fills the values of the grid, whose other fields the caller has set but for the sides and the rounds: in each of
 * bench_options.rounds rounds every side is measured once, in one order and the other by turns. False, after a line on
 * stderr: a side failed.
 */
bool rounds_run(struct grid *grid, const struct side *sides, unsigned count, const void *condition);

#endif
