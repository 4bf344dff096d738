/* Which masters of a quorum may vote: a new quorum at once, a master that lost its data only after the longest lease.
 */
#include <pthread.h>

#include "votes_setup.h"
#include "support/script_server.h"

#define CLIENTS 8
#define WAIT_MS 6000
#define LOOKS_OFTEN_MS 1000 /* a process looks at the masters as often as its longest lease lasts */

static void *open_and_lock(void *arg)
{
    const masters *m = arg;
    dibs_config config = m->config;
    dibs_runtime *rt;

    config.on_event = NULL;
    config.lease_ms = LEASE_MS;
    if (open_in_time(&rt, &config) != DIBS_OK)
        return (void *)"dibs_open";
    const char *failed = dibs_timedlock(rt, "a", LIMIT_MS) != DIBS_OK ? "dibs_lock" : NULL;
    if (!failed && dibs_unlock(rt, "a") != DIBS_OK)
        failed = "dibs_unlock";
    dibs_close(rt);
    return (void *)failed;
}

TEST_ON_THREE_AND_FIVE(a_new_quorum_is_used_at_once_by_many, masters *m)
{
    pthread_t threads[CLIENTS];
    int64_t began = now_ms();

    for (int i = 0; i < CLIENTS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, open_and_lock, m), 0);
    for (int i = 0; i < CLIENTS; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_that(!failed, "%s failed", (const char *)failed);
    }
    assert_true(now_ms() - began < LEASE_MS + SLACK_MS);
    for (size_t i = 0; i < m->count; i++)
        assert_true(master_knows(m->servers[i]));
}

/* The holder's majority is that master and others: until its lease is over, there must be no other majority. */
TEST_ON_THREE_AND_FIVE(a_wiped_master_does_not_vote_before_the_longest_lease_is_over, masters *m)
{
    masters_open_connected(m, LEASE_MS);
    for (size_t i = 0; i < m->count - m->majority; i++)
        server_pause(m->servers[m->count - 1 - i]);
    dibs_runtime *holder = test_runtime(masters_open_another(m, LEASE_MS));
    int64_t granted = now_ms(); /* or later: on a busy machine the call may take longer than the margin of the lease */
    assert_status(DIBS_OK, dibs_lock_with(holder, "a", LIMIT_MS, &(dibs_lock_options){.flags = DIBS_FIXED_LEASE}));
    server_kill(m->servers[0]);
    server_restart(m->servers[0]);
    for (size_t i = 0; i < m->count - m->majority; i++)
        server_resume(m->servers[m->count - 1 - i]);
    while (now_ms() < granted + LEASE_MS / 2)
        try_in_vain(m, granted);
    assert_status(DIBS_OK, dibs_timedlock(m->rt, "a", LIMIT_MS));
    int64_t passed = now_ms() - granted;
    assert_that(passed >= LEASE_MS - LEASE_MS / 50 - 5, "another had it after %lld ms", (long long)passed);
    await_that(master_knows(m->servers[0]));
    assert_status(DIBS_OK, dibs_unlock(m->rt, "a"));
}

/* The master was looked at, but no client has admitted it. */
static bool has_mark(server *s)
{
    return server_has(s, "dibs:vote") && !master_knows(s);
}

static bool may_not_vote(server *s)
{
    long long votes_from;
    char text[128];

    return server_string(s, text, sizeof text, "GET dibs:vote") && sscanf(text, "%lld", &votes_from) == 1 &&
           votes_from > 0;
}

/* Its keys expire before the time that their holder knows. With two free masters it would form a majority. */
TEST_ON(a_master_whose_clock_steps_does_not_vote_before_the_longest_lease_is_over, masters *m)
{
    masters_open_connected(m, LEASE_MS);
    server_pause(m->servers[3]);
    server_pause(m->servers[4]);
    dibs_runtime *holder = test_runtime(masters_open_another(m, LEASE_MS));
    int64_t granted = now_ms(); /* or later */
    assert_status(DIBS_OK, dibs_lock_with(holder, "a", LIMIT_MS, &(dibs_lock_options){.flags = DIBS_FIXED_LEASE}));
    masters_step_clock(m, 0, 60000);
    assert_false(server_has(m->servers[0], "lock:a"));
    server_resume(m->servers[3]);
    server_resume(m->servers[4]);
    bool waits = false; /* the loop goes on until that is seen, where the machine was stopped before */
    while (now_ms() < granted + LEASE_MS / 2 || (!waits && now_ms() < granted + LEASE_MS)) {
        try_in_vain(m, granted);
        waits = waits || may_not_vote(m->servers[0]);
    }
    assert_true(waits || now_ms() >= granted + LEASE_MS); /* nor for other clients */
    assert_status(DIBS_OK, dibs_timedlock(m->rt, "a", LIMIT_MS));
    assert_true(now_ms() >= granted + LEASE_MS - LEASE_MS / 50 - 5);
    assert_status(DIBS_OK, dibs_unlock(m->rt, "a"));
}

/*
 * It forgot that it granted the lock, and its clock steps while it waits until that lease is over. The holder's process
 * stands still, so it sets its key nowhere again.
 */
TEST_WITH(a_step_of_the_clock_does_not_shorten_a_wait, masters_setup_5_with_clocks, masters_teardown_expiring,
          masters *m)
{
    masters_open_connected(m, WAIT_MS);
    dibs_runtime *looks_often = test_runtime(masters_open_another(m, LOOKS_OFTEN_MS));
    server_pause(m->servers[3]);
    server_pause(m->servers[4]);
    process *holder = start_agent(m, WAIT_MS);
    assert_status(DIBS_OK, agent_lock(holder, "a", LIMIT_MS));
    int64_t granted = now_ms() - (WAIT_MS - agent_remaining(holder, "a")); /* or later */
    process_pause(holder);
    server_do(m->servers[0], "FLUSHALL");
    server_resume(m->servers[3]);
    server_resume(m->servers[4]);
    await_that(may_not_vote(m->servers[0]));
    masters_step_clock(m, 0, WAIT_MS - 5 * LOOKS_OFTEN_MS / 2);
    while (now_ms() < granted + WAIT_MS * 3 / 4) {
        dibs_status status = dibs_trylock(looks_often, "a");
        assert_that(status == DIBS_BUSY || status == DIBS_UNAVAILABLE || now_ms() >= granted + WAIT_MS,
                    "%s after %lld ms: %s", dibs_status_name(status), (long long)(now_ms() - granted),
                    dibs_last_error());
    }
    assert_status(DIBS_OK, dibs_timedlock(looks_often, "a", LIMIT_MS));
    assert_true(now_ms() >= granted + WAIT_MS - WAIT_MS / 50 - 5);
    assert_status(DIBS_OK, dibs_unlock(looks_often, "a"));
    await_that(master_knows(m->servers[0]));
    process_free(holder);
}

static void set_right_again(masters *m)
{
    masters_step_clock(m, 0, 60000);
    server_resume(m->servers[3]);
    server_resume(m->servers[4]);
}

/*
 * Its grants would end early once the clock is corrected: with two other masters it would form a majority for another
 * client.
 */
TEST_ON(a_master_whose_clock_was_set_back_does_not_vote, masters *m)
{
    masters_open_connected(m, LEASE_MS);
    dibs_runtime *other = test_runtime(masters_open_another(m, LEASE_MS));
    server_pause(m->servers[3]); /* so the first is needed for a majority */
    server_pause(m->servers[4]);
    masters_step_clock(m, 0, -60000);
    dibs_status status = dibs_lock_with(m->rt, "a", LEASE_MS / 2, &(dibs_lock_options){.flags = DIBS_FIXED_LEASE});
    assert_that(status == DIBS_TIMEOUT || status == DIBS_UNAVAILABLE, "%s", dibs_status_name(status));
    set_right_again(m);
    lock_and_release(other, "a", LIMIT_MS);
}

/* Earlier grants end early if the clock is corrected: no renewal there counts. */
TEST_ON(a_master_whose_clock_was_set_back_renews_nothing, masters *m)
{
    masters_open_connected(m, LEASE_MS);
    dibs_runtime *other = test_runtime(masters_open_another(m, LEASE_MS));
    server_pause(m->servers[3]);
    server_pause(m->servers[4]);
    assert_status(DIBS_OK, dibs_lock(m->rt, "a"));
    masters_step_clock(m, 0, -60000);
    await_lost(m->rt, "a");
    assert_status(DIBS_LOST, dibs_unlock(m->rt, "a"));
    set_right_again(m);
    lock_and_release(other, "a", LIMIT_MS);
}

/* In the end the master votes like the others again. */
TEST_ON_THREE_AND_FIVE(a_wiped_master_votes_again, masters *m)
{
    masters_open_connected(m, SAFE_LEASE_MS);
    server_kill(m->servers[0]);
    server_restart(m->servers[0]);
    int64_t end = now_ms() + LIMIT_MS;
    size_t count = 0;
    while (count < m->count && now_ms() < end) {
        assert_status(DIBS_OK, dibs_lock(m->rt, "b"));
        count = masters_with_key(m, "b");
        assert_status(DIBS_OK, dibs_unlock(m->rt, "b"));
        pause_ms(10);
    }
    assert_int_equal(count, m->count);
}

/*
 * Looks at the masters while a majority is away: the calling thread does, to announce the lease, and then the
 * scheduler's.
 */
static void look_and_fail(masters *m)
{
    server *last = m->servers[m->count - 1];
    long long twice = server_asks(last) + 2;
    const dibs_lock_options longer = {.lease_ms = 3 * LEASE_MS};

    assert_status(DIBS_UNAVAILABLE, dibs_lock_with(m->rt, "a", 0, &longer));
    await_that(server_asks(last) >= twice);
}

/* A look does not wait for masters that are not connected: it would miss those that come back meanwhile. */
TEST_ON_THREE_AND_FIVE(a_majority_that_comes_back_without_data_votes_at_once, masters *m)
{
    m->config.command_timeout_ms = LIMIT_MS; /* a look may take so long, and leave less time for what follows */
    m->config.outage_ms = 3 * WAIT_MS; /* the longest lease lasts as long as WAIT_MS; the rest is for a busy machine */
    masters_open_connected(m, LEASE_MS);
    masters_each(m, m->majority, server_kill);
    look_and_fail(m);
    masters_each(m, m->majority, server_restart);
    lock_and_release(m->rt, "a", LIMIT_MS);
}

/* A lease that is longer than any before is announced to the masters first, also one that an extension makes so. */
TEST_ON_THREE_AND_FIVE(longer_leases_are_announced, masters *m)
{
    masters_open_connected(m, LEASE_MS);
    assert_status(DIBS_OK, dibs_lock_with(m->rt, "a", LIMIT_MS, &(dibs_lock_options){.lease_ms = 3 * LEASE_MS}));
    assert_true(count_that_know(m, 3 * LEASE_MS) >= m->majority);
    assert_status(DIBS_OK, dibs_extend(m->rt, "a", 5 * LEASE_MS));
    assert_true(count_that_know(m, 5 * LEASE_MS) >= m->majority);
    assert_status(DIBS_OK, dibs_unlock(m->rt, "a"));
}

/* A client whose look takes long. */
struct slow_open {
    const char *urls[3];
    dibs_status status;
};

static void *open_slowly(void *arg)
{
    struct slow_open *slow = arg;
    dibs_runtime *rt;

    slow->status = dibs_open(
        &rt, &(dibs_config){.urls = slow->urls, .url_count = 3, .lease_ms = WAIT_MS, .command_timeout_ms = LIMIT_MS});
    if (slow->status == DIBS_OK)
        dibs_close(rt);
    return NULL;
}

/*
 * One client has heard two masters, which were new. Another begins the quorum, and has the vote of the third, which
 * then loses its data. The first client finds three masters that did not know whether they may vote, and yet not a new
 * quorum.
 */
TEST_WITH(a_look_while_a_quorum_begins_admits_nobody_at_once, masters_setup_3, masters_teardown, masters *m)
{
    script_server *late = script_server_start(&(script_options){.backend = m->servers[2]->socket_path});
    struct slow_open slow = {.urls = {m->urls[0], m->urls[1], script_server_url(late)}};
    pthread_t thread;

    script_server_add(late, (script_rule){.match = "dibs:vote", .nth = 1, .action = SCRIPT_STALL_REQUEST});
    assert_int_equal(pthread_create(&thread, NULL, open_slowly, &slow), 0);
    assert_true(within(LIMIT_MS, has_mark(m->servers[0])) && within(LIMIT_MS, has_mark(m->servers[1])));
    script_server_await_fired(late, 0);
    masters_open_connected(m, LEASE_MS);
    masters_lock_at_all(m, "a");
    server_do(m->servers[2], "FLUSHALL");
    script_server_release(late);
    await_that(master_knows(m->servers[2]));
    assert_true(may_not_vote(m->servers[2]));
    pthread_join(thread, NULL);
    assert_status(DIBS_OK, slow.status);
    script_server_stop(late);
}

TESTS(masters_setup_5_with_clocks, masters_teardown)
