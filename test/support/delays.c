#include "support/delays.h"

#include <inttypes.h>

#include "support/test.h"
#include "support/wait.h"

enum { ONCE = 1 }; /* of a few, one may be late because the machine ran something else meanwhile */

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
    assert_true(d->late <= ONCE + d->count / 10);
#endif
}
