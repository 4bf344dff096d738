/* The end of a hold: the lease passes to another thread, or goes back to the store. Each call is made in a visit. */
#ifndef DIBS_CORE_RELEASE_H
#define DIBS_CORE_RELEASE_H

#include "core/core.h"
#include "core/holds.h"

/* As the last dibs_unlock, whatever the count of the hold, which is gone afterwards. */
dibs_status dibs__release(struct dibs__core *core, struct dibs__hold *hold, struct dibs__error *error);

/*
 * A thread ended while it held the lease. The store deletes the key in the
 * background: a thread that ends waits for no reply. The reference stays the
 * caller's.
 */
void dibs__release_orphaned(struct dibs__core *core, struct dibs__lease *lease);

/*
 * The process ends, and the calling thread, which holds the lease, called exit.
 * No other thread here gets the lock, which would take it into the grave, and
 * no event is told: what on_event needs may be gone. The reference stays the
 * caller's.
 */
void dibs__release_at_exit(struct dibs__core *core, struct dibs__lease *lease);

#endif
