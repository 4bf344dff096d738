/*
 * A master with two replicas and three sentinels, all of them real processes of a test's own, which end with the test's
 * process. Used by the test's own thread only. A failure here fails the test.
 */
#ifndef DIBS_TEST_SENTINELS_H
#define DIBS_TEST_SENTINELS_H

#include "support/server.h"

#define SENTINELS 3
#define SENTINEL_DATA 3 /* servers that keep data: the master and its replicas */
#define SENTINEL_MASTER "mymaster"

typedef struct sentinels_options {
    const char *password;          /* of the data servers; not in url */
    const char *sentinel_password; /* of the sentinels */
    const char *sentinel_config;   /* lines for each sentinel, after the default ones */
    bool hasty;                    /* they are quick to notice that the master is gone; else only orders change it */
    const char *tls;               /* a folder of certificates.h: all speak TLS alone; url is rediss-sentinel:// */
} sentinels_options;

typedef struct sentinels {
    server *data[SENTINEL_DATA]; /* the first is the master at first */
    server *sentinels[SENTINELS];
    const char *url; /* redis-sentinel:// of all three, in this order */
} sentinels;

/* Starts all, and waits until the sentinels know the replicas and each other. options may be NULL. */
sentinels *sentinels_start(const sentinels_options *options);
void sentinels_stop(sentinels *s); /* NULL is fine */

/*
 * One sentinel alone, for a server without replicas that is on TCP; it does nothing but name that server. Its url is
 * redis-sentinel://. To be stopped by server_stop.
 */
server *sentinel_start(const server *master);

/* The URL of those sentinels alone, in that order: "012" are all. */
const char *sentinels_url(const sentinels *s, const char *order);

/* The server that a sentinel names as the master now. */
server *sentinels_named_by(sentinels *s, size_t sentinel);

/* Waits until all sentinels that run name a master other than that one, which says itself that it is; returns it. */
server *sentinels_await_other(sentinels *s, const server *old);

/*
 * Has a replica promoted, in order, and waits as sentinels_await_other, and until the old master and the other replica
 * follow; returns the new master.
 */
server *sentinels_failover(sentinels *s);

/* Waits until that many replicas of the master are in step. */
void sentinels_await_replicas(sentinels *s, int count);

/* How many connections were made to the sentinels that run so far, by anybody. */
long long sentinels_connections(sentinels *s);

#endif
