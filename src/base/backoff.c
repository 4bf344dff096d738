#include "base/backoff.h"

#include "base/random.h"
#include "base/require.h"

int64_t dibs__backoff_next(struct dibs__backoff *backoff, int64_t last_ms)
{
    int64_t ms = backoff->next_ms ? backoff->next_ms : backoff->first_ms;

    DIBS__REQUIRE(backoff->first_ms > 0 && last_ms >= backoff->first_ms && last_ms <= UINT32_MAX);
    ms = ms < last_ms ? ms : last_ms;
    backoff->next_ms = (uint32_t)(ms <= last_ms / 2 ? ms * 2 : last_ms);
    return dibs__jitter(ms / 2, ms);
}

void dibs__backoff_reset(struct dibs__backoff *backoff)
{
    backoff->next_ms = 0;
}
