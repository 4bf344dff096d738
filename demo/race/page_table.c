/* The table of all ways: what chance showed, and what showed when it was made to happen. */
#include <string.h>

#include "race/page.h"
#include "ways/way.h"

/* --------------------------------------------- what showed when it was made to happen */

struct findings {
    FILE *out;
    unsigned count;
};

static void find(struct findings *f, const char *words)
{
    fputs(f->count++ ? ", " : "<span class=\"bad\">", f->out);
    page_escape(f->out, words);
}

/* The largest of that figure in all scenes. */
static double most_of(const struct page_way *way, const char *figure)
{
    double most = 0;

    for (size_t i = 0; i < way->run_count; i++) {
        double value = page_figure(&way->runs[i], figure);
        if (way->runs[i].title[0] && value > most)
            most = value;
    }
    return most;
}

/* Of a scene that is to show flaws, those; else whatever showed. */
static unsigned flaws_of(const struct page_way *way)
{
    unsigned all = 0;

    for (size_t i = 0; i < way->run_count; i++) {
        unsigned flaws = (unsigned)page_figure(&way->runs[i], "flaws");
        unsigned foretold = flaws & (unsigned)page_figure(&way->runs[i], "shows");
        if (way->runs[i].title[0])
            all |= foretold ? foretold : flaws;
    }
    return all;
}

/* One of the way's own numbers that is a flaw, if a scene showed it. */
static void find_extra(struct findings *f, const struct page_way *way, size_t number)
{
    for (size_t i = 0; i < way->run_count; i++) {
        const struct page_run *run = &way->runs[i];
        if (!run->title[0] || number >= run->extra_count || run->extras[number].good || run->extras[number].value <= 0)
            continue;
        if (strncmp(run->extras[number].name, "deepest", 7) == 0)
            continue; /* how much, not what */
        find(f, run->extras[number].name);
        return;
    }
}

static void find_too_many(struct findings *f, const struct page_way *way)
{
    static const char *const words[] = {"two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"};
    unsigned most = (unsigned)most_of(way, "most");
    char text[40];

    if (most >= 2 && most <= 10)
        snprintf(text, sizeof text, "%s inside", words[most - 2]);
    else
        snprintf(text, sizeof text, "%u inside", most);
    find(f, text);
}

static void showed(FILE *out, const struct page_way *way)
{
    struct findings f = {.out = out};
    unsigned flaws = flaws_of(way);

    if (flaws & FLAW_OVERLAP)
        find_too_many(&f, way);
    if (flaws & FLAW_LEFT)
        find(&f, most_of(way, "left") > 0 ? "locked for ever" : "never got the lock");
    if (flaws & FLAW_DELETED)
        find(&f, "another's lock deleted");
    if (flaws & FLAW_ORDER)
        find(&f, "out of order");
    if (flaws & FLAW_IDLE)
        find(&f, "free while one waited");
    if (flaws & FLAW_EXTRA)
        find_extra(&f, way, 0);
    if (flaws & FLAW_EXTRA_2)
        find_extra(&f, way, 1);
    if (flaws == FLAW_COUNT)
        find(&f, "counter wrong");
    fputs(f.count ? "</span>" : "<span class=\"good\">no harm</span>", out);
}

static bool has_scenes(const struct page_way *way)
{
    for (size_t i = 0; i < way->run_count; i++)
        if (way->runs[i].title[0])
            return true;
    return false;
}

/* --------------------------------------------------------------- the table */

/* A figure of a race, or a dash. Beyond `harmless` it is a flaw. */
static void number(FILE *out, const struct page_run *run, const char *name, const char *format, double harmless)
{
    bool bad = run && page_figure(run, name) > harmless;

    fprintf(out, "<td class=\"wide%s\">", bad ? " bad" : "");
    if (run && page_has(run, name))
        fprintf(out, format, page_figure(run, name));
    else
        fputs("&ndash;", out);
    fputs("</td>", out);
}

static void cells_of_race(FILE *out, const struct page_run *run)
{
    static const double any = 1e18;

    if (run && page_figure(run, "counts") > 0)
        fprintf(out, "<td%s>%s</td>", page_miscounted(run) ? " class=\"bad\"" : "", run->counts);
    else
        fputs("<td>&ndash;</td>", out);
    number(out, run, "most", "%.0f", run ? page_figure(run, "room") : 0);
    number(out, run, "pairs", "%.0f", 0);
    number(out, run, "deleted", "%.0f", 0);
    number(out, run, "wait_ms_50", "%.0f&nbsp;ms", any);
    number(out, run, "commands_per_acquire", "%.1f", any);
}

static void row(FILE *out, const struct page_way *way)
{
    fprintf(out, "<tr><th scope=\"row\"><a href=\"#%s\">%d. ", way->name, way->number);
    page_title(out, way->title);
    fputs("</a></th>", out);
    cells_of_race(out, page_race(way));
    fputs("<td>", out);
    if (has_scenes(way))
        showed(out, way);
    else
        fputs(way->missing[0] ? "not run here" : "&ndash;", out);
    fputs("</td></tr>\n", out);
}

static const struct page_run *any_race(const struct page *page)
{
    for (size_t i = 0; i < page->way_count; i++)
        if (page_race(&page->ways[i]))
            return page_race(&page->ways[i]);
    return NULL;
}

void page_table(FILE *out, const struct page *page)
{
    const struct page_run *run = any_race(page);

    fputs("<h2 id=\"overview\">All ways at a glance</h2>\n<table>\n<caption>", out);
    if (run)
        fprintf(
            out,
            "The race by chance: %.0f threads of %.0f processes, a lease of %.0f&nbsp;ms, work of %.0f&nbsp;ms; at "
            "each of five points a thread that works is held up for %.0f&nbsp;ms more with a chance of %.0f&nbsp;%%. "
            "Some ways have a race of their own. Red: a flaw. ",
            page_figure(run, "threads"), page_figure(run, "processes"), page_figure(run, "lease_ms"),
            page_figure(run, "work_ms"), page_figure(run, "delay_ms"), page_figure(run, "chance"));
    fputs("<span class=\"narrow\">A wider screen shows more columns; all figures of a way are in its section.</span>"
          "</caption>\n<thead><tr><th scope=\"col\">Way</th><th scope=\"col\">Counter at the end</th>"
          "<th scope=\"col\" class=\"wide\">Most inside</th><th scope=\"col\" class=\"wide\">Pairs at once</th>"
          "<th scope=\"col\" class=\"wide\">Others&rsquo; locks deleted</th>"
          "<th scope=\"col\" class=\"wide\">Median wait</th>"
          "<th scope=\"col\" class=\"wide\">Commands per thread</th>"
          "<th scope=\"col\">When it is made to happen</th></tr></thead>\n<tbody>\n",
          out);
    for (size_t i = 0; i < page->way_count; i++)
        row(out, &page->ways[i]);
    fputs("</tbody></table>\n", out);
}
