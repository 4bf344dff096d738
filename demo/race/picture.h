/*
 * A picture of races, as an SVG file: a strip of lanes (lanes.h) for each, one above the other and on the same scale,
 * with a key below them. It is light or dark as the reader wants it, and says in words what it shows.
 */
#ifndef DIBS_DEMO_PICTURE_H
#define DIBS_DEMO_PICTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "race/page.h"

struct picture_strip {
    char title[120];
    const struct page_run *run;
};

/* False: no memory. Errors of out are the caller's. */
bool picture_write(FILE *out, const struct picture_strip *strips, size_t count);

#endif
