/* A fake sentinel, which names the master that a test chooses: a fake_redis with the answers of a sentinel. */
#ifndef DIBS_TEST_FAKE_SENTINEL_H
#define DIBS_TEST_FAKE_SENTINEL_H

#include "support/fake_redis.h"

typedef struct fake_sentinel {
    fake_redis *redis;
    char url[64];         /* redis-sentinel:// of this one alone, for the master "mymaster" */
    char answers[16][96]; /* that were set; they must live as long as the server */
    unsigned count;
    char epochs[8][64]; /* as answers */
    unsigned epoch_count;
    char others[256]; /* as answers */
} fake_sentinel;

/* Names no master so far. */
void fake_sentinel_start(fake_sentinel *f);
void fake_sentinel_stop(fake_sentinel *f);

/* From now on the master is at that port of 127.0.0.1. */
void fake_sentinel_name(fake_sentinel *f, int port);

/* From now on the master has that config epoch, from 0 to 9. Before: it says none. */
void fake_sentinel_epoch(fake_sentinel *f, int epoch);

/* From now on it knows those two others. Once for each sentinel. */
void fake_sentinel_know(fake_sentinel *f, const fake_sentinel *one, const fake_sentinel *two);

/* Tells those that are subscribed of a switch of the master of that name. */
void fake_sentinel_tell(fake_sentinel *f, const char *master);

/* How often it was asked for the master's address. */
unsigned fake_sentinel_asked(fake_sentinel *f);
void fake_sentinel_await_asked(fake_sentinel *f, unsigned count);

#endif
