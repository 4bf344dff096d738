#include "cli/histogram.h"

#define STEPS ((size_t)32) /* buckets for each doubling */

static size_t bucket_of(uint64_t ns)
{
    size_t shift = 0;

    while (ns >> shift >= 2 * STEPS)
        shift++;
    return shift * STEPS + (size_t)(ns >> shift);
}

/* The middle of the times that a bucket counts. */
static int64_t middle_of(size_t bucket)
{
    size_t shift = bucket < 2 * STEPS ? 0 : bucket / STEPS - 1;
    int64_t begin = (int64_t)(bucket - shift * STEPS) << shift;

    return begin + ((INT64_C(1) << shift) >> 1);
}

void cli_histogram_add(struct cli_histogram *histogram, int64_t ns)
{
    if (ns < 0)
        ns = 0;
    if (histogram->count == 0 || ns < histogram->least_ns)
        histogram->least_ns = ns;
    if (ns > histogram->most_ns)
        histogram->most_ns = ns;
    histogram->count++;
    histogram->buckets[bucket_of((uint64_t)ns)]++;
}

void cli_histogram_merge(struct cli_histogram *histogram, const struct cli_histogram *other)
{
    if (other->count == 0)
        return;
    if (histogram->count == 0 || other->least_ns < histogram->least_ns)
        histogram->least_ns = other->least_ns;
    if (other->most_ns > histogram->most_ns)
        histogram->most_ns = other->most_ns;
    histogram->count += other->count;
    for (size_t i = 0; i < CLI_BUCKETS; i++)
        histogram->buckets[i] += other->buckets[i];
}

static int64_t within(const struct cli_histogram *histogram, int64_t ns)
{
    if (ns < histogram->least_ns)
        return histogram->least_ns;
    return ns > histogram->most_ns ? histogram->most_ns : ns;
}

int64_t cli_histogram_percentile(const struct cli_histogram *histogram, double share)
{
    double wanted = share * (double)histogram->count;
    uint64_t seen = 0;

    for (size_t i = 0; i < CLI_BUCKETS; i++) {
        seen += histogram->buckets[i];
        if (seen > 0 && (double)seen >= wanted)
            return within(histogram, middle_of(i));
    }
    return histogram->most_ns;
}

uint64_t cli_histogram_between(const struct cli_histogram *histogram, int64_t begin_ns, int64_t end_ns)
{
    uint64_t found = 0;

    for (size_t i = 0; i < CLI_BUCKETS; i++) {
        int64_t middle = within(histogram, middle_of(i));
        if (histogram->buckets[i] && middle >= begin_ns && middle < end_ns)
            found += histogram->buckets[i];
    }
    return found;
}
