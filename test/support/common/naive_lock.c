#include "support/common/naive_lock.h"

#include <stdarg.h>
#include <string.h>

#include "support/common/cleanup.h"

static const char compare_and_delete[] = "if redis.call('GET', KEYS[1]) == ARGV[1] then "
                                         "return redis.call('DEL', KEYS[1]) else return 0 end";

redisReply *naive_command(redisContext *redis, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    redisReply *reply = redisvCommand(redis, format, arguments);
    va_end(arguments);
    if (!reply || reply->type == REDIS_REPLY_ERROR)
        cleanup_fail("Redis: %s", reply ? reply->str : redis->errstr);
    return reply;
}

static bool is_token(const struct naive_lock *lock, const redisReply *value)
{
    return value->type == REDIS_REPLY_STRING && strcmp(value->str, lock->token) == 0;
}

bool naive_try(const struct naive_lock *lock)
{
    redisReply *reply = naive_command(lock->redis, "SET %s %s NX PX %u", lock->key, lock->token, lock->lease_ms);
    bool free = reply->type == REDIS_REPLY_STATUS;

    freeReplyObject(reply);
    return free;
}

/* DEL, and before it a GET in the same transaction, which only tells whose lock is deleted. */
static enum naive_result delete_whosever(const struct naive_lock *lock)
{
    enum naive_result result;

    freeReplyObject(naive_command(lock->redis, "MULTI"));
    freeReplyObject(naive_command(lock->redis, "GET %s", lock->key));
    freeReplyObject(naive_command(lock->redis, "DEL %s", lock->key));
    redisReply *reply = naive_command(lock->redis, "EXEC");
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2)
        cleanup_fail("Redis: an unexpected reply to EXEC");
    if (is_token(lock, reply->element[0]))
        result = NAIVE_RELEASED;
    else
        result = reply->element[0]->type == REDIS_REPLY_NIL ? NAIVE_GONE : NAIVE_ANOTHERS;
    freeReplyObject(reply);
    return result;
}

static bool owns(const struct naive_lock *lock)
{
    redisReply *reply = naive_command(lock->redis, "GET %s", lock->key);
    bool mine = is_token(lock, reply);

    freeReplyObject(reply);
    return mine;
}

static enum naive_result delete_by_script(const struct naive_lock *lock)
{
    redisReply *reply = naive_command(lock->redis, "EVAL %s 1 %s %s", compare_and_delete, lock->key, lock->token);
    bool deleted = reply->integer == 1;

    freeReplyObject(reply);
    return deleted ? NAIVE_RELEASED : NAIVE_GONE;
}

enum naive_result naive_release(const struct naive_lock *lock, enum naive_release way, void (*held_up)(void *arg),
                                void *arg)
{
    if (way == NAIVE_COMPARE && !owns(lock))
        return NAIVE_GONE;
    if (held_up)
        held_up(arg);
    return way == NAIVE_SCRIPT ? delete_by_script(lock) : delete_whosever(lock);
}
