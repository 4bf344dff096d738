/*
 * What it costs to keep many leases alive.
 *
 *   leases                        all of the runs below
 *   leases COUNT LEASE_MS [S]     one run: watches for S seconds, without S for two renewal periods
 *   leases burst COUNT LEASE_MS   one burst
 *
 * A run: some threads acquire COUNT locks of LEASE_MS; then, while the leases are renewed, it is measured
 *   client, server    how much of a core this process and redis-server use
 *   bytes             what a lease takes of the program's memory
 *   requests          commands a second
 *   us                CPU for each lease renewed, of this process and of the server
 *   pair              a lock and unlock of another name, against the same before: its mean and its 99th percentile
 * A burst: all COUNT locks are released while others hold leases of BURST_LEASE_MS.
 *
 * A lease that is lost makes the program fail; no time does.
 */
#include <dibs.h>

#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "support/bench.h"
#include "support/common/cleanup.h"
#include "support/common/naive_lock.h"
#include "support/common/timing.h"

enum { HOLDERS = 4, PAIR_SAMPLES = 20000, PAIR_S = 4, BURST_LEASES = 200, BURST_LEASE_MS = 600 };

struct holder {
    pthread_t thread;
    unsigned first, count, lease_ms;
    const char *format; /* of the names */
};

static dibs_runtime *runtime;
static atomic_uint holding;                                   /* threads that hold all that they are to hold */
static pthread_mutex_t held_back = PTHREAD_MUTEX_INITIALIZER; /* while it is locked they go on holding */

/* ------------------------------------------------------------------- figures */

struct figures {
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

static struct figures read_figures(redisContext *redis)
{
    struct figures figures = {.at = now_ns()};
    struct rusage usage;
    dibs_stats stats;

    redisReply *info = naive_command(redis, "INFO cpu");
    figures.server = 1e9 * (info_field(info->str, "used_cpu_user:") + info_field(info->str, "used_cpu_sys:"));
    freeReplyObject(info);
    getrusage(RUSAGE_SELF, &usage);
    figures.client = 1e9 * (seconds(usage.ru_utime) + seconds(usage.ru_stime));
    dibs_stats_get(runtime, &stats);
    figures.commands = stats.store_commands;
    figures.renewed = stats.renewed;
    return figures;
}

/* Of the whole program. */
static double memory_used(void)
{
    struct mallinfo2 info = mallinfo2();

    return (double)info.uordblks + (double)info.hblkhd;
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

    while (count < PAIR_SAMPLES && now_ns() - start < PAIR_S * 1e9) {
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

static void show_run(unsigned count, unsigned lease_ms, const struct figures *before, const struct figures *after)
{
    double ns = after->at - before->at, renewed = (double)(after->renewed - before->renewed);

    printf("%7u of %5u ms   client %6.2f %%   server %6.2f %%   %7.1f requests/s   us a renewal: %5.2f, %5.2f", count,
           lease_ms, 100 * (after->client - before->client) / ns, 100 * (after->server - before->server) / ns,
           (double)(after->commands - before->commands) / ns * 1e9, (after->client - before->client) / renewed / 1e3,
           (after->server - before->server) / renewed / 1e3);
}

static void run(unsigned count, unsigned lease_ms, unsigned watch_s)
{
    struct holder holders[HOLDERS];
    redisContext *redis = bench_connect();

    runtime = bench_open(0);
    struct pair_times alone = time_pairs();
    double memory = memory_used(), start = now_ns();
    begin_holding(holders, count, lease_ms);
    double took = now_ns() - start;
    memory = memory_used() - memory;
    if (watch_s == 0)
        watch_s = (2 * lease_ms / 3 + 999) / 1000;
    struct figures before = read_figures(redis);
    pause_us(watch_s * UINT64_C(1000000));
    struct figures after = read_figures(redis);
    struct pair_times meanwhile = time_pairs();
    show_run(count, lease_ms, &before, &after);
    printf("   %6.1f bytes   pair %5.1f -> %5.1f us (%.2f), p99 %5.1f -> %5.1f us   acquired in %.1f s, lost %lu\n",
           memory / count, alone.mean / 1e3, meanwhile.mean / 1e3, meanwhile.mean / alone.mean, alone.most / 1e3,
           meanwhile.most / 1e3, took / 1e9, (unsigned long)lost());
    end_holding(holders);
    if (lost() > 0)
        cleanup_fail("leases were lost");
    dibs_close(runtime);
    redisFree(redis);
}

static void burst(unsigned count, unsigned lease_ms)
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
    printf("%7u released in %.2f s, while %u leases of %u ms are held: lost %lu\n", count, took / 1e9, BURST_LEASES,
           BURST_LEASE_MS, (unsigned long)lost());
    if (lost() > 0)
        cleanup_fail("leases were lost");
    dibs_close(runtime);
}

int main(int argc, char **argv)
{
    bench_start();
    if (argc >= 4 && strcmp(argv[1], "burst") == 0) {
        burst((unsigned)atoi(argv[2]), (unsigned)atoi(argv[3]));
    } else if (argc >= 3) {
        run((unsigned)atoi(argv[1]), (unsigned)atoi(argv[2]), argc >= 4 ? (unsigned)atoi(argv[3]) : 0);
    } else {
        run(1000, 6000, 0);
        run(1000, 30000, 0);
        run(10000, 30000, 0);
        run(100000, 30000, 0);
        burst(100000, 30000);
    }
    cleanup_exit(0);
}
