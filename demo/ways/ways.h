/* All ways, in the order of their numbers. */
#ifndef DIBS_DEMO_WAYS_H
#define DIBS_DEMO_WAYS_H

#include "ways/way.h"

extern const struct way *const ways[];
extern const size_t way_count;

/* By its name or number; NULL: there is none. */
const struct way *way_named(const char *text);

#endif
