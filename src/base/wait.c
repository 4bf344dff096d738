#include "base/wait.h"

/* The descriptors that are polled, and the waits that they belong to. */
struct polled {
    struct pollfd fds[DIBS__WAITS_MAX + 1]; /* one more, for the bell */
    struct dibs__wait *waits[DIBS__WAITS_MAX];
    nfds_t count;
    struct dibs__wake *bell;
    struct dibs__spin *spin;
    int64_t until;
};

static void gather(struct polled *polled, struct dibs__wait *waits, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct dibs__wait *wait = &waits[i];
        wait->fd.revents = 0;
        polled->until = dibs__earlier(polled->until, wait->until);
        if (wait->fd.fd < 0)
            continue;
        polled->waits[polled->count] = wait;
        polled->fds[polled->count++] = wait->fd;
        polled->bell = wait->bell;
        polled->spin = wait->spin ? wait->spin : polled->spin;
    }
}

void dibs__waits_sleep(struct dibs__wait *waits, size_t count, struct dibs__wait_event *wait_event,
                       const struct dibs__clock *clock, int64_t until)
{
    struct polled polled = {.until = until};
    struct dibs__spinning wait;
    int ready = 0;

    DIBS__REQUIRE(count <= DIBS__WAITS_MAX);
    gather(&polled, waits, count);
    if (polled.count == 0) {
        dibs__wait_event_wait(wait_event, clock, polled.until);
        return;
    }
    dibs__spin_begin(&wait, polled.spin, clock);
    while (ready == 0 && !dibs__wait_event_is_woken(wait_event) && dibs__spin_goes_on(&wait, clock))
        ready = clock->poll(clock, polled.fds, polled.count, 0);
    if (ready == 0)
        ready = dibs__wait_event_poll(wait_event, clock, polled.bell, polled.fds, polled.count, polled.until);
    dibs__spin_end(&wait, ready > 0, clock);
    for (nfds_t i = 0; i < polled.count; i++)
        polled.waits[i]->fd.revents = polled.fds[i].revents;
}
