/*
 * A run as lanes, for the page and for pictures of their own: SVG without a view box. Places along the time are
 * percentages, everything else is pixels, so that a picture is as wide as there is room, and bars, marks and letters
 * keep their size. What differs in colour differs in shape, too.
 */
#ifndef DIBS_DEMO_LANES_H
#define DIBS_DEMO_LANES_H

#include <stddef.h>
#include <stdio.h>

#include "race/page.h"

enum { LANES_MOST = 40, LANES_AXIS = 26 };

struct lanes {
    const struct page_run *run;
    struct page_hold *holds; /* all of the run, by when they began */
    struct page_hold shown[LANES_MOST];
    size_t count;         /* of lanes that are shown */
    size_t whole;         /* of lanes that would be shown if there were room */
    double start, length; /* ms */
    int height;           /* of a lane */
};

/*
 * Of a race by chance, the racers that found something to do, in the order in which they got in; of a scene, all
 * racers, by their number. False: no memory. lanes_free frees what lanes_fill made. No lanes at all are possible.
 */
bool lanes_fill(struct lanes *lanes, const struct page_run *run);
void lanes_free(struct lanes *lanes);

/* The scale may be made larger by a larger length, and the height be changed, before anything is drawn. */
void lanes_draw(FILE *out, const struct lanes *lanes);
void lanes_axis(FILE *out, const struct lanes *lanes, int y);

/* What the lanes show, in words. */
void lanes_say(FILE *out, const struct lanes *lanes);

/* The letter of a racer in a scene. */
char lanes_letter(unsigned racer);

/* ------------------------------------------------------------------ signs (lanes_key.c) */

struct lanes_sign {
    const char *kind;         /* of the mark (results.h); NULL: part of a bar */
    const char *class, *path; /* around 0,0 */
    const char *does;         /* what the thread does, in a sentence about it */
    const char *words;        /* in the page's key; NULL: stands for the same as the sign before */
    const char *brief;        /* in a picture's key; NULL: is not there */
};

/* NULL: such a mark is not drawn. */
const struct lanes_sign *lanes_sign(const char *kind);

/* The key, as a list of HTML, and as one line of SVG. */
void lanes_key(FILE *out);
void lanes_key_line(FILE *out, int x, int y);

/* The styles of all classes that lanes have, and the colours on which they depend. */
extern const char lanes_colours[], lanes_dark_colours[], lanes_style[];

#endif
