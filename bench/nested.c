/*
 * What it costs to lock and unlock a name that the thread holds already: on one of the names repeatedly, and on all of
 * them in turn; beside two readings of the clock and a recursive mutex. That needs no store: the runtime has one in
 * memory.
 */
#include <dibs.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/bench.h"
#include "support/common/cleanup.h"
#include "support/common/timing.h"
#include "support/options.h"
#include "support/rounds.h"
#include "support/target.h"

enum { BATCH = 2000, HELD_MOST = 10000, WARM_UP_MS = 10 };

#if defined(CLOCK_BOOTTIME)
#define CLOCK CLOCK_BOOTTIME /* the one that the library reads */
#else
#define CLOCK CLOCK_MONOTONIC
#endif

enum { CLOCKS, MUTEX, PAIR, ON_TOP, IN_TURN, FIGURES };

static const struct figure figures[FIGURES] = {
    [CLOCKS] = {"two clock readings", "ns"}, [MUTEX] = {"recursive mutex pair", "ns"},
    [PAIR] = {"nested pair", "ns"},          [ON_TOP] = {"nested pair without the clock", "ns"},
    [IN_TURN] = {"names in turn", "ns"},
};

struct condition {
    unsigned held;    /* names */
    size_t name_size; /* bytes of each */
};

/* ------------------------------------------------------------------ batches */

static dibs_runtime *runtime;
static char *names; /* one after the other, each with its NUL */
static size_t stride;
static unsigned held;

static void pair(const char *name)
{
    if (dibs_lock(runtime, name) != DIBS_OK || dibs_unlock(runtime, name) != DIBS_OK)
        cleanup_fail("a nested pair failed: %s", dibs_last_error());
}

static void read_clocks(void)
{
    struct timespec now;

    for (unsigned i = 0; i < 2 * BATCH; i++)
        clock_gettime(CLOCK, &now);
}

static void lock_mutex(void)
{
    static pthread_mutex_t mutex;
    pthread_mutexattr_t recursive;

    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&mutex, &recursive);
    pthread_mutex_lock(&mutex);
    for (unsigned i = 0; i < BATCH; i++) {
        pthread_mutex_lock(&mutex);
        pthread_mutex_unlock(&mutex);
    }
    pthread_mutex_unlock(&mutex);
    pthread_mutex_destroy(&mutex);
    pthread_mutexattr_destroy(&recursive);
}

static void lock_one(void)
{
    const char *name = names + stride * (held / 2);

    for (unsigned i = 0; i < BATCH; i++)
        pair(name);
}

static void lock_in_turn(void)
{
    static unsigned next;

    for (unsigned i = 0; i < BATCH; i++) {
        pair(names + stride * next);
        next = next + 1 < held ? next + 1 : 0;
    }
}

/* ns of each of the BATCH. */
static double time_batch(void (*batch)(void))
{
    double start = now_ns();

    batch();
    return (now_ns() - start) / BATCH;
}

/* -------------------------------------------------------------------- cells */

static void hold_all(const struct condition *condition)
{
    const char *url = "mem:";

    must(dibs_open(&runtime, &(dibs_config){.urls = &url, .url_count = 1}));
    held = condition->held;
    stride = condition->name_size + 1;
    names = calloc(held, stride);
    if (!names)
        cleanup_fail("no memory for the names");
    for (unsigned i = 0; i < held; i++) {
        char *name = names + stride * i, number[16];
        memset(name, '.', condition->name_size);
        snprintf(number, sizeof number, "%08u", i);
        memcpy(name + condition->name_size - 8, number, 8);
        must(dibs_lock(runtime, name));
    }
}

static void let_all_go(void)
{
    must(dibs_unlock_all(runtime));
    dibs_close(runtime);
    free(names);
}

/* The kinds take turns, batch by batch; what is told of each is the median of its batches. */
static void measure(const void *condition, double out[])
{
    enum { BATCHES_MOST = 4096, KINDS = 4 };
    static void (*const kind[KINDS])(void) = {read_clocks, lock_mutex, lock_one, lock_in_turn};
    static const unsigned figure[KINDS] = {CLOCKS, MUTEX, PAIR, IN_TURN};
    static double times[KINDS][BATCHES_MOST];
    unsigned batches = 0;

    hold_all(condition);
    double begin = now_ns() + WARM_UP_MS * 1e6, end = begin + bench_options.round_ms * 1e6;
    while ((now_ns() < end || batches == 0) && batches < BATCHES_MOST) {
        bool warm = now_ns() >= begin;
        for (unsigned i = 0; i < KINDS; i++)
            times[i][batches] = time_batch(kind[i]);
        batches += warm;
    }
    for (unsigned i = 0; i < KINDS; i++)
        out[figure[i]] = median(times[i], batches);
    out[ON_TOP] = out[PAIR] - out[CLOCKS];
    let_all_go();
}

static bool run(void)
{
    static const unsigned counts[] = {1, 8, 100, HELD_MOST};
    static const size_t sizes[] = {8, 64, DIBS_NAME_MAX};
    static const struct side side = {"dibs", measure};
    static const struct table table = {"nested", figures, FIGURES, &side, 1};
    static struct grid grid;
    char cell[64];
    bool done = true;

    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (size_t j = 0; j < sizeof sizes / sizeof *sizes; j++) {
            struct condition condition = {counts[i], sizes[j]};
            snprintf(cell, sizeof cell, "%u held of %zu bytes", condition.held, condition.name_size);
            if (rounds_run(&grid, &table, cell, &condition))
                at_most("nested pair without the clock", grid_value(&grid, 0, ON_TOP).median, 15, " ns");
            else
                done = false;
        }
    return done;
}

int main(int argc, char **argv)
{
    bench_options.round_ms = 100;
    bench_read_options(argc, argv,
                       "Usage: nested [OPTION...]\n"
                       "Measures pairs of a name that the thread holds already, without a server.\n\n");
    bench_options.transport[BENCH_UNIX] = true; /* once: no byte is sent */
    bench_options.transport[BENCH_TCP] = false;
    bench_run(run);
}
