/*
 * Memory that runs out in any thread of the library while it talks to a server: each allocation of a cycle fails once,
 * alone and with others that wait. Every call comes back, the store is left with nothing, no lease is lost, and the
 * next cycle is a good one. Also what a runtime leaves that is opened and closed a thousand times.
 *
 * Where a sanitizer has its own allocator, the cycles go without failures.
 */
#include "support/failing_malloc.h"
#include "support/fixture.h"
#include "support/queue.h"
#include "support/self.h"
#include "support/tracking.h"

#define NTH_MOST 5000

static const dibs_lock_options fair = {.flags = DIBS_FAIR};

static int setup(void **state)
{
    is_spared = true; /* the test's own thread */
    return fixture_setup(state);
}

/* From now on the nth allocation of all other threads fails. 0: none does. */
static void fail_the(long nth)
{
    atomic_store(&fail_at, nth);
    atomic_store(&fails_elsewhere, nth > 0);
}

/* Whether that allocation failed. */
static bool has_failed(void)
{
    bool failed = atomic_exchange(&fails_elsewhere, false) && atomic_load(&fail_at) <= 0;

    atomic_store(&fail_at, 0);
    return failed;
}

/* A connection whose answer could not be read may be given up. */
static bool is_good(dibs_status status)
{
    return status == DIBS_OK || status == DIBS_NO_MEMORY || status == DIBS_UNAVAILABLE;
}

static bool nothing_is_left(server *s)
{
    return server_integer(s, "EXISTS lock:x dibs:queue:{lock:x}") == 0;
}

/* --------------------------------------------------------------------- alone */

struct run {
    fixture *f;
    dibs_status status; /* the first that is not DIBS_OK */
    bool opened;        /* dibs_open succeeded: the handle stays */
};

static void note(struct run *run, dibs_status status)
{
    if (run->status == DIBS_OK)
        run->status = status;
}

static void open_and_use(void *arg)
{
    struct run *run = arg;
    dibs_config config = run->f->config;
    dibs_runtime *rt;
    dibs_owner owner;

    config.lease_ms = LONG_LEASE_MS;
    run->status = dibs_open(&rt, &config);
    run->opened = rt != NULL;
    if (!rt)
        return;
    note(run, dibs_lock(rt, "x"));
    if (run->status == DIBS_OK) {
        note(run, dibs_lock(rt, "x"));
        note(run, dibs_extend(rt, "x", LONG_LEASE_MS));
        note(run, dibs_query(rt, "x", &owner));
        note(run, dibs_force_unlock(rt, "free", NULL));
    }
    note(run, dibs_unlock_all(rt));
    note(run, dibs_lock_with(rt, "x", LIMIT_MS, &fair));
    note(run, dibs_unlock_all(rt));
    dibs_close(rt);
}

/* One cycle, on a thread that ends afterwards, so that thread-local memory is freed, too. */
static dibs_status run_with(fixture *f, long nth, bool *failed, bool *opened)
{
    struct run run = {.f = f};
    actor *a = actor_start();

    fail_the(nth);
    actor_begin(a, open_and_use, &run);
    actor_finish(a);
    *failed = has_failed();
    *opened = run.opened;
    actor_end(a);
    return run.status;
}

TEST_ON(each_allocation_of_a_cycle_on_a_server_fails_once, fixture *f)
{
    bool failed = true, opened;
    long nth;

    f->config.connect_timeout_ms = f->config.command_timeout_ms = LIMIT_MS / 4;
    for (int i = 0; i < 3; i++)
        assert_status(DIBS_OK, run_with(f, 0, &failed, &opened));
    assert_true(nothing_is_left(f->server));
    long before = atomic_load(&living);
    for (nth = 1; nth < NTH_MOST && CAN_FAIL; nth++) {
        dibs_status status = run_with(f, nth, &failed, &opened);

        assert_that(is_good(status), "allocation %ld: %s", nth, dibs_status_name(status));
        assert_that(within(SLACK_MS, nothing_is_left(f->server)), "allocation %ld left something", nth);
        before += opened;
        assert_that(atomic_load(&living) <= before, "allocation %ld left %ld behind", nth,
                    atomic_load(&living) - before);
        if (!failed)
            break;
    }
    assert_true(!CAN_FAIL || (nth > 50 && !failed));
    print_message("# %ld allocations\n", nth - 1);
    assert_status(DIBS_OK, run_with(f, 0, &failed, &opened));
}

/* ---------------------------------------------------------- where others wait */

enum { WAITERS = 3 }; /* two hand the lease on, one is fair */

struct waiter {
    actor *actor;
    dibs_runtime *rt;
    const dibs_lock_options *options;
    dibs_status locked, unlocked;
};

/* Waits for the lock and releases it. */
static void wait_and_use(void *arg)
{
    struct waiter *w = arg;
    dibs_owner owner;

    w->locked = dibs_lock_with(w->rt, "x", DIBS_WAIT_FOREVER, w->options);
    w->unlocked = DIBS_OK;
    if (w->locked != DIBS_OK)
        return;
    dibs_extend(w->rt, "x", LONG_LEASE_MS);
    dibs_query(w->rt, "x", &owner);
    w->unlocked = dibs_unlock(w->rt, "x");
}

/* All waiters get the lock, one after the other; one that could not wait returned DIBS_NO_MEMORY. */
static bool contend(fixture *f, dibs_runtime *holder, long nth)
{
    struct waiter waiters[WAITERS];

    assert_status(DIBS_OK, dibs_timedlock(holder, "x", LIMIT_MS));
    for (int i = 0; i < WAITERS; i++)
        waiters[i] = (struct waiter){.actor = actor_start(), .rt = f->rt, .options = i == 1 ? &fair : NULL};
    fail_the(nth);
    for (int i = 0; i < WAITERS; i++) {
        uint64_t contended = stats_of(f->rt).contended;
        actor_begin(waiters[i].actor, wait_and_use, &waiters[i]);
        /* Whether the waiter sleeps, or has come back already. */
        await_that(stats_of(f->rt).contended > contended || !actor_busy(waiters[i].actor));
    }
    assert_true(is_good(dibs_unlock(holder, "x")));
    for (int i = 0; i < WAITERS; i++)
        actor_finish(waiters[i].actor);
    bool failed = has_failed();
    for (int i = 0; i < WAITERS; i++) {
        actor_end(waiters[i].actor);
        assert_that(is_good(waiters[i].locked) && is_good(waiters[i].unlocked), "allocation %ld: waiter %d: %s, %s",
                    nth, i, dibs_status_name(waiters[i].locked), dibs_status_name(waiters[i].unlocked));
        assert_true(failed || (waiters[i].locked == DIBS_OK && waiters[i].unlocked == DIBS_OK));
    }
    return failed;
}

static void contend_with_each(fixture *f, uint32_t handoff_ms)
{
    dibs_runtime *holder = open_runtime(f->server, LONG_LEASE_MS);
    bool failed = true;
    long nth;

    f->config.handoff_ms = handoff_ms;
    fixture_open(f, LONG_LEASE_MS);
    for (int i = 0; i < 3; i++)
        assert_false(contend(f, holder, 0));
    for (nth = 1; nth < NTH_MOST && failed && CAN_FAIL; nth++) {
        failed = contend(f, holder, nth);
        assert_that(within(SLACK_MS, nothing_is_left(f->server)), "allocation %ld left something", nth);
        assert_int_equal(stats_of(f->rt).holds, 0);
    }
    assert_true(!CAN_FAIL || (nth > 20 && !failed));
    print_message("# %ld allocations\n", nth - 2);
    assert_false(contend(f, holder, 0));
    assert_int_equal(stats_of(f->rt).lost + stats_of(holder).lost, 0);
    dibs_close(holder);
    queue_await(f->server, "x", 0);
}

TEST(each_allocation_fails_once_where_others_wait)
{
    contend_with_each(*state, 0);
}

TEST(each_allocation_fails_once_where_each_release_asks_again)
{
    contend_with_each(*state, DIBS_NO_HANDOFF);
}

/* --------------------------------------------------------------- a thousand times */

static long resident_kb(void)
{
    FILE *file = fopen("/proc/self/status", "re");
    char line[256];
    long kb = -1;

    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "VmRSS: %ld", &kb) == 1)
            break;
    if (file)
        fclose(file);
    return kb;
}

/* Opened, used in another way each time, closed: with a hold, a waiter (and so a subscription), or at once. */
static void open_and_close(fixture *f, dibs_runtime *holder, actor *waiter, int i)
{
    f->config.on_event = i % 2 ? events_record : NULL;
    fixture_open(f, LONG_LEASE_MS);
    if (i % 3 == 0)
        assert_status(DIBS_OK, dibs_lock(f->rt, "y"));
    if (i % 5 == 0) {
        assert_status(DIBS_OK, dibs_lock(holder, "x"));
        actor_begin_lock(waiter, f->rt, "x", DIBS_WAIT_FOREVER);
        while (stats_of(f->rt).contended == 0)
            pause_ms(1);
    }
    close_runtime(&f->rt);
    if (i % 5 == 0) {
        assert_status(DIBS_CLOSED, actor_result(waiter));
        assert_status(DIBS_OK, dibs_unlock(holder, "x"));
    }
}

TEST_ON(opening_and_closing_a_thousand_times_leaves_nothing, fixture *f)
{
    enum { WARM = 60, TIMES = 1000 };
    dibs_runtime *holder = open_runtime(f->server, LONG_LEASE_MS);
    actor *waiter = actor_start();

    assert_status(DIBS_OK, dibs_lock(holder, "x"));
    await_tracked(f->server, holder, 1); /* which begins only with a lock that is held for a while, and keeps memory */
    assert_status(DIBS_OK, dibs_unlock(holder, "x"));
    for (int i = 0; i < WARM; i++)
        open_and_close(f, holder, waiter, i);
    struct self before = self_now();
    long allocations = atomic_load(&living);
    long kb = resident_kb();
    for (int i = 0; i < TIMES; i++)
        open_and_close(f, holder, waiter, i);
    self_assert_as(before);
    print_message("# %ld allocations more, %ld kB more\n", atomic_load(&living) - allocations, resident_kb() - kb);
    if (CAN_FAIL) { /* each leaves its handle, and the holder may have grown once; a leak would leave as many again */
        long most = allocations + TIMES + TIMES / 10;
        /* The holder has something allocated for a moment now and then: a renewal, a retraction. */
        await_that(atomic_load(&living) <= most);
        assert_true(resident_kb() - kb < 2048);
    }
    actor_end(waiter);
    dibs_close(holder);
    queue_assert_gone(f->server, "x");
}

TESTS(setup, fixture_teardown)
