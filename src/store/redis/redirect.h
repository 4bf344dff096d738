/* What a node of a cluster says where it turns a command away, because the slot is elsewhere or on its way. */
#ifndef DIBS_STORE_REDIS_REDIRECT_H
#define DIBS_STORE_REDIS_REDIRECT_H

#include <hiredis/hiredis.h>

#include "store/redis/redis.h"

/*
 * Whether the reply says so. Notes it in the redirect, if there is one, and tells the cluster where the slot is. node:
 * NULL: the server is no node of a cluster.
 */
bool dibs__redis_turned_away(const struct dibs__node_hooks *node, struct dibs__redirect *redirect,
                             const redisReply *reply);

static inline bool dibs__redirect_is_taken(const struct dibs__redirect *redirect)
{
    return redirect && redirect->kind != DIBS__REDIRECT_NONE;
}

#endif
