/* DIBS_NO_REENTRY: a thread that holds the lock is refused a second acquire, and nothing else changes. */
#include "core/holds.h"
#include "support/fixture.h"
#include "support/stage.h"

#define LEASE 30000
#define FOREVER DIBS_WAIT_FOREVER
#define FOR_LONG 3600000

static const dibs_lock_options once = {.flags = DIBS_NO_REENTRY};
static const dibs_lock_options once_fair = {.flags = DIBS_NO_REENTRY | DIBS_FAIR};

/* Each set of flags, with and without a lease. */
static const dibs_lock_options refused[] = {
    {0, DIBS_NO_REENTRY, 0},
    {20, DIBS_NO_REENTRY, 0},
    {0, DIBS_NO_REENTRY | DIBS_FAIR, 0},
    {0, DIBS_NO_REENTRY | DIBS_FIXED_LEASE, 0},
    {86400000, DIBS_NO_REENTRY | DIBS_FAIR | DIBS_FIXED_LEASE, 0},
};

static const int64_t waits[] = {0, 1, FOR_LONG, INT64_MAX, FOREVER};

enum { REFUSED = sizeof refused / sizeof refused[0], WAITS = sizeof waits / sizeof waits[0] };

/* The clock stands still, so whatever differs afterwards was changed by the calls. */
static void expect_refused(stage *s, const char *name, const char *detail)
{
    const dibs_hold hold = hold_of(s->rt, name);
    const dibs_stats stats = stats_of(s->rt);
    const unsigned asks = faults_count(&s->faults, &s->faults.acquires);

    for (size_t i = 0; i < (size_t)REFUSED * WAITS; i++) {
        assert_status(DIBS_BUSY, dibs_lock_with(s->rt, name, waits[i % WAITS], &refused[i / WAITS]));
        assert_string_equal(dibs_last_error(), detail);
        assert_status(DIBS_OK, dibs_check(s->rt, name));
        const dibs_hold now = hold_of(s->rt, name);
        assert_int_equal(now.count, hold.count);
        assert_int_equal(now.fence, hold.fence);
        assert_int_equal(now.remaining_ms, hold.remaining_ms);
    }
    const dibs_stats after = stats_of(s->rt);
    assert_memory_equal(&after, &stats, sizeof stats);
    assert_int_equal(faults_count(&s->faults, &s->faults.acquires), asks);
}

TEST_ON(a_thread_that_holds_the_lock_is_refused, stage *s)
{
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    expect_refused(s, "a", "this thread holds \"a\" already");
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    expect_refused(s, "a", "this thread holds \"a\" already");
    assert_int_equal(stats_of(s->rt).reentered, 1);
    for (char name[] = "b"; name[0] <= 'z'; name[0]++) /* many holds have an index */
        assert_status(DIBS_OK, dibs_lock_with(s->rt, name, 0, &once));
    expect_refused(s, "a", "this thread holds \"a\" already");
    expect_refused(s, "z", "this thread holds \"z\" already");
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    expect_refused(s, "a", "this thread holds \"a\" already");
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    assert_status(DIBS_NOT_HELD, dibs_check(s->rt, "a"));
    assert_status(DIBS_OK, dibs_unlock_all(s->rt));
    assert_int_equal(stats_of(s->rt).busy, 0);
}

/* Whatever flags a hold was acquired with, the flags of the second call decide. */
TEST_ON(no_reentry_concerns_its_own_call, stage *s)
{
    for (size_t i = 0; i < REFUSED; i++) {
        assert_status(DIBS_OK, dibs_lock_with(s->rt, "a", FOREVER, &refused[i]));
        assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
        assert_status(DIBS_OK, dibs_lock_with(s->rt, "a", 0, &(dibs_lock_options){.flags = 0}));
        assert_status(DIBS_OK, dibs_lock_with(s->rt, "a", 0, &(dibs_lock_options){.flags = DIBS_FAIR}));
        assert_int_equal(hold_of(s->rt, "a").count, 4);
        expect_refused(s, "a", "this thread holds \"a\" already");
        assert_status(DIBS_OK, dibs_unlock_all(s->rt));
    }
}

TEST_ON(no_reentry_refuses_at_a_full_count_too, stage *s)
{
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    dibs__holds_find(s->rt->serial, "a", 1)->count = UINT32_MAX;
    expect_refused(s, "a", "this thread holds \"a\" already");
    assert_status(DIBS_OVERFLOW, dibs_lock(s->rt, "a"));
    assert_status(DIBS_OK, dibs_unlock_all(s->rt));
}

/* As without the flag, the thread must learn of the loss, and unlock. */
TEST_ON(no_reentry_reports_a_lost_hold_as_lost, stage *s)
{
    assert_status(DIBS_OK, dibs_lock_with(s->rt, "a", 0, &(dibs_lock_options){.flags = DIBS_FIXED_LEASE}));
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    stage_advance(s, believed(LEASE) - 1);
    assert_status(DIBS_BUSY, dibs_lock_with(s->rt, "a", FOREVER, &once));
    stage_advance(s, 1);
    for (size_t i = 0; i < (size_t)REFUSED * WAITS; i++)
        assert_status(DIBS_LOST, dibs_lock_with(s->rt, "a", waits[i % WAITS], &refused[i / WAITS]));
    assert_status(DIBS_LOST, dibs_unlock(s->rt, "a"));
    assert_status(DIBS_LOST, dibs_lock_with(s->rt, "a", FOREVER, &once));
    assert_status(DIBS_LOST, dibs_unlock(s->rt, "a"));
    stage_settle(s);
    assert_status(DIBS_OK, dibs_lock_with(s->rt, "a", 0, &once));
    assert_int_equal(hold_of(s->rt, "a").count, 1);
}

TEST_ON(no_reentry_reports_a_closing_runtime, stage *s)
{
    assert_status(DIBS_OK, dibs_lock_with(s->rt, "a", 0, &once));
    dibs_shutdown(s->rt);
    assert_status(DIBS_CLOSED, dibs_lock_with(s->rt, "a", FOREVER, &once));
    assert_status(DIBS_CLOSED, dibs_lock_with(s->rt, "b", FOREVER, &once));
    assert_int_equal(hold_of(s->rt, "a").count, 1);
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
}

TEST_ON(no_reentry_checks_arguments_first, stage *s)
{
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    assert_status(DIBS_INVALID, dibs_lock_with(s->rt, "a", -2, &once));
    assert_status(DIBS_INVALID, dibs_lock_with(s->rt, "a", 0, &(dibs_lock_options){19, DIBS_NO_REENTRY, 0}));
    assert_status(DIBS_INVALID, dibs_lock_with(s->rt, "a", 0, &(dibs_lock_options){0, DIBS_NO_REENTRY | 16, 0}));
}

TEST_WITH(no_reentry_does_not_concern_another_owner, stage_setup, stage_teardown, stage *s)
{
    stage_open_at(s, "mem:no_reentry", LEASE);
    dibs_runtime *second = test_runtime(stage_open_another(s, LEASE));
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    assert_status(DIBS_BUSY, dibs_lock_with(second, "a", 0, &once));
    assert_string_equal(dibs_last_error(), "somebody else holds \"a\"");
    assert_int_equal(stats_of(second).busy, 1);
    assert_status(DIBS_OK, dibs_lock_with(second, "b", 0, &once));
    assert_status(DIBS_BUSY, dibs_lock_with(s->rt, "b", 0, &once_fair));
    assert_string_equal(dibs_last_error(), "somebody else holds \"b\"");
    assert_int_equal(stats_of(s->rt).busy, 1);
    assert_status(DIBS_BUSY, dibs_lock_with(second, "b", FOREVER, &once));
    assert_string_equal(dibs_last_error(), "this thread holds \"b\" already");
}

struct call {
    dibs_runtime *rt;
    const dibs_lock_options *options;
    dibs_status status, nested;
};

static void lock_forever(void *arg)
{
    struct call *call = arg;

    call->status = dibs_lock_with(call->rt, "a", FOREVER, call->options);
    call->nested = dibs_lock_with(call->rt, "a", FOREVER, call->options);
}

/* A thread with the flag waits for another thread's hold, and gets the lease handed over, as without the flag. */
TEST_WITH(no_reentry_waits_for_another_thread, stage_setup, stage_teardown, stage *s)
{
    static const dibs_lock_options *const options[] = {&once, &once_fair};
    actor *other = actor_start();

    s->settings.handoff_ms = FOR_LONG;
    stage_open(s, LEASE);
    for (size_t i = 0; i < 2; i++) {
        struct call call = {.rt = s->rt, .options = options[i]};
        assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
        assert_status(DIBS_BUSY, actor_lock_with(other, s->rt, "a", 0, options[i]));
        actor_begin(other, lock_forever, &call);
        stage_await_waiting(s, 1);
        assert_status(DIBS_BUSY, dibs_lock_with(s->rt, "a", FOREVER, options[i]));
        assert_int_equal(hold_of(s->rt, "a").count, 1);
        assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
        actor_finish(other);
        assert_status(DIBS_OK, call.status);
        assert_status(DIBS_BUSY, call.nested);
        assert_status(DIBS_OK, actor_unlock(other, s->rt, "a"));
        assert_status(DIBS_NOT_HELD, actor_check(other, s->rt, "a"));
        assert_int_equal(stats_of(s->rt).busy, i + 1);
    }
    assert_int_equal(stats_of(s->rt).handed_off, 1); /* without DIBS_FAIR alone */
}

TESTS(stage_setup_open, stage_teardown)
