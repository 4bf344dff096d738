/* A runtime's life: opened and closed without a trace, closed while threads are inside, and its events. */
#include <stdatomic.h>

#include "support/fixture.h"
#include "support/queue.h"
#include "support/self.h"
#include "support/tracking.h"

/* ------------------------------------------------------------ open, close */

TEST_ON(open_and_close_leave_nothing, fixture *f)
{
    /* A first round, for what the C library keeps. */
    fixture_open(f, 0);
    dibs_close(f->rt);
    server_do(f->server, "PING");
    struct self before = self_now();
    for (int i = 0; i < 200; i++) {
        f->config.on_event = i % 2 ? events_record : NULL;
        fixture_open(f, 0);
        if (i % 3 == 0)
            assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
        dibs_close(f->rt);
    }
    f->rt = NULL;
    self_assert_as(before);
    assert_false(server_has(f->server, "lock:x"));
}

TEST_WITH(open_that_fails_leaves_nothing, NULL, NULL, void *none)
{
    static const char *const bad[] = {"unix:///nonexistent/sock", "http://x", "redis://127.0.0.1:1"};
    struct self before = self_now();

    for (int i = 0; i < 60; i++) {
        dibs_runtime *rt = (dibs_runtime *)&before;
        dibs_config config = {.urls = &bad[i % 3], .url_count = 1};

        assert_true(dibs_open(&rt, &config) != DIBS_OK);
        assert_null(rt);
    }
    self_assert_as(before);
}

TEST_ON(close_releases_every_hold_of_every_thread, fixture *f)
{
    actor *others[3];

    fixture_open(f, LONG_LEASE_MS);
    assert_status(DIBS_OK, dibs_lock(f->rt, "mine"));
    assert_status(DIBS_OK, dibs_lock(f->rt, "mine"));
    for (int i = 0; i < 3; i++) {
        others[i] = actor_start();
        const char *name = formatted("its-%d", i);
        for (int depth = 0; depth <= i; depth++)
            assert_status(DIBS_OK, actor_lock(others[i], f->rt, name, 0));
    }
    close_runtime(&f->rt);
    server_assert_no_locks(f->server);
    fixture_open(f, LONG_LEASE_MS);
    /* Those threads hold nothing of the new runtime. */
    for (int i = 0; i < 3; i++) {
        const char *name = formatted("its-%d", i);
        assert_status(DIBS_NOT_HELD, actor_check(others[i], f->rt, name));
        assert_status(DIBS_OK, actor_lock(others[i], f->rt, name, 0));
        assert_status(DIBS_OK, actor_unlock(others[i], f->rt, name));
        actor_end(others[i]);
    }
    assert_status(DIBS_NOT_HELD, dibs_check(f->rt, "mine"));
}

/* Some wait behind a thread of the process, some behind another client. */
TEST_ON(close_ends_local_waiters, fixture *f)
{
    enum { WAITERS = 6 };
    actor *waiters[WAITERS];

    fixture_open(f, LONG_LEASE_MS);
    server_do(f->server, "SET lock:foreign by-hand PX 600000");
    assert_status(DIBS_OK, dibs_lock(f->rt, "local"));
    for (int i = 0; i < WAITERS; i++) {
        waiters[i] = actor_start();
        actor_begin_lock(waiters[i], f->rt, i % 2 ? "local" : "foreign", i % 3 ? DIBS_WAIT_FOREVER : LIMIT_MS * 10);
    }
    for (int i = 0; i < WAITERS; i++)
        actor_await_asleep(waiters[i]);
    close_runtime(&f->rt);
    for (int i = 0; i < WAITERS; i++) {
        assert_status(DIBS_CLOSED, actor_result(waiters[i]));
        actor_end(waiters[i]);
    }
    assert_false(server_has(f->server, "lock:local"));
    assert_true(server_has(f->server, "lock:foreign"));
    server_do(f->server, "DEL lock:foreign");
    /* The queue is empty. */
    fixture_open(f, 0);
    await_waiters(f->rt, "foreign", 0);
}

static void close_it(void *arg)
{
    dibs_close(arg);
}

/* The waiters' places in the store's queue are given up, and so is a grant that comes at the same moment. */
TEST_ON(close_ends_waiters_in_the_store, fixture *f)
{
    enum { TIMES = 40 };
    dibs_runtime *holder = test_runtime(open_runtime(f->server, LONG_LEASE_MS));

    for (int i = 0; i < TIMES; i++) {
        actor *ordered = actor_start();
        actor *plain = actor_start();
        actor *closer = actor_start();
        dibs_status status;

        fixture_open(f, LONG_LEASE_MS);
        assert_status(DIBS_OK, dibs_timedlock(holder, "x", LIMIT_MS));
        actor_begin_lock_with(ordered, f->rt, "x", DIBS_WAIT_FOREVER, &(dibs_lock_options){.flags = DIBS_FAIR});
        actor_begin_lock(plain, f->rt, "x", DIBS_WAIT_FOREVER);
        queue_await(f->server, "x", 2);
        if (i % 4 == 0) { /* the release comes after the close, otherwise at about the same time */
            dibs_close(f->rt);
            assert_int_equal(queue_size(f->server, "x"), 0);
            assert_status(DIBS_OK, dibs_unlock(holder, "x"));
        } else {
            actor_begin(closer, close_it, f->rt);
            pause_ms(i % 4 - 1);
            assert_status(DIBS_OK, dibs_unlock(holder, "x"));
            actor_finish(closer);
        }
        f->rt = NULL;
        status = actor_result(plain);
        assert_true(status == DIBS_CLOSED || status == DIBS_OK); /* OK: granted, and released by the close */
        status = actor_result(ordered);
        assert_true(status == DIBS_CLOSED || status == DIBS_OK);
        actor_end(ordered);
        actor_end(plain);
        actor_end(closer);
        assert_false(server_has(f->server, "lock:x"));
        queue_assert_gone(f->server, "x");
    }
}

TEST_ON(shutdown_ends_acquires_only, fixture *f)
{
    fixture_open(f, SAFE_LEASE_MS);
    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    actor *waiter = actor_locking(f->rt, "x", DIBS_WAIT_FOREVER);
    actor_await_asleep(waiter);
    dibs_shutdown(f->rt);
    dibs_shutdown(f->rt);
    assert_status(DIBS_CLOSED, actor_result(waiter));
    assert_status(DIBS_CLOSED, dibs_trylock(f->rt, "y"));
    assert_status(DIBS_CLOSED, dibs_lock(f->rt, "y"));
    assert_status(DIBS_CLOSED, dibs_timedlock(f->rt, "y", 100));
    /* Existing holds go on: they can be checked, renewed and unlocked. */
    assert_true(comes_to(f->rt, STAT(renewed), stats_of(f->rt).renewed + 3));
    assert_status(DIBS_OK, dibs_check(f->rt, "x"));
    assert_int_equal(hold_of(f->rt, "x").count, 2);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    assert_true(server_has(f->server, "lock:x"));
    unlock_for_good(f, "x");
}

TEST_ON(two_runtimes_are_two_owners, fixture *f)
{
    fixture_open(f, 0);
    dibs_runtime *second = open_runtime(f->server, 0);
    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    assert_status(DIBS_NOT_HELD, dibs_check(second, "x"));
    assert_status(DIBS_BUSY, dibs_trylock(second, "x"));
    assert_status(DIBS_TIMEOUT, dibs_timedlock(second, "x", 50));
    assert_status(DIBS_NOT_HELD, dibs_unlock(second, "x"));
    assert_status(DIBS_OK, dibs_lock(second, "y"));
    dibs_close(second);
    assert_false(server_has(f->server, "lock:y"));
    assert_status(DIBS_OK, dibs_check(f->rt, "x"));
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
}

/* The runtime is closed as soon as its threads are inside: every call ends and no key is left, whatever comes first. */
static void lock_forever(void *arg)
{
    dibs_runtime *rt = arg;

    while (dibs_lock(rt, "storm") == DIBS_OK)
        dibs_unlock(rt, "storm");
}

TEST_ON(shutdown_under_load_ends_every_call, fixture *f)
{
    for (int i = 0; i < 20; i++) {
        actor *actors[4];

        fixture_open(f, LONG_LEASE_MS);
        for (int k = 0; k < 4; k++) {
            actors[k] = actor_start();
            actor_begin(actors[k], lock_forever, f->rt);
        }
        pause_ms(i);
        dibs_shutdown(f->rt);
        for (int k = 0; k < 4; k++)
            actor_end(actors[k]);
        close_runtime(&f->rt);
        assert_false(server_has(f->server, "lock:storm"));
    }
}

/* ----------------------------------------------------------------- stats */

TEST_ON(statistics_count_each_operation, fixture *f)
{
    actor *other = actor_start();

    fixture_open(f, LONG_LEASE_MS);
    dibs_stats s = stats_of(f->rt);
    assert_int_equal(s.acquired + s.reentered + s.released + s.busy + s.timed_out + s.lost + s.holds + s.leases, 0);
    for (int i = 0; i < 5; i++) {
        assert_status(DIBS_OK, dibs_lock(f->rt, "a"));
        assert_status(DIBS_OK, dibs_lock(f->rt, "a"));
        assert_status(DIBS_OK, dibs_unlock_all(f->rt));
    }
    assert_status(DIBS_OK, dibs_lock(f->rt, "a"));
    assert_status(DIBS_OK, dibs_lock(f->rt, "b"));
    assert_status(DIBS_OK, actor_lock(other, f->rt, "c", 0));
    assert_status(DIBS_BUSY, actor_lock(other, f->rt, "a", 0));
    assert_status(DIBS_TIMEOUT, actor_lock(other, f->rt, "a", 30));
    s = stats_of(f->rt);
    assert_int_equal(s.acquired, 8);
    assert_int_equal(s.reentered, 5);
    assert_int_equal(s.released, 5);
    assert_int_equal(s.busy, 1);
    assert_int_equal(s.timed_out, 1);
    assert_int_equal(s.contended, 1);
    assert_int_equal(s.holds, 3);
    assert_int_equal(s.leases, 3);
    assert_int_equal(s.lost + s.orphaned + s.renew_failed + s.reconnects + s.events_dropped, 0);
    assert_true(s.store_commands >= 13);
    assert_status(DIBS_OK, dibs_unlock_all(f->rt));
    assert_status(DIBS_OK, actor_unlock(other, f->rt, "c"));
    s = stats_of(f->rt);
    assert_int_equal(s.released, 8);
    assert_int_equal(s.holds + s.leases, 0);
    for (size_t i = 0; i < sizeof s.reserved / sizeof *s.reserved; i++)
        assert_int_equal(s.reserved[i], 0);
}

/* --------------------------------------------------------------- events */

TEST_ON(events_come_in_order_on_one_thread, fixture *f)
{
    enum { NAMES = 30 };
    int last = -1;

    fixture_open(f, 0);
    for (int i = 0; i < NAMES; i++) {
        dibs_lock_options ends = {.lease_ms = 500 + 40 * (uint32_t)i, .flags = DIBS_FIXED_LEASE};

        assert_status(DIBS_OK, dibs_lock_with(f->rt, formatted("e-%d", i), 0, &ends));
    }
    for (int i = 0; i < NAMES; i++) {
        int place;

        const char *name = formatted("e-%d", i);
        events_await(&f->events, DIBS_EVENT_LOST, name);
        place = events_find(&f->events, DIBS_EVENT_LOST, name);
        assert_true(place > last);
        last = place;
    }
    for (int i = 0; i <= last; i++) {
        assert_true(pthread_equal(f->events.list[i].thread, f->events.list[0].thread));
        assert_false(pthread_equal(f->events.list[i].thread, pthread_self()));
        assert_true(f->events.list[i].detail[0] != '\0');
        assert_null(strchr(f->events.list[i].detail, '\n'));
    }
    dibs_unlock_all(f->rt);
}

/* A callback that does what it is told to; the first call waits until it is let go. */
struct callback {
    dibs_runtime *rt;
    atomic_bool inside;
    atomic_bool go_on;
    atomic_int locked; /* the status of its own lock and unlock, -1: not yet */
    atomic_int unlocked;
    atomic_int calls;
};

static void slow_callback(const dibs_event *event, void *arg)
{
    struct callback *c = arg;

    atomic_fetch_add(&c->calls, 1);
    atomic_store(&c->inside, true);
    (void)within(2 * LIMIT_MS, atomic_load(&c->go_on));
}

static void locking_callback(const dibs_event *event, void *arg)
{
    struct callback *c = arg;

    if (event->kind != DIBS_EVENT_LOST)
        return;
    (void)within(2 * LIMIT_MS, atomic_load(&c->go_on)); /* rt is known by then */
    atomic_store(&c->locked, (int)dibs_timedlock(c->rt, "by-callback", LIMIT_MS));
    atomic_store(&c->unlocked, (int)dibs_unlock(c->rt, "by-callback"));
}

static void lose(fixture *f, const char *name)
{
    dibs_lock_options shortly = {.lease_ms = 300, .flags = DIBS_FIXED_LEASE};

    /* Not by one try: on a busy machine the grant may come when its lease has ended. */
    assert_status(DIBS_OK, dibs_lock_with(f->rt, name, LIMIT_MS, &shortly));
}

static void init_callback(fixture *f, struct callback *c, dibs_event_fn *function)
{
    c->rt = NULL;
    atomic_init(&c->inside, false);
    atomic_init(&c->go_on, false);
    atomic_init(&c->locked, -1);
    atomic_init(&c->unlocked, -1);
    atomic_init(&c->calls, 0);
    f->config.on_event = function;
    f->config.on_event_arg = c;
}

/* The lease is so long that no busy machine ends it: the test looks whether it is renewed while the callback runs. */
TEST_ON(a_slow_callback_stalls_no_renewal, fixture *f)
{
    struct callback c;

    init_callback(f, &c, slow_callback);
    f->config.renew_ms = 100;
    fixture_open_holding(f, LIMIT_MS, "kept");
    lose(f, "lost");
    await_that(atomic_load(&c.inside));
    for (int i = 0; i < 20; i++) {
        uint64_t renewed = stats_of(f->rt).renewed;
        assert_status(DIBS_OK, dibs_check(f->rt, "kept"));
        lock_and_release(f->rt, "other", DIBS_WAIT_FOREVER);
        await_renewed(f->rt, renewed + 1);
    }
    assert_status(DIBS_LOST, dibs_unlock(f->rt, "lost"));
    assert_status(DIBS_OK, dibs_unlock(f->rt, "kept"));
    atomic_store(&c.go_on, true);
    close_runtime(&f->rt);
}

/* No more events are delivered than the queue holds; the others are counted, and nothing waits for room. */
TEST_ON(events_that_do_not_fit_are_counted, fixture *f)
{
    enum { MANY = 5000 };
    struct callback c;

    init_callback(f, &c, slow_callback);
    fixture_open_patient(f, LONG_LEASE_MS);
    lose(f, "first");
    await_that(atomic_load(&c.inside));
    for (int i = 0; i < MANY; i++) {
        assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
        server_do(f->server, "DEL lock:x");
        assert_status(DIBS_LOST, dibs_extend(f->rt, "x", 1000));
        assert_status(DIBS_LOST, dibs_unlock(f->rt, "x"));
    }
    assert_true(stats_of(f->rt).lost >= MANY);
    assert_true(stats_of(f->rt).events_dropped > 0);
    atomic_store(&c.go_on, true);
    dibs_unlock_all(f->rt);
    close_runtime(&f->rt);
    int calls = atomic_load(&c.calls);
    pause_ms(50);
    assert_int_equal(atomic_load(&c.calls), calls); /* none runs after dibs_close */
}

TEST_ON(a_callback_may_lock, fixture *f)
{
    struct callback c;

    init_callback(f, &c, locking_callback);
    fixture_open(f, SAFE_LEASE_MS);
    c.rt = f->rt;
    lose(f, "lost");
    atomic_store(&c.go_on, true);
    await_that(atomic_load(&c.unlocked) >= 0);
    assert_int_equal(atomic_load(&c.locked), DIBS_OK);
    assert_int_equal(atomic_load(&c.unlocked), DIBS_OK);
    assert_status(DIBS_LOST, dibs_unlock(f->rt, "lost"));
}

/* In redis++, an unlock inside the callback of a loss deadlocks. Here the holder unlocks meanwhile. */
TEST_ON(close_waits_for_a_callback_that_runs, fixture *f)
{
    struct callback c;

    init_callback(f, &c, slow_callback);
    fixture_open(f, LONG_LEASE_MS);
    lose(f, "lost");
    await_that(atomic_load(&c.inside));
    assert_status(DIBS_LOST, dibs_unlock(f->rt, "lost"));
    atomic_store(&c.go_on, true);
    close_runtime(&f->rt);
    assert_true(atomic_load(&c.calls) >= 1);
}

TESTS(fixture_setup, fixture_teardown)
