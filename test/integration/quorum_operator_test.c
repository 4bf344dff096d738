/* dibs_admit: an operator vouches for masters, which then vote again where no client knows enough. */
#include "votes_setup.h"

#define DAY_MS 80000000 /* nearly */
#define FLOOR_MS 10000  /* for so long a master waits for a floor that a majority knows */
#define TOLD_MOST 16

/* ------------------------------------------------------------- what is told */

static struct told {
    dibs_verdict verdict;
    char text[600];
} told[TOLD_MOST];
static size_t told_count;

static void note(const dibs_finding *finding, void *arg)
{
    assert_true(told_count < TOLD_MOST);
    assert_string_equal(finding->server, "the quorum");
    assert_string_equal(finding->subject, "quorum");
    assert_true((finding->verdict == DIBS_VERDICT_OK) == (*finding->remedy == '\0'));
    told[told_count].verdict = finding->verdict;
    snprintf(told[told_count++].text, sizeof told[0].text, "%s", finding->text);
}

static dibs_status admit(dibs_runtime *rt, uint32_t longest_ms)
{
    told_count = 0;
    return dibs_admit(rt, longest_ms, note, NULL);
}

static void expect_told(size_t i, dibs_verdict verdict, const char *words)
{
    assert_true(i < told_count);
    assert_that(told[i].verdict == verdict && strstr(told[i].text, words), "%d: %s", told[i].verdict, told[i].text);
}

/* That it waits for a lease of that length, 1 % of it and 20 ms, less what has passed since on a busy machine. */
static void expect_told_wait(size_t i, long long lease_ms)
{
    const char *at = i < told_count ? strstr(told[i].text, "may vote in ") : NULL;
    long long ms = at ? strtoll(at + strlen("may vote in "), NULL, 10) : -1;

    expect_told(i, DIBS_VERDICT_OK, "may vote in ");
    assert_that(ms >= lease_ms / 2 && ms <= lease_ms + lease_ms / 100 + 20, "%s", told[i].text);
}

/* ---------------------------------------------------------------- the masters */

/* In how many ms the master may vote; -1: the master does not know. */
static long long votes_in_ms(server *s)
{
    char text[256];

    if (!master_knows(s) || !server_string(s, text, sizeof text, "GET dibs:vote"))
        return -1;
    redisReply *time = server_command(s, "TIME");
    long long left_us = strtoll(text, NULL, 10) - strtoll(time->element[0]->str, NULL, 10) * 1000000;
    freeReplyObject(time);
    return left_us > 0 ? left_us / 1000 : 0;
}

static bool waits_for_a_day(server *s)
{
    return votes_in_ms(s) > DAY_MS;
}

/* The master also knows which quorum it belongs to. */
static bool votes(server *s)
{
    char text[256];
    long long longest, seen, high, floor, quorum;

    return server_string(s, text, sizeof text, "GET dibs:vote") &&
           sscanf(text, "0 %lld %lld %lld %lld %*s %lld", &longest, &seen, &high, &floor, &quorum) == 5 && quorum != 0;
}

static void await_votes(masters *m, size_t first, size_t count)
{
    for (size_t i = first; i < first + count; i++)
        await_or_say(votes(m->servers[i]), "master %zu does not vote", i);
}

static uint64_t fence_of_next(dibs_runtime *rt, const char *name)
{
    assert_status(DIBS_OK, dibs_timedlock(rt, name, LEASE_MS + FLOOR_MS + LIMIT_MS));
    dibs_hold hold = hold_of(rt, name);
    assert_status(DIBS_OK, dibs_unlock(rt, name));
    return hold.fence;
}

/* ---------------------------------------------------------------------- tests */

/* The third knows of longer leases, as far as the others can tell; the operator knows better. */
TEST_ON(a_quorum_with_one_wiped_and_one_absent_goes_on_when_admitted, masters *m)
{
    m->config.outage_ms = LIMIT_MS; /* longer than the floor is waited for */
    masters_open_connected(m, LEASE_MS);
    await_votes(m, 0, 3);
    uint64_t fence = fence_of_next(m->rt, "a");
    int64_t granted = now_ms();
    assert_status(DIBS_OK, dibs_lock_with(m->rt, "a", LIMIT_MS, &(dibs_lock_options){.flags = DIBS_FIXED_LEASE}));
    server_kill(m->servers[2]);
    server_do(m->servers[0], "FLUSHALL");
    dibs_runtime *other = masters_open_another(m, LEASE_MS);
    assert_status(DIBS_UNAVAILABLE, dibs_trylock(other, "a"));
    await_that(waits_for_a_day(m->servers[0]));
    assert_status(DIBS_OK, admit(other, LEASE_MS));
    expect_told(0, DIBS_VERDICT_OK, "Number 1 of the URLs");
    expect_told_wait(0, LEASE_MS);
    expect_told(1, DIBS_VERDICT_OK, "Number 2 of the URLs votes.");
    expect_told(2, DIBS_VERDICT_WARN, "Number 3 of the URLs did not answer");
    assert_int_equal(told_count, 3);
    assert_true(fence_of_next(other, "a") > fence);
    assert_true(now_ms() >= granted + LEASE_MS - LEASE_MS / 50 - 5);
    dibs_close(other);
    server_restart(m->servers[2]);
}

static bool is_refused(dibs_runtime *rt)
{
    assert_status(DIBS_UNAVAILABLE, dibs_trylock(rt, "a"));
    return strstr(dibs_last_error(), "is a master of a quorum that the others do not know") != NULL;
}

/* A majority lost its data, and every process was opened later. What the minority knows still counts. */
TEST_ON_THREE_AND_FIVE(new_processes_believe_a_minority, masters *m)
{
    masters_open_connected(m, LEASE_MS);
    await_votes(m, 0, m->count);
    uint64_t fence = fence_of_next(m->rt, "a");
    close_runtime(&m->rt);
    masters_do(m, m->majority, "FLUSHALL");
    dibs_runtime *other = test_runtime(masters_open_another(m, LEASE_MS));
    await_or_say(is_refused(other), "%s", dibs_last_error());
    int64_t began = now_ms();
    assert_status(DIBS_OK, admit(other, LEASE_MS));
    for (size_t i = 0; i < m->count; i++)
        if (i < m->majority)
            expect_told_wait(i, LEASE_MS);
        else
            expect_told(i, DIBS_VERDICT_OK, "votes.");
    dibs_runtime *third = test_runtime(masters_open_another(m, LEASE_MS)); /* for which no operator called dibs_admit */
    assert_true(fence_of_next(third, "a") > fence);
    assert_true(now_ms() >= began + LEASE_MS);
    fence_of_next(other, "a");
}

/* What a master knows counts if the operator gives less. */
TEST_ON(the_wait_is_no_shorter_than_a_master_knows, masters *m)
{
    dibs_close(masters_open_another(m, 30 * LEASE_MS));
    masters_open_connected(m, LEASE_MS);
    await_votes(m, 0, 3);
    server_kill(m->servers[2]);
    server_do(m->servers[0], "FLUSHALL");
    assert_status(DIBS_OK, admit(m->rt, LEASE_MS));
    expect_told_wait(0, 30 * LEASE_MS);
    assert_true(votes_in_ms(m->servers[0]) > 15 * LEASE_MS);
    assert_false(waits_for_a_day(m->servers[0]));
    server_restart(m->servers[2]);
}

/* Numbers 1 to 3 are a quorum, and so are 4, 5 and, since its key was deleted, 1. */
static void make_two_quorums(masters *m)
{
    dibs_runtime *rt = open_three(m, 0, 1, 2);

    await_votes(m, 0, 3);
    dibs_close(rt);
    server_do(m->servers[0], "DEL dibs:vote");
    rt = open_three(m, 0, 3, 4);
    await_votes(m, 0, 1);
    await_votes(m, 3, 2);
    dibs_close(rt);
}

TEST_WITH(masters_of_two_quorums_are_not_mixed, masters_setup_5, masters_teardown, masters *m)
{
    make_two_quorums(m);
    server_do(m->servers[4], "FLUSHALL");
    dibs_runtime *rt = test_runtime(open_three(m, 1, 3, 4));
    assert_status(DIBS_OK, admit(rt, LEASE_MS));
    expect_told(0, DIBS_VERDICT_BAD, "Some of the masters belong to one quorum, others to another");
    assert_int_equal(told_count, 1);
    assert_int_equal(votes_in_ms(m->servers[4]), -1);
}

TEST_WITH(a_master_of_another_quorum_is_not_admitted, masters_setup_5, masters_teardown, masters *m)
{
    make_two_quorums(m);
    dibs_runtime *rt = test_runtime(open_three(m, 1, 2, 3));
    assert_status(DIBS_OK, admit(rt, LEASE_MS));
    expect_told(0, DIBS_VERDICT_OK, "Number 1 of the URLs votes.");
    expect_told(2, DIBS_VERDICT_BAD, "Number 3 of the URLs is a master of another quorum");
    assert_true(votes(m->servers[3]));
}

TEST_ON_THREE_AND_FIVE(admitting_a_voting_master_changes_nothing, masters *m)
{
    masters_open_connected(m, LEASE_MS);
    await_votes(m, 0, m->count);
    assert_status(DIBS_OK, dibs_lock(m->rt, "a"));
    assert_status(DIBS_OK, admit(m->rt, 10 * LEASE_MS));
    for (size_t i = 0; i < m->count; i++) {
        expect_told(i, DIBS_VERDICT_OK, "votes.");
        assert_true(votes(m->servers[i]));
    }
    assert_status(DIBS_OK, dibs_unlock(m->rt, "a"));
}

TEST_ON(without_a_majority_nobody_is_admitted, masters *m)
{
    masters_open_connected(m, LEASE_MS);
    server_kill(m->servers[1]);
    server_kill(m->servers[2]);
    server_do(m->servers[0], "FLUSHALL");
    assert_status(DIBS_UNAVAILABLE, admit(m->rt, LEASE_MS));
    assert_int_equal(told_count, 0);
    assert_int_equal(votes_in_ms(m->servers[0]), -1);
    server_restart(m->servers[1]);
    server_restart(m->servers[2]);
}

TEST_ON(a_store_without_masters_has_nobody_to_admit, masters *m)
{
    dibs_runtime *rt;

    assert_status(DIBS_OK, open_in_time(&rt, &(dibs_config){.urls = m->urls, .url_count = 1}));
    assert_status(DIBS_INVALID, admit(rt, LEASE_MS));
    assert_non_null(strstr(dibs_last_error(), "only masters of a quorum are admitted"));
    dibs_close(rt);
    assert_status(DIBS_OK, dibs_open(&rt, &(dibs_config){.urls = (const char *[]){"mem:"}, .url_count = 1}));
    assert_status(DIBS_INVALID, admit(rt, LEASE_MS));
    dibs_close(rt);
    masters_open(m, LEASE_MS);
    assert_status(DIBS_INVALID, admit(m->rt, 0));
    assert_status(DIBS_INVALID, dibs_admit(m->rt, LEASE_MS, NULL, NULL));
    assert_status(DIBS_INVALID, admit(NULL, LEASE_MS));
}

TESTS(masters_setup_3, masters_teardown)
