/* Clocks of masters that are set by less than makes an ask late, between connections, or while no client asks. */
#include "support/fixture.h"
#include "support/masters.h"

#define LEASE_MS 2000
#define LONG_MS 20000 /* for a lease that nobody waits for here */
#define SHORT_MS 200

/* Times of dibs:vote at the first master; 0: it is not there. */
static long long first_masters(masters *m, const char *format)
{
    char text[256];
    long long number = 0;

    if (!master_knows(m->servers[0]) || !server_string(m->servers[0], text, sizeof text, "GET dibs:vote") ||
        sscanf(text, format, &number) != 1)
        return 0;
    return number;
}

#define VOTES_FROM "%lld"
#define SEEN "%*s %*s %lld"

static void pause_two(masters *m)
{
    server_pause(m->servers[3]);
    server_pause(m->servers[4]);
}

static void resume_two(masters *m)
{
    server_resume(m->servers[3]);
    server_resume(m->servers[4]);
}

/*
 * A holder has three masters. The clock of the first is set forward by so much; `cut`: then it closes all connections.
 * As soon as its key has expired, the first and the two others could form a majority for another client.
 */
static void step_under_a_holder(masters *m, int64_t by_ms, bool cut)
{
    for (size_t i = 0; i < m->count; i++) /* otherwise the holder is told of the expired key, and may set it first */
        server_do(m->servers[i], "ACL SETUSER default -client|tracking");
    masters_open_connected(m, LONG_MS); /* a process with so long a lease rarely looks: so the grant shows the step */
    pause_two(m);
    dibs_runtime *holder = masters_open_another(m, LEASE_MS);
    int64_t granted = now_ms(); /* or later */
    assert_status(DIBS_OK, dibs_lock_with(holder, "a", LIMIT_MS, &(dibs_lock_options){.flags = DIBS_FIXED_LEASE}));
    masters_step_clock(m, 0, by_ms);
    if (cut)
        server_do(m->servers[0], "CLIENT KILL TYPE normal");
    resume_two(m);
    assert_status(DIBS_OK, dibs_timedlock(m->rt, "a", LIMIT_MS));
    int64_t passed = now_ms() - granted;
    assert_that(passed >= LEASE_MS - LEASE_MS / 50 - 5, "another had it after %lld ms", (long long)passed);
    assert_status(DIBS_OK, dibs_unlock(m->rt, "a"));
    dibs_close(holder);
}

TEST(a_step_for_which_no_ask_is_late_is_noticed)
{
    step_under_a_holder(*state, LEASE_MS / 4, false);
}

TEST(a_step_is_noticed_by_connections_that_are_made_later)
{
    step_under_a_holder(*state, 60000, true);
}

static bool may_not_vote(masters *m)
{
    return first_masters(m, VOTES_FROM) > 0;
}

/* In that time all processes have looked at it. One that opens meanwhile finds that leases are shorter. */
TEST_ON(a_master_whose_clock_was_set_waits_for_a_second_however_short_leases_are, masters *m)
{
    masters_open_connected(m, SHORT_MS);
    masters_step_clock(m, 0, 60000);
    await_that(may_not_vote(m));
    long long votes_from = first_masters(m, VOTES_FROM);
    test_runtime(masters_open_another(m, SHORT_MS));
    for (int64_t end = now_ms() + LIMIT_MS; now_ms() < end; pause_ms(10)) {
        long long now_from = first_masters(m, VOTES_FROM);
        if (now_from == 0)
            break;
        assert_that(now_from >= votes_from, "the wait became shorter by %lld us", votes_from - now_from);
        votes_from = now_from;
    }
    masters_await_all(m);
}

/* So a later client that does not know that clock gets no vote there. */
TEST_ON(an_idle_process_notices_a_step, masters *m)
{
    static const int64_t steps_ms[] = {700, -700};

    masters_open_connected(m, LEASE_MS);
    for (size_t i = 0; i < sizeof steps_ms / sizeof steps_ms[0]; i++) {
        masters_step_clock(m, 0, steps_ms[i]);
        await_or_say(may_not_vote(m), "nobody noticed a step of %lld ms", (long long)steps_ms[i]);
        masters_await_all(m);
    }
}

/* The server also records the clock while no client asks: a later process gets no vote there. */
TEST_ON(a_clock_set_back_while_a_process_is_idle_is_noticed, masters *m)
{
    enum { REST_MS = 4000, BACK_MS = 3000 };

    masters_open_connected(m, LEASE_MS / 2);
    long long seen = first_masters(m, SEEN);
    assert_true(seen > 0);
    pause_ms(REST_MS); /* nobody asks */
    for (int64_t end = now_ms() + LIMIT_MS / 4; first_masters(m, SEEN) < seen + 1000LL * BACK_MS && now_ms() < end;)
        pause_ms(10);
    assert_true(first_masters(m, SEEN) >= seen + 1000LL * BACK_MS);
    pause_two(m);
    int64_t stepped = now_ms();
    masters_step_clock(m, 0, -BACK_MS);
    dibs_close(m->rt); /* it would notice the step, too */
    m->rt = NULL;
    dibs_runtime *holder = test_runtime(masters_open_another(m, LEASE_MS));
    dibs_status status = dibs_lock_with(holder, "a", LEASE_MS / 4, &(dibs_lock_options){.flags = DIBS_FIXED_LEASE});
    if (status == DIBS_OK) /* the machine was slow: the master may vote again, a lease later */
        assert_true(now_ms() - stepped >= LEASE_MS / 2);
    else
        assert_that(status == DIBS_TIMEOUT || status == DIBS_UNAVAILABLE, "%s", dibs_status_name(status));
    masters_step_clock(m, 0, BACK_MS);
    resume_two(m);
    if (status != DIBS_OK)
        assert_status(DIBS_OK, dibs_timedlock(holder, "a", LIMIT_MS));
    assert_status(DIBS_OK, dibs_unlock(holder, "a"));
}

/* The key does not outlast its lease, so nothing at the server shows that its clock is behind. */
TEST_ON(a_renewal_by_a_clock_that_was_set_back_a_little_does_not_count, masters *m)
{
    masters_open_connected(m, LEASE_MS);
    pause_two(m);
    assert_status(DIBS_OK, dibs_lock(m->rt, "a"));
    masters_step_clock(m, 0, -LEASE_MS / 5);
    await_lost(m->rt, "a");
    assert_status(DIBS_LOST, dibs_unlock(m->rt, "a"));
    resume_two(m);
}

/* Most clocks agree, so the local one was set: no master has to wait for a lease. */
TEST_ON(a_jump_of_our_own_clock_keeps_nobody_from_voting, masters *m)
{
    masters_open_connected(m, LONG_MS);
    for (size_t i = 0; i < m->count; i++)
        masters_step_clock(m, i, 5000);
    int64_t began = now_ms();
    assert_status(DIBS_OK, dibs_timedlock(m->rt, "a", LIMIT_MS));
    assert_true(now_ms() - began < LONG_MS / 2);
    assert_status(DIBS_OK, dibs_unlock(m->rt, "a"));
}

/* Nothing was set, so nothing is late, even once more than the command timeout lies between the clocks. */
TEST_ON(a_clock_that_runs_faster_is_borne_over_old_connections, masters *m)
{
    enum { TIMEOUT_MS = 150, DRIFT_MS = 180, STEP_EVERY_MS = 110 };

    m->config.command_timeout_ms = TIMEOUT_MS;
    masters_open_connected(m, LEASE_MS / 2);
    for (int drift = 0; drift < DRIFT_MS; drift++) {
        masters_step_clock(m, 0, 1);
        for (int64_t end = now_ms() + STEP_EVERY_MS; now_ms() < end; pause_ms(STEP_EVERY_MS / 4)) {
            assert_status(DIBS_OK, dibs_timedlock(m->rt, "a", LIMIT_MS));
            dibs_status status = dibs_unlock(m->rt, "a"); /* on a busy machine the masters may need longer to answer */
            assert_that(status == DIBS_OK || status == DIBS_UNAVAILABLE, "%s", dibs_status_name(status));
            assert_that(!may_not_vote(m), "after %d ms", drift);
        }
    }
}

TESTS(masters_setup_5_with_clocks, masters_teardown)
