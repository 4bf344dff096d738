/* How a call for several names asks the store: for all before it waits for one; and how it handles failures. */
#include <stdatomic.h>

#include "support/fixture.h"
#include "support/stage.h"
#include "support/tasks.h"

enum { NAMES = 64 };

static char texts[NAMES][8];
static const char *names[NAMES];

/* What came to the store: how many asks, or releases, were begun before the first was finished. */
static struct {
    const struct dibs__store_ops *real;
    struct dibs__store_ops ops;
    unsigned asks, asks_first;
    unsigned releases, releases_first;
    bool ask_finished, release_finished;
    atomic_int_fast64_t release_deadline; /* of the last release; 0: none was begun */
    atomic_bool first_held;               /* the answer to an ask for the first name is held back */
    atomic_bool holds;                    /* one is */
    bool ends;                            /* who has the second name loses it as that is given back */
    atomic_bool kept;                     /* the next ask that finds its name taken is told that it is merely kept */
    stage *silent;                        /* the store says nothing for a second to the next ask; NULL: it answers */
} spy;

static dibs_runtime *other;

static void spied_begin(struct dibs__store *store, struct dibs__op *op)
{
    bool is_ask = op->kind == DIBS__OP_ASK, is_release = op->kind == DIBS__OP_RELEASE;

    spy.asks += is_ask;
    spy.asks_first += is_ask && !spy.ask_finished;
    spy.releases += is_release;
    spy.releases_first += is_release && !spy.release_finished;
    if (is_release)
        atomic_store(&spy.release_deadline, op->deadline);
    if (is_release && spy.ends && strcmp(op->name, names[1]) == 0)
        assert_status(DIBS_OK, dibs_force_unlock(other, names[1], NULL));
    spy.real->begin(store, op);
}

static dibs_status spied_finish(struct dibs__store *store, struct dibs__op *op, struct dibs__error *error)
{
    spy.ask_finished |= op->kind == DIBS__OP_ASK;
    spy.release_finished |= op->kind == DIBS__OP_RELEASE;
    if (op->kind == DIBS__OP_ASK && strcmp(op->name, names[0]) == 0) {
        atomic_store(&spy.holds, true);
        (void)within(LIMIT_MS, !atomic_load(&spy.first_held));
    }
    if (op->kind == DIBS__OP_ASK && spy.silent) {
        moved_clock_advance(&spy.silent->clock, MS(1000));
        spy.silent = NULL;
    }
    dibs_status status = spy.real->finish(store, op, error);
    if (status == DIBS_BUSY && op->kind == DIBS__OP_ASK && atomic_exchange(&spy.kept, false))
        op->ask.answer->why = DIBS__WHY_KEPT;
    return status;
}

static dibs_status spied_open(struct dibs__store **out, const struct dibs__store_config *config,
                              struct dibs__error *error)
{
    dibs_status status = faulty_store_open(out, config, error);

    if (status == DIBS_OK) {
        spy.real = (*out)->ops;
        spy.ops = *spy.real;
        spy.ops.begin = spied_begin;
        spy.ops.finish = spied_finish;
        (*out)->ops = &spy.ops;
    }
    return status;
}

static int setup(void **state)
{
    int status = stage_setup(state);
    stage *s = *state;

    for (int i = 0; i < NAMES; i++) {
        snprintf(texts[i], sizeof texts[i], "n%02d", i);
        names[i] = texts[i];
    }
    memset(&spy, 0, sizeof spy);
    s->url = "mem:several";
    other = stage_open_another(s, LONG_LEASE_MS);
    s->settings.open_store = spied_open;
    stage_open(s, LONG_LEASE_MS);
    return status;
}

static int teardown(void **state)
{
    dibs_close(other);
    return stage_teardown(state);
}

TEST_ON(all_names_are_asked_for_before_one_is_waited_for, stage *s)
{
    assert_status(DIBS_OK, dibs_lock_names(s->rt, names, NAMES, 0, NULL));
    assert_int_equal(spy.asks_first, NAMES);
    assert_int_equal(spy.asks, NAMES);
    assert_status(DIBS_OK, dibs_unlock_names(s->rt, names, NAMES));
    assert_int_equal(spy.releases_first, NAMES);
    assert_int_equal(spy.releases, NAMES);
}

static bool has_waiter(const char *name)
{
    dibs_owner owner;

    return dibs_query(other, name, &owner) == DIBS_OK && owner.waiters > 0;
}

/* Every second name is taken when the call begins: the number of its wasted asks stays in proportion. */
TEST_ON(wasted_asks_stay_in_proportion, stage *s)
{
    dibs_completion done;
    dibs_queue *queue = test_queue(queue_new());
    dibs_task *task = test_task(task_of_runtime(s->rt));

    for (int i = 0; i < NAMES; i += 2)
        assert_status(DIBS_OK, dibs_lock(other, names[i]));
    assert_status(DIBS_OK, dibs_lock_names_begin(task, names, NAMES, DIBS_WAIT_FOREVER, NULL, queue, NULL));
    for (int i = 0; i < NAMES; i += 2) {
        await_that(has_waiter(texts[i]));
        assert_status(DIBS_OK, dibs_unlock(other, names[i]));
    }
    assert_int_equal(dibs_queue_take(queue, &done, 1, LIMIT_MS), 1);
    assert_int_equal(done.status, DIBS_OK);
    assert_in_range(spy.asks, NAMES, 12 * NAMES); /* without a bound there would be some 25 * NAMES asks */
}

static void expect_nothing_held(stage *s)
{
    assert_int_equal(stats_of(s->rt).holds, 0);
    assert_int_equal(stats_of(s->rt).leases, 0);
    for (int i = 0; i < NAMES; i++) {
        assert_status(DIBS_NOT_HELD, dibs_check(s->rt, names[i]));
        lock_and_release(other, names[i], 0);
    }
}

TEST_ON(a_refused_ask_fails_a_call_for_several_names, stage *s)
{
    faults_acquire(&s->faults, DIBS_DENIED, 1);
    assert_status(DIBS_DENIED, dibs_lock_names(s->rt, names, NAMES, DIBS_WAIT_FOREVER, NULL));
    assert_that(strstr(dibs_last_error(), "\"n00\""), "%s", dibs_last_error());
    expect_nothing_held(s);
    faults_acquire(&s->faults, DIBS_UNAVAILABLE, 1);
    assert_status(DIBS_UNAVAILABLE, dibs_lock_names(s->rt, names, NAMES, 0, NULL));
    assert_that(strstr(dibs_last_error(), "\"n00\""), "%s", dibs_last_error());
    expect_nothing_held(s);
}

/* That a lease had ended may be found out as late as when it is given back. */
TEST_ON(a_loss_that_the_give_back_tells_is_reported, stage *s)
{
    assert_status(DIBS_OK, dibs_lock(other, names[0]));
    spy.ends = true;
    assert_status(DIBS_LOST, dibs_lock_names(s->rt, names, NAMES, 0, NULL));
    assert_that(strstr(dibs_last_error(), "\"n01\""), "%s", dibs_last_error());
    spy.ends = false;
    assert_status(DIBS_BUSY, dibs_lock_names(s->rt, names, NAMES, 0, NULL));
    assert_status(DIBS_OK, dibs_unlock(other, names[0]));
    expect_nothing_held(s);
}

TEST_ON(a_call_for_several_names_rides_out_an_outage, stage *s)
{
    faults_acquire(&s->faults, DIBS_UNAVAILABLE, 1);
    assert_status(DIBS_OK, dibs_lock_names(s->rt, names, NAMES, DIBS_WAIT_FOREVER, NULL));
    assert_int_equal(stats_of(s->rt).holds, NAMES);
    assert_status(DIBS_OK, dibs_unlock_names(s->rt, names, NAMES));
    expect_nothing_held(s);
}

TEST_ON(a_failed_release_of_several_names_is_told, stage *s)
{
    assert_status(DIBS_OK, dibs_lock_names(s->rt, names, NAMES, 0, NULL));
    faults_release(&s->faults, DIBS_DENIED, 1);
    assert_status(DIBS_DENIED, dibs_unlock_names(s->rt, names, NAMES));
    assert_that(strstr(dibs_last_error(), "\"n00\""), "%s", dibs_last_error());
    assert_int_equal(stats_of(s->rt).holds, 0);
    assert_int_equal(stats_of(s->rt).leases, 0);
}

struct call {
    dibs_runtime *rt;
    int64_t wait_ms;
    dibs_status status;
};

static void lock_all(void *arg)
{
    struct call *call = arg;

    call->status = dibs_lock_names(call->rt, names, NAMES, call->wait_ms, NULL);
}

/* The first name is taken. Returns for how long the call would wait at most until the others are given back, in ns. */
static int64_t time_to_give_back(stage *s, int64_t wait_ms, dibs_status status)
{
    struct call call = {s->rt, wait_ms, DIBS_INVALID};
    int64_t began = moved_clock_now(&s->clock);

    atomic_store(&spy.release_deadline, 0);
    assert_status(DIBS_OK, dibs_lock(other, names[0]));
    actor *a = actor_running(lock_all, &call);
    await_that(atomic_load(&spy.release_deadline) > 0);
    int64_t deadline = atomic_load(&spy.release_deadline);
    if (status == DIBS_TIMEOUT) {
        stage_await_waiting(s, 1);
        moved_clock_advance(&s->clock, MS(wait_ms));
    }
    if (status == DIBS_OK)
        assert_status(DIBS_OK, dibs_unlock(other, names[0]));
    actor_finish(a);
    assert_status(status, call.status);
    if (status != DIBS_OK)
        assert_status(DIBS_OK, dibs_unlock(other, names[0]));
    actor_end(a); /* and gives up what it holds */
    return deadline - began;
}

/* Also the time counts that the tries took, before the call waited for one name. */
TEST_ON(a_call_for_several_names_rides_out_an_outage_no_longer_than_another_call, stage *s)
{
    struct call call = {s->rt, DIBS_WAIT_FOREVER, DIBS_INVALID};
    int64_t began = moved_clock_now(&s->clock);

    faults_acquire(&s->faults, DIBS_UNAVAILABLE, 1000000);
    spy.silent = s;
    actor *a = actor_running(lock_all, &call);
    await_that(!actor_busy(a) || moved_clock_waiting(&s->clock) == 1);
    while (actor_busy(a)) {
        moved_clock_advance(&s->clock, MS(1));
        await_that(!actor_busy(a) || moved_clock_waiting(&s->clock) == 1);
    }
    actor_finish(a);
    actor_end(a);
    int64_t took = moved_clock_now(&s->clock) - began;
    assert_status(DIBS_UNAVAILABLE, call.status);
    assert_that(took >= MS(5000) && took <= MS(5200), "%ld ns", (long)took);
}

TEST_ON(a_call_waits_no_longer_than_its_time_for_what_it_gives_back, stage *s)
{
    assert_int_equal(time_to_give_back(s, 100, DIBS_TIMEOUT), MS(103));
    assert_int_equal(time_to_give_back(s, 5000, DIBS_TIMEOUT), MS(1000));
    assert_int_equal(time_to_give_back(s, 0, DIBS_BUSY), MS(1000));
    assert_int_equal(time_to_give_back(s, DIBS_WAIT_FOREVER, DIBS_OK), MS(1000));
}

/*
 * Another thread asks for the first name, and has no answer yet; the last name is merely kept by another process. So
 * the try is not over: it goes on with the first name, whose answer it waits for.
 */
TEST_ON(a_try_for_several_names_waits_for_a_keeper_though_it_left_another_name, stage *s)
{
    struct call call = {s->rt, 0, DIBS_INVALID};

    assert_status(DIBS_OK, dibs_lock(other, names[NAMES - 1]));
    atomic_store(&spy.first_held, true);
    actor *asker = actor_locking(s->rt, names[0], 0);
    await_that(atomic_load(&spy.holds));
    atomic_store(&spy.kept, true);
    actor *a = actor_running(lock_all, &call);
    stage_await_waiting(s, 1);
    assert_true(actor_busy(a));
    assert_false(atomic_load(&spy.kept));
    atomic_store(&spy.first_held, false);
    assert_status(DIBS_OK, actor_result(asker));
    actor_finish(a);
    assert_status(DIBS_BUSY, call.status); /* by the first name, which the other thread got */
    assert_status(DIBS_OK, dibs_unlock(other, names[NAMES - 1]));
    assert_status(DIBS_OK, actor_unlock(asker, s->rt, names[0]));
}

static void shut_down(void *rt)
{
    dibs_shutdown(rt);
}

/* dibs_close waits for the call for as long as one command may take, which its asks may have done already. */
TEST_ON(a_call_for_several_names_waits_for_nothing_once_the_runtime_closes, stage *s)
{
    struct call call = {s->rt, DIBS_WAIT_FOREVER, DIBS_INVALID};

    assert_status(DIBS_OK, dibs_lock(other, names[0]));
    atomic_store(&spy.first_held, true);
    actor *a = actor_running(lock_all, &call);
    await_that(atomic_load(&spy.holds));
    call_in_a_thread(shut_down, s->rt);
    atomic_store(&spy.first_held, false);
    actor_finish(a);
    assert_status(DIBS_CLOSED, call.status);
    assert_int_equal(spy.releases, 0);
    for (int i = 1; i < NAMES; i++)
        assert_status(DIBS_OK, dibs_timedlock(other, names[i], LIMIT_MS));
    assert_status(DIBS_OK, dibs_unlock_all(other));
}

TESTS(setup, teardown)
