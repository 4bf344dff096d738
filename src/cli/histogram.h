/*
 * Times, counted in buckets whose width is at most 1/32 of the times in them; so percentiles need no memory for each
 * time. Used by one thread at a time.
 */
#ifndef DIBS_CLI_HISTOGRAM_H
#define DIBS_CLI_HISTOGRAM_H

#include <stddef.h>
#include <stdint.h>

#define CLI_BUCKETS ((size_t)59 * 32) /* the last bucket counts INT64_MAX */

struct cli_histogram {
    uint64_t count;
    int64_t least_ns, most_ns; /* exact; 0 if count is 0 */
    uint64_t buckets[CLI_BUCKETS];
};

void cli_histogram_add(struct cli_histogram *histogram, int64_t ns);

/* Adds the times of another histogram. */
void cli_histogram_merge(struct cli_histogram *histogram, const struct cli_histogram *other);

/* The time that the given share of all times, from 0 to 1, does not exceed; 0 if there are no times. */
int64_t cli_histogram_percentile(const struct cli_histogram *histogram, double share);

/* The number of times from begin_ns to before end_ns; each time counts as the middle of its bucket. */
uint64_t cli_histogram_between(const struct cli_histogram *histogram, int64_t begin_ns, int64_t end_ns);

#endif
