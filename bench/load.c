/*
 * How long a lock and unlock takes under load: threads with a name each begin pairs at fixed times, which they do not
 * put off when an earlier pair was slow, so that together they make half of the pairs that the same side makes at its
 * fastest. The time of a pair counts from when it was to begin.
 */
#include <dibs.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__linux__)
#include <sys/prctl.h>
#endif

#include "support/bench.h"
#include "support/common/cleanup.h"
#include "support/common/timing.h"
#include "support/options.h"
#include "support/pair.h"
#include "support/rounds.h"

enum { THREADS_MOST = 256, POLL_US = 500, ROUND_MS = 1000, ROUNDS = 5 };

enum { HIGHEST, MADE, P50, P99, P999, FIGURES };

static const struct figure figures[FIGURES] = {
    [HIGHEST] = {"highest pairs a second", ""},
    [MADE] = {"pairs a second under load", ""},
    [P50] = {"p50 of a pair", "us"},
    [P99] = {"p99 of a pair", "us"},
    [P999] = {"p99.9 of a pair", "us"},
};

/* ------------------------------------------------------------------ threads */

struct worker {
    pthread_t thread;
    struct pair pair;
    unsigned long made; /* pairs, flat out */
    size_t count;       /* of times */
    double *times;      /* ns, of the pairs under load; allocated by the worker, freed by who reads them */
};

/* What the threads of a process are to do; read-only while they do it. */
static struct {
    enum pair_kind kind;
    dibs_runtime *runtime;
    unsigned threads;
    double begin_ns, end_ns, interval_ns; /* under load: between two pairs of a thread */
} plan;

static atomic_bool over;

static void *run_flat_out(void *arg)
{
    struct worker *worker = arg;

    while (!atomic_load_explicit(&over, memory_order_relaxed)) {
        pair_run(&worker->pair);
        worker->made++;
    }
    return NULL;
}

static void sleep_until(double due)
{
    double now = now_ns();

    while (now < due) {
        pause_us((uint64_t)((due - now) / 1e3) + 1);
        now = now_ns();
    }
}

static void *run_on_time(void *arg)
{
    struct worker *worker = arg;
    size_t most = (size_t)((plan.end_ns - plan.begin_ns) / plan.interval_ns) + 1;
    double due = plan.begin_ns + plan.interval_ns * worker->pair.number / plan.threads;

#if defined(__linux__)
    prctl(PR_SET_TIMERSLACK, 1UL);
#endif
    worker->times = calloc(most, sizeof *worker->times);
    while (worker->times && due < plan.end_ns && worker->count < most) {
        sleep_until(due);
        pair_run(&worker->pair);
        worker->times[worker->count++] = now_ns() - due;
        due += plan.interval_ns;
    }
    return NULL;
}

static void start(struct worker *workers, void *(*work)(void *))
{
    for (unsigned i = 0; i < plan.threads; i++)
        workers[i].thread = bench_thread(work, &workers[i]);
}

static void join(struct worker *workers)
{
    for (unsigned i = 0; i < plan.threads; i++)
        pthread_join(workers[i].thread, NULL);
}

/* ----------------------------------------------------------------- one side */

/* Pairs a second. */
static double run_fastest(struct worker *workers)
{
    unsigned long made = 0;
    double begin = now_ns();

    start(workers, run_flat_out);
    pause_us(UINT64_C(500) * bench_options.round_ms);
    atomic_store(&over, true);
    join(workers);
    for (unsigned i = 0; i < plan.threads; i++)
        made += workers[i].made;
    return (double)made / (now_ns() - begin) * 1e9;
}

/* All the times, *count of them, for the caller to free. */
static double *take_times(struct worker *workers, size_t *count)
{
    *count = 0;
    for (unsigned i = 0; i < plan.threads; i++)
        *count += workers[i].count;
    double *all = calloc(*count + 1, sizeof *all), *end = all;
    if (!all)
        cleanup_fail("no memory for the times");
    for (unsigned i = 0; i < plan.threads; i++) {
        memcpy(end, workers[i].times, workers[i].count * sizeof *end);
        end += workers[i].count;
        free(workers[i].times);
    }
    return all;
}

static void run_loaded(struct worker *workers, double out[])
{
    size_t count;

    plan.interval_ns = plan.threads / (out[HIGHEST] / 2) * 1e9;
    plan.begin_ns = now_ns() + 1e6;
    plan.end_ns = plan.begin_ns + bench_options.round_ms * 1e6;
    start(workers, run_on_time);
    join(workers);
    double took = now_ns() - plan.begin_ns, *times = take_times(workers, &count);
    if (count > 0) {
        out[MADE] = (double)count / took * 1e9;
        out[P50] = median(times, count) / 1e3; /* sorts */
        out[P99] = times[count * 99 / 100] / 1e3;
        out[P999] = times[count * 999 / 1000] / 1e3;
    }
    free(times);
}

static void measure(enum pair_kind kind, unsigned threads, double out[])
{
    static struct worker workers[THREADS_MOST];

    plan.kind = kind;
    plan.threads = threads;
    plan.runtime = pair_runtime(kind);
    for (unsigned i = 0; i < threads; i++)
        pair_open(&workers[i].pair, kind, plan.runtime, i);
    out[HIGHEST] = run_fastest(workers);
    if (out[HIGHEST] > 0)
        run_loaded(workers, out);
    for (unsigned i = 0; i < threads; i++)
        pair_close(&workers[i].pair);
    dibs_close(plan.runtime);
}

static void measure_plain(const void *threads, double out[])
{
    measure(PAIR_PLAIN, *(const unsigned *)threads, out);
}

static void measure_dibs(const void *threads, double out[])
{
    measure(PAIR_DIBS, *(const unsigned *)threads, out);
}

static void measure_sleeping(const void *threads, double out[])
{
    measure(PAIR_SLEEPING, *(const unsigned *)threads, out);
}

/* ------------------------------------------------------------------ program */

static unsigned chosen; /* number of threads; 0: those of the table */

static bool run_cell(unsigned threads)
{
    static const struct side sides[] = {
        {"plain hiredis", measure_plain}, {"dibs", measure_dibs}, {"dibs without polling", measure_sleeping}};
    static const struct table table = {"load", figures, FIGURES, sides, sizeof sides / sizeof *sides};
    static struct grid grid;
    char cell[32];

    snprintf(cell, sizeof cell, "%u threads", threads);
    return rounds_run(&grid, &table, cell, &threads);
}

static bool run(void)
{
    static const unsigned table[] = {16, 64};
    bool done = true;

    if (chosen)
        return run_cell(chosen);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        done = run_cell(table[i]) && done;
    return done;
}

static int usage(FILE *out, int status)
{
    fputs("Usage: load [OPTION...]\n"
          "Measures how long a pair takes when half of the highest number of pairs is made.\n\n"
          "  --threads N           only with so many threads\n" BENCH_OPTIONS_USAGE,
          out);
    return status;
}

static void read_options(int argc, char **argv)
{
    static const struct option options[] = {BENCH_OPTIONS, {"threads", required_argument, NULL, 't'}, {0}};

    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (option == 'h')
            exit(usage(stdout, 0));
        if (!(option == 't' ? bench_number(optarg, 1, THREADS_MOST, &chosen) : bench_option(option, optarg)))
            exit(usage(stderr, 2));
    }
    if (optind < argc)
        exit(usage(stderr, 2));
}

int main(int argc, char **argv)
{
    bench_options.rounds = ROUNDS;
    bench_options.round_ms = ROUND_MS;
    read_options(argc, argv);
    bench_run(run);
}
