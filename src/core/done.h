/*
 * Queues of completions (dibs_queue), and how a completion gets there: made
 * when a call is begun, filled in when it has ended, taken by the program.
 */
#ifndef DIBS_CORE_DONE_H
#define DIBS_CORE_DONE_H

#include <stdatomic.h>
#include <stddef.h>

#include "base/wait_event.h"
#include "base/error.h"
#include "base/mutex.h"

DIBS__MUTEX_CLASS(dibs__queue_mutex);

/* One completion. Whose it is changes with its way: the begun call's, the queue's once it is pushed, then the taker's.
 */
struct dibs__done {
    struct dibs__done *next DIBS__GUARDED_BY(dibs__queue_mutex); /* in the queue */
    dibs_queue *queue;                                           /* read-only; with a reference */
    atomic_uint_fast64_t *untaken; /* read-only; counts the completion while it lies in the queue; never freed */
    dibs_task *task;               /* read-only; with a reference until it is dropped */
    void *arg;                     /* read-only */
    uint64_t fence;
    dibs_done_kind kind;
    dibs_status status;
    char text[]; /* of DIBS_DONE_LOST: the name; else the detail, in as many bytes as dibs_completion has */
};

/* A completion of that kind; name: of DIBS_DONE_LOST. It takes references. NULL: no memory. */
struct dibs__done *dibs__done_new(dibs_done_kind kind, dibs_queue *queue, dibs_task *task, void *arg, const char *name);

/* The completion will not come. NULL is fine. */
void dibs__done_drop(struct dibs__done *done);

/* The completion was taken, but is kept: it refers to its queue no more. */
void dibs__done_release(struct dibs__done *done);

/* The detail of a failure. */
void dibs__done_explain(struct dibs__done *done, const struct dibs__error *error);

/*
 * The completion arrives, unless the queue was freed. first, if not NULL, is
 * called within the same critical section: nobody can have taken the completion
 * by then, and what is pushed after that call comes behind it.
 */
void dibs__done_push(struct dibs__done *done, void (*first)(void *context), void *context);

/*
 * A loss is taken out of its lease and pushed between these two calls, which
 * exclude other threads: so who takes the completion out of the lease later, and
 * finds none, can wait until it has arrived.
 */
void dibs__done_begin_telling(void);
void dibs__done_end_telling(void);

/* As the functions of dibs.h. */
dibs_queue *dibs__queue_new(void);
int dibs__queue_fd(dibs_queue *queue);
size_t dibs__queue_take(dibs_queue *queue, dibs_completion *out, size_t max, int64_t wait_ms);

/* The runtime whose call was begun with the queue last: who waits for completions drives its workers. */
void dibs__queue_serves(dibs_queue *queue, dibs_runtime *runtime);
void dibs__queue_close(dibs_queue *queue);

#endif
