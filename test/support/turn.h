/* Waits for the turn with the calling thread, as an acquire does that blocks (core/acquire.h). */
#ifndef DIBS_TEST_TURN_H
#define DIBS_TEST_TURN_H

#include "core/turn.h"

static inline dibs_status turn_take(struct dibs__cells *cells, struct dibs__waiter *waiter)
{
    dibs_status status;
    bool goes_on = !dibs__turn_begin(cells, waiter, &status);

    while (goes_on) {
        dibs__turn_sleep(cells, waiter);
        goes_on = dibs__turn_goes_on(cells, waiter, false, &status);
    }
    return status;
}

#endif
