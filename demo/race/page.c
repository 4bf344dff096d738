#include "race/page.h"

#include <ctype.h>
#include <string.h>

#include "race/lanes.h"

static const char before_colours[] = "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                                     "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                                     "<meta name=\"color-scheme\" content=\"light dark\">\n"
                                     "<link rel=\"icon\" href=\"data:,\">\n"
                                     "<title>Ways to lock, and what goes wrong with them</title>\n"
                                     "<style>\n";

static const char style[] =
    "* { box-sizing: border-box; }\n"
    "html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }\n"
    "body { margin: 0 auto; padding: 1rem; max-width: 70rem; background: var(--back); color: var(--text);\n"
    "  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }\n"
    "h1 { font-size: 1.7rem; line-height: 1.2; } h2 { font-size: 1.35rem; margin: 2.5rem 0 .5rem; }\n"
    "h3 { font-size: 1.2rem; margin: 0 0 .5rem; } h4 { font-size: 1rem; margin: 1.75rem 0 .25rem; }\n"
    "h1, h2, h3, h4, p, figcaption { text-wrap: pretty; } p, figcaption { max-width: 48rem; }\n"
    "a { color: inherit; text-underline-offset: .15em; }\n"
    ":focus-visible { outline: 3px solid var(--in); outline-offset: 2px; border-radius: 2px; }\n"
    ".skip { position: absolute; left: -100vw; } .skip:focus { position: static; }\n"
    "nav ul, .key { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; }\n"
    ".key li { padding-left: 1.6rem; text-indent: -1.6rem; } .key svg { vertical-align: -2px; margin-right: .25rem; }\n"
    "section { border-top: 1px solid var(--line); padding-top: 1.5rem; margin-top: 2.5rem; }\n"
    "table { border-collapse: collapse; width: 100%; line-height: 1.35; }\n"
    "caption, .soft { color: var(--soft); font-size: .9rem; } caption { text-align: left; padding-bottom: .75rem; }\n"
    "th, td { padding: .4rem .5rem; text-align: right; border-bottom: 1px solid var(--line); vertical-align: top;\n"
    "  overflow-wrap: break-word; }\n"
    "thead th { vertical-align: bottom; } th:first-child { text-align: left; padding-left: 0; min-width: 8rem; }\n"
    "@media (min-width: 60rem) { th:first-child { min-width: 16rem; } }\n"
    "tbody th { font-weight: normal; } td:last-child, thead th:last-child { text-align: left; padding-right: 0; }\n"
    "thead th:last-child { min-width: 9rem; }\n"
    ".bad { color: var(--bad); font-weight: 700; } .good { color: var(--good); }\n"
    "dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(9.5rem, 1fr)); gap: .5rem; }\n"
    "dl div { background: var(--card); border-radius: .4rem; padding: .4rem .6rem; }\n"
    "dt { color: var(--soft); font-size: .85rem; line-height: 1.3; } dd { margin: .1rem 0 0; }\n"
    "figure { margin: .5rem 0 0; } figcaption { color: var(--soft); font-size: .9rem; margin-top: .25rem; }\n"
    ".lanes { display: flex; } .lanes .time { flex: 1; min-width: 0; overflow: visible; }\n"
    "svg text { fill: var(--text); font-size: 13px; } svg .tick { fill: var(--soft); font-size: 12px; }\n"
    "pre { background: var(--card); padding: .75rem; border-radius: .4rem; overflow-x: auto; font-size: .85rem;\n"
    "  line-height: 1.4; overflow-wrap: normal; }\n"
    "details { margin-top: 1rem; } summary { cursor: pointer; padding: .5rem 0; }\n"
    ".narrow { display: none; }\n"
    "@media (max-width: 44rem) { .wide { display: none; } .narrow { display: block; } }\n"
    "@media print { body { max-width: none; } figure, dl, tr { break-inside: avoid; } svg { print-color-adjust: exact; "
    "}\n"
    "  .skip, nav, .up { display: none; } }\n"
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

void page_title(FILE *out, const char *text)
{
    static const char name[] = "dibs";

    if (*text && strncmp(text, name, sizeof name - 1) != 0)
        fputc(toupper((unsigned char)*text++), out);
    page_escape(out, text);
}

/* ------------------------------------------------------------------ the page */

static void head(FILE *out)
{
    static const char light[] = "--line: #d9d9de; --card: #f6f6f8; --bad: #b00020;";
    static const char dark[] = "--line: #33363d; --card: #161b22; --bad: #ff7b72;";

    fputs(before_colours, out);
    fprintf(out, ":root { color-scheme: light dark; %s\n  %s }\n", lanes_colours, light);
    fprintf(out, "@media (prefers-color-scheme: dark) { :root { %s\n  %s } }\n", lanes_dark_colours, dark);
    fputs(lanes_style, out);
    fputs(style, out);
}

void page_write(FILE *out, const struct page *page, const char *top)
{
    head(out);
    fprintf(out,
            "<header><h1>Ways to lock, and what goes wrong with them</h1>\n"
            "<p>Every thread gets into a lock once, to raise a counter that must stop at its limit. First chance alone "
            "holds threads up, in a race that is the same for all; then what chance rarely shows is made to happen. "
            "Everything is counted from outside the lock. All figures and pictures are of one run, %s, on Redis "
            "%s.</p></header>\n"
            "<nav aria-label=\"This page\"><ul><li><a href=\"#overview\">All ways at a glance</a></li>"
            "<li><a href=\"#key\">How to read the pictures</a></li>"
            "<li><a href=\"#ways\">The ways, one by one</a></li></ul></nav>\n"
            "<main>\n",
            page->date, page->server);
    page_table(out, page);
    fputs("<h2 id=\"key\">How to read the pictures</h2>\n<p>A lane is a thread, and time goes to the right.</p>\n",
          out);
    lanes_key(out);
    fputs("<h2 id=\"ways\">The ways, one by one</h2>\n", out);
    for (size_t i = 0; i < page->way_count; i++)
        page_section(out, &page->ways[i], top);
    fputs("</main>\n</body>\n</html>\n", out);
}
