/*
 * What a lock costs that nobody else wants: lock and unlock through the store, against plain hiredis, which takes it by
 * SET NX PX and releases it by a Lua script, on a connection for each thread.
 *
 *   pair        one thread: alone, beside busy loops, and with a delay on the wire
 *   threads     1 to 256 threads of one process, each with a name of its own
 *
 * Every side runs in a process of its own, with all that it needs: so what the process uses is what the side costs.
 */
#include <dibs.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/bench.h"
#include "support/delay.h"
#include "support/loops.h"
#include "support/options.h"
#include "support/pair_side.h"
#include "support/rounds.h"
#include "support/target.h"

enum { LOOPS = 2, DELAY_US = 1000 };

/* ---------------------------------------------------------------- the tables */

enum { PLAIN, DIBS, SLEEPING };

static const struct side sides[] = {{"plain hiredis", pairs_plain},
                                    {"dibs", pairs_dibs},
                                    {"dibs without polling", pairs_sleeping},
                                    {"the least with a fence", pairs_least},
                                    {"nobody", pairs_nobody}};

enum { SIDES = sizeof sides / sizeof *sides };

/* -------------------------------------------------------------------- cells */

static bool run_cell(struct grid *grid, const char *name, const char *cell, const struct pairs_condition *condition)
{
    struct table table = {name, pairs_figures, PAIRS_FIGURES, sides, condition->loops ? SIDES : SIDES - 1};

    return rounds_run(grid, &table, cell, condition);
}

static double ratio(const struct grid *grid, unsigned figure)
{
    return grid_ratio(grid, DIBS, figure, PLAIN).median;
}

static bool alone(void)
{
    static struct grid grid;

    if (!run_cell(&grid, "pair", "alone", &(struct pairs_condition){.threads = 1}))
        return false;
    at_most("time of a pair", ratio(&grid, PAIRS_TIME), 0.65, "x");
    at_most("client CPU", ratio(&grid, PAIRS_CLIENT), 1.3, "x");
    return true;
}

static bool beside_loops(unsigned count)
{
    static struct grid grid;
    struct loops *loops = loops_start(count);
    char cell[64];

    snprintf(cell, sizeof cell, "beside %u busy loops", count);
    bool done = run_cell(&grid, "pair", cell, &(struct pairs_condition){.threads = 1, .loops = loops});
    loops_stop(loops);
    if (!done)
        return false;
    at_most("time of a pair", ratio(&grid, PAIRS_TIME), 1.05, "x");
    at_least("turns of the busy loops", ratio(&grid, PAIRS_TURNS), 0.98, "x");
    return true;
}

/* So late is a reply; half of the delay lies on the way of the command. */
static bool over_long_wire(unsigned delay_us)
{
    static struct grid grid;
    struct wire wire = {.server_path = bench_transport == BENCH_TCP ? NULL : bench_server.socket_path,
                        .server_port = bench_tcp_port};
    char cell[64];

    snprintf(cell, sizeof cell, "with %u us on the wire", delay_us);
    delay_start(&wire, 1, delay_us / 2);
    bench_use_url(wire.url);
    bool done = run_cell(&grid, "pair", cell, &(struct pairs_condition){.threads = 1});
    delay_stop();
    bench_use(bench_transport);
    if (!done)
        return false;
    at_most("time of a pair", ratio(&grid, PAIRS_TIME), 1.02, "x");
    at_most("client CPU over that without polling", grid_ratio(&grid, DIBS, PAIRS_CLIENT, SLEEPING).median, 1.1, "x");
    return true;
}

/* What a number of threads is to reach: pairs a second over those of plain hiredis. 0: the table "pair" has the target.
 */
static double wanted(unsigned threads)
{
    if (threads < 2)
        return 0;
    if (threads < 16)
        return 1.0;
    if (threads < 64)
        return bench_transport == BENCH_TCP ? 1.2 : 1.1;
    return bench_transport == BENCH_TCP ? 1.4 : 1.1;
}

static bool threads(unsigned count)
{
    static struct grid grid;
    char cell[32];

    snprintf(cell, sizeof cell, "%u thread%s", count, count == 1 ? "" : "s");
    if (!run_cell(&grid, "threads", cell, &(struct pairs_condition){.threads = count}))
        return false;
    if (wanted(count) > 0) {
        at_least("pairs a second", ratio(&grid, PAIRS_RATE), wanted(count), "x");
        at_most("client CPU", ratio(&grid, PAIRS_CLIENT), 1.0, "x");
    }
    at_most("server CPU", ratio(&grid, PAIRS_SERVER), 2, "x");
    at_most("connections", grid_value(&grid, DIBS, PAIRS_CONNECTIONS).high, 5, "");
    return true;
}

/* ------------------------------------------------------------------ program */

static unsigned chosen[32], choices; /* numbers of threads; none: those of the tables */
static bool with_loops, with_delay, only_pair, only_threads;
static unsigned loop_count = LOOPS, delay_us = DELAY_US;

static int usage(FILE *out, int status)
{
    fputs("Usage: pairs [pair|threads] [OPTION...]\n"
          "Measures locks that nobody else wants against plain hiredis, on a server of its own.\n\n"
          "  pair, threads         only that table\n"
          "  --threads N[,N...]    only with so many threads, without the table \"pair\"\n"
          "  --loops N             only one thread beside so many busy loops\n"
          "  --delay-us N          only one thread, whose replies are so late\n" BENCH_OPTIONS_USAGE,
          out);
    return status;
}

static bool read_threads(char *list)
{
    for (char *word = strtok(list, ","); word; word = strtok(NULL, ","))
        if (choices == sizeof chosen / sizeof *chosen || !bench_number(word, 1, PAIRS_THREADS_MOST, &chosen[choices++]))
            return false;
    return choices > 0;
}

static bool take(int option, char *argument)
{
    if (option == 't')
        return read_threads(argument);
    if (option == 'd') {
        with_delay = true;
        return bench_number(argument, 1, 1000000, &delay_us);
    }
    if (option != 'l')
        return bench_option(option, argument);
    with_loops = true;
    return bench_number(argument, 1, LOOPS_MOST, &loop_count);
}

static void read_options(int argc, char **argv)
{
    static const struct option options[] = {BENCH_OPTIONS,
                                            {"threads", required_argument, NULL, 't'},
                                            {"loops", required_argument, NULL, 'l'},
                                            {"delay-us", required_argument, NULL, 'd'},
                                            {0}};

    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (option == 'h')
            exit(usage(stdout, 0));
        if (!take(option, optarg))
            exit(usage(stderr, 2));
    }
    for (; optind < argc; optind++) {
        bool pair = strcmp(argv[optind], "pair") == 0;
        if (!pair && strcmp(argv[optind], "threads") != 0)
            exit(usage(stderr, 2));
        only_pair = only_pair || pair;
        only_threads = only_threads || !pair;
    }
}

static bool run_tables(void)
{
    static const unsigned table[] = {1, 2, 4, 16, 64, 256};
    bool done = true;

    if (!only_threads) {
        done = alone() && done;
        done = beside_loops(loop_count) && done;
        done = over_long_wire(delay_us) && done;
    }
    for (size_t i = 0; !only_pair && i < sizeof table / sizeof *table; i++)
        done = threads(table[i]) && done;
    return done;
}

static bool run(void)
{
    bool done = true;

    if (!choices && !with_loops && !with_delay)
        return run_tables();
    for (unsigned i = 0; i < choices; i++)
        done = threads(chosen[i]) && done;
    if (with_loops)
        done = beside_loops(loop_count) && done;
    if (with_delay)
        done = over_long_wire(delay_us) && done;
    return done;
}

int main(int argc, char **argv)
{
    read_options(argc, argv);
    bench_run(run);
}
