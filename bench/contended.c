/*
 * What a lock costs that others want as well, against plain hiredis in the same run.
 *
 *   handover    from the call of dibs_unlock in one process to the return of dibs_lock in another that sleeps, against
 *               the floor: a minimal script that releases, grants and publishes to a waiter that blocks in recv(2); for
 *               reference PING, an EVALSHA, and the usual way: release and PUBLISH, then SET NX PX
 *   shares      4 processes of 8 threads on one name: what share of the acquires each process gets
 *   fair        4 processes of 4 threads with DIBS_FAIR: whether all are granted in the order of the queue
 *   idle        1,000 threads that wait for a lock held elsewhere: the commands that this costs
 *
 * Each part runs in processes of its own, which start from nothing. The status is 0 where all could be measured, with
 * right results: a target that is missed is said, and nothing more.
 *
 * The hand-overs and what they are compared with take turns, one by one, each after the same pause, with the waiter
 * asleep: so all meet the same machine, caches and clock rates. There the server has a core of its own, where there are
 * two. A round trip costs half or less where the kernel happens to put client and server on one core, and two clients
 * can't both be there: left to itself, the PINGs are those of a client beside its server, the hand-overs those of
 * clients elsewhere. A server on another machine shares no core with its clients either. --anywhere shows the other.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "contended/part.h"
#include "support/bench.h"
#include "support/common/cleanup.h"
#include "support/cores.h"
#include "support/options.h"
#include "support/team.h"

static const struct part *const parts[] = {&handover_part, &shares_part, &fair_part, &idle_part};

enum { PARTS = sizeof parts / sizeof *parts };

static const struct part *only; /* NULL: all */
static bool anywhere;           /* the server has no core of its own in any part */

static void set_apart(void)
{
    unsigned others = anywhere ? 0 : cores_set_apart(bench_server.pid);

    if (others > 0)
        printf("  the server has a core of its own, its clients have %u other%s\n", others, others > 1 ? "s" : "");
    else
        puts("  the server and its clients run where the system puts them");
}

/* Whether there are figures, and they come from right results. */
static bool run_part(const struct part *part)
{
    void *memory = team_memory(part->memory);

    printf("%s: %s, %s\n", part->name, part->title, bench_transport_name(bench_transport));
    target_of(part->name, bench_transport_name(bench_transport), "all");
    if (part->apart)
        set_apart();
    bool done = team_run(part->processes, part->work, memory, part->limit_s);
    cores_put_back(bench_server.pid);
    if (done)
        part->show(memory);
    bool right = done && (!part->right || part->right(memory));
    if (!right)
        puts(done ? "  a WRONG RESULT" : "  not measured");
    putchar('\n');
    fflush(stdout);
    return right;
}

static int usage(FILE *out, int status)
{
    fputs("Usage: contended [--only PART] [--anywhere] [OPTION...]\n"
          "Measures contended locks on a server of its own.\n\n"
          "  --only PART   runs one part only:\n",
          out);
    for (unsigned i = 0; i < PARTS; i++)
        fprintf(out, "                %-10s %s\n", parts[i]->name, parts[i]->title);
    fputs("  --anywhere    leaves it to the system on which core the server runs\n" BENCH_OPTIONS_USAGE, out);
    return status;
}

static const struct part *find(const char *name)
{
    for (unsigned i = 0; i < PARTS; i++)
        if (strcmp(parts[i]->name, name) == 0)
            return parts[i];
    fprintf(stderr, "contended: there is no part \"%s\"\n", name);
    exit(usage(stderr, 2));
}

static void read_options(int argc, char **argv)
{
    static const struct option options[] = {
        BENCH_OPTIONS, {"only", required_argument, NULL, 'o'}, {"anywhere", no_argument, NULL, 'a'}, {0}};

    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (option == 'h')
            exit(usage(stdout, 0));
        if (option == 'o')
            only = find(optarg);
        else if (option == 'a')
            anywhere = true;
        else if (!bench_option(option, optarg))
            exit(usage(stderr, 2));
    }
    if (optind < argc)
        exit(usage(stderr, 2));
}

static bool run(void)
{
    bool done = true;

    for (unsigned i = 0; i < PARTS; i++)
        if (!only || only == parts[i])
            done = run_part(parts[i]) && done;
    return done;
}

int main(int argc, char **argv)
{
    read_options(argc, argv);
    bench_run(run);
}
