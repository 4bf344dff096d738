/*
 * Cancel a wait: a thread waits for a lock, in a call that blocks, until it has the lock or another thread cancels the
 * wait.
 *
 *     cc cancel_wait.c -o cancel_wait -pthread $(pkg-config --cflags --libs dibs)
 *     DIBS_URL=redis://127.0.0.1 ./cancel_wait 500
 *
 * To see it wait:  redis-cli SET lock:report somebody PX 60000
 */
#include <dibs.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static dibs_runtime *rt;

/* What the thread locks is the task's, because the thread has entered it. Only a task can be cancelled. */
static void *write_report(void *arg)
{
    dibs_task *task = arg;
    dibs_status status = dibs_task_enter(task);

    if (status == DIBS_OK)
        status = dibs_lock(rt, "report");
    if (status == DIBS_CANCELLED) {
        puts("cancelled: nothing is held, and nothing is waited for");
    } else if (status != DIBS_OK) {
        fprintf(stderr, "no lock: %s\n", dibs_last_error());
    } else {
        puts("the report is written");
        status = dibs_unlock(rt, "report");
    }
    dibs_task_leave(task);
    return status == DIBS_OK || status == DIBS_CANCELLED ? NULL : arg;
}

int main(int argc, char **argv)
{
    dibs_task *task;
    pthread_t thread;
    void *failed;

    if (dibs_open(&rt, NULL) != DIBS_OK || dibs_task_new(rt, &task) != DIBS_OK) {
        fprintf(stderr, "no task: %s\n", dibs_last_error());
        return 1;
    }
    if (pthread_create(&thread, NULL, write_report, task) != 0)
        return 1;
    usleep((useconds_t)(argc > 1 ? strtol(argv[1], NULL, 10) : 500) * 1000);
    dibs_task_cancel(task); /* does not block; a lock that was granted before stays granted */
    pthread_join(thread, &failed);
    dibs_task_free(task);
    dibs_close(rt);
    return failed ? 1 : 0;
}
