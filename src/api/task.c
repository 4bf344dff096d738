#include <pthread.h>

#include "api/check.h"
#include "core/begun.h"

static dibs_status no_task(void)
{
    return dibs__fail(DIBS_INVALID, "the task is NULL");
}

dibs_status dibs_task_new(dibs_runtime *rt, dibs_task **out)
{
    if (!out)
        return dibs__fail(DIBS_INVALID, "out is NULL");
    *out = NULL;
    if (!rt)
        return dibs__fail(DIBS_INVALID, "the runtime is NULL");
    if (atomic_load(&rt->closing))
        return dibs__fail(DIBS_CLOSED, "the runtime is closing");
    *out = dibs__task_new(rt, rt->serial, &rt->untaken);
    return *out ? DIBS_OK : dibs__fail(DIBS_NO_MEMORY, "no memory for a task");
}

dibs_status dibs_task_enter(dibs_task *task)
{
    struct dibs__error error;

    return task ? dibs__return(dibs__task_enter(task, &error), &error) : no_task();
}

dibs_status dibs_task_leave(dibs_task *task)
{
    struct dibs__error error;

    return task ? dibs__return(dibs__task_leave(task, &error), &error) : no_task();
}

/* Does it to the task, and is no cancellation point: others are woken meanwhile, which may write to a pipe. */
static void undisturbed(void (*act)(dibs_task *task), dibs_task *task)
{
    int cancel_state;

    if (!task)
        return;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    act(task);
    pthread_setcancelstate(cancel_state, NULL);
}

void dibs_task_cancel(dibs_task *task)
{
    undisturbed(dibs__task_cancel, task);
}

void dibs_task_free(dibs_task *task)
{
    undisturbed(dibs__task_free, task);
}
