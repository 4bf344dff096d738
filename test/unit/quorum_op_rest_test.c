/* Which masters rest because they failed or are slow, and which are asked while they do. */
#include "quorum_setup.h"

#define ALL UINT32_C(7)
#define REST_FIRST_MS 16
#define OVERDUE_MS 20 /* nobody is late, or overdue, before */

static struct dibs__pending_op ops[MEMBERS];
static dibs_status said; /* what the masters answer */
static enum dibs__why why;

static void begin(struct dibs__store *store, struct dibs__op *op)
{
}

static dibs_status finish(struct dibs__store *store, struct dibs__op *op, struct dibs__error *error)
{
    if (op->kind == DIBS__OP_ASK)
        op->ask.answer->why = why;
    return dibs__error_set(error, said, "%s", "");
}

static const struct dibs__store_ops answering = {.begin = begin, .finish = finish};

static int setup(void **state)
{
    set_up(&answering);
    for (size_t i = 0; i < MEMBERS; i++) {
        setting.members[i].rest.first_ms = REST_FIRST_MS;
        ops[i] = (struct dibs__pending_op){.member = &setting.members[i]};
    }
    said = DIBS_OK;
    why = DIBS__WHY_UNTOLD;
    return 0;
}

static void be_usual(int64_t first_ms, int64_t second_ms, int64_t third_ms)
{
    atomic_store(&setting.members[0].usual, MS(first_ms));
    atomic_store(&setting.members[1].usual, MS(second_ms));
    atomic_store(&setting.members[2].usual, MS(third_ms));
}

/* A query at the member that is answered so after that time. */
static void answers_after(size_t i, dibs_status status, int64_t took_ms)
{
    struct dibs__error error;

    said = status;
    dibs__pending_op_begin(&ops[i], (struct dibs__op){.kind = DIBS__OP_QUERY});
    moved_clock_advance(&setting.clock, MS(took_ms));
    assert_status(status, dibs__pending_op_finish(&ops[i], DIBS__NEVER, &error));
}

/* How long the member rests from now; 0: it does not. */
static int64_t rests_ns(size_t i)
{
    int64_t until = atomic_load(&setting.members[i].rests_until);

    return until == 0 ? 0 : until - moved_clock_now(&setting.clock);
}

TEST(a_member_that_fails_again_rests_longer)
{
    for (int64_t most_ms = REST_FIRST_MS; most_ms <= 4 * REST_FIRST_MS; most_ms *= 2) {
        answers_after(0, DIBS_UNAVAILABLE, 0);
        int64_t rests = rests_ns(0);
        assert_in_range(rests, MS(most_ms / 2), MS(most_ms));
        answers_after(0, DIBS_UNAVAILABLE, 1);
        assert_true(rests_ns(0) == rests - MS(1)); /* one outage makes many calls fail */
        moved_clock_advance(&setting.clock, rests_ns(0));
    }
}

/* While one ask finds out whether a member is back, the others let it rest: that is no rest of its own. */
TEST(a_member_that_fails_at_once_after_its_rest_rests_longer)
{
    uint32_t spared;

    for (int64_t most_ms = REST_FIRST_MS; most_ms <= 4 * REST_FIRST_MS; most_ms *= 2) {
        dibs__members_to_ask(&setting.q, &spared);
        answers_after(0, DIBS_UNAVAILABLE, 0);
        assert_in_range(rests_ns(0), MS(most_ms / 2), MS(most_ms));
        moved_clock_advance(&setting.clock, rests_ns(0));
    }
}

TEST(an_answer_ends_the_rest_and_the_next_is_short)
{
    answers_after(0, DIBS_UNAVAILABLE, 0);
    moved_clock_advance(&setting.clock, rests_ns(0));
    answers_after(0, DIBS_UNAVAILABLE, 0);
    answers_after(0, DIBS_BUSY, 0);
    assert_true(rests_ns(0) == 0);
    answers_after(0, DIBS_UNAVAILABLE, 0);
    assert_in_range(rests_ns(0), MS(REST_FIRST_MS / 2), MS(REST_FIRST_MS));
}

/* It has answered, though it grants nothing. Who can't confirm a grant costs each ask that takes part of its time. */
TEST(a_member_that_says_why_it_grants_nothing_does_not_rest)
{
    static const struct {
        enum dibs__why why;
        bool rests;
    } rows[] = {{DIBS__WHY_UNTOLD, true}, {DIBS__WHY_NO_VOTE, false}, {DIBS__WHY_TOO_FEW_REPLICAS, true}};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct dibs__error error;
        setup(state);
        said = DIBS_UNAVAILABLE;
        why = rows[i].why;
        dibs__pending_op_begin(&ops[0], dibs__op_ask(&ops[0].attempt, &ops[0].answer, 0));
        assert_status(DIBS_UNAVAILABLE, dibs__pending_op_finish(&ops[0], DIBS__NEVER, &error));
        assert_int_equal(rests_ns(0) > 0, rows[i].rests);
    }
}

/* Eight times as long as a majority without it takes, and 20 ms at least. */
TEST(a_member_that_takes_much_longer_than_a_majority_rests)
{
    static const struct {
        int64_t others_ms[2], took_ms;
        bool rests;
    } rows[] = {{{1, 3}, 23, false}, {{1, 3}, 24, true}, {{3, 1}, 23, false},   {{3, 1}, 24, true},
                {{1, 1}, 19, false}, {{1, 1}, 20, true}, {{4, 50}, 399, false}, {{4, 50}, 400, true}};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (size_t place = 0; place < MEMBERS; place++) {
            const int64_t *others = rows[i].others_ms;
            setup(state);
            be_usual(place == 0 ? 900 : others[0], place == 1 ? 900 : others[place == 0 ? 0 : 1],
                     place == 2 ? 900 : others[1]);
            dibs__pending_op_begin(&ops[place], (struct dibs__op){.kind = DIBS__OP_QUERY});
            moved_clock_advance(&setting.clock, MS(rows[i].took_ms));
            dibs__pending_op_note_delay(&ops[place], moved_clock_now(&setting.clock));
            assert_int_equal(rests_ns(place) > 0, rows[i].rests);
        }
}

TEST(a_single_late_answer_is_forgiven_and_several_are_not)
{
    be_usual(1, 1, 1);
    answers_after(2, DIBS_OK, 100);
    assert_true(atomic_load(&setting.members[2].usual) == MS(1) + MS(99) / 8);
    assert_true(rests_ns(2) == 0);
    answers_after(2, DIBS_OK, 100);
    assert_true(rests_ns(2) > 0);
}

TEST(the_first_answer_tells_the_usual_time)
{
    be_usual(1, 1, 0);
    answers_after(2, DIBS_OK, 5);
    assert_true(atomic_load(&setting.members[2].usual) == MS(5));
}

static uint32_t asks(uint32_t *spared)
{
    return dibs__members_to_ask(&setting.q, spared);
}

TEST(who_rests_is_spared_and_asked_once_when_the_rest_is_over)
{
    uint32_t spared;

    answers_after(1, DIBS_UNAVAILABLE, 0);
    assert_int_equal(asks(&spared), ALL & ~2u);
    assert_int_equal(spared, 2);
    moved_clock_advance(&setting.clock, rests_ns(1));
    assert_int_equal(asks(&spared), ALL);
    assert_int_equal(spared, 0);
    assert_int_equal(asks(&spared), ALL & ~2u); /* by another thread, while the first one asks */
    moved_clock_advance(&setting.clock, MS(OVERDUE_MS) - 1);
    assert_int_equal(asks(&spared), ALL & ~2u);
    moved_clock_advance(&setting.clock, 1);
    assert_int_equal(asks(&spared), ALL);
}

/* Who may not vote would not grant anything: it is not spared, but left out. */
TEST(who_may_not_vote_yet_is_not_asked)
{
    uint32_t spared;

    atomic_store(&setting.members[2].votes_from, moved_clock_now(&setting.clock) + 1);
    assert_int_equal(asks(&spared), ALL & ~4u);
    assert_int_equal(spared, 0);
    moved_clock_advance(&setting.clock, 1);
    assert_int_equal(asks(&spared), ALL);
}

TEST(all_are_asked_where_the_others_are_no_majority)
{
    uint32_t spared;

    answers_after(0, DIBS_UNAVAILABLE, 0);
    atomic_store(&setting.members[2].votes_from, DIBS__NEVER);
    assert_int_equal(asks(&spared), ALL);
    assert_int_equal(spared, 0);
}

/* When the last of those that were asked takes eight times as long as usual. */
TEST(who_takes_much_longer_than_usual_is_overdue)
{
    struct dibs__fan_out fan_out = {.quorum = &setting.q, .ops = ops, .open = ALL};

    be_usual(0, 2, 10);
    int64_t now = moved_clock_now(&setting.clock);
    for (size_t i = 0; i < MEMBERS; i++)
        ops[i].sent_at = now;
    assert_false(dibs__fan_out_is_overdue(&fan_out, now + MS(80) - 1));
    assert_true(dibs__fan_out_is_overdue(&fan_out, now + MS(80)));
    fan_out.unsent = 4;
    assert_false(dibs__fan_out_is_overdue(&fan_out, now + MS(OVERDUE_MS) - 1));
    assert_true(dibs__fan_out_is_overdue(&fan_out, now + MS(OVERDUE_MS)));
    fan_out.open = 4;
    assert_true(dibs__fan_out_is_overdue(&fan_out, now));
}

TEST(as_many_answers_are_awaited_as_a_decision_needs)
{
    static const struct {
        unsigned for_it;
        uint32_t open;
        int least;
    } rows[] = {{0, 7, 2}, {1, 6, 1}, {0, 6, 1}, {1, 4, 1}, {2, 4, 0}, {0, 4, 0}};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_int_equal(dibs__least_to_decide(&setting.q, rows[i].for_it, rows[i].open), rows[i].least);
}

/* The worst is one that does not pass by waiting; the first of those is kept. */
TEST(the_worst_error_is_kept)
{
    static const struct {
        dibs_status known, next, kept;
    } rows[] = {
        {DIBS_OK, DIBS_UNAVAILABLE, DIBS_UNAVAILABLE}, {DIBS_OK, DIBS_DENIED, DIBS_DENIED},
        {DIBS_UNAVAILABLE, DIBS_DENIED, DIBS_DENIED},  {DIBS_UNAVAILABLE, DIBS_OK, DIBS_UNAVAILABLE},
        {DIBS_DENIED, DIBS_UNAVAILABLE, DIBS_DENIED},  {DIBS_DENIED, DIBS_STORE_ERROR, DIBS_DENIED},
        {DIBS_DENIED, DIBS_OK, DIBS_DENIED},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct dibs__error worst = {.status = rows[i].known};
        dibs__error_keep_worst(&worst, &(struct dibs__error){.status = rows[i].next});
        assert_status(rows[i].kept, worst.status);
    }
}

TESTS(setup, tear_down)
