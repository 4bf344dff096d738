/*
 * The figures of dibs bench: times, as text with percentiles and a small histogram of each part, and as JSON.
 */
#ifndef DIBS_CLI_BENCH_REPORT_H
#define DIBS_CLI_BENCH_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define CLI_BUCKETS ((size_t)59 * 32) /* the last bucket counts INT64_MAX */

/*
 * Times, counted in buckets whose width is at most 1/32 of the times in them; so percentiles need no memory for each
 * time. Used by one thread at a time.
 */
struct cli_histogram {
    uint64_t count;
    int64_t least_ns, most_ns; /* exact; 0 if count is 0 */
    uint64_t buckets[CLI_BUCKETS];
};

void cli_histogram_add(struct cli_histogram *histogram, int64_t ns);

struct cli_bench_part {
    const char *name, *key; /* key: in JSON */
    const struct cli_histogram *times;
};

/* parts: the element after the last part has no name. */
void cli_bench_report_text(const struct cli_bench_part *parts);
void cli_bench_report_json(const struct cli_bench_part *parts, bool interrupted);

#endif
