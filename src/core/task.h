/*
 * Tasks: owners of locks that are not threads. A task has a table of holds, which
 * is used by a thread that has entered the task, or by one begun call (begun.h).
 */
#ifndef DIBS_CORE_TASK_H
#define DIBS_CORE_TASK_H

#include "core/holds.h"
#include "core/runtime.h"

struct dibs__done;
struct dibs__wanting;

/* What is under way. */
enum dibs__task_use {
    DIBS__TASK_FREE,    /* nothing */
    DIBS__TASK_ENTERED, /* a thread is in the task */
    DIBS__TASK_BEGUN,   /* a begun call is not complete */
    DIBS__TASK_GONE     /* it was freed; a begun call that is about to complete gives up what it holds */
};

/*
 * `use` has the task's generation as well: in a forked child nobody uses a task,
 * but the thread that forked, if it was inside.
 */
struct dibs_task {
    struct dibs__holder holder;              /* of whoever uses the task */
    dibs_runtime *runtime;                   /* read-only */
    atomic_uint references;                  /* atomic; the program's, and one for each completion and acquire */
    atomic_uint use;                         /* atomic; a dibs__task_use, and the generation above it */
    atomic_bool cancelled;                   /* atomic; never cleared */
    _Atomic(struct dibs__wanting *) wanting; /* atomic; the acquire that waits, with a reference: whoever takes it out
                                                of here says how it ends; NULL: none waits */
    _Atomic(struct dibs__done *) told; /* atomic; losses that were taken, whose names the program may still look at */
};

/* As the functions of dibs.h; task is not NULL. */
dibs_task *dibs__task_new(dibs_runtime *runtime); /* NULL: no memory */
dibs_status dibs__task_enter(dibs_task *task, struct dibs__error *error);
dibs_status dibs__task_leave(dibs_task *task, struct dibs__error *error);
void dibs__task_cancel(dibs_task *task);
void dibs__task_free(dibs_task *task);

/* The task that the calling thread acts for in that runtime; NULL: none. */
dibs_task *dibs__task_inside(const dibs_runtime *runtime);

/* A begun call begins to use the task, which nobody else uses. DIBS_OK, DIBS_BUSY. */
dibs_status dibs__task_begin(dibs_task *task, struct dibs__error *error);

/* The begun call is complete, or was not begun after all. True: dibs__task_give_up is to be called. */
bool dibs__task_complete(dibs_task *task);

/* The task was freed: gives up all that it holds, in the background. */
void dibs__task_give_up(dibs_task *task);

bool dibs__task_is_gone(const dibs_task *task); /* it was freed */
void dibs__task_ref(dibs_task *task);
void dibs__task_unref(dibs_task *task);
atomic_uint_fast64_t *dibs__task_untaken(const dibs_task *task); /* of its runtime's handle, which is never freed */

/* The loss was taken: it stays until the task's next begun call, or its end. */
void dibs__task_keep(dibs_task *task, struct dibs__done *loss);

/* For holds.h: a thread that ended, or forked, was in the task. */
void dibs__task_left(struct dibs__holder *holder);
void dibs__task_kept(struct dibs__holder *holder);

#endif
