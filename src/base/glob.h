/* Patterns as Redis has them: whether a text matches one. */
#ifndef DIBS_BASE_GLOB_H
#define DIBS_BASE_GLOB_H

#include <stdbool.h>
#include <stddef.h>

/*
 * * stands for any bytes, ? for one, [...] for one of a set (a-c a range, ^ in
 * front for all others), a backslash for the byte behind it. Takes time in
 * proportion to the product of both sizes, whatever the pattern.
 */
bool dibs__glob_matches(const char *pattern, const char *text);

/* Writes size bytes so that a pattern means these bytes alone. out has room for twice as many. Returns the new size. */
size_t dibs__glob_escape(char *out, const char *bytes, size_t size);

#endif
