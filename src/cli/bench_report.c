#include "cli/bench_report.h"

#include <inttypes.h>

#include "cli/json.h"

#define STEPS ((size_t)32) /* buckets for each doubling */
#define BAR 15             /* columns of the longest bar */
#define PARTS_MOST 3
#define TIME_MAX 24

/* ---------------------------------------------------------------- histogram */

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

static int64_t within(const struct cli_histogram *histogram, int64_t ns)
{
    if (ns < histogram->least_ns)
        return histogram->least_ns;
    return ns > histogram->most_ns ? histogram->most_ns : ns;
}

/* The time that the given share of all times, from 0 to 1, does not exceed; 0 if there are no times. */
static int64_t percentile(const struct cli_histogram *histogram, double share)
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

/* --------------------------------------------------------------------- bars */

/* Each bar begins at one of these times in ns, multiplied by a power of ten. */
static const int limits[] = {100, 200, 500};

#define LIMITS (sizeof limits / sizeof limits[0])
#define LIMIT_COUNT (10 * LIMITS) /* from 100 ns to 1,000 s */

static int64_t limit_of(size_t number)
{
    int64_t limit = limits[number % LIMITS];

    for (size_t i = 0; i < number / LIMITS; i++)
        limit *= 10;
    return limit;
}

struct bars {
    uint64_t counts[LIMIT_COUNT], most;
};

/* Each time counts as the middle of its bucket. The first bar counts shorter times too, the last bar longer ones. */
static void count_bars(struct bars *bars, const struct cli_histogram *times)
{
    *bars = (struct bars){.most = 0};
    for (size_t i = 0; i < CLI_BUCKETS; i++) {
        size_t bar = LIMIT_COUNT - 1;
        while (bar > 0 && within(times, middle_of(i)) < limit_of(bar))
            bar--;
        bars->counts[bar] += times->buckets[i];
        bars->most = bars->counts[bar] > bars->most ? bars->counts[bar] : bars->most;
    }
}

static const struct {
    const char *head, *key;
    double share;
} percentiles[] = {
    {"p50", "p50_us", 0.5}, {"p90", "p90_us", 0.9}, {"p99", "p99_us", 0.99}, {"p99.9", "p99_9_us", 0.999}};

#define PERCENTILES (sizeof percentiles / sizeof percentiles[0])

/* ---------------------------------------------------------------------- text */

static const char *show(char out[TIME_MAX], int64_t ns)
{
    if (ns < 1000000)
        snprintf(out, TIME_MAX, ns < 10000 ? "%.1fus" : "%.0fus", (double)ns / 1e3);
    else if (ns < 1000000000)
        snprintf(out, TIME_MAX, ns < 10000000 ? "%.2fms" : "%.0fms", (double)ns / 1e6);
    else
        snprintf(out, TIME_MAX, "%.2fs", (double)ns / 1e9);
    return out;
}

static void print_row(const struct cli_bench_part *part)
{
    char text[TIME_MAX];

    printf("%-9s  %8" PRIu64, part->name, part->times->count);
    if (part->times->count > 0) {
        printf("  %7s", show(text, part->times->least_ns));
        for (size_t i = 0; i < PERCENTILES; i++)
            printf("  %7s", show(text, percentile(part->times, percentiles[i].share)));
        printf("  %7s", show(text, part->times->most_ns));
    }
    putchar('\n');
}

/* The length of a bar is in proportion to its count; the largest count of a part has the longest bar. */
static void print_bar(uint64_t count, uint64_t most)
{
    int length = most ? (int)(count * BAR / most) : 0;

    fputs("  ", stdout);
    for (int i = 0; i < BAR; i++)
        putchar(i < length ? '#' : i == 0 && count > 0 ? '.' : ' ');
    printf(" %7" PRIu64, count);
}

/* Prints the bars of all parts side by side, from the first that counts anything to the last. */
static void print_bars(const struct cli_bench_part *parts)
{
    struct bars bars[PARTS_MOST];
    size_t first = LIMIT_COUNT, last = 0, count = 0;
    char text[TIME_MAX];

    for (; count < PARTS_MOST && parts[count].name; count++) {
        count_bars(&bars[count], parts[count].times);
        for (size_t i = 0; i < LIMIT_COUNT; i++) {
            if (bars[count].counts[i] == 0)
                continue;
            first = i < first ? i : first;
            last = i > last ? i : last;
        }
    }
    printf("\n%8s", "from");
    for (size_t i = 0; i < count; i++)
        printf("  %-*s", i + 1 < count ? BAR + 8 : 0, parts[i].name);
    putchar('\n');
    for (size_t row = first; row <= last; row++) {
        printf("%8s", show(text, limit_of(row)));
        for (size_t i = 0; i < count; i++)
            print_bar(bars[i].counts[row], bars[i].most);
        putchar('\n');
    }
}

void cli_bench_report_text(const struct cli_bench_part *parts)
{
    printf("%-9s  %8s  %7s", "", "count", "min");
    for (size_t i = 0; i < PERCENTILES; i++)
        printf("  %7s", percentiles[i].head);
    printf("  %7s\n", "max");
    for (const struct cli_bench_part *part = parts; part->name; part++)
        print_row(part);
    print_bars(parts);
}

/* ---------------------------------------------------------------------- JSON */

static void bars_json(const struct cli_histogram *times)
{
    struct bars bars;

    count_bars(&bars, times);
    cli_json_open("histogram", '[');
    for (size_t i = 0; i < LIMIT_COUNT; i++) {
        if (bars.counts[i] == 0)
            continue;
        cli_json_open(NULL, '{');
        cli_json_double("from_us", (double)limit_of(i) / 1e3);
        cli_json_double("to_us", (double)limit_of(i + 1) / 1e3);
        cli_json_int("count", (int64_t)bars.counts[i]);
        cli_json_close('}');
    }
    cli_json_close(']');
}

/* Of none there is no time. */
static void time_json(const char *key, int64_t ns, uint64_t count)
{
    if (count > 0)
        cli_json_double(key, (double)ns / 1e3);
    else
        cli_json_string(key, NULL);
}

static void part_json(const struct cli_bench_part *part)
{
    uint64_t count = part->times->count;

    cli_json_open(part->key, '{');
    cli_json_int("count", (int64_t)count);
    time_json("min_us", part->times->least_ns, count);
    for (size_t i = 0; i < PERCENTILES; i++)
        time_json(percentiles[i].key, percentile(part->times, percentiles[i].share), count);
    time_json("max_us", part->times->most_ns, count);
    bars_json(part->times);
    cli_json_close('}');
}

void cli_bench_report_json(const struct cli_bench_part *parts, bool interrupted)
{
    cli_json_open(NULL, '{');
    cli_json_bool("interrupted", interrupted);
    for (const struct cli_bench_part *part = parts; part->name; part++)
        part_json(part);
    cli_json_close('}');
}
