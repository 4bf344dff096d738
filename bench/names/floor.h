/* What several locks cost at least: programs that have their commands ready, send them in one write, and do nothing
 * with the replies. */
#ifndef BENCH_NAMES_FLOOR_H
#define BENCH_NAMES_FLOOR_H

#include "support/rounds.h"

enum { FLOOR_ONE, FLOOR_SOME, FLOOR_RATIO, FLOOR_FIGURES };

/* The condition is how many names are the second figure. */
extern const struct table names_floor;

#endif
