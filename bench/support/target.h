/* Targets: figures that a table should reach. A missed target is only reported: times are no failures. */
#ifndef BENCH_TARGET_H
#define BENCH_TARGET_H

#include <stdbool.h>

/* To which table, transport ("" where that makes no difference) and cell the targets belong from now on. */
void target_of(const char *table, const char *transport, const char *cell);

/* Print a figure and its bound, and append them to targets.csv. Whether the target is met; NAN: not measured, not met.
 */
bool at_most(const char *what, double figure, double bound, const char *unit);
bool at_least(const char *what, double figure, double bound, const char *unit);

#endif
