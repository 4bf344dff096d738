/* Handing on: a lease that goes from thread to thread within the process, and when it has to go back to the store. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "support/actor.h"
#include "support/fixture.h"
#include "support/stage.h"
#include "support/test.h"
#include "support/wait.h"

#define LEASE 30000
#define HANDOFF 10
#define LONG (MS(1) + 1) /* who waited so long is handed the lease before any running thread */
#define FOR_LONG 3600000 /* a handoff_ms that no test comes to the end of */
#define FOREVER DIBS_WAIT_FOREVER

static const dibs_lock_options fixed = {.flags = DIBS_FIXED_LEASE}, fair = {.flags = DIBS_FAIR},
                               shorter = {.lease_ms = 20000};

/* As stage_setup, with handing on, and a store that other runtimes see. */
static int setup(void **state)
{
    int status = stage_setup(state);
    stage *s = *state;

    s->settings.handoff_ms = HANDOFF;
    s->url = "mem:handoff";
    return status;
}

/* What the store was asked by s->rt; acquires and releases by all. */
struct asked {
    uint64_t commands;
    unsigned acquires, releases;
};

static struct asked asked(stage *s)
{
    return (struct asked){
        stats_of(s->rt).store_commands,
        faults_count(&s->faults, &s->faults.acquires),
        faults_count(&s->faults, &s->faults.releases),
    };
}

static void expect_asked(stage *s, struct asked before, unsigned commands, unsigned releases, unsigned acquires)
{
    struct asked now = asked(s);

    assert_int_equal(now.commands, before.commands + commands);
    assert_int_equal(now.releases, before.releases + releases);
    assert_int_equal(now.acquires, before.acquires + acquires);
}

static void expect_untouched(stage *s, struct asked before)
{
    expect_asked(s, before, 0, 0, 0);
}

/* One command, which released the lease and asked for the next. */
static void expect_released_with_an_ask(stage *s, struct asked before)
{
    expect_asked(s, before, 1, 1, 1);
}

/* A thread that waits for "a"; with it that many do. */
static actor *waiter(stage *s, size_t waiting, int64_t wait_ms)
{
    actor *a = actor_start();

    actor_begin_lock(a, s->rt, "a", wait_ms);
    stage_await_waiting(s, waiting);
    return a;
}

static uint64_t fence_in(actor *a, dibs_runtime *rt)
{
    dibs_hold hold;

    assert_status(DIBS_OK, actor_hold(a, rt, "a", &hold));
    return hold.fence;
}

static void unlock_and_end(actor *a, dibs_runtime *rt)
{
    assert_status(DIBS_OK, actor_unlock(a, rt, "a"));
    actor_end(a);
}

/* Another runtime can have the lock at once. */
static void expect_free(stage *s)
{
    dibs_runtime *other = stage_open_another(s, LEASE);
    dibs_owner owner;

    assert_status(DIBS_OK, dibs_query(other, "a", &owner));
    assert_false(owner.held);
    assert_int_equal(owner.waiters, 0);
    assert_status(DIBS_OK, dibs_trylock(other, "a"));
    assert_status(DIBS_OK, dibs_unlock(other, "a"));
    dibs_close(other);
}

static void expect_nothing_left(stage *s)
{
    assert_int_equal(stats_of(s->rt).holds, 0);
    assert_int_equal(stats_of(s->rt).leases, 0);
    assert_null(dibs__renewals_take_any(s->rt->core->renewals));
    expect_free(s);
}

/* ------------------------------------------------------------ within the time */

/* Whoever waited for long and whoever did not. */
static void an_unlock_for_a_waiter_here_does_not_touch_the_store(void **state)
{
    static const int64_t waits[] = {0, MS(1), LONG, MS(HANDOFF) - 1};
    enum { COUNT = sizeof waits / sizeof waits[0] };
    stage *s = *state;
    dibs_owner before, after;

    stage_open(s, LEASE);
    for (unsigned i = 0; i < COUNT; i++) {
        assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
        uint64_t fence = fence_of(s->rt, "a");
        actor *next = waiter(s, 1, FOREVER);
        moved_clock_advance(&s->clock, waits[i]);
        assert_status(DIBS_OK, dibs_query(s->rt, "a", &before));
        struct asked then = asked(s);
        assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
        assert_status(DIBS_OK, actor_result(next));
        expect_untouched(s, then);
        assert_int_equal(fence_in(next, s->rt), fence + 1);
        assert_int_equal(stats_of(s->rt).handed_off, i + 1);
        assert_int_equal(stats_of(s->rt).holds, 1);
        assert_status(DIBS_OK, dibs_query(s->rt, "a", &after));
        assert_string_equal(before.token, after.token);
        unlock_and_end(next, s->rt);
        expect_nothing_left(s);
    }
    assert_int_equal(stats_of(s->rt).acquired, 2 * COUNT);
    assert_int_equal(stats_of(s->rt).released, 2 * COUNT);
    assert_int_equal(stats_of(s->rt).contended, COUNT);
    assert_int_equal(stats_of(s->rt).granted, 0);
}

/* All who wait, in the order in which they came, each with the next fence. */
static void it_goes_through_the_whole_line(void **state)
{
    enum { CROWD = 8 };
    stage *s = *state;
    actor *crowd[CROWD];

    stage_open(s, LEASE);
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    uint64_t fence = fence_of(s->rt, "a");
    for (size_t i = 0; i < CROWD; i++)
        crowd[i] = waiter(s, i + 1, FOREVER);
    moved_clock_advance(&s->clock, LONG);
    struct asked before = asked(s);
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    for (size_t i = 0; i < CROWD; i++) {
        assert_status(DIBS_OK, actor_result(crowd[i]));
        assert_int_equal(fence_in(crowd[i], s->rt), fence + i + 1);
        expect_untouched(s, before);
        unlock_and_end(crowd[i], s->rt);
    }
    assert_int_equal(stats_of(s->rt).handed_off, CROWD);
    expect_asked(s, before, 1, 1, 0);
    expect_nothing_left(s);
}

static void who_waited_for_long_has_it_before_a_running_thread(void **state)
{
    stage *s = *state;

    stage_open(s, LEASE);
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    actor *sleeper = waiter(s, 1, FOREVER), *other = actor_start();
    moved_clock_advance(&s->clock, LONG);
    moved_clock_stop_the_woken(&s->clock);
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    moved_clock_await_standing(&s->clock, 1);
    assert_status(DIBS_BUSY, dibs_trylock(s->rt, "a")); /* though nobody runs yet that has it */
    assert_status(DIBS_BUSY, actor_lock(other, s->rt, "a", 0));
    moved_clock_let_the_woken_go(&s->clock);
    assert_status(DIBS_OK, actor_result(sleeper));
    unlock_and_end(sleeper, s->rt);
    actor_end(other);
    expect_nothing_left(s);
}

static void a_running_thread_has_it_before_who_just_came(void **state)
{
    stage *s = *state;

    stage_open(s, LEASE);
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    uint64_t fence = fence_of(s->rt, "a");
    actor *sleeper = waiter(s, 1, FOREVER), *other = actor_start();
    moved_clock_advance(&s->clock, MS(1)); /* not longer */
    struct asked before = asked(s);
    moved_clock_stop_the_woken(&s->clock);
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    moved_clock_await_standing(&s->clock, 1);
    assert_status(DIBS_OK, actor_lock(other, s->rt, "a", 0));
    assert_int_equal(fence_in(other, s->rt), fence + 1);
    assert_status(DIBS_BUSY, dibs_trylock(s->rt, "a"));
    moved_clock_let_the_woken_go(&s->clock);
    stage_await_waiting(s, 1); /* it sleeps again, and keeps its place and its time */
    moved_clock_advance(&s->clock, 1);
    assert_status(DIBS_OK, actor_unlock(other, s->rt, "a"));
    assert_status(DIBS_BUSY, dibs_trylock(s->rt, "a"));
    assert_status(DIBS_OK, actor_result(sleeper));
    assert_int_equal(fence_in(sleeper, s->rt), fence + 2);
    expect_untouched(s, before);
    assert_int_equal(stats_of(s->rt).handed_off, 2);
    unlock_and_end(sleeper, s->rt);
    actor_end(other);
    expect_nothing_left(s);
}

static void what_was_left_for_one_is_not_for_those_who_want_another(void **state)
{
    stage *s = *state;

    stage_open(s, LEASE);
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    actor *sleeper = waiter(s, 1, FOREVER), *other = actor_start();
    moved_clock_stop_the_woken(&s->clock);
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    moved_clock_await_standing(&s->clock, 1);
    assert_status(DIBS_BUSY, actor_lock_with(other, s->rt, "a", 0, &shorter));
    assert_status(DIBS_BUSY, actor_lock_with(other, s->rt, "a", 0, &fixed));
    assert_status(DIBS_BUSY, actor_lock_with(other, s->rt, "a", 0, &fair));
    moved_clock_let_the_woken_go(&s->clock);
    assert_status(DIBS_OK, actor_result(sleeper));
    unlock_and_end(sleeper, s->rt);
    actor_end(other);
    expect_nothing_left(s);
}

/* ------------------------------------------------------------- after the time */

/* Counted from when the lease came from the store, not from the last hand-over. */
static void after_handoff_ms_the_unlock_goes_through_the_store(void **state)
{
    stage *s = *state;
    dibs_owner before, after;

    stage_open(s, LEASE);
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    actor *first = waiter(s, 1, FOREVER), *second = waiter(s, 2, FOREVER), *third = waiter(s, 3, FOREVER);
    moved_clock_advance(&s->clock, MS(HANDOFF) - 1);
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    assert_status(DIBS_OK, actor_result(first));
    uint64_t fence = fence_in(first, s->rt);
    assert_status(DIBS_OK, dibs_query(s->rt, "a", &before));
    moved_clock_advance(&s->clock, 1);
    struct asked then = asked(s);
    unlock_and_end(first, s->rt);
    assert_status(DIBS_OK, actor_result(second));
    expect_released_with_an_ask(s, then);
    assert_status(DIBS_OK, dibs_query(s->rt, "a", &after));
    assert_string_not_equal(before.token, after.token);
    assert_true(fence_in(second, s->rt) > fence);
    assert_int_equal(fence_in(second, s->rt) % DIBS__FENCE_STEPS, 0);
    moved_clock_advance(&s->clock, MS(HANDOFF) - 1); /* a new lease, and a new time */
    then = asked(s);
    unlock_and_end(second, s->rt);
    assert_status(DIBS_OK, actor_result(third));
    expect_untouched(s, then);
    unlock_and_end(third, s->rt);
    assert_int_equal(stats_of(s->rt).handed_off, 2);
    expect_nothing_left(s);
}

struct either {
    actor *one, *other;
};

static bool one_is_back(void *arg)
{
    struct either *either = arg;

    return !actor_busy(either->one) || !actor_busy(either->other);
}

/* Threads here pass it on as long as they may, each in its critical section for 3 ms. */
static void others_wait_for_handoff_ms_and_one_critical_section(void **state)
{
    enum { CROWD = 3, SECTION = 3 };
    stage *s = *state;
    actor *crowd[CROWD], *stranger = actor_start();
    size_t holder = 0;

    stage_open(s, LEASE);
    dibs_runtime *second = stage_open_another(s, LEASE);
    for (size_t i = 0; i < CROWD; i++)
        crowd[i] = actor_start();
    assert_status(DIBS_OK, actor_lock(crowd[0], s->rt, "a", 0));
    int64_t start = moved_clock_now(&s->clock);
    actor_begin_lock(stranger, second, "a", FOREVER);
    stage_await_waiting(s, 1);
    for (size_t i = 1; i < CROWD; i++) {
        actor_begin_lock(crowd[i], s->rt, "a", FOREVER);
        stage_await_waiting(s, i + 1);
    }
    while (actor_busy(stranger)) {
        struct either either = {stranger, crowd[(holder + 1) % CROWD]};
        moved_clock_advance(&s->clock, MS(SECTION));
        assert_status(DIBS_OK, actor_unlock(crowd[holder], s->rt, "a"));
        assert_true(wait_until(one_is_back, &either, LIMIT_MS));
        if (!actor_busy(stranger))
            break;
        actor_begin_lock(crowd[holder], s->rt, "a", FOREVER);
        stage_await_waiting(s, CROWD);
        holder = (holder + 1) % CROWD;
    }
    int64_t delay = moved_clock_now(&s->clock) - start;
    assert_that(delay > MS(HANDOFF) && delay <= MS(HANDOFF + SECTION), "%ld ns", (long)delay);
    assert_int_equal(stats_of(s->rt).handed_off, (HANDOFF - 1) / SECTION);
    assert_int_equal(stats_of(second).granted, 1);
    /* The next here waits behind it in the store, since the unlock. */
    struct asked before = asked(s);
    unlock_and_end(stranger, second);
    assert_status(DIBS_OK, actor_result(crowd[(holder + 1) % CROWD]));
    expect_asked(s, before, 0, 1, 0);
    assert_int_equal(stats_of(s->rt).granted, 1);
    assert_status(DIBS_OK, actor_unlock(crowd[(holder + 1) % CROWD], s->rt, "a"));
    assert_status(DIBS_OK, actor_result(crowd[(holder + 2) % CROWD]));
    assert_status(DIBS_OK, actor_unlock(crowd[(holder + 2) % CROWD], s->rt, "a"));
    for (size_t i = 0; i < CROWD; i++)
        actor_end(crowd[i]);
    dibs_close(second);
    expect_nothing_left(s);
}

/* ---------------------------------------------------------- what is not handed on */

struct call_with {
    dibs_runtime *rt;
    const dibs_lock_options *options;
    dibs_status status;
};

static void lock_with(void *arg)
{
    struct call_with *call = arg;

    call->status = dibs_lock_with(call->rt, "a", FOREVER, call->options);
}

/* Who waits gets a lease of its own, by the one command of the unlock. */
static void expect_not_handed_on(stage *s, const dibs_lock_options *wanted, bool asked_before)
{
    struct call_with call = {s->rt, wanted, DIBS_CLOSED};
    actor *next = actor_start();
    dibs_owner before, after;

    uint64_t fence = fence_of(s->rt, "a"), handed_off = stats_of(s->rt).handed_off;
    actor_begin(next, lock_with, &call);
    stage_await_waiting(s, 1);
    moved_clock_advance(&s->clock, LONG);
    assert_status(DIBS_OK, dibs_query(s->rt, "a", &before));
    struct asked then = asked(s);
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    actor_finish(next);
    assert_status(DIBS_OK, call.status);
    expect_asked(s, then, 1, 1, asked_before ? 0 : 1);
    assert_status(DIBS_OK, dibs_query(s->rt, "a", &after));
    assert_string_not_equal(before.token, after.token);
    assert_true(fence_in(next, s->rt) > fence);
    assert_int_equal(fence_in(next, s->rt) % DIBS__FENCE_STEPS, 0);
    assert_int_equal(stats_of(s->rt).handed_off, handed_off);
    unlock_and_end(next, s->rt);
    expect_nothing_left(s);
}

static void a_lease_that_is_not_what_the_waiter_wants(void **state)
{
    static const dibs_lock_options the_default = {.lease_ms = LEASE},
                                   fixed_fair = {.flags = DIBS_FIXED_LEASE | DIBS_FAIR};
    static const struct {
        const dibs_lock_options *held, *wanted;
        bool asked_before; /* who waits has its own place in the store's queue */
    } rows[] = {
        {&fixed, NULL, false},   {NULL, &fixed, false},       {&fixed, &fixed, false}, {&shorter, NULL, false},
        {NULL, &shorter, false}, {&shorter, &fixed, false},   {NULL, &fair, true},     {&fair, NULL, true},
        {&fair, &fair, true},    {&fixed, &fixed_fair, true},
    };
    stage *s = *state;

    s->settings.handoff_ms = FOR_LONG;
    stage_open(s, LEASE);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_status(DIBS_OK, dibs_lock_with(s->rt, "a", 0, rows[i].held));
        expect_not_handed_on(s, rows[i].wanted, rows[i].asked_before);
    }
    assert_status(DIBS_OK, dibs_lock(s->rt, "a")); /* while the same length is the same, however it was said */
    struct call_with call = {s->rt, &the_default, DIBS_CLOSED};
    actor *next = actor_start();
    actor_begin(next, lock_with, &call);
    stage_await_waiting(s, 1);
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    actor_finish(next);
    assert_int_equal(stats_of(s->rt).handed_off, 1);
    unlock_and_end(next, s->rt);
}

static void nothing_where_it_is_switched_off(void **state)
{
    stage *s = *state;

    s->settings.handoff_ms = DIBS_NO_HANDOFF;
    stage_open(s, LEASE);
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    expect_not_handed_on(s, NULL, false);
}

static void an_extended_lease(void **state)
{
    static const uint32_t leases[] = {60000, LEASE, 29000};
    stage *s = *state;

    s->settings.handoff_ms = FOR_LONG;
    stage_open(s, LEASE);
    for (size_t i = 0; i < sizeof leases / sizeof leases[0]; i++) {
        assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
        assert_status(DIBS_OK, dibs_extend(s->rt, "a", leases[i]));
        expect_not_handed_on(s, NULL, false);
    }
}

static void extend_in_actor(void *arg)
{
    struct call_with *call = arg;

    call->status = dibs_extend(call->rt, "a", 60000);
}

/* Its answer would make another's lease longer, or shorter, than that one wants. */
static void a_lease_whose_extension_may_still_be_answered(void **state)
{
    stage *s = *state;
    struct call_with call = {NULL, NULL, DIBS_CLOSED};
    actor *holder = actor_start();

    s->settings.handoff_ms = FOR_LONG;
    stage_open(s, LEASE);
    call.rt = s->rt;
    assert_status(DIBS_OK, actor_lock(holder, s->rt, "a", 0));
    faults_hold_renewals(&s->faults);
    actor_begin(holder, extend_in_actor, &call);
    stage_await_waiting(s, 1);
    stage_settle(s);
    moved_clock_advance(&s->clock, MS(1000));
    actor_finish(holder);
    assert_status(DIBS_UNAVAILABLE, call.status);
    actor *next = waiter(s, 1, FOREVER);
    struct asked before = asked(s);
    unlock_and_end(holder, s->rt);
    assert_status(DIBS_OK, actor_result(next));
    expect_released_with_an_ask(s, before);
    faults_let_renewals_go(&s->faults);
    dibs__renewals_wake(s->rt->core->renewals);
    stage_settle(s);
    unlock_and_end(next, s->rt);
    expect_nothing_left(s);
}

/* Renewals get no answer: half is enough, less is not. */
static void a_lease_with_less_than_half_of_it_left(void **state)
{
    stage *s = *state;
    int64_t half = believed(LEASE) - MS(LEASE) / 2;

    s->settings.handoff_ms = FOR_LONG;
    stage_open(s, LEASE);
    faults_renewal(&s->faults, DIBS_UNAVAILABLE, FOR_EVER);
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    stage_advance(s, half - LONG + 1);
    expect_not_handed_on(s, NULL, false);
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    actor *next = waiter(s, 1, FOREVER);
    stage_advance(s, half);
    struct asked before = asked(s);
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    assert_status(DIBS_OK, actor_result(next));
    expect_untouched(s, before);
    unlock_and_end(next, s->rt);
    expect_nothing_left(s);
}

static void a_lease_that_is_renewed_is_handed_on_for_as_long_as_is_wanted(void **state)
{
    stage *s = *state;

    s->settings.handoff_ms = FOR_LONG;
    stage_open(s, LEASE);
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    actor *next = waiter(s, 1, FOREVER);
    for (int i = 0; i < 100; i++)
        stage_advance(s, MS(LEASE) / 3);
    struct asked before = asked(s);
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    assert_status(DIBS_OK, actor_result(next));
    expect_untouched(s, before);
    for (int i = 0; i < 100; i++)
        stage_advance(s, MS(LEASE) / 3);
    assert_status(DIBS_OK, actor_check(next, s->rt, "a")); /* and renewed for the next */
    unlock_and_end(next, s->rt);
    expect_nothing_left(s);
}

/* ------------------------------------------------------------------- fences */

#define RELAY (2 * DIBS__FENCE_STEPS + 10)

/* Guarded by the lock of dibs. */
struct relay {
    stage *s;
    unsigned count, errors;
    uint64_t fences[RELAY];
    unsigned acquires[RELAY]; /* of the store, till then */
};

static void run_relay(void *arg)
{
    struct relay *relay = arg;
    stage *s = relay->s;
    bool last = false;

    while (!last) {
        if (dibs_lock(s->rt, "a") != DIBS_OK)
            abort();
        last = relay->count == RELAY;
        if (!last) {
            dibs_hold hold;
            relay->errors += dibs_hold_of(s->rt, "a", &hold) != DIBS_OK;
            relay->fences[relay->count] = hold.fence;
            relay->acquires[relay->count++] = faults_count(&s->faults, &s->faults.acquires);
        }
        while (!last && moved_clock_waiting(&s->clock) == 0) /* until the other waits */
            sched_yield();
        if (dibs_unlock(s->rt, "a") != DIBS_OK)
            abort();
    }
}

static void a_grant_is_good_for_1023_hand_overs(void **state)
{
    static struct relay relay;
    stage *s = *state;
    actor *runners[2] = {actor_start(), actor_start()};

    relay = (struct relay){.s = s};
    s->settings.handoff_ms = FOR_LONG;
    stage_open(s, LEASE);
    for (size_t i = 0; i < 2; i++)
        actor_begin(runners[i], run_relay, &relay);
    for (size_t i = 0; i < 2; i++)
        actor_end(runners[i]);
    assert_int_equal(relay.errors, 0);
    for (unsigned i = 0; i < RELAY; i++) {
        bool from_store = i % DIBS__FENCE_STEPS == 0;
        assert_int_equal(relay.acquires[i], 1 + i / DIBS__FENCE_STEPS);
        assert_int_equal(relay.fences[i] % DIBS__FENCE_STEPS, i % DIBS__FENCE_STEPS);
        assert_true(i == 0 ||
                    (from_store ? relay.fences[i] > relay.fences[i - 1] : relay.fences[i] == relay.fences[i - 1] + 1));
    }
    expect_nothing_left(s);
}

/* -------------------------------------------------------- who is not there for it */

/* The lease waits for the first, whose time ends before it runs. */
static void who_runs_out_of_time_as_the_lease_waits_for_it_has_it(void **state)
{
    stage *s = *state;

    stage_open(s, LEASE);
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    uint64_t fence = fence_of(s->rt, "a");
    actor *first = waiter(s, 1, 5), *second = waiter(s, 2, FOREVER);
    struct asked before = asked(s);
    moved_clock_stop_the_woken(&s->clock);
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    moved_clock_await_standing(&s->clock, 1);
    moved_clock_advance(&s->clock, MS(5));
    moved_clock_let_the_woken_go(&s->clock);
    assert_status(DIBS_OK, actor_result(first));
    assert_int_equal(fence_in(first, s->rt), fence + 1);
    unlock_and_end(first, s->rt);
    assert_status(DIBS_OK, actor_result(second));
    assert_int_equal(fence_in(second, s->rt), fence + 2);
    expect_untouched(s, before);
    unlock_and_end(second, s->rt);
    expect_nothing_left(s);
}

/* A running thread takes what waits for the first, which then runs out of time; the second gets it, or the store. */
static void who_runs_out_of_time_leaves_it_to_the_next(void **state)
{
    stage *s = *state;

    stage_open(s, LEASE);
    for (int others = 0; others < 2; others++) {
        assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
        actor *first = waiter(s, 1, 5), *second = others ? waiter(s, 2, FOREVER) : NULL;
        moved_clock_stop_the_woken(&s->clock);
        assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
        moved_clock_await_standing(&s->clock, 1);
        assert_status(DIBS_OK, dibs_trylock(s->rt, "a"));
        moved_clock_advance(&s->clock, MS(5));
        moved_clock_let_the_woken_go(&s->clock);
        assert_status(DIBS_TIMEOUT, actor_result(first));
        struct asked before = asked(s);
        assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
        if (others) {
            assert_status(DIBS_OK, actor_result(second));
            expect_untouched(s, before);
            unlock_and_end(second, s->rt);
        }
        actor_end(first);
        expect_nothing_left(s);
    }
}

/* What a thread was given is its own, also when the runtime closes before it runs. */
static void a_shutdown_as_the_lease_is_handed_on_strands_nothing(void **state)
{
    static const int64_t waits[] = {0, LONG};
    stage *s = *state;

    for (size_t i = 0; i < sizeof waits / sizeof waits[0]; i++) {
        stage_open(s, LEASE);
        assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
        actor *first = waiter(s, 1, FOREVER), *second = waiter(s, 2, FOREVER);
        moved_clock_advance(&s->clock, waits[i]);
        moved_clock_stop_the_woken(&s->clock);
        assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
        moved_clock_await_standing(&s->clock, 1);
        dibs_shutdown(s->rt);
        moved_clock_await_standing(&s->clock, 2);
        moved_clock_let_the_woken_go(&s->clock);
        assert_status(DIBS_OK, actor_result(first));
        assert_status(DIBS_CLOSED, actor_result(second));
        unlock_and_end(first, s->rt);
        actor_end(second);
        expect_nothing_left(s);
        dibs_close(s->rt);
        s->rt = NULL;
    }
}

static void close_in_actor(void *arg)
{
    dibs_close(((stage *)arg)->rt);
}

static void a_close_as_the_lease_is_handed_on_strands_nothing(void **state)
{
    static const int64_t waits[] = {0, LONG};
    stage *s = *state;

    for (size_t i = 0; i < sizeof waits / sizeof waits[0]; i++) {
        stage_open(s, LEASE);
        assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
        actor *first = waiter(s, 1, FOREVER), *second = waiter(s, 2, FOREVER), *closer = actor_start();
        moved_clock_advance(&s->clock, waits[i]);
        moved_clock_stop_the_woken(&s->clock);
        assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
        moved_clock_await_standing(&s->clock, 1);
        actor_begin(closer, close_in_actor, s);
        moved_clock_await_standing(&s->clock, 2);
        assert_true(actor_busy(closer));
        moved_clock_let_the_woken_go(&s->clock);
        assert_status(DIBS_OK, actor_result(first));
        assert_status(DIBS_CLOSED, actor_result(second));
        actor_end(closer);
        s->rt = NULL;
        expect_free(s);
        actor_end(first); /* with a hold of a runtime that is no more */
        actor_end(second);
    }
}

/* A waiter that does not run, for which an unlock asked the store, and got the lock. */
static actor *one_that_was_asked_for(stage *s)
{
    stage_open(s, LEASE);
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    actor *first = waiter(s, 1, FOREVER);
    moved_clock_advance(&s->clock, MS(HANDOFF));
    moved_clock_stop_the_woken(&s->clock);
    struct asked before = asked(s);
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    expect_released_with_an_ask(s, before);
    moved_clock_await_standing(&s->clock, 1);
    return first;
}

static void a_shutdown_before_a_waiter_hears_what_was_asked_for_it(void **state)
{
    stage *s = *state;
    actor *first = one_that_was_asked_for(s);

    dibs_shutdown(s->rt);
    moved_clock_let_the_woken_go(&s->clock);
    assert_status(DIBS_CLOSED, actor_result(first));
    actor_end(first);
    expect_nothing_left(s);
}

/* And the lease that was got for it is over by then, as long as the store was not heard: that is no outage. */
static void a_waiter_that_runs_too_late_for_what_was_asked_for_it_asks_anew(void **state)
{
    stage *s = *state;
    actor *first = one_that_was_asked_for(s);

    moved_clock_advance(&s->clock, MS(2 * LEASE));
    moved_clock_let_the_woken_go(&s->clock);
    assert_status(DIBS_OK, actor_result(first));
    assert_status(DIBS_OK, actor_check(first, s->rt, "a"));
    unlock_and_end(first, s->rt);
    expect_nothing_left(s);
}

/* --------------------------------------------------------------------- loss */

static void a_loss_after_the_hand_over_is_the_new_holders(void **state)
{
    stage *s = *state;

    s->settings.handoff_ms = FOR_LONG;
    stage_open(s, LEASE);
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    actor *first = waiter(s, 1, FOREVER);
    moved_clock_advance(&s->clock, LONG);
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    assert_status(DIBS_OK, actor_result(first));
    uint64_t fence = fence_in(first, s->rt);
    actor *second = waiter(s, 1, FOREVER);
    assert_status(DIBS_OK, dibs_force_unlock(s->rt, "a", NULL));
    unsigned acquires = faults_count(&s->faults, &s->faults.acquires);
    stage_advance(s, MS(LEASE) / 3); /* the renewal finds it gone */
    assert_status(DIBS_OK, actor_result(second));
    assert_int_equal(faults_count(&s->faults, &s->faults.acquires), acquires + 1);
    assert_true(fence_in(second, s->rt) > fence + DIBS__FENCE_STEPS - 1);
    assert_status(DIBS_LOST, actor_check(first, s->rt, "a"));
    assert_status(DIBS_LOST, actor_unlock(first, s->rt, "a"));
    assert_status(DIBS_NOT_HELD, dibs_check(s->rt, "a"));
    assert_int_equal(stats_of(s->rt).lost, 1);
    assert_int_equal(events_await(&s->events, DIBS_EVENT_LOST, "a").fence, fence);
    assert_status(DIBS_OK, actor_check(second, s->rt, "a"));
    actor_end(first);
    unlock_and_end(second, s->rt);
    expect_nothing_left(s);
}

/* Gone, or not renewed any more, while it waits for one that does not run: nobody is told that it holds that. */
static void a_loss_before_the_next_has_it_is_nobodys(void **state)
{
    stage *s = *state;

    s->settings.handoff_ms = FOR_LONG;
    stage_open(s, LEASE);
    for (int gone = 0; gone < 2; gone++) {
        assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
        uint64_t fence = fence_of(s->rt, "a");
        actor *first = waiter(s, 1, FOREVER);
        moved_clock_stop_the_woken(&s->clock);
        assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
        moved_clock_await_standing(&s->clock, 1);
        if (gone)
            assert_status(DIBS_OK, dibs_force_unlock(s->rt, "a", NULL));
        faults_renewal(&s->faults, DIBS_UNAVAILABLE, gone ? 0 : FOR_EVER);
        stage_advance(s, gone ? MS(LEASE) / 3 : believed(LEASE));
        faults_renewal(&s->faults, DIBS_OK, 0);
        moved_clock_let_the_woken_go(&s->clock);
        assert_status(DIBS_OK, actor_result(first));
        assert_status(DIBS_OK, actor_check(first, s->rt, "a"));
        assert_true(fence_in(first, s->rt) > fence + DIBS__FENCE_STEPS - 1);
        unlock_and_end(first, s->rt);
        expect_nothing_left(s);
    }
}

/* The same where it had been given to the first already; the second has the turn by then. */
static void a_lease_that_was_lost_before_its_new_holder_ran_is_not_held(void **state)
{
    stage *s = *state;

    s->settings.handoff_ms = FOR_LONG;
    stage_open(s, LEASE);
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    actor *first = waiter(s, 1, FOREVER), *second = waiter(s, 2, FOREVER);
    moved_clock_advance(&s->clock, LONG);
    moved_clock_stop_the_woken(&s->clock);
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    moved_clock_await_standing(&s->clock, 1);
    assert_status(DIBS_OK, dibs_force_unlock(s->rt, "a", NULL));
    stage_advance(s, MS(LEASE) / 3);
    moved_clock_await_standing(&s->clock, 2);
    moved_clock_let_the_woken_go(&s->clock);
    assert_status(DIBS_OK, actor_result(second));
    stage_await_waiting(s, 1);
    assert_true(actor_busy(first));
    assert_status(DIBS_OK, actor_check(second, s->rt, "a"));
    unlock_and_end(second, s->rt);
    assert_status(DIBS_OK, actor_result(first));
    assert_status(DIBS_OK, actor_check(first, s->rt, "a"));
    unlock_and_end(first, s->rt);
    expect_nothing_left(s);
    assert_int_equal(stats_of(s->rt).contended, 2);
}

/* The clock jumps over its end, and the waiter runs at the same time as the scheduler. */
static void a_machine_that_was_stopped_between_unlock_and_lock(void **state)
{
    static const int64_t waits[] = {0, LONG};
    stage *s = *state;

    s->settings.handoff_ms = FOR_LONG;
    stage_open(s, LEASE);
    for (int i = 0; i < 40; i++) {
        assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
        uint64_t fence = fence_of(s->rt, "a");
        actor *first = waiter(s, 1, FOREVER);
        moved_clock_advance(&s->clock, waits[i % 2]);
        moved_clock_stop_the_woken(&s->clock);
        assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
        moved_clock_await_standing(&s->clock, 1);
        moved_clock_advance(&s->clock, MS(2 * LEASE));
        moved_clock_let_the_woken_go(&s->clock);
        assert_status(DIBS_OK, actor_result(first));
        assert_status(DIBS_OK, actor_check(first, s->rt, "a"));
        assert_true(fence_in(first, s->rt) > fence + DIBS__FENCE_STEPS - 1);
        unlock_and_end(first, s->rt);
        stage_settle(s);
        expect_nothing_left(s);
    }
}

static void a_thread_that_ends_with_a_handed_on_lease_is_an_orphans_end(void **state)
{
    static void (*const ends[])(actor *) = {actor_end, actor_exit, actor_cancel};
    stage *s = *state;

    s->settings.handoff_ms = FOR_LONG;
    stage_open(s, LEASE);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
        actor *first = waiter(s, 1, FOREVER);
        assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
        assert_status(DIBS_OK, actor_result(first));
        uint64_t fence = fence_in(first, s->rt);
        actor *second = waiter(s, 1, FOREVER);
        ends[i](first);
        assert_status(DIBS_OK, actor_result(second));
        assert_true(fence_in(second, s->rt) > fence + DIBS__FENCE_STEPS - 1);
        assert_int_equal(stats_of(s->rt).orphaned, i + 1);
        assert_int_equal(stats_of(s->rt).holds, 1);
        unlock_and_end(second, s->rt);
        expect_nothing_left(s);
        if (i == 0)
            assert_int_equal(events_await(&s->events, DIBS_EVENT_ORPHANED, "a").fence, fence);
    }
}

/* ------------------------------------------------------------------- stress */

#define THREADS 8
#define STRESS_MS 1000

static struct contest {
    dibs_runtime *rts[2];
    int64_t end;
    uint64_t fence, count; /* guarded by the lock of dibs that is tested, as is inside */
    unsigned inside;
    atomic_uint errors, numbers;
} contest;

static bool is_alone_inside(dibs_runtime *rt)
{
    dibs_hold hold;
    bool good = contest.inside++ == 0 && dibs_hold_of(rt, "a", &hold) == DIBS_OK && hold.fence > contest.fence;

    contest.fence = hold.fence;
    if (contest.count++ % 16 == 0) /* so that those who wait for 1 ms wait in vain */
        pause_ms(2);
    contest.inside--;
    return good;
}

/* Waits of 0 to 3 ms, and some without end: these find a wake-up that was lost. */
static void contend(void *arg)
{
    static const dibs_lock_options kinds[] = {{0, 0},        {0, 0}, {0, 0}, {0, 0}, {20000, 0}, {0, DIBS_FIXED_LEASE},
                                              {0, DIBS_FAIR}};
    unsigned random = atomic_fetch_add(&contest.numbers, 1) * 7919 + 1;
    dibs_runtime *rt = contest.rts[random % 2];

    (void)arg;
    while (now_ms() < contest.end) {
        random = random * 1103515245 + 12345;
        int64_t wait_ms = (random >> 16) % 8 == 0 ? LIMIT_MS : (random >> 20) % 4;
        dibs_status status = dibs_lock_with(rt, "a", wait_ms, &kinds[(random >> 8) % (sizeof kinds / sizeof kinds[0])]);
        bool good = status == DIBS_OK ? is_alone_inside(rt) && dibs_unlock(rt, "a") == DIBS_OK
                                      : status == (wait_ms == 0 ? DIBS_BUSY : DIBS_TIMEOUT) && wait_ms != LIMIT_MS;
        if (!good)
            atomic_fetch_add(&contest.errors, 1);
    }
}

static void expect_all_kinds_of_outcomes(dibs_runtime *rt, uint64_t *acquired)
{
    dibs_stats stats = stats_of(rt);

    *acquired += stats.acquired;
    assert_that(stats.handed_off > 0 && stats.granted > 0 && stats.timed_out > 0 && stats.busy > 0,
                "%lu handed on, %lu granted, %lu out of time, %lu busy", (unsigned long)stats.handed_off,
                (unsigned long)stats.granted, (unsigned long)stats.timed_out, (unsigned long)stats.busy);
    assert_int_equal(stats.holds, 0);
    assert_int_equal(stats.leases, 0);
    assert_int_equal(stats.lost, 0);
}

static void many_threads_with_little_patience(void **state)
{
    const char *url = "mem:contest";
    const dibs_config config = {.urls = &url, .url_count = 1, .handoff_ms = 2, .lease_ms = LONG_LEASE_MS};
    actor *actors[THREADS];
    uint64_t acquired = 0;
    dibs_owner owner;

    (void)state;
    memset(&contest, 0, sizeof contest);
    for (int i = 0; i < 2; i++)
        assert_status(DIBS_OK, dibs_open(&contest.rts[i], &config));
    contest.end = now_ms() + STRESS_MS;
    for (int i = 0; i < THREADS; i++) {
        actors[i] = actor_start();
        actor_begin(actors[i], contend, NULL);
    }
    for (int i = 0; i < THREADS; i++)
        actor_end(actors[i]);
    assert_int_equal(atomic_load(&contest.errors), 0);
    for (int i = 0; i < 2; i++)
        expect_all_kinds_of_outcomes(contest.rts[i], &acquired);
    assert_int_equal(acquired, contest.count);
    assert_status(DIBS_OK, dibs_query(contest.rts[0], "a", &owner));
    assert_false(owner.held);
    assert_int_equal(owner.waiters, 0);
    for (int i = 0; i < 2; i++) {
        assert_status(DIBS_OK, dibs_trylock(contest.rts[i], "a"));
        assert_status(DIBS_OK, dibs_unlock(contest.rts[i], "a"));
        dibs_close(contest.rts[i]);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, stage_teardown)
    const struct CMUnitTest tests[] = {
        TEST(an_unlock_for_a_waiter_here_does_not_touch_the_store),
        TEST(it_goes_through_the_whole_line),
        TEST(who_waited_for_long_has_it_before_a_running_thread),
        TEST(a_running_thread_has_it_before_who_just_came),
        TEST(what_was_left_for_one_is_not_for_those_who_want_another),
        TEST(after_handoff_ms_the_unlock_goes_through_the_store),
        TEST(others_wait_for_handoff_ms_and_one_critical_section),
        TEST(a_lease_that_is_not_what_the_waiter_wants),
        TEST(nothing_where_it_is_switched_off),
        TEST(an_extended_lease),
        TEST(a_lease_whose_extension_may_still_be_answered),
        TEST(a_lease_with_less_than_half_of_it_left),
        TEST(a_lease_that_is_renewed_is_handed_on_for_as_long_as_is_wanted),
        TEST(a_grant_is_good_for_1023_hand_overs),
        TEST(who_runs_out_of_time_as_the_lease_waits_for_it_has_it),
        TEST(who_runs_out_of_time_leaves_it_to_the_next),
        TEST(a_shutdown_as_the_lease_is_handed_on_strands_nothing),
        TEST(a_close_as_the_lease_is_handed_on_strands_nothing),
        TEST(a_shutdown_before_a_waiter_hears_what_was_asked_for_it),
        TEST(a_waiter_that_runs_too_late_for_what_was_asked_for_it_asks_anew),
        TEST(a_loss_after_the_hand_over_is_the_new_holders),
        TEST(a_loss_before_the_next_has_it_is_nobodys),
        TEST(a_lease_that_was_lost_before_its_new_holder_ran_is_not_held),
        TEST(a_machine_that_was_stopped_between_unlock_and_lock),
        TEST(a_thread_that_ends_with_a_handed_on_lease_is_an_orphans_end),
        cmocka_unit_test(many_threads_with_little_patience),
    };

    return cmocka_run_group_tests_name("handoff", tests, NULL, NULL);
}
