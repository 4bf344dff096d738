#include "redis/endpoint.h"

#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#include "redis/socket.h"

bool dibs__endpoint_init(struct dibs__endpoint *endpoint, struct dibs__url *url)
{
    memset(endpoint, 0, sizeof *endpoint);
    if (dibs__mutex_init(&endpoint->mutex) != 0)
        return false;
    endpoint->url = *url;
    endpoint->transport = &dibs__socket_transport;
    memset(url, 0, sizeof *url);
    return true;
}

void dibs__endpoint_free(struct dibs__endpoint *endpoint)
{
    dibs__mutex_destroy(&endpoint->mutex);
    dibs__reply_pool_empty(&endpoint->replies);
    dibs__url_free(&endpoint->url);
}

static size_t resolve_unix(const char *path, struct dibs__address *out)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};

    memcpy(name.sun_path, path, strlen(path) + 1); /* dibs__url_parse checked that it fits */
    memcpy(&out->name, &name, sizeof name);
    out->length = sizeof name;
    return 1;
}

static size_t resolve_host(const struct dibs__url *url, struct dibs__address *out, struct dibs__error *error)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    char port[8];
    size_t count = 0;

    snprintf(port, sizeof port, "%u", url->hosts[0].port);
    int failure = getaddrinfo(url->hosts[0].name, port, &hints, &found);
    if (failure) {
        dibs__error_set(error, DIBS_UNAVAILABLE, "the host of %s can't be resolved: %s", url->shown,
                        gai_strerror(failure));
        return 0;
    }
    for (struct addrinfo *at = found; at && count < DIBS__ADDRESSES_MAX; at = at->ai_next, count++) {
        memcpy(&out[count].name, at->ai_addr, at->ai_addrlen);
        out[count].length = at->ai_addrlen;
    }
    freeaddrinfo(found);
    return count;
}

dibs_status dibs__endpoint_addresses(struct dibs__endpoint *endpoint, struct dibs__address *out, size_t *count,
                                     struct dibs__error *error)
{
    struct dibs__address found[DIBS__ADDRESSES_MAX] = {0};

    dibs__endpoint_mutex_lock(&endpoint->mutex);
    *count = endpoint->address_count;
    size_t first = endpoint->failures;
    memcpy(found, endpoint->addresses, sizeof found);
    dibs__endpoint_mutex_unlock(&endpoint->mutex);
    if (*count == 0) {
        *count =
            endpoint->url.path ? resolve_unix(endpoint->url.path, found) : resolve_host(&endpoint->url, found, error);
        dibs__endpoint_mutex_lock(&endpoint->mutex);
        memcpy(endpoint->addresses, found, sizeof found);
        endpoint->address_count = *count;
        dibs__endpoint_mutex_unlock(&endpoint->mutex);
    }
    for (size_t i = 0; i < *count; i++)
        out[i] = found[(first + i) % *count];
    return *count > 0 ? DIBS_OK : DIBS_UNAVAILABLE;
}

void dibs__endpoint_failed(struct dibs__endpoint *endpoint)
{
    dibs__endpoint_mutex_lock(&endpoint->mutex);
    endpoint->address_count = 0;
    endpoint->failures++;
    dibs__endpoint_mutex_unlock(&endpoint->mutex);
}
