/* When the masters of a quorum are looked at, and what they are told then. */
#include "quorum_voters.h"
#include "store/quorum/quorum_look.h"

#define SOON_MS 100
#define AGAIN_MS 1000
#define MISSED_MS 2000
#define MOST_MS 10000
#define NUMBER 5

static int teardown(void **state)
{
    if (setting.q.members)
        dibs__vote_finish_all(&setting.q);
    return end_vote(state);
}

static int setup(void **state)
{
    teardown(NULL);
    begin_vote(0, 0, 0);
    for (size_t i = 0; i < MEMBERS; i++)
        voters[i].vote.quorum = NUMBER;
    atomic_store(&setting.q.number, NUMBER);
    atomic_store(&setting.q.voting.longest_ms, 5000);
    dibs__vote_init(&setting.q);
    return 0;
}

/* The master has lost its data. */
static void lose(size_t i)
{
    voters[i].vote = (struct dibs__vote){.mark = 10 + i, .process = 1 + i};
}

/* All masters know of leases of that length alone. */
static void know_of(uint32_t longest_ms)
{
    for (size_t i = 0; i < MEMBERS; i++)
        voters[i].vote.longest_ms = longest_ms;
}

/* The look that is due, to its end. Returns in how many ms the next is due. */
static int64_t look(void)
{
    the_time = setting.q.voting.next > the_time ? setting.q.voting.next : the_time;
    dibs__vote_attend(&setting.q, the_time);
    assert_non_null(setting.q.voting.look);
    for (int turns = 0; setting.q.voting.look; turns++) {
        assert_true(turns < 3000);
        assert_true(dibs__vote_deadline(&setting.q) == the_time + MS(2));
        the_time = turns > 1 ? dibs__vote_deadline(&setting.q) : the_time;
        dibs__vote_attend(&setting.q, the_time);
    }
    assert_true(dibs__vote_deadline(&setting.q) == setting.q.voting.next || atomic_load(&setting.q.voting.due));
    return (setting.q.voting.next - the_time) / MS(1);
}

static const struct dibs__vote *last_vote(size_t i)
{
    assert_true(voters[i].vote_count > 0);
    return &voters[i].votes[voters[i].vote_count - 1];
}

/* ------------------------------------------------------------- how often */

TEST(masters_are_looked_at_as_often_as_the_longest_lease_lasts)
{
    static const struct {
        uint32_t longest_ms;
        int64_t again_ms;
    } rows[] = {{0, AGAIN_MS}, {500, AGAIN_MS}, {1000, 1000}, {1001, 1001}, {10000, 10000}, {60000, MOST_MS}};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        setup(state);
        atomic_store(&setting.q.voting.longest_ms, rows[i].longest_ms);
        dibs__vote_init(&setting.q);
        assert_true(dibs__vote_deadline(&setting.q) == the_time + MS(rows[i].again_ms));
        assert_int_equal(look(), rows[i].again_ms);
        for (size_t member = 0; member < MEMBERS; member++) {
            assert_int_equal(voters[member].vote_count, 1);
            assert_int_equal(last_vote(member)->what, DIBS__VOTE_LOOKS);
            assert_int_equal(last_vote(member)->longest_ms, rows[i].longest_ms);
            assert_true(last_vote(member)->quorum == NUMBER);
        }
    }
}

TEST(a_look_is_not_begun_before_it_is_due)
{
    dibs__vote_attend(&setting.q, setting.q.voting.next - 1);
    assert_null(setting.q.voting.look);
}

TEST(a_master_that_did_not_answer_is_looked_at_again_sooner)
{
    voter_says(1, DIBS__OP_VOTE, DIBS_UNAVAILABLE, 0);
    assert_int_equal(look(), MISSED_MS);
    atomic_store(&setting.q.voting.longest_ms, 1500);
    assert_int_equal(look(), 1500);
}

/* While there is something to do, looks are as far apart as it takes. */
TEST(the_next_look_is_when_something_can_be_done)
{
    static const struct {
        struct dibs__vote vote;
        int64_t again_ms;
    } rows[] = {
        {{.known = true, .votes_in_ms = 300, .quorum = NUMBER}, 301}, /* then its wait is over */
        {{.known = true, .votes_in_ms = 90000, .quorum = NUMBER}, 5000},
        {{.known = true, .quorum = NUMBER}, SOON_MS}, /* it needs a floor */
        {{.known = true, .ready = true, .quorum = 0}, SOON_MS},
        {{.mark = 3}, AGAIN_MS},
        {{.known = true, .ready = true, .quorum = NUMBER + 1}, 5000}, /* of another quorum: nothing */
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (size_t member = 0; member < MEMBERS; member++) {
            setup(state);
            uint64_t process = voters[member].vote.process;
            voters[member].vote = rows[i].vote;
            voters[member].vote.process = process;
            if (!rows[i].vote.ready || rows[i].vote.quorum != 0)
                assert_int_equal(look(), rows[i].again_ms);
        }
}

/* A number that one master lacks is told it by the next look. */
TEST(a_master_without_a_number_is_told_it_soon)
{
    voters[2].vote.quorum = 0;
    atomic_store(&setting.q.number, 0);
    assert_int_equal(look(), SOON_MS);
    assert_true(last_vote(2)->quorum == 0 && atomic_load(&setting.q.number) == NUMBER);
    assert_int_equal(look(), 5000);
    assert_true(last_vote(2)->quorum == NUMBER);
}

/* ----------------------------------------------------------- what is wanted */

TEST(a_look_that_is_wanted_begins_soon)
{
    atomic_store(&setting.q.voting.announced_ms, 5000);
    know_of(5000);
    look();
    int64_t ended = setting.q.voting.last;
    dibs__vote_want(&setting.q, 5000);
    assert_true(dibs__vote_deadline(&setting.q) == ended + MS(SOON_MS));
    dibs__vote_want(&setting.q, 5001); /* which the masters must be told of */
    assert_true(dibs__vote_deadline(&setting.q) == ended + MS(2));
    dibs__vote_want(&setting.q, 7); /* it stays the longest */
    assert_int_equal(atomic_load(&setting.q.voting.longest_ms), 5001);
    dibs__vote_attend(&setting.q, ended + MS(2));
    assert_non_null(setting.q.voting.look);
    assert_false(atomic_load(&setting.q.voting.due));
    the_time = ended + MS(2);
    dibs__vote_attend(&setting.q, the_time);
    assert_int_equal(atomic_load(&setting.q.voting.announced_ms), 5001);
    assert_true(dibs__vote_deadline(&setting.q) == the_time + MS(5001));
}

/* A majority knows of the length, so an extension to it need not wait for the last. */
TEST(a_length_is_announced_when_a_majority_has_answered)
{
    atomic_store(&setting.q.voting.announced_ms, 1);
    know_of(1);
    voter_says(0, DIBS__OP_VOTE, DIBS_OK, NEVER_MS);
    voter_says(1, DIBS__OP_VOTE, DIBS_OK, 6);
    the_time = setting.q.voting.next;
    dibs__vote_attend(&setting.q, the_time);
    dibs__vote_attend(&setting.q, the_time);
    assert_int_equal(atomic_load(&setting.q.voting.announced_ms), 1);
    the_time += MS(6);
    dibs__vote_attend(&setting.q, the_time);
    assert_non_null(setting.q.voting.look);
    assert_int_equal(atomic_load(&setting.q.voting.announced_ms), 5000);
}

TEST(a_length_that_a_minority_knows_of_is_not_announced)
{
    know_of(5000);
    voters[0].vote.longest_ms = 60000;
    atomic_store(&setting.q.voting.announced_ms, 1);
    look();
    assert_int_equal(atomic_load(&setting.q.voting.announced_ms), 5000);
    voters[1].vote.longest_ms = 60000;
    look();
    assert_int_equal(atomic_load(&setting.q.voting.announced_ms), 60000);
}

/* Half of the command timeout, if a majority has answered, else all of it. */
TEST(the_last_masters_are_waited_for_so_long)
{
    for (size_t silent = 1; silent <= 2; silent++) {
        setup(state);
        for (size_t i = 0; i < silent; i++)
            voter_says(i, DIBS__OP_VOTE, DIBS_OK, NEVER_MS);
        int64_t began = setting.q.voting.next;
        look();
        assert_true(the_time == began + MS(silent == 1 ? 500 : 1000));
    }
}

/* -------------------------------------------------------------- admissions */

TEST(who_has_lost_its_data_is_admitted_when_it_has_said_so_for_a_second)
{
    for (size_t loser = 0; loser < MEMBERS; loser++) {
        setup(state);
        lose(loser);
        assert_int_equal(look(), AGAIN_MS);
        assert_int_equal(last_vote(loser)->what, DIBS__VOTE_LOOKS);
        assert_int_equal(look(), 5000);
        assert_int_equal(last_vote(loser)->what, DIBS__VOTE_ADMITS);
        assert_true(last_vote(loser)->wait_ms == dibs__admission_wait_ms(LEASE_MS));
        assert_int_equal(last_vote(loser)->longest_ms, LEASE_MS); /* of which the others know */
        assert_int_equal(last_vote((loser + 1) % MEMBERS)->what, DIBS__VOTE_LOOKS);
        look();
        lose(loser); /* again: the second begins anew */
        voters[loser].vote_count = 0;
        assert_int_equal(look(), AGAIN_MS);
        assert_int_equal(last_vote(loser)->what, DIBS__VOTE_LOOKS);
    }
}

TEST(a_floor_comes_with_the_look_behind_the_wait)
{
    for (size_t loser = 0; loser < MEMBERS; loser++) {
        setup(state);
        voters[loser].vote.ready = false;
        voters[(loser + 1) % MEMBERS].vote.highest = 77;
        assert_int_equal(look(), SOON_MS);
        assert_int_equal(last_vote(loser)->what, DIBS__VOTE_LOOKS);
        assert_int_equal(look(), 5000);
        assert_int_equal(last_vote(loser)->what, DIBS__VOTE_FLOORS);
        assert_true(last_vote(loser)->floor == 77);
        look();
        voters[loser].vote.ready = false; /* it forgot once more, and waits again */
        assert_int_equal(look(), SOON_MS);
        assert_int_equal(last_vote(loser)->what, DIBS__VOTE_LOOKS);
    }
}

TEST(a_new_quorum_is_admitted_by_the_second_look)
{
    atomic_store(&setting.q.number, 0);
    atomic_store(&setting.q.voting.announced_ms, 0);
    for (size_t i = 0; i < MEMBERS; i++)
        lose(i);
    assert_int_equal(look(), SOON_MS);
    assert_int_equal(atomic_load(&setting.q.voting.announced_ms), 0);
    assert_int_equal(look(), 5000);
    for (size_t i = 0; i < MEMBERS; i++) {
        assert_int_equal(last_vote(i)->what, DIBS__VOTE_ADMITS);
        assert_true(last_vote(i)->mark == 10 + i && last_vote(i)->floor == 1 && last_vote(i)->wait_ms == 0);
        assert_true(last_vote(i)->quorum != 0 && last_vote(i)->quorum == last_vote(0)->quorum);
    }
    assert_int_equal(atomic_load(&setting.q.voting.announced_ms), 5000);
}

/* One that knows of a quorum in between shows that it is not new: the two looks begin anew. */
TEST(a_look_that_finds_a_member_ends_the_newness)
{
    for (size_t i = 0; i < MEMBERS; i++)
        lose(i);
    atomic_store(&setting.q.voting.announced_ms, 0);
    atomic_store(&setting.q.number, 0);
    look();
    assert_true(setting.q.voting.newness.since != 0);
    voters[0].vote.known = true;
    look();
    assert_true(setting.q.voting.newness.since == 0);
}

/* ------------------------------------------------------------ clocks that were set */

static void step(size_t i, int64_t by_us)
{
    int64_t server_us = the_time / 1000 + 5000000;

    dibs__member_note_clock(&setting.members[i], the_time, server_us);
    dibs__member_note_clock(&setting.members[i], the_time, server_us + by_us);
}

TEST(a_step_of_a_clock_is_told_to_its_master)
{
    for (size_t i = 0; i < MEMBERS; i++)
        for (int back = 0; back < 2; back++) {
            setup(state);
            step(i, 0);
            assert_false(atomic_load(&setting.q.voting.due));
            step(i, back ? -60000000 : 60000000);
            assert_true(atomic_load(&setting.q.voting.due));
            assert_int_equal(atomic_load(&setting.members[i].set_back), back);
            assert_true(dibs__member_is_distrusted(&setting.members[i]));
            look();
            assert_int_equal(last_vote(i)->what, DIBS__VOTE_DISTRUSTS);
            assert_true(last_vote(i)->wait_ms == dibs__admission_wait_ms(LEASE_MS));
            assert_false(dibs__member_is_distrusted(&setting.members[i]));
        }
}

/* It was the clock of this process that was set. */
TEST(steps_of_a_majority_are_none)
{
    for (size_t right = 0; right < MEMBERS; right++) {
        setup(state);
        for (size_t i = 0; i < MEMBERS; i++)
            step(i, i == right ? 0 : -60000000);
        look();
        for (size_t i = 0; i < MEMBERS; i++) {
            assert_int_equal(last_vote(i)->what, DIBS__VOTE_LOOKS);
            assert_false(dibs__member_is_distrusted(&setting.members[i]));
            assert_false(atomic_load(&setting.members[i].set_back));
        }
    }
}

/* It is told soon: a majority must know the length of leases first. */
TEST(a_master_that_can_not_be_told_of_its_step_is_looked_at_again)
{
    voters[2].vote.votes_in_ms = 90000;
    voters[2].vote.ready = false;
    voter_says(1, DIBS__OP_VOTE, DIBS_UNAVAILABLE, 0);
    step(0, 60000000);
    assert_int_equal(look(), AGAIN_MS);
    assert_int_equal(last_vote(0)->what, DIBS__VOTE_LOOKS);
    assert_true(dibs__member_is_distrusted(&setting.members[0]));
}

/* ------------------------------------------------------- a thread that waits */

static dibs_status announce(uint32_t lease_ms, unsigned answered)
{
    unsigned count;
    dibs_status status = dibs__vote_announce(&setting.q, lease_ms, the_time + MS(3000), &count, &error);

    assert_int_equal(count, answered);
    assert_int_equal(status, error.status);
    return status;
}

TEST(a_thread_announces_a_length_to_a_majority)
{
    int64_t began = the_time;
    assert_status(DIBS_OK, announce(7000, 3));
    assert_int_equal(atomic_load(&setting.q.voting.announced_ms), LEASE_MS); /* it stays the longest */
    assert_status(DIBS_OK, announce(LEASE_MS + 1, 3));
    assert_int_equal(atomic_load(&setting.q.voting.announced_ms), LEASE_MS + 1);
    assert_int_equal(last_vote(0)->longest_ms, LEASE_MS + 1);
    assert_true(the_time == began);
    assert_false(atomic_load(&setting.q.voting.due)); /* nothing is left to do */
    voter_says(0, DIBS__OP_VOTE, DIBS_OK, NEVER_MS);
    voter_says(1, DIBS__OP_VOTE, DIBS_OK, 4);
    assert_status(DIBS_OK, announce(LEASE_MS + 2, 2));
    assert_true(the_time == began + MS(4));
    assert_true(atomic_load(&setting.q.voting.due));
    assert_false(voters[0].begun); /* what is not waited for is given up */
}

TEST(a_thread_admits_a_new_quorum)
{
    for (int silent = 0; silent < 2; silent++) {
        setup(state);
        atomic_store(&setting.q.number, 0);
        atomic_store(&setting.q.voting.announced_ms, 0);
        for (size_t i = 0; i < MEMBERS; i++)
            lose(i);
        if (silent)
            voter_says(2, DIBS__OP_VOTE, DIBS_OK, NEVER_MS);
        int64_t began = the_time;
        assert_status(DIBS_OK, announce(5000, silent ? 2 : 3));
        /* A silent one has half of the command timeout, once; then one more look is needed. */
        assert_in_range(the_time - began, silent ? MS(500) : 0, silent ? MS(560) : MS(60));
        for (size_t i = 0; i < (silent ? 2 : MEMBERS); i++) {
            assert_int_equal(last_vote(i)->what, DIBS__VOTE_ADMITS);
            assert_true(last_vote(i)->mark == 10 + i && last_vote(i)->wait_ms == 0);
        }
        assert_int_equal(atomic_load(&setting.q.voting.announced_ms), 5000);
    }
}

/* The others must be admitted first, which takes as long as the longest lease. */
TEST(a_minority_that_knows_is_no_majority)
{
    atomic_store(&setting.q.voting.announced_ms, 0);
    lose(0);
    lose(1);
    int64_t began = the_time;
    assert_status(DIBS_UNAVAILABLE, announce(5000, 3));
    assert_true(the_time > began + MS(2900) && the_time <= began + MS(3000));
    assert_string_equal(error.detail, "fewer than 2 of 3 masters may grant locks now");
    assert_int_equal(atomic_load(&setting.q.voting.announced_ms), 0);
    assert_true(atomic_load(&setting.q.voting.due));
}

TEST(where_no_majority_answers_nothing_is_announced)
{
    atomic_store(&setting.q.voting.announced_ms, 0);
    voter_says(0, DIBS__OP_VOTE, DIBS_UNAVAILABLE, 0);
    voter_says(1, DIBS__OP_VOTE, DIBS_UNAVAILABLE, 3);
    int64_t began = the_time;
    assert_status(DIBS_UNAVAILABLE, announce(5000, 1));
    assert_true(the_time == began + MS(3));
    assert_string_equal(error.detail, "1 of 3 masters answered, which is no majority: a master said so");
}

TEST(two_names_of_one_master_are_refused)
{
    voters[2].vote.process = 1;
    assert_status(DIBS_INVALID, announce(5000, 3));
    assert_string_equal(error.detail, "urls[0] and urls[2] are the same master");
}

/* Else the masters would belong to a quorum that nobody has, and the right URLs would be refused. */
TEST(two_names_of_one_master_begin_no_new_quorum)
{
    atomic_store(&setting.q.voting.announced_ms, 0);
    atomic_store(&setting.q.number, 0);
    for (size_t i = 0; i < MEMBERS; i++)
        lose(i);
    voters[2].vote.process = voters[0].vote.process;
    int64_t began = the_time;
    assert_status(DIBS_INVALID, announce(5000, 3));
    assert_string_equal(error.detail, "urls[0] and urls[2] are the same master");
    assert_true(the_time < began + MS(1000));
    look();
    for (size_t i = 0; i < MEMBERS; i++)
        for (size_t vote = 0; vote < voters[i].vote_count; vote++)
            assert_int_equal(voters[i].votes[vote].what, DIBS__VOTE_LOOKS);
}

#if CAN_FAIL
TEST(without_memory_nobody_is_looked_at)
{
    fail_here(1);
    assert_status(DIBS_NO_MEMORY, announce(5000, 0));
    atomic_store(&fail_at, 1);
    the_time = setting.q.voting.next;
    dibs__vote_attend(&setting.q, the_time);
    fail_no_more();
    assert_null(setting.q.voting.look);
    assert_true(dibs__vote_deadline(&setting.q) == the_time + MS(AGAIN_MS));
    assert_int_equal(voters[0].vote_count, 0);
}
#endif

TESTS(setup, teardown)
