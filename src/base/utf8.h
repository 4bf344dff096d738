/* Characters of UTF-8, as Unicode defines them: no overlong form, no surrogate, nothing above U+10FFFF. */
#ifndef DIBS_BASE_UTF8_H
#define DIBS_BASE_UTF8_H

#include <stddef.h>

/*
 * The size in bytes of the character at `text`, which ends with a NUL. 0: no valid character begins there, or the text
 * ends there.
 */
size_t dibs__utf8_size(const char *text);

/* Replaces line ends and other control characters (C0, DEL and C1), and bytes that are not UTF-8, by '?'. */
void dibs__utf8_make_line(char *text);

#endif
