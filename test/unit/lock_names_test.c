/* dibs_lock_names and dibs_unlock_names, for threads and for tasks that a thread has entered: two runtimes in memory.
 */
#include "support/events.h"
#include "support/fixture.h"
#include "support/stage.h"
#include "support/tasks.h"

#define FOREVER DIBS_WAIT_FOREVER
#define COUNT(names) (sizeof(names) / sizeof((names)[0]))

struct pair {
    events events;
    dibs_runtime *rt, *other;
};

static int setup(void **state)
{
    static struct pair pair;
    const dibs_config config = {.lease_ms = LONG_LEASE_MS, .on_event = events_record, .on_event_arg = &pair.events};

    events_init(&pair.events);
    pair.rt = open_url("mem:names", &config);
    pair.other = open_url("mem:names", &(dibs_config){.lease_ms = LONG_LEASE_MS});
    *state = &pair;
    return 0;
}

static int teardown(void **state)
{
    struct pair *p = *state;

    dibs_close(p->rt);
    dibs_close(p->other);
    events_destroy(&p->events);
    return 0;
}

static void expect_free(dibs_runtime *rt, const char *name)
{
    lock_and_release(rt, name, 0);
}

static bool is_free(dibs_runtime *rt, const char *name)
{
    return dibs_trylock(rt, name) == DIBS_OK && dibs_unlock(rt, name) == DIBS_OK;
}

static void await_free(dibs_runtime *rt, const char *name)
{
    await_that(is_free(rt, name));
}

static bool has_waiter(dibs_runtime *rt, const char *name)
{
    dibs_owner owner;

    return dibs_query(rt, name, &owner) == DIBS_OK && owner.waiters > 0;
}

static void await_waiter(dibs_runtime *rt, const char *name)
{
    await_that(has_waiter(rt, name));
}

static void expect_error_names(const char *quoted)
{
    assert_that(strstr(dibs_last_error(), quoted), "%s", dibs_last_error());
}

/* Calls by an actor, which starts with the first of them. */
struct call {
    actor *actor;
    dibs_runtime *rt;
    const char *const *names;
    size_t count;
    int64_t wait_ms;
    const dibs_lock_options *options;
    dibs_task *task;
    dibs_status status;
    char detail[256];
};

static void run_lock(void *arg)
{
    struct call *call = arg;

    if (call->task && dibs_task_enter(call->task) != DIBS_OK)
        return;
    call->status = dibs_lock_names(call->rt, call->names, call->count, call->wait_ms, call->options);
    snprintf(call->detail, sizeof call->detail, "%s", call->status == DIBS_OK ? "" : dibs_last_error());
    if (call->task)
        (void)dibs_task_leave(call->task);
}

static void run_unlock(void *arg)
{
    struct call *call = arg;

    call->status = dibs_unlock_names(call->rt, call->names, call->count);
}

static void begin_lock_names(struct call *call)
{
    if (!call->actor)
        call->actor = actor_start();
    actor_begin(call->actor, run_lock, call);
}

static dibs_status end_of(struct call *call)
{
    actor_finish(call->actor);
    return call->status;
}

static dibs_status lock_by(struct call *call)
{
    begin_lock_names(call);
    return end_of(call);
}

static dibs_status unlock_by(struct call *call)
{
    actor_begin(call->actor, run_unlock, call);
    return end_of(call);
}

/* ------------------------------------------------------------------- threads */

TEST_ON(each_of_several_names_is_held_by_itself, struct pair *p)
{
    static const char *const given[] = {"c", "a", "c", "b", "a"}, *const back[] = {"b", "c", "b", "a"};

    assert_status(DIBS_OK, dibs_lock_names(p->rt, given, COUNT(given), FOREVER, NULL));
    for (size_t i = 0; i < COUNT(given); i++) {
        assert_int_equal(hold_of(p->rt, given[i]).count, 1);
        assert_status(DIBS_BUSY, dibs_trylock(p->other, given[i]));
    }
    assert_int_equal(stats_of(p->rt).acquired, 3);
    assert_int_equal(stats_of(p->rt).holds, 3);
    assert_status(DIBS_OK, dibs_unlock(p->rt, "a"));
    assert_status(DIBS_OK, dibs_lock(p->rt, "a"));
    assert_status(DIBS_OK, dibs_unlock_names(p->rt, back, COUNT(back)));
    for (size_t i = 0; i < COUNT(given); i++) {
        assert_status(DIBS_NOT_HELD, dibs_check(p->rt, given[i]));
        expect_free(p->other, given[i]);
    }
    assert_int_equal(stats_of(p->rt).holds, 0);
    assert_int_equal(stats_of(p->rt).leases, 0);
    assert_int_equal(stats_of(p->rt).not_held, 0);
}

TEST_ON(locking_no_names_does_nothing, struct pair *p)
{
    assert_status(DIBS_OK, dibs_lock_names(p->rt, NULL, 0, 0, NULL));
    assert_status(DIBS_OK, dibs_unlock_names(p->rt, NULL, 0));
}

TEST_ON(locking_several_names_checks_its_arguments_first, struct pair *p)
{
    static const char *const good[] = {"a"}, *const null[] = {"a", NULL}, *const empty[] = {"a", ""};
    static const char *many[DIBS_NAMES_MAX + 1];

    for (size_t i = 0; i < COUNT(many); i++)
        many[i] = "a";
    assert_status(DIBS_INVALID, dibs_lock_names(NULL, good, 1, 0, NULL));
    assert_status(DIBS_INVALID, dibs_lock_names(p->rt, NULL, 1, 0, NULL));
    assert_status(DIBS_INVALID, dibs_lock_names(p->rt, null, 2, 0, NULL));
    assert_status(DIBS_INVALID, dibs_lock_names(p->rt, empty, 2, 0, NULL));
    assert_status(DIBS_INVALID, dibs_lock_names(p->rt, many, COUNT(many), 0, NULL));
    assert_status(DIBS_INVALID, dibs_lock_names(p->rt, good, 1, -2, NULL));
    assert_status(DIBS_INVALID, dibs_lock_names(p->rt, good, 1, 0, &(dibs_lock_options){.flags = 1u << 31}));
    assert_status(DIBS_OK, dibs_lock_names(p->rt, many, DIBS_NAMES_MAX, 0, NULL));
    assert_int_equal(hold_of(p->rt, "a").count, 1);
    assert_status(DIBS_INVALID, dibs_unlock_names(NULL, good, 1));
    assert_status(DIBS_INVALID, dibs_unlock_names(p->rt, null, 2));
    assert_status(DIBS_INVALID, dibs_unlock_names(p->rt, many, COUNT(many)));
    assert_int_equal(hold_of(p->rt, "a").count, 1);
    assert_status(DIBS_OK, dibs_unlock_names(p->rt, many, DIBS_NAMES_MAX));
    assert_status(DIBS_NOT_HELD, dibs_check(p->rt, "a"));
}

TEST_ON(one_taken_name_leaves_none_of_them_held, struct pair *p)
{
    static const char *const names[] = {"c", "b", "a"};

    assert_status(DIBS_OK, dibs_lock(p->other, "b"));
    assert_status(DIBS_BUSY, dibs_lock_names(p->rt, names, COUNT(names), 0, NULL));
    expect_error_names("\"b\"");
    assert_int_equal(stats_of(p->rt).busy, 1);
    assert_status(DIBS_TIMEOUT, dibs_lock_names(p->rt, names, COUNT(names), 30, NULL));
    assert_string_equal(dibs_last_error(), "somebody else held \"b\" when 30 ms had passed");
    assert_int_equal(stats_of(p->rt).busy, 1);
    assert_int_equal(stats_of(p->rt).timed_out, 1);
    expect_free(p->other, "a");
    expect_free(p->other, "c");
    assert_status(DIBS_NOT_HELD, dibs_check(p->rt, "a"));
    assert_int_equal(stats_of(p->rt).holds, 0);
    assert_int_equal(stats_of(p->rt).leases, 0);
    assert_status(DIBS_OK, dibs_unlock(p->other, "b"));
}

/* While the call waits for a name it holds the names before it, and none after it. */
TEST_ON(a_waiting_call_holds_only_the_names_before, struct pair *p)
{
    static const char *const names[] = {"d", "c", "b", "a"};
    struct call call = {.rt = p->rt, .names = names, .count = COUNT(names), .wait_ms = FOREVER};

    assert_status(DIBS_OK, dibs_lock(p->other, "b"));
    assert_status(DIBS_OK, dibs_lock(p->other, "c"));
    begin_lock_names(&call);
    await_waiter(p->other, "b");
    assert_status(DIBS_BUSY, dibs_trylock(p->other, "a"));
    expect_free(p->other, "d");
    assert_false(has_waiter(p->other, "c"));
    assert_status(DIBS_OK, dibs_unlock(p->other, "b"));
    await_waiter(p->other, "c");
    assert_status(DIBS_BUSY, dibs_trylock(p->other, "b"));
    expect_free(p->other, "d");
    assert_status(DIBS_OK, dibs_unlock(p->other, "c"));
    assert_status(DIBS_OK, end_of(&call));
    for (size_t i = 0; i < COUNT(names); i++)
        assert_status(DIBS_BUSY, dibs_trylock(p->other, names[i]));
    assert_status(DIBS_OK, unlock_by(&call));
}

TEST_ON(names_already_held_are_entered_again, struct pair *p)
{
    static const char *const names[] = {"a", "b", "c"};

    assert_status(DIBS_OK, dibs_lock(p->rt, "b"));
    assert_status(DIBS_OK, dibs_lock_names(p->rt, names, COUNT(names), 0, NULL));
    assert_int_equal(hold_of(p->rt, "b").count, 2);
    assert_int_equal(stats_of(p->rt).reentered, 1);
    assert_status(DIBS_OK, dibs_lock_names(p->rt, names, COUNT(names), 0, NULL));
    assert_int_equal(hold_of(p->rt, "a").count, 2);
    assert_status(DIBS_OK, dibs_unlock_names(p->rt, names, COUNT(names)));
    assert_status(DIBS_OK, dibs_unlock_names(p->rt, names, COUNT(names)));
    assert_status(DIBS_NOT_HELD, dibs_check(p->rt, "a"));
    assert_int_equal(hold_of(p->rt, "b").count, 1);
    assert_status(DIBS_OK, dibs_unlock(p->rt, "b"));
}

/* Earlier holds keep their counts when the call fails. */
TEST_ON(a_failure_leaves_earlier_holds, struct pair *p)
{
    static const char *const names[] = {"a", "b", "c"};
    const dibs_lock_options once = {.flags = DIBS_NO_REENTRY};

    assert_status(DIBS_OK, dibs_lock(p->rt, "b"));
    assert_status(DIBS_OK, dibs_lock(p->other, "c"));
    assert_status(DIBS_BUSY, dibs_lock_names(p->rt, names, COUNT(names), 0, NULL));
    expect_error_names("\"c\"");
    assert_int_equal(hold_of(p->rt, "b").count, 1);
    expect_free(p->other, "a");
    uint64_t commands = stats_of(p->rt).store_commands;
    assert_status(DIBS_BUSY, dibs_lock_names(p->rt, names, COUNT(names), FOREVER, &once));
    expect_error_names("\"b\"");
    assert_int_equal(stats_of(p->rt).store_commands, commands);
    assert_int_equal(hold_of(p->rt, "b").count, 1);
    assert_int_equal(stats_of(p->rt).reentered, 0);
    assert_status(DIBS_OK, dibs_unlock(p->rt, "b"));
    assert_status(DIBS_OK, dibs_unlock(p->other, "c"));
}

/* A thread that was stopped for as long as the lease came too late, and tries again. */
static void lock_briefly(dibs_runtime *rt, const char *name, const dibs_lock_options *brief)
{
    dibs_status status;

    do
        status = dibs_lock_with(rt, name, 0, brief);
    while (status == DIBS_UNAVAILABLE);
    assert_status(DIBS_OK, status);
}

TEST_ON(a_lost_hold_fails_at_once, struct pair *p)
{
    static const char *const names[] = {"a", "b"};
    const dibs_lock_options brief = {.lease_ms = 30, .flags = DIBS_FIXED_LEASE};

    lock_briefly(p->rt, "b", &brief);
    await_lost(p->rt, "b");
    assert_status(DIBS_OK, dibs_lock(p->other, "a"));
    assert_status(DIBS_LOST, dibs_lock_names(p->rt, names, COUNT(names), LIMIT_MS, NULL));
    expect_error_names("\"b\"");
    assert_int_equal(stats_of(p->rt).contended, 0);
    assert_status(DIBS_LOST, dibs_unlock(p->rt, "b"));
    assert_status(DIBS_OK, dibs_unlock(p->other, "a"));
    expect_free(p->other, "a");
}

/* Though a name before it can't be entered again. */
TEST_ON(a_lost_hold_comes_before_one_that_cannot_be_entered_again, struct pair *p)
{
    static const char *const names[] = {"a", "b"};
    const dibs_lock_options brief = {.lease_ms = 30, .flags = DIBS_FIXED_LEASE}, once = {.flags = DIBS_NO_REENTRY};

    assert_status(DIBS_OK, dibs_lock(p->rt, "a"));
    assert_status(DIBS_BUSY, dibs_lock_names(p->rt, names, COUNT(names), 0, &once));
    expect_error_names("\"a\"");
    lock_briefly(p->rt, "b", &brief);
    await_lost(p->rt, "b");
    assert_status(DIBS_LOST, dibs_lock_names(p->rt, names, COUNT(names), 0, &once));
    expect_error_names("\"b\"");
    assert_status(DIBS_LOST, dibs_unlock(p->rt, "b"));
    assert_status(DIBS_OK, dibs_unlock(p->rt, "a"));
}

static void let_half_a_second_pass(void *arg)
{
    stage *s = arg;

    moved_clock_advance(&s->clock, MS(500));
}

/* While the call gives back what it was granted, a lock ends that the owner held before. */
TEST_WITH(a_hold_that_ends_while_others_are_given_back_is_a_loss, stage_setup, stage_teardown, stage *s)
{
    static const char *const names[] = {"a", "b", "c"};
    const dibs_lock_options brief = {.lease_ms = 400, .flags = DIBS_FIXED_LEASE};

    stage_open_at(s, "mem:given-back", 0);
    stage_rival(s, 0, "c");
    assert_status(DIBS_OK, dibs_lock_with(s->rt, "a", 0, &brief));
    s->faults.on_release_arg = s;
    s->faults.on_release = let_half_a_second_pass;
    assert_status(DIBS_LOST, dibs_lock_names(s->rt, names, COUNT(names), 0, NULL));
    expect_error_names("\"a\"");
    s->faults.on_release = NULL;
    assert_int_equal(faults_count(&s->faults, &s->faults.releases), 1);
    assert_status(DIBS_LOST, dibs_unlock(s->rt, "a"));
}

/* A name that was granted first is lost while the last is waited for. */
TEST_ON(a_loss_before_the_end_fails_the_call, struct pair *p)
{
    static const char *const names[] = {"a", "b", "c"};
    const dibs_lock_options brief = {.lease_ms = 40, .flags = DIBS_FIXED_LEASE};
    struct call call = {.rt = p->rt, .names = names, .count = COUNT(names), .wait_ms = FOREVER, .options = &brief};

    assert_status(DIBS_OK, dibs_lock(p->other, "c"));
    begin_lock_names(&call);
    /* Where the thread is stopped for as long as the lease, it finds the loss before it waits. */
    await_that(has_waiter(p->other, "c") || !actor_busy(call.actor));
    await_free(p->other, "a");
    assert_status(DIBS_OK, dibs_unlock(p->other, "c"));
    assert_status(DIBS_LOST, end_of(&call));
    assert_that(strstr(call.detail, "\"a\""), "%s", call.detail);
    await_free(p->other, "b");
    await_free(p->other, "c");
    actor_end(call.actor);
    assert_int_equal(stats_of(p->rt).holds, 0);
}

/* The time is over, or one try finds a name taken: the loss is the more important reason. */
TEST_ON(a_loss_is_reported_before_other_reasons, struct pair *p)
{
    static const char *const names[] = {"a", "b", "c"};
    const dibs_lock_options brief = {.lease_ms = 30, .flags = DIBS_FIXED_LEASE};

    assert_status(DIBS_OK, dibs_lock(p->other, "c"));
    assert_status(DIBS_LOST, dibs_lock_names(p->rt, names, COUNT(names), 400, &brief));
    expect_error_names("\"a\"");
    for (size_t i = 0; i < COUNT(names); i++)
        assert_status(DIBS_NOT_HELD, dibs_check(p->rt, names[i]));
    assert_int_equal(stats_of(p->rt).holds, 0);
    await_waiters(p->other, "c", 0);
    assert_status(DIBS_OK, dibs_unlock(p->other, "c"));
    expect_free(p->other, "a");
    expect_free(p->other, "b");
}

/* A hold from before the call counts as well. */
TEST_ON(a_loss_of_an_earlier_hold_fails_the_call, struct pair *p)
{
    static const char *const names[] = {"a", "b"};
    const dibs_lock_options brief = {.lease_ms = 150, .flags = DIBS_FIXED_LEASE};

    assert_status(DIBS_OK, dibs_lock(p->other, "b"));
    lock_briefly(p->rt, "a", &brief);
    struct call call = {.actor = actor_start(), .rt = p->other, .names = &names[1], .count = 1};
    assert_status(DIBS_OK, dibs_unlock(p->other, "b"));
    assert_int_equal(actor_lock_with(call.actor, p->other, "b", 0, &(dibs_lock_options){1000, DIBS_FIXED_LEASE, 0}),
                     DIBS_OK);
    assert_status(DIBS_LOST, dibs_lock_names(p->rt, names, COUNT(names), FOREVER, NULL));
    expect_error_names("\"a\"");
    assert_status(DIBS_NOT_HELD, dibs_check(p->rt, "b"));
    assert_status(DIBS_LOST, dibs_unlock(p->rt, "a"));
    unlock_by(&call);
}

/* The first status in the order given, and all are given up. */
TEST_ON(unlocking_several_names_reports_the_first_failure, struct pair *p)
{
    static const char *const names[] = {"d", "x", "b", "y", "a"}, *const held[] = {"a", "b", "d"};

    assert_status(DIBS_OK, dibs_lock_names(p->rt, held, COUNT(held), 0, NULL));
    assert_status(DIBS_NOT_HELD, dibs_unlock_names(p->rt, names, COUNT(names)));
    expect_error_names("\"x\"");
    for (size_t i = 0; i < COUNT(held); i++)
        expect_free(p->other, held[i]);
    assert_status(DIBS_OK, dibs_lock_names(p->rt, held, COUNT(held), 0, NULL));
    assert_status(DIBS_OK, dibs_force_unlock(p->other, "d", NULL));
    assert_status(DIBS_LOST, dibs_unlock_names(p->rt, names, COUNT(names)));
    expect_error_names("\"d\"");
    for (size_t i = 0; i < COUNT(held); i++)
        expect_free(p->other, held[i]);
    assert_int_equal(stats_of(p->rt).leases, 0);
}

/* The name is unlocked once, and not held the second time. */
TEST_ON(a_name_twice_is_not_held_once, struct pair *p)
{
    static const char *const names[] = {"x", "a", "x", "y", "a", "x"};

    assert_status(DIBS_OK, dibs_lock(p->rt, "a"));
    assert_status(DIBS_OK, dibs_lock(p->rt, "a"));
    assert_status(DIBS_NOT_HELD, dibs_unlock_names(p->rt, names, COUNT(names)));
    expect_error_names("\"x\"");
    assert_int_equal(stats_of(p->rt).not_held, 2);
    assert_int_equal(hold_of(p->rt, "a").count, 1);
    assert_status(DIBS_OK, dibs_unlock(p->rt, "a"));
}

TEST_ON(no_names_are_acquired_after_shutdown, struct pair *p)
{
    static const char *const names[] = {"a", "b"};
    struct call call = {.rt = p->rt, .names = names, .count = COUNT(names), .wait_ms = FOREVER};

    assert_status(DIBS_OK, dibs_lock(p->other, "b"));
    begin_lock_names(&call);
    await_waiter(p->other, "b");
    dibs_shutdown(p->rt);
    assert_status(DIBS_CLOSED, end_of(&call));
    expect_free(p->other, "a");
    assert_status(DIBS_CLOSED, dibs_lock_names(p->rt, names, COUNT(names), 0, NULL));
    assert_status(DIBS_CLOSED, dibs_lock_names(p->rt, NULL, 0, 0, NULL));
    actor_end(call.actor);
    assert_status(DIBS_OK, dibs_unlock(p->other, "b"));
}

TEST_ON(close_ends_holds_of_several_names, struct pair *p)
{
    static const char *const names[] = {"a", "b"};
    struct call call = {.rt = p->rt, .names = names, .count = COUNT(names)};

    assert_status(DIBS_OK, lock_by(&call));
    dibs_close(p->rt);
    assert_status(DIBS_LOST, unlock_by(&call));
    assert_status(DIBS_NOT_HELD, unlock_by(&call));
    actor_end(call.actor);
    expect_free(p->other, "a");
}

/* Fair acquires that fail leave nothing, and get what is free. */
TEST_ON(several_names_may_be_locked_fairly, struct pair *p)
{
    static const char *const names[] = {"a", "b", "c"};
    const dibs_lock_options fair = {.flags = DIBS_FAIR};
    struct call call = {.rt = p->rt, .names = names, .count = COUNT(names), .wait_ms = FOREVER, .options = &fair};

    assert_status(DIBS_OK, dibs_lock_names(p->rt, names, COUNT(names), 0, &fair));
    assert_status(DIBS_OK, dibs_unlock_names(p->rt, names, COUNT(names)));
    assert_status(DIBS_OK, dibs_lock(p->other, "b"));
    begin_lock_names(&call);
    await_waiter(p->other, "b");
    expect_free(p->other, "c");
    assert_status(DIBS_OK, dibs_unlock(p->other, "b"));
    assert_status(DIBS_OK, end_of(&call));
    assert_status(DIBS_OK, unlock_by(&call));
}

/* Two calls of one process: the second waits for what the first has, without the store. */
TEST_ON(threads_locking_several_names_exclude_each_other, struct pair *p)
{
    static const char *const names[] = {"a", "b", "c"};
    struct call call = {.rt = p->rt, .names = names, .count = COUNT(names)};

    assert_status(DIBS_OK, dibs_lock(p->rt, "b"));
    assert_status(DIBS_BUSY, lock_by(&call));
    call.wait_ms = FOREVER;
    begin_lock_names(&call);
    await_that(!is_free(p->other, "a"));
    actor_await_asleep(call.actor);
    lock_and_release(p->rt, "c", 0);
    assert_status(DIBS_OK, dibs_unlock(p->rt, "b"));
    assert_status(DIBS_OK, end_of(&call));
    assert_status(DIBS_OK, unlock_by(&call));
}

/* --------------------------------------------------------------------- tasks */

TEST_ON(an_entered_task_holds_several_names, struct pair *p)
{
    static const char *const names[] = {"a", "b", "c"};
    dibs_task *task = task_of_runtime(p->rt);

    assert_status(DIBS_OK, dibs_task_enter(task));
    assert_status(DIBS_OK, dibs_lock(p->rt, "b"));
    assert_status(DIBS_OK, dibs_lock_names(p->rt, names, COUNT(names), 0, NULL));
    assert_int_equal(hold_of(p->rt, "b").count, 2);
    assert_status(DIBS_OK, dibs_task_leave(task));
    assert_status(DIBS_NOT_HELD, dibs_check(p->rt, "a"));
    assert_status(DIBS_BUSY, dibs_lock_names(p->rt, names, COUNT(names), 0, NULL));
    assert_status(DIBS_OK, dibs_task_enter(task));
    assert_status(DIBS_OK, dibs_unlock_names(p->rt, names, COUNT(names)));
    assert_status(DIBS_OK, dibs_unlock(p->rt, "b"));
    assert_status(DIBS_OK, dibs_lock_names(p->rt, names, COUNT(names), 0, NULL));
    dibs_task_free(task);
    for (size_t i = 0; i < COUNT(names); i++)
        await_free(p->other, names[i]);
}

TEST_ON(a_cancel_ends_a_call_for_several_names, struct pair *p)
{
    static const char *const names[] = {"a", "b", "c"};
    struct call call = {.rt = p->rt, .names = names, .count = COUNT(names), .wait_ms = FOREVER};

    call.task = task_of_runtime(p->rt);
    assert_status(DIBS_OK, dibs_lock(p->other, "b"));
    begin_lock_names(&call);
    await_waiter(p->other, "b");
    assert_status(DIBS_BUSY, dibs_trylock(p->other, "a"));
    dibs_task_cancel(call.task);
    assert_status(DIBS_CANCELLED, end_of(&call));
    await_free(p->other, "a");
    await_waiters(p->other, "b", 0);
    call.wait_ms = 0;
    assert_status(DIBS_CANCELLED, lock_by(&call));
    assert_int_equal(stats_of(p->rt).cancelled, 2);
    actor_end(call.actor);
    dibs_task_free(call.task);
    assert_status(DIBS_OK, dibs_unlock(p->other, "b"));
}

/* A re-entry is no first acquire. */
TEST_ON(a_cancelled_task_may_re_enter_several_names, struct pair *p)
{
    static const char *const names[] = {"b", "a"}, *const more[] = {"a", "c"};
    dibs_task *task = task_of_runtime(p->rt);

    assert_status(DIBS_OK, dibs_task_enter(task));
    assert_status(DIBS_OK, dibs_lock_names(p->rt, names, COUNT(names), 0, NULL));
    dibs_task_cancel(task);
    assert_status(DIBS_OK, dibs_lock_names(p->rt, names, COUNT(names), FOREVER, NULL));
    assert_status(DIBS_CANCELLED, dibs_lock_names(p->rt, more, COUNT(more), FOREVER, NULL));
    assert_int_equal(hold_of(p->rt, "a").count, 2);
    assert_int_equal(hold_of(p->rt, "b").count, 2);
    assert_int_equal(stats_of(p->rt).cancelled, 1);
    assert_status(DIBS_OK, dibs_unlock_names(p->rt, names, COUNT(names)));
    assert_status(DIBS_OK, dibs_unlock_names(p->rt, names, COUNT(names)));
    dibs_task_free(task);
    expect_free(p->other, "a");
    expect_free(p->other, "c");
}

TEST_ON(a_task_waits_for_several_names, struct pair *p)
{
    static const char *const names[] = {"d", "c", "b", "a"};
    struct call call = {.rt = p->rt, .names = names, .count = COUNT(names), .wait_ms = FOREVER};

    call.task = test_task(task_of_runtime(p->rt));
    assert_status(DIBS_OK, dibs_lock(p->other, "b"));
    assert_status(DIBS_OK, dibs_lock(p->other, "d"));
    begin_lock_names(&call);
    await_waiter(p->other, "b");
    expect_free(p->other, "c");
    assert_status(DIBS_OK, dibs_unlock(p->other, "b"));
    await_waiter(p->other, "d");
    assert_status(DIBS_BUSY, dibs_trylock(p->other, "c"));
    assert_status(DIBS_OK, dibs_unlock(p->other, "d"));
    assert_status(DIBS_OK, end_of(&call));
    call.wait_ms = 20;
    struct call second = {.rt = p->other, .names = names, .count = COUNT(names), .wait_ms = 20};
    second.task = test_task(task_of_runtime(p->other));
    assert_status(DIBS_TIMEOUT, lock_by(&second));
    assert_that(strstr(second.detail, "\"a\""), "%s", second.detail);
}

TESTS(setup, teardown)
