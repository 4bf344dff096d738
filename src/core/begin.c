/* A begun call for which the store need not be asked completes here. Any other call becomes a job (workers.h). */
#include "core/begin.h"

#include <stdlib.h>

#include "base/backoff.h"
#include "base/order.h"
#include "core/begun.h"
#include "core/lock_names.h"

#define LOOK_FIRST_MS 1 /* first pause between two checks whether a lease is confirmed by now */
#define LOOK_MOST_MS 20 /* longest such pause */

/* A call that is being begun: it owns the task, which nobody else uses until the call is complete. */
struct beginning {
    dibs_task *task;
    struct dibs__visit visit;  /* its core is NULL in an unlock of a closed runtime */
    struct dibs__done *done;   /* the completion, for the caller to fill in */
    struct dibs__done *losses; /* freed at the end and not before: the names that the call was given may be in them */
};

/* Ends the beginning. If nothing was begun, drops the completion, and ends the use of the task. Returns the status. */
static dibs_status end_beginning(struct beginning *call, dibs_status status)
{
    if (status != DIBS_OK) {
        dibs__done_drop(call->done);
        if (dibs__task_complete(call->task))
            dibs__runtime_give_up(call->task->runtime, &call->task->holds);
    }
    if (call->visit.core)
        dibs__visit_end(&call->visit);
    dibs__losses_free(call->losses);
    return status;
}

/* DIBS_OK: the caller must call end_beginning. An unlock begins in a closed runtime, too. */
static dibs_status begin_call(struct beginning *call, dibs_done_kind kind, dibs_task *task, dibs_queue *queue,
                              void *arg, struct dibs__error *error)
{
    dibs_status status = dibs__task_begin(task, error);

    if (status != DIBS_OK)
        return status;
    *call = (struct beginning){.task = task, .losses = dibs__losses_take_back(task)};
    call->done = dibs__done_new(kind, queue, task, arg, NULL);
    status = call->done ? dibs__visit_begin(&call->visit, task->runtime, error) : dibs__begun_no_memory(error);
    return status == DIBS_OK || (status == DIBS_CLOSED && kind == DIBS_DONE_UNLOCK) ? DIBS_OK
                                                                                    : end_beginning(call, status);
}

/* The same for an acquire. */
static dibs_status begin_to_lock(struct beginning *call, dibs_task *task, dibs_queue *queue, void *arg,
                                 struct dibs__error *error)
{
    if (atomic_load(&task->runtime->closing)) {
        dibs__error_set(error, DIBS_CLOSED, "the runtime is closing");
        return DIBS_CLOSED;
    }
    dibs_status status = begin_call(call, DIBS_DONE_LOCK, task, queue, arg, error);
    if (status == DIBS_OK)
        dibs__queue_serves(queue, task->runtime);
    return status;
}

/* Ends a call that never had to wait. */
static void complete_at_once(const struct beginning *call, const struct dibs__error *error)
{
    if (call->visit.core)
        dibs__count(&call->visit.core->stats.begun); /* first: another thread may take the completion at once */
    dibs__begun_complete(call->done, error);
}

/* ---------------------------------------------------------------------- locks */

/* The task was cancelled before it called. */
static void was_cancelled(const struct beginning *call, const char *name, struct dibs__error *error)
{
    dibs__task_was_cancelled(error, name);
    dibs__count(&call->visit.core->stats.cancelled);
}

static dibs_status begin_lock(struct beginning *call, const char *name, size_t name_size, const struct dibs__wish *wish,
                              struct dibs__error *error)
{
    dibs_task *task = call->task;
    dibs_runtime *runtime = task->runtime;
    struct dibs__hold *hold = dibs__holds_find_in(&task->holds, runtime->serial, name, name_size);
    struct dibs__error why = {.status = DIBS_OK};

    if (!hold && !atomic_load(&task->cancelled))
        return dibs__wanting_begin(dibs__wanting_new(task, &call->visit, name, name_size, wish), call->done, error);
    if (!hold)
        was_cancelled(call, name, &why);
    else if (!dibs__lock_may_reenter(hold, wish->flags) || !dibs__lock_reenter(runtime, hold))
        dibs__lock_refuse(runtime, "task", hold, wish->flags, &why);
    if (hold)
        call->done->fence = dibs__lease_fence(hold->lease);
    complete_at_once(call, &why);
    return DIBS_OK;
}

dibs_status dibs__lock_begin(dibs_task *task, const char *name, size_t name_size, const struct dibs__wish *wish,
                             dibs_queue *queue, void *arg, struct dibs__error *error)
{
    struct beginning call;
    dibs_status status = begin_to_lock(&call, task, queue, arg, error);

    if (status != DIBS_OK)
        return status;
    return end_beginning(&call, begin_lock(&call, name, name_size, wish, error));
}

/* -------------------------------------------------------------- several locks */

static dibs_status begin_names(struct beginning *call, const char *const *names, size_t count,
                               const struct dibs__wish *wish, struct dibs__error *error)
{
    dibs_task *task = call->task;
    struct dibs__error why = {.status = DIBS_OK};
    struct dibs__several *several = NULL;

    if (count > 0)
        several = dibs__lock_names_prepare(task->runtime, &call->visit, &task->holds, names, count, wish, &why);
    if (why.status == DIBS_NO_MEMORY)
        return dibs__begun_no_memory(error);
    bool at_once = !several || dibs__several_is_held(several);
    if (!at_once && !atomic_load(&task->cancelled))
        return dibs__wanting_begin(dibs__wanting_new_names(task, &call->visit, several), call->done, error);
    if (!at_once)
        was_cancelled(call, dibs__several_first_wanted(several), &why);
    else if (several) /* all of the locks are held already */
        dibs__several_hold(several, &task->holds);
    dibs__several_free(several);
    complete_at_once(call, &why);
    return DIBS_OK;
}

dibs_status dibs__lock_names_begin(dibs_task *task, const char *const *names, size_t count,
                                   const struct dibs__wish *wish, dibs_queue *queue, void *arg,
                                   struct dibs__error *error)
{
    struct beginning call;
    dibs_status status = begin_to_lock(&call, task, queue, arg, error);

    if (status != DIBS_OK)
        return status;
    return end_beginning(&call, begin_names(&call, names, count, wish, error));
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

/* error: filled unless the status is DIBS_OK. */
static enum dibs__job_next end_unlock(struct unlock *unlock, dibs_status status, struct dibs__error *error)
{
    error->status = status;
    dibs__begun_complete(unlock->done, error);
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
    if (!dibs__release_begin(&unlock->unlocking, 0))
        return rest(unlock);
    job->due = unlock->unlocking.op.deadline;
    return DIBS__JOB_FINISHES;
}

static enum dibs__awaited await_unlock(struct dibs__job *job, int64_t until, struct dibs__wait *watch)
{
    const struct unlock *unlock = unlock_of(job);
    const struct dibs__waiting waiting = {.clock = unlock->core->config.clock, .until = until, .watch = watch};

    return dibs__op_await(unlock->core->store, &unlock->unlocking.op, &waiting);
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

static const struct dibs__job_ops unlock_ops = {
    .begin = begin_unlock_job, .finish = finish_unlock, .ended = unlock_ended, .await = await_unlock};

/* Begins the last unlock of a hold. */
static dibs_status begin_release(dibs_task *task, struct dibs__visit *visit, struct dibs__hold *hold,
                                 struct dibs__done *done, struct dibs__error *error)
{
    struct unlock *unlock = calloc(1, sizeof *unlock);

    if (!unlock)
        return dibs__begun_no_memory(error);
    unlock->job.ops = &unlock_ops;
    unlock->job.due = DIBS__NEVER;
    unlock->look.first_ms = LOOK_FIRST_MS;
    if (!dibs__workers_add(visit->core->workers, &unlock->job)) {
        free(unlock);
        return dibs__begun_no_memory(error);
    }
    dibs__visit_keep(task->runtime);
    dibs__metrics_count(hold->lease->group, DIBS__METRICS_HOLD, dibs__core_now(visit->core) - hold->since);
    unlock->core = visit->core;
    unlock->runtime = task->runtime;
    unlock->done = done;
    unlock->lease = dibs__holds_remove(&task->holds, hold);
    dibs__loss_unwatch(unlock->lease);
    dibs__order_releases(unlock->lease->name, unlock->lease->name_size);
    dibs__count(&visit->core->stats.begun);
    dibs__workers_settle(visit->core->workers, &unlock->job, DIBS__JOB_GOES_ON);
    return DIBS_OK;
}

static dibs_status begin_unlock(struct beginning *call, const char *name, size_t name_size, struct dibs__error *error)
{
    dibs_task *task = call->task;
    struct dibs__done *done = call->done;
    struct dibs__hold *hold = dibs__holds_find_in(&task->holds, task->runtime->serial, name, name_size);
    struct dibs__error why = {.status = DIBS_OK};

    if (hold)
        done->fence = dibs__lease_fence(hold->lease);
    if (hold && hold->count == 1 && call->visit.core)
        return begin_release(task, &call->visit, hold, done, error);
    if (!hold) {
        dibs__unlock_not_held(task->runtime, "task", name, &why);
    } else if (hold->count > 1) {
        hold->count--;
        if (dibs__lock_is_lost(task->runtime, hold))
            dibs__lock_lost("task", name, &why);
    } else { /* the runtime was closed, so only the hold is left */
        dibs__lock_forget(dibs__holds_remove(&task->holds, hold), &why);
    }
    complete_at_once(call, &why);
    return DIBS_OK;
}

dibs_status dibs__unlock_begin(dibs_task *task, const char *name, size_t name_size, dibs_queue *queue, void *arg,
                               struct dibs__error *error)
{
    struct beginning call;
    dibs_status status = begin_call(&call, DIBS_DONE_UNLOCK, task, queue, arg, error);

    return status == DIBS_OK ? end_beginning(&call, begin_unlock(&call, name, name_size, error)) : status;
}
