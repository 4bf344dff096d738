#include "redis/endpoint.h"

#include <stdio.h>
#include <string.h>
#include <sys/un.h>

void dibs__endpoint_init(struct dibs__endpoint *endpoint, struct dibs__url *url)
{
    memset(endpoint, 0, sizeof *endpoint);
    endpoint->url = *url;
    memset(url, 0, sizeof *url);
    pthread_mutex_init(&endpoint->mutex, NULL);
}

void dibs__endpoint_free(struct dibs__endpoint *endpoint)
{
    pthread_mutex_destroy(&endpoint->mutex);
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
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG};
    struct addrinfo *found = NULL;
    char port[8];
    size_t count = 0;

    snprintf(port, sizeof port, "%u", url->port);
    hints.ai_flags = AI_NUMERICHOST; /* a literal address needs no resolver, and no interface that has its like */
    int failure = getaddrinfo(url->host, port, &hints, &found);
    if (failure == EAI_NONAME) {
        hints.ai_flags = AI_ADDRCONFIG;
        failure = getaddrinfo(url->host, port, &hints, &found);
    }
    if (failure) {
        dibs__error_set(error, DIBS_UNAVAILABLE, "the host of %s can't be resolved: %s", url->shown, gai_strerror(failure));
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
    pthread_mutex_lock(&endpoint->mutex);
    *count = endpoint->address_count;
    memcpy(out, endpoint->addresses, sizeof endpoint->addresses);
    pthread_mutex_unlock(&endpoint->mutex);
    if (*count > 0)
        return DIBS_OK;
    *count = endpoint->url.path ? resolve_unix(endpoint->url.path, out) : resolve_host(&endpoint->url, out, error);
    if (*count == 0)
        return DIBS_UNAVAILABLE;
    pthread_mutex_lock(&endpoint->mutex);
    memcpy(endpoint->addresses, out, sizeof endpoint->addresses);
    endpoint->address_count = *count;
    pthread_mutex_unlock(&endpoint->mutex);
    return DIBS_OK;
}

void dibs__endpoint_forget(struct dibs__endpoint *endpoint)
{
    pthread_mutex_lock(&endpoint->mutex);
    endpoint->address_count = 0;
    pthread_mutex_unlock(&endpoint->mutex);
}
