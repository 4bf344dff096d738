/* What a node of a cluster says when it redirects a command, because the slot is elsewhere or moving. */
#ifndef DIBS_STORE_REDIS_REDIRECT_H
#define DIBS_STORE_REDIS_REDIRECT_H

#include <hiredis/hiredis.h>

#include "store/redis/redis.h"

/*
 * Whether the reply redirects the command. If so, notes that in the redirect, unless it is NULL, and tells the cluster
 * where the slot is. node NULL: the server is no node of a cluster. all_moved: an ASK says that none of the command's
 * keys is there any more, since it has only one, or the server tells where they are parted. Otherwise the command must
 * be sent again later.
 */
bool dibs__redis_turned_away(const struct dibs__node_hooks *node, struct dibs__redirect *redirect,
                             const redisReply *reply, bool all_moved);

static inline bool dibs__redirect_is_taken(const struct dibs__redirect *redirect)
{
    return redirect && redirect->kind != DIBS__REDIRECT_NONE;
}

#endif
