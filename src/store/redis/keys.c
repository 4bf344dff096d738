#include "store/redis/keys.h"

#include <string.h>

#include "base/require.h"
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

size_t dibs__key_lock(char *out, const char *prefix, const char *name)
{
    size_t prefix_size = strlen(prefix), name_size = strlen(name);

    memcpy(out, prefix, prefix_size);
    memcpy(out + prefix_size, name, name_size + 1);
    return prefix_size + name_size;
}

/* dibs:fence:{LOCK}, or dibs:fencet:LOCK if the lock has a hash tag of its own. */
size_t dibs__key_sidecar(char *out, enum dibs__key_kind kind, const char *lock, size_t size)
{
    static const char *const sidecars[DIBS__KEY_KINDS] = {NULL, "dibs:fence", "dibs:queue", "dibs:probe"};
    bool tagged = has_hash_tag(lock);

    DIBS__REQUIRE(kind != DIBS__KEY_LOCK && lock[size] == '\0');
    char *end = dibs__put(out, sidecars[kind], strlen(sidecars[kind]));
    end = dibs__put(end, tagged ? "t:" : ":{", 2);
    end = dibs__put(end, lock, size);
    if (!tagged)
        *end++ = '}';
    *end = '\0';
    return (size_t)(end - out);
}

void dibs__key_of(struct dibs__key *out, enum dibs__key_kind kind, const char *prefix, const char *name)
{
    char lock[DIBS__PREFIX_MAX + DIBS_NAME_MAX + 1] = "";

    if (kind == DIBS__KEY_LOCK)
        out->size = dibs__key_lock(out->bytes, prefix, name);
    else
        out->size = dibs__key_sidecar(out->bytes, kind, lock, dibs__key_lock(lock, prefix, name));
}

const char *dibs__key_name(const char *prefix, const char *key, size_t size)
{
    size_t prefix_size = strlen(prefix);

    if (size <= prefix_size || size - prefix_size > DIBS_NAME_MAX || memcmp(key, prefix, prefix_size) != 0 ||
        memchr(key, '\0', size))
        return NULL;
    return key + prefix_size;
}
