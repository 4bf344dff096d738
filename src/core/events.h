/* Events for the user's callback: a bounded queue and the one thread that calls it. */
#ifndef DIBS_CORE_EVENTS_H
#define DIBS_CORE_EVENTS_H

#include <stdatomic.h>

#include "base/error.h"

struct dibs__events;

/* Starts the thread. Events that don't fit are added to *dropped. NULL: no memory or no thread. */
struct dibs__events *dibs__events_new(dibs_event_fn *callback, void *arg, atomic_uint_fast64_t *dropped);

/* Calls the callback for what is queued and ends the thread; what is emitted later is dropped. NULL is fine. */
void dibs__events_stop(struct dibs__events *events);
void dibs__events_free(struct dibs__events *events); /* stops it, if it was not; NULL is fine */

/* Any thread; never blocks on the callback. name may be NULL. Without events (NULL) it does nothing. */
void dibs__events_emit(struct dibs__events *events, dibs_event_kind kind, const char *name, uint64_t fence,
                       const char *format, ...) DIBS__PRINTF(5, 6);

#endif
