/* Makes a core out of its parts, and ends it. Also passes on to the parts what the store and the renewals report. */
#ifndef DIBS_CORE_ASSEMBLY_H
#define DIBS_CORE_ASSEMBLY_H

#include "core/core.h"

/* Returns a status of dibs_open; *error is filled on failure. connect_later: does not connect, nor fail for that. */
dibs_status dibs__core_new(struct dibs__core **out, const struct dibs__core_config *config, bool connect_later,
                           struct dibs__error *error);

/*
 * Releases all holds of all threads and ends the core's threads. No thread may be inside any more, except on_event.
 * The store has until the deadline to confirm the releases, and in addition as long as the wait for on_event took.
 */
void dibs__core_end(struct dibs__core *core, int64_t deadline);

void dibs__core_free(struct dibs__core *core); /* must have ended, or never been started */

/* The core whose on_event the calling thread runs; NULL: none. */
const struct dibs__core *dibs__core_of_callback(void);

#endif
