/*
 * How a thread waits for several things at the same time: it sleeps once, in one poll(2), or by its wait event if it
 * has nothing to read.
 *
 * The thread has one wait for each thing. The keeper of the thing (a channel, for example) registers the wait and wakes
 * the thread, or has the thread read by itself: then the wait names a descriptor.
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

#include "base/list.h"
#include "base/spin.h"
#include "base/wait_event.h"

#define DIBS__WAITS_MAX 16 /* waits of one thread at the same time */

/* Owned by the waiting thread. That thread also sets the keeper's fields, in a call of the keeper. */
struct dibs__wait {
    struct dibs__wait_event *wait_event; /* the thread's; the keeper wakes it when there may be news */
    struct pollfd fd;        /* the keeper's; the descriptor to poll; fd -1: none; revents: result of the last sleep */
    struct dibs__wake *bell; /* the keeper's; set with fd; ends the poll(2) when the wait event is woken */
    struct dibs__spin *spin; /* the keeper's; set with fd; measures such waits; NULL: the thread sleeps at once */
    int64_t until;           /* the keeper's; the thread asks the keeper again at this time at the latest */
    atomic_int *missing;     /* atomic; things that must still come before the thread is woken; NULL: each wakes it */
    void (*end)(struct dibs__wait *wait); /* the keeper's; called when the thread stops waiting for the thing; NULL: it
                                             does not wait */
    void *keeper, *thing;                 /* the keeper's */
    DIBS__LINKS(struct dibs__wait) links; /* the keeper's; guarded by its mutex */
};

static inline void dibs__wait_init(struct dibs__wait *wait, struct dibs__wait_event *wait_event)
{
    *wait = (struct dibs__wait){.wait_event = wait_event, .fd.fd = -1, .until = DIBS__NEVER};
}

/* Called by the keeper, under its mutex, when the thing has come. */
static inline void dibs__wait_came(struct dibs__wait *wait)
{
    if (!wait->missing || atomic_fetch_sub(wait->missing, 1) <= 1)
        dibs__wait_event_wake(wait->wait_event);
}

/* May be called at any time. */
static inline void dibs__wait_end(struct dibs__wait *wait)
{
    if (wait->end)
        wait->end(wait);
}

/*
 * Sleeps until the wait event is woken, a descriptor is ready, or the earliest of `until` and the waits' `until` has
 * come. May return earlier. Polls first where that pays.
 */
void dibs__waits_sleep(struct dibs__wait *waits, size_t count, struct dibs__wait_event *wait_event,
                       const struct dibs__clock *clock, int64_t until);

#endif
