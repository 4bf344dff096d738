/* Workers: which thread runs a job when, and that no job is forgotten. */
#include "core/workers.h"

#include <dlfcn.h>
#include <stdatomic.h>

#include "support/actor.h"
#include "support/moved_clock.h"
#include "support/test.h"

struct work {
    struct dibs__job job; /* first */
    struct dibs__workers *workers;
    enum dibs__job_next begins, finishes; /* what the job returns */
    bool answered;                        /* what await returns */
    bool in_vain;                         /* finish leaves the line so */
    int64_t awaited_until;                /* of the last await */
    int64_t patience;                     /* in the line; 0: does not stand there */
    atomic_bool stuck;                    /* finish waits until this is false */
    atomic_bool awaits;                   /* await waits while this is true */
    atomic_uint awaited, watched, finishing;
    atomic_uint began, rested, finished, ended;
    struct moved_clock *clock; /* await moves it on until its time is over; NULL: it does not */
    atomic_uint *order;        /* counts the requests of all */
    unsigned place;            /* which of them the last one of this job was */
};

static struct work *of(struct dibs__job *job)
{
    return (struct work *)job;
}

static enum dibs__job_next begin(struct dibs__job *job)
{
    struct work *w = of(job);

    atomic_fetch_add(&w->began, 1);
    if (w->patience > 0)
        job->due = DIBS__NEVER; /* as a call does with each step: when its rest would have ended is over */
    if (w->patience > 0 && dibs__workers_line_up(w->workers, job, w->patience)) {
        atomic_fetch_add(&w->rested, 1);
        return DIBS__JOB_RESTS;
    }
    if (w->order)
        w->place = atomic_fetch_add(w->order, 1);
    return w->begins;
}

static enum dibs__awaited await(struct dibs__job *job, int64_t until, struct dibs__wait *watch)
{
    if (watch)
        return DIBS__NOT_AWAITED;
    of(job)->awaited_until = until;
    atomic_fetch_add(&of(job)->awaited, 1);
    (void)within(LIMIT_MS, !atomic_load(&of(job)->awaits));
    if (of(job)->clock && until > moved_clock_now(of(job)->clock))
        moved_clock_set(of(job)->clock, until);
    return of(job)->answered ? DIBS__HAS_COME : DIBS__STILL_AWAITED;
}

static enum dibs__job_next finish(struct dibs__job *job)
{
    atomic_fetch_add(&of(job)->finishing, 1);
    (void)within(LIMIT_MS, !atomic_load(&of(job)->stuck));
    atomic_fetch_add(&of(job)->finished, 1);
    if (of(job)->in_vain)
        dibs__workers_leave_line(of(job)->workers, job, true);
    return of(job)->finishes;
}

static void ended(struct dibs__job *job)
{
    atomic_fetch_add(&of(job)->ended, 1);
}

static const struct dibs__job_ops ops = {.begin = begin, .await = await, .finish = finish, .ended = ended};

static enum dibs__awaited await_or_watch(struct dibs__job *job, int64_t until, struct dibs__wait *watch)
{
    if (!watch)
        return await(job, until, NULL);
    atomic_fetch_add(&of(job)->watched, 1);
    return DIBS__STILL_AWAITED;
}

static const struct dibs__job_ops watched_ops = {
    .begin = begin, .await = await_or_watch, .finish = finish, .ended = ended};

static void setup_work(struct work *w, struct dibs__workers *workers, enum dibs__job_next begins)
{
    memset(w, 0, sizeof *w);
    w->workers = workers;
    w->job.ops = &ops;
    w->job.due = DIBS__NEVER;
    w->begins = begins;
    w->finishes = DIBS__JOB_ENDS;
    w->answered = true;
    assert_true(dibs__workers_add(workers, &w->job));
}

static void expect_ended(struct work *w)
{
    await_that(atomic_load(&w->ended) > 0);
    assert_int_equal(atomic_load(&w->ended), 1);
}

/* A thread that has begun its batch stands still before it lets others begin jobs; its own may have ended by then. */
static atomic_bool stands_still;

static void gather(struct dibs__store *store, bool on)
{
    if (!on && atomic_load(&stands_still))
        pause_ms(3);
}

static const struct dibs__store_ops store_ops = {.gather = gather};
static struct dibs__store store = {.ops = &store_ops};

static int setup(void **state)
{
    atomic_store(&stands_still, false);
    *state = dibs__workers_new(&dibs__system_clock, &store);
    assert_true(*state != NULL);
    return 0;
}

static int teardown(void **state)
{
    dibs__workers_stop(*state);
    dibs__workers_free(*state);
    return 0;
}

/* Workers by a clock that the test moves. */
static void setup_moved_clock(void **state, struct moved_clock *clock)
{
    teardown(state);
    moved_clock_init(clock);
    *state = dibs__workers_new(&clock->clock, &store);
    assert_non_null(*state);
}

static void teardown_moved_clock(void **state, struct moved_clock *clock)
{
    teardown(state);
    moved_clock_destroy(clock);
    setup(state);
}

TEST(a_job_rests_until_it_is_posted)
{
    struct work w;

    setup_work(&w, *state, DIBS__JOB_ENDS);
    dibs__workers_settle(*state, &w.job, DIBS__JOB_RESTS);
    pause_ms(20);
    assert_int_equal(atomic_load(&w.began), 0);
    dibs__workers_post(*state, &w.job);
    expect_ended(&w);
    assert_int_equal(atomic_load(&w.began), 1);
    dibs__workers_post(*state, &w.job); /* too late: nothing */
    pause_ms(5);
    assert_int_equal(atomic_load(&w.began), 1);
}

TEST(a_job_that_is_posted_while_it_runs_runs_again)
{
    struct work w;

    setup_work(&w, *state, DIBS__JOB_ENDS);
    dibs__workers_post(*state, &w.job);
    dibs__workers_post(*state, &w.job);
    dibs__workers_settle(*state, &w.job, DIBS__JOB_RESTS);
    expect_ended(&w);
    assert_int_equal(atomic_load(&w.began), 1);
}

TEST(jobs_that_are_due_run_whatever_their_order)
{
    enum { JOBS = 200 };
    static struct work w[JOBS];

    for (int i = 0; i < JOBS; i++) {
        setup_work(&w[i], *state, DIBS__JOB_ENDS);
        w[i].job.due = dibs__after_ms(dibs__now(&dibs__system_clock), (i * 37) % 50);
        dibs__workers_settle(*state, &w[i].job, DIBS__JOB_RESTS);
        if (i % 5 == 0)
            dibs__workers_post(*state, &w[i].job);
    }
    for (int i = 0; i < JOBS; i++)
        expect_ended(&w[i]);
}

TEST(jobs_begin_in_the_order_in_which_they_became_ready)
{
    enum { JOBS = 1000 };
    static struct work w[JOBS];
    static atomic_uint order;

    atomic_init(&order, 0);
    for (int i = 0; i < JOBS; i++) {
        setup_work(&w[i], *state, i % 3 ? DIBS__JOB_ENDS : DIBS__JOB_FINISHES);
        w[i].order = &order;
        w[i].answered = i % 6;
        dibs__workers_settle(*state, &w[i].job, DIBS__JOB_GOES_ON);
    }
    for (int i = 0; i < JOBS; i++)
        expect_ended(&w[i]);
    for (unsigned i = 0; i < JOBS; i++)
        assert_int_equal(w[i].place, i);
}

/* However many there are, one worker is left for the others. */
TEST(jobs_that_are_held_up_do_not_hold_up_others)
{
    enum { STUCK = 2 * DIBS__WORKERS_MAX };
    static struct work stuck[STUCK], w;

    for (int i = 0; i < STUCK; i++) {
        setup_work(&stuck[i], *state, DIBS__JOB_FINISHES);
        stuck[i].answered = false;
        atomic_store(&stuck[i].stuck, true);
        dibs__workers_settle(*state, &stuck[i].job, DIBS__JOB_GOES_ON);
        await_that(atomic_load(&stuck[i].began) > 0);
    }
    for (int i = 0; i < 50; i++) {
        setup_work(&w, *state, DIBS__JOB_FINISHES);
        dibs__workers_settle(*state, &w.job, DIBS__JOB_GOES_ON);
        expect_ended(&w);
    }
    for (int i = 0; i < STUCK; i++)
        assert_int_equal(atomic_load(&stuck[i].ended), 0);
    for (int i = 0; i < STUCK; i++) /* the workers are busy with any two of them */
        atomic_store(&stuck[i].stuck, false);
    for (int i = 0; i < STUCK; i++)
        expect_ended(&stuck[i]);
}

/* No thread finishes it before its reply has come. */
TEST(a_job_without_a_reply_takes_no_worker)
{
    enum { JOBS = 2 * DIBS__WORKERS_MAX };
    struct work w[JOBS];

    for (int i = 0; i < JOBS; i++) {
        setup_work(&w[i], *state, DIBS__JOB_FINISHES);
        w[i].job.ops = &watched_ops;
        w[i].answered = false;
        dibs__workers_settle(*state, &w[i].job, DIBS__JOB_GOES_ON);
    }
    for (int i = 0; i < JOBS; i++)
        await_that(atomic_load(&w[i].watched) > 0);
    for (int i = JOBS - 1; i >= 0; i--) {
        assert_int_equal(atomic_load(&w[i].finished), 0);
        w[i].answered = true;
        dibs__workers_post(*state, &w[i].job);
        expect_ended(&w[i]);
    }
}

/* ---------------------------------------------------------- a thread that drives */

TEST(a_thread_that_drives_runs_what_is_ready)
{
    struct dibs__wait_event wait_event;
    struct work w;
    int64_t due;

    dibs__wait_event_init(&wait_event);
    assert_false(dibs__workers_drive(*state, &wait_event)); /* there is no worker that could take over */
    setup_work(&w, *state, DIBS__JOB_ENDS);
    assert_true(dibs__workers_drive(*state, &wait_event));
    struct dibs__wait_event another;
    dibs__wait_event_init(&another);
    assert_false(dibs__workers_drive(*state, &another));
    assert_false(dibs__workers_run_some(*state, DIBS__NEVER, &due));
    assert_true(due == DIBS__NEVER);
    dibs__workers_settle(*state, &w.job, DIBS__JOB_GOES_ON);
    assert_true(dibs__wait_event_is_woken(&wait_event));
    pause_ms(20);
    assert_int_equal(atomic_load(&w.began), 0);
    assert_true(dibs__workers_run_some(*state, DIBS__NEVER, &due));
    assert_int_equal(atomic_load(&w.ended), 1);
    dibs__workers_end_drive(*state, &wait_event);
}

/* As a thread does that drives: while a worker begins jobs there is nothing to do, and its end wakes the thread. */
static void run_some(struct dibs__workers *workers, struct dibs__wait_event *wait_event)
{
    int64_t due, limit = dibs__after_ms(dibs__now(&dibs__system_clock), LIMIT_MS);

    for (;;) {
        dibs__wait_event_reset(wait_event);
        if (dibs__workers_run_some(workers, DIBS__NEVER, &due))
            return;
        assert_that(dibs__now(&dibs__system_clock) < limit, "there is nothing to do");
        dibs__wait_event_wait(wait_event, &dibs__system_clock, due < limit ? due : limit);
    }
}

/* As many jobs as workers may finish at the same time, and none of them ends until it is let go. */
static void setup_stuck(struct work stuck[DIBS__WORKERS_MAX - 1], struct dibs__workers *workers)
{
    for (int i = 0; i < DIBS__WORKERS_MAX - 1; i++) {
        setup_work(&stuck[i], workers, DIBS__JOB_FINISHES);
        stuck[i].answered = false;
        atomic_store(&stuck[i].stuck, true);
        dibs__workers_settle(workers, &stuck[i].job, DIBS__JOB_GOES_ON);
        await_that(atomic_load(&stuck[i].finishing) > 0);
    }
}

/* The thread came to drive before the worker put the job off, and no worker is left to finish it. */
TEST(a_thread_that_drives_sees_to_what_a_worker_puts_off)
{
    struct dibs__wait_event wait_event;
    static struct work stuck[DIBS__WORKERS_MAX - 1], late;
    int64_t due;

    setup_stuck(stuck, *state);
    setup_work(&late, *state, DIBS__JOB_FINISHES);
    late.answered = false;
    atomic_store(&late.awaits, true);
    late.job.due = dibs__after_ms(dibs__now(&dibs__system_clock), 2 * LIMIT_MS);
    dibs__workers_settle(*state, &late.job, DIBS__JOB_GOES_ON);
    await_that(atomic_load(&late.awaited) > 0);
    dibs__wait_event_init(&wait_event);
    assert_true(dibs__workers_drive(*state, &wait_event));
    assert_false(dibs__workers_run_some(*state, DIBS__NEVER, &due));
    assert_true(due == DIBS__NEVER);
    atomic_store(&late.awaits, false);
    await_that(dibs__wait_event_is_woken(&wait_event));
    assert_false(dibs__workers_run_some(*state, DIBS__NEVER, &due));
    assert_true(due == late.job.due);
    dibs__workers_end_drive(*state, &wait_event);
    for (int i = 0; i < DIBS__WORKERS_MAX - 1; i++) {
        atomic_store(&stuck[i].stuck, false);
        expect_ended(&stuck[i]);
    }
    expect_ended(&late);
}

/*
 * A worker came back from a slow job while the thread was driving. When that thread leaves, and never comes back, the
 * workers run the jobs that are ready or due.
 */
TEST(workers_take_over_from_a_thread_that_leaves)
{
    for (int i = 0; i < 20; i++) {
        struct dibs__wait_event wait_event;
        struct work slow, ready, due_later, begun;

        atomic_store(&stands_still, i % 2);
        dibs__wait_event_init(&wait_event);
        setup_work(&slow, *state, DIBS__JOB_FINISHES);
        slow.answered = false;
        assert_true(dibs__workers_drive(*state, &wait_event));
        dibs__workers_settle(*state, &slow.job, DIBS__JOB_GOES_ON);
        run_some(*state, &wait_event); /* begins it, */
        run_some(*state, &wait_event); /* and leaves it to a worker */
        expect_ended(&slow);
        pause_ms(i % 4);
        bool leaves_work = i % 5 == 4;
        if (leaves_work) {
            setup_work(&begun, *state, DIBS__JOB_FINISHES);
            dibs__workers_settle(*state, &begun.job, DIBS__JOB_GOES_ON);
            run_some(*state, &wait_event);
        }
        dibs__workers_end_drive(*state, &wait_event);
        setup_work(&ready, *state, DIBS__JOB_ENDS);
        setup_work(&due_later, *state, DIBS__JOB_ENDS);
        due_later.job.due = dibs__after_ms(dibs__now(&dibs__system_clock), 10);
        dibs__workers_settle(*state, &due_later.job, DIBS__JOB_RESTS);
        dibs__workers_settle(*state, &ready.job, DIBS__JOB_GOES_ON);
        expect_ended(&ready);
        expect_ended(&due_later);
        if (leaves_work)
            expect_ended(&begun);
    }
}

static atomic_int looks; /* so many times the clock is looked at before a second passes; 0: none passes */

static int64_t now_before_a_second_passes(const struct dibs__clock *clock)
{
    struct moved_clock *moved = (struct moved_clock *)clock;
    int64_t now = atomic_load(&moved->time);

    if (atomic_load(&looks) > 0 && atomic_fetch_sub(&looks, 1) == 1)
        atomic_fetch_add(&moved->time, MS(1000));
    return now;
}

/* The time in which the jobs are left to that thread ends while a worker looks for work. */
TEST(a_worker_that_looks_as_its_time_comes_forgets_no_job)
{
    for (int i = 1; i <= 4; i++) {
        struct moved_clock clock;
        struct dibs__wait_event wait_event;
        struct work held_up, ready;

        moved_clock_init(&clock);
        clock.clock.now = now_before_a_second_passes;
        struct dibs__workers *workers = dibs__workers_new(&clock.clock, &store);
        assert_true(workers != NULL);
        dibs__wait_event_init(&wait_event);
        setup_work(&held_up, workers, DIBS__JOB_FINISHES);
        setup_work(&ready, workers, DIBS__JOB_ENDS);
        atomic_store(&held_up.stuck, true);
        dibs__workers_settle(workers, &held_up.job, DIBS__JOB_GOES_ON);
        await_that(atomic_load(&held_up.began) > 0);
        assert_true(dibs__workers_drive(workers, &wait_event));
        dibs__workers_end_drive(workers, &wait_event);
        dibs__workers_settle(workers, &ready.job, DIBS__JOB_GOES_ON);
        atomic_store(&looks, i);
        atomic_store(&held_up.stuck, false);
        moved_clock_await_waiting(&clock, 1);
        atomic_store(&looks, 0);
        moved_clock_advance(&clock, MS(1000));
        expect_ended(&ready);
        expect_ended(&held_up);
        dibs__workers_stop(workers);
        dibs__workers_free(workers);
        moved_clock_destroy(&clock);
    }
}

/* ------------------------------------------------------------------------ the line */

#define PATIENT (LIMIT_MS * INT64_C(1000000))

/* The calling thread adds jobs that stand in the line, and whose requests are answered as soon as they are made. */
static void setup_line(struct work *w, unsigned count, struct dibs__workers *workers, int64_t patience,
                       atomic_uint *order)
{
    atomic_init(order, 0);
    for (unsigned i = 0; i < count; i++) {
        setup_work(&w[i], workers, DIBS__JOB_FINISHES);
        w[i].patience = patience;
        w[i].order = order;
        dibs__workers_line_up(workers, &w[i].job, patience);
    }
}

static void go_on(struct work *w, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        dibs__workers_settle(w[i].workers, &w[i].job, DIBS__JOB_GOES_ON);
}

/* The request of the first can't be made: those behind it rest, others go on. */
TEST(jobs_in_the_line_make_their_requests_one_after_the_other)
{
    enum { JOBS = 6 };
    static struct work w[JOBS];
    struct work others[2 * DIBS__WORKERS_MAX];
    static atomic_uint order;

    setup_line(w, JOBS, *state, PATIENT, &order);
    w[0].answered = false;
    atomic_store(&w[0].stuck, true);
    go_on(w, JOBS);
    for (unsigned i = 0; i < sizeof others / sizeof *others; i++) {
        setup_work(&others[i], *state, i % 2 ? DIBS__JOB_FINISHES : DIBS__JOB_ENDS);
        dibs__workers_settle(*state, &others[i].job, DIBS__JOB_GOES_ON);
        expect_ended(&others[i]);
    }
    assert_int_equal(atomic_load(&order), 1);
    for (int i = 0; i < JOBS; i++)
        assert_int_equal(atomic_load(&w[i].ended), 0);
    atomic_store(&w[0].stuck, false);
    for (unsigned i = 0; i < JOBS; i++) {
        expect_ended(&w[i]);
        assert_int_equal(w[i].place, i);
    }
}

/* Jobs settle in another order than they stand in the line, and some leave it before it is their turn. */
TEST(the_line_keeps_its_order_whoever_leaves)
{
    enum { JOBS = 9 };
    static struct work w[JOBS];
    static atomic_uint order;

    setup_line(w, JOBS, *state, PATIENT, &order);
    for (int i = JOBS - 1; i > 0; i--) {
        if (i % 4 == 0)
            dibs__workers_leave_line(*state, &w[i].job, false);
        dibs__workers_settle(*state, &w[i].job, i % 4 == 0 ? DIBS__JOB_ENDS : DIBS__JOB_GOES_ON);
    }
    pause_ms(10);
    assert_int_equal(atomic_load(&order), 0);
    go_on(w, 1);
    for (unsigned i = 0, place = 0; i < JOBS; i++) {
        expect_ended(&w[i]);
        if (i == 0 || i % 4 != 0)
            assert_int_equal(w[i].place, place++);
    }
}

TEST(nobody_rests_in_the_line_for_longer_than_it_is_patient)
{
    enum { JOBS = 3 };
    static struct work w[JOBS];
    static atomic_uint order;

    setup_line(w, JOBS, *state, 20 * INT64_C(1000000), &order);
    w[0].answered = false;
    atomic_store(&w[0].stuck, true);
    go_on(w, JOBS);
    for (int i = 1; i < JOBS; i++)
        expect_ended(&w[i]);
    assert_int_equal(atomic_load(&w[0].ended), 0);
    atomic_store(&w[0].stuck, false);
    expect_ended(&w[0]);
}

/* Its patience ends only once all of them rest in it. */
TEST(the_line_keeps_its_order_when_its_patience_ends)
{
    enum { JOBS = 12 };
    static struct moved_clock clock;
    static struct work w[JOBS];
    static atomic_uint order;

    setup_moved_clock(state, &clock);
    setup_line(w, JOBS, *state, MS(50), &order);
    w[0].answered = false;
    atomic_store(&w[0].stuck, true);
    go_on(w, JOBS);
    for (unsigned i = 1; i < JOBS; i++)
        await_that(atomic_load(&w[i].rested) > 0);
    moved_clock_advance(&clock, MS(50) + JOBS);
    for (unsigned i = 1; i < JOBS; i++)
        expect_ended(&w[i]);
    atomic_store(&w[0].stuck, false);
    expect_ended(&w[0]);
    for (unsigned i = 1; i < JOBS; i++)
        assert_int_equal(w[i].place, i);
    teardown_moved_clock(state, &clock);
}

/* As where so many rest in it that some have not run yet when the first leaves. */
TEST(the_patience_of_the_line_ends_for_all_who_are_in_it)
{
    enum { JOBS = 4 };
    static struct moved_clock clock;
    static struct work w[JOBS];
    static atomic_uint order;

    setup_moved_clock(state, &clock);
    setup_line(w, JOBS, *state, MS(50), &order);
    for (unsigned i = 0; i < JOBS; i += 2) {
        w[i].answered = false;
        atomic_store(&w[i].stuck, true);
    }
    w[0].in_vain = true;
    go_on(w, JOBS);
    for (unsigned i = 1; i < JOBS; i++)
        await_that(atomic_load(&w[i].rested) > 0);
    moved_clock_advance(&clock, MS(50) + 1); /* only the second is due */
    expect_ended(&w[1]);
    atomic_store(&w[0].stuck, false);
    expect_ended(&w[0]);
    await_that(atomic_load(&w[2].began) > 1); /* the first by now */
    moved_clock_advance(&clock, JOBS);
    await_that(atomic_load(&w[3].ended) > 0 || atomic_load(&w[3].rested) > 1);
    atomic_store(&w[2].stuck, false);
    expect_ended(&w[2]);
    expect_ended(&w[3]);
    teardown_moved_clock(state, &clock);
    assert_int_equal(w[3].rested, 1);
}

TEST(who_rests_in_the_line_is_woken_with_the_driver)
{
    static struct work w[2];
    static atomic_uint order;

    setup_line(w, 2, *state, PATIENT, &order);
    w[0].answered = false;
    atomic_store(&w[0].stuck, true);
    go_on(w, 2);
    await_that(atomic_load(&w[1].began) > 0);
    dibs__workers_wake(*state);
    await_that(atomic_load(&w[1].began) > 1);
    atomic_store(&w[0].stuck, false);
    expect_ended(&w[0]);
    expect_ended(&w[1]);
}

/* A request that can't be made does not keep a thread that drives from the rest. */
TEST(a_driving_thread_does_not_wait_for_the_first_of_the_line)
{
    static struct work w[2];
    struct dibs__wait_event wait_event;
    struct work later;
    static atomic_uint order;

    dibs__wait_event_init(&wait_event);
    setup_line(w, 2, *state, PATIENT, &order);
    w[0].answered = false;
    atomic_store(&w[0].stuck, true);
    assert_true(dibs__workers_drive(*state, &wait_event));
    go_on(w, 2);
    setup_work(&later, *state, DIBS__JOB_ENDS);
    dibs__workers_settle(*state, &later.job, DIBS__JOB_GOES_ON);
    run_some(*state, &wait_event);
    assert_int_equal(atomic_load(&later.ended), 1);
    run_some(*state, &wait_event); /* leaves the first to a worker */
    assert_int_equal(atomic_load(&order), 1);
    atomic_store(&w[0].stuck, false);
    run_some(*state, &wait_event); /* begins the second, */
    run_some(*state, &wait_event); /* and finishes it */
    expect_ended(&w[0]);
    expect_ended(&w[1]);
    dibs__workers_end_drive(*state, &wait_event);
}

/* No answer to the job ever comes. */
static void setup_silent(struct work *w, struct dibs__workers *workers)
{
    setup_work(w, workers, DIBS__JOB_FINISHES);
    w->answered = false;
}

/* Else each of many calls to a silent server would hold up the answered one behind them for as long. */
TEST(jobs_that_were_begun_together_share_the_patience)
{
    struct dibs__wait_event wait_event;
    static struct work w[2];

    dibs__wait_event_init(&wait_event);
    for (int i = 0; i < 2; i++)
        setup_silent(&w[i], *state);
    assert_true(dibs__workers_drive(*state, &wait_event));
    for (int i = 0; i < 2; i++)
        dibs__workers_settle(*state, &w[i].job, DIBS__JOB_GOES_ON);
    for (int i = 0; i < 3; i++) /* begins both, and leaves one after the other to a worker */
        run_some(*state, &wait_event);
    dibs__workers_end_drive(*state, &wait_event);
    expect_ended(&w[0]);
    expect_ended(&w[1]);
    assert_true(w[0].awaited_until > 0 && w[1].awaited_until <= w[0].awaited_until);
}

/* Else each batch of many calls to a silent server would wait, and the last of them would end late. */
TEST(after_a_reply_that_did_not_come_none_is_awaited_for_a_while)
{
    enum { IN_VAIN, AT_ONCE, PATIENT_AGAIN, JOBS };
    static struct moved_clock clock;
    struct dibs__wait_event wait_event;
    static struct work w[JOBS];

    setup_moved_clock(state, &clock);
    dibs__wait_event_init(&wait_event);
    for (int i = 0; i < JOBS; i++) {
        setup_silent(&w[i], *state);
        w[i].clock = &clock;
    }
    assert_true(dibs__workers_drive(*state, &wait_event));
    for (int i = 0; i < JOBS; i++) {
        int64_t sent = moved_clock_now(&clock);
        dibs__workers_settle(*state, &w[i].job, DIBS__JOB_GOES_ON);
        run_some(*state, &wait_event); /* begins it, */
        run_some(*state, &wait_event); /* and puts it off */
        assert_true((w[i].awaited_until > sent) == (i != AT_ONCE));
        moved_clock_advance(&clock, i == IN_VAIN ? MS(49) : MS(1));
    }
    dibs__workers_end_drive(*state, &wait_event);
    moved_clock_advance(&clock, MS(1000));
    for (int i = 0; i < JOBS; i++)
        expect_ended(&w[i]);
    teardown_moved_clock(state, &clock);
}

/* Else each of many calls whose time is over would hold up those behind it. */
TEST(the_reply_of_a_job_that_is_due_is_not_awaited)
{
    struct dibs__wait_event wait_event;
    static struct work w[2];

    dibs__wait_event_init(&wait_event);
    for (int i = 0; i < 2; i++) {
        setup_silent(&w[i], *state);
        w[i].job.due = dibs__now(&dibs__system_clock);
    }
    dibs__workers_settle(*state, &w[0].job, DIBS__JOB_GOES_ON); /* for a worker */
    expect_ended(&w[0]);
    assert_true(dibs__workers_drive(*state, &wait_event));
    dibs__workers_settle(*state, &w[1].job, DIBS__JOB_GOES_ON);
    run_some(*state, &wait_event); /* begins it, */
    run_some(*state, &wait_event); /* and finishes it */
    dibs__workers_end_drive(*state, &wait_event);
    expect_ended(&w[1]);
    for (int i = 0; i < 2; i++)
        assert_true(w[i].awaited_until == 0);
}

static void expect_ended_beside(struct work *late, struct work *stuck, size_t count)
{
    expect_ended(late);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(atomic_load(&stuck[i].ended), 0);
        atomic_store(&stuck[i].stuck, false);
    }
    for (size_t i = 0; i < count; i++)
        expect_ended(&stuck[i]);
}

/* A worker may end the job as well. */
static void drive_until_ended(struct dibs__workers *workers, struct dibs__wait_event *wait_event, struct work *w)
{
    while (atomic_load(&w->ended) == 0) {
        int64_t due, soon = dibs__after_ms(dibs__now(&dibs__system_clock), 10);
        dibs__wait_event_reset(wait_event);
        if (!dibs__workers_run_some(workers, DIBS__NEVER, &due))
            dibs__wait_event_wait(wait_event, &dibs__system_clock, due < soon ? due : soon);
    }
}

/* By the worker that is left for what is ready, or by a thread that drives. */
TEST(a_slow_job_ends_when_it_is_due_though_the_workers_are_held_up)
{
    for (int drives = 0; drives < 2; drives++) {
        static struct work stuck[DIBS__WORKERS_MAX];
        static struct work late;
        struct dibs__wait_event wait_event;

        dibs__wait_event_init(&wait_event);
        for (int i = 0; i < DIBS__WORKERS_MAX; i++) {
            setup_work(&stuck[i], *state, DIBS__JOB_FINISHES);
            stuck[i].answered = false;
            atomic_store(&stuck[i].stuck, true);
        }
        go_on(stuck, DIBS__WORKERS_MAX);
        setup_work(&late, *state, DIBS__JOB_FINISHES);
        late.answered = false;
        late.job.due = dibs__after_ms(dibs__now(&dibs__system_clock), 50);
        dibs__workers_settle(*state, &late.job, DIBS__JOB_GOES_ON);
        pause_ms(20); /* by now it is slow, as a rule */
        if (drives && dibs__workers_drive(*state, &wait_event)) {
            drive_until_ended(*state, &wait_event, &late);
            dibs__workers_end_drive(*state, &wait_event);
        }
        expect_ended_beside(&late, stuck, DIBS__WORKERS_MAX);
    }
}

/* ------------------------------------------------------------------- many threads */

enum { ADDERS = 4, EACH = 300 };

struct adder {
    struct dibs__workers *workers;
    struct work *work;
};

static void add_many(void *arg)
{
    struct adder *a = arg;

    for (int i = 0; i < EACH; i++) {
        struct work *w = &a->work[i];
        memset(w, 0, sizeof *w);
        w->job.ops = &ops;
        w->job.due = i % 3 ? DIBS__NEVER : dibs__after_ms(dibs__now(&dibs__system_clock), i % 7);
        w->begins = i % 2 ? DIBS__JOB_ENDS : DIBS__JOB_FINISHES;
        w->finishes = DIBS__JOB_ENDS;
        w->answered = i % 8;
        if (!dibs__workers_add(a->workers, &w->job))
            abort();
        dibs__workers_settle(a->workers, &w->job, i % 2 ? DIBS__JOB_RESTS : DIBS__JOB_GOES_ON);
        dibs__workers_post(a->workers, &w->job);
    }
}

static void drive_for_a_while(void *arg)
{
    struct dibs__workers *workers = arg;
    int64_t until = now_ms() + 200;

    while (now_ms() < until) {
        struct dibs__wait_event wait_event;
        int64_t due;
        dibs__wait_event_init(&wait_event);
        if (!dibs__workers_drive(workers, &wait_event))
            continue;
        for (int i = 0; i < 10; i++)
            if (!dibs__workers_run_some(workers, DIBS__NEVER, &due))
                dibs__wait_event_wait(&wait_event, &dibs__system_clock,
                                      dibs__after_ms(dibs__now(&dibs__system_clock), 1));
        dibs__workers_end_drive(workers, &wait_event);
    }
}

/* Several threads may also post the very first jobs at once. */
TEST(each_job_of_many_threads_ends_once)
{
    struct adder adders[ADDERS];
    actor *actors[ADDERS], *drivers[2];

    for (int i = 0; i < ADDERS; i++) {
        adders[i] = (struct adder){*state, calloc(EACH, sizeof(struct work))};
        assert_true(adders[i].work != NULL);
        actors[i] = actor_start();
    }
    for (int i = 0; i < 2; i++) {
        drivers[i] = actor_start();
        actor_begin(drivers[i], drive_for_a_while, *state);
    }
    for (int i = 0; i < ADDERS; i++)
        actor_begin(actors[i], add_many, &adders[i]);
    for (int i = 0; i < ADDERS; i++)
        actor_finish(actors[i]);
    for (int i = 0; i < 2; i++)
        actor_finish(drivers[i]);
    for (int i = 0; i < ADDERS; i++)
        for (int k = 0; k < EACH; k++)
            expect_ended(&adders[i].work[k]);
    for (int i = 0; i < ADDERS; i++) {
        actor_end(actors[i]);
        free(adders[i].work);
    }
    for (int i = 0; i < 2; i++)
        actor_end(drivers[i]);
}

/* Where a sanitizer stands in front of pthread_create it stays there: ThreadSanitizer tells of a thread that is not
 * joined. */
#if defined(__GLIBC__) && !defined(TEST_UNDER_ASAN) && !defined(TEST_UNDER_TSAN)

static atomic_bool starts_late; /* both the starter of a thread and that thread are slow */
static atomic_int late;         /* threads that were started so, and have not ended */

struct start {
    void *(*run)(void *arg);
    void *arg;
};

static void *run_late(void *arg)
{
    struct start start = *(struct start *)arg;

    free(arg);
    pause_ms(100);
    void *result = start.run(start.arg);
    atomic_fetch_sub(&late, 1);
    return result;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
    static __typeof__(pthread_create) *real;
    struct start *start;

    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    if (!atomic_load(&starts_late) || !(start = malloc(sizeof *start)))
        return real(thread, attr, run, arg);
    *start = (struct start){run, arg};
    atomic_fetch_add(&late, 1);
    int error = real(thread, attr, run_late, start);
    pause_ms(50);
    return error;
}

TEST_WITH(the_end_comes_after_a_thread_that_is_being_started, NULL, NULL, void *none)
{
    struct dibs__workers *workers = dibs__workers_new(&dibs__system_clock, &store);
    struct work slow;

    setup_work(&slow, workers, DIBS__JOB_FINISHES); /* starts the first thread, which leaves the job to a second one */
    slow.answered = false;
    atomic_store(&starts_late, true);
    dibs__workers_settle(workers, &slow.job, DIBS__JOB_GOES_ON);
    await_that(atomic_load(&late) > 0);
    dibs__workers_stop(workers);
    assert_int_equal(atomic_load(&late), 0);
    atomic_store(&starts_late, false);
    dibs__workers_free(workers);
}
#endif

TESTS(setup, teardown)
