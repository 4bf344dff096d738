/*
 * Workers: the threads of a runtime that drive begun calls, which no thread waits for. Each begun acquire or unlock is
 * a job. The first worker is started with the first job; others, up to DIBS__WORKERS_MAX, when a slow job holds one
 * up. So a hundred thousand jobs that wait need no more threads than one.
 *
 * A worker takes many jobs at a time. It begins all of them, so that their requests reach the server together, and
 * then finishes each when its reply has come. A job whose reply does not come soon rests until it has come. A job that
 * has more to do than wait for its reply is slow: a worker finishes that job alone.
 *
 * A thread that waits for completions drives: it does what a worker does, except that it finishes no slow jobs, and so
 * saves two switches between threads. While one drives, and for a moment after that, the workers leave the jobs to it.
 *
 * Jobs whose requests must reach the store one after the other form a line: only the first job in the line makes its
 * request, and leaves the line once the request is sent. Meanwhile the others rest, and jobs outside the line go on.
 */
#ifndef DIBS_CORE_WORKERS_H
#define DIBS_CORE_WORKERS_H

#include "base/clock.h"
#include "base/heap.h"
#include "base/list.h"
#include "store/store.h"

#define DIBS__WORKERS_MAX 3

/* What a job does next. */
enum dibs__job_next {
    DIBS__JOB_RESTS,    /* the job rests until it is posted or is due */
    DIBS__JOB_GOES_ON,  /* the job runs again, as if it were posted */
    DIBS__JOB_FINISHES, /* a request is under way or must be made, and its reply is awaited until the job is due at
                           most; `begin`, if called again, returns the same */
    DIBS__JOB_ENDS      /* `ended` is called once, and nothing after that */
};

enum dibs__job_state {
    DIBS__JOB_RUNNING,
    DIBS__JOB_POSTED, /* the job is running, and was posted meanwhile */
    DIBS__JOB_RESTING,
    DIBS__JOB_IS_READY,
    DIBS__JOB_IS_SLOW, /* the job waits for a worker that finishes it alone */
    DIBS__JOB_ENDED
};

struct dibs__job;

struct dibs__job_ops {
    enum dibs__job_next (*begin)(struct dibs__job *job);  /* does what is due; does not wait for a store */
    enum dibs__job_next (*finish)(struct dibs__job *job); /* may wait for the store */
    void (*ended)(struct dibs__job *job);                 /* the job belongs to its maker again */

    /* As dibs__op_await, for all replies that `finish` needs. watch: that of the job; NULL: the thread waits. */
    enum dibs__awaited (*await)(struct dibs__job *job, int64_t until, struct dibs__wait *watch);
};

DIBS__MUTEX_CLASS(dibs__workers_mutex);

struct dibs__job {
    const struct dibs__job_ops *ops; /* read-only */
    int64_t due;                     /* running thread only; until when the job rests, or awaits its reply, at most */
    int64_t asked_at;                /* running thread only; when a thread that drives began it */
    struct dibs__workers *workers;   /* read-only */
    struct dibs__wait wait;          /* running thread only; for a reply that comes while the job rests */
    struct dibs__wait_event reply;   /* of `wait`; its tell posts the job */
    DIBS__LINKS(struct dibs__job) links; /* of whoever has the list that the job is in: the workers, or a batch */
    DIBS__LINKS(struct dibs__job) line DIBS__GUARDED_BY(dibs__workers_mutex);
    int64_t line_number DIBS__GUARDED_BY(dibs__workers_mutex); /* larger for later jobs */
    enum dibs__job_state state DIBS__GUARDED_BY(dibs__workers_mutex);
    struct dibs__heap_node rest DIBS__GUARDED_BY(dibs__workers_mutex);
};

struct dibs__workers;

/* store: what jobs begin there goes out together. NULL: no memory. */
struct dibs__workers *dibs__workers_new(const struct dibs__clock *clock, struct dibs__store *store);
void dibs__workers_stop(struct dibs__workers *workers); /* waits until all jobs have ended, then ends the threads */
void dibs__workers_free(struct dibs__workers *workers); /* must have been stopped; NULL is fine */

/*
 * Adds a new job, whose `ops` are set. The calling thread runs the job until it calls dibs__workers_settle. False:
 * there is no worker, and none could be started.
 */
bool dibs__workers_add(struct dibs__workers *workers, struct dibs__job *job);

/* Called by the thread that runs the job: says what the job does next. A job that ends leaves the line. */
void dibs__workers_settle(struct dibs__workers *workers, struct dibs__job *job, enum dibs__job_next next);

/*
 * The calling thread begins to drive, and must end that by dibs__workers_end_drive with the same wait event, which is
 * woken when there may be something to do. False: another thread drives, or there is no worker yet.
 */
bool dibs__workers_drive(struct dibs__workers *workers, struct dibs__wait_event *wait_event);
void dibs__workers_end_drive(struct dibs__workers *workers, const struct dibs__wait_event *wait_event);

/*
 * Called by the driving thread: runs what is ready, and waits for replies until that time at most. False: there was
 * nothing to do; *due is when there will be something, if nothing wakes the thread before.
 */
bool dibs__workers_run_some(struct dibs__workers *workers, int64_t until, int64_t *due);

/*
 * Called by the thread that runs the job: puts the job at the end of the line, unless it is in the line already. True:
 * the job must rest, because another one is the first and has not been that for longer than `patience`; it rests at
 * most until job->due (set), which is later for later jobs.
 */
bool dibs__workers_line_up(struct dibs__workers *workers, struct dibs__job *job, int64_t patience);

/*
 * Called by the same thread: takes the job out of the line, if it is there. in_vain: its request could not be made; if
 * that took as long as the patience of those behind it, none of them rests for the next one.
 */
void dibs__workers_leave_line(struct dibs__workers *workers, struct dibs__job *job, bool in_vain);

/* Called by any thread: wakes the driving thread, if there is one, and posts all jobs in the line. */
void dibs__workers_wake(struct dibs__workers *workers);

/* Called by any thread, also with the mutex of a shard or channel held: the job, which still exists, will be run. */
void dibs__workers_post(struct dibs__workers *workers, struct dibs__job *job);

#endif
