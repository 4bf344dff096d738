#include "support/tls_relay.h"

#ifdef DIBS_WITH_TLS

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "support/certificates.h"
#include "support/test.h"

enum { CONNECTIONS = 256 };

struct connection {
    tls_relay *relay;
    pthread_t thread;
    int client; /* -1 once closed; under the relay's mutex */
};

struct tls_relay {
    tls_relay_options options;
    SSL_CTX *context;
    int listener, port;
    pthread_t thread;
    atomic_uint new_keys;
    pthread_mutex_t mutex; /* guards name, shown, connections and their `client`, count */
    char name[256], shown[256];
    struct connection connections[CONNECTIONS];
    size_t count;
};

/* ------------------------------------------------------------------ sockets */

static int listen_on_loopback(int *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(fd, 64), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    *port = ntohs(address.sin_port);
    return fd;
}

static void send_at_once(int fd)
{
    int on = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/* -1: the server is not there. */
static int connect_backend(const tls_relay_options *options)
{
    struct sockaddr_un path = {.sun_family = AF_UNIX};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr *name = options->backend ? (struct sockaddr *)&path : (struct sockaddr *)&address;
    int fd = socket(name->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    address.sin_port = htons((uint16_t)options->backend_port);
    snprintf(path.sun_path, sizeof path.sun_path, "%s", options->backend ? options->backend : "");
    if (fd < 0 || connect(fd, name, options->backend ? sizeof path : sizeof address) == 0)
        return fd;
    close(fd);
    return -1;
}

/* ------------------------------------------------------------ one connection */

static bool write_all(int fd, const char *bytes, size_t size)
{
    while (size > 0) {
        ssize_t sent = send(fd, bytes, size, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        bytes += sent;
        size -= (size_t)sent;
    }
    return true;
}

/* Passes on one piece. */
static bool pass_on(int from, int to, size_t most)
{
    char bytes[16384];
    ssize_t count = recv(from, bytes, most > 0 && most < sizeof bytes ? most : sizeof bytes, 0);

    if (count <= 0 || !write_all(to, bytes, (size_t)count))
        return false;
    if (most > 0)
        usleep(50);
    return true;
}

static bool decrypt(SSL *ssl, int to)
{
    char bytes[16384];

    do {
        int count = SSL_read(ssl, bytes, sizeof bytes);
        if (count <= 0 || !write_all(to, bytes, (size_t)count))
            return false;
    } while (SSL_pending(ssl) > 0);
    return true;
}

static bool encrypt(int from, SSL *ssl, unsigned every, unsigned *replies)
{
    char bytes[16384];
    ssize_t count = recv(from, bytes, sizeof bytes, 0);

    if (count <= 0 || SSL_write(ssl, bytes, (int)count) != (int)count)
        return false;
    if (every > 0 && ++*replies % every == 0)
        SSL_key_update(ssl, SSL_KEY_UPDATE_REQUESTED); /* goes before the next reply */
    return true;
}

static void serve(const tls_relay *relay, SSL *ssl, int client, int backend)
{
    const tls_relay_options *options = &relay->options;
    unsigned replies = 0;
    bool good = true;

    while (good) {
        struct pollfd fds[] = {{.fd = client, .events = POLLIN}, {.fd = backend, .events = POLLIN}};
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            return;
        if (fds[0].revents)
            good = ssl ? decrypt(ssl, backend) : pass_on(client, backend, options->piece);
        if (good && fds[1].revents)
            good = ssl ? encrypt(backend, ssl, options->new_keys_every, &replies)
                       : pass_on(backend, client, options->piece);
    }
}

static void count_new_keys(int outgoing, int version, int type, const void *bytes, size_t size, SSL *ssl, void *relay)
{
    if (!outgoing && type == SSL3_RT_HANDSHAKE && size > 0 && *(const unsigned char *)bytes == SSL3_MT_KEY_UPDATE)
        atomic_fetch_add(&((tls_relay *)relay)->new_keys, 1);
}

static int note_name(SSL *ssl, int *alert, void *arg)
{
    tls_relay *relay = arg;
    const char *name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);

    pthread_mutex_lock(&relay->mutex);
    snprintf(relay->name, sizeof relay->name, "%s", name ? name : "");
    pthread_mutex_unlock(&relay->mutex);
    return SSL_TLSEXT_ERR_OK;
}

static void *run_connection(void *arg)
{
    struct connection *connection = arg;
    tls_relay *relay = connection->relay;
    int client = connection->client, backend = connect_backend(&relay->options);
    SSL *ssl = relay->context ? SSL_new(relay->context) : NULL;

    send_at_once(client);
    if (ssl)
        SSL_set_fd(ssl, client);
    if (backend >= 0 && (!ssl || SSL_accept(ssl) == 1))
        serve(relay, ssl, client, backend);
    SSL_free(ssl);
    ERR_clear_error();
    if (backend >= 0)
        close(backend);
    pthread_mutex_lock(&relay->mutex);
    close(client);
    connection->client = -1;
    pthread_mutex_unlock(&relay->mutex);
    return NULL;
}

/* ------------------------------------------------------------------ the relay */

static void *accept_all(void *arg)
{
    tls_relay *relay = arg;
    bool silent = !relay->options.backend && !relay->options.backend_port;
    int client;

    while ((client = accept4(relay->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        pthread_mutex_lock(&relay->mutex);
        if (relay->count == CONNECTIONS)
            abort();
        struct connection *connection = &relay->connections[relay->count++];
        *connection = (struct connection){.relay = relay, .client = client};
        if (!silent && pthread_create(&connection->thread, NULL, run_connection, connection) != 0)
            abort();
        pthread_mutex_unlock(&relay->mutex);
    }
    return NULL;
}

static SSL_CTX *new_context(tls_relay *relay)
{
    const tls_relay_options *options = &relay->options;
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    char file[64];

    assert_non_null(context);
    snprintf(file, sizeof file, "%s.crt", options->certificate ? options->certificate : "server");
    assert_int_equal(SSL_CTX_use_certificate_chain_file(context, certificate_path(options->folder, file)), 1);
    memcpy(strrchr(file, '.'), ".key", 5);
    assert_int_equal(SSL_CTX_use_PrivateKey_file(context, certificate_path(options->folder, file), SSL_FILETYPE_PEM),
                     1);
    if (options->most && options->most < TLS1_2_VERSION) {
        SSL_CTX_set_security_level(context, 0);
        SSL_CTX_set_min_proto_version(context, options->most);
    }
    SSL_CTX_set_max_proto_version(context, options->most);
    SSL_CTX_set_tlsext_servername_callback(context, note_name);
    SSL_CTX_set_tlsext_servername_arg(context, relay);
    SSL_CTX_set_msg_callback(context, count_new_keys);
    SSL_CTX_set_msg_callback_arg(context, relay);
    return context;
}

/* OpenSSL writes with write(2): the threads of the relay, unlike the library's, must not be sent SIGPIPE. */
static void start_without_sigpipe(tls_relay *relay)
{
    sigset_t pipe, before;

    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, &before);
    assert_int_equal(pthread_create(&relay->thread, NULL, accept_all, relay), 0);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

tls_relay *tls_relay_start(const tls_relay_options *options)
{
    tls_relay *relay = calloc(1, sizeof *relay);

    assert_non_null(relay);
    relay->options = *options;
    strcpy(relay->name, "?");
    pthread_mutex_init(&relay->mutex, NULL);
    relay->context = options->backend ? new_context(relay) : NULL;
    relay->listener = listen_on_loopback(&relay->port);
    start_without_sigpipe(relay);
    return relay;
}

void tls_relay_cut(tls_relay *relay)
{
    pthread_mutex_lock(&relay->mutex);
    for (size_t i = 0; i < relay->count; i++)
        if (relay->connections[i].client >= 0)
            shutdown(relay->connections[i].client, SHUT_RDWR);
    pthread_mutex_unlock(&relay->mutex);
}

void tls_relay_stop(tls_relay *relay)
{
    shutdown(relay->listener, SHUT_RDWR);
    pthread_join(relay->thread, NULL);
    close(relay->listener);
    tls_relay_cut(relay);
    for (size_t i = 0; i < relay->count; i++) {
        if (relay->connections[i].thread)
            pthread_join(relay->connections[i].thread, NULL);
        else
            close(relay->connections[i].client);
    }
    SSL_CTX_free(relay->context);
    pthread_mutex_destroy(&relay->mutex);
    free(relay);
}

int tls_relay_port(const tls_relay *relay)
{
    return relay->port;
}

const char *tls_relay_name(tls_relay *relay)
{
    pthread_mutex_lock(&relay->mutex);
    memcpy(relay->shown, relay->name, sizeof relay->shown);
    pthread_mutex_unlock(&relay->mutex);
    return relay->shown;
}

unsigned tls_relay_new_keys(tls_relay *relay)
{
    return atomic_load(&relay->new_keys);
}

#endif
