/* DIBS_FAIR: strictly in the order in which the server was asked, over all threads of all processes. */
#include "support/agent.h"
#include "support/fixture.h"
#include "support/process.h"
#include "support/queue.h"

static const dibs_lock_options fair = {.flags = DIBS_FAIR};

/* ------------------------------------------------------------------- teams */

enum { TEAMS = 3, MEMBERS = 4 };

static process *team_start(fixture *f)
{
    process *team = process_start((const char *const[]){program_path("team"), NULL});

    assert_string_equal(process_ask(team, "open %s %d", f->server->url, LONG_LEASE_MS), "DIBS_OK ");
    return team;
}

static void team_stop(process *team)
{
    assert_string_equal(process_ask(team, "close"), "DIBS_OK ");
    assert_int_equal(process_wait(team, LIMIT_MS), 0);
    process_free(team);
}

static void member_begins(process *team, int member, unsigned flags)
{
    process_write(team, "lock %d x -1 %u", member, flags);
}

static void expect_done(const char *line, int member)
{
    assert_string_equal(line, formatted("%d DIBS_OK ", member));
}

static void member_unlocks(process *team, int member)
{
    process_write(team, "unlock %d x", member);
}

/* Expects that only this member gets the lock now. */
static void expect_next(process *const *teams, size_t next, int member)
{
    expect_done(process_read(teams[next]), member);
    for (size_t i = 0; i < TEAMS; i++)
        assert_that(!process_try_read(teams[i]), "two hold it: %s", teams[i]->line);
}

/* Each thread has its own entry, and the entries are granted in order, whatever their process. */
TEST_ON(threads_of_processes_are_served_in_order, fixture *f)
{
    process *teams[TEAMS];

    fixture_open(f, LONG_LEASE_MS);
    for (int i = 0; i < TEAMS; i++)
        teams[i] = team_start(f);
    for (int round = 0; round < 3; round++) {
        assert_status(DIBS_OK, dibs_timedlock(f->rt, "x", LIMIT_MS));
        for (int i = 0; i < TEAMS * MEMBERS; i++) {
            member_begins(teams[(i + round) % TEAMS], i / TEAMS, DIBS_FAIR);
            queue_await(f->server, "x", i + 1);
        }
        dibs_owner owner = owner_of(f->rt, "x");
        assert_int_equal(owner.waiters, TEAMS * MEMBERS);
        assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
        for (int i = 0; i < TEAMS * MEMBERS; i++) {
            expect_next(teams, (size_t)(i + round) % TEAMS, i / TEAMS);
            assert_status(DIBS_BUSY, dibs_trylock(f->rt, "x"));
            member_unlocks(teams[(i + round) % TEAMS], i / TEAMS);
            expect_done(process_read(teams[(i + round) % TEAMS]), i / TEAMS);
        }
        queue_assert_gone(f->server, "x");
    }
    for (int i = 0; i < TEAMS; i++)
        team_stop(teams[i]);
}

/* However many plain waiters a process has, only one of them waits in the store; the others wait locally. */
TEST_ON(plain_waiters_of_a_process_are_one_entry, fixture *f)
{
    actor *waiters[MEMBERS];

    fixture_open(f, LONG_LEASE_MS);
    dibs_runtime *holder = test_runtime(open_runtime(f->server, LONG_LEASE_MS));
    assert_status(DIBS_OK, dibs_lock(holder, "x"));
    for (int i = 0; i < MEMBERS; i++) {
        waiters[i] = actor_start();
        actor_begin_lock(waiters[i], f->rt, "x", DIBS_WAIT_FOREVER);
    }
    assert_true(comes_to(f->rt, STAT(contended), MEMBERS));
    queue_await(f->server, "x", 1);
    assert_status(DIBS_OK, dibs_unlock(holder, "x"));
    for (int left = MEMBERS; left > 0; left--) {
        int next = 0;

        while (!waiters[next] || actor_busy(waiters[next]))
            next = (next + 1) % MEMBERS;
        actor_gets(waiters[next], f->rt, "x");
        actor_end(waiters[next]);
        waiters[next] = NULL;
    }
    queue_assert_gone(f->server, "x");
}

/* --------------------------------------------------------------- no barging */

/*
 * The head of the queue has the lock before any other thread can ask for it, even one of the process that released it.
 */
TEST_ON(nobody_barges_past_the_head_of_a_fair_queue, fixture *f)
{
    actor *waiter = actor_start();

    fixture_open(f, LONG_LEASE_MS);
    dibs_runtime *second = test_runtime(open_runtime(f->server, LONG_LEASE_MS));
    for (int i = 0; i < 20; i++) {
        dibs_runtime *of_waiter = i % 2 ? f->rt : second;

        assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
        actor_begin_lock_with(waiter, of_waiter, "x", DIBS_WAIT_FOREVER, &fair);
        queue_await(f->server, "x", 1);
        assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
        assert_status(DIBS_BUSY, dibs_trylock(f->rt, "x"));
        assert_status(DIBS_BUSY, dibs_lock_with(f->rt, "x", 0, &fair));
        assert_status(DIBS_BUSY, dibs_trylock(second, "x"));
        actor_gets(waiter, of_waiter, "x");
    }
    queue_assert_gone(f->server, "x");
}

/* A plain waiter queues behind a fair one of the same process: the lease is not handed over past the fair one. */
TEST_ON(a_plain_waiter_queues_behind_a_fair_one, fixture *f)
{
    actor *fairly = actor_start();
    actor *plainly = actor_start();

    fixture_open(f, LONG_LEASE_MS);
    for (int i = 0; i < 5; i++) {
        uint64_t contended = stats_of(f->rt).contended;

        assert_status(DIBS_OK, dibs_lock_with(f->rt, "x", DIBS_WAIT_FOREVER, &fair));
        actor_begin_lock_with(fairly, f->rt, "x", DIBS_WAIT_FOREVER, &fair);
        queue_await(f->server, "x", 1);
        actor_begin_lock(plainly, f->rt, "x", DIBS_WAIT_FOREVER);
        assert_true(comes_to(f->rt, STAT(contended), contended + 2));
        assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
        assert_status(DIBS_OK, actor_result(fairly));
        assert_true(actor_busy(plainly));
        assert_status(DIBS_OK, actor_unlock(fairly, f->rt, "x"));
        actor_gets(plainly, f->rt, "x");
    }
    queue_assert_gone(f->server, "x");
}

/* The key expired instead of being released: the next ask serves the head, and a waiter finds out by itself. */
TEST_ON(nobody_barges_past_the_head_when_a_lease_ends, fixture *f)
{
    static const dibs_lock_options fixed = {.flags = DIBS_FIXED_LEASE, .lease_ms = SAFE_LEASE_MS};
    dibs_status status;

    fixture_open(f, LONG_LEASE_MS);
    process *agent = agent_start(f->server->url, LONG_LEASE_MS);
    for (int i = 0; i < 2; i++) {
        assert_status(DIBS_OK, dibs_lock_with(f->rt, "x", LIMIT_MS, &fixed));
        agent_begin_fair(agent, "x", DIBS_WAIT_FOREVER);
        queue_await(f->server, "x", 1);
        if (i == 1)
            server_do(f->server, "DEL lock:x");
        do { /* like a thread that tries to barge in */
            dibs_runtime *newcomer = open_runtime(f->server, LONG_LEASE_MS);
            status = dibs_trylock(newcomer, "x");
            dibs_close(newcomer);
            assert_status(DIBS_BUSY, status);
        } while (!process_try_read(agent));
        assert_string_equal(agent->line, "DIBS_OK");
        assert_status(DIBS_LOST, dibs_unlock(f->rt, "x"));
        assert_status(DIBS_BUSY, dibs_trylock(f->rt, "x"));
        assert_status(DIBS_OK, agent_unlock(agent, "x"));
    }
    queue_assert_gone(f->server, "x");
}

/* ---------------------------------------------------- waiters that are gone */

TEST_ON(a_fair_waiter_that_died_is_passed_over, fixture *f)
{
    process *agents[4];

    fixture_open_holding(f, LONG_LEASE_MS, "x");
    for (int i = 0; i < 4; i++) {
        agents[i] = agent_start(f->server->url, LONG_LEASE_MS);
        agent_begin_fair(agents[i], "x", DIBS_WAIT_FOREVER);
        queue_await(f->server, "x", i + 1);
    }
    for (int i = 0; i < 3; i += 2) {
        process_kill(agents[i]);
        queue_await_no_listener(f->server, queue_at(f->server, "x", i).channel);
        process_free(agents[i]);
    }
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    for (int i = 1; i < 4; i += 2) {
        assert_status(DIBS_OK, agent_result(agents[i]));
        assert_status(DIBS_BUSY, dibs_trylock(f->rt, "x"));
        assert_status(DIBS_OK, agent_unlock(agents[i], "x"));
        agent_stop(agents[i]);
    }
    queue_assert_gone(f->server, "x");
}

/* A waiter in the middle of the queue runs out of time and leaves: the others keep their order. */
TEST_ON(a_fair_waiter_that_gave_up_leaves, fixture *f)
{
    process *agents[3];

    fixture_open_holding(f, LONG_LEASE_MS, "x");
    for (int i = 0; i < 3; i++) {
        agents[i] = agent_start(f->server->url, LONG_LEASE_MS);
        agent_begin_fair(agents[i], "x", i == 1 ? 500 : DIBS_WAIT_FOREVER);
        if (i != 1)
            queue_await(f->server, "x", i == 0 ? 1 : 2);
        else
            assert_status(DIBS_TIMEOUT, agent_result(agents[1]));
        if (i == 1)
            queue_await(f->server, "x", 1);
    }
    agent_begin_fair(agents[1], "x", DIBS_WAIT_FOREVER);
    queue_await(f->server, "x", 3);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    for (int i = 0; i < 3; i++) {
        process *next = agents[i == 0 ? 0 : 3 - i];

        assert_status(DIBS_OK, agent_result(next));
        assert_status(DIBS_OK, agent_unlock(next, "x"));
        agent_stop(next);
    }
    queue_assert_gone(f->server, "x");
}

TESTS(fixture_setup, fixture_teardown)
