/*
 * There is no mutex here. One thread at a time runs a job (workers.h), and only that thread touches what is marked
 * "running thread only". The "ending thread" is the one that took the wanting out of dibs_task.wanting. Any thread may
 * set `cancelled`, and then posts the job.
 */
#include "core/begun.h"

#include <stdlib.h>
#include <string.h>

#include "base/process.h"

/* How the thread of a blocking call waits for its end. */
struct caller {
    struct dibs__error *error; /* read-only; *error is written by the ending thread; NULL: the call was begun */
    struct dibs__wait_event wait_event; /* has its own guard; woken when the call has ended */
    atomic_bool ended;  /* atomic; from then on the calling thread reads `status`, and enters the locks of the call */
    dibs_status status; /* written by the ending thread before `ended` */
};

struct dibs__wanting {
    struct dibs__job job;
    struct dibs__wait_event wait_event; /* has its own guard; of `acquire` and `several`; its tell posts the job */
    struct dibs__acquire acquire;       /* running thread only, then the calling thread's; `waiter` has its own guards
                                           (waiters.h) */
    atomic_uint references; /* atomic; one for the job, one for dibs_task.wanting, and one for the thread of a blocking
                               call, each with a kept visit */
    bool asked;             /* running thread only; something was begun that must be finished */
    bool has_begun;         /* running thread only; in a call for several names: its first round was begun */
    atomic_bool cancelled;  /* atomic */
    unsigned generation;    /* read-only; fork generation of the process that made the wanting */
    struct dibs__several *several; /* read-only; its content is the running thread's, then the ending thread's; NULL:
                                      the call is for one name */
    struct dibs__core *core;       /* read-only */
    dibs_task *task;               /* read-only; with a reference */
    struct dibs__done *done;       /* ending thread only; of a begun call; NULL: the call is a blocking one */
    struct dibs__done **losses;    /* ending thread only; of a begun call: one for each name; `loss` is the only one, or
                                      they are allocated */
    struct dibs__done *loss;
    struct caller caller; /* has its own guards */
    char name[];          /* read-only */
};

/* ---------------------------------------------------------- the end of an acquire */

/* The number of locks that the call is for. */
static size_t count_of(const struct dibs__wanting *wanting)
{
    return wanting->several ? wanting->several->count : 1;
}

/* The lease by which the call, which has ended well, acquired that lock; NULL: the task held the lock before. */
static struct dibs__lease *lease_of(const struct dibs__wanting *wanting, size_t i)
{
    return wanting->several ? wanting->several->names[i].lease : wanting->acquire.lease;
}

static void drop_losses(struct dibs__wanting *wanting)
{
    for (size_t i = 0; wanting->losses && i < count_of(wanting); i++)
        dibs__done_drop(wanting->losses[i]);
    if (wanting->several)
        free(wanting->losses);
}

static void unref(struct dibs__wanting *wanting)
{
    dibs_runtime *runtime = wanting->task->runtime;

    if (atomic_fetch_sub(&wanting->references, 1) == 1) {
        dibs__done_drop(wanting->done);
        drop_losses(wanting);
        dibs__several_free(wanting->several);
        dibs__task_unref(wanting->task);
        free(wanting);
    }
    dibs__visit_drop(runtime);
}

/* True: the calling thread decides how the call ends, and takes over the reference of dibs_task.wanting. */
static bool take_out(struct dibs__wanting *wanting)
{
    struct dibs__wanting *expected = wanting;

    return atomic_compare_exchange_strong(&wanting->task->wanting, &expected, NULL);
}

/* What must be done at the moment when a completion arrives. */
struct arrival {
    dibs_task *task;
    struct dibs__wanting *wanting; /* NULL: no lock was acquired */
    bool gone;                     /* set: the task was freed */
};

static void on_arrival(void *context)
{
    struct arrival *arrival = context;
    struct dibs__wanting *wanting = arrival->wanting;

    for (size_t i = 0; wanting && i < count_of(wanting); i++) {
        struct dibs__lease *lease = lease_of(wanting, i);
        if (!lease)
            continue;
        atomic_store(&lease->loss, wanting->losses[i]);
        wanting->losses[i] = NULL;
    }
    arrival->gone = dibs__task_complete(arrival->task);
}

/*
 * Completes a call. wanting: the call acquired locks, which are in the task's table, and there is another reference to
 * each of their leases. If one of these was lost before there was a completion to report that, reports the loss now.
 */
static void complete(struct dibs__done *done, struct dibs__wanting *wanting)
{
    dibs_task *task = done->task;
    struct arrival arrival = {.task = task, .wanting = wanting};

    dibs__task_ref(task);
    dibs__done_push(done, on_arrival, &arrival);
    for (size_t i = 0; wanting && i < count_of(wanting); i++) {
        struct dibs__lease *lease = lease_of(wanting, i);
        if (lease && atomic_load(&lease->loss_told))
            dibs__loss_tell(lease);
    }
    if (arrival.gone)
        dibs__runtime_give_up(task->runtime, &task->holds);
    dibs__task_unref(task);
}

void dibs__begun_complete(struct dibs__done *done, const struct dibs__error *error)
{
    if (error->status != DIBS_OK)
        dibs__done_explain(done, error);
    complete(done, NULL);
}

static void tell_caller(struct caller *caller, dibs_status status)
{
    caller->status = status;
    atomic_store(&caller->ended, true);
    dibs__wait_event_wake(&caller->wait_event);
}

/* Called by the ending thread if the call did not get the lock. */
static void fail_call(struct dibs__wanting *wanting, const struct dibs__error *error)
{
    struct dibs__done *done = wanting->done;

    if (error->status == DIBS_CANCELLED)
        dibs__count(&wanting->core->stats.cancelled);
    else if (!wanting->several)
        dibs__acquire_count(wanting->core, error->status);
    if (wanting->caller.error) {
        *wanting->caller.error = *error;
        tell_caller(&wanting->caller, error->status);
        return;
    }
    wanting->done = NULL;
    dibs__begun_complete(done, error);
}

/* Enters the locks that the call acquired into the task's table. Takes over the reference to a single lease. */
static void hold(struct dibs__wanting *wanting)
{
    if (wanting->several)
        dibs__several_hold(wanting->several, &wanting->task->holds);
    else
        dibs__acquire_hold(&wanting->acquire, &wanting->task->holds);
}

/* Called by the ending thread if the call got all its locks. */
static void succeed(struct dibs__wanting *wanting)
{
    struct dibs__lease *lease = wanting->several ? NULL : wanting->acquire.lease;
    struct dibs__done *done = wanting->done;

    if (wanting->caller.error) {
        tell_caller(&wanting->caller, DIBS_OK);
        return;
    }
    wanting->done = NULL;
    if (lease) {
        dibs__lease_ref(lease);
        done->fence = dibs__lease_fence(lease);
    }
    hold(wanting);
    complete(done, wanting);
    dibs__lease_unref(lease);
}

/*
 * The call got its locks after it had been cancelled. Does not wait for the store: other jobs must go on. False: the
 * call must take further steps to give its locks back.
 */
static bool give_back(struct dibs__wanting *wanting)
{
    if (wanting->several) {
        dibs__several_undo(wanting->several);
        return false;
    }
    dibs__release_in_background(wanting->core, wanting->acquire.lease);
    dibs__lease_unref(wanting->acquire.lease);
    return true;
}

/* The call has ended, with that error unless `ok`. False: as give_back. */
static bool conclude(struct dibs__wanting *wanting, bool ok, const struct dibs__error *error)
{
    if (!take_out(wanting))
        return !ok || give_back(wanting);
    if (ok)
        succeed(wanting);
    else
        fail_call(wanting, error);
    unref(wanting);
    return true;
}

static void cancel(dibs_task *task)
{
    struct dibs__wanting *wanting = atomic_exchange(&task->wanting, NULL);
    struct dibs__error error;

    /* A forked child leaves its parent's acquire alone. */
    if (!wanting || wanting->generation != dibs__fork_generation())
        return;
    dibs__task_was_cancelled(&error, wanting->several ? atomic_load(&wanting->several->wanted) : wanting->name);
    atomic_store(&wanting->cancelled, true);
    fail_call(wanting, &error);
    dibs__workers_post(wanting->core->workers, &wanting->job);
    unref(wanting);
}

void dibs__task_cancel(dibs_task *task)
{
    atomic_store(&task->cancelled, true);
    cancel(task);
}

void dibs__task_free(dibs_task *task)
{
    dibs__task_cancel(task);
    if (dibs__task_end(task))
        dibs__runtime_give_up(task->runtime, &task->holds);
    else
        dibs__losses_await(); /* a loss that is being reported has arrived then; later ones find the task gone */
    dibs__losses_free(dibs__losses_take_back(task)); /* the program may no longer use their names */
    dibs__task_unref(task);
}

/* ------------------------------------------------------------- an acquire's steps */

static struct dibs__wanting *wanting_of(struct dibs__job *job)
{
    return (struct dibs__wanting *)job; /* its first member */
}

static void tell_wait_event(struct dibs__wait_event *wait_event)
{
    struct dibs__wanting *wanting =
        (struct dibs__wanting *)((char *)wait_event - offsetof(struct dibs__wanting, wait_event));

    dibs__workers_post(wanting->core->workers, &wanting->job);
}

static void use_error(struct dibs__wanting *wanting, struct dibs__error *error)
{
    wanting->acquire.error = error;
    wanting->acquire.cancelled = atomic_load(&wanting->cancelled);
}

/* The acquire of a single name that is under way; NULL: what is under way is for several names at once. */
static struct dibs__acquire *acquire_of(struct dibs__wanting *wanting)
{
    return wanting->several ? dibs__several_waits(wanting->several) : &wanting->acquire;
}

/* Whether the call stands in the line (workers.h), so that fair asks reach the store in the order of their begin. */
static bool lines_up(const struct dibs__wanting *wanting)
{
    uint32_t flags = wanting->several ? wanting->several->wish.flags : wanting->acquire.wish.flags;

    return flags & DIBS_FAIR && !wanting->caller.error;
}

/* Until when the call may rest in the line. One try keeps half of its time for the answer. */
static int64_t rest_end(const struct dibs__wanting *wanting)
{
    const struct dibs__several *several = wanting->several;
    int64_t until = several ? several->wait_until : wanting->acquire.wait_until;
    int64_t began = several ? several->began : wanting->acquire.began;

    return until > 0 ? until : dibs__after_ms(began, wanting->core->config.settings->command_timeout_ms / 2);
}

/*
 * True: an earlier fair call has not sent its ask yet, so this one must rest, but no longer than the store may take to
 * answer the ask of the first call in the line.
 */
static bool rests_in_line(struct dibs__wanting *wanting)
{
    const struct dibs__core_config *config = &wanting->core->config;
    int64_t end = rest_end(wanting), patience = dibs__after_ms(0, config->settings->command_timeout_ms);

    if (!lines_up(wanting) || !dibs__workers_line_up(wanting->core->workers, &wanting->job, patience))
        return false;
    wanting->job.due = dibs__earlier(wanting->job.due, end);
    return dibs__core_now(wanting->core) < end && !atomic_load(&wanting->cancelled) && !atomic_load(config->closing);
}

/* Whether the next step sends an ask for which the call must have its place in the line. */
static bool needs_line(struct dibs__wanting *wanting)
{
    const struct dibs__acquire *acquire = acquire_of(wanting);

    if (!acquire)
        return !wanting->has_begun;
    return acquire->state == DIBS__ACQUIRE_ASKS &&
           !acquire->lease->asker->attempt.in_store; /* in_store: it keeps its place */
}

/*
 * True: no later ask can overtake this one. If grants are confirmed,
 * each ask has a connection of its own, so only the reply shows that.
 */
static bool is_sent(struct dibs__wanting *wanting)
{
    struct dibs__acquire *acquire = acquire_of(wanting);

    return acquire && !dibs__core_confirms(wanting->core) && dibs__acquire_is_sent(acquire);
}

static void leave_line(struct dibs__wanting *wanting, bool in_vain)
{
    if (lines_up(wanting))
        dibs__workers_leave_line(wanting->core->workers, &wanting->job, in_vain);
}

static enum dibs__job_next step(struct dibs__wanting *wanting)
{
    bool cancelled = atomic_load(&wanting->cancelled); /* perhaps while replicas were waited for */

    wanting->job.due = DIBS__NEVER;
    if (needs_line(wanting) && rests_in_line(wanting))
        return DIBS__JOB_RESTS;
    wanting->has_begun = true;
    if (!wanting->several) {
        wanting->acquire.cancelled = cancelled;
        return dibs__acquire_go_on(&wanting->acquire, &wanting->job.due);
    }
    wanting->several->cancelled = cancelled;
    return dibs__several_go_on(wanting->several, &wanting->job.due);
}

/* The call has come to its end. False: as give_back. */
static bool end_call(struct dibs__wanting *wanting)
{
    const struct dibs__several *several = wanting->several;

    return several ? conclude(wanting, several->error.status == DIBS_OK, &several->error)
                   : conclude(wanting, wanting->acquire.status == DIBS_OK, wanting->acquire.error);
}

/* Goes on until the call rests, has something under way that must be finished, or has ended. */
static enum dibs__job_next go_on(struct dibs__wanting *wanting)
{
    for (;;) {
        enum dibs__job_next next = step(wanting);
        if (next == DIBS__JOB_RESTS || (next == DIBS__JOB_ENDS && end_call(wanting)))
            return next;
        if (next != DIBS__JOB_FINISHES)
            continue;
        wanting->asked = true;
        if (is_sent(wanting))
            leave_line(wanting, false);
        return next;
    }
}

static enum dibs__job_next begin_wanting(struct dibs__job *job)
{
    struct dibs__wanting *wanting = wanting_of(job);
    struct dibs__error error = {.status = DIBS_OK};

    if (wanting->asked)
        return DIBS__JOB_FINISHES;
    use_error(wanting, &error);
    return go_on(wanting);
}

static enum dibs__awaited await_replies(struct dibs__wanting *wanting, const struct dibs__waiting *waiting)
{
    if (dibs__core_confirms(wanting->core))
        return DIBS__NOT_AWAITED;
    return wanting->several ? dibs__several_await(wanting->several, waiting)
                            : dibs__acquire_await(&wanting->acquire, waiting);
}

static enum dibs__awaited await_wanting(struct dibs__job *job, int64_t until, struct dibs__wait *watch)
{
    struct dibs__wanting *wanting = wanting_of(job);
    const struct dibs__waiting waiting = {.clock = wanting->core->config.clock, .until = until, .watch = watch};

    return await_replies(wanting, &waiting);
}

/* Whether the ask that was just finished met an outage. */
static bool met_outage(const struct dibs__acquire *acquire)
{
    return acquire->state == DIBS__ACQUIRE_ENDED ? acquire->status == DIBS_UNAVAILABLE : acquire->budget.in_outage;
}

static enum dibs__job_next finish_wanting(struct dibs__job *job)
{
    struct dibs__wanting *wanting = wanting_of(job);
    const struct dibs__acquire *acquire = acquire_of(wanting);
    struct dibs__error error = {.status = DIBS_OK};

    use_error(wanting, &error);
    wanting->asked = false;
    if (wanting->several)
        dibs__several_finish(wanting->several);
    else
        dibs__acquire_finish(&wanting->acquire);
    /* With several names, only the replies to the tries say which one the call waits for (rule 69). */
    if (acquire)
        leave_line(wanting, met_outage(acquire));
    return go_on(wanting);
}

static void wanting_ended(struct dibs__job *job)
{
    unref(wanting_of(job));
}

static const struct dibs__job_ops wanting_ops = {
    .begin = begin_wanting, .finish = finish_wanting, .ended = wanting_ended, .await = await_wanting};

/* ----------------------------------------------------------------- a new acquire */

/* wish NULL: for dibs__wanting_new_names, of whose names this is one, and which has room for them. */
struct dibs__wanting *dibs__wanting_new(dibs_task *task, struct dibs__visit *visit, const char *name, size_t name_size,
                                        const struct dibs__wish *wish)
{
    bool has_room = !wish || dibs__holds_reserve(&task->holds, 1);
    struct dibs__wanting *wanting = has_room ? calloc(1, sizeof *wanting + name_size + 1) : NULL;

    if (!wanting)
        return NULL;
    memcpy(wanting->name, name, name_size);
    wanting->job.ops = &wanting_ops;
    wanting->job.due = DIBS__NEVER;
    wanting->generation = dibs__fork_generation();
    wanting->task = task;
    wanting->core = visit->core;
    dibs__wait_event_init(&wanting->wait_event);
    wanting->wait_event.tell = tell_wait_event;
    if (wish)
        dibs__acquire_init(&wanting->acquire, visit->core, wanting->name, name_size, wish, &wanting->wait_event, NULL);
    wanting->acquire.counts_end = true;
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

struct dibs__wanting *dibs__wanting_new_names(dibs_task *task, struct dibs__visit *visit, struct dibs__several *several)
{
    const struct dibs__several_name *first = &several->names[0];
    struct dibs__wanting *wanting = dibs__wanting_new(task, visit, first->name, first->size, NULL);

    if (!wanting) {
        dibs__several_free(several);
        return NULL;
    }
    several->wait_event = &wanting->wait_event;
    wanting->several = several;
    return wanting;
}

/* From now on the call can be cancelled. If the task was cancelled before, the call is cancelled at once. */
static void publish(struct dibs__wanting *wanting)
{
    dibs_task *task = wanting->task;

    DIBS__REQUIRE(!atomic_load(&task->wanting));
    atomic_store(&task->wanting, wanting);
    if (atomic_load(&task->cancelled))
        cancel(task);
}

/* Takes the first step of a new job, which the calling thread runs. */
static enum dibs__job_next start(struct dibs__wanting *wanting, struct dibs__error *error)
{
    use_error(wanting, error);
    if (wanting->acquire.cancelled) {
        wanting->acquire.status = DIBS_CANCELLED;
        return DIBS__JOB_ENDS;
    }
    if (!wanting->several)
        dibs__acquire_start(&wanting->acquire);
    return DIBS__JOB_GOES_ON;
}

dibs_status dibs__begun_no_memory(struct dibs__error *error)
{
    return dibs__error_set(error, DIBS_NO_MEMORY, "no memory or thread for a lock");
}

/* ---------------------------------------------------------- by a thread that waits */

/* True: the reply to the ask has come. False: the call was cancelled, or a worker must do more than wait for it. */
static bool await_first_reply(struct dibs__wanting *wanting)
{
    const struct dibs__waiting waiting = {.clock = wanting->core->config.clock,
                                          .until = wanting->job.due,
                                          .wait_event = &wanting->caller.wait_event,
                                          .cancelled = &wanting->cancelled};

    return await_replies(wanting, &waiting) == DIBS__HAS_COME;
}

/* The calling thread drives the acquire as far as the reply to its first ask. */
static void drive(struct dibs__wanting *wanting, struct dibs__error *error)
{
    struct dibs__workers *workers = wanting->core->workers;
    enum dibs__job_next next = start(wanting, error);

    if (next == DIBS__JOB_GOES_ON)
        next = go_on(wanting);
    if (next == DIBS__JOB_FINISHES)
        next = await_first_reply(wanting) ? finish_wanting(&wanting->job) : DIBS__JOB_GOES_ON;
    dibs__workers_settle(workers, &wanting->job, next);
}

/* Waits for the end of a blocking call, and drops the calling thread's reference to the wanting. */
static dibs_status await_end(struct dibs__wanting *wanting)
{
    struct caller *caller = &wanting->caller;
    const struct dibs__clock *clock = wanting->core->config.clock;
    for (;;) {
        dibs__wait_event_reset(&caller->wait_event);
        if (atomic_load(&caller->ended))
            break;
        dibs__wait_event_wait(&caller->wait_event, clock, DIBS__NEVER);
    }
    dibs_status status = caller->status;
    if (status == DIBS_OK)
        hold(wanting);
    unref(wanting);
    return status;
}

dibs_status dibs__wanting_call(struct dibs__wanting *wanting, struct dibs__error *error)
{
    struct dibs__error first;

    if (!wanting)
        return dibs__begun_no_memory(error);
    wanting->caller.error = error;
    dibs__wait_event_init(&wanting->caller.wait_event);
    atomic_fetch_add(&wanting->references, 1);
    dibs__visit_keep(wanting->task->runtime);
    publish(wanting);
    drive(wanting, &first);
    return await_end(wanting);
}

/* ----------------------------------------------------------------- by a begun call */

/* Runs a begun call as far as that is possible without waiting. */
static void start_begun(struct dibs__wanting *wanting)
{
    struct dibs__workers *workers = wanting->core->workers;
    struct dibs__error first;

    publish(wanting);
    enum dibs__job_next next = start(wanting, &first);
    if (next == DIBS__JOB_GOES_ON)
        rests_in_line(wanting); /* takes its place now, in the order of the begins */
    if (next == DIBS__JOB_GOES_ON && !wanting->several && wanting->acquire.state != DIBS__ACQUIRE_ASKS)
        next = go_on(wanting);
    dibs__workers_settle(workers, &wanting->job, next);
}

/* Makes a completion for the loss of each lock that the call will acquire. False: no memory. */
static bool make_losses(struct dibs__wanting *wanting)
{
    const struct dibs__several *several = wanting->several;
    const struct dibs__done *done = wanting->done;
    bool all = true;

    wanting->losses = several ? calloc(several->count, sizeof(struct dibs__done *)) : &wanting->loss;
    if (!wanting->losses)
        return false;
    for (size_t i = 0; i < count_of(wanting) && all; i++) {
        const char *name = several ? several->names[i].name : wanting->name;
        if (several && several->names[i].held)
            continue;
        wanting->losses[i] = dibs__done_new(DIBS_DONE_LOST, done->queue, done->task, done->arg, name);
        all = wanting->losses[i] != NULL;
    }
    return all;
}

dibs_status dibs__wanting_begin(struct dibs__wanting *wanting, struct dibs__done *done, struct dibs__error *error)
{
    if (!wanting)
        return dibs__begun_no_memory(error);
    wanting->done = done;
    if (make_losses(wanting)) {
        dibs__count(&wanting->core->stats.begun);
        start_begun(wanting);
        return DIBS_OK;
    }
    wanting->done = NULL;
    dibs__workers_settle(wanting->core->workers, &wanting->job, DIBS__JOB_ENDS);
    unref(wanting);
    return dibs__begun_no_memory(error);
}
