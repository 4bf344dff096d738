/*
 * How the bytes of a link reach the server and come back: the layer below a link. Plain sockets (socket.c) are one
 * transport, TLS (tls.c) is another.
 *
 * No function here blocks, except open while the resolver works, and sleep. Otherwise callers sleep in poll(2), outside
 * of the transport.
 *
 * Threads: one at a time sends and one at a time receives. These two may be different threads at the same moment;
 * meanwhile any thread may call poll, pending, look and shut. A transport whose object allows one thread at a time (as
 * an SSL object does) has a mutex of its own, a leaf, and holds it during each call. So callers need not know of that.
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

/* What can be seen of a connection without taking anything from it. */
enum dibs__sight {
    DIBS__SIGHT_NOTHING, /* receive would return 0 */
    DIBS__SIGHT_BYTES,   /* bytes have come */
    DIBS__SIGHT_END,     /* the connection has ended, and no bytes are left */
};

struct dibs__transport_ops {
    /* Begins to connect to the endpoint, which outlives the transport. NULL on failure, with the error filled. */
    struct dibs__transport *(*open)(struct dibs__endpoint *endpoint, struct dibs__error *error);

    /*
     * Goes on connecting as far as possible. until: when the whole try is given up. DIBS_OK: look at `connected`; while
     * it is false, call this again as poll says. Connecting may take any number of steps (one address after the other,
     * a handshake), each of which waits for other events.
     */
    dibs_status (*connect)(struct dibs__transport *transport, int64_t now, int64_t until, struct dibs__error *error);

    /*
     * What to poll for. want: POLLIN to receive, POLLOUT to send, or both. The events may differ from those: a
     * transport may have to receive before it can send, and the other way round. While the transport connects, want
     * does not matter. *deadline is lowered to the time when the caller must go on whatever the descriptor does: to 0,
     * which means at once, if the caller wants to receive and something is pending.
     */
    struct pollfd (*poll)(struct dibs__transport *transport, short want, int64_t *deadline);

    /*
     * Takes as many bytes as it can. Returns their number, 0 if it can take none for now, or -1 with the error filled
     * if the connection broke. Bytes that were not taken come first in the next call, perhaps at another address and
     * with more behind them. Nothing that was received meanwhile may be withheld from a thread that sleeps in poll(2)
     * in order to receive.
     */
    long (*send)(struct dibs__transport *transport, const char *bytes, size_t size, struct dibs__error *error);

    /* Returns what has come: the number of bytes, or 0 or -1 as for send. The end of the connection is -1. */
    long (*receive)(struct dibs__transport *transport, char *bytes, size_t size, struct dibs__error *error);

    /*
     * Sleeps until receive would not return 0, for at most DIBS__SLEEP_MS, and takes nothing. The thread that receives
     * may call this instead of poll(2), which takes longer. shut ends the sleep. NULL: the transport can't sleep.
     */
    void (*sleep)(struct dibs__transport *transport);

    /* Whether receive can return bytes that poll(2) does not see, such as decrypted ones. NULL: there are none. */
    bool (*pending)(struct dibs__transport *transport);

    /* Takes nothing. Pending bytes count as DIBS__SIGHT_BYTES. */
    enum dibs__sight (*look)(struct dibs__transport *transport);

    /*
     * Ends a connected connection, so that threads come back from poll(2), send and receive: calls shutdown(2) on the
     * descriptor, and does no more.
     */
    void (*shut)(struct dibs__transport *transport);

    /* Closes and frees the transport, which no thread uses any more. */
    void (*close)(struct dibs__transport *transport);
};

/* The first member of every transport's own struct. */
struct dibs__transport {
    const struct dibs__transport_ops *ops; /* read-only after open */
    bool connected;                        /* the connecting thread's; once true, read-only */
};

#endif
