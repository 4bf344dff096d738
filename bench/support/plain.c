#include "support/plain.h"

#include <sched.h>
#include <stdarg.h>
#include <sys/socket.h>

#include "support/bench.h"
#include "support/common/cleanup.h"
#include "support/common/timing.h"

static const char release[] = "if redis.call('GET', KEYS[1]) == ARGV[1] then "
                              "return redis.call('DEL', KEYS[1]) else return 0 end";

static const char fenced[] = "if redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('EXISTS', KEYS[2]) == 0 then "
                             "return redis.call('DEL', KEYS[1]) else return 0 end";

/* Looks for the reply without sleeping. What has come goes to the reader of hiredis. */
static void poll_reply(redisContext *redis)
{
    double began = now_ns();
    bool yielded = false;
    char bytes[256];
    ssize_t size;

    while ((size = recv(redis->fd, bytes, sizeof bytes, MSG_DONTWAIT)) <= 0 && !yielded)
        if (now_ns() - began > PLAIN_POLL_US * 1e3) {
            sched_yield();
            yielded = true;
        }
    if (size > 0)
        redisReaderFeed(redis->reader, bytes, (size_t)size);
}

static void send_all(const struct plain *plain)
{
    int sent = 0;

    while (!sent)
        if (redisBufferWrite(plain->redis, &sent) != REDIS_OK)
            cleanup_fail("Redis: %s", plain->redis->errstr);
}

static redisReply *command(const struct plain *plain, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    redisvAppendCommand(plain->redis, format, arguments);
    va_end(arguments);
    send_all(plain);
    if (plain->polls)
        poll_reply(plain->redis);
    return bench_next_reply(plain->redis);
}

void plain_open(struct plain *plain, bool polls)
{
    plain->polls = polls;
    plain->redis = bench_connect();
    bench_load_script(plain->redis, release, plain->release);
    bench_load_script(plain->redis, fenced, plain->fenced);
}

void plain_close(struct plain *plain)
{
    redisFree(plain->redis);
}

bool plain_lock(struct plain *plain, const char *key, const char *token)
{
    redisReply *reply = command(plain, "SET %s %s NX PX %d", key, token, PLAIN_LEASE_MS);
    bool free = reply->type == REDIS_REPLY_STATUS;

    freeReplyObject(reply);
    return free;
}

bool plain_unlock(struct plain *plain, const char *key, const char *token)
{
    redisReply *reply = command(plain, "EVALSHA %s 1 %s %s", plain->release, key, token);
    bool held = reply->integer == 1;

    freeReplyObject(reply);
    return held;
}

bool plain_lock_fenced(struct plain *plain, const char *key, const char *token)
{
    bool free = false;

    redisAppendCommand(plain->redis, "EXISTS dibs:queue:{%s}", key);
    redisAppendCommand(plain->redis, "SET %s %s NX PX %d", key, token, PLAIN_LEASE_MS);
    redisAppendCommand(plain->redis, "GET dibs:fence:{%s}", key);
    send_all(plain);
    for (int i = 0; i < 3; i++) {
        redisReply *reply = bench_next_reply(plain->redis);
        free = free || reply->type == REDIS_REPLY_STATUS;
        freeReplyObject(reply);
    }
    return free;
}

bool plain_unlock_fenced(struct plain *plain, const char *key, const char *token)
{
    redisReply *reply = command(plain, "EVALSHA %s 2 %s dibs:queue:{%s} %s", plain->fenced, key, key, token);
    bool held = reply->integer == 1;

    freeReplyObject(reply);
    return held;
}
