/*
 * The scheduler: the one thread of a runtime that polls. It runs the background work, which is the store's part and the
 * renewals, and never waits for any of it.
 *
 * What must be polled is a struct dibs__polled. The thread asks it for its descriptors and its deadline, sleeps in
 * poll(2), and lets it attend to what has happened.
 * Other threads reach the scheduler in two ways: dibs__scheduler_wake ends its sleep at once, and
 * dibs__scheduler_wake_by at a given time, unless it would be awake by then anyway.
 */
#ifndef DIBS_CORE_SCHEDULER_H
#define DIBS_CORE_SCHEDULER_H

#include <stddef.h>

#include "base/clock.h"

/* All functions but `pending` are called by the scheduler's thread alone, with no lock held. None may block. */
struct dibs__polled {
    void *context;
    size_t fd_max; /* the most descriptors that interest ever fills in */

    /*
     * Fills in the descriptors to poll and returns their number. *deadline: when attend must be called at the latest;
     * DIBS__NEVER: only when a descriptor is ready.
     */
    size_t (*interest)(void *context, struct pollfd *fds, int64_t *deadline);

    /* Does what is due. Called after every sleep, whatever ended it. fds: the descriptors of interest, with revents. */
    void (*attend)(void *context, const struct pollfd *fds, size_t count);

    /* How much work is left for which dibs__scheduler_drain waits. */
    size_t (*pending)(void *context);
};

struct dibs__scheduler;

/* NULL: no memory or no descriptor. */
struct dibs__scheduler *dibs__scheduler_new(const struct dibs__clock *clock);

/* Starts the thread. *polled is copied. False: no memory or no thread. */
bool dibs__scheduler_start(struct dibs__scheduler *scheduler, const struct dibs__polled *polled);

/* Ends the thread, which must have been started. */
void dibs__scheduler_stop(struct dibs__scheduler *scheduler);

void dibs__scheduler_free(struct dibs__scheduler *scheduler); /* stopped, or never started; NULL is fine */

/* Any thread: has the scheduler call interest again now, or, just after its start, some milliseconds later. */
void dibs__scheduler_wake(struct dibs__scheduler *scheduler);

/*
 * Any thread, with or without locks. Must be called after the caller has made `interest` name the deadline `when`, or
 * an earlier one. Costs one atomic load if the thread would be awake by then anyway.
 */
void dibs__scheduler_wake_by(struct dibs__scheduler *scheduler, int64_t when);

/*
 * Waits, until the deadline at most, until the scheduler's thread has nothing pending, and is not about to bring any
 * work. Only one thread at a time may drain.
 */
void dibs__scheduler_drain(struct dibs__scheduler *scheduler, int64_t deadline);

#endif
