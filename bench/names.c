/*
 * What several locks cost at once, against one: dibs_lock_names and dibs_unlock_names of 1, 64 and 1,024 names that are
 * free, and 64 names one after the other; on the machine itself, and with a delay on the wire. The 64 names are the
 * same each time, which the process gave up a moment ago, or others. The table names-floor has what programs that do
 * nothing else need for the commands.
 */
#include <dibs.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "names/floor.h"
#include "support/bench.h"
#include "support/common/cleanup.h"
#include "support/common/timing.h"
#include "support/delay.h"
#include "support/options.h"
#include "support/rounds.h"
#include "support/target.h"

enum { SOME = 64, MANY = DIBS_NAMES_MAX, GROUPS = 400, CALLS_MOST = 20000, WARM_UP = 20, DELAY_US = 1000 };

enum figure_number { ONE, TOGETHER, OTHERS, ONE_BY_ONE, ALL, ONE_BACK, TOGETHER_BACK, ALL_BACK, FIGURES };

static const struct figure figures[FIGURES] = {
    [ONE] = {"lock one", "us"},
    [TOGETHER] = {"lock 64 together", "us"},
    [OTHERS] = {"lock 64 others together", "us"},
    [ONE_BY_ONE] = {"lock 64 one by one", "us"},
    [ALL] = {"lock 1024 together", "us"},
    [ONE_BACK] = {"unlock one", "us"},
    [TOGETHER_BACK] = {"unlock 64 together", "us"},
    [ALL_BACK] = {"unlock 1024 together", "us"},
};

static char texts[MANY][24], other_texts[GROUPS * SOME][24];
static const char *names[MANY], *other_names[GROUPS * SOME];

static double locked[CALLS_MOST], unlocked[CALLS_MOST];

/* ------------------------------------------------------------------- the calls */

static void run_names(dibs_runtime *runtime, const char *const *wanted, size_t count, size_t call)
{
    double began = now_ns();

    must(dibs_lock_names(runtime, wanted, count, 10000, NULL));
    double held = now_ns();
    must(dibs_unlock_names(runtime, wanted, count));
    locked[call] = (held - began) / 1e3;
    unlocked[call] = (now_ns() - held) / 1e3;
}

static void run_one(dibs_runtime *runtime, size_t call)
{
    double began = now_ns();

    must(dibs_lock(runtime, names[0]));
    double held = now_ns();
    must(dibs_unlock(runtime, names[0]));
    locked[call] = (held - began) / 1e3;
    unlocked[call] = (now_ns() - held) / 1e3;
}

static void run_some(dibs_runtime *runtime, size_t call)
{
    run_names(runtime, names, SOME, call);
}

/* One group of names after the other, so that none was given up a moment ago. */
static void run_others(dibs_runtime *runtime, size_t call)
{
    run_names(runtime, &other_names[call % GROUPS * SOME], SOME, call);
}

static void run_all(dibs_runtime *runtime, size_t call)
{
    run_names(runtime, names, MANY, call);
}

static void run_one_by_one(dibs_runtime *runtime, size_t call)
{
    double began = now_ns();

    for (size_t i = 0; i < SOME; i++)
        must(dibs_lock(runtime, names[i]));
    locked[call] = (now_ns() - began) / 1e3;
    must(dibs_unlock_names(runtime, names, SOME));
}

/* The medians, in us. So many calls at first do not count. */
static void measure_calls(dibs_runtime *runtime, void (*run_call)(dibs_runtime *runtime, size_t call), size_t warm_up,
                          double *lock, double *unlock)
{
    size_t calls = 0;

    for (size_t i = 0; i < warm_up; i++)
        run_call(runtime, i);
    double until = now_ns() + bench_options.round_ms * 1e6 / 4;
    while (calls < CALLS_MOST && (calls < 3 || now_ns() < until))
        run_call(runtime, calls++);
    *lock = median(locked, calls);
    if (unlock)
        *unlock = median(unlocked, calls);
}

static void make_names(void)
{
    for (int i = 0; i < MANY; i++) {
        snprintf(texts[i], sizeof texts[i], "account:%d", i * 7 % MANY);
        names[i] = texts[i];
    }
    for (int i = 0; i < GROUPS * SOME; i++) {
        snprintf(other_texts[i], sizeof other_texts[i], "other:%d:%d", i / SOME, i * 7 % SOME);
        other_names[i] = other_texts[i];
    }
}

static void measure(const void *condition, double out[])
{
    dibs_runtime *runtime = bench_open(0);

    (void)condition;
    make_names();
    measure_calls(runtime, run_one, WARM_UP, &out[ONE], &out[ONE_BACK]);
    measure_calls(runtime, run_some, WARM_UP, &out[TOGETHER], &out[TOGETHER_BACK]);
    measure_calls(runtime, run_others, bench_scaled(GROUPS), &out[OTHERS], NULL);
    measure_calls(runtime, run_one_by_one, WARM_UP, &out[ONE_BY_ONE], NULL);
    measure_calls(runtime, run_all, WARM_UP, &out[ALL], &out[ALL_BACK]);
    dibs_close(runtime);
}

static const struct side side = {"dibs", measure};

/* -------------------------------------------------------------------- the cells */

static bool run_cell(const char *cell, bool counts_all)
{
    static const struct table table = {"names", figures, FIGURES, &side, 1};
    static struct grid grid;

    if (!rounds_run(&grid, &table, cell, NULL))
        return false;
    double one = grid_value(&grid, 0, ONE).median;
    at_most("64 names against one", grid_value(&grid, 0, TOGETHER).median / one, 6, "x");
    at_most("64 other names against one", grid_value(&grid, 0, OTHERS).median / one, 6, "x");
    if (counts_all)
        at_most("1024 names", grid_value(&grid, 0, ALL).median / 1e3, 50, "ms");
    return true;
}

/* So late is a reply; half of the delay lies on the way of the command. */
static bool run_over_long_wire(void)
{
    struct wire wire = {.server_path = bench_transport == BENCH_TCP ? NULL : bench_server.socket_path,
                        .server_port = bench_tcp_port};

    delay_start(&wire, 1, DELAY_US / 2);
    bench_use_url(wire.url);
    bool done = run_cell("free names with 1 ms on the wire", false);
    delay_stop();
    bench_use(bench_transport);
    return done;
}

static bool run_floors(void)
{
    static const int count = SOME;
    static struct grid grid;

    return rounds_run(&grid, &names_floor, "floors of free names", &count);
}

static bool run(void)
{
    bool done = run_cell("free names", bench_transport == BENCH_UNIX), floors = run_floors();

    return run_over_long_wire() && floors && done;
}

int main(int argc, char **argv)
{
    bench_read_options(argc, argv,
                       "Usage: names [OPTION...]\n"
                       "Measures several locks at once against one.\n\n");
    bench_run(run);
}
