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

/*
 * A new wanting for the task, which the call must own, or whose thread makes it; within a visit. wish: as of
 * dibs_lock_with, for a lock that the task does not hold. NULL: no memory or thread.
 */
struct dibs__wanting *dibs__wanting_new(dibs_task *task, struct dibs__visit *visit, const char *name, size_t name_size,
                                        const struct dibs__wish *wish);

/* The same for several names: takes over `several`, a new call (lock_names.h). */
struct dibs__wanting *dibs__wanting_new_names(dibs_task *task, struct dibs__visit *visit,
                                              struct dibs__several *several);

/* Makes a blocking call of the wanting, for the thread that is in the task. NULL: DIBS_NO_MEMORY. */
dibs_status dibs__wanting_call(struct dibs__wanting *wanting, struct dibs__error *error);

/*
 * Makes a begun call of the wanting. At its end `done` is completed, and a later loss of a lease is reported through
 * the same queue. DIBS_NO_MEMORY, also for NULL: nothing was begun, and `done` stays the caller's.
 */
dibs_status dibs__wanting_begin(struct dibs__wanting *wanting, struct dibs__done *done, struct dibs__error *error);

/* Fills the error of a call that could not be made. Returns DIBS_NO_MEMORY. */
dibs_status dibs__begun_no_memory(struct dibs__error *error);

/* Completes a begun call that acquired nothing: with that error, or well, if its status is DIBS_OK. */
void dibs__begun_complete(struct dibs__done *done, const struct dibs__error *error);

/* As dibs_task_cancel: if an acquire of the task waits, it ends with DIBS_CANCELLED. */
void dibs__task_cancel(dibs_task *task);

/* As dibs_task_free: cancels an acquire that waits, and gives up what the task holds, in the background. */
void dibs__task_free(dibs_task *task);

#endif
