/*
 * Which servers the library trusts, and which clients a server accepts: right and wrong certificates on either side,
 * names, versions of TLS, and the files of the configuration. For builds without TLS see tls_test.c.
 */
#include <sys/stat.h>
#include <unistd.h>

#include "support/certificates.h"
#include "support/fixture.h"
#include "support/tls_relay.h"

#ifdef DIBS_WITH_TLS

#include <netdb.h>
#include <netinet/in.h>
#include <openssl/ssl.h>

/* Replaces the system's resolver: each name is one of this machine. */
int getaddrinfo(const char *restrict name, const char *restrict port, const struct addrinfo *restrict hints,
                struct addrinfo **restrict found)
{
    struct sockaddr_in *address = calloc(1, sizeof *address);
    struct addrinfo *item = calloc(1, sizeof *item);

    if (!address || !item)
        abort();
    address->sin_family = AF_INET;
    address->sin_port = htons((uint16_t)atoi(port));
    address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    *item =
        (struct addrinfo){.ai_family = AF_INET, .ai_addr = (struct sockaddr *)address, .ai_addrlen = sizeof *address};
    *found = item;
    return 0;
}

void freeaddrinfo(struct addrinfo *item)
{
    free(item->ai_addr);
    free(item);
}

static const char *folder; /* of certificates */

static const struct certificate others[] = {
    {.file = "foreign_ca", .authority = true},
    {.file = "foreign", .issuer = "foreign_ca", .names = "DNS:localhost,IP:127.0.0.1"},
    {.file = "elsewhere", .issuer = "ca", .names = "DNS:elsewhere.test,IP:192.0.2.1"},
    {.file = "by_name", .issuer = "ca", .names = "DNS:localhost"},
    {.file = "by_text", .issuer = "ca", .names = "DNS:127.0.0.1"},
    {.file = "wildcard", .issuer = "ca", .names = "DNS:*.cache.test"},
    {.file = "partial", .issuer = "ca", .names = "DNS:red*.cache.test"},
    {.file = "expired", .issuer = "ca", .names = "DNS:localhost,IP:127.0.0.1", .expired = true},
    {.file = "self_signed", .names = "DNS:localhost,IP:127.0.0.1"},
    {.file = "expired_client", .issuer = "ca", .expired = true},
};

static const char *in_folder(const char *file)
{
    return certificate_path(folder, file);
}

static const char *url_with(const char *host, int port)
{
    return formatted("rediss://%s:%d", host, port);
}

static int setup_group(void **state)
{
    folder = certificates_folder();
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        certificate_make(folder, &others[i]);
    return 0;
}

/* The status of an opening with what the certificate files are called, and whether a lock works then. */
static dibs_status try_open(const char *host, int port, const dibs_config *config)
{
    dibs_runtime *rt;
    dibs_status status = open_status(url_with(host, port), config, &rt);

    if (status == DIBS_OK) {
        status = dibs_trylock(rt, "x");
        if (status == DIBS_OK)
            status = dibs_unlock(rt, "x");
    }
    dibs_close(rt);
    return status;
}

/* ---------------------------------------------------------- the server's side */

static const struct {
    const char *what, *certificate, *host, *ca, *server_name;
    const char *word; /* of the detail; NULL: the server is accepted */
} servers[] = {
    {"an address", "server", "127.0.0.1", "ca.crt", NULL, NULL},
    {"a host", "server", "localhost", "ca.crt", NULL, NULL},
    {"a host in capitals", "server", "LOCALHOST", "ca.crt", NULL, NULL},
    {"a host with a dot at its end", "server", "localhost.", "ca.crt", NULL, NULL},
    {"another host", "elsewhere", "localhost", "ca.crt", NULL, "name localhost: "},
    {"another address", "elsewhere", "127.0.0.1", "ca.crt", NULL, "name 127.0.0.1: "},
    {"another host, which is expected", "elsewhere", "127.0.0.1", "ca.crt", "elsewhere.test", NULL},
    {"another address, which is expected", "elsewhere", "localhost", "ca.crt", "192.0.2.1", NULL},
    {"this host, though another is expected", "server", "localhost", "ca.crt", "elsewhere.test", "elsewhere.test"},
    {"an address without a name for it", "by_name", "127.0.0.1", "ca.crt", NULL, "name 127.0.0.1: "},
    {"an address as if it were a host", "by_text", "127.0.0.1", "ca.crt", NULL, "name 127.0.0.1: "},
    {"an IPv6 address", "server", "[::1]", "ca.crt", NULL, NULL},
    {"another IPv6 address", "elsewhere", "[::1]", "ca.crt", NULL, "name ::1: "},
    {"one of many hosts", "wildcard", "redis.cache.test", "ca.crt", NULL, NULL},
    {"a host below those", "wildcard", "a.redis.cache.test", "ca.crt", NULL, "a.redis.cache.test"},
    {"a part of a name", "partial", "redis.cache.test", "ca.crt", NULL, "redis.cache.test"},
    {"a certificate that is too old", "expired", "localhost", "ca.crt", NULL, "expired"},
    {"a certificate of nobody", "self_signed", "localhost", "ca.crt", NULL, "self"},
    {"the same, trusted itself", "self_signed", "localhost", "self_signed.crt", NULL, NULL},
    {"a foreign authority", "foreign", "localhost", "ca.crt", NULL, "issuer"},
    {"that authority", "foreign", "localhost", "foreign_ca.crt", NULL, NULL},
    {"whom the system does not trust", "server", "localhost", NULL, NULL, "issuer"},
};

static bool server_is_judged_right(const server *backend, size_t i)
{
    tls_relay *relay = tls_relay_start(
        &(tls_relay_options){.backend = backend->socket_path, .folder = folder, .certificate = servers[i].certificate});
    dibs_config config = {.tls_ca_file = servers[i].ca ? in_folder(servers[i].ca) : NULL,
                          .tls_server_name = servers[i].server_name};
    dibs_status status = try_open(servers[i].host, tls_relay_port(relay), &config);
    bool right = status == (servers[i].word ? DIBS_DENIED : DIBS_OK) &&
                 (!servers[i].word || strstr(dibs_last_error(), servers[i].word));

    if (!right)
        print_error("%s: %s: %s\n", servers[i].what, dibs_status_name(status), dibs_last_error());
    tls_relay_stop(relay);
    return right;
}

TEST(a_server_must_prove_its_name)
{
    server *backend = server_start(NULL);
    bool right = true;

    for (size_t i = 0; i < sizeof servers / sizeof *servers; i++)
        right = server_is_judged_right(backend, i) && right;
    server_stop(backend);
    assert_true(right);
}

/* The name is not sent where it is an address: that is not allowed in a handshake. */
TEST(the_server_name_is_sent_in_the_handshake)
{
    static const struct {
        const char *host, *server_name, *sent;
    } cases[] = {
        {"localhost", NULL, "localhost"}, {"127.0.0.1", NULL, ""},           {"127.0.0.1", "localhost", "localhost"},
        {"localhost", "127.0.0.1", ""},   {"localhost.", NULL, "localhost"},
    };
    server *backend = test_server(server_start(NULL));

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        /* One for each: a connection that the runtime before has just begun may come later than its end. */
        tls_relay *relay = tls_relay_start(&(tls_relay_options){.backend = backend->socket_path, .folder = folder});
        dibs_config config = {.tls_ca_file = in_folder("ca.crt"), .tls_server_name = cases[i].server_name};
        assert_status(DIBS_OK, try_open(cases[i].host, tls_relay_port(relay), &config));
        assert_string_equal(tls_relay_name(relay), cases[i].sent);
        tls_relay_stop(relay);
    }
}

TEST(old_tls_versions_are_refused)
{
    static const struct {
        int most;
        dibs_status status;
    } cases[] = {{TLS1_3_VERSION, DIBS_OK}, {TLS1_2_VERSION, DIBS_OK}, {TLS1_1_VERSION, DIBS_DENIED}};
    server *backend = test_server(server_start(NULL));

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tls_relay *relay = tls_relay_start(
            &(tls_relay_options){.backend = backend->socket_path, .folder = folder, .most = cases[i].most});
        assert_status(cases[i].status,
                      try_open("localhost", tls_relay_port(relay), &(dibs_config){.tls_ca_file = in_folder("ca.crt")}));
        tls_relay_stop(relay);
    }
}

/* ---------------------------------------------------------- the client's side */

TEST(a_server_may_demand_a_client_certificate)
{
    static const struct {
        const char *certificate, *key;
        dibs_status status;
    } clients[] = {
        {"client.crt", "client.key", DIBS_OK},
        {NULL, NULL, DIBS_DENIED},
        {"foreign.crt", "foreign.key", DIBS_DENIED},
        {"expired_client.crt", "expired_client.key", DIBS_DENIED},
    };
    static const char *const versions[] = {"TLSv1.3", "TLSv1.2"};
    bool right = true;

    for (size_t v = 0; v < 2; v++) {
        const char *lines = formatted("tls-auth-clients yes\ntls-protocols \"%s\"", versions[v]);
        server *s = server_start(&(server_options){.tls = folder, .config = lines});
        for (size_t i = 0; i < sizeof clients / sizeof *clients; i++) {
            dibs_config config = {.tls_ca_file = in_folder("ca.crt"),
                                  .tls_cert_file = clients[i].certificate ? in_folder(clients[i].certificate) : NULL,
                                  .tls_key_file = clients[i].key ? in_folder(clients[i].key) : NULL};
            dibs_status status = try_open("127.0.0.1", s->port, &config);
            if (status != clients[i].status)
                print_error("%s, %s: %s: %s\n", versions[v], clients[i].certificate, dibs_status_name(status),
                            dibs_last_error());
            right = right && status == clients[i].status;
        }
        server_stop(s);
    }
    assert_true(right);
}

/* ------------------------------------------------------------------ the files */

static void write_file(const char *name, const char *text)
{
    FILE *file = fopen(in_folder(name), "we");

    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void copy_without_end(const char *from, const char *to)
{
    char text[4096];
    FILE *file = fopen(in_folder(from), "re");

    assert_non_null(file);
    size_t size = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[size * 2 / 3] = '\0';
    write_file(to, text);
}

static const struct {
    const char *ca, *certificate, *key;
    const char *field, *file, *reason; /* words of the detail */
} files[] = {
    {"none.crt", NULL, NULL, "tls_ca_file", "none.crt", "No such file"},
    {".", NULL, NULL, "tls_ca_file", "/.", ""},
    {"empty", NULL, NULL, "tls_ca_file", "empty", ""},
    {"garbage", NULL, NULL, "tls_ca_file", "garbage", ""},
    {"half.crt", NULL, NULL, "tls_ca_file", "half.crt", ""},
    {"ca.key", NULL, NULL, "tls_ca_file", "ca.key", ""},
    {"ca.crt", "none.crt", "client.key", "tls_cert_file", "none.crt", "No such file"},
    {"ca.crt", "garbage", "client.key", "tls_cert_file", "garbage", ""},
    {"ca.crt", "half.crt", "client.key", "tls_cert_file", "half.crt", ""},
    {"ca.crt", "client.crt", "none.key", "tls_key_file", "none.key", "No such file"},
    {"ca.crt", "client.crt", "garbage", "tls_key_file", "garbage", ""},
    {"ca.crt", "client.crt", "client.crt", "tls_key_file", "client.crt", ""},
    {"ca.crt", "client.crt", "server.key", "tls_key_file", "server.key", "does not fit tls_cert_file"},
    {"ca.crt", "client.crt", "locked.key", "tls_key_file", "locked.key", ""},
};

/* A key with a password can't be used: dibs has no way to ask for one. */
static void write_locked_key(void)
{
    write_file("locked.key", "-----BEGIN ENCRYPTED PRIVATE KEY-----\n"
                             "MIHsMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAhgcRoqpVVAugICCAAw\n"
                             "DAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEEHB3WT8RRKOVu9ZfYPTTPJ4EgZCV\n"
                             "-----END ENCRYPTED PRIVATE KEY-----\n");
}

TEST(useless_certificate_files_are_named)
{
    bool right = true;

    write_file("empty", "");
    write_file("garbage", "-----BEGIN CERTIFICATE-----\nnot at all\n-----END CERTIFICATE-----\n");
    copy_without_end("client.crt", "half.crt");
    write_locked_key();
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        dibs_config config = {.tls_ca_file = in_folder(files[i].ca),
                              .tls_cert_file = files[i].certificate ? in_folder(files[i].certificate) : NULL,
                              .tls_key_file = files[i].key ? in_folder(files[i].key) : NULL};
        dibs_runtime *rt;
        dibs_status status = open_status("rediss://127.0.0.1:1", &config, &rt);
        const char *detail = dibs_last_error();
        if (status == DIBS_INVALID && strstr(detail, files[i].field) && strstr(detail, files[i].file) &&
            strstr(detail, files[i].reason) && !strstr(detail, "unknown"))
            continue;
        print_error("row %zu: %s: %s\n", i, dibs_status_name(status), detail);
        right = false;
    }
    assert_true(right);
}

/* The system's certificates count where no file is configured. */
TEST(the_systems_certificates_are_the_default)
{
    server *s = test_server(server_start(&(server_options){.tls = folder}));

    assert_status(DIBS_DENIED, try_open("127.0.0.1", s->port, NULL));
    setenv("SSL_CERT_FILE", in_folder("ca.crt"), 1);
    assert_status(DIBS_OK, try_open("127.0.0.1", s->port, NULL));
    assert_status(DIBS_DENIED,
                  try_open("127.0.0.1", s->port, &(dibs_config){.tls_ca_file = in_folder("foreign_ca.crt")}));
    unsetenv("SSL_CERT_FILE");
}

int main(void)
{
    unsetenv("DIBS_TEST_TLS");
    unsetenv("SSL_CERT_FILE");
    return test_run_all(NULL, NULL, setup_group, NULL);
}

#else

TEST(certificate_files_need_a_tls_url)
{
    static const dibs_config config = {.tls_ca_file = "ca.crt"};

    expect_not_opened(DIBS_INVALID, "mem:", &config, "tls_ca_file");
    expect_not_opened(DIBS_INVALID, "rediss://h", &config, "built without TLS");
}

TESTS(NULL, NULL)

#endif
