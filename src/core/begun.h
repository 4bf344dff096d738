/*
 * Acquires for a task: begun ones, which no thread waits for, and blocking ones;
 * and what ends both, dibs_task_cancel and dibs_task_free. Both are jobs of the
 * workers (workers.h): a blocking one as soon as it has to wait for more than the
 * reply to its first ask, so that the calling thread can leave at any time.
 *
 * A wanting is an acquire for a task (`struct dibs__wanting`). It is reached from
 * its job, and from dibs_task.wanting. Whoever takes it out of there decides how
 * the call ends: its job, or the thread that cancels. A job that comes too late
 * gives the lock back. Where the call is for several names (several.h), the
 * acquire is for the one that is waited for.
 */
#ifndef DIBS_CORE_BEGUN_H
#define DIBS_CORE_BEGUN_H

#include "core/done.h"
#include "core/runtime.h"
#include "core/several.h"

/* As dibs_lock_with, of a lock that the task, in which the calling thread is, does not hold; within a visit. */
dibs_status dibs__task_acquire(dibs_task *task, struct dibs__visit *visit, const char *name, size_t name_size,
                               const struct dibs__wish *wish, struct dibs__error *error);

/*
 * The same for several names, of a new call for the thread that is in the task
 * (lock_names.h), which is the function's from now on.
 */
dibs_status dibs__task_lock_names(dibs_task *task, struct dibs__visit *visit, struct dibs__several *several,
                                  struct dibs__error *error);

/*
 * Begins an acquire for the task, to which the call belongs already; `done` is
 * completed at its end, and the loss of the lease is told where `done` was. False:
 * no memory; nothing was begun, and `done` stays the caller's.
 */
bool dibs__wanting_begin(dibs_task *task, struct dibs__visit *visit, const char *name, size_t name_size,
                         const struct dibs__wish *wish, struct dibs__done *done);

/* The same for several names, of a new call (lock_names.h), which is the function's from now on. */
bool dibs__wanting_begin_names(dibs_task *task, struct dibs__visit *visit, struct dibs__several *several,
                               struct dibs__done *done);

/* A begun call that acquired nothing is complete. */
void dibs__begun_complete(struct dibs__done *done);

/* As dibs_task_cancel: the acquire of the task that waits, if one does, ends with DIBS_CANCELLED. */
void dibs__task_cancel(dibs_task *task);

/* As dibs_task_free: cancels what waits, and gives up what the task holds, in the background. */
void dibs__task_free(dibs_task *task);

#endif
