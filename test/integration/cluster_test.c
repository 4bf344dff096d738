/* A server that is part of a cluster: which names it takes, and what is said of the others. */
#include "support/fixture.h"

static int setup(void **state)
{
    static fixture cluster;
    fixture *f = &cluster;

    *f = (fixture){.server = server_start(&(server_options){.tcp = true, .config = "cluster-enabled yes"})};
    server_do(f->server, "CLUSTER ADDSLOTSRANGE 0 16383");
    server_await_cluster(f->server);
    f->urls[0] = f->server->url;
    f->config = (dibs_config){.urls = f->urls, .url_count = 1};
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;

    dibs_close(f->rt);
    server_stop(f->server);
    return 0;
}

static void expect_invalid(dibs_status status)
{
    assert_status(DIBS_INVALID, status);
    assert_non_null(strstr(dibs_last_error(), "cluster"));
    assert_non_null(strstr(dibs_last_error(), "hash tag"));
}

/* Each call with that name is refused without anything being sent. */
static void expect_refused(fixture *f, const char *name)
{
    static const dibs_lock_options fair = {.flags = DIBS_FAIR};
    dibs_owner owner;
    long long asks = server_asks(f->server);

    print_message("# %s\n", name);
    expect_invalid(dibs_trylock(f->rt, name));
    expect_invalid(dibs_timedlock(f->rt, name, LIMIT_MS));
    expect_invalid(dibs_lock_with(f->rt, name, LIMIT_MS, &fair));
    expect_invalid(dibs_query(f->rt, name, &owner));
    expect_invalid(dibs_force_unlock(f->rt, name, NULL));
    expect_invalid(dibs_force_unlock(f->rt, name, "dibs:x"));
    assert_int_equal(server_asks(f->server), asks);
    assert_status(DIBS_NOT_HELD, dibs_check(f->rt, name));
}

static void expect_taken_and_seen(fixture *f, const char *name)
{
    print_message("# %s\n", name);
    assert_status(DIBS_OK, dibs_lock_with(f->rt, name, LIMIT_MS, &(dibs_lock_options){.flags = DIBS_FAIR}));
    dibs_owner owner = owner_of(f->rt, name);
    assert_true(owner.held);
    assert_status(DIBS_OK, dibs_extend(f->rt, name, LONG_LEASE_MS));
    assert_status(DIBS_OK, dibs_unlock(f->rt, name));
    assert_status(DIBS_OK, dibs_trylock(f->rt, name));
    assert_status(DIBS_OK, dibs_force_unlock(f->rt, name, NULL));
    assert_status(DIBS_LOST, dibs_unlock(f->rt, name));
    assert_false(server_has(f->server, name));
}

TEST_ON(a_key_whose_sidecars_lie_elsewhere_is_invalid, fixture *f)
{
    fixture_open_connected(f, LONG_LEASE_MS);
    expect_refused(f, "a}b");
    expect_refused(f, "{}x");
    expect_refused(f, "}");
    expect_taken_and_seen(f, "{a}b");
    expect_taken_and_seen(f, "a{b");
    expect_taken_and_seen(f, "plain");
}

/* The key counts, not the name: a prefix with a tag puts all of them into one slot. */
TEST_ON(a_prefix_with_a_tag_makes_every_name_valid, fixture *f)
{
    f->config.key_prefix = "{app}:";
    fixture_open(f, LONG_LEASE_MS);
    expect_taken_and_seen(f, "a}b");
    expect_taken_and_seen(f, "{}x");
}

TEST_ON(without_a_prefix_the_name_is_the_key, fixture *f)
{
    f->config.key_prefix = "";
    fixture_open_connected(f, LONG_LEASE_MS);
    expect_refused(f, "{}x");
    expect_taken_and_seen(f, "{a}b");
}

/* Without a cluster there are no slots. */
TEST_WITH(a_server_outside_a_cluster_takes_all_names, fixture_setup, fixture_teardown, fixture *f)
{
    fixture_open(f, LONG_LEASE_MS);
    expect_taken_and_seen(f, "a}b");
    expect_taken_and_seen(f, "{}x");
    expect_taken_and_seen(f, "a{b");
}

TESTS(setup, teardown)
