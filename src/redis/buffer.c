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
    char *grown = realloc(buffer->is_lent ? NULL : buffer->bytes, cap);
    if (!grown)
        return false;
    if (buffer->is_lent)
        memcpy(grown, buffer->bytes, buffer->used);
    buffer->bytes = grown;
    buffer->cap = cap;
    buffer->is_lent = false;
    return true;
}

/* Writes a line such as "*2" or "$11". */
static char *put_head(char *to, char kind, size_t number)
{
    *to++ = kind;
    return dibs__put(dibs__put_number(to, number, 10), "\r\n", 2);
}

static char *put_word(char *to, const char *bytes, size_t size)
{
    return dibs__put(dibs__put(put_head(to, '$', size), bytes, size), "\r\n", 2);
}

bool dibs__buffer_command(struct dibs__buffer *buffer, const char *const *words, const struct dibs__words *more)
{
    size_t count = 0, most = HEAD;

    if (more && more->failed)
        return false;
    for (; words[count]; count++)
        most += HEAD + strlen(words[count]) + 2;
    if (!reserve(buffer, most + (more ? more->bytes.used : 0)))
        return false;
    char *to = put_head(buffer->bytes + buffer->used, '*', count + (more ? more->count : 0));
    for (size_t i = 0; i < count; i++)
        to = put_word(to, words[i], strlen(words[i]));
    if (more && more->count > 0)
        to = dibs__put(to, more->bytes.bytes, more->bytes.used);
    buffer->used = (size_t)(to - buffer->bytes);
    return true;
}

void dibs__words_add(struct dibs__words *words, const char *bytes, size_t size)
{
    struct dibs__buffer *buffer = &words->bytes;

    if (words->failed || !reserve(buffer, HEAD + size + 2)) {
        words->failed = true;
        return;
    }
    buffer->used = (size_t)(put_word(buffer->bytes + buffer->used, bytes, size) - buffer->bytes);
    words->count++;
}

void dibs__words_add_text(struct dibs__words *words, const char *text)
{
    dibs__words_add(words, text, strlen(text));
}

void dibs__words_add_number(struct dibs__words *words, int64_t number)
{
    char text[DIBS__DIGITS + 1];
    const char *end = dibs__put_signed(text, number);

    dibs__words_add(words, text, (size_t)(end - text));
}

void dibs__words_free(struct dibs__words *words)
{
    dibs__buffer_free(&words->bytes);
    *words = (struct dibs__words){.count = 0};
}

void dibs__buffer_drop(struct dibs__buffer *buffer, size_t size)
{
    DIBS__REQUIRE(size <= buffer->used);
    buffer->used -= size;
    memmove(buffer->bytes, buffer->bytes + size, buffer->used);
}

void dibs__buffer_free(struct dibs__buffer *buffer)
{
    if (!buffer->is_lent)
        free(buffer->bytes);
    *buffer = (struct dibs__buffer){0};
}
