/*
 * Lock discipline: the queue's mutex guards all fields that do not say otherwise, and is a leaf. The pipe behind the
 * descriptor is written and emptied under the mutex, which never blocks; so the descriptor is readable exactly while
 * the queue has a completion. A thread that waits for a completion sleeps on `arrived` until
 *     the queue has a completion, or the thread's time is over.
 * One of these threads may drive workers instead (take.c), and is woken by its wait event.
 *
 * In a forked child a queue is initialised again at its first use, because its mutex may be
 * locked for ever, and its completions and its pipe are the parent's. A completion that
 * arrives in the child was made there (dibs__done_new), so its arrival is never the first use.
 */
#include "core/done.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/order.h"
#include "base/process.h"
#include "base/utf8.h"
#include "base/wake.h"

struct dibs_queue {
    struct dibs__mutex mutex;
    pthread_cond_t arrived;                                       /* waited on with mutex */
    struct dibs__done *first DIBS__GUARDED_BY(dibs__queue_mutex); /* list */
    struct dibs__wake wake DIBS__GUARDED_BY(dibs__queue_mutex);   /* its pipe is readable while a completion waits */
    bool has_fd DIBS__GUARDED_BY(dibs__queue_mutex);
    struct dibs__wait_event *
        driver DIBS__GUARDED_BY(dibs__queue_mutex); /* wakes the thread that drives; NULL: none does */
    _Atomic(dibs_runtime *) runtime; /* atomic; the runtime that was served last, never freed; NULL: there was none */
    bool freed DIBS__GUARDED_BY(dibs__queue_mutex); /* the program has freed the queue */
    atomic_uint references;                         /* atomic; the program's, and one for each completion */
    atomic_uint generation; /* atomic; fork generation of the process that uses the queue; written under the mutex of
                               the process */
};

/* --------------------------------------------------------------------- references */

static void unref(dibs_queue *queue)
{
    if (atomic_fetch_sub(&queue->references, 1) > 1)
        return;
    pthread_cond_destroy(&queue->arrived);
    dibs__mutex_destroy(&queue->mutex);
    free(queue);
}

void dibs__done_drop(struct dibs__done *done)
{
    if (!done)
        return;
    unref(done->queue);
    dibs__task_unref(done->task);
    free(done);
}

/* Unanalysed: what was taken out of a queue belongs to the caller. */
static void drop_all(struct dibs__done *left) DIBS__UNANALYSED
{
    for (struct dibs__done *next; left; left = next) {
        next = left->links.next;
        dibs__done_drop(left);
    }
}

/* ----------------------------------------------------------------------- forks */

static bool init(dibs_queue *queue) DIBS__UNANALYSED /* nobody else knows it yet */
{
    queue->first = NULL;
    queue->has_fd = false;
    queue->driver = NULL;
    atomic_store(&queue->runtime, NULL);
    return dibs__mutex_and_cond_init(&queue->mutex, &queue->arrived);
}

/*
 * In a forked child, initialises the queue again before its first use. The
 * parent's completions are freed, because leak checkers would not find them.
 */
static void adopt(dibs_queue *queue) DIBS__UNANALYSED
{
    unsigned generation = dibs__fork_generation();
    struct dibs__done *left = NULL;

    if (atomic_load(&queue->generation) == generation)
        return;
    dibs__process_lock();
    if (atomic_load(&queue->generation) != generation) {
        left = queue->first;
        init(queue); /* needs nothing of which a child has less than its parent */
        atomic_store(&queue->generation, generation);
    }
    dibs__process_unlock();
    drop_all(left);
}

static void lock(dibs_queue *queue) DIBS__ACQUIRES(dibs__queue_mutex)
{
    adopt(queue);
    dibs__queue_mutex_lock(&queue->mutex);
}

/* ------------------------------------------------------------------ completions */

struct dibs__done *dibs__done_new(dibs_done_kind kind, dibs_queue *queue, dibs_task *task, void *arg, const char *name)
{
    size_t size = name ? strlen(name) + 1 : sizeof((dibs_completion *)0)->detail;
    struct dibs__done *done = malloc(sizeof *done + size);

    if (!done)
        return NULL;
    *done = (struct dibs__done){
        .queue = queue, .task = task, .arg = arg, .kind = kind, .status = kind == DIBS_DONE_LOST ? DIBS_LOST : DIBS_OK};
    if (name)
        memcpy(done->text, name, size);
    else
        done->text[0] = '\0';
    adopt(queue);
    atomic_fetch_add(&queue->references, 1);
    dibs__task_ref(task);
    return done;
}

void dibs__done_explain(struct dibs__done *done, const struct dibs__error *error)
{
    const size_t size = sizeof((dibs_completion *)0)->detail;

    DIBS__REQUIRE(done->kind != DIBS_DONE_LOST && error->status != DIBS_OK);
    done->status = error->status;
    snprintf(done->text, size, "%.*s", (int)size - 1, error->detail);
    dibs__utf8_make_line(done->text); /* a character may have been cut */
}

static void write_completion(const struct dibs__done *done, dibs_completion *out)
{
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
    if (!dibs__task_is_gone(done->task))
        out->name = done->text;
    snprintf(out->detail, sizeof out->detail, "the lease of %s ended while the task held it", DIBS__QUOTED(done->text));
}

/* ----------------------------------------------------------------------- queues */

dibs_queue *dibs__queue_new(void)
{
    dibs_queue *queue = dibs__process_watch_forks() ? calloc(1, sizeof *queue) : NULL;

    if (!queue)
        return NULL;
    atomic_init(&queue->references, 1);
    atomic_init(&queue->generation, dibs__fork_generation());
    if (init(queue))
        return queue;
    free(queue);
    return NULL;
}

static int fd_of(dibs_queue *queue)
{
    lock(queue);
    int fd = queue->has_fd ? queue->wake.fds[0] : -1;
    dibs__queue_mutex_unlock(&queue->mutex);
    return fd;
}

/* The pipe is opened before the queue is locked, because a loss is pushed under the mutex that opening it takes. */
static void make_pipe(dibs_queue *queue)
{
    struct dibs__wake wake;

    if (!dibs__wake_init(&wake))
        return;
    lock(queue);
    bool is_wanted = !queue->has_fd; /* no other thread was faster */
    if (is_wanted) {
        queue->wake = wake;
        queue->has_fd = true;
        if (queue->first)
            dibs__wake_ring(&queue->wake);
    }
    dibs__queue_mutex_unlock(&queue->mutex);
    if (!is_wanted)
        dibs__wake_free(&wake);
}

int dibs__queue_fd(dibs_queue *queue)
{
    int cancel_state, fd;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    if ((fd = fd_of(queue)) < 0) {
        make_pipe(queue);
        fd = fd_of(queue);
    }
    pthread_setcancelstate(cancel_state, NULL);
    return fd;
}

static void announce(dibs_queue *queue) DIBS__REQUIRES(dibs__queue_mutex)
{
    if (queue->has_fd)
        dibs__wake_ring(&queue->wake);
    if (queue->driver)
        dibs__wait_event_wake(queue->driver);
    pthread_cond_signal(&queue->arrived);
}

void dibs__done_push(struct dibs__done *done, void (*first)(void *context), void *context)
{
    dibs_queue *queue = done->queue;
    int cancel_state;

    dibs__order_releases((const char *)&queue, sizeof(dibs_queue *));
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    DIBS__REQUIRE(atomic_load(&queue->generation) == dibs__fork_generation());
    dibs__queue_mutex_lock(&queue->mutex);
    bool kept = !queue->freed;
    if (kept) {
        DIBS__LIST_APPEND(queue->first, done, links);
        atomic_fetch_add_explicit(done->task->untaken, 1, memory_order_relaxed);
    }
    if (first)
        first(context);
    if (kept)
        /* Last: a program that finds the descriptor readable may enter the task before it takes the completion. */
        announce(queue);
    dibs__queue_mutex_unlock(&queue->mutex);
    pthread_setcancelstate(cancel_state, NULL);
    if (!kept)
        dibs__done_drop(done);
}

/* ----------------------------------------------------------------------- losses */

/*
 * The completion is taken out of the lease and pushed under one lock of the mutex. So a thread that looks for it in
 * the lease later, and does not find it, can wait until it has arrived.
 */
void dibs__loss_tell(struct dibs__lease *lease)
{
    if (!atomic_load(&lease->loss))
        return;
    dibs__process_lock();
    struct dibs__done *loss = atomic_exchange(&lease->loss, NULL);
    bool gone = loss && dibs__task_is_gone(loss->task);
    if (loss && !gone) {
        loss->fence = dibs__lease_fence(lease);
        dibs__done_push(loss, NULL, NULL);
    }
    dibs__process_unlock();
    if (gone) /* what a freed task still holds is given up when its begun call is complete */
        dibs__done_drop(loss);
}

void dibs__losses_await(void)
{
    dibs__process_lock();
    dibs__process_unlock();
}

void dibs__loss_unwatch(struct dibs__lease *lease)
{
    struct dibs__done *loss = atomic_load(&lease->loss) ? atomic_exchange(&lease->loss, NULL) : NULL;

    dibs__done_drop(loss);
    if (!loss && atomic_load(&lease->loss_told))
        dibs__losses_await(); /* the loss must arrive before the holder goes on */
}

struct dibs__done *dibs__losses_take_back(dibs_task *task)
{
    return atomic_exchange(&task->taken_losses, NULL);
}

void dibs__losses_free(struct dibs__done *losses) DIBS__UNANALYSED /* what is in no queue is the caller's */
{
    for (struct dibs__done *next; losses; losses = next) {
        next = losses->links.next;
        free(losses);
    }
}

/*
 * The program may use the name of a loss that it took until the task's next begun
 * call, so the loss stays with the task, without its references. If the task was freed
 * meanwhile, whoever comes later, this function or dibs_task_free, frees the loss.
 */
static void keep_with_task(struct dibs__done *loss) DIBS__UNANALYSED /* as dibs__losses_free */
{
    dibs_task *task = loss->task;

    unref(loss->queue);
    loss->links.next = atomic_load(&task->taken_losses);
    while (!atomic_compare_exchange_weak(&task->taken_losses, &loss->links.next, loss))
        continue;
    if (dibs__task_is_gone(task))
        dibs__losses_free(dibs__losses_take_back(task));
    dibs__task_unref(task);
}

/* ----------------------------------------------------------------------- taking */

/* Takes up to max completions out of the queue. */
static struct dibs__done *take_some(dibs_queue *queue, size_t max) DIBS__REQUIRES(dibs__queue_mutex)
{
    struct dibs__done *taken = NULL;

    for (struct dibs__done *done; max > 0 && (done = queue->first); max--) {
        DIBS__LIST_REMOVE(queue->first, done, links);
        DIBS__LIST_APPEND(taken, done, links);
        atomic_fetch_sub_explicit(done->task->untaken, 1, memory_order_relaxed);
    }
    if (queue->has_fd && taken && !queue->first)
        dibs__wake_quiet(&queue->wake);
    return taken;
}

/* Unanalysed: what was taken out of the queue belongs to the caller. */
static size_t hand_out(struct dibs__done *taken, dibs_completion *out) DIBS__UNANALYSED
{
    size_t count = 0;

    for (struct dibs__done *next; taken; taken = next) {
        next = taken->links.next;
        write_completion(taken, &out[count++]);
        if (taken->kind == DIBS_DONE_LOST)
            keep_with_task(taken);
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

dibs_runtime *dibs__queue_served(dibs_queue *queue)
{
    return atomic_load(&queue->runtime);
}

bool dibs__queue_await(dibs_queue *queue, int64_t until)
{
    const struct dibs__clock *clock = &dibs__system_clock;

    dibs__queue_mutex_lock(&queue->mutex);
    if (!queue->first && until > 0)
        clock->wait(clock, &queue->arrived, &queue->mutex, until);
    bool any = queue->first;
    dibs__queue_mutex_unlock(&queue->mutex);
    return any;
}

bool dibs__queue_set_driver(dibs_queue *queue, struct dibs__wait_event *wait_event)
{
    dibs__queue_mutex_lock(&queue->mutex);
    bool may = !wait_event || !queue->driver;
    if (may)
        queue->driver = wait_event;
    dibs__queue_mutex_unlock(&queue->mutex);
    return may;
}

size_t dibs__queue_take_ready(dibs_queue *queue, dibs_completion *out, size_t max)
{
    lock(queue);
    struct dibs__done *taken = take_some(queue, max);
    dibs__queue_mutex_unlock(&queue->mutex);
    size_t count = hand_out(taken, out);
    if (count > 0)
        dibs__order_acquired((const char *)&queue, sizeof(dibs_queue *));
    return count;
}

static void free_pipe(dibs_queue *queue) DIBS__UNANALYSED /* the caller alone uses it by now */
{
    dibs__wake_free(&queue->wake);
}

void dibs__queue_close(dibs_queue *queue)
{
    int cancel_state;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    lock(queue);
    queue->freed = true;
    struct dibs__done *left = take_some(queue, SIZE_MAX);
    bool has_fd = queue->has_fd;
    queue->has_fd = false; /* nobody else uses the pipe from now on */
    dibs__queue_mutex_unlock(&queue->mutex);
    if (has_fd)
        free_pipe(queue);
    drop_all(left);
    unref(queue);
    pthread_setcancelstate(cancel_state, NULL);
}
