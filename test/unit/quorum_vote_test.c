/* Who admits the masters of a new quorum gives them a number that is made of their processes alone. */
#include "quorum_setup.h"

#define OLD_NUMBER 77 /* of a quorum that all masters have forgotten */

static uint64_t given[MEMBERS]; /* the numbers with which they were admitted */

static void begin(struct dibs__store *store, struct dibs__op *op)
{
}

static enum dibs__progress progress(struct dibs__store *store, const struct dibs__op *op, struct dibs__wait *wait)
{
    return DIBS__OP_OVER;
}

/* As masters answer that have lost their data. */
static dibs_status finish(struct dibs__store *store, struct dibs__op *op, struct dibs__error *error)
{
    size_t i = (size_t)(store - setting.stores);
    struct dibs__vote *vote = op->vote;

    vote->process = 100 + i;
    vote->known = vote->ready = vote->what == DIBS__VOTE_ADMITS;
    if (vote->known)
        given[i] = vote->quorum;
    else
        vote->quorum = 0;
    vote->mark = vote->known ? 0 : 1 + i;
    return DIBS_OK;
}

static const struct dibs__store_ops forgetful = {.begin = begin, .progress = progress, .finish = finish};

/* Returns the number that a process gives them which knew them by `known`. */
static uint64_t number_by(uint64_t known)
{
    struct dibs__error error;
    unsigned answered;

    set_up(&forgetful);
    setting.q.config.clock = &dibs__system_clock; /* who looks again pauses before */
    setting.q.config.command_timeout_ms = 1000;
    atomic_store(&setting.q.number, known);
    assert_status(DIBS_OK, dibs__vote_announce(&setting.q, 30000, DIBS__NEVER, &answered, &error));
    assert_int_equal(answered, MEMBERS);
    for (size_t i = 1; i < MEMBERS; i++)
        assert_true(given[i] == given[0]);
    assert_true(atomic_load(&setting.q.number) == given[0]);
    return given[0];
}

/* So it does not matter if another process, which knows no number, admits some of them at the same time. */
TEST(masters_that_lost_their_data_get_a_number_that_any_process_would_give)
{
    uint64_t number = number_by(0);
    assert_true(number != 0 && number != OLD_NUMBER);
    assert_true(number_by(OLD_NUMBER) == number);
}

static int64_t comes_at; /* when the answer of the last master comes */
static unsigned heard;   /* how often it was taken */

static enum dibs__progress progress_of_far(struct dibs__store *store, const struct dibs__op *op,
                                           struct dibs__wait *wait)
{
    bool is_far = store == &setting.stores[MEMBERS - 1];
    return is_far && moved_clock_now(&setting.clock) < comes_at ? DIBS__OP_AWAITED : DIBS__OP_OVER;
}

static dibs_status finish_far(struct dibs__store *store, struct dibs__op *op, struct dibs__error *error)
{
    heard += store == &setting.stores[MEMBERS - 1];
    return finish(store, op, error);
}

/* The last master is far away; a look begins, for leases of at least that length. */
static void begin_far(int64_t comes_in_ms, uint32_t lease_ms)
{
    static const struct dibs__store_ops far = {.begin = begin, .progress = progress_of_far, .finish = finish_far};

    set_up(&far);
    setting.q.config.command_timeout_ms = 1000;
    heard = 0;
    comes_at = moved_clock_now(&setting.clock) + MS(comes_in_ms);
    dibs__vote_want(&setting.q, lease_ms);
    dibs__vote_attend(&setting.q, moved_clock_now(&setting.clock));
}

/* A master that is as far away as the command timeout allows is admitted as well, and knows what the others do. */
TEST(a_look_waits_for_a_master_that_is_far_away)
{
    begin_far(400, 0);
    for (int i = 0; i < 399; i++) {
        moved_clock_advance(&setting.clock, MS(1));
        dibs__vote_attend(&setting.q, moved_clock_now(&setting.clock));
        assert_int_equal(heard, 0);
    }
    moved_clock_advance(&setting.clock, MS(1));
    dibs__vote_attend(&setting.q, moved_clock_now(&setting.clock));
    assert_true(heard > 0);
    dibs__vote_finish_all(&setting.q);
}

/* Else an extension to it would wait for the far master, longer than the lease may last. */
TEST(a_look_ends_soon_where_a_longer_lease_is_wanted)
{
    begin_far(LIMIT_MS, 1000);
    moved_clock_advance(&setting.clock, MS(150));
    dibs__vote_attend(&setting.q, moved_clock_now(&setting.clock));
    assert_int_equal(heard, 0);
    dibs__vote_want(&setting.q, 60000);
    dibs__vote_attend(&setting.q, moved_clock_now(&setting.clock));
    assert_true(heard > 0);
    dibs__vote_finish_all(&setting.q);
}

TESTS(NULL, tear_down)
