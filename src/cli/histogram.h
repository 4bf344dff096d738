/*
 * Times, counted in buckets whose width is at most 1/32 of the times in them; so percentiles cost no memory for each
 * time. Not for several threads at once.
 */
#ifndef DIBS_CLI_HISTOGRAM_H
#define DIBS_CLI_HISTOGRAM_H

#include <stddef.h>
#include <stdint.h>

#define CLI_BUCKETS ((size_t)59 * 32) /* the last one has INT64_MAX */

struct cli_histogram {
    uint64_t count;
    int64_t least_ns, most_ns; /* exact; 0 where count is */
    uint64_t buckets[CLI_BUCKETS];
};

void cli_histogram_add(struct cli_histogram *histogram, int64_t ns);

/* Adds the times of another one. */
void cli_histogram_merge(struct cli_histogram *histogram, const struct cli_histogram *other);

/* The time that a share of the times, 0 to 1, is not longer than; 0 where there is none. */
int64_t cli_histogram_percentile(const struct cli_histogram *histogram, double share);

/* How many times are from begin_ns on, and before end_ns; by the middles of the buckets. */
uint64_t cli_histogram_between(const struct cli_histogram *histogram, int64_t begin_ns, int64_t end_ns);

#endif
