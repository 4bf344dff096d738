/*
 * A pool whose jobs move between threads: any thread goes on with any job. The queue of dibs is the pool's queue, so a
 * job that waits for a lock takes no thread from the others.
 *
 *     cc moving_jobs.c -o moving_jobs -pthread $(pkg-config --cflags --libs dibs)
 *     DIBS_URL=redis://127.0.0.1 ./moving_jobs
 */
#include <dibs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 4, JOBS = 20, TURNS = 5, STEPS = JOBS * TURNS };

struct job {
    dibs_task *task; /* owns the lock, whichever thread works for the job */
    int turns;
    pthread_t thread;
};

static dibs_runtime *rt;
static dibs_queue *queue;
static atomic_int left = JOBS, moves;
static long stock; /* guarded by the lock "stock" */

static void expect(dibs_status status, const char *what)
{
    if (status == DIBS_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, dibs_last_error());
    exit(1);
}

static void take_stock(struct job *job)
{
    expect(dibs_task_enter(job->task), "dibs_task_enter"); /* this thread acts for the job, until it leaves */
    expect(dibs_check(rt, "stock"), "dibs_check");
    stock++;
    dibs_task_leave(job->task);
    job->thread = pthread_self();
}

/* One step of a job. The next one comes with the next completion, on whichever thread takes that. */
static void go_on(const dibs_completion *done)
{
    struct job *job = done->arg;

    switch (done->kind) {
    case DIBS_DONE_LOCK:
        expect(done->status, done->detail);
        take_stock(job);
        expect(dibs_unlock_begin(job->task, "stock", queue, job), "dibs_unlock_begin");
        break;
    case DIBS_DONE_UNLOCK:
        expect(done->status, done->detail);
        if (!pthread_equal(job->thread, pthread_self()))
            atomic_fetch_add(&moves, 1);
        if (++job->turns < TURNS)
            expect(dibs_lock_begin(job->task, "stock", DIBS_WAIT_FOREVER, NULL, queue, job), "dibs_lock_begin");
        else
            atomic_fetch_sub(&left, 1);
        break;
    case DIBS_DONE_LOST: /* the unlock will tell */
        break;
    }
}

static void *work(void *arg)
{
    dibs_completion done;

    while (atomic_load(&left) > 0)
        if (dibs_queue_take(queue, &done, 1, 50) == 1)
            go_on(&done);
    return arg;
}

int main(void)
{
    static struct job jobs[JOBS];
    pthread_t threads[THREADS];

    expect(dibs_open(&rt, NULL), "dibs_open");
    expect(dibs_queue_new(&queue), "dibs_queue_new");
    for (int i = 0; i < JOBS; i++) {
        expect(dibs_task_new(rt, &jobs[i].task), "dibs_task_new");
        expect(dibs_lock_begin(jobs[i].task, "stock", DIBS_WAIT_FOREVER, NULL, queue, &jobs[i]), "dibs_lock_begin");
    }
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, work, NULL) != 0)
            return 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < JOBS; i++)
        dibs_task_free(jobs[i].task);
    printf("%ld of %d turns; a job went on with another thread %d times\n", stock, STEPS, atomic_load(&moves));
    dibs_close(rt);
    dibs_queue_free(queue);
    return stock == STEPS ? 0 : 1;
}
