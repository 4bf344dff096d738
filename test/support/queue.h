/*
 * The queue of a lock as it stands in Redis, and what the server tells those in it: by the keys and channels that the
 * contract documents. All of these belong to the test's own thread; what goes wrong fails the test.
 */
#ifndef DIBS_TEST_QUEUE_H
#define DIBS_TEST_QUEUE_H

#include <dibs.h>
#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stdint.h>

#include "support/server.h"

typedef struct queue_entry {
    char token[192];
    double order;
    unsigned long long number; /* of its last ask */
    long long lease_ms;
    long long seen; /* the server's time of that ask, us */
    char channel[64];
} queue_entry;

/* How many are in the queue of the lock of name, in all processes. */
long long queue_size(server *s, const char *name);

/* Waits until there are exactly so many. */
void queue_await(server *s, const char *name, long long count);

/* The entry at that place, 0 is the head; there must be one. queue_find: false where there is none. */
bool queue_find(server *s, const char *name, int place, queue_entry *out);
queue_entry queue_at(server *s, const char *name, int place);

/* Waits until the head has asked that often, and later than `number`: its entry then. */
queue_entry queue_await_ask(server *s, const char *name, unsigned long long number);

/* Fails the test where anything is left of a queue. */
void queue_assert_gone(server *s, const char *name);

/* The channel of the runtime of a token. The text lives until the next call. */
const char *queue_channel_of(const char *token);

/* Waits until the server knows of nobody who listens to the channel; until of somebody. */
void queue_await_deaf(server *s, const char *channel);
void queue_await_listening(server *s, const char *channel);

/* The server's time in us. */
long long queue_now(server *s);

/* Somebody who listens to a channel, or with `pattern` to all that match. */
redisContext *ear_open(server *s, const char *channel, bool pattern);
void ear_close(redisContext *ear);

/* The next message, which must come; the text lives until the next call. Whether one is there now. */
const char *ear_hear(redisContext *ear);
bool ear_heard_anything(redisContext *ear);

#endif
