/* The slots of a cluster: each key lies in one, and so does each sharded channel. */
#ifndef DIBS_REDIS_SLOT_H
#define DIBS_REDIS_SLOT_H

#include <stddef.h>

#define DIBS__SLOTS 16384
#define DIBS__SLOT_TAG 4 /* bytes */

/* The slot of a key, or of a sharded channel. */
unsigned dibs__slot_of(const char *key, size_t size);

/* Writes printable bytes, without braces and without a NUL at the end, whose slot is the given one. */
void dibs__slot_tag(char out[DIBS__SLOT_TAG], unsigned slot);

#endif
