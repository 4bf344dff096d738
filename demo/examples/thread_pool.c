/*
 * A thread pool: a task that forgets to unlock must not leave its locks to the next task of the same thread, because
 * locks are the thread's. So the pool releases whatever a task left.
 *
 *     cc thread_pool.c -o thread_pool -pthread $(pkg-config --cflags --libs dibs)
 *     DIBS_URL=redis://127.0.0.1 ./thread_pool
 */
#include <dibs.h>
#include <pthread.h>
#include <stdio.h>

enum { THREADS = 4, TASKS = 40 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int next_task; /* guarded by mutex */
static int forgotten; /* guarded by mutex */

/* Of every four tasks one forgets what it locked. */
static void run_task(dibs_runtime *rt, int task)
{
    char name[32];

    snprintf(name, sizeof name, "customer:%d", task % 7);
    if (dibs_lock(rt, name) != DIBS_OK)
        return;
    if (task % 4 == 0)
        return; /* an error on the way, and nobody thought of the lock */
    dibs_unlock(rt, name);
}

static int take_task(void)
{
    pthread_mutex_lock(&mutex);
    int task = next_task < TASKS ? next_task++ : -1;
    forgotten += task >= 0 && task % 4 == 0;
    pthread_mutex_unlock(&mutex);
    return task;
}

static void *work(void *rt)
{
    for (int task = take_task(); task >= 0; task = take_task()) {
        run_task(rt, task);
        if (dibs_unlock_all(rt) != DIBS_OK) /* whatever is left, and however often it was locked */
            fprintf(stderr, "after task %d: %s\n", task, dibs_last_error());
    }
    return NULL;
}

int main(void)
{
    dibs_runtime *rt;
    pthread_t threads[THREADS];
    dibs_stats stats;

    if (dibs_open(&rt, NULL) != DIBS_OK) {
        fprintf(stderr, "no store: %s\n", dibs_last_error());
        return 1;
    }
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, work, rt) != 0)
            return 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    dibs_stats_get(rt, &stats);
    printf("%d tasks; %d forgot a lock; now %d locks are held\n", next_task, forgotten, (int)stats.holds);
    dibs_close(rt);
    return 0;
}
