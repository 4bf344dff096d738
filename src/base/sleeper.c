#include "base/sleeper.h"

#include "base/futex.h"

enum { AWAKE = 0, ASLEEP, WOKEN };

void dibs__sleeper_sleep(struct dibs__sleeper *sleeper, const struct dibs__clock *clock, int64_t deadline)
{
    unsigned state = AWAKE;

    if (atomic_compare_exchange_strong(&sleeper->state, &state, ASLEEP))
        clock->sleep(clock, &sleeper->state, ASLEEP, deadline);
    atomic_exchange(&sleeper->state,
                    AWAKE); /* an exchange, not a store: so this thread sees what was written before the wake */
}

void dibs__sleeper_wake(struct dibs__sleeper *sleeper)
{
    if (atomic_exchange(&sleeper->state, WOKEN) == ASLEEP)
        dibs__futex_wake(&sleeper->state);
}
