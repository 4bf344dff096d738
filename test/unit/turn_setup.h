/* A crowd of threads that wait for one name: shared by the tests of the turn, the asker and an outage. */
#ifndef DIBS_TEST_TURN_SETUP_H
#define DIBS_TEST_TURN_SETUP_H

#include "support/stage.h"

#define LEASE 30000
#define CROWD 12
#define FOREVER DIBS_WAIT_FOREVER

/* Lets CROWD threads wait for "a", one after another: each sleeps before the next begins. */
static inline void begin_crowd(stage *s, actor **crowd, size_t asleep, int64_t wait_ms)
{
    for (size_t i = 0; i < CROWD; i++)
        crowd[i] = stage_waiter(s, "a", wait_ms, asleep + i + 1);
}

#endif
