#include "race/picture.h"

#include <stdlib.h>
#include <string.h>

enum { WIDTH = 880, MARGIN = 16, LANE = 13, BAR = 9, TITLE = 30, GAP = 26, AXIS = 34, TICKS_MAX = 12 };

/* The bars that are drawn, by when they begin, and the span of all strips. */
struct drawing {
    FILE *out;
    double scale; /* pixels for a ns */
    struct picture_bar *bars;
    size_t count;
    double start;
};

static int by_entering(const void *one, const void *other)
{
    double a = ((const struct picture_bar *)one)->entered, b = ((const struct picture_bar *)other)->entered;

    return (a > b) - (a < b);
}

static bool collect(struct drawing *d, const struct picture_strip *strip)
{
    d->count = 0;
    d->bars = malloc((strip->count + 1) * sizeof *d->bars);
    if (!d->bars)
        return false;
    for (size_t i = 0; i < strip->count; i++)
        if (strip->bars[i].worked)
            d->bars[d->count++] = strip->bars[i];
    qsort(d->bars, d->count, sizeof *d->bars, by_entering);
    d->start = d->count ? d->bars[0].entered : 0;
    return true;
}

static double length_of(const struct drawing *d)
{
    double end = d->start;

    for (size_t i = 0; i < d->count; i++)
        end = d->bars[i].left > end ? d->bars[i].left : end;
    return end - d->start;
}

static double x_of(const struct drawing *d, double when)
{
    return MARGIN + (when - d->start) * d->scale;
}

static void draw_rect(const struct drawing *d, double from, double to, double y, const char *class)
{
    fprintf(d->out, "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" rx=\"2\"/>\n", class,
            x_of(d, from), y, (to - from) * d->scale, BAR);
}

/* Where another bar lies beside this one. */
static void draw_overlaps(const struct drawing *d, size_t at, double y)
{
    const struct picture_bar *bar = &d->bars[at];

    for (size_t i = 0; i < d->count; i++) {
        double from = d->bars[i].entered > bar->entered ? d->bars[i].entered : bar->entered;
        double to = d->bars[i].left < bar->left ? d->bars[i].left : bar->left;
        if (i != at && from < to)
            draw_rect(d, from, to, y, "both");
    }
}

static void draw_bar(const struct drawing *d, size_t at, double lease_ns, double y)
{
    const struct picture_bar *bar = &d->bars[at];
    double over = bar->entered + lease_ns, x = x_of(d, bar->left), middle = y + BAR / 2.0;

    draw_rect(d, bar->entered, bar->left, y, "in");
    if (over < bar->left)
        draw_rect(d, over, bar->left, y, "late");
    draw_overlaps(d, at, y);
    if (bar->deleted_anothers)
        fprintf(d->out, "<path class=\"wrong\" d=\"M%.1f %.1fl8 8m0 -8l-8 8\"/>\n", x + 4, middle - 4);
}

static double draw_strip(struct drawing *d, const struct picture_strip *strip, double y)
{
    fprintf(d->out, "<text x=\"%d\" y=\"%.1f\">%s</text>\n", MARGIN, y + 16, strip->title);
    y += TITLE;
    for (size_t i = 0; i < d->count; i++)
        draw_bar(d, i, strip->lease_ns, y + (double)i * LANE);
    return y + (double)d->count * LANE + GAP;
}

/* A scale of milliseconds, in round steps. */
static void draw_axis(const struct drawing *d, double length, double y)
{
    static const double steps[] = {10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000};
    double step = steps[0] * 1e6;

    for (size_t i = 0; i < sizeof steps / sizeof *steps && length / step > TICKS_MAX; i++)
        step = steps[i] * 1e6;
    fprintf(d->out, "<path class=\"axis\" d=\"M%d %.1fh%.1f\"/>\n", MARGIN, y, length * d->scale);
    for (int i = 0; i * step <= length; i++)
        fprintf(d->out, "<text class=\"tick\" x=\"%.1f\" y=\"%.1f\">%.0f ms</text>\n", MARGIN + i * step * d->scale,
                y + 16, i * step / 1e6);
}

static void draw_head(FILE *out, double height)
{
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" role=\"img\" "
            "aria-label=\"Threads in a critical section, a bar for each\">\n"
            "<style>\n"
            "svg { font: 14px system-ui, sans-serif; }\n"
            ".back { fill: #fff; }\n"
            "text { fill: #222; } .tick { fill: #666; font-size: 11px; } .axis { stroke: #999; fill: none; }\n"
            ".in { fill: #4a7fb5; } .late { fill: #a9c4de; } .both { fill: #d33; }\n"
            ".wrong { stroke: #d33; stroke-width: 2; fill: none; }\n"
            "@media (prefers-color-scheme: dark) {\n"
            ".back { fill: #0d1117; } text { fill: #ddd; } .tick { fill: #999; } .late { fill: #34526e; }\n"
            "}\n"
            "</style>\n"
            "<rect class=\"back\" width=\"%d\" height=\"%.0f\"/>\n",
            WIDTH, height, WIDTH, height);
}

bool picture_write(FILE *out, const struct picture_strip *strips, size_t count)
{
    struct drawing *drawings = calloc(count, sizeof *drawings);
    double longest = 1, y = MARGIN;
    bool good = drawings != NULL;

    for (size_t i = 0; good && i < count; i++) {
        good = collect(&drawings[i], &strips[i]);
        double length = good ? length_of(&drawings[i]) : 0;
        longest = length > longest ? length : longest;
        y += TITLE + (double)drawings[i].count * LANE + GAP;
    }
    if (good)
        draw_head(out, y + AXIS);
    y = MARGIN;
    for (size_t i = 0; good && i < count; i++) {
        drawings[i].out = out;
        drawings[i].scale = (WIDTH - 4 * MARGIN) / longest;
        y = draw_strip(&drawings[i], &strips[i], y);
    }
    if (good && count) {
        draw_axis(&drawings[count - 1], longest, y - GAP / 2.0);
        fputs("</svg>\n", out);
    }
    for (size_t i = 0; drawings && i < count; i++)
        free(drawings[i].bars);
    free(drawings);
    return good;
}
