/*
 * Many leases in one request: one that the server refuses harms no other, and
 * many releases at once keep no renewal waiting.
 */
#include "support/fixture.h"
#include "support/script_server.h"

#if defined(TEST_UNDER_TSAN) || defined(TEST_UNDER_ASAN) || defined(TEST_COUNTS_LINES)
#define MANY 4000
#else
#define MANY 40000
#endif
#define SHORT_LEASE_MS 600
#define ROUNDS 10

/* ------------------------------------------------------------ a refused batch */

/* Locks "a" and "b", whose renewals are due at the same time and so are sent together. */
static void lock_both(fixture *f)
{
    assert_status(DIBS_OK, dibs_lock(f->rt, "a"));
    assert_status(DIBS_OK, dibs_lock(f->rt, "b"));
}

/* Opens the runtime under an account whose rights the test changes. */
static void lock_both_as_u(fixture *f, uint32_t lease_ms)
{
    f->urls[0] = server_account(f->server, "u", "&* +@all ~lock:* ~dibs:*");
    fixture_open(f, lease_ms);
    lock_both(f);
}

TEST_ON(a_key_without_rights_costs_no_other_its_lease, fixture *f)
{
    lock_both_as_u(f, SAFE_LEASE_MS);
    server_do(f->server, "ACL SETUSER u resetkeys ~lock:a ~dibs:*");
    await_that(dibs_check(f->rt, "b") == DIBS_LOST);
    uint64_t renewed = stats_of(f->rt).renewed;
    for (; stats_of(f->rt).renewed < renewed + 3; pause_ms(1))
        assert_status(DIBS_OK, dibs_check(f->rt, "a"));
    server_do(f->server, "ACL SETUSER u ~lock:*");
    assert_status(DIBS_LOST, dibs_unlock(f->rt, "b"));
    assert_status(DIBS_OK, dibs_unlock(f->rt, "a"));
    assert_true(server_wait_gone(f->server, "lock:b", LIMIT_MS));
}

/* A renewal that the server refuses must not take the keys for gone. */
TEST_ON(a_right_that_is_away_for_a_while_costs_no_lease, fixture *f)
{
    lock_both_as_u(f, 3 * SAFE_LEASE_MS);
    server_do(f->server, "ACL SETUSER u -get -mget");
    events_await(&f->events, DIBS_EVENT_AT_RISK, "a");
    server_do(f->server, "ACL SETUSER u +get +mget");
    uint64_t renewed = stats_of(f->rt).renewed;
    for (; stats_of(f->rt).renewed < renewed + 2; pause_ms(1))
        assert_status(DIBS_OK, dibs_check(f->rt, "a"));
    assert_status(DIBS_OK, dibs_unlock(f->rt, "b"));
    assert_status(DIBS_OK, dibs_unlock(f->rt, "a"));
}

/* As in a cluster of one server: the keys of "a" and of "b" are in different slots. */
TEST_WITH(leases_of_two_slots_are_renewed, NULL, NULL, void *none)
{
    fixture f = {.config = {.url_count = 1}};

    f.server = server_start(&(server_options){.tcp = true, .config = "cluster-enabled yes\n"});
    server_do(f.server, "CLUSTER ADDSLOTSRANGE 0 16383");
    while (server_integer(f.server, "EVAL %s 0",
                          "return string.find(redis.call('CLUSTER', 'INFO'), 'state:ok') or 0") == 0)
        pause_ms(5);
    f.urls[0] = f.server->url;
    f.config.urls = f.urls;
    events_init(&f.events);
    fixture_open(&f, SAFE_LEASE_MS);
    lock_both(&f);
    for (; stats_of(f.rt).renewed < 8; pause_ms(1)) {
        assert_status(DIBS_OK, dibs_check(f.rt, "a"));
        assert_status(DIBS_OK, dibs_check(f.rt, "b"));
    }
    assert_status(DIBS_OK, dibs_unlock_all(f.rt));
    /* in the background, too */
    lock_both(&f);
    dibs_close(f.rt);
    assert_false(server_has(f.server, "lock:a"));
    assert_false(server_has(f.server, "lock:b"));
    events_destroy(&f.events);
    server_stop(f.server);
}

/* -------------------------------------------------------- many releases at once */

struct crowd {
    fixture *f;
    unsigned first, count;
};

static void lock_many(void *arg)
{
    const struct crowd *crowd = arg;

    for (unsigned i = crowd->first; i < crowd->first + crowd->count; i++)
        assert_status(DIBS_OK, dibs_lock(crowd->f->rt, formatted("n%u", i)));
}

/* Two threads take the locks, which is faster, and hold them when this returns. */
static void hold_many(fixture *f, actor *holders[2])
{
    struct crowd crowds[2] = {{f, 0, MANY / 2}, {f, MANY / 2, MANY / 2}};

    for (int i = 0; i < 2; i++) {
        holders[i] = actor_start();
        actor_begin(holders[i], lock_many, &crowds[i]);
    }
    for (int i = 0; i < 2; i++)
        actor_finish(holders[i]);
}

static bool none_is_left(fixture *f)
{
    return server_integer(f->server, "EVAL %s 0", "return #redis.call('KEYS', 'lock:n*')") == 0;
}

/* Counts keys instead of looking at each, which would take all of the server's time. The fences stay. */
static bool as_few_are_left(fixture *f, long long keys)
{
    return server_integer(f->server, "DBSIZE") <= keys;
}

/* True: the short lease was held from before the burst until after its end. */
static bool outlives_a_burst(fixture *f)
{
    const dibs_lock_options brief = {.lease_ms = SHORT_LEASE_MS};
    actor *holders[2];
    bool kept = true;

    hold_many(f, holders);
    assert_status(DIBS_OK, dibs_lock_with(f->rt, "brief", DIBS_WAIT_FOREVER, &brief));
    long long keys = server_integer(f->server, "DBSIZE") - MANY;
    for (int i = 0; i < 2; i++)
        actor_end(holders[i]);
    for (int64_t limit = now_ms() + LIMIT_MS; !as_few_are_left(f, keys) && now_ms() < limit; pause_ms(2))
        kept = kept && dibs_check(f->rt, "brief") == DIBS_OK; /* a lost lease stays lost */
    kept = dibs_unlock(f->rt, "brief") == DIBS_OK && kept;
    await_that(none_is_left(f)); /* where "brief" has ended by itself, there may be one more than was counted */
    return kept;
}

/* A machine that stalls for a moment may cost the lease too, but not at each of several tries. */
TEST_ON(a_thread_that_ends_with_many_costs_no_other_its_lease, fixture *f)
{
    int rounds = 0;

    fixture_open(f, LONG_LEASE_MS);
    while (!outlives_a_burst(f))
        assert_true(++rounds < ROUNDS);
    assert_int_equal(stats_of(f->rt).leases, 0);
}

static void unlock_many(void *arg)
{
    const struct crowd *crowd = arg;

    assert_status(DIBS_OK, dibs_unlock_all(crowd->f->rt));
}

/* True: the short lease was held from before the burst until after its end. */
static bool outlives_unlocks(fixture *f)
{
    const dibs_lock_options brief = {.lease_ms = SHORT_LEASE_MS};
    struct crowd crowd = {f, 0, 0};
    actor *holders[2];

    hold_many(f, holders);
    assert_status(DIBS_OK, dibs_lock_with(f->rt, "brief", DIBS_WAIT_FOREVER, &brief));
    for (int i = 0; i < 2; i++)
        actor_begin(holders[i], unlock_many, &crowd);
    for (int i = 0; i < 2; i++) {
        actor_finish(holders[i]);
        actor_end(holders[i]);
    }
    assert_true(none_is_left(f));
    return dibs_unlock(f->rt, "brief") == DIBS_OK;
}

TEST_ON(many_unlocks_cost_no_other_its_lease, fixture *f)
{
    int rounds = 0;

    fixture_open_patient(f, LONG_LEASE_MS);
    while (!outlives_unlocks(f))
        assert_true(++rounds < ROUNDS);
    assert_int_equal(stats_of(f->rt).leases, 0);
}

TEST_ON(a_close_leaves_none_of_many, fixture *f)
{
    actor *holders[2];

    f->config.command_timeout_ms = f->config.connect_timeout_ms = LIMIT_MS / 2;
    fixture_open(f, LONG_LEASE_MS);
    hold_many(f, holders);
    close_runtime(&f->rt);
    assert_true(none_is_left(f));
}

TESTS(fixture_setup, fixture_teardown)
