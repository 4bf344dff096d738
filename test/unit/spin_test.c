/* When a thread polls before it sleeps: on a clock whose readings the test chooses. */
#include <sched.h>

#include "base/spin.h"
#include "support/moved_clock.h"
#include "support/test.h"

#define US(n) ((int64_t)(n)*1000)
#define MOST 100

struct rig {
    struct dibs__clock clock;
    int64_t now;
    struct dibs__spin spin;
};

static int64_t now(const struct dibs__clock *clock)
{
    return ((const struct rig *)(const void *)clock)->now;
}

static int setup(void **state)
{
    static struct rig rig;

    rig = (struct rig){.clock = {.now = now}, .now = MS(1000000)};
    dibs__spin_init(&rig.spin, &dibs__system_clock, MOST);
    rig.spin.others = 1; /* as on a machine with two processors */
    *state = &rig;
    return 0;
}

/* One wait, whose end comes after `takes`; the clock is read each microsecond. How long the thread polled; -1: not at
 * all. */
static int64_t wait_for(struct rig *r, int64_t takes)
{
    struct dibs__spinning spinning;
    int64_t began = r->now, polled;
    bool seen;

    if (!dibs__spin_begin(&spinning, &r->spin, &r->clock)) {
        r->now += takes;
        return -1;
    }
    while (!(seen = r->now - began >= takes) && dibs__spin_goes_on(&spinning, &r->clock))
        r->now += US(1);
    polled = r->now - began;
    dibs__spin_end(&spinning, seen);
    if (!seen)
        r->now = began + takes;
    return polled;
}

static void short_waits_are_seen_to_their_end(void **state)
{
    struct rig *r = *state;

    for (int i = 0; i < 1000; i++)
        assert_int_equal(wait_for(r, US(30)), US(30));
}

/* A thread polls for about as long as such waits took lately: not for the whole bound. */
static void polling_ends_soon_after_the_usual_time(void **state)
{
    struct rig *r = *state;

    for (int i = 0; i < 1000; i++)
        wait_for(r, US(10));
    int64_t polled = wait_for(r, US(90));
    assert_in_range(polled, US(20), US(40));
}

static void no_wait_is_polled_beyond_the_bound(void **state)
{
    struct rig *r = *state;

    for (int i = 0; i < 1000; i++)
        wait_for(r, US(MOST - 5));
    assert_in_range(wait_for(r, US(1000)), US(MOST - 5), US(MOST + 1));
}

/* Waits of 1 ms are beyond the bound: less than one in a hundred is polled. */
static void where_waits_are_long_threads_sleep(void **state)
{
    struct rig *r = *state;
    int64_t polled = 0;

    for (int i = 0; i < 10000; i++) {
        int64_t took = wait_for(r, MS(1));
        polled += took > 0 ? took : 0;
    }
    assert_in_range(polled, 1, MS(10000) / 1000);
}

/* The time of a try that was in vain is no time in which polling went well, however long the bound is. */
static void where_waits_are_a_little_longer_than_a_long_bound_threads_sleep(void **state)
{
    struct rig *r = *state;
    int64_t polled = 0;

    dibs__spin_init(&r->spin, &dibs__system_clock, 10000);
    r->spin.others = 1;
    for (int i = 0; i < 10000; i++) {
        int64_t took = wait_for(r, US(10400));
        polled += took > 0 ? took : 0;
    }
    assert_in_range(polled, 1, US(10400) * 10000 / 50);
}

static void after_long_waits_short_ones_are_polled_again(void **state)
{
    struct rig *r = *state;
    int polled = 0;

    for (int i = 0; i < 1000; i++)
        wait_for(r, MS(1));
    for (int i = 0; i < 200000; i++)
        polled += wait_for(r, US(30)) >= 0;
    assert_in_range(polled, 150000, 200000);
}

/* One wait in twenty that outlasts the polling costs less than it saves. */
static void a_slow_answer_now_and_then_changes_nothing(void **state)
{
    struct rig *r = *state;
    int polled = 0;

    for (int i = 0; i < 2000; i++)
        polled += wait_for(r, i % 20 == 19 ? MS(1) : US(30)) >= 0;
    assert_int_equal(polled, 2000);
}

/* A thread that polls and is put off the processor: other threads want it. */
static bool is_put_off(struct rig *r)
{
    struct dibs__spinning spinning;

    if (!dibs__spin_begin(&spinning, &r->spin, &r->clock))
        return false;
    r->now += MS(3);
    assert_false(dibs__spin_goes_on(&spinning, &r->clock));
    dibs__spin_end(&spinning, true);
    return true;
}

/* On a busy machine a thread polls for 3 ms until it is put off; those must be a small part of all the time. */
static void on_a_busy_machine_threads_sleep(void **state)
{
    struct rig *r = *state;
    int64_t began = r->now, polled = 0;

    while (r->now - began < MS(60000)) {
        if (is_put_off(r))
            polled += MS(3);
        else
            r->now += US(100);
    }
    assert_in_range(polled, 1, MS(60000) / 200);
}

static void put_off_once_a_thread_soon_polls_again(void **state)
{
    struct rig *r = *state;

    assert_true(is_put_off(r));
    assert_int_equal(wait_for(r, US(30)), -1);
    r->now += MS(3);
    assert_int_equal(wait_for(r, US(30)), US(30));
}

static void one_processor_stays_free_of_polling(void **state)
{
    struct rig *r = *state;
    struct dibs__spinning first, second;

    assert_true(dibs__spin_begin(&first, &r->spin, &r->clock));
    assert_false(dibs__spin_begin(&second, &r->spin, &r->clock));
    dibs__spin_end(&first, true);
    assert_true(dibs__spin_begin(&second, &r->spin, &r->clock));
    dibs__spin_end(&second, true);
    r->spin.others = 0;
    assert_false(dibs__spin_begin(&first, &r->spin, &r->clock));
}

/* A forked child has none of the threads that polled. */
static void a_child_begins_with_nobody_polling(void **state)
{
    struct rig *r = *state;
    struct dibs__spinning gone, own;

    assert_true(dibs__spin_begin(&gone, &r->spin, &r->clock));
    dibs__spin_after_fork();
    assert_true(dibs__spin_begin(&own, &r->spin, &r->clock));
    dibs__spin_end(&own, true);
}

static void polling_can_be_switched_off(void **state)
{
    struct rig *r = *state;
    struct dibs__spinning spinning;

    dibs__spin_init(&r->spin, &dibs__system_clock, 0);
    assert_false(dibs__spin_begin(&spinning, &r->spin, &r->clock));
}

/* A clock that stands still would never end the polling. */
static void by_a_clock_that_is_moved_nobody_polls(void **state)
{
    struct rig *r = *state;
    struct dibs__spinning spinning;

    dibs__spin_init(&r->spin, &r->clock, MOST);
    assert_false(dibs__spin_begin(&spinning, &r->spin, &r->clock));
}

#ifdef __linux__
static void a_process_with_one_processor_never_polls(void **state)
{
    struct rig *r = *state;
    cpu_set_t before, one;

    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&one);
    for (size_t cpu = 0; CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &before))
            CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    dibs__spin_init(&r->spin, &dibs__system_clock, MOST);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_int_equal(r->spin.others, 0);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(short_waits_are_seen_to_their_end, setup),
        cmocka_unit_test_setup(polling_ends_soon_after_the_usual_time, setup),
        cmocka_unit_test_setup(no_wait_is_polled_beyond_the_bound, setup),
        cmocka_unit_test_setup(where_waits_are_long_threads_sleep, setup),
        cmocka_unit_test_setup(where_waits_are_a_little_longer_than_a_long_bound_threads_sleep, setup),
        cmocka_unit_test_setup(after_long_waits_short_ones_are_polled_again, setup),
        cmocka_unit_test_setup(a_slow_answer_now_and_then_changes_nothing, setup),
        cmocka_unit_test_setup(on_a_busy_machine_threads_sleep, setup),
        cmocka_unit_test_setup(put_off_once_a_thread_soon_polls_again, setup),
        cmocka_unit_test_setup(one_processor_stays_free_of_polling, setup),
        cmocka_unit_test_setup(a_child_begins_with_nobody_polling, setup),
        cmocka_unit_test_setup(polling_can_be_switched_off, setup),
        cmocka_unit_test_setup(by_a_clock_that_is_moved_nobody_polls, setup),
#ifdef __linux__
        cmocka_unit_test_setup(a_process_with_one_processor_never_polls, setup),
#endif
    };

    return cmocka_run_group_tests_name("spin", tests, NULL, NULL);
}
