#include <pthread.h>

#include "api/check.h"
#include "core/begin.h"
#include "core/take.h"

dibs_status dibs_queue_new(dibs_queue **out)
{
    int cancel_state;

    if (!out)
        return dibs__fail(DIBS_INVALID, "out is NULL");
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    *out = dibs__queue_new();
    pthread_setcancelstate(cancel_state, NULL);
    return *out ? DIBS_OK : dibs__fail(DIBS_NO_MEMORY, "no memory for a queue");
}

int dibs_queue_fd(dibs_queue *queue)
{
    return queue ? dibs__queue_fd(queue) : -1;
}

size_t dibs_queue_take(dibs_queue *queue, dibs_completion *out, size_t max, int64_t wait_ms)
{
    if (!queue || !out || max == 0 || wait_ms < DIBS_WAIT_FOREVER)
        return 0;
    return dibs__queue_take(queue, out, max, wait_ms);
}

void dibs_queue_free(dibs_queue *queue)
{
    if (queue)
        dibs__queue_close(queue);
}

/* The size of the name; 0: an argument is not valid. */
static size_t check(const dibs_task *task, const char *name, const dibs_queue *queue)
{
    if (!task || !queue) {
        dibs__fail(DIBS_INVALID, "the %s is NULL", task ? "queue" : "task");
        return 0;
    }
    return dibs__check_name(task->runtime, name);
}

dibs_status dibs_lock_begin(dibs_task *task, const char *name, int64_t wait_ms, const dibs_lock_options *options,
                            dibs_queue *queue, void *arg)
{
    size_t size = check(task, name, queue);
    struct dibs__error error;
    struct dibs__wish wish;

    if (size == 0 || !dibs__check_options(task->runtime, wait_ms, options, &wish))
        return DIBS_INVALID;
    return dibs__return(dibs__lock_begin(task, name, size, &wish, queue, arg, &error), &error);
}

dibs_status dibs_unlock_begin(dibs_task *task, const char *name, dibs_queue *queue, void *arg)
{
    size_t size = check(task, name, queue);
    struct dibs__error error;

    if (size == 0)
        return DIBS_INVALID;
    return dibs__return(dibs__unlock_begin(task, name, size, queue, arg, &error), &error);
}

dibs_status dibs_lock_names_begin(dibs_task *task, const char *const *names, size_t count, int64_t wait_ms,
                                  const dibs_lock_options *options, dibs_queue *queue, void *arg)
{
    struct dibs__error error;
    struct dibs__wish wish;

    if (!task || !queue)
        return dibs__fail(DIBS_INVALID, "the %s is NULL", task ? "queue" : "task");
    if (!dibs__check_names(task->runtime, names, count) || !dibs__check_options(task->runtime, wait_ms, options, &wish))
        return DIBS_INVALID;
    return dibs__return(dibs__lock_names_begin(task, names, count, &wish, queue, arg, &error), &error);
}
