/* What a release at three masters comes to, when, and what is left at them. */
#include "quorum_voters.h"

#define OVERDUE_MS 20

static struct dibs__op op;

/* The ask is not begun before. */
static dibs_status finish_ask(void)
{
    struct dibs__op asks = dibs__op_ask(&attempt, &answer, the_time + MS(1000));

    return dibs__quorum_ask_finish(&setting.q.store, &asks, &error);
}

/* What is not answered now never is. */
static int end(void **state)
{
    the_time += MS(10000);
    return end_vote(state);
}

/* The lock is held; the third master answers the ask so. */
static void hold(dibs_status third, int64_t takes_ms)
{
    end(NULL);
    begin_vote(7, 7, 7);
    attempt = (struct dibs__attempt){.name = "x", .token = "dibs:token", .lease_ms = LEASE_MS};
    voter_says(2, DIBS__OP_ASK, third, takes_ms);
    assert_status(DIBS_OK, finish_ask());
    dibs__quorum_conclude(&setting.q.store, &attempt, true);
    assert_true(attempt.store_state.outer == 0 && !attempt.in_store);
    sleeps = 0;
}

static void begin_release(void)
{
    op = (struct dibs__op){.kind = DIBS__OP_RELEASE,
                           .name = "x",
                           .deadline = the_time + MS(1000),
                           .release = {.token = "dibs:token", .lease_ms = LEASE_MS, .fence = 7, .contended = true}};
    dibs__quorum_release_begin(&setting.q.store, &op);
}

static dibs_status finish_release(void)
{
    return dibs__quorum_release_finish(&setting.q.store, &op, &error);
}

static dibs_status release(void)
{
    begin_release();
    return finish_release();
}

static void expect_release(dibs_status status, int64_t takes_ms)
{
    int64_t began = the_time;

    assert_status(status, release());
    assert_true(the_time == began + MS(takes_ms));
}

static void all_say(dibs_status first, dibs_status second, dibs_status third)
{
    voter_says(0, DIBS__OP_RELEASE, first, 0);
    voter_says(1, DIBS__OP_RELEASE, second, 0);
    voter_says(2, DIBS__OP_RELEASE, third, 0);
}

/* What the claim, which still is in the table, has of the third master. */
static struct dibs__member_state *state_of_third(void)
{
    struct dibs__claim *claim = dibs__claim_find(&setting.q, "dibs:token");

    assert_non_null(claim);
    dibs__claim_unref(&setting.q, claim);
    return &claim->states[2];
}

/* ------------------------------------------------------------------ outcomes */

TEST(a_majority_confirms_and_the_last_is_not_waited_for)
{
    for (size_t last = 0; last < MEMBERS; last++) {
        hold(DIBS_OK, 0);
        for (size_t i = 0; i < MEMBERS; i++)
            voter_says(i, DIBS__OP_RELEASE, DIBS_OK, i == last ? NEVER_MS : 3);
        expect_release(DIBS_OK, 3);
        assert_int_equal(sleeps, 1);
        assert_int_equal(setting.q.last_reply_at == the_time, 1);
        for (size_t i = 0; i < MEMBERS; i++) {
            assert_int_equal(voters[i].asked[DIBS__OP_RELEASE], i != last);
            assert_int_equal(voters[i].quiet, 0);
            assert_true(voters[i].last.release.fence == 7 && voters[i].last.release.contended);
            assert_int_equal(voters[i].retracted, 0);
            assert_int_equal(voters[i].kept, 1);
        }
        assert_null(dibs__claim_find(&setting.q, "dibs:token"));
    }
}

TEST(the_masters_decide_together_whether_it_was_held)
{
    static const struct {
        dibs_status say[MEMBERS], status;
    } rows[] = {
        {{DIBS_OK, DIBS_OK, DIBS_NOT_HELD}, DIBS_OK},
        {{DIBS_NOT_HELD, DIBS_OK, DIBS_OK}, DIBS_OK},
        {{DIBS_NOT_HELD, DIBS_NOT_HELD, DIBS_OK}, DIBS_NOT_HELD},
        {{DIBS_NOT_HELD, DIBS_NOT_HELD, DIBS_UNAVAILABLE}, DIBS_NOT_HELD},
        {{DIBS_OK, DIBS_NOT_HELD, DIBS_UNAVAILABLE}, DIBS_UNAVAILABLE},
        {{DIBS_UNAVAILABLE, DIBS_NOT_HELD, DIBS_UNAVAILABLE}, DIBS_UNAVAILABLE},
        {{DIBS_OK, DIBS_UNAVAILABLE, DIBS_UNAVAILABLE}, DIBS_UNAVAILABLE},
        {{DIBS_OK, DIBS_DENIED, DIBS_UNAVAILABLE}, DIBS_DENIED},
        {{DIBS_OK, DIBS_OK, DIBS_DENIED}, DIBS_OK},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        hold(DIBS_OK, 0);
        all_say(rows[i].say[0], rows[i].say[1], rows[i].say[2]);
        assert_status(rows[i].status, release());
    }
}

TEST(silent_masters_are_waited_for_until_the_deadline)
{
    hold(DIBS_OK, 0);
    voter_says(0, DIBS__OP_RELEASE, DIBS_OK, NEVER_MS);
    voter_says(1, DIBS__OP_RELEASE, DIBS_OK, NEVER_MS);
    expect_release(DIBS_UNAVAILABLE, 1000);
    assert_string_equal(error.detail, "fewer than 2 of 3 masters confirmed the release");
}

/* A token of an earlier process, say: it may be at any of them. */
TEST(a_token_that_is_not_known_is_released_everywhere)
{
    begin_vote(7, 7, 7);
    assert_status(DIBS_OK, release());
    for (size_t i = 0; i < MEMBERS; i++) {
        assert_int_equal(voters[i].asked[DIBS__OP_RELEASE], 1);
        assert_int_equal(voters[i].last.release.lease_ms, LEASE_MS);
    }
}

TEST(what_follows_is_told_with_the_release)
{
    hold(DIBS_OK, 0);
    voters[1].again = true;
    struct dibs__answer next = {.fence = 9, .again_ms = 9};
    begin_release();
    op.release.next = (struct dibs__ask){&attempt, &next};
    assert_status(DIBS_OK, finish_release());
    assert_true(op.release.again);
    assert_status(DIBS_BUSY, op.release.next_status); /* its own thread asks */
    assert_true(next.fence == 0 && next.again_ms == 0);
    assert_int_equal(voters[0].asked[DIBS__OP_ASK], 1);
    hold(DIBS_OK, 0);
    op.release.again = true;
    assert_status(DIBS_OK, release());
    assert_false(op.release.again);
}

/* ------------------------------------------------ who did not grant the lock */

/* It has nothing to give back; only the attempt ends there. */
TEST(who_refused_the_lock_is_asked_nothing)
{
    hold(DIBS_BUSY, 0);
    assert_int_equal(voters[2].kept + voters[2].dropped, 0);
    assert_status(DIBS_OK, release());
    assert_int_equal(voters[2].asked[DIBS__OP_RELEASE], 0);
    assert_true(voters[2].dropped == 1 && voters[0].dropped == 0);
}

/* One that gave it back and one that never had it are a majority; the other is waited for until it is overdue. */
TEST(who_refused_the_lock_counts_as_free)
{
    hold(DIBS_BUSY, 0);
    voter_says(1, DIBS__OP_RELEASE, DIBS_OK, NEVER_MS);
    expect_release(DIBS_OK, OVERDUE_MS);
    hold(DIBS_BUSY, 0);
    voters[1].unsent = true;
    expect_release(DIBS_OK, 0);
    hold(DIBS_BUSY, 0);
    all_say(DIBS_OK, DIBS_NOT_HELD, DIBS_OK);
    assert_status(DIBS_NOT_HELD, release()); /* the token had lost it, so there may have been another since */
    hold(DIBS_BUSY, 0);
    all_say(DIBS_UNAVAILABLE, DIBS_UNAVAILABLE, DIBS_OK);
    assert_status(DIBS_UNAVAILABLE, release());
}

/* Whether it was granted there is not known. */
TEST(a_master_in_doubt_does_not_count_as_free)
{
    for (size_t mute = 0; mute < 2; mute++) {
        hold(DIBS_BUSY, 0);
        struct dibs__member_state *third = state_of_third();
        UNDER_MUTEX(third->in_doubt = true);
        voter_says(mute, DIBS__OP_RELEASE, DIBS_OK, NEVER_MS);
        expect_release(DIBS_UNAVAILABLE, 1000);
    }
}

/* ------------------------------------------------------------ asks under way */

/* It is taken back with the release, whenever it comes. */
TEST(an_ask_that_was_granted_meanwhile_is_released_with_the_rest)
{
    hold(DIBS_OK, 5);
    the_time += MS(5);
    begin_release();
    assert_int_equal(voters[2].asked[DIBS__OP_ASK], 1);
    assert_status(DIBS_OK, finish_release());
    assert_int_equal(voters[2].asked[DIBS__OP_RELEASE], 1);
    assert_int_equal(voters[2].kept, 1);
}

TEST(an_ask_under_way_is_not_waited_for_where_a_majority_confirms)
{
    hold(DIBS_OK, NEVER_MS);
    expect_release(DIBS_OK, 0);
    assert_int_equal(voters[2].asked[DIBS__OP_RELEASE], 0);
    the_time += MS(1100);
    dibs__detached_attend(&setting.q, the_time);
    assert_int_equal(voters[2].dropped, 1); /* which retracts what may come */
}

TEST(an_ask_under_way_decides_where_the_others_do_not)
{
    static const struct {
        dibs_status says, releases, status;
    } rows[] = {{DIBS_BUSY, DIBS_OK, DIBS_OK},
                {DIBS_OK, DIBS_OK, DIBS_OK},
                {DIBS_OK, DIBS_NOT_HELD, DIBS_UNAVAILABLE},
                {DIBS_UNAVAILABLE, DIBS_OK, DIBS_UNAVAILABLE}};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        hold(rows[i].says, 5);
        all_say(DIBS_OK, DIBS_UNAVAILABLE, rows[i].releases);
        expect_release(rows[i].status, 5);
        assert_int_equal(voters[2].asked[DIBS__OP_RELEASE], rows[i].says == DIBS_OK);
    }
}

/* The scheduler's thread, which looks at it, is waited for; but no longer than the release has time. */
TEST(an_ask_that_is_looked_at_is_left_to_the_scheduler)
{
    hold(DIBS_OK, NEVER_MS);
    struct dibs__claim *claim = dibs__claim_find(&setting.q, "dibs:token");
    UNDER_MUTEX(claim->ops[2].is_looked_at = true);
    int64_t began = the_time;
    begin_release();
    assert_true(the_time == began + MS(1000));
    assert_status(DIBS_OK, finish_release());
    assert_int_equal(voters[2].asked[DIBS__OP_RELEASE], 0);
    UNDER_MUTEX(claim->ops[2].is_looked_at = false);
    dibs__claim_unref(&setting.q, claim);
}

/* A release after a split vote is not answered yet: the token is released again once it is. */
TEST(a_grant_that_is_being_given_back_counts_when_that_is_over)
{
    begin_vote(7, 7, 7);
    attempt = (struct dibs__attempt){.name = "x", .token = "dibs:token", .lease_ms = LEASE_MS};
    voter_says(0, DIBS__OP_ASK, DIBS_BUSY, 0);
    voter_says(1, DIBS__OP_ASK, DIBS_BUSY, 0);
    voter_says(2, DIBS__OP_RELEASE, DIBS_OK, 15);
    assert_status(DIBS_BUSY, finish_ask()); /* waits for 10 ms */
    voter_says(0, DIBS__OP_ASK, DIBS_OK, 0);
    voter_says(1, DIBS__OP_ASK, DIBS_OK, 0);
    assert_status(DIBS_OK, finish_ask());
    dibs__quorum_conclude(&setting.q.store, &attempt, true);
    all_say(DIBS_OK, DIBS_UNAVAILABLE, DIBS_OK);
    expect_release(DIBS_OK, 5);
    assert_int_equal(voters[2].asked[DIBS__OP_RELEASE], 1);
}

/* --------------------------------------------- what may come after the release */

/* A renewal that was not answered may set the lock once more. */
TEST(where_a_renewal_may_set_the_lock_it_is_retracted_too)
{
    hold(DIBS_BUSY, 0);
    struct dibs__member_state *third = state_of_third();
    UNDER_MUTEX(third->topping_up = true);
    assert_status(DIBS_OK, release());
    assert_int_equal(voters[2].asked[DIBS__OP_RELEASE], 1);
    assert_int_equal(voters[2].retracted, 1);
    assert_int_equal(voters[0].retracted + voters[1].retracted, 0);
    assert_true(voters[2].dropped == 1 && voters[2].kept == 0);
}

/* So may an ask that was not answered, though a renewal has set the lock since: the attempt is dropped behind the
 * release. */
TEST(where_an_ask_is_in_doubt_the_token_is_retracted_too)
{
    hold(DIBS_UNAVAILABLE, 0);
    struct dibs__member_state *third = state_of_third();
    dibs__quorum_mutex_lock(&setting.q.mutex);
    third->phase = DIBS__MEMBER_GRANTED;
    third->in_doubt = true;
    dibs__quorum_mutex_unlock(&setting.q.mutex);
    begin_release();
    assert_int_equal(voters[2].kept + voters[2].dropped, 0);
    assert_status(DIBS_OK, finish_release());
    assert_int_equal(voters[2].asked[DIBS__OP_RELEASE], 1);
    assert_int_equal(voters[2].retracted, 1);
    assert_true(voters[2].dropped == 1 && voters[2].kept == 0);
}

/* An ask that was sent twice may be granted once more: the attempt is dropped behind the release. */
TEST(where_an_ask_may_come_again_the_token_is_dropped)
{
    for (int silent = 0; silent < 2; silent++) {
        hold(DIBS_OK, 5);
        the_time += MS(5);
        struct dibs__member_state *third = state_of_third();
        voters[2].answer.retired = DIBS__STUCK;
        voter_says(2, DIBS__OP_RELEASE, DIBS_OK, silent ? 30 : 0);
        begin_release();
        assert_true(third->stuck);
        assert_int_equal(voters[2].kept + voters[2].dropped, 0);
        assert_status(DIBS_OK, finish_release());
        assert_int_equal(voters[2].dropped, !silent);
        the_time += MS(50);
        dibs__detached_attend(&setting.q, the_time);
        assert_int_equal(voters[2].dropped, 1);
    }
}

/* -------------------------------------------------------------- retractions */

TEST(a_retraction_goes_where_the_token_may_be)
{
    hold(DIBS_BUSY, 0);
    dibs__quorum_retract(&setting.q.store, "x", "dibs:token", LEASE_MS, 7);
    assert_true(voters[0].retracted == 1 && voters[1].retracted == 1 && voters[2].retracted == 0);
    assert_true(voters[0].retracted_fence == 7);
    assert_int_equal(voters[2].dropped, 1);
    assert_null(dibs__claim_find(&setting.q, "dibs:token"));
    dibs__quorum_retract(&setting.q.store, "x", "dibs:token", LEASE_MS, 8); /* it is not known any more */
    assert_true(voters[2].retracted_fence == 8);
    assert_true(voters[0].retracted == 2 && voters[1].retracted == 2 && voters[2].retracted == 1);
}

/* What is under way at a master is cleared when it is over. */
TEST(a_retraction_leaves_an_ask_under_way_to_its_end)
{
    hold(DIBS_OK, 5);
    dibs__quorum_retract(&setting.q.store, "x", "dibs:token", LEASE_MS, 7);
    assert_int_equal(voters[2].dropped + voters[2].retracted, 0);
    the_time += MS(5);
    dibs__detached_attend(&setting.q, the_time);
    assert_int_equal(voters[2].dropped, 1);
}

TEST(an_attempt_that_is_given_up_is_retracted)
{
    begin_vote(7, 7, 7);
    attempt = (struct dibs__attempt){.name = "x", .token = "dibs:token", .lease_ms = LEASE_MS};
    for (size_t i = 0; i < MEMBERS; i++)
        voter_says(i, DIBS__OP_ASK, DIBS_BUSY, 0);
    assert_status(DIBS_BUSY, finish_ask());
    attempt.in_store = true;
    dibs__quorum_conclude(&setting.q.store, &attempt, false);
    assert_true(attempt.number == 0 && attempt.proof == 0 && !attempt.in_store);
    for (size_t i = 0; i < MEMBERS; i++)
        assert_true(voters[i].dropped == 1 && voters[i].kept == 0 && voters[i].retracted == 0);
    dibs__quorum_conclude(&setting.q.store, &attempt, false); /* nothing is left of it */
    assert_int_equal(voters[0].dropped, 1);
}

#if CAN_FAIL
/* The token is retracted in the background instead. */
TEST(a_release_without_memory_is_a_retraction)
{
    for (int known = 0; known < 2; known++)
        for (long fails = 1; fails <= (known ? 1 : 2); fails++) {
            if (known)
                hold(DIBS_OK, 0);
            else
                begin_vote(7, 7, 7);
            long before = atomic_load(&living) - known;
            op = (struct dibs__op){.kind = DIBS__OP_RELEASE,
                                   .name = "x",
                                   .deadline = the_time + MS(1000),
                                   .release = {.token = "dibs:token", .lease_ms = LEASE_MS, .fence = 7}};
            fail_here(fails);
            assert_status(DIBS_NO_MEMORY, finish_release());
            fail_no_more();
            for (size_t i = 0; i < MEMBERS; i++)
                assert_int_equal(voters[i].retracted, 1);
            assert_true(atomic_load(&living) <= before + known);
        }
}
#endif

TESTS(NULL, end)
