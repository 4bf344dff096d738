/* A part of the benchmark "contended": what its processes do, and what is shown of it. */
#ifndef BENCH_PART_H
#define BENCH_PART_H

#include <stdbool.h>
#include <stddef.h>

#include "support/target.h" /* for show */

struct part {
    const char *name, *title;
    unsigned processes, limit_s;
    size_t memory;                               /* what the processes share; zeros at first */
    void (*work)(unsigned number, void *memory); /* of one process, numbered from 0 */
    bool (*show)(void *memory);                  /* prints the figures and targets; whether all are met */
    bool (*right)(const void *memory);           /* whether the results are; NULL: none could be wrong */
    bool apart;                                  /* the server has a core of its own */
};

extern const struct part handover_part, shares_part, fair_part, idle_part;

#endif
