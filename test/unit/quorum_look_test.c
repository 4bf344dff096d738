/* What an answer of a master whose clock was set proves: nothing of steps that were found after it was asked. */
#include "store/quorum/quorum_look.h"

#include "support/test.h"

/* A quorum of one master, and a look at it. */
struct looked {
    struct dibs__quorum q;
    struct dibs__member member;
    struct dibs__look *look;
};

static void begin(struct looked *looked)
{
    *looked = (struct looked){.q = {.config = {.clock = &dibs__system_clock}, .count = 1, .majority = 1}};
    looked->q.members = &looked->member;
    looked->member.quorum = &looked->q;
    assert_int_equal(dibs__mutex_init(&looked->q.mutex), 0);
    looked->look = calloc(1, sizeof *looked->look + sizeof looked->look->ops[0]);
    assert_non_null(looked->look);
    looked->look->ops[0].member = &looked->member;
}

static void end(struct looked *looked)
{
    dibs__mutex_destroy(&looked->q.mutex);
    free(looked->look);
}

/* The master answers what it was asked when so many steps had been found, and it had been told of so many. */
static void answers(struct looked *looked, unsigned steps, unsigned told_steps, struct dibs__vote vote)
{
    looked->look->ops[0].steps = steps;
    looked->look->ops[0].told_steps = told_steps;
    looked->look->votes[0] = vote;
    looked->look->ops[0].begun = (struct dibs__op){.kind = DIBS__OP_VOTE, .vote = &looked->look->votes[0]};
    dibs__look_note(looked->look, &looked->look->ops[0], DIBS_OK);
}

TEST(a_master_that_was_told_of_one_step_is_told_of_the_next)
{
    struct looked looked;
    const struct dibs__vote told = {.what = DIBS__VOTE_DISTRUSTS, .known = true, .votes_in_ms = 1000};

    begin(&looked);
    atomic_store(&looked.member.steps, 2);
    answers(&looked, 1, 0, told);
    assert_true(dibs__member_is_distrusted(&looked.member));
    answers(&looked, 2, 1, told);
    assert_false(dibs__member_is_distrusted(&looked.member));
    end(&looked);
}

TEST(an_answer_of_before_the_clock_was_set_back_makes_no_renewal_count)
{
    struct looked looked;
    const struct dibs__vote votes = {.what = DIBS__VOTE_LOOKS, .known = true, .ready = true};

    begin(&looked);
    atomic_store(&looked.member.steps, 1);
    atomic_store(&looked.member.told_steps, 1);
    atomic_store(&looked.member.set_back, true);
    answers(&looked, 0, 0, votes);
    assert_true(atomic_load(&looked.member.set_back));
    answers(&looked, 1, 0, votes); /* it was asked before it was told */
    assert_true(atomic_load(&looked.member.set_back));
    answers(&looked, 1, 1, votes);
    assert_false(atomic_load(&looked.member.set_back));
    end(&looked);
}

TESTS(NULL, NULL)
