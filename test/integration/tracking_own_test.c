/*
 * What dibs itself does to tracked locks: short locks are never tracked, and a message about a renewal, a release or a
 * hand-over costs one command at most and ends nothing.
 */
#include <hiredis/hiredis.h>
#include <unistd.h>

#include "support/agent.h"
#include "support/child.h"
#include "support/fixture.h"
#include "support/process.h"
#include "support/queue.h"
#include "support/script_server.h"
#include "support/tracking.h"

#define QUIET_MS 200 /* what a message may bring about has happened by then: a renewal is sent 2 ms after it */

/* Expects so many commands since then. A subscription may send one more after each silence of 5 s. */
static void expect_commands(dibs_runtime *rt, const dibs_stats *before, int64_t since, uint64_t least, uint64_t most)
{
    uint64_t commands = stats_of(rt).store_commands - before->store_commands;
    uint64_t pings = (uint64_t)(now_ms() - since) / 5000;

    assert_in_range(commands, least, most + pings);
}

/* The lock of x, which another thread of f->rt holds, is deleted: that is told soon. */
static void expect_end_told(fixture *f)
{
    int64_t since = now_ms();

    server_do(f->server, "DEL lock:x");
    events_await(&f->events, DIBS_EVENT_LOST, "x");
    assert_in_range(now_ms() - since, 0, SOON_MS);
}

/* ----------------------------------------------------------------- short locks */

enum { PAIRS = 1000, SHORT_MS = 15 };

/* Returns how many were not short: where the machine keeps the thread from running, the lock may be looked at. */
static unsigned lock_shortly(dibs_runtime *rt)
{
    unsigned long_ones = 0;

    for (int i = 0; i < PAIRS; i++) {
        int64_t began = now_ms();
        lock_and_release(rt, "x", DIBS_WAIT_FOREVER);
        long_ones += now_ms() - began > SHORT_MS;
    }
    return long_ones;
}

TEST_ON(short_locks_are_not_tracked, fixture *f)
{
    fixture_open_patient(f, 0);
    unsigned long_ones = lock_shortly(f->rt);
    assert_in_range(server_calls(f->server, "mget"), 0, long_ones);
    if (long_ones == 0) {
        assert_int_equal(tracking_calls(f->server), 0);
        assert_int_equal(stats_of(f->rt).tracking, 0);
    }
    assert_true(long_ones < PAIRS / 10);
}

/* Also where long locks were tracked before, and one is now. */
TEST_ON(short_locks_beside_a_long_one_are_not_tracked, fixture *f)
{
    open_with_tracked(f, LONG_LEASE_MS, "long");
    dibs_stats before = stats_of(f->rt);
    int64_t since = now_ms();
    long long looks = server_calls(f->server, "mget");
    unsigned long_ones = lock_shortly(f->rt);
    assert_in_range(server_calls(f->server, "mget") - looks, 0, long_ones);
    expect_commands(f->rt, &before, since, 0, 2 * PAIRS + 2 * long_ones);
    expect_no_loss(f);
    expect_deletion_told(f, "long");
}

/* ----------------------------------------------------------- renewals, releases */

TEST_ON(renewals_make_no_messages, fixture *f)
{
    f->config.renew_ms = 20;
    open_with_tracked(f, 0, "x");
    lock_tracked(f, "y");
    await_renewed(f->rt, stats_of(f->rt).renewed + 4);
    uint64_t messages = stats_of(f->rt).invalidations;
    await_renewed(f->rt, stats_of(f->rt).renewed + 100);
    assert_status(DIBS_OK, dibs_extend(f->rt, "x", 20000));
    pause_ms(QUIET_MS);
    assert_int_equal(stats_of(f->rt).invalidations, messages);
    expect_no_loss(f);
    expect_deletion_told(f, "x");
    assert_status(DIBS_OK, dibs_unlock(f->rt, "y"));
}

/* Locked and released, long enough each time to be tracked: two commands, one look, and one more for the message. */
TEST_ON(releases_cost_one_command_at_most, fixture *f)
{
    enum { TIMES = 10 };

    open_with_tracked(f, LONG_LEASE_MS, "x");
    dibs_stats before = stats_of(f->rt);
    int64_t since = now_ms();
    for (unsigned i = 1; i <= TIMES; i++) {
        assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
        await_invalidations(f->rt, before.invalidations + i);
        lock_tracked(f, "x");
    }
    pause_ms(QUIET_MS);
    expect_commands(f->rt, &before, since, 3 * TIMES, 4 * TIMES);
    assert_int_equal(stats_of(f->rt).invalidations - before.invalidations, TIMES);
    expect_no_loss(f);
    expect_deletion_told(f, "x");
}

/* As before, but the lock is released and taken again before the message of its release may have come. */
TEST_ON(locks_taken_again_at_once_cost_few_commands, fixture *f)
{
    enum { TIMES = 10 };

    open_with_tracked(f, LONG_LEASE_MS, "x");
    dibs_stats before = stats_of(f->rt);
    int64_t since = now_ms();
    for (unsigned i = 1; i <= TIMES; i++) {
        assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
        assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
        await_invalidations(f->rt, before.invalidations + i);
        await_tracked(f->server, f->rt, 1);
    }
    pause_ms(QUIET_MS);
    expect_commands(f->rt, &before, since, 3 * TIMES, 4 * TIMES);
    expect_no_loss(f);
    expect_deletion_told(f, "x");
}

/* -------------------------------------------------------------------- hand-overs */

/* Within the process, without a command: the key stays the same, and goes on being tracked. */
TEST_ON(a_hand_over_keeps_the_lock_tracked, fixture *f)
{
    actor *other = actor_start();

    f->config.handoff_ms = LIMIT_MS;
    open_with_tracked(f, LONG_LEASE_MS, "x");
    dibs_stats before = stats_of(f->rt);
    int64_t since = now_ms();
    for (int i = 0; i < 10; i++) {
        actor_begin_lock(other, f->rt, "x", DIBS_WAIT_FOREVER);
        actor_await_asleep(other);
        assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
        assert_status(DIBS_OK, actor_result(other));
        actor_begin_unlock(other, f->rt, "x");
        assert_status(DIBS_OK, actor_result(other));
        lock_tracked(f, "x");
    }
    pause_ms(QUIET_MS);
    assert_in_range(stats_of(f->rt).handed_off, before.handed_off + 1, before.handed_off + 20);
    expect_commands(f->rt, &before, since, 0, 10 * 5);
    expect_no_loss(f);
    actor_begin_lock(other, f->rt, "x", DIBS_WAIT_FOREVER);
    actor_await_asleep(other);
    uint64_t handed_off = stats_of(f->rt).handed_off;
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    assert_status(DIBS_OK, actor_result(other));
    assert_int_equal(stats_of(f->rt).handed_off, handed_off + 1);
    expect_end_told(f);
    assert_status(DIBS_LOST, actor_check(other, f->rt, "x"));
    assert_status(DIBS_LOST, actor_unlock(other, f->rt, "x"));
}

/* A release and the ask of the next thread here, which waits behind another process. */
TEST_ON(a_release_with_an_ask_costs_few_commands, fixture *f)
{
    process *agent = agent_start(f->server->url, LONG_LEASE_MS);

    f->config.handoff_ms = DIBS_NO_HANDOFF;
    open_with_tracked(f, LONG_LEASE_MS, "x");
    agent_begin_lock(agent, "x", DIBS_WAIT_FOREVER);
    queue_await(f->server, "x", 1);
    actor *second = actor_locking(f->rt, "x", DIBS_WAIT_FOREVER);
    actor_await_asleep(second);
    dibs_stats before = stats_of(f->rt);
    int64_t since = now_ms();
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    assert_status(DIBS_OK, agent_result(agent));
    await_invalidations(f->rt, before.invalidations + 1);
    pause_ms(QUIET_MS);
    expect_commands(f->rt, &before, since, 1, 2);
    assert_status(DIBS_OK, agent_check(agent, "x"));
    assert_status(DIBS_OK, agent_unlock(agent, "x"));
    assert_status(DIBS_OK, actor_result(second));
    expect_no_loss(f);
    assert_status(DIBS_OK, actor_unlock(second, f->rt, "x"));
}

struct side {
    dibs_runtime *rt;
    actor *thread;
};

/* The lock goes to the other runtime, whose thread waits. It costs `from` the release, and one command at most. */
static void pass(fixture *f, const struct side *from, const struct side *to)
{
    dibs_stats before = stats_of(from->rt);
    int64_t since = now_ms();

    actor_begin_lock(to->thread, to->rt, "x", DIBS_WAIT_FOREVER);
    queue_await(f->server, "x", 1);
    assert_status(DIBS_OK, actor_unlock(from->thread, from->rt, "x"));
    assert_status(DIBS_OK, actor_result(to->thread));
    await_invalidations(from->rt, before.invalidations + 1);
    await_tracked(f->server, to->rt, 1);
    pause_ms(QUIET_MS);
    expect_commands(from->rt, &before, since, 1, 2);
    assert_int_equal(stats_of(from->rt).invalidations, before.invalidations + 1);
    assert_status(DIBS_OK, actor_check(to->thread, to->rt, "x"));
}

TEST_ON(a_lock_that_goes_to_another_runtime_costs_one_command_at_most, fixture *f)
{
    enum { TIMES = 4 };

    fixture_open_patient(f, LONG_LEASE_MS);
    struct side one = {f->rt, actor_start()}, two = {test_runtime(open_url(f->server->url, &f->config)), actor_start()};
    assert_status(DIBS_OK, actor_lock(one.thread, one.rt, "x", 0));
    await_tracked(f->server, one.rt, 1);
    for (int i = 0; i < TIMES; i++) {
        pass(f, &one, &two);
        pass(f, &two, &one);
    }
    expect_no_loss(f);
    expect_end_told(f);
    assert_status(DIBS_LOST, actor_unlock(one.thread, one.rt, "x"));
}

/* ------------------------------------------------------------- messages out of time */

/* The message tells of an old release: the lock is held again by then, and tracked. */
TEST_ON(a_message_of_an_older_lease_ends_nothing, fixture *f)
{
    script_server *net = fixture_between(f);

    f->urls[0] = script_server_url(net);
    open_with_tracked(f, LONG_LEASE_MS, "x");
    dibs_stats before = stats_of(f->rt);
    int64_t since = now_ms();
    script_server_hold_pushes(net, true);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    lock_tracked(f, "x");
    assert_int_equal(stats_of(f->rt).invalidations, before.invalidations);
    script_server_hold_pushes(net, false);
    await_invalidations(f->rt, before.invalidations + 1);
    pause_ms(QUIET_MS);
    expect_commands(f->rt, &before, since, 3, 4);
    expect_no_loss(f);
    expect_deletion_told(f, "x");
}

/* --------------------------------------------------------------------------- fork */

static void in_child(bool wanted)
{
    if (!wanted)
        _exit(1);
}

static long long child_integer(redisContext *link, const char *command)
{
    redisReply *reply = redisCommand(link, command);

    in_child(reply && reply->type == REDIS_REPLY_INTEGER);
    long long integer = reply->integer;
    freeReplyObject(reply);
    return integer;
}

static const char *child_socket_path; /* written only before the fork */

/*
 * The child has a connection of its own to the server; nothing of the parent's. Under a sanitizer the child before may
 * have been killed (run_child), and has left its lock.
 */
static void child_is_told(dibs_runtime *rt)
{
    redisContext *link = redisConnectUnix(child_socket_path);

    in_child(link && !link->err);
    child_integer(link, "DEL lock:child");
    in_child(stats_of(rt).tracking == 0);
    CHILD_WANTS(DIBS_OK, dibs_lock(rt, "child"));
    in_child(comes_to(rt, STAT(tracking), 1));
    uint64_t renewed = stats_of(rt).renewed, messages = stats_of(rt).invalidations;
    in_child(child_integer(link, "PERSIST lock:parent") == 1); /* is told to the parent alone */
    CHILD_WANTS(DIBS_OK, dibs_check(rt, "child"));
    in_child(stats_of(rt).renewed == renewed && stats_of(rt).invalidations == messages);
    pause_ms(100); /* the lock is looked at once more */
    int64_t since = now_ms();
    in_child(child_integer(link, "DEL lock:child") == 1);
    in_child(within(LIMIT_MS, dibs_check(rt, "child") == DIBS_LOST) && now_ms() - since < SOON_MS);
    CHILD_WANTS(DIBS_LOST, dibs_unlock(rt, "child"));
    redisFree(link);
}

TEST_ON(a_child_tracks_by_itself, fixture *f)
{
    open_with_tracked(f, LONG_LEASE_MS, "parent");
    child_socket_path = f->server->socket_path;
    for (int i = 0; i < 2; i++) {
        dibs_stats before = stats_of(f->rt);
        run_child(child_is_told, f->rt);
        await_renewed(f->rt, before.renewed + 1);
        uint64_t messages = stats_of(f->rt).invalidations - before.invalidations;
#if defined(TEST_UNDER_ASAN) || defined(TEST_UNDER_TSAN)
        assert_true(messages >= 1); /* one for each child */
#else
        assert_int_equal(messages, 1);
#endif
        assert_true(server_integer(f->server, "PTTL lock:parent") > 0);
        expect_no_loss(f);
    }
    expect_deletion_told(f, "parent");
}

/*
 * A fair lock went from one thread to another, and the first one's release is not answered yet: a loss of the second
 * one's lease is noticed nevertheless.
 */
TEST_ON(a_change_during_an_unanswered_release_is_noticed, fixture *f)
{
    static const dibs_lock_options fair = {.flags = DIBS_FAIR};
    script_server *net = fixture_between(f);
    actor *before = actor_start(), *holder = actor_start();

    f->urls[0] = script_server_url(net);
    fixture_open_patient(f, LONG_LEASE_MS);
    assert_status(DIBS_OK, actor_lock_with(before, f->rt, "x", 0, &fair));
    await_tracked(f->server, f->rt, 1);
    actor_begin_lock_with(holder, f->rt, "x", DIBS_WAIT_FOREVER, &fair);
    queue_await(f->server, "x", 1);
    script_server_add(net, (script_rule){.match = ASK_OR_RELEASE_OF_X, .nth = 1, .action = SCRIPT_STALL_REPLY});
    actor_begin_unlock(before, f->rt, "x");
    assert_status(DIBS_OK, actor_result(holder));
    await_tracked(f->server, f->rt, 1);
    assert_true(actor_busy(before));
    int64_t since = now_ms();
    assert_int_equal(server_integer(f->server, "DEL lock:x"), 1);
    events_await(&f->events, DIBS_EVENT_LOST, "x");
    assert_true(now_ms() - since < SOON_MS);
    assert_status(DIBS_LOST, actor_check(holder, f->rt, "x"));
    assert_true(actor_busy(before));
    script_server_release(net);
    assert_status(DIBS_OK, actor_result(before));
    assert_status(DIBS_LOST, actor_unlock(holder, f->rt, "x"));
}

TESTS(fixture_setup, fixture_teardown)
