/*
 * Give the fence to a Redis key: a script refuses a process that lost the lock without knowing.
 *
 *     cc fence_redis.c -o fence_redis $(pkg-config --cflags --libs dibs hiredis)
 *     DIBS_URL=redis://127.0.0.1 ./fence_redis 127.0.0.1 6379 stock 41
 *
 * The guard is the script below. The value is in a hash, beside the largest fence that the hash has seen. The Redis
 * server of the value need not be the one of the locks. A host that begins with / is the path of a Unix socket.
 */
#include <dibs.h>
#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Fences come with leading zeros and are compared as texts: the numbers of Lua are exact to 2^53 only. */
#define SET_WITH_FENCE                                                                                                 \
    "local seen = redis.call('HGET', KEYS[1], 'fence')\n"                                                              \
    "if seen and seen > ARGV[1] then return 0 end\n"                                                                   \
    "redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'value', ARGV[2])\n"                                                \
    "return 1"

/* 1; 0 if the key has seen a larger fence; -1: an error. */
static int set_with_fence(redisContext *redis, const char *key, uint64_t fence, const char *value)
{
    char text[24];

    snprintf(text, sizeof text, "%019" PRIu64, fence); /* below 2^63: 19 digits at the most */
    redisReply *reply = redisCommand(redis, "EVAL %s 1 %s %s %s", SET_WITH_FENCE, key, text, value);
    int result = reply && reply->type == REDIS_REPLY_INTEGER ? (int)reply->integer : -1;
    freeReplyObject(reply);
    return result;
}

static int set_alone(dibs_runtime *rt, redisContext *redis, const char *key, const char *value)
{
    dibs_hold hold;

    if (dibs_lock(rt, key) != DIBS_OK || dibs_hold_of(rt, key, &hold) != DIBS_OK) {
        fprintf(stderr, "no lock: %s\n", dibs_last_error());
        return 1;
    }
    sleep(3); /* work; a process that is stopped here for longer than its lease has lost the lock */
    int result = set_with_fence(redis, key, hold.fence, value);
    puts(result < 0 ? "not set" : result ? "set" : "refused: a later holder of the lock was here");
    dibs_unlock(rt, key);
    return result == 1 ? 0 : 1;
}

int main(int argc, char **argv)
{
    dibs_runtime *rt;

    if (argc != 5) {
        fprintf(stderr, "usage: %s HOST PORT KEY VALUE\n", argv[0]);
        return 2;
    }
    redisContext *redis =
        argv[1][0] == '/' ? redisConnectUnix(argv[1]) : redisConnect(argv[1], (int)strtol(argv[2], NULL, 10));
    if (!redis || redis->err || dibs_open(&rt, NULL) != DIBS_OK) {
        fprintf(stderr, "no store: %s\n", redis && redis->err ? redis->errstr : dibs_last_error());
        return 1;
    }
    int result = set_alone(rt, redis, argv[3], argv[4]);
    dibs_close(rt);
    redisFree(redis);
    return result;
}
