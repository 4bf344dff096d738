/* dibs_force_unlock in a store that is out of memory, over connections that went away, with the token that was shown.
 */
#include <string.h>

#include "support/fixture.h"
#include "support/test.h"

static void a_store_without_memory(void **state)
{
    fixture *f = *state;
    dibs_owner owner;

    fixture_open(f, LONG_LEASE_MS);
    server_do(f->server, "SET lock:x by-hand PX %d", LONG_LEASE_MS);
    server_do(f->server, "SET lock:y by-hand PX %d", LONG_LEASE_MS);
    server_do(f->server, "CONFIG SET maxmemory-policy noeviction");
    server_do(f->server, "CONFIG SET maxmemory 1");
    assert_status(DIBS_STORE_ERROR, dibs_trylock(f->rt, "z"));
    assert_that(strstr(dibs_last_error(), "OOM"), "%s", dibs_last_error());
    assert_status(DIBS_OK, dibs_force_unlock(f->rt, "x", NULL));
    assert_status(DIBS_NOT_HELD, dibs_force_unlock(f->rt, "y", "another"));
    assert_true(server_has(f->server, "lock:y"));
    assert_status(DIBS_OK, dibs_force_unlock(f->rt, "y", "by-hand"));
    assert_status(DIBS_OK, dibs_force_unlock(f->rt, "nobody's", NULL));
    assert_false(server_has(f->server, "lock:x"));
    assert_false(server_has(f->server, "lock:y"));
    assert_status(DIBS_OK, dibs_query(f->rt, "x", &owner));
    assert_false(owner.held);
    assert_true(owner.fence > 0); /* above the fence of whom it was taken from */
    server_do(f->server, "CONFIG SET maxmemory 0");
    expect_works(f, f->rt, "x");
}

/* What could not even be sent is sent again, though a force_unlock without a token is never sent twice. */
static void an_idle_connection_that_was_closed(void **state)
{
    fixture *f = *state;

    fixture_open(f, LONG_LEASE_MS);
    for (int i = 0; i < 10; i++) {
        server_do(f->server, "SET lock:x by-hand PX %d", LONG_LEASE_MS);
        server_do(f->server, "CLIENT KILL TYPE normal SKIPME yes");
        assert_status(DIBS_OK, dibs_force_unlock(f->rt, "x", NULL));
        assert_false(server_has(f->server, "lock:x"));
    }
}

/* Its characters that would be escaped elsewhere are as they are. */
static void the_token_that_was_shown(void **state)
{
    static const char *const labels[] = {"back\\slash", "\\x41", "\\", "\"quoted\"", "a b%c"};
    fixture *f = *state;

    fixture_open(f, LONG_LEASE_MS);
    for (size_t i = 0; i < sizeof labels / sizeof labels[0]; i++) {
        dibs_config config = {.lease_ms = LONG_LEASE_MS, .label = labels[i]};
        dibs_runtime *holder = open_url(f->server->url, &config);
        dibs_owner owner;

        assert_status(DIBS_OK, dibs_lock(holder, "x"));
        assert_status(DIBS_OK, dibs_query(f->rt, "x", &owner));
        assert_true(owner.held);
        assert_that(strstr(owner.token, labels[i]), "%s", owner.token);
        assert_status(DIBS_OK, dibs_force_unlock(f->rt, "x", owner.token));
        assert_false(server_has(f->server, "lock:x"));
        assert_status(DIBS_LOST, dibs_unlock(holder, "x"));
        dibs_close(holder);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_store_without_memory),
        TEST(an_idle_connection_that_was_closed),
        TEST(the_token_that_was_shown),
    };

    return cmocka_run_group_tests_name("force", tests, NULL, NULL);
}
