/* Grants that the store makes by itself, at every awkward moment; and attempts that go on in another thread's hands. */
#include <stdio.h>
#include <string.h>

#include "support/actor.h"
#include "support/fixture.h"
#include "support/stage.h"
#include "support/test.h"
#include "support/wait.h"

#define LEASE 30000
#define FOREVER DIBS_WAIT_FOREVER
#define OWNERS_SERVER 77

/* ---------------------------------------------------------------- the spied store */

/*
 * The faulty store, with a look at the asks: the last that was not granted is
 * kept, and `taken` is called behind it, before who asked learns of that. So is
 * the token of the last ask behind a release. Used by one asking thread at a
 * time; the rest is set while nobody asks.
 */
static struct {
    const struct dibs__store_ops *real;
    struct dibs__store_ops ops;
    char token[DIBS__TOKEN_MAX];
    uint64_t number;
    int64_t seen_until; /* what the last ask that was not granted brought with it of the owner, as is the next */
    uint64_t seen_server;
    int64_t owned_until; /* what it is told of the owner, as a store does that may forget; 0: nothing */
    char behind[DIBS__TOKEN_MAX];
    void (*taken)(stage *s); /* once, as is the next: before a release */
    void (*releasing)(stage *s);
    stage *s;
    dibs_runtime *second; /* whose thread, the test's own, holds "a" */
    dibs_runtime *third;
} spy;

static dibs_status spied_acquire(struct dibs__store *store, struct dibs__ask *ask, struct dibs__answer *answer,
                                 struct dibs__error *error)
{
    dibs_status status = spy.real->acquire(store, ask, answer, error);

    if (status != DIBS_OK) {
        snprintf(spy.token, sizeof spy.token, "%s", ask->token);
        spy.number = ask->number;
        spy.seen_until = ask->seen_until;
        spy.seen_server = ask->seen_server;
        if (spy.owned_until) {
            ask->seen_until = spy.owned_until;
            ask->seen_server = OWNERS_SERVER;
        }
        void (*taken)(stage * s) = spy.taken;
        spy.taken = NULL;
        if (taken)
            taken(spy.s);
    }
    return status;
}

static dibs_status spied_release(struct dibs__store *store, struct dibs__release *release, struct dibs__error *error)
{
    void (*releasing)(stage * s) = spy.releasing;

    spy.releasing = NULL;
    if (releasing)
        releasing(spy.s);
    if (release->next)
        snprintf(spy.behind, sizeof spy.behind, "%s", release->next->token);
    return spy.real->release(store, release, error);
}

static dibs_status spied_open(struct dibs__store **out, const struct dibs__store_config *config,
                              struct dibs__error *error)
{
    dibs_status status = faulty_store_open(out, config, error);

    if (status == DIBS_OK) {
        spy.real = (*out)->ops;
        spy.ops = *spy.real;
        spy.ops.acquire = spied_acquire;
        spy.ops.release = spied_release;
        (*out)->ops = &spy.ops;
    }
    return status;
}

/* s->rt is spied on; the test's own thread holds "a" by the second. */
static int setup(void **state)
{
    int status = stage_setup(state);
    stage *s = *state;

    s->url = "mem:grant";
    memset(&spy, 0, sizeof spy);
    spy.s = s;
    spy.second = stage_open_another(s, LEASE);
    spy.third = stage_open_another(s, LEASE);
    s->settings.open_store = spied_open;
    stage_open(s, LEASE);
    assert_status(DIBS_OK, dibs_lock(spy.second, "a"));
    return status;
}

static int teardown(void **state)
{
    dibs_close(spy.second);
    dibs_close(spy.third);
    return stage_teardown(state);
}

static actor *waiter(stage *s, size_t waiting, int64_t wait_ms)
{
    actor *a = actor_start();

    actor_begin_lock(a, s->rt, "a", wait_ms);
    stage_await_waiting(s, waiting);
    return a;
}

/* The same in another process, as it were. */
static actor *stranger_of(stage *s, size_t waiting)
{
    actor *a = actor_start();

    actor_begin_lock(a, spy.third, "a", FOREVER);
    stage_await_waiting(s, waiting);
    return a;
}

static unsigned acquires(stage *s)
{
    return faults_count(&s->faults, &s->faults.acquires);
}

struct wanted {
    stage *s;
    unsigned acquires;
};

static bool were_asked(void *arg)
{
    struct wanted *wanted = arg;

    return acquires(wanted->s) == wanted->acquires;
}

/* Waits until that many asks have come to the store, and that many threads sleep after them. */
static void await_asks(stage *s, unsigned count, size_t waiting)
{
    struct wanted wanted = {s, count};

    assert_true(wait_until(were_asked, &wanted, LIMIT_MS));
    stage_await_waiting(s, waiting);
}

static unsigned in_queue(void)
{
    dibs_owner owner;

    assert_status(DIBS_OK, dibs_query(spy.second, "a", &owner));
    return owner.waiters;
}

static bool push(stage *s, const char *token, uint64_t number, bool confirm)
{
    const struct dibs__grant grant = {"a", token, number, UINT64_C(1) << 40, confirm};

    return dibs__cells_push(s->rt->core->cells, &grant);
}

static void unlock_and_end(actor *a, dibs_runtime *rt)
{
    assert_status(DIBS_OK, actor_unlock(a, rt, "a"));
    actor_end(a);
}

static void expect_nothing_left(stage *s)
{
    assert_int_equal(stats_of(s->rt).leases, 0);
    assert_int_equal(in_queue(), 0);
    assert_status(DIBS_OK, dibs_trylock(spy.second, "a"));
}

/* ------------------------------------------------------------------- when it comes */

static void a_grant_ends_the_wait_without_another_ask(void **state)
{
    stage *s = *state;
    actor *asker = waiter(s, 1, FOREVER);
    unsigned asked = acquires(s);

    moved_clock_advance(&s->clock, MS(100));
    assert_status(DIBS_OK, dibs_unlock(spy.second, "a"));
    assert_status(DIBS_OK, actor_result(asker));
    assert_int_equal(acquires(s), asked);
    assert_int_equal(stats_of(s->rt).granted, 1);
    assert_int_equal(stats_of(s->rt).contended, 1);
    assert_int_equal(stats_of(s->rt).handed_off, 0);
    unlock_and_end(asker, s->rt);
    expect_nothing_left(s);
}

/* The lease counts from the ask that the grant names, not from when the grant came. */
static void a_granted_lease_counts_from_its_ask(void **state)
{
    stage *s = *state;
    actor *asker = waiter(s, 1, FOREVER);
    dibs_hold hold;

    moved_clock_advance(&s->clock, MS(9000));
    assert_status(DIBS_OK, dibs_unlock(spy.second, "a"));
    assert_status(DIBS_OK, actor_result(asker));
    assert_status(DIBS_OK, actor_hold(asker, s->rt, "a", &hold));
    assert_int_equal(hold.remaining_ms, believed(LEASE) / MS(1) - 9000);
    unlock_and_end(asker, s->rt);
    expect_nothing_left(s);
}

static void free_it(stage *s)
{
    (void)s;
    dibs_force_unlock(spy.second, "a", NULL);
}

static void a_grant_may_come_before_its_ask_is_answered(void **state)
{
    stage *s = *state;
    actor *asker = actor_start();
    unsigned asked = acquires(s);

    spy.taken = free_it;
    assert_status(DIBS_OK, actor_lock(asker, s->rt, "a", FOREVER));
    assert_int_equal(acquires(s), asked + 1);
    assert_int_equal(stats_of(s->rt).granted, 1);
    assert_status(DIBS_OK, actor_check(asker, s->rt, "a"));
    unlock_and_end(asker, s->rt);
    assert_status(DIBS_OK, dibs_query(spy.second, "a", &(dibs_owner){0}));
    dibs_unlock_all(spy.second); /* what was taken from it */
    expect_nothing_left(s);
}

static void free_it_too_late(stage *s)
{
    free_it(s);
    moved_clock_advance(&s->clock, MS(100));
}

/* Granted, when the time of who asked was over: the next here has it, or the store again. */
static void a_grant_that_comes_at_the_end_of_the_wait(void **state)
{
    stage *s = *state;

    for (int others = 0; others < 2; others++) {
        actor *asker = actor_start(), *next = NULL;
        if (others) {
            faults_block_acquires(&s->faults);
            actor_begin_lock(asker, s->rt, "a", 100);
            faults_await_blocked(&s->faults);
            next = waiter(s, 1, FOREVER);
            spy.taken = free_it_too_late;
            faults_unblock_acquires(&s->faults);
        } else {
            spy.taken = free_it_too_late;
            actor_begin_lock(asker, s->rt, "a", 100);
        }
        assert_status(DIBS_TIMEOUT, actor_result(asker));
        if (next) {
            assert_status(DIBS_OK, actor_result(next));
            unlock_and_end(next, s->rt);
        }
        actor_end(asker);
        dibs_unlock_all(spy.second);
        expect_nothing_left(s);
    }
}

static void a_grant_for_an_attempt_that_is_over_is_refused(void **state)
{
    stage *s = *state;
    actor *asker = waiter(s, 1, 100);

    assert_false(push(s, "", spy.number, false));
    assert_false(push(s, "another's", spy.number, false));
    moved_clock_advance(&s->clock, MS(100));
    assert_status(DIBS_TIMEOUT, actor_result(asker));
    assert_false(push(s, spy.token, spy.number, false));
    assert_int_equal(in_queue(), 0);
    actor_end(asker);
}

/* Also where others of the name are there: it is the token that counts. */
static void a_grant_for_an_attempt_that_is_over_is_not_the_next_ones(void **state)
{
    stage *s = *state;
    char old[DIBS__TOKEN_MAX];
    actor *asker = waiter(s, 1, 100);

    strcpy(old, spy.token);
    moved_clock_advance(&s->clock, MS(100));
    assert_status(DIBS_TIMEOUT, actor_result(asker));
    actor_end(asker);
    asker = waiter(s, 1, FOREVER);
    assert_string_not_equal(old, spy.token);
    unsigned asked = acquires(s);
    assert_false(push(s, old, spy.number, false));
    stage_await_waiting(s, 1);
    assert_int_equal(acquires(s), asked);
    assert_status(DIBS_OK, dibs_unlock(spy.second, "a"));
    assert_status(DIBS_OK, actor_result(asker));
    unlock_and_end(asker, s->rt);
    expect_nothing_left(s);
}

static void push_it(stage *s)
{
    push(s, spy.token, spy.number, false);
}

/* Nor is it one for the next token of the same attempt, whose asks have the same numbers. */
static void a_grant_for_a_token_that_was_given_up_is_not_the_next_tokens(void **state)
{
    stage *s = *state;
    actor *asker = actor_start();
    unsigned asked = acquires(s);

    faults_set(&s->faults, &s->faults.unanswered, true);
    spy.taken = push_it;
    actor_begin_lock(asker, s->rt, "a", FOREVER);
    stage_await_waiting(s, 1);
    faults_set(&s->faults, &s->faults.unanswered, false);
    actor_await_asleep(asker);
    assert_int_equal(acquires(s), asked + 1); /* it asks when its pause is over, and not before */
    assert_false(push(s, spy.token, spy.number, false));
    moved_clock_advance(&s->clock, MS(10));
    await_asks(s, asked + 2, 1);
    assert_true(actor_busy(asker));
    assert_int_equal(spy.number, 1);
    assert_status(DIBS_OK, dibs_unlock(spy.second, "a"));
    assert_status(DIBS_OK, actor_result(asker));
    unlock_and_end(asker, s->rt);
    expect_nothing_left(s);
}

/*
 * A store that may forget the lock told until when it is another's: so long the
 * attempt leaves it to that one, also under a new token. Else it might take the
 * lock from a server that took the place of the first, before its holder could
 * set it again there.
 */
static void what_was_told_of_the_owner_outlives_the_token(void **state)
{
    stage *s = *state;
    int64_t until = moved_clock_now(&s->clock) + MS(LEASE);
    char first[DIBS__TOKEN_MAX];

    spy.owned_until = until;
    actor *asker = waiter(s, 1, FOREVER);
    spy.owned_until = 0;
    strcpy(first, spy.token);
    faults_set(&s->faults, &s->faults.unanswered, true);
    unsigned asked = acquires(s);
    dibs__cells_ask_again(s->rt->core->cells);
    await_asks(s, asked + 1, 1); /* its outcome is unknown, so the token is given up */
    assert_string_equal(spy.token, first);
    assert_int_equal(spy.seen_until, until);
    faults_set(&s->faults, &s->faults.unanswered, false);
    moved_clock_advance(&s->clock, MS(10));
    await_asks(s, asked + 2, 1);
    assert_string_not_equal(spy.token, first);
    assert_int_equal(spy.seen_until, until);
    assert_int_equal(spy.seen_server, OWNERS_SERVER);
    assert_status(DIBS_OK, dibs_unlock(spy.second, "a"));
    assert_status(DIBS_OK, actor_result(asker));
    unlock_and_end(asker, s->rt);
    expect_nothing_left(s);
}

static void a_grant_of_a_lease_that_is_held_changes_nothing(void **state)
{
    stage *s = *state;
    actor *asker = waiter(s, 1, FOREVER);
    dibs_hold before, after;

    assert_status(DIBS_OK, dibs_unlock(spy.second, "a"));
    assert_status(DIBS_OK, actor_result(asker));
    assert_status(DIBS_OK, actor_hold(asker, s->rt, "a", &before));
    assert_true(push(s, spy.token, spy.number, false)); /* as after a connection that broke: it is not taken back */
    assert_status(DIBS_OK, actor_hold(asker, s->rt, "a", &after));
    assert_int_equal(after.fence, before.fence);
    assert_int_equal(after.remaining_ms, before.remaining_ms);
    unlock_and_end(asker, s->rt);
    assert_false(push(s, spy.token, spy.number, false));
    expect_nothing_left(s);
}

/* One that names an older ask, or that is not enough by itself: the store is asked, and knows. */
static void a_grant_that_proves_nothing_makes_the_waiter_ask(void **state)
{
    stage *s = *state;
    actor *asker = waiter(s, 1, FOREVER);
    unsigned asked = acquires(s);

    for (int confirm = 0; confirm < 2; confirm++) {
        uint64_t number = spy.number;
        assert_true(push(s, spy.token, confirm ? number : number - 1, confirm));
        await_asks(s, asked + 1 + (unsigned)confirm, 1);
        assert_true(actor_busy(asker));
        assert_int_equal(spy.number, number + 1);
    }
    assert_int_equal(in_queue(), 1);
    assert_status(DIBS_OK, dibs_unlock(spy.second, "a"));
    assert_status(DIBS_OK, actor_result(asker));
    unlock_and_end(asker, s->rt);
    expect_nothing_left(s);
}

/* Who was stopped meanwhile: it asks, and the store says whose the lock is by now. */
static void a_grant_whose_lease_is_over_by_now_is_none(void **state)
{
    stage *s = *state;
    actor *asker = waiter(s, 1, FOREVER);
    unsigned asked = acquires(s);

    moved_clock_stop_the_woken(&s->clock);
    assert_status(DIBS_OK, dibs_unlock(spy.second, "a"));
    moved_clock_await_standing(&s->clock, 1);
    moved_clock_advance(&s->clock, MS(LEASE));
    assert_status(DIBS_OK, dibs_trylock(spy.second, "a"));
    moved_clock_let_the_woken_go(&s->clock);
    stage_await_waiting(s, 1);
    assert_true(actor_busy(asker));
    assert_int_equal(acquires(s), asked + 2);
    assert_status(DIBS_OK, dibs_unlock(spy.second, "a"));
    assert_status(DIBS_OK, actor_result(asker));
    assert_status(DIBS_OK, actor_check(asker, s->rt, "a"));
    unlock_and_end(asker, s->rt);
    expect_nothing_left(s);
}

static void a_grant_that_got_lost_costs_a_third_of_a_lease(void **state)
{
    stage *s = *state;
    actor *asker = waiter(s, 1, FOREVER);

    faults_set(&s->faults, &s->faults.pushes_lost, true);
    assert_status(DIBS_OK, dibs_unlock(spy.second, "a"));
    assert_int_equal(faults_count(&s->faults, &s->faults.pushes), 1);
    moved_clock_advance(&s->clock, MS(LEASE) / 3 - 1);
    stage_await_waiting(s, 1);
    assert_true(actor_busy(asker));
    moved_clock_advance(&s->clock, 1);
    assert_status(DIBS_OK, actor_result(asker));
    assert_int_equal(stats_of(s->rt).granted, 0);
    unlock_and_end(asker, s->rt);
    expect_nothing_left(s);
}

/* And it is no one's if the waiter is gone: taken back with its attempt. */
static void a_grant_that_got_lost_is_taken_back_with_its_attempt(void **state)
{
    stage *s = *state;
    actor *asker = waiter(s, 1, 5000);

    faults_set(&s->faults, &s->faults.pushes_lost, true);
    assert_status(DIBS_OK, dibs_unlock(spy.second, "a"));
    moved_clock_advance(&s->clock, MS(5000));
    assert_status(DIBS_TIMEOUT, actor_result(asker));
    actor_end(asker);
    expect_nothing_left(s);
}

static void a_shutdown_takes_all_attempts_back(void **state)
{
    stage *s = *state;
    actor *asker = waiter(s, 1, FOREVER), *next = waiter(s, 2, FOREVER);

    assert_int_equal(in_queue(), 1);
    dibs_shutdown(s->rt);
    assert_status(DIBS_CLOSED, actor_result(asker));
    assert_status(DIBS_CLOSED, actor_result(next));
    assert_int_equal(in_queue(), 0);
    actor_end(asker);
    actor_end(next);
}

/* ------------------------------------------------- attempts that change hands */

/* Its place in the store's queue stays with those of its process; who came behind it stays behind. */
static void who_runs_out_of_time_leaves_its_place_to_the_next_here(void **state)
{
    stage *s = *state;
    char token[DIBS__TOKEN_MAX];
    actor *asker = waiter(s, 1, 100), *stranger = stranger_of(s, 2), *next = waiter(s, 3, 200),
          *last = waiter(s, 4, FOREVER);

    strcpy(token, spy.token);
    assert_int_equal(in_queue(), 2);
    for (int i = 0; i < 2; i++) {
        unsigned asked = acquires(s);
        moved_clock_advance(&s->clock, MS(100));
        assert_status(DIBS_TIMEOUT, actor_result(i == 0 ? asker : next));
        await_asks(s, asked + 1, 3 - (size_t)i);
        assert_string_equal(spy.token, token);
        assert_int_equal(in_queue(), 2);
    }
    assert_int_equal(faults_count(&s->faults, &s->faults.retractions), 0);
    assert_status(DIBS_OK, dibs_unlock(spy.second, "a"));
    assert_status(DIBS_OK, actor_result(last));
    assert_true(actor_busy(stranger));
    unlock_and_end(last, s->rt);
    assert_status(DIBS_OK, actor_result(stranger));
    unlock_and_end(stranger, spy.third);
    actor_end(asker);
    actor_end(next);
    expect_nothing_left(s);
}

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

/* The lease that the place is for is not what the next wants: it has to stand at the end. */
static void a_place_is_left_only_to_who_wants_the_same(void **state)
{
    static const dibs_lock_options others[] = {{.lease_ms = 20000}, {.flags = DIBS_FIXED_LEASE}};
    stage *s = *state;

    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        struct call_with call = {s->rt, &others[i], DIBS_CLOSED};
        actor *asker = waiter(s, 1, 100), *stranger = stranger_of(s, 2), *next = actor_start();
        actor_begin(next, lock_with, &call);
        stage_await_waiting(s, 3);
        unsigned asked = acquires(s);
        moved_clock_advance(&s->clock, MS(100));
        assert_status(DIBS_TIMEOUT, actor_result(asker));
        await_asks(s, asked + 1, 2);
        assert_int_equal(in_queue(), 2);
        assert_status(DIBS_OK, dibs_unlock(spy.second, "a"));
        assert_status(DIBS_OK, actor_result(stranger));
        assert_true(actor_busy(next));
        unlock_and_end(stranger, spy.third);
        actor_finish(next);
        assert_status(DIBS_OK, call.status);
        unlock_and_end(next, s->rt);
        actor_end(asker);
        expect_nothing_left(s);
    }
}

static void a_place_that_nobody_takes_over_is_given_up(void **state)
{
    stage *s = *state;
    actor *asker = waiter(s, 1, 100), *stranger = stranger_of(s, 2);

    moved_clock_advance(&s->clock, MS(100));
    assert_status(DIBS_TIMEOUT, actor_result(asker));
    assert_int_equal(in_queue(), 1);
    assert_status(DIBS_OK, dibs_unlock(spy.second, "a"));
    assert_status(DIBS_OK, actor_result(stranger));
    unlock_and_end(stranger, spy.third);
    actor_end(asker);
    expect_nothing_left(s);
}

/* A store that refuses takes the place back; the next asks anew. */
static void a_place_is_not_left_by_who_was_refused(void **state)
{
    stage *s = *state;
    char token[DIBS__TOKEN_MAX];
    actor *asker = waiter(s, 1, FOREVER), *next = waiter(s, 2, FOREVER);

    strcpy(token, spy.token);
    unsigned asked = acquires(s);
    faults_acquire(&s->faults, DIBS_DENIED, 1);
    dibs__cells_ask_again(s->rt->core->cells);
    assert_status(DIBS_DENIED, actor_result(asker));
    await_asks(s, asked + 2, 1);
    assert_string_not_equal(spy.token, token);
    assert_int_equal(in_queue(), 1);
    assert_status(DIBS_OK, dibs_unlock(spy.second, "a"));
    assert_status(DIBS_OK, actor_result(next));
    unlock_and_end(next, s->rt);
    actor_end(asker);
    expect_nothing_left(s);
}

/* The grant comes while the place changes hands, the new one's thread does not run: its next look finds it. */
static void a_grant_that_comes_while_the_place_changes_hands(void **state)
{
    stage *s = *state;
    actor *asker = waiter(s, 1, 100), *next = waiter(s, 2, FOREVER);

    moved_clock_stop_the_woken(&s->clock);
    moved_clock_advance(&s->clock, MS(100));
    moved_clock_await_standing(&s->clock, 1);
    assert_status(DIBS_OK, dibs_unlock(spy.second, "a")); /* granted to who is about to give up: it looks again */
    moved_clock_let_the_woken_go(&s->clock);
    assert_status(DIBS_OK, actor_result(asker));
    assert_status(DIBS_OK, actor_unlock(asker, s->rt, "a"));
    assert_status(DIBS_OK, actor_result(next));
    unlock_and_end(next, s->rt);
    actor_end(asker);
    expect_nothing_left(s);
}

/* The same, but the place has been left already. */
static void a_grant_that_comes_before_the_place_has_its_new_owner(void **state)
{
    stage *s = *state;
    actor *asker = waiter(s, 1, 100), *next = waiter(s, 2, FOREVER);

    faults_block_acquires(&s->faults); /* the next asks in its new place, and gets no further */
    moved_clock_advance(&s->clock, MS(100));
    assert_status(DIBS_TIMEOUT, actor_result(asker));
    faults_await_blocked(&s->faults);
    assert_status(DIBS_OK, dibs_unlock(spy.second, "a"));
    assert_int_equal(faults_count(&s->faults, &s->faults.pushes), 1);
    assert_true(actor_busy(next));
    faults_unblock_acquires(&s->faults);
    assert_status(DIBS_OK, actor_result(next));
    unlock_and_end(next, s->rt);
    actor_end(asker);
    expect_nothing_left(s);
}

/* -------------------------------------------------- the ask behind a release */

/* What the release of s->rt's first holder asks for the second, whatever comes of it. */
static void the_ask_behind_a_release(void **state)
{
    static const struct {
        dibs_status release, ask; /* as the store does them */
        dibs_status unlock;
        bool unanswered;
    } rows[] = {
        {DIBS_OK, DIBS_OK, DIBS_OK, false},         {DIBS_OK, DIBS_UNAVAILABLE, DIBS_OK, false},
        {DIBS_OK, DIBS_NO_MEMORY, DIBS_OK, false},  {DIBS_OK, DIBS_OK, DIBS_OK, true},
        {DIBS_DENIED, DIBS_OK, DIBS_DENIED, false}, {DIBS_UNAVAILABLE, DIBS_OK, DIBS_UNAVAILABLE, false},
        {DIBS_NOT_HELD, DIBS_OK, DIBS_LOST, false},
    };
    stage *s = *state;

    assert_status(DIBS_OK, dibs_unlock(spy.second, "a"));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_status(DIBS_OK, dibs_trylock(s->rt, "a"));
        actor *next = waiter(s, 1, FOREVER);
        faults_release(&s->faults, rows[i].release, 1);
        faults_acquire(&s->faults, rows[i].ask, 1);
        faults_set(&s->faults, &s->faults.unanswered, rows[i].unanswered);
        assert_status(rows[i].unlock, dibs_unlock(s->rt, "a"));
        faults_set(&s->faults, &s->faults.unanswered, false);
        faults_confirm(&s->faults);
        for (int ms = 0; ms < 1000 && actor_busy(next); ms++) { /* it may ride out that it could not ask */
            moved_clock_advance(&s->clock, MS(1));
            pause_ms(1);
        }
        assert_status(DIBS_OK, actor_result(next));
        unlock_and_end(next, s->rt);
        assert_int_equal(stats_of(s->rt).leases, 0);
        assert_status(DIBS_OK, dibs_trylock(spy.second, "a"));
        assert_status(DIBS_OK, dibs_unlock(spy.second, "a"));
    }
}

static void pass_100_ms(stage *s)
{
    moved_clock_advance(&s->clock, MS(100));
}

/*
 * The unlock asks for one that is gone when the answer is there, be it a grant or a place in the queue. That attempt is
 * over then: a grant that comes for it later is refused, so that the store takes it back.
 */
static void the_ask_behind_a_release_for_one_that_has_left(void **state)
{
    stage *s = *state;

    assert_status(DIBS_OK, dibs_unlock(spy.second, "a"));
    for (int others = 0; others < 2; others++) {
        assert_status(DIBS_OK, dibs_trylock(s->rt, "a"));
        actor *stranger = others ? stranger_of(s, 1) : NULL;
        actor *next = waiter(s, 1 + (size_t)others, 100);
        unsigned asked = acquires(s);
        spy.releasing = pass_100_ms;
        assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
        assert_status(DIBS_TIMEOUT, actor_result(next));
        assert_int_equal(acquires(s), asked + 1);
        assert_true(spy.behind[0] != '\0');
        assert_false(push(s, spy.behind, 1, false));
        if (others) {
            assert_status(DIBS_OK, actor_result(stranger));
            unlock_and_end(stranger, spy.third);
        }
        actor_end(next);
        expect_nothing_left(s);
        assert_status(DIBS_OK, dibs_unlock(spy.second, "a"));
    }
}

/* In the store's queue behind another process, from the release on. */
static void the_ask_behind_a_release_queues(void **state)
{
    stage *s = *state;

    assert_status(DIBS_OK, dibs_unlock(spy.second, "a"));
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    actor *stranger = stranger_of(s, 1), *next = waiter(s, 2, FOREVER);
    unsigned asked = acquires(s);
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    assert_status(DIBS_OK, actor_result(stranger));
    stage_await_waiting(s, 1);
    assert_int_equal(in_queue(), 1);
    assert_int_equal(acquires(s), asked + 1);
    unlock_and_end(stranger, spy.third);
    assert_status(DIBS_OK, actor_result(next));
    assert_int_equal(acquires(s), asked + 1);
    assert_int_equal(stats_of(s->rt).granted, 1);
    unlock_and_end(next, s->rt);
    expect_nothing_left(s);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_grant_ends_the_wait_without_another_ask),
        TEST(a_granted_lease_counts_from_its_ask),
        TEST(a_grant_may_come_before_its_ask_is_answered),
        TEST(a_grant_that_comes_at_the_end_of_the_wait),
        TEST(a_grant_for_an_attempt_that_is_over_is_refused),
        TEST(a_grant_for_an_attempt_that_is_over_is_not_the_next_ones),
        TEST(a_grant_for_a_token_that_was_given_up_is_not_the_next_tokens),
        TEST(what_was_told_of_the_owner_outlives_the_token),
        TEST(a_grant_of_a_lease_that_is_held_changes_nothing),
        TEST(a_grant_that_proves_nothing_makes_the_waiter_ask),
        TEST(a_grant_whose_lease_is_over_by_now_is_none),
        TEST(a_grant_that_got_lost_costs_a_third_of_a_lease),
        TEST(a_grant_that_got_lost_is_taken_back_with_its_attempt),
        TEST(a_shutdown_takes_all_attempts_back),
        TEST(who_runs_out_of_time_leaves_its_place_to_the_next_here),
        TEST(a_place_is_left_only_to_who_wants_the_same),
        TEST(a_place_that_nobody_takes_over_is_given_up),
        TEST(a_place_is_not_left_by_who_was_refused),
        TEST(a_grant_that_comes_while_the_place_changes_hands),
        TEST(a_grant_that_comes_before_the_place_has_its_new_owner),
        TEST(the_ask_behind_a_release),
        TEST(the_ask_behind_a_release_for_one_that_has_left),
        TEST(the_ask_behind_a_release_queues),
    };

    return cmocka_run_group_tests_name("grant", tests, NULL, NULL);
}
