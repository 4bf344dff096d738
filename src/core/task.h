/*
 * Tasks: owners of locks that are not threads. A task has a table of holds, which is used by a thread that has entered
 * the task, or by one begun call (begun.h, where a task also ends).
 */
#ifndef DIBS_CORE_TASK_H
#define DIBS_CORE_TASK_H

#include "core/holds.h"

struct dibs__done;
struct dibs__wanting;

/* How a task is used. */
enum dibs__task_use {
    DIBS__TASK_FREE,    /* by nobody */
    DIBS__TASK_ENTERED, /* a thread is in the task */
    DIBS__TASK_BEGUN,   /* a begun call is not complete yet */
    DIBS__TASK_GONE     /* the task was freed; a begun call that completes after that gives up what the task holds */
};

/* `use` also has the fork generation: nobody uses a task in a forked child, unless the thread that forked was in it. */
struct dibs_task {
    struct dibs__holder holder;                /* belongs to whoever uses the task */
    dibs_runtime *runtime;                     /* read-only */
    atomic_uint_fast64_t *untaken;             /* atomic; the runtime's count of completions in queues; never freed */
    atomic_uint references;                    /* atomic; the program's, and one for each completion and acquire */
    atomic_uint use;                           /* atomic; a dibs__task_use, and the generation above it */
    atomic_bool cancelled;                     /* atomic; never cleared */
    _Atomic(struct dibs__wanting *) wanting;   /* atomic; the acquire that waits, with a reference: whoever takes it out
                                                  of here decides how its call ends; NULL: none waits */
    _Atomic(struct dibs__done *) taken_losses; /* atomic; losses whose names the program may still use (done.h) */
};

/* A task of the runtime with that serial and count of completions. The caller has one reference. NULL: no memory. */
dibs_task *dibs__task_new(dibs_runtime *runtime, uint64_t serial, atomic_uint_fast64_t *untaken);
void dibs__task_ref(dibs_task *task);
void dibs__task_unref(dibs_task *task); /* the last one frees the task, which must have ended or never been used */

/* As the functions of dibs.h; task is not NULL. */
dibs_status dibs__task_enter(dibs_task *task, struct dibs__error *error);
dibs_status dibs__task_leave(dibs_task *task, struct dibs__error *error);

/* The task that the calling thread acts for in the runtime of that serial; NULL: none. */
dibs_task *dibs__task_inside(uint64_t runtime);

/* A begun call begins to use the task, which nobody else uses. DIBS_OK, DIBS_BUSY. */
dibs_status dibs__task_begin(dibs_task *task, struct dibs__error *error);

/* The begun call is complete, or was not begun after all. True: the task is gone; the caller gives up what it holds. */
bool dibs__task_complete(dibs_task *task);

/* The task is gone from now on. True: the caller gives up what it holds. False: a begun call will, once complete. */
bool dibs__task_end(dibs_task *task);

bool dibs__task_is_gone(const dibs_task *task); /* whether the task was freed */

/* Fills in the error for DIBS_CANCELLED, and returns that status. */
dibs_status dibs__task_was_cancelled(struct dibs__error *error, const char *name);

/* Hooks of holds.h: a thread ended while it was in the task (left), or forked there (kept). */
void dibs__task_left(struct dibs__holder *holder);
void dibs__task_kept(struct dibs__holder *holder);

#endif
