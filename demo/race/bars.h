/* A round as a strip of a picture. */
#ifndef DIBS_DEMO_BARS_H
#define DIBS_DEMO_BARS_H

#include "race/picture.h"
#include "race/race.h"

/* False: no memory; said on stderr. */
bool bars_add(struct picture_strip *strip, const struct race *race);

/* The picture of them all, which are freed. False: there is no picture; why was said on stderr. */
bool bars_write(const char *path, struct picture_strip *strips, size_t count);

#endif
