/* After fork the child holds none of its parent's locks, can use the library at once, and does not harm its parent. */
#include <dibs_metrics.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/child.h"
#include "support/fixture.h"
#include "support/process.h"
#include "support/queue.h"
#include "support/self.h"

/* ---------------------------------------------------------- what it holds */

static void child_holds_nothing(dibs_runtime *rt)
{
    static const dibs_lock_options once = {.flags = DIBS_NO_REENTRY};
    dibs_hold hold;

    CHILD_WANTS(DIBS_NOT_HELD, dibs_check(rt, "x"));
    CHILD_WANTS(DIBS_NOT_HELD, dibs_hold_of(rt, "x", &hold));
    CHILD_WANTS(DIBS_NOT_HELD, dibs_unlock(rt, "x"));
    CHILD_WANTS(DIBS_NOT_HELD, dibs_extend(rt, "x", 1000));
    CHILD_WANTS(DIBS_OK, dibs_unlock_all(rt));
    CHILD_WANTS(DIBS_BUSY, dibs_trylock(rt, "x"));
    CHILD_WANTS(DIBS_TIMEOUT, dibs_timedlock(rt, "x", 50));
    CHILD_WANTS(DIBS_TIMEOUT, dibs_lock_with(rt, "x", 50, &once));
    CHILD_WANTS(DIBS_OK, dibs_lock(rt, "y"));
    CHILD_WANTS(DIBS_OK, dibs_lock(rt, "y"));
    CHILD_WANTS(DIBS_BUSY, dibs_lock_with(rt, "y", DIBS_WAIT_FOREVER, &once));
    CHILD_WANTS(DIBS_OK, dibs_unlock(rt, "y"));
    CHILD_WANTS(DIBS_OK, dibs_check(rt, "y"));
    CHILD_WANTS(DIBS_OK, dibs_unlock(rt, "y"));
}

/* What its parent holds is no mistake of the child's, and to be told so costs no thread and no connection. */
static void child_unlocks(dibs_runtime *rt)
{
    static const char *const names[] = {"x", "y"};
    struct self before = self_now();

    CHILD_WANTS(DIBS_NOT_HELD, dibs_unlock(rt, "x"));
    CHILD_WANTS(DIBS_NOT_HELD, dibs_unlock_names(rt, names, 2));
    CHILD_WANTS(DIBS_NOT_HELD, dibs_unlock_names(rt, names, 1));
    struct self after = self_now();
    dibs_stats stats = stats_of(rt);
    if (after.threads != before.threads || after.descriptors != before.descriptors || stats.not_held != 0)
        _exit(1);
}

/* Nothing has happened in the child: to be told so, or that nobody waits, costs no thread and no connection either. */
static void child_looks_on(dibs_runtime *rt)
{
    struct self before = self_now();
    FILE *out = fopen("/dev/null", "w");

    CHILD_WANTS(DIBS_OK, dibs_stats_write_prometheus(rt, out));
    fclose(out);
    dibs_shutdown(rt);
    struct self after = self_now();
    if (after.threads != before.threads || after.descriptors != before.descriptors)
        _exit(1);
    CHILD_WANTS(DIBS_CLOSED, dibs_lock(rt, "z"));
}

static void child_closes(dibs_runtime *rt)
{
    CHILD_WANTS(DIBS_OK, dibs_lock(rt, "y"));
    dibs_close(rt);
}

static void child_closes_at_once(dibs_runtime *rt)
{
    dibs_close(rt);
}

static void child_does_nothing(dibs_runtime *rt)
{
}

static void child_exits_holding(dibs_runtime *rt)
{
    CHILD_WANTS(DIBS_OK, dibs_lock_with(rt, "z", 0, &(dibs_lock_options){.lease_ms = 1000}));
}

static void child_forks(dibs_runtime *rt)
{
    int status = 1;

    CHILD_WANTS(DIBS_OK, dibs_lock(rt, "y"));
    pid_t grandchild = fork_child();
    if (grandchild == 0) {
        CHILD_WANTS(DIBS_NOT_HELD, dibs_check(rt, "x"));
        CHILD_WANTS(DIBS_NOT_HELD, dibs_check(rt, "y"));
        CHILD_WANTS(DIBS_BUSY, dibs_trylock(rt, "x"));
        CHILD_WANTS(DIBS_BUSY, dibs_trylock(rt, "y"));
        CHILD_WANTS(DIBS_OK, dibs_lock(rt, "w"));
        CHILD_WANTS(DIBS_OK, dibs_unlock(rt, "w"));
        _exit(0);
    }
    if (grandchild < 0 || waitpid(grandchild, &status, 0) != grandchild || status != 0)
        _exit(1);
    CHILD_WANTS(DIBS_OK, dibs_check(rt, "y"));
    CHILD_WANTS(DIBS_OK, dibs_unlock(rt, "y"));
}

/* The parent's lock, its renewals and its connections are as before. */
static void expect_parent_is_well(fixture *f, const char *token)
{
    uint64_t renewed = stats_of(f->rt).renewed;

    assert_status(DIBS_OK, dibs_check(f->rt, "x"));
    assert_true(comes_to(f->rt, STAT(renewed), renewed + 2));
    assert_status(DIBS_OK, dibs_check(f->rt, "x"));
    assert_string_equal(server_text(f->server, "GET lock:x"), token);
    lock_and_release(f->rt, "parent", DIBS_WAIT_FOREVER);
    assert_int_equal(stats_of(f->rt).reconnects, 0);
    assert_int_equal(stats_of(f->rt).lost, 0);
}

static void with_child(fixture *f, child_function *function)
{
    f->config.renew_ms = 100;
    fixture_open_patient(f, 2 * SAFE_LEASE_MS);
    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    const char *token = server_text(f->server, "GET lock:x");
    run_child(function, f->rt);
    expect_parent_is_well(f, token);
    run_child(function, f->rt);
    expect_parent_is_well(f, token);
    assert_int_equal(hold_of(f->rt, "x").count, 2);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    unlock_for_good(f, "x");
}

TEST(a_child_holds_nothing_and_works_at_once)
{
    with_child(*state, child_holds_nothing);
}

TEST(a_child_may_unlock_what_its_parent_holds)
{
    with_child(*state, child_unlocks);
}

TEST(a_child_may_be_looked_at_and_shut_down)
{
    with_child(*state, child_looks_on);
}

TEST_ON(a_child_may_close_the_runtime, fixture *f)
{
    with_child(f, child_closes);
    assert_false(server_has(f->server, "lock:y"));
}

TEST(a_child_may_close_the_runtime_unused)
{
    with_child(*state, child_closes_at_once);
}

TEST(a_child_may_leave_the_runtime_unused)
{
    with_child(*state, child_does_nothing);
}

TEST(a_child_may_fork)
{
    with_child(*state, child_forks);
}

TEST_ON(a_child_that_ends_holding_blocks_one_lease_at_most, fixture *f)
{
    fixture_open(f, LONG_LEASE_MS);
    run_child(child_exits_holding, f->rt);
    lock_and_release(f->rt, "z", LIMIT_MS);
}

/* ------------------------------------------------------ parent and child */

static void token_of_child(dibs_runtime *rt)
{
    dibs_owner owner;

    CHILD_WANTS(DIBS_OK, dibs_lock(rt, "child"));
    CHILD_WANTS(DIBS_OK, dibs_query(rt, "child", &owner));
    CHILD_WANTS(DIBS_NOT_HELD, dibs_force_unlock(rt, "x", owner.token));
    CHILD_WANTS(DIBS_OK, dibs_unlock(rt, "child"));
}

/* Whether two tokens have a run of at least 16 hexadecimal digits in common. */
static bool share_a_long_word(const char *one, const char *other)
{
    char word[200];

    while (*one) {
        size_t length = strspn(one, "0123456789abcdefABCDEF");

        if (length >= 16) {
            memcpy(word, one, length);
            word[length] = '\0';
            if (strstr(other, word))
                return true;
        }
        one += length ? length : 1;
    }
    return false;
}

static int pipes[2]; /* by which the child tells its token */

static void child_tells_its_token(dibs_runtime *rt)
{
    dibs_owner its;

    CHILD_WANTS(DIBS_OK, dibs_trylock(rt, "child"));
    CHILD_WANTS(DIBS_OK, dibs_query(rt, "child", &its));
    CHILD_WANTS(DIBS_OK, dibs_unlock(rt, "child"));
    if (write(pipes[1], its.token, sizeof its.token) != sizeof its.token)
        _exit(1);
}

TEST_ON(a_childs_runtime_has_its_own_id, fixture *f)
{
    dibs_owner its;

    fixture_open_holding(f, LONG_LEASE_MS, "x");
    assert_status(DIBS_OK, dibs_lock(f->rt, "y"));
    dibs_owner mine = owner_of(f->rt, "x");
    dibs_owner again = owner_of(f->rt, "y");
    assert_int_equal(pipe(pipes), 0);
    run_child(child_tells_its_token, f->rt);
    assert_int_equal(read(pipes[0], its.token, sizeof its.token), sizeof its.token);
    close(pipes[0]);
    close(pipes[1]);
    /* 128 random bits as hexadecimal digits: the same for all tokens of one runtime, different in the child. */
    assert_true(share_a_long_word(mine.token, again.token));
    assert_false(share_a_long_word(mine.token, its.token));
    run_child(token_of_child, f->rt);
    assert_status(DIBS_OK, dibs_unlock_all(f->rt));
}

/* Child and parent want the same name at the same time. */
TEST_ON(parent_and_child_exclude_each_other, fixture *f)
{
    long long asks;

    fixture_open_holding(f, LONG_LEASE_MS, "x");
    uint64_t fence = fence_of(f->rt, "x");
    asks = server_asks(f->server);
    pid_t child = fork_child();
    if (child == 0) {
        dibs_hold hold;

        CHILD_WANTS(DIBS_OK, dibs_timedlock(f->rt, "x", LIMIT_MS));
        CHILD_WANTS(DIBS_OK, dibs_hold_of(f->rt, "x", &hold));
        CHILD_WANTS(DIBS_OK, dibs_unlock(f->rt, "x"));
        _exit(hold.fence > fence ? 0 : 1);
    }
    server_await_ask(f->server, asks);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    lock_and_release(f->rt, "x", LIMIT_MS);
    assert_int_equal(child_wait(child), 0);
}

/* ------------------------------------------------- forks under a full load */

struct load {
    dibs_runtime *rt;
    const char *name;
    atomic_bool stop;
    atomic_uint cycles;
    atomic_uint wrong;
};

static void lock_in_a_loop(void *arg)
{
    struct load *l = arg;

    while (!atomic_load(&l->stop)) {
        if (dibs_lock(l->rt, l->name) != DIBS_OK || dibs_unlock(l->rt, l->name) != DIBS_OK)
            atomic_fetch_add(&l->wrong, 1);
        atomic_fetch_add(&l->cycles, 1);
    }
}

/* Short leases as in child_tells_its_token. */
static void child_cycles(dibs_runtime *rt)
{
    const dibs_lock_options brief = {.lease_ms = SAFE_LEASE_MS};

    CHILD_WANTS(DIBS_NOT_HELD, dibs_check(rt, "busy"));
    CHILD_WANTS(DIBS_OK, dibs_lock_with(rt, "busy", LIMIT_MS, &brief));
    CHILD_WANTS(DIBS_OK, dibs_unlock(rt, "busy"));
    CHILD_WANTS(DIBS_OK, dibs_lock_with(rt, "own", LIMIT_MS, &brief));
    CHILD_WANTS(DIBS_OK, dibs_unlock(rt, "own"));
}

/* A fork at any moment of another thread's call leaves no mutex locked, and no reply goes astray. */
TEST_ON(fork_at_any_moment_leaves_no_mutex_locked, fixture *f)
{
    enum { THREADS = 4, FORKS = 40 };
    struct load loads[THREADS];
    actor *actors[THREADS];

    fixture_open_patient(f, LONG_LEASE_MS);
    for (int i = 0; i < THREADS; i++) {
        loads[i].rt = f->rt;
        loads[i].name = i % 2 ? "busy" : "other";
        atomic_init(&loads[i].stop, false);
        atomic_init(&loads[i].cycles, 0);
        atomic_init(&loads[i].wrong, 0);
        actors[i] = actor_start();
        actor_begin(actors[i], lock_in_a_loop, &loads[i]);
    }
    for (int i = 0; i < FORKS; i++)
        run_child(child_cycles, f->rt);
    for (int i = 0; i < THREADS; i++)
        atomic_store(&loads[i].stop, true);
    for (int i = 0; i < THREADS; i++) {
        actor_end(actors[i]);
        assert_int_equal(atomic_load(&loads[i].wrong), 0);
        assert_true(atomic_load(&loads[i].cycles) > 0);
    }
    assert_int_equal(stats_of(f->rt).reconnects, 0);
}

/* A thread of the parent waits in the store's queue; the child must not keep that entry alive, nor take its grant. */
TEST_ON(a_child_leaves_its_parents_place_in_the_queue_alone, fixture *f)
{
    long long asks;

    fixture_open(f, LONG_LEASE_MS);
    server_do(f->server, "SET lock:x by-hand PX 600000");
    asks = server_asks(f->server);
    actor *waiter = actor_locking(f->rt, "x", DIBS_WAIT_FOREVER);
    server_await_ask(f->server, asks);
    for (int i = 0; i < 5; i++) {
        run_child(child_holds_nothing, f->rt);
        assert_true(actor_busy(waiter));
    }
    server_do(f->server, "DEL lock:x");
    actor_gets(waiter, f->rt, "x");
}

/* ---------------------------------------------------------------- exec */

static int inherited_descriptors(void)
{
    process *p = process_start((const char *const[]){program_path("descriptors"), NULL});
    int count = atoi(process_read(p));

    assert_int_equal(process_wait(p, LIMIT_MS), 0);
    process_free(p);
    return count;
}

/*
 * A waiter died, and its child lives on with the inherited descriptors: the server must not take the child for the
 * waiter.
 */
TEST_ON(a_child_does_not_listen_for_its_parent, fixture *f)
{
    process *team = process_start((const char *const[]){program_path("team"), NULL});

    fixture_open_holding(f, LONG_LEASE_MS, "x");
    assert_string_equal(process_ask(team, "open %s %d", f->server->url, LONG_LEASE_MS), "DIBS_OK ");
    process_write(team, "lock 0 x -1 0");
    queue_await(f->server, "x", 1);
    queue_entry entry = queue_at(f->server, "x", 0);
    assert_string_equal(process_ask(team, "fork"), "DIBS_OK ");
    process_kill(team);
    queue_await_no_listener(f->server, entry.channel);
    unlock_for_good(f, "x");
    process_free(team);
}

TEST_ON(exec_inherits_no_descriptor, fixture *f)
{
    int before = inherited_descriptors();
    long long asks;

    fixture_open_holding(f, LONG_LEASE_MS, "x");
    server_do(f->server, "SET lock:y by-hand PX 600000");
    asks = server_asks(f->server);
    actor *waiter = actor_locking(f->rt, "y", DIBS_WAIT_FOREVER);
    server_await_ask(f->server, asks);
    assert_int_equal(inherited_descriptors(), before);
    server_do(f->server, "DEL lock:y");
    assert_status(DIBS_OK, actor_result(waiter));
    actor_end(waiter);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    assert_true(server_wait_gone(f->server, "lock:y", LIMIT_MS));
}

TESTS(fixture_setup, fixture_teardown)
