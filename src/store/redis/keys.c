#include "store/redis/keys.h"

#include <stdio.h>
#include <string.h>

/* Redis hashes what stands between the first { and the first } behind that, if there is anything between them. */
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

void dibs__key_of(struct dibs__key *out, enum dibs__key_kind kind, const char *prefix, const char *name)
{
    static const char *const sidecars[DIBS__KEYS] = {NULL, "fence", "queue", "waiters"};
    char lock[DIBS__PREFIX_MAX + DIBS_NAME_MAX + 1];
    size_t prefix_size = strlen(prefix), size = prefix_size + strlen(name);

    memcpy(lock, prefix, prefix_size);
    memcpy(lock + prefix_size, name, size - prefix_size + 1);
    if (kind == DIBS__KEY_LOCK)
        memcpy(out->bytes, lock, size + 1);
    else
        size = (size_t)snprintf(out->bytes, sizeof out->bytes, has_hash_tag(lock) ? "dibs:%st:%s" : "dibs:%s:{%s}",
                                sidecars[kind], lock);
    out->size = size;
}
