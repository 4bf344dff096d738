/*
 * The transport of plain sockets, TCP and Unix. Of the addresses of an endpoint
 * one after the other is tried, each for its share of the time.
 */
#ifndef DIBS_REDIS_SOCKET_H
#define DIBS_REDIS_SOCKET_H

#include "redis/endpoint.h"
#include "redis/transport.h"

extern const struct dibs__transport_ops dibs__socket_transport;

/* Fields are the connecting thread's; once connected, all are read-only. */
struct dibs__socket {
    struct dibs__transport base;
    struct dibs__endpoint *endpoint;
    int fd;
    struct dibs__address addresses[DIBS__ADDRESSES_MAX];
    size_t address_count;
    size_t address;        /* the one that is tried */
    int64_t address_until; /* when the next address is tried instead; 0: to be settled by the next step */
    int64_t again_at;      /* of a Unix socket whose backlog is full: when to try it again */
    bool backlog_full;     /* of the Unix socket that is tried */
};

/* For a transport above, to which the address that is connected is of no use. */
bool dibs__socket_has_another(const struct dibs__socket *sock);

/* Goes on with the next address; the last failed for that reason, an error number. */
dibs_status dibs__socket_try_next(struct dibs__socket *sock, int reason, struct dibs__error *error);

#endif
