#include "base/utf8.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static bool continues(char byte)
{
    return ((unsigned char)byte & 0xc0) == 0x80;
}

/*
 * The size of a character that begins with this byte, and the smallest character that needs this size. 0: none begins
 * so.
 */
static size_t announced(unsigned char first, uint32_t *least)
{
    size_t size = first < 0x80 ? 1 : first >> 5 == 0x06 ? 2 : first >> 4 == 0x0e ? 3 : first >> 3 == 0x1e ? 4 : 0;

    *least = size == 1 ? 1 : size == 2 ? 0x80 : size == 3 ? 0x800 : 0x10000;
    return size;
}

size_t dibs__utf8_size(const char *text)
{
    unsigned char first = (unsigned char)text[0];
    uint32_t least;
    size_t size = announced(first, &least);
    uint32_t character = size > 1 ? first & (0x7fu >> size) : first;

    for (size_t i = 1; i < size; i++) {
        if (!continues(text[i]))
            return 0;
        character = character << 6 | ((unsigned char)text[i] & 0x3f);
    }
    bool is_surrogate = character >= 0xd800 && character <= 0xdfff;
    return character < least || character > 0x10ffff || is_surrogate ? 0 : size;
}

static bool is_control(const char *text, size_t size)
{
    unsigned char first = (unsigned char)text[0];

    return first < 0x20 || first == 0x7f || (size == 2 && first == 0xc2 && (unsigned char)text[1] < 0xa0);
}

void dibs__utf8_make_line(char *text)
{
    while (*text) {
        size_t size = dibs__utf8_size(text), bytes = size ? size : 1;
        if (size == 0 || is_control(text, size))
            memset(text, '?', bytes);
        text += bytes;
    }
}
