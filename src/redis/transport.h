/*
 * How the bytes of a link reach the server and come back: the seam below a
 * link. Plain sockets (socket.c) are one transport, TLS (tls.c) is another.
 *
 * No function here blocks, except open while the resolver works, and sleep.
 * Other callers sleep in poll(2), outside of the transport.
 *
 * Threads: one at a time sends and one at a time receives, but these two may be
 * different threads at the same moment; meanwhile any thread may call poll,
 * pending, look and shut. A transport whose object allows one thread at a time
 * (an SSL object does) has a mutex of its own, a leaf, and holds it during each
 * call. So nobody above a transport needs to know of that.
 */
#ifndef DIBS_REDIS_TRANSPORT_H
#define DIBS_REDIS_TRANSPORT_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct dibs__endpoint;
struct dibs__transport;

#define DIBS__SLEEP_MS 100

/* What can be told of a connection without taking anything from it. */
enum dibs__sight {
    DIBS__SIGHT_NOTHING, /* receive would return 0 */
    DIBS__SIGHT_BYTES,   /* bytes have come */
    DIBS__SIGHT_END,     /* the connection has ended, and no bytes are left */
};

struct dibs__transport_ops {
    /* Begins to connect to the endpoint, which outlives the transport. NULL on failure, with the error filled. */
    struct dibs__transport *(*open)(struct dibs__endpoint *endpoint, struct dibs__error *error);

    /*
     * Goes on connecting as far as possible. until: when the whole try is given
     * up. DIBS_OK: look at `connected`; while that is false, call again as poll
     * says. Connecting may take any number of steps (one address after the
     * other, a handshake), each with other events to wait for.
     */
    dibs_status (*connect)(struct dibs__transport *transport, int64_t now, int64_t until, struct dibs__error *error);

    /*
     * What to poll(2) for. want: POLLIN to receive, POLLOUT to send, or both.
     * The events may differ from those: to send, a transport may first have to
     * receive, and the other way round. While the transport connects, want does
     * not matter. *deadline is lowered to the time when the caller must go on
     * whatever the descriptor does: 0, which is at once, where the caller wants
     * to receive and something is pending.
     */
    struct pollfd (*poll)(struct dibs__transport *transport, short want, int64_t *deadline);

    /*
     * Takes what it can: how many bytes, 0 where that is none for now, -1 with
     * the error filled where the connection broke. Bytes that were not taken
     * come first in the next call, perhaps at another address and with more
     * behind them. Nothing that was received meanwhile may be kept from a
     * thread that sleeps in poll(2) in order to receive.
     */
    long (*send)(struct dibs__transport *transport, const char *bytes, size_t size, struct dibs__error *error);

    /* Gives what has come: how many bytes, 0 or -1 as of send. The end of the connection is -1. */
    long (*receive)(struct dibs__transport *transport, char *bytes, size_t size, struct dibs__error *error);

    /*
     * Sleeps until receive would not return 0, at most for DIBS__SLEEP_MS, and
     * takes nothing. The thread that receives may call it instead of poll(2),
     * which takes longer. shut ends it. NULL: the transport can't.
     */
    void (*sleep)(struct dibs__transport *transport);

    /* Whether receive has bytes to give that poll(2) does not see, such as decrypted ones. */
    bool (*pending)(struct dibs__transport *transport);

    /* Takes nothing. What is pending counts as DIBS__SIGHT_BYTES. */
    enum dibs__sight (*look)(struct dibs__transport *transport);

    /*
     * Ends a connection that is connected, so that threads come back from
     * poll(2), send and receive: shutdown(2) of the descriptor, and no more.
     */
    void (*shut)(struct dibs__transport *transport);

    /* Closes and frees. No thread uses the transport any more. */
    void (*close)(struct dibs__transport *transport);
};

/* The first member of every transport's own struct. */
struct dibs__transport {
    const struct dibs__transport_ops *ops; /* read-only after open */
    bool connected;                        /* the connecting thread's; once true, read-only */
};

#endif
