/*
 * What an uncontended lock costs on five masters, one of them not well, against five that are: the first, the one in
 * the middle or the last in the order of the URLs
 *
 *   refuses       its server was killed: connections are refused
 *   is silent     its server is stopped: connections are accepted, and nothing is said
 *   is slow       every reply is 200 ms late
 *
 * The old client had connected to all five before; the new one connects afterwards. One thread takes names in turn, by
 * dibs_lock and by dibs_trylock. What counts is the median, and that no call takes longer than one command timeout.
 */
#include <dibs.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/bench.h"
#include "support/common/cleanup.h"
#include "support/common/redis_process.h"
#include "support/common/timing.h"
#include "support/delay.h"
#include "support/options.h"
#include "support/rounds.h"
#include "support/target.h"

enum { MASTERS = 5, SLOW_US = 200000, WELL_US = 1, NAMES = 16, CALLS_MOST = 100000, WARM_UP = 10 * NAMES };
enum { TIMEOUT_MS = 1000, SETTLE_US = 300000, PORT_TRIES = 3 };

enum fault { REFUSES, IS_SILENT, IS_SLOW, FAULTS };

struct condition {
    char name[32];
    size_t master;
    enum fault fault;
};

enum figure_number { OPEN, LOCK, LOCK_MOST, UNLOCK, UNLOCK_MOST, TRY, TRY_MOST, FIGURES };

static const struct figure figures[FIGURES] = {
    [OPEN] = {"dibs_open", "ms"},
    [LOCK] = {"dibs_lock", "us"},
    [LOCK_MOST] = {"longest dibs_lock", "ms"},
    [UNLOCK] = {"dibs_unlock", "us"},
    [UNLOCK_MOST] = {"longest dibs_unlock", "ms"},
    [TRY] = {"dibs_trylock", "us"},
    [TRY_MOST] = {"longest dibs_trylock", "ms"},
};

/* ------------------------------------------------------------------- masters */

/* Of the process that measures one side. */
static struct private_redis masters[MASTERS];
static struct wire wire; /* to the slow master */
static char urls[MASTERS][sizeof wire.url];

static int start_master(struct private_redis *master)
{
    char config[64];

    for (int i = 0; i < PORT_TRIES; i++) {
        int port = free_port();
        snprintf(config, sizeof config, "port %d\nbind 127.0.0.1\n", port);
        if (port > 0 && private_redis_start_with(master, config))
            return port;
    }
    cleanup_exit(2);
}

static void start_masters(const struct condition *condition)
{
    for (size_t i = 0; i < MASTERS; i++) {
        int port = start_master(&masters[i]);
        snprintf(urls[i], sizeof urls[i], "redis://127.0.0.1:%d", port);
        if (i != condition->master || condition->fault != IS_SLOW)
            continue;
        wire = (struct wire){.server_port = port};
        delay_start(&wire, 1, WELL_US);
        memcpy(urls[i], wire.url, sizeof urls[i]);
    }
}

static void harm(const struct condition *condition)
{
    pid_t pid = masters[condition->master].pid;

    if (condition->fault == IS_SLOW)
        delay_change(SLOW_US / 2);
    else
        kill(pid, condition->fault == REFUSES ? SIGKILL : SIGSTOP);
}

static void stop_masters(const struct condition *condition)
{
    if (condition->fault == IS_SLOW)
        delay_stop();
    else
        kill(masters[condition->master].pid, SIGKILL);
    for (size_t i = 0; i < MASTERS; i++)
        private_redis_stop(&masters[i]);
}

/* --------------------------------------------------------------------- calls */

/* Times in us. */
static double locks[CALLS_MOST], unlocks[2 * CALLS_MOST], tries[CALLS_MOST];

static double timed(dibs_status (*call)(dibs_runtime *runtime, const char *name), dibs_runtime *runtime,
                    const char *name)
{
    double began = now_ns();

    must(call(runtime, name));
    return (now_ns() - began) / 1e3;
}

/* Sorts the values, in us. */
static double longest_ms(double *values, size_t count)
{
    percentile(values, count, 0);
    return values[count - 1] / 1e3;
}

static size_t run_calls(dibs_runtime *runtime, double until_ns, size_t least)
{
    char name[32];
    size_t count = 0;

    while (count < CALLS_MOST && (count < least || now_ns() < until_ns)) {
        snprintf(name, sizeof name, "minority:%zu", count % NAMES);
        locks[count] = timed(dibs_lock, runtime, name);
        unlocks[2 * count] = timed(dibs_unlock, runtime, name);
        tries[count] = timed(dibs_trylock, runtime, name);
        unlocks[2 * count + 1] = timed(dibs_unlock, runtime, name);
        count++;
    }
    return count;
}

static dibs_runtime *open_all(double *took_ms)
{
    const char *at[MASTERS];
    dibs_runtime *runtime;
    double began = now_ns();

    for (size_t i = 0; i < MASTERS; i++)
        at[i] = urls[i];
    must(dibs_open(&runtime, &(dibs_config){.urls = at, .url_count = MASTERS, .command_timeout_ms = TIMEOUT_MS}));
    *took_ms = (now_ns() - began) / 1e6;
    return runtime;
}

static void measure_calls(dibs_runtime *runtime, double out[])
{
    size_t count = run_calls(runtime, now_ns() + bench_options.round_ms * 1e6, 1);

    out[LOCK_MOST] = longest_ms(locks, count);
    out[LOCK] = median(locks, count);
    out[UNLOCK_MOST] = longest_ms(unlocks, 2 * count);
    out[UNLOCK] = median(unlocks, 2 * count);
    out[TRY_MOST] = longest_ms(tries, count);
    out[TRY] = median(tries, count);
}

/* --------------------------------------------------------------------- sides */

static void measure(const struct condition *condition, bool is_harmed, bool is_new, double out[])
{
    start_masters(condition);
    dibs_runtime *first = open_all(&out[OPEN]), *runtime = first;
    run_calls(first, 0, WARM_UP);
    pause_us(SETTLE_US);
    if (is_harmed)
        harm(condition);
    if (is_new)
        runtime = open_all(&out[OPEN]);
    measure_calls(runtime, out);
    if (is_new)
        dibs_close(runtime);
    dibs_close(first);
    stop_masters(condition);
}

static void measure_well(const void *condition, double out[])
{
    measure(condition, false, false, out);
}

static void measure_old(const void *condition, double out[])
{
    measure(condition, true, false, out);
}

static void measure_new(const void *condition, double out[])
{
    measure(condition, true, true, out);
}

/* -------------------------------------------------------------------- cells */

enum { WELL, OLD, NEW, SIDES };

static const struct side sides[SIDES] = {
    {"five that are well", measure_well}, {"old client", measure_old}, {"new client", measure_new}};

static void look_at(const struct grid *grid, unsigned side)
{
    char what[64];

    for (unsigned figure = LOCK; figure < FIGURES; figure++) {
        snprintf(what, sizeof what, "%s: %s", sides[side].name, figures[figure].name);
        if (figure == LOCK || figure == UNLOCK || figure == TRY)
            at_most(what, grid_ratio(grid, side, figure, WELL).median, 1.2, "x");
        else
            at_most(what, grid_value(grid, side, figure).high, TIMEOUT_MS, "ms");
    }
}

static bool run_cell(struct condition *condition)
{
    static const struct table table = {"minority", figures, FIGURES, sides, SIDES};
    static struct grid grid;

    if (!rounds_run(&grid, &table, condition->name, condition))
        return false;
    look_at(&grid, OLD);
    look_at(&grid, NEW);
    return true;
}

/* ------------------------------------------------------------------ program */

static const char *only; /* NULL: all cells */

static bool run(void)
{
    static const char *const places[] = {"first", "middle", "last"};
    static const char *const faults[FAULTS] = {"refuses", "is silent", "is slow"};
    static struct condition conditions[3 * FAULTS];
    bool good = true;

    for (size_t i = 0; i < sizeof conditions / sizeof *conditions; i++) {
        struct condition *condition = &conditions[i];
        *condition = (struct condition){.master = i / FAULTS * (MASTERS / 2), .fault = (enum fault)(i % FAULTS)};
        snprintf(condition->name, sizeof condition->name, "%s %s", places[i / FAULTS], faults[i % FAULTS]);
        bool chosen = only ? strstr(condition->name, only) != NULL : !bench_options.quick || condition->master == 0;
        if (chosen)
            good = run_cell(condition) && good;
    }
    return good;
}

static int usage(FILE *out, int status)
{
    fputs("Usage: minority [OPTION...]\n"
          "Measures locks that nobody else wants on five masters, one of them not well.\n\n"
          "  --only TEXT           the cells whose names contain the text, such as silent, or "
          "first\n" BENCH_OPTIONS_USAGE,
          out);
    return status;
}

static void read_options(int argc, char **argv)
{
    static const struct option options[] = {BENCH_OPTIONS, {"only", required_argument, NULL, 'o'}, {0}};

    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (option == 'h')
            exit(usage(stdout, 0));
        if (option == 'o')
            only = optarg;
        else if (!bench_option(option, optarg))
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
