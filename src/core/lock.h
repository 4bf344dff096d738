/* The way of one lock that the calling thread does not hold yet, and its end. Each call is made within a visit. */
#ifndef DIBS_CORE_LOCK_H
#define DIBS_CORE_LOCK_H

#include "core/holds.h"
#include "core/runtime.h"

/* As dibs_lock_with, for a name that the thread does not hold. Arguments are checked; lease_ms is not 0. Sets the
 * thread's last error. */
dibs_status dibs__lock_acquire(struct dibs__core *core, const char *name, size_t name_size, int64_t wait_ms,
                               uint32_t lease_ms, uint32_t flags);

/* The last unlock, whatever the hold's count. The hold is gone afterwards. Sets the thread's last error. */
dibs_status dibs__lock_release(struct dibs__core *core, struct dibs__hold *hold);

#endif
