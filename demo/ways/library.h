/* The library as a way has it, for all ways that use it. */
#ifndef DIBS_DEMO_LIBRARY_H
#define DIBS_DEMO_LIBRARY_H

#include <dibs.h>

#include "ways/way.h"

/* ------------------------------------------------------------- 11_dibs.c */

void library_prepare(struct crew *crew); /* uses the first server */

/* False where the store can't grant the lock safely at present (way_refused). */
bool library_lock(struct racer *me);
void library_unlock(struct racer *me);
bool library_still(struct racer *me);
uint64_t library_fence(struct racer *me);

/* ------------------------------------------------------------- library.c */

/* crew->own: the runtime. The lease is the race's. library_finish counts what the library sent. */
void library_open(struct crew *crew, dibs_config config);
void library_finish(struct crew *crew);

/* What is left of the lease of that name now, as renewals have set it: for the picture. */
void library_leased(struct racer *me, const char *name);

/* dibs_unlock, for a way that has no `unlock`. */
void library_give_back(struct racer *me, const char *name);

#endif
