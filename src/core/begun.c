/*
 * No mutex of its own. A job is run by one thread at a time (workers.h), which
 * alone touches what only the job needs. `cancelled` is set by any thread, which
 * then posts the job.
 */
#include "core/begun.h"

#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/order.h"
#include "core/done.h"
#include "core/lock.h"
#include "core/release.h"

#define SLICE_MS 5 /* a cancel ends the wait for the reply to a blocking call's first ask within this time */

/* How a thread waits for a call of its own. */
struct caller {
    struct dibs__error *error; /* read-only; what it points to is of whoever ends the call; NULL: the call was begun */
    struct dibs__sleeper sleeper; /* has its own guard */
    atomic_bool ended;            /* atomic; how it ended is the thread's to read from then on */
    dibs_status status;           /* of whoever ends the call */
    struct dibs__lease *lease;    /* of whoever ends the call; DIBS_OK */
};

struct dibs__wanting {
    struct dibs__job job;
    struct dibs__acquire acquire;   /* the running thread's */
    struct dibs__waiter waiter;     /* as turn.h */
    struct dibs__outage outage;     /* the running thread's, and that of whoever answers the waiter */
    enum dibs__acquire_state state; /* the running thread's */
    bool asked;                     /* the running thread's; the ask was begun */
    atomic_bool cancelled;          /* atomic */
    atomic_uint references;         /* atomic; the job's, that of dibs_task.wanting, and that of a thread that calls:
                                       each with a visit */
    unsigned generation;            /* read-only; of the process that made it */
    dibs_task *task;                /* read-only; with a reference */
    struct dibs__done *done, *loss; /* of a begun call; of whoever ends it; NULL: a thread calls */
    struct caller caller;           /* has its own guards */
    char name[];                    /* read-only */
};

struct unlock {
    struct dibs__job job;
    struct dibs__unlocking unlocking; /* the running thread's */
    struct dibs__core *core;          /* read-only */
    dibs_runtime *runtime;            /* read-only; with a visit */
    struct dibs__lease *lease;        /* the running thread's */
    struct dibs__done *done;          /* the running thread's */
    bool begun;                       /* the running thread's; the release was begun */
};

/* --------------------------------------------------------------------- losses */

void dibs__loss_tell(struct dibs__lease *lease)
{
    if (!atomic_load(&lease->loss))
        return;
    dibs__done_begin_telling();
    struct dibs__done *loss = atomic_exchange(&lease->loss, NULL);
    if (loss) {
        loss->fence = dibs__lease_fence(lease);
        dibs__done_push(loss, NULL, NULL);
    }
    dibs__done_end_telling();
}

void dibs__loss_unwatch(struct dibs__lease *lease)
{
    struct dibs__done *loss = atomic_load(&lease->loss) ? atomic_exchange(&lease->loss, NULL) : NULL;

    dibs__done_drop(loss);
    if (!loss && atomic_load(&lease->loss_told)) { /* what is being told arrives before the holder goes on */
        dibs__done_begin_telling();
        dibs__done_end_telling();
    }
}

/* ---------------------------------------------------------- the end of an acquire */

static void unref(struct dibs__wanting *wanting)
{
    dibs_runtime *runtime = wanting->task->runtime;

    if (atomic_fetch_sub(&wanting->references, 1) == 1) {
        dibs__done_drop(wanting->done);
        dibs__done_drop(wanting->loss);
        dibs__task_unref(wanting->task);
        free(wanting);
    }
    dibs__visit_drop(runtime);
}

/* Whether the calling thread says how the call ends. Then the reference of dibs_task.wanting is its own. */
static bool take_out(struct dibs__wanting *wanting)
{
    struct dibs__wanting *expected = wanting;

    return atomic_compare_exchange_strong(&wanting->task->wanting, &expected, NULL);
}

/* What is done in the moment in which a completion arrives. */
struct arrival {
    dibs_task *task;
    struct dibs__lease *lease; /* NULL: the lock was not acquired */
    struct dibs__done *loss;
    bool gone; /* set: the task was freed */
};

static void on_arrival(void *context)
{
    struct arrival *arrival = context;

    if (arrival->lease)
        atomic_store(&arrival->lease->loss, arrival->loss);
    arrival->gone = dibs__task_complete(arrival->task);
}

/* The call is complete. lease: that was acquired, and is in the task's table; NULL: none was. */
static void complete(struct dibs__done *done, struct dibs__done *loss, struct dibs__lease *lease)
{
    dibs_task *task = done->task;
    struct arrival arrival = {.task = task, .lease = lease, .loss = loss};

    dibs__task_ref(task);
    if (lease)
        dibs__lease_ref(lease);
    dibs__done_push(done, on_arrival, &arrival);
    if (lease && atomic_load(&lease->loss_told)) /* it was told before there was anybody to be told */
        dibs__loss_tell(lease);
    if (arrival.gone)
        dibs__task_give_up(task);
    dibs__lease_unref(lease);
    dibs__task_unref(task);
}

static void tell_caller(struct caller *caller, dibs_status status, struct dibs__lease *lease)
{
    caller->status = status;
    caller->lease = lease;
    atomic_store(&caller->ended, true);
    dibs__sleeper_wake(&caller->sleeper);
}

/* By whoever took the call out, which did not get the lock. */
static void fail_call(struct dibs__wanting *wanting, const struct dibs__error *error)
{
    struct dibs__done *done = wanting->done;

    if (error->status == DIBS_CANCELLED)
        dibs__count(&wanting->acquire.core->stats.cancelled);
    if (wanting->caller.error) {
        *wanting->caller.error = *error;
        tell_caller(&wanting->caller, error->status, NULL);
        return;
    }
    wanting->done = NULL;
    dibs__done_explain(done, error);
    complete(done, NULL, NULL);
}

static void succeed(struct dibs__wanting *wanting)
{
    struct dibs__lease *lease = wanting->acquire.lease;
    int64_t acquired_at = wanting->acquire.acquired_at;
    struct dibs__done *done = wanting->done, *loss = wanting->loss;

    dibs__acquire_count(&wanting->acquire);
    dibs__order_acquired(lease->name, lease->name_size);
    if (wanting->caller.error) {
        tell_caller(&wanting->caller, DIBS_OK, lease);
        return;
    }
    wanting->done = wanting->loss = NULL;
    dibs__holder_add(&wanting->task->holder, lease, acquired_at);
    done->fence = dibs__lease_fence(lease);
    complete(done, loss, lease);
}

/* The lock was granted to a call that had been cancelled by then. Does not wait for the store: others are to go on. */
static void give_back(struct dibs__wanting *wanting)
{
    dibs__release_unwanted(wanting->acquire.core, wanting->acquire.lease);
    dibs__lease_unref(wanting->acquire.lease);
}

/* The acquire has ended, with that error or with the lock. */
static void conclude(struct dibs__wanting *wanting, const struct dibs__error *error)
{
    dibs_status status = wanting->acquire.status;

    if (!take_out(wanting)) {
        if (status == DIBS_OK)
            give_back(wanting);
        return;
    }
    if (status == DIBS_OK)
        succeed(wanting);
    else
        fail_call(wanting, error);
    unref(wanting);
}

void dibs__wanting_cancel(dibs_task *task)
{
    struct dibs__wanting *wanting = atomic_exchange(&task->wanting, NULL);
    char quoted[DIBS__QUOTED_MAX];
    struct dibs__error error;

    if (!wanting || wanting->generation != dibs__fork_generation()) /* that of a parent is none of its child's */
        return;
    dibs__error_set(&error, DIBS_CANCELLED, "the task that wanted %s was cancelled",
                    dibs__quote(quoted, wanting->name));
    atomic_store(&wanting->cancelled, true);
    fail_call(wanting, &error);
    dibs__workers_post(wanting->acquire.core->workers, &wanting->job);
    unref(wanting);
}

/* ------------------------------------------------------------- an acquire's steps */

static struct dibs__wanting *wanting_of(struct dibs__job *job)
{
    return (struct dibs__wanting *)job; /* its first member */
}

static void post(struct dibs__wanting *wanting)
{
    dibs__workers_post(wanting->acquire.core->workers, &wanting->job);
}

static void tell_waiter(struct dibs__waiter *waiter)
{
    post((struct dibs__wanting *)((char *)waiter - offsetof(struct dibs__wanting, waiter)));
}

static void tell_ear(struct dibs__ear *ear)
{
    post((struct dibs__wanting *)((char *)ear - offsetof(struct dibs__wanting, acquire.ear)));
}

/* Goes on until the acquire waits, rests, has an ask under way or has ended; error: the acquire's. */
static enum dibs__job_next go_on(struct dibs__wanting *wanting, const struct dibs__error *error)
{
    struct dibs__acquire *acquire = &wanting->acquire;

    wanting->job.due = DIBS__NEVER;
    for (;;) {
        switch (wanting->state) {
        case DIBS__ACQUIRE_WAITS: /* also before the first rest: the runtime may have begun to close meanwhile */
            wanting->state = dibs__acquire_look(acquire, &wanting->waiter);
            wanting->job.due = acquire->turn.deadline;
            if (wanting->state == DIBS__ACQUIRE_WAITS)
                return DIBS__JOB_RESTS;
            wanting->job.due = DIBS__NEVER;
            break;
        case DIBS__ACQUIRE_RESTS:
            wanting->state = dibs__acquire_rest(acquire, &wanting->job.due);
            if (wanting->state == DIBS__ACQUIRE_RESTS)
                return DIBS__JOB_RESTS;
            break;
        case DIBS__ACQUIRE_ASKS:
            wanting->state = dibs__acquire_ask(acquire);
            wanting->asked = wanting->state == DIBS__ACQUIRE_ASKS;
            if (wanting->asked)
                return DIBS__JOB_FINISHES;
            break;
        case DIBS__ACQUIRE_ENDED:
            conclude(wanting, error);
            return DIBS__JOB_ENDS;
        }
    }
}

static void use_error(struct dibs__wanting *wanting, struct dibs__error *error)
{
    wanting->acquire.error = error;
    wanting->acquire.cancelled = atomic_load(&wanting->cancelled);
}

static enum dibs__job_next begin_wanting(struct dibs__job *job)
{
    struct dibs__wanting *wanting = wanting_of(job);
    struct dibs__error error = {.status = DIBS_OK};

    if (wanting->asked)
        return DIBS__JOB_FINISHES;
    use_error(wanting, &error);
    return go_on(wanting, &error);
}

/* Where replicas or the disk are waited for, that is done behind the reply. */
static bool await_wanting(struct dibs__job *job, int64_t until)
{
    struct dibs__wanting *wanting = wanting_of(job);
    const struct dibs__settings *settings = wanting->acquire.core->config.settings;

    return settings->min_replicas == 0 && !settings->durable && dibs__acquire_await(&wanting->acquire, until);
}

static bool holds_back(struct dibs__job *job)
{
    struct dibs__wanting *wanting = wanting_of(job);

    return wanting->acquire.wish.flags & DIBS_FAIR && !dibs__acquire_is_sent(&wanting->acquire);
}

static enum dibs__job_next finish_wanting(struct dibs__job *job)
{
    struct dibs__wanting *wanting = wanting_of(job);
    struct dibs__error error = {.status = DIBS_OK};

    use_error(wanting, &error);
    wanting->asked = false;
    wanting->state = dibs__acquire_finish(&wanting->acquire);
    enum dibs__job_next next = go_on(wanting, &error);
    return next == DIBS__JOB_FINISHES ? DIBS__JOB_GOES_ON : next;
}

static void wanting_ended(struct dibs__job *job)
{
    unref(wanting_of(job));
}

static const struct dibs__job_ops wanting_ops = {.begin = begin_wanting,
                                                 .await = await_wanting,
                                                 .holds_back = holds_back,
                                                 .finish = finish_wanting,
                                                 .ended = wanting_ended};

/* ----------------------------------------------------------------- a new acquire */

static struct dibs__wanting *new_wanting(dibs_task *task, struct dibs__visit *visit, const char *name, size_t name_size,
                                         const struct dibs__wish *wish)
{
    struct dibs__wanting *wanting = calloc(1, sizeof *wanting + name_size + 1);

    if (!wanting)
        return NULL;
    memcpy(wanting->name, name, name_size);
    wanting->job.ops = &wanting_ops;
    wanting->job.due = DIBS__NEVER;
    wanting->waiter.tell = tell_waiter;
    wanting->generation = dibs__fork_generation();
    wanting->task = task;
    dibs__acquire_init(&wanting->acquire, visit->core, wanting->name, name_size, wish, &wanting->outage);
    wanting->acquire.ear.tell = tell_ear;
    atomic_init(&wanting->references, 2);
    if (!dibs__workers_add(visit->core->workers, &wanting->job)) {
        free(wanting);
        return NULL;
    }
    dibs__task_ref(task);
    dibs__visit_keep(task->runtime);
    dibs__visit_keep(task->runtime);
    return wanting;
}

/* From now on the call can be cancelled; if the task was cancelled before, it is. */
static void publish(struct dibs__wanting *wanting)
{
    dibs_task *task = wanting->task;

    DIBS__REQUIRE(!atomic_load(&task->wanting));
    atomic_store(&task->wanting, wanting);
    if (atomic_load(&task->cancelled))
        dibs__wanting_cancel(task);
}

/* The calling thread runs the job of a new acquire. */
static enum dibs__job_next start(struct dibs__wanting *wanting, struct dibs__error *error)
{
    use_error(wanting, error);
    if (wanting->acquire.cancelled) {
        wanting->acquire.status = DIBS_CANCELLED;
        return DIBS__JOB_ENDS;
    }
    wanting->state = dibs__acquire_start(&wanting->acquire, &wanting->waiter);
    return DIBS__JOB_GOES_ON;
}

static dibs_status no_memory(struct dibs__error *error)
{
    return dibs__error_set(error, DIBS_NO_MEMORY, "no memory or thread for a lock");
}

/* ---------------------------------------------------------- by a thread that waits */

/* The reply to the ask came. False: the call was cancelled, or there is more to do than to wait: that is a worker's. */
static bool await_first_reply(struct dibs__wanting *wanting)
{
    const struct dibs__core *core = wanting->acquire.core;
    int64_t until;

    do {
        until = dibs__after_ms(dibs__core_now(core), SLICE_MS);
        if (await_wanting(&wanting->job, until))
            return true;
    } while (!atomic_load(&wanting->cancelled) && dibs__core_now(core) >= until &&
             until < wanting->acquire.lease->asker->bid.deadline);
    return false;
}

/* The calling thread drives the acquire as far as the reply to its first ask. */
static void drive(struct dibs__wanting *wanting, struct dibs__error *error)
{
    struct dibs__workers *workers = wanting->acquire.core->workers;
    enum dibs__job_next next = start(wanting, error);

    if (next == DIBS__JOB_GOES_ON)
        next = go_on(wanting, error);
    if (next == DIBS__JOB_FINISHES)
        next = await_first_reply(wanting) ? finish_wanting(&wanting->job) : DIBS__JOB_GOES_ON;
    dibs__workers_settle(workers, &wanting->job, next);
}

/* The thread's reference of the wanting goes with it. */
static dibs_status await_end(struct dibs__wanting *wanting)
{
    struct caller *caller = &wanting->caller;
    const struct dibs__clock *clock = wanting->acquire.core->config.clock;

    while (!atomic_load(&caller->ended))
        dibs__sleeper_sleep(&caller->sleeper, clock, DIBS__NEVER);
    dibs_status status = caller->status;
    if (status == DIBS_OK) {
        dibs__holds_add(caller->lease, wanting->acquire.acquired_at);
        dibs__order_acquired(wanting->name, wanting->acquire.name_size);
    }
    unref(wanting);
    return status;
}

dibs_status dibs__task_acquire(dibs_task *task, struct dibs__visit *visit, const char *name, size_t name_size,
                               const struct dibs__wish *wish, struct dibs__error *error)
{
    struct dibs__error first;
    struct dibs__wanting *wanting =
        dibs__holds_reserve(task->runtime->serial) ? new_wanting(task, visit, name, name_size, wish) : NULL;

    if (!wanting)
        return no_memory(error);
    wanting->caller.error = error;
    dibs__sleeper_init(&wanting->caller.sleeper);
    atomic_fetch_add(&wanting->references, 1);
    dibs__visit_keep(task->runtime);
    publish(wanting);
    drive(wanting, &first);
    return await_end(wanting);
}

/* ------------------------------------------------------------- begun calls: locks */

/* The call ends without the store, if it can. */
static bool lock_at_once(dibs_task *task, struct dibs__hold *hold, const char *name, const dibs_lock_options *options,
                         struct dibs__done *done)
{
    dibs_runtime *runtime = task->runtime;
    char quoted[DIBS__QUOTED_MAX];
    struct dibs__error error = {.status = DIBS_OK};

    if (!hold && !atomic_load(&task->cancelled))
        return false;
    if (!hold)
        dibs__error_set(&error, DIBS_CANCELLED, "the task that wanted %s was cancelled", dibs__quote(quoted, name));
    else if (!dibs__lock_may_reenter(options) || !dibs__lock_reenter(runtime, hold))
        dibs__lock_refuse(runtime, "task", hold, options, &error);
    if (hold)
        done->fence = dibs__lease_fence(hold->lease);
    if (error.status != DIBS_OK)
        dibs__done_explain(done, &error);
    return true;
}

static dibs_status begin_acquire(dibs_task *task, struct dibs__visit *visit, const char *name, size_t name_size,
                                 const struct dibs__wish *wish, struct dibs__done *done, struct dibs__error *error)
{
    struct dibs__done *loss = dibs__done_new(DIBS_DONE_LOST, done->queue, task, done->arg, name);
    struct dibs__wanting *wanting =
        loss && dibs__holder_reserve(&task->holder) ? new_wanting(task, visit, name, name_size, wish) : NULL;
    struct dibs__error first;

    if (!wanting) {
        dibs__done_drop(loss);
        return no_memory(error);
    }
    wanting->done = done;
    wanting->loss = loss;
    publish(wanting);
    enum dibs__job_next next = start(wanting, &first);
    if (next == DIBS__JOB_GOES_ON && wanting->state != DIBS__ACQUIRE_ASKS)
        next = go_on(wanting, &first);
    if (next == DIBS__JOB_FINISHES) /* its turn came meanwhile */
        next = DIBS__JOB_GOES_ON;
    dibs__workers_settle(visit->core->workers, &wanting->job, next);
    return DIBS_OK;
}

/* The task is the call's. */
static dibs_status begin_lock(dibs_task *task, struct dibs__visit *visit, const char *name, size_t name_size,
                              int64_t wait_ms, const dibs_lock_options *options, struct dibs__done *done,
                              struct dibs__error *error)
{
    dibs_runtime *runtime = task->runtime;
    struct dibs__hold *hold = dibs__holder_find(&task->holder, name, name_size);

    if (lock_at_once(task, hold, name, options, done)) {
        if (done->status == DIBS_CANCELLED)
            dibs__count(&visit->core->stats.cancelled);
        complete(done, NULL, NULL);
        return DIBS_OK;
    }
    const struct dibs__wish wish = dibs__lock_wish(runtime, wait_ms, options);
    return begin_acquire(task, visit, name, name_size, &wish, done, error);
}

/* The begin failed: nothing was begun. */
static dibs_status take_back(dibs_task *task, struct dibs__done *done, dibs_status status)
{
    if (status == DIBS_OK)
        return status;
    dibs__done_drop(done);
    if (dibs__task_complete(task))
        dibs__task_give_up(task);
    return status;
}

dibs_status dibs__lock_begin(dibs_task *task, const char *name, size_t name_size, int64_t wait_ms,
                             const dibs_lock_options *options, dibs_queue *queue, void *arg, struct dibs__error *error)
{
    dibs_runtime *runtime = task->runtime;
    struct dibs__visit visit;

    if (atomic_load(&runtime->closing))
        return dibs__error_set(error, DIBS_CLOSED, "the runtime is closing");
    dibs_status status = dibs__task_begin(task, error);
    if (status != DIBS_OK)
        return status;
    struct dibs__done *done = dibs__done_new(DIBS_DONE_LOCK, queue, task, arg, NULL);
    if (!done)
        return take_back(task, done, no_memory(error));
    status = dibs__visit_begin(&visit, runtime, error);
    if (status != DIBS_OK)
        return take_back(task, done, status);
    dibs__count(&visit.core->stats.begun);
    dibs__queue_serves(queue, runtime);
    status = take_back(task, done, begin_lock(task, &visit, name, name_size, wait_ms, options, done, error));
    dibs__visit_end(&visit);
    return status;
}

/* ----------------------------------------------------------- begun calls: unlocks */

static struct unlock *unlock_of(struct dibs__job *job)
{
    return (struct unlock *)job; /* its first member */
}

static enum dibs__job_next end_unlock(struct unlock *unlock, dibs_status status, const struct dibs__error *error)
{
    struct dibs__done *done = unlock->done;

    if (status != DIBS_OK)
        dibs__done_explain(done, error);
    complete(done, NULL, NULL);
    return DIBS__JOB_ENDS;
}

static enum dibs__job_next begin_unlock(struct dibs__job *job)
{
    struct unlock *unlock = unlock_of(job);
    struct dibs__store *store = unlock->core->store;
    struct dibs__error error;
    dibs_status status;

    if (unlock->begun)
        return DIBS__JOB_FINISHES;
    if (!dibs__release_lease(&unlock->unlocking, unlock->core, unlock->lease, &status, &error))
        return end_unlock(unlock, status, &error);
    unlock->begun = true;
    store->ops->release_begin(store, &unlock->unlocking.release);
    return DIBS__JOB_FINISHES;
}

static bool await_unlock(struct dibs__job *job, int64_t until)
{
    const struct unlock *unlock = unlock_of(job);
    struct dibs__store *store = unlock->core->store;

    return store->ops->await(store, &unlock->unlocking.release.begun, until);
}

static bool holds_nothing_back(struct dibs__job *job)
{
    (void)job;
    return false;
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

static const struct dibs__job_ops unlock_ops = {.begin = begin_unlock,
                                                .await = await_unlock,
                                                .holds_back = holds_nothing_back,
                                                .finish = finish_unlock,
                                                .ended = unlock_ended};

/* The last unlock of a hold. */
static dibs_status begin_release(dibs_task *task, struct dibs__visit *visit, struct dibs__hold *hold,
                                 struct dibs__done *done, struct dibs__error *error)
{
    struct unlock *unlock = calloc(1, sizeof *unlock);

    if (!unlock)
        return no_memory(error);
    unlock->job.ops = &unlock_ops;
    unlock->job.due = DIBS__NEVER;
    if (!dibs__workers_add(visit->core->workers, &unlock->job)) {
        free(unlock);
        return no_memory(error);
    }
    dibs__visit_keep(task->runtime);
    dibs__release_count(visit->core, hold);
    unlock->core = visit->core;
    unlock->runtime = task->runtime;
    unlock->done = done;
    unlock->lease = dibs__holder_remove(&task->holder, hold);
    dibs__loss_unwatch(unlock->lease);
    dibs__order_releases(unlock->lease->name, unlock->lease->name_size);
    dibs__workers_settle(visit->core->workers, &unlock->job, DIBS__JOB_GOES_ON);
    return DIBS_OK;
}

/* The runtime was closed: all that is left of the lock is the hold. */
static void forget(dibs_task *task, struct dibs__hold *hold, struct dibs__done *done)
{
    struct dibs__error error;

    dibs__lock_forget(dibs__holder_remove(&task->holder, hold), &error);
    dibs__done_explain(done, &error);
}

/* The task is the call's. *visit is begun where `inside`; else the runtime is closed. */
static dibs_status begin_the_unlock(dibs_task *task, struct dibs__visit *visit, bool inside, const char *name,
                                    size_t name_size, struct dibs__done *done, struct dibs__error *error)
{
    struct dibs__hold *hold = dibs__holder_find(&task->holder, name, name_size);
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
    complete(done, NULL, NULL);
    return DIBS_OK;
}

dibs_status dibs__unlock_begin(dibs_task *task, const char *name, size_t name_size, dibs_queue *queue, void *arg,
                               struct dibs__error *error)
{
    struct dibs__visit visit;
    dibs_status status = dibs__task_begin(task, error);

    if (status != DIBS_OK)
        return status;
    struct dibs__done *done = dibs__done_new(DIBS_DONE_UNLOCK, queue, task, arg, NULL);
    if (!done)
        return take_back(task, done, no_memory(error));
    status = dibs__visit_begin(&visit, task->runtime, error);
    if (status != DIBS_OK && status != DIBS_CLOSED)
        return take_back(task, done, status);
    bool inside = status == DIBS_OK;
    if (inside)
        dibs__count(&visit.core->stats.begun);
    status = take_back(task, done, begin_the_unlock(task, &visit, inside, name, name_size, done, error));
    if (inside)
        dibs__visit_end(&visit);
    return status;
}
