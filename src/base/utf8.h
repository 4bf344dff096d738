/* Characters of UTF-8, as Unicode defines them: no overlong form, no surrogate, nothing above U+10FFFF. */
#ifndef DIBS_BASE_UTF8_H
#define DIBS_BASE_UTF8_H

#include <stddef.h>

/* How many bytes the character has that begins there; 0: none does, or the text ends there. The text ends with a NUL.
 */
size_t dibs__utf8_size(const char *text);

/* Puts '?' in the place of line ends and other control characters (C0, DEL and C1), and of bytes that are no UTF-8. */
void dibs__utf8_make_line(char *text);

#endif
