/* What the benchmarks share: their server, threads, a little statistics. What fails ends the program (cleanup.h). */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include <dibs.h>

#include <hiredis/hiredis.h>
#include <pthread.h>

#include "support/common/private_redis.h"

extern struct private_redis bench_server; /* read-only once started */

/* Starts the server, which ends with the program, however that ends. To be called before any thread is started. */
void bench_start(void);

/* A runtime on the server, the caller's to close. handoff_ms as in dibs_config. */
dibs_runtime *bench_open(uint32_t handoff_ms);

/* A plain connection to the server, to be given to redisFree. */
redisContext *bench_connect(void);

/* The next reply of such a connection, the caller's to free. An error reply ends the program. */
redisReply *bench_next_reply(redisContext *redis);

/* A thread with a small stack, so that a thousand are no matter. */
pthread_t bench_thread(void *(*work)(void *arg), void *arg);

void must(dibs_status status);

/* The value below which so many hundredths of the values lie. Sorts them. */
double percentile(double *values, size_t count, unsigned hundredths);
double median(double *values, size_t count);

#endif
