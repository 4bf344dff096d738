/*
 * Text put together without printf, where calls are frequent: each function that puts something returns the end of what
 * it wrote, and writes no NUL. Also reads numbers from text.
 */
#ifndef DIBS_BASE_TEXT_H
#define DIBS_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define DIBS__DIGITS 20 /* decimal digits of the largest number */

static inline char *dibs__put(char *to, const char *bytes, size_t size)
{
    memcpy(to, bytes, size);
    return to + size;
}

/* base: from 10 to 16, with lower-case letters. */
static inline char *dibs__put_number(char *to, uint64_t number, unsigned base)
{
    char digits[DIBS__DIGITS];
    size_t at = sizeof digits;

    do
        digits[--at] = "0123456789abcdef"[number % base];
    while ((number /= base) > 0);
    return dibs__put(to, digits + at, sizeof digits - at);
}

static inline char *dibs__put_signed(char *to, int64_t number)
{
    if (number < 0)
        *to++ = '-';
    return dibs__put_number(to, number < 0 ? -(uint64_t)number : (uint64_t)number, 10);
}

/*
 * Reads the number that consists of all these digits. False: there are none, there is another character, or the number
 * is above `most`, which must be below 2^60.
 */
static inline bool dibs__read_number(const char *digits, size_t size, uint64_t most, uint64_t *out)
{
    uint64_t number = 0;

    for (size_t i = 0; i < size; i++) {
        if (digits[i] < '0' || digits[i] > '9')
            return false;
        number = number * 10 + (uint64_t)(digits[i] - '0');
        if (number > most)
            return false;
    }
    *out = number;
    return size > 0;
}

#endif
