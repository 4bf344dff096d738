/*
 * A fake server: it accepts every connection as Redis does, runs ECHO, answers +OK to all other commands, and records
 * all commands. A test can change single answers, hold answers back, and break connections.
 *
 * The server runs on a thread of its own. Its functions may be called by any thread, and take effect before they
 * return. A failure here fails the test.
 */
#ifndef DIBS_TEST_FAKE_REDIS_H
#define DIBS_TEST_FAKE_REDIS_H

#include <stdbool.h>
#include <stddef.h>

#include "redis/endpoint.h"

typedef struct fake_redis fake_redis;

#define FAKE_RUN_ID "0123456789abcdef0123456789abcdef01234567" /* what INFO says unless it is changed */

/* On a Unix socket, or on 127.0.0.1. */
fake_redis *fake_redis_start(bool tcp);
void fake_redis_stop(fake_redis *f); /* NULL is fine */

/* Lives as long as the server; the port is 0 on a Unix socket. */
const char *fake_redis_url(const fake_redis *f);
unsigned short fake_redis_port(const fake_redis *f);

/*
 * From now on, commands that begin with the prefix (their words, one space between them) are answered with these bytes.
 * Where several prefixes fit, the last one counts. Both texts must live as long as the server.
 */
void fake_redis_answer(fake_redis *f, const char *prefix, const char *reply);

/* While set, commands are taken but no answer leaves; false lets all of them go, in order. */
void fake_redis_hold(fake_redis *f, bool held);

/* While set, nothing is read, so the client's socket fills. */
void fake_redis_ignore_peers(fake_redis *f, bool deaf);

/* Sends these bytes on all connections; on those that have said SUBSCRIBE. */
void fake_redis_push(fake_redis *f, const char *bytes);
void fake_redis_publish(fake_redis *f, const char *bytes);

/* Initializes an endpoint of that URL, for a client that is called "tester". To be freed with dibs__endpoint_free. */
void fake_redis_endpoint(struct dibs__endpoint *out, const char *url, atomic_uint_fast64_t *commands,
                         atomic_uint_fast64_t *errors);

/* Closes all connections; while refusing, new ones are closed as soon as they are made. */
void fake_redis_cut(fake_redis *f);
void fake_redis_refuse(fake_redis *f, bool refuse);

/* How many connections were made; how many commands have come that begin with the prefix. */
unsigned fake_redis_accepted(fake_redis *f);
unsigned fake_redis_count(fake_redis *f, const char *prefix);

/* Waits until the server has read and answered all that was written to it so far. */
void fake_redis_settle(fake_redis *f);

/* Waits until that many commands have come that begin with the prefix, at most LIMIT_MS. From the test's thread. */
void fake_redis_await(fake_redis *f, const char *prefix, unsigned count);

/*
 * The place, among all commands, of the nth (from 1) that begins with the prefix. The first place is 0; -1: it has not
 * come.
 */
int fake_redis_place(fake_redis *f, const char *prefix, unsigned nth);

#endif
