/*
 * Queues of completions (dibs_queue), and the way of a completion: it is made when a call is begun, filled in when the
 * call has ended, and taken by the program (take.h).
 */
#ifndef DIBS_CORE_DONE_H
#define DIBS_CORE_DONE_H

#include <stdatomic.h>
#include <stddef.h>

#include "base/error.h"
#include "base/list.h"
#include "base/mutex.h"
#include "base/wait_event.h"
#include "core/holds.h"

DIBS__MUTEX_CLASS(dibs__queue_mutex);

/* One completion. It belongs to the begun call, then, once it is pushed, to the queue, and then to who takes it. */
struct dibs__done {
    DIBS__LINKS(struct dibs__done) links DIBS__GUARDED_BY(dibs__queue_mutex); /* in the queue */
    dibs_queue *queue;                                                        /* read-only; with a reference */
    dibs_task *task; /* read-only; with a reference until it is dropped */
    void *arg;       /* read-only */
    uint64_t fence;
    dibs_done_kind kind;
    dibs_status status;
    char text[]; /* for DIBS_DONE_LOST the name; otherwise the detail, in as many bytes as dibs_completion has */
};

/*
 * Makes a completion of that kind, which takes references to the queue and the task. name: for DIBS_DONE_LOST, else
 * NULL. Returns NULL if there is no memory.
 */
struct dibs__done *dibs__done_new(dibs_done_kind kind, dibs_queue *queue, dibs_task *task, void *arg, const char *name);

/* Frees a completion that will not be delivered. NULL is fine. */
void dibs__done_drop(struct dibs__done *done);

/* Fills in the status and the detail of a failure. */
void dibs__done_explain(struct dibs__done *done, const struct dibs__error *error);

/*
 * Delivers the completion, unless the queue was freed. first, if not NULL, is called in
 * the same critical section: by then nobody can have taken the completion or found the
 * descriptor readable because of it, and what is pushed after that call comes behind it.
 */
void dibs__done_push(struct dibs__done *done, void (*first)(void *context), void *context);

/* ---------------------------------------------------------------------- losses */

/* Delivers the completion of the lease's loss, if the lease has one and its task was not freed. */
void dibs__loss_tell(struct dibs__lease *lease);

/* Waits until each loss that is being delivered when this is called has arrived. */
void dibs__losses_await(void);

/* The holder gives the lease up: no loss of the lease is delivered after this returns. */
void dibs__loss_unwatch(struct dibs__lease *lease);

/*
 * Returns the losses of the task that the program has taken, and whose names it may use until the task's next call has
 * begun. The caller frees them once it no longer needs the names that the program passed to it.
 */
struct dibs__done *dibs__losses_take_back(dibs_task *task);
void dibs__losses_free(struct dibs__done *losses);

/* ---------------------------------------------------------------------- queues */

/* As the functions of dibs.h. */
dibs_queue *dibs__queue_new(void);
int dibs__queue_fd(dibs_queue *queue);
void dibs__queue_close(dibs_queue *queue);

/*
 * The runtime for which a lock was last begun with the queue; NULL: there was none. A thread that waits for
 * completions drives the workers of that runtime.
 */
void dibs__queue_serves(dibs_queue *queue, dibs_runtime *runtime);
dibs_runtime *dibs__queue_served(dibs_queue *queue);

/* ------------------------------------------------------------------ for take.c */

/* Takes up to max completions that are in the queue, without waiting for one. Returns how many. */
size_t dibs__queue_take_ready(dibs_queue *queue, dibs_completion *out, size_t max);

/* Sleeps until a completion is in the queue, at most until that time; may return too early. True: there is one. */
bool dibs__queue_await(dibs_queue *queue, int64_t until);

/*
 * From now on a completion that arrives also wakes the wait event, which is that of a thread that drives; NULL: that
 * thread no longer does. False: another thread drives.
 */
bool dibs__queue_set_driver(dibs_queue *queue, struct dibs__wait_event *wait_event);

#endif
