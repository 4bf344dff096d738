#include "store/redis/keys.h"

#include <string.h>

#include "base/text.h"

/* Redis hashes what is between the first { and the first } after that, if there is anything between them. */
static bool has_hash_tag(const char *key)
{
    const char *open = strchr(key, '{');
    const char *close = open ? strchr(open + 1, '}') : NULL;

    return close && close > open + 1;
}

bool dibs__key_splits(const char *lock)
{
    return strchr(lock, '}') && !has_hash_tag(lock);
}

#define SIDECAR 10 /* bytes of each word of `sidecars` */

/* dibs:fence:{LOCK}, or dibs:fencet:LOCK if the lock has a hash tag of its own. */
void dibs__key_of(struct dibs__key *out, enum dibs__key_kind kind, const char *prefix, const char *name)
{
    static const char sidecars[DIBS__KEY_KINDS][SIDECAR + 1] = {"", "dibs:fence", "dibs:queue", "dibs:probe"};
    char *lock = out->bytes + (kind == DIBS__KEY_LOCK ? 0 : SIDECAR + 2);
    char *end = dibs__put(dibs__put(lock, prefix, strlen(prefix)), name, strlen(name) + 1) - 1;

    if (kind != DIBS__KEY_LOCK) {
        bool tagged = has_hash_tag(lock);
        dibs__put(dibs__put(out->bytes, sidecars[kind], SIDECAR), tagged ? "t:" : ":{", 2);
        end = tagged ? end : dibs__put(end, "}", 2) - 1;
    }
    out->size = (size_t)(end - out->bytes);
}

const char *dibs__key_name(const char *prefix, const char *key, size_t size)
{
    size_t prefix_size = strlen(prefix);

    if (size <= prefix_size || size - prefix_size > DIBS_NAME_MAX || memcmp(key, prefix, prefix_size) != 0 ||
        memchr(key, '\0', size))
        return NULL;
    return key + prefix_size;
}
