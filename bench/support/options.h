/* The options that all the benchmarks have, and the folder for their CSV files. */
#ifndef BENCH_OPTIONS_H
#define BENCH_OPTIONS_H

#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdnoreturn.h>

#include "support/bench.h"

enum { OPTIONS_ROUNDS_MOST = 99 };

struct bench_options {
    unsigned rounds;                  /* of a cell; 5 is the least for a figure to quote */
    unsigned round_ms;                /* of one side in a round, after the warm-up */
    bool transport[BENCH_TRANSPORTS]; /* which are measured */
    bool quick;                       /* only see whether all works: what is measured means nothing */
    const char *out;                  /* folder for CSV files; NULL: none are written */
};

extern struct bench_options
    bench_options; /* read-only once the options are read; set what is not 0 by default before */

/* The first entries of a table for getopt_long, and what stands about them in a usage text. */
#define BENCH_OPTIONS                                                                                                  \
    {"rounds", required_argument, NULL, 'R'}, {"round-ms", required_argument, NULL, 'M'},                              \
        {"quick", no_argument, NULL, 'Q'}, {"transport", required_argument, NULL, 'T'},                                \
        {"out", required_argument, NULL, 'O'},                                                                         \
    {                                                                                                                  \
        "help", no_argument, NULL, 'h'                                                                                 \
    }
#define BENCH_OPTIONS_USAGE                                                                                            \
    "  --rounds N            rounds of each cell; the sides take turns in each\n"                                      \
    "  --round-ms N          how long a side is measured in a round\n"                                                 \
    "  --quick               two short rounds, and little of all else: tells whether all works, and nothing more\n"    \
    "  --transport unix|tcp  only that one\n"                                                                          \
    "  --out DIR             write CSV files there\n"                                                                  \
    "  --help                says this\n"

/* Takes what getopt_long returned. False: none of the options above, or a wrong argument. */
bool bench_option(int option, const char *argument);

/* For programs with no other options and no arguments: reads them, or says how the program is used, and ends it. */
void bench_read_options(int argc, char **argv, const char *usage);

/* Starts the server, calls run() for each transport to measure, and exits: with 1 where one returned false. */
noreturn void bench_run(bool (*run)(void));

/* So many, or a hundredth of them (at least one) in a quick run. */
unsigned bench_scaled(unsigned count);

/* A whole number from least to most, else false. */
bool bench_number(const char *text, unsigned least, unsigned most, unsigned *out);

/*
 * Opens DIR/NAME.csv to append to; the file gets the header line where it is new. The caller's to close. NULL: no CSV
 * files are wanted. What fails ends the program.
 */
FILE *bench_csv(const char *name, const char *header);

#endif
