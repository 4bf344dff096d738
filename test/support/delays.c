#include "support/delays.h"

#include <inttypes.h>

#include "support/test.h"

/*
 * What is late by itself is late nearly always. Because the machine runs something else meanwhile, some are late, and
 * if so often several in a row.
 */
enum { FEW = 2, PART = 4 };

void delays_note(delays *d, int64_t took_ms, int64_t promised_ms)
{
    d->count++;
    d->late += took_ms > promised_ms;
    d->worst_ms = took_ms > d->worst_ms ? took_ms : d->worst_ms;
    assert_that(took_ms <= SLACK_MS, "%" PRId64 " ms", took_ms);
}

void delays_expect_few_late(const delays *d, const char *what)
{
    print_message("# %s: %zu of %zu late, %" PRId64 " ms at the most\n", what, d->late, d->count, d->worst_ms);
    assert_true(d->count > 0);
#if !defined(TEST_UNDER_ASAN) && !defined(TEST_UNDER_TSAN)
    assert_true(d->late <= FEW + d->count / PART);
#endif
}
