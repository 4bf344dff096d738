/*
 * How a thread waits for several things at the same time: it sleeps once, in one
 * poll(2), or by its wait event where it has nothing to read.
 *
 * The thread has a wait for each thing. Whoever keeps the thing notes the wait
 * with it, or has the thread read by itself: then the wait names a descriptor.
 *
 *     dibs__wait_event_init(&wait_event);
 *     for each thing: dibs__wait_init(&waits[i], &wait_event);
 *     for (;;) {
 *         dibs__wait_event_reset(&wait_event);
 *         for each thing: ask its keeper for it, with &waits[i]; that reads what is ready
 *         if (enough has come)
 *             break;
 *         dibs__waits_sleep(waits, count, &wait_event, clock, until);
 *     }
 *     for each thing: dibs__wait_end(&waits[i]);
 */
#ifndef DIBS_BASE_WAIT_H
#define DIBS_BASE_WAIT_H

#include "base/spin.h"
#include "base/wait_event.h"

#define DIBS__WAITS_MAX 16 /* of one thread at the same time */

/* The waiting thread's. What the keeper sets is set by that thread, in a call of the keeper's. */
struct dibs__wait {
    struct dibs__wait_event *wait_event; /* of the thread; the keeper wakes it when there may be news */
    struct pollfd fd;                    /* the keeper's: to poll for; fd -1: nothing. revents: of the last sleep */
    struct dibs__wake *bell;             /* the keeper's: with fd, ends the poll(2) when the wait event is woken */
    struct dibs__spin *spin;             /* the keeper's: with fd, of waits of that kind; NULL: the thread sleeps at
                                            once */
    int64_t until;                       /* the keeper's: the thread asks again then at the latest */
    atomic_int *missing; /* atomic; so many things must still come before the thread is woken; NULL: it is for each */
    void (*end)(struct dibs__wait *wait); /* the keeper's: the thread waits for the thing no more; NULL: it does not */
    void *keeper, *thing;                 /* the keeper's own */
    struct dibs__wait *next;              /* the keeper's own, and guarded by its mutex */
};

static inline void dibs__wait_init(struct dibs__wait *wait, struct dibs__wait_event *wait_event)
{
    *wait = (struct dibs__wait){.wait_event = wait_event, .fd.fd = -1, .until = DIBS__NEVER};
}

/* The keeper, under its mutex: the thing has come. */
static inline void dibs__wait_came(struct dibs__wait *wait)
{
    if (!wait->missing || atomic_fetch_sub(wait->missing, 1) <= 1)
        dibs__wait_event_wake(wait->wait_event);
}

/* At any time. */
static inline void dibs__wait_end(struct dibs__wait *wait)
{
    if (wait->end)
        wait->end(wait);
}

/*
 * Sleeps until the wait event is woken, a descriptor is ready, or that time, or
 * one of the waits', has come; or less. Polls first where that pays.
 */
void dibs__waits_sleep(struct dibs__wait *waits, size_t count, struct dibs__wait_event *wait_event,
                       const struct dibs__clock *clock, int64_t until);

#endif
