/*
 * How a thread waits until another one wakes it: it sleeps by its sleeper, or in poll(2) if it receives for all
 * meanwhile. The thread that wakes it need not know which.
 *
 * What the thread waits for is guarded by a mutex of the caller. Under that mutex, the thread resets its wait event and
 * then looks. A thread that changes something wakes the wait event afterwards, under the same mutex. So the waiting
 * thread misses nothing although it waits without the mutex, and a wait event that is woken still exists.
 */
#ifndef DIBS_BASE_WAIT_EVENT_H
#define DIBS_BASE_WAIT_EVENT_H

#include <stdatomic.h>

#include "base/sleeper.h"
#include "base/wake.h"

struct dibs__wait_event {
    struct dibs__sleeper sleeper;      /* has its own guard */
    atomic_bool woken;                 /* atomic; the event was woken since the last reset */
    _Atomic(struct dibs__wake *) bell; /* atomic; ends the poll(2) of the thread; NULL: the thread is not in poll(2) */
    void (*tell)(struct dibs__wait_event *wait_event); /* read-only; called by whoever wakes the wait event, instead of
                                                          anything else, if no thread waits with it; else NULL */
};

void dibs__wait_event_init(struct dibs__wait_event *wait_event);

/* Any thread, with or without locks. The wait ends, or the next one does not begin, until the wait event is reset. */
void dibs__wait_event_wake(struct dibs__wait_event *wait_event);

static inline void dibs__wait_event_reset(struct dibs__wait_event *wait_event)
{
    atomic_store(&wait_event->woken, false);
}

static inline bool dibs__wait_event_is_woken(struct dibs__wait_event *wait_event)
{
    return atomic_load(&wait_event->woken);
}

/* Waits until the wait event is woken, but not longer than `until`. */
void dibs__wait_event_wait(struct dibs__wait_event *wait_event, const struct dibs__clock *clock, int64_t until);

/*
 * Waits until the wait event is woken, the bell is rung, a descriptor is ready or `until` has come. May return earlier.
 * One thread at a time may use a bell here. fds is as for poll(2): the revents are set. The array must have room for
 * one more. Returns the number of ready descriptors.
 */
int dibs__wait_event_poll(struct dibs__wait_event *wait_event, const struct dibs__clock *clock, struct dibs__wake *bell,
                          struct pollfd *fds, nfds_t count, int64_t until);

#endif
