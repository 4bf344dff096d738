/*
 * min_replicas where the lock comes by another's release, fairly or not; by a release of this process behind which
 * another of its threads asks; or from a thread of this process.
 */
#include "integration/replicas_setup.h"
#include "support/queue.h"

static const dibs_lock_options fair = {.flags = DIBS_FAIR};

/* -------------------------------------------------------------------- acknowledged */

/* The replica has the lock under the token that the master has. */
static void expect_replicated(const struct pair *p)
{
    const char *token = server_text(p->master, "GET lock:x");
    assert_string_equal(server_text(p->replica, "GET lock:x"), token);
}

/* The holder's release grants the lock to the waiter, and the replica has not got that write yet. */
static void expect_to_wait_for_the_replica(const struct pair *p, dibs_runtime *rt, actor *waiter)
{
    await_info(p->master, "clients", "blocked_clients:1");
    assert_true(actor_busy(waiter));
    server_resume(p->replica);
    assert_status(DIBS_OK, actor_result(waiter));
    expect_replicated(p);
    assert_status(DIBS_OK, actor_unlock(waiter, rt, "x"));
}

TEST_ON(a_fair_grant_waits_for_its_replicas, struct pair *p)
{
    dibs_runtime *holder = test_runtime(open_runtime(p->master, LONG_LEASE_MS));
    dibs_runtime *careful = test_runtime(open_url(p->master->url, &one_replica));
    actor *waiter = actor_start();

    for (int i = 0; i < 3; i++) {
        assert_status(DIBS_OK, dibs_lock(holder, "x"));
        actor_begin_lock_with(waiter, careful, "x", DIBS_WAIT_FOREVER, &fair);
        queue_await(p->master, "x", 1);
        await_acknowledgement(p->master); /* so that nothing but the grant is waited for */
        server_pause(p->replica);
        assert_status(DIBS_OK, dibs_unlock(holder, "x"));
        expect_to_wait_for_the_replica(p, careful, waiter);
    }
}

/* A release sends no ask along for the thread behind it: the ask of that thread would be followed by no WAIT. */
TEST_ON(the_next_thread_of_the_process_waits_for_its_replicas, struct pair *p)
{
    dibs_config config = one_replica;
    actor *waiter = actor_start();

    config.handoff_ms = DIBS_NO_HANDOFF;
    dibs_runtime *rt = test_runtime(open_url(p->master->url, &config));
    for (int i = 0; i < 3; i++) {
        assert_status(DIBS_OK, dibs_lock(rt, "x"));
        actor_begin_lock(waiter, rt, "x", DIBS_WAIT_FOREVER);
        actor_await_asleep(waiter);
        await_acknowledgement(p->master);
        server_pause(p->replica);
        assert_status(DIBS_OK, dibs_unlock(rt, "x"));
        expect_to_wait_for_the_replica(p, rt, waiter);
    }
}

/* That lease has been acknowledged. */
TEST_ON(a_lease_that_is_handed_over_waits_for_nothing, struct pair *p)
{
    dibs_config config = one_replica;
    actor *waiter = actor_start();

    config.handoff_ms = LIMIT_MS;
    dibs_runtime *rt = test_runtime(open_url(p->master->url, &config));
    for (unsigned i = 1; i <= 3; i++) {
        assert_status(DIBS_OK, dibs_lock(rt, "x"));
        expect_replicated(p);
        server_pause(p->replica);
        actor_begin_lock(waiter, rt, "x", DIBS_WAIT_FOREVER);
        actor_await_asleep(waiter);
        assert_status(DIBS_OK, dibs_unlock(rt, "x"));
        assert_status(DIBS_OK, actor_result(waiter));
        assert_int_equal(stats_of(rt).handed_off, i);
        assert_status(DIBS_OK, actor_unlock(waiter, rt, "x"));
        server_resume(p->replica);
    }
}

/* ----------------------------------------------------------------- too few replicas */

/*
 * The head of the queue is granted the lock, and too few replicas acknowledge: the lock goes to the next waiter, which
 * needs no replicas.
 */
static void expect_passed_on(fixture *f, const dibs_lock_options *options)
{
    dibs_config config = {.lease_ms = LONG_LEASE_MS, .min_replicas = 1, .replica_timeout_ms = 50, .outage_ms = 100};
    dibs_runtime *careful = test_runtime(open_url(f->server->url, &config));
    dibs_runtime *other = test_runtime(open_runtime(f->server, LONG_LEASE_MS));
    actor *head = actor_start(), *next = actor_start();

    fixture_open(f, LONG_LEASE_MS);
    for (int i = 0; i < 3; i++) {
        assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
        actor_begin_lock_with(head, careful, "x", DIBS_WAIT_FOREVER, options);
        queue_await(f->server, "x", 1);
        actor_begin_lock_with(next, other, "x", DIBS_WAIT_FOREVER, options);
        queue_await(f->server, "x", 2);
        assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
        assert_status(DIBS_OK, actor_result(next));
        assert_status(DIBS_OK, actor_check(next, other, "x"));
        assert_status(DIBS_OK, actor_unlock(next, other, "x"));
        assert_status(DIBS_UNAVAILABLE, actor_result(head));
        assert_status(DIBS_NOT_HELD, actor_check(head, careful, "x"));
        assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS));
        queue_await(f->server, "x", 0);
    }
    assert_int_equal(stats_of(careful).acquired, 0);
}

TEST_WITH(a_lock_that_lacks_replicas_goes_to_the_next_waiter, fixture_setup, fixture_teardown, fixture *f)
{
    expect_passed_on(f, NULL);
}

TEST_WITH(a_lock_that_lacks_replicas_goes_to_the_next_fair_waiter, fixture_setup, fixture_teardown, fixture *f)
{
    expect_passed_on(f, &fair);
}

/* The server refuses WAIT: the call reports that at once, and no new grant stays. */
TEST_WITH(an_account_without_the_right_to_wait_is_told, fixture_setup, fixture_teardown, fixture *f)
{
    dibs_config config = {.lease_ms = LONG_LEASE_MS, .min_replicas = 1};
    const char *url = server_account(f->server, "u", "~* &* +@all -wait");

    expect_not_opened(DIBS_DENIED, url, &config, "refused WAIT");
    server_do(f->server, "ACL SETUSER u +wait");
    dibs_runtime *rt = test_runtime(open_url(url, &config));
    server_do(f->server, "ACL SETUSER u -wait");
    for (int i = 0; i < 3; i++) {
        assert_status(DIBS_DENIED, dibs_trylock(rt, "x"));
        assert_non_null(strstr(dibs_last_error(), "refused WAIT"));
        assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS));
    }
    assert_status(DIBS_DENIED, dibs_lock(rt, "x"));
    assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS));
}

TESTS(pair_setup, pair_teardown)
