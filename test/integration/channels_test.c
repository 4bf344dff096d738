/*
 * A server that takes no more connections, or is away: open connections are used before new ones are needed. The
 * application is told DIBS_EVENT_STORE_DOWN only when no connection is left, and DIBS_EVENT_STORE_UP each time that the
 * store is back.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>

#include "support/fixture.h"
#include "support/queue.h"
#include "support/script_server.h"

/* Open connections stay, but there is no room for new ones when they end. */
static void take_no_more_clients(fixture *f)
{
    server_do(f->server, "CONFIG SET maxclients 1");
}

static void take_clients_again(fixture *f)
{
    server_do(f->server, "CONFIG SET maxclients 10000");
}

/* Expects that the events came by turns, DOWN first. */
static void expect_by_turns(events *e)
{
    dibs_event_kind due = DIBS_EVENT_STORE_DOWN;

    pthread_mutex_lock(&e->mutex);
    for (unsigned i = 0; i < e->count && i < EVENTS_MAX; i++) {
        if (e->list[i].kind != DIBS_EVENT_STORE_DOWN && e->list[i].kind != DIBS_EVENT_STORE_UP)
            continue;
        assert_that(e->list[i].kind == due, "event %u: %s", i, e->list[i].detail);
        due = due == DIBS_EVENT_STORE_DOWN ? DIBS_EVENT_STORE_UP : DIBS_EVENT_STORE_DOWN;
    }
    pthread_mutex_unlock(&e->mutex);
}

/* Waits until each DOWN is followed by an UP. */
static void expect_up_at_last(events *e)
{
    await_or_say(events_count(e, DIBS_EVENT_STORE_UP, NULL) == events_count(e, DIBS_EVENT_STORE_DOWN, NULL),
                 "%u DOWN, %u UP", events_count(e, DIBS_EVENT_STORE_DOWN, NULL),
                 events_count(e, DIBS_EVENT_STORE_UP, NULL));
    expect_by_turns(e);
}

/* ------------------------------------------------------------ a crowd of calls */

enum { THREADS = 8, TRIES = 50 };

struct crowd {
    dibs_runtime *rt;
    unsigned number, good;
    pthread_t thread;
    char detail[320];
};

/* Each thread has a name of its own, so only the store can refuse. */
static void *try_often(void *arg)
{
    struct crowd *c = arg;

    const char *name = formatted("crowd-%u", c->number);
    for (int i = 0; i < TRIES; i++) {
        if (dibs_trylock(c->rt, name) == DIBS_OK && dibs_unlock(c->rt, name) == DIBS_OK)
            c->good++;
        else
            snprintf(c->detail, sizeof c->detail, "%s", dibs_last_error());
    }
    return NULL;
}

static void crowd_begin(struct crowd crowd[THREADS], dibs_runtime *rt)
{
    for (unsigned i = 0; i < THREADS; i++) {
        crowd[i] = (struct crowd){.rt = rt, .number = i};
        assert_int_equal(pthread_create(&crowd[i].thread, NULL, try_often, &crowd[i]), 0);
    }
}

/* Ends the threads, and returns how many of their tries succeeded. */
static unsigned crowd_end(struct crowd crowd[THREADS])
{
    unsigned good = 0;

    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(crowd[i].thread, NULL);
        good += crowd[i].good;
    }
    return good;
}

static unsigned tries_that_succeed(dibs_runtime *rt)
{
    struct crowd crowd[THREADS];

    crowd_begin(crowd, rt);
    unsigned good = crowd_end(crowd);
    for (unsigned i = 0; i < THREADS; i++)
        if (crowd[i].good < TRIES)
            print_message("# %s\n", crowd[i].detail);
    return good;
}

TEST_ON(existing_connections_are_used_before_new_ones_are_made, fixture *f)
{
    fixture_open_connected(f, LONG_LEASE_MS);
    take_no_more_clients(f);
    assert_int_equal(tries_that_succeed(f->rt), THREADS * TRIES);
    assert_int_equal(events_count(&f->events, DIBS_EVENT_STORE_DOWN, NULL), 0);
    take_clients_again(f);
    assert_int_equal(tries_that_succeed(f->rt), THREADS * TRIES);
    assert_int_equal(events_count(&f->events, DIBS_EVENT_STORE_UP, NULL), 0);
}

static bool all_are_connected(fixture *f)
{
    tries_that_succeed(f->rt);
    return server_clients(f->server) == 4; /* with the scheduler's connection */
}

/* A missing connection is made as soon as there is work for it. */
TEST_ON(busy_connections_bring_more_in_the_background, fixture *f)
{
    fixture_open_connected(f, LONG_LEASE_MS);
    await_that(all_are_connected(f));
}

static bool stop_at_first(const char *name, const dibs_owner *owner, void *arg)
{
    (void)name, (void)owner, (void)arg;
    return false;
}

static dibs_status query_waiters(dibs_runtime *rt)
{
    dibs_waiter waiter;
    size_t count;

    return dibs_query_waiters(rt, "x", &waiter, 1, &count);
}

static dibs_status query_sharers(dibs_runtime *rt)
{
    dibs_sharer sharer;
    size_t count;

    return dibs_query_sharers(rt, "x", &sharer, 1, &count);
}

static dibs_status query(dibs_runtime *rt)
{
    dibs_owner owner;

    return dibs_query(rt, "x", &owner);
}

static dibs_status force_unlock(dibs_runtime *rt)
{
    return dibs_force_unlock(rt, "x", NULL);
}

static dibs_status forget(dibs_runtime *rt)
{
    return dibs_forget(rt, "x");
}

static dibs_status list(dibs_runtime *rt)
{
    return dibs_list(rt, NULL, stop_at_first, NULL);
}

static dibs_status try_lock(dibs_runtime *rt)
{
    dibs_status status = dibs_trylock(rt, "x");

    return status == DIBS_OK ? dibs_unlock(rt, "x") : status;
}

/* As a server does that has a `timeout`: all connections end while nobody uses them. */
TEST_ON(calls_after_idle_connections_have_ended_make_new_ones, fixture *f)
{
    static const struct {
        dibs_status (*call)(dibs_runtime *rt);
        dibs_status status;
    } calls[] = {{query, DIBS_OK},        {query_waiters, DIBS_OK}, {query_sharers, DIBS_OK}, {forget, DIBS_OK},
                 {force_unlock, DIBS_OK}, {list, DIBS_OK},          {try_lock, DIBS_OK}};

    fixture_open_connected(f, LONG_LEASE_MS);
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        await_that(all_are_connected(f));
        server_do(f->server, "CLIENT KILL TYPE normal SKIPME yes");
        dibs_status status = calls[i].call(f->rt);
        assert_that(status == calls[i].status, "call %zu: %s: %s", i, dibs_status_name(status), dibs_last_error());
    }
}

/* ------------------------------------------------------------- down, and up */

TEST_ON(down_is_told_when_no_connection_is_left_and_up_when_one_is_back, fixture *f)
{
    fixture_open_connected(f, LONG_LEASE_MS);
    for (unsigned i = 1; i <= 3; i++) {
        take_no_more_clients(f);
        server_do(f->server, "CLIENT KILL TYPE normal SKIPME yes");
        await_that(dibs_trylock(f->rt, "x") == DIBS_UNAVAILABLE);
        await_that(events_count(&f->events, DIBS_EVENT_STORE_DOWN, NULL) >= i);
        take_clients_again(f);
        await_that(dibs_trylock(f->rt, "x") == DIBS_OK);
        expect_up_at_last(&f->events);
        assert_int_equal(events_count(&f->events, DIBS_EVENT_STORE_UP, NULL), i);
        /* The scheduler's connection: one that is made when the others are ended brings an UP of its own. */
        await_that(dibs_extend(f->rt, "x", LONG_LEASE_MS) == DIBS_OK);
        assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    }
    assert_non_null(strstr(events_await(&f->events, DIBS_EVENT_STORE_DOWN, NULL).detail, "clients"));
}

TEST_WITH(a_restart_under_load_loses_nothing, fixture_setup, fixture_teardown_expiring, fixture *f)
{
    struct crowd crowd[THREADS];

    fixture_open_connected(f, LONG_LEASE_MS);
    for (unsigned i = 1; i <= 4; i++) {
        crowd_begin(crowd, f->rt);
        server_kill(f->server);
        crowd_end(crowd);
        await_that(dibs_trylock(f->rt, "x") == DIBS_UNAVAILABLE);
        await_that(events_count(&f->events, DIBS_EVENT_STORE_DOWN, NULL) >= i);
        server_restart(f->server);
        await_that(dibs_trylock(f->rt, "x") == DIBS_OK);
        expect_up_at_last(&f->events);
        assert_true(events_count(&f->events, DIBS_EVENT_STORE_UP, NULL) >= i);
        assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    }
}

/* Idle connections seem to be open, but the server has stopped and answers on none. */
TEST_ON(a_silent_server_is_down_though_idle_connections_are_open, fixture *f)
{
    f->config.connect_timeout_ms = f->config.command_timeout_ms = 200;
    fixture_open_connected(f, LONG_LEASE_MS);
    await_that(all_are_connected(f));
    server_pause(f->server);
    assert_status(DIBS_UNAVAILABLE, dibs_trylock(f->rt, "x"));
    events_await(&f->events, DIBS_EVENT_STORE_DOWN, NULL);
    server_resume(f->server);
    await_that(dibs_trylock(f->rt, "x") == DIBS_OK);
    expect_up_at_last(&f->events);
    dibs_unlock_all(f->rt); /* otherwise the release goes on in the background */
}

static bool is_told_down(fixture *f)
{
    dibs_owner owner;

    assert_status(DIBS_UNAVAILABLE, dibs_query(f->rt, "x", &owner));
    return events_count(&f->events, DIBS_EVENT_STORE_DOWN, NULL) > 0;
}

/* Queries give the scheduler's connection nothing to do; the scheduler asks over it whether the server is there. */
TEST_ON(a_server_that_leaves_queries_unanswered_is_down, fixture *f)
{
    f->config.connect_timeout_ms = f->config.command_timeout_ms = 200;
    fixture_open_connected(f, LONG_LEASE_MS);
    server_pause(f->server);
    await_that(is_told_down(f));
    server_resume(f->server);
    await_that(dibs_trylock(f->rt, "x") == DIBS_OK);
    expect_up_at_last(&f->events);
    dibs_unlock_all(f->rt); /* otherwise the release goes on in the background */
}

/* ------------------------------------------ a connection that can't be replaced */

/* Opens a runtime through a script server, with all its common connections. After that no new ones can be made. */
static script_server *open_with_all(fixture *f)
{
    script_server *net = fixture_between(f);

    f->urls[0] = script_server_url(net);
    f->config.outage_ms = LIMIT_MS;
    fixture_open_connected(f, LONG_LEASE_MS);
    await_that(all_are_connected(f));
    await_that(script_server_has_answered(net));
    await_scheduler(f->rt); /* it has read those answers */
    return net;
}

static void lose_the_next_answer(fixture *f, script_server *net, const char *match)
{
    script_server_clear(net);
    take_no_more_clients(f);
    script_server_add(net, (script_rule){.match = match, .nth = 1, .action = SCRIPT_CLOSE_AFTER});
}

static void close_with_all(fixture *f, script_server *net)
{
    assert_int_equal(events_count(&f->events, DIBS_EVENT_STORE_DOWN, NULL), 0);
    take_clients_again(f);
    script_server_clear(net);
}

/* The ask may still be under way, so it is retracted, and the call asks again over a connection that is open. */
TEST_ON(an_ask_in_doubt_goes_on_over_another_connection, fixture *f)
{
    script_server *net = open_with_all(f);

    lose_the_next_answer(f, net, "lock:doubt");
    unsigned fired = script_server_fired(net);
    assert_status(DIBS_OK, dibs_timedlock(f->rt, "doubt", LIMIT_MS));
    assert_true(script_server_fired(net) > fired);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "doubt"));
    assert_true(server_wait_gone(f->server, "lock:doubt", LIMIT_MS));
    close_with_all(f, net);
}

/* A waiter keeps its place in the queue although its next ask goes over another connection. */
TEST_ON(a_waiter_whose_connection_is_gone_keeps_its_place, fixture *f)
{
    script_server *net = open_with_all(f);

    server_do(f->server, "SET lock:wait by-hand PX %d", LONG_LEASE_MS);
    actor *waiter = actor_locking(f->rt, "wait", DIBS_WAIT_FOREVER);
    queue_await(f->server, "wait", 1);
    /* From its next ask on, the waiter is told of changes, and asks every ten seconds. */
    assert_true(comes_to(f->rt, STAT(tracking), 1));
    queue_entry before = queue_await_ask(f->server, "wait", queue_at(f->server, "wait", 0).number);
    actor_await_asleep(waiter); /* it has the answer to that ask: the connection takes no other answer with it */
    lose_the_next_answer(f, net, "lock:lost");
    assert_status(DIBS_UNAVAILABLE, dibs_trylock(f->rt, "lost")); /* the first channel, which the waiter uses too */
    queue_entry after = queue_await_ask(f->server, "wait", before.number + 2);
    assert_string_equal(after.token, before.token);
    assert_true(after.order == before.order);
    server_do(f->server, "DEL lock:wait");
    actor_gets(waiter, f->rt, "wait");
    actor_end(waiter);
    close_with_all(f, net);
}

TEST_ON(a_release_is_sent_again_over_another_connection, fixture *f)
{
    script_server *net = open_with_all(f);

    assert_status(DIBS_OK, dibs_lock(f->rt, "held"));
    lose_the_next_answer(f, net, "lock:held");
    unlock_for_good(f, "held");
    close_with_all(f, net);
}

TEST_ON(a_query_is_sent_again_over_another_connection, fixture *f)
{
    script_server *net = open_with_all(f);

    assert_status(DIBS_OK, dibs_lock(f->rt, "held"));
    lose_the_next_answer(f, net, "lock:held");
    dibs_owner owner = owner_of(f->rt, "held");
    assert_true(owner.held);
    lose_the_next_answer(f, net, "lock:held");
    /* What was not answered may have ended a hold of that token. */
    assert_status(DIBS_UNAVAILABLE, dibs_force_unlock(f->rt, "held", "another"));
    assert_status(DIBS_NOT_HELD, dibs_force_unlock(f->rt, "held", "another"));
    script_server_clear(net);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "held"));
    close_with_all(f, net);
}

TESTS(fixture_setup, fixture_teardown)
