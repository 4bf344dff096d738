/* What the benchmarks share: their server, threads, a little statistics. What fails ends the program (cleanup.h). */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include <dibs.h>

#include <hiredis/hiredis.h>
#include <pthread.h>

#include "support/common/private_redis.h"

enum bench_transport { BENCH_UNIX, BENCH_TCP, BENCH_TRANSPORTS };

extern struct private_redis bench_server;    /* read-only once started */
extern int bench_tcp_port;                   /* on 127.0.0.1; read-only once started */
extern enum bench_transport bench_transport; /* changed by bench_use alone */
extern const char *bench_url; /* what bench_open and bench_connect connect to; changed by bench_use alone */

/*
 * Starts the server, which ends with the program, however that ends. The server listens on its Unix socket, which
 * bench_url names at first, and on a port of 127.0.0.1. To be called before any thread is started.
 */
void bench_start(void);

/*
 * Starts one more server, with those lines of configuration besides, which ends with the program as well. Returns its
 * port of 127.0.0.1. To be called while no other thread runs. What fails ends the program.
 */
int bench_start_another(const char *config);

/* As bench_start, for a program that a benchmark has started: the server is the benchmark's. */
void bench_join(const char *url);

/* Chooses what bench_url is. To be called while no other thread runs. */
void bench_use(enum bench_transport transport);
void bench_use_url(const char *url); /* which must remain */
const char *bench_transport_name(enum bench_transport transport);

/* A runtime on bench_url, the caller's to close. handoff_ms as in dibs_config. */
dibs_runtime *bench_open(uint32_t handoff_ms);

/* The same with that configuration, but for its URL. */
dibs_runtime *bench_open_with(dibs_config config);

/* A plain connection to bench_url, to be given to redisFree. */
redisContext *bench_connect(void);

/* The next reply of such a connection, the caller's to free. An error reply ends the program. */
redisReply *bench_next_reply(redisContext *redis);

/* Has the server load the script, and writes its SHA-1. */
void bench_load_script(redisContext *redis, const char *script, char sha[48]);

/* A thread with a small stack, so that a thousand are no matter. */
pthread_t bench_thread(void *(*work)(void *arg), void *arg);

void must(dibs_status status);

/* The value below which so many hundredths of the values lie. Sorts them. */
double percentile(double *values, size_t count, unsigned hundredths);
double median(double *values, size_t count);

#endif
