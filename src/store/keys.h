/* The names under which Redis keeps what belongs to a lock. */
#ifndef DIBS_STORE_KEYS_H
#define DIBS_STORE_KEYS_H

#include <stddef.h>

#include "dibs.h"

#define DIBS__PREFIX_MAX 512 /* bytes of a key_prefix */

struct dibs__keys {
    size_t lock_size, fence_size; /* without the NUL */
    char lock[DIBS__PREFIX_MAX + DIBS_NAME_MAX + 1];
    char fence[DIBS__PREFIX_MAX + DIBS_NAME_MAX + 32];
};

/* prefix and name within their limits. The fence key is in the lock key's hash slot of a cluster. */
void dibs__keys_of(struct dibs__keys *out, const char *prefix, const char *name);

#endif
