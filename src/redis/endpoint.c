#include "redis/endpoint.h"

#include <stdio.h>
#include <string.h>
#include <sys/un.h>

bool dibs__endpoint_init(struct dibs__endpoint *endpoint, struct dibs__url *url)
{
    memset(endpoint, 0, sizeof *endpoint);
    if (dibs__mutex_init(&endpoint->mutex) != 0)
        return false;
    endpoint->url = *url;
    atomic_init(&endpoint->known, url->kind == DIBS__URL_SENTINEL ? DIBS__KNOWN_NOT_YET : DIBS__KNOWN);
    memset(url, 0, sizeof *url);
    return true;
}

void dibs__endpoint_free(struct dibs__endpoint *endpoint)
{
    dibs__mutex_destroy(&endpoint->mutex);
    dibs__url_free(&endpoint->url);
}

static size_t resolve_unix(const char *path, struct dibs__address *out)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};

    memcpy(name.sun_path, path, strlen(path) + 1); /* dibs__url_parse has checked that the path fits */
    memcpy(&out->name, &name, sizeof name);
    out->length = sizeof name;
    return 1;
}

static size_t resolve_host(const char *host, unsigned number, const char *shown, struct dibs__address *out,
                           struct dibs__error *error)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    char port[8];
    size_t count = 0;

    snprintf(port, sizeof port, "%u", number);
    int failure = getaddrinfo(host, port, &hints, &found);
    if (failure) {
        dibs__error_set(error, DIBS_UNAVAILABLE, "the host of %s can't be resolved: %s", shown, gai_strerror(failure));
        return 0;
    }
    for (struct addrinfo *at = found; at && count < DIBS__ADDRESSES_MAX; at = at->ai_next, count++) {
        memcpy(&out[count].name, at->ai_addr, at->ai_addrlen);
        out[count].length = at->ai_addrlen;
    }
    freeaddrinfo(found);
    return count;
}

/* Finds the host and the port. False: nobody knows them, and the error is filled. */
static bool find_host(struct dibs__endpoint *endpoint, char host[DIBS__HOST_MAX], unsigned *port,
                      struct dibs__error *error)
{
    dibs__endpoint_mutex_lock(&endpoint->mutex);
    bool told = endpoint->finder.context && atomic_load(&endpoint->known) == DIBS__KNOWN;
    snprintf(host, DIBS__HOST_MAX, "%s", told ? endpoint->host : endpoint->url.hosts[0].name);
    *port = told ? endpoint->port : endpoint->url.hosts[0].port;
    bool known = told || !endpoint->finder.context;
    if (!known && atomic_load(&endpoint->known) == DIBS__FIND_FAILED)
        *error = endpoint->find_error;
    else if (!known)
        dibs__error_set(error, DIBS_UNAVAILABLE, "the master of %s is not known yet", endpoint->url.shown);
    dibs__endpoint_mutex_unlock(&endpoint->mutex);
    return known;
}

static size_t resolve(struct dibs__endpoint *endpoint, struct dibs__address *out, struct dibs__error *error)
{
    char host[DIBS__HOST_MAX];
    unsigned port;

    if (endpoint->url.path)
        return resolve_unix(endpoint->url.path, out);
    return find_host(endpoint, host, &port, error) ? resolve_host(host, port, endpoint->url.shown, out, error) : 0;
}

/* Stores the addresses that the resolver found, unless a finder has named another server meanwhile. */
static void note_addresses(struct dibs__endpoint *endpoint, const struct dibs__address *found, size_t count,
                           uint64_t since)
{
    dibs__endpoint_mutex_lock(&endpoint->mutex);
    if (atomic_load(&endpoint->since) == since) {
        memcpy(endpoint->addresses, found, DIBS__ADDRESSES_MAX * sizeof *found);
        endpoint->address_count = count;
    }
    dibs__endpoint_mutex_unlock(&endpoint->mutex);
}

dibs_status dibs__endpoint_addresses(struct dibs__endpoint *endpoint, struct dibs__address *out, size_t *count,
                                     struct dibs__error *error)
{
    struct dibs__address found[DIBS__ADDRESSES_MAX] = {0};

    dibs__endpoint_mutex_lock(&endpoint->mutex);
    *count = atomic_load(&endpoint->known) == DIBS__KNOWN ? endpoint->address_count : 0;
    size_t first = endpoint->failures;
    uint64_t since = atomic_load(&endpoint->since);
    memcpy(found, endpoint->addresses, sizeof found);
    dibs__endpoint_mutex_unlock(&endpoint->mutex);
    if (*count == 0) {
        *count = resolve(endpoint, found, error);
        note_addresses(endpoint, found, *count, since);
    }
    for (size_t i = 0; i < *count; i++)
        out[i] = found[(first + i) % *count];
    return *count > 0 ? DIBS_OK : error->status;
}

void dibs__endpoint_failed(struct dibs__endpoint *endpoint)
{
    dibs__endpoint_mutex_lock(&endpoint->mutex);
    endpoint->address_count = 0;
    endpoint->failures++;
    dibs__endpoint_mutex_unlock(&endpoint->mutex);
}

void dibs__endpoint_host(struct dibs__endpoint *endpoint, char out[DIBS__HOST_MAX])
{
    struct dibs__error unused;
    unsigned port;

    DIBS__REQUIRE(!endpoint->url.path);
    find_host(endpoint, out, &port, &unused);
}

/* ------------------------------------------ a server that a finder finds */

dibs_status dibs__endpoint_await(struct dibs__endpoint *endpoint, uint64_t after, int64_t deadline,
                                 struct dibs__error *error)
{
    const struct dibs__finder *finder = &endpoint->finder;

    return finder->context ? finder->await(finder->context, after, deadline, error) : DIBS_OK;
}

/* Raises *number to `to`, unless it is there or beyond already. False: it is. */
static bool raise_to(atomic_uint_fast64_t *number, uint64_t to)
{
    uint_fast64_t before = atomic_load(number);

    while (before < to)
        if (atomic_compare_exchange_weak(number, &before, to))
            return true;
    return false;
}

void dibs__endpoint_doubt(struct dibs__endpoint *endpoint, uint64_t told)
{
    const struct dibs__finder *finder = &endpoint->finder;

    if (finder->context && told == atomic_load(&endpoint->told) && raise_to(&endpoint->doubted, told))
        finder->doubt(finder->context);
}

void dibs__endpoint_prove(struct dibs__endpoint *endpoint, uint64_t told)
{
    if (endpoint->finder.context)
        raise_to(&endpoint->proved, told);
}

void dibs__endpoint_tell(struct dibs__endpoint *endpoint, const char *host, unsigned port)
{
    dibs__endpoint_mutex_lock(&endpoint->mutex);
    if (host && (endpoint->port != port || strcmp(endpoint->host, host) != 0)) {
        snprintf(endpoint->host, sizeof endpoint->host, "%s", host);
        endpoint->port = port;
        endpoint->address_count = 0;
        atomic_store(&endpoint->since, atomic_load(&endpoint->told) + 1);
    }
    atomic_store(&endpoint->known, DIBS__KNOWN);
    atomic_fetch_add(&endpoint->told, 1);
    dibs__endpoint_mutex_unlock(&endpoint->mutex);
}

void dibs__endpoint_untell(struct dibs__endpoint *endpoint, const struct dibs__error *why)
{
    dibs__endpoint_mutex_lock(&endpoint->mutex);
    endpoint->find_error = *why;
    endpoint->address_count = 0;
    atomic_store(&endpoint->known, DIBS__FIND_FAILED);
    dibs__endpoint_mutex_unlock(&endpoint->mutex);
}

bool dibs__endpoint_is_at(struct dibs__endpoint *endpoint, const char *host, unsigned port)
{
    dibs__endpoint_mutex_lock(&endpoint->mutex);
    bool same = endpoint->port == port && strcmp(endpoint->host, host) == 0;
    dibs__endpoint_mutex_unlock(&endpoint->mutex);
    return same;
}
