/* The library's functions as a way has them (11_dibs.c), for the other ways that use the library. */
#ifndef DIBS_DEMO_LIBRARY_H
#define DIBS_DEMO_LIBRARY_H

#include <dibs.h>

#include "ways/way.h"

/* crew->own: the runtime. The lease is the race's; library_prepare uses the first server. */
void library_open(struct crew *crew, dibs_config config);
void library_prepare(struct crew *crew);
void library_finish(struct crew *crew);

/* False where the store can't grant the lock safely at present (way_refused). */
bool library_lock(struct racer *me);
void library_unlock(struct racer *me);
bool library_still(struct racer *me);
void library_leased(struct racer *me, const char *name);
uint64_t library_fence(struct racer *me);

#endif
