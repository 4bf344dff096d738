/*
 * What it costs to keep many leases alive.
 *
 *   leases [OPTION...]                        all of the runs below
 *   leases [OPTION...] COUNT LEASE_MS [S]     one run: watches for S seconds, without S for two renewal periods
 *   leases [OPTION...] burst COUNT LEASE_MS   one burst
 *
 * A run: some threads acquire COUNT locks of LEASE_MS; then, while the leases are renewed, it is measured
 *   CPU                  how much of a core this process and redis-server use, and how much that is for each renewal
 *   memory of a lease    of the program's; what its connections take is not counted
 *   requests a second    of the program
 *   pair meanwhile       a lock and unlock of another name, against the same before: its mean and its 99th percentile
 * A burst: all COUNT locks are released while others hold leases of BURST_LEASE_MS.
 *
 * A lease that is lost makes the program fail; no time does.
 */
#include <dibs.h>

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
#include <malloc.h>
#define TELLS_MEMORY 1
#else
#define TELLS_MEMORY 0
#endif

#include "support/bench.h"
#include "support/common/cleanup.h"
#include "support/common/naive_lock.h"
#include "support/common/timing.h"
#include "support/grid.h"
#include "support/options.h"
#include "support/target.h"

enum { HOLDERS = 4, FEW = 100, PAIR_SAMPLES = 20000, PAIR_S = 4, BURST_LEASES = 200, BURST_LEASE_MS = 600 };

struct holder {
    pthread_t thread;
    unsigned first, count, lease_ms;
    const char *format; /* of the names */
};

static dibs_runtime *runtime;
static atomic_uint holding;                                   /* threads that hold all that they are to hold */
static pthread_mutex_t held_back = PTHREAD_MUTEX_INITIALIZER; /* while it is locked they go on holding */

/* ------------------------------------------------------------------- figures */

struct reading {
    double at, client, server; /* ns: the time; how long each has run on a processor */
    uint64_t commands, renewed;
};

static double seconds(struct timeval time)
{
    return (double)time.tv_sec + (double)time.tv_usec / 1e6;
}

static double info_field(const char *info, const char *field)
{
    const char *at = strstr(info, field);

    if (!at)
        cleanup_fail("INFO tells no %s", field);
    return strtod(at + strlen(field), NULL);
}

static struct reading read_figures(redisContext *redis)
{
    struct reading reading = {.at = now_ns()};
    struct rusage own;
    dibs_stats stats;

    redisReply *info = naive_command(redis, "INFO cpu");
    reading.server = 1e9 * (info_field(info->str, "used_cpu_user:") + info_field(info->str, "used_cpu_sys:"));
    freeReplyObject(info);
    getrusage(RUSAGE_SELF, &own);
    reading.client = 1e9 * (seconds(own.ru_utime) + seconds(own.ru_stime));
    dibs_stats_get(runtime, &stats);
    reading.commands = stats.store_commands;
    reading.renewed = stats.renewed;
    return reading;
}

/* Of the whole program; NAN: the C library does not tell. */
static double memory_used(void)
{
#if TELLS_MEMORY
    struct mallinfo2 info = mallinfo2();

    return (double)info.uordblks + (double)info.hblkhd;
#else
    return NAN;
#endif
}

static uint64_t lost(void)
{
    dibs_stats stats;

    dibs_stats_get(runtime, &stats);
    return stats.lost;
}

/* -------------------------------------------------------------------- others */

struct pair_times {
    double mean, most; /* ns; the 99th percentile */
};

/* Pairs of a name that nobody else uses. */
static struct pair_times time_pairs(void)
{
    static double times[PAIR_SAMPLES];
    double start = now_ns(), sum = 0;
    size_t count = 0;

    while (count < bench_scaled(PAIR_SAMPLES) && now_ns() - start < PAIR_S * 1e9) {
        double before = now_ns();
        must(dibs_lock(runtime, "another"));
        must(dibs_unlock(runtime, "another"));
        times[count] = now_ns() - before;
        sum += times[count++];
        pause_us(50);
    }
    return (struct pair_times){.mean = sum / (double)count, .most = percentile(times, count, 99)};
}

/* ------------------------------------------------------------------- holders */

static void *hold(void *arg)
{
    struct holder *holder = arg;
    char name[64];

    for (unsigned i = 0; i < holder->count; i++) {
        snprintf(name, sizeof name, holder->format, holder->first + i);
        must(dibs_lock_with(runtime, name, DIBS_WAIT_FOREVER, &(dibs_lock_options){.lease_ms = holder->lease_ms}));
    }
    atomic_fetch_add(&holding, 1);
    pthread_mutex_lock(&held_back);
    pthread_mutex_unlock(&held_back);
    must(dibs_unlock_all(runtime));
    return NULL;
}

static void begin_holding(struct holder holders[HOLDERS], unsigned count, unsigned lease_ms)
{
    atomic_store(&holding, 0);
    pthread_mutex_lock(&held_back);
    for (unsigned i = 0; i < HOLDERS; i++) {
        unsigned first = (unsigned)((uint64_t)count * i / HOLDERS),
                 end = (unsigned)((uint64_t)count * (i + 1) / HOLDERS);
        holders[i] = (struct holder){
            .first = first, .count = end - first, .lease_ms = lease_ms, .format = "warehouse:shelf:%08u"};
        holders[i].thread = bench_thread(hold, &holders[i]);
    }
    while (atomic_load(&holding) < HOLDERS)
        pause_us(1000);
}

static void end_holding(struct holder holders[HOLDERS])
{
    pthread_mutex_unlock(&held_back);
    for (unsigned i = 0; i < HOLDERS; i++)
        pthread_join(holders[i].thread, NULL);
}

/* ---------------------------------------------------------------------- runs */

enum { CLIENT, SERVER, BYTES, REQUESTS, CLIENT_EACH, SERVER_EACH, PAIR, PAIR_P99, ACQUIRED, FIGURES };

static const struct figure figures[FIGURES] = {
    [CLIENT] = {"client CPU", "% of a core"},
    [SERVER] = {"server CPU", "% of a core"},
    [BYTES] = {"memory of a lease", "bytes"},
    [REQUESTS] = {"requests a second", ""},
    [CLIENT_EACH] = {"client CPU of a renewal", "us"},
    [SERVER_EACH] = {"server CPU of a renewal", "us"},
    [PAIR] = {"pair meanwhile over before", "x"},
    [PAIR_P99] = {"its p99 over before", "x"},
    [ACQUIRED] = {"acquired in", "s"},
};

/* A run is so long that there is only one. */
static struct grid grid = {
    .table = "leases", .sides = 1, .figures = FIGURES, .rounds = 1, .side = {"dibs"}, .figure = figures};

static void set(unsigned figure, double value)
{
    grid.value[0][figure][0] = value;
}

static double got(unsigned figure)
{
    return grid.value[0][figure][0];
}

static void clear(const char *cell)
{
    grid.transport = bench_transport_name(bench_transport);
    grid.cell = cell;
    for (unsigned i = 0; i < FIGURES; i++)
        set(i, NAN);
    target_of(grid.table, grid.transport, cell);
}

static void set_rates(const struct reading *before, const struct reading *after)
{
    double ns = after->at - before->at, renewed = (double)(after->renewed - before->renewed);

    set(CLIENT, 100 * (after->client - before->client) / ns);
    set(SERVER, 100 * (after->server - before->server) / ns);
    set(REQUESTS, (double)(after->commands - before->commands) / ns * 1e9);
    if (renewed == 0)
        return;
    set(CLIENT_EACH, (after->client - before->client) / renewed / 1e3);
    set(SERVER_EACH, (after->server - before->server) / renewed / 1e3);
}

static void tell_targets(unsigned count, unsigned lease_ms)
{
    if (count >= 100000) {
        at_most("client CPU", got(CLIENT), 1, " %");
        at_most("server CPU", got(SERVER), 5, " %");
    }
    if (count == 1000 && lease_ms == 6000)
        at_most("requests a second", got(REQUESTS), 5, "");
    at_most("memory of a lease", got(BYTES), 400, " bytes");
    at_most("other locks meanwhile", got(PAIR), 1.2, "x");
}

static void watch(redisContext *redis, unsigned ms)
{
    struct reading before = read_figures(redis);

    pause_us(ms * UINT64_C(1000));
    struct reading after = read_figures(redis);
    set_rates(&before, &after);
}

/* Until the server tells of changes, or will not: a connection more, and one look at each lease, are not upkeep. */
static void await_watched(void)
{
    dibs_stats stats = {.tracking = 0};

    for (int i = 0; i < 100 && !stats.tracking; i++) {
        pause_us(10000);
        dibs_stats_get(runtime, &stats);
    }
    pause_us(100000);
}

static void run_leases(unsigned count, unsigned lease_ms, unsigned watch_s)
{
    struct holder holders[HOLDERS];
    redisContext *redis = bench_connect();
    char cell[64];

    snprintf(cell, sizeof cell, "%u leases of %u ms", count, lease_ms);
    clear(cell);
    runtime = bench_open(0);
    struct pair_times alone = time_pairs();
    begin_holding(holders, FEW, lease_ms); /* then all connections stand */
    await_watched();
    end_holding(holders);
    double memory = memory_used(), start = now_ns();
    begin_holding(holders, count, lease_ms);
    set(ACQUIRED, (now_ns() - start) / 1e9);
    await_watched();
    set(BYTES, (memory_used() - memory) / count);
    watch(redis, watch_s ? watch_s * 1000 : 2 * lease_ms / 3);
    struct pair_times meanwhile = time_pairs();
    set(PAIR, meanwhile.mean / alone.mean);
    set(PAIR_P99, meanwhile.most / alone.most);
    end_holding(holders);
    if (lost() > 0)
        cleanup_fail("%lu leases were lost", (unsigned long)lost());
    grid_show(&grid);
    tell_targets(count, lease_ms);
    dibs_close(runtime);
    redisFree(redis);
}

static void run_burst(unsigned count, unsigned lease_ms)
{
    struct holder holders[HOLDERS];
    static char names[BURST_LEASES][32];

    runtime = bench_open(0);
    begin_holding(holders, count, lease_ms);
    for (unsigned i = 0; i < BURST_LEASES; i++) {
        snprintf(names[i], sizeof names[i], "short:%u", i);
        must(dibs_lock_with(runtime, names[i], DIBS_WAIT_FOREVER, &(dibs_lock_options){.lease_ms = BURST_LEASE_MS}));
    }
    double start = now_ns();
    end_holding(holders);
    double took = now_ns() - start;
    for (unsigned i = 0; i < BURST_LEASES; i++)
        must(dibs_check(runtime, names[i]));
    must(dibs_unlock_all(runtime));
    if (lost() > 0)
        cleanup_fail("%lu leases were lost", (unsigned long)lost());
    printf("%u released in %.2f s, %s, while %d leases of %d ms were held: none was lost\n", count, took / 1e9,
           bench_transport_name(bench_transport), BURST_LEASES, BURST_LEASE_MS);
    dibs_close(runtime);
}

/* ------------------------------------------------------------------- program */

static bool chosen, burst;
static unsigned chosen_count, chosen_lease_ms, chosen_s;

static bool run(void)
{
    if (chosen && burst) {
        run_burst(chosen_count, chosen_lease_ms);
    } else if (chosen) {
        run_leases(chosen_count, chosen_lease_ms, chosen_s);
    } else if (bench_options.quick) {
        run_leases(100, 600, 0);
        run_burst(1000, 30000);
    } else {
        run_leases(1000, 6000, 0);
        run_leases(1000, 30000, 0);
        run_leases(10000, 30000, 0);
        run_leases(100000, 30000, 0);
        run_burst(100000, 30000);
    }
    return true;
}

static int usage(FILE *out, int status)
{
    fputs("Usage: leases [OPTION...] [COUNT LEASE_MS [S] | burst COUNT LEASE_MS]\n"
          "Measures what it costs to keep many leases alive.\n\n" BENCH_OPTIONS_USAGE,
          out);
    return status;
}

/* What to run, where that is chosen. */
static bool read_arguments(int argc, char **argv)
{
    burst = argc > 0 && strcmp(argv[0], "burst") == 0;
    argc -= burst;
    argv += burst;
    chosen = argc > 0;
    return (!chosen && !burst) ||
           ((argc == 2 || (argc == 3 && !burst)) && bench_number(argv[0], 1, 10000000, &chosen_count) &&
            bench_number(argv[1], 20, 86400000, &chosen_lease_ms) &&
            (argc == 2 || bench_number(argv[2], 1, 86400, &chosen_s)));
}

int main(int argc, char **argv)
{
    static const struct option options[] = {BENCH_OPTIONS, {0}};

    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;)
        if (!bench_option(option, optarg))
            exit(option == 'h' ? usage(stdout, 0) : usage(stderr, 2));
    if (!read_arguments(argc - optind, argv + optind))
        exit(usage(stderr, 2));
    bench_run(run);
}
