/*
 * Whether dibs polls for replies where that pays, and sleeps where it does not: lock and unlock by one thread, against
 * plain hiredis, in places of both kinds. Beside it stand dibs that never polls and, to see what polling can bring
 * there, plain hiredis that always polls before it sleeps.
 *
 * A rule that is right in most rounds is wrong: what counts is the worst round, not the median.
 */
#include <stdio.h>

#include "support/bench.h"
#include "support/cores.h"
#include "support/delay.h"
#include "support/loops.h"
#include "support/options.h"
#include "support/pair_side.h"
#include "support/rounds.h"
#include "support/target.h"

enum { ROUNDS = 10, DELAY_US = 1000, LOOPS = 2 };

enum { PLAIN, DIBS, SLEEPING, POLLING, SIDES };

static const struct side sides[SIDES] = {{"plain hiredis", pairs_plain},
                                         {"dibs", pairs_dibs},
                                         {"dibs without polling", pairs_sleeping},
                                         {"hiredis that polls", pairs_polling}};

static void show_worst(const struct grid *grid, const char *what, unsigned figure)
{
    printf("  %-32s %18s", what, "");
    for (unsigned side = DIBS; side < SIDES; side++)
        printf("           %5.2fx              ", grid_worst(grid, side, figure, PLAIN));
    putchar('\n');
}

/* time_limit: what the time of a pair may be in the worst round, over that of plain hiredis. */
static bool measure(const char *cell, double time_limit, const struct loops *loops)
{
    static struct grid grid;
    const struct table table = {"polling", pairs_figures, PAIRS_FIGURES, sides, SIDES};
    const struct pairs_condition condition = {.threads = 1, .loops = loops};

    if (!rounds_run(&grid, &table, cell, &condition))
        return false;
    show_worst(&grid, "worst round: time of a pair", PAIRS_TIME);
    show_worst(&grid, "worst round: client CPU", PAIRS_CLIENT);
    at_most("time of a pair in the worst round", grid_worst(&grid, DIBS, PAIRS_TIME, PLAIN), time_limit, "x");
    at_most("client CPU in the worst round", grid_worst(&grid, DIBS, PAIRS_CLIENT, PLAIN), 1.3, "x");
    if (time_limit > 1)
        at_most("time over that without polling", grid_ratio(&grid, DIBS, PAIRS_TIME, SLEEPING).median, 1.05, "x");
    return true;
}

static bool where_it_pays(const char *cell)
{
    return measure(cell, 0.65, NULL);
}

static bool where_it_does_not(const char *cell, const struct loops *loops)
{
    return measure(cell, 1.05, loops);
}

/* --------------------------------------------------------------- the places */

static bool on_cores(void)
{
    bool done = true;

    if (cores_set_apart(bench_server.pid) > 0) {
        done = where_it_pays("the server on a core of its own");
        cores_put_back(bench_server.pid);
    }
    if (cores_set_together(bench_server.pid)) {
        done = where_it_does_not("client and server on one core", NULL) && done;
        cores_put_back(bench_server.pid);
    }
    return done;
}

static bool beside_loops(unsigned count)
{
    struct loops *loops = loops_start(count);
    char cell[64];

    snprintf(cell, sizeof cell, "beside %u busy loop%s", count, count == 1 ? "" : "s");
    bool done = where_it_does_not(cell, loops);
    loops_stop(loops);
    return done;
}

static bool over_long_wire(void)
{
    struct wire wire = {.server_path = bench_transport == BENCH_TCP ? NULL : bench_server.socket_path,
                        .server_port = bench_tcp_port};

    delay_start(&wire, 1, DELAY_US / 2);
    bench_use_url(wire.url);
    bool done = where_it_does_not("with 1 ms on the wire", NULL);
    delay_stop();
    bench_use(bench_transport);
    return done;
}

static bool run(void)
{
    bool done = where_it_pays("alone");

    done = on_cores() && done;
    for (unsigned count = 1; count <= LOOPS; count++)
        done = beside_loops(count) && done;
    return over_long_wire() && done;
}

int main(int argc, char **argv)
{
    bench_options.rounds = ROUNDS;
    bench_read_options(argc, argv, "Usage: polling [OPTION...]\nMeasures where polling for replies pays.\n\n");
    bench_run(run);
}
