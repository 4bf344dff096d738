/*
 * Workers: the threads of a runtime that drive what was begun and no thread
 * waits for: begun acquires and unlocks, each of them a job. The first worker is
 * started with the first job; others, up to DIBS__WORKERS_MAX, as soon as one is
 * held up by a slow job. So a hundred thousand jobs that wait
 * need no more threads than one.
 *
 * A worker takes many jobs at a time. It begins all of them, so that their
 * requests reach the server together, and then finishes them as their replies
 * come. A job whose reply does not come soon rests until it has come. A job that
 * has more to do than to wait for its reply is slow: it is finished by itself.
 *
 * A thread that waits for completions drives: it does what a worker does,
 * except that it finishes no slow jobs, and saves two switches from thread to
 * thread. While one drives, and for a moment after that, the workers leave the
 * jobs to it.
 *
 * Jobs whose requests must reach the store one after the other stand in a line:
 * only the first of them makes its request, and leaves the line once that is sent.
 * Meanwhile the others rest, and jobs outside the line go on.
 */
#ifndef DIBS_CORE_WORKERS_H
#define DIBS_CORE_WORKERS_H

#include "base/clock.h"
#include "base/heap.h"
#include "base/wait.h"

#define DIBS__WORKERS_MAX 3

/* What a job does next. */
enum dibs__job_next {
    DIBS__JOB_RESTS,    /* until it is posted, or `due` */
    DIBS__JOB_GOES_ON,  /* as if it were posted */
    DIBS__JOB_FINISHES, /* a request is under way, or to be made, and its reply is awaited until `due` at most; `begin`
                           says so again */
    DIBS__JOB_ENDS      /* `ended` is called, once, and nothing afterwards */
};

enum dibs__job_state { DIBS__JOB_RUNNING, DIBS__JOB_POSTED, DIBS__JOB_RESTING, DIBS__JOB_IS_READY, DIBS__JOB_ENDED };

struct dibs__job;

struct dibs__job_ops {
    enum dibs__job_next (*begin)(struct dibs__job *job);           /* does what is due; does not wait for a store */
    bool (*await)(struct dibs__job *job, int64_t until);           /* true: `finish` will not wait */
    bool (*watch)(struct dibs__job *job, struct dibs__wait *wait); /* as dibs__op_watch; NULL: it can't be watched */
    enum dibs__job_next (*finish)(struct dibs__job *job);          /* may wait for the store */
    void (*ended)(struct dibs__job *job);                          /* the job is the caller's again */
};

DIBS__MUTEX_CLASS(dibs__workers_mutex);

struct dibs__job {
    const struct dibs__job_ops *ops; /* read-only */
    int64_t due;                     /* the running thread's: until when the job rests, or awaits its reply, at most */
    struct dibs__workers *workers;   /* read-only */
    struct dibs__wait wait;          /* the running thread's; of a reply that comes while the job rests */
    struct dibs__wait_event reply;   /* its tell posts the job */
    struct dibs__job *next DIBS__GUARDED_BY(dibs__workers_mutex); /* that is ready or slow, or in the worker's batch */
    struct dibs__job *line_next DIBS__GUARDED_BY(dibs__workers_mutex);
    struct dibs__job *line_previous DIBS__GUARDED_BY(dibs__workers_mutex);
    bool in_line DIBS__GUARDED_BY(dibs__workers_mutex);
    int64_t line_number DIBS__GUARDED_BY(dibs__workers_mutex); /* rises along the line */
    enum dibs__job_state state DIBS__GUARDED_BY(dibs__workers_mutex);
    struct dibs__heap_node rest DIBS__GUARDED_BY(dibs__workers_mutex);
};

struct dibs__workers;

/* gather(context, true) comes before jobs are begun, gather(context, false) behind it. NULL: no memory. */
struct dibs__workers *dibs__workers_new(const struct dibs__clock *clock, void (*gather)(void *context, bool on),
                                        void *context);
void dibs__workers_stop(struct dibs__workers *workers); /* once all jobs have ended, ends the threads */
void dibs__workers_free(struct dibs__workers *workers); /* stopped; NULL is fine */

/*
 * The calling thread runs a new job (its `ops` are set), until it calls
 * dibs__workers_settle for it. False: no thread can be had.
 */
bool dibs__workers_add(struct dibs__workers *workers, struct dibs__job *job);

/* The thread that runs the job says what is next. One that ends leaves the line. */
void dibs__workers_settle(struct dibs__workers *workers, struct dibs__job *job, enum dibs__job_next next);

/*
 * The calling thread begins to drive, if no other does. The wait event is woken when
 * there may be something to do. It must end that, with the same wait event.
 */
bool dibs__workers_drive(struct dibs__workers *workers, struct dibs__wait_event *wait_event);
void dibs__workers_end_drive(struct dibs__workers *workers, const struct dibs__wait_event *wait_event);

/*
 * The driving thread: runs what is ready, and waits for replies at most until
 * that time. False: there was nothing to do; *due says until when, at most.
 */
bool dibs__workers_run_some(struct dibs__workers *workers, int64_t until, int64_t *due);

/*
 * The thread that runs the job: from now on it stands in the line, at the end if it is new there. True: it must rest,
 * because another is the first, and has not been that for longer than `patience`; at most until job->due (set), which
 * is later for later jobs.
 */
bool dibs__workers_line_up(struct dibs__workers *workers, struct dibs__job *job, int64_t patience);

/* The same thread: if the job stands in the line, it leaves. */
void dibs__workers_leave_line(struct dibs__workers *workers, struct dibs__job *job);

/* Any thread: wakes the one that drives, if one does, and all jobs of the line. */
void dibs__workers_wake(struct dibs__workers *workers);

/* Any thread, also with the mutex of a shard or channel held: the job must be run. Not for a job that may be gone. */
void dibs__workers_post(struct dibs__workers *workers, struct dibs__job *job);

#endif
