/* A runtime as a whole: opening, shutting down, closing, threads that end, and forks. */
#include <unistd.h>

#include "core/holds.h"
#include "support/fixture.h"
#include "support/process.h"
#include "support/stage.h"

#define LEASE 30000
#define CROWD 6

/* -------------------------------------------------------------------- fork */

/*
 * In the child of a program with threads ThreadSanitizer allows no thread at
 * the place of one that the parent had, and the allocator of AddressSanitizer
 * may be locked for ever.
 */
#if !defined(TEST_UNDER_TSAN) && !defined(TEST_UNDER_ASAN)
/*
 * In a child the first use of a runtime makes a core. The opener of the store is the place to stand meanwhile. There is
 * room for one thread.
 */
static struct {
    atomic_bool in_child, may_open;
    atomic_uint opening; /* number of threads that stand there */
    atomic_uint tried;   /* number of threads that stay alive until both have tried */
} crossing;

static dibs_status open_on_demand(struct dibs__store **out, const struct dibs__store_config *config,
                                  struct dibs__error *error)
{
    if (atomic_load(&crossing.in_child)) {
        if (atomic_fetch_add(&crossing.opening, 1) > 0)
            return dibs__error_set(error, DIBS_NO_MEMORY, "no room for a second one");
        (void)within(LIMIT_MS, atomic_load(&crossing.may_open));
    }
    return dibs__store_open(out, config, error);
}

static void *try_lock(void *rt)
{
    return (void *)(intptr_t)dibs_trylock(rt, "a");
}

/* The lock of a thread that ends would be released. */
static void *try_lock_with_another(void *rt)
{
    void *status = try_lock(rt);

    atomic_fetch_add(&crossing.tried, 1);
    (void)within(LIMIT_MS, atomic_load(&crossing.tried) == 2);
    return status;
}

static int fork_while_one_opens(dibs_runtime *rt)
{
    pthread_t user;
    void *status;

    pthread_create(&user, NULL, try_lock, rt);
    (void)within(LIMIT_MS, atomic_load(&crossing.opening) == 1);
    pid_t pid = fork();
    if (pid == 0) {
        atomic_store(&crossing.may_open, true);
        atomic_store(&crossing.opening, 0);
        _exit(dibs_trylock(rt, "a") == DIBS_OK ? 0 : 1);
    }
    bool good = child_wait_for(pid, LIMIT_MS) == 0;
    atomic_store(&crossing.may_open, true);
    pthread_join(user, &status);
    return good && (dibs_status)(intptr_t)status == DIBS_OK ? 0 : 2;
}

static int come_at_the_same_time(dibs_runtime *rt)
{
    pthread_t users[2];
    void *statuses[2];

    for (int i = 0; i < 2; i++)
        pthread_create(&users[i], NULL, try_lock_with_another, rt);
    (void)within(LIMIT_MS, atomic_load(&crossing.opening) == 1);
    pause_ms(50); /* the other one comes */
    atomic_store(&crossing.may_open, true);
    for (int i = 0; i < 2; i++)
        pthread_join(users[i], &statuses[i]);
    dibs_close(rt);
    intptr_t first = (intptr_t)statuses[0], second = (intptr_t)statuses[1];
    return (first == DIBS_OK) + (second == DIBS_OK) == 1 && first + second == DIBS_OK + DIBS_BUSY ? 0 : 3;
}

static void use_in_a_child(int (*use)(dibs_runtime *rt))
{
    struct dibs__error error;
    struct dibs__settings settings = {.lease_ms = LEASE, .command_timeout_ms = 1000, .open_store = open_on_demand};
    dibs_runtime *rt;

    assert_true(dibs__settings_add_url(&settings, "mem:", 4));
    settings.key_prefix = strdup("");
    settings.label = strdup("x");
    assert_status(DIBS_OK, dibs__runtime_open(&rt, &settings, &dibs__system_clock, &error));
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(60); /* two threads that wait for each other would wait for ever */
        atomic_store(&crossing.in_child, true);
        _exit(use(rt));
    }
    assert_int_equal(child_wait(pid), 0);
    dibs_close(rt);
}

TEST_WITH(a_fork_may_come_while_a_child_makes_its_core, NULL, NULL, void *none)
{
    use_in_a_child(fork_while_one_opens);
}

TEST_WITH(threads_of_a_child_that_come_first_together_make_one_core, NULL, NULL, void *none)
{
    use_in_a_child(come_at_the_same_time);
}

/* In the child, nothing is held, the store is a new one, and the same handle works and can be closed. */
static int use_in_child(dibs_runtime *rt, dibs_runtime *unused)
{
    dibs_owner owner;

    if (dibs_check(rt, "a") != DIBS_NOT_HELD || dibs_unlock(rt, "a") != DIBS_NOT_HELD)
        return 2;
    if (dibs_query(rt, "a", &owner) != DIBS_OK || owner.held)
        return 3;
    if (dibs_trylock(rt, "a") != DIBS_OK || dibs_trylock(rt, "a") != DIBS_OK)
        return 4;
    if (dibs_unlock_all(rt) != DIBS_OK)
        return 5;
    dibs_close(unused);
    dibs_close(rt);
    return 0;
}

TEST_WITH(a_child_holds_nothing_and_has_a_store_of_its_own, NULL, NULL, void *none)
{
    dibs_runtime *rt = open_url("mem:forked", NULL), *unused = open_url("mem:forked", NULL);

    assert_status(DIBS_OK, dibs_lock(rt, "a"));
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(use_in_child(rt, unused));
    assert_int_equal(child_wait(pid), 0);
    assert_status(DIBS_OK, dibs_check(rt, "a"));
    assert_status(DIBS_BUSY, dibs_trylock(unused, "a"));
    assert_status(DIBS_OK, dibs_unlock(rt, "a"));
    dibs_close(unused);
    dibs_close(rt);
}

/* A close in the child waits for the child's threads alone. */
TEST_WITH(a_child_may_close_a_runtime_that_its_parent_uses, NULL, NULL, void *none)
{
    dibs_runtime *rt = open_url("mem:", NULL), *closed = open_url("mem:", NULL);
    dibs_owner owner;

    assert_status(DIBS_OK, dibs_lock(rt, "a"));
    actor *waiter = actor_locking(rt, "a", DIBS_WAIT_FOREVER);
    actor_await_asleep(waiter);
    dibs_close(closed);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        bool good = dibs_query(closed, "a", &owner) == DIBS_CLOSED && dibs_trylock(rt, "a") == DIBS_OK;
        dibs_close(closed);
        dibs_close(rt);
        _exit(good && dibs_query(rt, "a", &owner) == DIBS_CLOSED ? 0 : 2);
    }
    assert_int_equal(child_wait(pid), 0);
    pid = fork(); /* a child that has not used the runtime before */
    assert_true(pid >= 0);
    if (pid == 0) {
        dibs_close(rt);
        _exit(dibs_query(rt, "a", &owner) == DIBS_CLOSED ? 0 : 2);
    }
    assert_int_equal(child_wait(pid), 0);
    assert_status(DIBS_OK, dibs_unlock(rt, "a"));
    assert_status(DIBS_OK, actor_result(waiter));
    actor_end(waiter);
    dibs_close(rt);
}

#endif

/* ------------------------------------------------------------------ opening */

TEST_ON(a_failed_open_leaves_nothing, stage *s)
{
    static const char *const urls[] = {"redis://", "nonsense", "unix://relative", "redis://127.0.0.1:1"};
    static const dibs_status statuses[] = {DIBS_INVALID, DIBS_INVALID, DIBS_INVALID, DIBS_UNAVAILABLE};
    struct dibs__error error;

    for (size_t i = 0; i < sizeof urls / sizeof urls[0]; i++) {
        struct dibs__settings settings = s->settings;
        settings.open_store = NULL;
        assert_true(dibs__settings_add_url(&settings, urls[i], strlen(urls[i])));
        settings.key_prefix = strdup("");
        settings.label = strdup("x");
        dibs_runtime *rt = NULL;
        assert_status(statuses[i], dibs__runtime_open(&rt, &settings, &dibs__system_clock, &error));
        assert_null(rt);
        assert_null(settings.urls); /* the runtime has taken over the settings although it failed */
        assert_true(error.detail[0] != '\0');
    }
}

/* ----------------------------------------------------------------- shutdown */

TEST_ON(shutdown_ends_all_waits_and_nothing_else, stage *s)
{
    actor *crowd[CROWD];

    stage_open(s, LEASE);
    faults_acquire(&s->faults, DIBS_OK, 0);
    assert_status(DIBS_OK, dibs_lock(s->rt, "held"));
    faults_acquire(&s->faults, DIBS_BUSY, FOR_EVER);
    for (size_t i = 0; i < CROWD;
         i++) { /* for each name one thread asks and one waits for it; two more wait for a holder of this process */
        crowd[i] = stage_waiter(s, i < 4 ? (i % 2 ? "a" : "b") : "held", DIBS_WAIT_FOREVER, i + 1);
    }
    dibs_shutdown(s->rt);
    for (size_t i = 0; i < CROWD; i++)
        assert_status(DIBS_CLOSED, actor_result(crowd[i]));
    unsigned asked = acquires(s);
    assert_status(DIBS_CLOSED, actor_lock(crowd[0], s->rt, "c", 0));
    assert_status(DIBS_CLOSED, actor_lock(crowd[0], s->rt, "held", 0)); /* although that name is taken */
    assert_status(DIBS_CLOSED, dibs_lock(s->rt, "held"));               /* a nested acquire is refused, too */
    assert_int_equal(acquires(s), asked);
    assert_status(DIBS_OK, dibs_check(s->rt, "held"));
    stage_advance(s, MS(10000)); /* still renewed */
    assert_int_equal(stats_of(s->rt).renewed, 1);
    assert_status(DIBS_OK, dibs_extend(s->rt, "held", LEASE));
    assert_status(DIBS_OK, dibs_unlock(s->rt, "held"));
    dibs_shutdown(s->rt);
    dibs_shutdown(NULL);
}

TEST_ON(a_grant_in_flight_at_the_shutdown_is_kept_or_closed, stage *s)
{
    stage_open(s, LEASE);
    faults_block_acquires(&s->faults);
    actor *asker = actor_locking(s->rt, "a", DIBS_WAIT_FOREVER);
    faults_await_blocked(&s->faults);
    dibs_shutdown(s->rt);
    faults_unblock_acquires(&s->faults);
    dibs_status status = actor_result(asker);
    assert_true(status == DIBS_OK || status == DIBS_CLOSED);
    assert_status(status == DIBS_OK ? DIBS_OK : DIBS_NOT_HELD, actor_unlock(asker, s->rt, "a"));
}

/* ------------------------------------------------------------------- close */

/*
 * A close makes its leases lost for every thread that still looks at them: before the close has returned, another
 * process may own the key.
 */
TEST_ON(locks_released_by_close_are_lost, stage *s)
{
    stage_open_holding(s, LEASE);
    struct dibs__lease *lease = dibs__holds_find(s->rt->serial, "a", 1)->lease;
    dibs__lease_ref(lease);
    assert_false(dibs__lease_is_lost(lease, moved_clock_now(&s->clock)));
    close_runtime(&s->rt);
    assert_true(dibs__lease_is_lost(lease, moved_clock_now(&s->clock)));
    dibs__lease_unref(lease);
}

TEST_ON(closing_releases_what_other_threads_hold, stage *s)
{
    stage_open_at(s, "mem:closing", LEASE);
    dibs_runtime *second = test_runtime(stage_open_another(s, LEASE));
    actor *holder = actor_holding(s->rt, "a");
    assert_status(DIBS_OK, actor_lock(holder, s->rt, "a", 0));
    assert_status(DIBS_OK, actor_lock(holder, s->rt, "b", 0));
    assert_status(DIBS_OK, actor_lock(holder, second, "c", 0));
    actor *waiter = stage_waiter(s, "a", DIBS_WAIT_FOREVER, 1);
    close_runtime(&s->rt);
    assert_status(DIBS_CLOSED, actor_result(waiter));
    assert_status(DIBS_OK, dibs_trylock(second, "a"));
    assert_status(DIBS_OK, dibs_trylock(second, "b"));
    assert_status(DIBS_OK, actor_check(holder, second, "c"));
    assert_status(DIBS_OK, actor_unlock(holder, second, "c"));
    actor_end(holder); /* with two holds of a runtime that is gone */
}

TEST_ON(a_new_runtime_is_not_the_old_one, stage *s)
{
    for (int i = 0; i < 20; i++) {
        stage_open(s, LEASE);
        assert_status(DIBS_NOT_HELD, dibs_check(s->rt, "a"));
        assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
        close_runtime(&s->rt);
    }
}

/* The closed runtime says so to other threads as well, which could not know. */
TEST_ON(a_closed_runtime_says_so_for_ever, stage *s)
{
    actor *late = actor_start(), *later = actor_start();
    dibs_hold hold;
    dibs_owner owner;
    dibs_stats zero = {0}, stats;

    stage_open(s, LEASE);
    dibs_runtime *rt = s->rt;
    for (int i = 0; i < 2; i++)
        assert_status(DIBS_OK, actor_lock(late, rt, "a", 0));
    assert_status(DIBS_OK, actor_lock(late, rt, "b", 0));
    assert_status(DIBS_OK, actor_lock(late, rt, "c", 0));
    dibs_close(rt);
    s->rt = NULL;
    stage_open(s, LEASE); /* the new runtime does not get the holds of the old one */
    assert_status(DIBS_LOST, actor_check(late, rt, "a"));
    assert_status(DIBS_LOST, actor_hold(late, rt, "a", &hold));
    assert_true(hold.lost && hold.count == 2 && hold.fence > 0 && hold.remaining_ms == 0);
    assert_status(DIBS_CLOSED, actor_lock(late, rt, "a", 0)); /* nested */
    assert_status(DIBS_CLOSED, actor_lock(late, rt, "new", 0));
    assert_status(DIBS_LOST, actor_extend(late, rt, "a", LEASE));
    assert_status(DIBS_LOST, actor_unlock(late, rt, "a"));
    assert_status(DIBS_LOST, actor_unlock(late, rt, "a"));
    assert_status(DIBS_NOT_HELD, actor_unlock(late, rt, "a"));
    assert_status(DIBS_LOST, actor_unlock_all(late, rt));
    assert_status(DIBS_OK, actor_unlock_all(late, rt));
    assert_status(DIBS_NOT_HELD, actor_check(late, rt, "b"));
    assert_status(DIBS_CLOSED, actor_lock(later, rt, "a", DIBS_WAIT_FOREVER));
    assert_status(DIBS_NOT_HELD, actor_extend(later, rt, "a", LEASE));
    assert_status(DIBS_CLOSED, dibs_query(rt, "a", &owner));
    assert_status(DIBS_CLOSED, dibs_force_unlock(rt, "a", NULL));
    assert_status(DIBS_INVALID, dibs_query(rt, "", &owner));
    memset(&stats, 0xff, sizeof stats);
    dibs_stats_get(rt, &stats);
    assert_memory_equal(&stats, &zero, sizeof stats);
    dibs_shutdown(rt);
    dibs_close(rt);
}

/* What dibs_check returns while the store deletes a key. */
static dibs_status checked_meanwhile;
static dibs_runtime *checked_runtime;

static void check_meanwhile(struct dibs__store *store, const char *name, const char *token, uint32_t lease_ms,
                            uint64_t fence)
{
    checked_meanwhile = dibs_check(checked_runtime, name);
}

static dibs_status open_checking(struct dibs__store **out, const struct dibs__store_config *config,
                                 struct dibs__error *error)
{
    static struct dibs__store_ops ops;
    dibs_status status = dibs__store_open(out, config, error);

    if (status == DIBS_OK) {
        ops = *(*out)->ops;
        ops.retract = check_meanwhile;
        (*out)->ops = &ops;
    }
    return status;
}

TEST_ON(a_lease_is_lost_before_the_close_lets_the_store_delete_its_key, stage *s)
{
    s->settings.open_store = open_checking;
    stage_open_holding(s, LEASE);
    checked_runtime = s->rt;
    checked_meanwhile = DIBS_OK;
    close_runtime(&s->rt);
    assert_status(DIBS_LOST, checked_meanwhile);
}

static void close_in_actor(void *arg)
{
    dibs_close(((stage *)arg)->rt);
}

/* Releases that the store did not confirm: closing waits for them, connect_timeout + command_timeout at most. */
TEST_ON(closing_waits_for_retractions_for_a_limited_time, stage *s)
{
    static const bool confirms[] = {true, false};
    actor *closer = actor_start();

    for (size_t i = 0; i < sizeof confirms / sizeof confirms[0]; i++) {
        stage_open_holding(s, LEASE);
        faults_release(&s->faults, DIBS_UNAVAILABLE, 1);
        assert_status(DIBS_UNAVAILABLE, dibs_unlock(s->rt, "a"));
        actor_begin(closer, close_in_actor, s);
        stage_await_waiting(s, 1);
        moved_clock_advance(&s->clock, MS(1999));
        stage_await_waiting(s, 1);
        assert_true(actor_busy(closer));
        if (confirms[i]) {
            /* The scheduler's thread may see by itself what is confirmed; were the closer let go then, it would free
             * the scheduler that is about to be woken here. */
            stage_settle(s);
            moved_clock_stop_the_woken(&s->clock);
            faults_confirm(&s->faults);
            dibs__scheduler_wake(s->rt->core->scheduler);
            moved_clock_let_the_woken_go(&s->clock);
        } else {
            moved_clock_advance(&s->clock, MS(1));
        }
        actor_finish(closer);
    }
    s->rt = NULL;
}

TEST_ON(closing_waits_for_a_call_in_progress, stage *s)
{
    stage_open(s, LEASE);
    faults_block_acquires(&s->faults);
    actor *asker = actor_locking(s->rt, "a", 0);
    faults_await_blocked(&s->faults);
    actor *closer = actor_running(close_in_actor, s);
    while (!atomic_load(&s->rt->closing))
        pause_ms(1);
    assert_true(actor_busy(closer));
    faults_unblock_acquires(&s->faults);
    actor_result(asker);
    actor_finish(closer);
    s->rt = NULL;
}

/* The call that is inside takes 1,500 of the 2,000 ms, so the store that confirms nothing is left 500. */
TEST_ON(closing_waits_once_for_calls_and_the_store_together, stage *s)
{
    stage_open_holding(s, LEASE);
    faults_release(&s->faults, DIBS_UNAVAILABLE, 1);
    assert_status(DIBS_UNAVAILABLE, dibs_unlock(s->rt, "a"));
    faults_block_acquires(&s->faults);
    actor *asker = actor_locking(s->rt, "b", 0);
    faults_await_blocked(&s->faults);
    actor *closer = actor_running(close_in_actor, s);
    REPEAT_UNTIL(atomic_load(&s->rt->visits[0].inside) & DIBS__VISITS_CLOSED, pause_ms(1));
    moved_clock_advance(&s->clock, MS(1500));
    faults_unblock_acquires(&s->faults);
    actor_result(asker);
    stage_await_waiting(s, 1);
    moved_clock_advance(&s->clock, MS(499));
    stage_await_waiting(s, 1);
    assert_true(actor_busy(closer));
    moved_clock_advance(&s->clock, MS(1));
    actor_finish(closer);
    s->rt = NULL;
}

/* ------------------------------------------------------------- a thread's end */

TEST_ON(a_thread_that_ends_gives_up_its_locks, stage *s)
{
    static void (*const ends[])(actor *) = {actor_end, actor_exit, actor_cancel};

    stage_open(s, LEASE);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        actor *holder = actor_holding(s->rt, "a");
        dibs_hold hold;
        assert_status(DIBS_OK, actor_lock(holder, s->rt, "a", 0));
        assert_status(DIBS_OK, actor_hold(holder, s->rt, "a", &hold));
        actor *waiter = stage_waiter(s, "a", DIBS_WAIT_FOREVER, 1);
        ends[i](holder);
        assert_status(DIBS_OK, actor_result(waiter));
        assert_int_equal(stats_of(s->rt).orphaned, i + 1);
        assert_int_equal(stats_of(s->rt).leases, 1);
        assert_int_equal(stats_of(s->rt).holds, 1);
        assert_int_equal(events_await(&s->events, DIBS_EVENT_ORPHANED, "a").fence <= hold.fence, 1);
        assert_status(DIBS_OK, actor_unlock(waiter, s->rt, "a"));
        actor_end(waiter);
    }
    close_runtime(&s->rt);
    assert_int_equal(events_count(&s->events, DIBS_EVENT_ORPHANED, "a"), 3);
    assert_int_equal(events_count(&s->events, DIBS_EVENT_LOST, NULL), 0);
}

TEST_ON(a_thread_that_ends_with_a_lost_lock_orphans_nothing, stage *s)
{
    actor *holder = actor_start();
    const dibs_lock_options fixed = {.flags = DIBS_FIXED_LEASE};

    stage_open(s, LEASE);
    assert_status(DIBS_OK, actor_lock_with(holder, s->rt, "a", 0, &fixed));
    stage_advance(s, believed(LEASE));
    actor_end(holder);
    assert_int_equal(stats_of(s->rt).orphaned, 0);
    assert_int_equal(stats_of(s->rt).lost, 1);
    assert_int_equal(stats_of(s->rt).holds, 0);
}

/* ------------------------------------------------------------ two runtimes */

TEST_ON(two_runtimes_on_one_thread_are_two_owners, stage *s)
{
    stage_open_at(s, "mem:two", LEASE);
    dibs_runtime *second = stage_open_another(s, LEASE);
    s->url = "mem:three";
    dibs_runtime *elsewhere = test_runtime(stage_open_another(s, LEASE));
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    assert_status(DIBS_BUSY, dibs_trylock(second, "a"));
    assert_status(DIBS_OK, dibs_trylock(elsewhere, "a"));
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    assert_status(DIBS_OK, dibs_trylock(second, "a"));
    assert_status(DIBS_NOT_HELD, dibs_unlock(s->rt, "a"));
    dibs_close(second);
    assert_status(DIBS_OK, dibs_check(elsewhere, "a"));
    assert_status(DIBS_OK, dibs_trylock(s->rt, "a"));
}

/* ------------------------------------------------------------------- prefixes */

static bool copy_name(const char *name, const dibs_owner *owner, void *arg)
{
    (void)owner;
    strcat(arg, name);
    return true;
}

/* As at a server: the prefix and the name together are the lock. */
TEST_WITH(in_memory_the_prefix_is_a_part_of_the_lock, NULL, NULL, void *none)
{
    dibs_runtime *one = test_runtime(open_url("mem:prefixes", NULL));
    dibs_runtime *other = test_runtime(open_url("mem:prefixes", &(dibs_config){.key_prefix = "other:"}));
    dibs_runtime *bare = test_runtime(open_url("mem:prefixes", &(dibs_config){.key_prefix = ""}));
    char names[64] = "";

    assert_status(DIBS_OK, dibs_trylock(one, "a"));
    assert_status(DIBS_OK, dibs_trylock(other, "a"));
    assert_status(DIBS_BUSY, dibs_trylock(bare, "lock:a"));
    actor *waiter = actor_locking(bare, "other:a", LIMIT_MS);
    assert_status(DIBS_OK, dibs_unlock(other, "a"));
    assert_status(DIBS_OK, actor_result(waiter));
    assert_status(DIBS_OK, dibs_list(other, "a", copy_name, names));
    assert_string_equal(names, "a");
    assert_status(DIBS_OK, actor_unlock(waiter, bare, "other:a"));
    assert_status(DIBS_OK, dibs_unlock(one, "a"));
}

/* Of a lock whose name is too long without the prefix that another runtime has, a list tells nothing. */
TEST_WITH(in_memory_no_list_has_a_name_that_is_too_long, NULL, NULL, void *none)
{
    dibs_runtime *one = test_runtime(open_url("mem:prefixes", &(dibs_config){.key_prefix = "one:"}));
    dibs_runtime *bare = test_runtime(open_url("mem:prefixes", &(dibs_config){.key_prefix = ""}));
    char name[DIBS_NAME_MAX + 1], names[2 * sizeof name] = "";

    memset(name, 'n', DIBS_NAME_MAX);
    name[DIBS_NAME_MAX] = '\0';
    assert_status(DIBS_OK, dibs_trylock(one, name));
    assert_status(DIBS_OK, dibs_list(one, NULL, copy_name, names));
    assert_string_equal(names, name);
    assert_status(DIBS_OK, dibs_trylock(bare, "a"));
    *names = '\0';
    assert_status(DIBS_OK, dibs_list(bare, NULL, copy_name, names));
    assert_string_equal(names, "a");
    assert_status(DIBS_OK, dibs_unlock(bare, "a"));
    assert_status(DIBS_OK, dibs_unlock(one, name));
}

TESTS(stage_setup, stage_teardown)
