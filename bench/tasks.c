/*
 * What tasks and queues cost.
 *
 * names: 64 tasks on 64 names, driven by one thread with one queue, against 64 threads that block: with dibs, and with
 * plain hiredis on a connection each.
 *
 * enter: entering and leaving a task, and the pair that blocks inside a task, against that of a thread.
 *
 * waiting: 100,000 tasks that wait for 1,000 names which another process holds: threads and memory of the process, and
 * how long it is until all were granted in turn, or cancelled.
 *
 * grants: from a grant to the return of dibs_queue_take, against the return of dibs_lock in a thread.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/bench.h"
#include "support/options.h"
#include "support/pair_side.h"
#include "support/rounds.h"
#include "support/target.h"
#include "tasks/sides.h"

enum { TASKS = 64, WAITING = 100000, WAITED_FOR = 1000 };

static bool measure_names(void)
{
    enum { PLAIN, THREADS, QUEUE, POLLED, SIDES };
    static const struct side sides[SIDES] = {[PLAIN] = {"plain hiredis", pairs_plain},
                                             [THREADS] = {"dibs", pairs_dibs},
                                             [QUEUE] = {"tasks", tasks_one_queue},
                                             [POLLED] = {"tasks and poll", tasks_polled_queue}};
    static const struct table table = {"tasks", pairs_figures, PAIRS_FIGURES, sides, SIDES};
    static struct grid grid;
    const struct pairs_condition condition = {.threads = TASKS};

    if (!rounds_run(&grid, &table, "64 names", &condition))
        return false;
    if (bench_transport == BENCH_TCP)
        at_least("pairs a second of 64 tasks", grid_ratio(&grid, QUEUE, PAIRS_RATE, PLAIN).median, 2.5, "x");
    return true;
}

static bool measure_enter(void)
{
    static const struct side side = {"dibs", tasks_enter};
    static const struct table table = {"tasks-enter", enter_figures, ENTER_FIGURES, &side, 1};
    static struct grid grid;

    if (!rounds_run(&grid, &table, "one thread", NULL))
        return false;
    at_most("enter and leave", grid_value(&grid, 0, ENTER_LEAVE).median, 20, " ns");
    at_most("pair inside a task over that of a thread", grid_value(&grid, 0, ENTER_RATIO).median, 1.05, "x");
    return true;
}

static bool measure_waiting(void)
{
    static const struct side side = {"dibs", tasks_waiting};
    static const struct table table = {"tasks-waiting", waiting_figures, WAITING_FIGURES, &side, 1};
    static struct grid grid;
    const struct waiting_condition condition = {bench_scaled(WAITING), bench_scaled(WAITED_FOR)};

    if (!rounds_run(&grid, &table, "100000 tasks on 1000 names", &condition))
        return false;
    at_most("threads of the process", grid_value(&grid, 0, WAITING_THREADS).high, 6, "");
    at_most("heap for each waiting task", grid_value(&grid, 0, WAITING_BYTES).median, 1536, " bytes");
    at_most("time to cancel all", grid_value(&grid, 0, WAITING_CANCEL).median, 2000, " ms");
    at_most("keys left", grid_value(&grid, 0, WAITING_KEYS).high, 0, "");
    return true;
}

static bool measure_grants(void)
{
    static const struct side side = {"dibs", tasks_grants};
    static const struct table table = {"tasks-grants", grant_figures, GRANT_FIGURES, &side, 1};
    static struct grid grid;

    if (!rounds_run(&grid, &table, "one waiter", NULL))
        return false;
    at_most("dibs_queue_take over dibs_lock", grid_value(&grid, 0, GRANT_RATIO).median, 1.15, "x");
    return true;
}

static bool (*const parts[])(void) = {measure_names, measure_enter, measure_waiting, measure_grants};
static const char *const part_names[] = {"names", "enter", "waiting", "grants"};
enum { PARTS = sizeof parts / sizeof *parts };
static unsigned only = PARTS; /* PARTS: all */

static int usage(FILE *out, int status)
{
    fputs("Usage: tasks [--only names|enter|waiting|grants] [OPTION...]\n"
          "Measures tasks and queues on a server of its own.\n\n"
          "  --only PART           only that part\n" BENCH_OPTIONS_USAGE,
          out);
    return status;
}

static bool choose(const char *name)
{
    for (only = 0; only < PARTS && strcmp(part_names[only], name) != 0;)
        only++;
    return only < PARTS;
}

static void read_options(int argc, char **argv)
{
    static const struct option options[] = {BENCH_OPTIONS, {"only", required_argument, NULL, 'o'}, {0}};

    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (option == 'h')
            exit(usage(stdout, 0));
        if (option == 'o' ? !choose(optarg) : !bench_option(option, optarg))
            exit(usage(stderr, 2));
    }
    if (optind < argc)
        exit(usage(stderr, 2));
}

static bool run(void)
{
    bool done = true;

    for (unsigned i = 0; i < PARTS; i++)
        if (only == PARTS || only == i)
            done = parts[i]() && done;
    return done;
}

int main(int argc, char **argv)
{
    read_options(argc, argv);
    bench_run(run);
}
