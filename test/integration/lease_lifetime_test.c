/* A lease: renewed while it is held, ended in time, and never lost without notice. */
#include "support/agent.h"
#include "support/fixture.h"
#include "support/script_server.h"

/* What the library takes off a lease for drift, and a millisecond of rounding. */
#define MARGIN_MS(lease) ((lease) / 100 + 3)

static const dibs_lock_options fixed_second = {.lease_ms = 1000, .flags = DIBS_FIXED_LEASE};

/* ---------------------------------------------------------------- renewal */

TEST_ON(renewal_keeps_a_lock_for_many_leases, fixture *f)
{
    int64_t end = now_ms() + 5 * SAFE_LEASE_MS;

    fixture_open(f, SAFE_LEASE_MS);
    dibs_runtime *second = test_runtime(open_runtime(f->server, 0));
    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    const char *first = server_text(f->server, "GET lock:x");
    while (now_ms() < end) {
        long long left = server_integer(f->server, "PTTL lock:x");

        assert_that(left > 0 && left <= SAFE_LEASE_MS, "PTTL %lld", left);
        assert_string_equal(server_text(f->server, "GET lock:x"), first);
        assert_status(DIBS_OK, dibs_check(f->rt, "x"));
        assert_true(hold_of(f->rt, "x").remaining_ms <= SAFE_LEASE_MS);
        assert_status(DIBS_BUSY, dibs_trylock(second, "x"));
        pause_ms(20);
    }
    assert_true(stats_of(f->rt).renewed >= 5);
    assert_int_equal(stats_of(f->rt).lost, 0);
    /* No more renewals than needed: one every third of a lease. redis++ made 1,137 where 6 were due. */
    assert_true(stats_of(f->rt).renewed <= 30);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    assert_status(DIBS_OK, dibs_trylock(second, "x"));
}

/* A renewal comes up to an eighth of its period earlier where the lease is looked at for something else. */
TEST_ON(renew_ms_sets_the_pace, fixture *f)
{
    enum { RENEW_MS = 48, LEAST_MS = RENEW_MS - RENEW_MS / 8 };
    int64_t begin = now_ms();

    f->config.renew_ms = RENEW_MS;
    fixture_open_holding(f, LONG_LEASE_MS, "x");
    assert_true(comes_to(f->rt, STAT(renewed), 2));
    assert_true(now_ms() - begin >= 2 * LEAST_MS);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
}

TEST_ON(many_leases_are_renewed_together, fixture *f)
{
    enum { LEASES = 600 };

    fixture_open(f, SAFE_LEASE_MS * 2);
    for (int i = 0; i < LEASES; i++)
        assert_status(DIBS_OK, dibs_lock(f->rt, formatted("many-%d", i)));
    assert_int_equal(stats_of(f->rt).leases, LEASES);
    pause_ms(SAFE_LEASE_MS * 4);
    for (int i = 0; i < LEASES; i++)
        assert_status(DIBS_OK, dibs_check(f->rt, formatted("many-%d", i)));
    assert_status(DIBS_OK, dibs_unlock_all(f->rt));
    assert_int_equal(stats_of(f->rt).leases, 0);
    assert_int_equal(stats_of(f->rt).lost, 0);
}

/* ------------------------------------------------------------ fixed leases */

/*
 * The order of the two queries matters: the store is asked first. Once it says that the key is gone, every later check
 * of the holder must say DIBS_LOST.
 */
TEST_ON(a_fixed_lease_is_lost_before_the_key_is_gone, fixture *f)
{
    int64_t before = now_ms();
    bool there = true;
    bool was_held = false;

    fixture_open(f, 0);
    before = now_ms();
    assert_status(DIBS_OK, dibs_lock_with(f->rt, "x", 0, &fixed_second));
    int64_t granted = now_ms();
    while (there) {
        int64_t asked = now_ms();
        dibs_status status;

        there = server_has(f->server, "lock:x");
        status = dibs_check(f->rt, "x");
        if (!there)
            assert_status(DIBS_LOST, status);
        if (asked >= granted + 1000)
            assert_status(DIBS_LOST, status);
        if (status == DIBS_LOST)
            assert_true(now_ms() >= before + 1000 - MARGIN_MS(1000));
        else
            assert_status(DIBS_OK, status);
        was_held = was_held || status == DIBS_OK;
    }
    assert_true(was_held);
    assert_int_equal(stats_of(f->rt).renewed, 0);
    events_await(&f->events, DIBS_EVENT_LOST, "x");
    assert_status(DIBS_LOST, dibs_trylock(f->rt, "x"));
    assert_status(DIBS_LOST, dibs_unlock(f->rt, "x"));
    lock_and_release(f->rt, "x", 0);
}

/* When another client gets in after the end of the lease, the first holder knows of its loss already. */
TEST_ON(a_holder_knows_of_its_loss_before_the_next_gets_in, fixture *f)
{
    uint64_t fence;

    fixture_open(f, 0);
    dibs_runtime *second = test_runtime(open_runtime(f->server, 0));
    for (int i = 0; i < 5; i++) {
        dibs_lock_options shortly = {.lease_ms = 300, .flags = DIBS_FIXED_LEASE};
        dibs_hold lost;

        assert_status(DIBS_OK, dibs_lock_with(f->rt, "x", LIMIT_MS, &shortly));
        assert_status(DIBS_OK, dibs_timedlock(second, "x", LIMIT_MS));
        assert_status(DIBS_LOST, dibs_check(f->rt, "x"));
        assert_status(DIBS_LOST, dibs_hold_of(f->rt, "x", &lost));
        assert_true(lost.lost);
        assert_int_equal(lost.count, 1);
        assert_int_equal(lost.remaining_ms, 0);
        fence = fence_of(second, "x");
        assert_true(fence > lost.fence);
        assert_status(DIBS_LOST, dibs_unlock(f->rt, "x"));
        assert_status(DIBS_OK, dibs_check(second, "x"));
        assert_true(server_has(f->server, "lock:x"));
        assert_status(DIBS_OK, dibs_unlock(second, "x"));
    }
}

/* ----------------------------------------------------------------- extend */

TEST_ON(extend_sets_the_end_of_a_renewed_lease, fixture *f)
{
    long long left;

    fixture_open(f, 60000);
    assert_status(DIBS_NOT_HELD, dibs_extend(f->rt, "x", 1000));
    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    assert_status(DIBS_OK, dibs_extend(f->rt, "x", 120000));
    left = server_integer(f->server, "PTTL lock:x");
    assert_true(left > 60000 && left <= 120000);
    assert_true(hold_of(f->rt, "x").remaining_ms > 60000);
    assert_status(DIBS_OK, dibs_extend(f->rt, "x", SAFE_LEASE_MS));
    int64_t end = now_ms() + 3 * SAFE_LEASE_MS;
    while (now_ms() < end) {
        left = server_integer(f->server, "PTTL lock:x");
        assert_that(left > 0 && left <= SAFE_LEASE_MS, "PTTL %lld", left);
        assert_true(hold_of(f->rt, "x").remaining_ms <= SAFE_LEASE_MS);
        pause_ms(20);
    }
    assert_int_equal(hold_of(f->rt, "x").count, 1);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    /* The extension concerned that hold, not later holds of the name. */
    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    assert_true(server_integer(f->server, "PTTL lock:x") > SAFE_LEASE_MS);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
}

TEST_ON(extend_prolongs_a_fixed_lease_once, fixture *f)
{
    dibs_lock_options minute = {.lease_ms = 60000, .flags = DIBS_FIXED_LEASE};

    fixture_open(f, 0);
    assert_status(DIBS_OK, dibs_lock_with(f->rt, "x", 0, &minute));
    assert_status(DIBS_OK, dibs_extend(f->rt, "x", 120000));
    assert_true(server_integer(f->server, "PTTL lock:x") > 60000);
    assert_status(DIBS_OK, dibs_extend(f->rt, "x", 1000));
    int64_t granted = now_ms();
    uint64_t renewed = stats_of(f->rt).renewed;
    assert_true(server_integer(f->server, "PTTL lock:x") <= 1000);
    await_lost(f->rt, "x");
    assert_true(now_ms() - granted <= LIMIT_MS / 2);
    assert_int_equal(stats_of(f->rt).renewed, renewed);
    assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS)); /* the server counts from when it was asked */
    assert_status(DIBS_LOST, dibs_extend(f->rt, "x", 1000));
    assert_status(DIBS_LOST, dibs_unlock(f->rt, "x"));
    assert_status(DIBS_NOT_HELD, dibs_extend(f->rt, "x", 1000));
}

/* rslock and redlock-cpp "extend" a key that is gone. */
TEST_ON(extend_never_takes_back_a_lost_lock, fixture *f)
{
    fixture_open_holding(f, LONG_LEASE_MS, "gone");
    server_do(f->server, "DEL lock:gone");
    assert_status(DIBS_LOST, dibs_extend(f->rt, "gone", 1000));
    assert_false(server_has(f->server, "lock:gone"));
    assert_status(DIBS_LOST, dibs_check(f->rt, "gone"));
    assert_status(DIBS_LOST, dibs_unlock(f->rt, "gone"));

    assert_status(DIBS_OK, dibs_lock(f->rt, "taken"));
    server_do(f->server, "SET lock:taken other PX 60000");
    assert_status(DIBS_LOST, dibs_extend(f->rt, "taken", 600000));
    assert_true(server_integer(f->server, "PTTL lock:taken") <= 60000);
    assert_status(DIBS_LOST, dibs_unlock(f->rt, "taken"));
    assert_true(server_has(f->server, "lock:taken"));
    server_do(f->server, "DEL lock:taken");
}

/* ------------------------------------------------------- ways of losing it */

static void delete_key(server *s)
{
    server_do(s, "DEL lock:x");
}

static void overwrite_key(server *s)
{
    server_do(s, "SET lock:x somebody PX 600000");
}

/* bsm matches tokens by prefix: here a longer and a shorter token are different tokens. */
static void lengthen_token(server *s)
{
    server_do(s, "APPEND lock:x 0");
    server_do(s, "PEXPIRE lock:x 600000"); /* so that the key stays for as long as the test looks */
}

static void shorten_token(server *s)
{
    server_do(s, "SETRANGE lock:x 0 ~~");
    server_do(s, "PEXPIRE lock:x 600000");
}

static void flush_all(server *s)
{
    server_do(s, "FLUSHALL");
}

static const struct accident {
    const char *what;
    void (*happens)(server *s);
    bool key_stays;
} accidents[] = {
    {"DEL", delete_key, false},
    {"overwritten", overwrite_key, true},
    {"token longer", lengthen_token, true},
    {"token changed", shorten_token, true},
    {"FLUSHALL", flush_all, false},
};

/* The loss is found by the next renewal and stays, at any depth; after the last unlock the name can be locked again. */
static void expect_loss(fixture *f, const struct accident *a)
{
    uint64_t lost = stats_of(f->rt).lost;
    dibs_hold hold;

    print_message("# %s\n", a->what);
    for (int i = 0; i < 3; i++)
        assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    uint64_t fence = fence_of(f->rt, "x");
    a->happens(f->server);
    await_lost(f->rt, "x");
    assert_true(comes_to(f->rt, STAT(lost), lost + 1)); /* the loss is known a moment before it is counted */
    assert_int_equal(stats_of(f->rt).lost, lost + 1);
    assert_int_equal(events_await(&f->events, DIBS_EVENT_LOST, "x").fence, fence);
    assert_status(DIBS_LOST, dibs_hold_of(f->rt, "x", &hold));
    assert_int_equal(hold.count, 3);
    assert_int_equal(hold.fence, fence);
    for (int i = 0; i < 3; i++) {
        assert_status(DIBS_LOST, dibs_trylock(f->rt, "x"));
        assert_status(DIBS_LOST, dibs_timedlock(f->rt, "x", 100));
        assert_status(DIBS_LOST, dibs_check(f->rt, "x"));
        assert_status(DIBS_LOST, dibs_unlock(f->rt, "x"));
    }
    assert_status(DIBS_NOT_HELD, dibs_check(f->rt, "x"));
    assert_status(DIBS_NOT_HELD, dibs_unlock(f->rt, "x"));
    assert_int_equal(server_has(f->server, "lock:x"), a->key_stays);
    server_do(f->server, "DEL lock:x");
    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    assert_true(fence_of(f->rt, "x") > fence);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
}

TEST_ON(a_lost_key_is_found_out_by_the_next_renewal, fixture *f)
{
    for (size_t i = 0; i < sizeof accidents / sizeof *accidents; i++) {
        fixture_open(f, SAFE_LEASE_MS);
        expect_loss(f, &accidents[i]);
        close_runtime(&f->rt);
        events_destroy(&f->events);
        events_init(&f->events);
    }
}

/* The release itself finds the loss, before any renewal could. */
TEST_ON(unlock_finds_a_lost_key_by_itself, fixture *f)
{
    for (size_t i = 0; i < sizeof accidents / sizeof *accidents; i++) {
        fixture_open_holding(f, LONG_LEASE_MS, "x");
        accidents[i].happens(f->server);
        assert_status(DIBS_LOST, dibs_unlock(f->rt, "x"));
        assert_int_equal(server_has(f->server, "lock:x"), accidents[i].key_stays);
        server_do(f->server, "DEL lock:x");
        assert_status(DIBS_NOT_HELD, dibs_check(f->rt, "x"));
        close_runtime(&f->rt);
    }
}

TEST_ON(the_loser_does_not_block_the_process, fixture *f)
{
    dibs_hold hold;

    fixture_open_holding(f, SAFE_LEASE_MS, "x");
    uint64_t fence = fence_of(f->rt, "x");
    actor *other = actor_locking(f->rt, "x", DIBS_WAIT_FOREVER);
    server_do(f->server, "DEL lock:x");
    assert_status(DIBS_OK, actor_result(other));
    assert_status(DIBS_LOST, dibs_check(f->rt, "x"));
    assert_status(DIBS_OK, actor_hold(other, f->rt, "x", &hold));
    assert_true(hold.fence > fence);
    /* The loser's unlock touches neither the other thread's hold nor its key. */
    assert_status(DIBS_LOST, dibs_unlock(f->rt, "x"));
    assert_status(DIBS_OK, actor_check(other, f->rt, "x"));
    assert_true(server_has(f->server, "lock:x"));
    assert_status(DIBS_BUSY, dibs_trylock(f->rt, "x"));
    pause_ms(2 * SAFE_LEASE_MS);
    assert_status(DIBS_OK, actor_check(other, f->rt, "x"));
    assert_status(DIBS_OK, actor_unlock(other, f->rt, "x"));
}

/* --------------------------------------------- a holder, or a store, stops */

TEST_ON(a_stopped_holder_knows_of_its_loss_when_it_wakes, fixture *f)
{
    uint64_t fence;

    fixture_open(f, 0);
    process *holder = agent_start(f->server->url, SAFE_LEASE_MS);
    for (int i = 0; i < 3; i++) {
        assert_status(DIBS_OK, agent_lock(holder, "x", LIMIT_MS));
        fence = agent_fence(holder, "x");
        process_pause(holder);
        assert_status(DIBS_OK, dibs_timedlock(f->rt, "x", LIMIT_MS));
        assert_true(fence_of(f->rt, "x") > fence);
        /* What it does first when it goes on. */
        agent_begin_check(holder, "x");
        process_resume(holder);
        assert_status(DIBS_LOST, agent_result(holder));
        assert_status(DIBS_LOST, agent_lock(holder, "x", 0));
        assert_status(DIBS_LOST, agent_unlock(holder, "x"));
        assert_status(DIBS_BUSY, agent_lock(holder, "x", 0));
        assert_status(DIBS_OK, dibs_check(f->rt, "x"));
        assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    }
}

TEST_ON(an_unreachable_store_costs_the_lease_at_its_deadline, fixture *f)
{
    int64_t asked;
    dibs_status status;

    f->config.command_timeout_ms = 200;
    fixture_open_holding(f, 2 * SAFE_LEASE_MS, "x");
    server_pause(f->server);
    int64_t stopped = now_ms();
    do {
        asked = now_ms();
        status = dibs_check(f->rt, "x");
        pause_ms(5);
    } while (status == DIBS_OK && asked < stopped + 2 * SAFE_LEASE_MS);
    /* No renewal from before the stop lasts longer than one lease after it. */
    assert_status(DIBS_LOST, status);
    events_await(&f->events, DIBS_EVENT_LOST, "x");
    events_await(&f->events, DIBS_EVENT_AT_RISK, "x");
    assert_true(events_find(&f->events, DIBS_EVENT_AT_RISK, "x") < events_find(&f->events, DIBS_EVENT_LOST, "x"));
    assert_int_equal(events_count(&f->events, DIBS_EVENT_LOST, "x"), 1);
    assert_true(stats_of(f->rt).renew_failed > 0);
    server_resume(f->server);
    assert_status(DIBS_LOST, dibs_unlock(f->rt, "x"));
    assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS));
    assert_status(DIBS_OK, dibs_timedlock(f->rt, "x", LIMIT_MS));
    dibs_unlock_all(f->rt); /* otherwise the release goes on in the background */
    assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS));
}

/* redis++ gives a lease up because one renewal timed out. */
TEST_ON(an_outage_shorter_than_the_lease_costs_nothing, fixture *f)
{
    int64_t end;

    script_server *net = script_server_start(&(script_options){.backend = f->server->socket_path});
    dibs_runtime *rt = open_url(script_server_url(net), &(dibs_config){.lease_ms = 4 * SAFE_LEASE_MS, .renew_ms = 100});
    assert_status(DIBS_OK, dibs_lock(rt, "x"));
    for (int i = 0; i < 3; i++) {
        script_server_set_down(net, true);
        end = now_ms() + SAFE_LEASE_MS / 2;
        while (now_ms() < end) {
            assert_status(DIBS_OK, dibs_check(rt, "x"));
            pause_ms(10);
        }
        script_server_set_down(net, false);
        end = now_ms() + SAFE_LEASE_MS;
        while (hold_of(rt, "x").remaining_ms < 3 * SAFE_LEASE_MS && now_ms() < end + LIMIT_MS)
            pause_ms(10);
        assert_true(hold_of(rt, "x").remaining_ms >= 3 * SAFE_LEASE_MS);
    }
    assert_status(DIBS_OK, dibs_unlock(rt, "x"));
    assert_int_equal(stats_of(rt).lost, 0);
    dibs_close(rt);
    script_server_stop(net);
}

/* --------------------------------------------------- released in an outage */

TEST_ON(a_lock_released_while_the_store_hangs_is_deleted_later, fixture *f)
{
    f->config.command_timeout_ms = 200;
    f->config.connect_timeout_ms = 200;
    fixture_open_holding(f, LONG_LEASE_MS, "x");
    assert_status(DIBS_OK, dibs_lock(f->rt, "y"));
    server_pause(f->server);
    assert_status(DIBS_UNAVAILABLE, dibs_unlock(f->rt, "x"));
    assert_status(DIBS_NOT_HELD, dibs_check(f->rt, "x"));
    assert_status(DIBS_NOT_HELD, dibs_unlock(f->rt, "x"));
    assert_status(DIBS_UNAVAILABLE, dibs_unlock_all(f->rt));
    assert_status(DIBS_NOT_HELD, dibs_check(f->rt, "y"));
    server_resume(f->server);
    assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS));
    assert_true(server_wait_gone(f->server, "lock:y", LIMIT_MS));
    assert_status(DIBS_OK, dibs_timedlock(f->rt, "x", LIMIT_MS));
    dibs_unlock_all(f->rt); /* otherwise the release goes on in the background */
    assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS));
}

TEST_ON(a_lock_released_while_the_network_is_cut_is_deleted_later, fixture *f)
{
    script_server *net = fixture_between(f);
    dibs_runtime *rt = test_runtime(open_url(script_server_url(net), &(dibs_config){.lease_ms = LONG_LEASE_MS}));

    assert_status(DIBS_OK, dibs_lock(rt, "x"));
    script_server_set_down(net, true);
    assert_status(DIBS_UNAVAILABLE, dibs_unlock(rt, "x"));
    assert_status(DIBS_NOT_HELD, dibs_check(rt, "x"));
    assert_true(server_has(f->server, "lock:x"));
    script_server_set_down(net, false);
    assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS));
}

/* Only the token of the old hold is retracted, never that of a later hold. */
TEST_ON(the_late_deletion_spares_a_later_hold, fixture *f)
{
    script_server *net = fixture_between(f);
    dibs_runtime *rt = test_runtime(open_url(script_server_url(net), &(dibs_config){.lease_ms = LONG_LEASE_MS}));

    fixture_open(f, LONG_LEASE_MS);
    assert_status(DIBS_OK, dibs_lock(rt, "x"));
    script_server_set_down(net, true);
    assert_status(DIBS_UNAVAILABLE, dibs_unlock(rt, "x"));
    assert_status(DIBS_OK, dibs_force_unlock(f->rt, "x", NULL));
    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    script_server_set_down(net, false);
    assert_status(DIBS_TIMEOUT, dibs_timedlock(rt, "x", 1000));
    assert_status(DIBS_OK, dibs_check(f->rt, "x"));
    assert_true(server_has(f->server, "lock:x"));
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
}

TESTS(fixture_setup, fixture_teardown)
