/* Kept leases: when the process keeps one, how it is taken again, and what it is given back for. */
#include <unistd.h>

#include "kept_setup.h"
#include "support/child.h"
#include "support/tasks.h"

/* ------------------------------------------------------------------- when it is kept */

TEST_ON(a_name_that_is_locked_four_times_in_a_row_is_kept, fixture *f)
{
    open_keeping(f, KEEP_LONG_MS);
    keep(f->rt, "x");
    for (int i = 1; i < IN_A_ROW; i++) {
        lock_and_release(f->rt, "y", DIBS_WAIT_FOREVER);
        assert_false(server_has(f->server, "lock:y"));
        assert_int_equal(stats_of(f->rt).kept, 1);
    }
    lock_and_release(f->rt, "y", DIBS_WAIT_FOREVER);
    assert_true(server_has(f->server, "lock:y"));
    dibs_stats stats = stats_of(f->rt);
    assert_int_equal(stats.kept, 2);
    assert_int_equal(stats.leases, 2);
    assert_int_equal(stats.holds, 0);
    assert_int_equal(stats.acquired, stats.released);
}

TEST_ON(no_lease_is_kept_unless_configured, fixture *f)
{
    fixture_open_patient(f, 0);
    assert_status(DIBS_OK, dibs_lock(f->rt, "held"));
    await_tracked(f->server, f->rt, 1);
    for (int i = 0; i < 3 * IN_A_ROW; i++) {
        lock_and_release(f->rt, "x", DIBS_WAIT_FOREVER);
        assert_false(server_has(f->server, "lock:x"));
    }
    assert_int_equal(stats_of(f->rt).kept, 0);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "held"));
}

static void expect_never_kept(fixture *f, const dibs_lock_options *options)
{
    uint64_t retaken = stats_of(f->rt).retaken;

    for (int i = 0; i < 2 * IN_A_ROW; i++) {
        assert_status(DIBS_OK, dibs_lock_with(f->rt, "x", DIBS_WAIT_FOREVER, options));
        unlock_for_good(f, "x");
    }
    assert_int_equal(stats_of(f->rt).retaken, retaken);
}

TEST_ON(fair_fixed_and_shared_locks_are_never_kept, fixture *f)
{
    open_keeping(f, KEEP_LONG_MS);
    keep(f->rt, "other");
    expect_never_kept(f, &(dibs_lock_options){.flags = DIBS_FAIR});
    expect_never_kept(f, &(dibs_lock_options){.flags = DIBS_FIXED_LEASE});
    expect_never_kept(f, &(dibs_lock_options){.flags = DIBS_SHARED});
    expect_never_kept(f, &(dibs_lock_options){.flags = DIBS_SHARED, .limit = 2});
}

TEST_ON(an_extended_lease_is_never_kept, fixture *f)
{
    open_keeping(f, KEEP_LONG_MS);
    keep(f->rt, "x");
    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    assert_status(DIBS_OK, dibs_extend(f->rt, "x", 50000));
    unlock_for_good(f, "x");
    assert_int_equal(stats_of(f->rt).kept, 0);
}

TEST_ON(no_lease_is_kept_where_none_is_handed_over, fixture *f)
{
    f->config.handoff_ms = DIBS_NO_HANDOFF;
    open_keeping(f, KEEP_LONG_MS);
    assert_status(DIBS_OK, dibs_lock(f->rt, "held"));
    await_tracked(f->server, f->rt, 1);
    expect_never_kept(f, NULL);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "held"));
}

/* A lease that is short while it is kept could end before whoever takes it again has renewed it. */
TEST_ON(no_lease_is_kept_of_a_server_far_away, fixture *f)
{
    enum { DELAY_MS = 80 };
    script_server *net = fixture_between(f);
    dibs_runtime *far = test_runtime(
        open_url(script_server_url(net), &(dibs_config){.keep_ms = DELAY_MS / 2, .command_timeout_ms = LIMIT_MS}));

    keep(far, "near");
    uint64_t retaken = stats_of(far).retaken;
    script_server_delay(net, DELAY_MS);
    for (int i = 0; i < 2 * IN_A_ROW; i++)
        lock_and_release(far, "x", DIBS_WAIT_FOREVER);
    assert_int_equal(stats_of(far).retaken, retaken);
    script_server_delay(net, 0);
}

TEST_WITH(a_store_in_memory_works_with_keep_ms, NULL, NULL, void *none)
{
    const dibs_config config = {.keep_ms = 1000};
    dibs_runtime *rt = test_runtime(open_url("mem:", &config));

    for (int i = 0; i < 2 * IN_A_ROW; i++)
        lock_and_release(rt, "x", DIBS_WAIT_FOREVER);
}

/* ------------------------------------------------------------------------ taken again */

TEST_ON(a_kept_lease_is_taken_without_a_command, fixture *f)
{
    enum { PAIRS = 5000 };
    uint64_t fence = 0;

    open_keeping(f, KEEP_LONG_MS);
    keep(f->rt, "x");
    dibs_stats before = stats_of(f->rt);
    for (int i = 0; i < PAIRS; i++) {
        assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
        assert_true(fence_of(f->rt, "x") > fence);
        fence = fence_of(f->rt, "x");
        assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    }
    dibs_stats stats = stats_of(f->rt);
    /* All but those that waited for a raise, and those during which the loop was stalled. */
    assert_that(stats.retaken - before.retaken > PAIRS / 2, "%lu retaken", (unsigned long)stats.retaken);
    assert_int_equal(stats.acquired - before.acquired, PAIRS);
    assert_int_equal(stats.released - before.released, PAIRS);
    assert_int_equal(stats.handed_off, 0);
    assert_int_equal(stats.lost, 0);
    dibs_runtime *other = test_runtime(open_runtime(f->server, 0));
    assert_status(DIBS_OK, dibs_lock(other, "x"));
    assert_true(fence_of(other, "x") > fence);
    assert_status(DIBS_OK, dibs_unlock(other, "x"));
}

TEST_ON(any_thread_and_any_task_may_take_a_kept_lease, fixture *f)
{
    dibs_queue *q = test_queue(queue_new());
    actor *a = actor_start();

    open_keeping(f, KEEP_LONG_MS);
    keep(f->rt, "x");
    uint64_t retaken = stats_of(f->rt).retaken;
    assert_status(DIBS_OK, actor_lock(a, f->rt, "x", 0));
    assert_status(DIBS_BUSY, dibs_trylock(f->rt, "x"));
    assert_status(DIBS_OK, actor_unlock(a, f->rt, "x"));
    dibs_task *task = task_of_runtime(f->rt);
    assert_status(DIBS_OK, task_lock(task, "x", DIBS_WAIT_FOREVER, q));
    assert_status(DIBS_OK, task_unlock(task, "x", q));
    assert_int_equal(stats_of(f->rt).retaken, retaken + 2);
    assert_status(DIBS_OK, task_lock(task, "x", 0, q));
    dibs_task_free(task);
    assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS));
    keep(f->rt, "x");
    assert_status(DIBS_OK, actor_lock(a, f->rt, "x", 0));
    actor_exit(a); /* a lease that a thread leaves behind is released, not kept */
    assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS));
}

enum { SHORT_KEEP = 2000, SHORT = 4 * SHORT_KEEP };

static bool is_short(fixture *f)
{
    long long left;

    return owner_of(f->rt, "x").kept && (left = server_integer(f->server, "PTTL lock:x")) > 0 && left <= SHORT;
}

/* The store is told of it within 20 ms; and again when the lease is taken. */
TEST_ON(a_kept_lease_is_short_in_the_store_and_taken_it_is_long, fixture *f)
{
    open_keeping(f, SHORT_KEEP);
    keep(f->rt, "x");
    await_that(is_short(f));
    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    assert_true(hold_of(f->rt, "x").remaining_ms <= 30000);
    await_that(!owner_of(f->rt, "x").kept && server_integer(f->server, "PTTL lock:x") > SHORT &&
               hold_of(f->rt, "x").remaining_ms > SHORT);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
}

#define UNSURE_KEEP 500
#define UNSURE_MS (4 * UNSURE_KEEP) /* what the lease is then cut to */

static bool is_held_for_long(fixture *f)
{
    return hold_of(f->rt, "x").remaining_ms > UNSURE_MS;
}

/*
 * The lease is taken when the server has been told to shorten it, and has not answered: so nobody here counts on more
 * than that. False: it was taken too late, or too early, when something else was sent.
 */
static bool is_taken_unsure(fixture *f)
{
    keep(f->rt, "x");
    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    await_that(is_held_for_long(f));
    server_pause(f->server);
    dibs_stats before = stats_of(f->rt);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    await_that(stats_of(f->rt).store_commands > before.store_commands);
    dibs_status status = dibs_trylock(f->rt, "x");
    if (status == DIBS_OK && stats_of(f->rt).retaken > before.retaken && !is_held_for_long(f))
        return true;
    server_resume(f->server);
    if (status == DIBS_OK)
        dibs_unlock(f->rt, "x");
    return false;
}

/* The server may have done it. */
TEST_ON(a_kept_lease_is_short_before_the_server_has_answered, fixture *f)
{
    open_keeping(f, UNSURE_KEEP);
    await_that(is_taken_unsure(f));
    await_lost(f->rt, "x");
    assert_status(DIBS_LOST, dibs_unlock(f->rt, "x"));
    server_resume(f->server);
}

/*
 * A grant has 1,024 fences. More are the process's own once the server has answered that no other grant will have them:
 * until then the last one is released, not kept.
 */
TEST_ON(no_fence_is_used_before_the_server_made_it_sure, fixture *f)
{
    dibs_status status = DIBS_OK;
    unsigned taken = 0;

    open_keeping(f, KEEP_LONG_MS);
    keep(f->rt, "x");
    server_pause(f->server);
    while (status == DIBS_OK && taken < 3000) {
        assert_status(DIBS_OK, dibs_trylock(f->rt, "x"));
        taken++;
        status = dibs_unlock(f->rt, "x");
    }
    assert_int_equal(status, DIBS_UNAVAILABLE);
    assert_in_range(taken, 500, 1024);
    server_resume(f->server);
}

TEST_ON(a_kept_lease_that_nobody_uses_is_given_back, fixture *f)
{
    open_keeping(f, 100);
    keep(f->rt, "x");
    assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS));
    assert_true(comes_to_nothing(f->rt));
    assert_int_equal(stats_of(f->rt).kept, 0);
    assert_int_equal(stats_of(f->rt).lost, 0);
    keep(f->rt, "x"); /* this does not prevent keeping it again */
}

/* -------------------------------------------------------------- what it is given back for */

static void expect_given_back_for(fixture *f, const dibs_lock_options *options)
{
    keep(f->rt, "x");
    uint64_t retaken = stats_of(f->rt).retaken;
    const char *before = server_text(f->server, "GET lock:x");
    assert_status(DIBS_OK, dibs_lock_with(f->rt, "x", LIMIT_MS, options));
    assert_string_not_equal(server_text(f->server, "GET lock:x"), before);
    assert_int_equal(stats_of(f->rt).retaken, retaken);
    assert_int_equal(stats_of(f->rt).lost, 0);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    if (options->flags != 0)
        assert_false(server_has(f->server, "lock:x"));
}

TEST_ON(an_acquire_with_another_lease_gives_the_kept_one_back, fixture *f)
{
    open_keeping(f, KEEP_LONG_MS);
    expect_given_back_for(f, &(dibs_lock_options){.lease_ms = 20000});
    expect_given_back_for(f, &(dibs_lock_options){.flags = DIBS_FIXED_LEASE});
    expect_given_back_for(f, &(dibs_lock_options){.flags = DIBS_FAIR});
    expect_given_back_for(f, &(dibs_lock_options){.flags = DIBS_SHARED});
}

TEST_ON(a_close_gives_all_kept_leases_back, fixture *f)
{
    enum { NAMES = 20 };

    open_keeping(f, KEEP_LONG_MS);
    for (int i = 0; i < NAMES; i++)
        keep(f->rt, formatted("x%d", i));
    assert_int_equal(stats_of(f->rt).kept, NAMES);
    close_runtime(&f->rt);
    server_assert_no_locks(f->server);
    assert_int_equal(events_count(&f->events, DIBS_EVENT_LOST, NULL), 0);
}

/* The note that nobody uses the lock outlives it, unless the keeper took the lease again just before. */
/* No acquire of this process can take them any more. */
TEST_ON(a_shutdown_gives_back_what_is_kept_and_keeps_nothing, fixture *f)
{
    open_keeping(f, KEEP_LONG_MS);
    keep(f->rt, "x");
    keep(f->rt, "y");
    assert_status(DIBS_OK, dibs_lock(f->rt, "y"));
    dibs_shutdown(f->rt);
    assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS));
    assert_status(DIBS_OK, dibs_unlock(f->rt, "y"));
    assert_true(server_wait_gone(f->server, "lock:y", LIMIT_MS));
    assert_int_equal(stats_of(f->rt).kept, 0);
}

TEST_ON(dibs_forget_deletes_the_note_of_a_kept_lease, fixture *f)
{
    open_keeping(f, KEEP_LONG_MS);
    dibs_runtime *other = open_runtime(f->server, 0);
    keep(f->rt, "x");
    await_shown_kept(other, "x");
    assert_status(DIBS_BUSY, dibs_forget(other, "x"));
    lock_and_release(other, "x", LIMIT_MS);
    dibs_close(f->rt);
    server_do(f->server, "SET dibs:kept:{lock:x} dibs:anybody PX 600000");
    assert_status(DIBS_OK, dibs_forget(other, "x"));
    assert_false(server_has(f->server, "dibs:kept:{lock:x}"));
    assert_false(server_has(f->server, "dibs:fence:{lock:x}"));
    f->rt = other;
}

/* The number of kept leases has a limit. */
TEST_ON(the_number_of_kept_names_is_limited, fixture *f)
{
    enum { NAMES = 6000, MOST = 4096 };
    int64_t begin = now_ms();

    open_keeping(f, KEEP_LONG_MS);
    keep(f->rt, "x");
    for (int i = 0; i < NAMES; i++) {
        const char *name = formatted("y%d", i);
        for (int j = 0; j < IN_A_ROW; j++)
            lock_and_release(f->rt, name, DIBS_WAIT_FOREVER);
    }
    uint64_t kept = stats_of(f->rt).kept;
    assert_that(kept <= MOST, "%lu kept", (unsigned long)kept);
    /* On a very slow machine the first are kept no longer. */
    assert_that(kept > MOST / 2 || now_ms() - begin > KEEP_LONG_MS, "%lu kept", (unsigned long)kept);
}

TEST_ON(kept_leases_are_given_back_when_tracking_ends, fixture *f)
{
    open_keeping(f, KEEP_LONG_MS);
    keep(f->rt, "x");
    await_shown_kept(f->rt, "x");
    kill_tracker(f->server);
    assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS));
    assert_int_equal(stats_of(f->rt).kept, 0);
    assert_int_equal(stats_of(f->rt).lost, 0);
    keep(f->rt, "x");
}

/* ------------------------------------------------------------------------------ losses */

TEST_ON(losing_a_kept_lease_is_not_told_as_a_loss, fixture *f)
{
    open_keeping(f, KEEP_LONG_MS);
    dibs_runtime *other = test_runtime(open_runtime(f->server, 0));
    keep(f->rt, "x");
    await_shown_kept(f->rt, "x");
    assert_status(DIBS_OK, dibs_force_unlock(other, "x", NULL));
    await_none_kept(f->rt);
    assert_status(DIBS_OK, dibs_lock(other, "x"));
    assert_status(DIBS_BUSY, dibs_trylock(f->rt, "x"));
    assert_status(DIBS_OK, dibs_unlock(other, "x"));
    lock_and_release(f->rt, "x", DIBS_WAIT_FOREVER);
    assert_int_equal(stats_of(f->rt).lost, 0);
    assert_int_equal(events_count(&f->events, DIBS_EVENT_LOST, NULL), 0);
}

TEST_ON(a_kept_lease_that_its_runtime_forced_open_is_not_taken, fixture *f)
{
    open_keeping(f, KEEP_LONG_MS);
    dibs_runtime *other = test_runtime(open_runtime(f->server, 0));
    for (int i = 0; i < 4; i++) {
        keep(f->rt, "x"); /* so new a lease is not watched yet: no message tells of what happens to it */
        const dibs_owner owner = owner_of(other, "x");
        assert_status(DIBS_OK, dibs_force_unlock(f->rt, "x", i % 2 ? owner.token : NULL));
        assert_status(DIBS_OK, dibs_trylock(other, "x"));
        assert_status(DIBS_BUSY, dibs_trylock(f->rt, "x"));
        assert_status(DIBS_OK, dibs_unlock(other, "x"));
    }
    assert_int_equal(stats_of(f->rt).lost, 0);
}

TEST_ON(a_lease_that_its_runtime_forced_open_while_it_was_in_use_is_not_kept, fixture *f)
{
    open_keeping(f, KEEP_LONG_MS);
    dibs_runtime *other = test_runtime(open_runtime(f->server, 0));
    for (int i = 0; i < 4; i++) {
        keep(f->rt, "x");
        assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
        assert_status(DIBS_OK, dibs_force_unlock(f->rt, "x", NULL));
        assert_status(DIBS_OK, dibs_trylock(other, "x"));
        assert_status(DIBS_LOST, dibs_unlock(f->rt, "x"));
        assert_status(DIBS_BUSY, dibs_trylock(f->rt, "x"));
        assert_status(DIBS_OK, dibs_unlock(other, "x"));
    }
}

/* Each look uses the lease, so that it is not given back meanwhile. */
static bool shows_kept_in_use(dibs_runtime *rt, const char *name)
{
    lock_and_release(rt, name, DIBS_WAIT_FOREVER);
    pause_ms(20);
    return owner_of(rt, name).kept;
}

/* Who takes a kept lease while the store says nothing is told in time that it can't be renewed. */
TEST_ON(a_kept_lease_that_is_taken_is_told_to_be_at_risk, fixture *f)
{
    int64_t limit = now_ms() + LIMIT_MS;

    f->config.command_timeout_ms = LIMIT_MS / 4;
    open_keeping(f, 1000);
    do { /* where the test was not let run for a second, the lease was given back */
        server_resume(f->server);
        await_that(shows_kept_in_use(f->rt, "x"));
        server_pause(f->server);
    } while (dibs_trylock(f->rt, "x") != DIBS_OK && now_ms() < limit);
    assert_int_equal(stats_of(f->rt).holds, 1);
    events_await(&f->events, DIBS_EVENT_AT_RISK, "x");
    server_resume(f->server);
    dibs_status status = dibs_unlock(f->rt, "x");
    assert_true(status == DIBS_OK || status == DIBS_LOST);
}

TEST_ON(after_a_restart_no_kept_lease_is_taken, fixture *f)
{
    open_keeping(f, KEEP_LONG_MS);
    keep(f->rt, "x");
    await_shown_kept(f->rt, "x");
    server_kill(f->server);
    await_none_kept(f->rt);
    server_restart(f->server);
    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    assert_true(server_has(f->server, "lock:x"));
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    assert_int_equal(stats_of(f->rt).lost, 0);
    assert_int_equal(events_count(&f->events, DIBS_EVENT_LOST, NULL), 0);
}

static void child_has_no_kept_lease(dibs_runtime *rt)
{
    dibs_stats stats;

    CHILD_WANTS(DIBS_OK, dibs_timedlock(rt, "x", LIMIT_MS)); /* the child recalls the lease of its parent */
    dibs_stats_get(rt, &stats);
    if (stats.retaken > 0 || stats.kept > 0)
        _exit(1);
    CHILD_WANTS(DIBS_OK, dibs_unlock(rt, "x"));
    dibs_close(rt);
}

TEST_ON(a_forked_child_has_no_kept_lease, fixture *f)
{
    open_keeping(f, KEEP_LONG_MS);
    keep(f->rt, "x");
    run_child(child_has_no_kept_lease, f->rt);
    await_none_kept(f->rt);
    lock_and_release(f->rt, "x", DIBS_WAIT_FOREVER);
    assert_int_equal(stats_of(f->rt).lost, 0);
}

TESTS(fixture_setup, fixture_teardown)
