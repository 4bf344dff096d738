/* All ways, in the order of their numbers. */
#ifndef DIBS_DEMO_WAYS_H
#define DIBS_DEMO_WAYS_H

#include "ways/way.h"

extern const struct way *const ways[];
extern const size_t way_count;

/* Whether the text is the way's name or number. A number may have several ways. */
bool way_is(const struct way *way, const char *text);

/* The first way with that name or number; NULL: there is none. */
const struct way *way_named(const char *text);

#endif
