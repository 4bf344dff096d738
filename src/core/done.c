/*
 * Lock discipline: the queue's mutex guards all of it that does not say
 * otherwise; it is a leaf. The pipe behind the descriptor is written to and
 * emptied under it, which never blocks: so the descriptor is readable just while
 * a completion waits. A thread that takes sleeps on `arrived` until
 *     a completion waits, or its time is over.
 * One of them drives the workers of the runtime that was served last (workers.h):
 * it sleeps with `wait_event` instead, as do all that the store tells.
 *
 * In a forked child a queue is made anew when it is first used: its mutex may be
 * locked for ever, and its completions and its pipe are the parent's.
 */
#include "core/done.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/once.h"
#include "base/order.h"
#include "base/wake.h"
#include "core/runtime.h"
#include "core/task.h"

DIBS__MUTEX_CLASS(renewing_mutex);
DIBS__MUTEX_CLASS(telling_mutex);

struct dibs_queue {
    struct dibs__mutex mutex;
    pthread_cond_t arrived; /* waited on with mutex */
    struct dibs__done *first DIBS__GUARDED_BY(dibs__queue_mutex);
    struct dibs__done **end DIBS__GUARDED_BY(dibs__queue_mutex);
    struct dibs__wake wake DIBS__GUARDED_BY(dibs__queue_mutex); /* its pipe shows whether a completion waits */
    bool has_fd DIBS__GUARDED_BY(dibs__queue_mutex);
    bool driving DIBS__GUARDED_BY(dibs__queue_mutex); /* a thread that takes has the wait event */
    struct dibs__wait_event wait_event;               /* has its own guard */
    _Atomic(dibs_runtime *) runtime;                  /* atomic; that was served last; never freed; NULL: none was */
    bool freed DIBS__GUARDED_BY(dibs__queue_mutex);   /* nobody takes any more */
    atomic_uint references;                           /* atomic; the program's, and one for each completion */
    atomic_uint generation; /* atomic; of the process that uses it; written under renewing_mutex */
};

static struct dibs__mutex renewing = DIBS__MUTEX_INITIALIZER; /* held across forks */
static struct dibs__mutex telling = DIBS__MUTEX_INITIALIZER;  /* held across forks, and while a loss is pushed */

/* ------------------------------------------------------------------ completions */

static void unref(dibs_queue *queue)
{
    if (atomic_fetch_sub(&queue->references, 1) > 1)
        return;
    pthread_cond_destroy(&queue->arrived);
    dibs__mutex_destroy(&queue->mutex);
    free(queue);
}

struct dibs__done *dibs__done_new(dibs_done_kind kind, dibs_queue *queue, dibs_task *task, void *arg, const char *name)
{
    size_t size = name ? strlen(name) + 1 : sizeof((dibs_completion *)0)->detail;
    struct dibs__done *done = malloc(sizeof *done + size);

    if (!done)
        return NULL;
    *done = (struct dibs__done){.queue = queue,
                                .untaken = dibs__task_untaken(task),
                                .task = task,
                                .arg = arg,
                                .kind = kind,
                                .status = kind == DIBS_DONE_LOST ? DIBS_LOST : DIBS_OK};
    if (name)
        memcpy(done->text, name, size);
    else
        done->text[0] = '\0';
    atomic_fetch_add(&queue->references, 1);
    dibs__task_ref(task);
    return done;
}

void dibs__done_drop(struct dibs__done *done)
{
    if (!done)
        return;
    unref(done->queue);
    dibs__task_unref(done->task);
    free(done);
}

void dibs__done_release(struct dibs__done *done)
{
    unref(done->queue);
}

void dibs__done_explain(struct dibs__done *done, const struct dibs__error *error)
{
    const size_t size = sizeof((dibs_completion *)0)->detail;

    DIBS__REQUIRE(done->kind != DIBS_DONE_LOST && error->status != DIBS_OK);
    done->status = error->status;
    snprintf(done->text, size, "%.*s", (int)size - 1, error->detail);
}

static void write_completion(const struct dibs__done *done, dibs_completion *out)
{
    char quoted[DIBS__QUOTED_MAX];

    memset(out, 0, sizeof *out);
    out->kind = done->kind;
    out->status = done->status;
    out->task = done->task;
    out->arg = done->arg;
    out->fence = done->fence;
    if (done->kind != DIBS_DONE_LOST) {
        strcpy(out->detail, done->text);
        return;
    }
    if (!dibs__task_is_gone(done->task)) /* else nothing could free the text later */
        out->name = done->text;
    snprintf(out->detail, sizeof out->detail, "the lease of %s ended while the task held it",
             dibs__quote(quoted, done->text));
}

/* ----------------------------------------------------------------------- forks */

static void before_fork(void) DIBS__UNANALYSED /* unlocked by after_fork */
{
    telling_mutex_lock(&telling);
    renewing_mutex_lock(&renewing);
}

static void after_fork(void) DIBS__UNANALYSED /* locked by before_fork */
{
    renewing_mutex_unlock(&renewing);
    telling_mutex_unlock(&telling);
}

static bool watch_forks(void)
{
    return dibs__fd_watch_forks() && pthread_atfork(before_fork, after_fork, after_fork) == 0;
}

static bool init(dibs_queue *queue) DIBS__UNANALYSED /* nobody else knows it yet */
{
    queue->first = NULL;
    queue->end = &queue->first;
    queue->has_fd = queue->driving = false;
    dibs__wait_event_init(&queue->wait_event);
    atomic_store(&queue->runtime, NULL);
    if (dibs__cond_init(&queue->arrived) != 0)
        return false;
    if (dibs__mutex_init(&queue->mutex) == 0)
        return true;
    pthread_cond_destroy(&queue->arrived);
    return false;
}

/*
 * Locks the queue. In a forked child it is emptied first; the parent's
 * completions stay where leak checkers don't find them, so they are freed.
 */
static void lock(dibs_queue *queue) DIBS__ACQUIRES(dibs__queue_mutex) DIBS__UNANALYSED
{
    unsigned generation = dibs__fork_generation();

    if (atomic_load(&queue->generation) != generation) {
        struct dibs__done *left = NULL;
        renewing_mutex_lock(&renewing);
        if (atomic_load(&queue->generation) != generation) {
            left = queue->first;
            init(queue); /* what makes it fail is no lack of anything that a child has less of */
            atomic_store(&queue->generation, generation);
        }
        renewing_mutex_unlock(&renewing);
        for (struct dibs__done *next; left; left = next) {
            next = left->next;
            dibs__done_drop(left);
        }
    }
    dibs__queue_mutex_lock(&queue->mutex);
}

/* ----------------------------------------------------------------------- queues */

dibs_queue *dibs__queue_new(void)
{
    static struct dibs__once forks;
    dibs_queue *queue = dibs__once(&forks, watch_forks) ? calloc(1, sizeof *queue) : NULL;

    if (!queue)
        return NULL;
    atomic_init(&queue->references, 1);
    atomic_init(&queue->generation, dibs__fork_generation());
    if (init(queue))
        return queue;
    free(queue);
    return NULL;
}

int dibs__queue_fd(dibs_queue *queue)
{
    int cancel_state;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    lock(queue);
    if (!queue->has_fd && dibs__wake_init(&queue->wake)) {
        queue->has_fd = true;
        if (queue->first)
            dibs__wake_ring(&queue->wake);
    }
    int fd = queue->has_fd ? queue->wake.fds[0] : -1;
    dibs__queue_mutex_unlock(&queue->mutex);
    pthread_setcancelstate(cancel_state, NULL);
    return fd;
}

/* False: the queue was freed. */
static bool append(dibs_queue *queue, struct dibs__done *done) DIBS__REQUIRES(dibs__queue_mutex)
{
    if (queue->freed)
        return false;
    bool was_empty = !queue->first;
    done->next = NULL;
    *queue->end = done;
    queue->end = &done->next;
    atomic_fetch_add_explicit(done->untaken, 1, memory_order_relaxed);
    if (was_empty && queue->has_fd)
        dibs__wake_ring(&queue->wake);
    if (queue->driving)
        dibs__wait_event_wake(&queue->wait_event);
    pthread_cond_signal(&queue->arrived);
    return true;
}

void dibs__done_push(struct dibs__done *done, void (*first)(void *context), void *context)
{
    dibs_queue *queue = done->queue;
    int cancel_state;

    dibs__order_releases((const char *)&queue, sizeof(dibs_queue *));
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    lock(queue);
    bool kept = append(queue, done);
    if (first)
        first(context);
    dibs__queue_mutex_unlock(&queue->mutex);
    pthread_setcancelstate(cancel_state, NULL);
    if (!kept)
        dibs__done_drop(done);
}

void dibs__done_begin_telling(void) DIBS__UNANALYSED /* unlocked by dibs__done_end_telling */
{
    telling_mutex_lock(&telling);
}

void dibs__done_end_telling(void) DIBS__UNANALYSED /* locked by dibs__done_begin_telling */
{
    telling_mutex_unlock(&telling);
}

/* Up to max of those that wait. */
static struct dibs__done *take_some(dibs_queue *queue, size_t max) DIBS__REQUIRES(dibs__queue_mutex)
{
    struct dibs__done *taken = queue->first, *last = NULL;

    for (size_t count = 0; count < max && queue->first; count++) {
        last = queue->first;
        queue->first = last->next;
        atomic_fetch_sub_explicit(last->untaken, 1, memory_order_relaxed);
    }
    if (last)
        last->next = NULL;
    if (queue->first)
        return taken;
    queue->end = &queue->first;
    if (queue->has_fd && taken)
        dibs__wake_quiet(&queue->wake);
    return taken;
}

/* Unanalysed: what was taken out of the queue is the caller's. */
static size_t hand_out(struct dibs__done *taken, dibs_completion *out) DIBS__UNANALYSED
{
    size_t count = 0;

    for (struct dibs__done *next; taken; taken = next) {
        next = taken->next;
        write_completion(taken, &out[count++]);
        if (taken->kind == DIBS_DONE_LOST)
            dibs__task_keep(taken->task, taken); /* the program may look at the name until the task's next begin */
        else
            dibs__done_drop(taken);
    }
    return count;
}

void dibs__queue_serves(dibs_queue *queue, dibs_runtime *runtime)
{
    if (atomic_load_explicit(&queue->runtime, memory_order_relaxed) != runtime)
        atomic_store(&queue->runtime, runtime);
}

static bool has_any(dibs_queue *queue)
{
    dibs__queue_mutex_lock(&queue->mutex);
    bool any = queue->first;
    dibs__queue_mutex_unlock(&queue->mutex);
    return any;
}

/* Drives the workers until a completion waits, the time is over, or the runtime is closing. */
static void drive(dibs_queue *queue, struct dibs__visit *visit, int64_t until)
{
    struct dibs__core *core = visit->core;
    int64_t due;

    while (!atomic_load(core->config.closing)) {
        dibs__wait_event_reset(&queue->wait_event);
        bool ran = dibs__workers_run_some(core->workers, until, &due);
        if (has_any(queue) || dibs__now(&dibs__system_clock) >= until)
            break;
        if (!ran && !atomic_load(core->config.closing))
            dibs__store_listen(core->store, &dibs__system_clock, "dibs", &queue->wait_event, due < until ? due : until);
    }
}

/* True: the calling thread drove, without the mutex meanwhile, so it is to look again. */
static bool try_to_drive(dibs_queue *queue, int64_t until) DIBS__REQUIRES(dibs__queue_mutex)
{
    dibs_runtime *runtime = atomic_load(&queue->runtime);
    struct dibs__visit visit;
    struct dibs__error unused;

    if (!runtime || queue->driving || runtime->clock != &dibs__system_clock || atomic_load(&runtime->closing))
        return false;
    queue->driving = true;
    dibs__queue_mutex_unlock(&queue->mutex);
    bool drives = false;
    if (dibs__visit_begin(&visit, runtime, &unused) == DIBS_OK) {
        drives = dibs__workers_drive(visit.core->workers, &queue->wait_event);
        if (drives) {
            drive(queue, &visit, until);
            dibs__workers_end_drive(visit.core->workers, &queue->wait_event);
        }
        dibs__visit_end(&visit);
    }
    dibs__queue_mutex_lock(&queue->mutex);
    queue->driving = false;
    return drives;
}

/* Waits until a completion is there, or the time is over. */
static void wait_for_one(dibs_queue *queue, int64_t until) DIBS__REQUIRES(dibs__queue_mutex)
{
    const struct dibs__clock *clock = &dibs__system_clock;

    while (!queue->first && dibs__now(clock) < until)
        if (!try_to_drive(queue, until) && !queue->first)
            clock->wait(clock, &queue->arrived, &queue->mutex, until);
}

size_t dibs__queue_take(dibs_queue *queue, dibs_completion *out, size_t max, int64_t wait_ms)
{
    int cancel_state;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    lock(queue);
    if (wait_ms != 0 && !queue->first)
        wait_for_one(queue, wait_ms < 0 ? DIBS__NEVER : dibs__after_ms(dibs__now(&dibs__system_clock), wait_ms));
    struct dibs__done *taken = take_some(queue, max);
    dibs__queue_mutex_unlock(&queue->mutex);
    size_t count = hand_out(taken, out);
    if (count > 0)
        dibs__order_acquired((const char *)&queue, sizeof(dibs_queue *));
    pthread_setcancelstate(cancel_state, NULL);
    return count;
}

/* Unanalysed: as hand_out. */
static void drop_all(struct dibs__done *left) DIBS__UNANALYSED
{
    for (struct dibs__done *next; left; left = next) {
        next = left->next;
        dibs__done_drop(left);
    }
}

void dibs__queue_close(dibs_queue *queue)
{
    int cancel_state;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    lock(queue);
    queue->freed = true;
    struct dibs__done *left = take_some(queue, SIZE_MAX);
    if (queue->has_fd)
        dibs__wake_free(&queue->wake);
    queue->has_fd = false;
    dibs__queue_mutex_unlock(&queue->mutex);
    drop_all(left);
    unref(queue);
    pthread_setcancelstate(cancel_state, NULL);
}
