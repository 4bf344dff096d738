/* The lock that a user would write with hiredis: SET NX PX, and a Lua script that compares and deletes, by its SHA-1.
 */
#ifndef BENCH_PLAIN_H
#define BENCH_PLAIN_H

#include <hiredis/hiredis.h>
#include <stdbool.h>

enum { PLAIN_LEASE_MS = 30000, PLAIN_POLL_US = 60 };

struct plain {
    redisContext *redis;
    bool polls;       /* looks for each reply for PLAIN_POLL_US, and yields once, before it sleeps */
    char release[48]; /* SHA-1 */
    char fenced[48];  /* the same, of a script that also looks whether somebody waits */
};

/* Connects to bench_url and loads the script. What fails ends the program. */
void plain_open(struct plain *plain, bool polls);
void plain_close(struct plain *plain);

/* One try. Whether the lock was free. */
bool plain_lock(struct plain *plain, const char *key, const char *token);

/* Whether the token still held the lock. */
bool plain_unlock(struct plain *plain, const char *key, const char *token);

/*
 * The same for a lock with a fence and a queue, as dibs takes a name that the process had a moment ago: whether
 * somebody waits, the lock, and the last fence, in one write.
 */
bool plain_lock_fenced(struct plain *plain, const char *key, const char *token);
bool plain_unlock_fenced(struct plain *plain, const char *key, const char *token);

#endif
