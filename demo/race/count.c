#include "race/count.h"

#include <stdio.h>
#include <stdlib.h>

#include "ways/way.h"

struct hold {
    uint64_t arrived, begin, end;
    unsigned item;
    bool lapsed; /* its holder died, or was told that the lock was gone: it is not known when the lock became free */
};

/* ------------------------------------------------------------------- holds */

static bool noticed(const struct record *record)
{
    return record_time(record, HAPPENED_LOST) || record_time(record, HAPPENED_REFUSED);
}

/* Of a hold whose loss was noticed: when its holder was last seen at work before that. */
static uint64_t last_at_work(const struct record *record)
{
    static const enum happening signs[] = {HAPPENED_ENTER, HAPPENED_RAISE, HAPPENED_STOP};
    uint64_t last = 0;

    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++) {
        uint64_t at = record_time(record, signs[i]);
        last = at > last ? at : last;
    }
    return last;
}

bool hold_of(const struct race *race, const struct record *record, uint64_t *begin, uint64_t *end)
{
    uint64_t left = record_time(record, HAPPENED_LEAVE), died = record_time(record, HAPPENED_DIE);

    *begin = record_time(record, HAPPENED_ENTER);
    if (!*begin)
        return false;
    if (noticed(record))
        *end = last_at_work(record);
    else if (left || died)
        *end = left ? left : died;
    else
        *end = race->began + (uint64_t)(race->seconds * 1e9);
    return true;
}

/* Whether the racer was inside at that time, and got in later than `since`. */
static bool was_inside(const struct race *race, const struct record *record, uint64_t since, uint64_t at)
{
    uint64_t begin, end;

    return hold_of(race, record, &begin, &end) && begin > since && begin < at && at < end;
}

bool deleted_anothers(const struct race *race, const struct record *record)
{
    uint64_t at = record_time(record, HAPPENED_UNKNOWN), since = record_time(record, HAPPENED_ENTER);

    if (record_time(record, HAPPENED_ANOTHERS))
        return true;
    for (unsigned i = 0; at && since && i < race->options.threads; i++)
        if (&race->records[i] != record && was_inside(race, &race->records[i], since, at))
            return true;
    return false;
}

static int by_begin(const void *one, const void *other)
{
    uint64_t a = ((const struct hold *)one)->begin, b = ((const struct hold *)other)->begin;

    return (a > b) - (a < b);
}

/* All holds of the round, by when they began. The caller frees them. */
static struct hold *holds_of(const struct race *race, size_t *count)
{
    struct hold *holds = calloc(race->options.threads, sizeof *holds);

    *count = 0;
    for (unsigned i = 0; holds && i < race->options.threads; i++) {
        const struct record *record = &race->records[i];
        struct hold *hold = &holds[*count];
        if (!hold_of(race, record, &hold->begin, &hold->end))
            continue;
        hold->arrived = record_time(record, HAPPENED_ARRIVE);
        hold->item = record->item;
        hold->lapsed = noticed(record) || record_time(record, HAPPENED_DIE);
        (*count)++;
    }
    if (holds)
        qsort(holds, *count, sizeof *holds, by_begin);
    return holds;
}

/* ------------------------------------------------------------------- counts */

/*
 * Of those that want the same lock. A pair is one too many inside. A racer that was told of its loss before it did
 * anything was not inside.
 */
static void count_overlaps(struct tally *tally, const struct hold *holds, size_t count, unsigned room)
{
    for (size_t i = 0; i < count; i++) {
        unsigned inside = holds[i].end > holds[i].begin;
        for (size_t j = 0; inside && j < i; j++)
            inside += holds[j].item == holds[i].item && holds[j].end > holds[i].begin;
        tally->pairs += inside > room ? inside - room : 0;
        tally->most = inside > tally->most ? inside : tally->most;
    }
}

static void count_order(struct tally *tally, const struct hold *holds, size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < i; j++) {
            tally->order_pairs += holds[j].item == holds[i].item;
            tally->inverted += holds[j].item == holds[i].item && holds[j].arrived > holds[i].arrived;
        }
}

/* From the end of the holds before, or from when the first of those came that are not in yet. */
static void count_idle(struct tally *tally, const struct hold *holds, size_t count)
{
    uint64_t free_since = 0;

    for (size_t i = 0; i < count; i++) {
        uint64_t since = holds[i].arrived;
        for (size_t j = i; j < count; j++)
            since = holds[j].arrived < since ? holds[j].arrived : since;
        since = since > free_since ? since : free_since;
        if (i > 0 && !holds[i - 1].lapsed && holds[i].begin > since && holds[i].begin - since > tally->idle_ns)
            tally->idle_ns = holds[i].begin - since;
        free_since = holds[i].end > free_since ? holds[i].end : free_since;
    }
}

static void keep_wait(struct tally *tally, uint64_t wait)
{
    if (tally->wait_count == tally->wait_room) {
        size_t room = tally->wait_room ? tally->wait_room * 2 : RACERS_MOST;
        uint64_t *waits = realloc(tally->waits, room * sizeof *waits);
        if (!waits)
            return;
        tally->waits = waits;
        tally->wait_room = room;
    }
    tally->waits[tally->wait_count++] = wait;
}

static void add_times(struct tally *tally, const struct race *race, const struct record *record)
{
    uint64_t arrived = record_time(record, HAPPENED_ARRIVE), begin = record_time(record, HAPPENED_ENTER),
             left = record_time(record, HAPPENED_LEFT);

    tally->racers += arrived != 0;
    tally->outlasted += begin && left && left - begin > race->options.lease_ms * UINT64_C(1000000);
    if (begin || left)
        keep_wait(tally, (begin ? begin : left) - arrived);
}

static void add_record(struct tally *tally, const struct race *race, const struct record *record)
{
    tally->gave_up += record_time(record, HAPPENED_GIVE_UP) != 0;
    tally->noticed += noticed(record);
    tally->denied += record_time(record, HAPPENED_DENIED) != 0;
    tally->deleted += deleted_anothers(race, record);
    tally->commands += atomic_load(&record->commands);
    tally->threads += atomic_load(&record->threads);
    for (unsigned i = 0; i < WAY_EXTRAS && race->way->extras[i]; i++) {
        uint64_t extra = atomic_load(&record->extras[i]);
        if (way_keeps_most(race->way, i))
            tally->extras[i] = extra > tally->extras[i] ? extra : tally->extras[i];
        else
            tally->extras[i] += extra;
    }
}

void tally_add(struct tally *tally, const struct race *race)
{
    size_t count;
    struct hold *holds = holds_of(race, &count);

    tally->limit = race->options.limit;
    tally->counts[tally->rounds++] = race->final;
    tally->holds += (unsigned)count;
    tally->left += race->left_keys;
    tally->seconds += race->seconds;
    for (unsigned i = 0; i < race->options.threads; i++) {
        add_record(tally, race, &race->records[i]);
        add_times(tally, race, &race->records[i]);
    }
    for (unsigned i = 0; i < race->options.processes; i++) {
        tally->commands += atomic_load(&race->crew_commands[i]);
        tally->threads += atomic_load(&race->crew_threads[i]);
    }
    if (!holds)
        return;
    count_overlaps(tally, holds, count, way_room(race->way));
    count_order(tally, holds, count);
    count_idle(tally, holds, count);
    free(holds);
}

/* ----------------------------------------------------------------- figures */

static int by_size(const void *one, const void *other)
{
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;

    return (a > b) - (a < b);
}

double tally_wait_ms(struct tally *tally, double percent)
{
    double rank = (double)tally->wait_count * percent / 100; /* the smallest number of waits that are so many */
    size_t at = (size_t)rank;

    if (tally->wait_count == 0)
        return 0;
    qsort(tally->waits, tally->wait_count, sizeof *tally->waits, by_size);
    at -= at > 0 && (double)at >= rank;
    return (double)tally->waits[at] / 1e6;
}

static unsigned served(const struct tally *tally, const struct way *way)
{
    return way->run ? tally->racers : tally->holds;
}

double tally_commands(const struct tally *tally, const struct way *way)
{
    return served(tally, way) ? (double)tally->commands / served(tally, way) : 0;
}

bool tally_has_inside(const struct tally *tally, const struct way *way)
{
    return !way->run || tally->holds > 0;
}

bool tally_has_lock(const struct way *way)
{
    return !way->lockless;
}

bool tally_has_waits(const struct tally *tally, const struct way *way)
{
    return !way->lockless && tally->wait_count > 0;
}

bool tally_has_commands(const struct tally *tally, const struct way *way)
{
    return served(tally, way) > 0;
}

double tally_inverted(const struct tally *tally)
{
    return tally->order_pairs ? 100.0 * (double)tally->inverted / (double)tally->order_pairs : 0;
}

bool tally_idle(const struct tally *tally, const struct race *race)
{
    uint64_t limit = race->scene ? race->scene->idle_ms * UINT64_C(1000000) : 0;

    return limit && tally->idle_ns >= limit;
}

/*
 * In a race by chance, a racer that was told that the lock can't be had safely, or is lost, may be missing from the
 * count.
 */
static bool miscounted(const struct tally *tally, const struct race *race, long long count)
{
    unsigned excused = race->scene ? 0 : tally->denied + tally->noticed;

    return count > tally->limit || count + excused < tally->limit;
}

unsigned tally_flaws(const struct tally *tally, const struct race *race)
{
    unsigned flaws = 0;

    for (unsigned i = 0; way_counts(race->way) && i < tally->rounds; i++)
        flaws |= miscounted(tally, race, tally->counts[i]) ? FLAW_COUNT : 0;
    flaws |= tally->pairs ? FLAW_OVERLAP : 0;
    flaws |= tally->deleted ? FLAW_DELETED : 0;
    flaws |= tally->left || tally->gave_up ? FLAW_LEFT : 0;
    flaws |= tally->extras[0] && !race->way->extras_are_good[0] ? FLAW_EXTRA : 0;
    flaws |= tally->extras[1] && !race->way->extras_are_good[1] ? FLAW_EXTRA_2 : 0;
    if (race->scene && !race->way->run) {
        flaws |= tally->inverted ? FLAW_ORDER : 0;
        flaws |= tally_idle(tally, race) ? FLAW_IDLE : 0;
    }
    return flaws;
}

void tally_free(struct tally *tally)
{
    free(tally->waits);
    tally->waits = NULL;
}
