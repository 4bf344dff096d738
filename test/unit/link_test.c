/* A link: its greeting, the end of its predecessor, and what it learns of its server. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/test.h"
#include "unit/link_setup.h"

/* The commands that came, in this order and no others between the first and the last. */
static void expect_in_order(struct rig *r, const char *const *prefixes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        assert_that(fake_redis_place(r->fake, prefixes[i], 1) == (int)i, "%s: place %d", prefixes[i],
                    fake_redis_place(r->fake, prefixes[i], 1));
}

/* ------------------------------------------------------------------ greeting */

static void it_greets_in_order(void **state)
{
    static const char *const order[] = {
        "CLIENT SETNAME tester", "CLIENT ID",  "INFO server", "CLIENT KILL ID 9223372036854775807", "TIME",
        "INFO replication",      "SCRIPT LOAD"};
    struct rig *r = *state;

    struct dibs__link *link = connected(r, NULL);
    expect_in_order(r, order, sizeof order / sizeof *order);
    assert_int_equal(fake_redis_count(r->fake, "SCRIPT LOAD"), DIBS__SCRIPT_COUNT);
    assert_int_equal(fake_redis_place(r->fake, "EVAL return 1 0", 1), 6 + DIBS__SCRIPT_COUNT);
    assert_int_equal(fake_redis_place(r->fake, "PUBLISH dibs:test ", 1), 7 + DIBS__SCRIPT_COUNT);
    assert_int_equal(fake_redis_place(r->fake, "INFO cluster", 1), 8 + DIBS__SCRIPT_COUNT);
    assert_int_equal(r->commands, 9 + DIBS__SCRIPT_COUNT);
    assert_true(link->may_publish);
    assert_int_equal(link->id.client, 1);
    assert_string_equal(link->id.run_id, FAKE_RUN_ID);
    assert_true(link->id.may_kill && dibs__link_can_be_ended(&link->id));
    assert_int_equal(link->server_ahead_us, 5000007 - link->greeted_at / 1000);
    for (int i = 0; i < DIBS__SCRIPT_COUNT; i++) /* the fake tells as a sha which command it was */
        assert_int_equal(strtol(link->shas[i], NULL, 10), 7 + i);
    dibs__link_free(link);
}

static void it_is_let_in_first(void **state)
{
    static const char *const order[] = {"AUTH user secret", "SELECT 3", "CLIENT SETNAME", "CLIENT ID"};
    struct rig *r = *state;
    char url[96];

    snprintf(url, sizeof url, "redis://user:secret@127.0.0.1:%u/3", fake_redis_port(r->fake));
    use_url(r, url);
    connect_and_leave(r, NULL);
    expect_in_order(r, order, sizeof order / sizeof *order);
}

static void a_password_alone_needs_no_user(void **state)
{
    static const char *const order[] = {"AUTH secret", "CLIENT SETNAME"};
    struct rig *r = *state;
    char url[96];

    snprintf(url, sizeof url, "redis://:secret@127.0.0.1:%u", fake_redis_port(r->fake));
    use_url(r, url);
    connect_and_leave(r, NULL);
    expect_in_order(r, order, sizeof order / sizeof *order);
    assert_int_equal(fake_redis_count(r->fake, "SELECT"), 0);
}

/* What it says of itself is the same: the next one must be able to end it. */
static void for_subscriptions_it_is_only_let_in(void **state)
{
    static const char *const order[] = {"AUTH user secret", "CLIENT SETNAME tester", "CLIENT ID", "INFO server",
                                        "CLIENT KILL ID 9223372036854775807"};
    static const struct dibs__link_id before = {.client = 77, .run_id = FAKE_RUN_ID, .may_kill = true};
    struct rig *r = *state;
    char url[96];

    snprintf(url, sizeof url, "redis://user:secret@127.0.0.1:%u/3", fake_redis_port(r->fake));
    use_url(r, url);
    struct dibs__link *link = try_connect_for(r, DIBS__LINK_SUBSCRIPTIONS, &before);
    assert_that(link, "%s", r->error.detail);
    expect_in_order(r, order, sizeof order / sizeof *order);
    assert_int_equal(fake_redis_place(r->fake, "CLIENT KILL ID 77", 1), 5);
    assert_int_equal(fake_redis_count(r->fake, ""), 6);
    assert_true(link->id.client == 1 && dibs__link_can_be_ended(&link->id));
    dibs__link_free(link);
}

static void it_goes_on_after_a_deadline(void **state)
{
    struct rig *r = *state;
    int64_t until = dibs__after_ms(dibs__now(&dibs__system_clock), LIMIT_MS);

    fake_redis_hold(r->fake, true);
    struct dibs__link *link = dibs__link_start(&r->endpoint, DIBS__LINK_COMMANDS, NULL, &r->error);
    assert_non_null(link);
    /* no answer, deadline over: it may go on */
    assert_int_equal(dibs__link_finish(link, &dibs__system_clock, 0, until, &r->error), DIBS_TIMEOUT);
    while (fake_redis_count(r->fake, "EVAL return 1") == 0)
        assert_int_equal(dibs__link_finish(link, &dibs__system_clock, 0, until, &r->error), DIBS_TIMEOUT);
    assert_int_equal(link->state, DIBS__LINK_GREETING);
    fake_redis_hold(r->fake, false);
    assert_status(DIBS_OK, dibs__link_finish(link, &dibs__system_clock, until, until, &r->error));
    assert_int_equal(link->state, DIBS__LINK_READY);
    dibs__link_free(link);
}

/* --------------------------------------------------------------- predecessor */

static void it_ends_the_one_that_it_replaces(void **state)
{
    struct rig *r = *state;
    struct dibs__link_id first = connect_and_leave(r, NULL);

    connect_and_leave(r, &first);
    assert_int_equal(fake_redis_count(r->fake, "CLIENT KILL ID 1"), 1);
    /* when the second is let in, behind its greeting */
    assert_true(fake_redis_place(r->fake, "CLIENT KILL ID 1", 1) > fake_redis_place(r->fake, "EVAL return 1", 2));
}

/* Only whether it may is asked: for the id of nobody. */
static void expect_not_killed(struct rig *r, struct dibs__link_id before)
{
    unsigned kills = fake_redis_count(r->fake, "CLIENT KILL");

    connect_and_leave(r, &before);
    assert_int_equal(fake_redis_count(r->fake, "CLIENT KILL"), kills + 1);
    assert_int_equal(fake_redis_count(r->fake, "CLIENT KILL ID 9223372036854775807"), kills + 1);
}

static void another_servers_connection_is_let_be(void **state)
{
    struct rig *r = *state;
    struct dibs__link_id first = connect_and_leave(r, NULL);

    memset(first.run_id, 'e', 40);
    expect_not_killed(r, first);
}

static void what_cannot_be_named_is_let_be(void **state)
{
    struct rig *r = *state;
    const struct dibs__link_id first = connect_and_leave(r, NULL);
    struct dibs__link_id changed = first;

    changed.client = 0;
    expect_not_killed(r, changed);
    changed = first;
    changed.may_kill = false;
    expect_not_killed(r, changed);
    changed = first;
    changed.run_id[0] = 0;
    expect_not_killed(r, changed);
    fake_redis_answer(r->fake, "INFO", "-NOPERM no right\r\n"); /* who knows whether it is the same server */
    expect_not_killed(r, first);
}

/* ------------------------------------------------------- the server's number */

#define ID_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define ID_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define RUN(id) "$49\r\nrun_id:" id "\r\n\r\n"
#define REPLICATION(id) "$69\r\nrole:master\r\nmaster_replid:" id "\r\n\r\n"

static uint64_t server_of(struct rig *r, const char *info_server, const char *info_replication)
{
    fake_redis_answer(r->fake, "INFO server", info_server);
    fake_redis_answer(r->fake, "INFO replication", info_replication);
    struct dibs__link *link = connected(r, NULL);
    uint64_t server = dibs__link_server(link);
    dibs__link_free(link);
    return server;
}

/* By it a lease that a restart or a failover may have cost is told from one that was deleted. */
static void another_server_has_another_number(void **state)
{
    struct rig *r = *state;
    uint64_t first = server_of(r, RUN(ID_A), REPLICATION(ID_A));

    assert_true(first != 0);
    assert_true(server_of(r, RUN(ID_A), REPLICATION(ID_A)) == first);
    uint64_t others[] = {
        server_of(r, RUN(ID_B), REPLICATION(ID_A)), /* restarted, or a replica that was promoted */
        server_of(r, RUN(ID_A), REPLICATION(ID_B)), /* its data are another's */
        server_of(r, RUN(ID_B), REPLICATION(ID_B)),
        server_of(r, RUN(ID_A), "-NOPERM no right\r\n"),
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        assert_true(others[i] != 0 && others[i] != first);
        for (size_t j = 0; j < i; j++)
            assert_true(others[i] != others[j]);
    }
    assert_true(server_of(r, RUN(ID_A), REPLICATION(ID_A)) == first);
}

static void a_server_that_is_not_known_has_no_number(void **state)
{
    struct rig *r = *state;

    assert_true(server_of(r, "-NOPERM no right\r\n", REPLICATION(ID_A)) == 0);
    assert_true(server_of(r, "$13\r\nrun_id:short\n\r\n", REPLICATION(ID_A)) == 0);
    struct dibs__link *link = try_connect_for(r, DIBS__LINK_SUBSCRIPTIONS, NULL);
    assert_true(link && dibs__link_server(link) == 0);
    dibs__link_free(link);
}

/* ------------------------------------------------------------------- cluster */

static bool is_in_a_cluster(struct rig *r, const char *info)
{
    fake_redis_answer(r->fake, "INFO cluster", info);
    struct dibs__link *link = connected(r, NULL);
    bool cluster = link->cluster;
    dibs__link_free(link);
    return cluster;
}

static void a_server_says_whether_it_is_in_a_cluster(void **state)
{
    struct rig *r = *state;

    assert_true(is_in_a_cluster(r, "$30\r\n# Cluster\r\ncluster_enabled:1\r\n\r\n"));
    assert_false(is_in_a_cluster(r, "$30\r\n# Cluster\r\ncluster_enabled:0\r\n\r\n"));
    assert_false(is_in_a_cluster(r, "$0\r\n\r\n"));
    assert_false(is_in_a_cluster(r, "-NOPERM no right\r\n"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(it_greets_in_order),
        TEST(it_is_let_in_first),
        TEST(a_password_alone_needs_no_user),
        TEST(for_subscriptions_it_is_only_let_in),
        TEST(it_goes_on_after_a_deadline),
        TEST(it_ends_the_one_that_it_replaces),
        TEST(another_servers_connection_is_let_be),
        TEST(what_cannot_be_named_is_let_be),
        TEST(another_server_has_another_number),
        TEST(a_server_that_is_not_known_has_no_number),
        TEST(a_server_says_whether_it_is_in_a_cluster),
    };

    return cmocka_run_group_tests_name("link", tests, NULL, NULL);
}
