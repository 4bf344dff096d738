/* The rounds of a picture. */
#ifndef DIBS_DEMO_BARS_H
#define DIBS_DEMO_BARS_H

#include <stdbool.h>
#include <stddef.h>

#include "race/race.h"

enum { BARS_MOST = 64 };

struct bars { /* begins as {0} */
    struct page *rounds[BARS_MOST];
    char titles[BARS_MOST][120];
    size_t count;
};

/* Adds the round whose records the race has now. False: no memory; said on stderr. */
bool bars_add(struct bars *bars, const struct race *race);

/* Draws the picture of them all, and frees them. False: there is no picture; why was said on stderr. */
bool bars_write(const char *path, struct bars *bars);

#endif
