/*
 * Acquires for a task: begun ones, which no thread waits for, and blocking ones; and dibs_task_cancel and
 * dibs_task_free, which end both. Each of these acquires is a job of the workers (workers.h). The thread of a blocking
 * call runs its job as far as the reply to the first ask, and leaves the rest to the workers, so that it can return at
 * any time when the call is cancelled.
 *
 * A wanting (`struct dibs__wanting`) is one such acquire. Its job and dibs_task.wanting refer to it. Whoever takes the
 * wanting out of dibs_task.wanting, the job or a thread that cancels, decides how the call ends; a job that comes too
 * late gives the lock back. In a call for several names (several.h), the wanting acquires the one name that is waited
 * for.
 */
#ifndef DIBS_CORE_BEGUN_H
#define DIBS_CORE_BEGUN_H

#include "core/done.h"
#include "core/runtime.h"
#include "core/several.h"

/* As dibs_lock_with, for a lock that the task does not hold, by the thread that is in the task; within a visit. */
dibs_status dibs__task_acquire(dibs_task *task, struct dibs__visit *visit, const char *name, size_t name_size,
                               const struct dibs__wish *wish, struct dibs__error *error);

/* The same for several names: takes over `several`, a new call for the thread that is in the task (lock_names.h). */
dibs_status dibs__task_lock_names(dibs_task *task, struct dibs__visit *visit, struct dibs__several *several,
                                  struct dibs__error *error);

/*
 * Begins an acquire for the task, which the call must own. At its end `done` is
 * completed, and a later loss of the lease is reported through the same queue.
 * False: no memory or thread; nothing was begun, and `done` stays the caller's.
 */
bool dibs__wanting_begin(dibs_task *task, struct dibs__visit *visit, const char *name, size_t name_size,
                         const struct dibs__wish *wish, struct dibs__done *done);

/* The same for several names: takes over `several`, a new call (lock_names.h). */
bool dibs__wanting_begin_names(dibs_task *task, struct dibs__visit *visit, struct dibs__several *several,
                               struct dibs__done *done);

/* Completes a begun call that acquired nothing. */
void dibs__begun_complete(struct dibs__done *done);

/* As dibs_task_cancel: if an acquire of the task waits, it ends with DIBS_CANCELLED. */
void dibs__task_cancel(dibs_task *task);

/* As dibs_task_free: cancels an acquire that waits, and gives up what the task holds, in the background. */
void dibs__task_free(dibs_task *task);

#endif
