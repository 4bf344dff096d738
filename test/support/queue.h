/*
 * The queue of a lock in Redis, and what the server tells its waiters, read from the keys and channels that
 * doc/PROTOCOL.md names. Used by the test's own thread only. A failure here fails the test.
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
    long long order;           /* the place that the server gave it */
    unsigned long long number; /* of its last ask */
    long long lease_ms;
    long long seen; /* the server's time of that ask, us */
    char channel[64];
} queue_entry;

/* How many are in the queue of the lock of name, in all processes. */
long long queue_size(server *s, const char *name);

/* Waits until there are exactly so many. */
void queue_await(server *s, const char *name, long long count);

/* The entry at that place; 0 is the head. queue_find returns false where there is none, queue_at fails the test. */
bool queue_find(server *s, const char *name, int place, queue_entry *out);
queue_entry queue_at(server *s, const char *name, int place);

/* Waits until the head has asked more often than `number`, and returns its entry. */
queue_entry queue_await_ask(server *s, const char *name, unsigned long long number);

/* Fails the test where anything is left of a queue. */
void queue_assert_gone(server *s, const char *name);

/* The channel of the runtime of a token. */
const char *queue_channel_of(const char *token);

/* Whether somebody listens to the channel. */
bool queue_has_listener(server *s, const char *channel);

/* The first waits until nobody listens to the channel, the second until somebody does. */
void queue_await_no_listener(server *s, const char *channel);
void queue_await_listening(server *s, const char *channel);

/* The server's time in us. */
long long queue_now(server *s);

/* A connection that listens to a channel, or with `pattern` to all channels that match. */
redisContext *wait_event_open(server *s, const char *channel, bool pattern);
void wait_event_close(redisContext *wait_event);

/*
 * The first waits for the next message, which must come, and whose text lives until the next call. The second tells
 * whether a message is there now.
 */
const char *wait_event_hear(redisContext *wait_event);
bool wait_event_heard_anything(redisContext *wait_event);

#endif
