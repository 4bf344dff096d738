/*
 * What an uncontended lock costs on three and on five masters and on a cluster, against one server: without a delay,
 * and where every reply is 2 ms late, as from servers that stand elsewhere. Without a delay the processors of this
 * machine do the work of all the servers, so the ratios are those of work; with it they are those of round trips.
 *
 * One thread takes names in turn, so that a cluster's are at all its nodes. The time of a round is the median of its
 * pairs. On TCP alone: a cluster has no other transport.
 */
#include <dibs.h>

#include <stdio.h>
#include <stdlib.h>

#include "support/bench.h"
#include "support/common/cleanup.h"
#include "support/common/timing.h"
#include "support/options.h"
#include "support/rounds.h"
#include "support/target.h"
#include "support/usage.h"
#include "topologies/places.h"

enum { DELAY_US = 2000, NAMES = 16, PAIRS_MOST = 100000, WARM_UP_LEAST = 2 * NAMES };

enum { PAIR, ACQUIRE, RELEASE, SLOW, CLIENT, FIGURES };

static const struct figure figures[FIGURES] = {
    [PAIR] = {"time of a pair", "us"},
    [ACQUIRE] = {"acquire", "us"},
    [RELEASE] = {"release", "us"},
    [SLOW] = {"99th percentile of a pair", "us"},
    [CLIENT] = {"client CPU of a pair", "us"},
};

/* ----------------------------------------------------------------- one side */

/* In us. */
static double times[SLOW][PAIRS_MOST];

static size_t run_pairs(dibs_runtime *runtime, double until_ns, size_t least)
{
    char name[32];
    size_t count = 0;

    while (count < PAIRS_MOST && (count < least || now_ns() < until_ns)) {
        snprintf(name, sizeof name, "topologies:%zu", count % NAMES);
        double begin = now_ns();
        must(dibs_lock(runtime, name));
        double held = now_ns();
        must(dibs_unlock(runtime, name));
        double end = now_ns();
        times[PAIR][count] = (end - begin) / 1e3;
        times[ACQUIRE][count] = (held - begin) / 1e3;
        times[RELEASE][count] = (end - held) / 1e3;
        count++;
    }
    return count;
}

static void measure(const struct place *place, double out[])
{
    double round_ns = bench_options.round_ms * 1e6;
    dibs_runtime *runtime;

    must(dibs_open(&runtime, &(dibs_config){.urls = place->urls, .url_count = place->url_count}));
    run_pairs(runtime, now_ns() + round_ns / 4, WARM_UP_LEAST);
    struct usage start = usage_now();
    size_t count = run_pairs(runtime, now_ns() + round_ns, 1);
    struct usage used = usage_between(start, usage_now());
    out[CLIENT] = used.client_ns / 1e3 / (double)count;
    for (int figure = PAIR; figure < SLOW; figure++)
        out[figure] = median(times[figure], count);
    out[SLOW] = percentile(times[PAIR], count, 99);
    dibs_close(runtime);
}

static void measure_one(const void *places, double out[])
{
    measure((const struct place *)places + ONE_SERVER, out);
}

static void measure_three(const void *places, double out[])
{
    measure((const struct place *)places + THREE_MASTERS, out);
}

static void measure_five(const void *places, double out[])
{
    measure((const struct place *)places + FIVE_MASTERS, out);
}

static void measure_cluster(const void *places, double out[])
{
    measure((const struct place *)places + CLUSTER_OF_THREE, out);
}

/* -------------------------------------------------------------------- cells */

static const struct side sides[TOPOLOGIES] = {[ONE_SERVER] = {"one server", measure_one},
                                              [THREE_MASTERS] = {"three masters", measure_three},
                                              [FIVE_MASTERS] = {"five masters", measure_five},
                                              [CLUSTER_OF_THREE] = {"cluster of three", measure_cluster}};

static bool run_cell(struct grid *grid, const char *cell, const struct place *places)
{
    static const struct table table = {"topologies", figures, FIGURES, sides, TOPOLOGIES};

    return rounds_run(grid, &table, cell, places);
}

static double ratio(const struct grid *grid, enum topology topology, unsigned figure)
{
    return grid_ratio(grid, topology, figure, ONE_SERVER).median;
}

static bool directly(const struct place *places)
{
    static struct grid grid;

    return run_cell(&grid, "without a delay", places);
}

static bool over_wires(const struct place *places, unsigned delay_us)
{
    static struct grid grid;
    char cell[64];

    snprintf(cell, sizeof cell, "with %u us of delay", delay_us);
    if (!run_cell(&grid, cell, places))
        return false;
    at_most("five masters: pair", ratio(&grid, FIVE_MASTERS, PAIR), 1.6, "x");
    at_most("five masters: acquire", ratio(&grid, FIVE_MASTERS, ACQUIRE), 2.6, "x");
    at_most("cluster: pair", ratio(&grid, CLUSTER_OF_THREE, PAIR), 1.05, "x");
    return true;
}

/* ------------------------------------------------------------------ program */

static unsigned delay_us = DELAY_US;

static bool run(void)
{
    static struct place places[TOPOLOGIES];

    places_start(places);
    bool done = directly(places);
    places_delay(places, delay_us);
    return over_wires(places, delay_us) && done;
}

static int usage(FILE *out, int status)
{
    fputs("Usage: topologies [OPTION...]\n"
          "Measures locks that nobody else wants on several masters and on a cluster, against one server.\n\n"
          "  --delay-us N          how late a reply is, where there is a delay\n" BENCH_OPTIONS_USAGE,
          out);
    return status;
}

static void read_options(int argc, char **argv)
{
    static const struct option options[] = {BENCH_OPTIONS, {"delay-us", required_argument, NULL, 'd'}, {0}};

    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (option == 'h')
            exit(usage(stdout, 0));
        if (option == 'd' ? !bench_number(optarg, 1, 1000000, &delay_us) : !bench_option(option, optarg))
            exit(usage(stderr, 2));
    }
    if (optind < argc)
        exit(usage(stderr, 2));
}

int main(int argc, char **argv)
{
    read_options(argc, argv);
    bench_options.transport[BENCH_UNIX] = false;
    bench_options.transport[BENCH_TCP] = true;
    bench_run(run);
}
