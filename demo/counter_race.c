/*
 * A counter that must stop at ten, and a hundred threads that raise it.
 *
 * Every thread gets into the lock once. Inside it reads the counter (GET); if
 * that is ten already it leaves at once; else it does its work (10 ms) and
 * raises the counter (INCR). So the lock alone keeps it from passing ten.
 *
 * Work may take longer than the lease (50 ms). At each of five points a thread
 * that works is held up for 15 ms more, by chance (85 %), as it might be by a
 * page fault, a garbage collector or a slow reply: at four points between
 * reading and raising the counter, and at one in the middle of releasing,
 * before the command that deletes the lock (where GET compares first: behind
 * it). Three delays before the counter is raised outlast the lease. All ways
 * get the same treatment; the delays are sleeps, drawn from a seeded generator,
 * and nothing else is arranged.
 *
 * The ways are four of demo/ways:
 *   del      SET NX PX; DEL. Retries every 10 ms.
 *   compare  SET NX PX; GET, compare with the owner's token, DEL. The same.
 *   script   SET NX PX; the comparison and the DEL in one Lua script. The same.
 *   dibs     dibs_lock, dibs_check before the counter is raised, dibs_unlock;
 *            a thread that lost its lease does not raise the counter.
 *
 * Shown for each: the counter at the end of each round, how many threads were
 * inside at once at most, how many holds lasted longer than the lease, how
 * many releases deleted a lock that belonged to another. That last number is
 * known from the value that the same transaction or script saw; for dibs, an
 * unlock that says it released while another thread was inside counts.
 *
 * Exit status: 0 if dibs stopped at ten in every round and every other way
 * passed it in at least one; 1 if not; 2 if the race could not be run.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "race/bars.h"
#include "race/count.h"
#include "race/options.h"
#include "race/race.h"
#include "ways/ways.h"

enum { LIMIT = 10 };

static const struct entry {
    const char *name;
    const char *way; /* of demo/ways */
} entries[] = {{"del", "set-del"}, {"compare", "compare-del"}, {"script", "script"}, {"dibs", "dibs"}};
enum { WAY_COUNT = sizeof entries / sizeof *entries };

/* Read-only once the command line is read. */
static struct options {
    struct race_options race;
    unsigned rounds;
    const char *way; /* NULL: all */
    const char *svg; /* NULL: no picture */
} options = {.race = {.processes = 1,
                      .threads = 100,
                      .lease_ms = 50,
                      .work_ms = 10,
                      .delay_ms = 15,
                      .chance = 85,
                      .limit = LIMIT,
                      .patience_ms = 3600000},
             .rounds = 5};

/* --------------------------------------------------------------- the table */

static int counts_width(void)
{
    int width = (int)options.rounds * 3 + 1;

    return width > 20 ? width : 20;
}

static void print_head(void)
{
    printf("%u threads raise a counter that must stop at %d.\n", options.race.threads, LIMIT);
    printf("Lease %u ms, work %u ms, at each of %d points %u ms more with a chance of %u %%. Seed %llu.\n\n",
           options.race.lease_ms, options.race.work_ms, STALLS_INSIDE + 1, options.race.delay_ms, options.race.chance,
           (unsigned long long)options.race.seed);
    printf("%-31s  %-*s  %8s  %9s  %9s\n", "", counts_width(), "", "most", "outlasted", "deleted");
    printf("%-31s  %-*s  %8s  %9s  %9s  %7s\n", "way", counts_width(), "count, each round", "inside", "the lease",
           "another's", "time");
    fflush(stdout);
}

static void print_outcome(const struct way *way, const struct tally *tally)
{
    int width = 0;

    printf("%-31s  ", way->title);
    for (unsigned i = 0; i < options.rounds; i++)
        width += printf("%2lld ", tally->counts[i]);
    printf("%*s  %8u  %9u  %9u  %5.1f s\n", counts_width() - width, "", tally->most, tally->outlasted, tally->deleted,
           tally->seconds);
    if (tally->noticed > 0)
        printf("%-31s  %u leases were lost and noticed: the machine kept the process from renewing them\n", "",
               tally->noticed);
    fflush(stdout);
}

/* Whether the way did what this demo says it does; says so on stderr if not. */
static bool as_expected(const struct way *way, const struct tally *tally)
{
    bool passed = false, exact = true;

    for (unsigned i = 0; i < options.rounds; i++) {
        passed |= tally->counts[i] > LIMIT;
        exact &= tally->counts[i] == LIMIT;
    }
    if (way->sound && !exact)
        fprintf(stderr, "%s: the counter did not stop at %d in every round\n", way->title, LIMIT);
    if (!way->sound && !passed)
        fprintf(stderr, "%s: the counter never passed %d\n", way->title, LIMIT);
    return way->sound ? exact : passed;
}

/* ------------------------------------------------------------ command line */

static noreturn void usage(int status)
{
    fprintf(status ? stderr : stdout,
            "usage: counter_race [options]\n"
            "\n"
            "A counter in Redis must stop at %d. Every thread gets into a lock once; inside it reads the counter and,\n"
            "if that is below %d, works and raises it. At each of %d points, %d between reading and raising and one\n"
            "amid releasing, it is held up for a while by chance, so that work may outlast the lease. The lock is\n"
            "taken in four ways: three with bare Redis commands, and dibs.\n"
            "\n"
            "  --rounds N     of each way (5)\n"
            "  --threads N    (100)\n"
            "  --lease MS     (50)\n"
            "  --work MS      (10)\n"
            "  --delay MS     how long a thread is held up at a point (15)\n"
            "  --chance PCT   and how likely (85)\n"
            "  --seed N       of the chance (the time)\n"
            "  --way NAME     del, compare, script or dibs only (all of them)\n"
            "  --svg FILE     draws the first round of each way\n"
            "  --help\n"
            "\n"
            "Uses the Redis server of $DIBS_URL, else starts one of its own on a Unix socket.\n"
            "Exit status: 0 if dibs stopped at %d in every round and the others each passed it, 1 if not.\n",
            LIMIT, LIMIT, STALLS_INSIDE + 1, STALLS_INSIDE, LIMIT);
    exit(status);
}

static const char *known_way(const char *name)
{
    for (size_t i = 0; i < WAY_COUNT; i++)
        if (strcmp(entries[i].name, name) == 0)
            return name;
    fprintf(stderr, "--way: del, compare, script or dibs, not \"%s\"\n", name);
    exit(2);
}

/* Options that are a number. */
static const struct number_option numbers[] = {
    {"rounds", &options.rounds, 1, ROUNDS_MOST},    {"threads", &options.race.threads, 1, RACERS_MOST},
    {"lease", &options.race.lease_ms, 20, 3600000}, {"work", &options.race.work_ms, 0, 3600000},
    {"delay", &options.race.delay_ms, 0, 3600000},  {"chance", &options.race.chance, 0, 100},
};
enum { NUMBERS = sizeof numbers / sizeof *numbers };

static void take_option(int option)
{
    switch (option) {
    case 's':
        options.race.seed = option_number("seed", optarg, 0, UINT64_MAX);
        break;
    case 'y':
        options.way = known_way(optarg);
        break;
    case 'p':
        options.svg = optarg;
        break;
    case 'h':
        usage(0);
    default:
        usage(2);
    }
}

static void read_options(int argc, char **argv)
{
    static const struct option others[] = {{"seed", required_argument, NULL, 's'},
                                           {"way", required_argument, NULL, 'y'},
                                           {"svg", required_argument, NULL, 'p'},
                                           {"help", no_argument, NULL, 'h'}};
    struct option known[OPTIONS_MOST];
    int option;

    options_join(known, numbers, NUMBERS, others, sizeof others / sizeof *others);
    options.race.seed = (uint64_t)time(NULL);
    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1)
        if (!option_take_number(numbers, NUMBERS, option, optarg))
            take_option(option);
    if (optind < argc)
        usage(2);
}

/* -------------------------------------------------------------------- races */

static struct bars bars;

/* False: the race could not be run. */
static bool run_way(struct race *race, const struct way *way, bool *good)
{
    struct tally tally = {0};
    bool ran = true;

    for (unsigned i = 0; ran && i < options.rounds; i++) {
        ran = race_round(race, way, NULL, &options.race, i, NULL, NULL);
        if (ran)
            tally_add(&tally, race);
        if (ran && i == 0 && options.svg)
            ran = bars_add(&bars, race);
    }
    if (ran) {
        print_outcome(way, &tally);
        *good &= as_expected(way, &tally);
    }
    tally_free(&tally);
    return ran;
}

int main(int argc, char **argv)
{
    struct race *race;
    bool good = true, ran = true;

    read_options(argc, argv);
    race = race_open("counter_race", getenv("DIBS_URL"));
    if (!race)
        return 2;
    print_head();
    for (size_t i = 0; ran && i < WAY_COUNT; i++)
        if (!options.way || strcmp(options.way, entries[i].name) == 0)
            ran = run_way(race, way_named(entries[i].way), &good);
    if (ran && options.svg)
        ran = bars_write(options.svg, &bars);
    race_exit(race, !ran ? 2 : good ? 0 : 1);
}
