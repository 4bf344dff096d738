/*
 * The messages that tell of grants. The first byte picks the key prefix, the
 * rest is the message. What is read is within its limits, and makes the very
 * same message again: there is one way to write each grant.
 */
#include <inttypes.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "store/redis/codec.h"

static void check(const struct dibs__pushed *pushed, const char *prefix, const char *bytes, size_t size)
{
    char again[DIBS__TOKEN_MAX + DIBS__PREFIX_MAX + DIBS_NAME_MAX + 128];
    const struct dibs__grant *grant = &pushed->grant;
    size_t token_size = strnlen(pushed->token, sizeof pushed->token);
    size_t name_size = strnlen(pushed->name, sizeof pushed->name);

    promise(token_size > 0 && token_size < sizeof pushed->token);
    promise(name_size > 0 && name_size < sizeof pushed->name);
    promise(grant->token == pushed->token && grant->name == pushed->name && !grant->confirm);
    promise(grant->fence < UINT64_C(1) << 53); /* 0: a hint */
    int length = snprintf(again, sizeof again, "%" PRIu64 " %" PRIu64 " %zu %s%s%s", grant->number, grant->fence,
                          token_size, pushed->token, prefix, pushed->name);
    promise((size_t)length == size && memcmp(again, bytes, size) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const prefixes[] = {"lock:", "", "{tag}:"};
    struct dibs__pushed pushed;

    if (size == 0)
        return 0;
    const char *prefix = prefixes[data[0] % 3];
    char *bytes = malloc(size);
    promise(bytes);
    memcpy(bytes, data + 1, size - 1);
    bytes[size - 1] = '\0';
    if (dibs__push_read(&pushed, prefix, bytes, size - 1))
        check(&pushed, prefix, bytes, size - 1);
    free(bytes);
    return 0;
}
