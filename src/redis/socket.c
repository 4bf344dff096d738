#include "redis/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include "base/clock.h"
#include "base/fd.h"

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* SO_NOSIGPIPE is used instead */
#endif

#define BACKLOG_PAUSE_MS 5 /* poll(2) does not tell when a full backlog has room again */

static struct dibs__socket *socket_of(struct dibs__transport *transport)
{
    return (struct dibs__socket *)(void *)transport;
}

_Static_assert(offsetof(struct dibs__socket, base) == 0, "a transport is the first member of its own struct");

/* --------------------------------------------------------------- connecting */

static void set_options(int fd, int family)
{
    int on = 1;

    if (family != AF_UNIX) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    }
#ifdef SO_NOSIGPIPE
    setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
#endif
}

/* Returns 0 if the address is connected, or connecting is under way; otherwise an error number. */
static int try_address(struct dibs__socket *sock)
{
    struct dibs__address *address = &sock->addresses[sock->address];
    int reason = connect(sock->fd, (struct sockaddr *)&address->name, address->length) == 0 ? 0 : errno;

    sock->backlog_full = reason == EAGAIN && address->name.ss_family == AF_UNIX;
    return sock->backlog_full || reason == EINPROGRESS || reason == EINTR ? 0 : reason;
}

/* As try_address, with a new socket. */
static int begin_address(struct dibs__socket *sock)
{
    int family = sock->addresses[sock->address].name.ss_family;

    dibs__fd_close(sock->fd);
    sock->address_until = 0;
    sock->fd = dibs__fd_socket(family);
    if (sock->fd < 0)
        return errno;
    set_options(sock->fd, family);
    return try_address(sock);
}

/* Begins with the first address that works, from the current one on. reason: why the last one failed. */
static dibs_status begin_next(struct dibs__socket *sock, int reason, struct dibs__error *error)
{
    for (; sock->address < sock->address_count; sock->address++) {
        reason = begin_address(sock);
        if (reason == 0)
            return DIBS_OK;
    }
    if (reason == EMFILE || reason == ENFILE || reason == ENOMEM)
        return dibs__error_set(error, DIBS_NO_MEMORY, "no descriptor for a connection: %s", strerror(reason));
    dibs__endpoint_failed(sock->endpoint);
    return dibs__error_set(error, DIBS_UNAVAILABLE, "can't connect to %s: %s", sock->endpoint->url.shown,
                           strerror(reason));
}

bool dibs__socket_has_another(const struct dibs__socket *sock)
{
    return sock->address_count - sock->address > 1;
}

dibs_status dibs__socket_try_next(struct dibs__socket *sock, int reason, struct dibs__error *error)
{
    sock->base.connected = false;
    sock->address++;
    return begin_next(sock, reason, error);
}

static void socket_close(struct dibs__transport *transport)
{
    struct dibs__socket *sock = socket_of(transport);

    dibs__fd_close(sock->fd);
    free(sock);
}

static struct dibs__transport *socket_open(struct dibs__endpoint *endpoint, struct dibs__error *error)
{
    struct dibs__socket *sock = calloc(1, sizeof *sock);

    if (!sock) {
        dibs__error_set(error, DIBS_NO_MEMORY, "no memory for a connection");
        return NULL;
    }
    sock->base.ops = &dibs__socket_transport;
    sock->endpoint = endpoint;
    sock->fd = -1;
    if (dibs__endpoint_addresses(endpoint, sock->addresses, &sock->address_count, error) == DIBS_OK &&
        begin_next(sock, 0, error) == DIBS_OK)
        return &sock->base;
    socket_close(&sock->base);
    return NULL;
}

/* True: *reason is 0 if the address is connected, otherwise an error number. False: the outcome is not known yet. */
static bool is_settled(struct dibs__socket *sock, int64_t now, int *reason)
{
    struct pollfd fd = {.fd = sock->fd, .events = POLLOUT};
    socklen_t size = sizeof *reason;

    *reason = 0;
    if (sock->backlog_full) {
        *reason = try_address(sock);
        sock->again_at = dibs__after_ms(now, BACKLOG_PAUSE_MS);
        return !sock->backlog_full;
    }
    if (poll(&fd, 1, 0) <= 0)
        return false;
    if (getsockopt(sock->fd, SOL_SOCKET, SO_ERROR, reason, &size) != 0)
        *reason = errno;
    return true;
}

/* Makes the socket block, for socket_sleep. Returns 0 or an error number. */
static int let_block(int fd)
{
    const struct timeval limit = {.tv_sec = DIBS__SLEEP_MS / 1000, .tv_usec = DIBS__SLEEP_MS % 1000 * 1000L};
    int flags = fcntl(fd, F_GETFL);

    if (flags < 0 || fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) != 0 ||
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) != 0)
        return errno;
    return 0;
}

static dibs_status socket_connect(struct dibs__transport *transport, int64_t now, int64_t until,
                                  struct dibs__error *error)
{
    struct dibs__socket *sock = socket_of(transport);
    size_t left = sock->address_count - sock->address;
    int reason;

    DIBS__REQUIRE(!transport->connected && left > 0);
    if (sock->address_until == 0)
        sock->address_until = left > 1 ? now + (until - now) / (int64_t)left : until;
    if (!is_settled(sock, now, &reason)) {
        if (left == 1 || now < sock->address_until)
            return DIBS_OK;
        reason = ETIMEDOUT;
    }
    if (reason == 0)
        reason = let_block(sock->fd);
    transport->connected = reason == 0;
    if (transport->connected)
        return DIBS_OK;
    return dibs__socket_try_next(sock, reason, error);
}

/* ---------------------------------------------------------------- connected */

static struct pollfd socket_poll(struct dibs__transport *transport, short want, int64_t *deadline)
{
    struct dibs__socket *sock = socket_of(transport);

    if (transport->connected)
        return (struct pollfd){.fd = sock->fd, .events = want};
    int64_t next = sock->backlog_full ? sock->again_at : sock->address_until;
    if (next < *deadline)
        *deadline = next;
    return (struct pollfd){.fd = sock->backlog_full ? -1 : sock->fd, .events = POLLOUT};
}

/* A server that expects TLS silently ends a connection that begins without it. */
static long broken(const struct dibs__socket *sock, const char *why, struct dibs__error *error)
{
    const struct dibs__url *url = &sock->endpoint->url;
    bool never_answered = atomic_load_explicit(&sock->endpoint->received, memory_order_relaxed) == 0;

    dibs__error_set(error, DIBS_UNAVAILABLE, "the connection to %s broke: %s%s", url->shown, why,
                    never_answered && !url->tls && !url->path
                        ? "; if the server expects TLS, the URL must begin with rediss instead of redis"
                        : "");
    return -1;
}

static bool would_block(int reason)
{
    return reason == EAGAIN || reason == EWOULDBLOCK;
}

static long socket_send(struct dibs__transport *transport, const char *bytes, size_t size, struct dibs__error *error)
{
    struct dibs__socket *sock = socket_of(transport);

    for (;;) {
        ssize_t sent = send(sock->fd, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent >= 0)
            return (long)sent;
        if (would_block(errno))
            return 0;
        if (errno != EINTR)
            return broken(sock, strerror(errno), error);
    }
}

static long socket_receive(struct dibs__transport *transport, char *bytes, size_t size, struct dibs__error *error)
{
    struct dibs__socket *sock = socket_of(transport);
    ssize_t received = recv(sock->fd, bytes, size, MSG_DONTWAIT);

    if (received > 0)
        return (long)received;
    if (received == 0)
        return broken(sock, "the server closed it", error);
    return would_block(errno) || errno == EINTR ? 0 : broken(sock, strerror(errno), error);
}

/* The socket blocks, with a time limit, unless MSG_DONTWAIT is given. */
static void socket_sleep(struct dibs__transport *transport)
{
    char byte;

    (void)!recv(socket_of(transport)->fd, &byte, 1, MSG_PEEK);
}

static enum dibs__sight socket_look(struct dibs__transport *transport)
{
    char byte;
    ssize_t there = recv(socket_of(transport)->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

    if (there > 0)
        return DIBS__SIGHT_BYTES;
    return there < 0 && (would_block(errno) || errno == EINTR) ? DIBS__SIGHT_NOTHING : DIBS__SIGHT_END;
}

static void socket_shut(struct dibs__transport *transport)
{
    shutdown(socket_of(transport)->fd, SHUT_RDWR);
}

const struct dibs__transport_ops dibs__socket_transport = {
    .open = socket_open,
    .connect = socket_connect,
    .poll = socket_poll,
    .send = socket_send,
    .receive = socket_receive,
    .sleep = socket_sleep,
    .look = socket_look,
    .shut = socket_shut,
    .close = socket_close,
};
