/*
 * The scheduler: the one thread of a runtime that polls. It runs the work in
 * the background, the store's part and the renewals, without waiting for any of it.
 *
 * Whatever wants to be polled joins as a struct dibs__polled. The thread asks
 * each for its descriptors and its deadline, sleeps in poll(2), and lets each
 * attend to what has happened, in the order in which they joined. Other threads
 * reach it in two ways: dibs__scheduler_wake ends its sleep at once, and
 * dibs__scheduler_wake_by at a time, unless it would be awake by then anyway.
 */
#ifndef DIBS_CORE_SCHEDULER_H
#define DIBS_CORE_SCHEDULER_H

#include <stddef.h>

#include "base/clock.h"

#define DIBS__POLLED_MAX 4

/* All but `pending` are called by the scheduler's thread alone, with no lock held. None may block. */
struct dibs__polled {
    void *context;
    size_t fd_max; /* the most descriptors that interest ever fills in */

    /* Fills in the descriptors to poll and returns their number. *deadline: when attend must be called at the latest;
     * DIBS__NEVER: whenever a descriptor is ready. */
    size_t (*interest)(void *context, struct pollfd *fds, int64_t *deadline);

    /* Does what is due. After every sleep, whatever ended it: the descriptors of interest, with revents. */
    void (*attend)(void *context, const struct pollfd *fds, size_t count);

    /* How much is left to do that dibs__scheduler_drain waits for. NULL: nothing ever. */
    size_t (*pending)(void *context);
};

struct dibs__scheduler;

/* NULL: no memory or no descriptor. */
struct dibs__scheduler *dibs__scheduler_new(const struct dibs__clock *clock);

/* Before start; at most DIBS__POLLED_MAX may join. *polled is copied. */
void dibs__scheduler_join(struct dibs__scheduler *scheduler, const struct dibs__polled *polled);

/* Starts the thread. False: no memory or no thread. */
bool dibs__scheduler_start(struct dibs__scheduler *scheduler);

/* Ends the thread. It must have been started. */
void dibs__scheduler_stop(struct dibs__scheduler *scheduler);

void dibs__scheduler_free(struct dibs__scheduler *scheduler); /* stopped, or never started; NULL is fine */

/* Any thread: interest must be asked for again now, or some milliseconds after the start of the scheduler. */
void dibs__scheduler_wake(struct dibs__scheduler *scheduler);

/*
 * Any thread, with or without locks: interest of something that joined names
 * `when`, or an earlier time, from now on. Call it after that was made so.
 * Costs one atomic load where the thread would be awake by then anyway.
 */
void dibs__scheduler_wake_by(struct dibs__scheduler *scheduler, int64_t when);

/* Waits until the thread has nothing pending, nor is about to bring any, at most until the deadline. One thread at a
 * time. */
void dibs__scheduler_drain(struct dibs__scheduler *scheduler, int64_t deadline);

#endif
