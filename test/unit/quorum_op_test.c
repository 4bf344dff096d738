/* A grant of a master whose clock was set is no vote, whoever notices that first. */
#include "quorum_setup.h"

#define AHEAD_US INT64_C(5000000)
#define STEP_US (2 * DIBS__CLOCK_SET_US)

static int64_t ahead_us; /* of the masters' clocks */

static void ask(struct dibs__store *store, struct dibs__op *op)
{
    op->ask.attempt->proof = moved_clock_now(&setting.clock);
}

static dibs_status grant(struct dibs__store *store, struct dibs__op *op, struct dibs__error *error)
{
    op->ask.answer->fence = 7;
    op->ask.answer->server_us = moved_clock_now(&setting.clock) / 1000 + ahead_us;
    return DIBS_OK;
}

static const struct dibs__store_ops granting = {.begin = ask, .finish = grant};

/* What an ask comes to at a master that grants the lock. */
static dibs_status ask_at(struct dibs__pending_op *op)
{
    struct dibs__error error;

    dibs__pending_op_begin(op, dibs__op_ask(&op->attempt, &op->answer, 0));
    dibs_status status = dibs__pending_op_finish(op, DIBS__NEVER, &error);
    assert_int_equal(status, error.status);
    return status;
}

/* The member's clock steps by so much, and another thread finds that. */
static void step(struct dibs__member *member, int64_t by_us)
{
    ahead_us += by_us;
    int64_t now = moved_clock_now(&setting.clock);
    assert_true(dibs__member_note_clock(member, now, now / 1000 + ahead_us));
}

static void tell(struct dibs__member *member)
{
    atomic_store(&member->told_steps, atomic_load(&member->steps));
}

TEST(a_grant_that_shows_a_set_clock_is_no_vote)
{
    static const int64_t steps_us[] = {STEP_US, -STEP_US};

    for (size_t i = 0; i < sizeof steps_us / sizeof steps_us[0]; i++) {
        set_up(&granting);
        struct dibs__pending_op *op = &asked_for()->ops[0];
        ahead_us = AHEAD_US;
        assert_status(DIBS_OK, ask_at(op));
        assert_status(DIBS_OK, ask_at(op));
        ahead_us += steps_us[i];
        assert_status(DIBS_UNAVAILABLE, ask_at(op));
        assert_int_equal(op->answer.why, DIBS__WHY_STEPPED);
    }
}

/* The bounds of its clock are those of after the step by then. */
TEST(a_grant_after_the_step_is_no_vote_before_the_master_is_told)
{
    set_up(&granting);
    struct dibs__pending_op *op = &asked_for()->ops[0];
    ahead_us = AHEAD_US;
    assert_status(DIBS_OK, ask_at(op));
    step(op->member, STEP_US);
    assert_status(DIBS_UNAVAILABLE, ask_at(op));
    tell(op->member);
    assert_status(DIBS_OK, ask_at(op));
}

/* It was made before the master was told, and read afterwards. */
TEST(a_grant_from_before_the_master_was_told_is_no_vote)
{
    struct dibs__error error;

    set_up(&granting);
    struct dibs__pending_op *op = &asked_for()->ops[0];
    ahead_us = AHEAD_US;
    assert_status(DIBS_OK, ask_at(op));
    dibs__pending_op_begin(op, dibs__op_ask(&op->attempt, &op->answer, 0));
    step(op->member, 400 * STEP_US);
    tell(op->member);
    assert_status(DIBS_UNAVAILABLE, dibs__pending_op_finish(op, DIBS__NEVER, &error));
    assert_status(DIBS_OK, ask_at(op));
}

/* Another thread found the step when it was already decided to ask the master. */
TEST(a_grant_to_an_ask_from_before_the_master_was_told_is_no_vote)
{
    struct dibs__error error;

    set_up(&granting);
    struct dibs__pending_op *op = &asked_for()->ops[0];
    ahead_us = AHEAD_US;
    assert_status(DIBS_OK, ask_at(op));
    step(op->member, STEP_US);
    dibs__pending_op_begin(op, dibs__op_ask(&op->attempt, &op->answer, 0));
    tell(op->member);
    assert_status(DIBS_UNAVAILABLE, dibs__pending_op_finish(op, DIBS__NEVER, &error));
    assert_status(DIBS_OK, ask_at(op));
}

TESTS(NULL, tear_down)
