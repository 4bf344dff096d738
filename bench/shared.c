/*
 * Shared locks beside exclusive ones:
 *
 *   shared           the pair of one thread
 *   shared-readers   64 readers of four processes on one name, and 64 holders of 64 names
 *   shared-writer    how long a writer waits among 16 readers who come without end
 *   shared-renewal   what it costs the server to renew 1,000 permits of one name, and 1,000 locks
 */
#include <dibs.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/bench.h"
#include "support/common/cleanup.h"
#include "support/common/timing.h"
#include "support/options.h"
#include "support/rounds.h"
#include "support/target.h"
#include "support/team.h"
#include "support/usage.h"

enum { PROCESSES = 4, THREADS = 16, HOLD_US = 5000, WRITES = 200, LEASE_MS = 3000, TEAM_LIMIT_S = 600 };

static const dibs_lock_options reading = {.flags = DIBS_SHARED};

static void pair(dibs_runtime *rt, const char *name, bool shared)
{
    must(dibs_lock_with(rt, name, DIBS_WAIT_FOREVER, shared ? &reading : NULL));
    must(dibs_unlock(rt, name));
}

/* ---------------------------------------------------------------- one thread */

static void measure_pair(bool shared, double out[])
{
    dibs_runtime *rt = bench_open(0);
    unsigned pairs = 0;

    for (double end = now_ns() + bench_options.round_ms * 250e3; now_ns() < end;)
        pair(rt, "shared", shared);
    double begin = now_ns(), end = begin + bench_options.round_ms * 1e6;
    for (; now_ns() < end; pairs++)
        pair(rt, "shared", shared);
    out[0] = (now_ns() - begin) / 1e3 / pairs;
    dibs_close(rt);
}

static void pair_alone(const void *unused, double out[])
{
    (void)unused;
    measure_pair(false, out);
}

static void pair_shared(const void *unused, double out[])
{
    (void)unused;
    measure_pair(true, out);
}

static bool run_pair(void)
{
    static const struct figure figure = {"time of a pair", "us"};
    static const struct side sides[] = {{"exclusive", pair_alone}, {"shared", pair_shared}};
    static const struct table table = {"shared", &figure, 1, sides, 2};
    static struct grid grid;

    if (!rounds_run(&grid, &table, "one thread", NULL))
        return false;
    at_most("a shared pair over an exclusive one", grid_ratio(&grid, 1, 0, 0).median, 1.15, "x");
    return true;
}

/* ------------------------------------------------------------------- readers */

struct crowd {
    bool shared;
    atomic_uint arrived, ended; /* ended: processes */
    atomic_bool over;
    atomic_ulong pairs;
};

struct reader {
    struct crowd *crowd;
    dibs_runtime *rt;
    unsigned number;
    unsigned hold_us;
};

static void *read_on(void *arg)
{
    struct reader *reader = arg;
    unsigned long pairs = 0;
    char name[24];

    snprintf(name, sizeof name, "read:%u", reader->crowd->shared ? 0 : reader->number);
    atomic_fetch_add(&reader->crowd->arrived, 1);
    while (!atomic_load_explicit(&reader->crowd->over, memory_order_relaxed)) {
        must(dibs_lock_with(reader->rt, name, DIBS_WAIT_FOREVER, reader->crowd->shared ? &reading : NULL));
        if (reader->hold_us)
            pause_us(reader->hold_us);
        must(dibs_unlock(reader->rt, name));
        pairs++;
    }
    atomic_fetch_add(&reader->crowd->pairs, pairs);
    return NULL;
}

static void run_readers(struct crowd *crowd, unsigned process, unsigned count, unsigned hold_us)
{
    struct reader readers[THREADS];
    pthread_t threads[THREADS];
    dibs_runtime *rt = bench_open(0);

    for (unsigned i = 0; i < count; i++) {
        readers[i] = (struct reader){crowd, rt, process * THREADS + i, hold_us};
        threads[i] = bench_thread(read_on, &readers[i]);
    }
    for (unsigned i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    dibs_close(rt);
    atomic_fetch_add(&crowd->ended, 1);
}

/* The last one says when it is over. */
static void be_in_the_crowd(unsigned number, void *memory)
{
    struct crowd *crowd = memory;

    if (number < PROCESSES) {
        run_readers(crowd, number, THREADS, 0);
        return;
    }
    team_await(&crowd->arrived, PROCESSES * THREADS);
    pause_us(UINT64_C(1000) * bench_options.round_ms);
    atomic_store(&crowd->over, true);
}

static void measure_crowd(bool shared, double out[])
{
    struct crowd *crowd = team_memory(sizeof *crowd);

    crowd->shared = shared;
    if (!team_run(PROCESSES + 1, be_in_the_crowd, crowd, TEAM_LIMIT_S))
        cleanup_fail("the readers failed");
    out[0] = (double)atomic_load(&crowd->pairs) / bench_options.round_ms * 1e3;
}

static void crowd_alone(const void *unused, double out[])
{
    (void)unused;
    measure_crowd(false, out);
}

static void crowd_shared(const void *unused, double out[])
{
    (void)unused;
    measure_crowd(true, out);
}

static bool run_crowd(void)
{
    static const struct figure figure = {"pairs a second", ""};
    static const struct side sides[] = {{"64 names", crowd_alone}, {"one shared name", crowd_shared}};
    static const struct table table = {"shared-readers", &figure, 1, sides, 2};
    static struct grid grid;

    if (!rounds_run(&grid, &table, "64 threads of 4 processes", NULL))
        return false;
    at_least("pairs a second of readers over those of holders", grid_ratio(&grid, 1, 0, 0).median, 0.8, "x");
    return true;
}

/* -------------------------------------------------------------------- writer */

enum { WAIT_MEDIAN, WAIT_MOST, WRITER_FIGURES };

static const struct figure writer_figures[WRITER_FIGURES] = {
    [WAIT_MEDIAN] = {"median wait of the writer", "ms"},
    [WAIT_MOST] = {"the longest", "ms"},
};

static void read_without_end(unsigned number, void *memory)
{
    (void)number;
    run_readers(memory, 0, THREADS, HOLD_US);
}

static void measure_writer(const void *unused, double out[])
{
    struct crowd *crowd = team_memory(sizeof *crowd);
    unsigned count = bench_scaled(WRITES);
    double *waits = calloc(count, sizeof *waits);

    (void)unused;
    crowd->shared = true;
    int readers = helper_start(0, read_without_end, crowd);
    team_await(&crowd->arrived, THREADS);
    dibs_runtime *rt = bench_open(0);
    for (unsigned i = 0; waits && i < count; i++) {
        pause_us(UINT64_C(2) * HOLD_US);
        double asked = now_ns();
        must(dibs_lock(rt, "read:0"));
        waits[i] = (now_ns() - asked) / 1e6;
        must(dibs_unlock(rt, "read:0"));
    }
    dibs_close(rt);
    atomic_store(&crowd->over, true); /* else the next round waits for the leases of readers that were killed */
    team_await(&crowd->ended, 1);
    helper_stop(readers);
    if (!waits)
        return;
    out[WAIT_MEDIAN] = median(waits, count); /* sorts them */
    out[WAIT_MOST] = waits[count - 1];
    free(waits);
}

static bool run_writer(void)
{
    static const struct side side = {"writer", measure_writer};
    static const struct table table = {"shared-writer", writer_figures, WRITER_FIGURES, &side, 1};
    static struct grid grid;

    if (!rounds_run(&grid, &table, "16 readers of 5 ms each", NULL))
        return false;
    at_most("median wait over the time of one that is inside",
            grid_value(&grid, 0, WAIT_MEDIAN).median / (HOLD_US / 1e3), 1.2, "x");
    return true;
}

/* ------------------------------------------------------------------- permits */

struct owner {
    dibs_runtime *rt;
    char name[16];
    dibs_lock_options options;
    pthread_t thread;
};

static atomic_uint owning;
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER; /* locked until the owners may unlock */

static void *own(void *arg)
{
    struct owner *owner = arg;

    must(dibs_lock_with(owner->rt, owner->name, DIBS_WAIT_FOREVER, &owner->options));
    atomic_fetch_add(&owning, 1);
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
    must(dibs_unlock(owner->rt, owner->name));
    return NULL;
}

static void measure_renewal(bool permits, double out[])
{
    unsigned count = bench_scaled(1000), lease_ms = bench_options.quick ? LEASE_MS / 3 : LEASE_MS;
    struct owner *owners = calloc(count, sizeof *owners);
    dibs_runtime *rt = bench_open_with((dibs_config){.lease_ms = lease_ms});

    if (!owners)
        cleanup_fail("no memory for the owners");
    pthread_mutex_lock(&gate);
    for (unsigned i = 0; i < count; i++) {
        owners[i].rt = rt;
        if (permits)
            owners[i].options = (dibs_lock_options){.flags = DIBS_SHARED, .limit = count};
        snprintf(owners[i].name, sizeof owners[i].name, "own:%u", permits ? 0 : i);
        owners[i].thread = bench_thread(own, &owners[i]);
    }
    team_await(&owning, count);
    pause_us(UINT64_C(1000) * lease_ms);
    struct usage begin = usage_now();
    pause_us(UINT64_C(2000) * lease_ms);
    struct usage used = usage_between(begin, usage_now());
    pthread_mutex_unlock(&gate);
    for (unsigned i = 0; i < count; i++)
        pthread_join(owners[i].thread, NULL);
    out[0] = used.server_ns / used.wall_ns * 100;
    out[1] = used.client_ns / used.wall_ns * 100;
    dibs_close(rt);
    free(owners);
}

static void renew_locks(const void *unused, double out[])
{
    (void)unused;
    measure_renewal(false, out);
}

static void renew_permits(const void *unused, double out[])
{
    (void)unused;
    measure_renewal(true, out);
}

static bool run_renewal(void)
{
    static const struct figure figures[] = {{"server's share of a processor", "%"},
                                            {"client's share of a processor", "%"}};
    static const struct side sides[] = {{"locks", renew_locks}, {"permits", renew_permits}};
    static const struct table table = {"shared-renewal", figures, 2, sides, 2};
    static struct grid grid;

    if (!rounds_run(&grid, &table, "leases of 3 s", NULL))
        return false;
    at_most("server time for permits over that for locks", grid_ratio(&grid, 1, 0, 0).median, 1.2, "x");
    return true;
}

static bool run(void)
{
    bool pairs = run_pair(), crowd = run_crowd(), writer = run_writer();

    return run_renewal() && pairs && crowd && writer;
}

int main(int argc, char **argv)
{
    bench_read_options(argc, argv,
                       "Usage: shared [OPTION...]\n"
                       "Measures shared locks beside exclusive ones.\n\n");
    bench_run(run);
}
