/* One server: where it is, what is needed to be let in, and how to begin a connection to it. */
#ifndef DIBS_REDIS_ENDPOINT_H
#define DIBS_REDIS_ENDPOINT_H

#include <netdb.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "base/spin.h"
#include "redis/reader.h"
#include "redis/transport.h"
#include "redis/url.h"

#define DIBS__ADDRESSES_MAX 8

struct dibs__address {
    struct sockaddr_storage name;
    socklen_t length;
};

DIBS__MUTEX_CLASS(dibs__endpoint_mutex);

/* The mutex is a leaf; it is not held while the resolver works. */
struct dibs__endpoint {
    struct dibs__url url;                        /* read-only after init */
    const struct dibs__transport_ops *transport; /* read-only after init; how the server is reached */
    char client_name[64];                        /* read-only after init; what CLIENT LIST shows */
    char channel[64];                            /* read-only after init; on which this runtime is told of grants */
    struct dibs__mutex mutex;
    /* what the host name meant when the resolver was asked last */
    struct dibs__address addresses[DIBS__ADDRESSES_MAX] DIBS__GUARDED_BY(dibs__endpoint_mutex);
    size_t address_count DIBS__GUARDED_BY(dibs__endpoint_mutex); /* 0: the resolver is to be asked */
    size_t failures DIBS__GUARDED_BY(dibs__endpoint_mutex);      /* each moves the address to begin with on by one */
    struct dibs__spin spin;                                      /* of the waits for its replies; zero: nobody polls */
    atomic_uint scripts;             /* atomic; a hint, one bit for each script that the server has */
    struct dibs__reply_pool replies; /* atomic */
    atomic_uint in_flight;           /* atomic; commands in flight, on all channels */
    atomic_uint_fast64_t received;   /* how often bytes came, on any link */
    atomic_uint_fast64_t *commands;  /* where commands are counted that are sent */
    atomic_uint_fast64_t *errors;    /* where error replies are counted */
};

/* Takes over url. False: no memory for its mutex; url is still the caller's. */
bool dibs__endpoint_init(struct dibs__endpoint *endpoint, struct dibs__url *url);
void dibs__endpoint_free(struct dibs__endpoint *endpoint);

/*
 * Copies the addresses of the server to out, which has room for
 * DIBS__ADDRESSES_MAX, and their number to *count. The first call resolves a
 * host name, and so does each call after dibs__endpoint_failed: only then the
 * call blocks, as long as the resolver does. DIBS_OK or DIBS_UNAVAILABLE.
 */
dibs_status dibs__endpoint_addresses(struct dibs__endpoint *endpoint, struct dibs__address *out, size_t *count,
                                     struct dibs__error *error);

/*
 * No connection could be made, or the server is a replica. The host name may
 * mean other addresses by now, so it is to be resolved again; and the address
 * that was tried first may be the silent one, so another is to be the first.
 */
void dibs__endpoint_failed(struct dibs__endpoint *endpoint);

#endif
