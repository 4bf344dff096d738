#include "support/common/cluster_join.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ------------------------------------------------------------------- joining */

static bool is_done(redisContext *redis, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    redisReply *reply = redisvCommand(redis, format, arguments);
    va_end(arguments);
    bool done = reply && reply->type != REDIS_REPLY_ERROR;
    if (!done)
        fprintf(stderr, "%s: %s\n", format, reply ? reply->str : redis->errstr);
    if (reply)
        freeReplyObject(reply);
    return done;
}

unsigned cluster_first_slot(size_t master, size_t masters)
{
    return (unsigned)(master * CLUSTER_SLOTS / masters);
}

/* Each node meets all others, so that none waits for gossip. */
static bool meet(const struct cluster_server *servers, size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < count; j++)
            if (i != j && !is_done(servers[i].redis, "CLUSTER MEET 127.0.0.1 %d", servers[j].port))
                return false;
    return true;
}

bool cluster_join(const struct cluster_server *servers, size_t count, size_t masters)
{
    for (size_t i = 0; i < count; i++)
        if (!is_done(servers[i].redis, "CLUSTER SET-CONFIG-EPOCH %u", (unsigned)i + 1))
            return false;
    for (size_t i = 0; i < masters; i++)
        if (!is_done(servers[i].redis, "CLUSTER ADDSLOTSRANGE %u %u", cluster_first_slot(i, masters),
                     cluster_first_slot(i + 1, masters) - 1))
            return false;
    return meet(servers, count);
}

/* -------------------------------------------------------------------- joined */

/* Whether the server's answer is a text with that in it. */
static bool tells(redisContext *redis, const char *command, const char *text)
{
    redisReply *reply = redisCommand(redis, command);
    bool told = reply && reply->str && strstr(reply->str, text);

    if (reply)
        freeReplyObject(reply);
    return told;
}

bool cluster_is_joined(const struct cluster_server *servers, size_t count)
{
    char known[40], assigned[40];
    bool joined = true;

    snprintf(known, sizeof known, "cluster_known_nodes:%zu\r", count);
    snprintf(assigned, sizeof assigned, "cluster_slots_assigned:%d\r", CLUSTER_SLOTS);
    for (size_t i = 0; i < count && joined; i++)
        joined = tells(servers[i].redis, "CLUSTER INFO", known) && tells(servers[i].redis, "CLUSTER INFO", assigned) &&
                 tells(servers[i].redis, "CLUSTER INFO", "cluster_state:ok") &&
                 !tells(servers[i].redis, "CLUSTER NODES", "handshake");
    return joined;
}
