#include "redis/buffer.h"

#include <stdlib.h>
#include <string.h>

#include "base/require.h"

#define DIGITS 20         /* of the largest size_t */
#define HEAD (DIGITS + 3) /* the most bytes of a line that begins a command or a word */

/* Room for so many bytes more. */
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

/* "*2" or "$11", and the end of the line. */
static char *write_head(char *to, char kind, size_t number)
{
    char digits[DIGITS];
    size_t at = sizeof digits;

    do
        digits[--at] = (char)('0' + number % 10);
    while ((number /= 10) > 0);
    *to++ = kind;
    memcpy(to, digits + at, sizeof digits - at);
    to += sizeof digits - at;
    *to++ = '\r';
    *to++ = '\n';
    return to;
}

bool dibs__buffer_command(struct dibs__buffer *buffer, int count, const char *const *words, const size_t *sizes)
{
    size_t most = HEAD;

    for (int i = 0; i < count; i++)
        most += HEAD + sizes[i] + 2;
    if (!reserve(buffer, most))
        return false;
    char *to = write_head(buffer->bytes + buffer->used, '*', (size_t)count);
    for (int i = 0; i < count; i++) {
        to = write_head(to, '$', sizes[i]);
        memcpy(to, words[i], sizes[i]);
        to += sizes[i];
        *to++ = '\r';
        *to++ = '\n';
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
