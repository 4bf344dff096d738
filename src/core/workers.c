/*
 * Lock discipline: `mutex` guards all fields that do not say otherwise, and is a leaf that may be taken while the
 * mutex of a shard or a channel is held. A worker sleeps on `work` until
 *     a job is slow, and another worker is left for what is ready, or
 *     a job is ready, no other thread is beginning jobs, and none drives or did just now, or
 *     a job that rests or is slow is due, with the same conditions, or
 *     the workers must end, and all jobs have ended.
 *
 * One thread at a time begins jobs, in the order in which they became ready. So
 * what one thread began one after the other reaches the store in that order.
 */
#include "core/workers.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/thread.h"

#define FEW 16 /* a driving thread begins this many jobs at a time: the server works on some while others are begun */
#define BATCH 128    /* a worker takes this many jobs at a time */
#define DRIVEN_MS 2  /* after a thread stops driving, the workers wait this long for it to drive again */
#define PATIENT_MS 5 /* a batch waits this long for its replies before those jobs are put off */
#define HASTE_MS 50  /* after replies that did not come so soon, none are waited for during this time */

struct dibs__workers {
    const struct dibs__clock *clock; /* read-only */
    struct dibs__store *store;       /* read-only */
    struct dibs__mutex mutex;
    pthread_cond_t work;                                               /* waited on with mutex */
    struct dibs__job *ready DIBS__GUARDED_BY(dibs__workers_mutex);     /* list, first come, first served */
    struct dibs__job *in_flight DIBS__GUARDED_BY(dibs__workers_mutex); /* list: begun by a driving thread */
    struct dibs__wait_event *
        driver DIBS__GUARDED_BY(dibs__workers_mutex);           /* wakes the thread that drives; NULL: none does */
    int64_t driven_until DIBS__GUARDED_BY(dibs__workers_mutex); /* until then the workers leave the jobs alone */
    bool watched DIBS__GUARDED_BY(dibs__workers_mutex);         /* a worker sleeps no longer than until then */
    struct dibs__heap
        resting DIBS__GUARDED_BY(dibs__workers_mutex);            /* jobs that rest until they are due, slow ones too */
    struct dibs__job *slow DIBS__GUARDED_BY(dibs__workers_mutex); /* list: jobs that a worker must finish alone */
    struct dibs__job *line DIBS__GUARDED_BY(dibs__workers_mutex); /* list */
    int64_t line_since DIBS__GUARDED_BY(dibs__workers_mutex);     /* when the first of these became that */
    int64_t line_number DIBS__GUARDED_BY(dibs__workers_mutex);    /* of the job that entered the line last */
    int64_t line_patience DIBS__GUARDED_BY(dibs__workers_mutex);  /* of the job that looked at the line last */
    int64_t waits_after DIBS__GUARDED_BY(dibs__workers_mutex);    /* jobs up to that number wait for no other */
    size_t jobs DIBS__GUARDED_BY(dibs__workers_mutex);            /* jobs that have not ended */
    unsigned idle DIBS__GUARDED_BY(dibs__workers_mutex);          /* number of threads that sleep on work */
    unsigned count DIBS__GUARDED_BY(dibs__workers_mutex);         /* number of threads */
    unsigned finishing DIBS__GUARDED_BY(dibs__workers_mutex);     /* number of threads that finish a slow job */
    bool beginning DIBS__GUARDED_BY(dibs__workers_mutex);         /* a thread is beginning jobs */
    bool ending DIBS__GUARDED_BY(dibs__workers_mutex);
    atomic_int_fast64_t haste_until; /* replies to what is sent until then are not waited for; atomic */
    pthread_t threads[DIBS__WORKERS_MAX] DIBS__GUARDED_BY(dibs__workers_mutex);
};

/* Takes the first job out of the list. NULL: there is none. */
static struct dibs__job *take_first(struct dibs__job **list)
{
    struct dibs__job *job = *list;

    if (job)
        DIBS__LIST_REMOVE(*list, job, links);
    return job;
}

static struct dibs__job *of_rest(struct dibs__heap_node *rest)
{
    return (struct dibs__job *)((char *)rest - offsetof(struct dibs__job, rest));
}

/* ------------------------------------------------------------------ what to run */

/* Whether the workers must leave the jobs to a thread that drives, or did just now. */
static bool is_driven(const struct dibs__workers *w) DIBS__REQUIRES(dibs__workers_mutex)
{
    return w->driver || (w->driven_until > 0 && dibs__now(w->clock) < w->driven_until);
}

/* Wakes a thread that can run jobs, after a job became the first that is ready or the first that will be due. */
static void wake_one(struct dibs__workers *w) DIBS__REQUIRES(dibs__workers_mutex)
{
    if (w->beginning)
        return;
    if (w->driver)
        dibs__wait_event_wake(w->driver);
    else if (w->idle > 0 && !is_driven(w))
        pthread_cond_signal(&w->work);
}

static void make_ready(struct dibs__workers *w, struct dibs__job *job) DIBS__REQUIRES(dibs__workers_mutex)
{
    if (dibs__heap_has(&job->rest))
        dibs__heap_remove(&w->resting, &job->rest);
    if (job->state == DIBS__JOB_IS_SLOW)
        DIBS__LIST_REMOVE(w->slow, job, links);
    job->state = DIBS__JOB_IS_READY;
    DIBS__LIST_APPEND(w->ready, job, links);
    if (w->ready == job)
        wake_one(w);
}

static void post(struct dibs__workers *w, struct dibs__job *job) DIBS__REQUIRES(dibs__workers_mutex)
{
    if (job->state == DIBS__JOB_RESTING || job->state == DIBS__JOB_IS_SLOW)
        make_ready(w, job);
    else if (job->state == DIBS__JOB_RUNNING)
        job->state = DIBS__JOB_POSTED;
}

void dibs__workers_post(struct dibs__workers *w, struct dibs__job *job)
{
    dibs__workers_mutex_lock(&w->mutex);
    post(w, job);
    dibs__workers_mutex_unlock(&w->mutex);
}

static void tell_reply(struct dibs__wait_event *wait_event)
{
    struct dibs__job *job = (struct dibs__job *)((char *)wait_event - offsetof(struct dibs__job, reply));

    dibs__workers_post(job->workers, job);
}

/* ----------------------------------------------------------------------- the line */

static void enter_line(struct dibs__workers *w, struct dibs__job *job, int64_t now) DIBS__REQUIRES(dibs__workers_mutex)
{
    job->line_number = ++w->line_number;
    DIBS__LIST_APPEND(w->line, job, line);
    if (w->line == job)
        w->line_since = now;
}

bool dibs__workers_line_up(struct dibs__workers *w, struct dibs__job *job, int64_t patience)
{
    int64_t now = dibs__now(w->clock);

    dibs__workers_mutex_lock(&w->mutex);
    if (!job->line.previous)
        enter_line(w, job, now);
    int64_t until = w->line_since + patience + (job->line_number - w->line->line_number); /* they leave in order, too */
    bool waits = w->line != job && now < until && job->line_number > w->waits_after;
    w->line_patience = patience;
    if (waits)
        job->due = until;
    dibs__workers_mutex_unlock(&w->mutex);
    return waits;
}

static void leave_line(struct dibs__workers *w, struct dibs__job *job, bool in_vain) DIBS__REQUIRES(dibs__workers_mutex)
{
    bool was_first = w->line == job;

    if (!job->line.previous)
        return;
    DIBS__LIST_REMOVE(w->line, job, line);
    if (!was_first || !w->line)
        return;
    int64_t now = dibs__now(w->clock);
    if (in_vain && now >= w->line_since + w->line_patience)
        w->waits_after = w->line_number; /* their patience has ended, whether they have run since or not */
    w->line_since = now;
    post(w, w->line);
}

void dibs__workers_leave_line(struct dibs__workers *w, struct dibs__job *job, bool in_vain)
{
    dibs__workers_mutex_lock(&w->mutex);
    leave_line(w, job, in_vain);
    dibs__workers_mutex_unlock(&w->mutex);
}

/* ------------------------------------------------------------------ what is next */

/* The job rests, or is slow. If it will be the first that is due, a thread must wake by then. */
static void rest_until_due(struct dibs__workers *w, struct dibs__job *job) DIBS__REQUIRES(dibs__workers_mutex)
{
    if (job->due == DIBS__NEVER)
        return;
    job->rest.due = job->due;
    dibs__heap_add(&w->resting, &job->rest);
    if (w->resting.first == &job->rest)
        wake_one(w);
}

void dibs__workers_settle(struct dibs__workers *w, struct dibs__job *job, enum dibs__job_next next)
{
    dibs__workers_mutex_lock(&w->mutex);
    DIBS__REQUIRE(job->state == DIBS__JOB_RUNNING || job->state == DIBS__JOB_POSTED);
    if (next == DIBS__JOB_ENDS) {
        leave_line(w, job, false);
        job->state = DIBS__JOB_ENDED;
        if (--w->jobs == 0 && w->ending)
            pthread_cond_broadcast(&w->work);
    } else if (next == DIBS__JOB_RESTS && job->state != DIBS__JOB_POSTED) {
        job->state = DIBS__JOB_RESTING;
        rest_until_due(w, job);
    } else {
        make_ready(w, job);
    }
    dibs__workers_mutex_unlock(&w->mutex);
    if (next == DIBS__JOB_ENDS)
        job->ops->ended(job);
}

/* When the first job will be due; while a thread is beginning jobs, that thread sees to it. */
static int64_t next_due(const struct dibs__workers *w) DIBS__REQUIRES(dibs__workers_mutex)
{
    return w->beginning || !w->resting.first ? DIBS__NEVER : w->resting.first->due;
}

static void take_due(struct dibs__workers *w) DIBS__REQUIRES(dibs__workers_mutex)
{
    int64_t now = w->resting.first ? dibs__now(w->clock) : 0;

    for (struct dibs__heap_node *first; (first = w->resting.first) && first->due <= now;)
        make_ready(w, of_rest(first));
}

/* ------------------------------------------------------------------- the threads */

static void *run(void *arg);

/*
 * Starts another worker, unless one is idle or there are enough. That happens under the mutex, because it happens at
 * most DIBS__WORKERS_MAX times, and where the system starts no thread, again with each job that is slow. False: there
 * is no worker, and none could be started.
 */
static bool start_another(struct dibs__workers *w) DIBS__REQUIRES(dibs__workers_mutex)
{
    bool may = w->idle == 0 && w->count < DIBS__WORKERS_MAX && !w->ending;

    if (may && dibs__thread_start(&w->threads[w->count], run, w))
        w->count++;
    return w->count > 0;
}

bool dibs__workers_add(struct dibs__workers *w, struct dibs__job *job)
{
    dibs__workers_mutex_lock(&w->mutex);
    bool has_thread = w->count > 0 || start_another(w);
    w->jobs += has_thread;
    job->state = DIBS__JOB_RUNNING;
    job->workers = w;
    dibs__wait_event_init(&job->reply);
    job->reply.tell = tell_reply;
    dibs__wait_init(&job->wait, &job->reply);
    job->rest = (struct dibs__heap_node){.rank = 0};
    dibs__workers_mutex_unlock(&w->mutex);
    return has_thread;
}

static void end_beginning(struct dibs__workers *w)
{
    dibs__workers_mutex_lock(&w->mutex);
    w->beginning = false;
    if (w->ready || next_due(w) < DIBS__NEVER)
        wake_one(w);
    dibs__workers_mutex_unlock(&w->mutex);
}

static void finish(struct dibs__workers *w, struct dibs__job *job)
{
    dibs__workers_settle(w, job, job->ops->finish(job));
}

/*
 * The job waits for a worker that finishes it alone. If none has done so when the job is due, the job becomes ready:
 * then it can be finished without waiting.
 */
static void add_slow(struct dibs__workers *w, struct dibs__job *job) DIBS__REQUIRES(dibs__workers_mutex)
{
    if (job->state == DIBS__JOB_POSTED) {
        make_ready(w, job);
        return;
    }
    job->state = DIBS__JOB_IS_SLOW;
    DIBS__LIST_APPEND(w->slow, job, links);
    rest_until_due(w, job);
}

/* NULL: no job is slow. */
static struct dibs__job *take_slow(struct dibs__workers *w) DIBS__REQUIRES(dibs__workers_mutex)
{
    struct dibs__job *job = take_first(&w->slow);

    if (!job)
        return NULL;
    if (dibs__heap_has(&job->rest))
        dibs__heap_remove(&w->resting, &job->rest);
    job->state = DIBS__JOB_RUNNING;
    return job;
}

static void leave_slow(struct dibs__workers *w, struct dibs__job *job)
{
    dibs__workers_mutex_lock(&w->mutex);
    add_slow(w, job);
    if (w->idle > 0)
        pthread_cond_signal(&w->work);
    else
        start_another(w);
    dibs__workers_mutex_unlock(&w->mutex);
}

/* The job rests until its reply comes. False: the job is due, or there is more to do than wait. */
static bool rest_until_reply(struct dibs__workers *w, struct dibs__job *job)
{
    bool rests = dibs__now(w->clock) < job->due && job->ops->await(job, 0, &job->wait) == DIBS__STILL_AWAITED;

    if (rests)
        dibs__workers_settle(w, job, DIBS__JOB_RESTS);
    return rests;
}

/*
 * Until when the replies to requests are awaited that were sent at that time. If each batch of many calls waited for a
 * silent server, the last of these calls would end late.
 */
static int64_t patient_until(const struct dibs__workers *w, int64_t sent)
{
    bool hastes = sent < atomic_load_explicit(&w->haste_until, memory_order_relaxed);

    return hastes ? sent : dibs__after_ms(sent, PATIENT_MS);
}

/* The reply has not come: the job rests until it comes, or becomes slow. sent: when the request was sent. */
static void put_off(struct dibs__workers *w, struct dibs__job *job, int64_t sent)
{
    int64_t now = dibs__now(w->clock);

    if (patient_until(w, sent) > sent && now >= dibs__after_ms(sent, PATIENT_MS)) /* it was awaited all that time */
        atomic_store_explicit(&w->haste_until, dibs__after_ms(now, HASTE_MS), memory_order_relaxed);
    if (!rest_until_reply(w, job))
        leave_slow(w, job);
}

/* Begins the jobs of the batch one by one. `asked` gets those that must be finished, with all sent that can be. */
static void begin_batch(struct dibs__workers *w, struct dibs__job **batch, struct dibs__job **asked)
{
    dibs__store_gather(w->store, true);
    for (struct dibs__job *job; (job = take_first(batch));) {
        dibs__wait_end(&job->wait);
        enum dibs__job_next result = job->ops->begin(job);
        if (result == DIBS__JOB_FINISHES)
            DIBS__LIST_APPEND(*asked, job, links);
        else
            dibs__workers_settle(w, job, result);
    }
    dibs__store_gather(w->store, false);
    end_beginning(w);
}

/* True: the reply has come, or the time of the job is over, so `finish` will not wait. */
static bool await_reply(const struct dibs__workers *w, struct dibs__job *job, int64_t until)
{
    return dibs__now(w->clock) >= job->due ||
           job->ops->await(job, dibs__earlier(until, job->due), NULL) == DIBS__HAS_COME;
}

/* Jobs whose replies do not come soon are put off. */
static void run_batch(struct dibs__workers *w, struct dibs__job **batch)
{
    int64_t sent = dibs__now(w->clock);
    struct dibs__job *asked = NULL;

    begin_batch(w, batch, &asked);
    for (struct dibs__job *job; (job = take_first(&asked));)
        if (await_reply(w, job, patient_until(w, sent)))
            finish(w, job);
        else
            put_off(w, job, sent);
}

/* driven: the jobs that are ready are left to a driving thread. */
static void wait_for_work(struct dibs__workers *w, bool driven) DIBS__REQUIRES(dibs__workers_mutex)
{
    int64_t until = next_due(w);
    bool watches = driven && !w->driver && !w->watched;

    if (driven) /* dibs__workers_end_drive wakes a worker, which then watches */
        until = watches ? w->driven_until : DIBS__NEVER;
    w->watched = w->watched || watches;
    w->idle++;
    w->clock->wait(w->clock, &w->work, &w->mutex, until);
    w->idle--;
    if (watches)
        w->watched = false;
}

/* Takes the jobs that the calling thread must begin. False: none is ready, or another thread is beginning jobs. */
static bool take_ready(struct dibs__workers *w, int most, struct dibs__job **batch) DIBS__REQUIRES(dibs__workers_mutex)
{
    if (w->beginning)
        return false;
    take_due(w);
    if (!w->ready)
        return false;
    w->beginning = true;
    for (struct dibs__job *job; most-- > 0 && (job = take_first(&w->ready));) {
        job->state = DIBS__JOB_RUNNING;
        DIBS__LIST_APPEND(*batch, job, links);
    }
    return true;
}

/*
 * Finishes a slow job, which takes as long as the store does not answer. If a driving thread left the job, and only
 * its reply is awaited, the job rests instead.
 */
static void finish_slow(struct dibs__workers *w, struct dibs__job *slow)
{
    if (rest_until_reply(w, slow))
        return;
    dibs__workers_mutex_lock(&w->mutex);
    start_another(w);
    dibs__workers_mutex_unlock(&w->mutex);
    finish(w, slow);
}

/* What a driving thread began and did not come back for is left to the workers. */
static void take_over(struct dibs__workers *w) DIBS__REQUIRES(dibs__workers_mutex)
{
    for (struct dibs__job *job; (job = take_first(&w->in_flight));)
        add_slow(w, job);
}

static void *run(void *arg)
{
    struct dibs__workers *w = arg;

    dibs__thread_set_name("dibs-worker");
    dibs__workers_mutex_lock(&w->mutex);
    while (!w->ending || w->jobs > 0) {
        bool driven = is_driven(w); /* once in each round: the answer changes as time passes */
        if (!driven)
            take_over(w);
        struct dibs__job *batch = NULL;
        bool begins = !driven && take_ready(w, BATCH, &batch);
        /* One worker is always left for the jobs that are ready, however long the store does not answer. */
        bool may_finish = !begins && w->finishing + 1 < DIBS__WORKERS_MAX;
        struct dibs__job *slow = may_finish ? take_slow(w) : NULL;
        w->finishing += slow != NULL;
        if (!slow && !begins) {
            wait_for_work(w, driven);
            continue;
        }
        if (!begins && w->idle > 0) /* an idle worker runs what becomes ready meanwhile */
            pthread_cond_signal(&w->work);
        dibs__workers_mutex_unlock(&w->mutex);
        if (slow)
            finish_slow(w, slow);
        else
            run_batch(w, &batch);
        dibs__workers_mutex_lock(&w->mutex);
        w->finishing -= slow != NULL;
    }
    dibs__workers_mutex_unlock(&w->mutex);
    return NULL;
}

/* ---------------------------------------------------- a thread that drives */

bool dibs__workers_drive(struct dibs__workers *w, struct dibs__wait_event *wait_event)
{
    dibs__workers_mutex_lock(&w->mutex);
    bool drives = !w->driver && w->count > 0;
    if (drives)
        w->driver = wait_event;
    dibs__workers_mutex_unlock(&w->mutex);
    return drives;
}

void dibs__workers_end_drive(struct dibs__workers *w, const struct dibs__wait_event *wait_event)
{
    dibs__workers_mutex_lock(&w->mutex);
    DIBS__REQUIRE(w->driver == wait_event);
    w->driver = NULL;
    w->driven_until = dibs__after_ms(dibs__now(w->clock), DRIVEN_MS);
    if (!w->watched && w->idle > 0) /* a worker must see whether the thread comes back */
        pthread_cond_signal(&w->work);
    dibs__workers_mutex_unlock(&w->mutex);
}

/* Returns the job that is the first after that. */
static struct dibs__job *take_from_flight(struct dibs__workers *w, struct dibs__job *job)
{
    dibs__workers_mutex_lock(&w->mutex);
    DIBS__LIST_REMOVE(w->in_flight, job, links);
    struct dibs__job *next = w->in_flight;
    dibs__workers_mutex_unlock(&w->mutex);
    return next;
}

/* Waits for the reply of that job, the first in flight, and finishes the jobs whose replies have come with it. */
static void finish_in_flight(struct dibs__workers *w, struct dibs__job *job, int64_t until)
{
    struct dibs__job *next;
    int64_t patient = patient_until(w, job->asked_at); /* those that were begun together share the patience */
    bool cut_short = until < patient, answered = await_reply(w, job, cut_short ? until : patient);
    if (!answered && cut_short && dibs__now(w->clock) >= until) /* the thread has no more time */
        return;
    if (!answered) {
        take_from_flight(w, job);
        put_off(w, job, job->asked_at);
        return;
    }
    do {
        next = take_from_flight(w, job);
        finish(w, job);
        job = next;
    } while (job && await_reply(w, job, 0));
}

bool dibs__workers_run_some(struct dibs__workers *w, int64_t until, int64_t *due)
{
    struct dibs__job *batch = NULL, *asked = NULL;

    dibs__workers_mutex_lock(&w->mutex);
    bool begins = take_ready(w, FEW, &batch);
    *due = next_due(w);
    struct dibs__job *in_flight = w->in_flight;
    dibs__workers_mutex_unlock(&w->mutex);
    if (!begins && in_flight)
        finish_in_flight(w, in_flight, until);
    if (!begins)
        return in_flight != NULL;
    begin_batch(w, &batch, &asked);
    int64_t now = dibs__now(w->clock);
    dibs__workers_mutex_lock(&w->mutex);
    for (struct dibs__job *job; (job = take_first(&asked));) {
        job->asked_at = now;
        DIBS__LIST_APPEND(w->in_flight, job, links);
    }
    dibs__workers_mutex_unlock(&w->mutex);
    return true;
}

void dibs__workers_wake(struct dibs__workers *w)
{
    dibs__workers_mutex_lock(&w->mutex);
    if (w->driver)
        dibs__wait_event_wake(w->driver);
    for (struct dibs__job *job = w->line; job; job = job->line.next)
        post(w, job);
    dibs__workers_mutex_unlock(&w->mutex);
}

/* --------------------------------------------------------------------- lifecycle */

struct dibs__workers *dibs__workers_new(const struct dibs__clock *clock,
                                        struct dibs__store *store) DIBS__UNANALYSED /* nobody else knows it yet */
{
    struct dibs__workers *w = calloc(1, sizeof *w);

    if (!w)
        return NULL;
    w->clock = clock;
    w->store = store;
    if (dibs__mutex_and_cond_init(&w->mutex, &w->work))
        return w;
    free(w);
    return NULL;
}

void dibs__workers_stop(struct dibs__workers *w) DIBS__UNANALYSED /* no thread is started any more */
{
    dibs__workers_mutex_lock(&w->mutex);
    w->ending = true;
    unsigned count = w->count;
    pthread_cond_broadcast(&w->work);
    dibs__workers_mutex_unlock(&w->mutex);
    for (unsigned i = 0; i < count; i++)
        pthread_join(w->threads[i], NULL);
}

void dibs__workers_free(struct dibs__workers *w) DIBS__UNANALYSED /* nobody else is left */
{
    if (!w)
        return;
    pthread_cond_destroy(&w->work);
    dibs__mutex_destroy(&w->mutex);
    free(w);
}
