/*
 * A fair acquire behind others of its process sleeps for the grant before it takes the answer to its ask. The store in
 * memory stands for one whose asks are on their way: an ask is done when it begins, and its answer kept.
 */
#include "core/asker.h"
#include "support/fixture.h"
#include "support/stage.h"

#define LEASE 30000
#define LONG_MS 1000
#define KEEPS_MS 5 /* ANSWER_KEEPS_MS of core/acquire.c */

static const dibs_lock_options fair = {.flags = DIBS_FAIR};

/*
 * One ask at a time is begun and not finished; meanwhile another thread may finish one that was not begun. Set while no
 * thread asks, but for `kept`, `begun` and `finished`.
 */
static struct {
    const struct dibs__store_ops *real;
    struct dibs__store_ops ops;
    bool keeps;
    _Atomic(struct dibs__op *) kept; /* the ask that was begun */
    dibs_status status;              /* of that; with `error` that of the thread whose ask it is */
    struct dibs__error error;
    atomic_uint begun, finished; /* asks */
    stage *late;                 /* whose clock goes on for long before the next answer is taken; NULL: it does not */
    dibs_runtime *second;        /* the test's own thread holds "a" by this runtime */
} spy;

static void begin(struct dibs__store *store, struct dibs__op *op)
{
    if (op->kind != DIBS__OP_ASK)
        return;
    atomic_fetch_add(&spy.begun, 1);
    spy.status = spy.real->finish(store, op, &spy.error);
    atomic_store(&spy.kept, op);
}

static enum dibs__progress progress(struct dibs__store *store, const struct dibs__op *op, struct dibs__wait *wait)
{
    return op == atomic_load(&spy.kept) ? DIBS__OP_OVER : DIBS__OP_IMMEDIATE;
}

static dibs_status finish(struct dibs__store *store, struct dibs__op *op, struct dibs__error *error)
{
    if (op->kind == DIBS__OP_ASK)
        atomic_fetch_add(&spy.finished, 1);
    if (op != atomic_load(&spy.kept))
        return spy.real->finish(store, op, error);
    atomic_store(&spy.kept, NULL);
    if (spy.late)
        moved_clock_advance(&spy.late->clock, MS(LONG_MS));
    if (spy.status != DIBS_OK)
        *error = spy.error;
    return spy.status;
}

static dibs_status open_spied(struct dibs__store **out, const struct dibs__store_config *config,
                              struct dibs__error *error)
{
    dibs_status status = faulty_store_open(out, config, error);

    if (status == DIBS_OK) {
        spy.real = (*out)->ops;
        spy.ops = *spy.real;
        spy.ops.begin = begin;
        spy.ops.progress = progress;
        spy.ops.finish = finish;
        (*out)->ops = &spy.ops;
        (*out)->answers_keep = spy.keeps;
    }
    return status;
}

static int setup_with(void **state, bool keeps)
{
    int status = stage_setup(state);
    stage *s = *state;

    s->url = "mem:unread";
    memset(&spy, 0, sizeof spy);
    spy.keeps = keeps;
    spy.second = stage_open_another(s, LEASE);
    s->settings.open_store = open_spied;
    stage_open(s, LEASE);
    assert_status(DIBS_OK, dibs_lock(spy.second, "a"));
    return status;
}

static int setup(void **state)
{
    return setup_with(state, true);
}

static int setup_unkept(void **state)
{
    return setup_with(state, false);
}

static int teardown(void **state)
{
    dibs_close(spy.second);
    return stage_teardown(state);
}

static void lock(void *rt)
{
    assert_status(DIBS_OK, dibs_lock_with(rt, "a", DIBS_WAIT_FOREVER, &fair));
}

/* Two threads wait for the lock, one behind the other. */
static void begin_two(stage *s, actor *actors[2])
{
    for (size_t i = 0; i < 2; i++) {
        actors[i] = actor_running(lock, s->rt);
        stage_await_waiting(s, i + 1);
    }
}

/* Both get the lock, one after the other. */
static void expect_both(stage *s, actor *actors[2])
{
    assert_status(DIBS_OK, dibs_unlock(spy.second, "a"));
    for (size_t i = 0; i < 2; i++) {
        actor_finish(actors[i]);
        assert_status(DIBS_OK, actor_unlock(actors[i], s->rt, "a"));
    }
    assert_int_equal(stats_of(s->rt).leases, 0);
    assert_status(DIBS_OK, dibs_trylock(spy.second, "a"));
}

TEST_ON(a_waiter_behind_another_is_granted_before_its_answer_is_taken, stage *s)
{
    actor *actors[2];

    begin_two(s, actors);
    assert_int_equal(atomic_load(&spy.begun), 1);
    assert_int_equal(atomic_load(&spy.finished), 1); /* of the first, which waits behind nobody */
    expect_both(s, actors);
    assert_int_equal(atomic_load(&spy.begun), 1);
    assert_int_equal(atomic_load(&spy.finished), 2);
    assert_int_equal(stats_of(s->rt).granted, 2);
    assert_int_equal(stats_of(s->rt).contended, 2);
}

TEST_ON(an_answer_that_nobody_waits_for_is_taken_in_time, stage *s)
{
    actor *actors[2];

    begin_two(s, actors);
    moved_clock_advance(&s->clock, MS(KEEPS_MS) - 1);
    stage_await_waiting(s, 2);
    assert_int_equal(atomic_load(&spy.finished), 1);
    moved_clock_advance(&s->clock, 1);
    await_that(atomic_load(&spy.finished) == 2);
    stage_await_waiting(s, 2);
    expect_both(s, actors);
    assert_int_equal(atomic_load(&spy.finished), 2);
    assert_int_equal(stats_of(s->rt).granted, 2);
}

static void lock_for_less(void *rt)
{
    assert_status(DIBS_OK, dibs_lock_with(rt, "a", LONG_MS / 2, &fair));
}

TEST_ON(a_grant_in_time_counts_though_its_thread_wakes_late, stage *s)
{
    actor *actors[2];

    actors[0] = actor_running(lock, s->rt);
    stage_await_waiting(s, 1);
    actors[1] = actor_running(lock_for_less, s->rt);
    stage_await_waiting(s, 2);
    spy.late = s;
    expect_both(s, actors);
    assert_int_equal(atomic_load(&spy.finished), 2);
}

/* As where the subscription was another: a grant may have been missed. */
TEST_ON(who_must_ask_again_does_though_its_answer_was_not_taken, stage *s)
{
    actor *actors[2];

    begin_two(s, actors);
    dibs__askers_wake(s->rt->core->cells, DIBS__ASKERS_MISSED);
    await_that(atomic_load(&spy.finished) == 4); /* two asks of each */
    stage_await_waiting(s, 2);
    expect_both(s, actors);
    assert_int_equal(atomic_load(&spy.finished), 4);
}

TEST_WITH(a_store_whose_answers_do_not_keep_is_finished_at_once, setup_unkept, teardown, stage *s)
{
    actor *actors[2];

    begin_two(s, actors);
    assert_int_equal(atomic_load(&spy.begun), 0);
    assert_int_equal(atomic_load(&spy.finished), 2);
    expect_both(s, actors);
}

TESTS(setup, teardown)
