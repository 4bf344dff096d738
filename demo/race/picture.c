#include "race/picture.h"

#include <stdlib.h>

#include "race/lanes.h"

enum { WIDTH = 880, MARGIN = 16, TITLE = 26, GAP = 20, KEY = 30 };

static int height_of(const struct lanes *lanes)
{
    return TITLE + (int)lanes->count * lanes->height + GAP;
}

static void draw_head(FILE *out, int height)
{
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\" "
            "aria-labelledby=\"title desc\">\n"
            "<title id=\"title\">Threads in a critical section, a bar for each</title>\n<desc id=\"desc\">",
            WIDTH, height);
}

static void say(FILE *out, const struct picture_strip *strip, const struct lanes *lanes)
{
    page_escape(out, strip->title);
    fputs(". ", out);
    lanes_say(out, lanes);
}

static void draw_style(FILE *out, int height)
{
    fprintf(out,
            "</desc>\n<style>\n:root { color-scheme: light dark; %s }\n"
            "@media (prefers-color-scheme: dark) { :root { %s } }\n"
            "svg { font: 14px system-ui, sans-serif; } text { fill: var(--text); }\n"
            ".tick { fill: var(--soft); font-size: 12px; } .back { fill: var(--back); }\n%s</style>\n"
            "<rect class=\"back\" width=\"%d\" height=\"%d\"/>\n",
            lanes_colours, lanes_dark_colours, lanes_style, WIDTH, height);
}

/* The time goes from one margin to the other; what is said of it in per cent, is of that width. */
static void begin_strip(FILE *out, int y, int height)
{
    fprintf(out, "<svg x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" overflow=\"visible\">\n", MARGIN, y,
            WIDTH - 2 * MARGIN, height);
}

static void draw(FILE *out, const struct picture_strip *strips, const struct lanes *lanes, size_t count)
{
    int y = MARGIN, height = 2 * MARGIN + LANES_AXIS + KEY;

    for (size_t i = 0; i < count; i++)
        height += height_of(&lanes[i]);
    draw_head(out, height);
    for (size_t i = 0; i < count; i++)
        say(out, &strips[i], &lanes[i]);
    draw_style(out, height);
    for (size_t i = 0; i < count; i++) {
        fprintf(out, "<text class=\"title\" x=\"%d\" y=\"%d\">", MARGIN, y + 14);
        page_escape(out, strips[i].title);
        fprintf(out, "</text>\n");
        begin_strip(out, y + TITLE, (int)lanes[i].count * lanes[i].height);
        lanes_draw(out, &lanes[i]);
        fputs("</svg>\n", out);
        y += height_of(&lanes[i]);
    }
    begin_strip(out, y - GAP / 2, LANES_AXIS);
    lanes_axis(out, &lanes[count - 1], 0);
    fputs("</svg>\n", out);
    lanes_key_line(out, MARGIN, y + LANES_AXIS + KEY / 2);
    fputs("</svg>\n", out);
}

bool picture_write(FILE *out, const struct picture_strip *strips, size_t count)
{
    struct lanes *lanes = calloc(count + 1, sizeof *lanes);
    double longest = 0;
    bool good = lanes != NULL;

    for (size_t i = 0; good && i < count; i++) {
        good = lanes_fill(&lanes[i], strips[i].run);
        longest = good && lanes[i].length > longest ? lanes[i].length : longest;
    }
    for (size_t i = 0; good && i < count; i++)
        lanes[i].length = longest;
    if (good && count)
        draw(out, strips, lanes, count);
    for (size_t i = 0; lanes && i < count; i++)
        lanes_free(&lanes[i]);
    free(lanes);
    return good;
}
