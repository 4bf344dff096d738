/* How long something took, case by case: never longer than the slack, and nearly always no longer than promised. */
#ifndef DIBS_TEST_DELAYS_H
#define DIBS_TEST_DELAYS_H

#include <stddef.h>
#include <stdint.h>

typedef struct delays { /* all zero: none yet */
    size_t count, late;
    int64_t worst_ms;
} delays;

/* One more; late: longer than promised_ms. Longer than SLACK_MS fails the test. */
void delays_note(delays *d, int64_t took_ms, int64_t promised_ms);

/* Prints them; there must be some. Fails the test where more than a tenth were late, but under the sanitizers. */
void delays_expect_few_late(const delays *d, const char *what);

#endif
