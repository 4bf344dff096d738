/*
 * A run as SVG without a view box: places along the time are percentages, everything else is pixels, so that the
 * picture is as wide as the screen, and bars, marks and letters keep their size.
 */
#include <stdlib.h>
#include <string.h>

#include "race/page.h"

enum { LANES_MOST = 40, AXIS = 26, TICKS = 5 };

struct lanes {
    FILE *out;
    const struct page_run *run;
    struct page_hold holds[LANES_MOST];
    unsigned racers[LANES_MOST]; /* of each lane */
    size_t count;
    double start, length; /* ms */
    int height;           /* of a lane */
};

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

/* Who only waited in vain, or died before, has a lane without a bar. */
static void add_lanes_of_marks(struct lanes *l)
{
    for (size_t i = 0; i < l->run->mark_count; i++) {
        const struct page_mark *mark = &l->run->marks[i];
        size_t lane = 0;
        while (lane < l->count && l->holds[lane].racer != mark->racer)
            lane++;
        if (lane == l->count && l->count < LANES_MOST)
            l->holds[l->count++] = (struct page_hold){.racer = mark->racer, .arrived = -1};
    }
}

/* Of a race by chance, those that found something to do; of a scene, all. */
static void choose(struct lanes *l)
{
    for (size_t i = 0; i < l->run->hold_count && l->count < LANES_MOST; i++)
        if (is_scene(l->run) || l->run->holds[i].worked)
            l->holds[l->count++] = l->run->holds[i];
    if (is_scene(l->run))
        add_lanes_of_marks(l);
    qsort(l->holds, l->count, sizeof *l->holds, is_scene(l->run) ? by_racer : by_begin);
}

static void measure(struct lanes *l)
{
    double first = 1e18, last = 0;

    for (size_t i = 0; i < l->count; i++) {
        const struct page_hold *hold = &l->holds[i];
        double from = is_scene(l->run) ? hold->arrived : hold->begin;
        if (hold->arrived < 0)
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

/* ----------------------------------------------------------------- drawing */

static double x_of(const struct lanes *l, double at)
{
    return (at - l->start) / l->length * 98 + 1;
}

static void bar(const struct lanes *l, double from, double to, double y, double height, const char *class)
{
    if (to > from)
        fprintf(l->out, "<rect class=\"%s\" x=\"%.2f%%\" width=\"%.2f%%\" y=\"%.1f\" height=\"%.1f\"/>", class,
                x_of(l, from), (to - from) / l->length * 98, y, height);
}

/* A path around 0,0. */
static void sign(const struct lanes *l, double at, double y, const char *class, const char *path)
{
    fprintf(l->out, "<svg x=\"%.2f%%\" y=\"%.1f\" overflow=\"visible\"><path class=\"%s\" d=\"%s\"/></svg>",
            x_of(l, at), y, class, path);
}

/* Others of the same lock that were inside when this hold began. */
static unsigned inside_before(const struct lanes *l, const struct page_hold *hold)
{
    unsigned count = 0;

    for (size_t i = 0; i < l->count; i++) {
        const struct page_hold *other = &l->holds[i];
        count += other->item == hold->item && other->begin < hold->begin && hold->begin < other->end;
    }
    return count;
}

static void draw_overlaps(const struct lanes *l, size_t at, double y, double height)
{
    const struct page_hold *hold = &l->holds[at];
    double room = page_figure(l->run, "room");

    if (room > 1 && inside_before(l, hold) < room)
        return;
    for (size_t i = 0; i < l->count; i++) {
        const struct page_hold *other = &l->holds[i];
        if (i != at && other->arrived >= 0 && other->item == hold->item)
            bar(l, other->begin > hold->begin ? other->begin : hold->begin,
                other->end < hold->end ? other->end : hold->end, y, height, "both");
    }
}

static void draw_hold(const struct lanes *l, size_t at, double y)
{
    const struct page_hold *hold = &l->holds[at];
    double height = l->height - 5, lease = hold->lease_end;

    if (is_scene(l->run))
        bar(l, hold->arrived, hold->begin, y + height / 2 - 1, 2, "wait");
    bar(l, hold->begin, hold->end, y, height, "in");
    if (lease > hold->begin)
        bar(l, lease, hold->end, y, height, "late");
    draw_overlaps(l, at, y, height);
    if (lease > hold->begin && lease < l->start + l->length)
        fprintf(l->out, "<rect class=\"lease\" x=\"%.2f%%\" width=\"2\" y=\"%.1f\" height=\"%.1f\"/>", x_of(l, lease),
                y - 2, height + 4);
}

static void draw_marks(const struct lanes *l, size_t lane, double y)
{
    static const struct {
        const char *kind, *class, *path;
    } signs[] = {{"deleted", "wrong", "M-4-4l8 8m0-8l-8 8"},
                 {"die", "died", "M-4-5h8v10h-8z"},
                 {"stop", "stopped", "M-3-5v10m5-10v10"},
                 {"go", "went", "M-3-5l7 5l-7 5z"},
                 {"lost", "told", "M-4 0l3 4l6-8"},
                 {"refused", "told", "M-4 0l3 4l6-8"},
                 {"give-up", "vain", "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0m1.5-3.5l7 7"}};

    for (size_t i = 0; i < l->run->mark_count; i++) {
        const struct page_mark *mark = &l->run->marks[i];
        for (size_t j = 0; mark->racer == l->holds[lane].racer && j < sizeof signs / sizeof *signs; j++)
            if (strcmp(signs[j].kind, mark->kind) == 0)
                sign(l, mark->at, y + (l->height - 5) / 2.0, signs[j].class, signs[j].path);
    }
}

static void draw_axis(const struct lanes *l)
{
    static const double steps[] = {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000};
    int y = (int)l->count * l->height + 4;
    double step = steps[0];

    for (size_t i = 0; i < sizeof steps / sizeof *steps && l->length / step > TICKS; i++)
        step = steps[i];
    fprintf(l->out, "<rect class=\"axis\" x=\"1%%\" width=\"98%%\" y=\"%d\" height=\"1\"/>", y);
    for (int i = 0; i * step <= l->length * 0.95; i++)
        fprintf(l->out, "<text class=\"tick\" x=\"%.2f%%\" y=\"%d\"%s>%.0f ms</text>", x_of(l, l->start + i * step),
                y + 16, i ? " text-anchor=\"middle\"" : "", i * step);
}

/* Of one that never got in: from its first mark to its last. */
static void draw_vain_wait(const struct lanes *l, size_t lane, double y)
{
    double from = 1e18, to = 0;

    for (size_t i = 0; i < l->run->mark_count; i++) {
        const struct page_mark *mark = &l->run->marks[i];
        if (mark->racer != l->holds[lane].racer)
            continue;
        from = mark->at < from ? mark->at : from;
        to = mark->at > to ? mark->at : to;
    }
    bar(l, from, to, y + (l->height - 5) / 2.0 - 1, 2, "wait");
}

/* ------------------------------------------------------------------- words */

static void say_hold(const struct lanes *l, const struct page_hold *hold)
{
    if (hold->arrived < 0)
        fprintf(l->out, "Thread %c is never inside. ", 'A' + (int)hold->racer % 26);
    else
        fprintf(l->out, "Thread %c is inside from %.0f to %.0f ms. ", 'A' + (int)hold->racer % 26,
                hold->begin - l->start, hold->end - l->start);
}

/* What somebody hears who does not see the picture. */
static void say(const struct lanes *l)
{
    if (is_scene(l->run))
        for (size_t i = 0; i < l->count; i++)
            say_hold(l, &l->holds[i]);
    else
        fprintf(l->out,
                "The first round: %zu threads that raised the counter, a bar for each from entering to leaving.",
                l->count);
}

void page_lanes(FILE *out, const struct page_run *run)
{
    struct lanes l = {.out = out, .run = run, .height = is_scene(run) ? 24 : 14};

    choose(&l);
    if (l.count == 0)
        return;
    measure(&l);
    fprintf(out, "<div class=\"lanes\">");
    if (is_scene(run)) {
        fprintf(out, "<svg class=\"who\" width=\"18\" height=\"%d\" aria-hidden=\"true\">",
                (int)l.count * l.height + AXIS);
        for (size_t i = 0; i < l.count; i++)
            fprintf(out, "<text x=\"2\" y=\"%d\">%c</text>", (int)i * l.height + 16, 'A' + (int)l.holds[i].racer % 26);
        fprintf(out, "</svg>");
    }
    fprintf(out, "<svg class=\"time\" height=\"%d\" role=\"img\" aria-label=\"", (int)l.count * l.height + AXIS);
    say(&l);
    fprintf(out, "\">");
    for (size_t i = 0; i < l.count; i++) {
        if (l.holds[i].arrived >= 0)
            draw_hold(&l, i, (double)i * l.height + 2);
        else
            draw_vain_wait(&l, i, (double)i * l.height + 2);
        draw_marks(&l, i, (double)i * l.height + 2);
    }
    draw_axis(&l);
    fprintf(out, "</svg></div>\n");
}
