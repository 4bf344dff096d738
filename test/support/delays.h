/* Checks how long calls took: never over SLACK_MS longer than promised, and mostly no longer than promised. */
#ifndef DIBS_TEST_DELAYS_H
#define DIBS_TEST_DELAYS_H

#include <stddef.h>
#include <stdint.h>

typedef struct delays { /* all zero: none yet */
    size_t count, late;
    int64_t worst_ms;
} delays;

/* Notes one more call. It was late where it took longer than promised_ms; longer than SLACK_MS fails the test. */
void delays_note(delays *d, int64_t took_ms, int64_t promised_ms);

/*
 * Prints the delays; there must be some. Unless under a sanitizer, fails the test where more than two and a quarter
 * of them were late.
 */
void delays_expect_few_late(const delays *d, const char *what);

#endif
