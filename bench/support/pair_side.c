#include "support/pair_side.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>

#include "support/common/timing.h"
#include "support/options.h"
#include "support/pair.h"
#include "support/usage.h"

enum { LINE = 64, WARM_UP_LEAST_MS = 20, POLL_US = 500 };

const struct figure pairs_figures[PAIRS_FIGURES] = {
    [PAIRS_TIME] = {"time of a pair", "us"},
    [PAIRS_RATE] = {"pairs a second", ""},
    [PAIRS_CLIENT] = {"client CPU of a pair", "us"},
    [PAIRS_SERVER] = {"server CPU of a pair", "us"},
    [PAIRS_SWITCHES] = {"context switches of a pair", ""},
    [PAIRS_CONNECTIONS] = {"connections", ""},
    [PAIRS_TURNS] = {"turns of the busy loops", "M/s"},
};

struct worker {
    _Alignas(LINE) atomic_ulong pairs; /* made so far; written by the worker alone */
    enum pair_kind kind;
    dibs_runtime *runtime;
    unsigned number;
    pthread_t thread;
};

static atomic_uint ready; /* workers that may begin */
static atomic_bool over;

static void *make_pairs(void *arg)
{
    struct worker *worker = arg;
    struct pair pair;

    pair_open(&pair, worker->kind, worker->runtime, worker->number);
    atomic_fetch_add(&ready, 1);
    while (!atomic_load_explicit(&over, memory_order_relaxed)) {
        pair_run(&pair);
        atomic_store_explicit(&worker->pairs, pair.count, memory_order_relaxed);
    }
    pair_close(&pair);
    return NULL;
}

static double pairs_of(const struct worker *workers, unsigned count)
{
    unsigned long pairs = 0;

    for (unsigned i = 0; i < count; i++)
        pairs += atomic_load_explicit(&workers[i].pairs, memory_order_relaxed);
    return (double)pairs;
}

/* Watches the workers for one round. */
static void watch(const struct pairs_condition *condition, const struct worker *workers, double out[])
{
    unsigned warm_up_ms = bench_options.round_ms / 4;

    while (atomic_load(&ready) < condition->threads)
        pause_us(POLL_US);
    pause_us(UINT64_C(1000) * (warm_up_ms > WARM_UP_LEAST_MS ? warm_up_ms : WARM_UP_LEAST_MS));
    double turns = condition->loops ? loops_turns(condition->loops) : NAN;
    double before = pairs_of(workers, condition->threads);
    struct usage start = usage_now();
    pause_us(UINT64_C(1000) * bench_options.round_ms);
    double pairs = pairs_of(workers, condition->threads) - before;
    struct usage used = usage_between(start, usage_now());
    out[PAIRS_TURNS] = condition->loops ? (loops_turns(condition->loops) - turns) / used.wall_ns * 1e3 : NAN;
    if (pairs == 0)
        return;
    out[PAIRS_TIME] = used.wall_ns / 1e3 / pairs * condition->threads;
    out[PAIRS_RATE] = pairs / used.wall_ns * 1e9;
    out[PAIRS_CLIENT] = used.client_ns / 1e3 / pairs;
    out[PAIRS_SERVER] = used.server_ns / 1e3 / pairs;
    out[PAIRS_SWITCHES] = used.switches / pairs;
    out[PAIRS_CONNECTIONS] = usage_connections();
}

static void measure(enum pair_kind kind, const struct pairs_condition *condition, double out[])
{
    static struct worker workers[PAIRS_THREADS_MOST];
    dibs_runtime *runtime = pair_runtime(kind);

    for (unsigned i = 0; i < condition->threads; i++) {
        workers[i].kind = kind;
        workers[i].runtime = runtime;
        workers[i].number = i;
        workers[i].thread = bench_thread(make_pairs, &workers[i]);
    }
    watch(condition, workers, out);
    atomic_store(&over, true);
    for (unsigned i = 0; i < condition->threads; i++)
        pthread_join(workers[i].thread, NULL);
    dibs_close(runtime);
}

void pairs_plain(const void *condition, double out[])
{
    measure(PAIR_PLAIN, condition, out);
}

void pairs_dibs(const void *condition, double out[])
{
    measure(PAIR_DIBS, condition, out);
}

void pairs_sleeping(const void *condition, double out[])
{
    measure(PAIR_SLEEPING, condition, out);
}

void pairs_polling(const void *condition, double out[])
{
    measure(PAIR_POLLING, condition, out);
}

void pairs_least(const void *condition, double out[])
{
    measure(PAIR_LEAST, condition, out);
}

void pairs_nobody(const void *condition, double out[])
{
    struct pairs_condition nobody = *(const struct pairs_condition *)condition;
    const struct worker none = {.number = 0};

    nobody.threads = 0;
    watch(&nobody, &none, out);
}
