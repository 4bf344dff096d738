/* Workers: which thread runs a job when, and that no job is forgotten. */
#include "core/workers.h"

#include <dlfcn.h>
#include <stdatomic.h>

#include "support/actor.h"
#include "support/moved_clock.h"
#include "support/test.h"

struct work {
    struct dibs__job job;                 /* first */
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
    bool counted;              /* its requests are counted in `order` */
    unsigned place;            /* which of them the last one was */
};

static struct dibs__workers *workers;      /* Each test has its own, */
static struct dibs__wait_event wait_event; /* for the thread that drives, */
static struct moved_clock moved;           /* their clock, where the test moves it, */
static atomic_uint order;                  /* and none of the requests that are counted here. */

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
    if (w->patience > 0 && dibs__workers_line_up(workers, job, w->patience)) {
        atomic_fetch_add(&w->rested, 1);
        return DIBS__JOB_RESTS;
    }
    if (w->counted)
        w->place = atomic_fetch_add(&order, 1);
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
        dibs__workers_leave_line(workers, job, true);
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

static void setup_work(struct work *w, enum dibs__job_next begins)
{
    memset(w, 0, sizeof *w);
    w->job.ops = &ops;
    w->job.due = DIBS__NEVER;
    w->begins = begins;
    w->finishes = DIBS__JOB_ENDS;
    w->answered = true;
    assert_true(dibs__workers_add(workers, &w->job));
}

/* No answer to the job ever comes. */
static void setup_silent(struct work *w)
{
    setup_work(w, DIBS__JOB_FINISHES);
    w->answered = false;
}

/* Nor does it end until it is let go. */
static void hold_up(struct work *w)
{
    w->answered = false;
    atomic_store(&w->stuck, true);
}

static void go_on(struct work *w, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        dibs__workers_settle(workers, &w[i].job, DIBS__JOB_GOES_ON);
}

static void setup_stuck(struct work *w)
{
    setup_work(w, DIBS__JOB_FINISHES);
    hold_up(w);
    go_on(w, 1);
}

static void expect_ended(struct work *w)
{
    await_that(atomic_load(&w->ended) > 0);
    assert_int_equal(atomic_load(&w->ended), 1);
}

static void let_go(struct work *w)
{
    atomic_store(&w->stuck, false);
    expect_ended(w);
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

static int setup_by(const struct dibs__clock *by)
{
    atomic_store(&stands_still, false);
    atomic_store(&order, 0);
    dibs__wait_event_init(&wait_event);
    workers = dibs__workers_new(by, &store);
    assert_non_null(workers);
    return 0;
}

static int setup(void **state)
{
    return setup_by(&dibs__system_clock);
}

static int setup_moved_clock(void **state)
{
    moved_clock_init(&moved);
    return setup_by(&moved.clock);
}

static int teardown(void **state)
{
    dibs__workers_stop(workers);
    dibs__workers_free(workers);
    return 0;
}

static int teardown_moved_clock(void **state)
{
    teardown(state);
    moved_clock_destroy(&moved);
    return 0;
}

TEST(a_job_rests_until_it_is_posted)
{
    struct work w;

    setup_work(&w, DIBS__JOB_ENDS);
    dibs__workers_settle(workers, &w.job, DIBS__JOB_RESTS);
    pause_ms(20);
    assert_int_equal(atomic_load(&w.began), 0);
    dibs__workers_post(workers, &w.job);
    expect_ended(&w);
    assert_int_equal(atomic_load(&w.began), 1);
    dibs__workers_post(workers, &w.job); /* too late: nothing */
    pause_ms(5);
    assert_int_equal(atomic_load(&w.began), 1);
}

TEST(a_job_that_is_posted_while_it_runs_runs_again)
{
    struct work w;

    setup_work(&w, DIBS__JOB_ENDS);
    dibs__workers_post(workers, &w.job);
    dibs__workers_post(workers, &w.job);
    dibs__workers_settle(workers, &w.job, DIBS__JOB_RESTS);
    expect_ended(&w);
    assert_int_equal(atomic_load(&w.began), 1);
}

TEST(jobs_that_are_due_run_whatever_their_order)
{
    enum { JOBS = 200 };
    static struct work w[JOBS];

    for (int i = 0; i < JOBS; i++) {
        setup_work(&w[i], DIBS__JOB_ENDS);
        w[i].job.due = dibs__after_ms(dibs__now(&dibs__system_clock), (i * 37) % 50);
        dibs__workers_settle(workers, &w[i].job, DIBS__JOB_RESTS);
        if (i % 5 == 0)
            dibs__workers_post(workers, &w[i].job);
    }
    for (int i = 0; i < JOBS; i++)
        expect_ended(&w[i]);
}

TEST(jobs_begin_in_the_order_in_which_they_became_ready)
{
    enum { JOBS = 1000 };
    static struct work w[JOBS];

    for (int i = 0; i < JOBS; i++) {
        setup_work(&w[i], i % 3 ? DIBS__JOB_ENDS : DIBS__JOB_FINISHES);
        w[i].counted = true;
        w[i].answered = i % 6;
        dibs__workers_settle(workers, &w[i].job, DIBS__JOB_GOES_ON);
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
        setup_stuck(&stuck[i]);
        await_that(atomic_load(&stuck[i].began) > 0);
    }
    for (int i = 0; i < 50; i++) {
        setup_work(&w, DIBS__JOB_FINISHES);
        dibs__workers_settle(workers, &w.job, DIBS__JOB_GOES_ON);
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
        setup_silent(&w[i]);
        w[i].job.ops = &watched_ops;
    }
    go_on(w, JOBS);
    for (int i = 0; i < JOBS; i++)
        await_that(atomic_load(&w[i].watched) > 0);
    for (int i = JOBS - 1; i >= 0; i--) {
        assert_int_equal(atomic_load(&w[i].finished), 0);
        w[i].answered = true;
        dibs__workers_post(workers, &w[i].job);
        expect_ended(&w[i]);
    }
}

/* ---------------------------------------------------------- a thread that drives */

TEST(a_thread_that_drives_runs_what_is_ready)
{
    struct work w;
    int64_t due;

    assert_false(dibs__workers_drive(workers, &wait_event)); /* there is no worker that could take over */
    setup_work(&w, DIBS__JOB_ENDS);
    assert_true(dibs__workers_drive(workers, &wait_event));
    struct dibs__wait_event another;
    dibs__wait_event_init(&another);
    assert_false(dibs__workers_drive(workers, &another));
    assert_false(dibs__workers_run_some(workers, DIBS__NEVER, &due));
    assert_true(due == DIBS__NEVER);
    dibs__workers_settle(workers, &w.job, DIBS__JOB_GOES_ON);
    assert_true(dibs__wait_event_is_woken(&wait_event));
    pause_ms(20);
    assert_int_equal(atomic_load(&w.began), 0);
    assert_true(dibs__workers_run_some(workers, DIBS__NEVER, &due));
    assert_int_equal(atomic_load(&w.ended), 1);
    dibs__workers_end_drive(workers, &wait_event);
}

/* As a thread does that drives: while a worker begins jobs there is nothing to do, and its end wakes the thread. */
static void run_some(void)
{
    int64_t due, limit = dibs__after_ms(dibs__now(&dibs__system_clock), LIMIT_MS);

    for (;;) {
        dibs__wait_event_reset(&wait_event);
        if (dibs__workers_run_some(workers, DIBS__NEVER, &due))
            return;
        assert_that(dibs__now(&dibs__system_clock) < limit, "there is nothing to do");
        dibs__wait_event_wait(&wait_event, &dibs__system_clock, due < limit ? due : limit);
    }
}

/* The thread came to drive before the worker put the job off, and no worker is left to finish it. */
TEST(a_thread_that_drives_sees_to_what_a_worker_puts_off)
{
    static struct work stuck[DIBS__WORKERS_MAX - 1], late; /* as many as workers may finish at the same time */
    int64_t due;

    for (int i = 0; i < DIBS__WORKERS_MAX - 1; i++) {
        setup_stuck(&stuck[i]);
        await_that(atomic_load(&stuck[i].finishing) > 0);
    }
    setup_silent(&late);
    atomic_store(&late.awaits, true);
    late.job.due = dibs__after_ms(dibs__now(&dibs__system_clock), 2 * LIMIT_MS);
    go_on(&late, 1);
    await_that(atomic_load(&late.awaited) > 0);
    assert_true(dibs__workers_drive(workers, &wait_event));
    assert_false(dibs__workers_run_some(workers, DIBS__NEVER, &due));
    assert_true(due == DIBS__NEVER);
    atomic_store(&late.awaits, false);
    await_that(dibs__wait_event_is_woken(&wait_event));
    assert_false(dibs__workers_run_some(workers, DIBS__NEVER, &due));
    assert_true(due == late.job.due);
    dibs__workers_end_drive(workers, &wait_event);
    for (int i = 0; i < DIBS__WORKERS_MAX - 1; i++)
        let_go(&stuck[i]);
    expect_ended(&late);
}

/*
 * A worker came back from a slow job while the thread was driving. When that thread leaves, and never comes back, the
 * workers run the jobs that are ready or due.
 */
TEST(workers_take_over_from_a_thread_that_leaves)
{
    for (int i = 0; i < 20; i++) {
        struct work slow, ready, due_later, begun;

        atomic_store(&stands_still, i % 2);
        setup_silent(&slow);
        assert_true(dibs__workers_drive(workers, &wait_event));
        dibs__workers_settle(workers, &slow.job, DIBS__JOB_GOES_ON);
        run_some(); /* begins it, */
        run_some(); /* and leaves it to a worker */
        expect_ended(&slow);
        pause_ms(i % 4);
        bool leaves_work = i % 5 == 4;
        if (leaves_work) {
            setup_work(&begun, DIBS__JOB_FINISHES);
            dibs__workers_settle(workers, &begun.job, DIBS__JOB_GOES_ON);
            run_some();
        }
        dibs__workers_end_drive(workers, &wait_event);
        setup_work(&ready, DIBS__JOB_ENDS);
        setup_work(&due_later, DIBS__JOB_ENDS);
        due_later.job.due = dibs__after_ms(dibs__now(&dibs__system_clock), 10);
        dibs__workers_settle(workers, &due_later.job, DIBS__JOB_RESTS);
        dibs__workers_settle(workers, &ready.job, DIBS__JOB_GOES_ON);
        expect_ended(&ready);
        expect_ended(&due_later);
        if (leaves_work)
            expect_ended(&begun);
    }
}

static atomic_int looks; /* so many times the clock is looked at before a second passes; 0: none passes */

static int64_t now_before_a_second_passes(const struct dibs__clock *clock)
{
    int64_t now = atomic_load(&moved.time);

    if (atomic_load(&looks) > 0 && atomic_fetch_sub(&looks, 1) == 1)
        atomic_fetch_add(&moved.time, MS(1000));
    return now;
}

/* The time in which the jobs are left to that thread ends while a worker looks for work. */
TEST_WITH(a_worker_that_looks_as_its_time_comes_forgets_no_job, NULL, NULL, void *none)
{
    for (int i = 1; i <= 4; i++) {
        struct work held_up, ready;

        moved_clock_init(&moved);
        moved.clock.now = now_before_a_second_passes;
        setup_by(&moved.clock);
        setup_work(&held_up, DIBS__JOB_FINISHES);
        setup_work(&ready, DIBS__JOB_ENDS);
        atomic_store(&held_up.stuck, true);
        dibs__workers_settle(workers, &held_up.job, DIBS__JOB_GOES_ON);
        await_that(atomic_load(&held_up.began) > 0);
        assert_true(dibs__workers_drive(workers, &wait_event));
        dibs__workers_end_drive(workers, &wait_event);
        dibs__workers_settle(workers, &ready.job, DIBS__JOB_GOES_ON);
        atomic_store(&looks, i);
        atomic_store(&held_up.stuck, false);
        moved_clock_await_waiting(&moved, 1);
        atomic_store(&looks, 0);
        moved_clock_advance(&moved, MS(1000));
        expect_ended(&ready);
        expect_ended(&held_up);
        teardown_moved_clock(NULL);
    }
}

/* ------------------------------------------------------------------------ the line */

#define PATIENT (LIMIT_MS * INT64_C(1000000))

/* The calling thread adds jobs that stand in the line, and whose requests are answered as soon as they are made. */
static void setup_line(struct work *w, unsigned count, int64_t patience)
{
    for (unsigned i = 0; i < count; i++) {
        setup_work(&w[i], DIBS__JOB_FINISHES);
        w[i].patience = patience;
        w[i].counted = true;
        dibs__workers_line_up(workers, &w[i].job, patience);
    }
}

/* The request of the first can't be made: those behind it rest, others go on. */
TEST(jobs_in_the_line_make_their_requests_one_after_the_other)
{
    enum { JOBS = 6 };
    static struct work w[JOBS];
    struct work others[2 * DIBS__WORKERS_MAX];

    setup_line(w, JOBS, PATIENT);
    hold_up(&w[0]);
    go_on(w, JOBS);
    for (unsigned i = 0; i < sizeof others / sizeof *others; i++) {
        setup_work(&others[i], i % 2 ? DIBS__JOB_FINISHES : DIBS__JOB_ENDS);
        dibs__workers_settle(workers, &others[i].job, DIBS__JOB_GOES_ON);
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

    setup_line(w, JOBS, PATIENT);
    for (int i = JOBS - 1; i > 0; i--) {
        if (i % 4 == 0)
            dibs__workers_leave_line(workers, &w[i].job, false);
        dibs__workers_settle(workers, &w[i].job, i % 4 == 0 ? DIBS__JOB_ENDS : DIBS__JOB_GOES_ON);
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

    setup_line(w, JOBS, 20 * INT64_C(1000000));
    hold_up(&w[0]);
    go_on(w, JOBS);
    for (int i = 1; i < JOBS; i++)
        expect_ended(&w[i]);
    assert_int_equal(atomic_load(&w[0].ended), 0);
    let_go(&w[0]);
}

/* Its patience ends only once all of them rest in it. */
TEST_WITH(the_line_keeps_its_order_when_its_patience_ends, setup_moved_clock, teardown_moved_clock, void *none)
{
    enum { JOBS = 12 };
    static struct work w[JOBS];

    setup_line(w, JOBS, MS(50));
    hold_up(&w[0]);
    go_on(w, JOBS);
    for (unsigned i = 1; i < JOBS; i++)
        await_that(atomic_load(&w[i].rested) > 0);
    moved_clock_advance(&moved, MS(50) + JOBS);
    for (unsigned i = 1; i < JOBS; i++)
        expect_ended(&w[i]);
    let_go(&w[0]);
    for (unsigned i = 1; i < JOBS; i++)
        assert_int_equal(w[i].place, i);
}

/* As where so many rest in it that some have not run yet when the first leaves. */
TEST_WITH(the_patience_of_the_line_ends_for_all_who_are_in_it, setup_moved_clock, teardown_moved_clock, void *none)
{
    enum { JOBS = 4 };
    static struct work w[JOBS];

    setup_line(w, JOBS, MS(50));
    for (unsigned i = 0; i < JOBS; i += 2) {
        hold_up(&w[i]);
    }
    w[0].in_vain = true;
    go_on(w, JOBS);
    for (unsigned i = 1; i < JOBS; i++)
        await_that(atomic_load(&w[i].rested) > 0);
    moved_clock_advance(&moved, MS(50) + 1); /* only the second is due */
    expect_ended(&w[1]);
    let_go(&w[0]);
    await_that(atomic_load(&w[2].began) > 1); /* the first by now */
    moved_clock_advance(&moved, JOBS);
    await_that(atomic_load(&w[3].ended) > 0 || atomic_load(&w[3].rested) > 1);
    let_go(&w[2]);
    expect_ended(&w[3]);
    assert_int_equal(w[3].rested, 1);
}

TEST(who_rests_in_the_line_is_woken_with_the_driver)
{
    static struct work w[2];

    setup_line(w, 2, PATIENT);
    hold_up(&w[0]);
    go_on(w, 2);
    await_that(atomic_load(&w[1].began) > 0);
    dibs__workers_wake(workers);
    await_that(atomic_load(&w[1].began) > 1);
    let_go(&w[0]);
    expect_ended(&w[1]);
}

/* A request that can't be made does not keep a thread that drives from the rest. */
TEST(a_driving_thread_does_not_wait_for_the_first_of_the_line)
{
    static struct work w[2];
    struct work later;

    setup_line(w, 2, PATIENT);
    hold_up(&w[0]);
    assert_true(dibs__workers_drive(workers, &wait_event));
    go_on(w, 2);
    setup_work(&later, DIBS__JOB_ENDS);
    dibs__workers_settle(workers, &later.job, DIBS__JOB_GOES_ON);
    run_some();
    assert_int_equal(atomic_load(&later.ended), 1);
    run_some(); /* leaves the first to a worker */
    assert_int_equal(atomic_load(&order), 1);
    atomic_store(&w[0].stuck, false);
    run_some(); /* begins the second, */
    run_some(); /* and finishes it */
    expect_ended(&w[0]);
    expect_ended(&w[1]);
    dibs__workers_end_drive(workers, &wait_event);
}

/* Else each of many calls to a silent server would hold up the answered one behind them for as long. */
TEST(jobs_that_were_begun_together_share_the_patience)
{
    static struct work w[2];

    for (int i = 0; i < 2; i++)
        setup_silent(&w[i]);
    assert_true(dibs__workers_drive(workers, &wait_event));
    for (int i = 0; i < 2; i++)
        dibs__workers_settle(workers, &w[i].job, DIBS__JOB_GOES_ON);
    for (int i = 0; i < 3; i++) /* begins both, and leaves one after the other to a worker */
        run_some();
    dibs__workers_end_drive(workers, &wait_event);
    expect_ended(&w[0]);
    expect_ended(&w[1]);
    assert_true(w[0].awaited_until > 0 && w[1].awaited_until <= w[0].awaited_until);
}

/* Else each batch of many calls to a silent server would wait, and the last of them would end late. */
TEST_WITH(after_a_reply_that_did_not_come_none_is_awaited_for_a_while, setup_moved_clock, teardown_moved_clock,
          void *none)
{
    enum { IN_VAIN, AT_ONCE, PATIENT_AGAIN, JOBS };
    static struct work w[JOBS];

    for (int i = 0; i < JOBS; i++) {
        setup_silent(&w[i]);
        w[i].clock = &moved;
    }
    assert_true(dibs__workers_drive(workers, &wait_event));
    for (int i = 0; i < JOBS; i++) {
        int64_t sent = moved_clock_now(&moved);
        dibs__workers_settle(workers, &w[i].job, DIBS__JOB_GOES_ON);
        run_some(); /* begins it, */
        run_some(); /* and puts it off */
        assert_true((w[i].awaited_until > sent) == (i != AT_ONCE));
        moved_clock_advance(&moved, i == IN_VAIN ? MS(49) : MS(1));
    }
    dibs__workers_end_drive(workers, &wait_event);
    moved_clock_advance(&moved, MS(1000));
    for (int i = 0; i < JOBS; i++)
        expect_ended(&w[i]);
}

/* Else each of many calls whose time is over would hold up those behind it. */
TEST(the_reply_of_a_job_that_is_due_is_not_awaited)
{
    static struct work w[2];

    for (int i = 0; i < 2; i++) {
        setup_silent(&w[i]);
        w[i].job.due = dibs__now(&dibs__system_clock);
    }
    dibs__workers_settle(workers, &w[0].job, DIBS__JOB_GOES_ON); /* for a worker */
    expect_ended(&w[0]);
    assert_true(dibs__workers_drive(workers, &wait_event));
    dibs__workers_settle(workers, &w[1].job, DIBS__JOB_GOES_ON);
    run_some(); /* begins it, */
    run_some(); /* and finishes it */
    dibs__workers_end_drive(workers, &wait_event);
    expect_ended(&w[1]);
    for (int i = 0; i < 2; i++)
        assert_true(w[i].awaited_until == 0);
}

/* A worker may end the job as well. */
static void drive_until_ended(struct work *w)
{
    while (atomic_load(&w->ended) == 0) {
        int64_t due, soon = dibs__after_ms(dibs__now(&dibs__system_clock), 10);
        dibs__wait_event_reset(&wait_event);
        if (!dibs__workers_run_some(workers, DIBS__NEVER, &due))
            dibs__wait_event_wait(&wait_event, &dibs__system_clock, due < soon ? due : soon);
    }
}

/* By the worker that is left for what is ready, or by a thread that drives. */
TEST(a_slow_job_ends_when_it_is_due_though_the_workers_are_held_up)
{
    for (int drives = 0; drives < 2; drives++) {
        static struct work stuck[DIBS__WORKERS_MAX], late;

        for (int i = 0; i < DIBS__WORKERS_MAX; i++)
            setup_stuck(&stuck[i]);
        setup_silent(&late);
        late.job.due = dibs__after_ms(dibs__now(&dibs__system_clock), 50);
        dibs__workers_settle(workers, &late.job, DIBS__JOB_GOES_ON);
        pause_ms(20); /* by now it is slow, as a rule */
        if (drives && dibs__workers_drive(workers, &wait_event)) {
            drive_until_ended(&late);
            dibs__workers_end_drive(workers, &wait_event);
        }
        expect_ended(&late);
        for (int i = 0; i < DIBS__WORKERS_MAX; i++) {
            assert_int_equal(atomic_load(&stuck[i].ended), 0);
            atomic_store(&stuck[i].stuck, false);
        }
        for (int i = 0; i < DIBS__WORKERS_MAX; i++)
            expect_ended(&stuck[i]);
    }
}

/* ------------------------------------------------------------------- many threads */

enum { ADDERS = 4, EACH = 300 };

static void add_many(void *arg)
{
    struct work *w = arg;

    for (int i = 0; i < EACH; i++, w++) {
        memset(w, 0, sizeof *w);
        w->job.ops = &ops;
        w->job.due = i % 3 ? DIBS__NEVER : dibs__after_ms(dibs__now(&dibs__system_clock), i % 7);
        w->begins = i % 2 ? DIBS__JOB_ENDS : DIBS__JOB_FINISHES;
        w->finishes = DIBS__JOB_ENDS;
        w->answered = i % 8;
        if (!dibs__workers_add(workers, &w->job))
            abort();
        dibs__workers_settle(workers, &w->job, i % 2 ? DIBS__JOB_RESTS : DIBS__JOB_GOES_ON);
        dibs__workers_post(workers, &w->job);
    }
}

static void drive_for_a_while(void *arg)
{
    int64_t until = now_ms() + 200;

    while (now_ms() < until) {
        struct dibs__wait_event own;
        int64_t due;
        dibs__wait_event_init(&own);
        if (!dibs__workers_drive(workers, &own))
            continue;
        for (int i = 0; i < 10; i++)
            if (!dibs__workers_run_some(workers, DIBS__NEVER, &due))
                dibs__wait_event_wait(&own, &dibs__system_clock, dibs__after_ms(dibs__now(&dibs__system_clock), 1));
        dibs__workers_end_drive(workers, &own);
    }
}

/* Several threads may also post the very first jobs at once. */
TEST(each_job_of_many_threads_ends_once)
{
    static struct work work[ADDERS][EACH];
    actor *actors[ADDERS], *drivers[2];

    for (int i = 0; i < ADDERS; i++)
        actors[i] = actor_start();
    for (int i = 0; i < 2; i++)
        drivers[i] = actor_running(drive_for_a_while, NULL);
    for (int i = 0; i < ADDERS; i++)
        actor_begin(actors[i], add_many, work[i]);
    for (int i = 0; i < ADDERS; i++)
        actor_finish(actors[i]);
    for (int i = 0; i < 2; i++)
        actor_finish(drivers[i]);
    for (int i = 0; i < ADDERS; i++)
        for (int k = 0; k < EACH; k++)
            expect_ended(&work[i][k]);
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
    struct work slow;

    setup(NULL);
    setup_silent(&slow); /* starts the first thread, which leaves the job to a second one */
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
