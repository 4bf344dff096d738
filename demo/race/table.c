#include "race/table.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TITLE_WIDTH = 35, CELL = 64 };

/* ------------------------------------------------------------------ colours */

static bool coloured(void)
{
    const char *no = getenv("NO_COLOR");

    return isatty(STDOUT_FILENO) && !(no && *no);
}

static const char *colour(const char *code)
{
    return coloured() ? code : "";
}

#define RED colour("\033[31;1m")
#define GREEN colour("\033[32m")
#define BOLD colour("\033[1m")
#define PLAIN colour("\033[0m")

/* A cell, right-aligned, in red where its number is a flaw. */
static void cell(int width, bool flaw, const char *format, ...)
{
    char text[CELL];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    printf(" %s%*s%s", flaw ? RED : "", width, text, flaw ? PLAIN : "");
}

/* -------------------------------------------------------------- the table */

void table_head(const struct race_options *options, unsigned rounds)
{
    printf("%u threads of %u %s raise a counter that must stop at %u; %u %s.\n", options->threads, options->processes,
           options->processes == 1 ? "process" : "processes", options->limit, rounds, rounds == 1 ? "round" : "rounds");
    printf("Lease %u ms, work %u ms, at each of %d points %u ms more with a chance of %u %%. Seed %llu.\n\n",
           options->lease_ms, options->work_ms, STALLS_INSIDE + 1, options->delay_ms, options->chance,
           (unsigned long long)options->seed);
    printf("%-*s %7s %6s %5s %7s %4s %6s %13s %8s %7s\n", TITLE_WIDTH, "", "counter", "most", "over-", "others'",
           "left", "out of", "wait, ms", "commands", "threads");
    printf("%s%-*s %7s %6s %5s %7s %4s %6s %6s %6s %8s %7s%s\n", BOLD, TITLE_WIDTH, "way", "at end", "inside", "laps",
           "deleted", "over", "order", "50 %", "99 %", "/acquire", "started", PLAIN);
    fflush(stdout);
}

/* Of all rounds: "10", or "10..13". */
static void counter_cell(const struct race *race, const struct tally *tally)
{
    long long least = tally->counts[0], most = tally->counts[0];
    bool bad = false;

    for (unsigned i = 0; i < tally->rounds; i++) {
        least = tally->counts[i] < least ? tally->counts[i] : least;
        most = tally->counts[i] > most ? tally->counts[i] : most;
        bad |= tally->counts[i] != tally->limit;
    }
    if (!way_counts(race->way))
        cell(7, false, "-");
    else if (least == most)
        cell(7, bad, "%lld", least);
    else
        cell(7, bad, "%lld..%lld", least, most);
}

static void inside_cells(const struct race *race, const struct tally *tally)
{
    if (tally_has_inside(tally, race->way)) {
        cell(6, tally->most > way_room(race->way), "%u", tally->most);
        cell(5, tally->pairs > 0, "%u", tally->pairs);
    } else {
        cell(6, false, "-");
        cell(5, false, "-");
    }
}

static void lock_cells(const struct race *race, const struct tally *tally)
{
    if (tally_has_lock(race->way)) {
        cell(7, tally->deleted > 0, "%u", tally->deleted);
        cell(4, tally->left > 0, "%u", tally->left);
        cell(6, false, "%.0f %%", tally_inverted(tally));
    } else {
        cell(7, false, "-");
        cell(4, false, "-");
        cell(6, false, "-");
    }
}

static void wait_cells(const struct race *race, struct tally *tally)
{
    if (tally_has_waits(tally, race->way)) {
        cell(6, false, "%.0f", tally_wait_ms(tally, 50));
        cell(6, false, "%.0f", tally_wait_ms(tally, 99));
    } else {
        cell(6, false, "-");
        cell(6, false, "-");
    }
}

static void extra_lines(const struct race *race, const struct tally *tally)
{
    for (unsigned i = 0; i < WAY_EXTRAS && race->way->extras[i]; i++)
        if (tally->extras[i])
            printf("%5s%s: %s%llu%s\n", "", race->way->extras[i], race->way->extras_are_good[i] ? "" : RED,
                   (unsigned long long)tally->extras[i], PLAIN);
    if (tally->gave_up)
        printf("%5sracers that never got the lock: %s%u%s\n", "", RED, tally->gave_up, PLAIN);
    if (tally->noticed)
        printf("%5sleases that were lost, and the holder was told: %u\n", "", tally->noticed);
    if (tally->denied)
        printf("%5sracers that were told that the lock can't be had: %u\n", "", tally->denied);
    if (race->way->threads)
        printf("%5s%u threads of %u processes, lease %u ms\n", "", race->options.threads, race->options.processes,
               race->options.lease_ms);
}

void table_row(const struct race *race, struct tally *tally)
{
    char title[CELL];

    snprintf(title, sizeof title, "%2d %s", race->way->number, race->way->title);
    printf("%-*s", TITLE_WIDTH, title);
    counter_cell(race, tally);
    inside_cells(race, tally);
    lock_cells(race, tally);
    wait_cells(race, tally);
    if (tally_has_commands(tally, race->way))
        cell(8, false, "%.1f", tally_commands(tally, race->way));
    else
        cell(8, false, "-");
    cell(7, false, "%u", tally->threads / tally->rounds);
    putchar('\n');
    extra_lines(race, tally);
    fflush(stdout);
}

/* ------------------------------------------------------------------- scenes */

void table_scenes_head(unsigned rounds)
{
    printf("What chance rarely shows is made to happen, %u %s each.\n", rounds, rounds == 1 ? "time" : "times");
}

void table_scene_way(const struct way *way)
{
    printf("\n%s%2d %s%s\n", BOLD, way->number, way->title, PLAIN);
}

static void add(char *out, size_t size, const char *format, ...)
{
    size_t at = strlen(out);
    va_list arguments;

    if (at > 0 && at + 2 < size) {
        strcpy(out + at, ", ");
        at += 2;
    }
    va_start(arguments, format);
    vsnprintf(out + at, size - at, format, arguments);
    va_end(arguments);
}

void table_words(const struct race *race, const struct tally *tally, char *out, size_t size)
{
    out[0] = '\0';
    if (way_counts(race->way))
        add(out, size, "counter %lld of %u", tally->counts[tally->rounds - 1], tally->limit);
    if (tally_has_inside(tally, race->way))
        add(out, size, "%u inside at once", tally->most);
    if (tally->deleted)
        add(out, size, "%u deleted another's lock", tally->deleted);
    if (tally->left)
        add(out, size, "%u locked for ever", tally->left);
    if (tally->gave_up)
        add(out, size, "%u never got the lock", tally->gave_up);
    if (tally->inverted && !race->way->run)
        add(out, size, "%llu out of order", (unsigned long long)tally->inverted);
    if (tally_idle(tally, race))
        add(out, size, "free for %.0f ms while somebody waited", (double)tally->idle_ns / 1e6);
    for (unsigned i = 0; i < WAY_EXTRAS && race->way->extras[i]; i++)
        if (tally->extras[i])
            add(out, size, "%s: %llu", race->way->extras[i], (unsigned long long)tally->extras[i]);
    if (tally->noticed)
        add(out, size, "%u lost and noticed", tally->noticed);
    if (tally->denied)
        add(out, size, "%u told that the lock can't be had", tally->denied);
}

void table_unforeseen(const struct race *race, const struct tally *tally)
{
    char words[400];

    table_words(race, tally, words, sizeof words);
    printf("     round %u is not as foretold: %s%s%s%s\n", race->round + 1, RED, words,
           atomic_load(&race->stuck) ? ", what a cue waits for did not happen" : "", PLAIN);
    fflush(stdout);
}

void table_scene(const struct race *race, const struct tally *tally, unsigned as_expected)
{
    char words[400];
    unsigned rounds = race->round + 1;
    bool sound = race->scene->shows == 0;
    bool good = as_expected == rounds;

    table_words(race, tally, words, sizeof words);
    printf("   %s\n     %s%s%s; ", race->scene->title, sound && good ? GREEN : RED, words, PLAIN);
    if (good && rounds == 1)
        puts(sound ? "no harm" : "as foretold");
    else
        printf("%s in %u of %u\n", sound ? "no harm" : "as foretold", as_expected, rounds);
    fflush(stdout);
}

/* ----------------------------------------------------------------- progress */

void table_progress(const struct race *race, void *arg)
{
    const unsigned *rounds = arg;

    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r\033[K%2d %s: round %u of %u, %u of %u racers done, %u inside", race->way->number,
                race->way->title, race->round + 1, *rounds, atomic_load(&race->done), race->options.threads,
                atomic_load(&race->inside));
}

void table_progress_over(void)
{
    if (isatty(STDERR_FILENO))
        fputs("\r\033[K", stderr);
}
