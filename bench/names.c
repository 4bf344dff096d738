/*
 * What several locks cost at once, against one: dibs_lock_names and dibs_unlock_names of 1, 64 and 1,024 names that are
 * free, and 64 names one after the other; on the machine itself, and with a delay on the wire.
 */
#include <dibs.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/bench.h"
#include "support/common/cleanup.h"
#include "support/common/timing.h"
#include "support/delay.h"
#include "support/options.h"
#include "support/rounds.h"
#include "support/target.h"

enum { SOME = 64, MANY = DIBS_NAMES_MAX, CALLS_MOST = 20000, WARM_UP = 20, DELAY_US = 1000 };

enum figure_number { ONE, TOGETHER, ONE_BY_ONE, ALL, ONE_BACK, TOGETHER_BACK, ALL_BACK, FIGURES };

static const struct figure figures[FIGURES] = {
    [ONE] = {"lock one", "us"},
    [TOGETHER] = {"lock 64 together", "us"},
    [ONE_BY_ONE] = {"lock 64 one by one", "us"},
    [ALL] = {"lock 1024 together", "us"},
    [ONE_BACK] = {"unlock one", "us"},
    [TOGETHER_BACK] = {"unlock 64 together", "us"},
    [ALL_BACK] = {"unlock 1024 together", "us"},
};

static char texts[MANY][24];
static const char *names[MANY];

static double locked[CALLS_MOST], unlocked[CALLS_MOST];

static void run_once(dibs_runtime *runtime, size_t count, size_t call)
{
    double began = now_ns();

    must(count == 1 ? dibs_lock(runtime, names[0]) : dibs_lock_names(runtime, names, count, 10000, NULL));
    double held = now_ns();
    must(count == 1 ? dibs_unlock(runtime, names[0]) : dibs_unlock_names(runtime, names, count));
    locked[call] = (held - began) / 1e3;
    unlocked[call] = (now_ns() - held) / 1e3;
}

static void run_one_by_one(dibs_runtime *runtime, size_t call)
{
    double began = now_ns();

    for (size_t i = 0; i < SOME; i++)
        must(dibs_lock(runtime, names[i]));
    locked[call] = (now_ns() - began) / 1e3;
    must(dibs_unlock_names(runtime, names, SOME));
}

/* The medians, in us. */
static void measure_calls(dibs_runtime *runtime, size_t count, bool one_by_one, double *lock, double *unlock)
{
    double until = 0;
    size_t calls = 0;

    for (size_t i = 0; i < WARM_UP; i++)
        run_once(runtime, count, 0);
    until = now_ns() + bench_options.round_ms * 1e6 / 4;
    while (calls < CALLS_MOST && (calls < 3 || now_ns() < until)) {
        if (one_by_one)
            run_one_by_one(runtime, calls++);
        else
            run_once(runtime, count, calls++);
    }
    *lock = median(locked, calls);
    if (unlock)
        *unlock = median(unlocked, calls);
}

static void measure(const void *condition, double out[])
{
    dibs_runtime *runtime = bench_open(0);

    (void)condition;
    for (int i = 0; i < MANY; i++) {
        snprintf(texts[i], sizeof texts[i], "account:%d", i * 7 % MANY);
        names[i] = texts[i];
    }
    measure_calls(runtime, 1, false, &out[ONE], &out[ONE_BACK]);
    measure_calls(runtime, SOME, false, &out[TOGETHER], &out[TOGETHER_BACK]);
    measure_calls(runtime, SOME, true, &out[ONE_BY_ONE], NULL);
    measure_calls(runtime, MANY, false, &out[ALL], &out[ALL_BACK]);
    dibs_close(runtime);
}

static const struct side side = {"dibs", measure};

static bool run_cell(const char *cell, bool counts_all)
{
    static const struct table table = {"names", figures, FIGURES, &side, 1};
    static struct grid grid;

    if (!rounds_run(&grid, &table, cell, NULL))
        return false;
    at_most("64 names against one", grid_value(&grid, 0, TOGETHER).median / grid_value(&grid, 0, ONE).median, 6, "x");
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

static bool run(void)
{
    bool done = run_cell("free names", bench_transport == BENCH_UNIX);

    return run_over_long_wire() && done;
}

int main(int argc, char **argv)
{
    bench_read_options(argc, argv,
                       "Usage: names [OPTION...]\n"
                       "Measures several locks at once against one.\n\n");
    bench_run(run);
}
