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
#define DIBS__HOST_MAX 256   /* bytes of a host name with the NUL */
#define DIBS__CHANNEL_MAX 64 /* bytes of a channel's name with the NUL */

struct dibs__tls;

struct dibs__address {
    struct sockaddr_storage name;
    socklen_t length;
};

/*
 * Who finds out where the server is, where that is not known for good: the
 * master that sentinels name (sentinel.h). What a finder tells is numbered; a
 * link knows by which number it was led to its server.
 */
struct dibs__finder {
    void *context; /* NULL: the URL has the address */

    /* Blocks until a number larger than `after` was told: see dibs__endpoint_await. */
    dibs_status (*await)(void *context, uint64_t after, int64_t deadline, struct dibs__error *error);

    /* Any thread: `doubted` of the endpoint has changed. */
    void (*doubt)(void *context);
};

/* Whether a finder has told where the server is. */
enum dibs__known {
    DIBS__KNOWN_NOT_YET, /* the finder is finding out */
    DIBS__KNOWN,         /* also where it is known for good */
    DIBS__FIND_FAILED,   /* the finder failed last, and goes on */
};

DIBS__MUTEX_CLASS(dibs__endpoint_mutex);

/* The mutex is a leaf; it is not held while the resolver works. */
struct dibs__endpoint {
    struct dibs__url url;                        /* read-only after init */
    const struct dibs__transport_ops *transport; /* read-only once set, after init; how the server is reached */
    const struct dibs__tls *tls;                 /* read-only once set, after init; with a URL of TLS. Outlives this */
    char client_name[64];                        /* read-only after init; what CLIENT LIST shows */
    char channel[DIBS__CHANNEL_MAX];             /* read-only after init; on which this runtime is told of grants */
    struct dibs__finder finder;                  /* read-only after open */
    struct dibs__mutex mutex;
    char host[DIBS__HOST_MAX] DIBS__GUARDED_BY(dibs__endpoint_mutex); /* where a finder told the server to be */
    unsigned port DIBS__GUARDED_BY(dibs__endpoint_mutex);
    struct dibs__error find_error DIBS__GUARDED_BY(dibs__endpoint_mutex); /* why the finder failed last */
    atomic_int known;             /* atomic; changed under mutex; enum dibs__known */
    atomic_uint_fast64_t told;    /* atomic; changed under mutex; the number of what was told last; 0: nothing was */
    atomic_uint_fast64_t since;   /* atomic; changed under mutex; the first number that led to the present server */
    atomic_uint_fast64_t doubted; /* atomic; the largest number that led to no server that can be used */
    atomic_uint_fast64_t proved;  /* atomic; the largest number that led to a link which was ready */
    /* what the host name meant when the resolver was asked last */
    struct dibs__address addresses[DIBS__ADDRESSES_MAX] DIBS__GUARDED_BY(dibs__endpoint_mutex);
    size_t address_count DIBS__GUARDED_BY(dibs__endpoint_mutex); /* 0: the resolver must be asked */
    size_t failures DIBS__GUARDED_BY(dibs__endpoint_mutex);      /* each moves the address to begin with on by one */
    struct dibs__spin spin;                                      /* of the waits for its replies; zero: nobody polls */
    atomic_uint scripts;   /* atomic; a hint, one bit for each script that the server has, and DIBS__SCRIPTS_AS_TEXT */
    atomic_uint in_flight; /* atomic; commands in flight, on all channels */
    atomic_uint_fast64_t received;  /* how often bytes came, on any link */
    atomic_uint_fast64_t *commands; /* where commands are counted that are sent */
    atomic_uint_fast64_t *errors;   /* where error replies are counted */
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
 * mean other addresses by now, so it will be resolved again; and the address
 * that was tried first may be the silent one, so another will be the first.
 */
void dibs__endpoint_failed(struct dibs__endpoint *endpoint);

/* The host to which connections are made, as the URL names it, or as it was told. */
void dibs__endpoint_host(struct dibs__endpoint *endpoint, char out[DIBS__HOST_MAX]);

/* ------------------------------------------ of a server that a finder finds */

/*
 * Blocks until a number larger than `after` was told, where a finder tells any:
 * DIBS_OK. DIBS_TIMEOUT: the deadline passed, which may be over already. Any
 * other status: the finder failed meanwhile. Not for the scheduler's thread.
 */
dibs_status dibs__endpoint_await(struct dibs__endpoint *endpoint, uint64_t after, int64_t deadline,
                                 struct dibs__error *error);

/* The server is being found for the first time: a try to connect is better made later. */
static inline bool dibs__endpoint_is_awaited(struct dibs__endpoint *endpoint)
{
    return atomic_load(&endpoint->known) == DIBS__KNOWN_NOT_YET;
}

/* Where that number led to is the server no more. */
static inline bool dibs__endpoint_has_moved(struct dibs__endpoint *endpoint, uint64_t told)
{
    return told < atomic_load(&endpoint->since);
}

/* What that number led to was lost, or can't be used: the finder must find out again. */
void dibs__endpoint_doubt(struct dibs__endpoint *endpoint, uint64_t told);

/* A link is ready at the server to which that number led. */
void dibs__endpoint_prove(struct dibs__endpoint *endpoint, uint64_t told);

/* The finder's: the server is there. And: it is where it was told to be last. */
void dibs__endpoint_tell(struct dibs__endpoint *endpoint, const char *host, unsigned port);
void dibs__endpoint_tell_again(struct dibs__endpoint *endpoint);

/* The finder's: where the server is can't be found out. */
void dibs__endpoint_untell(struct dibs__endpoint *endpoint, const struct dibs__error *why);

/* The finder's: whether the server was told to be there last. */
bool dibs__endpoint_is_at(struct dibs__endpoint *endpoint, const char *host, unsigned port);

#endif
