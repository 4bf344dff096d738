/* A cached value that is slow to rebuild (18_cache_alone.c), for the ways of number 18. */
#ifndef DIBS_DEMO_CACHE_H
#define DIBS_DEMO_CACHE_H

#include "ways/way.h"

enum { CACHE_PROCESSES = 4, CACHE_THREADS = 200, CACHE_LEASE_MS = 2000 };

bool cache_has(struct racer *me);
void cache_rebuild(struct racer *me);

#endif
