/* Events for the user's callback: a bounded queue, and the one thread that calls the callback. */
#ifndef DIBS_CORE_EVENTS_H
#define DIBS_CORE_EVENTS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/clock.h"
#include "base/error.h"

struct dibs__events;

/* Events that do not fit are counted in *dropped. NULL: no memory. */
struct dibs__events *dibs__events_new(dibs_event_fn *callback, void *arg, atomic_uint_fast64_t *dropped);

/* Starts the thread, which also handles the events that were emitted before. Called once. False: no thread. */
bool dibs__events_start(struct dibs__events *events);

/*
 * Ends the thread, if it was started, after the callback has been called for each queued event; those that are queued
 * still when that time has come, and events that are emitted later, are dropped. NULL is fine.
 */
void dibs__events_stop(struct dibs__events *events, const struct dibs__clock *clock, int64_t until);
void dibs__events_free(struct dibs__events *events); /* stops the thread if it runs; NULL is fine */

/* Any thread; never waits for the callback. name NULL: an event of the store. events NULL: does nothing. */
void dibs__events_emit(struct dibs__events *events, dibs_event_kind kind, const char *name, uint64_t fence,
                       const char *format, ...) DIBS__PRINTF(5, 6);

#endif
