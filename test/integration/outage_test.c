/*
 * A store that can't be reached, or has lost its data: the outage is ridden out for outage_ms, and then work goes on.
 */
#include <inttypes.h>

#include "redis/scripts.h"
#include "support/fixture.h"
#include "support/script_server.h"

/* ------------------------------------------------------------------ outages */

TEST_ON(a_waiting_call_rides_out_an_outage, fixture *f)
{
    actor *waiter = actor_start();

    f->config.outage_ms = LIMIT_MS;
    fixture_open(f, LONG_LEASE_MS);
    for (int i = 0; i < 3; i++) {
        server_kill(f->server);
        actor_begin_lock(waiter, f->rt, "x", DIBS_WAIT_FOREVER);
        pause_ms(200);
        assert_true(actor_busy(waiter));
        server_restart(f->server);
        assert_status(DIBS_OK, actor_result(waiter));
        assert_true(server_has(f->server, "lock:x"));
        assert_status(DIBS_OK, actor_unlock(waiter, f->rt, "x"));
    }
    actor_end(waiter);
    assert_true(stats_of(f->rt).reconnects > 0);
}

/* As above, for a thread that waits for a lock already. */
TEST_ON(an_outage_in_the_middle_of_a_wait_is_ridden_out, fixture *f)
{
    long long asks;

    f->config.outage_ms = LIMIT_MS;
    fixture_open(f, SAFE_LEASE_MS);
    server_do(f->server, "SET lock:x by-hand PX 5000");
    asks = server_asks(f->server);
    actor *waiter = actor_locking(f->rt, "x", DIBS_WAIT_FOREVER);
    server_await_ask(f->server, asks);
    server_kill(f->server);
    pause_ms(200);
    assert_true(actor_busy(waiter));
    server_restart(f->server);
    /* The waiter may get the lock only when the lease that it saw would have ended, but then at once. */
    assert_status(DIBS_OK, actor_result(waiter));
    assert_true(server_has(f->server, "lock:x"));
    assert_status(DIBS_OK, actor_unlock(waiter, f->rt, "x"));
}

/* Nobody holds the lock, and nothing is known of it: both calls return DIBS_UNAVAILABLE. */
TEST_ON(two_tries_at_a_silent_server_are_both_unavailable, fixture *f)
{
    actor *first = actor_start();

    f->config.command_timeout_ms = 6000; /* the second thread tries while the first one waits for its answer */
    fixture_open(f, 0);
    lock_and_release(f->rt, "x", DIBS_WAIT_FOREVER);
    server_pause(f->server);
    actor_begin_lock(first, f->rt, "x", 0);
    actor_await_asleep(first);
    int64_t begin = now_ms();
    assert_status(DIBS_UNAVAILABLE, dibs_trylock(f->rt, "x"));
    assert_true(now_ms() - begin <= 6000 + SLACK_MS);
    assert_status(DIBS_UNAVAILABLE, actor_result(first));
    assert_int_equal(stats_of(f->rt).busy, 0);
    server_resume(f->server);
    assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS));
    expect_works(f, f->rt, "x");
}

TEST_ON(an_outage_that_lasts_ends_the_wait, fixture *f)
{
    f->config.outage_ms = 1500;
    fixture_open(f, 0);
    int64_t heard = now_ms();
    lock_and_release(f->rt, "x", DIBS_WAIT_FOREVER);
    server_kill(f->server);
    assert_status(DIBS_UNAVAILABLE, dibs_lock(f->rt, "x"));
    int64_t took = now_ms() - heard;
    assert_that(took >= 1500 - 1, "%" PRId64 " ms", took);
    assert_that(took <= 1500 + 2000 + SLACK_MS, "%" PRId64 " ms", took);
    assert_status(DIBS_NOT_HELD, dibs_check(f->rt, "x"));
    /* The call never lasts longer than its own wait. */
    heard = now_ms();
    expect_unavailable(f->rt, "x", 200);
    assert_true(now_ms() - heard <= 200 + 2000 + SLACK_MS);
    assert_status(DIBS_UNAVAILABLE, dibs_trylock(f->rt, "x"));
    server_restart(f->server);
    expect_works(f, f->rt, "x");
}

/* As one for a single name: no further try begins after the one that was under way. */
TEST_ON(an_outage_that_lasts_ends_the_wait_for_several_names, fixture *f)
{
    enum { OUTAGE_MS = 600, MOST_MS = 1100, TRIES = 5 };
    int64_t took = INT64_MAX;

    f->config.outage_ms = f->config.command_timeout_ms = OUTAGE_MS;
    fixture_open(f, 0);
    for (int i = 0; i < TRIES && took > MOST_MS; i++) { /* the test may stand still itself */
        lock_and_release(f->rt, "x", DIBS_WAIT_FOREVER);
        server_pause(f->server);
        int64_t began = now_ms();
        assert_status(DIBS_UNAVAILABLE, dibs_lock_names(f->rt, (const char *[]){"x", "y"}, 2, DIBS_WAIT_FOREVER, NULL));
        took = now_ms() - began;
        server_resume(f->server);
    }
    assert_that(took <= MOST_MS, "%" PRId64 " ms", took);
    expect_works(f, f->rt, "x");
}

/* A stopped server: its socket accepts, and nothing ever comes. */
TEST_ON(one_try_in_an_outage_is_bounded, fixture *f)
{
    dibs_owner owner;

    f->config.command_timeout_ms = 300;
    f->config.connect_timeout_ms = 300;
    fixture_open_holding(f, LONG_LEASE_MS, "held");
    server_pause(f->server);
    for (int i = 0; i < 3; i++) {
        int64_t begin = now_ms();

        assert_status(DIBS_UNAVAILABLE, dibs_trylock(f->rt, "x"));
        assert_true(now_ms() - begin <= 600 + SLACK_MS);
        assert_status(DIBS_NOT_HELD, dibs_check(f->rt, "x"));
    }
    assert_status(DIBS_UNAVAILABLE, dibs_query(f->rt, "x", &owner));
    assert_status(DIBS_UNAVAILABLE, dibs_force_unlock(f->rt, "x", NULL));
    assert_status(DIBS_UNAVAILABLE, dibs_extend(f->rt, "held", LONG_LEASE_MS));
    assert_status(DIBS_OK, dibs_check(f->rt, "held"));
    server_resume(f->server);
    /* The server received the asks while it was stopped, and executed them when it went on: they are retracted. */
    assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS));
    assert_status(DIBS_OK, dibs_timedlock(f->rt, "x", LIMIT_MS));
    dibs_unlock_all(f->rt); /* otherwise the releases go on in the background */
}

TEST_ON(closing_in_an_outage_is_bounded, fixture *f)
{
    f->config.command_timeout_ms = 300;
    f->config.connect_timeout_ms = 300;
    fixture_open_holding(f, 1000, "x");
    server_pause(f->server);
    int64_t begin = now_ms();
    close_runtime(&f->rt);
    assert_true(now_ms() - begin <= 600 + SLACK_MS);
    server_resume(f->server);
    assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS));
}

TEST_ON(an_outage_tells_down_and_up, fixture *f)
{
    fixture_open_holding(f, 3 * SAFE_LEASE_MS, "x");
    server_kill(f->server);
    recorded_event down = events_await(&f->events, DIBS_EVENT_STORE_DOWN, NULL);
    assert_string_equal(down.name, "");
    assert_true(down.detail[0] && !strstr(down.detail, "answers again"));
    assert_int_equal(down.fence, 0);
    server_restart(f->server);
    recorded_event up = events_await(&f->events, DIBS_EVENT_STORE_UP, NULL);
    assert_string_equal(up.name, "");
    assert_that(strstr(up.detail, " answers again"), "%s", up.detail);
    assert_true(events_find(&f->events, DIBS_EVENT_STORE_DOWN, NULL) <
                events_find(&f->events, DIBS_EVENT_STORE_UP, NULL));
    assert_int_equal(events_count(&f->events, DIBS_EVENT_STORE_DOWN, NULL), 1);
    dibs_unlock_all(f->rt);
    assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS));
}

/* ------------------------------------------------- what a server may forget */

TEST_ON(flushed_scripts_are_loaded_again, fixture *f)
{
    fixture_open(f, SAFE_LEASE_MS);
    for (int i = 0; i < 5; i++) {
        server_do(f->server, "SCRIPT FLUSH");
        assert_status(DIBS_OK, dibs_trylock(f->rt, "x"));
        server_do(f->server, "SCRIPT FLUSH");
        unlock_for_good(f, "x");
    }
    /* Renewals reach the server again, too. */
    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    for (int i = 0; i < 8; i++) {
        server_do(f->server, "SCRIPT FLUSH");
        pause_ms(SAFE_LEASE_MS / 4);
        assert_status(DIBS_OK, dibs_check(f->rt, "x"));
    }
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    assert_int_equal(stats_of(f->rt).reconnects, 0);
}

TEST_ON(a_script_has_the_id_that_the_server_computes, fixture *f)
{
    for (int i = 0; i < DIBS__SCRIPT_COUNT; i++) {
        const char *sha = server_text(f->server, "SCRIPT LOAD %s", dibs__scripts[i].text);
        assert_string_equal(sha, dibs__scripts[i].sha);
    }
}

/* Without one of these rights, the scripts reach the server by another command. Its refusals may name the user. */
TEST_ON(a_server_gets_the_scripts_by_any_command_it_allows, fixture *f)
{
    static const char *const rights[] = {"~* &* +@all", "~* &* +@all -eval", "~* &* +@all -script",
                                         "~* &* +@all -script +script|load", "~* &* +@all -evalsha"};

    for (size_t i = 0; i < sizeof rights / sizeof *rights; i++) {
        const char *url = server_account(f->server, "o'brien", rights[i]);
        server_do(f->server, "SCRIPT FLUSH");
        dibs_runtime *rt = open_url(url, NULL);
        for (int round = 0; round < 2; round++) {
            lock_and_release(rt, "x", DIBS_WAIT_FOREVER);
        }
        assert_true(i > 0 || stats_of(rt).store_errors == 0);
        assert_status(DIBS_OK, dibs_lock(rt, "y"));
        server_do(f->server, "SCRIPT FLUSH");
        lock_and_release(rt, "x", DIBS_WAIT_FOREVER);
        server_do(f->server, "SCRIPT FLUSH");
        assert_status(DIBS_OK, dibs_extend(rt, "y", LONG_LEASE_MS));
        assert_status(DIBS_OK, dibs_unlock(rt, "y"));
        dibs_close(rt);
    }
}

/* Neither renewals nor retractions go round and round, and calls name the right that is missing. */
TEST_ON(a_script_that_no_command_brings_is_not_sent_without_end, fixture *f)
{
    const char *url = server_account(f->server, "u", "~* &* +@all -eval");
    dibs_config config = {.lease_ms = 300};
    dibs_runtime *rt = test_runtime(open_url(url, &config));
    await_scheduler(rt); /* its connection has loaded the scripts, too */
    assert_status(DIBS_OK, dibs_lock(rt, "x"));
    assert_status(DIBS_OK, dibs_lock(rt, "y"));
    server_do(f->server, "ACL SETUSER u -script");
    server_do(f->server, "SCRIPT FLUSH");
    assert_status(DIBS_DENIED, dibs_unlock(rt, "y"));
    assert_status(DIBS_DENIED, dibs_trylock(rt, "z"));
    assert_that(strstr(dibs_last_error(), "SCRIPT LOAD"), "%s", dibs_last_error());
    dibs_status extended = dibs_extend(rt, "x", 300);
    assert_that(extended == DIBS_LOST || (extended == DIBS_DENIED && strstr(dibs_last_error(), "SCRIPT LOAD")),
                "%s: %s", dibs_status_name(extended), dibs_last_error());
    server_do(f->server, "ACL SETUSER u +eval"); /* which a connection that is there does not use */
    assert_status(DIBS_DENIED, dibs_trylock(rt, "z"));
    assert_that(!strstr(dibs_last_error(), "neither EVAL"), "%s", dibs_last_error());
    server_do(f->server, "ACL SETUSER u -eval");
    int64_t start = now_ms();
    uint64_t before = stats_of(rt).store_commands;
    pause_until(start + 1000);
    uint64_t sent = stats_of(rt).store_commands - before;
    assert_that(sent < 200 + (uint64_t)(now_ms() - start - 1000) / 5, "%llu commands", (unsigned long long)sent);
}

TEST_ON(killed_connections_are_made_again, fixture *f)
{
    fixture_open(f, LONG_LEASE_MS);
    for (int i = 0; i < 10; i++) {
        server_do(f->server, "CLIENT KILL TYPE normal SKIPME yes");
        server_do(f->server, "CLIENT KILL TYPE pubsub");
        assert_status(DIBS_OK, dibs_trylock(f->rt, "x"));
        server_do(f->server, "CLIENT KILL TYPE normal SKIPME yes");
        unlock_for_good(f, "x");
    }
    assert_true(stats_of(f->rt).reconnects > 0);
}

TEST_ON(open_fails_where_the_server_has_no_room_for_clients, fixture *f)
{
    dibs_runtime *rt;

    fixture_open(f, LONG_LEASE_MS);
    server_do(f->server, "CONFIG SET maxclients 1");
    dibs_status status = open_status(f->server->url, NULL, &rt);
    assert_true(status == DIBS_UNAVAILABLE || status == DIBS_STORE_ERROR);
    assert_null(rt);
    expect_works(f, f->rt, "x");
    server_do(f->server, "CONFIG SET maxclients 1000");
    assert_status(DIBS_OK, open_status(f->server->url, NULL, &rt));
    expect_works(f, rt, "x");
    dibs_close(rt);
}

/* A server that ends each connection as soon as it is made is not connected to again at once, however often it does. */
TEST_ON(an_outage_causes_no_storm_of_connections, fixture *f)
{
    script_server *net = fixture_between(f);

    f->urls[0] = script_server_url(net);
    fixture_open_holding(f, LONG_LEASE_MS, "x");
    assert_status(DIBS_OK, dibs_extend(f->rt, "x", LONG_LEASE_MS)); /* the scheduler's connection is open, too */
    script_server_set_down(net, true);
    script_server_cut(net);
    events_await(&f->events, DIBS_EVENT_STORE_DOWN, NULL);
    int64_t start = now_ms(), until = start + 2000;
    unsigned before = script_server_accepted(net);
    pause_until(until);
    unsigned made = script_server_accepted(net) - before;
    assert_that(made <= 20 + (now_ms() - start) / 100, "%u connections", made);
    script_server_set_down(net, false);
    events_await(&f->events, DIBS_EVENT_STORE_UP, NULL);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
}

TESTS(fixture_setup, fixture_teardown)
