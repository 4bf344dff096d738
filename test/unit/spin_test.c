/* When a thread polls before it sleeps: on a clock that the test moves, with a sched_yield of the test's own. */
#include <sched.h>

#include "base/spin.h"
#include "support/moved_clock.h"
#include "support/test.h"

#define US(n) ((int64_t)(n)*1000)
#define MOST 100
#define WAITS 10000
#define FAST US(25)   /* such a reply comes well before a thread that sleeps has been woken */
#define WAKING US(30) /* so much longer a wait takes in which the thread sleeps */
#define PUT_OFF MS(3) /* for so long a thread does not run when others have its processor */
#define RUNS US(20)   /* after so much polling others get it */

struct rig {
    struct dibs__clock clock;
    int64_t now;
    struct dibs__spin spin;
    bool shared;  /* the server runs on the thread's processor, so not while the thread polls */
    bool busy;    /* other work wants the processors: a thread that polls is put off now and then */
    int64_t ran;  /* how long the thread has polled since it was put off */
    bool crowded; /* other work wants the processors: one wait in some forty ends late, polled or slept */
    uint64_t dice;
    /* What the waits came to. */
    int64_t polled, slept; /* how many of them polled, and how many slept at once */
    int64_t polling;       /* how long threads polled without a reply */
};

static struct rig rig;
static int64_t yield_takes;
static int yields;

/* In place of the system's. */
int sched_yield(void)
{
    yields++;
    rig.now += yield_takes;
    return 0;
}

static int64_t now(const struct dibs__clock *clock)
{
    return ((const struct rig *)(const void *)clock)->now;
}

static void open_spin(uint32_t most_us)
{
    dibs__spin_init(&rig.spin, &dibs__system_clock, most_us);
    rig.spin.others = 1; /* as on a machine with two processors */
}

static int setup(void **state)
{
    rig = (struct rig){.clock = {.now = now}, .now = MS(1000000)};
    yield_takes = 0;
    yields = 0;
    open_spin(MOST);
    *state = &rig;
    return 0;
}

/* The thread looks for a reply once more, a microsecond later; others may have its processor meanwhile. */
static void run_on(void)
{
    rig.now += US(1);
    rig.ran += US(1);
    if (rig.busy && rig.ran >= RUNS) {
        rig.now += PUT_OFF;
        rig.ran = 0;
    }
}

/* Whether this wait ends late. */
static bool is_late(void)
{
    rig.dice = rig.dice * 6364136223846793005u + 1442695040888963407u;
    return rig.crowded && (rig.dice >> 33) % 40 == 0;
}

/* Whether the reply is there: the server has worked on it for so long. */
static bool is_there(int64_t began, int64_t reply)
{
    return rig.shared ? yields > 0 : rig.now - began >= reply;
}

/* One wait for a reply that comes after so long. True: the thread polled. */
static bool wait_for(int64_t reply)
{
    struct dibs__spinning wait;
    int64_t began = rig.now;
    bool came = false, polls;

    yields = 0;
    yield_takes = rig.shared ? reply : 0;
    dibs__spin_begin(&wait, &rig.spin, &rig.clock);
    polls = wait.polls;
    while (!came && dibs__spin_goes_on(&wait, &rig.clock)) {
        run_on();
        came = is_there(began, reply);
    }
    rig.polled += polls;
    rig.slept += !polls;
    if (!came) {
        rig.polling += rig.now - began;
        rig.now = rig.now - began > reply ? rig.now : began + reply;
        rig.now += rig.shared ? 0 : WAKING;
        rig.ran = 0;
    }
    rig.now += is_late() ? PUT_OFF : 0;
    dibs__spin_end(&wait, true, &rig.clock);
    return polls;
}

/* How long so many waits take. */
static int64_t wait_often(int count, int64_t reply)
{
    int64_t began = rig.now;

    for (int i = 0; i < count; i++)
        wait_for(reply);
    return rig.now - began;
}

/* -------------------------------------------------------- where polling pays */

TEST(threads_poll_where_polling_pays)
{
    assert_in_range(wait_often(WAITS, FAST), WAITS * FAST, WAITS * (FAST + US(1)));
    assert_in_range(rig.polled, WAITS * 98 / 100, WAITS);
}

/* This shows how long a wait takes without polling. */
TEST(one_wait_in_some_hundred_still_sleeps)
{
    wait_often(WAITS, FAST);
    assert_in_range(rig.slept, WAITS / 200, WAITS / 50);
}

/* One wait in twenty that outlasts the polling costs less than the others save. */
TEST(an_occasional_slow_answer_does_not_stop_polling)
{
    for (int i = 0; i < WAITS; i++)
        wait_for(i % 20 == 19 ? MS(1) : FAST);
    assert_in_range(rig.polled, WAITS * 98 / 100, WAITS);
}

TEST(one_preemption_does_not_stop_polling)
{
    wait_often(WAITS, FAST);
    rig.busy = true;
    rig.ran = RUNS;
    assert_true(wait_for(FAST));
    rig.busy = false;
    rig.polled = 0;
    wait_often(WAITS, FAST);
    assert_in_range(rig.polled, WAITS * 98 / 100, WAITS);
}

/*
 * Other work on the processors is no reason to sleep if a sleeping thread is late as often. 39 waits save 30 us each;
 * one late wait would cost more if all of its 3 ms counted.
 */
TEST(threads_poll_where_sleepers_are_late_as_well)
{
    rig.crowded = true;
    wait_often(10 * WAITS, FAST);
    assert_in_range(rig.polled, 10 * WAITS * 95 / 100, 10 * WAITS);
}

/* Other work has the processor during the yield: the thread was not put off while it polled, and the reply is there. */
TEST(time_in_yield_does_not_count_as_polling)
{
    struct dibs__spinning wait;

    dibs__spin_begin(&wait, &rig.spin, &rig.clock);
    assert_true(dibs__spin_goes_on(&wait, &rig.clock));
    yield_takes = MS(1);
    rig.now += US(MOST) - 1;
    assert_true(dibs__spin_goes_on(&wait, &rig.clock));
    assert_int_equal(yields, 1);
    rig.now += 1;
    assert_false(dibs__spin_goes_on(&wait, &rig.clock));
    assert_int_equal(yields, 1);
    dibs__spin_end(&wait, false, &rig.clock);
}

/* ------------------------------------------------- where polling does not pay */

/* A poll without a reply takes 100 us; 10,000 waits may have one in a hundred of them. */
TEST(threads_sleep_where_replies_are_slow)
{
    wait_often(WAITS, MS(1));
    assert_in_range(rig.polling, US(1), US(MOST) * WAITS / 100);
}

TEST(threads_sleep_where_replies_are_just_beyond_the_bound)
{
    open_spin(10000);
    wait_often(WAITS, US(10400));
    assert_in_range(rig.polling, US(1), MS(10) * WAITS / 100);
}

/* This holds however long polling has paid before. */
TEST(no_more_than_the_account_is_lost_when_replies_become_slow)
{
    wait_often(WAITS, FAST);
    rig.polling = 0;
    wait_often(WAITS / 10, MS(1));
    assert_in_range(rig.polling, US(1), MS(6));
}

TEST(no_wait_polls_beyond_the_bound)
{
    assert_true(wait_for(MS(1)));
    assert_in_range(rig.polling, US(MOST), US(MOST + 1));
}

/* Each wait that polls is put off: of 3 ms it is charged 100 us, which 13 ms of other waits pay in. */
TEST(polling_is_tried_every_13_ms_where_each_poll_is_late)
{
    rig.busy = true;
    int64_t took = wait_often(10 * WAITS, FAST);
    assert_in_range(took, INT64_C(10) * WAITS * FAST, INT64_C(10) * WAITS * (FAST + WAKING) * 125 / 100);
    assert_in_range(rig.polled, 1, took / MS(13));
}

/* On one processor the server runs when the thread sleeps or yields, and to sleep is quicker. */
TEST(threads_sleep_where_the_server_wants_the_processor)
{
    rig.shared = true;
    assert_in_range(wait_often(10 * WAITS, US(8)), INT64_C(10) * WAITS * US(8),
                    INT64_C(10) * WAITS * US(8) * 105 / 100);
    assert_in_range(rig.polled, 1, WAITS);
}

/* --------------------------------------------------- where it does pay again */

/* How long it takes until a hundred waits in a row have polled. */
static int64_t until_polling(void)
{
    int64_t began = rig.now;

    for (int row = 0; row < 100; row = wait_for(FAST) ? row + 1 : 0)
        assert_true(rig.now - began < MS(10000));
    return rig.now - began;
}

TEST(polling_is_back_within_milliseconds_after_slow_replies)
{
    wait_often(WAITS, MS(1));
    assert_in_range(until_polling(), 0, MS(20));
}

TEST(polling_is_back_soon_after_other_work)
{
    rig.busy = true;
    wait_often(WAITS, FAST);
    rig.busy = false;
    assert_in_range(until_polling(), 0, MS(20));
}

TEST(polling_is_back_soon_after_sharing_a_processor_with_the_server)
{
    rig.shared = true;
    wait_often(WAITS, US(8));
    rig.shared = false;
    assert_in_range(until_polling(), 0, MS(20));
}

/* --------------------------------------------------------------- what it may */

TEST(one_processor_stays_free_of_polling)
{
    struct dibs__spinning first, second;

    dibs__spin_begin(&first, &rig.spin, &rig.clock);
    dibs__spin_begin(&second, &rig.spin, &rig.clock);
    assert_true(first.polls);
    assert_false(dibs__spin_goes_on(&second, &rig.clock));
    dibs__spin_end(&second, true, &rig.clock);
    dibs__spin_end(&first, true, &rig.clock);
    dibs__spin_begin(&second, &rig.spin, &rig.clock);
    assert_true(dibs__spin_goes_on(&second, &rig.clock));
    dibs__spin_end(&second, true, &rig.clock);
}

/* A thread that has given up and sleeps keeps no other from polling. */
TEST(a_thread_that_gave_up_polls_no_more)
{
    struct dibs__spinning first, second;

    dibs__spin_begin(&first, &rig.spin, &rig.clock);
    rig.now += US(MOST);
    assert_false(dibs__spin_goes_on(&first, &rig.clock));
    dibs__spin_begin(&second, &rig.spin, &rig.clock);
    assert_true(dibs__spin_goes_on(&second, &rig.clock));
    dibs__spin_end(&second, true, &rig.clock);
    dibs__spin_end(&first, true, &rig.clock);
}

/* Polling learns nothing from a wait that timed out, or from one that has no account. */
TEST(polling_learns_nothing_from_other_waits)
{
    struct dibs__spinning wait;

    for (int i = 0; i < 1000; i++) {
        dibs__spin_begin(&wait, i % 2 ? NULL : &rig.spin, &rig.clock);
        rig.now += MS(1);
        assert_false(dibs__spin_goes_on(&wait, &rig.clock));
        dibs__spin_end(&wait, i % 2, &rig.clock);
    }
    assert_int_equal(atomic_load(&rig.spin.account), 0);
    assert_int_equal(atomic_load(&rig.spin.asleep), US(MOST) / 2);
}

/* A forked child has none of the threads that polled. */
TEST(a_child_begins_with_nobody_polling)
{
    struct dibs__spinning gone, own;

    dibs__spin_begin(&gone, &rig.spin, &rig.clock);
    assert_true(gone.polls);
    dibs__spin_after_fork();
    dibs__spin_begin(&own, &rig.spin, &rig.clock);
    assert_true(dibs__spin_goes_on(&own, &rig.clock));
    dibs__spin_end(&own, true, &rig.clock);
}

TEST(polling_can_be_switched_off)
{
    open_spin(0);
    assert_false(wait_for(FAST));
}

/* A clock that stands still would never end the polling. */
TEST(nobody_polls_by_a_simulated_clock)
{
    dibs__spin_init(&rig.spin, &rig.clock, MOST);
    assert_false(wait_for(FAST));
}

#ifdef __linux__
/* The server may run on another machine. If not, the measurements show that polling does not pay. */
TEST(one_thread_may_poll_in_a_process_with_one_processor)
{
    cpu_set_t before, one;

    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&one);
    for (size_t cpu = 0; CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &before))
            CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    dibs__spin_init(&rig.spin, &dibs__system_clock, MOST);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_int_equal(rig.spin.others, 1);
}
#endif

TESTS(setup, NULL)
