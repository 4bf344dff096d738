/* One server: where it is, what is needed to be let in, and how to begin a connection to it. */
#ifndef DIBS_REDIS_ENDPOINT_H
#define DIBS_REDIS_ENDPOINT_H

#include <netdb.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "base/mutex.h"
#include "redis/url.h"

#define DIBS__ADDRESSES_MAX 8

struct dibs__address {
    struct sockaddr_storage name;
    socklen_t length;
};

DIBS__MUTEX_CLASS(dibs__endpoint_mutex);

struct dibs__endpoint {
    struct dibs__url url;     /* read-only after init */
    char client_name[64];     /* read-only after init; what CLIENT LIST shows */
    char channel[64];         /* the same; on which this runtime is told of grants */
    struct dibs__mutex mutex; /* a leaf; never held while the resolver is asked */
    struct dibs__address
        addresses[DIBS__ADDRESSES_MAX];      /* guarded by mutex; what the host name meant when it was asked last */
    size_t address_count;                    /* guarded by mutex; 0: to be resolved */
    size_t failures;                         /* guarded by mutex; the address to begin with moves on by one with each */
    atomic_uint_fast64_t received;           /* how often it was heard, on any connection: whether it was since */
    atomic_uint_fast64_t *commands, *errors; /* where to count what is sent, and error replies */
};

/* Takes over url. False: no memory for its mutex; url is still the caller's. */
bool dibs__endpoint_init(struct dibs__endpoint *endpoint, struct dibs__url *url);
void dibs__endpoint_free(struct dibs__endpoint *endpoint);

/*
 * Copies the addresses of the server to out (room for DIBS__ADDRESSES_MAX) and
 * their number to *count. A host name is resolved the first time, and again
 * after dibs__endpoint_failed: only then does this block, as long as the
 * resolver does. DIBS_OK or DIBS_UNAVAILABLE.
 */
dibs_status dibs__endpoint_addresses(struct dibs__endpoint *endpoint, struct dibs__address *out, size_t *count,
                                     struct dibs__error *error);

/*
 * A connection could not be made, or the server is a replica: the name may mean
 * other addresses by now, and the one that was tried first may be the one that
 * is silent.
 */
void dibs__endpoint_failed(struct dibs__endpoint *endpoint);

#endif
