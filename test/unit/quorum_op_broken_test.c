/* How a thread goes on with masters whose connections break, or are missing, while others answer. */
#include "quorum_voters.h"

#define OVERDUE_MS 20
#define TIME_MS 1000

static int64_t began;

static void begin(void)
{
    begin_attempt(7, 7, 7);
    began = the_time;
}

/* Sending it again takes as long as its server is silent, so the others come first. */
TEST(a_broken_connection_is_put_off_behind_those_that_answer)
{
    for (size_t broken = 0; broken < MEMBERS; broken++) {
        begin();
        for (size_t i = 0; i < MEMBERS; i++)
            voter_says(i, DIBS__OP_ASK, DIBS_OK, i == broken ? 0 : 3);
        voters[broken].ends = DIBS__OP_BROKEN;
        expect_ask(DIBS_OK, 3);
        assert_int_equal(voters[broken].asked[DIBS__OP_ASK], 0);
    }
}

/* Once no other may come soon, it has its share of the time that is left. */
TEST(a_broken_connection_is_made_again_where_the_others_take_long)
{
    for (size_t broken = 0; broken < MEMBERS; broken++) {
        begin();
        voter_says((broken + 1) % MEMBERS, DIBS__OP_ASK, DIBS_OK, 3);
        voter_says((broken + 2) % MEMBERS, DIBS__OP_ASK, DIBS_OK, NEVER_MS);
        voters[broken].ends = DIBS__OP_BROKEN;
        expect_ask(DIBS_OK, OVERDUE_MS);
        assert_true(voters[broken].finish_by == the_time + MS(TIME_MS - OVERDUE_MS) / 2);
        assert_true(voters[(broken + 1) % MEMBERS].finish_by == began + MS(TIME_MS));
    }
}

TEST(where_all_connections_broke_they_are_made_again_at_once)
{
    begin();
    for (size_t i = 0; i < MEMBERS; i++)
        voters[i].ends = DIBS__OP_BROKEN;
    expect_ask(DIBS_OK, 0);
    assert_true(voters[0].finish_by == began + MS(TIME_MS) / 3);
    assert_true(voters[1].finish_by == began + MS(TIME_MS) / 2);
    assert_int_equal(voters[2].asked[DIBS__OP_ASK], 0); /* the others were enough */
}

/* Why is told even after the deadline. */
TEST(who_can_not_be_connected_to_has_failed)
{
    begin();
    for (size_t i = 0; i < 2; i++) {
        voters[i].ends = DIBS__OP_FAILED;
        voter_says(i, DIBS__OP_ASK, DIBS_DENIED, 0);
    }
    voter_says(2, DIBS__OP_ASK, DIBS_OK, NEVER_MS);
    expect_ask(DIBS_DENIED, 0);
    assert_true(voters[0].finish_by == 0 && voters[1].finish_by == 0);
}

/* What was begun without a connection is sent once there is one. */
TEST(what_was_not_sent_is_begun_again_with_a_connection)
{
    for (size_t late = 0; late < MEMBERS; late++) {
        begin();
        for (size_t i = 0; i < MEMBERS; i++)
            voter_says(i, DIBS__OP_ASK, i == late ? DIBS_OK : i == (late + 1) % MEMBERS ? DIBS_BUSY : DIBS_OK, 4);
        voters[late].connects = true;
        expect_ask(DIBS_OK, 4);
        assert_int_equal(voters[late].asked[DIBS__OP_ASK], 1);
    }
}

/* The thread wakes for what can come, although that decides nothing. */
TEST(who_has_no_connection_keeps_no_answer_back)
{
    begin();
    voters[0].unsent = voters[1].unsent = true;
    voter_says(2, DIBS__OP_ASK, DIBS_OK, 3);
    expect_ask(DIBS_UNAVAILABLE, TIME_MS);
    assert_true(voters[2].quiet == 1 && voters[2].asked[DIBS__OP_ASK] == 1);
    assert_true(voters[0].finish_by == 0 && voters[1].finish_by == 0); /* given up */
}

/* As many answers as a decision needs wake it, and no fewer. */
TEST(a_thread_sleeps_until_enough_have_answered)
{
    begin();
    for (size_t i = 0; i < MEMBERS; i++)
        voter_says(i, DIBS__OP_ASK, DIBS_OK, 2 + (int64_t)i);
    assert_status(DIBS_OK, ask());
    assert_int_equal(sleeps, 1);
    assert_true(voters[0].finished_at == began + MS(3) && voters[1].finished_at == began + MS(3));
    begin();
    voters[0].unsent = true;
    voter_says(1, DIBS__OP_ASK, DIBS_OK, 2);
    voter_says(2, DIBS__OP_ASK, DIBS_OK, 9);
    expect_ask(DIBS_OK, 9);
    assert_int_equal(sleeps, 1);
}

TESTS(NULL, end_attempt)
