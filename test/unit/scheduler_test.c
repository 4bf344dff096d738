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

    struct dibs__scheduler *late; /* the scheduler thread's; not NULL: interest brings work for late_due after it has
                                     looked */
    int64_t late_due;             /* the scheduler thread's */
};

static size_t interest(void *context, struct pollfd *fds, int64_t *deadline)
{
    struct part *part = context;

    dibs__mutex_lock(&part->mutex);
    *deadline = part->due;
    if (part->late)
        part->due = part->late_due;
    dibs__mutex_unlock(&part->mutex);
    if (part->late)
        dibs__scheduler_wake_by(part->late, part->late_due);
    part->late = NULL;
    return 0;
}

static void attend(void *context, const struct pollfd *fds, size_t count)
{
    struct part *part = context;

    if (atomic_exchange(&part->slow, false)) {
        atomic_store(&part->begun, true);
        pause_ms(SLOW_MS);
        atomic_fetch_add(&part->left, 2);
    }
    dibs__mutex_lock(&part->mutex);
    part->attended++;
    if (part->due <= dibs__now(part->clock)) {
        part->due = DIBS__NEVER;
        part->done++;
    }
    if (atomic_load(&part->left) > 0)
        atomic_fetch_sub(&part->left, 1);
    dibs__mutex_unlock(&part->mutex);
}

static size_t pending(void *context)
{
    return atomic_load(&((struct part *)context)->left);
}

static struct dibs__scheduler *start(struct part *part, const struct dibs__clock *clock)
{
    struct dibs__scheduler *scheduler = dibs__scheduler_new(clock);
    const struct dibs__polled polled = {.context = part, .interest = interest, .attend = attend, .pending = pending};

    assert_non_null(scheduler);
    *part = (struct part){.due = DIBS__NEVER, .clock = clock};
    assert_int_equal(dibs__mutex_init(&part->mutex), 0);
    assert_true(dibs__scheduler_start(scheduler, &polled));
    return scheduler;
}

static void end(struct dibs__scheduler *scheduler, struct part *part)
{
    dibs__scheduler_stop(scheduler);
    dibs__scheduler_free(scheduler);
    dibs__mutex_destroy(&part->mutex);
}

static void set_due(struct part *part, int64_t due)
{
    dibs__mutex_lock(&part->mutex);
    part->due = due;
    dibs__mutex_unlock(&part->mutex);
}

static unsigned read_count(struct part *part, const unsigned *count)
{
    dibs__mutex_lock(&part->mutex);
    unsigned value = *count;
    dibs__mutex_unlock(&part->mutex);
    return value;
}

/* ----------------------------------------------------------------- by the clock */

TEST(scheduled_work_is_done_at_its_time)
{
    struct moved_clock clock;
    struct part part;

    moved_clock_init(&clock);
    struct dibs__scheduler *scheduler = start(&part, &clock.clock);
    moved_clock_settle(&clock, 1);
    int64_t due = moved_clock_now(&clock) + MS(1000);
    set_due(&part, due);
    dibs__scheduler_wake_by(scheduler, due);
    moved_clock_settle(&clock, 1);
    moved_clock_advance(&clock, MS(1000) - 1);
    moved_clock_settle(&clock, 1);
    assert_int_equal(read_count(&part, &part.done), 0);
    moved_clock_advance(&clock, 1);
    moved_clock_settle(&clock, 1);
    assert_int_equal(read_count(&part, &part.done), 1);
    end(scheduler, &part);
    moved_clock_destroy(&clock);
}

/* As by another thread: interest has looked already, and the thread does not sleep yet. */
TEST(work_that_comes_just_before_the_sleep_is_not_slept_over)
{
    struct moved_clock clock;
    struct part part = {.due = DIBS__NEVER, .clock = &clock.clock};

    moved_clock_init(&clock);
    struct dibs__scheduler *scheduler = dibs__scheduler_new(&clock.clock);
    assert_non_null(scheduler);
    assert_int_equal(dibs__mutex_init(&part.mutex), 0);
    part.late = scheduler;
    part.late_due = moved_clock_now(&clock) + MS(1000);
    const struct dibs__polled polled = {.context = &part, .interest = interest, .attend = attend, .pending = pending};
    assert_true(dibs__scheduler_start(scheduler, &polled));
    moved_clock_settle(&clock, 1);
    moved_clock_advance(&clock, MS(1000));
    moved_clock_settle(&clock, 1);
    assert_int_equal(read_count(&part, &part.done), 1);
    end(scheduler, &part);
    moved_clock_destroy(&clock);
}

/* Work that comes and goes again, as the lease of a thread that locks and unlocks, wakes the thread once. */
TEST(work_that_comes_and_goes_does_not_wake_it_each_time)
{
    struct moved_clock clock;
    struct part part;

    moved_clock_init(&clock);
    struct dibs__scheduler *scheduler = start(&part, &clock.clock);
    moved_clock_settle(&clock, 1);
    unsigned before = read_count(&part, &part.attended);
    for (int i = 0; i < 1000; i++) {
        int64_t due = moved_clock_now(&clock) + MS(10000);
        set_due(&part, due);
        dibs__scheduler_wake_by(scheduler, due);
        moved_clock_settle(&clock, 1);
        set_due(&part, DIBS__NEVER);
        moved_clock_advance(&clock, MS(1));
    }
    moved_clock_settle(&clock, 1);
    assert_int_equal(read_count(&part, &part.attended), before + 1);
    moved_clock_advance(&clock, MS(10000)); /* the wake-up that is still planned, and no further one */
    moved_clock_settle(&clock, 1);
    moved_clock_advance(&clock, MS(3600000));
    moved_clock_settle(&clock, 1);
    assert_int_equal(read_count(&part, &part.attended), before + 2);
    end(scheduler, &part);
    moved_clock_destroy(&clock);
}

/*
 * A loop of lock and unlock that outlasts the times at which it has work: the scheduler waits for each of them once,
 * and no bell is rung.
 */
TEST(work_that_keeps_coming_and_going_rings_no_bell)
{
    struct moved_clock clock;
    struct part part;

    moved_clock_init(&clock);
    struct dibs__scheduler *scheduler = start(&part, &clock.clock);
    moved_clock_settle(&clock, 1);
    unsigned before = read_count(&part, &part.attended);
    for (int i = 0; i < 1000; i++) {
        int64_t due = moved_clock_now(&clock) + MS(20);
        set_due(&part, due);
        dibs__scheduler_wake_by(scheduler, due);
        moved_clock_settle(&clock, 1);
        set_due(&part, DIBS__NEVER);
        moved_clock_advance(&clock, MS(1));
        moved_clock_settle(&clock, 1);
    }
    assert_in_range(read_count(&part, &part.attended) - before, 1000 / 20, 1000 / 20 + 5);
    end(scheduler, &part);
    moved_clock_destroy(&clock);
}

TEST(draining_ends_when_nothing_is_pending_or_at_its_deadline)
{
    struct part part;
    struct dibs__scheduler *scheduler = start(&part, &dibs__system_clock);

    dibs__scheduler_drain(scheduler, DIBS__NEVER);
    atomic_store(&part.left, 1);
    dibs__scheduler_drain(scheduler, DIBS__NEVER);
    assert_int_equal(atomic_load(&part.left), 0);
    atomic_store(&part.left, 1000000);
    int64_t begin = now_ms();
    dibs__scheduler_drain(scheduler, dibs__now(&dibs__system_clock) + MS(20));
    assert_true(now_ms() - begin >= 20);
    end(scheduler, &part);
}

/* It may have rested when it was woken last. */
static bool has_begun(struct dibs__scheduler *scheduler, struct part *part)
{
    dibs__scheduler_wake(scheduler);
    return atomic_load(&part->begun);
}

/* As where it finds that a lease was lost, whose key is then to be deleted. */
TEST(draining_waits_for_what_the_scheduler_is_about_to_bring)
{
    struct part part;
    struct dibs__scheduler *scheduler = start(&part, &dibs__system_clock);

    atomic_store(&part.slow, true);
    await_that(has_begun(scheduler, &part));
    dibs__scheduler_drain(scheduler, DIBS__NEVER);
    assert_true(read_count(&part, &part.attended) >= 2);
    assert_int_equal(atomic_load(&part.left), 0);
    end(scheduler, &part);
}

/* ---------------------------------------------------------------------- the race */

#define THREADS 4
#define ROUNDS 300

struct worker {
    struct dibs__scheduler *scheduler;
    struct part *part;
    pthread_t thread;
    unsigned missed;
};

/* Whether the work of that time is done, or other work has replaced it. */
static bool is_past(struct part *part, int64_t due)
{
    dibs__mutex_lock(&part->mutex);
    bool past = part->due > due;
    dibs__mutex_unlock(&part->mutex);
    return past;
}

static void *bring_work(void *arg)
{
    struct worker *worker = arg;

    for (int i = 0; i < ROUNDS; i++) {
        int64_t due = dibs__now(&dibs__system_clock) + (i % 3) * MS(1) / 2;
        dibs__mutex_lock(&worker->part->mutex);
        if (due < worker->part->due)
            worker->part->due = due;
        dibs__mutex_unlock(&worker->part->mutex);
        dibs__scheduler_wake_by(worker->scheduler, due);
        worker->missed += !within(LIMIT_MS, is_past(worker->part, due));
    }
    return NULL;
}

TEST(the_scheduler_oversleeps_no_deadline)
{
    struct part part;
    struct dibs__scheduler *scheduler = start(&part, &dibs__system_clock);
    struct worker workers[THREADS];

    for (size_t i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.scheduler = scheduler, .part = &part};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, bring_work, &workers[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        assert_int_equal(workers[i].missed, 0);
    }
    end(scheduler, &part);
}

TESTS(NULL, NULL)
