/* Handing over: a lease goes from thread to thread of a process, for handoff_ms, each time with the next fence. */
#include <sched.h>

#include "unit/handover_setup.h"

/* ----------------------------------------------------------- within the time */

/* Whether the waiter has waited for long or not. */
TEST_ON(an_unlock_for_a_waiter_here_does_not_touch_the_store, stage *s)
{
    static const int64_t waits[] = {0, MS(1), LONG, MS(HANDOFF) - 1};
    enum { COUNT = sizeof waits / sizeof waits[0] };
    stage_open(s, LEASE);
    for (unsigned i = 0; i < COUNT; i++) {
        assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
        uint64_t fence = fence_of(s->rt, "a");
        actor *next = stage_waiter(s, "a", FOREVER, 1);
        moved_clock_advance(&s->clock, waits[i]);
        dibs_owner before = owner_of(s->rt, "a");
        struct asked then = asked(s);
        assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
        assert_status(DIBS_OK, actor_result(next));
        expect_untouched(s, then);
        assert_int_equal(fence_in(next, s->rt), fence + 1);
        assert_int_equal(stats_of(s->rt).handed_off, i + 1);
        assert_int_equal(stats_of(s->rt).holds, 1);
        dibs_owner after = owner_of(s->rt, "a");
        assert_string_equal(before.token, after.token);
        assert_status(DIBS_OK, actor_unlock(next, s->rt, "a"));
        expect_nothing_left(s);
    }
    assert_int_equal(stats_of(s->rt).acquired, 2 * COUNT);
    assert_int_equal(stats_of(s->rt).released, 2 * COUNT);
    assert_int_equal(stats_of(s->rt).contended, COUNT);
    assert_int_equal(stats_of(s->rt).granted, 0);
}

/* All waiters get the lease in the order in which they came, each with the next fence. */
TEST_ON(a_lease_is_handed_through_the_whole_line, stage *s)
{
    enum { CROWD = 8 };
    actor *crowd[CROWD];

    uint64_t fence = stage_open_holding(s, LEASE);
    for (size_t i = 0; i < CROWD; i++)
        crowd[i] = stage_waiter(s, "a", FOREVER, i + 1);
    moved_clock_advance(&s->clock, LONG);
    struct asked before = asked(s);
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    for (size_t i = 0; i < CROWD; i++) {
        assert_status(DIBS_OK, actor_result(crowd[i]));
        assert_int_equal(fence_in(crowd[i], s->rt), fence + i + 1);
        expect_untouched(s, before);
        assert_status(DIBS_OK, actor_unlock(crowd[i], s->rt, "a"));
    }
    assert_int_equal(stats_of(s->rt).handed_off, CROWD);
    expect_asked(s, before, 1, 1, 0);
    expect_nothing_left(s);
}

TEST_ON(a_long_waiter_comes_before_a_running_thread, stage *s)
{
    stage_open_holding(s, LEASE);
    actor *sleeper = stage_waiter(s, "a", FOREVER, 1), *other = actor_start();
    moved_clock_advance(&s->clock, LONG);
    unlock_to_the_standing(s);
    assert_status(DIBS_BUSY, dibs_trylock(s->rt, "a")); /* although the new holder does not run yet */
    assert_status(DIBS_BUSY, actor_lock(other, s->rt, "a", 0));
    moved_clock_let_the_woken_go(&s->clock);
    actor_gets(sleeper, s->rt, "a");
    expect_nothing_left(s);
}

TEST_ON(a_running_thread_comes_before_a_new_waiter, stage *s)
{
    uint64_t fence = stage_open_holding(s, LEASE);
    actor *sleeper = stage_waiter(s, "a", FOREVER, 1), *other = actor_start();
    moved_clock_advance(&s->clock, MS(1)); /* not longer */
    struct asked before = asked(s);
    unlock_to_the_standing(s);
    assert_status(DIBS_OK, actor_lock(other, s->rt, "a", 0));
    assert_int_equal(fence_in(other, s->rt), fence + 1);
    assert_status(DIBS_BUSY, dibs_trylock(s->rt, "a"));
    moved_clock_let_the_woken_go(&s->clock);
    stage_await_waiting(s, 1); /* the sleeper sleeps again, and keeps its place and its time */
    moved_clock_advance(&s->clock, 1);
    assert_status(DIBS_OK, actor_unlock(other, s->rt, "a"));
    assert_status(DIBS_BUSY, dibs_trylock(s->rt, "a"));
    assert_status(DIBS_OK, actor_result(sleeper));
    assert_int_equal(fence_in(sleeper, s->rt), fence + 2);
    expect_untouched(s, before);
    assert_int_equal(stats_of(s->rt).handed_off, 2);
    assert_status(DIBS_OK, actor_unlock(sleeper, s->rt, "a"));
    expect_nothing_left(s);
}

TEST_ON(a_parked_lease_is_not_for_waiters_with_other_options, stage *s)
{
    stage_open_holding(s, LEASE);
    actor *sleeper = stage_waiter(s, "a", FOREVER, 1), *other = actor_start();
    unlock_to_the_standing(s);
    assert_status(DIBS_BUSY, actor_lock_with(other, s->rt, "a", 0, &shorter));
    assert_status(DIBS_BUSY, actor_lock_with(other, s->rt, "a", 0, &fixed));
    assert_status(DIBS_BUSY, actor_lock_with(other, s->rt, "a", 0, &fair));
    moved_clock_let_the_woken_go(&s->clock);
    actor_gets(sleeper, s->rt, "a");
    expect_nothing_left(s);
}

/* ------------------------------------------------------------ after the time */

/* handoff_ms counts from the grant by the store, not from the last hand-over. */
TEST_ON(after_handoff_ms_the_unlock_goes_through_the_store, stage *s)
{
    stage_open_holding(s, LEASE);
    actor *first = stage_waiter(s, "a", FOREVER, 1), *second = stage_waiter(s, "a", FOREVER, 2),
          *third = stage_waiter(s, "a", FOREVER, 3);
    moved_clock_advance(&s->clock, MS(HANDOFF) - 1);
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    assert_status(DIBS_OK, actor_result(first));
    uint64_t fence = fence_in(first, s->rt);
    dibs_owner before = owner_of(s->rt, "a");
    moved_clock_advance(&s->clock, 1);
    struct asked then = asked(s);
    assert_status(DIBS_OK, actor_unlock(first, s->rt, "a"));
    assert_status(DIBS_OK, actor_result(second));
    expect_released_with_an_ask(s, then);
    dibs_owner after = owner_of(s->rt, "a");
    assert_string_not_equal(before.token, after.token);
    assert_true(fence_in(second, s->rt) > fence);
    assert_int_equal(fence_in(second, s->rt) % DIBS__FENCE_STEPS, 0);
    moved_clock_advance(&s->clock, MS(HANDOFF) - 1); /* a new lease, and a new time */
    then = asked(s);
    assert_status(DIBS_OK, actor_unlock(second, s->rt, "a"));
    assert_status(DIBS_OK, actor_result(third));
    expect_untouched(s, then);
    assert_status(DIBS_OK, actor_unlock(third, s->rt, "a"));
    assert_int_equal(stats_of(s->rt).handed_off, 2);
    expect_nothing_left(s);
}

/* The threads of one process hand the lease over for as long as they may, each in its critical section for 3 ms. */
TEST_ON(others_wait_for_handoff_ms_and_one_critical_section, stage *s)
{
    enum { CROWD = 3, SECTION = 3 };
    actor *crowd[CROWD], *stranger = actor_start();
    size_t holder = 0;

    stage_open(s, LEASE);
    dibs_runtime *second = stage_open_another(s, LEASE);
    for (size_t i = 0; i < CROWD; i++)
        crowd[i] = actor_start();
    assert_status(DIBS_OK, actor_lock(crowd[0], s->rt, "a", 0));
    int64_t start = moved_clock_now(&s->clock);
    actor_begin_lock(stranger, second, "a", FOREVER);
    stage_await_waiting(s, 1);
    for (size_t i = 1; i < CROWD; i++) {
        actor_begin_lock(crowd[i], s->rt, "a", FOREVER);
        stage_await_waiting(s, i + 1);
    }
    while (actor_busy(stranger)) {
        moved_clock_advance(&s->clock, MS(SECTION));
        assert_status(DIBS_OK, actor_unlock(crowd[holder], s->rt, "a"));
        await_that(!actor_busy(stranger) || !actor_busy(crowd[(holder + 1) % CROWD]));
        if (!actor_busy(stranger))
            break;
        actor_begin_lock(crowd[holder], s->rt, "a", FOREVER);
        stage_await_waiting(s, CROWD);
        holder = (holder + 1) % CROWD;
    }
    int64_t delay = moved_clock_now(&s->clock) - start;
    assert_that(delay > MS(HANDOFF) && delay <= MS(HANDOFF + SECTION), "%ld ns", (long)delay);
    assert_int_equal(stats_of(s->rt).handed_off, (HANDOFF - 1) / SECTION);
    assert_int_equal(stats_of(second).granted, 1);
    /* The next waiter of this process has been behind the stranger in the store's queue since the unlock. */
    struct asked before = asked(s);
    assert_status(DIBS_OK, actor_unlock(stranger, second, "a"));
    assert_status(DIBS_OK, actor_result(crowd[(holder + 1) % CROWD]));
    expect_asked(s, before, 0, 1, 0);
    assert_int_equal(stats_of(s->rt).granted, 1);
    assert_status(DIBS_OK, actor_unlock(crowd[(holder + 1) % CROWD], s->rt, "a"));
    assert_status(DIBS_OK, actor_result(crowd[(holder + 2) % CROWD]));
    assert_status(DIBS_OK, actor_unlock(crowd[(holder + 2) % CROWD], s->rt, "a"));
    for (size_t i = 0; i < CROWD; i++)
        actor_end(crowd[i]);
    dibs_close(second);
    expect_nothing_left(s);
}

/* -------------------------------------------------------------------- fences */

#define RELAY (2 * DIBS__FENCE_STEPS + 10)

/* Guarded by the lock of dibs. */
struct relay {
    stage *s;
    unsigned count, errors;
    uint64_t fences[RELAY];
    unsigned acquires[RELAY]; /* how many asks the store had got by then */
};

static void run_relay(void *arg)
{
    struct relay *relay = arg;
    stage *s = relay->s;
    bool last = false;

    while (!last) {
        if (dibs_lock(s->rt, "a") != DIBS_OK)
            abort();
        last = relay->count == RELAY;
        if (!last) {
            dibs_hold hold;
            relay->errors += dibs_hold_of(s->rt, "a", &hold) != DIBS_OK;
            relay->fences[relay->count] = hold.fence;
            relay->acquires[relay->count++] = faults_count(&s->faults, &s->faults.acquires);
        }
        while (!last && moved_clock_waiting(&s->clock) == 0) /* until the other thread waits */
            sched_yield();
        if (dibs_unlock(s->rt, "a") != DIBS_OK)
            abort();
    }
}

TEST_ON(a_grant_is_good_for_1023_hand_overs, stage *s)
{
    static struct relay relay;
    actor *runners[2];

    relay = (struct relay){.s = s};
    s->settings.handoff_ms = FOR_LONG;
    stage_open(s, LEASE);
    for (size_t i = 0; i < 2; i++)
        runners[i] = actor_running(run_relay, &relay);
    for (size_t i = 0; i < 2; i++)
        actor_end(runners[i]);
    assert_int_equal(relay.errors, 0);
    for (unsigned i = 0; i < RELAY; i++) {
        bool from_store = i % DIBS__FENCE_STEPS == 0;
        assert_int_equal(relay.acquires[i], 1 + i / DIBS__FENCE_STEPS);
        assert_int_equal(relay.fences[i] % DIBS__FENCE_STEPS, i % DIBS__FENCE_STEPS);
        assert_true(i == 0 ||
                    (from_store ? relay.fences[i] > relay.fences[i - 1] : relay.fences[i] == relay.fences[i - 1] + 1));
    }
    expect_nothing_left(s);
}

/* -------------------------------------------------------------------- stress */

#define THREADS 8
#define STRESS_MS 1000

static struct contest {
    dibs_runtime *rts[2];
    int64_t end;
    uint64_t fence, count; /* guarded by the lock that is tested */
    unsigned inside;
    atomic_uint errors, numbers;
} contest;

static bool is_alone_inside(dibs_runtime *rt)
{
    dibs_hold hold;
    bool good = contest.inside++ == 0 && dibs_hold_of(rt, "a", &hold) == DIBS_OK && hold.fence > contest.fence;

    contest.fence = hold.fence;
    if (contest.count++ % 16 == 0) /* so that waits of 1 ms time out */
        pause_ms(2);
    contest.inside--;
    return good;
}

static bool had_all_kinds(dibs_runtime *rt)
{
    dibs_stats stats = stats_of(rt);

    return stats.handed_off > 0 && stats.granted > 0 && stats.timed_out > 0 && stats.busy > 0;
}

/* Where the threads were hardly let run, they go on until each kind of outcome has been seen. */
static bool goes_on(void)
{
    int64_t now = now_ms();

    return now < contest.end ||
           (now < contest.end + LIMIT_MS && !(had_all_kinds(contest.rts[0]) && had_all_kinds(contest.rts[1])));
}

/* Waits of 0 to 3 ms, and some without end: these would show a lost wake-up. */
static void contend(void *arg)
{
    static const dibs_lock_options kinds[] = {
        {0}, {0}, {0}, {0}, {.lease_ms = 20000}, {.flags = DIBS_FIXED_LEASE}, {.flags = DIBS_FAIR}};
    unsigned random = atomic_fetch_add(&contest.numbers, 1) * 7919 + 1;
    dibs_runtime *rt = contest.rts[random % 2];

    while (goes_on()) {
        random = random * 1103515245 + 12345;
        int64_t wait_ms = (random >> 16) % 8 == 0 ? LIMIT_MS : (random >> 20) % 4;
        dibs_status status = dibs_lock_with(rt, "a", wait_ms, &kinds[(random >> 8) % (sizeof kinds / sizeof kinds[0])]);
        bool good = status == DIBS_OK ? is_alone_inside(rt) && dibs_unlock(rt, "a") == DIBS_OK
                                      : status == (wait_ms == 0 ? DIBS_BUSY : DIBS_TIMEOUT) && wait_ms != LIMIT_MS;
        if (!good)
            atomic_fetch_add(&contest.errors, 1);
    }
}

static void expect_all_kinds_of_outcomes(dibs_runtime *rt, uint64_t *acquired)
{
    dibs_stats stats = stats_of(rt);

    *acquired += stats.acquired;
    assert_that(stats.handed_off > 0 && stats.granted > 0 && stats.timed_out > 0 && stats.busy > 0,
                "%lu handed over, %lu granted, %lu out of time, %lu busy", (unsigned long)stats.handed_off,
                (unsigned long)stats.granted, (unsigned long)stats.timed_out, (unsigned long)stats.busy);
    assert_int_equal(stats.holds, 0);
    assert_int_equal(stats.leases, 0);
    assert_int_equal(stats.lost, 0);
}

TEST_WITH(many_threads_with_short_waits_strand_no_lease, NULL, NULL, void *none)
{
    const dibs_config config = {.handoff_ms = 2, .lease_ms = LONG_LEASE_MS};
    actor *actors[THREADS];
    uint64_t acquired = 0;

    memset(&contest, 0, sizeof contest);
    for (int i = 0; i < 2; i++)
        contest.rts[i] = open_url("mem:contest", &config);
    contest.end = now_ms() + STRESS_MS;
    for (int i = 0; i < THREADS; i++)
        actors[i] = actor_running(contend, NULL);
    for (int i = 0; i < THREADS; i++)
        actor_end(actors[i]);
    assert_int_equal(atomic_load(&contest.errors), 0);
    for (int i = 0; i < 2; i++)
        expect_all_kinds_of_outcomes(contest.rts[i], &acquired);
    assert_int_equal(acquired, contest.count);
    dibs_owner owner = owner_of(contest.rts[0], "a");
    assert_false(owner.held);
    assert_int_equal(owner.waiters, 0);
    for (int i = 0; i < 2; i++) {
        lock_and_release(contest.rts[i], "a", 0);
        dibs_close(contest.rts[i]);
    }
}

TESTS(setup, stage_teardown)
