/* The greeting of a new link, what its answers show, and the end of the previous link. */
#include "redis/scripts.h"
#include "unit/link_setup.h"

/* The first commands that came are these, in this order. */
static void expect_in_order(struct rig *r, const char *const *prefixes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        assert_that(fake_redis_place(r->fake, prefixes[i], 1) == (int)i, "%s: place %d", prefixes[i],
                    fake_redis_place(r->fake, prefixes[i], 1));
}

/* ------------------------------------------------------------------ greeting */

TEST_ON(a_greeting_sends_its_commands_in_order, struct rig *r)
{
    static const char *const order[] = {"CLIENT SETNAME tester",
                                        "CLIENT ID",
                                        "INFO server",
                                        "CLIENT KILL ID 9223372036854775807",
                                        "TIME",
                                        "INFO replication",
                                        "SCRIPT EXISTS ",
                                        "EVAL return 1 0",
                                        "PUBLISH dibs:test ",
                                        "INFO cluster"};

    struct dibs__link *link = connected(r, NULL);
    expect_in_order(r, order, sizeof order / sizeof *order);
    assert_int_equal(fake_redis_count(r->fake, ""), sizeof order / sizeof *order);
    assert_int_equal(r->commands, sizeof order / sizeof *order);
    assert_true(link->view.may_publish);
    assert_int_equal(link->view.id.client, 1);
    assert_string_equal(link->view.id.run_id, FAKE_RUN_ID);
    assert_true(link->view.id.may_kill && dibs__link_can_be_ended(&link->view.id));
    assert_int_equal(link->view.server_ahead_us, 5000007 - link->greeted_at / 1000);
    dibs__link_free(link);
}

TEST_ON(a_server_says_which_scripts_it_has, struct rig *r)
{
    static const char *const first[] = {":0", ":1", ":0", ":0", ":2", "+1", ":1"};
    char answer[256];
    int size = snprintf(answer, sizeof answer, "*%d\r\n", DIBS__SCRIPT_COUNT);

    for (int i = 0; i < DIBS__SCRIPT_COUNT; i++)
        size += snprintf(answer + size, sizeof answer - (size_t)size, "%s\r\n", i < 7 ? first[i] : ":0");
    connect_and_leave(r, NULL);
    assert_int_equal(r->endpoint.scripts, (1u << DIBS__SCRIPT_COUNT) - 1);
    fake_redis_answer(r->fake, "SCRIPT EXISTS", answer);
    connect_and_leave(r, NULL);
    assert_int_equal(r->endpoint.scripts, 1u << 1 | 1u << 6);
    fake_redis_answer(r->fake, "SCRIPT EXISTS", "-NOPERM no right\r\n");
    connect_and_leave(r, NULL);
    assert_int_equal(r->endpoint.scripts, 1u << 1 | 1u << 6);
}

/* Otherwise the scripts are sent as text, each when it is first used. */
TEST_ON(only_without_eval_the_scripts_are_loaded, struct rig *r)
{
    connect_and_leave(r, NULL);
    assert_int_equal(fake_redis_count(r->fake, "SCRIPT LOAD"), 0);
    fake_redis_answer(r->fake, "SCRIPT EXISTS", "-NOPERM no right\r\n");
    fake_redis_answer(r->fake, "EVAL return 1", "-NOPERM no right\r\n");
    r->endpoint.scripts = 0;
    connect_and_leave(r, NULL);
    assert_int_equal(fake_redis_count(r->fake, "SCRIPT LOAD"), DIBS__SCRIPT_COUNT);
    assert_true(fake_redis_place(r->fake, "SCRIPT LOAD", 1) > fake_redis_place(r->fake, "INFO cluster", 2));
    assert_int_equal(r->endpoint.scripts, (1u << DIBS__SCRIPT_COUNT) - 1);
}

TEST_ON(a_greeting_authenticates_first, struct rig *r)
{
    static const char *const order[] = {"AUTH user secret", "SELECT 3", "CLIENT SETNAME", "CLIENT ID"};

    use_url_with(r, "user:secret", "/3");
    connect_and_leave(r, NULL);
    expect_in_order(r, order, sizeof order / sizeof *order);
}

TEST_ON(a_password_alone_needs_no_user, struct rig *r)
{
    static const char *const order[] = {"AUTH secret", "CLIENT SETNAME"};

    use_url_with(r, ":secret", "");
    connect_and_leave(r, NULL);
    expect_in_order(r, order, sizeof order / sizeof *order);
    assert_int_equal(fake_redis_count(r->fake, "SELECT"), 0);
}

/*
 * The greeting asks for all that the next link needs in order to end this one. The link before must have ended when
 * this one subscribes.
 */
TEST_ON(a_subscriber_only_authenticates_and_subscribes, struct rig *r)
{
    static const char *const order[] = {"AUTH user secret", "CLIENT SETNAME tester", "CLIENT ID", "INFO server",
                                        "CLIENT KILL ID 9223372036854775807"};
    static const struct dibs__link_id before = {.client = 77, .run_id = FAKE_RUN_ID, .may_kill = true};

    use_url_with(r, "user:secret", "/3");
    fake_redis_answer(r->fake, "SUBSCRIBE", SUBSCRIBED);
    struct dibs__link *link = try_connect_for(r, DIBS__LINK_SUBSCRIPTIONS, &before);
    assert_that(link, "%s", r->error.detail);
    expect_in_order(r, order, sizeof order / sizeof *order);
    assert_int_equal(fake_redis_place(r->fake, "CLIENT KILL ID 77", 1), 5);
    assert_int_equal(fake_redis_place(r->fake, "SUBSCRIBE dibs:test", 1), 6);
    assert_int_equal(fake_redis_count(r->fake, ""), 7);
    assert_true(link->view.id.client == 1 && dibs__link_can_be_ended(&link->view.id));
    dibs__link_free(link);
}

/* ----------------------------------------------------------- the link before */

TEST_ON(the_previous_link_is_ended, struct rig *r)
{
    struct dibs__link_id first = connect_and_leave(r, NULL).id;

    connect_and_leave(r, &first);
    assert_int_equal(fake_redis_count(r->fake, "CLIENT KILL ID 1"), 1);
    /* after the first commands of the second link, and before the later ones */
    assert_true(fake_redis_place(r->fake, "CLIENT KILL ID 1", 1) > fake_redis_place(r->fake, "EVAL return 1", 2));
    fake_redis_answer(r->fake, "EVAL return 1", "-NOPERM no right\r\n");
    connect_and_leave(r, &first);
    assert_true(fake_redis_place(r->fake, "CLIENT KILL ID 1", 2) < fake_redis_place(r->fake, "SCRIPT LOAD", 1));
}

/* The greeting asks only whether the account may kill, with the id of no client. */
static void expect_not_killed(struct rig *r, struct dibs__link_id before)
{
    unsigned kills = fake_redis_count(r->fake, "CLIENT KILL");

    connect_and_leave(r, &before);
    assert_int_equal(fake_redis_count(r->fake, "CLIENT KILL"), kills + 1);
    assert_int_equal(fake_redis_count(r->fake, "CLIENT KILL ID 9223372036854775807"), kills + 1);
}

TEST_ON(the_previous_link_of_another_server_is_left_alone, struct rig *r)
{
    struct dibs__link_id first = connect_and_leave(r, NULL).id;

    memset(first.run_id, 'e', 40);
    expect_not_killed(r, first);
}

TEST_ON(a_previous_link_without_an_id_is_left_alone, struct rig *r)
{
    const struct dibs__link_id first = connect_and_leave(r, NULL).id;
    struct dibs__link_id changed = first;

    changed.client = 0;
    expect_not_killed(r, changed);
    changed = first;
    changed.may_kill = false;
    expect_not_killed(r, changed);
    changed = first;
    changed.run_id[0] = 0;
    expect_not_killed(r, changed);
    fake_redis_answer(r->fake, "INFO", "-NOPERM no right\r\n"); /* nothing shows whether it is the same server */
    expect_not_killed(r, first);
}

/* ------------------------------------------------------------------- cluster */

static bool is_in_a_cluster(struct rig *r, const char *info)
{
    fake_redis_answer(r->fake, "INFO cluster", info);
    return connect_and_leave(r, NULL).cluster;
}

TEST_ON(a_server_says_whether_it_is_in_a_cluster, struct rig *r)
{
    assert_true(is_in_a_cluster(r, "$30\r\n# Cluster\r\ncluster_enabled:1\r\n\r\n"));
    assert_false(is_in_a_cluster(r, "$30\r\n# Cluster\r\ncluster_enabled:0\r\n\r\n"));
    assert_false(is_in_a_cluster(r, "$0\r\n\r\n"));
    assert_false(is_in_a_cluster(r, "-NOPERM no right\r\n"));
}

/* ---------------------------------------------------------- sharded channels */

/* Only a server that is part of a cluster is asked. */
TEST_ON(a_server_says_whether_it_has_sharded_channels, struct rig *r)
{
    static const char *const refusals[] = {"-NOPERM no right\r\n", "-ERR unknown command\r\n"};
    static const char *const elsewhere[] = {":0\r\n", "-MOVED 1 127.0.0.1:7000\r\n", "-CLUSTERDOWN no\r\n"};

    assert_false(connect_and_leave(r, NULL).sharded);
    assert_int_equal(fake_redis_count(r->fake, "SPUBLISH"), 0);
    fake_redis_answer(r->fake, "INFO cluster", "$30\r\n# Cluster\r\ncluster_enabled:1\r\n\r\n");
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++) {
        fake_redis_answer(r->fake, "SPUBLISH dibs:test ", elsewhere[i]);
        fake_redis_answer(r->fake, "PUBSUB SHARDNUMSUB", "*0\r\n");
        assert_true(connect_and_leave(r, NULL).sharded);
        for (size_t j = 0; j < sizeof refusals / sizeof *refusals; j++) {
            fake_redis_answer(r->fake, "PUBSUB SHARDNUMSUB", refusals[j]);
            assert_false(connect_and_leave(r, NULL).sharded);
        }
    }
    fake_redis_answer(r->fake, "PUBSUB SHARDNUMSUB", "*0\r\n");
    for (size_t j = 0; j < sizeof refusals / sizeof *refusals; j++) {
        fake_redis_answer(r->fake, "SPUBLISH", refusals[j]);
        assert_false(connect_and_leave(r, NULL).sharded);
    }
}

/* ------------------------------------------------------------- its version */

/* Connects to a server of that version; NULL: INFO does not name it. */
static struct dibs__link_view visit_version(struct rig *r, const char *version)
{
    static char replies[64][200]; /* they live as long as the server */
    static size_t used;
    char info[160] = "run_id:" FAKE_RUN_ID "\r\n";
    char *reply = replies[used++ % 64];

    if (version)
        snprintf(info, sizeof info, "redis_version:%s\r\nredis_mode:standalone\r\nrun_id:%s\r\n", version, FAKE_RUN_ID);
    snprintf(reply, sizeof replies[0], "$%zu\r\n%s\r\n", strlen(info), info);
    fake_redis_answer(r->fake, "INFO server", reply);
    struct dibs__link_view view = connect_and_leave(r, NULL);
    assert_string_equal(view.id.run_id, FAKE_RUN_ID);
    return view;
}

/* Before 7.0.5 a client was told of what its own scripts change, whatever it asked for. */
TEST_ON(a_server_tracks_keys_from_a_version_on, struct rig *r)
{
    static const char *const good[] = {"7.0.5", "7.0.15", "7.1",         "7.2.4",
                                       "8.0.0", "10.0.1", "255.255.255", "7.0.5-rc1"};
    static const char *const bad[] = {"7.0.4", "7.0.0", "6.2.14", "6.9.99", "5", "7",      "7.0",    "7.0.",
                                      "7.",    "7.0.x", "x",      "",       ".", "-8.0.0", "v8.0.0", "7,2,4"};

    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_that(visit_version(r, good[i]).tracks_keys, "%s", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_that(!visit_version(r, bad[i]).tracks_keys, "%s", bad[i]);
    assert_false(visit_version(r, NULL).tracks_keys);
}

TEST_ON(a_server_that_does_not_say_its_version_tracks_nothing, struct rig *r)
{
    assert_true(visit_version(r, "8.0.0").tracks_keys);
    fake_redis_answer(r->fake, "INFO", "-NOPERM no right\r\n");
    assert_false(connect_and_leave(r, NULL).tracks_keys);
}

TEST(a_server_tells_parted_keys_from_a_version_on)
{
    static const struct {
        const char *version;
        bool tells;
    } cases[] = {{"5.0.14", false}, {"6.2.14", false}, {"7.0.0", true}, {"8.0.1", true}, {NULL, false}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(visit_version(*state, cases[i].version).tells_parted, cases[i].tells);
}

/* Before 7.2 there is no WAITAOF; some later versions answer it too early. */
TEST_ON(a_server_tells_of_its_disk_in_some_versions, struct rig *r)
{
    static const char *const good[] = {
        "7.2.0", "7.2.11", "7.4.3", "7.4.10", "8.0.0", "8.0.2", "7.2.4\r\nserver_name:valkey\r\nvalkey_version:7.2.8"};
    static const char *const bad[] = {"6.2.14",
                                      "7.0.15",
                                      "7.1.9",
                                      "7.4.0",
                                      "7.4.2",
                                      "x",
                                      "",
                                      "7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.0.1",
                                      "7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.1"};

    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_that(visit_version(r, good[i]).tells_of_disk, "%s", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_that(!visit_version(r, bad[i]).tells_of_disk, "%s", bad[i]);
    assert_false(visit_version(r, NULL).tells_of_disk);
}

/* A command that deletes a key by its value came with Valkey 9.0 and Redis 8.4, under two names. */
TEST_ON(a_server_deletes_by_value_in_some_versions, struct rig *r)
{
    static const struct {
        const char *version;
        enum dibs__delete_if expected;
    } cases[] = {{"7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.0.0", DIBS__DELETE_IF_EQ},
                 {"7.2.4\r\nserver_name:valkey\r\nvalkey_version:10.1.0", DIBS__DELETE_IF_EQ},
                 {"7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.9", DIBS__DELETE_IF_NONE},
                 {"8.4.0\r\nserver_name:valkey\r\nvalkey_version:8.1.9", DIBS__DELETE_IF_NONE},
                 {"8.4.0", DIBS__DELETE_IF_EX},
                 {"9.0.1", DIBS__DELETE_IF_EX},
                 {"8.2.9", DIBS__DELETE_IF_NONE},
                 {"7.0.15", DIBS__DELETE_IF_NONE},
                 {NULL, DIBS__DELETE_IF_NONE}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_that(visit_version(r, cases[i].version).deletes_if == cases[i].expected, "%s",
                    cases[i].version ? cases[i].version : "unknown");
}

TESTS(setup, teardown)
