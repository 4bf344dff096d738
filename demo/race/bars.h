/* A round as a strip of a picture. */
#ifndef DIBS_DEMO_BARS_H
#define DIBS_DEMO_BARS_H

#include "race/picture.h"
#include "race/race.h"

/* False: no memory; said on stderr. */
bool bars_add(struct picture_strip *strip, const struct race *race);
void bars_free(struct picture_strip *strip);

#endif
