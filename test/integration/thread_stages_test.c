/*
 * Threads that end at every stage of a lock: while they wait here or in the store's queue, while they ask, at the
 * grant, with a lease that was handed to them, with a fair one, while they unlock. No call is a cancellation point, so
 * a thread that is cancelled inside returns with its result, and ends then: it leaves nothing, and the next waiter is
 * served.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "support/agent.h"
#include "support/fixture.h"
#include "support/queue.h"

#define FOREVER DIBS_WAIT_FOREVER

typedef void ending(actor *a);

static ending *const ends[] = {actor_end, actor_exit, actor_cancel};

enum { WAYS = sizeof ends / sizeof *ends };

static const dibs_lock_options fair = {.flags = DIBS_FAIR};

/* Expects that nothing is held or queued, and that the name can be locked. */
static void expect_nothing_left(fixture *f)
{
    assert_true(comes_to_nothing(f->rt));
    assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS));
    queue_await(f->server, "x", 0);
    queue_assert_gone(f->server, "x");
    assert_int_equal(stats_of(f->rt).lost, 0);
    expect_works(f, f->rt, "x");
}

/* Expects that so many threads ended with a lock which their call had returned with. */
static void expect_orphans(fixture *f, uint64_t count)
{
    assert_int_equal(stats_of(f->rt).orphaned, count);
}

/* Lets an actor wait for "x" behind a thread of its own runtime. */
static actor *begin_waiting_here(fixture *f, int64_t wait_ms)
{
    uint64_t contended = stats_of(f->rt).contended;

    actor *a = actor_locking(f->rt, "x", wait_ms);
    assert_true(comes_to(f->rt, STAT(contended), contended + 1));
    return a;
}

/* Lets an actor wait for "x" in the store's queue. */
static actor *begin_waiting_there(fixture *f, int64_t wait_ms)
{
    long long before = queue_size(f->server, "x");

    actor *a = actor_locking(f->rt, "x", wait_ms);
    queue_await(f->server, "x", before + 1);
    return a;
}

/*
 * As begin_waiting_there, but the wait ends soon. Where the machine is so slow that it ends before the actor is seen in
 * the queue, another actor waits. *begun: how many have.
 */
static actor *begin_short_wait_there(fixture *f, int64_t wait_ms, unsigned *begun)
{
    long long size = queue_size(f->server, "x") + 1;
    int64_t limit = now_ms() + LIMIT_MS;

    for (*begun = 1;; (*begun)++) {
        actor *a = actor_start();
        actor_begin_lock(a, f->rt, "x", wait_ms);
        await_that(queue_size(f->server, "x") == size || !actor_busy(a));
        if (queue_size(f->server, "x") == size)
            return a;
        assert_status(DIBS_TIMEOUT, actor_result(a));
        actor_end(a);
        queue_await(f->server, "x", size - 1);
        assert_true(now_ms() < limit);
    }
}

/* -------------------------------------------------------------- while they wait */

/*
 * A thread is cancelled in the queue of its process: its call ends at its turn, or at the end of its time, and those
 * around it are served.
 */
TEST_ON(a_thread_may_end_in_the_queue_of_its_process, fixture *f)
{
    fixture_open_holding(f, LONG_LEASE_MS, "x");
    actor *impatient = begin_waiting_here(f, 300);
    actor *first = begin_waiting_here(f, FOREVER);
    actor *second = begin_waiting_here(f, FOREVER);
    actor_cancel_begin(impatient);
    actor_cancel_begin(first);
    actor_join(impatient);
    assert_int_equal(stats_of(f->rt).timed_out, 1);
    assert_true(actor_busy(first));
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    actor_join(first);
    assert_status(DIBS_OK, actor_result(second));
    expect_orphans(f, 1);
    assert_status(DIBS_OK, actor_unlock(second, f->rt, "x"));
    expect_nothing_left(f);
}

/* A thread is cancelled asleep in the store's queue: its place is its own until its call ends. */
TEST_ON(a_thread_may_end_in_the_queue_of_the_store, fixture *f)
{
    unsigned begun;

    fixture_open(f, LONG_LEASE_MS);
    dibs_runtime *holder = open_runtime(f->server, LONG_LEASE_MS);
    assert_status(DIBS_OK, dibs_lock(holder, "x"));
    actor *impatient = begin_short_wait_there(f, 300, &begun);
    actor_cancel_begin(impatient);
    actor_join(impatient);
    queue_await(f->server, "x", 0);
    assert_int_equal(stats_of(f->rt).timed_out, begun);
    for (uint64_t i = 1; i <= 5; i++) {
        actor *a = begin_waiting_there(f, FOREVER);
        actor *behind = i % 2 ? begin_waiting_here(f, FOREVER) : NULL;

        actor_cancel_begin(a);
        assert_int_equal(queue_size(f->server, "x"), 1);
        assert_status(DIBS_OK, dibs_unlock(holder, "x"));
        actor_join(a);
        if (behind)
            actor_gets(behind, f->rt, "x");
        expect_orphans(f, i);
        events_await(&f->events, DIBS_EVENT_ORPHANED, "x");
        assert_status(DIBS_OK, dibs_timedlock(holder, "x", LIMIT_MS));
    }
    assert_status(DIBS_OK, dibs_unlock(holder, "x"));
    dibs_close(holder);
    expect_nothing_left(f);
}

struct fair_call {
    dibs_runtime *rt;
    dibs_status status;
};

static void lock_fairly(void *arg)
{
    struct fair_call *call = arg;

    call->status = dibs_lock_with(call->rt, "x", FOREVER, &fair);
}

/* As above, for fair waiters; the waiter behind them in another process is granted. */
TEST_ON(a_thread_may_end_in_a_fair_queue, fixture *f)
{
    enum { FAIR = 3 };
    struct fair_call calls[FAIR];
    actor *actors[FAIR];
    process *agent = agent_start(f->server->url, LONG_LEASE_MS);

    fixture_open_holding(f, LONG_LEASE_MS, "x");
    for (int i = 0; i < FAIR; i++) {
        calls[i].rt = f->rt;
        actors[i] = actor_start();
        actor_begin(actors[i], lock_fairly, &calls[i]);
        queue_await(f->server, "x", i + 1);
    }
    agent_begin_fair(agent, "x", FOREVER);
    queue_await(f->server, "x", FAIR + 1);
    for (int i = 0; i < FAIR; i++)
        actor_cancel_begin(actors[i]);
    assert_int_equal(queue_size(f->server, "x"), FAIR + 1);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    for (int i = 0; i < FAIR; i++)
        actor_join(actors[i]);
    for (int i = 0; i < FAIR; i++)
        assert_status(DIBS_OK, calls[i].status);
    assert_status(DIBS_OK, agent_result(agent));
    expect_orphans(f, FAIR);
    assert_status(DIBS_OK, agent_unlock(agent, "x"));
    agent_stop(agent);
    expect_nothing_left(f);
}

/* --------------------------------------------------------------- while they ask */

/* A stopped server keeps the threads inside their calls. */
TEST_ON(threads_may_end_while_they_ask, fixture *f)
{
    fixture_open_patient(f, LONG_LEASE_MS);
    for (uint64_t i = 1; i <= 4; i++) {
        actor *a = actor_start();

        server_pause(f->server);
        actor_begin_lock(a, f->rt, "x", i % 2 ? 0 : FOREVER);
        actor_await_asleep(a);
        actor_cancel_begin(a);
        assert_true(actor_busy(a));
        server_resume(f->server);
        actor_join(a);
        expect_orphans(f, i);
        expect_nothing_left(f);
    }
}

/* The call runs out of time: its attempt is retracted. */
TEST_ON(threads_may_end_while_their_asks_time_out, fixture *f)
{
    f->config.command_timeout_ms = 3000; /* in which the actor is seen asleep even where the machine stands still */
    fixture_open(f, LONG_LEASE_MS);
    server_pause(f->server);
    actor *a = actor_locking(f->rt, "x", 0);
    actor_await_asleep(a);
    actor_cancel_begin(a);
    actor_join(a);
    expect_orphans(f, 0);
    server_resume(f->server);
    assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS));
    expect_nothing_left(f);
}

/* --------------------------------------------------------------- while they unlock */

TEST_ON(threads_may_end_while_they_unlock, fixture *f)
{
    f->config.command_timeout_ms = LIMIT_MS;
    f->config.handoff_ms = DIBS_NO_HANDOFF;
    fixture_open(f, LONG_LEASE_MS);
    dibs_runtime *second = test_runtime(open_runtime(f->server, LONG_LEASE_MS));
    for (int i = 0; i < 6; i++) { /* no waiter; a local one, for which the release asks again; one in another process */
        actor *a = actor_start();
        actor *next = actor_start();
        dibs_runtime *rt = i % 3 == 1 ? f->rt : second;
        uint64_t contended = stats_of(f->rt).contended;

        assert_status(DIBS_OK, actor_lock(a, f->rt, "x", LIMIT_MS));
        if (i % 3 != 0)
            actor_begin_lock(next, rt, "x", FOREVER);
        if (i % 3 == 1)
            assert_true(comes_to(f->rt, STAT(contended), contended + 1));
        if (i % 3 == 2)
            queue_await(f->server, "x", 1);
        server_pause(f->server);
        actor_begin_unlock(a, f->rt, "x");
        actor_await_asleep(a);
        actor_cancel_begin(a);
        server_resume(f->server);
        actor_join(a);
        if (i % 3 != 0) {
            actor_gets(next, rt, "x");
        }
        actor_end(next);
        expect_orphans(f, 0);
        expect_nothing_left(f);
    }
}

/* --------------------------------------------------------------- while they hold */

/* The lease was handed over by another thread; the next waiter is of this process, or of another. */
TEST_ON(a_thread_may_end_with_a_lease_that_was_handed_over, fixture *f)
{
    f->config.handoff_ms = LONG_LEASE_MS; /* only the end of a thread sends the lease back */
    fixture_open(f, LONG_LEASE_MS);
    dibs_runtime *second = test_runtime(open_runtime(f->server, LONG_LEASE_MS));
    for (uint64_t i = 0; i < 2 * WAYS; i++) {
        actor *first = actor_start();
        actor *next = actor_start();
        dibs_runtime *rt = i < WAYS ? f->rt : second;
        uint64_t handed = stats_of(f->rt).handed_off;
        dibs_hold hold;
        dibs_hold after;

        assert_status(DIBS_OK, actor_lock(first, f->rt, "x", LIMIT_MS));
        actor *a = begin_waiting_here(f, FOREVER);
        assert_status(DIBS_OK, actor_unlock(first, f->rt, "x"));
        assert_status(DIBS_OK, actor_result(a));
        assert_int_equal(stats_of(f->rt).handed_off, handed + 1);
        assert_status(DIBS_OK, actor_hold(a, f->rt, "x", &hold));
        actor_begin_lock(next, rt, "x", FOREVER);
        if (rt == second)
            queue_await(f->server, "x", 1);
        ends[i % WAYS](a);
        assert_status(DIBS_OK, actor_result(next));
        assert_status(DIBS_OK, actor_hold(next, rt, "x", &after));
        assert_true(after.fence > hold.fence);
        expect_orphans(f, i + 1);
        assert_status(DIBS_OK, actor_unlock(next, rt, "x"));
        actor_end(next);
        actor_end(first);
        expect_nothing_left(f);
    }
}

/* The next waiter is another fair one, of this process or another, or a plain one. */
TEST_ON(a_thread_may_end_with_a_fair_lease, fixture *f)
{
    fixture_open(f, LONG_LEASE_MS);
    dibs_runtime *second = test_runtime(open_runtime(f->server, LONG_LEASE_MS));
    for (uint64_t i = 0; i < 3 * WAYS; i++) {
        actor *a = actor_start();
        actor *next = actor_start();
        struct fair_call call = {.rt = i / WAYS == 0 ? f->rt : second};

        assert_status(DIBS_OK, actor_lock_with(a, f->rt, "x", LIMIT_MS, &fair));
        if (i / WAYS < 2)
            actor_begin(next, lock_fairly, &call);
        else
            actor_begin_lock(next, call.rt, "x", FOREVER);
        queue_await(f->server, "x", 1);
        ends[i % WAYS](a);
        actor_finish(next);
        assert_status(DIBS_OK, actor_check(next, call.rt, "x"));
        expect_orphans(f, i + 1);
        assert_status(DIBS_OK, actor_unlock(next, call.rt, "x"));
        actor_end(next);
        expect_nothing_left(f);
    }
}

/* ------------------------------------------------------------------ at the grant */

/* The cancel and the grant come at about the same moment: whichever is first, nothing is left. */
TEST_ON(a_thread_may_end_right_at_the_grant, fixture *f)
{
    enum { TIMES = 60 };

    fixture_open(f, LONG_LEASE_MS);
    dibs_runtime *holder = open_runtime(f->server, LONG_LEASE_MS);
    for (int i = 0; i < TIMES; i++) {
        bool here = i % 3 == 0;

        assert_status(DIBS_OK, dibs_timedlock(here ? f->rt : holder, "x", LIMIT_MS));
        actor *a = here ? begin_waiting_here(f, FOREVER) : begin_waiting_there(f, FOREVER);
        if (i % 2)
            actor_cancel_begin(a);
        assert_status(DIBS_OK, dibs_unlock(here ? f->rt : holder, "x"));
        for (volatile int spin = 0; spin < i * 200; spin++)
            continue;
        if (i % 2 == 0)
            actor_cancel_begin(a);
        actor_join(a);
        assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS));
    }
    expect_orphans(f, TIMES);
    assert_int_equal(stats_of(holder).lost, 0);
    dibs_close(holder);
    expect_nothing_left(f);
}

/* ----------------------------------------------------------------- all at once */

struct mortal {
    dibs_runtime *rt;
    unsigned number;
    atomic_int *inside, *wrong;
};

static void *live_and_die(void *arg)
{
    struct mortal *m = arg;
    dibs_lock_options options = {.flags = m->number % 3 == 0 ? DIBS_FAIR : 0};

    for (unsigned i = 0; i < 1 + m->number % 4; i++) {
        if (dibs_lock_with(m->rt, "x", FOREVER, &options) != DIBS_OK || atomic_fetch_add(m->inside, 1) != 0)
            atomic_fetch_add(m->wrong, 1);
        atomic_fetch_sub(m->inside, 1);
        if (i < m->number % 4 && dibs_unlock(m->rt, "x") != DIBS_OK)
            atomic_fetch_add(m->wrong, 1);
        pthread_testcancel();
    }
    return NULL;
}

/* Threads of two runtimes that lock, some fairly, and end holding; some are cancelled before. */
TEST_ON(a_crowd_of_threads_may_end_at_any_stage, fixture *f)
{
    enum { THREADS = 6, GENERATIONS = 15 };
    struct mortal mortals[THREADS];
    pthread_t threads[THREADS];
    atomic_int inside = 0, wrong = 0;

    fixture_open(f, LONG_LEASE_MS);
    dibs_runtime *second = open_runtime(f->server, LONG_LEASE_MS);
    for (unsigned generation = 0; generation < GENERATIONS; generation++) {
        for (unsigned i = 0; i < THREADS; i++) {
            mortals[i] = (struct mortal){i % 2 ? f->rt : second, generation + i, &inside, &wrong};
            assert_int_equal(pthread_create(&threads[i], NULL, live_and_die, &mortals[i]), 0);
        }
        for (unsigned i = 0; i < THREADS; i += 2)
            pthread_cancel(threads[(i + generation) % THREADS]);
        for (unsigned i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
    }
    assert_int_equal(atomic_load(&wrong), 0);
    assert_int_equal(stats_of(f->rt).lost + stats_of(second).lost, 0);
    assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS));
    dibs_close(second);
    expect_nothing_left(f);
}

TESTS(fixture_setup, fixture_teardown)
