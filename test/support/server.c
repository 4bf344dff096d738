/* A real Redis (or Valkey) server of a test's own. */
#include "support/server.h"

#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/certificates.h"
#include "support/common/redis_connect.h"
#include "support/common/redis_process.h"
#include "support/document.h"
#include "support/test.h"

enum { PORT_TRIES = 20, DATABASES = 16, LEFT_MS = 2000 };

/* ---------------------------------------------------------------- its life */

static const char *copy_text(const char *text)
{
    return text ? formatted("%s", text) : NULL;
}

static bool has_ended(server *s)
{
    if (waitpid(s->pid, NULL, WNOHANG) != s->pid)
        return false;
    s->pid = 0;
    return true;
}

static redisContext *connect_admin(const server *s)
{
    struct timeval timeout = {.tv_sec = LIMIT_MS / 1000};
    redisContext *context = redisConnectUnixWithTimeout(s->socket_path, timeout);
    redisReply *reply = NULL;

    if (!context || context->err)
        goto failed;
    redisSetTimeout(context, timeout);
    if (s->options.password && !(reply = redisCommand(context, "AUTH %s", s->options.password)))
        goto failed;
    if (reply)
        freeReplyObject(reply);
    return context;
failed:
    if (context)
        redisFree(context);
    return NULL;
}

static bool answers(server *s)
{
    bool ready = false;

    if (has_ended(s))
        return true;
    if (!s->admin && !(s->admin = connect_admin(s)))
        return false;
    redisReply *reply = redisCommand(s->admin, "PING");
    ready = reply && (reply->type == REDIS_REPLY_STATUS || strncmp(reply->str, "ERR unknown command", 19) == 0);
    if (reply)
        freeReplyObject(reply);
    if (!ready) {
        redisFree(s->admin);
        s->admin = NULL;
    }
    return ready;
}

/* The name and password of the account with the rights of $DIBS_TEST_ACL, as in a URL. */
static const char *credentials(const server *s)
{
    return getenv("DIBS_TEST_ACL") && !s->options.password && !s->options.sentinel ? "locks:pw@" : "";
}

static const char *account_of(const server *s)
{
    if (!*credentials(s))
        return "";
    return formatted("user locks on >pw resetchannels %s\n",
                     document_block("doc/ACCOUNTS.md", getenv("DIBS_TEST_ACL"), "ACL SETUSER locks on >PASSWORD"));
}

/* False: the server ended by itself, as it does where another program took the port. */
static bool launch(server *s)
{
    const char *certificate = s->options.certificate ? s->options.certificate : "server", *tls = "";

    if (s->options.tls)
        tls = formatted("port 0\ntls-port %d\ntls-auth-clients no\ntls-ca-cert-file %s/ca.crt\n"
                        "tls-cert-file %s/%s.crt\ntls-key-file %s/%s.key\n",
                        s->port, s->options.tls, s->options.tls, certificate, s->options.tls, certificate);
    const char *config =
        formatted("port %d\nbind 127.0.0.1\ndatabases %d\n%s%s\n%s%s%s\n", s->port, DATABASES,
                  s->options.password ? "requirepass " : "", s->options.password ? s->options.password : "", tls,
                  account_of(s), s->options.config ? s->options.config : "");
    if (s->options.preload)
        setenv("LD_PRELOAD", s->options.preload, 1);
    s->pid = (s->options.sentinel ? redis_launch_sentinel : redis_launch)(s->folder, config);
    if (s->options.preload)
        unsetenv("LD_PRELOAD");
    assert_true(s->pid > 0);
    if (!within(LIMIT_MS, answers(s))) {
        redis_show_log(s->folder);
        server_kill(s);
        fail_msg("%s", "the server does not answer");
    }
    return s->pid != 0;
}

/* Another program may take a port first. */
static void start_on_free_port(server *s)
{
    for (int i = 0; i < PORT_TRIES; i++) {
        s->port = free_port();
        assert_true(s->port > 0);
        s->url = formatted("%s://%s127.0.0.1:%d", s->options.tls ? "rediss" : "redis", credentials(s), s->port);
        if (launch(s))
            return;
    }
    redis_show_log(s->folder);
    fail_msg("%s", "the server does not start");
}

static void use_tls_everywhere(server *s)
{
#ifdef DIBS_WITH_TLS
    if (!getenv("DIBS_TEST_TLS") || s->options.tls)
        return;
    s->options.tls = copy_text(certificates_folder());
    setenv("SSL_CERT_FILE", certificate_path(s->options.tls, "ca.crt"), 1);
#endif
}

server *server_start(const server_options *options)
{
    server *s = calloc(1, sizeof *s);

    assert_true(s != NULL);
    assert_true(temporary_folder(s->folder, sizeof s->folder));
    snprintf(s->socket_path, sizeof s->socket_path, "%s/redis.sock", s->folder);
    if (options) {
        s->options = *options;
        s->options.config = copy_text(options->config);
        s->options.preload = copy_text(options->preload);
        s->options.password = copy_text(options->password);
        s->options.tls = copy_text(options->tls);
        s->options.certificate = copy_text(options->certificate);
    }
    s->url = formatted("unix://%s%s", credentials(s), s->socket_path);
    use_tls_everywhere(s);
    if (s->options.tcp || s->options.tls) {
        start_on_free_port(s);
    } else if (!launch(s)) {
        redis_show_log(s->folder);
        fail_msg("%s", "the server does not start");
    }
    return s;
}

static void drop_admin(server *s)
{
    if (s->admin)
        redisFree(s->admin);
    s->admin = NULL;
}

static void end(server *s, int signal, int64_t limit_ms)
{
    drop_admin(s);
    if (s->pid == 0)
        return;
    if (s->paused && signal != SIGKILL) /* SIGKILL ends a paused server as well, before it can do anything more */
        kill(s->pid, SIGCONT);
    s->paused = false;
    kill(s->pid, signal);
    if (within(limit_ms, has_ended(s)))
        return;
    kill(s->pid, SIGKILL);
    waitpid(s->pid, NULL, 0);
    s->pid = 0;
}

void server_kill(server *s)
{
    end(s, SIGKILL, LIMIT_MS);
}

void server_restart(server *s)
{
    assert_int_equal(s->pid, 0);
    assert_that(launch(s), "the server does not start again");
}

void server_certify(server *s, const char *certificate)
{
    server_kill(s);
    s->options.certificate = copy_text(certificate);
    server_restart(s);
}

void server_pause(server *s)
{
    int status = 0;

    assert_int_equal(kill(s->pid, SIGSTOP), 0);
    assert_int_equal(waitpid(s->pid, &status, WUNTRACED), s->pid);
    assert_true(WIFSTOPPED(status));
    s->paused = true;
}

void server_resume(server *s)
{
    assert_int_equal(kill(s->pid, SIGCONT), 0);
    s->paused = false;
}

void server_stop(server *s)
{
    if (!s)
        return;
    end(s, SIGTERM, 10000);
    remove_folder(s->folder);
    free(s);
}

static void stop(void *s)
{
    server_stop(s);
}

server *test_server(server *s)
{
    test_ends(TEST_SERVER, s, stop);
    return s;
}

/* ---------------------------------------------------------------- commands */

/* A server that becomes a replica on a sentinel's word ends all connections. */
static void drop_what_was_closed(server *s)
{
    char byte;

    if (s->admin && recv(s->admin->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
        drop_admin(s);
}

static redisReply *send_once(server *s, const char *format, va_list arguments)
{
    drop_what_was_closed(s);
    if (!s->admin)
        s->admin = connect_admin(s);
    assert_that(s->admin != NULL, "no connection to the server");
    return redis_vtry(s->admin, format, arguments);
}

/* The server may do so in between. A command that it had not read by then was not executed, and is sent once more. */
static bool was_not_read(const server *s)
{
    return s->admin->err == REDIS_ERR_IO && (errno == ECONNRESET || errno == EPIPE);
}

static redisReply *send_format(server *s, const char *format, va_list arguments)
{
    va_list again;

    va_copy(again, arguments);
    redisReply *reply = send_once(s, format, arguments);
    if (!reply && was_not_read(s)) {
        drop_admin(s);
        reply = send_once(s, format, again);
    }
    va_end(again);
    if (!reply) {
        print_error("%s: %s\n", format, s->admin->errstr);
        drop_admin(s);
        fail_msg("%s", "the server does not answer a command of the test");
    }
    return reply;
}

static redisReply *send_strict(server *s, const char *format, va_list arguments)
{
    redisReply *reply = send_format(s, format, arguments);

    if (reply->type == REDIS_REPLY_ERROR) {
        print_error("%s: %s\n", format, reply->str);
        freeReplyObject(reply);
        fail_msg("%s", "the server refuses a command of the test");
    }
    return reply;
}

redisReply *server_try(server *s, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    redisReply *reply = send_format(s, format, arguments);
    va_end(arguments);
    return reply;
}

redisReply *server_command(server *s, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    redisReply *reply = send_strict(s, format, arguments);
    va_end(arguments);
    return reply;
}

void server_do(server *s, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    freeReplyObject(send_strict(s, format, arguments));
    va_end(arguments);
}

const char *server_account(server *s, const char *user, const char *rights)
{
    server_do(s, formatted("ACL SETUSER %s reset on >pw %s", user, rights));
    return formatted("unix://%s:pw@%s", user, s->socket_path);
}

long long server_integer(server *s, const char *format, ...)
{
    va_list arguments;
    long long value;

    va_start(arguments, format);
    redisReply *reply = send_strict(s, format, arguments);
    va_end(arguments);
    assert_int_equal(reply->type, REDIS_REPLY_INTEGER);
    value = reply->integer;
    freeReplyObject(reply);
    return value;
}

bool server_string(server *s, char *out, size_t size, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    redisReply *reply = send_strict(s, format, arguments);
    va_end(arguments);
    bool found = reply->str != NULL;
    snprintf(out, size, "%s", found ? reply->str : "");
    freeReplyObject(reply);
    return found;
}

char *server_text(server *s, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    redisReply *reply = send_strict(s, format, arguments);
    va_end(arguments);
    assert_that(reply->str != NULL, "%s: there is no string", format);
    char *text = formatted("%s", reply->str);
    freeReplyObject(reply);
    return text;
}

bool server_has(server *s, const char *key)
{
    return server_integer(s, "EXISTS %s", key) == 1;
}

bool server_wait_gone(server *s, const char *key, int64_t limit_ms)
{
    return within(limit_ms, !server_has(s, key));
}

long long server_calls(server *s, const char *command)
{
    redisReply *reply = server_command(s, "INFO commandstats");
    const char *field = formatted("\ncmdstat_%s:calls=", command), *found = strstr(reply->str, field);
    long long calls = 0;

    if (found)
        calls = atoll(found + strlen(field));
    freeReplyObject(reply);
    return calls;
}

long long server_clients(server *s)
{
    redisReply *reply = server_command(s, "CLIENT LIST TYPE normal");
    long long count = 0;

    for (const char *at = reply->str; (at = strstr(at, " name=dibs:")); at++)
        count++;
    freeReplyObject(reply);
    return count;
}

long long server_asks(server *s)
{
    return server_calls(s, "evalsha") + server_calls(s, "eval") + server_calls(s, "fcall");
}

void server_await_ask(server *s, long long before)
{
    await_or_say(server_asks(s) > before, "nobody asks the store");
}

#define RESTS_MS 1000

struct rest {
    server *server;
    long long asks;
    int64_t since;
};

static bool nobody_asks(struct rest *rest)
{
    long long asks = server_asks(rest->server);

    if (asks != rest->asks)
        *rest = (struct rest){rest->server, asks, now_ms()};
    return now_ms() - rest->since >= RESTS_MS;
}

void server_await_rest(server *s)
{
    struct rest rest = {.server = s, .asks = -1};

    await_or_say(nobody_asks(&rest), "clients go on asking");
}

/* ------------------------------------------------------------------ clean? */

/* A key that no longer exists (-2) was not left behind. */
static bool check_expiry(server *s, int database, const redisReply *key)
{
    long long left = server_integer(s, "PTTL %b", key->str, key->len);

    if (left != -1)
        return true;
    print_error("database %d: %s never expires\n", database, key->str);
    return false;
}

/*
 * A slow server may not have executed the client's last commands yet. The end of the lease does not count as a release.
 */
static bool check_lock(server *s, int database, const redisReply *key)
{
    int64_t wait_ms = server_integer(s, "PTTL %b", key->str, key->len) / 2;

    if (within(wait_ms < LEFT_MS ? wait_ms : LEFT_MS, server_integer(s, "EXISTS %b", key->str, key->len) == 0))
        return true;
    print_error("database %d: %s is left\n", database, key->str);
    return false;
}

static bool check_database(server *s, int database, bool locks_too)
{
    bool clean = true;

    server_do(s, "SELECT %d", database);
    redisReply *keys = server_command(s, "KEYS *");
    for (size_t i = 0; i < keys->elements; i++) {
        clean = check_expiry(s, database, keys->element[i]) && clean;
        if (locks_too && strncmp(keys->element[i]->str, "lock:", 5) == 0)
            clean = check_lock(s, database, keys->element[i]) && clean;
    }
    freeReplyObject(keys);
    return clean;
}

static void check_all(server *s, bool locks_too)
{
    const char *config = s->options.config ? s->options.config : "";
    int databases = strstr(config, "cluster-enabled yes") ? 1 : DATABASES;
    bool clean = true;

    if (s->pid == 0)
        return;
    if (s->paused)
        server_resume(s);
    for (int database = 0; database < databases; database++)
        clean = check_database(s, database, locks_too) && clean;
    server_do(s, "SELECT 0");
    assert_that(clean, "something is left in the server");
}

void server_assert_clean(server *s)
{
    check_all(s, false);
}

void server_assert_no_locks(server *s)
{
    check_all(s, true);
}

const char *server_value(server *s, const char *key)
{
    redisReply *reply = server_command(s, "GET %s", key);
    const char *value = reply->str ? formatted("%s", reply->str) : "";

    freeReplyObject(reply);
    return value;
}

void server_await_value(server *s, const char *key, const char *value)
{
    await_or_say(strcmp(server_value(s, key), value) == 0, "%s is \"%s\", not \"%s\"", key, server_value(s, key),
                 value);
}

void server_set_memory_out(server *s, bool out)
{
    server_do(s, "CONFIG SET maxmemory-policy noeviction");
    server_do(s, "CONFIG SET maxmemory %d", out ? 1 : 0);
}

static bool is_served(server *node)
{
    char info[1024];

    return server_string(node, info, sizeof info, "CLUSTER INFO") && strstr(info, "cluster_state:ok");
}

void server_await_cluster(server *s)
{
    await_or_say(is_served(s), "the cluster is down");
}
