/*
 * How often a lone thread asks the system, and the allocator, for a lock and unlock that nobody else wants, against
 * plain hiredis. System calls are counted by strace, which is left out where there is none. Counts of a whole process,
 * with all its threads: those of a long run without those of a short one, so that the start is not counted.
 */
#include <dibs.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "calls/allocations.h"
#include "calls/trace.h"
#include "support/bench.h"
#include "support/common/cleanup.h"
#include "support/options.h"
#include "support/pair.h"
#include "support/rounds.h"
#include "support/target.h"

enum { ROUNDS = 5, SHORT_RUN = 200, LONG_RUN = 1200, WARM_UP = 1000, COUNTED = 5000 };

enum { CALLS, WRITES, READS, POLLS, FUTEXES, OTHERS, OWN, IN_HIREDIS, FIGURES };

static const struct figure figures[FIGURES] = {
    [CALLS] = {"system calls of a pair", ""},
    [WRITES] = {"write or send", ""},
    [READS] = {"read or receive", ""},
    [POLLS] = {"poll", ""},
    [FUTEXES] = {"futex", ""},
    [OTHERS] = {"other system calls", ""},
    [OWN] = {"allocations of a pair", ""},
    [IN_HIREDIS] = {"allocations by hiredis", ""},
};

static char self[PATH_MAX]; /* the path of this program */
static bool traces;         /* strace works */

/* ------------------------------------------------------------------- counts */

static void run_pairs(enum pair_kind kind, unsigned count)
{
    dibs_runtime *runtime = pair_runtime(kind);
    struct pair pair;

    pair_open(&pair, kind, runtime, 0);
    for (unsigned i = 0; i < count; i++)
        pair_run(&pair);
    pair_close(&pair);
    dibs_close(runtime);
}

static struct trace trace_pairs(enum pair_kind kind, unsigned count)
{
    char command[PATH_MAX + 256];

    snprintf(command, sizeof command, "%s --worker %d --pairs %u --url %s", self, (int)kind, count, bench_url);
    return trace_run(command);
}

static void count_calls(enum pair_kind kind, double out[])
{
    struct trace few = trace_pairs(kind, SHORT_RUN), many = trace_pairs(kind, LONG_RUN);
    double pairs = LONG_RUN - SHORT_RUN;

    out[WRITES] = (many.writes - few.writes) / pairs;
    out[READS] = (many.reads - few.reads) / pairs;
    out[POLLS] = (many.polls - few.polls) / pairs;
    out[FUTEXES] = (many.futexes - few.futexes) / pairs;
    out[OTHERS] = (many.others - few.others) / pairs;
    out[CALLS] = out[WRITES] + out[READS] + out[POLLS] + out[FUTEXES] + out[OTHERS];
}

static void count_allocations(enum pair_kind kind, double out[])
{
    dibs_runtime *runtime = pair_runtime(kind);
    struct pair pair;

    pair_open(&pair, kind, runtime, 0);
    for (unsigned i = 0; i < WARM_UP; i++)
        pair_run(&pair);
    struct allocations before = allocations_now();
    for (unsigned i = 0; i < COUNTED; i++)
        pair_run(&pair);
    struct allocations after = allocations_now();
    out[OWN] = (after.others - before.others) / COUNTED;
    out[IN_HIREDIS] = (after.hiredis - before.hiredis) / COUNTED;
    pair_close(&pair);
    dibs_close(runtime);
}

static void measure(enum pair_kind kind, double out[])
{
    if (traces)
        count_calls(kind, out);
    count_allocations(kind, out);
}

static void measure_plain(const void *unused, double out[])
{
    (void)unused;
    measure(PAIR_PLAIN, out);
}

static void measure_dibs(const void *unused, double out[])
{
    (void)unused;
    measure(PAIR_DIBS, out);
}

static void measure_sleeping(const void *unused, double out[])
{
    (void)unused;
    measure(PAIR_SLEEPING, out);
}

/* Of the calling thread alone: the scheduler does other things meanwhile. */
static void measure_nested(const void *unused, double out[])
{
    dibs_runtime *runtime = bench_open(0);
    struct pair pair;

    (void)unused;
    pair_open(&pair, PAIR_DIBS, runtime, 0);
    must(dibs_lock(runtime, pair.name));
    for (unsigned i = 0; i < WARM_UP; i++)
        pair_run(&pair);
    double before = allocations_now().here;
    for (unsigned i = 0; i < COUNTED; i++)
        pair_run(&pair);
    out[OWN] = (allocations_now().here - before) / COUNTED;
    must(dibs_unlock(runtime, pair.name));
    dibs_close(runtime);
}

/* ------------------------------------------------------------------- tables */

enum { PLAIN, DIBS, SLEEPING, SIDES };

static bool run_pair(void)
{
    static const struct side sides[SIDES] = {
        {"plain hiredis", measure_plain}, {"dibs", measure_dibs}, {"dibs without polling", measure_sleeping}};
    static const struct table table = {"calls", figures, FIGURES, sides, SIDES};
    static struct grid grid;

    if (!rounds_run(&grid, &table, "pair", NULL))
        return false;
    at_most("system calls without polling", grid_ratio(&grid, SLEEPING, CALLS, PLAIN).median, 1.51, "x");
    at_most("allocations other than those of hiredis", grid_value(&grid, DIBS, OWN).median, 5, "");
    return true;
}

static bool run_nested(void)
{
    static const struct side nested = {"dibs", measure_nested};
    static const struct table table = {"calls", figures, FIGURES, &nested, 1};
    static struct grid grid;

    if (!rounds_run(&grid, &table, "nested pair", NULL))
        return false;
    at_most("allocations", grid_value(&grid, 0, OWN).median, 0, "");
    return true;
}

static bool run(void)
{
    bool pair = run_pair();

    return run_nested() && pair;
}

/* ------------------------------------------------------------------ program */

static struct {
    const char *url; /* NULL: this is not a process to be traced */
    unsigned kind, pairs;
} worker;

static int usage(FILE *out, int status)
{
    fputs("Usage: calls [OPTION...]\n"
          "Counts the system calls and allocations of a lone thread, with dibs and with plain "
          "hiredis.\n\n" BENCH_OPTIONS_USAGE,
          out);
    return status;
}

static bool take(int option, const char *argument)
{
    switch (option) {
    case 'w':
        return bench_number(argument, PAIR_PLAIN, PAIR_SLEEPING, &worker.kind);
    case 'p':
        return bench_number(argument, 1, 1000000, &worker.pairs);
    case 'u':
        worker.url = argument;
        return true;
    default:
        return bench_option(option, argument);
    }
}

static void read_options(int argc, char **argv)
{
    static const struct option options[] = {BENCH_OPTIONS,
                                            {"worker", required_argument, NULL, 'w'},
                                            {"pairs", required_argument, NULL, 'p'},
                                            {"url", required_argument, NULL, 'u'},
                                            {0}};

    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (option == 'h')
            exit(usage(stdout, 0));
        if (!take(option, optarg))
            exit(usage(stderr, 2));
    }
    if (optind < argc)
        exit(usage(stderr, 2));
}

static void find_self(const char *name)
{
    if (!realpath("/proc/self/exe", self) && !realpath(name, self))
        snprintf(self, sizeof self, "%s", name);
}

int main(int argc, char **argv)
{
    bench_options.rounds = ROUNDS;
    read_options(argc, argv);
    if (worker.url) {
        bench_join(worker.url);
        run_pairs((enum pair_kind)worker.kind, worker.pairs);
        cleanup_exit(0);
    }
    find_self(argv[0]);
    traces = trace_possible();
    if (!traces)
        puts("system calls are not counted: strace is missing, or may not trace");
    bench_run(run);
}
