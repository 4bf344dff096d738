/* The server that answers is not the one that granted the leases: all of them are renewed at once. */
#include "support/fixture.h"
#include "support/tasks.h"
#include "unit/renewal_setup.h"

/* Tells of another server, as the store does on the scheduler's thread: here, while that thread sleeps. */
static void another_server(stage *s, uint64_t number)
{
    stage_settle(s);
    atomic_store(&s->faults.server, number);
    dibs__renewals_server_changed(s->rt->core->renewals);
    stage_settle(s);
}

TEST_ON(another_server_is_asked_for_all_leases_at_once, stage *s)
{
    stage_open(s, LEASE);
    lock_many(s, 300);
    stage_advance(s, MS(1));
    another_server(s, 1);
    assert_int_equal(renewals(s), 300);
    assert_int_equal(batches(s), 2);
    for (unsigned i = 0; i < 300; i++)
        assert_true(s->faults.records[i].lease_ms == LEASE);
    assert_int_equal(hold_of(s->rt, "many-0").remaining_ms, believed(LEASE) / MS(1));
    stage_advance(s, MS(10000) - 1); /* and then after a third of a lease, as always */
    assert_int_equal(renewals(s), 300);
    expect_renewals_after(s, 1, 600);
    assert_int_equal(stats_of(s->rt).lost, 0);
}

/* Fixed leases are renewed as well, for their remaining time: they end when they would have ended. */
TEST_ON(a_fixed_lease_keeps_its_end_at_another_server, stage *s)
{
    stage_open(s, LEASE);
    assert_status(DIBS_OK, dibs_lock_with(s->rt, "a", 0, &fixed));
    stage_advance(s, MS(12000));
    int64_t left = hold_of(s->rt, "a").remaining_ms;
    assert_int_equal(left, (believed(LEASE) - MS(12000)) / MS(1));
    faults_renewal(&s->faults, DIBS_UNAVAILABLE, 1);
    another_server(s, 1);
    assert_int_equal(renewals(s), 1);
    assert_int_equal(last_renewal(s).lease_ms, left + 1);
    stage_advance(s, MS(1000)); /* it failed, and is tried again */
    assert_int_equal(renewals(s), 2);
    assert_int_equal(last_renewal(s).lease_ms, left + 1 - 1000);
    assert_int_equal(hold_of(s->rt, "a").remaining_ms, left - 1000);
    expect_renewals_after(s, believed(LEASE) - MS(13000) - 1, 2);
    assert_status(DIBS_OK, dibs_check(s->rt, "a"));
    stage_advance(s, 1);
    assert_status(DIBS_LOST, dibs_check(s->rt, "a"));
}

/* An extension whose caller has given up does not replace the renewal that is due. */
TEST_ON(a_fixed_lease_is_unconfirmed_until_its_renewal_is_answered, stage *s)
{
    actor *other = actor_start();

    s->settings.command_timeout_ms = 5;
    stage_open(s, LEASE);
    assert_status(DIBS_OK, actor_lock_with(other, s->rt, "a", 0, &fixed));
    faults_renewal(&s->faults, DIBS_UNAVAILABLE, FOR_EVER);
    another_server(s, 1);
    actor_begin_extend(other, s->rt, "a", LEASE);
    stage_await_waiting(s, 1);
    stage_advance(s, MS(5)); /* the extension's time is over before the next try */
    assert_status(DIBS_UNAVAILABLE, actor_result(other));
    faults_renewal(&s->faults, DIBS_OK, 0);
    stage_advance(s, MS(1000));
    assert_int_equal(stats_of(s->rt).renewed, 1);
    assert_status(DIBS_OK, actor_unlock(other, s->rt, "a"));
}

/* An extension to a shorter time is refused: in the store the lease is as long as before, and it is renewed in time. */
TEST_ON(an_extension_that_is_refused_costs_no_lease, stage *s)
{
    stage_open(s, LEASE);
    actor *other = actor_holding(s->rt, "a");
    faults_renewal(&s->faults, DIBS_DENIED, 1);
    assert_status(DIBS_DENIED, actor_extend(other, s->rt, "a", 400));
    for (int ms = 0; ms < 2000; ms += 50)
        stage_advance(s, MS(50));
    assert_status(DIBS_OK, actor_check(other, s->rt, "a"));
    assert_status(DIBS_OK, actor_unlock(other, s->rt, "a"));
}

/* The other thread extends its lease, and its call ends before the answer, which will be that there is none. */
static void abandon_extension(stage *s, actor *other)
{
    stage_open(s, LEASE);
    assert_status(DIBS_OK, actor_lock(other, s->rt, "a", 0));
    faults_hold_renewals(&s->faults);
    faults_renewal(&s->faults, DIBS_UNAVAILABLE, 1);
    actor_begin_extend(other, s->rt, "a", 60000);
    stage_await_waiting(s, 1);
    stage_advance(s, MS(1000)); /* the command timeout */
    assert_status(DIBS_UNAVAILABLE, actor_result(other));
}

/* The caller of the extension has left, and was told that its outcome is in doubt: the extension is not sent again. */
TEST_ON(an_abandoned_extension_is_not_repeated, stage *s)
{
    actor *other = actor_start();

    abandon_extension(s, other);
    assert_int_equal(renewals(s), 1);
    assert_int_equal(last_renewal(s).lease_ms, 60000);
    stage_let_renewals_go(s);
    stage_settle(s);
    stage_advance(s, MS(10000));
    assert_true(renewals(s) > 1);
    for (unsigned i = 1; i < renewals(s); i++)
        assert_int_equal(s->faults.records[i].lease_ms, LEASE);
    assert_status(DIBS_OK, actor_unlock(other, s->rt, "a"));
}

/* The next call waits for the end of that one, which comes as no answer, and is sent at once then. */
TEST_ON(an_extension_after_an_abandoned_one_does_not_wait_in_vain, stage *s)
{
    actor *other = actor_start();

    abandon_extension(s, other);
    actor_begin_extend(other, s->rt, "a", 60000);
    stage_await_waiting(s, 1);
    assert_int_equal(renewals(s), 1);
    stage_let_renewals_go(s);
    assert_status(DIBS_OK, actor_result(other));
    assert_int_equal(renewals(s), 2);
    assert_int_equal(last_renewal(s).lease_ms, 60000);
    assert_status(DIBS_OK, actor_unlock(other, s->rt, "a"));
}

/* The lease may have to be restored in the new server, and the answer to that has not come yet. */
static void begin_unlock_at_another_server(stage *s, actor *holder, uint32_t lease_ms)
{
    stage_open(s, lease_ms);
    assert_status(DIBS_OK, actor_lock(holder, s->rt, "a", 0));
    faults_hold_renewals(&s->faults);
    another_server(s, 1);
    actor_begin_unlock(holder, s->rt, "a");
    stage_await_waiting(s, 1);
}

/* A lease must not be restored after its release: so an unlock waits for the answer. */
TEST_ON(an_unlock_waits_for_the_answer_of_another_server, stage *s)
{
    actor *holder = actor_start();

    begin_unlock_at_another_server(s, holder, LEASE);
    assert_true(actor_busy(holder));
    assert_int_equal(faults_count(&s->faults, &s->faults.releases), 0);
    stage_let_renewals_go(s);
    assert_status(DIBS_OK, actor_result(holder));
    assert_int_equal(faults_count(&s->faults, &s->faults.releases), 1);
    assert_int_equal(faults_count(&s->faults, &s->faults.retractions), 0);
}

/* An unlock waits for half of its time. Then it releases the lease, and retracts what is still under way. */
TEST_ON(an_unlock_waits_for_another_server_only_for_a_limited_time, stage *s)
{
    actor *holder = actor_start();

    begin_unlock_at_another_server(s, holder, LEASE);
    moved_clock_advance(&s->clock, MS(500) - 1);
    stage_await_waiting(s, 1);
    assert_int_equal(faults_count(&s->faults, &s->faults.releases), 0);
    moved_clock_advance(&s->clock, 1);
    assert_status(DIBS_OK, actor_result(holder));
    assert_int_equal(faults_count(&s->faults, &s->faults.releases), 1);
    assert_int_equal(faults_count(&s->faults, &s->faults.retractions), 1);
    faults_let_renewals_go(&s->faults);
}

/* A lease that is lost cannot be restored any more, so the unlock stops waiting before that half is over. */
TEST_ON(an_unlock_stops_waiting_when_its_lease_is_lost, stage *s)
{
    actor *holder = actor_start();

    begin_unlock_at_another_server(s, holder, 300);
    moved_clock_advance(&s->clock, believed(300));
    bool woken = within(LIMIT_MS, !actor_busy(holder));
    moved_clock_advance(&s->clock, MS(500)); /* so that the thread ends in any case */
    dibs_status status = actor_result(holder);
    assert_true(woken);
    assert_true(status == DIBS_LOST || status == DIBS_OK); /* the key outlasts the lease by the margin */
    faults_let_renewals_go(&s->faults);
}

/* The connection of the renewal broke: the renewal may still reach the store, even after the release. */
TEST_ON(an_unlock_is_retracted_behind_a_request_without_an_answer, stage *s)
{
    stage_open(s, LEASE);
    actor *holder = actor_holding(s->rt, "a");
    faults_renewal(&s->faults, DIBS_UNAVAILABLE, FOR_EVER);
    another_server(s, 1);
    assert_int_equal(renewals(s), 1);
    actor_begin_unlock(holder, s->rt, "a");
    stage_await_waiting(s, 1);
    moved_clock_advance(&s->clock, MS(500));
    assert_status(DIBS_OK, actor_result(holder));
    assert_int_equal(faults_count(&s->faults, &s->faults.retractions), 1);
}

enum { MANY = 20 };

struct release_many {
    stage *s;
    dibs_status locked, unlocked;
};

static void lock_or_unlock_many(void *arg)
{
    struct release_many *many = arg;
    char texts[MANY][16];
    const char *names[MANY];

    for (int i = 0; i < MANY; i++) {
        snprintf(texts[i], sizeof texts[i], "name:%02d", i);
        names[i] = texts[i];
    }
    if (many->locked == DIBS_INVALID)
        many->locked = dibs_lock_names(many->s->rt, names, MANY, 0, NULL);
    else
        many->unlocked = dibs_unlock_names(many->s->rt, names, MANY);
}

/* One after the other, the releases would wait for ten seconds. */
TEST_ON(an_unlock_of_many_names_waits_for_another_server_once, stage *s)
{
    struct release_many many = {s, DIBS_INVALID, DIBS_INVALID};

    stage_open(s, LEASE);
    actor *holder = actor_running(lock_or_unlock_many, &many);
    actor_finish(holder);
    assert_status(DIBS_OK, many.locked);
    faults_hold_renewals(&s->faults);
    another_server(s, 1);
    actor_begin(holder, lock_or_unlock_many, &many);
    stage_await_waiting(s, 1);
    assert_int_equal(faults_count(&s->faults, &s->faults.releases), 0);
    moved_clock_advance(&s->clock, MS(500));
    bool woken = within(LIMIT_MS, !actor_busy(holder));
    for (int i = 0; i < MANY && actor_busy(holder); i++) { /* so that the thread ends in any case */
        stage_await_waiting(s, 1);
        moved_clock_advance(&s->clock, MS(500));
    }
    actor_finish(holder);
    assert_true(woken);
    assert_status(DIBS_OK, many.unlocked);
    assert_int_equal(faults_count(&s->faults, &s->faults.releases), MANY);
    assert_int_equal(faults_count(&s->faults, &s->faults.retractions), MANY);
    faults_let_renewals_go(&s->faults);
}

/* The clock stands still, so an unlock that a worker waited for would keep it for ever. */
TEST_ON(a_begun_unlock_that_waits_for_another_server_is_in_nobodys_way, stage *s)
{
    stage_open(s, LEASE);
    dibs_task *first = test_task(task_of_runtime(s->rt)), *second = test_task(task_of_runtime(s->rt));
    dibs_queue *q = test_queue(queue_new()), *other = test_queue(queue_new());
    assert_status(DIBS_OK, task_lock(first, "a", 0, q));
    faults_hold_renewals(&s->faults);
    another_server(s, 1);
    begin_unlock(first, "a", q);
    begin_lock(second, "b", 0, NULL, other);
    expect_done(other, DIBS_DONE_LOCK, DIBS_OK, second);
    expect_none(q);
    assert_int_equal(faults_count(&s->faults, &s->faults.releases), 0);
    moved_clock_advance(&s->clock, MS(500));
    expect_done(q, DIBS_DONE_UNLOCK, DIBS_OK, first);
    assert_int_equal(faults_count(&s->faults, &s->faults.retractions), 1);
    faults_let_renewals_go(&s->faults);
}

/* An ordinary renewal cannot restore anything, so an unlock does not wait for it. */
TEST_ON(an_unlock_waits_for_no_other_renewal, stage *s)
{
    stage_open_holding(s, LEASE);
    faults_hold_renewals(&s->faults);
    expect_renewals_after(s, MS(10000), 1);
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    assert_int_equal(faults_count(&s->faults, &s->faults.retractions), 0);
    faults_let_renewals_go(&s->faults);
}

/* The holder's connection led to another server than the scheduler's. */
TEST_ON(a_lease_that_another_server_granted_is_renewed_at_once, stage *s)
{
    stage_open(s, LEASE);
    another_server(s, 1);
    assert_status(DIBS_OK, dibs_lock(s->rt, "a")); /* the store in memory says 0 */
    stage_settle(s);
    assert_int_equal(renewals(s), 1);
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
}

/*
 * The store notes which server granted the lease: where that is the server which renewals go to, the lease is proven.
 */
TEST_ON(a_lease_of_the_server_being_asked_is_renewed_in_its_time, stage *s)
{
    static const struct {
        uint64_t server;
        unsigned renewals; /* how many renewals are sent at once */
    } rows[] = {{7, 0}, {8, 1}, {0, 1}};

    stage_open(s, LEASE);
    another_server(s, 7);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct dibs__renewals *r = s->rt->core->renewals;
        struct dibs__lease *lease = dibs__lease_new(s->rt->serial, "a", 1, DIBS__TOKEN_MAX);
        unsigned before = renewals(s);
        lease->asked_ms = LEASE;
        atomic_store(&lease->deadline, moved_clock_now(&s->clock) + believed(LEASE));
        const struct dibs__lease_store_state store_state = {.words = {rows[i].server}};
        dibs__renewals_add(r, lease, LEASE, moved_clock_now(&s->clock), &store_state);
        stage_settle(s);
        assert_int_equal(renewals(s), before + rows[i].renewals);
        assert_true(dibs__renewals_remove(r, lease));
        dibs__lease_unref(lease);
    }
}

TESTS(stage_setup, stage_teardown)
