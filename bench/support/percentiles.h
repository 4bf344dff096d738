/* Many times of one kind, such as those of single hand-overs, shown by their percentiles. */
#ifndef BENCH_PERCENTILES_H
#define BENCH_PERCENTILES_H

#include <stddef.h>

/*
 * Appends to TABLE-percentiles.csv how long the 1st, 2nd... 99th, 99.5th and 99.9th percentile of the times is, which
 * are in us. Sorts them.
 */
void percentiles_csv(const char *table, const char *transport, const char *cell, const char *side, double *times,
                     size_t count);

#endif
