/* Asks that no thread waits for any more: when the scheduler looks for their answers, and what becomes of them. */
#include "quorum_voters.h"

#define TIMEOUT_MS 1000 /* of a command */
#define FIRST_MS 2      /* the first pause between two looks, */
#define LAST_MS 50      /* and the longest */

static struct dibs__claim *claim;
static int64_t began;
static int64_t woken_by; /* when the scheduler was told to be up */

static void wake_by(void *context, int64_t at)
{
    woken_by = at;
}

static int end(void **state)
{
    if (setting.q.members)
        dibs__detached_finish_all(&setting.q);
    assert_int_equal(atomic_load(&counters.unconfirmed), 0);
    return tear_down(state);
}

/* The token is asked for, and nobody waits for what masters of the set answer. */
static void begin(uint32_t set)
{
    end(NULL);
    attempt = (struct dibs__attempt){.name = "x", .token = "dibs:token", .lease_ms = LEASE_MS, .shared = true};
    begin_vote(7, 7, 7);
    setting.q.config.listener.wake_by = wake_by;
    atomic_store(&counters.unconfirmed, 0);
    claim = asked_for();
    began = the_time;
    woken_by = 0;
    for (size_t i = 0; i < MEMBERS; i++) {
        voter_says(i, DIBS__OP_ASK, DIBS_OK, NEVER_MS);
        if (!dibs__set_has(set, i))
            continue;
        assert_true(dibs__member_ask(&claim->ops[i], &attempt));
        assert_true(claim->ops[i].attempt.shared);
    }
    dibs__detached_add(&setting.q, claim, set);
}

static void attend_at(int64_t ms)
{
    the_time = began + MS(ms);
    dibs__detached_attend(&setting.q, the_time);
}

/* When the next look is, in ms since the beginning; -1: there is none. */
static int64_t looks_at(void)
{
    int64_t deadline = dibs__detached_deadline(&setting.q);

    return deadline == DIBS__NEVER ? -1 : (deadline - began) / MS(1);
}

static struct dibs__member_state state_at(size_t i)
{
    struct dibs__member_state state;

    UNDER_MUTEX(state = claim->states[i]);
    return state;
}

TEST(looks_become_rarer_until_the_time_is_over)
{
    begin(4);
    assert_true(woken_by == began + MS(FIRST_MS));
    assert_int_equal(looks_at(), FIRST_MS);
    attend_at(1);
    assert_int_equal(looks_at(), FIRST_MS);
    attend_at(2);
    assert_int_equal(looks_at(), 4);
    attend_at(5);
    assert_int_equal(looks_at(), 10); /* as long again as it has taken */
    attend_at(30);
    assert_int_equal(looks_at(), 60);
    attend_at(60);
    assert_int_equal(looks_at(), 60 + LAST_MS);
    attend_at(970);
    assert_int_equal(looks_at(), TIMEOUT_MS);
    attend_at(TIMEOUT_MS - 1);
    assert_int_equal(atomic_load(&counters.unconfirmed), 1);
    attend_at(TIMEOUT_MS);
    assert_int_equal(looks_at(), -1);
    assert_int_equal(voters[2].asked[DIBS__OP_ASK], 1);
    assert_int_equal(state_at(2).phase, DIBS__MEMBER_NOTHING);
    assert_true(state_at(2).in_doubt); /* it may have been granted */
}

TEST(what_comes_is_taken_at_the_next_look)
{
    begin(4);
    voters[2].due = began + MS(3);
    voters[2].answer.fence = 9;
    attend_at(2);
    attend_at(4); /* the grant is given back, since the token has no majority */
    assert_int_equal(voters[2].asked[DIBS__OP_ASK], 1);
    assert_true(state_at(2).fence == 9 && !state_at(2).in_doubt);
    assert_int_equal(state_at(2).phase, DIBS__MEMBER_PENDING);
    assert_int_equal(atomic_load(&counters.unconfirmed), 1);
    assert_int_equal(looks_at(), 4 + FIRST_MS);
    attend_at(6);
    assert_int_equal(state_at(2).phase, DIBS__MEMBER_NOTHING);
    assert_int_equal(voters[2].quiet, 1);
    assert_int_equal(atomic_load(&counters.unconfirmed), 0);
}

/* Its retraction need not wait. */
TEST(what_could_not_be_sent_is_given_up_at_once)
{
    begin(4);
    voters[2].unsent = true;
    attend_at(2);
    assert_int_equal(looks_at(), -1);
    assert_int_equal(voters[2].asked[DIBS__OP_ASK], 1);
    assert_false(state_at(2).in_doubt);
}

/* So the next ask is not begun there. */
TEST(a_master_that_takes_much_longer_than_usual_rests)
{
    begin(4);
    for (size_t i = 0; i < MEMBERS; i++)
        atomic_store(&setting.members[i].usual, MS(1));
    attend_at(19);
    assert_true(atomic_load(&setting.members[2].rests_until) == 0);
    attend_at(looks_at());
    assert_true(atomic_load(&setting.members[2].rests_until) > 0);
}

/* In whatever order they were left, and end. */
TEST(each_is_looked_for_by_itself)
{
    for (size_t first = 0; first < MEMBERS; first++) {
        begin(ALL);
        assert_int_equal(atomic_load(&counters.unconfirmed), MEMBERS);
        attend_at(10);
        voters[first].due = the_time;
        voter_says(first, DIBS__OP_ASK, DIBS_BUSY, 0);
        attend_at(20);
        for (size_t i = 0; i < MEMBERS; i++)
            assert_int_equal(voters[i].asked[DIBS__OP_ASK], i == first);
        assert_int_equal(atomic_load(&counters.unconfirmed), MEMBERS - 1);
        assert_int_equal(state_at(first).phase, DIBS__MEMBER_TAKEN);
        assert_int_equal(looks_at(), 40);
    }
}

/* The nearest of their looks. */
TEST(the_scheduler_is_up_for_the_first_look)
{
    for (size_t first = 0; first < MEMBERS; first++) {
        begin(ALL);
        dibs__quorum_mutex_lock(&setting.q.mutex);
        for (size_t i = 0; i < MEMBERS; i++)
            claim->ops[i].look_at = began + MS(i == first ? 7 : 9);
        dibs__quorum_mutex_unlock(&setting.q.mutex);
        assert_int_equal(looks_at(), 7);
    }
}

/* By a thread that asks again under the token, or releases it. */
TEST(an_ask_is_taken_back_between_two_looks)
{
    for (size_t i = 0; i < MEMBERS; i++) {
        begin(ALL);
        attend_at(10);
        assert_true(dibs__member_ask(&claim->ops[i], NULL));
        assert_int_equal(atomic_load(&counters.unconfirmed), MEMBERS - 1);
        attend_at(2000);
        assert_int_equal(voters[i].asked[DIBS__OP_ASK], 0);
        dibs__detached_add(&setting.q, claim, UINT32_C(1) << i);
        end(NULL);
        assert_int_equal(voters[i].asked[DIBS__OP_ASK], 1);
    }
}

/* Nothing of the token is left there. */
TEST(an_ask_of_a_claim_that_has_ended_is_dropped)
{
    for (int granted = 0; granted < 2; granted++) {
        begin(4);
        UNDER_MUTEX(claim->references++); /* so that it can be looked at afterwards */
        dibs__claim_retract(&setting.q, claim);
        assert_int_equal(voters[2].dropped, 0);
        voter_says(2, DIBS__OP_ASK, granted ? DIBS_OK : DIBS_BUSY, 0);
        voters[2].due = the_time;
        attend_at(2);
        assert_int_equal(voters[2].dropped, 1);
        assert_int_equal(state_at(2).phase, DIBS__MEMBER_RETIRED);
        assert_int_equal(looks_at(), -1);
        dibs__claim_unref(&setting.q, claim);
    }
}

static void retract_meanwhile(void *context, const char *name)
{
    (void)context, (void)name;
    dibs__claim_retract(&setting.q, claim);
}

/* Another thread gives the claim up while the scheduler's thread notes a grant that came late: nothing stays. */
TEST(a_late_grant_is_given_back_though_its_claim_ends_just_then)
{
    begin(4);
    setting.q.config.listener.changed = retract_meanwhile; /* stands for the other thread */
    dibs__quorum_mutex_lock(&setting.q.mutex);
    claim->state = DIBS__CLAIM_HELD;
    claim->states[2].passed_over = true;
    claim->references++;
    dibs__quorum_mutex_unlock(&setting.q.mutex);
    voters[2].due = began + MS(1);
    attend_at(2);
    assert_int_equal(state_at(2).phase, DIBS__MEMBER_RETIRED);
    assert_int_equal(voters[2].dropped, 1);
    dibs__claim_unref(&setting.q, claim);
}

TESTS(NULL, end)
