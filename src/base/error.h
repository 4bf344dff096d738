/* The detail of a failure: how it is written, kept for dibs_last_error(), and carried from one thread to another. */
#ifndef DIBS_BASE_ERROR_H
#define DIBS_BASE_ERROR_H

#include "dibs.h"

#define DIBS__DETAIL_MAX 320 /* bytes with the NUL; longer text is cut */

#ifdef __GNUC__
#define DIBS__PRINTF(at, first) __attribute__((format(printf, at, first)))
#else
#define DIBS__PRINTF(at, first)
#endif

/* A status and its sentence. A failing function fills one; the sentence means nothing where status is DIBS_OK. */
struct dibs__error {
    dibs_status status;
    char detail[DIBS__DETAIL_MAX];
};

/* Writes both parts (control bytes of the sentence as '?': it stays one line) and returns the status. */
dibs_status dibs__error_set(struct dibs__error *error, dibs_status status, const char *format, ...) DIBS__PRINTF(3, 4);

/* Makes it the calling thread's last error and returns the status. */
dibs_status dibs__fail(dibs_status status, const char *format, ...) DIBS__PRINTF(2, 3);

/* The same with an error that was filled elsewhere; one whose status is DIBS_OK changes nothing. */
dibs_status dibs__fail_with(const struct dibs__error *error);

const char *dibs__last_error(void);

/*
 * Writes name for a sentence: in double quotes, bytes that don't print as
 * \xHH, cut with "..." where it is long. Returns out.
 */
#define DIBS__QUOTED_MAX 128
const char *dibs__quote(char out[DIBS__QUOTED_MAX], const char *name);

/* The same in memory that lasts as long as the block in which this stands. */
#define DIBS__QUOTED(name) dibs__quote((char[DIBS__QUOTED_MAX]){""}, name)

/* Writes length bytes so that they print: what does not print, and the backslash, as \xHH; cut at size. */
void dibs__escape(char *out, size_t size, const char *bytes, size_t length);

#endif
