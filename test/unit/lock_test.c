/* Acquire, unlock, extend and check, for one lock of one thread. */
#include "core/holds.h"
#include "support/fixture.h"
#include "unit/renewal_setup.h"

#if defined(__linux__) && defined(__x86_64__) && !defined(TEST_UNDER_ASAN) && !defined(TEST_UNDER_TSAN) &&             \
    !defined(TEST_COUNTS_LINES)
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "support/process.h"
#endif

/* -------------------------------------------------------------- reentrancy */

TEST_ON(each_acquire_adds_one_and_each_unlock_takes_one_off, stage *s)
{
    for (unsigned i = 1; i <= 1000; i++) {
        assert_status(DIBS_OK, i % 2 ? dibs_lock(s->rt, "a") : dibs_trylock(s->rt, "a"));
        assert_int_equal(hold_of(s->rt, "a").count, i);
    }
    for (unsigned i = 999; i >= 1; i--) {
        assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
        assert_int_equal(hold_of(s->rt, "a").count, i);
    }
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    assert_status(DIBS_NOT_HELD, dibs_unlock(s->rt, "a"));
    assert_int_equal(faults_count(&s->faults, &s->faults.acquires), 1);
    assert_int_equal(faults_count(&s->faults, &s->faults.releases), 1);
    assert_int_equal(stats_of(s->rt).reentered, 999);
    assert_int_equal(stats_of(s->rt).acquired, 1);
    assert_int_equal(stats_of(s->rt).released, 1);
}

TEST_ON(a_nested_acquire_takes_no_option_and_keeps_the_fence, stage *s)
{
    const dibs_lock_options other = {.lease_ms = 100, .flags = DIBS_FIXED_LEASE};

    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    uint64_t fence = fence_of(s->rt, "a");
    assert_true(fence > 0 && fence < UINT64_C(1) << 63);
    assert_status(DIBS_OK, dibs_lock_with(s->rt, "a", 0, &other));
    assert_int_equal(fence_of(s->rt, "a"), fence);
    assert_status(DIBS_OK, dibs_unlock_all(s->rt));
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    assert_true(fence_of(s->rt, "a") > fence);
}

TEST_ON(the_count_does_not_overflow, stage *s)
{
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    dibs__holds_find(s->rt->serial, "a", 1)->count = UINT32_MAX - 1;
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    assert_status(DIBS_OVERFLOW, dibs_lock(s->rt, "a"));
    assert_status(DIBS_OVERFLOW, dibs_trylock(s->rt, "a"));
    assert_int_equal(hold_of(s->rt, "a").count, UINT32_MAX);
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    assert_int_equal(stats_of(s->rt).reentered, 2);
    assert_status(DIBS_OK, dibs_unlock_all(s->rt));
}

TEST_WITH(the_owner_is_a_thread_of_a_runtime, stage_setup, stage_teardown, stage *s)
{
    actor *other = actor_start();
    dibs_hold hold = {.count = 7, .lost = true};

    stage_open_at(s, "mem:owners", LEASE);
    dibs_runtime *second = test_runtime(stage_open_another(s, LEASE));
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    assert_status(DIBS_BUSY, actor_lock(other, s->rt, "a", 0));
    assert_status(DIBS_NOT_HELD, actor_unlock(other, s->rt, "a"));
    assert_status(DIBS_NOT_HELD, actor_hold(other, s->rt, "a", &hold));
    assert_int_equal(hold.count, 0);
    assert_false(hold.lost);
    assert_status(DIBS_BUSY, dibs_trylock(second, "a"));
    assert_status(DIBS_NOT_HELD, dibs_check(second, "a"));
    assert_int_equal(hold_of(s->rt, "a").count, 1);
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    assert_status(DIBS_OK, dibs_trylock(second, "a"));
}

TEST_ON(names_are_told_apart, stage *s)
{
    static const char *const names[] = {"a", "b", "aa", "A", "a ", " a", "\xff", "{a}", "a:b", "-"};
    char longest[DIBS_NAME_MAX + 2];

    memset(longest, 'x', sizeof longest);
    longest[DIBS_NAME_MAX + 1] = '\0';
    assert_status(DIBS_INVALID, dibs_lock(s->rt, longest));
    longest[DIBS_NAME_MAX] = '\0';
    assert_status(DIBS_OK, dibs_lock(s->rt, longest));
    longest[DIBS_NAME_MAX - 1] = 'y';
    assert_status(DIBS_NOT_HELD, dibs_check(s->rt, longest));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_status(DIBS_NOT_HELD, dibs_check(s->rt, names[i]));
        assert_status(DIBS_OK, dibs_lock(s->rt, names[i]));
        assert_int_equal(hold_of(s->rt, names[i]).count, 1);
    }
    assert_int_equal(stats_of(s->rt).holds, sizeof names / sizeof names[0] + 1);
    assert_status(DIBS_OK, dibs_unlock_all(s->rt));
    assert_int_equal(stats_of(s->rt).holds, 0);
}

/* ------------------------------------------------------------------- loss */

TEST_ON(every_unlock_of_a_lost_lock_says_so, stage *s)
{
    dibs_hold hold;

    for (int i = 0; i < 3; i++)
        assert_status(DIBS_OK, dibs_lock_with(s->rt, "a", 0, &fixed));
    uint64_t fence = fence_of(s->rt, "a");
    stage_advance(s, believed(LEASE));
    assert_status(DIBS_LOST, dibs_lock(s->rt, "a"));
    assert_status(DIBS_LOST, dibs_extend(s->rt, "a", LEASE));
    for (uint32_t count = 3; count > 0; count--) {
        assert_status(DIBS_LOST, dibs_hold_of(s->rt, "a", &hold));
        assert_int_equal(hold.count, count);
        assert_int_equal(hold.remaining_ms, 0);
        assert_int_equal(hold.fence, fence);
        assert_true(hold.lost);
        assert_status(DIBS_LOST, dibs_unlock(s->rt, "a"));
    }
    assert_status(DIBS_NOT_HELD, dibs_check(s->rt, "a"));
    assert_status(DIBS_OK, dibs_trylock(s->rt, "a"));
    assert_true(fence_of(s->rt, "a") > fence);
}

/* dibs_check alone finds the loss: the scheduler need not have run. */
TEST_ON(check_turns_lost_at_the_deadline_before_the_store_does, stage *s)
{
    static const uint32_t leases[] = {20, 21, 100, 1000, LEASE, 86400000};
    dibs_owner owner;

    for (size_t i = 0; i < sizeof leases / sizeof leases[0]; i++) {
        const dibs_lock_options options = {.lease_ms = leases[i], .flags = DIBS_FIXED_LEASE};
        int64_t start = moved_clock_now(&s->clock);
        assert_status(DIBS_OK, dibs_lock_with(s->rt, "a", 0, &options));
        moved_clock_set(&s->clock, start + believed(leases[i]) - 1);
        assert_status(DIBS_OK, dibs_check(s->rt, "a"));
        assert_int_equal(hold_of(s->rt, "a").remaining_ms, 0);
        assert_status(DIBS_OK, dibs_query(s->rt, "a", &owner));
        assert_true(owner.held);
        moved_clock_set(&s->clock, start + believed(leases[i]));
        assert_status(DIBS_LOST, dibs_check(s->rt, "a"));
        assert_status(DIBS_LOST, dibs_unlock(s->rt, "a"));
        stage_settle(s); /* in the store the lease lasts for the margin longer, unless it is retracted first; until then
                            a try is busy */
    }
}

TEST_ON(a_lost_lock_keeps_no_thread_of_the_process_waiting, stage *s)
{
    assert_status(DIBS_OK, dibs_lock_with(s->rt, "a", 0, &fixed));
    actor *other = stage_waiter(s, "a", DIBS_WAIT_FOREVER, 1);
    stage_advance(s, believed(LEASE));
    assert_status(DIBS_OK, actor_result(other));
    assert_status(DIBS_LOST, dibs_check(s->rt, "a"));
    assert_status(DIBS_LOST, dibs_unlock(s->rt, "a"));
    assert_status(DIBS_OK, actor_check(other, s->rt, "a"));
    assert_status(DIBS_OK, actor_unlock(other, s->rt, "a"));
}

/* ---------------------------------------------------------------- release */

/* What the store answers to the last unlock, what dibs_unlock returns, and whether a loss is told. */
static const struct {
    dibs_status store, says;
    bool again, lost;
} releases[] = {
    {DIBS_OK, DIBS_OK, false, false},
    {DIBS_UNAVAILABLE, DIBS_UNAVAILABLE, false, false},
    {DIBS_DENIED, DIBS_DENIED, false, false},
    {DIBS_STORE_ERROR, DIBS_STORE_ERROR, false, false},
    {DIBS_NOT_HELD, DIBS_LOST, false, true},
    {DIBS_NOT_HELD, DIBS_OK, true, false}, /* sent twice: the first one released the lock */
};

TEST_ON(an_unlock_says_what_the_store_says, stage *s)
{
    uint64_t lost = 0;

    for (size_t i = 0; i < sizeof releases / sizeof releases[0]; i++) {
        assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
        faults_set(&s->faults, &s->faults.released_again, releases[i].again);
        faults_release(&s->faults, releases[i].store, 1);
        assert_status(releases[i].says, dibs_unlock(s->rt, "a"));
        lost += releases[i].lost;
        assert_int_equal(stats_of(s->rt).lost, lost);
        assert_status(DIBS_NOT_HELD, dibs_unlock(s->rt, "a"));
        assert_int_equal(stats_of(s->rt).holds, 0);
        assert_int_equal(stats_of(s->rt).leases, 0);
        faults_confirm(&s->faults);
        assert_status(DIBS_OK, dibs_force_unlock(s->rt, "a", NULL));
    }
}

TEST_ON(an_unlock_by_another_thread_is_told, stage *s)
{
    actor *other = actor_start();

    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    assert_status(DIBS_NOT_HELD, actor_unlock(other, s->rt, "a"));
    assert_int_equal(stats_of(s->rt).not_held, 1);
    assert_int_equal(events_await(&s->events, DIBS_EVENT_NOT_HELD, "a").fence, 0);
    assert_status(DIBS_OK, dibs_check(s->rt, "a"));
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    assert_int_equal(stats_of(s->rt).not_held, 1);
}

TEST_ON(unlock_all_releases_everything_and_reports_the_first_failure, stage *s)
{
    char name[8];

    dibs_runtime *second = test_runtime(stage_open_another(s, LEASE));
    assert_status(DIBS_OK, dibs_unlock_all(s->rt));
    assert_status(DIBS_OK, dibs_lock(second, "0"));
    actor *other = actor_holding(s->rt, "others");
    for (unsigned i = 0; i < 30; i++) {
        snprintf(name, sizeof name, "%u", i % 10);
        assert_status(DIBS_OK, dibs_lock(s->rt, name));
    }
    faults_release(&s->faults, DIBS_DENIED, 1);
    assert_status(DIBS_DENIED, dibs_unlock_all(s->rt));
    assert_int_equal(stats_of(s->rt).holds, 1);
    assert_status(DIBS_NOT_HELD, dibs_check(s->rt, "0"));
    assert_status(DIBS_OK, dibs_check(second, "0"));
    assert_status(DIBS_OK, actor_check(other, s->rt, "others"));
    faults_confirm(&s->faults);
}

/* --------------------------------------------------------------- arguments */

static dibs_status lock_with(stage *s, int64_t wait_ms, uint32_t lease_ms, uint32_t flags)
{
    const dibs_lock_options options = {.lease_ms = lease_ms, .flags = flags};

    return dibs_lock_with(s->rt, "a", wait_ms, &options);
}

TEST_ON(arguments_are_checked_before_anything_else, stage *s)
{
    dibs_hold hold;

    assert_status(DIBS_INVALID, lock_with(s, -2, 0, 0));
    assert_status(DIBS_INVALID, lock_with(s, INT64_MIN, 0, 0));
    assert_status(DIBS_INVALID, lock_with(s, 0, 19, 0));
    assert_status(DIBS_INVALID, lock_with(s, 0, 86400001, 0));
    assert_status(DIBS_INVALID, lock_with(s, 0, 0, 16));
    assert_status(DIBS_INVALID, lock_with(s, 0, 0, 0x80000000));
    assert_status(DIBS_INVALID, dibs_lock(NULL, "a"));
    assert_status(DIBS_INVALID, dibs_lock(s->rt, NULL));
    assert_status(DIBS_INVALID, dibs_lock(s->rt, ""));
    assert_status(DIBS_INVALID, dibs_unlock(NULL, "a"));
    assert_status(DIBS_INVALID, dibs_unlock(s->rt, ""));
    assert_status(DIBS_INVALID, dibs_unlock_all(NULL));
    assert_status(DIBS_INVALID, dibs_extend(s->rt, "a", 19));
    assert_status(DIBS_INVALID, dibs_extend(s->rt, "a", 86400001));
    assert_status(DIBS_INVALID, dibs_check(NULL, "a"));
    assert_status(DIBS_INVALID, dibs_hold_of(s->rt, "a", NULL));
    assert_status(DIBS_INVALID, dibs_hold_of(NULL, "a", &hold));
    assert_status(DIBS_NOT_HELD, dibs_extend(s->rt, "a", 20));
    assert_int_equal(faults_count(&s->faults, &s->faults.acquires), 0);
    assert_status(DIBS_OK, lock_with(s, INT64_MAX, 86400000, DIBS_FIXED_LEASE));
    assert_status(DIBS_INVALID, lock_with(s, 0, 19, 0)); /* a nested one too */
    assert_status(DIBS_OK, lock_with(s, 0, 0, DIBS_FAIR | DIBS_FIXED_LEASE));
    assert_status(DIBS_OK, dibs_unlock_all(s->rt));
    for (uint32_t flags = 0; flags < 16; flags++) { /* each alone, and all together */
        assert_status(DIBS_OK, lock_with(s, 0, 0, flags));
        assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    }
}

/* ----------------------------------------------------------------- extend */

/* The lease after an extension, and the length that a later renewal asks for. */
TEST_ON(a_lease_is_extended_longer_and_shorter, stage *s)
{
    static const uint32_t leases[] = {60000, 30000, 1000, 20, 86400000};

    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    stage_advance(s, MS(5000));
    for (size_t i = 0; i < sizeof leases / sizeof leases[0]; i++) {
        assert_status(DIBS_OK, dibs_extend(s->rt, "a", leases[i]));
        assert_int_equal(hold_of(s->rt, "a").remaining_ms, believed(leases[i]) / MS(1));
        unsigned before = renewals(s);
        expect_renewals_after(s, MS(leases[i]) / 3 - 1, before);
        expect_renewals_after(s, 1, before + 1);
        assert_int_equal(last_renewal(s).lease_ms, leases[i]);
        assert_int_equal(hold_of(s->rt, "a").remaining_ms, believed(leases[i]) / MS(1));
    }
}

TEST_ON(a_fixed_lease_is_extended_once, stage *s)
{
    assert_status(DIBS_OK, dibs_lock_with(s->rt, "a", 0, &fixed));
    stage_advance(s, MS(20000));
    assert_status(DIBS_OK, dibs_extend(s->rt, "a", LEASE));
    stage_advance(s, believed(LEASE) - 1);
    assert_status(DIBS_OK, dibs_check(s->rt, "a"));
    stage_advance(s, 1);
    assert_status(DIBS_LOST, dibs_check(s->rt, "a"));
    assert_int_equal(renewals(s), 1);
}

/* An actor that holds the lock for a while, and then has asked for an extension; no renewal is answered. */
static actor *begin_extension(stage *s, int64_t held_ns, uint32_t lease_ms)
{
    actor *a = actor_start();

    assert_status(DIBS_OK, actor_lock(a, s->rt, "a", DIBS_WAIT_FOREVER));
    faults_hold_renewals(&s->faults);
    stage_advance(s, held_ns);
    actor_begin_extend(a, s->rt, "a", lease_ms);
    stage_await_waiting(s, 1);
    stage_settle(s);
    return a;
}

static int64_t remaining_of(actor *a, dibs_runtime *rt)
{
    dibs_hold hold;

    assert_status(DIBS_OK, actor_hold(a, rt, "a", &hold));
    return hold.remaining_ms;
}

TEST_ON(an_extension_not_answered_in_time_says_so, stage *s)
{
    static const struct {
        uint32_t lease_ms;
        int64_t left; /* what is left until the earlier of both ends */
    } cases[] = {{60000, LEASE}, {5000, 5000}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        actor *a = begin_extension(s, 0, cases[i].lease_ms);
        moved_clock_advance(&s->clock, MS(999));
        assert_true(actor_busy(a));
        moved_clock_advance(&s->clock, MS(1));
        assert_status(DIBS_UNAVAILABLE, actor_result(a));
        assert_int_equal(remaining_of(a, s->rt), (believed((uint32_t)cases[i].left) - MS(1000)) / MS(1));
        actor_unlock_all(a, s->rt);
        stage_let_renewals_go(s);
        stage_settle(s);
    }
}

TEST_WITH(an_extension_that_failed_is_tried_again_until_its_time_is_over, stage_setup, stage_teardown, stage *s)
{
    stage_open(s, 2000); /* tried again every 100 ms */
    actor *a = actor_holding(s->rt, "a");
    faults_renewal(&s->faults, DIBS_UNAVAILABLE, 3);
    actor_begin_extend(a, s->rt, "a", LEASE);
    stage_await_waiting(s, 1);
    for (int i = 0; i < 3; i++)
        stage_advance(s, MS(100));
    assert_status(DIBS_OK, actor_result(a));
    assert_int_equal(remaining_of(a, s->rt), believed(LEASE) / MS(1));
}

TEST_ON(an_extension_that_is_refused_says_so_at_once, stage *s)
{
    static const dibs_status refusals[] = {DIBS_DENIED, DIBS_STORE_ERROR, DIBS_NO_MEMORY};

    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        faults_renewal(&s->faults, refusals[i], 1);
        assert_status(refusals[i], dibs_extend(s->rt, "a", 60000));
        assert_int_equal(hold_of(s->rt, "a").remaining_ms, believed(LEASE) / MS(1));
    }
    faults_renewal_gone(&s->faults, "a");
    assert_status(DIBS_LOST, dibs_extend(s->rt, "a", 60000));
    assert_status(DIBS_LOST, dibs_check(s->rt, "a"));
}

/* The extension is sent when that renewal is answered, so that the store hears of the extension last. */
TEST_ON(an_extension_while_a_renewal_is_in_flight_comes_after_it, stage *s)
{
    actor *a = begin_extension(s, MS(10000), 60000); /* a renewal is in flight, with the old length */

    assert_int_equal(renewals(s), 1);
    stage_let_renewals_go(s);
    assert_status(DIBS_OK, actor_result(a));
    assert_int_equal(remaining_of(a, s->rt), believed(60000) / MS(1));
    assert_int_equal(renewals(s), 2);
    assert_int_equal(s->faults.records[0].lease_ms, LEASE);
    assert_int_equal(s->faults.records[1].lease_ms, 60000);
}

/* The answer comes in the round in which the lease ends: dibs_extend and dibs_check must agree. */
TEST_WITH(an_extension_answered_after_the_deadline_fails, stage_setup, stage_teardown, stage *s)
{
    s->settings.command_timeout_ms = LEASE * 2;
    stage_open(s, LEASE);
    actor *a = begin_extension(s, 0, 60000);
    faults_let_renewals_go(&s->faults);
    moved_clock_advance(&s->clock, believed(LEASE));
    assert_status(DIBS_LOST, actor_result(a));
    assert_status(DIBS_LOST, actor_check(a, s->rt, "a"));
    assert_int_equal(stats_of(s->rt).lost, 1);
}

/* ----------------------------------------------------------- no system call */

#if defined(__linux__) && defined(__x86_64__) && !defined(TEST_UNDER_ASAN) && !defined(TEST_UNDER_TSAN) &&             \
    !defined(TEST_COUNTS_LINES)
#define ALLOW(call) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##call, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static bool forbid_system_calls(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(clock_gettime), /* where the kernel offers no vDSO */
        ALLOW(write),
        ALLOW(exit_group),
        ALLOW(exit),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {.len = sizeof filter / sizeof filter[0], .filter = filter};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* In a child, because the filter cannot be taken off again. */
static int nest(const char *held)
{
    const char *url = "mem:";
    const dibs_config config = {.urls = &url, .url_count = 1};
    dibs_runtime *rt;
    dibs_hold hold;

    if (dibs_open(&rt, &config) != DIBS_OK || dibs_lock(rt, "a") != DIBS_OK)
        return 2;
    for (const char *c = held; *c; c++)
        if (dibs_lock(rt, (char[]){*c, '\0'}) != DIBS_OK)
            return 3;
    if (!forbid_system_calls())
        return 4;
    for (int i = 0; i < 100000; i++)
        if (dibs_lock(rt, "a") != DIBS_OK || dibs_check(rt, "a") != DIBS_OK ||
            dibs_hold_of(rt, "a", &hold) != DIBS_OK || dibs_unlock(rt, "a") != DIBS_OK)
            return 5;
    return 0;
}

TEST_WITH(a_nested_pair_makes_no_system_call, NULL, NULL, void *none)
{
    static const char *const helds[] = {"", "bcdefghijklmnopqrstuvwxyz"}; /* without and with an index */

    for (size_t i = 0; i < sizeof helds / sizeof helds[0]; i++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0)
            _exit(nest(helds[i]));
        assert_int_equal(child_wait(pid), 0);
    }
}
#endif

TESTS(stage_setup_open, stage_teardown)
