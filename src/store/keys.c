#include "store/keys.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Redis hashes what stands between the first { and the first } after it, unless that is nothing. */
static bool has_hash_tag(const char *key)
{
    const char *open = strchr(key, '{');
    const char *close = open ? strchr(open + 1, '}') : NULL;

    return close && close > open + 1;
}

void dibs__keys_of(struct dibs__keys *out, const char *prefix, const char *name)
{
    out->lock_size = (size_t)snprintf(out->lock, sizeof out->lock, "%s%s", prefix, name);
    bool tagged = has_hash_tag(out->lock);
    out->fence_size =
        (size_t)snprintf(out->fence, sizeof out->fence, tagged ? "dibs:fencet:%s" : "dibs:fence:{%s}", out->lock);
}
