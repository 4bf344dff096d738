/* The detail of a failure: how it is written, kept for dibs_last_error, and carried from one thread to another. */
#ifndef DIBS_BASE_ERROR_H
#define DIBS_BASE_ERROR_H

#include "dibs.h"

#define DIBS__DETAIL_MAX 320 /* bytes with the NUL; longer text is cut */

#ifdef __GNUC__
#define DIBS__PRINTF(at, first) __attribute__((format(printf, at, first)))
#else
#define DIBS__PRINTF(at, first)
#endif

/*
 * A status and a sentence that explains it. A function that fails fills one. The sentence has no meaning if the status
 * is DIBS_OK.
 */
struct dibs__error {
    dibs_status status;
    char detail[DIBS__DETAIL_MAX];
};

/*
 * Sets the status and the sentence, and returns the status. Control characters and invalid UTF-8 in the sentence become
 * '?', so that it stays one line.
 */
dibs_status dibs__error_set(struct dibs__error *error, dibs_status status, const char *format, ...) DIBS__PRINTF(3, 4);

/* Makes this the calling thread's last error and returns the status. */
dibs_status dibs__fail(dibs_status status, const char *format, ...) DIBS__PRINTF(2, 3);

/* The same with an error that was filled elsewhere. If its status is DIBS_OK, nothing changes. */
dibs_status dibs__fail_with(const struct dibs__error *error);

/*
 * Writes the name for use in a sentence: in double quotes, with unprintable bytes as \xHH, and cut with "..." if it is
 * long. Returns out.
 */
#define DIBS__QUOTED_MAX 128
const char *dibs__quote(char out[DIBS__QUOTED_MAX], const char *name);

/* The same, in memory that lasts until the end of the enclosing block. */
#define DIBS__QUOTED(name) dibs__quote((char[DIBS__QUOTED_MAX]){""}, name)

/*
 * Writes `length` bytes in printable form: unprintable bytes and the backslash become \xHH. The result is cut at
 * `size`. Returns how many of the bytes were written.
 */
size_t dibs__escape(char *out, size_t size, const char *bytes, size_t length);

#endif
