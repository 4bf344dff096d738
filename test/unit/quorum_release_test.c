/* What a release of a quorum may count on, where an ask was not answered before. */
#include "quorum_setup.h"

static struct dibs__counters counters;

static void wake_by(void *context, int64_t at)
{
}

static void begin(struct dibs__store *store, struct dibs__op *op)
{
}

/* The connection of the ask has ended. */
static enum dibs__progress progress(struct dibs__store *store, const struct dibs__op *op, struct dibs__wait *wait)
{
    return op->kind == DIBS__OP_ASK ? DIBS__OP_BROKEN : DIBS__OP_OVER;
}

/* The first master alone confirms a release. */
static dibs_status finish(struct dibs__store *store, struct dibs__op *op, struct dibs__error *error)
{
    dibs_status status = op->kind == DIBS__OP_RELEASE && store == &setting.stores[0] ? DIBS_OK : DIBS_UNAVAILABLE;

    return dibs__error_set(error, status, "%s", "");
}

static void conclude(struct dibs__store *store, struct dibs__attempt *attempt, bool held)
{
}

static void retract(struct dibs__store *store, const char *name, const char *token, uint32_t lease_ms, uint64_t fence)
{
}

static const struct dibs__store_ops breaking = {
    .begin = begin, .progress = progress, .finish = finish, .conclude = conclude, .retract = retract};

/*
 * Two masters have granted the lock; the ask at the third had no answer. It may have been carried out, so that master
 * does not count as one that does not have the lock. `noted`: the scheduler has seen that before the release.
 */
static void expect_unconfirmed(bool noted)
{
    const struct dibs__attempt attempt = {.lease_ms = 30000};
    struct dibs__error error = {DIBS_OK, ""};

    set_up(&breaking);
    setting.q.config.counters = &counters;
    setting.q.config.listener.wake_by = wake_by;
    struct dibs__claim *claim = asked_for();
    assert_true(dibs__member_ask(&claim->ops[2], &attempt));
    dibs__detached_add(&setting.q, claim, UINT32_C(1) << 2);
    dibs__quorum_mutex_lock(&setting.q.mutex);
    claim->state = DIBS__CLAIM_HELD;
    for (size_t i = 0; i < 2; i++)
        claim->states[i].phase = DIBS__MEMBER_GRANTED;
    dibs__quorum_mutex_unlock(&setting.q.mutex);
    if (noted)
        dibs__detached_attend(&setting.q, moved_clock_now(&setting.clock) + MS(5));
    struct dibs__op op = {.kind = DIBS__OP_RELEASE,
                          .name = "x",
                          .deadline = moved_clock_now(&setting.clock) + MS(1000),
                          .release = {.token = "dibs:token", .lease_ms = 30000, .fence = 7}};
    dibs__quorum_release_begin(&setting.q.store, &op);
    assert_status(DIBS_UNAVAILABLE, dibs__quorum_release_finish(&setting.q.store, &op, &error));
}

TEST(an_ask_without_an_answer_does_not_help_a_release)
{
    expect_unconfirmed(false);
    expect_unconfirmed(true);
}

TESTS(NULL, tear_down)
