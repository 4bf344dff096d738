/* The signs in the lanes, their meaning, and their shape. */
#include <string.h>

#include "race/lanes.h"

const char lanes_colours[] =
    "--back: #fff; --text: #1c1c1e; --soft: #5b5b62; --in: #3d74ad; --both: #d22; --good: #1a7f37;";
const char lanes_dark_colours[] =
    "--back: #0d1117; --text: #e6e6ea; --soft: #a0a0aa; --in: #5b93cc; --both: #ff5a4f; --good: #3fb950;";
const char lanes_style[] =
    ".in { fill: var(--in); } .both { fill: var(--both); stroke: var(--both); } .two { fill: var(--back); }\n"
    ".late { fill: var(--back); stroke: var(--in); stroke-width: 1.5; } .wait, .axis { fill: var(--soft); }\n"
    ".lease { fill: var(--text); } .renewed { fill: var(--back); }\n"
    ".halo { fill: none; stroke: var(--back); stroke-width: 5; }\n"
    ".wrong, .vain { stroke: var(--both); stroke-width: 2.5; fill: none; } .died, .went { fill: var(--text); }\n"
    ".stopped { stroke: var(--text); stroke-width: 3; } .told { stroke: var(--good); stroke-width: 3; fill: none; }\n";

static const char check[] = "M-4 0l3 4l6-8";

static const struct lanes_sign signs[] = {
    {NULL, "in", "M-9-5h18v10h-18z", NULL, "inside", "inside"},
    {NULL, "late", "M-8-4.5h16v9h-16z", NULL, "inside, but the lease is over", "lease over"},
    {NULL, "both", "M-9-5h18v4h-18zm0 6h18v4h-18z", NULL, "inside, and another is, too", "two inside"},
    {NULL, "wait", "M-9-1h18v2h-18z", NULL, "waits", NULL},
    {NULL, "lease", "M-1-7h2v14h-2z", NULL, "the lease ends", "lease ends"},
    {NULL, "in", "M-9-5h18v10h-18zm9 1l-4 4l4 4l4-4z", NULL, "the first lease would end here, but was renewed",
     "lease renewed"},
    {"deleted", "wrong", "M-4-4l8 8m0-8l-8 8", "deletes another's lock", "deletes another's lock",
     "deletes another's lock"},
    {"die", "died", "M-4-5h8v10h-8z", "is killed", "is killed", NULL},
    {"stop", "stopped", "M-3-5v10m5-10v10", "is stopped", "is stopped", NULL},
    {"go", "went", "M-3-5l7 5l-7 5z", "goes on", "goes on", NULL},
    {"give-up", "vain", "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0m1.5-3.5l7 7", "gives up waiting", "gives up waiting",
     NULL},
    {"lost", "told", check, "is told that the lock is lost",
     "is told: the lock is lost, can't be had now, or the write is refused", NULL},
    {"refused", "told", check, "writes, and is refused", NULL, NULL},
    {"denied", "told", check, "is told that the lock can't be had", NULL, NULL},
};
enum { SIGNS = sizeof signs / sizeof *signs };

const struct lanes_sign *lanes_sign(const char *kind)
{
    for (size_t i = 0; i < SIGNS; i++)
        if (signs[i].kind && strcmp(signs[i].kind, kind) == 0)
            return &signs[i];
    return NULL;
}

static void glyph(FILE *out, const struct lanes_sign *sign, int x, int y)
{
    fprintf(out, "<path class=\"%s\" fill-rule=\"evenodd\" transform=\"translate(%d %d)\" d=\"%s\"/>", sign->class, x,
            y, sign->path);
}

void lanes_key(FILE *out)
{
    fputs("<ul class=\"key\">\n", out);
    for (size_t i = 0; i < SIGNS; i++) {
        if (!signs[i].words)
            continue;
        fputs("<li><svg width=\"18\" height=\"14\" aria-hidden=\"true\">", out);
        glyph(out, &signs[i], 9, 7);
        fprintf(out, "</svg> %s</li>\n", signs[i].words);
    }
    fputs("</ul>\n", out);
}

void lanes_key_line(FILE *out, int x, int y)
{
    enum { GLYPH = 24, LETTER = 7, GAP = 14 };

    for (size_t i = 0; i < SIGNS; i++) {
        if (!signs[i].brief)
            continue;
        glyph(out, &signs[i], x + GLYPH / 2, y);
        fprintf(out, "<text class=\"tick\" x=\"%d\" y=\"%d\">%s</text>\n", x + GLYPH, y + 4, signs[i].brief);
        x += GLYPH + LETTER * (int)strlen(signs[i].brief) + GAP;
    }
}
