/* Configurations and URLs: invalid ones are refused before anything else; odd but valid ones reach a real server. */
#include <netdb.h>

#include "support/fixture.h"

/* -------------------------------------------------------------------- config */

/*
 * Configurations for the fixture's server, each with a word that the detail must contain; NULL: the configuration is
 * right.
 */
static const struct config_case {
    const char *what;
    dibs_config config;
    const char *word;
} configs[] = {
    {"lease 1", {.lease_ms = 1}, "lease_ms"},
    {"lease 19", {.lease_ms = 19}, "lease_ms"},
    {"lease 20", {.lease_ms = 20}, NULL},
    {"lease of a day", {.lease_ms = 86400000}, NULL},
    {"lease above a day", {.lease_ms = 86400001}, "lease_ms"},
    {"lease enormous", {.lease_ms = UINT32_MAX}, "lease_ms"},
    {"renew half", {.lease_ms = 1000, .renew_ms = 500}, NULL},
    {"renew more than half", {.lease_ms = 1000, .renew_ms = 501}, "renew_ms"},
    {"renew half of the default", {.renew_ms = 15000}, NULL},
    {"renew more than half of the default", {.renew_ms = 15001}, "renew_ms"},
    {"renew enormous", {.renew_ms = UINT32_MAX}, "renew_ms"},
    {"renew 1", {.renew_ms = 1}, NULL},
    {"label empty", {.label = ""}, "label"},
    {"label", {.label = "w"}, NULL},
    {"label of 48", {.label = "123456789012345678901234567890123456789012345678"}, NULL},
    {"label of 49", {.label = "1234567890123456789012345678901234567890123456789"}, "label"},
    {"label with a newline", {.label = "a\nb"}, "label"},
    {"label with DEL", {.label = "a\x7f"}, "label"},
    {"label beyond ASCII", {.label = "\xc3\xbc"}, "label"},
    {"prefix empty", {.key_prefix = ""}, NULL},
    {"prefix", {.key_prefix = "app:locks:"}, NULL},
    {"prefix of the sidecars", {.key_prefix = "dibs:"}, "key_prefix"},
    {"prefix among the sidecars", {.key_prefix = "dibs:x"}, "key_prefix"},
    {"prefix near the sidecars", {.key_prefix = "dibsy:"}, NULL},
    {"no handoff", {.handoff_ms = DIBS_NO_HANDOFF}, NULL},
    {"reserved", {.reserved = {1}}, "reserved"},
    {"reserved, the last", {.reserved = {0, 0, 0, 0, 0, 1}}, "reserved"},
    {"durable, neither 0 nor 1", {.durable = 2}, "durable"},
    {"no polling", {.spin_us = DIBS_NO_SPIN}, NULL},
    {"the longest polling", {.spin_us = 10000}, NULL},
    {"polling too long", {.spin_us = 10001}, "spin_us"},
    {"keeping for a minute", {.keep_ms = 60000}, NULL},
    {"keeping for longer", {.keep_ms = 60001}, "keep_ms"},
    {"CA without TLS", {.tls_ca_file = "/etc/ssl/ca.pem"}, "tls_ca_file"},
    {"certificate without TLS", {.tls_cert_file = "c"}, "tls_cert_file"},
    {"key without TLS", {.tls_key_file = "k"}, "tls_key_file"},
    {"server name without TLS", {.tls_server_name = "n"}, "tls_server_name"},
    {"Sentinel's user without Sentinel", {.sentinel_user = "u"}, "sentinel_user"},
    {"Sentinel's password without Sentinel", {.sentinel_password = "s3cr3t"}, "sentinel_password"},
};

static bool row_fails(const char *row, const char *what)
{
    print_error("%s: %s; detail: %s\n", row, what, dibs_last_error());
    return false;
}

static bool config_is_right(const fixture *f, const struct config_case *c)
{
    dibs_config config = c->config;
    dibs_runtime *rt = (dibs_runtime *)(uintptr_t)1;

    config.urls = f->urls;
    config.url_count = 1;
    dibs_status status = dibs_open(&rt, &config);
    if (status != (c->word ? DIBS_INVALID : DIBS_OK))
        return row_fails(c->what, dibs_status_name(status));
    if (!c->word) {
        status = dibs_lock(rt, "x");
        dibs_close(rt);
        return status == DIBS_OK || config.lease_ms == 20 || row_fails(c->what, dibs_status_name(status));
    }
    if (rt)
        return row_fails(c->what, "a runtime is left");
    if (!strstr(dibs_last_error(), c->word) || strstr(dibs_last_error(), "s3cr3t"))
        return row_fails(c->what, "the detail does not name the field");
    return true;
}

TEST(configurations_are_checked)
{
    bool right = true;

    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++)
        right = config_is_right(*state, &configs[i]) && right;
    assert_true(right);
}

/* The label is seen in the token, whole. */
TEST_ON(the_label_is_shown_in_the_token, fixture *f)
{
    static const char *const labels[] = {"w", "worker-7", "123456789012345678901234567890123456789012345678"};

    for (size_t i = 0; i < 3; i++) {
        f->config.label = labels[i];
        fixture_open(f, 0);
        assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
        dibs_owner owner = owner_of(f->rt, "x");
        assert_that(strstr(owner.token, labels[i]) != NULL, "%s", owner.token);
        assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
        close_runtime(&f->rt);
    }
}

/* And in the list of the server's clients, which takes no blanks. */
TEST_ON(the_label_names_the_connections, fixture *f)
{
    static const char *const labels[][2] = {{"w", " name=dibs:w "}, {"a b:c d", " name=dibs:a-b:c-d "}};

    for (size_t i = 0; i < sizeof labels / sizeof labels[0]; i++) {
        f->config.label = labels[i][0];
        fixture_open(f, 0);
        assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
        redisReply *clients = server_command(f->server, "CLIENT LIST");
        assert_that(strstr(clients->str, labels[i][1]) != NULL, "%s", clients->str);
        freeReplyObject(clients);
        assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
        close_runtime(&f->rt);
    }
}

TEST_ON(the_prefix_makes_the_key, fixture *f)
{
    f->config.key_prefix = "app:";
    fixture_open(f, 0);
    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    assert_true(server_has(f->server, "app:x"));
    dibs_close(f->rt);
    f->config.key_prefix = "";
    fixture_open(f, 0);
    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    assert_true(server_has(f->server, "x"));
    /* A lock whose key begins like a sidecar could be mistaken for one. */
    assert_status(DIBS_INVALID, dibs_lock(f->rt, "dibs:x"));
    assert_status(DIBS_INVALID, dibs_lock(f->rt, "dibs:"));
    assert_status(DIBS_OK, dibs_lock(f->rt, "dibs"));
    assert_status(DIBS_OK, dibs_unlock_all(f->rt));
    dibs_close(f->rt);
    /* As above, by a prefix with which those keys begin. */
    f->config.key_prefix = "di";
    fixture_open(f, 0);
    assert_status(DIBS_INVALID, dibs_lock(f->rt, "bs:x"));
    lock_and_release(f->rt, "x", DIBS_WAIT_FOREVER);
    assert_false(server_has(f->server, "dix"));
}

/* ---------------------------------------------------------------------- URLs */

/* Each is wrong in one part. The detail must contain one of two words, and never the password, s3cr3t. */
static const struct url_case {
    const char *url;
    const char *word;
    const char *or_word;
} bad_urls[] = {
    {"", "scheme", "empty"},
    {"redis", "scheme", "scheme"},
    {"127.0.0.1:6379", "scheme", "scheme"},
    {"http://127.0.0.1", "scheme", "scheme"},
    {"REDISX://127.0.0.1", "scheme", "scheme"},
    {"redis:127.0.0.1", "scheme", "//"},
    {"redis:/127.0.0.1", "scheme", "//"},
    {"redis://", "host", "host"},
    {"redis://:6379", "host", "host"},
    {"redis://user:s3cr3t@", "host", "host"},
    {"redis://user:s3cr3t@:6379", "host", "host"},
    {"redis://127.0.0.1:", "port", "port"},
    {"redis://127.0.0.1:0", "port", "port"},
    {"redis://127.0.0.1:65536", "port", "port"},
    {"redis://127.0.0.1:99999999999999999999", "port", "port"},
    {"redis://127.0.0.1:-1", "port", "port"},
    {"redis://127.0.0.1:+1", "port", "port"},
    {"redis://127.0.0.1: 1", "port", "blank"},
    {"redis://127.0.0.1:6379x", "port", "port"},
    {"redis://user:s3cr3t@127.0.0.1:port", "port", "port"},
    {"redis://127.0.0.1/x", "database", "db"},
    {"redis://127.0.0.1/-1", "database", "db"},
    {"redis://127.0.0.1/1x", "database", "db"},
    {"redis://127.0.0.1/1/2", "database", "db"},
    {"redis://127.0.0.1/99999999999999999999", "database", "db"},
    {"redis://user:s3cr3t@127.0.0.1/zero", "database", "db"},
    {"redis://127.0.0.1?db=1", "host", "query"},
    {"redis://us%zzer:s3cr3t@127.0.0.1", "user", "percent"},
    {"redis://user:s3cr3t%@127.0.0.1", "password", "percent"},
    {"redis://user:s3cr3t%2@127.0.0.1", "password", "percent"},
    {"redis://user:s3cr3t%00@127.0.0.1", "password", "percent"},
    {"redis://[::1", "host", "bracket"},
    {"redis://[::1]6379", "port", "host"},
    {"redis://[]", "host", "host"},
    {"redis://[::1]:x", "port", "port"},
    {"redis://a b", "host", "blank"},
    {"redis://a\nb", "host", "control"},
    {"unix://", "path", "path"},
    {"unix:/tmp/sock", "path", "//"},
    {"unix://relative", "path", "path"},
    {"unix://user:s3cr3t@relative", "path", "path"},
    {"unix:///tmp/%00", "path", "percent"},
    {"unix:///tmp/%g0", "path", "percent"},
    {"unix:///tmp/sock?db=", "database", "db"},
    {"unix:///tmp/sock?db=x", "database", "db"},
    {"unix:///tmp/sock?db=-1", "database", "db"},
    {"unix:///tmp/sock?other=1", "db", "query"},
    /* A socket's path holds 107 bytes. */
    {"unix:///0123456789/0123456789/0123456789/0123456789/0123456789/0123456789/0123456789/0123456789/0123456789/"
     "0123456789",
     "path", "path"},
#ifndef DIBS_WITH_TLS
    {"rediss://127.0.0.1", "built without TLS", "hiredis_ssl"},
    {"rediss-sentinel://127.0.0.1/m", "built without TLS", "hiredis_ssl"},
    {"rediss-cluster://127.0.0.1", "built without TLS", "hiredis_ssl"},
#endif
};

static dibs_status open_only(const char *const *urls, size_t count, dibs_runtime **rt)
{
    dibs_config config = {.urls = urls, .url_count = count, .connect_timeout_ms = 2000};

    *rt = (dibs_runtime *)(uintptr_t)1;
    return dibs_open(rt, &config);
}

static bool url_is_refused(const struct url_case *c)
{
    const char *row = strchr(c->url, '\n') ? "(a URL with a newline)" : c->url;
    dibs_runtime *rt;
    dibs_status status = open_only(&c->url, 1, &rt);
    const char *detail = dibs_last_error();

    if (status != DIBS_INVALID)
        return row_fails(row, dibs_status_name(status));
    if (rt)
        return row_fails(row, "a runtime is left");
    if (!strcasestr(detail, c->word) && !strcasestr(detail, c->or_word))
        return row_fails(row, "the detail does not name the part");
    if (strstr(detail, "s3cr3t") || strchr(detail, '\n'))
        return row_fails(row, "the detail shows a password, or is not one line");
    return true;
}

TEST(bad_urls_are_refused_by_the_part_at_fault)
{
    bool right = true;

    for (size_t i = 0; i < sizeof bad_urls / sizeof *bad_urls; i++)
        right = url_is_refused(&bad_urls[i]) && right;
    assert_true(right);
}

/* These are well formed, so dibs_open fails only because of the network. */
TEST(good_urls_are_not_refused)
{
    static const char *const good[] = {"redis://127.0.0.1:1",
                                       "redis://127.0.0.1:1/",
                                       "redis://127.0.0.1:1/0",
                                       "redis://127.0.0.1:1/15",
                                       "redis://localhost:1",
                                       "redis://[::1]:1",
                                       "redis://[::1]:1/2",
                                       "redis://:s3cr3t@127.0.0.1:1",
                                       "redis://user:s3cr3t@127.0.0.1:1/3",
                                       "redis://user@127.0.0.1:1",
                                       "redis://us%40er:%3a%2F%25@127.0.0.1:1",
                                       "unix:///nonexistent/sock",
                                       "unix://user:s3cr3t@/nonexistent/sock?db=3",
                                       "unix:///nonexistent/%73ock"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        dibs_runtime *rt;

        print_message("# %s\n", good[i]);
        assert_status(DIBS_UNAVAILABLE, open_only(&good[i], 1, &rt));
        assert_null(rt);
        assert_true(dibs_last_error()[0] != '\0');
        assert_null(strstr(dibs_last_error(), "s3cr3t"));
    }
}

/* Expects that url reaches that database of the server; its credentials are right. */
static void check_reaches(server *s, const char *url, int database)
{
    dibs_runtime *rt = open_url(url, NULL);

    print_message("# %s\n", url);
    assert_status(DIBS_OK, dibs_lock(rt, "where"));
    server_do(s, "SELECT %d", database);
    assert_true(server_has(s, "lock:where"));
    server_do(s, "SELECT 0");
    assert_status(DIBS_OK, dibs_unlock(rt, "where"));
    dibs_close(rt);
}

/* A bare system may have no /etc/hosts, and then no name for itself. */
static const char *own_name(void)
{
    struct addrinfo *found = NULL;
    bool has_name = getaddrinfo("localhost", NULL, NULL, &found) == 0;

    if (has_name)
        freeaddrinfo(found);
    return has_name ? "localhost" : "127.0.0.1";
}

TEST_WITH(good_urls_reach_the_database_they_name, NULL, NULL, void *none)
{
    server *s = test_server(server_start(
        &(server_options){.tcp = true, .password = "p@:/%word", .config = "user someone on >p@:/%word ~* &* +@all"}));
    static const struct {
        const char *host;
        const char *path;
        int database;
    } tcp[] = {{"redis://:p%40:%2f%25word@127.0.0.1", "", 0},
               {"redis://default:p%40%3A%2F%25word@127.0.0.1", "/", 0},
               {"redis://some%6fne:p%40%3A%2F%25word@", "/7", 7}, /* at a name */
               {"redis://:p%40%3a%2F%25word@127.0.0.1", "/15", 15}};

    for (size_t i = 0; i < sizeof tcp / sizeof *tcp; i++) {
        bool by_name = tcp[i].host[strlen(tcp[i].host) - 1] == '@';
        check_reaches(s, formatted("%s%s:%d%s", tcp[i].host, by_name ? own_name() : "", s->port, tcp[i].path),
                      tcp[i].database);
    }
    check_reaches(s, formatted("unix://:p%%40%%3a%%2F%%25word@%s", s->socket_path), 0);
    check_reaches(s, formatted("unix://someone:p%%40%%3a%%2F%%25word@%s?db=3", s->socket_path), 3);
    server_assert_no_locks(s);
}

TEST_WITH(several_urls_are_refused, NULL, NULL, void *unused)
{
    static const char *const urls[] = {"redis://127.0.0.1:1", "redis://127.0.0.1:2", "redis://127.0.0.1:3"};
    dibs_runtime *rt;
    const char *none = NULL;

    assert_status(DIBS_INVALID, open_only(urls, 2, &rt));
    assert_null(rt);
    assert_true(strstr(dibs_last_error(), "url") != NULL);
    assert_status(DIBS_INVALID, open_only(urls, 17, &rt)); /* more than there may be: the others are not looked at */
    assert_null(rt);
    assert_status(DIBS_INVALID, open_only(&none, 1, &rt));
    assert_null(rt);
}

TEST_ON(the_environment_names_the_store, fixture *f)
{
    setenv("DIBS_URL", f->server->url, 1);
    assert_status(DIBS_OK, dibs_open(&f->rt, NULL));
    assert_status(DIBS_OK, dibs_lock(f->rt, "x"));
    assert_true(server_has(f->server, "lock:x"));
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
    dibs_close(f->rt);
    setenv("DIBS_URL", formatted("%s %s", f->server->url, f->server->url), 1);
    assert_status(DIBS_INVALID, dibs_open(&f->rt, NULL));
    assert_null(f->rt);
    setenv("DIBS_URL", "http://user:s3cr3t@x", 1);
    assert_status(DIBS_INVALID, dibs_open(&f->rt, &(dibs_config){.lease_ms = 1000}));
    assert_null(f->rt);
    assert_null(strstr(dibs_last_error(), "s3cr3t"));
    unsetenv("DIBS_URL");
}

TESTS(fixture_setup, fixture_teardown)
