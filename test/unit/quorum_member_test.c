/* A master that found by itself that its clock was set is told not to vote before it is asked again. */
#include "quorum_setup.h"

static void begin(struct dibs__store *store, struct dibs__op *op)
{
}

static const struct dibs__store_ops silent = {.begin = begin};

static bool takes(struct dibs__claim *claim, size_t i)
{
    const struct dibs__attempt attempt = {.lease_ms = 30000};

    return dibs__member_ask(&claim->ops[i], &attempt);
}

/* An ask at the first master fails for that reason. */
static void fails_at_first(struct dibs__claim *claim, enum dibs__why why)
{
    assert_true(takes(claim, 0));
    claim->ops[0].begun.kind = DIBS__OP_NONE;
    claim->ops[0].answer = (struct dibs__answer){.why = why};
    dibs__member_note(&setting.q, &claim->ops[0], DIBS_UNAVAILABLE);
}

/*
 * Where the client has not heard that clock before, or not for so long that its bounds of the clock are wide, the next
 * grant would not show the step.
 */
TEST(a_master_that_finds_its_clock_set_is_not_asked_before_it_is_told)
{
    set_up(&silent);
    struct dibs__claim *claim = asked_for();
    fails_at_first(claim, DIBS__WHY_NO_VOTE);
    fails_at_first(claim, DIBS__WHY_STEPPED);
    assert_true(atomic_load(&setting.q.voting.due));
    assert_false(takes(claim, 0));
    assert_true(takes(claim, 1));
    atomic_store(&setting.members[0].told_steps, atomic_load(&setting.members[0].steps));
    assert_true(takes(claim, 0));
}

TESTS(NULL, tear_down)
