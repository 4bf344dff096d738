#include "race/results.h"

#include <string.h>
#include <time.h>

#include "race/table.h"

/* -------------------------------------------------------------------- heads */

void results_head(FILE *out, struct race *race, uint64_t seed)
{
    char date[40], version[40];
    time_t now = time(NULL);
    struct tm parts;

    if (!out)
        return;
    gmtime_r(&now, &parts);
    strftime(date, sizeof date, "%Y-%m-%d %H:%M UTC", &parts);
    race_server_version(race, version, sizeof version);
    fprintf(out, "dibs-race 1\ndate %s\nserver %s\nseed %llu\n", date, version, (unsigned long long)seed);
}

void results_way(FILE *out, const struct way *way)
{
    const char *source = strstr(way->source, "demo/ways/");

    if (!out)
        return;
    fprintf(out, "way %d\nname %s\ntitle %s\ntext %s\nsource %s\nsound %d\n", way->number, way->name, way->title,
            way->text, source ? source : way->source, way->sound);
}

void results_missing(FILE *out, const char *why)
{
    if (out)
        fprintf(out, "missing %s\n", why);
}

/* -------------------------------------------------------------------- lanes */

static long long since(const struct race *race, uint64_t at)
{
    return at ? ((long long)at - (long long)race->began) / 1000 : 0;
}

static void lane(FILE *out, const struct race *race, unsigned number)
{
    const struct record *record = &race->records[number];
    uint64_t begin, end;

    if (hold_of(race, record, &begin, &end))
        fprintf(out, "hold %u %u %lld %lld %lld %lld %d %u\n", number, record->crew,
                since(race, record_time(record, HAPPENED_ARRIVE)), since(race, begin), since(race, end),
                since(race, record->lease_end), record_time(record, HAPPENED_WORK) != 0, record->item);
}

static const char *mark_of(enum happening what)
{
    static const struct {
        enum happening what;
        const char *mark;
    } marks[] = {{HAPPENED_ANOTHERS, "deleted"}, {HAPPENED_UNKNOWN, "deleted"}, {HAPPENED_LOST, "lost"},
                 {HAPPENED_REFUSED, "refused"},  {HAPPENED_STOP, "stop"},       {HAPPENED_GO, "go"},
                 {HAPPENED_DIE, "die"},          {HAPPENED_GIVE_UP, "give-up"}, {HAPPENED_ARRIVE, "arrive"},
                 {HAPPENED_DENIED, "denied"},    {HAPPENED_LEFT, "done"}};

    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (marks[i].what == what)
            return marks[i].mark;
    return NULL;
}

/* Whether the event is more than its racer's line of "hold" tells. */
static bool is_worth_a_mark(const struct race *race, const struct record *record, const struct event *event)
{
    if (event->what == HAPPENED_UNKNOWN)
        return deleted_anothers(race, record);
    if (event->what == HAPPENED_ARRIVE || event->what == HAPPENED_LEFT)
        return record_time(record, HAPPENED_ENTER) == 0;
    return mark_of(event->what) != NULL;
}

static void write_marks(FILE *out, const struct race *race, unsigned number)
{
    const struct record *record = &race->records[number];

    for (unsigned i = 0; i < record->count; i++) {
        const struct event *event = &record->events[i];
        if (is_worth_a_mark(race, record, event))
            fprintf(out, "mark %u %s %lld\n", number, mark_of(event->what), since(race, event->at));
    }
}

void results_begin(FILE *out, const struct race *race)
{
    const struct race_options *options = &race->options;

    if (!out)
        return;
    if (race->scene)
        fprintf(out, "run scene %s\n", race->scene->title);
    else
        fprintf(out, "run race\n");
    fprintf(out,
            "setting threads %u\nsetting processes %u\nsetting lease_ms %u\nsetting work_ms %u\nsetting delay_ms %u\n"
            "setting chance %u\nsetting limit %u\nsetting counts %d\nsetting room %u\nsetting shows %u\n",
            options->threads, options->processes, options->lease_ms, options->work_ms, options->delay_ms,
            options->chance, options->limit, way_counts(race->way), way_room(race->way),
            race->scene ? race->scene->shows : 0);
    for (unsigned i = 0; i < options->threads; i++) {
        lane(out, race, i);
        write_marks(out, race, i);
    }
}

/* ------------------------------------------------------------------ figures */

static void lock_figures(FILE *out, const struct way *way, const struct tally *tally)
{
    if (tally_has_inside(tally, way))
        fprintf(out, "figure most %u\nfigure pairs %u\nfigure outlasted %u\n", tally->most, tally->pairs,
                tally->outlasted);
    if (tally_has_lock(way))
        fprintf(out, "figure left %u\nfigure deleted %u\nfigure inverted_percent %.1f\nfigure idle_ms %.1f\n",
                tally->left, tally->deleted, tally_inverted(tally), (double)tally->idle_ns / 1e6);
}

static void figures(FILE *out, const struct way *way, struct tally *tally)
{
    static const int percents[] = {50, 90, 99, 100};

    fprintf(out, "figure holds %u\nfigure gave_up %u\nfigure noticed %u\nfigure denied %u\n", tally->holds,
            tally->gave_up, tally->noticed, tally->denied);
    lock_figures(out, way, tally);
    if (tally_has_commands(tally, way))
        fprintf(out, "figure commands_per_acquire %.2f\n", tally_commands(tally, way));
    for (size_t i = 0; tally_has_waits(tally, way) && i < sizeof percents / sizeof *percents; i++)
        fprintf(out, "figure wait_ms_%d %.1f\n", percents[i], tally_wait_ms(tally, percents[i]));
    fprintf(out, "figure commands %llu\nfigure threads_per_round %u\nfigure seconds %.3f\n",
            (unsigned long long)tally->commands, tally->threads / tally->rounds, tally->seconds);
}

void results_end(FILE *out, const struct race *race, struct tally *tally, unsigned foretold)
{
    char words[400];

    if (!out)
        return;
    fprintf(out, "rounds %u\n", tally->rounds);
    if (race->scene) {
        table_words(race, tally, words, sizeof words);
        fprintf(out, "foretold %u\nwords %s\n", foretold, words);
    }
    fprintf(out, "counts");
    for (unsigned i = 0; i < tally->rounds; i++)
        fprintf(out, " %lld", tally->counts[i]);
    fputc('\n', out);
    figures(out, race->way, tally);
    fprintf(out, "flaws %u\n", tally_flaws(tally, race));
    for (unsigned i = 0; i < WAY_EXTRAS && race->way->extras[i]; i++)
        fprintf(out, "extra %d %llu %s\n", race->way->extras_are_good[i], (unsigned long long)tally->extras[i],
                race->way->extras[i]);
    fprintf(out, "end\n");
}
