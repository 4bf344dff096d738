/*
 * The figures of dibs bench, as text with percentiles and a small histogram of each part, and as JSON.
 */
#ifndef DIBS_CLI_BENCH_REPORT_H
#define DIBS_CLI_BENCH_REPORT_H

#include <stdbool.h>
#include <stdio.h>

#include "cli/histogram.h"

struct cli_bench_part {
    const char *name, *key; /* key: in JSON */
    const struct cli_histogram *times;
};

/* parts: the element after the last part has no name. */
void cli_bench_report_text(FILE *out, const struct cli_bench_part *parts);
void cli_bench_report_json(FILE *out, const struct cli_bench_part *parts, bool interrupted);

#endif
