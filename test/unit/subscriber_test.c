/* The subscriber subscribes, subscribes again when its connection breaks, and wakes the threads that wait for that. */
#include "unit/subscriber_setup.h"

/* --------------------------------------------------------------- subscribing */

TEST_ON(a_subscriber_connects_only_when_wanted, struct rig *r)
{
    static const char *const order[] = {"CLIENT SETNAME tester", "CLIENT ID", "INFO server",
                                        "CLIENT KILL ID 9223372036854775807", "SUBSCRIBE dibs:test"};

    assert_true(deadline_of(r) == DIBS__NEVER);
    for (int i = 0; i < 10; i++)
        attend(r);
    assert_int_equal(fake_redis_accepted(r->fake), 0);
    assert_int_equal(r->woken, 0);
    assert_int_equal(serial_of(r), 0);
    assert_int_equal(r->woken, 1);
    assert_int_equal(serial_of(r), 0);
    assert_int_equal(r->woken, 1);
    assert_true(deadline_of(r) <= moved_clock_now(&r->clock));
    attend(r);
    assert_true(deadline_of(r) <= moved_clock_now(&r->clock)); /* the link is to settle its address */
    assert_true(subscribed(r) > 0);
    assert_int_equal(r->subscribed, 1);
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        assert_int_equal(fake_redis_place(r->fake, order[i], 1), i);
    assert_int_equal(fake_redis_count(r->fake, ""), 5);
    assert_int_equal(r->commands, 5);
}

TEST_ON(a_subscription_counts_only_once_confirmed, struct rig *r)
{
    static const char *const others[] = {"+OK\r\n", "*3\r\n$9\r\nsubscribe\r\n$5\r\nother\r\n:1\r\n"};
    struct dibs__error error;
    uint64_t serial;

    serial_of(r);
    for (unsigned i = 0; i < sizeof others / sizeof *others; i++) {
        fake_redis_answer(r->fake, "SUBSCRIBE", others[i]);
        expect_failed_try(r, i + 1);
        assert_status(DIBS_STORE_ERROR, dibs__subscriber_await(r->subscriber, 0, &serial, &error));
        assert_int_equal(serial, 0);
        pass_pause(r);
    }
    assert_int_equal(r->subscribed, 0);
    fake_redis_answer(r->fake, "SUBSCRIBE", CONFIRMED);
    subscribed(r);
}

TEST_ON(a_confirmation_at_the_last_moment_is_in_time, struct rig *r)
{
    fake_redis_answer(r->fake, "SUBSCRIBE", "");
    serial_of(r);
    ATTEND_UNTIL(r, fake_redis_count(r->fake, "SUBSCRIBE") == 1);
    attend_all(r);
    int server = take_over(r);
    feed_text(server, CONFIRMED);
    moved_clock_advance(&r->clock, MS(CONNECT_MS));
    attend(r);
    assert_true(serial_of(r) != 0);
}

TEST_ON(a_broken_subscription_is_made_again, struct rig *r)
{
    uint64_t first = subscribed(r);

    fake_redis_cut(r->fake);
    uint64_t second = subscribed_again(r);
    assert_true(second > first);
    assert_int_equal(r->subscribed, 2);
    assert_int_equal(fake_redis_accepted(r->fake), 2);
    fake_redis_push(r->fake, MESSAGE(5, "after"));
    ATTEND_UNTIL(r, r->message_count == 1);
}

/* A server that ends each at once is not overrun. */
TEST_ON(a_broken_subscription_is_not_replaced_too_soon, struct rig *r)
{
    subscribed(r);
    fake_redis_cut(r->fake);
    ATTEND_UNTIL(r, serial_of(r) == 0);
    assert_int_equal(pass_pause(r), MS(10));
    subscribed(r);
    moved_clock_advance(&r->clock, MS(1000));
    fake_redis_cut(r->fake);
    ATTEND_UNTIL(r, serial_of(r) == 0);
    assert_int_equal(pass_pause(r), 0);
}

TEST_ON(a_subscription_ends_its_predecessor_first, struct rig *r)
{
    subscribed(r);
    fake_redis_cut(r->fake);
    subscribed_again(r);
    assert_int_equal(fake_redis_count(r->fake, "CLIENT KILL ID 1"), 1);
    assert_true(fake_redis_place(r->fake, "CLIENT KILL ID 1", 1) > fake_redis_place(r->fake, "CLIENT ID", 2));
    assert_true(fake_redis_place(r->fake, "CLIENT KILL ID 1", 1) < fake_redis_place(r->fake, "SUBSCRIBE", 2));
}

/* Failed tries since then do not make the subscriber forget its predecessor. */
TEST_ON(the_predecessor_of_a_failed_try_is_ended_too, struct rig *r)
{
    subscribed(r);
    fake_redis_answer(r->fake, "INFO", "-LOADING not yet\r\n");
    fake_redis_cut(r->fake);
    ATTEND_UNTIL(r, serial_of(r) == 0);
    pass_pause(r);
    expect_failed_try(r, 2);
    fake_redis_answer(r->fake, "INFO", "$49\r\nrun_id:" FAKE_RUN_ID "\r\n\r\n");
    pass_pause(r);
    subscribed(r);
    assert_int_equal(fake_redis_count(r->fake, "CLIENT KILL ID 1"), 1);
}

/* The server may have subscribed it nevertheless. */
TEST_ON(an_unconfirmed_predecessor_is_ended_too, struct rig *r)
{
    fake_redis_answer(r->fake, "SUBSCRIBE", "");
    serial_of(r);
    ATTEND_UNTIL(r, fake_redis_count(r->fake, "SUBSCRIBE") == 1);
    attend_all(r);
    moved_clock_set(&r->clock, deadline_of(r));
    attend(r);
    fake_redis_answer(r->fake, "SUBSCRIBE", CONFIRMED);
    pass_pause(r);
    subscribed(r);
    assert_int_equal(fake_redis_count(r->fake, "CLIENT KILL ID 1"), 1);
}

/* ------------------------------------------------------------------- waiting */

TEST_ON(a_confirmed_subscription_wakes_its_waiters, struct rig *r)
{
    struct dibs__error error;
    struct waiter w;
    uint64_t again = 0;

    begin(&w, r, DIBS__NEVER); /* which makes it wanted */
    assert_int_equal(r->woken, 1);
    uint64_t serial = subscribed(r);
    expect_subscribed(&w, serial);
    assert_status(DIBS_OK, dibs__subscriber_await(r->subscriber, 0, &again, &error));
    assert_int_equal(again, serial);
}

TEST_ON(a_waiter_for_the_next_subscription_gets_the_next, struct rig *r)
{
    struct waiter w;
    uint64_t first = subscribed(r);

    dibs__subscriber_distrust(r->subscriber, first);
    begin(&w, r, DIBS__NEVER);
    uint64_t second = subscribed_again(r);
    expect_subscribed(&w, second);
}

TEST_ON(a_wait_for_a_subscription_ends_at_its_deadline, struct rig *r)
{
    struct waiter w;

    begin(&w, r, after(r, 50));
    moved_clock_advance(&r->clock, MS(50) - 1);
    moved_clock_await_waiting(&r->clock, 1);
    moved_clock_advance(&r->clock, 1);
    expect_failed(&w, DIBS_UNAVAILABLE);
}

TEST_ON(a_failed_subscription_is_told_to_its_waiters, struct rig *r)
{
    struct waiter w;

    fake_redis_refuse(r->fake, true);
    begin(&w, r, DIBS__NEVER);
    expect_failed_try(r, 1);
    expect_failed(&w, DIBS_UNAVAILABLE);
}

/* An earlier failure says nothing about the present; the next try does, or the deadline ends the wait. */
TEST_ON(an_earlier_failure_is_told_only_at_the_deadline, struct rig *r)
{
    struct waiter w;

    fake_redis_answer(r->fake, "SUBSCRIBE", "-ERR not now\r\n");
    serial_of(r);
    ATTEND_UNTIL(r, r->errors == 1);
    begin(&w, r, after(r, 50));
    moved_clock_advance(&r->clock, MS(50));
    expect_failed(&w, DIBS_STORE_ERROR);
    begin(&w, r, DIBS__NEVER);
    fake_redis_answer(r->fake, "SUBSCRIBE", CONFIRMED);
    pass_pause(r);
    uint64_t serial = subscribed(r);
    expect_subscribed(&w, serial);
    dibs__subscriber_distrust(r->subscriber, serial);
    assert_status(DIBS_UNAVAILABLE, dibs__subscriber_await(r->subscriber, 0, &serial, &w.error));
}

/* The next try is seconds away: no thread waits for it. */
TEST_ON(a_denied_channel_right_is_told_at_once, struct rig *r)
{
    struct dibs__error error;
    uint64_t serial;

    fake_redis_answer(r->fake, "SUBSCRIBE", NOPERM);
    serial_of(r);
    ATTEND_UNTIL(r, r->errors == 1);
    assert_status(DIBS_DENIED, dibs__subscriber_await(r->subscriber, DIBS__NEVER, &serial, &error));
    fake_redis_answer(r->fake, "SUBSCRIBE", CONFIRMED);
    pass_pause(r);
    subscribed(r);
    assert_status(DIBS_OK, dibs__subscriber_await(r->subscriber, DIBS__NEVER, &serial, &error));
}

enum { THREADS = 8, ROUNDS = 25 };

struct crowd {
    struct rig *r;
    atomic_uint right, left;
};

static void *run_crowd(void *arg)
{
    struct crowd *c = arg;
    struct dibs__error error;
    uint64_t serial, last = 0;

    for (unsigned i = 0; i < ROUNDS; i++) {
        if (dibs__subscriber_await(c->r->subscriber, DIBS__NEVER, &serial, &error) == DIBS_OK)
            c->right += serial > last;
        last = serial;
        dibs__subscriber_distrust(c->r->subscriber, serial);
    }
    c->left--;
    return NULL;
}

TEST_ON(many_threads_may_wait_for_and_distrust_a_subscription, struct rig *r)
{
    struct crowd crowd = {.r = r, .left = THREADS};
    pthread_t threads[THREADS];

    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_crowd, &crowd), 0);
    for (int64_t limit = now_ms() + LIMIT_MS; crowd.left > 0;) {
        assert_true(now_ms() < limit);
        attend(r);
        int64_t deadline = deadline_of(r); /* once: the threads may bring it forward */
        if (deadline > moved_clock_now(&r->clock) && deadline <= after(r, UNCONFIRMED_LAST_MS))
            moved_clock_set(&r->clock, deadline);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(crowd.right, THREADS * ROUNDS);
}

TESTS(setup, teardown)
