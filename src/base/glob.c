#include "base/glob.h"

#include <string.h>

/* Whether the byte is in the set that begins at `at`, behind its bracket. Sets *end to where the set ends. */
static bool in_set(const char *at, unsigned char byte, const char **end)
{
    bool negated = *at == '^', found = false;

    at += negated;
    for (; *at && *at != ']'; at++) {
        bool escaped = *at == '\\' && at[1];
        at += escaped;
        unsigned char low = (unsigned char)*at, high = low;
        if (!escaped && at[1] == '-' && at[2]) {
            high = (unsigned char)at[2];
            at += 2;
        }
        found = found || (low <= high ? byte >= low && byte <= high : byte >= high && byte <= low);
    }
    *end = *at ? at + 1 : at;
    return found != negated;
}

/*
 * Whether the byte matches the first element of the pattern, which is not a *. Sets *rest to what follows that element.
 */
static bool matches_one(const char *pattern, char byte, const char **rest)
{
    *rest = pattern + 1;
    if (*pattern == '[')
        return in_set(pattern + 1, (unsigned char)byte, rest);
    if (*pattern == '?')
        return true;
    if (*pattern == '\\' && pattern[1]) {
        *rest = pattern + 2;
        return pattern[1] == byte;
    }
    return *pattern == byte;
}

/* After a mismatch, only the last * that was met has to be tried with more bytes. */
bool dibs__glob_matches(const char *pattern, const char *text)
{
    const char *star = NULL, *retry = NULL, *rest;

    while (*text) {
        if (*pattern == '*') {
            star = ++pattern;
            retry = text;
        } else if (*pattern && matches_one(pattern, *text, &rest)) {
            pattern = rest;
            text++;
        } else if (star) {
            pattern = star;
            text = ++retry;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return *pattern == '\0';
}

size_t dibs__glob_escape(char *out, const char *bytes, size_t size)
{
    size_t used = 0;

    for (size_t i = 0; i < size; i++) {
        if (bytes[i] && strchr("*?[]\\", bytes[i]))
            out[used++] = '\\';
        out[used++] = bytes[i];
    }
    return used;
}
