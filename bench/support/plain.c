#include "support/plain.h"

#include <stdio.h>

#include "support/bench.h"
#include "support/common/naive_lock.h"

static const char release[] = "if redis.call('GET', KEYS[1]) == ARGV[1] then "
                              "return redis.call('DEL', KEYS[1]) else return 0 end";

void plain_open(struct plain *plain)
{
    plain->redis = bench_connect();
    redisReply *reply = naive_command(plain->redis, "SCRIPT LOAD %s", release);
    snprintf(plain->release, sizeof plain->release, "%s", reply->str);
    freeReplyObject(reply);
}

void plain_close(struct plain *plain)
{
    redisFree(plain->redis);
}

bool plain_lock(struct plain *plain, const char *key, const char *token)
{
    redisReply *reply = naive_command(plain->redis, "SET %s %s NX PX %d", key, token, PLAIN_LEASE_MS);
    bool free = reply->type == REDIS_REPLY_STATUS;

    freeReplyObject(reply);
    return free;
}

bool plain_unlock(struct plain *plain, const char *key, const char *token)
{
    redisReply *reply = naive_command(plain->redis, "EVALSHA %s 1 %s %s", plain->release, key, token);
    bool held = reply->integer == 1;

    freeReplyObject(reply);
    return held;
}
