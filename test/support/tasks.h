/* Tasks and queues for tests. Used by the test's own thread, unless a comment says otherwise. */
#ifndef DIBS_TEST_TASKS_H
#define DIBS_TEST_TASKS_H

#include <dibs.h>

#include "support/actor.h"

dibs_task *task_of_runtime(dibs_runtime *rt);
dibs_queue *queue_new(void);

/* They return it; it is freed at the end of the test. */
dibs_task *test_task(dibs_task *task);
dibs_queue *test_queue(dibs_queue *q);

/* The next completion; the test fails where none comes within LIMIT_MS. */
dibs_completion next_done(dibs_queue *q);

/* Expects that the next completion is of that kind, status and task, and that its other fields are right. */
dibs_completion expect_done(dibs_queue *q, dibs_done_kind kind, dibs_status status, const dibs_task *task);

/* Expects that no completion waits. */
void expect_none(dibs_queue *q);

/* Whether the queue's descriptor is readable now. */
bool is_readable(dibs_queue *q);

/* Begins a call, whose completion must be the next of the queue, and returns the status of that. */
dibs_status task_lock(dibs_task *task, const char *name, int64_t wait_ms, dibs_queue *q);
dibs_status task_lock_with(dibs_task *task, const char *name, int64_t wait_ms, const dibs_lock_options *options,
                           dibs_queue *q);
dibs_status task_unlock(dibs_task *task, const char *name, dibs_queue *q);

/* A begin that must succeed; arg is the task. */
void begin_lock(dibs_task *task, const char *name, int64_t wait_ms, const dibs_lock_options *options, dibs_queue *q);
void begin_unlock(dibs_task *task, const char *name, dibs_queue *q);

/* The result of dibs_check for a thread in the task. Enters and leaves. */
dibs_status task_check(dibs_task *task, dibs_runtime *rt, const char *name);

/* As actor_result. */
dibs_status actor_task_result(actor *a);

#endif
