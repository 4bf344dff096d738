#include "race/failover.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/common/redis_connect.h"

enum { NOBODY = 1 /* a port at which no Redis answers */, URL_BEGIN = sizeof "unix://" - 1 };

static redisReply *tell(const struct race *race, unsigned server, const char *command, int port)
{
    redisContext *redis = redis_connect(race->urls[server]);
    redisReply *reply = redis ? redisCommand(redis, command, port) : NULL;

    if (!reply || reply->type == REDIS_REPLY_ERROR)
        way_fail("server %u: %s", server, reply ? reply->str : "not reached");
    redisFree(redis);
    return reply;
}

static int port_of(const struct race *race, unsigned server)
{
    redisReply *reply = tell(race, server, "CONFIG GET port", 0);
    int port = reply->elements == 2 ? (int)strtol(reply->element[1]->str, NULL, 10) : 0;

    freeReplyObject(reply);
    return port;
}

void failover_cut(const struct race *race, unsigned replica)
{
    freeReplyObject(tell(race, replica, "REPLICAOF 127.0.0.1 %d", NOBODY));
}

/* How much the replica has got from its master. */
static long long offset_of(const struct race *race, unsigned replica)
{
    static const char field[] = "slave_repl_offset:";
    redisReply *reply = tell(race, replica, "INFO replication", 0);
    const char *at = reply->type == REDIS_REPLY_STRING ? strstr(reply->str, field) : NULL;
    long long offset = at ? strtoll(at + sizeof field - 1, NULL, 10) : 0;

    freeReplyObject(reply);
    return offset;
}

static unsigned best_replica(const struct race *race)
{
    unsigned best = race->address + 1;
    long long most = offset_of(race, best);

    for (unsigned i = best + 1; i < race->servers; i++) {
        long long offset = offset_of(race, i);
        if (offset > most) {
            most = offset;
            best = i;
        }
    }
    return best;
}

void failover_promote(const struct race *race)
{
    unsigned best = best_replica(race);

    freeReplyObject(tell(race, best, "REPLICAOF NO ONE", 0));
    for (unsigned i = race->address + 1; i < race->servers; i++)
        if (i != best)
            freeReplyObject(tell(race, i, "REPLICAOF 127.0.0.1 %d", port_of(race, best)));
    if (!failover_address(race->urls[race->address] + URL_BEGIN, race->urls[best] + URL_BEGIN))
        way_fail("the address could not be moved");
}

bool failover_address(const char *address, const char *socket_path)
{
    char fresh[URL_SIZE + 8];

    snprintf(fresh, sizeof fresh, "%s.new", address);
    return symlink(socket_path, fresh) == 0 && rename(fresh, address) == 0;
}
