/*
 * The transport of plain sockets, TCP and Unix. The addresses of an endpoint are tried one after the other, each for
 * its share of the time.
 */
#ifndef DIBS_REDIS_SOCKET_H
#define DIBS_REDIS_SOCKET_H

#include "redis/endpoint.h"
#include "redis/transport.h"

extern const struct dibs__transport_ops dibs__socket_transport;

/* The fields belong to the connecting thread; once connected, all are read-only. */
struct dibs__socket {
    struct dibs__transport base;
    struct dibs__endpoint *endpoint;
    int fd;
    struct dibs__address addresses[DIBS__ADDRESSES_MAX];
    size_t address_count;
    size_t address;        /* index of the address that is tried */
    int64_t address_until; /* when the next address is tried instead; 0: the next step sets it */
    int64_t again_at;      /* when a Unix socket whose backlog is full is tried again */
    bool backlog_full;     /* the backlog of the Unix socket that is tried is full */
};

/* For a transport above this one that can't use the connected address: whether there is another. */
bool dibs__socket_has_another(const struct dibs__socket *sock);

/* Goes on with the next address. reason: the error number with which the last one failed. */
dibs_status dibs__socket_try_next(struct dibs__socket *sock, int reason, struct dibs__error *error);

#endif
