/* Servers that refuse a part of the greeting, or answer it as no Redis server does. */
#include "redis/scripts.h"
#include "unit/link_setup.h"

/* ------------------------------------------------------------------- helpers */

static void expect_refused(struct rig *r, const char *prefix, const char *reply, dibs_status status)
{
    fake_redis_answer(r->fake, prefix, reply);
    assert_null(try_connect(r, NULL));
    assert_that(r->error.status == status, "%s: %s", reply, r->error.detail);
}

/* ------------------------------------------------------------------ refusals */

TEST_ON(optional_rights_may_be_missing, struct rig *r)
{
    static const char *const commands[] = {"CLIENT", "INFO", "TIME", "SCRIPT"};

    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        fake_redis_answer(r->fake, commands[i], "-NOPERM this user has no permissions\r\n");
    struct dibs__link *link = connected(r, NULL);
    assert_int_equal(link->view.id.client, 0);
    assert_false(link->view.id.may_kill);
    assert_false(dibs__link_can_be_ended(&link->view.id));
    assert_string_equal(link->view.id.run_id, "");
    assert_int_equal(r->endpoint.scripts, 0);
    dibs__link_free(link);
}

TEST_ON(eval_may_be_forbidden_where_the_scripts_are_loaded, struct rig *r)
{
    fake_redis_answer(r->fake, "EVAL return 1", "-NOPERM no right\r\n");
    connect_and_leave(r, NULL);
    expect_refused(r, "SCRIPT LOAD", "-NOPERM no right\r\n", DIBS_DENIED);
    expect_refused(r, "SCRIPT LOAD", "-ERR xyz\r\n", DIBS_STORE_ERROR);
    expect_refused(r, "SCRIPT LOAD", "$40\r\n0123456789012345678901234567890123456789\r\n", DIBS_STORE_ERROR);
    expect_refused(r, "SCRIPT LOAD", ":1\r\n", DIBS_STORE_ERROR);
}

TEST_ON(refused_credentials_give_no_connection, struct rig *r)
{
    char url[96];

    snprintf(url, sizeof url, "redis://user:secret@127.0.0.1:%u/3", fake_redis_port(r->fake));
    use_url(r, url);
    expect_refused(r, "SELECT", "-ERR DB index is out of range\r\n", DIBS_STORE_ERROR);
    expect_refused(r, "SELECT", "-NOPERM no right\r\n", DIBS_DENIED);
    expect_refused(r, "AUTH", "-WRONGPASS invalid username-password pair\r\n", DIBS_DENIED);
    assert_null(strstr(r->error.detail, "secret"));
}

TEST_ON(a_server_without_scripts_is_refused, struct rig *r)
{
    expect_refused(r, "SCRIPT EXISTS", ":1\r\n", DIBS_STORE_ERROR);
    expect_refused(r, "SCRIPT EXISTS", "*1\r\n:1\r\n", DIBS_STORE_ERROR);
    expect_refused(r, "SCRIPT EXISTS", "-LOADING Redis is loading the dataset in memory\r\n", DIBS_UNAVAILABLE);
    fake_redis_answer(r->fake, "SCRIPT", "-ERR unknown command 'SCRIPT'\r\n");
    expect_refused(r, "EVAL", "-ERR unknown command 'EVAL'\r\n", DIBS_STORE_ERROR);
}

/*
 * Each detail says which command failed, and why, in the library's own words: those of the server might repeat a
 * password.
 */
TEST_ON(a_refusal_does_not_quote_the_server, struct rig *r)
{
    static const struct {
        const char *prefix, *reply;
        dibs_status status;
        const char *command, *meaning;
    } cases[] = {
        {"AUTH", "-WRONGPASS xyz\r\n", DIBS_DENIED, "AUTH", "password is wrong (WRONGPASS)"},
        {"AUTH", "-ERR unknown command 'AUTH', xyz\r\n", DIBS_STORE_ERROR, "AUTH", "unknown command (ERR)"},
        {"AUTH", "-ERR AUTH <password> called xyz\r\n", DIBS_DENIED, "AUTH", "no password is set"},
        {"AUTH", "-ERR max number of clients xyz\r\n", DIBS_UNAVAILABLE, "the connection", "many clients"},
        {"AUTH", "-DENIED xyz\r\n", DIBS_DENIED, "the connection", "protected mode"},
        {"AUTH", "-xyz\r\n", DIBS_STORE_ERROR, "AUTH", "not shown"},
        {"AUTH", "-ERR xyz\r\n", DIBS_STORE_ERROR, "AUTH", "not shown"},
        {"SELECT", "-ERR DB index is out of range xyz\r\n", DIBS_STORE_ERROR, "SELECT", "no database"},
        {"SELECT", "-ERR SELECT is not allowed in cluster mode xyz\r\n", DIBS_STORE_ERROR, "SELECT", "cluster"},
        {"CLIENT SETNAME", "-NOAUTH xyz\r\n", DIBS_DENIED, "CLIENT SETNAME", "wants a password (NOAUTH)"},
        {"SCRIPT", "-LOADING xyz\r\n", DIBS_UNAVAILABLE, "SCRIPT EXISTS", "LOADING"},
        {"SCRIPT", ":1\r\n", DIBS_STORE_ERROR, "SCRIPT EXISTS", "as no Redis server does"},
        {"INFO", "-BUSY xyz\r\n", DIBS_UNAVAILABLE, "INFO", "BUSY"},
        {"TIME", "xyz\r\n", DIBS_STORE_ERROR, "127.0.0.1", "does not speak as a Redis server"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fake_redis_stop(r->fake);
        r->fake = fake_redis_start(true);
        use_url_with(r, "user:secret", "/3");
        expect_refused(r, cases[i].prefix, cases[i].reply, cases[i].status);
        assert_that(strstr(r->error.detail, cases[i].command) && strstr(r->error.detail, cases[i].meaning) &&
                        !strstr(r->error.detail, "xyz"),
                    "%s", r->error.detail);
    }
}

TEST_ON(a_right_that_is_missing_is_named, struct rig *r)
{
    fake_redis_answer(r->fake, "SCRIPT", "-NOPERM xyz\r\n");
    expect_refused(r, "EVAL", "-NOPERM xyz\r\n", DIBS_DENIED);
    assert_non_null(strstr(r->error.detail, "EVAL, SCRIPT LOAD: the account has no permission for that (NOPERM)"));
}

/* --------------------------------------------------------------- odd answers */

TEST_ON(odd_answers_to_a_greeting_count_as_none, struct rig *r)
{
    static const char *const times[] = {
        "*2\r\n:1\r\n:2\r\n", "*2\r\n$1\r\n1\r\n:2\r\n",  "*2\r\n:1\r\n$1\r\n2\r\n", "*2\r\n$2\r\n-1\r\n$1\r\n2\r\n",
        "*1\r\n$1\r\n1\r\n",  "*2\r\n$1\r\n1\r\n$-1\r\n",
    };

    fake_redis_answer(r->fake, "CLIENT ID", "+what\r\n");
    fake_redis_answer(r->fake, "INFO", "$13\r\nrun_id:short\n\r\n");
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        fake_redis_answer(r->fake, "TIME", times[i]);
        struct dibs__link_view view = connect_and_leave(r, NULL);
        assert_int_equal(view.server_ahead_us, 0);
        assert_int_equal(view.id.client, 0);
        assert_string_equal(view.id.run_id, "");
    }
}

TESTS(setup, teardown)
