/*
 * What the masters of a quorum may forget: fences, their last grants, the longest lease, and which quorum they belong
 * to.
 */
#include "votes_setup.h"
#include "support/script_server.h"

#define AHEAD_MS 120000
#define UNSURE_MS 2500 /* longer than a master takes to be admitted */
#define RIGHT_MS                                                                                                       \
    5000 /* the fence of a clock that is right is not that much ahead of it, however slow the machine is               \
          */

static bool is_ready(server *s)
{
    struct noted noted;

    return read_noted(s, &noted) && noted.from == 0 && noted.floor[0] != '-' && noted.quorum[0] != '0';
}

static void await_ready(masters *m)
{
    for (size_t i = 0; i < m->count; i++)
        await_or_say(is_ready(m->servers[i]), "master %zu does not vote", i);
}

/* By that server's clock. */
static long long clock_ms_of(server *s)
{
    redisReply *time = server_command(s, "TIME");
    long long ms = strtoll(time->element[0]->str, NULL, 10) * 1000;

    freeReplyObject(time);
    return ms;
}

static uint64_t fence_of_next(dibs_runtime *rt, const char *name)
{
    assert_status(DIBS_OK, dibs_timedlock(rt, name, LIMIT_MS));
    dibs_hold hold = hold_of(rt, name);
    assert_status(DIBS_OK, dibs_unlock(rt, name));
    return hold.fence;
}

static void block(masters *m, size_t i)
{
    server_do(m->servers[i], "SET lock:a foreign PX 600000");
}

static void unblock(masters *m, size_t i)
{
    server_do(m->servers[i], "DEL lock:a");
}

/*
 * The clock of the first is ahead, and its fence was raised at two others. The first dies and the second is wiped: of
 * the next holder's masters, none knows that fence but the third.
 */
TEST_ON(a_fence_does_not_fall_though_two_of_five_are_faulty, masters *m)
{
    for (size_t i = 0; i < m->count; i++)
        masters_step_clock(m, i, (i == 0 ? AHEAD_MS : 0) - m->offsets_ms[i]);
    masters_open_connected(m, LEASE_MS);
    await_ready(m);
    block(m, 3);
    block(m, 4);
    uint64_t fence = fence_of_next(m->rt, "a");
    unblock(m, 3);
    unblock(m, 4);
    server_kill(m->servers[0]);
    server_do(m->servers[1], "FLUSHALL");
    block(m, 2);
    assert_true(fence_of_next(m->rt, "a") > fence);
    unblock(m, 2);
    assert_true(is_ready(m->servers[1]));
}

static long long fence_at(const masters *m, size_t i)
{
    char text[32] = "0";

    return server_string(m->servers[i], text, sizeof text, "GET dibs:fence:{lock:a}") ? strtoll(text, NULL, 10) : 0;
}

/*
 * Two grant the lock, and one of them loses it. The third grants with a larger fence, which is raised at the second
 * alone; so a fourth is needed, whose own fence is larger still.
 */
TEST_ON(a_vote_during_a_raise_raises_the_fences_again, masters *m)
{
    dibs_hold hold;

    for (size_t i = 0; i < m->count; i++)
        masters_step_clock(m, i, (i == 2 ? 1000 : i == 3 ? 2000 : 0) - m->offsets_ms[i]);
    masters_open_patient(m, AHEAD_MS);
    await_ready(m);
    for (size_t i = 2; i < m->count; i++)
        server_pause(m->servers[i]);
    actor *a = actor_locking(m->rt, "a", LIMIT_MS);
    masters_await_keys(m, "a", 2);
    server_do(m->servers[0], "DEL lock:a");
    server_resume(m->servers[2]);
    await_that(fence_at(m, 1) > 0 && fence_at(m, 1) == fence_at(m, 2));
    server_resume(m->servers[3]);
    assert_status(DIBS_OK, actor_result(a));
    assert_status(DIBS_OK, actor_hold(a, m->rt, "a", &hold));
    assert_true(hold.fence / 1024 >= (uint64_t)fence_at(m, 3));
    server_resume(m->servers[4]);
    assert_status(DIBS_OK, actor_unlock(a, m->rt, "a"));
}

/* Where the clocks are right, fences stay near them, however often masters are wiped. */
TEST_ON(fence_floors_stay_near_the_clock, masters *m)
{
    struct noted noted;

    for (size_t i = 0; i < m->count; i++)
        masters_step_clock(m, i, -m->offsets_ms[i]);
    masters_open_connected(m, LEASE_MS / 2);
    for (size_t i = 0; i < 3; i++) {
        await_ready(m);
        server_do(m->servers[i], "FLUSHALL");
        fence_of_next(m->rt, "a");
    }
    await_ready(m);
    uint64_t fence = fence_of_next(m->rt, "a");
    long long now_us = clock_ms_of(m->servers[0]) * 1000;
    assert_true((long long)(fence >> 10) < now_us + RIGHT_MS * 1000);
    assert_true(read_noted(m->servers[0], &noted) && noted.high < now_us + RIGHT_MS * 1000);
}

/*
 * Its data are older than the holder's grant. Together with a silent master it would form a majority for another
 * client.
 */
TEST_ON_THREE_AND_FIVE(a_master_that_comes_back_with_older_data_does_not_vote_before_its_time, masters *m)
{
    size_t silent = m->count - m->majority;

    masters_open_connected(m, LEASE_MS);
    await_ready(m);
    server_do(m->servers[0], "SAVE");
    for (size_t i = 0; i < silent; i++)
        server_pause(m->servers[m->count - 1 - i]);
    dibs_runtime *holder = test_runtime(masters_open_another(m, LEASE_MS));
    int64_t granted = now_ms(); /* or later */
    assert_status(DIBS_OK, dibs_lock_with(holder, "a", LIMIT_MS, &(dibs_lock_options){.flags = DIBS_FIXED_LEASE}));
    server_kill(m->servers[0]);
    server_restart(m->servers[0]);
    assert_true(master_knows(m->servers[0]));
    for (size_t i = 0; i < silent; i++)
        server_resume(m->servers[m->count - 1 - i]);
    while (now_ms() < granted + LEASE_MS / 2)
        try_in_vain(m, granted);
    assert_status(DIBS_OK, dibs_timedlock(m->rt, "a", LIMIT_MS));
    assert_true(now_ms() >= granted + LEASE_MS - LEASE_MS / 50 - 5);
    assert_status(DIBS_OK, dibs_unlock(m->rt, "a"));
    await_ready(m);
}

static void restart_all(masters *m)
{
    masters_each(m, m->count, server_kill);
    masters_each(m, m->count, server_restart);
}

/* All masters are restarted at once and keep their data: they vote again after the longest lease. */
TEST_ON_THREE_AND_FIVE(masters_that_were_all_restarted_vote_again, masters *m)
{
    masters_open_connected(m, LEASE_MS);
    await_ready(m);
    uint64_t fence = fence_of_next(m->rt, "a");
    masters_do(m, m->count, "SAVE");
    restart_all(m);
    await_ready(m);
    assert_true(fence_of_next(m->rt, "a") > fence);
}

/* Only one master of the holder's majority is left, and it knows: those that forgot are no new quorum. */
TEST_ON_THREE_AND_FIVE(masters_wiped_one_after_the_other_wait_for_the_longest_lease, masters *m)
{
    masters_open_connected(m, LEASE_MS);
    dibs_runtime *other = test_runtime(masters_open_another(m, LEASE_MS));
    await_ready(m);
    int64_t granted = now_ms();
    assert_status(DIBS_OK, dibs_lock_with(m->rt, "a", LIMIT_MS, &(dibs_lock_options){.flags = DIBS_FIXED_LEASE}));
    masters_do(m, m->majority, "FLUSHALL");
    while (now_ms() < granted + LEASE_MS / 2) {
        dibs_status status = dibs_trylock(other, "a");
        assert_that(status == DIBS_BUSY || status == DIBS_UNAVAILABLE || now_ms() >= granted + LEASE_MS,
                    "%s after %lld ms", dibs_status_name(status), (long long)(now_ms() - granted));
    }
    assert_status(DIBS_OK, dibs_timedlock(other, "a", LIMIT_MS));
    assert_true(now_ms() >= granted + LEASE_MS - LEASE_MS / 50 - 5);
    assert_status(DIBS_OK, dibs_unlock(other, "a"));
    await_ready(m);
}

/* The third knows of the quorum, but is slow to say so. */
TEST_WITH(a_silent_master_is_given_time_to_say_that_the_quorum_is_not_new, masters_setup_3, masters_teardown,
          masters *m)
{
    struct noted noted;

    masters_open_patient(m, 30 * LEASE_MS);
    await_ready(m);
    server_pause(m->servers[2]);
    server_do(m->servers[0], "FLUSHALL");
    server_do(m->servers[1], "FLUSHALL");
    test_runtime(masters_open_another(m, LEASE_MS));
    assert_false(master_knows(m->servers[0]) || master_knows(m->servers[1]));
    server_resume(m->servers[2]);
    (void)!dibs_trylock(m->rt, "a"); /* it learns that they may not vote */
    await_that(master_knows(m->servers[0]));
    assert_true(read_noted(m->servers[0], &noted) && noted.from > 0);
}

/* -------------------------------------------------------------- the longest lease */

/* A client announced long leases, and the masters have forgotten that since. */
TEST_ON_THREE_AND_FIVE(a_lease_that_all_masters_forgot_is_announced_again, masters *m)
{
    masters_open_connected(m, 30 * LEASE_MS);
    masters_do(m, m->count, "FLUSHALL");
    dibs_runtime *other = test_runtime(masters_open_another(m, LEASE_MS));
    fence_of_next(other, "b");
    fence_of_next(m->rt, "a");
    assert_true(count_that_know(m, 30 * LEASE_MS) >= m->majority);
}

static bool first_knows_of_the_longest(masters *m)
{
    struct noted noted;

    return read_noted(m->servers[0], &noted) && noted.longest >= 30 * LEASE_MS;
}

/* The master is admitted by a client that uses shorter leases than the others. */
TEST_ON_THREE_AND_FIVE(an_admitted_master_learns_of_the_longest_leases, masters *m)
{
    masters_open_connected(m, LEASE_MS);
    dibs_runtime *other = masters_open_another(m, 30 * LEASE_MS);
    dibs_close(other);
    assert_true(count_that_know(m, 30 * LEASE_MS) >= m->majority);
    server_do(m->servers[0], "FLUSHALL");
    fence_of_next(m->rt, "a");
    await_that(first_knows_of_the_longest(m));
}

static bool first_waits_for_a_day(masters *m)
{
    struct noted noted;

    return read_noted(m->servers[0], &noted) && noted.from / 1000 > clock_ms_of(m->servers[0]) + 80000000;
}

static bool first_waits_no_longer(masters *m)
{
    struct noted noted;

    return read_noted(m->servers[0], &noted) && noted.from / 1000 < clock_ms_of(m->servers[0]) + LIMIT_MS;
}

/* Looks at the masters repeatedly; one of them does not answer. */
static void look_often(masters *m)
{
    long long asks = server_asks(m->servers[1]) + 30;
    int64_t end = now_ms() + LIMIT_MS;

    while (server_asks(m->servers[1]) < asks && now_ms() < end) {
        assert_status(DIBS_UNAVAILABLE, dibs_trylock(m->rt, "a"));
        assert_true(first_waits_for_a_day(m));
    }
}

/* An absent master may know of longer leases; it counts again when it comes back, however late. */
static void wait_for_the_longest_lease_of_all(masters *m, size_t wiped)
{
    masters_open_connected(m, LEASE_MS);
    await_ready(m);
    server_pause(m->servers[2]);
    masters_do(m, wiped, "FLUSHALL");
    assert_status(DIBS_UNAVAILABLE, dibs_trylock(m->rt, "a"));
    await_that(first_waits_for_a_day(m));
    look_often(m);
    server_resume(m->servers[2]);
    assert_true(within(LIMIT_MS / 2, first_waits_no_longer(m)));
    await_ready(m);
    fence_of_next(m->rt, "a");
}

TEST_WITH(one_wiped_and_one_down_wait_for_the_longest_lease_of_all, masters_setup_3, masters_teardown, masters *m)
{
    wait_for_the_longest_lease_of_all(m, 1);
}

/* For a process that was open before, these masters are no new quorum. */
TEST_WITH(two_wiped_and_one_down_wait_for_the_longest_lease_of_all, masters_setup_3, masters_teardown, masters *m)
{
    wait_for_the_longest_lease_of_all(m, 2);
}

/* ----------------------------------------------------- which quorum a master belongs to */

static bool are_ready(masters *m, size_t first, size_t count)
{
    bool ready = true;

    for (size_t i = 0; i < count; i++)
        ready = ready && within(LIMIT_MS, is_ready(m->servers[first + i]));
    return ready;
}

/* The error names the reason once a majority has answered. */
static bool is_refused(dibs_runtime *rt)
{
    assert_status(DIBS_UNAVAILABLE, dibs_trylock(rt, "a"));
    return strstr(dibs_last_error(), "number 1 of the URLs is a master of a quorum that the others do not know") !=
           NULL;
}

/* One quorum admitted the master, and the other would admit it again after its own longest lease. */
TEST_WITH(a_master_of_one_quorum_is_none_of_another, masters_setup_5, masters_teardown, masters *m)
{
    dibs_runtime *one = test_runtime(open_three(m, 0, 1, 2));
    struct noted its, others;

    assert_true(are_ready(m, 0, 3));
    dibs_runtime *other = open_three(m, 0, 3, 4);
    await_or_say(is_refused(other), "%s", dibs_last_error());
    for (int64_t end = now_ms() + UNSURE_MS; now_ms() < end; pause_ms(10))
        is_refused(other); /* for another reason where a master is slow to answer */
    await_or_say(is_refused(other), "%s", dibs_last_error());
    assert_false(master_knows(m->servers[3]) || master_knows(m->servers[4]));
    dibs_close(other);
    server_pause(m->servers[0]);
    other = open_three(m, 3, 0, 4); /* these two are a quorum of their own now */
    fence_of_next(other, "a");
    server_resume(m->servers[0]);
    assert_true(are_ready(m, 3, 2));
    fence_of_next(one, "a");
    assert_true(read_noted(m->servers[0], &its) && read_noted(m->servers[3], &others));
    assert_string_not_equal(its.quorum, others.quorum);
    dibs_close(other);
}

#define OPENING_MS 1000           /* how long a call looks at the masters: an open, */
#define TRYING_MS (LIMIT_MS / 10) /* and a try */

/* A call whose last look at the masters is cut short by its deadline: two of them do not reply to that one. */
struct cut_short {
    script_server *between[2];
    unsigned fired;
    int64_t began, timeout_ms;
};

static unsigned fired_in_all(const struct cut_short *cut)
{
    return script_server_fired(cut->between[0]) + script_server_fired(cut->between[1]);
}

/* The call begins. nth: its last look. */
static void cut_look_short(struct cut_short *cut, unsigned nth, int64_t timeout_ms)
{
    for (size_t i = 0; i < 2; i++) {
        script_server_set(cut->between[i], NULL, 0);
        script_server_release(cut->between[i]);
        script_server_add(cut->between[i],
                          (script_rule){.match = "dibs:vote", .nth = nth, .action = SCRIPT_STALL_REPLY});
    }
    cut->fired = fired_in_all(cut);
    cut->timeout_ms = timeout_ms;
    cut->began = now_ms();
}

/* The call is over. False: this process was kept from the processor: the call did not come to that look in time. */
static bool was_cut_short(const struct cut_short *cut)
{
    return fired_in_all(cut) == cut->fired + 2 && now_ms() < cut->began + 3 * cut->timeout_ms / 2;
}

/* With command_timeout_ms TRYING_MS. */
static dibs_runtime *open_cut_short(struct cut_short *cut, const char *first)
{
    const char *urls[] = {first, script_server_url(cut->between[0]), script_server_url(cut->between[1])};
    const dibs_config config = {.urls = urls,
                                .url_count = 3,
                                .lease_ms = LEASE_MS,
                                .connect_timeout_ms = OPENING_MS,
                                .command_timeout_ms = TRYING_MS};
    int64_t limit = now_ms() + LIMIT_MS;

    for (;;) {
        dibs_runtime *rt = NULL;
        cut_look_short(cut, 3, OPENING_MS);
        dibs_status status = dibs_open(&rt, &config);
        if (was_cut_short(cut) || now_ms() >= limit) {
            assert_status(DIBS_OK, status);
            return rt;
        }
        dibs_close(rt);
    }
}

static void expect_refused_cut_short(struct cut_short *cut, dibs_runtime *rt)
{
    int64_t limit = now_ms() + LIMIT_MS;

    for (;;) {
        cut_look_short(cut, 4, TRYING_MS);
        bool refused = is_refused(rt);
        if (was_cut_short(cut) || now_ms() >= limit) {
            assert_that(refused, "%s", dibs_last_error());
            return;
        }
    }
}

/* The error gives the reason that masters reported, not how few answered before the deadline. */
TEST_WITH(a_look_cut_short_by_the_deadline_hides_no_reason, masters_setup_5, masters_teardown, masters *m)
{
    struct cut_short cut;
    dibs_runtime *one = open_three(m, 0, 1, 2);

    assert_true(are_ready(m, 0, 3));
    for (size_t i = 0; i < 2; i++)
        cut.between[i] = script_server_start(&(script_options){.backend = m->servers[3 + i]->socket_path});
    dibs_runtime *other = open_cut_short(&cut, m->urls[0]);
    for (size_t i = 0; i < 2; i++)
        script_server_release(cut.between[i]);
    await_or_say(is_refused(other), "%s", dibs_last_error());
    expect_refused_cut_short(&cut, other);
    dibs_close(other);
    dibs_close(one);
    for (size_t i = 0; i < 2; i++)
        script_server_stop(cut.between[i]);
}

/* An operator deletes the key, and so gives the master to the other quorum. */
TEST_WITH(a_master_whose_key_is_deleted_may_join_another_quorum, masters_setup_5, masters_teardown, masters *m)
{
    dibs_close(open_three(m, 0, 1, 2));
    server_do(m->servers[0], "DEL dibs:vote");
    dibs_runtime *other = test_runtime(open_three(m, 0, 3, 4));
    fence_of_next(other, "a");
    dibs_runtime *one = test_runtime(open_three(m, 0, 1, 2));
    fence_of_next(one, "b");
}

static void expect_one_number(masters *m)
{
    struct noted first, other;

    assert_true(read_noted(m->servers[0], &first));
    for (size_t i = 1; i < m->count; i++) {
        assert_true(read_noted(m->servers[i], &other));
        assert_string_equal(first.quorum, other.quorum);
    }
}

/* Many processes find at the same time that the quorum is new. */
TEST_ON_THREE_AND_FIVE(all_masters_agree_on_one_number, masters *m)
{
    dibs_runtime *opened[8];

    for (size_t i = 0; i < 8; i++)
        opened[i] = masters_open_another(m, LEASE_MS);
    await_ready(m);
    expect_one_number(m);
    for (size_t i = 0; i < 8; i++)
        dibs_close(opened[i]);
}

/* They were all restarted without their data. A process that knew them and a new one find at the same time that the
 * quorum is new. */
TEST_ON_THREE_AND_FIVE(masters_that_all_lost_their_data_have_one_number_again, masters *m)
{
    masters_open_connected(m, LEASE_MS);
    await_ready(m);
    restart_all(m);
    dibs_runtime *later = test_runtime(masters_open_another(m, LEASE_MS));
    await_ready(m);
    expect_one_number(m);
    fence_of_next(later, "a");
    fence_of_next(m->rt, "a");
}

/*
 * Opens m->rt, and starts a process that stands still. It knows the masters by a number that none of them has any more.
 * Who is there while masters come back one after the other may still give them that number.
 */
static process *start_with_old_number(masters *m, uint32_t lease_ms)
{
    struct noted before, after;

    masters_open_connected(m, lease_ms);
    await_ready(m);
    assert_true(read_noted(m->servers[0], &before));
    process *other = start_agent(m, LEASE_MS);
    assert_status(DIBS_OK, agent_lock(other, "a", LIMIT_MS));
    assert_status(DIBS_OK, agent_unlock(other, "a"));
    process_pause(other);
    close_runtime(&m->rt);
    restart_all(m);
    masters_open_connected(m, lease_ms);
    await_ready(m);
    assert_true(read_noted(m->servers[0], &after));
    assert_string_not_equal(before.quorum, after.quorum);
    return other;
}

TEST_ON_THREE_AND_FIVE(a_process_goes_on_with_masters_that_were_begun_anew_while_it_stood_still, masters *m)
{
    process *other = start_with_old_number(m, LEASE_MS);
    process_resume(other);
    assert_status(DIBS_OK, agent_lock(other, "a", LIMIT_MS));
    assert_status(DIBS_OK, agent_unlock(other, "a"));
}

/* The masters may not vote for about as long as a lock rides out an outage: then it is asked for again. */
static dibs_status agent_lock_when_they_vote(process *agent)
{
    int64_t limit = now_ms() + LIMIT_MS;
    dibs_status status;

    do
        status = agent_lock(agent, "a", LIMIT_MS);
    while (status == DIBS_UNAVAILABLE && now_ms() < limit);
    return status;
}

/* Only a minority still has the new number: the others have lost their data again. */
TEST_ON_THREE_AND_FIVE(masters_beside_those_with_another_number_are_no_new_quorum, masters *m)
{
    process *other = start_with_old_number(m, 2 * LEASE_MS);
    int64_t granted = now_ms();
    assert_status(DIBS_OK, dibs_lock_with(m->rt, "a", LIMIT_MS, &(dibs_lock_options){.flags = DIBS_FIXED_LEASE}));
    masters_do(m, m->majority, "FLUSHALL");
    process_resume(other);
    assert_status(DIBS_OK, agent_lock_when_they_vote(other));
    int64_t passed = now_ms() - granted;
    assert_that(passed >= 2 * LEASE_MS - LEASE_MS / 25 - 5, "another had it after %lld ms", (long long)passed);
    assert_status(DIBS_OK, agent_unlock(other, "a"));
}

TESTS(masters_setup_5_with_clocks, masters_teardown)
