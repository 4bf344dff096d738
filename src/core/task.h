/*
 * Tasks: owners of locks that are not threads. A task has a table of holds, which
 * is used by a thread that has entered the task, or by one begun call (begun.h, which
 * also has the end of a task).
 */
#ifndef DIBS_CORE_TASK_H
#define DIBS_CORE_TASK_H

#include "core/holds.h"

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
    struct dibs__holder holder;                /* of whoever uses the task */
    dibs_runtime *runtime;                     /* read-only */
    atomic_uint_fast64_t *untaken;             /* atomic; the runtime's: counts completions that lie in queues; never
                                                  freed */
    atomic_uint references;                    /* atomic; the program's, and one for each completion and acquire */
    atomic_uint use;                           /* atomic; a dibs__task_use, and the generation above it */
    atomic_bool cancelled;                     /* atomic; never cleared */
    _Atomic(struct dibs__wanting *) wanting;   /* atomic; the acquire that waits, with a reference: whoever takes it out
                                                  of here says how it ends; NULL: none waits */
    _Atomic(struct dibs__done *) taken_losses; /* atomic; whose names the program may still look at (done.h) */
};

/* Of that runtime, with its serial and its count of completions; with one reference. NULL: no memory. */
dibs_task *dibs__task_new(dibs_runtime *runtime, uint64_t serial, atomic_uint_fast64_t *untaken);
void dibs__task_ref(dibs_task *task);
void dibs__task_unref(dibs_task *task); /* the last one frees the task, which was ended, or never used */

/* As the functions of dibs.h; task is not NULL. */
dibs_status dibs__task_enter(dibs_task *task, struct dibs__error *error);
dibs_status dibs__task_leave(dibs_task *task, struct dibs__error *error);

/* The task that the calling thread acts for in the runtime of that serial; NULL: none. */
dibs_task *dibs__task_inside(uint64_t runtime);

/* A begun call begins to use the task, which nobody else uses. DIBS_OK, DIBS_BUSY. */
dibs_status dibs__task_begin(dibs_task *task, struct dibs__error *error);

/* The begun call is complete, or was not begun after all. True: the task is gone; the caller gives up what it holds. */
bool dibs__task_complete(dibs_task *task);

/* The task is gone from now on. True: the caller gives up what it holds; false: a begun call is not complete yet. */
bool dibs__task_end(dibs_task *task);

bool dibs__task_is_gone(const dibs_task *task); /* it was freed */

/* DIBS_CANCELLED, with its sentence. */
dibs_status dibs__task_was_cancelled(struct dibs__error *error, const char *name);

/* For holds.h: a thread that ended, or forked, was in the task. */
void dibs__task_left(struct dibs__holder *holder);
void dibs__task_kept(struct dibs__holder *holder);

#endif
