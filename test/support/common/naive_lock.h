/* The ways to lock with bare Redis commands that articles teach: one SET to acquire, three ways to release. */
#ifndef COMMON_NAIVE_LOCK_H
#define COMMON_NAIVE_LOCK_H

#include <hiredis/hiredis.h>
#include <stdbool.h>

struct naive_lock {
    redisContext *redis;
    const char *key;
    const char *token; /* unique to the owner */
    unsigned lease_ms;
};

enum naive_release {
    NAIVE_DEL,     /* DEL, whoever owns it */
    NAIVE_COMPARE, /* GET, compare with the token, then DEL */
    NAIVE_SCRIPT   /* the same in one Lua script */
};

enum naive_result {
    NAIVE_RELEASED,
    NAIVE_GONE,    /* the lease had ended: nothing was deleted */
    NAIVE_ANOTHERS /* the lease had ended, and what was deleted is another's lock */
};

/* SET key token NX PX lease: whether the lock was free. */
bool naive_try(const struct naive_lock *lock);

/*
 * held_up(arg), unless it is NULL, is called where the machine may hold a thread
 * up in the middle of releasing: after the comparison, where there is one, and
 * before the command that deletes.
 */
enum naive_result naive_release(const struct naive_lock *lock, enum naive_release way, void (*held_up)(void *arg),
                                void *arg);

/* Sends a command and returns its reply, the caller's to free; where Redis fails, the program ends (cleanup_fail). */
redisReply *naive_command(redisContext *redis, const char *format, ...);

#endif
