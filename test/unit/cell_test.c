/* The local queue of a name: who may ask the store, who waits for how long, in which order, and how often the store is
 * asked. */
#include <stdio.h>
#include <stdlib.h>

#include "core/asker.h"
#include "core/handover.h"
#include "support/fixture.h"
#include "support/test.h"
#include "support/wait.h"
#include "unit/cell_setup.h"

/* --------------------------------------------------------------- how it ends */

static void one_try_is_busy_and_asks_nobody_where_the_process_holds_it(void **state)
{
    stage *s = *state;
    actor *other = actor_start();

    stage_open(s, LEASE);
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    assert_status(DIBS_BUSY, actor_lock(other, s->rt, "a", 0));
    assert_int_equal(acquires(s), 1);
    assert_int_equal(stats_of(s->rt).busy, 1);
    assert_int_equal(stats_of(s->rt).contended, 0);
    actor_end(other);
}

static void one_try_is_busy_where_another_process_holds_it(void **state)
{
    stage *s = *state;

    stage_open(s, LEASE);
    faults_acquire(&s->faults, DIBS_BUSY, FOR_EVER);
    assert_status(DIBS_BUSY, dibs_trylock(s->rt, "a"));
    assert_int_equal(acquires(s), 1);
    assert_status(DIBS_NOT_HELD, dibs_check(s->rt, "a"));
    assert_int_equal(stats_of(s->rt).leases, 0);
}

/* Where this process holds it, and where another does. */
static void a_wait_ends_at_its_limit_and_not_before(void **state)
{
    static const int64_t limits[] = {1, 10, 999, 5000, 3600000};
    stage *s = *state;
    actor *other = actor_start();
    const dibs_lock_options a_day = {.lease_ms = 86400000};

    stage_open(s, LEASE);
    for (int by_another = 0; by_another < 2; by_another++) {
        if (by_another)
            faults_acquire(&s->faults, DIBS_BUSY, FOR_EVER);
        else
            assert_status(DIBS_OK, dibs_lock_with(s->rt, "a", 0, &a_day));
        for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
            int64_t start = moved_clock_now(&s->clock);
            actor_begin_lock(other, s->rt, by_another ? "b" : "a", limits[i]);
            stage_await_waiting(s, 1);
            moved_clock_set(&s->clock, start + MS(limits[i]) - 1);
            stage_await_waiting(s, 1);
            assert_true(actor_busy(other));
            moved_clock_advance(&s->clock, 1);
            assert_status(DIBS_TIMEOUT, actor_result(other));
        }
    }
    assert_int_equal(stats_of(s->rt).timed_out, 2 * sizeof limits / sizeof limits[0]);
    assert_int_equal(stats_of(s->rt).leases, 1);
    actor_end(other);
}

static void for_ever_is_longer_than_a_year(void **state)
{
    stage *s = *state;
    actor *other = actor_start();

    stage_open(s, LEASE);
    faults_acquire(&s->faults, DIBS_BUSY, FOR_EVER);
    actor_begin_lock(other, s->rt, "a", FOREVER);
    stage_await_waiting(s, 1);
    moved_clock_advance(&s->clock, MS(INT64_C(366) * 86400000));
    stage_await_waiting(s, 1);
    faults_acquire(&s->faults, DIBS_OK, 0);
    moved_clock_advance(&s->clock, MS(1000));
    assert_status(DIBS_OK, actor_result(other));
    assert_status(DIBS_OK, actor_unlock(other, s->rt, "a"));
    actor_end(other);
}

/* --------------------------------------------------------------------- order */

static void local_waiters_get_it_in_the_order_in_which_they_came(void **state)
{
    stage *s = *state;
    actor *crowd[CROWD];

    stage_open(s, LEASE);
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    begin_crowd(s, crowd, 0, FOREVER);
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    for (size_t i = 0; i < CROWD; i++) {
        assert_status(DIBS_OK, actor_result(crowd[i]));
        stage_await_waiting(s, CROWD - 1 - i);
        for (size_t later = i + 1; later < CROWD; later++)
            assert_true(actor_busy(crowd[later]));
        assert_status(DIBS_OK, actor_unlock(crowd[i], s->rt, "a"));
    }
    assert_int_equal(stats_of(s->rt).contended, CROWD);
    end_crowd(crowd);
}

static void who_gives_up_leaves_the_order_of_the_others_alone(void **state)
{
    static const int64_t waits[] = {5000, FOREVER, 5000, FOREVER, 5000};
    enum { COUNT = sizeof waits / sizeof waits[0] };
    stage *s = *state;
    actor *crowd[COUNT];

    stage_open(s, LEASE);
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    for (size_t i = 0; i < COUNT; i++) {
        crowd[i] = actor_start();
        actor_begin_lock(crowd[i], s->rt, "a", waits[i]);
        stage_await_waiting(s, i + 1);
    }
    moved_clock_advance(&s->clock, MS(5000));
    for (size_t i = 0; i < COUNT; i += 2)
        assert_status(DIBS_TIMEOUT, actor_result(crowd[i]));
    stage_await_waiting(s, 2);
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    assert_status(DIBS_OK, actor_result(crowd[1]));
    assert_status(DIBS_BUSY, actor_lock(crowd[0], s->rt, "a", 0));
    assert_status(DIBS_OK, actor_unlock(crowd[1], s->rt, "a"));
    assert_status(DIBS_OK, actor_result(crowd[3]));
    assert_status(DIBS_OK, actor_unlock(crowd[3], s->rt, "a"));
    for (size_t i = 0; i < COUNT; i++)
        actor_end(crowd[i]);
}

static void one_thread_at_a_time_asks_for_a_name(void **state)
{
    stage *s = *state;
    actor *crowd[CROWD];

    stage_open(s, LEASE);
    faults_acquire(&s->faults, DIBS_BUSY,
                   FOR_EVER); /* the store answers that the lock is taken, ask again in a second */
    begin_crowd(s, crowd, 0, 10500);
    assert_int_equal(acquires(s), 1);
    for (unsigned second = 1; second <= 10; second++) {
        moved_clock_advance(&s->clock, MS(1000));
        stage_await_waiting(s, CROWD);
        assert_int_equal(acquires(s), second + 1);
    }
    moved_clock_advance(&s->clock, MS(500));
    for (size_t i = 0; i < CROWD; i++)
        assert_status(DIBS_TIMEOUT, actor_result(crowd[i]));
    assert_int_equal(s->faults.inside_most, 1);
    end_crowd(crowd);
}

static void other_names_do_not_wait_for_it(void **state)
{
    stage *s = *state;
    actor *asker = actor_start();

    stage_open(s, LEASE);
    faults_block_acquires(&s->faults);
    actor_begin_lock(asker, s->rt, "a", FOREVER);
    faults_await_blocked(&s->faults);
    assert_status(DIBS_NOT_HELD, dibs_unlock(s->rt, "b"));
    faults_unblock_acquires(&s->faults);
    assert_status(DIBS_OK, actor_result(asker));
    assert_status(DIBS_OK, dibs_trylock(s->rt, "b"));
    assert_int_equal(acquires(s), 2);
    actor_end(asker);
}

/* ------------------------------------------------------- grants by the store */

static void a_grant_by_the_store_wakes_the_asker_at_once(void **state)
{
    stage *s = *state;
    actor *other = actor_start();

    s->url = "mem:grants";
    stage_open(s, LEASE);
    dibs_runtime *second = stage_open_another(s, LEASE);
    assert_status(DIBS_OK, dibs_lock(second, "a"));
    actor_begin_lock(other, s->rt, "a", FOREVER);
    stage_await_waiting(s, 1);
    assert_status(DIBS_OK, dibs_unlock(second, "a"));
    assert_status(DIBS_OK, actor_result(other)); /* the clock has not moved */
    assert_int_equal(acquires(s), 2);            /* each asked once */
    assert_int_equal(faults_count(&s->faults, &s->faults.pushes), 1);
    assert_int_equal(stats_of(s->rt).granted, 1);
    assert_status(DIBS_OK, actor_unlock(other, s->rt, "a"));
    actor_end(other);
    dibs_close(second);
}

static void a_lease_that_ends_elsewhere_is_granted_at_once(void **state)
{
    stage *s = *state;
    actor *other = actor_start();
    const dibs_lock_options fixed = {.lease_ms = 7000, .flags = DIBS_FIXED_LEASE};

    s->url = "mem:grants";
    stage_open(s, LEASE);
    dibs_runtime *second = stage_open_another(s, LEASE);
    int64_t start = moved_clock_now(&s->clock);
    assert_status(DIBS_OK, dibs_lock_with(second, "a", 0, &fixed));
    actor_begin_lock(other, s->rt, "a", FOREVER);
    stage_await_waiting(s, 1);
    moved_clock_settle(&s->clock, 2);
    moved_clock_set(&s->clock,
                    start + believed(7000)); /* the holder knows that its lease is lost, and it is retracted */
    assert_status(DIBS_OK, actor_result(other));
    assert_int_equal(acquires(s), 2);
    assert_int_equal(stats_of(s->rt).granted, 1);
    assert_status(DIBS_LOST, dibs_unlock(second, "a"));
    actor_end(other);
    dibs_close(second);
}

static void a_hint_makes_the_asker_ask_at_once(void **state)
{
    stage *s = *state;
    actor *crowd[CROWD];

    stage_open(s, LEASE);
    faults_acquire(&s->faults, DIBS_BUSY, 1); /* in no queue, so nobody tells it when the lock is free */
    begin_crowd(s, crowd, 0, FOREVER);
    dibs__cells_ask_again(s->rt->core->cells);
    assert_status(DIBS_OK, actor_result(crowd[0])); /* the clock has not moved */
    assert_int_equal(acquires(s), 2);
    for (size_t i = 0; i + 1 < CROWD; i++) {
        assert_status(DIBS_OK, actor_unlock(crowd[i], s->rt, "a"));
        assert_status(DIBS_OK, actor_result(crowd[i + 1]));
    }
    assert_status(DIBS_OK, actor_unlock(crowd[CROWD - 1], s->rt, "a"));
    end_crowd(crowd);
}

/* --------------------------------------------------------- how often it asks */

struct short_wait {
    dibs_runtime *rt;
    uint32_t lease_ms;
    int64_t wait_ms;
    dibs_status status;
};

static void wait_for_short(void *arg)
{
    struct short_wait *w = arg;

    w->status = dibs_lock_with(w->rt, "a", w->wait_ms, &(dibs_lock_options){.lease_ms = w->lease_ms});
}

static actor *begin_short(stage *s, struct short_wait *w, uint32_t lease_ms, int64_t wait_ms, size_t waiting)
{
    actor *a = actor_start();

    *w = (struct short_wait){s->rt, lease_ms, wait_ms, DIBS_CLOSED};
    actor_begin(a, wait_for_short, w);
    stage_await_waiting(s, waiting);
    return a;
}

struct asked {
    stage *s;
    unsigned before;
};

static bool has_asked(void *arg)
{
    const struct asked *asked = arg;

    return acquires(asked->s) > asked->before;
}

/* Expects one more ask when so much time has passed, and none before. */
static void expect_ask_after(stage *s, int64_t ms, size_t waiting)
{
    unsigned before = acquires(s);

    moved_clock_advance(&s->clock, MS(ms) - 1);
    stage_await_waiting(s, waiting);
    assert_int_equal(acquires(s), before);
    moved_clock_advance(&s->clock, 1);
    assert_true(wait_until(has_asked, &(struct asked){s, before}, LIMIT_MS)); /* the asker may not have woken yet */
    stage_await_waiting(s, waiting);
    assert_int_equal(acquires(s), before + 1);
}

/*
 * The asker's own lease is long, but for those that wait behind it there must be an ask every third of their short
 * ones.
 */
static void it_asks_as_often_as_those_behind_it_would(void **state)
{
    stage *s = *state;
    struct short_wait w[3];
    actor *crowd[4] = {actor_start()};

    s->url = "mem:often";
    stage_open(s, LEASE);
    dibs_runtime *second = stage_open_another(s, 86400000);
    assert_status(DIBS_OK, dibs_lock(second, "a"));
    actor_begin_lock(crowd[0], s->rt, "a", FOREVER);
    stage_await_waiting(s, 1);
    expect_ask_after(s, LEASE / 3, 1);
    crowd[1] = begin_short(s, &w[0], 3000, FOREVER, 2); /* while it sleeps */
    expect_ask_after(s, 1000, 2);
    expect_ask_after(s, 1000, 2);
    moved_clock_advance(&s->clock, MS(500));
    crowd[2] = begin_short(s, &w[1], 6000, FOREVER, 3);
    expect_ask_after(s, 500, 3);
    crowd[3] = begin_short(s, &w[2], 300, 450, 4);
    for (int i = 0; i < 4; i++)
        expect_ask_after(s, 100, 4);
    moved_clock_advance(&s->clock, MS(50)); /* the waiter with the shortest lease has left */
    actor_finish(crowd[3]);
    assert_status(DIBS_TIMEOUT, w[2].status);
    expect_ask_after(s, 50, 3); /* the ask that was due already */
    expect_ask_after(s, 1000, 3);
    dibs_shutdown(s->rt);
    for (size_t i = 0; i < 4; i++)
        actor_end(crowd[i]);
    dibs_close(second);
}

/* ----------------------------------------------------------- the cells alone */

static const struct dibs__leaving told_nothing = {.learned = DIBS__LEARNED_NOTHING};

struct alone {
    struct moved_clock *clock;
    struct dibs__cells *cells;
    atomic_bool closing;
    atomic_int status; /* of the waiter; -1: it still waits */
    struct dibs__turn turn;
    struct dibs__outage outage;
    atomic_uint_fast64_t contended;
};

static void wait_alone(void *arg)
{
    struct alone *alone = arg;

    alone->turn = (struct dibs__turn){
        .name = "a",
        .name_size = 1,
        .deadline = DIBS__NEVER,
        .patience = DIBS__NEVER,
        .contended = &alone->contended,
        .outage = &alone->outage,
    };
    atomic_store(&alone->status, (int)dibs__turn_take(alone->cells, &alone->turn));
}

static bool waiter_is_back(void *arg)
{
    return atomic_load(&((struct alone *)arg)->status) >= 0;
}

/*
 * The scheduler may find a lease lost before the cell is told of its grant, because the process was stopped there. The
 * cell then is told of the end first, and finds nothing to end. The waiter must get the turn all the same.
 */
static void a_lease_that_was_lost_before_the_cell_heard_of_it_keeps_nobody_waiting(void **state)
{
    stage *s = *state;
    struct alone alone = {.clock = &s->clock, .status = -1};
    struct dibs__turn turn = {.name = "a", .name_size = 1};
    struct dibs__lease *lease = dibs__lease_new(1, "a", 1, DIBS__TOKEN_MAX);
    actor *waiter = actor_start();

    alone.cells = dibs__cells_new(&s->clock.clock, &alone.closing, 0);
    assert_status(DIBS_OK, dibs__turn_take(alone.cells, &turn));
    dibs__asker_begin(turn.cell, lease);
    actor_begin(waiter, wait_alone, &alone);
    stage_await_waiting(s, 1);
    dibs__lease_lose(lease);
    atomic_store(&lease->loss_told, true);
    dibs__handover_end(alone.cells, lease, NULL);
    dibs__turn_granted(turn.cell, lease);
    bool woken = wait_until(waiter_is_back, &alone, 5000);
    atomic_store(&alone.closing, true); /* so that the waiter ends in any case */
    dibs__cells_wake_all(alone.cells);
    actor_finish(waiter);
    actor_end(waiter);
    if (atomic_load(&alone.status) == DIBS_OK)
        dibs__turn_give_up(alone.cells, alone.turn.cell, NULL, &told_nothing);
    dibs__cells_free(alone.cells);
    dibs__lease_unref(lease);
    assert_true(woken);
}

/*
 * A lease is lost, but the cell was not told: the next thread to come finds that, and a thread that waited before gets
 * the turn. When the end is told later, it no longer concerns the cell.
 */
static void a_lost_lease_that_nobody_told_of_keeps_nobody_waiting(void **state)
{
    stage *s = *state;

    for (int waits = 0; waits < 2; waits++) {
        struct alone alone = {.clock = &s->clock, .status = -1};
        struct dibs__turn turn = {.name = "a", .name_size = 1, .one_try = true, .outage = &alone.outage};
        struct dibs__lease *lease = dibs__lease_new(1, "a", 1, DIBS__TOKEN_MAX);
        actor *waiter = waits ? actor_start() : NULL;
        alone.cells = dibs__cells_new(&s->clock.clock, &alone.closing, 0);
        atomic_store(&lease->deadline, moved_clock_now(&s->clock) + MS(100));
        assert_status(DIBS_OK, dibs__turn_take(alone.cells, &turn));
        dibs__asker_begin(turn.cell, lease);
        dibs__turn_granted(turn.cell, lease);
        if (waits) {
            actor_begin(waiter, wait_alone, &alone);
            stage_await_waiting(s, 1);
        }
        moved_clock_advance(&s->clock, MS(100) - 1);
        assert_status(DIBS_BUSY, dibs__turn_take(alone.cells, &turn));
        moved_clock_advance(&s->clock, 1);
        assert_status(waits ? DIBS_TIMEOUT : DIBS_OK, dibs__turn_take(alone.cells, &turn));
        if (waits)
            actor_finish(waiter);
        assert_false(dibs__handover_end(alone.cells, lease, NULL));
        assert_status(DIBS_TIMEOUT, dibs__turn_take(alone.cells, &turn));
        dibs__turn_give_up(alone.cells, waits ? alone.turn.cell : turn.cell, NULL, &told_nothing);
        assert_status(DIBS_OK, dibs__turn_take(alone.cells, &turn));
        dibs__turn_give_up(alone.cells, turn.cell, NULL, &told_nothing);
        actor_end(waiter);
        dibs__cells_free(alone.cells);
        dibs__lease_unref(lease);
    }
}

static void cells_come_and_go_with_their_names(void **state)
{
    enum { NAMES = 20000 };
    stage *s = *state;
    atomic_bool closing = false;
    struct dibs__cells *cells = dibs__cells_new(&s->clock.clock, &closing, 0);
    struct dibs__cell **all = calloc(NAMES, sizeof(struct dibs__cell *));
    char name[16];

    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < NAMES; i++) {
            struct dibs__turn turn = {
                .name = name, .name_size = (size_t)snprintf(name, sizeof name, "%u", i), .one_try = true};
            assert_status(DIBS_OK, dibs__turn_take(cells, &turn));
            all[i] = turn.cell;
            assert_status(DIBS_TIMEOUT, dibs__turn_take(cells, &turn));
        }
        for (unsigned i = 0; i < NAMES; i++) /* in another order than they came */
            dibs__turn_give_up(cells, all[(i * 7919) % NAMES], NULL, &told_nothing);
    }
    dibs__cells_free(cells);
    free(all);
}

/* -------------------------------------------------------------------- stress */

#define THREADS 8
#define ROUNDS 2000

struct contest {
    dibs_runtime *rt;
    const char *name;
    uint64_t fence; /* of the last holder; guarded by the lock of dibs that is tested */
    unsigned inside, done;
    atomic_uint errors;
};

static void contend(void *arg)
{
    struct contest *contest = arg;
    dibs_hold hold;

    for (unsigned i = 0; i < ROUNDS; i++) {
        dibs_status status = dibs_timedlock(contest->rt, contest->name, i % 3 ? LIMIT_MS : i % 2);
        if (status == DIBS_BUSY || status == DIBS_TIMEOUT)
            continue;
        bool good = status == DIBS_OK && contest->inside++ == 0;
        good = good && dibs_hold_of(contest->rt, contest->name, &hold) == DIBS_OK && hold.fence > contest->fence;
        contest->fence = hold.fence;
        contest->done++;
        contest->inside--;
        good = dibs_unlock(contest->rt, contest->name) == DIBS_OK && good;
        if (!good)
            atomic_fetch_add(&contest->errors, 1);
    }
}

/* On the real clock: threads exclude each other, and each fence is larger than the one before. */
static void threads_exclude_each_other(void **state)
{
    const char *url = "mem:contest";
    const dibs_config config = {.urls = &url, .url_count = 1};
    struct contest one = {.name = "a"};
    actor *actors[THREADS];

    (void)state;
    assert_status(DIBS_OK, dibs_open(&one.rt, &config));
    for (int i = 0; i < THREADS; i++) {
        actors[i] = actor_start();
        actor_begin(actors[i], contend, &one);
    }
    for (int i = 0; i < THREADS; i++)
        actor_end(actors[i]);
    assert_int_equal(atomic_load(&one.errors), 0);
    assert_true(one.done > 0);
    assert_int_equal(stats_of(one.rt).acquired, one.done);
    assert_int_equal(stats_of(one.rt).holds, 0);
    assert_int_equal(stats_of(one.rt).leases, 0);
    dibs_close(one.rt);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, stage_setup, stage_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(one_try_is_busy_and_asks_nobody_where_the_process_holds_it),
        TEST(one_try_is_busy_where_another_process_holds_it),
        TEST(a_wait_ends_at_its_limit_and_not_before),
        TEST(for_ever_is_longer_than_a_year),
        TEST(local_waiters_get_it_in_the_order_in_which_they_came),
        TEST(who_gives_up_leaves_the_order_of_the_others_alone),
        TEST(one_thread_at_a_time_asks_for_a_name),
        TEST(other_names_do_not_wait_for_it),
        TEST(a_grant_by_the_store_wakes_the_asker_at_once),
        TEST(a_lease_that_ends_elsewhere_is_granted_at_once),
        TEST(a_hint_makes_the_asker_ask_at_once),
        TEST(it_asks_as_often_as_those_behind_it_would),
        TEST(a_lease_that_was_lost_before_the_cell_heard_of_it_keeps_nobody_waiting),
        TEST(a_lost_lease_that_nobody_told_of_keeps_nobody_waiting),
        TEST(cells_come_and_go_with_their_names),
        cmocka_unit_test(threads_exclude_each_other),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
