#include "support/resp.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

void bytes_add(struct bytes *b, const char *data, size_t length)
{
    if (b->length + length + 1 > b->room) {
        b->room = (b->length + length + 1) * 2;
        b->data = realloc(b->data, b->room);
        if (!b->data)
            abort();
    }
    memcpy(b->data + b->length, data, length);
    b->length += length;
    b->data[b->length] = '\0';
}

void bytes_add_text(struct bytes *b, const char *text)
{
    bytes_add(b, text, strlen(text));
}

void bytes_drop(struct bytes *b, size_t length)
{
    b->length -= length;
    memmove(b->data, b->data + length, b->length + 1);
}

/* The length of the line at the start of data, with its \r\n. 0: it is not whole. */
static size_t line_length(const char *data, size_t length)
{
    const char *end = length ? memchr(data, '\n', length) : NULL;

    return end ? (size_t)(end - data) + 1 : 0;
}

size_t resp_message_length(const char *data, size_t length)
{
    size_t used = line_length(data, length);

    if (used == 0 || !memchr("$=!*~>%", data[0], 7))
        return used;
    long count = strtol(data + 1, NULL, 10);
    if (count < 0)
        return used;
    if (memchr("$=!", data[0], 3))
        return length >= used + (size_t)count + 2 ? used + (size_t)count + 2 : 0;
    if (data[0] == '%')
        count *= 2;
    for (; count > 0; count--) {
        size_t part = resp_message_length(data + used, length - used);

        if (part == 0)
            return 0;
        used += part;
    }
    return used;
}

/* Reads the number in the line at *used, which begins with mark, and moves *used behind it. False: it is not whole. */
static bool take_number(const struct bytes *b, char mark, size_t *used, long *number)
{
    size_t length = *used < b->length ? line_length(b->data + *used, b->length - *used) : 0;

    if (length == 0)
        return false;
    if (b->data[*used] != mark)
        abort();
    *number = strtol(b->data + *used + 1, NULL, 10);
    *used += length;
    return true;
}

size_t resp_take_words(const struct bytes *b, struct resp_words *words)
{
    size_t used = 0;
    long size;

    words->count = 0;
    if (!take_number(b, '*', &used, &words->count))
        return 0;
    for (long i = 0; i < words->count; i++) {
        if (!take_number(b, '$', &used, &size) || b->length - used < (size_t)size + 2)
            return 0;
        if (i < RESP_WORDS_MOST) {
            words->at[i] = b->data + used;
            words->size[i] = (size_t)size;
        }
        used += (size_t)size + 2;
    }
    return used;
}

bool resp_word_is(const struct resp_words *words, size_t i, const char *text)
{
    return i < RESP_WORDS_MOST && (long)i < words->count && words->size[i] == strlen(text) &&
           memcmp(words->at[i], text, words->size[i]) == 0;
}
