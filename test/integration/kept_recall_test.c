/*
 * Kept leases that another client asks for: recalls that arrive in time, early, late, twice or never, and keepers that
 * do not answer.
 */
#include <pthread.h>

#include "kept_setup.h"
#include "support/agent.h"
#include "support/process.h"
#include "support/queue.h"
#include "support/script_server.h"

#define RECALL_MS 50 /* so long one try waits for the keeper */
#define PAUSE_MS 100 /* so long no lease of a name is kept after its first recall */

/* ----------------------------------------------------------------------------- recalls */

TEST_ON(a_recalled_name_goes_to_another_process_at_once, fixture *f)
{
    open_keeping(f, KEEP_LONG_MS);
    dibs_runtime *other = test_runtime(open_runtime(f->server, 0));
    keep(f->rt, "x");
    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    uint64_t fence = fence_of(f->rt, "x");
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    int64_t since = now_ms();
    assert_status(DIBS_OK, dibs_timedlock(other, "x", LIMIT_MS));
    assert_true(now_ms() - since < KEEP_LONG_MS / 2);
    assert_true(fence_of(other, "x") > fence);
    assert_int_equal(stats_of(f->rt).kept, 0);
    assert_status(DIBS_BUSY, dibs_trylock(f->rt, "x"));
    assert_status(DIBS_OK, dibs_unlock(other, "x"));
    assert_int_equal(stats_of(f->rt).lost, 0);
}

/* On a machine that is so busy that nobody answers in time, the lock may be taken. */
static void try_once(dibs_runtime *rt, const char *name)
{
    int64_t since = now_ms();
    dibs_status status = dibs_trylock(rt, name);

    assert_true(status == DIBS_OK || (status == DIBS_BUSY && now_ms() - since >= RECALL_MS));
    if (status == DIBS_OK)
        assert_status(DIBS_OK, dibs_unlock(rt, name));
}

/* This also works just after the unlock, when the store does not know yet that the lease is kept. */
TEST_ON(a_single_try_gets_a_kept_name, fixture *f)
{
    enum { NAMES = 50 };

    open_keeping(f, KEEP_LONG_MS);
    dibs_runtime *other = test_runtime(open_runtime(f->server, 0));
    for (int i = 0; i < NAMES; i++) {
        const char *name = formatted("x%d", i);
        keep(f->rt, name);
        if (i % 2)
            await_shown_kept(other, name);
        try_once(other, name);
    }
}

/*
 * A thread was just granted another lock that it waited for, and no longer reads; the next waiter would read the recall
 * for all.
 */
TEST_ON(a_recall_arrives_though_no_thread_listens, fixture *f)
{
    int64_t best = INT64_MAX, limit = now_ms() + LIMIT_MS; /* a busy machine may be late, but not each time */
    actor *a = actor_start();

    open_keeping(f, KEEP_LONG_MS);
    dibs_runtime *other = test_runtime(open_runtime(f->server, 0));
    for (int i = 0; best >= RECALL_MS / 2 && now_ms() < limit; i++) {
        const char *name = formatted("x%d", i);
        keep(f->rt, name);
        await_shown_kept(other, name); /* no further request reaches the store that it would answer with the recall */
        assert_status(DIBS_OK, dibs_lock(other, "taken"));
        actor_begin_lock(a, f->rt, "taken", DIBS_WAIT_FOREVER);
        queue_await(f->server, "taken", 1);
        assert_status(DIBS_OK, dibs_unlock(other, "taken"));
        assert_status(DIBS_OK, actor_result(a));
        int64_t since = now_ms();
        try_once(other, name);
        best = now_ms() - since < best ? now_ms() - since : best;
        assert_status(DIBS_OK, actor_unlock(a, f->rt, "taken"));
    }
    assert_true(best < RECALL_MS / 2);
}

TEST_ON(a_single_try_gets_several_kept_names, fixture *f)
{
    static const char *const names[] = {"x", "free", "y", "z"};

    open_keeping(f, KEEP_LONG_MS);
    dibs_runtime *other = test_runtime(open_runtime(f->server, 0));
    keep(f->rt, "x");
    keep(f->rt, "y");
    keep(f->rt, "z");
    int64_t since = now_ms();
    dibs_status status = dibs_lock_names(other, names, 4, 0, NULL);
    assert_true(status == DIBS_OK || (status == DIBS_BUSY && now_ms() - since >= RECALL_MS));
    if (status == DIBS_OK)
        assert_status(DIBS_OK, dibs_unlock_names(other, names, 4));
    await_none_kept(f->rt);
}

struct several {
    dibs_runtime *rt;
    const char *kept;
    dibs_status status;
};

static void try_both(void *arg)
{
    struct several *several = arg;

    several->status = dibs_lock_names(several->rt, (const char *const[]){several->kept, "taken"}, 2, 0, NULL);
}

/* The thread that asks for two names learns that one of them is taken, and gives up. Of the kept one it has learned
 * nothing: the single try that waited for its answer asks by itself. */
TEST_ON(a_single_try_behind_a_try_of_several_names_gets_a_kept_name, fixture *f)
{
    int64_t limit = now_ms() + LIMIT_MS; /* a keeper on a busy machine may be late, but not each time */
    dibs_status status = DIBS_BUSY;
    actor *both = actor_start(), *one = actor_start();
    const char *name = NULL;

    open_keeping(f, KEEP_LONG_MS);
    dibs_runtime *other = test_runtime(open_runtime(f->server, 0));
    lock_and_release(other, "first", DIBS_WAIT_FOREVER);
    assert_status(DIBS_OK, dibs_lock(f->rt, "taken"));
    for (int i = 0; status == DIBS_BUSY && now_ms() < limit; i++) {
        name = formatted("x%d", i); /* another each time: what is recalled rests for longer and longer */
        struct several several = {.rt = other, .kept = name};
        keep(f->rt, name);
        server_do(f->server, "CLIENT PAUSE 80 ALL");
        actor_begin(both, try_both, &several);
        pause_ms(20); /* it has asked, most likely */
        actor_begin_lock(one, other, name, 0);
        actor_finish(both);
        assert_status(DIBS_BUSY, several.status);
        status = actor_result(one);
    }
    assert_status(DIBS_OK, status);
    assert_status(DIBS_OK, actor_unlock(one, other, name));
    assert_status(DIBS_OK, dibs_unlock(f->rt, "taken"));
}

/* Where a round trip takes longer than a keeper has time. */
TEST_ON(a_single_try_from_far_away_gets_a_kept_name, fixture *f)
{
    enum { DELAY_MS = 80 };
    int64_t limit = now_ms() + LIMIT_MS; /* a keeper on a busy machine may be late, but not each time */
    script_server *net = fixture_between(f);
    dibs_runtime *far = test_runtime(open_url(script_server_url(net), &(dibs_config){.command_timeout_ms = LIMIT_MS}));
    dibs_status status = DIBS_BUSY;
    const char *name = NULL;

    open_keeping(f, KEEP_LONG_MS);
    lock_and_release(far, "first", DIBS_WAIT_FOREVER); /* the server knows the scripts, and a connection stands */
    for (int i = 0; status == DIBS_BUSY && now_ms() < limit; i++) {
        name = formatted("x%d", i);
        keep(f->rt, name);
        script_server_delay(net, DELAY_MS);
        status = dibs_trylock(far, name);
        script_server_delay(net, 0);
    }
    assert_status(DIBS_OK, status);
    assert_status(DIBS_OK, dibs_unlock(far, name));
}

/* The server told that the name is kept, and then nothing more: nobody knows whether it is still taken. */
TEST_ON(a_single_try_is_unavailable_where_the_server_falls_silent, fixture *f)
{
    enum { TIMEOUT_MS = 500 };
    script_server *net = fixture_between(f);
    dibs_runtime *far =
        test_runtime(open_url(script_server_url(net), &(dibs_config){.command_timeout_ms = TIMEOUT_MS}));

    open_keeping(f, KEEP_LONG_MS);
    keep(f->rt, "x");
    /* A busy machine may need more than one try. */
    await_that(dibs_timedlock(far, "first", LIMIT_MS) == DIBS_OK && dibs_unlock(far, "first") == DIBS_OK);
    script_server_add(net, (script_rule){.match = "lock:x", .nth = 2, .action = SCRIPT_STALL_REPLY});
    int64_t since = now_ms();
    assert_status(DIBS_UNAVAILABLE, dibs_trylock(far, "x"));
    int64_t took = now_ms() - since;
    assert_that(took >= TIMEOUT_MS && took < TIMEOUT_MS + SLACK_MS, "%d ms", (int)took);
    script_server_clear(net);
}

/*
 * A try that is told so ends before it has waited for all of its time. On a busy machine that may take more than one.
 * From then on the store answers without a recall.
 */
static void try_until_told_of_use(dibs_runtime *rt, const char *name)
{
    int64_t limit = now_ms() + LIMIT_MS, took;

    do {
        int64_t since = now_ms();
        assert_status(DIBS_BUSY, dibs_trylock(rt, name));
        took = now_ms() - since;
        assert_true(took < RECALL_MS + SLACK_MS);
    } while (took >= RECALL_MS && now_ms() < limit);
    assert_true(took < RECALL_MS);
}

TEST_ON(a_single_try_of_a_lease_in_use_is_busy, fixture *f)
{
    open_keeping(f, KEEP_LONG_MS);
    dibs_runtime *other = test_runtime(open_runtime(f->server, 0));
    keep(f->rt, "x");
    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    for (int i = 0; i < 2; i++)
        try_until_told_of_use(other, "x");
    redisContext *wait_event = wait_event_open(f->server, "dibs:*", true);
    assert_status(DIBS_BUSY, dibs_trylock(other, "x"));
    assert_false(wait_event_heard_anything(wait_event));
    wait_event_close(wait_event);
    assert_int_equal(queue_size(f->server, "x"), 0);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x")); /* another client asked for the lock: it is not kept */
    assert_int_equal(stats_of(f->rt).kept, 0);
    lock_and_release(other, "x", 0);
}

/* Nor is the next lease of this name kept for 100 ms. False: all that took longer. */
static bool recall_while_in_use(fixture *f, dibs_runtime *other, actor *a, const char *name)
{
    keep(f->rt, name);
    assert_status(DIBS_OK, dibs_lock(f->rt, name));
    uint64_t kept = stats_of(f->rt).kept;
    int64_t since = now_ms();
    actor_begin_lock(a, other, name, DIBS_WAIT_FOREVER);
    queue_await(f->server, name, 1);
    assert_status(DIBS_OK, dibs_unlock(f->rt, name));
    actor_gets(a, other, name);
    for (int i = 0; i < IN_A_ROW; i++)
        lock_and_release(f->rt, name, DIBS_WAIT_FOREVER);
    uint64_t kept_then = stats_of(f->rt).kept;
    if (now_ms() - since >= PAUSE_MS)
        return false;
    assert_int_equal(kept_then, kept);
    return true;
}

TEST_ON(a_lease_recalled_while_in_use_is_released, fixture *f)
{
    int64_t limit = now_ms() + LIMIT_MS; /* a busy machine may be slow, but not each time */
    actor *a = actor_start();
    const char *name = NULL;
    bool quick = false;

    open_keeping(f, KEEP_LONG_MS);
    dibs_runtime *other = test_runtime(open_runtime(f->server, 0));
    for (int i = 0; !quick && now_ms() < limit; i++) {
        name = formatted("x%d", i);
        quick = recall_while_in_use(f, other, a, name);
    }
    assert_true(quick);
    keep(f->rt, name);
}

/* ------------------------------------------------------- recalls that come when they should not */

/* The store answers each time that others wait, also to who tells it that the lease will be released. */
TEST_ON(a_recall_of_a_lease_in_use_is_answered_once, fixture *f)
{
    enum { FEW = 20 }; /* a renewal without end made thousands */

    open_keeping(f, KEEP_LONG_MS);
    dibs_runtime *other = test_runtime(open_runtime(f->server, 0));
    assert_status(DIBS_OK, dibs_lock(f->rt, "y"));
    assert_status(DIBS_TIMEOUT,
                  dibs_timedlock(other, "y", 50)); /* other is subscribed now, and waits in the queue at once */
    assert_status(DIBS_OK, dibs_unlock(f->rt, "y"));
    keep(f->rt, "x");
    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    actor *waiter = actor_locking(other, "x", DIBS_WAIT_FOREVER);
    queue_await(f->server, "x", 1);
    actor_await_asleep(waiter);
    uint64_t before = stats_of(f->rt).renewed;
    pause_ms(300);
    assert_in_range(stats_of(f->rt).renewed, before, before + FEW);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    actor_gets(waiter, other, "x");
}

static void recall_token(fixture *f, const char *token)
{
    server_do(f->server, "PUBLISH %s %s", queue_channel_of(token), formatted("0 0 %zu %slock:x", strlen(token), token));
}

TEST_ON(recalls_may_come_late_and_twice, fixture *f)
{
    open_keeping(f, KEEP_LONG_MS);
    keep(f->rt, "x");
    const char *token = server_text(f->server, "GET lock:x");
    for (int i = 0; i < 2; i++)
        recall_token(f, token);
    assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS));
    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    recall_token(f, token); /* of a lease that is over */
    lock_and_release(f->rt, "y", DIBS_WAIT_FOREVER);
    assert_status(DIBS_OK, dibs_check(f->rt, "x"));
    assert_true(server_has(f->server, "lock:x"));
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    assert_int_equal(stats_of(f->rt).lost, 0);
}

/* ---------------------------------------------------------------------- recalls that get lost */

/* An account that may not publish: no message of its scripts arrives. */
static dibs_runtime *open_mute(fixture *f)
{
    return open_url(server_account(f->server, "mute", "~* &* +@all -publish"), NULL);
}

/*
 * The keeper finds the waiter when it tells the store that the lease is kept, or at the latest when it gives the lease
 * back.
 */
TEST_ON(a_lost_recall_costs_time_and_nothing_else, fixture *f)
{
    open_keeping(f, 500);
    dibs_runtime *mute = test_runtime(open_mute(f));
    for (int i = 0; i < 5; i++) {
        keep(f->rt, "x");
        int64_t since = now_ms();
        assert_status(DIBS_OK, dibs_timedlock(mute, "x", LIMIT_MS));
        assert_true(now_ms() - since < 500 + SLACK_MS);
        assert_status(DIBS_OK, dibs_unlock(mute, "x"));
    }
    assert_int_equal(stats_of(f->rt).lost, 0);
}

/* ------------------------------------------------------------------------- keepers that are gone */

static process *start_keeper(fixture *f, unsigned keep_ms)
{
    process *agent = process_start((const char *const[]){program_path("agent"), NULL});

    assert_string_equal(process_ask(agent, "keep %s %u", f->server->url, keep_ms), "DIBS_OK");
    return agent;
}

static bool agent_keeps(fixture *f, process *agent)
{
    assert_string_equal(process_ask(agent, "cycle x 1"), "DIBS_OK");
    return server_has(f->server, "lock:x");
}

/* What nobody uses is given back after keep_ms, on a busy machine before this was seen: then once more. */
static process *start_keeping(fixture *f, unsigned keep_ms)
{
    process *agent = start_keeper(f, keep_ms);
    int64_t limit = now_ms() + LIMIT_MS;

    do
        await_that(agent_keeps(f, agent));
    while (!within(keep_ms, owner_of(f->rt, "x").kept) && now_ms() < limit);
    assert_true(now_ms() < limit);
    return agent;
}

TEST_ON(a_killed_keeper_blocks_others_only_briefly, fixture *f)
{
    enum { KEEP = 400 };

    fixture_open(f, 0);
    process *agent = start_keeping(f, KEEP);
    process_kill(agent);
    int64_t since = now_ms();
    assert_status(DIBS_OK, dibs_timedlock(f->rt, "x", LIMIT_MS));
    assert_true(now_ms() - since < 4 * KEEP + 100 + SLACK_MS);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    process_free(agent);
}

/*
 * A try waits for the keeper only for a limited time. Where the lease was given back before the process was stopped:
 * then once more. Returns the stopped process, and when it was stopped.
 */
static process *stop_keeper(fixture *f, unsigned keep_ms, int64_t *since)
{
    for (int64_t limit = now_ms() + LIMIT_MS;;) {
        process *agent = start_keeping(f, keep_ms);
        process_pause(agent);
        *since = now_ms();
        dibs_status status = dibs_trylock(f->rt, "x");
        assert_true(now_ms() - *since < RECALL_MS + SLACK_MS);
        if (status == DIBS_BUSY)
            return agent;
        assert_status(DIBS_OK, status);
        assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
        process_resume(agent);
        agent_stop(agent);
        assert_that(now_ms() < limit, "the keeper never blocks others");
    }
}

/* When the keeper goes on, it has lost the lease. */
TEST_ON(a_stopped_keeper_blocks_others_only_briefly, fixture *f)
{
    enum { KEEP = 1000 };
    int64_t since;

    fixture_open(f, 0);
    process *agent = stop_keeper(f, KEEP, &since);
    assert_status(DIBS_OK, dibs_timedlock(f->rt, "x", LIMIT_MS));
    assert_true(now_ms() - since < 4 * KEEP + 100 + SLACK_MS);
    process_resume(agent);
    assert_status(DIBS_BUSY, agent_lock(agent, "x", 0));
    assert_status(DIBS_OK, dibs_check(f->rt, "x"));
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    assert_status(DIBS_OK, agent_lock(agent, "x", LIMIT_MS));
    assert_status(DIBS_OK, agent_unlock(agent, "x"));
    agent_stop(agent); /* which start_keeper has started by itself */
}

/* ------------------------------------------------------------------------ clients without dibs */

struct loop {
    dibs_runtime *rt;
    _Atomic bool ends;
    dibs_status last;
};

/*
 * With pauses: where it is not kept, the lock is free for most of the time. A lease that was kept is so short at first
 * that it may be lost where the machine stands still.
 */
static void *lock_again_and_again(void *arg)
{
    struct loop *loop = arg;

    while (!loop->ends && (loop->last = dibs_trylock(loop->rt, "x")) == DIBS_OK) {
        if ((loop->last = dibs_unlock(loop->rt, "x")) != DIBS_OK && loop->last != DIBS_LOST)
            break;
        pause_ms(1);
    }
    return NULL;
}

static bool takes_it(fixture *f)
{
    redisReply *reply = server_command(f->server, "SET lock:x foreign NX PX %d", LIMIT_MS);
    bool taken = reply->type == REDIS_REPLY_STATUS;

    freeReplyObject(reply);
    return taken;
}

/*
 * A loop that keeps the name gives it back after a while, and then keeps it no more for some time. The client looks
 * whenever it likes: looks in step with the loop could each come when that time is over.
 */
TEST_ON(a_client_without_dibs_finds_the_name_free_in_the_end, fixture *f)
{
    enum { KEEP = 20 };
    pthread_t thread;

    open_keeping(f, KEEP);
    keep(f->rt, "x");
    struct loop loop = {.rt = f->rt};
    int64_t since = now_ms();
    assert_int_equal(pthread_create(&thread, NULL, lock_again_and_again, &loop), 0);
    bool taken = within(LIMIT_MS, takes_it(f));
    int64_t took = now_ms() - since;
    loop.ends = !taken;
    pthread_join(thread, NULL);
    assert_true(taken);
    assert_that(took < 20 * KEEP + 5 * KEEP + SLACK_MS, "%ld ms", (long)took);
    assert_status(DIBS_BUSY, loop.last);
    server_do(f->server, "DEL lock:x");
    lock_and_release(f->rt, "x", DIBS_WAIT_FOREVER);
}

TESTS(fixture_setup, fixture_teardown)
