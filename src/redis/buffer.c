#include "redis/buffer.h"

#include <stdlib.h>
#include <string.h>

#include "base/require.h"
#include "base/text.h"

#define HEAD (DIBS__DIGITS + 3) /* upper bound of the bytes of a line that begins a command or a word */

/* Makes room for `size` more bytes. False: no memory. */
static bool reserve(struct dibs__buffer *buffer, size_t size)
{
    if (size <= buffer->cap - buffer->used)
        return true;
    size_t cap = buffer->cap ? buffer->cap : 512;
    while (cap - buffer->used < size)
        cap *= 2;
    char *grown = realloc(buffer->bytes, cap);
    if (!grown)
        return false;
    buffer->bytes = grown;
    buffer->cap = cap;
    return true;
}

bool dibs__buffer_append(struct dibs__buffer *buffer, const void *bytes, size_t size)
{
    if (!reserve(buffer, size))
        return false;
    memcpy(buffer->bytes + buffer->used, bytes, size);
    buffer->used += size;
    return true;
}

/* Writes a line such as "*2" or "$11". */
static char *put_head(char *to, char kind, size_t number)
{
    *to++ = kind;
    return dibs__put(dibs__put_number(to, number, 10), "\r\n", 2);
}

static size_t size_of(const char *const *words, const size_t *sizes, int i)
{
    return sizes ? sizes[i] : strlen(words[i]);
}

bool dibs__buffer_command(struct dibs__buffer *buffer, int count, const char *const *words, const size_t *sizes)
{
    size_t most = HEAD;

    if (!sizes)
        for (count = 0; words[count];)
            count++;
    for (int i = 0; i < count; i++)
        most += HEAD + size_of(words, sizes, i) + 2;
    if (!reserve(buffer, most))
        return false;
    char *to = put_head(buffer->bytes + buffer->used, '*', (size_t)count);
    for (int i = 0; i < count; i++) {
        size_t size = size_of(words, sizes, i);
        to = put_head(to, '$', size);
        to = dibs__put(dibs__put(to, words[i], size), "\r\n", 2);
    }
    buffer->used = (size_t)(to - buffer->bytes);
    return true;
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
