/*
 * Queues of completions (dibs_queue), and how a completion gets there: made
 * when a call is begun, filled in when it has ended, taken by the program (take.h).
 */
#ifndef DIBS_CORE_DONE_H
#define DIBS_CORE_DONE_H

#include <stdatomic.h>
#include <stddef.h>

#include "base/error.h"
#include "base/mutex.h"
#include "base/wait_event.h"
#include "core/task.h"

DIBS__MUTEX_CLASS(dibs__queue_mutex);

/* One completion. Whose it is changes with its way: the begun call's, the queue's once it is pushed, then the taker's.
 */
struct dibs__done {
    struct dibs__done *next DIBS__GUARDED_BY(dibs__queue_mutex); /* in the queue */
    dibs_queue *queue;                                           /* read-only; with a reference */
    dibs_task *task;                                             /* read-only; with a reference until it is dropped */
    void *arg;                                                   /* read-only */
    uint64_t fence;
    dibs_done_kind kind;
    dibs_status status;
    char text[]; /* of DIBS_DONE_LOST: the name; else the detail, in as many bytes as dibs_completion has */
};

/* A completion of that kind; name: of DIBS_DONE_LOST. It takes references. NULL: no memory. */
struct dibs__done *dibs__done_new(dibs_done_kind kind, dibs_queue *queue, dibs_task *task, void *arg, const char *name);

/* The completion will not come. NULL is fine. */
void dibs__done_drop(struct dibs__done *done);

/* The detail of a failure. */
void dibs__done_explain(struct dibs__done *done, const struct dibs__error *error);

/*
 * The completion arrives, unless the queue was freed. first, if not NULL, is
 * called within the same critical section: nobody can have taken the completion
 * by then, nor found the descriptor readable because of it, and what is pushed
 * after that call comes behind it.
 */
void dibs__done_push(struct dibs__done *done, void (*first)(void *context), void *context);

/* ---------------------------------------------------------------------- losses */

/* The holder of the lease, unless it is a task that was freed, learns of the loss if a completion is there to say so.
 */
void dibs__loss_tell(struct dibs__lease *lease);

/* What is being told when this is called has arrived when it returns. */
void dibs__losses_await(void);

/* The holder gives the lease up: it is told of no loss any more. */
void dibs__loss_unwatch(struct dibs__lease *lease);

/* The same in a forked child, for a lease of its parent, whose holder learns of a loss there. */
void dibs__loss_forget(struct dibs__lease *lease);

/*
 * The losses of the task that the program took, whose names it may look at until
 * the task's next call has begun: they become the caller's, which frees them once
 * it needs no name that the program gave it.
 */
struct dibs__done *dibs__losses_take_back(dibs_task *task);
void dibs__losses_free(struct dibs__done *losses);

/* The task was freed: the program no longer looks at those names. */
void dibs__losses_drop_taken(dibs_task *task);

/* ---------------------------------------------------------------------- queues */

/* As the functions of dibs.h. */
dibs_queue *dibs__queue_new(void);
int dibs__queue_fd(dibs_queue *queue);
void dibs__queue_close(dibs_queue *queue);

/* The runtime whose call was begun with the queue last: who waits for completions drives its workers. NULL: none was.
 */
void dibs__queue_serves(dibs_queue *queue, dibs_runtime *runtime);
dibs_runtime *dibs__queue_served(dibs_queue *queue);

/* ------------------------------------------------------------------ for take.c */

/* Up to max of the completions that wait, without waiting for one; returns how many. */
size_t dibs__queue_take_ready(dibs_queue *queue, dibs_completion *out, size_t max);
bool dibs__queue_has_any(dibs_queue *queue);

/* Sleeps while no completion waits, at most until that time; may wake too early. */
void dibs__queue_wait(dibs_queue *queue, int64_t until);

/* A completion that arrives also wakes that, until the end. False: another thread drives. */
bool dibs__queue_begin_drive(dibs_queue *queue, struct dibs__wait_event *wait_event);
void dibs__queue_end_drive(dibs_queue *queue);

#endif
