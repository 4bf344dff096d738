/* A thread that sleeps until another wakes it. */
#include "base/sleeper.h"
#include "support/moved_clock.h"
#include "support/test.h"

enum { ROUNDS = 20000 };

struct rig {
    struct moved_clock clock;
    struct dibs__sleeper sleeper;
    atomic_bool slept;
};

static int setup(void **state)
{
    static struct rig rig;

    moved_clock_init(&rig.clock);
    rig.sleeper = (struct dibs__sleeper){0};
    atomic_store(&rig.slept, false);
    *state = &rig;
    return 0;
}

static int teardown(void **state)
{
    struct rig *r = *state;

    moved_clock_destroy(&r->clock);
    return 0;
}

static void *sleep_for_a_second(void *arg)
{
    struct rig *r = arg;

    dibs__sleeper_sleep(&r->sleeper, &r->clock.clock, moved_clock_now(&r->clock) + MS(1000));
    atomic_store(&r->slept, true);
    return NULL;
}

TEST_ON(a_wake_ends_a_sleepers_sleep, struct rig *r)
{
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, sleep_for_a_second, r), 0);
    moved_clock_await_waiting(&r->clock, 1);
    assert_false(atomic_load(&r->slept));
    dibs__sleeper_wake(&r->sleeper);
    pthread_join(thread, NULL);
    assert_true(atomic_load(&r->slept));
}

TEST_ON(a_deadline_ends_a_sleepers_sleep, struct rig *r)
{
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, sleep_for_a_second, r), 0);
    moved_clock_await_waiting(&r->clock, 1);
    moved_clock_advance(&r->clock, MS(999));
    assert_false(atomic_load(&r->slept));
    moved_clock_advance(&r->clock, MS(1));
    pthread_join(thread, NULL);
}

/* On a stopped clock, an unnecessary sleep would never end. */
TEST_ON(a_wake_before_the_sleep_is_not_lost_and_counts_once, struct rig *r)
{
    pthread_t thread;

    dibs__sleeper_wake(&r->sleeper);
    dibs__sleeper_wake(&r->sleeper);
    sleep_for_a_second(r);
    assert_int_equal(pthread_create(&thread, NULL, sleep_for_a_second, r), 0);
    moved_clock_await_waiting(&r->clock, 1);
    dibs__sleeper_wake(&r->sleeper);
    pthread_join(thread, NULL);
}

struct pair {
    struct dibs__sleeper here, there;
    atomic_int turns; /* even: the thread's here; odd: there */
};

/* Takes every second turn. */
static void play(struct pair *pair, struct dibs__sleeper *own, struct dibs__sleeper *other, int parity)
{
    for (int i = parity; i < ROUNDS; i += 2) {
        while (atomic_load_explicit(&pair->turns, memory_order_relaxed) != i)
            dibs__sleeper_sleep(own, &dibs__system_clock, DIBS__NEVER);
        atomic_store_explicit(&pair->turns, i + 1, memory_order_relaxed);
        dibs__sleeper_wake(other);
    }
}

static void *play_there(void *arg)
{
    struct pair *pair = arg;

    play(pair, &pair->there, &pair->here, 1);
    return NULL;
}

/* Without a deadline a single lost wake would stop both for ever. */
TEST_WITH(two_threads_wake_each_other_without_end, NULL, NULL, void *none)
{
    struct pair pair = {0};
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, play_there, &pair), 0);
    play(&pair, &pair.here, &pair.there, 0);
    pthread_join(thread, NULL);
    assert_int_equal(atomic_load(&pair.turns), ROUNDS);
}

TESTS(setup, teardown)
