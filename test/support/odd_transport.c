/* Lock discipline: `mutex` guards all fields of an odd transport but `below`, which is read-only after open. */
#include "support/odd_transport.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "redis/socket.h"

enum { STEPS = 4, SEND_MOST = 100, RECEIVE_MOST = 7 };

struct odd {
    struct dibs__transport base;
    struct dibs__transport *below;
    pthread_mutex_t mutex;
    unsigned steps; /* of the handshake that were made */
    bool refuses;   /* the next call of send takes nothing */
    bool held;      /* there are bytes, but only after a poll for POLLOUT */
    size_t used, given;
    char bytes[16384];
};

static struct odd *lock(struct dibs__transport *transport)
{
    struct odd *odd = (struct odd *)(void *)transport;

    pthread_mutex_lock(&odd->mutex);
    return odd;
}

static void unlock(struct odd *odd)
{
    pthread_mutex_unlock(&odd->mutex);
}

static struct dibs__transport *odd_open(struct dibs__endpoint *endpoint, struct dibs__error *error)
{
    struct odd *odd = calloc(1, sizeof *odd);

    if (!odd)
        abort();
    odd->base.ops = &odd_transport;
    pthread_mutex_init(&odd->mutex, NULL);
    odd->below = dibs__socket_transport.open(endpoint, error);
    if (odd->below)
        return &odd->base;
    pthread_mutex_destroy(&odd->mutex);
    free(odd);
    return NULL;
}

static dibs_status odd_connect(struct dibs__transport *transport, int64_t now, int64_t until, struct dibs__error *error)
{
    struct odd *odd = lock(transport);
    dibs_status status = DIBS_OK;

    if (!odd->below->connected)
        status = dibs__socket_transport.connect(odd->below, now, until, error);
    else
        transport->connected = ++odd->steps == STEPS;
    unlock(odd);
    return status;
}

static bool has_pending(const struct odd *odd)
{
    return odd->given < odd->used && !odd->held;
}

static struct pollfd odd_poll(struct dibs__transport *transport, short want, int64_t *deadline)
{
    struct odd *odd = lock(transport);

    if (!odd->below->connected)
        want = POLLOUT;
    else if (!transport->connected) /* one step waits for the socket, the next for the time */
        want = odd->steps % 2 ? 0 : POLLOUT;
    struct pollfd fd = dibs__socket_transport.poll(odd->below, want, deadline);
    bool at_once = transport->connected ? (want & POLLIN) && has_pending(odd) : odd->below->connected && want == 0;
    if (at_once)
        *deadline = 0;
    if (transport->connected && (want & POLLIN) && odd->held)
        fd.events = POLLOUT;
    unlock(odd);
    return fd;
}

static long odd_send(struct dibs__transport *transport, const char *bytes, size_t size, struct dibs__error *error)
{
    struct odd *odd = lock(transport);
    long sent = 0;

    if (!odd->refuses)
        sent = dibs__socket_transport.send(odd->below, bytes, size < SEND_MOST ? size : SEND_MOST, error);
    odd->refuses = !odd->refuses;
    unlock(odd);
    return sent;
}

/* Takes from the socket where there is nothing to give, and then gives nothing at first. */
static long take_in(struct odd *odd, struct dibs__error *error)
{
    long received = dibs__socket_transport.receive(odd->below, odd->bytes, sizeof odd->bytes, error);

    if (received <= 0)
        return received;
    odd->used = (size_t)received;
    odd->given = 0;
    odd->held = true;
    return 0;
}

static long odd_receive(struct dibs__transport *transport, char *bytes, size_t size, struct dibs__error *error)
{
    struct odd *odd = lock(transport);
    size_t left = odd->used - odd->given;
    long given;

    if (left == 0) {
        given = take_in(odd, error);
    } else {
        odd->held = false;
        left = left < RECEIVE_MOST ? left : RECEIVE_MOST;
        left = left < size ? left : size;
        memcpy(bytes, odd->bytes + odd->given, left);
        odd->given += left;
        given = (long)left;
    }
    unlock(odd);
    return given;
}

static bool odd_pending(struct dibs__transport *transport)
{
    struct odd *odd = lock(transport);
    bool pending = has_pending(odd);

    unlock(odd);
    return pending;
}

static enum dibs__sight odd_look(struct dibs__transport *transport)
{
    struct odd *odd = lock(transport);
    enum dibs__sight sight = odd->given < odd->used ? DIBS__SIGHT_BYTES : dibs__socket_transport.look(odd->below);

    unlock(odd);
    return sight;
}

static void odd_shut(struct dibs__transport *transport)
{
    struct odd *odd = (struct odd *)(void *)transport;

    dibs__socket_transport.shut(odd->below);
}

static void odd_close(struct dibs__transport *transport)
{
    struct odd *odd = (struct odd *)(void *)transport;

    dibs__socket_transport.close(odd->below);
    pthread_mutex_destroy(&odd->mutex);
    free(odd);
}

const struct dibs__transport_ops odd_transport = {
    .open = odd_open,
    .connect = odd_connect,
    .poll = odd_poll,
    .send = odd_send,
    .receive = odd_receive,
    .pending = odd_pending,
    .look = odd_look,
    .shut = odd_shut,
    .close = odd_close,
};
