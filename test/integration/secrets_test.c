/* No error and no event contains a password, whatever a server answers. */
#include "support/fixture.h"
#include "support/script_server.h"

#define USER "adm1n"
#define PASSWORD "S3cr3t-0f-ours"

/* Expects that the text contains neither the password nor a part of it that would help. */
static void expect_kept(const char *text)
{
    assert_that(!strstr(text, "S3cr") && !strstr(text, "0f-ours") && !strstr(text, USER), "%s", text);
}

static void expect_all_kept(events *e)
{
    pthread_mutex_lock(&e->mutex);
    for (unsigned i = 0; i < e->count && i < EVENTS_MAX; i++)
        expect_kept(e->list[i].detail);
    pthread_mutex_unlock(&e->mutex);
}

/* With a user and without. */
static const char *url_of(const char *socket_url, bool user)
{
    return formatted("unix://%s:" PASSWORD "@%s", user ? USER : "", socket_url + strlen("unix://"));
}

/* ------------------------------------------------------------ a real server */

/* A server that repeats an unknown command with its arguments. */
TEST(no_error_shows_the_password_where_auth_is_unknown)
{
    server *s = test_server(server_start(&(server_options){.config = "rename-command AUTH \"\""}));

    for (int user = 0; user < 2; user++) {
        expect_not_opened(DIBS_STORE_ERROR, url_of(s->url, user), NULL, "unknown command");
        expect_kept(dibs_last_error());
        assert_non_null(strstr(dibs_last_error(), "AUTH"));
    }
}

/* The server replaces one that accepted the password. */
TEST_WITH(no_error_shows_the_password_where_auth_is_forgotten, fixture_setup, fixture_teardown_expiring, fixture *f)
{
    server_do(f->server, "ACL SETUSER %s on >%s ~* &* +@all", USER, PASSWORD);
    f->urls[0] = url_of(f->server->url, true);
    fixture_open(f, LONG_LEASE_MS);
    lock_and_release(f->rt, "x", DIBS_WAIT_FOREVER);
    server_kill(f->server);
    f->server->options.config = "rename-command AUTH \"\"";
    server_restart(f->server);
    expect_kept(events_await(&f->events, DIBS_EVENT_STORE_DOWN, NULL).detail);
    assert_status(DIBS_STORE_ERROR, dibs_trylock(f->rt, "x"));
    expect_kept(dibs_last_error());
    expect_all_kept(&f->events);
}

/* ---------------------------------------------------------------- any answer */

#define ECHOED USER " " PASSWORD

static const char *const answers[] = {
    "-ERR unknown command 'AUTH', with args beginning with: '" USER "' '" PASSWORD "' \r\n",
    "-ERR unknown command `AUTH`, with args beginning with: `" PASSWORD "`, \r\n",
    "-" PASSWORD "\r\n",
    "-" PASSWORD " " USER "\r\n",
    "-ERR " ECHOED "\r\n",
    "-NOPERM " ECHOED "\r\n",
    "-WRONGPASS " ECHOED "\r\n",
    "-NOAUTH " ECHOED "\r\n",
    "-DENIED " ECHOED "\r\n",
    "-LOADING " ECHOED "\r\n",
    "-READONLY " ECHOED "\r\n",
    "-BUSY " ECHOED "\r\n",
    "-MISCONF " ECHOED "\r\n",
    "-OOM " ECHOED "\r\n",
    "-ERR max number of clients " ECHOED "\r\n",
    "-ERR Error running script: NOPERM " ECHOED "\r\n",
    "-ERR AUTH " ECHOED "\r\n",
    "-ERR invalid password " ECHOED "\r\n",
    "+" ECHOED "\r\n",
    "$14\r\n" PASSWORD "\r\n",
    "*2\r\n$4\r\nAUTH\r\n$14\r\n" PASSWORD "\r\n",
    ":" PASSWORD "\r\n",
    "$" PASSWORD "\r\n",
    "*" PASSWORD "\r\n",
    PASSWORD "\r\n",
    "AUTH " ECHOED "\r\n",
    "HTTP/1.1 400 Bad Request: " ECHOED "\r\n",
};

/* Commands that a greeting consists of, as they are sent. The scripts hold none of these words in capital letters. */
static const char *const commands[] = {
    "$4\r\nAUTH",          "$6\r\nSELECT",  "SETNAME",     "$2\r\nID\r\n", "$6\r\nserver",
    "9223372036854775807", "$4\r\nTIME",    "replication", "$4\r\nLOAD",   "$8\r\nreturn 1",
    "$7\r\nPUBLISH",       "$7\r\ncluster", "SUBSCRIBE",
};

/* Opens a runtime that is answered so to one command of its greetings, and uses it. */
static void expect_kept_from(server *s, const char *command, const char *answer, bool user)
{
    script_server *net = script_server_start(&(script_options){.backend = s->socket_path});
    events e;
    dibs_runtime *rt;

    events_init(&e);
    const char *url = formatted("%s?db=1", url_of(script_server_url(net), user));
    script_server_answer(net, command, answer);
    dibs_config config = {.connect_timeout_ms = 300, .command_timeout_ms = 300, .outage_ms = 1};
    config.on_event = events_record;
    config.on_event_arg = &e;
    if (open_status(url, &config, &rt) == DIBS_OK) {
        if (dibs_lock_with(rt, "x", 20, &(dibs_lock_options){.flags = DIBS_FAIR}) == DIBS_OK)
            dibs_unlock(rt, "x");
        else
            expect_kept(dibs_last_error());
    } else {
        assert_true(dibs_last_error()[0]);
        expect_kept(dibs_last_error());
    }
    dibs_close(rt);
    expect_all_kept(&e);
    events_destroy(&e);
    script_server_stop(net);
}

static server *server_with_account(void)
{
    server *s = test_server(server_start(NULL));

    server_do(s, "ACL SETUSER %s on >%s ~* &* +@all", USER, PASSWORD);
    server_do(s, "ACL SETUSER default >%s", PASSWORD);
    return s;
}

TEST(no_answer_to_a_greeting_reveals_the_password)
{
    server *s = server_with_account();

    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        for (size_t j = 0; j < sizeof answers / sizeof *answers; j++)
            expect_kept_from(s, commands[i], answers[j], (i + j) % 2);
}

/* As above, for a server that has served before, when connections are replaced. */
TEST(no_answer_to_a_later_greeting_reveals_the_password)
{
    server *s = server_with_account();

    for (size_t j = 0; j < sizeof answers / sizeof *answers; j++) {
        script_server *net = script_server_start(&(script_options){.backend = s->socket_path});
        events e;

        events_init(&e);
        dibs_config config = {.connect_timeout_ms = 300, .command_timeout_ms = 300, .outage_ms = 1};
        config.on_event = events_record;
        config.on_event_arg = &e;
        dibs_runtime *rt = open_url(url_of(script_server_url(net), j % 2), &config);
        script_server_answer(net, "$4\r\nAUTH", answers[j]);
        script_server_cut(net);
        for (int i = 0; i < 3; i++) {
            if (dibs_timedlock(rt, "x", 20) == DIBS_OK)
                dibs_unlock(rt, "x");
            else
                expect_kept(dibs_last_error());
        }
        dibs_close(rt);
        expect_all_kept(&e);
        events_destroy(&e);
        script_server_stop(net);
    }
}

/* The server refuses before it answers AUTH, in words that contain what was sent. */
TEST(no_refusal_before_auth_reveals_the_password)
{
    for (size_t j = 0; j < sizeof answers / sizeof *answers; j++) {
        script_server *net = script_server_start(&(script_options){.greeting = answers[j], .hang_up = j % 3 == 0});
        dibs_config config = {.connect_timeout_ms = 100};
        dibs_runtime *rt;

        assert_true(open_status(url_of(script_server_url(net), j % 2), &config, &rt) != DIBS_OK);
        expect_kept(dibs_last_error());
        script_server_stop(net);
    }
}

TESTS(NULL, NULL)
