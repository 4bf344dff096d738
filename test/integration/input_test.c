/* Names, times and flags: invalid ones are refused before anything else; odd but valid ones work. */
#include "support/fixture.h"

/* --------------------------------------------------------------------- names */

static void fill(char *name, size_t length)
{
    memset(name, 'n', length);
    name[length] = '\0';
}

TEST_ON(names_out_of_range_are_refused, fixture *f)
{
    char too_long[DIBS_NAME_MAX + 2];
    const char *const bad[] = {NULL, "", too_long};
    dibs_hold hold;
    dibs_owner owner;

    fill(too_long, DIBS_NAME_MAX + 1);
    fixture_open(f, 0);
    for (size_t i = 0; i < 3; i++) {
        assert_status(DIBS_INVALID, dibs_lock(f->rt, bad[i]));
        assert_true(dibs_last_error()[0] != '\0');
        assert_status(DIBS_INVALID, dibs_trylock(f->rt, bad[i]));
        assert_status(DIBS_INVALID, dibs_timedlock(f->rt, bad[i], 10));
        assert_status(DIBS_INVALID, dibs_lock_with(f->rt, bad[i], 10, NULL));
        assert_status(DIBS_INVALID, dibs_unlock(f->rt, bad[i]));
        assert_status(DIBS_INVALID, dibs_extend(f->rt, bad[i], 1000));
        assert_status(DIBS_INVALID, dibs_check(f->rt, bad[i]));
        assert_status(DIBS_INVALID, dibs_hold_of(f->rt, bad[i], &hold));
        assert_status(DIBS_INVALID, dibs_query(f->rt, bad[i], &owner));
        assert_status(DIBS_INVALID, dibs_force_unlock(f->rt, bad[i], NULL));
        assert_status(DIBS_INVALID, dibs_lock_names(f->rt, (const char *const[]){"x", bad[i]}, 2, 10, NULL));
        assert_non_null(strstr(dibs_last_error(), "names[1] is "));
        assert_status(DIBS_INVALID, dibs_unlock_names(f->rt, (const char *const[]){bad[i], "x"}, 2));
        assert_non_null(strstr(dibs_last_error(), "names[0] is "));
    }
    assert_int_equal(server_integer(f->server, "DBSIZE"), 0);
}

TEST_ON(null_is_refused_everywhere, fixture *f)
{
    dibs_hold hold;
    dibs_owner owner;

    fixture_open(f, 0);
    assert_status(DIBS_INVALID, dibs_lock(NULL, "x"));
    assert_status(DIBS_INVALID, dibs_trylock(NULL, "x"));
    assert_status(DIBS_INVALID, dibs_timedlock(NULL, "x", 1));
    assert_status(DIBS_INVALID, dibs_lock_with(NULL, "x", 1, NULL));
    assert_status(DIBS_INVALID, dibs_unlock(NULL, "x"));
    assert_status(DIBS_INVALID, dibs_unlock_all(NULL));
    assert_status(DIBS_INVALID, dibs_extend(NULL, "x", 1000));
    assert_status(DIBS_INVALID, dibs_check(NULL, "x"));
    assert_status(DIBS_INVALID, dibs_hold_of(NULL, "x", &hold));
    assert_status(DIBS_INVALID, dibs_hold_of(f->rt, "x", NULL));
    assert_status(DIBS_INVALID, dibs_query(NULL, "x", &owner));
    assert_status(DIBS_INVALID, dibs_query(f->rt, "x", NULL));
    assert_status(DIBS_INVALID, dibs_force_unlock(NULL, "x", NULL));
    assert_status(DIBS_INVALID, dibs_open(NULL, NULL));
    dibs_shutdown(NULL);
    dibs_close(NULL);
    dibs_stats_get(NULL, NULL);
    dibs_stats_get(f->rt, NULL);
}

/* Odd, but names: one of 512 bytes is added by the test. */
static const char *const odd_names[] = {
    " ",
    "a b",
    "a\nb",
    "\r\n",
    "*3\r\n$3\r\nDEL\r\n",
    "{a}",
    "a",
    "{}",
    "a}b{",
    "}",
    "{",
    "{{a}}",
    "{}{a}",
    "x{a}y",
    "\xff\xfe",
    "\xc3\xbc",
    "\x01\x7f",
    "%s%n%d",
    "'\";--",
    "lock:x",
    "x",
    "dibs:queue:{lock:x}",
    "dibs:",
    ":",
    "a:b",
    "../../etc",
    "*",
    "?",
    "[a]",
    "0",
    "-1",
};

enum { ODD_NAMES = sizeof odd_names / sizeof *odd_names };

static void check_key(fixture *f, const char *name)
{
    assert_int_equal(server_integer(f->server, "EXISTS lock:%s", name), 1);
    assert_true(server_integer(f->server, "PTTL lock:%s", name) > 0);
}

/* All names are held at the same time, each with a waiter: none is taken for another, and their keys do not collide. */
TEST_ON(odd_names_are_names_like_any, fixture *f)
{
    const char *names[ODD_NAMES + 1];
    actor *waiters[ODD_NAMES + 1];
    char longest[DIBS_NAME_MAX + 1];

    fill(longest, DIBS_NAME_MAX);
    memcpy(names, odd_names, sizeof odd_names);
    names[ODD_NAMES] = longest;
    fixture_open(f, LONG_LEASE_MS);
    dibs_runtime *second = test_runtime(open_runtime(f->server, LONG_LEASE_MS));
    for (size_t i = 0; i <= ODD_NAMES; i++) {
        assert_status(DIBS_OK, dibs_trylock(f->rt, names[i]));
        check_key(f, names[i]);
        waiters[i] = actor_start();
        actor_begin_lock(waiters[i], second, names[i], DIBS_WAIT_FOREVER);
    }
    for (size_t i = 0; i <= ODD_NAMES; i++) {
        actor_await_asleep(waiters[i]);
    }
    for (size_t i = 0; i <= ODD_NAMES; i++) {
        assert_status(DIBS_OK, dibs_unlock(f->rt, names[i]));
        assert_status(DIBS_OK, actor_result(waiters[i]));
        for (size_t k = i + 1; k <= ODD_NAMES; k++)
            assert_true(actor_busy(waiters[k]));
    }
    for (size_t i = 0; i <= ODD_NAMES; i++) {
        assert_status(DIBS_OK, actor_unlock(waiters[i], second, names[i]));
        assert_int_equal(server_integer(f->server, "EXISTS lock:%s", names[i]), 0);
        actor_end(waiters[i]);
    }
}

TEST_ON(names_are_copied, fixture *f)
{
    char name[8] = "first";

    fixture_open(f, 0);
    assert_status(DIBS_OK, dibs_lock(f->rt, name));
    memcpy(name, "other", 6);
    assert_status(DIBS_NOT_HELD, dibs_unlock(f->rt, name));
    memset(name, 0, sizeof name);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "first"));
}

/* ------------------------------------------------------------------- numbers */

static const struct lease_case {
    uint32_t lease_ms;
    bool good;
} leases[] = {{1, false},       {19, false},       {20, true},          {21, true},
              {86400000, true}, {86400001, false}, {UINT32_MAX, false}, {0x80000000u, false}};

enum { LEASES = sizeof leases / sizeof *leases };

TEST_ON(leases_have_a_range, fixture *f)
{
    fixture_open(f, LONG_LEASE_MS);
    for (size_t i = 0; i < LEASES; i++) {
        dibs_lock_options options = {.lease_ms = leases[i].lease_ms};
        dibs_status status = dibs_lock_with(f->rt, "x", 0, &options);

        if (!leases[i].good) {
            assert_status(DIBS_INVALID, status);
            assert_true(strstr(dibs_last_error(), "lease_ms") != NULL);
            assert_false(server_has(f->server, "lock:x"));
            continue;
        }
        /* 20 ms may be over before the reply is here; a slow machine is no error of the argument. */
        assert_true(status == DIBS_OK || leases[i].lease_ms < 100);
        assert_true(status != DIBS_INVALID);
        dibs_unlock_all(f->rt);
        assert_true(server_wait_gone(f->server, "lock:x", LIMIT_MS));
    }
    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    for (size_t i = 0; i < LEASES; i++)
        if (!leases[i].good)
            assert_status(DIBS_INVALID, dibs_extend(f->rt, "x", leases[i].lease_ms));
    assert_status(DIBS_INVALID, dibs_extend(f->rt, "x", 0));
    assert_status(DIBS_OK, dibs_extend(f->rt, "x", 86400000));
    /* Wrong options are refused even where they would not matter: the thread holds it already. */
    assert_status(DIBS_INVALID, dibs_lock_with(f->rt, "x", 0, &(dibs_lock_options){.lease_ms = 19}));
    assert_int_equal(hold_of(f->rt, "x").count, 1);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
}

TEST_ON(waits_have_a_range, fixture *f)
{
    static const int64_t bad[] = {-2, -1000, INT64_MIN};
    long long asks;

    fixture_open(f, LONG_LEASE_MS);
    dibs_runtime *second = test_runtime(open_runtime(f->server, 0));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_status(DIBS_INVALID, dibs_timedlock(f->rt, "x", bad[i]));
    assert_status(DIBS_OK, dibs_timedlock(f->rt, "x", INT64_MAX));
    /* No deadline overflows into the past, neither behind a thread nor behind the store. */
    actor *waiter = actor_locking(f->rt, "x", INT64_MAX);
    actor_await_asleep(waiter);
    pause_ms(100);
    assert_true(actor_busy(waiter));
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    actor_gets(waiter, f->rt, "x");
    assert_status(DIBS_OK, dibs_timedlock(f->rt, "x", LIMIT_MS));
    asks = server_asks(f->server);
    actor_begin_lock(waiter, second, "x", INT64_MAX - 1);
    server_await_ask(f->server, asks);
    pause_ms(100);
    assert_true(actor_busy(waiter));
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    actor_gets(waiter, second, "x");
}

TEST_ON(unknown_flags_are_refused, fixture *f)
{
    static const uint32_t bad[] = {16, 32, 0x80000000u, UINT32_MAX, 24};

    fixture_open(f, 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_status(DIBS_INVALID, dibs_lock_with(f->rt, "x", 0, &(dibs_lock_options){.flags = bad[i]}));
        assert_true(strstr(dibs_last_error(), "flags") != NULL);
    }
    for (uint32_t flags = 0; flags <= (DIBS_FAIR | DIBS_FIXED_LEASE | DIBS_NO_REENTRY | DIBS_SHARED); flags++) {
        assert_status(DIBS_OK, dibs_lock_with(f->rt, "x", 0, &(dibs_lock_options){.flags = flags}));
        assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    }
    server_do(f->server, "DEL dibs:fence:{lock:x} dibs:share:{lock:x}");
    /* A lock that was held for longer than 20 ms is watched: that begins with a probe, whose key lives for 100 ms. */
    await_that(server_integer(f->server, "DBSIZE") == 0);
}

/* ----------------------------------------------------------------- the store */

TEST_ON(a_key_of_another_type_is_an_error_that_names_it, fixture *f)
{
    dibs_owner owner;
    int64_t begin = now_ms();

    fixture_open(f, 0);
    server_do(f->server, "LPUSH lock:inventory 1");
    assert_status(DIBS_STORE_ERROR, dibs_trylock(f->rt, "inventory"));
    assert_that(strstr(dibs_last_error(), "inventory") != NULL, "%s", dibs_last_error());
    assert_status(DIBS_STORE_ERROR, dibs_lock(f->rt, "inventory"));
    assert_status(DIBS_STORE_ERROR, dibs_timedlock(f->rt, "inventory", LIMIT_MS));
    assert_status(DIBS_STORE_ERROR, dibs_query(f->rt, "inventory", &owner));
    assert_false(owner.held);
    assert_true(now_ms() - begin < LIMIT_MS / 2);
    assert_status(DIBS_NOT_HELD, dibs_check(f->rt, "inventory"));
    assert_string_equal(server_text(f->server, "TYPE lock:inventory"), "list");
    assert_int_equal(server_integer(f->server, "LLEN lock:inventory"), 1);
    assert_int_equal(server_integer(f->server, "PTTL lock:inventory"), -1);
    server_do(f->server, "DEL lock:inventory");
    lock_and_release(f->rt, "inventory", DIBS_WAIT_FOREVER);
}

/* --------------------------------------------------------------------- texts */

TEST_WITH(statuses_have_names_and_texts, NULL, NULL, void *none)
{
    assert_string_equal(dibs_version(), "0.1.0");
    assert_string_equal(dibs_status_name(DIBS_OK), "DIBS_OK");
    assert_string_equal(dibs_status_name(DIBS_OVERFLOW), "DIBS_OVERFLOW");
    for (int i = DIBS_OK; i <= DIBS_CANCELLED; i++)
        assert_true(strlen(dibs_status_text((dibs_status)i)) > 4);
    assert_string_equal(dibs_status_name((dibs_status)(DIBS_CANCELLED + 1)), "DIBS_?");
    assert_non_null(dibs_status_text((dibs_status)1000));
}

static void read_last_error(void *arg)
{
    snprintf(arg, 64, "%s", dibs_last_error());
}

TEST_WITH(the_last_error_belongs_to_the_thread, NULL, NULL, void *none)
{
    actor *other = actor_start();
    char text[64] = "?";

    assert_status(DIBS_INVALID, dibs_lock(NULL, "x"));
    assert_true(dibs_last_error()[0] != '\0');
    actor_begin(other, read_last_error, text);
    actor_finish(other);
    assert_string_equal(text, "");
}

TESTS(fixture_setup, fixture_teardown)
