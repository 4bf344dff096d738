/*
 * The gallery's races: every way to lock of demo/ways, over one race, and the scenes that make its flaw show.
 *
 * Exit status: 0; 1 if a scene did not show what it is to show, or a sound way showed a flaw; 2 if a race could not be
 * run.
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
#include "race/results.h"
#include "race/table.h"
#include "ways/ways.h"

enum { WAYS_MOST = 64, LIMIT = 10 };

/* Read-only once the command line is read. */
static struct {
    const struct way *ways[WAYS_MOST];
    size_t way_count;
    struct race_options race;
    unsigned rounds;
    bool chance, scenes;
    const char *svg, *results;
} chosen = {.race = {.processes = 4, .threads = 40, .lease_ms = 50, .work_ms = 10, .delay_ms = 15, .chance = 85},
            .chance = true};

static noreturn void usage(int status)
{
    fputs(
        "usage: dibs-race [options] [WAY...]\n"
        "\n"
        "Threads of several processes get into a lock once each, to raise a counter in Redis that must stop at ten.\n"
        "This is done for each WAY to lock that is named, by its name or number; without a WAY, for all of them. What\n"
        "happens is counted from outside the lock. Redis servers are started for that, and ended.\n"
        "\n"
        "  --list          list the ways and their scenes\n"
        "  --threads N     threads of all processes together (40); some ways have numbers of their own\n"
        "  --processes N   processes (4)\n"
        "  --lease MS      time for which a lock is granted (50)\n"
        "  --work MS       how long a thread works inside (10)\n"
        "  --delay MS      how long a thread is held up at each of several points by chance (15),\n"
        "  --chance PCT    and how likely that is (85)\n"
        "  --seed N        make chance repeatable (the time)\n"
        "  --rounds N      repeat each race (3), and each scene (1)\n"
        "  --forced        run scenes instead of races: they make happen what chance rarely shows\n"
        "  --gallery       run both\n"
        "  --svg FILE      draw the first round of each race\n"
        "  --results FILE  write all numbers, and the times of one round of each race and scene\n"
        "  --help          show this\n"
        "\n"
        "Exit status: 0; 1 if a scene did not show what it is to show, or a sound way was not sound; 2 after an "
        "error.\n",
        status ? stderr : stdout);
    exit(status);
}

static noreturn void list(void)
{
    for (size_t i = 0; i < way_count; i++) {
        const struct way *way = ways[i];
        printf("%2d  %-14s %s\n    %s\n", way->number, way->name, way->title, way->text);
        for (const struct scene *scene = way->scenes; scene && scene->racers; scene++)
            printf("      - %s\n", scene->title);
    }
    exit(0);
}

static bool is_chosen(const struct way *way)
{
    for (size_t i = 0; i < chosen.way_count; i++)
        if (chosen.ways[i] == way)
            return true;
    return false;
}

static void add_ways(const char *text)
{
    if (!way_named(text)) {
        fprintf(stderr, "there is no way \"%s\": --list shows them\n", text);
        exit(2);
    }
    for (size_t i = 0; i < way_count && chosen.way_count < WAYS_MOST; i++)
        if (way_is(ways[i], text) && !is_chosen(ways[i]))
            chosen.ways[chosen.way_count++] = ways[i];
}

/* Options that are a number. */
static const struct number_option numbers[] = {
    {"processes", &chosen.race.processes, 1, PROCESSES_MOST},
    {"threads", &chosen.race.threads, 1, RACERS_MOST},
    {"lease", &chosen.race.lease_ms, 20, 3600000},
    {"work", &chosen.race.work_ms, 0, 3600000},
    {"delay", &chosen.race.delay_ms, 0, 3600000},
    {"chance", &chosen.race.chance, 0, 100},
    {"rounds", &chosen.rounds, 1, ROUNDS_MOST},
};
enum { NUMBERS = sizeof numbers / sizeof *numbers };

static void take_option(int option)
{
    switch (option) {
    case 's':
        chosen.race.seed = option_number("seed", optarg, 0, UINT64_MAX);
        break;
    case 'l':
        list();
    case 'f':
        chosen.scenes = true;
        chosen.chance = false;
        break;
    case 'g':
        chosen.scenes = chosen.chance = true;
        break;
    case 'p':
        chosen.svg = optarg;
        break;
    case 'r':
        chosen.results = optarg;
        break;
    case 'h':
        usage(0);
    default:
        usage(2);
    }
}

/* What the command line left open. */
static void complete_options(void)
{
    for (size_t i = 0; chosen.way_count == 0 && i < way_count; i++)
        chosen.ways[i] = ways[i];
    chosen.way_count = chosen.way_count ? chosen.way_count : way_count;
    if (chosen.race.processes > chosen.race.threads)
        chosen.race.processes = chosen.race.threads;
    chosen.race.limit = chosen.race.threads < LIMIT ? chosen.race.threads : LIMIT;
    chosen.race.patience_ms = 60000;
    chosen.race.fenced = true;
}

static void read_options(int argc, char **argv)
{
    static const struct option others[] = {
        {"seed", required_argument, NULL, 's'}, {"list", no_argument, NULL, 'l'},
        {"forced", no_argument, NULL, 'f'},     {"gallery", no_argument, NULL, 'g'},
        {"svg", required_argument, NULL, 'p'},  {"results", required_argument, NULL, 'r'},
        {"help", no_argument, NULL, 'h'}};
    struct option known[OPTIONS_MOST];
    int option;

    options_join(known, numbers, NUMBERS, others, sizeof others / sizeof *others);
    chosen.race.seed = (uint64_t)time(NULL);
    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1)
        if (!option_take_number(numbers, NUMBERS, option, optarg))
            take_option(option);
    if (chosen.svg && !chosen.chance) {
        fprintf(stderr, "--svg draws races, and --forced leaves them out\n");
        exit(2);
    }
    while (optind < argc)
        add_ways(argv[optind++]);
    complete_options();
}

/* -------------------------------------------------------------------- races */

static FILE *results;
static struct bars bars;

static unsigned rounds_or(unsigned usual)
{
    return chosen.rounds ? chosen.rounds : usual;
}

/* Where the way has a size of its own, its race has that. */
static struct race_options options_for(const struct way *way)
{
    struct race_options options = chosen.race;

    if (way->threads) {
        options.threads = way->threads;
        options.processes = way->processes;
        options.lease_ms = way->lease_ms;
    }
    return options;
}

/* False: the race could not be run. *good: a sound way showed no flaw. */
static bool run_by_chance(struct race *race, const struct way *way, bool *good)
{
    struct race_options options = options_for(way);
    struct tally tally = {0};
    unsigned rounds = rounds_or(3);
    bool ran = true;

    for (unsigned i = 0; ran && i < rounds; i++) {
        ran = race_round(race, way, NULL, &options, i, table_progress, &rounds);
        table_progress_over();
        if (!ran)
            break;
        tally_add(&tally, race);
        if (i > 0)
            continue;
        results_begin(results, race);
        if (chosen.svg)
            ran = bars_add(&bars, race);
    }
    if (ran) {
        table_row(race, &tally);
        results_end(results, race, &tally, 0);
        *good = !way->sound || !tally_flaws(&tally, race);
    }
    tally_free(&tally);
    return ran;
}

/* Whether the numbers of one round are what the scene foretells. */
static bool as_foretold(const struct race *race, const struct tally *tally)
{
    unsigned flaws = tally_flaws(tally, race);

    if (atomic_load(&race->stuck))
        return false;
    return race->scene->shows ? (flaws & race->scene->shows) == race->scene->shows : flaws == 0;
}

static bool run_scene(struct race *race, const struct way *way, const struct scene *scene, bool *good)
{
    struct race_options options = race_scene_options(scene, chosen.race.seed);
    unsigned rounds = rounds_or(1), foretold = 0;
    bool ran = true;

    for (unsigned i = 0; ran && i < rounds; i++) {
        struct tally one = {0};
        ran = race_round(race, way, scene, &options, i, table_progress, &rounds);
        table_progress_over();
        if (!ran)
            break;
        tally_add(&one, race);
        if (as_foretold(race, &one))
            foretold++;
        else
            table_unforeseen(race, &one);
        if (i + 1 == rounds) {
            table_scene(race, &one, foretold);
            results_begin(results, race);
            results_end(results, race, &one, foretold);
        }
        tally_free(&one);
    }
    *good = foretold == rounds;
    return ran;
}

static bool run_scenes(struct race *race, const struct way *way, bool *good)
{
    if (!way->scenes)
        return true;
    table_scene_way(way);
    for (const struct scene *scene = way->scenes; scene->racers; scene++) {
        bool this_one = false;
        if (!run_scene(race, way, scene, &this_one))
            return false;
        *good &= this_one;
    }
    return true;
}

/* A way that can't be run here is neither good nor bad. */
static bool can_run(const struct way *way)
{
    const char *missing = way->missing ? way->missing() : NULL;

    if (missing) {
        printf("%2d %s: NOT RUN: %s\n", way->number, way->title, missing);
        results_missing(results, missing);
    }
    return !missing;
}

static bool run_races(struct race *race, bool *good)
{
    table_head(&chosen.race, rounds_or(3));
    for (size_t i = 0; i < chosen.way_count; i++) {
        bool this_one = true;
        results_way(results, chosen.ways[i]);
        if (can_run(chosen.ways[i]) && !run_by_chance(race, chosen.ways[i], &this_one))
            return false;
        *good &= this_one;
    }
    return true;
}

static bool run_all_scenes(struct race *race, bool *good)
{
    table_scenes_head(rounds_or(1));
    for (size_t i = 0; i < chosen.way_count; i++) {
        results_way(results, chosen.ways[i]);
        if (can_run(chosen.ways[i]) && !run_scenes(race, chosen.ways[i], good))
            return false;
    }
    return true;
}

static bool run_all(struct race *race, bool *good)
{
    if (chosen.chance && !run_races(race, good))
        return false;
    if (chosen.chance && chosen.scenes)
        putchar('\n');
    return !chosen.scenes || run_all_scenes(race, good);
}

/* Whether all that was written to the file arrived there; says so on stderr if not. */
static bool arrived(FILE *out, const char *name)
{
    bool good = fflush(out) == 0 && !ferror(out);

    if (!good)
        fprintf(stderr, "%s: %s\n", name, strerror(errno));
    return good;
}

int main(int argc, char **argv)
{
    struct race *race;
    bool good = true, ran;

    read_options(argc, argv);
    if (chosen.results && !(results = fopen(chosen.results, "we"))) {
        fprintf(stderr, "%s: %s\n", chosen.results, strerror(errno));
        return 2;
    }
    race = race_open("dibs-race", NULL);
    if (!race)
        return 2;
    results_head(results, race, chosen.race.seed);
    ran = run_all(race, &good);
    if (ran && chosen.svg)
        ran = bars_write(chosen.svg, &bars);
    ran &= !results || arrived(results, chosen.results);
    ran &= arrived(stdout, "standard output");
    race_exit(race, !ran ? 2 : good ? 0 : 1);
}
