/* Many threads of one process on one name, with and without handing over. */
#include <dibs.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "contended/part.h"
#include "support/bench.h"
#include "support/common/cleanup.h"
#include "support/common/naive_lock.h"
#include "support/common/timing.h"

enum { THREADS = 64, ROUNDS = 5, ROUND_MS = 1000 };

struct threads {
    double handing_on[ROUNDS], through_store[ROUNDS], plain[ROUNDS]; /* acquires a second */
    double longest_ns;                                               /* wait for a single acquire, with hand-over */
};

struct contender {
    pthread_t thread;
    dibs_runtime *runtime;
    long acquires;
    double longest_ns;
};

static atomic_bool running;

static void *contend(void *arg)
{
    struct contender *contender = arg;

    while (atomic_load_explicit(&running, memory_order_relaxed)) {
        double start = now_ns();
        must(dibs_lock(contender->runtime, "threads"));
        double waited = now_ns() - start;
        must(dibs_unlock(contender->runtime, "threads"));
        contender->acquires++;
        if (waited > contender->longest_ns)
            contender->longest_ns = waited;
    }
    return NULL;
}

/* Acquires a second by all the threads. */
static double contend_for_a_round(dibs_runtime *runtime, double *longest_ns)
{
    struct contender contenders[THREADS];
    long acquires = 0;

    atomic_store(&running, true);
    double start = now_ns();
    for (unsigned i = 0; i < THREADS; i++) {
        contenders[i] = (struct contender){.runtime = runtime};
        contenders[i].thread = bench_thread(contend, &contenders[i]);
    }
    pause_us(ROUND_MS * UINT64_C(1000));
    atomic_store(&running, false);
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(contenders[i].thread, NULL);
        acquires += contenders[i].acquires;
        if (contenders[i].longest_ns > *longest_ns)
            *longest_ns = contenders[i].longest_ns;
    }
    return (double)acquires / (now_ns() - start) * 1e9;
}

static double plain_for_a_round(redisContext *redis)
{
    struct naive_lock lock = {redis, "plain", "plain", 30000};
    double start = now_ns();
    long acquires = 0;

    while (now_ns() - start < ROUND_MS * 1e6) {
        if (!naive_try(&lock) || naive_release(&lock, NAIVE_SCRIPT, NULL, NULL) != NAIVE_RELEASED)
            cleanup_fail("the lock of plain hiredis is not free");
        acquires++;
    }
    return (double)acquires / (now_ns() - start) * 1e9;
}

static void crowd(unsigned number, void *memory)
{
    struct threads *page = memory;
    dibs_runtime *handing_on = bench_open(0), *through_store = bench_open(DIBS_NO_HANDOFF);
    redisContext *redis = bench_connect();
    double unused = 0;

    (void)number;
    for (unsigned i = 0; i < ROUNDS; i++) {
        page->plain[i] = plain_for_a_round(redis);
        page->through_store[i] = contend_for_a_round(through_store, &unused);
        page->handing_on[i] = contend_for_a_round(handing_on, &page->longest_ns);
    }
    redisFree(redis);
    dibs_close(through_store);
    dibs_close(handing_on);
}

static bool show_threads(void *memory)
{
    struct threads *page = memory;
    double ratio[ROUNDS];

    for (unsigned i = 0; i < ROUNDS; i++)
        ratio[i] = page->handing_on[i] / page->through_store[i];
    double plain = median(page->plain, ROUNDS);
    double through_store = median(page->through_store, ROUNDS), handing_on = median(page->handing_on, ROUNDS);
    printf("  %-44s %9.0f acquires/s\n", "plain hiredis, one connection alone", plain);
    printf("  %-44s %9.0f acquires/s, %.2f of plain hiredis\n", "DIBS_NO_HANDOFF", through_store,
           through_store / plain);
    printf("  %-44s %9.0f acquires/s, %.2f of plain hiredis\n", "with hand-over", handing_on, handing_on / plain);
    bool holds = at_least("with hand-over / DIBS_NO_HANDOFF", median(ratio, ROUNDS), 20, " times");
    return at_most("longest wait with hand-over", page->longest_ns / 1e6, 50, " ms") && holds;
}

const struct part threads_part = {
    .name = "threads",
    .title = "64 threads of one process",
    .processes = 1,
    .limit_s = 60,
    .memory = sizeof(struct threads),
    .work = crowd,
    .show = show_threads,
};
