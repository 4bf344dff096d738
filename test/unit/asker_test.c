/* The thread that asks the store: what wakes it between two asks, and how often it asks. */
#include "core/asker.h"
#include "support/fixture.h"
#include "unit/turn_setup.h"

/* ------------------------------------------------------- grants by the store */

TEST_ON(a_grant_by_the_store_wakes_the_asker_at_once, stage *s)
{
    stage_open_at(s, "mem:grants", LEASE);
    dibs_runtime *second = stage_rival(s, LEASE, "a");
    actor *other = stage_waiter(s, "a", FOREVER, 1);
    assert_status(DIBS_OK, dibs_unlock(second, "a"));
    assert_status(DIBS_OK, actor_result(other)); /* the clock has not moved */
    assert_int_equal(acquires(s), 2);            /* each asked once */
    assert_int_equal(faults_count(&s->faults, &s->faults.pushes), 1);
    assert_int_equal(stats_of(s->rt).granted, 1);
    assert_status(DIBS_OK, actor_unlock(other, s->rt, "a"));
}

TEST_ON(a_lease_that_ends_elsewhere_is_granted_at_once, stage *s)
{
    const dibs_lock_options fixed = {.lease_ms = 7000, .flags = DIBS_FIXED_LEASE};

    stage_open_at(s, "mem:grants", LEASE);
    dibs_runtime *second = test_runtime(stage_open_another(s, LEASE));
    int64_t start = moved_clock_now(&s->clock);
    assert_status(DIBS_OK, dibs_lock_with(second, "a", 0, &fixed));
    actor *other = stage_waiter(s, "a", FOREVER, 1);
    moved_clock_settle(&s->clock, 2);
    moved_clock_set(&s->clock,
                    start + believed(7000)); /* the holder knows that its lease is lost, and it is retracted */
    assert_status(DIBS_OK, actor_result(other));
    assert_int_equal(acquires(s), 2);
    assert_int_equal(stats_of(s->rt).granted, 1);
    assert_status(DIBS_LOST, dibs_unlock(second, "a"));
}

TEST_ON(a_hint_makes_the_asker_ask_at_once, stage *s)
{
    actor *crowd[CROWD];

    stage_open(s, LEASE);
    faults_acquire(&s->faults, DIBS_BUSY, 1); /* in no queue, so no message tells it when the lock is free */
    begin_crowd(s, crowd, 0, FOREVER);
    dibs__askers_wake(s->rt->core->cells, DIBS__ASKERS_MISSED);
    assert_status(DIBS_OK, actor_result(crowd[0])); /* the clock has not moved */
    assert_int_equal(acquires(s), 2);
    for (size_t i = 0; i + 1 < CROWD; i++) {
        assert_status(DIBS_OK, actor_unlock(crowd[i], s->rt, "a"));
        assert_status(DIBS_OK, actor_result(crowd[i + 1]));
    }
    assert_status(DIBS_OK, actor_unlock(crowd[CROWD - 1], s->rt, "a"));
}

/* --------------------------------------------------------- how often it asks */

/* Expects one more ask when so much time has passed, and none before. */
static void expect_ask_after(stage *s, int64_t ms, size_t waiting)
{
    unsigned before = acquires(s);

    moved_clock_advance(&s->clock, MS(ms) - 1);
    stage_await_waiting(s, waiting);
    assert_int_equal(acquires(s), before);
    moved_clock_advance(&s->clock, 1);
    await_that(acquires(s) > before); /* the asker may not have woken yet */
    stage_await_waiting(s, waiting);
    assert_int_equal(acquires(s), before + 1);
}

/*
 * The asker's own lease is long, but for those that wait behind it there must be an ask every third of their short
 * ones.
 */
TEST_ON(the_asker_asks_as_often_as_its_most_impatient_waiter, stage *s)
{
    static const dibs_lock_options leases[] = {{.lease_ms = 3000}, {.lease_ms = 6000}, {.lease_ms = 300}};
    actor *crowd[4];

    stage_open_at(s, "mem:often", LEASE);
    stage_rival(s, 86400000, "a");
    crowd[0] = stage_waiter(s, "a", FOREVER, 1);
    expect_ask_after(s, LEASE / 3, 1);
    crowd[1] = stage_waiter_with(s, "a", FOREVER, &leases[0], 2); /* while it sleeps */
    expect_ask_after(s, 1000, 2);
    expect_ask_after(s, 1000, 2);
    moved_clock_advance(&s->clock, MS(500));
    crowd[2] = stage_waiter_with(s, "a", FOREVER, &leases[1], 3);
    expect_ask_after(s, 500, 3);
    crowd[3] = stage_waiter_with(s, "a", 450, &leases[2], 4);
    for (int i = 0; i < 4; i++)
        expect_ask_after(s, 100, 4);
    moved_clock_advance(&s->clock, MS(50)); /* the waiter with the shortest lease has left */
    assert_status(DIBS_TIMEOUT, actor_result(crowd[3]));
    expect_ask_after(s, 50, 3); /* the ask that was due already */
    expect_ask_after(s, 1000, 3);
    dibs_shutdown(s->rt);
}

/* ------------------------------------------------ behind a foreign holder */

#define POLLED 1000 /* ms between asks where the store does not tell */
#define TOLD 10000  /* and where it does */
#define QUIET 250   /* after so long without a change, the next one is followed by an ask at once */

static unsigned tellings(stage *s)
{
    return faults_count(&s->faults, &s->faults.tellings);
}

static unsigned told_again(stage *s)
{
    return faults_count(&s->faults, &s->faults.told_again);
}

static void change(stage *s, const char *name)
{
    faulty_store_change(s->rt->core->store, name);
}

/* A foreign client holds "a", for which a thread waits, and the store tells of changes, or does not (0). */
static actor *begin_behind_foreign(stage *s, uint64_t tells)
{
    s->faults.watches = true;
    s->faults.tells = tells;
    stage_open(s, LEASE);
    faults_acquire(&s->faults, DIBS_BUSY, FOR_EVER);
    actor *other = stage_waiter(s, "a", FOREVER, 1);
    assert_int_equal(acquires(s), 1);
    assert_int_equal(tellings(s), 1);
    return other;
}

/* Expects one more ask because of the message, though no time has passed. */
static void expect_ask_now(stage *s, unsigned before)
{
    await_that(acquires(s) > before);
    stage_await_waiting(s, 1);
    assert_int_equal(acquires(s), before + 1);
}

static void end_waiting(stage *s, actor *other)
{
    faults_acquire(&s->faults, DIBS_OK, 0);
    change(s, "a");
    actor_gets(other, s->rt, "a");
}

TEST_ON(an_asker_told_of_a_foreign_release_asks_rarely_and_then_at_once, stage *s)
{
    actor *other = begin_behind_foreign(s, 7);

    expect_ask_after(s, TOLD, 1);
    expect_ask_after(s, TOLD, 1);
    assert_int_equal(tellings(s), 3);
    assert_int_equal(told_again(s), 1); /* the store still tells */
    end_waiting(s, other);
    assert_int_equal(acquires(s), 4);
}

TEST_ON(a_store_that_does_not_tell_is_asked_often, stage *s)
{
    actor *other = begin_behind_foreign(s, 0);

    expect_ask_after(s, POLLED, 1);
    expect_ask_after(s, POLLED, 1);
    s->faults.tells = 3;
    expect_ask_after(s, POLLED, 1);
    expect_ask_after(s, TOLD, 1);
    faults_block_acquires(&s->faults);
    moved_clock_advance(&s->clock, MS(TOLD));
    faults_await_blocked(&s->faults);
    s->faults.tells = 0;
    faults_unblock_acquires(&s->faults);
    stage_await_waiting(s, 1);
    expect_ask_after(s, POLLED, 1);
    end_waiting(s, other);
}

/* The store tells once after each look: after a message, the asker has the lock looked at again. */
TEST_ON(an_asker_that_was_told_asks_to_be_told_again, stage *s)
{
    actor *other = begin_behind_foreign(s, 7);

    for (unsigned i = 1; i <= 5; i++) {
        change(s, "a");
        expect_ask_now(s, i);
        assert_int_equal(told_again(s), 1 + i);
        moved_clock_advance(&s->clock, MS(QUIET));
    }
    stage_await_waiting(s, 1);
    assert_int_equal(acquires(s), 6);
    change(s, "a");
    expect_ask_now(s, 6);
    expect_ask_after(s, TOLD, 1);
    assert_int_equal(told_again(s), 7);
    end_waiting(s, other);
}

/* The lock keeps changing: the store is asked at once, and then no more often than by an asker without messages. */
static void expect_rest(stage *s, const char *changed)
{
    enum { STREAM_MS = 2000, REST_LEAST_MS = 50, FIRST = 8 }; /* so many asks until it rests for that long */

    actor *other = begin_behind_foreign(s, 7);

    change(s, changed);
    expect_ask_now(s, 1);
    for (unsigned i = 0; i < STREAM_MS; i++) {
        change(s, changed);
        moved_clock_advance(&s->clock, MS(1));
        stage_await_waiting(s, 1);
    }
    assert_true(acquires(s) <= FIRST + STREAM_MS / REST_LEAST_MS);
    faults_acquire(&s->faults, DIBS_OK, 0);
    change(s, changed); /* while it rests: the message is not forgotten */
    moved_clock_advance(&s->clock, MS(100));
    actor_gets(other, s->rt, "a");
}

TEST(an_asker_told_all_the_time_backs_off)
{
    expect_rest(*state, "a");
}

TEST(an_asker_told_of_all_locks_all_the_time_backs_off)
{
    expect_rest(*state, NULL);
}

/* A message that any lock may have changed concerns this one. */
TEST_ON(an_asker_told_of_all_locks_asks_to_be_told_again, stage *s)
{
    actor *other = begin_behind_foreign(s, 7);

    for (unsigned i = 1; i <= 3; i++) {
        change(s, NULL);
        expect_ask_now(s, i);
        assert_int_equal(told_again(s), 1 + i);
        moved_clock_advance(&s->clock, MS(QUIET));
    }
    end_waiting(s, other);
}

TEST_ON(a_message_during_an_ask_is_not_lost, stage *s)
{
    actor *other = begin_behind_foreign(s, 7);

    faults_block_acquires(&s->faults);
    change(s, "a");
    faults_await_blocked(&s->faults);
    change(s, "a"); /* the ask under way may have found the lock as it was before */
    faults_unblock_acquires(&s->faults);
    stage_await_waiting(s, 1);
    moved_clock_advance(&s->clock, MS(2)); /* so long it rests at most */
    expect_ask_now(s, 2);
    stage_await_waiting(s, 1);
    assert_int_equal(acquires(s), 3);
    expect_ask_after(s, TOLD, 1);
    end_waiting(s, other);
}

TEST_ON(a_message_wakes_only_an_asker_that_expects_it, stage *s)
{
    s->url = "mem:expects";
    s->faults.watches = true;
    s->faults.tells = 7;
    stage_open(s, LEASE);
    dibs_runtime *second = stage_rival(s, LEASE, "a");
    actor *other = stage_waiter(s, "a", FOREVER, 1);
    change(s, "a"); /* the holder uses dibs: the store grants the lock by itself */
    change(s, "b");
    pause_ms(20);
    stage_await_waiting(s, 1);
    assert_int_equal(acquires(s), 2); /* each asked once */
    assert_int_equal(tellings(s), 0);
    assert_status(DIBS_OK, dibs_unlock(second, "a"));
    assert_status(DIBS_OK, actor_result(other));
}

TEST_ON(a_message_about_another_name_wakes_nobody, stage *s)
{
    actor *other = begin_behind_foreign(s, 7);

    change(s, "b");
    change(s, "aa");
    change(s, "");
    pause_ms(20);
    stage_await_waiting(s, 1);
    assert_int_equal(acquires(s), 1);
    end_waiting(s, other);
}

TESTS(stage_setup, stage_teardown)
