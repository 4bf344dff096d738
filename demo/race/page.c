#include "race/page.h"

#include <string.h>

static const char head[] =
    "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<meta name=\"color-scheme\" content=\"light dark\">\n"
    "<link rel=\"icon\" href=\"data:,\">\n"
    "<title>Ways to lock, and what goes wrong with them</title>\n"
    "<style>\n"
    ":root { color-scheme: light dark; --back: #fff; --text: #1c1c1e; --soft: #5b5b62; --line: #d9d9de;\n"
    "  --card: #f6f6f8; --in: #4a7fb5; --late: #a9c4de; --both: #d22; --bad: #b00020; --good: #1a7f37; }\n"
    "@media (prefers-color-scheme: dark) { :root { --back: #0d1117; --text: #e6e6ea; --soft: #a0a0aa;\n"
    "  --line: #33363d; --card: #161b22; --in: #5b93cc; --late: #34526e; --both: #ff5a4f; --bad: #ff7b72;\n"
    "  --good: #3fb950; } }\n"
    "* { box-sizing: border-box; }\n"
    "body { margin: 0 auto; padding: 1rem; max-width: 60rem; background: var(--back); color: var(--text);\n"
    "  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }\n"
    "h1 { font-size: 1.6rem; line-height: 1.2; } h2 { font-size: 1.25rem; margin: 0 0 .5rem; }\n"
    "h3 { font-size: 1rem; margin: 1.5rem 0 .25rem; }\n"
    "a { color: inherit; } :focus-visible { outline: 3px solid var(--in); outline-offset: 2px; }\n"
    ".skip { position: absolute; left: -100vw; } .skip:focus { position: static; }\n"
    "section { border-top: 1px solid var(--line); padding-top: 1.5rem; margin-top: 2rem; }\n"
    ".scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }\n"
    "th, td { padding: .3rem .5rem; text-align: right; border-bottom: 1px solid var(--line);\n"
    "  overflow-wrap: normal; }\n"
    "th:first-child { text-align: left; min-width: 11rem; } tbody th { font-weight: normal; }\n"
    ".bad { color: var(--bad); font-weight: 700; } .good { color: var(--good); }\n"
    "dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(9.5rem, 1fr)); gap: .5rem 1rem; }\n"
    "dl div { background: var(--card); border-radius: .4rem; padding: .4rem .6rem; }\n"
    "dt { color: var(--soft); font-size: .85rem; } dd { margin: 0; }\n"
    "figure { margin: 0; } figcaption { color: var(--soft); font-size: .9rem; }\n"
    ".lanes { display: flex; } .lanes .time { flex: 1; min-width: 0; overflow: visible; }\n"
    "svg text { fill: var(--text); font-size: 13px; } svg .tick { fill: var(--soft); font-size: 12px; }\n"
    ".in { fill: var(--in); } .late { fill: var(--late); } .both { fill: var(--both); } .wait, .axis {\n"
    "  fill: var(--soft); } .lease { fill: var(--text); }\n"
    ".wrong, .vain { stroke: var(--both); stroke-width: 2.5; fill: none; } .died, .went { fill: var(--text); }\n"
    ".stopped { stroke: var(--text); stroke-width: 3; } .told { stroke: var(--good); stroke-width: 3; fill: none; }\n"
    ".wrong, .died, .went, .stopped, .told { paint-order: stroke; }\n"
    "pre { background: var(--card); padding: .75rem; border-radius: .4rem; overflow-x: auto; font-size: .85rem;\n"
    "  overflow-wrap: normal; }\n"
    "summary { cursor: pointer; padding: .4rem 0; } .key span { display: inline-block; margin-right: 1rem; }\n"
    ".key svg { vertical-align: -2px; }\n"
    "@media print { details { display: block; } }\n"
    "</style>\n</head>\n<body>\n"
    "<a class=\"skip\" href=\"#ways\">To the ways</a>\n";

/* -------------------------------------------------------------------- text */

void page_escape(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '&')
            fputs("&amp;", out);
        else if (*text == '<')
            fputs("&lt;", out);
        else if (*text == '>')
            fputs("&gt;", out);
        else if (*text == '"')
            fputs("&quot;", out);
        else
            fputc(*text, out);
    }
}

static const char *class_of(bool bad)
{
    return bad ? " class=\"bad\"" : "";
}

/* -------------------------------------------------------------- the overview */

static const struct page_run *race_of(const struct page_way *way)
{
    for (size_t i = 0; i < way->run_count; i++)
        if (!way->runs[i].title[0])
            return &way->runs[i];
    return NULL;
}

/* Whether a round ended elsewhere than at the limit. */
static bool miscounted(const struct page_run *run)
{
    char counts[sizeof run->counts];
    char *rest = NULL, *count;
    double limit = page_figure(run, "limit");

    if (page_figure(run, "counts") == 0)
        return false;
    snprintf(counts, sizeof counts, "%s", run->counts);
    for (count = strtok_r(counts, " ", &rest); count; count = strtok_r(NULL, " ", &rest)) {
        char limit_text[24];
        snprintf(limit_text, sizeof limit_text, "%.0f", limit);
        if (strcmp(count, limit_text) != 0)
            return true;
    }
    return false;
}

static const char *counts_of(const struct page_run *run)
{
    return page_figure(run, "counts") == 0 ? "&ndash;" : run->counts;
}

static void number_cell(FILE *out, const struct page_run *run, const char *name, double harmless, const char *unit)
{
    double value = page_figure(run, name);

    fprintf(out, "<td%s>%.0f%s</td>", class_of(value > harmless), value, unit);
}

static void overview_row(FILE *out, const struct page_way *way)
{
    const struct page_run *run = race_of(way);

    if (!run)
        return;
    fprintf(out, "<tr><th scope=\"row\"><a href=\"#%s\">%d ", way->name, way->number);
    page_escape(out, way->title);
    fprintf(out, "</a></th><td%s>%s</td>", class_of(miscounted(run)), counts_of(run));
    number_cell(out, run, "most", page_figure(run, "room"), "");
    number_cell(out, run, "pairs", 0, "");
    number_cell(out, run, "deleted", 0, "");
    number_cell(out, run, "wait_ms_50", 1e18, "&nbsp;ms");
    fprintf(out, "<td>%.1f</td></tr>\n", page_figure(run, "commands_per_acquire"));
}

static void overview(FILE *out, const struct page *page)
{
    bool any = false;

    for (size_t i = 0; i < page->way_count; i++)
        any |= race_of(&page->ways[i]) != NULL;
    if (!any)
        return;
    fputs("<h2 id=\"overview\">All ways in the same race</h2>\n"
          "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-labelledby=\"overview\"><table>\n"
          "<thead><tr><th scope=\"col\">Way</th><th scope=\"col\">Counter, each round</th>"
          "<th scope=\"col\">Most inside</th><th scope=\"col\">Pairs at once</th>"
          "<th scope=\"col\">Others&rsquo; locks deleted</th><th scope=\"col\">Median wait</th>"
          "<th scope=\"col\">Commands per acquire</th></tr></thead>\n<tbody>\n",
          out);
    for (size_t i = 0; i < page->way_count; i++)
        overview_row(out, &page->ways[i]);
    fputs("</tbody></table></div>\n", out);
}

/* --------------------------------------------------------------------- a way */

static void fact(FILE *out, const char *what, bool bad, const char *format, double value)
{
    fprintf(out, "<div><dt>");
    page_escape(out, what);
    fprintf(out, "</dt><dd%s>", class_of(bad));
    fprintf(out, format, value);
    fprintf(out, "</dd></div>\n");
}

static void extra_facts(FILE *out, const struct page_run *run)
{
    for (size_t i = 0; i < run->extra_count; i++)
        fact(out, run->extras[i].name, !run->extras[i].good && run->extras[i].value > 0, "%.0f", run->extras[i].value);
}

static void race_facts(FILE *out, const struct page_run *run)
{
    fprintf(out, "<dl>\n");
    if (page_figure(run, "counts") != 0)
        fprintf(out, "<div><dt>Counter, which must be %.0f</dt><dd%s>%s</dd></div>\n", page_figure(run, "limit"),
                class_of(miscounted(run)), run->counts);
    fact(out, "Most inside at once", page_figure(run, "most") > page_figure(run, "room"), "%.0f",
         page_figure(run, "most"));
    fact(out, "Overlapping pairs", page_figure(run, "pairs") > 0, "%.0f", page_figure(run, "pairs"));
    fact(out, "Others' locks deleted", page_figure(run, "deleted") > 0, "%.0f", page_figure(run, "deleted"));
    fact(out, "Locks left for ever", page_figure(run, "left") > 0, "%.0f", page_figure(run, "left"));
    fact(out, "Pairs out of order", false, "%.0f&nbsp;%%", page_figure(run, "inverted_percent"));
    fact(out, "Wait, median", false, "%.0f&nbsp;ms", page_figure(run, "wait_ms_50"));
    fact(out, "Wait, 99 of 100", false, "%.0f&nbsp;ms", page_figure(run, "wait_ms_99"));
    fact(out, "Commands per acquire", false, "%.1f", page_figure(run, "commands_per_acquire"));
    fact(out, "Threads started in a round", false, "%.0f", page_figure(run, "threads_per_round"));
    extra_facts(out, run);
    fputs("</dl>\n", out);
}

static void one_run(FILE *out, const struct page_run *run)
{
    double rounds = page_figure(run, "rounds");

    fprintf(out, "<h3>");
    page_escape(out, run->title[0] ? run->title : "By chance");
    fprintf(out, "</h3>\n<figure>\n");
    page_lanes(out, run);
    fprintf(out, "<figcaption>");
    if (run->title[0]) {
        fprintf(out, "<span class=\"%s\">", page_figure(run, "shows") == 0 ? "good" : "bad");
        page_escape(out, run->words);
        fprintf(out, "</span>. Lease %.0f&nbsp;ms.", page_figure(run, "lease_ms"));
    } else {
        fprintf(out, "%.0f threads of %.0f processes, lease %.0f&nbsp;ms; the first round.",
                page_figure(run, "threads"), page_figure(run, "processes"), page_figure(run, "lease_ms"));
    }
    if (rounds > 1 && run->title[0])
        fprintf(out, " As foretold in %.0f of %.0f rounds.", page_figure(run, "foretold"), rounds);
    fprintf(out, "</figcaption>\n</figure>\n");
    if (!run->title[0])
        race_facts(out, run);
}

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
    fprintf(out, "<details><summary>The code</summary><pre tabindex=\"0\"><code>");
    while (fgets(line, sizeof line, in) && !ends_excerpt(line)) {
        begun |= line[0] != '#' && line[0] != '\n';
        if (begun)
            page_escape(out, line);
    }
    fprintf(out, "</code></pre></details>\n");
    fclose(in);
}

static void one_way(FILE *out, const struct page_way *way, const char *top)
{
    fprintf(out, "<section id=\"%s\" aria-labelledby=\"%s-title\">\n<h2 id=\"%s-title\">%d. ", way->name, way->name,
            way->name, way->number);
    page_escape(out, way->title);
    fprintf(out, "</h2>\n<p>");
    page_escape(out, way->text);
    fprintf(out, "</p>\n");
    for (size_t i = 0; i < way->run_count; i++)
        one_run(out, &way->runs[i]);
    code(out, way, top);
    fprintf(out, "</section>\n");
}

/* ------------------------------------------------------------------ the page */

static void key(FILE *out)
{
    static const char *const signs[][2] = {
        {"<rect class=\"in\" width=\"18\" height=\"10\" y=\"2\"/>", "inside"},
        {"<rect class=\"late\" width=\"18\" height=\"10\" y=\"2\"/>", "beyond the first lease"},
        {"<rect class=\"both\" width=\"18\" height=\"10\" y=\"2\"/>", "another is inside as well"},
        {"<rect class=\"wait\" width=\"18\" height=\"2\" y=\"6\"/>", "waits"},
        {"<rect class=\"lease\" width=\"2\" height=\"14\" x=\"8\"/>", "the lease ends"},
        {"<path class=\"wrong\" d=\"M5 3l8 8m0-8l-8 8\"/>", "deletes another&rsquo;s lock"},
        {"<path class=\"died\" d=\"M5 2h8v10h-8z\"/>", "is killed"},
        {"<path class=\"stopped\" d=\"M6 2v10m5-10v10\"/>", "is stopped"},
        {"<path class=\"went\" d=\"M6 2l7 5l-7 5z\"/>", "goes on"},
        {"<path class=\"told\" d=\"M5 7l3 4l6-8\"/>", "is told that the lock is lost, or refused"},
        {"<path class=\"vain\" d=\"M4 7a5 5 0 1 0 10 0a5 5 0 1 0-10 0m1.5-3.5l7 7\"/>", "gives up waiting"}};

    fprintf(out, "<p class=\"key\">");
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        fprintf(out, "<span><svg width=\"18\" height=\"14\" aria-hidden=\"true\">%s</svg> %s</span> ", signs[i][0],
                signs[i][1]);
    fprintf(out, "</p>\n");
}

void page_write(FILE *out, const struct page *page, const char *top)
{
    fputs(head, out);
    fprintf(out,
            "<header><h1>Ways to lock, and what goes wrong with them</h1>\n"
            "<p>Every thread gets into a lock once, to raise a counter that must stop at its limit. All figures and "
            "pictures are of one run, %s, on Redis %s. What is counted is seen from outside the lock.</p></header>\n"
            "<main>\n",
            page->date, page->server);
    overview(out, page);
    fputs("<h2 id=\"ways\">The ways, one by one</h2>\n<p>A lane is a thread.</p>\n", out);
    key(out);
    for (size_t i = 0; i < page->way_count; i++)
        one_way(out, &page->ways[i], top);
    fputs("</main>\n</body>\n</html>\n", out);
}
