/* A way's section of the page: its two sentences, its pictures, its figures and its code. */
#include <string.h>

#include "race/lanes.h"
#include "race/page.h"

static const char *class_of(bool bad)
{
    return bad ? " class=\"bad\"" : "";
}

/* ----------------------------------------------------------------- figures */

static void fact(FILE *out, const char *what, bool bad, const char *format, double value)
{
    fprintf(out, "<div><dt>");
    page_title(out, what);
    fprintf(out, "</dt><dd%s>", class_of(bad));
    fprintf(out, format, value);
    fprintf(out, "</dd></div>\n");
}

/* Figures of the race, as far as they mean something. */
static void known_facts(FILE *out, const struct page_run *run)
{
    const double any = 1e18;
    const struct {
        const char *name, *what, *format;
        double harmless;
    } facts[] = {{"most", "Most inside at once", "%.0f", page_figure(run, "room")},
                 {"pairs", "Overlapping pairs", "%.0f", 0},
                 {"deleted", "Others' locks deleted", "%.0f", 0},
                 {"left", "Locks left for ever", "%.0f", 0},
                 {"inverted_percent", "Pairs out of order", "%.0f&nbsp;%%", any},
                 {"wait_ms_50", "Wait, median", "%.0f&nbsp;ms", any},
                 {"wait_ms_99", "Wait, 99 of 100", "%.0f&nbsp;ms", any},
                 {"commands_per_acquire", "Commands per thread", "%.1f", any},
                 {"threads_per_round", "Threads started in a round", "%.0f", any}};

    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        double value = page_figure(run, facts[i].name);
        if (page_has(run, facts[i].name))
            fact(out, facts[i].what, value > facts[i].harmless, facts[i].format, value);
    }
}

static void race_facts(FILE *out, const struct page_run *run)
{
    fprintf(out, "<dl>\n");
    if (page_figure(run, "counts") > 0)
        fprintf(out, "<div><dt>Counter, which must be %.0f</dt><dd%s>%s</dd></div>\n", page_figure(run, "limit"),
                class_of(page_miscounted(run)), run->counts);
    known_facts(out, run);
    if (page_figure(run, "denied") > 0)
        fact(out, "Told that the lock can't be had", false, "%.0f", page_figure(run, "denied"));
    for (size_t i = 0; i < run->extra_count; i++)
        fact(out, run->extras[i].name, !run->extras[i].good && run->extras[i].value > 0, "%.0f", run->extras[i].value);
    fputs("</dl>\n", out);
}

/* ---------------------------------------------------------------- pictures */

static void draw(FILE *out, const struct lanes *lanes)
{
    int height = (int)lanes->count * lanes->height;

    fprintf(out, "<div class=\"lanes\">");
    if (lanes->run->title[0]) {
        fprintf(out, "<svg class=\"who\" width=\"18\" height=\"%d\" aria-hidden=\"true\">", height + LANES_AXIS);
        for (size_t i = 0; i < lanes->count; i++)
            fprintf(out, "<text x=\"2\" y=\"%d\">%c</text>", (int)i * lanes->height + 16,
                    lanes_letter(lanes->shown[i].racer));
        fprintf(out, "</svg>");
    }
    fprintf(out, "<svg class=\"time\" height=\"%d\" role=\"img\" aria-label=\"", height + LANES_AXIS);
    lanes_say(out, lanes);
    fprintf(out, "\">");
    lanes_draw(out, lanes);
    lanes_axis(out, lanes, height + 4);
    fprintf(out, "</svg></div>\n");
}

/* What came of a scene. */
static void tell_scene(FILE *out, const struct page_run *run)
{
    double rounds = page_figure(run, "rounds");

    fprintf(out, "<span class=\"%s\">", page_figure(run, "flaws") == 0 ? "good" : "bad");
    page_title(out, run->words);
    fprintf(out, "</span>. Lease %.0f&nbsp;ms.", page_figure(run, "lease_ms"));
    if (rounds > 1)
        fprintf(out, " As foretold in %.0f of %.0f rounds.", page_figure(run, "foretold"), rounds);
}

/* Which threads the lanes of a race by chance are. */
static void tell_race(FILE *out, const struct page_run *run, const struct lanes *lanes)
{
    double threads = page_figure(run, "threads");
    bool counts = page_figure(run, "counts") != 0;

    fprintf(out, "%.0f threads of %.0f processes%s. ", threads, page_figure(run, "processes"),
            page_figure(run, "rounds") > 1 ? ", the first round" : "");
    if (lanes->count == 0)
        return;
    if (lanes->count < lanes->whole)
        fprintf(out, "The first %zu of the %zu threads that worked, in the order in which they got in.", lanes->count,
                lanes->whole);
    else if (lanes->whole == 1)
        fprintf(out, "The one that found something to do; the others found that all was done.");
    else if ((double)lanes->whole < threads)
        fprintf(out, "The %zu that %s, in the order in which they got in; the others found that all was done.",
                lanes->whole, counts ? "found the counter below its limit" : "found something to do");
    else
        fprintf(out, "All of them, in the order in which they got in.");
}

static void one_run(FILE *out, const struct page_run *run)
{
    struct lanes lanes;

    fprintf(out, "<h4>");
    page_title(out, run->title[0] ? run->title : "By chance");
    fprintf(out, "</h4>\n");
    if (!lanes_fill(&lanes, run))
        return;
    fprintf(out, lanes.count ? "<figure>\n" : "<p class=\"soft\">");
    if (lanes.count)
        draw(out, &lanes);
    fprintf(out, lanes.count ? "<figcaption>" : "There is no lock, so there is nothing to draw. ");
    if (run->title[0])
        tell_scene(out, run);
    else
        tell_race(out, run, &lanes);
    fprintf(out, lanes.count ? "</figcaption>\n</figure>\n" : "</p>\n");
    if (!run->title[0])
        race_facts(out, run);
    lanes_free(&lanes);
}

/* -------------------------------------------------------------------- code */

static bool ends_excerpt(const char *line)
{
    return strncmp(line, "static const struct scene", 25) == 0 || strncmp(line, "const struct way", 16) == 0;
}

/* The source up to what only the harness needs, without its includes. */
static void code(FILE *out, const struct page_way *way, const char *top)
{
    char path[400], line[300];
    bool begun = false;
    FILE *in;

    snprintf(path, sizeof path, "%s/%s", top, way->source);
    in = fopen(path, "r");
    if (!in)
        return;
    fprintf(out, "<details><summary>The code, ");
    page_escape(out, way->source);
    fprintf(out, "</summary><pre tabindex=\"0\" role=\"region\" aria-label=\"The code of ");
    page_escape(out, way->title);
    fprintf(out, "\"><code>");
    while (fgets(line, sizeof line, in) && !ends_excerpt(line)) {
        begun |= line[0] != '#' && line[0] != '\n';
        if (begun)
            page_escape(out, line);
    }
    fprintf(out, "</code></pre></details>\n");
    fclose(in);
}

void page_section(FILE *out, const struct page_way *way, const char *top)
{
    fprintf(out, "<section id=\"%s\" aria-labelledby=\"%s-title\">\n<h3 id=\"%s-title\">%d. ", way->name, way->name,
            way->name, way->number);
    page_title(out, way->title);
    fprintf(out, "</h3>\n<p>");
    page_escape(out, way->text);
    fprintf(out, "</p>\n");
    if (way->missing[0]) {
        fprintf(out, "<p class=\"soft\">Not run here: ");
        page_escape(out, way->missing);
        fprintf(out, ".</p>\n");
    }
    for (size_t i = 0; i < way->run_count; i++)
        one_run(out, &way->runs[i]);
    code(out, way, top);
    fprintf(out, "<p class=\"up soft\"><a href=\"#overview\">All ways at a glance</a></p>\n</section>\n");
}
