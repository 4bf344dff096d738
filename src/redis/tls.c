/*
 * Lock discipline: the mutex of a connection, which some other connections share (tls_context.c), guards all that
 * changes in the connection once it is connected, and is held while OpenSSL works for it.
 */
#include "redis/tls.h"

#ifdef DIBS_WITH_TLS

#include <hiredis/hiredis.h>
#include <hiredis/hiredis_ssl.h>
#include <openssl/err.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/once.h"
#include "redis/socket.h"
#include "redis/tls_parts.h"

#define IN_MAX 16640 /* a record of the usual size, with what is needed to decrypt it */

/* The bytes between OpenSSL and a socket. Guarded by the connection's mutex. */
struct wire {
    struct dibs__transport *socket;
    struct dibs__error broken; /* how the socket broke, if it did; OpenSSL does not tell */
    size_t used;               /* number of bytes in `in` */
    size_t given;              /* number of those bytes that OpenSSL has taken */
    char in[IN_MAX];
};

struct encrypted {
    struct dibs__transport base;
    struct dibs__endpoint *endpoint; /* read-only after open */
    struct dibs__transport *below;   /* read-only after open; a plain socket */
    struct dibs__mutex *mutex;       /* read-only after open */
    char name[DIBS__HOST_MAX];       /* read-only after open; the name that the server must prove */
    redisContext *context DIBS__GUARDED_BY(dibs__tls_mutex); /* owns the SSL object once hiredis has begun with it */
    SSL *ssl DIBS__GUARDED_BY(dibs__tls_mutex);              /* NULL: the handshake has not begun */
    short to_receive DIBS__GUARDED_BY(dibs__tls_mutex); /* to poll for to receive, or to go on with the handshake */
    short to_send DIBS__GUARDED_BY(dibs__tls_mutex);    /* to poll for in order to send */
    bool has_talked DIBS__GUARDED_BY(dibs__tls_mutex);  /* something was received since the handshake */
    struct wire wire DIBS__GUARDED_BY(dibs__tls_mutex); /* the bytes between OpenSSL and the socket below */
    struct encrypted *next; /* in the list of those that are kept; used by the thread that keeps it */
};

_Static_assert(offsetof(struct encrypted, base) == 0, "a transport is the first member of its own struct");

static struct encrypted *encrypted_of(struct dibs__transport *transport)
{
    return (struct encrypted *)(void *)transport;
}

static struct dibs__socket *socket_of(const struct encrypted *tls)
{
    return (struct dibs__socket *)(void *)tls->below;
}

/* -------------------------------------------------------------- the bytes below */

/*
 * OpenSSL reads and writes by the functions of the socket transport, so that no SIGPIPE is raised. Received bytes are
 * kept, and OpenSSL takes the records from there one by one.
 */

static BIO_METHOD *method;       /* read-only once made */
static struct dibs__once making; /* guards itself; runs make_method */

/* Translates a result for OpenSSL: -1 is final, unless a flag says that the call must be made again. */
static int bio_result(BIO *bio, long count, int again)
{
    if (count == 0)
        BIO_set_flags(bio, again | BIO_FLAGS_SHOULD_RETRY);
    return count > 0 ? (int)count : -1;
}

static int write_bytes(BIO *bio, const char *bytes, int size)
{
    struct wire *wire = BIO_get_data(bio);

    BIO_clear_retry_flags(bio);
    return bio_result(bio, wire->socket->ops->send(wire->socket, bytes, (size_t)size, &wire->broken), BIO_FLAGS_WRITE);
}

static int read_bytes(BIO *bio, char *bytes, int size)
{
    struct wire *wire = BIO_get_data(bio);

    BIO_clear_retry_flags(bio);
    if (wire->given == wire->used) {
        long received = wire->socket->ops->receive(wire->socket, wire->in, sizeof wire->in, &wire->broken);
        if (received <= 0)
            return bio_result(bio, received, BIO_FLAGS_READ);
        wire->used = (size_t)received;
        wire->given = 0;
    }
    size_t count = wire->used - wire->given;
    if (count > (size_t)size)
        count = (size_t)size;
    memcpy(bytes, wire->in + wire->given, count);
    wire->given += count;
    return (int)count;
}

static long control(BIO *bio, int command, long number, void *pointer)
{
    (void)bio;
    (void)number;
    (void)pointer;
    return command == BIO_CTRL_FLUSH; /* there is nothing to flush */
}

static bool make_method(void)
{
    int type = BIO_get_new_index();

    method = type > 0 ? BIO_meth_new(type | BIO_TYPE_SOURCE_SINK, "dibs") : NULL;
    return method && BIO_meth_set_write(method, write_bytes) == 1 && BIO_meth_set_read(method, read_bytes) == 1 &&
           BIO_meth_set_ctrl(method, control) == 1;
}

/* Makes a BIO for an SSL object. The wire must outlive it. NULL: no memory. */
static BIO *new_bio(struct wire *wire) DIBS__REQUIRES(dibs__tls_mutex)
{
    BIO *bio = dibs__once(&making, make_method) ? BIO_new(method) : NULL;

    if (bio) {
        BIO_set_data(bio, wire);
        BIO_set_init(bio, 1);
    }
    return bio;
}

/* --------------------------------------------------------------- connecting */

/*
 * hiredis has just given the SSL object a socket, to which OpenSSL would write by write(2). This runs before the first
 * message is sent, and gives the SSL object our BIO instead.
 */
static void on_handshake(const SSL *ssl, int where, int result)
{
    BIO *bio = SSL_get_app_data(ssl);

    (void)result;
    if (where == SSL_CB_HANDSHAKE_START && SSL_get_rbio(ssl) != bio) {
        BIO_up_ref(bio);
        SSL_set_bio((SSL *)(uintptr_t)ssl, bio, bio);
    }
}

/* Frees the TLS part of the connection, without telling the server. */
static void drop(struct encrypted *tls) DIBS__REQUIRES(dibs__tls_mutex)
{
    if (tls->context && !tls->context->privctx)
        SSL_free(tls->ssl);
    if (tls->context)
        redisFreeKeepFd(tls->context);
    tls->context = NULL;
    tls->ssl = NULL;
    tls->wire.used = tls->wire.given = 0;
    tls->wire.broken.status = DIBS_OK;
}

static dibs_status no_memory(struct dibs__error *error)
{
    return dibs__error_set(error, DIBS_NO_MEMORY, "no memory for a connection");
}

/* The alert with which the server ended the connection; 0: there was none. */
static int alert(void)
{
    unsigned long code = ERR_peek_error();
    int reason = ERR_GET_REASON(code) - SSL_AD_REASON_OFFSET;

    return ERR_GET_LIB(code) == ERR_LIB_SSL && reason > 0 && reason <= 255 ? reason : 0;
}

/*
 * Fills the error with why the last call on the SSL object failed. An alert refuses what this side offered. With
 * TLS 1.3, a server that refuses the client's certificate says so only after the handshake is over on this side.
 */
static dibs_status failed(const struct encrypted *tls, struct dibs__error *error) DIBS__REQUIRES(dibs__tls_mutex)
{
    const char *shown = tls->endpoint->url.shown;
    long verdict = SSL_get_verify_result(tls->ssl);
    int told = alert();
    bool is_other_name = verdict == X509_V_ERR_HOSTNAME_MISMATCH || verdict == X509_V_ERR_IP_ADDRESS_MISMATCH;

    if (verdict == X509_V_OK && tls->wire.broken.status != DIBS_OK) {
        *error = tls->wire.broken;
        ERR_clear_error();
        return error->status;
    }
    if (verdict != X509_V_OK)
        dibs__error_set(error, DIBS_DENIED, "the certificate of %s is not accepted%s%s: %s", shown,
                        is_other_name ? " for the name " : "", is_other_name ? tls->name : "",
                        X509_verify_cert_error_string(verdict));
    else if (tls->has_talked || told == SSL_AD_INTERNAL_ERROR)
        dibs__error_set(error, DIBS_UNAVAILABLE, "the connection to %s broke: TLS: %s", shown, dibs__tls_reason());
    else if (told)
        dibs__error_set(error, DIBS_DENIED, "%s refuses the TLS connection: %s", shown, dibs__tls_reason());
    else
        dibs__error_set(error, DIBS_STORE_ERROR, "%s does not speak TLS as is needed: %s", shown, dibs__tls_reason());
    if (dibs__tls_lacked_memory() ||
        verdict == X509_V_ERR_OUT_OF_MEM) /* which may look like a certificate that nobody signed */
        dibs__error_set(error, DIBS_NO_MEMORY, "no memory for a connection to %s", shown);
    return error->status;
}

/* Makes all parts of a connection. False: no memory; `drop` frees the parts that were made. */
static bool make_parts(struct encrypted *tls, BIO *bio) DIBS__REQUIRES(dibs__tls_mutex)
{
    redisOptions options = {0};

    options.type = REDIS_CONN_USERFD;
    options.options = REDIS_OPT_NONBLOCK;
    options.endpoint.fd = socket_of(tls)->fd;
    tls->context = bio ? redisConnectWithOptions(&options) : NULL;
    if (!tls->context || tls->context->err != 0)
        return false;
    tls->ssl = dibs__tls_connection(tls->endpoint->tls, tls->name);
    return tls->ssl && SSL_set_app_data(tls->ssl, bio) == 1;
}

/* Makes the parts, and has hiredis begin the handshake. */
static dibs_status begin(struct encrypted *tls, struct dibs__error *error) DIBS__REQUIRES(dibs__tls_mutex)
{
    tls->wire.socket = tls->below;
    BIO *bio = new_bio(&tls->wire);
    dibs_status status = DIBS_OK;

    if (make_parts(tls, bio)) {
        SSL_set_info_callback(tls->ssl, on_handshake);
        if (redisInitiateSSL(tls->context, tls->ssl) != REDIS_OK)
            status = failed(tls, error);
        SSL_set_info_callback(tls->ssl, NULL);
    } else {
        drop(tls);
        status = no_memory(error);
    }
    BIO_free(bio); /* the SSL object has a reference of its own */
    return status;
}

/*
 * Called when the last call on the SSL object did nothing. Returns what to poll for before the call is made again; 0:
 * the connection is over.
 */
static short wanted(struct encrypted *tls, int result, struct dibs__error *error) DIBS__REQUIRES(dibs__tls_mutex)
{
    switch (SSL_get_error(tls->ssl, result)) {
    case SSL_ERROR_WANT_READ:
        return POLLIN;
    case SSL_ERROR_WANT_WRITE:
        return POLLOUT;
    case SSL_ERROR_ZERO_RETURN:
        dibs__error_set(error, DIBS_UNAVAILABLE, "the connection to %s broke: the server closed it",
                        tls->endpoint->url.shown);
        return 0;
    default:
        failed(tls, error);
        return 0;
    }
}

static dibs_status shake_hands(struct encrypted *tls, struct dibs__error *error) DIBS__REQUIRES(dibs__tls_mutex)
{
    ERR_clear_error();
    if (!tls->ssl && begin(tls, error) != DIBS_OK)
        return error->status;
    int result = SSL_do_handshake(tls->ssl);
    tls->base.connected = result == 1;
    if (tls->base.connected) {
        tls->to_receive = POLLIN;
        tls->to_send = POLLOUT;
        return DIBS_OK;
    }
    tls->to_receive = wanted(tls, result, error);
    return tls->to_receive ? DIBS_OK : error->status;
}

static dibs_status process_ends(const struct encrypted *tls, struct dibs__error *error)
{
    return dibs__error_set(error, DIBS_UNAVAILABLE, "the connection to %s broke: the process ends",
                           tls->endpoint->url.shown);
}

/* The handshake counts toward the time of its address; if it fails, the next address is tried. */
static dibs_status encrypted_connect(struct dibs__transport *transport, int64_t now, int64_t until,
                                     struct dibs__error *error)
{
    struct encrypted *tls = encrypted_of(transport);
    dibs_status status;

    if (!tls->below->connected) {
        status = dibs__socket_transport.connect(tls->below, now, until, error);
        if (status != DIBS_OK || !tls->below->connected)
            return status;
    }
    dibs__tls_enter(tls->mutex);
    status = dibs__tls_is_over() ? process_ends(tls, error) : shake_hands(tls, error);
    bool late = status == DIBS_OK && !transport->connected && now >= socket_of(tls)->address_until;
    bool leave = (late || status == DIBS_UNAVAILABLE) && dibs__socket_has_another(socket_of(tls));
    if (leave && !dibs__tls_is_over())
        drop(tls);
    dibs__tls_leave(tls->mutex);
    if (leave)
        return dibs__socket_try_next(socket_of(tls), late ? ETIMEDOUT : ECONNABORTED, error);
    if (status != DIBS_OK)
        dibs__endpoint_failed(tls->endpoint);
    return status;
}

/*
 * What OpenSSL has made can't be freed after OpenSSL has ended. It is kept reachable, so that it does not count as a
 * leak.
 */
static void keep(struct encrypted *tls)
{
    static _Atomic(struct encrypted *) kept; /* atomic */

    tls->next = atomic_load(&kept);
    while (!atomic_compare_exchange_weak(&kept, &tls->next, tls))
        ;
}

static void encrypted_close(struct dibs__transport *transport)
{
    struct encrypted *tls = encrypted_of(transport);

    dibs__tls_enter(tls->mutex);
    bool is_over = dibs__tls_is_over();
    if (!is_over)
        drop(tls);
    dibs__tls_leave(tls->mutex);
    if (tls->below)
        dibs__socket_transport.close(tls->below);
    if (is_over)
        keep(tls);
    else
        free(tls);
}

static struct dibs__transport *encrypted_open(struct dibs__endpoint *endpoint, struct dibs__error *error)
{
    struct encrypted *tls = calloc(1, sizeof *tls);
    char host[DIBS__HOST_MAX];

    DIBS__REQUIRE(endpoint->tls);
    if (!tls) {
        no_memory(error);
        return NULL;
    }
    tls->base.ops = &dibs__tls_transport;
    tls->endpoint = endpoint;
    tls->mutex = dibs__tls_mutex_for_connection();
    dibs__endpoint_host(endpoint, host); /* before it is resolved, which may take long */
    dibs__tls_name(endpoint->tls, host, tls->name);
    tls->below = dibs__socket_transport.open(endpoint, error);
    if (tls->below)
        return &tls->base;
    encrypted_close(&tls->base);
    return NULL;
}

/* ---------------------------------------------------------------- connected */

/* Whether there are bytes that poll(2) does not see; those in `in` may turn out to be only a part of a record. */
static bool has_pending(const struct encrypted *tls) DIBS__REQUIRES(dibs__tls_mutex)
{
    return tls->wire.given < tls->wire.used || (!dibs__tls_is_over() && SSL_pending(tls->ssl) > 0);
}

static struct pollfd encrypted_poll(struct dibs__transport *transport, short want, int64_t *deadline)
{
    struct encrypted *tls = encrypted_of(transport);
    struct pollfd fd = {.fd = socket_of(tls)->fd};

    if (!tls->below->connected)
        return dibs__socket_transport.poll(tls->below, want, deadline);
    dibs__tls_enter(tls->mutex);
    if (!transport->connected) {
        fd.events = tls->to_receive;
        if (socket_of(tls)->address_until < *deadline)
            *deadline = socket_of(tls)->address_until;
    } else {
        fd.events = (short)(((want & POLLIN) ? tls->to_receive : 0) | ((want & POLLOUT) ? tls->to_send : 0));
        if ((want & POLLIN) && has_pending(tls))
            *deadline = 0;
    }
    dibs__tls_leave(tls->mutex);
    return fd;
}

/* Called before a call that moves bytes. False: it can't be made any more. */
static bool may_move(struct encrypted *tls, struct dibs__error *error) DIBS__REQUIRES(dibs__tls_mutex)
{
    if (dibs__tls_is_over())
        return process_ends(tls, error) == DIBS_OK;
    ERR_clear_error();
    tls->wire.broken.status = DIBS_OK;
    return true;
}

/* If a failure follows bytes that were sent, the next call reports it again. */
static long encrypted_send(struct dibs__transport *transport, const char *bytes, size_t size, struct dibs__error *error)
{
    struct encrypted *tls = encrypted_of(transport);
    struct dibs__error why = {DIBS_OK, ""};
    size_t sent = 0, more = 0;
    int result = 1;

    dibs__tls_enter(tls->mutex);
    tls->to_send = POLLOUT;
    if (may_move(tls, &why)) {
        for (; result == 1 && sent < size; sent += more, more = 0)
            result = SSL_write_ex(tls->ssl, bytes + sent, size - sent, &more);
        if (result != 1)
            tls->to_send = wanted(tls, result, &why);
    }
    dibs__tls_leave(tls->mutex);
    if (sent > 0 || why.status == DIBS_OK)
        return (long)sent;
    *error = why;
    return -1;
}

static long encrypted_receive(struct dibs__transport *transport, char *bytes, size_t size, struct dibs__error *error)
{
    struct encrypted *tls = encrypted_of(transport);
    size_t received = 0;
    long count = -1;

    dibs__tls_enter(tls->mutex);
    tls->to_receive = POLLIN;
    if (may_move(tls, error)) {
        int result = SSL_read_ex(tls->ssl, bytes, size, &received);
        if (result != 1)
            tls->to_receive = wanted(tls, result, error);
        tls->has_talked = tls->has_talked || result == 1;
        count = result == 1 || tls->to_receive ? (long)received : -1;
    }
    dibs__tls_leave(tls->mutex);
    return count;
}

static bool encrypted_pending(struct dibs__transport *transport)
{
    struct encrypted *tls = encrypted_of(transport);

    dibs__tls_enter(tls->mutex);
    bool pending = has_pending(tls);
    dibs__tls_leave(tls->mutex);
    return pending;
}

/* Whether the server will send no more than what lies in the socket. */
static bool has_ended(const struct encrypted *tls)
{
#ifdef POLLRDHUP
    struct pollfd fd = {.fd = socket_of(tls)->fd, .events = POLLRDHUP};

    return poll(&fd, 1, 0) == 1;
#else
    (void)tls;
    return false; /* the end is noticed when the link is read */
#endif
}

/*
 * The server says that it closes the connection by a record like any other. Records may be taken from the socket only
 * if the connection has ended: its descriptor is then ready for ever, so that a thread in poll(2) misses nothing.
 */
static enum dibs__sight look(struct encrypted *tls) DIBS__REQUIRES(dibs__tls_mutex)
{
    size_t count;
    char byte;

    if (dibs__tls_is_over())
        return DIBS__SIGHT_END;
    if (SSL_pending(tls->ssl) > 0)
        return DIBS__SIGHT_BYTES;
    enum dibs__sight sight = dibs__socket_transport.look(tls->below);
    if (sight == DIBS__SIGHT_NOTHING)
        return tls->wire.given < tls->wire.used ? DIBS__SIGHT_BYTES : DIBS__SIGHT_NOTHING;
    if (!has_ended(tls))
        return DIBS__SIGHT_BYTES;
    ERR_clear_error();
    bool has_byte = SSL_peek_ex(tls->ssl, &byte, 1, &count) == 1;
    ERR_clear_error();
    return has_byte ? DIBS__SIGHT_BYTES : DIBS__SIGHT_END;
}

static enum dibs__sight encrypted_look(struct dibs__transport *transport)
{
    struct encrypted *tls = encrypted_of(transport);

    dibs__tls_enter(tls->mutex);
    enum dibs__sight sight = look(tls);
    dibs__tls_leave(tls->mutex);
    return sight;
}

static void encrypted_shut(struct dibs__transport *transport)
{
    dibs__socket_transport.shut(encrypted_of(transport)->below);
}

const struct dibs__transport_ops dibs__tls_transport = {
    .open = encrypted_open,
    .connect = encrypted_connect,
    .poll = encrypted_poll,
    .send = encrypted_send,
    .receive = encrypted_receive,
    .pending = encrypted_pending,
    .look = encrypted_look,
    .shut = encrypted_shut,
    .close = encrypted_close,
};

#else

/* Never used, because no endpoint has a `tls`. */
const struct dibs__transport_ops dibs__tls_transport = {.open = NULL};

#endif
