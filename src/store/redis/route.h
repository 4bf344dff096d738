/* The route of an ask to the server, by which its retraction can follow it. */
#ifndef DIBS_STORE_REDIS_ROUTE_H
#define DIBS_STORE_REDIS_ROUTE_H

#include "redis/channel.h"

/*
 * The route that an ask took. As long as that connection is open, its retraction follows it there. If it is not, the
 * retraction goes over another one, and is final only when nothing of the ask can be under way any more: the server has
 * ended that connection, or its clock has passed not_after.
 */
struct dibs__route {
    struct dibs__channel *channel; /* NULL: nothing is under way. The background channel: something may be, on the
                                      connection of that serial or a later one */
    uint64_t serial;
    struct dibs__link_id link;
    int64_t not_after;
};

#endif
