/* Glob patterns with the syntax of Redis. */
#ifndef DIBS_BASE_GLOB_H
#define DIBS_BASE_GLOB_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Whether the text matches the pattern. In the pattern, * matches any bytes, ? one byte, [...] one byte of a set (a-c
 * is a range, a ^ in front negates the set), and a backslash makes the next byte stand for itself. The time is at most
 * proportional to the product of both sizes, whatever the pattern.
 */
bool dibs__glob_matches(const char *pattern, const char *text);

/*
 * Writes `size` bytes as a pattern that matches only these bytes. out has room for twice as many. Returns the new size.
 */
size_t dibs__glob_escape(char *out, const char *bytes, size_t size);

#endif
