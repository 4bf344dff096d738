/* The thread that asks the store: what wakes it between two asks, and how often it asks. */
#include "core/asker.h"
#include "support/fixture.h"
#include "support/test.h"
#include "support/wait.h"
#include "unit/turn_setup.h"

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

#define TEST(name) cmocka_unit_test_setup_teardown(name, stage_setup, stage_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_grant_by_the_store_wakes_the_asker_at_once),
        TEST(a_lease_that_ends_elsewhere_is_granted_at_once),
        TEST(a_hint_makes_the_asker_ask_at_once),
        TEST(it_asks_as_often_as_those_behind_it_would),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
