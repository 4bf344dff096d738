/*
 * A Redis server and a clock without threads: all of the library that sleeps
 * does so by the clock, and while one thread sleeps there the server answers,
 * the scheduler's part is done and time moves on. The same input is the same
 * run, in no time.
 *
 * The server answers by the book, or with what its plan says: records, parted
 * by '|', one for each command that comes (of the greeting only if it is told
 * so; it comes by the book otherwise):
 *     nothing   by the book          =BYTES   by the book, and those bytes after it
 *     ~         no answer, ever      !        hangs up
 *     BYTES     these bytes
 */
#ifndef DIBS_TEST_PUPPET_H
#define DIBS_TEST_PUPPET_H

#include <stdbool.h>
#include <stddef.h>

#include "base/clock.h"
#include "support/resp.h"

enum { PUPPET_PEERS = 32 };

struct puppet_peer {
    int fd; /* -1: free */
    struct bytes in, out;
};

struct puppet {
    struct dibs__clock clock; /* to be given to the library; the first member */
    int64_t time;
    struct puppet_peer peers[PUPPET_PEERS];
    const char *records, *records_end; /* set by the caller of puppet_begin */
    bool greets;                       /* the records answer greetings, too */
    bool drips;                        /* some bytes at a time */
    bool falls_silent;                 /* after the last record; else it goes on by the book */
    int64_t (*round)(void *arg);       /* the scheduler's part: until when it has nothing to do */
    void *arg;
    int64_t fence; /* the last that the server gave by the book */
};

#define PUPPET_PASSWORD "open-sesame"

/* The URL of the server, with that password; the first call starts to listen. */
const char *puppet_url(void);

void puppet_begin(struct puppet *puppet);

/* Requires that all of the library is closed, and expects that its connections are. */
void puppet_end(struct puppet *puppet);

/* Lets so much time pass, with the scheduler at work. */
void puppet_idle(struct puppet *puppet, int64_t ms);

#endif
