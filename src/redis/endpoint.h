/* One server: where it is, which account it lets in, and how to begin a connection to it. */
#ifndef DIBS_REDIS_ENDPOINT_H
#define DIBS_REDIS_ENDPOINT_H

#include <netdb.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "base/clock.h"
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
 * Finds out where the server is, if that is not known for good: for the master that sentinels name (sentinel.h).
 * Whatever a finder tells has a number. Each link knows the number that led it to its server.
 */
struct dibs__finder {
    void *context; /* NULL: the URL has the address */

    /* Blocks until a number larger than `after` was told: see dibs__endpoint_await. */
    dibs_status (*await)(void *context, uint64_t after, int64_t deadline, struct dibs__error *error);

    /* Called by any thread, after `doubted` of the endpoint has changed. */
    void (*doubt)(void *context);
};

/* Whether a finder has told where the server is. */
enum dibs__known {
    DIBS__KNOWN_NOT_YET, /* the finder is finding out */
    DIBS__KNOWN,         /* a finder told, or the URL has the address */
    DIBS__FIND_FAILED,   /* the finder failed last, and goes on trying */
};

DIBS__MUTEX_CLASS(dibs__endpoint_mutex);

/* The mutex is a leaf. It is not held while the resolver works. */
struct dibs__endpoint {
    struct dibs__url url;                        /* read-only after init */
    const struct dibs__transport_ops *transport; /* read-only once set, after init; how to reach the server */
    const struct dibs__tls *tls;     /* read-only once set, after init; only with a URL of TLS; outlives the endpoint */
    char client_name[64];            /* read-only after init; what CLIENT LIST shows */
    char channel[DIBS__CHANNEL_MAX]; /* read-only after init; the channel on which this runtime is told of grants */
    const struct dibs__clock *clock; /* read-only once set, after init; outlives the endpoint */
    uint32_t connect_timeout_ms;     /* read-only once set, after init; time limit of one try to connect */
    uint32_t command_timeout_ms;     /* read-only once set, after init; time limit of a reply */
    struct dibs__finder finder;      /* read-only after open */
    struct dibs__mutex mutex;
    char host[DIBS__HOST_MAX] DIBS__GUARDED_BY(dibs__endpoint_mutex); /* the server's host as a finder told it */
    unsigned port DIBS__GUARDED_BY(dibs__endpoint_mutex);
    struct dibs__error find_error DIBS__GUARDED_BY(dibs__endpoint_mutex); /* error of the finder's last failure */
    atomic_int known;             /* atomic; changed under mutex; enum dibs__known */
    atomic_uint_fast64_t told;    /* atomic; changed under mutex; the number that a finder told last; 0: none */
    atomic_uint_fast64_t since;   /* atomic; changed under mutex; the first number that led to the present server */
    atomic_uint_fast64_t doubted; /* atomic; the largest number that led to no usable server */
    atomic_uint_fast64_t proved;  /* atomic; the largest number that led to a link that was ready */
    /* the addresses that the resolver last found for the host name */
    struct dibs__address addresses[DIBS__ADDRESSES_MAX] DIBS__GUARDED_BY(dibs__endpoint_mutex);
    size_t address_count DIBS__GUARDED_BY(dibs__endpoint_mutex); /* 0: the resolver must be asked */
    size_t failures DIBS__GUARDED_BY(dibs__endpoint_mutex);      /* each failure advances the first address */
    struct dibs__spin spin; /* measures the waits for its replies; all zero: nobody polls */
    atomic_uint scripts;    /* atomic; a hint: one bit for each script that the server has, and DIBS__SCRIPTS_AS_TEXT */
    atomic_uint in_flight;  /* atomic; number of commands in flight on all channels */
    atomic_uint_fast64_t received;  /* atomic; number of times that bytes were received, on any link */
    atomic_uint_fast64_t *commands; /* atomic; counts the commands that are sent */
    atomic_uint_fast64_t *errors;   /* atomic; counts the error replies */
};

/* Takes over the contents of url. False: no memory for the mutex, and url still belongs to the caller. */
bool dibs__endpoint_init(struct dibs__endpoint *endpoint, struct dibs__url *url);
void dibs__endpoint_free(struct dibs__endpoint *endpoint);

/*
 * Copies the addresses of the server to out, which has room for DIBS__ADDRESSES_MAX, and their number to *count.
 * Resolves the host name, and blocks as long as the resolver does, only in the first call, after dibs__endpoint_failed,
 * and after a finder has told another host. DIBS_OK or DIBS_UNAVAILABLE.
 */
dibs_status dibs__endpoint_addresses(struct dibs__endpoint *endpoint, struct dibs__address *out, size_t *count,
                                     struct dibs__error *error);

/*
 * Called when no connection could be made, or the server is a replica. The host name may mean other addresses by now,
 * so it will be resolved again. The address that was tried first may be the silent one, so another will be tried first.
 */
void dibs__endpoint_failed(struct dibs__endpoint *endpoint);

/* The host to which connections are made, as the URL or a finder names it. */
void dibs__endpoint_host(struct dibs__endpoint *endpoint, char out[DIBS__HOST_MAX]);

/* ------------------------------------------ a server that a finder finds */

/*
 * Blocks until a number larger than `after` was told: DIBS_OK, at once if no finder tells any. DIBS_TIMEOUT: the
 * deadline, which may lie in the past, has passed. Any other status: the finder failed meanwhile. Must not be called by
 * the scheduler's thread.
 */
dibs_status dibs__endpoint_await(struct dibs__endpoint *endpoint, uint64_t after, int64_t deadline,
                                 struct dibs__error *error);

/* True: the server is being found for the first time, so a try to connect is better made later. */
static inline bool dibs__endpoint_is_awaited(struct dibs__endpoint *endpoint)
{
    return atomic_load(&endpoint->known) == DIBS__KNOWN_NOT_YET;
}

/* True: the server is no longer where that number led to. */
static inline bool dibs__endpoint_has_moved(struct dibs__endpoint *endpoint, uint64_t told)
{
    return told < atomic_load(&endpoint->since);
}

/* Called when what that number led to was lost, or can't be used: the finder must find out again. */
void dibs__endpoint_doubt(struct dibs__endpoint *endpoint, uint64_t told);

/* Called when a link is ready at the server to which that number led. */
void dibs__endpoint_prove(struct dibs__endpoint *endpoint, uint64_t told);

/* Called by the finder: the server is there; host NULL: it is where it was told to be last. */
void dibs__endpoint_tell(struct dibs__endpoint *endpoint, const char *host, unsigned port);

/* Called by the finder: it could not find out where the server is. */
void dibs__endpoint_untell(struct dibs__endpoint *endpoint, const struct dibs__error *why);

/* Called by the finder: whether it told last that the server is there. */
bool dibs__endpoint_is_at(struct dibs__endpoint *endpoint, const char *host, unsigned port);

#endif
