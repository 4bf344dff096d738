#include "race/lanes.h"

#include <stdlib.h>
#include <string.h>

enum { TICKS = 5 };

char lanes_letter(unsigned racer)
{
    return (char)('A' + racer % 26);
}

/* ------------------------------------------------------------------- lanes */

static int by_begin(const void *one, const void *other)
{
    double a = ((const struct page_hold *)one)->begin, b = ((const struct page_hold *)other)->begin;

    return (a > b) - (a < b);
}

static int by_racer(const void *one, const void *other)
{
    unsigned a = ((const struct page_hold *)one)->racer, b = ((const struct page_hold *)other)->racer;

    return (a > b) - (a < b);
}

static bool is_scene(const struct page_run *run)
{
    return run->title[0] != '\0';
}

static bool was_inside(const struct page_hold *hold)
{
    return hold->arrived >= 0;
}

/* A racer that never got the lock, or died before it did, has a lane without a bar. */
static void add_lanes_of_marks(struct lanes *l)
{
    for (size_t i = 0; i < l->run->mark_count; i++) {
        const struct page_mark *mark = &l->run->marks[i];
        size_t lane = 0;
        while (lane < l->count && l->shown[lane].racer != mark->racer)
            lane++;
        if (lane == l->count && l->count < LANES_MOST)
            l->shown[l->count++] = (struct page_hold){.racer = mark->racer, .arrived = -1};
    }
}

/* Racers did what they came for, and none of them was ever inside. */
static bool goes_without_a_lock(const struct page_run *run)
{
    for (size_t i = 0; i < run->mark_count; i++)
        if (run->hold_count == 0 && strcmp(run->marks[i].kind, "done") == 0)
            return true;
    return false;
}

static void choose(struct lanes *l)
{
    for (size_t i = 0; i < l->run->hold_count; i++) {
        if (!is_scene(l->run) && !l->holds[i].worked)
            continue;
        l->whole++;
        if (l->count < LANES_MOST)
            l->shown[l->count++] = l->holds[i];
    }
    if (!is_scene(l->run) || goes_without_a_lock(l->run))
        return;
    add_lanes_of_marks(l);
    qsort(l->shown, l->count, sizeof *l->shown, by_racer);
}

/* From the first racer's arrival; of a race by chance, from when the first one got in. */
static void measure(struct lanes *l)
{
    double first = 1e18, last = 0;

    for (size_t i = 0; i < l->count; i++) {
        const struct page_hold *hold = &l->shown[i];
        double from = is_scene(l->run) ? hold->arrived : hold->begin;
        if (!was_inside(hold))
            continue;
        first = from < first ? from : first;
        last = hold->end > last ? hold->end : last;
    }
    for (size_t i = 0; is_scene(l->run) && i < l->run->mark_count; i++) {
        first = l->run->marks[i].at < first ? l->run->marks[i].at : first;
        last = l->run->marks[i].at > last ? l->run->marks[i].at : last;
    }
    l->start = first < last ? first : 0;
    l->length = last > l->start ? (last - l->start) * 1.04 : 1;
}

bool lanes_fill(struct lanes *l, const struct page_run *run)
{
    *l = (struct lanes){.run = run, .height = is_scene(run) ? 22 : 14};
    l->holds = calloc(run->hold_count + 1, sizeof *l->holds);
    if (!l->holds)
        return false;
    for (size_t i = 0; i < run->hold_count; i++)
        l->holds[i] = run->holds[i];
    qsort(l->holds, run->hold_count, sizeof *l->holds, by_begin);
    choose(l);
    measure(l);
    return true;
}

void lanes_free(struct lanes *l)
{
    free(l->holds);
    l->holds = NULL;
}

/* ---------------------------------------------------------------- overlaps */

static bool is_beside(const struct page_hold *hold, const struct page_hold *other)
{
    return other->racer != hold->racer && other->item == hold->item && other->begin < hold->end &&
           hold->begin < other->end;
}

/* Others of the same lock that were inside when this hold began. */
static unsigned inside_before(const struct lanes *l, const struct page_hold *hold)
{
    unsigned count = 0;

    for (size_t i = 0; i < l->run->hold_count; i++)
        count += is_beside(hold, &l->holds[i]) && l->holds[i].begin < hold->begin;
    return count;
}

/* Finds the first time from `at` on that others share, as *from and *to. Where there is room for several, one too many.
 */
static bool next_overlap(const struct lanes *l, const struct page_hold *hold, double at, double *from, double *to)
{
    double room = page_figure(l->run, "room");
    bool found = false;

    if (room > 1 && inside_before(l, hold) < room)
        return false;
    for (size_t i = 0; i < l->run->hold_count; i++) {
        const struct page_hold *other = &l->holds[i];
        double begin = other->begin > hold->begin ? other->begin : hold->begin;
        double end = other->end < hold->end ? other->end : hold->end;
        if (!is_beside(hold, other) || end <= at)
            continue;
        if (found && begin > *to)
            break;
        *from = found ? *from : begin > at ? begin : at;
        *to = found && *to > end ? *to : end;
        found = true;
    }
    return found;
}

/* ----------------------------------------------------------------- drawing */

static double x_of(const struct lanes *l, double at)
{
    return (at - l->start) / l->length * 98 + 1;
}

static void bar(FILE *out, const struct lanes *l, double from, double to, double y, double height, const char *class)
{
    if (to > from)
        fprintf(out, "<rect class=\"%s\" x=\"%.2f%%\" width=\"%.2f%%\" y=\"%.1f\" height=\"%.1f\"/>", class,
                x_of(l, from), (to - from) / l->length * 98, y, height);
}

/* `beside`: so many signs stand there already, so this one comes to the right of them. */
static void draw_sign(FILE *out, const struct lanes *l, double at, double y, unsigned beside, const char *class,
                      const char *path)
{
    fprintf(out, "<svg x=\"%.2f%%\" y=\"%.1f\" overflow=\"visible\"><path class=\"%s\" d=\"%s\"", x_of(l, at), y, class,
            path);
    if (beside)
        fprintf(out, " transform=\"translate(%u 0)\"", beside * 12);
    fprintf(out, "/></svg>");
}

static const struct page_mark *mark_of(const struct lanes *l, unsigned racer, const char *kind)
{
    for (size_t i = 0; i < l->run->mark_count; i++)
        if (l->run->marks[i].racer == racer && strcmp(l->run->marks[i].kind, kind) == 0)
            return &l->run->marks[i];
    return NULL;
}

/* Whether the lease ended before its holder was done: within the hold, or with nobody left to release the lock. */
static bool lease_ended(const struct lanes *l, const struct page_hold *hold)
{
    if (hold->lease_end <= hold->begin || hold->lease_end > l->start + l->length)
        return false;
    return hold->lease_end <= hold->end || mark_of(l, hold->racer, "die") || mark_of(l, hold->racer, "stop");
}

/* When the first lease was to end, if the hold went on and the lease was renewed before; else 0. */
static double renewed_at(const struct lanes *l, const struct page_hold *hold)
{
    double first = hold->begin + page_figure(l->run, "lease_ms");

    return hold->lease_end > first + 1 && first < hold->end ? first : 0;
}

static void draw_hold(FILE *out, const struct lanes *l, const struct page_hold *hold, double y)
{
    double height = l->height - 5, middle = y + height / 2, at = 0, from, to;

    if (is_scene(l->run))
        bar(out, l, hold->arrived, hold->begin, middle - 1, 2, "wait");
    bar(out, l, hold->begin, hold->end, y, height, "in");
    if (hold->lease_end > hold->begin)
        bar(out, l, hold->lease_end, hold->end, y + 0.75, height - 1.5, "late");
    while (next_overlap(l, hold, at, &from, &to)) {
        bar(out, l, from, to, y, height, "both");
        bar(out, l, from, to, middle - 1, 2, "two");
        at = to;
    }
    if (renewed_at(l, hold) > 0)
        draw_sign(out, l, renewed_at(l, hold), middle, 0, "renewed", "M0-3l3 3l-3 3l-3-3z");
    if (lease_ended(l, hold))
        fprintf(out, "<rect class=\"lease\" x=\"%.2f%%\" width=\"2\" y=\"%.1f\" height=\"%.1f\"/>",
                x_of(l, hold->lease_end), y - 2, height + 4);
}

/* Of a racer that never got in: from its first mark to its last. */
static void draw_vain_wait(FILE *out, const struct lanes *l, unsigned racer, double y)
{
    double from = 1e18, to = 0;

    for (size_t i = 0; i < l->run->mark_count; i++) {
        const struct page_mark *mark = &l->run->marks[i];
        if (mark->racer != racer)
            continue;
        from = mark->at < from ? mark->at : from;
        to = mark->at > to ? mark->at : to;
    }
    bar(out, l, from, to, y + (l->height - 5) / 2.0 - 1, 2, "wait");
}

/* How many marks of the racer before this one are so near that their signs would lie on one another. */
static unsigned marks_beside(const struct lanes *l, size_t at)
{
    const struct page_mark *mark = &l->run->marks[at];
    unsigned count = 0;

    for (size_t i = 0; i < at; i++) {
        const struct page_mark *other = &l->run->marks[i];
        count += other->racer == mark->racer && lanes_sign(other->kind) && mark->at - other->at < l->length / 60;
    }
    return count;
}

static void draw_marks(FILE *out, const struct lanes *l, unsigned racer, double y)
{
    double middle = y + (l->height - 5) / 2.0;

    for (size_t i = 0; i < l->run->mark_count; i++) {
        const struct page_mark *mark = &l->run->marks[i];
        const struct lanes_sign *sign = lanes_sign(mark->kind);
        if (mark->racer != racer || !sign)
            continue;
        draw_sign(out, l, mark->at, middle, marks_beside(l, i), "halo", sign->path);
        draw_sign(out, l, mark->at, middle, marks_beside(l, i), sign->class, sign->path);
    }
}

void lanes_draw(FILE *out, const struct lanes *l)
{
    for (size_t i = 0; i < l->count; i++) {
        const struct page_hold *hold = &l->shown[i];
        double y = (double)i * l->height + 3;
        if (was_inside(hold))
            draw_hold(out, l, hold, y);
        else
            draw_vain_wait(out, l, hold->racer, y);
        draw_marks(out, l, hold->racer, y);
    }
}

void lanes_axis(FILE *out, const struct lanes *l, int y)
{
    static const double steps[] = {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000};
    double step = steps[0];

    for (size_t i = 0; i < sizeof steps / sizeof *steps && l->length / step > TICKS; i++)
        step = steps[i];
    fprintf(out, "<rect class=\"axis\" x=\"1%%\" width=\"98%%\" y=\"%d\" height=\"1\"/>", y);
    for (int i = 0; i * step <= l->length * 0.92; i++)
        fprintf(out, "<text class=\"tick\" x=\"%.2f%%\" y=\"%d\"%s>%.0f ms</text>", x_of(l, l->start + i * step),
                y + 16, i ? " text-anchor=\"middle\"" : "", i * step);
}

/* ------------------------------------------------------------------- words */

/* A time since the begin of the picture. */
static void say_ms(FILE *out, const struct lanes *l, const char *before, double at)
{
    double ms = at - l->start;

    fprintf(out, ms > 0 && ms < 10 ? "%s %.1f" : "%s %.0f", before, ms);
}

static void say_lane(FILE *out, const struct lanes *l, const struct page_hold *hold)
{
    fprintf(out, "Thread %c ", lanes_letter(hold->racer));
    if (!was_inside(hold))
        fprintf(out, "is never inside");
    if (was_inside(hold)) {
        say_ms(out, l, "is inside from", hold->begin);
        say_ms(out, l, " to", hold->end);
    }
    if (was_inside(hold) && lease_ended(l, hold))
        say_ms(out, l, "; its lease ends at", hold->lease_end);
    if (was_inside(hold) && renewed_at(l, hold) > 0)
        fprintf(out, "; its lease is renewed");
    for (size_t i = 0; i < l->run->mark_count; i++) {
        const struct page_mark *mark = &l->run->marks[i];
        if (mark->racer != hold->racer || !lanes_sign(mark->kind))
            continue;
        fprintf(out, "; %s", lanes_sign(mark->kind)->does);
        say_ms(out, l, " at", mark->at);
    }
    fprintf(out, ". ");
}

/* Of a race by chance, what one sees at a glance. */
static void say_race(FILE *out, const struct lanes *l)
{
    size_t both = 0, ended = 0, renewed = 0, deleted = 0;
    double from, to;

    for (size_t i = 0; i < l->count; i++) {
        both += next_overlap(l, &l->shown[i], 0, &from, &to);
        ended += lease_ended(l, &l->shown[i]);
        renewed += renewed_at(l, &l->shown[i]) > 0;
        deleted += mark_of(l, l->shown[i].racer, "deleted") != NULL;
    }
    fprintf(out, "%zu threads that worked, a bar for each from entering to leaving, over %.0f ms. ", l->count,
            l->length);
    if (both)
        fprintf(out, "%zu of them were inside while another was. ", both);
    else
        fprintf(out, "No two were inside at once. ");
    if (ended)
        fprintf(out, "The lease of %zu ended while they worked. ", ended);
    if (renewed)
        fprintf(out, "The lease of %zu was renewed while they worked. ", renewed);
    if (deleted)
        fprintf(out, "%zu deleted another's lock. ", deleted);
}

void lanes_say(FILE *out, const struct lanes *l)
{
    if (!is_scene(l->run)) {
        say_race(out, l);
        return;
    }
    fprintf(out, "Result: ");
    page_escape(out, l->run->words);
    fprintf(out, ". ");
    for (size_t i = 0; i < l->count; i++)
        say_lane(out, l, &l->shown[i]);
}
