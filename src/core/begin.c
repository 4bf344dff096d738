/* A begun call for which the store need not be asked completes here. Any other call becomes a job (workers.h). */
#include "core/begin.h"

#include <stdlib.h>

#include "base/backoff.h"
#include "base/order.h"
#include "core/begun.h"
#include "core/lock_names.h"

#define LOOK_FIRST_MS 1 /* first pause between two checks whether a lease is confirmed by now */
#define LOOK_MOST_MS 20 /* longest such pause */

static dibs_status no_memory(struct dibs__error *error)
{
    return dibs__error_set(error, DIBS_NO_MEMORY, "no memory or thread for a lock");
}

/* ---------------------------------------------------------------------- locks */

/* Ends the call without the store, if possible. */
static bool lock_at_once(dibs_task *task, struct dibs__hold *hold, const char *name, const dibs_lock_options *options,
                         struct dibs__done *done)
{
    dibs_runtime *runtime = task->runtime;
    struct dibs__error error = {.status = DIBS_OK};

    if (!hold && !atomic_load(&task->cancelled))
        return false;
    if (!hold)
        dibs__task_was_cancelled(&error, name);
    else if (!dibs__lock_may_reenter(hold, options) || !dibs__lock_reenter(runtime, hold))
        dibs__lock_refuse(runtime, "task", hold, options, &error);
    if (hold)
        done->fence = dibs__lease_fence(hold->lease);
    if (error.status != DIBS_OK)
        dibs__done_explain(done, &error);
    return true;
}

/* The call must own the task (take_task). */
static dibs_status begin_lock(dibs_task *task, struct dibs__visit *visit, const char *name, size_t name_size,
                              int64_t wait_ms, const dibs_lock_options *options, struct dibs__done *done,
                              struct dibs__error *error)
{
    dibs_runtime *runtime = task->runtime;
    struct dibs__hold *hold = dibs__holds_find_in(&task->holds, task->runtime->serial, name, name_size);

    if (lock_at_once(task, hold, name, options, done)) {
        if (done->status == DIBS_CANCELLED)
            dibs__count(&visit->core->stats.cancelled);
        dibs__begun_complete(done);
        return DIBS_OK;
    }
    const struct dibs__wish wish = dibs__lock_wish(runtime, wait_ms, options);
    return dibs__wanting_begin(task, visit, name, name_size, &wish, done) ? DIBS_OK : no_memory(error);
}

/* If nothing could be begun, drops the completion, and ends the call's use of the task. Returns the status. */
static dibs_status take_back(dibs_task *task, struct dibs__done *done, dibs_status status)
{
    if (status == DIBS_OK)
        return status;
    dibs__done_drop(done);
    if (dibs__task_complete(task))
        dibs__runtime_give_up(task->runtime, &task->holds);
    return status;
}

/*
 * Takes the task for the call. DIBS_BUSY: somebody else uses it. The caller frees *losses at the end of the call and
 * not before, since the names that it was given may be in them.
 */
static dibs_status take_task(dibs_task *task, struct dibs__done **losses, struct dibs__error *error)
{
    dibs_status status = dibs__task_begin(task, error);

    *losses = status == DIBS_OK ? dibs__losses_take_back(task) : NULL;
    return status;
}

/*
 * Takes the task for the call, begins *visit, and returns the call's completion for the caller to fill in; *losses as
 * in take_task. NULL: the call can't begin, and the error says why.
 */
static struct dibs__done *begin_call(dibs_task *task, struct dibs__visit *visit, dibs_queue *queue, void *arg,
                                     struct dibs__done **losses, struct dibs__error *error)
{
    dibs_runtime *runtime = task->runtime;

    if (atomic_load(&runtime->closing)) {
        dibs__error_set(error, DIBS_CLOSED, "the runtime is closing");
        return NULL;
    }
    if (take_task(task, losses, error) != DIBS_OK)
        return NULL;
    struct dibs__done *done = dibs__done_new(DIBS_DONE_LOCK, queue, task, arg, NULL);
    if (!done)
        no_memory(error);
    if (!done || dibs__visit_begin(visit, runtime, error) != DIBS_OK) {
        take_back(task, done, error->status);
        dibs__losses_free(*losses);
        return NULL;
    }
    dibs__count(&visit->core->stats.begun);
    dibs__queue_serves(queue, runtime);
    return done;
}

dibs_status dibs__lock_begin(dibs_task *task, const char *name, size_t name_size, int64_t wait_ms,
                             const dibs_lock_options *options, dibs_queue *queue, void *arg, struct dibs__error *error)
{
    struct dibs__visit visit;
    struct dibs__done *losses, *done = begin_call(task, &visit, queue, arg, &losses, error);

    if (!done)
        return error->status;
    dibs_status status =
        take_back(task, done, begin_lock(task, &visit, name, name_size, wait_ms, options, done, error));
    dibs__visit_end(&visit);
    dibs__losses_free(losses);
    return status;
}

/* -------------------------------------------------------------- several locks */

/* Ends the call without the store: with that error, or with all locks, because they were held already. */
static void end_at_once(dibs_task *task, struct dibs__several *several, struct dibs__done *done,
                        const struct dibs__error *error)
{
    if (error->status != DIBS_OK)
        dibs__done_explain(done, error);
    else if (several)
        dibs__several_hold(several, &task->holds);
    dibs__several_free(several);
    dibs__begun_complete(done);
}

/* The call must own the task (take_task). */
static dibs_status begin_names(dibs_task *task, struct dibs__visit *visit, const char *const *names, size_t count,
                               int64_t wait_ms, const dibs_lock_options *options, struct dibs__done *done,
                               struct dibs__error *error)
{
    struct dibs__error why = {.status = DIBS_OK};
    struct dibs__several *several = NULL;

    if (count > 0)
        several = dibs__lock_names_prepare(task->runtime, visit, &task->holds, names, count, wait_ms, options, &why);
    if (why.status == DIBS_NO_MEMORY)
        return no_memory(error);
    bool at_once = !several || dibs__several_is_held(several);
    if (!at_once && atomic_load(&task->cancelled)) {
        dibs__task_was_cancelled(&why, dibs__several_first_wanted(several));
        dibs__count(&visit->core->stats.cancelled);
        at_once = true;
    }
    if (at_once) {
        end_at_once(task, several, done, &why);
        return DIBS_OK;
    }
    return dibs__wanting_begin_names(task, visit, several, done) ? DIBS_OK : no_memory(error);
}

dibs_status dibs__lock_names_begin(dibs_task *task, const char *const *names, size_t count, int64_t wait_ms,
                                   const dibs_lock_options *options, dibs_queue *queue, void *arg,
                                   struct dibs__error *error)
{
    struct dibs__visit visit;
    struct dibs__done *losses, *done = begin_call(task, &visit, queue, arg, &losses, error);

    if (!done)
        return error->status;
    dibs_status status = take_back(task, done, begin_names(task, &visit, names, count, wait_ms, options, done, error));
    dibs__visit_end(&visit);
    dibs__losses_free(losses);
    return status;
}

/* -------------------------------------------------------------------- unlocks */

struct unlock {
    struct dibs__job job;
    struct dibs__unlocking unlocking; /* running thread only */
    struct dibs__core *core;          /* read-only */
    dibs_runtime *runtime;            /* read-only; with a kept visit */
    struct dibs__lease *lease;        /* running thread only; NULL once it was given up */
    struct dibs__done *done;          /* running thread only */
    struct dibs__backoff look;        /* running thread only; pauses between checks whether the release can begin */
};

static struct unlock *unlock_of(struct dibs__job *job)
{
    return (struct unlock *)job; /* its first member */
}

static enum dibs__job_next end_unlock(struct unlock *unlock, dibs_status status, const struct dibs__error *error)
{
    struct dibs__done *done = unlock->done;

    if (status != DIBS_OK)
        dibs__done_explain(done, error);
    dibs__begun_complete(done);
    return DIBS__JOB_ENDS;
}

/* The release can't be sent yet, so the job rests. If a thread waited, all other begun calls would wait with it. */
static enum dibs__job_next rest(struct unlock *unlock)
{
    int64_t pause_ms = dibs__backoff_next(&unlock->look, LOOK_MOST_MS);

    unlock->job.due = dibs__after_ms(dibs__core_now(unlock->core), pause_ms);
    return DIBS__JOB_RESTS;
}

static enum dibs__job_next begin_unlock_job(struct dibs__job *job)
{
    struct unlock *unlock = unlock_of(job);
    struct dibs__lease *lease = unlock->lease;
    struct dibs__error error;
    dibs_status status;

    unlock->lease = NULL;
    if (lease &&
        !dibs__release_lease(&unlock->unlocking, unlock->core, lease, dibs__core_now(unlock->core), &status, &error))
        return end_unlock(unlock, status, &error);
    if (unlock->unlocking.prepared)
        return DIBS__JOB_FINISHES;
    if (!dibs__release_may_begin(&unlock->unlocking, 0))
        return rest(unlock);
    dibs__release_begin(&unlock->unlocking);
    job->due = unlock->unlocking.op.deadline;
    return DIBS__JOB_FINISHES;
}

static bool await_unlock(struct dibs__job *job, int64_t until)
{
    const struct unlock *unlock = unlock_of(job);
    const struct dibs__waiting waiting = {.clock = unlock->core->config.clock, .until = until};

    return dibs__release_await(&unlock->unlocking, &waiting);
}

static bool watch_unlock(struct dibs__job *job, struct dibs__wait *wait)
{
    const struct unlock *unlock = unlock_of(job);

    return dibs__core_now(unlock->core) < job->due && dibs__release_watch(&unlock->unlocking, wait);
}

static enum dibs__job_next finish_unlock(struct dibs__job *job)
{
    struct unlock *unlock = unlock_of(job);
    struct dibs__error error;

    return end_unlock(unlock, dibs__release_finish(&unlock->unlocking, &error), &error);
}

static void unlock_ended(struct dibs__job *job)
{
    struct unlock *unlock = unlock_of(job);
    dibs_runtime *runtime = unlock->runtime;

    free(unlock);
    dibs__visit_drop(runtime);
}

static const struct dibs__job_ops unlock_ops = {.begin = begin_unlock_job,
                                                .await = await_unlock,
                                                .watch = watch_unlock,
                                                .finish = finish_unlock,
                                                .ended = unlock_ended};

/* Begins the last unlock of a hold. */
static dibs_status begin_release(dibs_task *task, struct dibs__visit *visit, struct dibs__hold *hold,
                                 struct dibs__done *done, struct dibs__error *error)
{
    struct unlock *unlock = calloc(1, sizeof *unlock);

    if (!unlock)
        return no_memory(error);
    unlock->job.ops = &unlock_ops;
    unlock->job.due = DIBS__NEVER;
    unlock->look.first_ms = LOOK_FIRST_MS;
    if (!dibs__workers_add(visit->core->workers, &unlock->job)) {
        free(unlock);
        return no_memory(error);
    }
    dibs__visit_keep(task->runtime);
    dibs__release_count(visit->core, hold, dibs__core_now(visit->core));
    unlock->core = visit->core;
    unlock->runtime = task->runtime;
    unlock->done = done;
    unlock->lease = dibs__holds_remove(&task->holds, hold);
    dibs__loss_unwatch(unlock->lease);
    dibs__order_releases(unlock->lease->name, unlock->lease->name_size);
    dibs__workers_settle(visit->core->workers, &unlock->job, DIBS__JOB_GOES_ON);
    return DIBS_OK;
}

/* The runtime was closed, so only the hold is left: removes it. */
static void forget(dibs_task *task, struct dibs__hold *hold, struct dibs__done *done)
{
    struct dibs__error error;

    dibs__lock_forget(dibs__holds_remove(&task->holds, hold), &error);
    dibs__done_explain(done, &error);
}

/* The call must own the task. inside: *visit was begun; otherwise the runtime is closed. */
static dibs_status begin_unlock(dibs_task *task, struct dibs__visit *visit, bool inside, const char *name,
                                size_t name_size, struct dibs__done *done, struct dibs__error *error)
{
    struct dibs__hold *hold = dibs__holds_find_in(&task->holds, task->runtime->serial, name, name_size);
    struct dibs__error why = {.status = DIBS_OK};

    if (hold)
        done->fence = dibs__lease_fence(hold->lease);
    if (hold && hold->count == 1 && inside)
        return begin_release(task, visit, hold, done, error);
    if (!hold) {
        dibs__unlock_not_held(task->runtime, "task", name, &why);
    } else if (hold->count > 1) {
        hold->count--;
        if (dibs__lock_is_lost(task->runtime, hold))
            dibs__lock_lost("task", name, &why);
    } else {
        forget(task, hold, done);
    }
    if (why.status != DIBS_OK)
        dibs__done_explain(done, &why);
    dibs__begun_complete(done);
    return DIBS_OK;
}

/* As dibs__unlock_begin, once the call owns the task. */
static dibs_status begin_unlock_call(dibs_task *task, const char *name, size_t name_size, dibs_queue *queue, void *arg,
                                     struct dibs__error *error)
{
    struct dibs__visit visit;
    struct dibs__done *done = dibs__done_new(DIBS_DONE_UNLOCK, queue, task, arg, NULL);

    if (!done)
        return take_back(task, done, no_memory(error));
    dibs_status status = dibs__visit_begin(&visit, task->runtime, error);
    if (status != DIBS_OK && status != DIBS_CLOSED)
        return take_back(task, done, status);
    bool inside = status == DIBS_OK;
    if (inside)
        dibs__count(&visit.core->stats.begun);
    status = take_back(task, done, begin_unlock(task, &visit, inside, name, name_size, done, error));
    if (inside)
        dibs__visit_end(&visit);
    return status;
}

dibs_status dibs__unlock_begin(dibs_task *task, const char *name, size_t name_size, dibs_queue *queue, void *arg,
                               struct dibs__error *error)
{
    struct dibs__done *losses;
    dibs_status status = take_task(task, &losses, error);

    if (status == DIBS_OK)
        status = begin_unlock_call(task, name, name_size, queue, arg, error);
    dibs__losses_free(losses);
    return status;
}
