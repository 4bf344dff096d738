/* What an ask of a quorum comes to, when, and what is left at the masters. */
#include "quorum_voters.h"

#define OVERDUE_MS 20 /* who has not answered by then is not waited for, where the others are enough */

/* All grant with the same fence; the masters answer an ask so, the third after that time, the others at once. */
static void begin_where(dibs_status first, dibs_status second, dibs_status third, int64_t third_ms)
{
    begin_attempt(7, 7, 7);
    voter_says(0, DIBS__OP_ASK, first, 0);
    voter_says(1, DIBS__OP_ASK, second, 0);
    voter_says(2, DIBS__OP_ASK, third, third_ms);
}

static enum dibs__member_phase phase_of(size_t i)
{
    enum dibs__member_phase phase;

    UNDER_MUTEX(phase = dibs__claim_of(&attempt)->states[i].phase);
    return phase;
}

static enum dibs__claim_state state_of_claim(void)
{
    enum dibs__claim_state state;

    UNDER_MUTEX(state = dibs__claim_of(&attempt)->state);
    return state;
}

/* --------------------------------------------------------------------- votes */

TEST(a_majority_grants_and_the_last_is_not_waited_for)
{
    for (size_t last = 0; last < MEMBERS; last++) {
        begin_attempt(7, 7, 7);
        for (size_t i = 0; i < MEMBERS; i++)
            voter_says(i, DIBS__OP_ASK, DIBS_OK, i == last ? NEVER_MS : 3);
        expect_ask(DIBS_OK, 3);
        assert_true(answer.fence == 7 && attempt.in_store && attempt.number == 1);
        assert_int_equal(state_of_claim(), DIBS__CLAIM_HELD);
        assert_int_equal(phase_of(last), DIBS__MEMBER_PENDING);
        assert_int_equal(voters[0].asked[DIBS__OP_RAISE] + voters[1].asked[DIBS__OP_RAISE], 0);
        assert_int_equal(sleeps, 1); /* until both have answered */
    }
}

TEST(who_is_refused_by_a_majority_does_not_wait_for_the_last)
{
    begin_attempt(7, 7, 7);
    voter_says(0, DIBS__OP_ASK, DIBS_BUSY, 2);
    voter_says(1, DIBS__OP_ASK, DIBS_BUSY, 4);
    voter_says(2, DIBS__OP_ASK, DIBS_OK, NEVER_MS);
    expect_ask(DIBS_BUSY, 4);
}

/* The third may still make a majority; but not for long. The grant is given back, and nobody is told. */
TEST(one_grant_and_one_refusal_wait_for_the_last_until_it_is_overdue)
{
    begin_where(DIBS_OK, DIBS_BUSY, DIBS_OK, 19);
    assert_status(DIBS_OK, ask());
    begin_where(DIBS_OK, DIBS_BUSY, DIBS_OK, NEVER_MS);
    attempt.wait = true;
    expect_ask(DIBS_BUSY, OVERDUE_MS);
    assert_int_equal(voters[0].quiet, 1);
    assert_int_equal(phase_of(0), DIBS__MEMBER_NOTHING);
}

/* A single try is not refused because of one master: the lock may be free in a moment. */
TEST(a_single_try_waits_for_all_that_may_make_a_majority)
{
    begin_where(DIBS_OK, DIBS_BUSY, DIBS_OK, 4 * OVERDUE_MS);
    assert_status(DIBS_OK, ask());
}

TEST(masters_that_fail_are_no_refusal)
{
    begin_where(DIBS_OK, DIBS_UNAVAILABLE, DIBS_UNAVAILABLE, 0);
    assert_status(DIBS_UNAVAILABLE, ask());
    assert_string_equal(error.detail, "1 of 3 masters answered, which is no majority: a master said so");
    assert_int_equal(voters[0].quiet, 1);
    begin_where(DIBS_OK, DIBS_UNAVAILABLE, DIBS_UNAVAILABLE, 0);
    voters[1].answer.why = voters[2].answer.why = DIBS__WHY_NO_VOTE;
    assert_status(DIBS_UNAVAILABLE, ask());
    assert_string_equal(error.detail, "fewer than 2 of 3 masters may grant locks now: a master said so");
    begin_where(DIBS_OK, DIBS_UNAVAILABLE, DIBS_BUSY, 0);
    assert_status(DIBS_BUSY, ask()); /* two have answered */
    begin_where(DIBS_UNAVAILABLE, DIBS_DENIED, DIBS_OK, 0);
    assert_status(DIBS_DENIED, ask());
    assert_int_equal(phase_of(1), DIBS__MEMBER_NOTHING);
}

/* Which to wait for changes nothing, so the call must not. */
TEST(a_final_error_comes_before_a_lack_of_replicas)
{
    static const dibs_status finals[] = {DIBS_DENIED, DIBS_STORE_ERROR, DIBS_NO_MEMORY};

    for (size_t i = 0; i < 3; i++) {
        begin_where(DIBS_UNAVAILABLE, finals[i], finals[i], 0);
        voters[0].answer.why = DIBS__WHY_TOO_FEW_REPLICAS;
        assert_status(finals[i], ask());
        assert_int_equal(answer.why, DIBS__WHY_UNTOLD);
    }
}

TEST(silent_masters_are_waited_for_until_the_deadline)
{
    begin_attempt(7, 7, 7);
    voter_says(1, DIBS__OP_ASK, DIBS_OK, NEVER_MS);
    voter_says(2, DIBS__OP_ASK, DIBS_OK, NEVER_MS);
    expect_ask(DIBS_UNAVAILABLE, 1000);
}

TEST(a_master_without_a_connection_is_not_waited_for)
{
    begin_attempt(7, 7, 7);
    voters[0].unsent = true;
    voter_says(1, DIBS__OP_ASK, DIBS_BUSY, 0);
    expect_ask(DIBS_BUSY, 0);
    assert_int_equal(phase_of(0), DIBS__MEMBER_NOTHING); /* what could not be sent is given up */
}

/* Whether the lock is taken, or too few masters can be reached, shows when a majority has answered. */
TEST(a_failed_master_does_not_make_a_refusal_a_failure)
{
    begin_where(DIBS_BUSY, DIBS_UNAVAILABLE, DIBS_BUSY, 5);
    expect_ask(DIBS_BUSY, 5);
    begin_where(DIBS_UNAVAILABLE, DIBS_UNAVAILABLE, DIBS_BUSY, NEVER_MS);
    expect_ask(DIBS_UNAVAILABLE, 0);
}

TEST(an_answer_of_a_majority_is_a_reply)
{
    begin_attempt(7, 7, 7);
    int64_t first = the_time;
    assert_status(DIBS_OK, ask());
    assert_true(answer.last_reply_at == first);
    begin_attempt(7, 7, 7);
    for (size_t i = 0; i < MEMBERS; i++)
        voter_says(i, DIBS__OP_ASK, DIBS_BUSY, 3);
    assert_status(DIBS_BUSY, ask());
    int64_t replied = the_time;
    assert_true(answer.last_reply_at == replied);
    for (size_t i = 0; i < MEMBERS; i++)
        voter_says(i, DIBS__OP_ASK, DIBS_UNAVAILABLE, 3);
    assert_status(DIBS_UNAVAILABLE, ask());
    assert_true(answer.last_reply_at == replied);
}

/* The masters must know of the length before a lease lasts so long. */
TEST(a_lease_of_a_new_length_is_announced_before_it_is_asked_for)
{
    begin_attempt(7, 7, 7);
    atomic_store(&setting.q.voting.announced_ms, LEASE_MS - 1);
    assert_status(DIBS_OK, ask());
    assert_true(dibs__vote_is_announced(&setting.q.voting, LEASE_MS));
    assert_int_equal(voters[0].asked[DIBS__OP_VOTE], 1);
    assert_status(DIBS_OK, ask());
    assert_int_equal(voters[0].asked[DIBS__OP_VOTE], 1);
    begin_attempt(7, 7, 7);
    atomic_store(&setting.q.voting.announced_ms, LEASE_MS - 1);
    voter_says(0, DIBS__OP_VOTE, DIBS_UNAVAILABLE, 0);
    voter_says(1, DIBS__OP_VOTE, DIBS_UNAVAILABLE, 0);
    assert_status(DIBS_UNAVAILABLE, ask());
    assert_int_equal(voters[2].asked[DIBS__OP_ASK], 0);
}

#if CAN_FAIL
TEST(an_ask_without_memory_leaves_nothing)
{
    for (long fails = 1; fails <= 2; fails++) { /* the claim, its place in the table */
        begin_attempt(7, 7, 7);
        struct dibs__op op = dibs__op_ask(&attempt, &answer, the_time + MS(1000));
        fail_here(fails);
        dibs__quorum_ask_begin(&setting.q.store, &op);
        atomic_store(&fail_at, fails);
        assert_status(DIBS_NO_MEMORY, dibs__quorum_ask_finish(&setting.q.store, &op, &error));
        fail_no_more();
        assert_int_equal(voters[0].asked[DIBS__OP_ASK], 0);
        assert_status(DIBS_OK, ask());
    }
}
#endif

/* Who rests is asked only where the others are too few, or take long. */
TEST(a_master_that_rests_is_asked_when_it_is_needed)
{
    static const struct {
        dibs_status second;
        int64_t takes_ms, passed_ms;
        unsigned asked;
    } rows[] = {
        {DIBS_OK, 0, 0, 0},
        {DIBS_OK, OVERDUE_MS - 1, OVERDUE_MS - 1, 0},
        {DIBS_OK, NEVER_MS, OVERDUE_MS, 1},
        {DIBS_BUSY, 0, 0, 1},
        {DIBS_UNAVAILABLE, 5, 5, 1},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (size_t rests = 0; rests < MEMBERS; rests++) {
            size_t second = (rests + 1) % MEMBERS;
            begin_attempt(7, 7, 7);
            atomic_store(&setting.members[rests].rests_until, the_time + MS(900));
            voter_says(second, DIBS__OP_ASK, rows[i].second, rows[i].takes_ms);
            expect_ask(DIBS_OK, rows[i].passed_ms);
            assert_int_equal(voters[rests].asked[DIBS__OP_ASK], rows[i].asked);
        }
}

/* Before it is told so, it is not asked, even where it is needed. */
TEST(a_master_whose_clock_was_set_is_not_asked)
{
    for (int rests = 0; rests < 2; rests++) {
        begin_attempt(7, 7, 7);
        atomic_store(&setting.members[2].steps, 1);
        atomic_store(&setting.members[2].rests_until, rests ? the_time + MS(900) : 0);
        voter_says(1, DIBS__OP_ASK, DIBS_UNAVAILABLE, 0);
        assert_status(DIBS_UNAVAILABLE, ask());
        assert_int_equal(voters[2].asked[DIBS__OP_ASK], 0);
    }
}

/* -------------------------------------------------------------------- fences */

TEST(the_largest_fence_of_a_majority_is_raised_at_the_others)
{
    begin_attempt(5, 9, 7);
    assert_status(DIBS_OK, ask());
    assert_true(answer.fence == 9);
    assert_int_equal(voters[1].asked[DIBS__OP_RAISE], 0);
    for (size_t i = 0; i < MEMBERS; i += 2) {
        assert_int_equal(voters[i].asked[DIBS__OP_RAISE], 1);
        assert_true(voters[i].last.raise.fence == 9 && voters[i].last.raise.lease_ms == LEASE_MS);
        assert_string_equal(voters[i].last.raise.token, "dibs:token");
    }
}

TEST(a_fence_that_a_majority_has_needs_no_more)
{
    begin_attempt(5, 9, 7);
    voter_says(2, DIBS__OP_RAISE, DIBS_OK, NEVER_MS);
    expect_ask(DIBS_OK, 0);
}

/* It has lost the lock since. A third grant takes its place, and is raised where it is lower. */
TEST(a_master_that_can_not_raise_is_no_vote)
{
    static const uint64_t thirds[] = {5, 9, 12};

    for (size_t i = 0; i < sizeof thirds / sizeof thirds[0]; i++) {
        begin_attempt(5, 9, thirds[i]);
        voter_says(0, DIBS__OP_RAISE, DIBS_NOT_HELD, 5);
        voter_says(2, DIBS__OP_ASK, DIBS_OK, 8);
        assert_status(DIBS_OK, ask());
        assert_true(answer.fence == (thirds[i] > 9 ? thirds[i] : 9));
        assert_int_equal(voters[2].asked[DIBS__OP_RAISE], thirds[i] < 9);
        assert_int_equal(voters[1].asked[DIBS__OP_RAISE], thirds[i] > 9);
        if (thirds[i] < 9)
            assert_int_equal(phase_of(0), DIBS__MEMBER_TAKEN);
    }
    begin_attempt(5, 9, 7);
    voter_says(0, DIBS__OP_RAISE, DIBS_NOT_HELD, 0);
    voter_says(2, DIBS__OP_ASK, DIBS_UNAVAILABLE, 0);
    assert_status(DIBS_UNAVAILABLE, ask());
    assert_int_equal(voters[0].quiet, 0);
    assert_int_equal(voters[1].quiet, 1);
}

TEST(a_raise_under_way_is_enough)
{
    begin_attempt(5, 9, 5);
    voter_says(0, DIBS__OP_RAISE, DIBS_OK, 5);
    voter_says(2, DIBS__OP_ASK, DIBS_OK, 2);
    assert_status(DIBS_OK, ask());
    assert_int_equal(voters[2].asked[DIBS__OP_RAISE], 0);
}

/* Also at those whose smaller raise is still under way then. */
TEST(a_larger_fence_that_comes_late_is_raised_everywhere)
{
    for (size_t low = 0; low < MEMBERS; low++) {
        size_t high = (low + 1) % MEMBERS, late = (low + 2) % MEMBERS;
        for (int of_first = 0; of_first < 2; of_first++) { /* which of the two raises ends */
            begin_attempt(low == 0   ? 5
                          : low == 2 ? 9
                                     : 12,
                          low == 1   ? 5
                          : low == 0 ? 9
                                     : 12,
                          low == 2   ? 5
                          : low == 1 ? 9
                                     : 12);
            voter_says(late, DIBS__OP_ASK, DIBS_OK, 3);
            voter_says(low, DIBS__OP_RAISE, DIBS_OK, of_first ? 6 : NEVER_MS);
            voter_says(high, DIBS__OP_RAISE, DIBS_OK, of_first ? NEVER_MS : 6);
            assert_status(DIBS_OK, ask());
            assert_true(answer.fence == 12);
            assert_true(voters[of_first ? low : high].last.raise.fence == 12);
            assert_int_equal(voters[low].asked[DIBS__OP_RAISE], of_first ? 2 : 1);
        }
    }
}

/* Where the call is finished when its time is over, the raises have a time of their own. */
TEST(raises_have_a_time_of_their_own)
{
    static const struct {
        uint32_t timeout_ms;
        int64_t takes_ms;
        dibs_status status;
    } rows[] = {{1000, 99, DIBS_OK}, {1000, 101, DIBS_UNAVAILABLE}, {50, 49, DIBS_OK}, {50, 51, DIBS_UNAVAILABLE}};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        begin_attempt(5, 9, 7);
        setting.q.config.command_timeout_ms = rows[i].timeout_ms;
        voter_says(0, DIBS__OP_RAISE, DIBS_OK, rows[i].takes_ms);
        voter_says(2, DIBS__OP_ASK, DIBS_UNAVAILABLE, 0);
        assert_status(rows[i].status, ask_late(200, 300));
    }
}

/* They may vote, and have granted the lock. */
TEST(fences_that_were_not_raised_are_told)
{
    begin_attempt(5, 9, 7);
    voter_says(0, DIBS__OP_RAISE, DIBS_NOT_HELD, 0);
    voter_says(2, DIBS__OP_RAISE, DIBS_NOT_HELD, 3);
    assert_status(DIBS_UNAVAILABLE, ask());
    assert_string_equal(error.detail, "2 of 3 masters did not have the lock any more when its fence was raised there: "
                                      "its lease of 30000 ms may be too short for two round trips");
    begin_attempt(5, 9, 7);
    voter_says(0, DIBS__OP_RAISE, DIBS_OK, NEVER_MS);
    voter_says(2, DIBS__OP_RAISE, DIBS_OK, NEVER_MS);
    assert_status(DIBS_UNAVAILABLE, ask());
    assert_string_equal(error.detail, "fewer than 2 of 3 masters confirmed the fence of the lock");
    begin_attempt(5, 9, 7);
    voter_says(0, DIBS__OP_RAISE, DIBS_UNAVAILABLE, 0);
    voter_says(2, DIBS__OP_RAISE, DIBS_UNAVAILABLE, 0);
    assert_status(DIBS_UNAVAILABLE, ask());
    assert_string_equal(error.detail, "fewer than 2 of 3 masters confirmed the fence of the lock: a master said so");
    begin_attempt(5, 9, 7);
    voter_says(0, DIBS__OP_RAISE, DIBS_NOT_HELD, 0);
    voter_says(2, DIBS__OP_RAISE, DIBS_DENIED, 0);
    assert_status(DIBS_DENIED, ask());
    assert_string_equal(error.detail, "a master said so");
}

/* The fence of the hold stays, whatever the masters say now. */
TEST(an_owner_that_asks_again_keeps_its_fence)
{
    begin_attempt(7, 7, 7);
    assert_status(DIBS_OK, ask());
    voters[1].answer.fence = 8;
    the_time += MS(LEASE_MS) - 1;
    assert_status(DIBS_OK, ask());
    assert_true(answer.fence == 7);
    assert_int_equal(voters[0].asked[DIBS__OP_RAISE], 0);
    the_time += MS(LEASE_MS);
    assert_status(DIBS_OK, ask()); /* its lease is over: others may have had the lock since */
    assert_true(answer.fence == 8);
    assert_int_equal(voters[0].asked[DIBS__OP_RAISE], 1);
}

/* -------------------------------------------------------------------- pauses */

TEST(a_waiter_asks_again_when_a_master_says_so)
{
    begin_where(DIBS_BUSY, DIBS_BUSY, DIBS_BUSY, 0);
    assert_status(DIBS_BUSY, ask());
    assert_in_range(answer.again_ms, 50, 100);
    voters[1].answer.again_ms = 7;
    voters[2].answer.again_ms = 500;
    assert_status(DIBS_BUSY, ask());
    assert_int_equal(answer.again_ms, 7);
    voters[2].answer.again_ms = 1;
    assert_status(DIBS_BUSY, ask());
    assert_int_equal(answer.again_ms, 1);
}

/* After a split vote the pause is drawn from a range that doubles, so that others do not ask at the same time. */
TEST(the_pause_after_a_split_vote_grows)
{
    static const int64_t most_ms[] = {3, 5, 9, 17, 33};
    enum { TIMES = 40 };
    int64_t longest_ms = 0;

    begin_attempt(7, 7, 7);
    for (size_t i = 0; i < MEMBERS; i++)
        voter_says(i, DIBS__OP_ASK, i == 0 ? DIBS_OK : DIBS_BUSY, 2); /* so long as the ask takes */
    for (size_t i = 0; i < sizeof most_ms / sizeof most_ms[0]; i++) {
        assert_status(DIBS_BUSY, ask());
        assert_in_range(answer.again_ms, 1, most_ms[i]);
    }
    for (int i = 0; i < TIMES; i++) {
        assert_status(DIBS_BUSY, ask());
        assert_in_range(answer.again_ms, 1, 51);
        longest_ms = answer.again_ms > longest_ms ? answer.again_ms : longest_ms;
    }
    assert_true(longest_ms > 33);
    voter_says(0, DIBS__OP_ASK, DIBS_BUSY, 0);
    assert_status(DIBS_BUSY, ask());
    voter_says(0, DIBS__OP_ASK, DIBS_OK, 2);
    assert_status(DIBS_BUSY, ask());
    assert_in_range(answer.again_ms, 1, most_ms[0]);
}

/* Else those that share the votes would share them again. */
TEST(the_first_pause_after_a_split_vote_is_not_the_same_for_all)
{
    enum { TIMES = 40 };
    unsigned counts[3] = {0};

    for (int i = 0; i < TIMES; i++) {
        begin_where(DIBS_OK, DIBS_BUSY, DIBS_BUSY, 0);
        assert_status(DIBS_BUSY, ask());
        assert_in_range(answer.again_ms, 1, 2);
        counts[answer.again_ms]++;
    }
    assert_true(counts[1] > 0 && counts[2] > 0);
}

/* ------------------------------------------------------------------- the rest */

TEST(a_token_is_in_the_queue_where_a_majority_has_it_there)
{
    begin_where(DIBS_BUSY, DIBS_BUSY, DIBS_BUSY, 0);
    voters[1].queues = true;
    assert_status(DIBS_BUSY, ask());
    assert_false(attempt.in_store);
    voters[2].queues = true;
    assert_status(DIBS_BUSY, ask());
    assert_true(attempt.in_store);
}

/* A retired token needs a successor: what the others have of it is taken back. */
TEST(what_one_master_retires_is_retired)
{
    static const enum dibs__retirement retirements[] = {DIBS__RETIRED, DIBS__STUCK};

    for (size_t i = 0; i < 2; i++) {
        begin_where(DIBS_UNAVAILABLE, DIBS_BUSY, DIBS_BUSY, 0);
        voters[0].answer.retired = retirements[i];
        assert_status(DIBS_BUSY, ask());
        assert_int_equal(answer.retired, DIBS__RETIRED);
        assert_true(attempt.store_state.outer == 0 && attempt.number == 0);
        assert_int_equal(voters[1].dropped, 1);
        assert_int_equal(voters[0].dropped, retirements[i] == DIBS__STUCK);
        assert_true(!dibs__claim_find(&setting.q, "dibs:token"));
    }
}

static int64_t took_with_silent_release(int64_t ask_ms)
{
    begin_attempt(7, 7, 7);
    for (size_t i = 0; i < MEMBERS; i++)
        voter_says(i, DIBS__OP_ASK, i == 0 ? DIBS_OK : DIBS_BUSY, ask_ms);
    voter_says(0, DIBS__OP_RELEASE, DIBS_OK, NEVER_MS);
    int64_t began = the_time;
    assert_status(DIBS_BUSY, ask());
    assert_int_equal(phase_of(0), DIBS__MEMBER_PENDING);
    end_attempt(NULL);
    return passed_ms(began);
}

/* Four times as long as the ask took, and 10 ms at least. */
TEST(a_grant_that_is_given_back_is_not_waited_for_long)
{
    assert_int_equal(took_with_silent_release(0), 10);
    assert_int_equal(took_with_silent_release(2), 12);
    assert_int_equal(took_with_silent_release(5), 25);
}

/* The next ask takes the release over, and the master is asked once it is answered. */
TEST(a_grant_that_is_being_given_back_is_asked_for_again)
{
    for (size_t leaves = 0; leaves < MEMBERS; leaves++) {
        begin_attempt(7, 7, 7);
        for (size_t i = 0; i < MEMBERS; i++)
            voter_says(i, DIBS__OP_ASK, i == leaves ? DIBS_OK : DIBS_BUSY, 0);
        voter_says(leaves, DIBS__OP_RELEASE, DIBS_OK, 15);
        assert_status(DIBS_BUSY, ask());
        voter_says((leaves + 1) % MEMBERS, DIBS__OP_ASK, DIBS_OK, 0);
        expect_ask(DIBS_OK, 5);
        assert_int_equal(voters[leaves].asked[DIBS__OP_ASK], 2);
    }
}

/* Once a majority has granted, it is one vote more than is needed: a renewal sets the lock there. */
TEST(a_grant_that_is_being_given_back_is_not_asked_for_where_there_are_enough)
{
    begin_attempt(9, 5, 7);
    voter_says(0, DIBS__OP_ASK, DIBS_OK, 0);
    voter_says(1, DIBS__OP_ASK, DIBS_BUSY, 0);
    voter_says(2, DIBS__OP_ASK, DIBS_BUSY, 0);
    voter_says(0, DIBS__OP_RELEASE, DIBS_OK, 15);
    assert_status(DIBS_BUSY, ask());
    voter_says(1, DIBS__OP_ASK, DIBS_OK, 0);
    voter_says(2, DIBS__OP_ASK, DIBS_OK, 0);
    voter_says(1, DIBS__OP_RAISE, DIBS_OK, 9);
    assert_status(DIBS_OK, ask());
    assert_true(answer.fence == 7);
    assert_int_equal(voters[0].asked[DIBS__OP_ASK], 1);
    assert_int_equal(phase_of(0), DIBS__MEMBER_NOTHING);
}

/* A grant that comes when it is not wanted any more is given back. */
TEST(a_late_grant_is_given_back_or_is_one_more_vote)
{
    for (int held = 0; held < 2; held++) {
        dibs_status status = held ? DIBS_OK : DIBS_BUSY;
        begin_where(status, status, DIBS_OK, 40);
        assert_status(status, ask());
        the_time += MS(50);
        dibs__detached_attend(&setting.q, the_time);
        dibs__detached_attend(&setting.q, the_time + MS(50));
        assert_int_equal(voters[2].quiet, !held);
        assert_int_equal(phase_of(2), held ? DIBS__MEMBER_GRANTED : DIBS__MEMBER_NOTHING);
    }
}

static unsigned renewals[MEMBERS];

static void renew(struct dibs__store *store, struct dibs__batch *batch)
{
    const struct dibs__error none = {DIBS_OK, ""};

    renewals[store - setting.stores]++;
    batch->items[0].result = DIBS__RENEWED;
    batch->done(batch, &none);
}

static void renewed(struct dibs__batch *batch, const struct dibs__error *renew_error)
{
    assert_int_equal(batch->items[0].result, DIBS__RENEWED);
}

/* A master with an ask to answer is asked for no renewal, and is silent perhaps; but one that has answered is not. */
TEST(a_grant_that_has_come_is_noted_before_a_renewal)
{
    static struct dibs__batch batch;

    for (int has_come = 0; has_come < 2; has_come++) {
        begin_attempt(7, 7, 7);
        struct dibs__store_ops ops = *setting.stores[0].ops;
        ops.renew = renew;
        memset(renewals, 0, sizeof renewals);
        for (size_t i = 0; i < MEMBERS; i++) {
            setting.stores[i].ops = &ops;
            voter_says(i, DIBS__OP_ASK, DIBS_OK, i == 2 ? 40 : 0);
        }
        assert_status(DIBS_OK, ask());
        assert_int_equal(phase_of(2), DIBS__MEMBER_PENDING);
        the_time += MS(1);
        dibs__detached_attend(&setting.q, the_time + MS(30)); /* the next look is far away */
        the_time += MS(has_come ? 40 : 1);
        batch = (struct dibs__batch){.count = 1, .done = renewed};
        batch.items[0] =
            (struct dibs__renewal){.name = "x", .token = "dibs:token", .lease_ms = LEASE_MS, .fence = answer.fence};
        dibs__quorum_renew(&setting.q.store, &batch);
        for (size_t i = 0; i < MEMBERS; i++)
            assert_int_equal(renewals[i], i < 2 || has_come);
        end_attempt(NULL);
    }
}

/* The third has granted the lock, though that was not confirmed: a release can't tell that it is free without it. */
TEST(an_unconfirmed_grant_is_not_absent)
{
    for (int ms = 0; ms < 2; ms++) { /* its answer is there before the first look, or comes later */
        begin_attempt(7, 7, 7);
        voter_says(0, DIBS__OP_ASK, DIBS_OK, 1);
        voter_says(1, DIBS__OP_ASK, DIBS_OK, 1);
        voter_says(2, DIBS__OP_ASK, DIBS_UNAVAILABLE, ms);
        voters[2].answer.why = DIBS__WHY_TOO_FEW_REPLICAS;
        voters[2].queues = true; /* its store knows the token */
        assert_status(DIBS_OK, ask());
        dibs__quorum_conclude(&setting.q.store, &attempt, true);
        voter_says(1, DIBS__OP_RELEASE, DIBS_OK, NEVER_MS);
        struct dibs__op op = {.kind = DIBS__OP_RELEASE,
                              .name = "x",
                              .deadline = the_time + MS(1000),
                              .release = {.token = "dibs:token", .lease_ms = LEASE_MS, .fence = 7}};
        assert_status(DIBS_UNAVAILABLE, dibs__quorum_release_finish(&setting.q.store, &op, &error));
    }
}

TESTS(NULL, end_attempt)
