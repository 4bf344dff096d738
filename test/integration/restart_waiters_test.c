/* The server is restarted, and the holder unlocks before a slow waiter asks again: the waiter finds the lock free. */
#include "support/agent.h"
#include "support/fixture.h"
#include "support/process.h"
#include "support/restart.h"
#include "support/script_server.h"
#include "support/tasks.h"
#include "support/tracking.h"

#define LEASE_OF_AN_HOUR_MS 3600000 /* far beyond any limit of these tests */

struct scene {
    dibs_runtime *holder;
    process *waiter; /* the waiter has seen the holder, and is paused */
};

static struct scene begin_scene(fixture *f)
{
    struct scene scene = {open_runtime(f->server, LEASE_OF_AN_HOUR_MS), agent_start(f->server->url, 0)};

    assert_status(DIBS_OK, dibs_lock(scene.holder, "x"));
    agent_begin_lock(scene.waiter, "x", DIBS_WAIT_FOREVER);
    await_waiters(scene.holder, "x", 1);
    process_pause(scene.waiter);
    return scene;
}

/* Closing waits until the release is confirmed. Otherwise the waiter would sleep for the rest of the hour. */
static void end_scene(fixture *f, struct scene *scene)
{
    dibs_close(scene->holder);
    assert_false(server_has(f->server, "lock:x"));
    process_resume(scene->waiter);
    assert_status(DIBS_OK, agent_result(scene->waiter));
    assert_status(DIBS_OK, agent_unlock(scene->waiter, "x"));
    agent_stop(scene->waiter);
}

static void unlocked_while_the_server_was_away(fixture *f)
{
    struct scene scene = begin_scene(f);

    server_kill(f->server);
    assert_status(DIBS_UNAVAILABLE, dibs_unlock(scene.holder, "x"));
    server_restart(f->server);
    end_scene(f, &scene);
}

TEST(a_slow_waiter_gets_a_lock_unlocked_during_a_restart)
{
    set_up_persistent(*state);
    unlocked_while_the_server_was_away(*state);
}

TEST(a_slow_waiter_gets_a_lock_unlocked_while_the_server_forgot)
{
    unlocked_while_the_server_was_away(*state);
}

/* An agent all of whose connections stand: for calls, of its scheduler, and for grants. */
static process *connected_agent(server *s)
{
    process *agent = agent_start(s->url, 0);

    server_do(s, "SET lock:y other");
    agent_begin_lock(agent, "y", DIBS_WAIT_FOREVER);
    await_that(server_has(s, "dibs:queue:{lock:y}"));
    server_do(s, "DEL lock:y");
    assert_status(DIBS_OK, agent_result(agent));
    assert_status(DIBS_OK, agent_unlock(agent, "y"));
    await_that(server_clients(s) == 2);
    return agent;
}

/* Its scheduler's connection, over which leases are renewed, comes to stand only after the restart. */
TEST_ON(a_slow_waiter_gets_a_lock_unlocked_by_a_holder_with_one_connection, fixture *f)
{
    set_up_persistent(f);
    struct scene scene = {.waiter = connected_agent(f->server)};
    server_do(f->server, "CONFIG SET maxclients %lld", server_info(f->server, "connected_clients") + 1);
    scene.holder = open_runtime(f->server, LEASE_OF_AN_HOUR_MS);
    assert_status(DIBS_OK, dibs_lock(scene.holder, "x"));
    agent_begin_lock(scene.waiter, "x", DIBS_WAIT_FOREVER);
    await_waiters(scene.holder, "x", 1);
    assert_int_equal(server_clients(f->server), 3);
    process_pause(scene.waiter);
    server_kill(f->server);
    assert_status(DIBS_UNAVAILABLE, dibs_unlock(scene.holder, "x"));
    server_restart(f->server);
    end_scene(f, &scene);
}

static void unlocked_after_a_restart(fixture *f)
{
    struct scene scene = begin_scene(f);

    restart(f->server);
    await_locks(f->server, 1);
    assert_status(DIBS_OK, dibs_unlock(scene.holder, "x"));
    end_scene(f, &scene);
}

TEST(a_slow_waiter_gets_a_lock_unlocked_after_a_restart)
{
    set_up_persistent(*state);
    unlocked_after_a_restart(*state);
}

TEST(a_slow_waiter_gets_a_lock_restored_and_unlocked)
{
    unlocked_after_a_restart(*state);
}

/*
 * It was told of the owner by the try that came first. The server forgets that owner before the call, which gives back
 * the other name first, asks again: it leaves the name to the owner, who stands still and restores its lease later.
 */
TEST_ON(a_call_for_several_names_leaves_one_to_its_owner, fixture *f)
{
    static const char *const names[] = {"x", "y"};
    process *holder = agent_start(f->server->url, LEASE_OF_AN_HOUR_MS);
    script_server *net = fixture_between(f);
    dibs_runtime *rt = test_runtime(open_url(script_server_url(net), &(dibs_config){.lease_ms = LEASE_OF_AN_HOUR_MS}));
    dibs_queue *queue = test_queue(queue_new());
    dibs_task *task = test_task(task_of_runtime(rt));
    dibs_completion completion;

    assert_status(DIBS_OK, agent_lock(holder, "x", 0));
    script_server_add(net, (script_rule){.match = ASK_OR_RELEASE_OF_X, .nth = 2, .action = SCRIPT_STALL_REQUEST});
    assert_status(DIBS_OK, dibs_lock_names_begin(task, names, 2, DIBS_WAIT_FOREVER, NULL, queue, NULL));
    script_server_await_fired(net, 0);
    process_pause(holder);
    server_kill(f->server);
    server_restart(f->server);
    server_await_ask(f->server, 0);
    assert_int_equal(dibs_queue_take(queue, &completion, 1, SAFE_LEASE_MS), 0);
    assert_int_equal(locks_in(f->server), 0);
    process_resume(holder);
    await_locks(f->server, 1);
    assert_status(DIBS_OK, agent_unlock(holder, "x"));
    assert_int_equal(dibs_queue_take(queue, &completion, 1, LIMIT_MS), 1);
    assert_status(DIBS_OK, completion.status);
}

TESTS(fixture_setup, fixture_teardown)
