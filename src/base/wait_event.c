/*
 * No wake is missed: the polling thread first sets `bell` and then reads `woken`; a thread that wakes it first sets
 * `woken` and then reads `bell`. So at least one of the two sees what the other has done.
 */
#include "base/wait_event.h"

void dibs__wait_event_init(struct dibs__wait_event *wait_event)
{
    *wait_event = (struct dibs__wait_event){.tell = NULL};
}

void dibs__wait_event_wake(struct dibs__wait_event *wait_event)
{
    if (wait_event->tell) {
        wait_event->tell(wait_event);
        return;
    }
    atomic_store(&wait_event->woken, true);
    struct dibs__wake *bell = atomic_load(&wait_event->bell);
    if (bell)
        dibs__wake_ring(bell);
    else
        dibs__sleeper_wake(&wait_event->sleeper);
}

void dibs__wait_event_wait(struct dibs__wait_event *wait_event, const struct dibs__clock *clock, int64_t until)
{
    while (!dibs__wait_event_is_woken(wait_event) && dibs__now(clock) < until)
        dibs__sleeper_sleep(&wait_event->sleeper, clock, until);
}

int dibs__wait_event_poll(struct dibs__wait_event *wait_event, const struct dibs__clock *clock, struct dibs__wake *bell,
                          struct pollfd *fds, nfds_t count, int64_t until)
{
    struct pollfd *rung = &fds[count];
    int ready = 0;

    *rung = (struct pollfd){.fd = bell->fds[0], .events = POLLIN};
    atomic_store(&wait_event->bell, bell);
    if (!dibs__wait_event_is_woken(wait_event))
        ready = clock->poll(clock, fds, count + 1, until);
    atomic_store(&wait_event->bell, NULL);
    if (!rung->revents)
        return ready;
    dibs__wake_quiet(bell);
    return ready - 1;
}
