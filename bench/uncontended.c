/*
 * What a lock costs when nobody else wants it, against plain hiredis.
 *
 *   nested      dibs_lock + dibs_unlock of a name that the thread holds, against a recursive mutex and a PING
 *   pair        dibs_lock + dibs_unlock through the store, against SET NX PX + the Lua release on a connection for
 *               each thread; every thread has a name of its own
 *
 * Both sides of a ratio run in turn, in the same process, on the same private server; a figure is the median of the
 * rounds. The times are of this machine; the ratios are what counts.
 */
#include <dibs.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "support/bench.h"
#include "support/common/cleanup.h"
#include "support/common/naive_lock.h"
#include "support/common/timing.h"

enum { ROUNDS = 5, ROUND_MS = 600, NESTED_PAIRS = 2000000, MUTEX_PAIRS = 10000000, PINGS = 5000, MAX_THREADS = 64 };

static dibs_runtime *runtime;

/* ------------------------------------------------------------------- nested */

static double nested_pair(void)
{
    must(dibs_lock(runtime, "nested"));
    double start = now_ns();
    for (int i = 0; i < NESTED_PAIRS; i++) {
        dibs_lock(runtime, "nested");
        dibs_unlock(runtime, "nested");
    }
    double each = (now_ns() - start) / NESTED_PAIRS;
    must(dibs_unlock(runtime, "nested"));
    return each;
}

static double mutex_pair(void)
{
    pthread_mutexattr_t recursive;
    pthread_mutex_t mutex;

    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&mutex, &recursive);
    pthread_mutex_lock(&mutex);
    double start = now_ns();
    for (int i = 0; i < MUTEX_PAIRS; i++) {
        pthread_mutex_lock(&mutex);
        pthread_mutex_unlock(&mutex);
    }
    double each = (now_ns() - start) / MUTEX_PAIRS;
    pthread_mutex_unlock(&mutex);
    pthread_mutex_destroy(&mutex);
    return each;
}

static double clock_reading(void)
{
    double start = now_ns();

    for (int i = 0; i < MUTEX_PAIRS; i++)
        now_ns();
    return (now_ns() - start) / MUTEX_PAIRS;
}

static double ping(void)
{
    redisContext *redis = bench_connect();
    static double times[PINGS];

    for (int i = 0; i < PINGS; i++) {
        double start = now_ns();
        freeReplyObject(naive_command(redis, "PING"));
        times[i] = now_ns() - start;
    }
    redisFree(redis);
    return median(times, PINGS);
}

static void show_nested(void)
{
    double nested[ROUNDS], mutex[ROUNDS], clock[ROUNDS], round_trip[ROUNDS];

    for (int i = 0; i < ROUNDS; i++) {
        nested[i] = nested_pair();
        mutex[i] = mutex_pair();
        clock[i] = clock_reading();
        round_trip[i] = ping();
    }
    double each = median(nested, ROUNDS), trip = median(round_trip, ROUNDS);
    printf("nested pair            %8.1f ns   (two readings of the clock: %.1f ns)\n", each, 2 * median(clock, ROUNDS));
    printf("recursive mutex pair   %8.1f ns\n", median(mutex, ROUNDS));
    printf("PING round trip        %8.1f ns   %.0f nested pairs\n\n", trip, trip / each);
}

/* --------------------------------------------------------------------- pairs */

struct worker {
    pthread_t thread;
    unsigned number;
    bool with_dibs;
    long pairs;
};

static atomic_bool running;

static void dibs_pairs(struct worker *worker)
{
    char name[32];

    snprintf(name, sizeof name, "pair:%u", worker->number);
    while (atomic_load_explicit(&running, memory_order_relaxed)) {
        must(dibs_lock(runtime, name));
        must(dibs_unlock(runtime, name));
        worker->pairs++;
    }
}

static void naive_pairs(struct worker *worker)
{
    char key[32], token[32];
    struct naive_lock lock = {bench_connect(), key, token, 30000};

    snprintf(key, sizeof key, "naive:%u", worker->number);
    while (atomic_load_explicit(&running, memory_order_relaxed)) {
        snprintf(token, sizeof token, "%u:%ld", worker->number, worker->pairs);
        if (!naive_try(&lock) || naive_release(&lock, NAIVE_SCRIPT, NULL, NULL) != NAIVE_RELEASED)
            cleanup_fail("the lock %s is not free", key);
        worker->pairs++;
    }
    redisFree(lock.redis);
}

static void *work(void *arg)
{
    struct worker *worker = arg;

    if (worker->with_dibs)
        dibs_pairs(worker);
    else
        naive_pairs(worker);
    return NULL;
}

/* How many pairs a second so many threads make together. */
static double pairs_per_second(unsigned threads, bool with_dibs)
{
    static struct worker workers[MAX_THREADS];
    long pairs = 0;

    atomic_store(&running, true);
    double start = now_ns();
    for (unsigned i = 0; i < threads; i++) {
        workers[i] = (struct worker){.number = i, .with_dibs = with_dibs};
        workers[i].thread = bench_thread(work, &workers[i]);
    }
    pause_us(ROUND_MS * UINT64_C(1000));
    atomic_store(&running, false);
    for (unsigned i = 0; i < threads; i++) {
        pthread_join(workers[i].thread, NULL);
        pairs += workers[i].pairs;
    }
    return (double)pairs / (now_ns() - start) * 1e9;
}

static void show_pairs(unsigned threads)
{
    double dibs[ROUNDS], naive[ROUNDS], ratio[ROUNDS];

    for (int i = 0; i < ROUNDS; i++) {
        naive[i] = pairs_per_second(threads, false);
        dibs[i] = pairs_per_second(threads, true);
        ratio[i] = dibs[i] / naive[i];
    }
    printf("%7u   %10.0f   %10.0f   %5.2f\n", threads, median(naive, ROUNDS), median(dibs, ROUNDS),
           median(ratio, ROUNDS));
}

int main(void)
{
    static const unsigned threads[] = {1, 4, 16, MAX_THREADS};

    bench_start();
    runtime = bench_open(0);
    show_nested();
    printf("pairs a second through the store\nthreads      hiredis         dibs   ratio\n");
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++)
        show_pairs(threads[i]);
    dibs_close(runtime);
    cleanup_exit(0);
}
