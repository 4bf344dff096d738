/* The names under which Redis keeps what belongs to a lock. */
#ifndef DIBS_STORE_REDIS_KEYS_H
#define DIBS_STORE_REDIS_KEYS_H

#include <stdbool.h>
#include <stddef.h>

#include "dibs.h"
#include "store/store.h"

#define DIBS__KEYS 3 /* number of keys that the scripts about a lock take, in this order */

enum dibs__key_kind {
    DIBS__KEY_LOCK,
    DIBS__KEY_FENCE,
    DIBS__KEY_QUEUE,
    DIBS__KEY_PROBE, /* of no script: written to see whether the server reports it */
    DIBS__KEY_KINDS
};

#define DIBS__KEY_MEMBER "dibs:vote" /* of a member of a quorum; the same for all locks: see vote.lua */

#define DIBS__KEY_EXTRA 32 /* bytes that a key may have besides prefix and name, with the NUL */

struct dibs__key {
    size_t size; /* without the NUL */
    char bytes[DIBS__PREFIX_MAX + DIBS_NAME_MAX + DIBS__KEY_EXTRA];
};

/*
 * prefix and name must be within their limits. All keys of a lock are in one hash slot of a cluster, unless
 * dibs__key_splits says that its sidecars are elsewhere.
 */
void dibs__key_of(struct dibs__key *out, enum dibs__key_kind kind, const char *prefix, const char *name);

/* The name, within the key, of the lock with that key, which a NUL follows. NULL: no lock has that key. */
const char *dibs__key_name(const char *prefix, const char *key, size_t size);

/*
 * Whether the key of a lock has a } but no usable hash tag (something between its first { and the first } after that).
 * The slot of such a key is that of all its bytes, and no sidecar can be made to have the same one: it puts the key
 * into braces, and would be cut short at the }.
 */
bool dibs__key_splits(const char *lock);

#endif
