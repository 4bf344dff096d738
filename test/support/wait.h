/* Time, and waits for a condition with a limit, which a test uses instead of sleeping. */
#ifndef DIBS_TEST_WAIT_H
#define DIBS_TEST_WAIT_H

#include <stdbool.h>
#include <stdint.h>

/*
 * How long a test waits for what must happen before the test fails. Nothing takes this long unless something is broken,
 * even where sanitizers and a loaded machine slow everything down by 20. Where bugs are seeded (test/fault/bugs),
 * failures are expected, so the limit is shorter.
 */
#ifndef LIMIT_MS
#define LIMIT_MS 60000
#endif

/* How much later than its bound a bounded call may come back on a loaded machine. */
#define SLACK_MS (LIMIT_MS / 3)

/* Monotonic milliseconds; on the clock that runs through suspend, as the library's. */
int64_t now_ms(void);

/* Sleeps for ms. Only for the passing of time itself (a lease that must end), never to hope for something. */
void pause_ms(int64_t ms);

/* The same until now_ms() is that. */
void pause_until(int64_t ms);

/*
 * Looks at the condition every few milliseconds. True as soon as it holds; false if it does not hold when limit_ms have
 * passed.
 */
#define within(limit_ms, condition)                                                                                    \
    __extension__({                                                                                                    \
        const int64_t within_end = now_ms() + (limit_ms);                                                              \
        bool within_so;                                                                                                \
        for (int64_t within_ms = 1; !(within_so = (condition)) && now_ms() < within_end; within_ms += within_ms < 10)  \
            pause_ms(within_ms);                                                                                       \
        within_so || (condition);                                                                                      \
    })

#endif
