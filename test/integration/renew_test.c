/* Renewals at the server: how long the fence lives, and what is restored where the server was restarted. */
#include "store/redis/redis_store.h"
#include "support/seat.h"
#include "support/server.h"
#include "support/test.h"

#define MEMORY_MS 3500000 /* so long a server surely knows the last fence of a lock */
#define MARGIN_MS 60000

struct world {
    server *server;
    struct seat seat;
};

static int setup(void **state)
{
    static struct world w;

    w.server = server_start(&(server_options){.tcp = true});
    seat_open(&w.seat, &(struct dibs__store_config){.url = w.server->url});
    *state = &w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;

    seat_close(&w->seat);
    server_assert_clean(w->server);
    server_stop(w->server);
    return 0;
}

static struct dibs__renewal lease_of_token(struct seat *seat, const char *name, const char *token, bool shared)
{
    struct dibs__attempt attempt = {.name = name, .token = token, .lease_ms = LONG_LEASE_MS, .shared = shared};
    struct dibs__answer answer;
    struct dibs__error error;

    assert_status(DIBS_OK, store_ask(seat->store, &attempt, seat_deadline(), &answer, &error));
    struct dibs__renewal lease = {.name = name,
                                  .token = attempt.token,
                                  .lease_ms = LONG_LEASE_MS,
                                  .fence = answer.fence,
                                  .store_state = attempt.lease};
    seat->store->ops->conclude(seat->store, &attempt, true);
    return lease;
}

/* A lease of that name, as it was granted. */
static struct dibs__renewal lease_of(struct seat *seat, const char *name)
{
    return lease_of_token(seat, name, "dibs:test", false);
}

static bool is_unconfirmed(struct seat *seat, const struct dibs__lease_store_state *store_state)
{
    return seat->store->ops->is_unconfirmed(seat->store, store_state);
}

/* After an hour another client may have had the lock, and the server may have forgotten that. */
TEST_ON(a_lease_confirmed_too_long_ago_is_not_restored, struct world *w)
{
    struct dibs__renewal lately = lease_of(&w->seat, "lately"), long_ago = lease_of(&w->seat, "long ago");

    assert_false(is_unconfirmed(&w->seat, &lately.store_state));
    server_kill(w->server);
    server_restart(w->server);
    await_that(is_unconfirmed(&w->seat, &lately.store_state));
    dibs__redis_lease_of(&lately.store_state)->confirmed_at -= (MEMORY_MS - MARGIN_MS) * DIBS__NS_PER_MS;
    dibs__redis_lease_of(&long_ago.store_state)->confirmed_at -= (MEMORY_MS + MARGIN_MS) * DIBS__NS_PER_MS;
    seat_renew(&w->seat, &lately);
    seat_renew(&w->seat, &long_ago);
    assert_int_equal(lately.result, DIBS__RENEWED);
    assert_false(is_unconfirmed(&w->seat, &lately.store_state));
    assert_true(server_has(w->server, "lock:lately"));
    assert_int_equal(long_ago.result, DIBS__GONE);
    assert_false(server_has(w->server, "lock:long ago"));
}

/*
 * Once the new server has confirmed a lease, it is a lease like any other: if the key is deleted there, the lease is
 * lost.
 */
TEST_ON(a_restored_lease_counts_as_confirmed, struct world *w)
{
    struct dibs__renewal lease = lease_of(&w->seat, "x");
    int64_t confirmed_at = dibs__redis_lease_of(&lease.store_state)->confirmed_at;

    server_kill(w->server);
    server_restart(w->server);
    assert_int_equal(seat_renew(&w->seat, &lease), DIBS__RENEWED);
    assert_true(dibs__redis_lease_of(&lease.store_state)->confirmed_at > confirmed_at);
    server_do(w->server, "DEL lock:x");
    assert_int_equal(seat_renew(&w->seat, &lease), DIBS__GONE);
}

static void lower_life(struct world *w, const char *name)
{
    server_do(w->server, "PEXPIRE dibs:fence:{lock:%s} 100000", name);
}

static void renew_after_five_minutes(struct world *w, struct dibs__renewal *lease)
{
    dibs__redis_lease_of(&lease->store_state)->confirmed_at -= 300000 * DIBS__NS_PER_MS;
    seat_renew(&w->seat, lease);
    assert_int_equal(lease->result, DIBS__RENEWED);
}

/* A renewal restarts the expiry of the fence every five minutes. */
TEST_ON(the_fence_of_a_held_lock_lives_on, struct world *w)
{
    struct dibs__renewal lease = lease_of(&w->seat, "x");

    lower_life(w, "x");
    renew_after_five_minutes(w, &lease);
    assert_true(server_integer(w->server, "PTTL dibs:fence:{lock:x}") > 3500000);
}

/* The server may evict the key of the fence where memory is short. */
TEST_ON(a_fence_that_is_gone_is_put_back, struct world *w)
{
    struct dibs__renewal lease = lease_of(&w->seat, "x");

    const char *fence = formatted("%llu", (unsigned long long)lease.fence);
    for (int i = 0; i < 2; i++) {
        server_do(w->server, "DEL dibs:fence:{lock:x}");
        renew_after_five_minutes(w, &lease);
        assert_string_equal(server_text(w->server, "GET dibs:fence:{lock:x}"), fence);
        assert_true(server_integer(w->server, "PTTL dibs:fence:{lock:x}") > 3500000);
    }
}

/* Of those who share the lock, an earlier one may be the first to be renewed. */
TEST_ON(the_fence_that_is_put_back_is_that_of_the_newest_sharer, struct world *w)
{
    struct dibs__renewal leases[] = {lease_of_token(&w->seat, "x", "dibs:a~0", true),
                                     lease_of_token(&w->seat, "x", "dibs:b~0", true)};

    assert_true(leases[0].fence < leases[1].fence);
    const char *fence = formatted("%llu", (unsigned long long)leases[1].fence);
    server_do(w->server, "DEL dibs:fence:{lock:x}");
    for (size_t i = 0; i < 2; i++) {
        renew_after_five_minutes(w, &leases[i]);
        assert_string_equal(server_text(w->server, "GET dibs:fence:{lock:x}"), fence);
    }
}

/*
 * The renewal that is sent each third of a lease names only the keys of the locks: each key of a script costs the
 * server as much as a look.
 */
TEST_ON(a_short_renewal_names_one_key, struct world *w)
{
    struct dibs__renewal lease = lease_of(&w->seat, "x");

    lower_life(w, "x");
    server_do(w->server, "ACL SETUSER default resetkeys ~lock:*");
    seat_renew(&w->seat, &lease);
    server_do(w->server, "ACL SETUSER default ~*");
    assert_int_equal(lease.result, DIBS__RENEWED);
    assert_true(server_integer(w->server, "PTTL dibs:fence:{lock:x}") <= 100000);
}

static bool is_persistent(const struct world *w)
{
    return server_integer(w->server, "PTTL lock:x") == -1;
}

/* Another client removed the expiry of the key: the next renewal sets it. */
TEST_ON(a_renewal_sets_a_missing_expiry, struct world *w)
{
    struct dibs__renewal lease = lease_of(&w->seat, "x");

    server_do(w->server, "PERSIST lock:x");
    assert_true(is_persistent(w));
    assert_int_equal(seat_renew(&w->seat, &lease), DIBS__RENEWED);
    assert_false(is_persistent(w));
}

static long long end_of(const struct world *w, const char *token)
{
    return -atoll(server_text(w->server, "ZSCORE dibs:share:{lock:x} +%s", token));
}

static void set_end(const struct world *w, const char *token, long long end)
{
    server_do(w->server, "ZADD dibs:share:{lock:x} %lld +%s", -end, token);
}

/*
 * One command for all: a lock that many share costs the server no more than as many locks. Where that does not fit one
 * of them, each is looked at by itself.
 */
TEST_ON(those_who_share_a_name_are_renewed_together, struct world *w)
{
    static const char *const tokens[] = {"dibs:test:1~0", "dibs:test:2~0", "dibs:test:3~0"};
    struct dibs__renewal leases[3];

    for (int i = 0; i < 3; i++)
        leases[i] = lease_of_token(&w->seat, "x", tokens[i], true);
    long long first = end_of(w, tokens[0]);
    for (int i = 0; i < 3; i++)
        set_end(w, tokens[i], first - LONG_LEASE_MS / 2);
    server_do(w->server, "PEXPIRE lock:x %d", LONG_LEASE_MS / 2);
    long long calls = server_calls(w->server, "zadd");
    seat_renew_batch(&w->seat, leases, 3);
    assert_int_equal(server_calls(w->server, "zadd") - calls, 1);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(leases[i].result, DIBS__RENEWED);
        assert_true(end_of(w, tokens[i]) >= first);
    }
    assert_in_range(server_integer(w->server, "PTTL lock:x"), LONG_LEASE_MS / 2 + 1, LONG_LEASE_MS);
    server_do(w->server, "ZREM dibs:share:{lock:x} +%s -%s", tokens[1], tokens[1]);
    set_end(w, tokens[2], first + LONG_LEASE_MS);
    seat_renew_batch(&w->seat, leases, 3);
    assert_int_equal(leases[0].result, DIBS__RENEWED);
    assert_int_equal(leases[1].result, DIBS__GONE);
    assert_int_equal(leases[2].result, DIBS__RENEWED);
    assert_true(end_of(w, tokens[2]) == first + LONG_LEASE_MS);
}

TESTS(setup, teardown)
