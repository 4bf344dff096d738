#include "support/tasks.h"

#include <poll.h>

#include "support/test.h"

dibs_task *task_of_runtime(dibs_runtime *rt)
{
    dibs_task *task = NULL;

    assert_status(DIBS_OK, dibs_task_new(rt, &task));
    assert_true(task != NULL);
    return task;
}

static void free_task(void *task)
{
    dibs_task_free(task);
}

dibs_task *test_task(dibs_task *task)
{
    test_ends(TEST_TASK, task, free_task);
    return task;
}

static void free_queue(void *q)
{
    dibs_queue_free(q);
}

dibs_queue *test_queue(dibs_queue *q)
{
    test_ends(TEST_QUEUE, q, free_queue);
    return q;
}

dibs_queue *queue_new(void)
{
    dibs_queue *q = NULL;

    assert_status(DIBS_OK, dibs_queue_new(&q));
    assert_true(q != NULL);
    return q;
}

dibs_completion next_done(dibs_queue *q)
{
    dibs_completion c;

    memset(&c, 0xff, sizeof c);
    assert_that(dibs_queue_take(q, &c, 1, LIMIT_MS) == 1, "no completion comes");
    for (size_t i = 0; i < sizeof c.reserved / sizeof c.reserved[0]; i++)
        assert_true(c.reserved[i] == 0);
    return c;
}

dibs_completion expect_done(dibs_queue *q, dibs_done_kind kind, dibs_status status, const dibs_task *task)
{
    dibs_completion c = next_done(q);

    assert_that(c.status == status, "%s instead of %s: %s", dibs_status_name(c.status), dibs_status_name(status),
                c.detail);
    assert_int_equal(c.kind, kind);
    assert_ptr_equal(c.task, task);
    assert_int_equal(c.detail[0] == '\0', status == DIBS_OK);
    if (kind != DIBS_DONE_LOST)
        assert_null(c.name);
    if (status == DIBS_OK || kind == DIBS_DONE_LOST)
        assert_true(c.fence > 0);
    return c;
}

void expect_none(dibs_queue *q)
{
    dibs_completion c;

    assert_int_equal(dibs_queue_take(q, &c, 1, 0), 0);
}

bool is_readable(dibs_queue *q)
{
    struct pollfd fd = {.fd = dibs_queue_fd(q), .events = POLLIN};

    assert_true(fd.fd >= 0);
    return poll(&fd, 1, 0) == 1;
}

void begin_lock(dibs_task *task, const char *name, int64_t wait_ms, const dibs_lock_options *options, dibs_queue *q)
{
    assert_status(DIBS_OK, dibs_lock_begin(task, name, wait_ms, options, q, task));
}

void begin_unlock(dibs_task *task, const char *name, dibs_queue *q)
{
    assert_status(DIBS_OK, dibs_unlock_begin(task, name, q, task));
}

static dibs_status end_of(dibs_task *task, dibs_queue *q, dibs_done_kind kind)
{
    dibs_completion c = next_done(q);

    assert_int_equal(c.kind, kind);
    assert_ptr_equal(c.task, task);
    assert_ptr_equal(c.arg, task);
    return c.status;
}

dibs_status task_lock_with(dibs_task *task, const char *name, int64_t wait_ms, const dibs_lock_options *options,
                           dibs_queue *q)
{
    begin_lock(task, name, wait_ms, options, q);
    return end_of(task, q, DIBS_DONE_LOCK);
}

dibs_status task_lock(dibs_task *task, const char *name, int64_t wait_ms, dibs_queue *q)
{
    return task_lock_with(task, name, wait_ms, NULL, q);
}

dibs_status task_unlock(dibs_task *task, const char *name, dibs_queue *q)
{
    begin_unlock(task, name, q);
    return end_of(task, q, DIBS_DONE_UNLOCK);
}

dibs_status task_check(dibs_task *task, dibs_runtime *rt, const char *name)
{
    assert_status(DIBS_OK, dibs_task_enter(task));
    dibs_status status = dibs_check(rt, name);
    assert_status(DIBS_OK, dibs_task_leave(task));
    return status;
}

dibs_status actor_task_result(actor *a)
{
    return actor_result(a);
}
