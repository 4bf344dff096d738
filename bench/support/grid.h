/*
 * A cell of a table: what was measured under one condition, for several sides, round by round. The first side is what
 * the others are compared with. A ratio is taken within a round; what is shown is the median of the ratios, and their
 * quartiles as the spread.
 */
#ifndef BENCH_GRID_H
#define BENCH_GRID_H

#include <stddef.h>

#include "support/options.h"

enum { GRID_SIDES = 8, GRID_FIGURES = 12 };

struct figure {
    const char *name;
    const char *unit;
};

struct grid {
    const char *table;     /* also the name of the CSV file */
    const char *transport; /* as bench_transport_name says */
    const char *cell;      /* the condition, such as "16 threads" */
    unsigned sides, figures, rounds;
    const char *side[GRID_SIDES];
    const struct figure *figure;
    double value[GRID_SIDES][GRID_FIGURES][OPTIONS_ROUNDS_MOST]; /* NAN: not measured */
};

struct spread {
    double low, median, high; /* the quartiles; NAN: not measured */
};

/* Of the values that are not NAN. */
struct spread spread_of(const double *values, size_t count);

struct spread grid_value(const struct grid *grid, unsigned side, unsigned figure);

/* To that of side `to`, round by round. */
struct spread grid_ratio(const struct grid *grid, unsigned side, unsigned figure, unsigned to);

/* The largest of those ratios; NAN: not measured. */
double grid_worst(const struct grid *grid, unsigned side, unsigned figure, unsigned to);

/* Prints the cell and appends it to the table's CSV file. */
void grid_show(const struct grid *grid);

#endif
