/*
 * No rouse is missed: the polling thread first sets `bell` and then looks at
 * `roused`; a thread that rouses first sets `roused` and then looks at `bell`.
 * One of both sees what the other has done.
 */
#include "base/ear.h"

void dibs__ear_init(struct dibs__ear *ear)
{
    atomic_init(&ear->roused, false);
    atomic_init(&ear->bell, NULL);
    ear->tell = NULL;
    dibs__sleeper_init(&ear->sleeper);
}

void dibs__ear_rouse(struct dibs__ear *ear)
{
    if (ear->tell) {
        ear->tell(ear);
        return;
    }
    atomic_store(&ear->roused, true);
    struct dibs__wake *bell = atomic_load(&ear->bell);
    if (bell)
        dibs__wake_ring(bell);
    else
        dibs__sleeper_wake(&ear->sleeper);
}

void dibs__ear_wait(struct dibs__ear *ear, const struct dibs__clock *clock, int64_t until)
{
    while (!dibs__ear_is_roused(ear) && dibs__now(clock) < until)
        dibs__sleeper_sleep(&ear->sleeper, clock, until);
}

void dibs__ear_poll(struct dibs__ear *ear, const struct dibs__clock *clock, struct dibs__wake *bell, struct pollfd *fd,
                    int64_t until)
{
    struct pollfd fds[2] = {*fd, {.fd = bell->fds[0], .events = POLLIN}};

    atomic_store(&ear->bell, bell);
    if (!dibs__ear_is_roused(ear))
        clock->poll(clock, fds, 2, until);
    atomic_store(&ear->bell, NULL);
    fd->revents = fds[0].revents;
    if (fds[1].revents)
        dibs__wake_quiet(bell);
}
