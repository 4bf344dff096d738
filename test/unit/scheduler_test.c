/* The event loop: what ends its sleep, and that it oversleeps no deadline. */
#include "core/scheduler.h"
#include "support/moved_clock.h"
#include "support/test.h"

#define SLOW_MS 100

/* A part that the scheduler polls: it has work at one time. */
struct part {
    struct dibs__mutex mutex;
    int64_t due;        /* guarded by mutex; DIBS__NEVER: no work */
    unsigned attended;  /* guarded by mutex; how often attend was called */
    unsigned done;      /* guarded by mutex; how often there was work whose time had come */
    atomic_size_t left; /* pending */
    atomic_bool slow;   /* the next attend takes a while, and only then brings work that is pending */
    atomic_bool begun;  /* it has begun that */
    const struct dibs__clock *clock;

    bool late;        /* the scheduler thread's, once it runs; interest brings work for late_due after it has looked */
    int64_t late_due; /* the scheduler thread's */
};

/* Each test has a scheduler with one part, by a clock that the test moves or by the system's. */
static struct part part;
static struct dibs__scheduler *scheduler;
static struct moved_clock moved;

static size_t interest(void *context, struct pollfd *fds, int64_t *deadline)
{
    dibs__mutex_lock(&part.mutex);
    *deadline = part.due;
    if (part.late)
        part.due = part.late_due;
    dibs__mutex_unlock(&part.mutex);
    if (part.late)
        dibs__scheduler_wake_by(scheduler, part.late_due);
    part.late = false;
    return 0;
}

static void attend(void *context, const struct pollfd *fds, size_t count)
{
    if (atomic_exchange(&part.slow, false)) {
        atomic_store(&part.begun, true);
        pause_ms(SLOW_MS);
        atomic_fetch_add(&part.left, 2);
    }
    dibs__mutex_lock(&part.mutex);
    part.attended++;
    if (part.due <= dibs__now(part.clock)) {
        part.due = DIBS__NEVER;
        part.done++;
    }
    if (atomic_load(&part.left) > 0)
        atomic_fetch_sub(&part.left, 1);
    dibs__mutex_unlock(&part.mutex);
}

static size_t pending(void *context)
{
    return atomic_load(&part.left);
}

/* At first the part has no work; late_due: or it has, a moment later than interest looks. 0: it has not. */
static void start(const struct dibs__clock *clock, int64_t late_due)
{
    const struct dibs__polled polled = {.interest = interest, .attend = attend, .pending = pending};

    scheduler = dibs__scheduler_new(clock);
    assert_non_null(scheduler);
    part = (struct part){.due = DIBS__NEVER, .clock = clock, .late = late_due != 0, .late_due = late_due};
    assert_int_equal(dibs__mutex_init(&part.mutex), 0);
    assert_true(dibs__scheduler_start(scheduler, &polled));
}

static int setup(void **state)
{
    start(&dibs__system_clock, 0);
    return 0;
}

static int setup_moved_clock(void **state)
{
    moved_clock_init(&moved);
    start(&moved.clock, 0);
    moved_clock_settle(&moved, 1);
    return 0;
}

static int teardown(void **state)
{
    dibs__scheduler_stop(scheduler);
    dibs__scheduler_free(scheduler);
    dibs__mutex_destroy(&part.mutex);
    return 0;
}

static int teardown_moved_clock(void **state)
{
    teardown(state);
    moved_clock_destroy(&moved);
    return 0;
}

static void advance(int64_t ns)
{
    moved_clock_advance(&moved, ns);
    moved_clock_settle(&moved, 1);
}

static void set_due(int64_t due)
{
    dibs__mutex_lock(&part.mutex);
    part.due = due;
    dibs__mutex_unlock(&part.mutex);
}

/* The part has work in so much time, and the scheduler is told and sees to that. */
static void bring_work_in(int64_t ns)
{
    int64_t due = moved_clock_now(&moved) + ns;

    set_due(due);
    dibs__scheduler_wake_by(scheduler, due);
    moved_clock_settle(&moved, 1);
}

static unsigned read_count(const unsigned *count)
{
    dibs__mutex_lock(&part.mutex);
    unsigned value = *count;
    dibs__mutex_unlock(&part.mutex);
    return value;
}

/* ----------------------------------------------------------------- by the clock */

TEST_WITH(scheduled_work_is_done_at_its_time, setup_moved_clock, teardown_moved_clock, void *none)
{
    bring_work_in(MS(1000));
    advance(MS(1000) - 1);
    assert_int_equal(read_count(&part.done), 0);
    advance(1);
    assert_int_equal(read_count(&part.done), 1);
}

/* As by another thread: interest has looked already, and the thread does not sleep yet. */
TEST_WITH(work_that_comes_just_before_the_sleep_is_not_slept_over, NULL, teardown_moved_clock, void *none)
{
    moved_clock_init(&moved);
    start(&moved.clock, moved_clock_now(&moved) + MS(1000));
    moved_clock_settle(&moved, 1);
    advance(MS(1000));
    assert_int_equal(read_count(&part.done), 1);
}

/* Work that comes and goes again, as the lease of a thread that locks and unlocks, wakes the thread once. */
TEST_WITH(work_that_comes_and_goes_does_not_wake_it_each_time, setup_moved_clock, teardown_moved_clock, void *none)
{
    unsigned before = read_count(&part.attended);

    for (int i = 0; i < 1000; i++) {
        bring_work_in(MS(10000));
        set_due(DIBS__NEVER);
        moved_clock_advance(&moved, MS(1));
    }
    moved_clock_settle(&moved, 1);
    assert_int_equal(read_count(&part.attended), before + 1);
    advance(MS(10000)); /* the wake-up that is still planned, and no further one */
    advance(MS(3600000));
    assert_int_equal(read_count(&part.attended), before + 2);
}

/*
 * A loop of lock and unlock that outlasts the times at which it has work: the scheduler waits for each of them once,
 * and no bell is rung.
 */
TEST_WITH(work_that_keeps_coming_and_going_rings_no_bell, setup_moved_clock, teardown_moved_clock, void *none)
{
    unsigned before = read_count(&part.attended);

    for (int i = 0; i < 1000; i++) {
        bring_work_in(MS(20));
        set_due(DIBS__NEVER);
        advance(MS(1));
    }
    assert_in_range(read_count(&part.attended) - before, 1000 / 20, 1000 / 20 + 5);
}

TEST(draining_ends_when_nothing_is_pending_or_at_its_deadline)
{
    dibs__scheduler_drain(scheduler, DIBS__NEVER);
    atomic_store(&part.left, 1);
    dibs__scheduler_drain(scheduler, DIBS__NEVER);
    assert_int_equal(atomic_load(&part.left), 0);
    atomic_store(&part.left, 1000000);
    int64_t begin = now_ms();
    dibs__scheduler_drain(scheduler, dibs__now(&dibs__system_clock) + MS(20));
    assert_true(now_ms() - begin >= 20);
}

/* It may have rested when it was woken last. */
static bool has_begun(void)
{
    dibs__scheduler_wake(scheduler);
    return atomic_load(&part.begun);
}

/* As where it finds that a lease was lost, whose key is then to be deleted. */
TEST(draining_waits_for_what_the_scheduler_is_about_to_bring)
{
    atomic_store(&part.slow, true);
    await_that(has_begun());
    dibs__scheduler_drain(scheduler, DIBS__NEVER);
    assert_true(read_count(&part.attended) >= 2);
    assert_int_equal(atomic_load(&part.left), 0);
}

/* ---------------------------------------------------------------------- the race */

#define THREADS 4
#define ROUNDS 300

struct worker {
    pthread_t thread;
    unsigned missed;
};

/* Whether the work of that time is done, or other work has replaced it. */
static bool is_past(int64_t due)
{
    dibs__mutex_lock(&part.mutex);
    bool past = part.due > due;
    dibs__mutex_unlock(&part.mutex);
    return past;
}

static void *bring_work(void *arg)
{
    struct worker *worker = arg;

    for (int i = 0; i < ROUNDS; i++) {
        int64_t due = dibs__now(&dibs__system_clock) + (i % 3) * MS(1) / 2;
        dibs__mutex_lock(&part.mutex);
        if (due < part.due)
            part.due = due;
        dibs__mutex_unlock(&part.mutex);
        dibs__scheduler_wake_by(scheduler, due);
        worker->missed += !within(LIMIT_MS, is_past(due));
    }
    return NULL;
}

TEST(the_scheduler_oversleeps_no_deadline)
{
    struct worker workers[THREADS] = {{.missed = 0}};

    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&workers[i].thread, NULL, bring_work, &workers[i]), 0);
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        assert_int_equal(workers[i].missed, 0);
    }
}

TESTS(setup, teardown)
