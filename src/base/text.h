/* Text put together without printf, where calls are frequent. Each function returns the end of what it wrote, no NUL.
 */
#ifndef DIBS_BASE_TEXT_H
#define DIBS_BASE_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define DIBS__DIGITS 20 /* of the largest number */

static inline char *dibs__put(char *to, const char *bytes, size_t size)
{
    memcpy(to, bytes, size);
    return to + size;
}

/* In that base, at most 16, with small letters. */
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

#endif
