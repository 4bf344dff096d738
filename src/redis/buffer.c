#include "redis/buffer.h"

#include <hiredis/hiredis.h>
#include <stdlib.h>
#include <string.h>

#include "base/require.h"

bool dibs__buffer_append(struct dibs__buffer *buffer, const void *bytes, size_t size)
{
    if (size > buffer->cap - buffer->used) {
        size_t cap = buffer->cap ? buffer->cap : 512;
        while (cap - buffer->used < size)
            cap *= 2;
        char *grown = realloc(buffer->bytes, cap);
        if (!grown)
            return false;
        buffer->bytes = grown;
        buffer->cap = cap;
    }
    memcpy(buffer->bytes + buffer->used, bytes, size);
    buffer->used += size;
    return true;
}

bool dibs__buffer_command(struct dibs__buffer *buffer, int count, const char *const *words, const size_t *sizes)
{
    char *formatted = NULL;
    long long length = redisFormatCommandArgv(&formatted, count, (const char **)(void *)words, sizes);

    if (length < 0 || !formatted)
        return false;
    bool done = dibs__buffer_append(buffer, formatted, (size_t)length);
    redisFreeCommand(formatted);
    return done;
}

void dibs__buffer_drop(struct dibs__buffer *buffer, size_t size)
{
    DIBS__REQUIRE(size <= buffer->used);
    buffer->used -= size;
    memmove(buffer->bytes, buffer->bytes + size, buffer->used);
}

void dibs__buffer_free(struct dibs__buffer *buffer)
{
    free(buffer->bytes);
    *buffer = (struct dibs__buffer){0};
}
