/*
 * What kept leases (keep_ms) save the process that keeps them, and what they cost others:
 *
 *   keep         pairs on names that the process keeps, by one thread and by eight, each on a name of its own
 *   keep-once    many names that are used once each, and so kept for nothing
 *   keep-turns   two processes that take turns on one name
 *   keep-recall  how soon another process has a name that is only kept, beside a hand-over by a holder to who waits
 *   keep-end     how soon it has the name of a keeper that was killed, or is stopped
 */
#include <dibs.h>

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "support/bench.h"
#include "support/common/cleanup.h"
#include "support/common/timing.h"
#include "support/options.h"
#include "support/plain.h"
#include "support/rounds.h"
#include "support/target.h"
#include "support/team.h"
#include "support/usage.h"

enum { KEEP_MS = 1000, SHORT_KEEP_MS = 50, THREADS_MOST = 8, TEAM_LIMIT_S = 600, LINE = 64 };
enum { USES = 6 /* pairs in a row, after which a lease is kept */, PAUSE_US = 300, SETTLE_US = 100000 };

static dibs_runtime *open_keeping(uint32_t keep_ms)
{
    return bench_open_with((dibs_config){.keep_ms = keep_ms});
}

static void pair(dibs_runtime *rt, const char *name)
{
    must(dibs_lock(rt, name));
    must(dibs_unlock(rt, name));
}

/* -------------------------------------------------------------------- pairs */

enum { RATE, TIME, ON_TOP, COMMANDS, PAIR_FIGURES };

static const struct figure pair_figures[PAIR_FIGURES] = {
    [RATE] = {"pairs a second", ""},
    [TIME] = {"time of a pair", "us"},
    [ON_TOP] = {"the same without two clock readings", "us"},
    [COMMANDS] = {"store commands in a thousand pairs", ""},
};

struct worker {
    _Alignas(LINE) atomic_ulong pairs; /* written by the worker alone */
    dibs_runtime *rt;                  /* NULL: plain hiredis */
    struct plain plain;
    char name[16];
    pthread_t thread;
};

static struct worker workers[THREADS_MOST];
static atomic_bool over;

static void *work(void *arg)
{
    struct worker *worker = arg;
    unsigned long pairs = 0;

    while (!atomic_load_explicit(&over, memory_order_relaxed)) {
        if (worker->rt)
            pair(worker->rt, worker->name);
        else if (!plain_lock(&worker->plain, worker->name, "t") || !plain_unlock(&worker->plain, worker->name, "t"))
            cleanup_fail("the lock of plain hiredis was lost");
        atomic_store_explicit(&worker->pairs, ++pairs, memory_order_relaxed);
    }
    return NULL;
}

static double pairs_of(unsigned threads)
{
    double sum = 0;

    for (unsigned i = 0; i < threads; i++)
        sum += (double)atomic_load(&workers[i].pairs);
    return sum;
}

/* All that the server has done so far, without the question itself. */
static double commands_done(redisContext *redis)
{
    redisReply *reply = redisCommand(redis, "INFO stats");
    const char *line = reply && reply->str ? strstr(reply->str, "total_commands_processed:") : NULL;
    static unsigned asked;

    if (!line)
        cleanup_fail("the server does not count its commands");
    double done = strtod(line + strlen("total_commands_processed:"), NULL) - asked++;
    freeReplyObject(reply);
    return done;
}

static double two_clock_readings_us(void)
{
    enum { READINGS = 20000 };
    struct timespec now;
    double start = now_ns();

    for (int i = 0; i < READINGS; i++)
        clock_gettime(CLOCK_MONOTONIC, &now);
    return 2 * (now_ns() - start) / READINGS / 1e3;
}

static void measure_pairs(unsigned threads, dibs_runtime *rt, double out[])
{
    redisContext *redis = bench_connect();

    for (unsigned i = 0; i < threads; i++) {
        workers[i].rt = rt;
        snprintf(workers[i].name, sizeof workers[i].name, "keep:%u", i);
        if (!rt)
            plain_open(&workers[i].plain, false);
        workers[i].thread = bench_thread(work, &workers[i]);
    }
    pause_us(UINT64_C(250) * bench_options.round_ms);
    double commands = commands_done(redis), before = pairs_of(threads);
    struct usage begin = usage_now();
    pause_us(UINT64_C(1000) * bench_options.round_ms);
    double pairs = pairs_of(threads) - before;
    struct usage used = usage_between(begin, usage_now());
    commands = commands_done(redis) - commands;
    atomic_store(&over, true);
    for (unsigned i = 0; i < threads; i++)
        pthread_join(workers[i].thread, NULL);
    for (unsigned i = 0; !rt && i < threads; i++)
        plain_close(&workers[i].plain);
    redisFree(redis);
    dibs_close(rt);
    if (pairs <= 0)
        return;
    out[RATE] = pairs / used.wall_ns * 1e9;
    out[TIME] = used.wall_ns * threads / pairs / 1e3;
    out[ON_TOP] = out[TIME] - two_clock_readings_us();
    out[COMMANDS] = commands / pairs * 1000;
}

static void pairs_of_plain(const void *threads, double out[])
{
    measure_pairs(*(const unsigned *)threads, NULL, out);
}

static void pairs_of_dibs(const void *threads, double out[])
{
    measure_pairs(*(const unsigned *)threads, bench_open(0), out);
}

static void pairs_of_keeper(const void *threads, double out[])
{
    measure_pairs(*(const unsigned *)threads, open_keeping(KEEP_MS), out);
}

static bool run_pairs(void)
{
    static const unsigned counts[] = {1, THREADS_MOST};
    static const struct side sides[] = {
        {"hiredis", pairs_of_plain}, {"dibs", pairs_of_dibs}, {"keep_ms", pairs_of_keeper}};
    static const struct table table = {"keep", pair_figures, PAIR_FIGURES, sides, 3};
    static struct grid grid;
    char cell[32];
    bool done = true;

    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        snprintf(cell, sizeof cell, "%u thread%s", counts[i], counts[i] > 1 ? "s" : "");
        if (!rounds_run(&grid, &table, cell, &counts[i])) {
            done = false;
            continue;
        }
        if (counts[i] == 1)
            at_most("a kept pair without two clock readings", grid_value(&grid, 2, ON_TOP).median, 0.25, " us");
        else
            at_least("kept pairs a second", grid_value(&grid, 2, RATE).median / 1e6, 5, " million");
        at_most("store commands in a thousand kept pairs", grid_value(&grid, 2, COMMANDS).median, 1, "");
    }
    return done;
}

/* ------------------------------------------------------------------ used once */

static void measure_once(uint32_t keep_ms, unsigned names, double out[])
{
    dibs_runtime *rt = keep_ms ? open_keeping(keep_ms) : bench_open(0);
    char name[16];

    pair(rt, "first");
    double start = now_ns();
    for (unsigned i = 0; i < names; i++) {
        snprintf(name, sizeof name, "once:%u", i);
        pair(rt, name);
    }
    out[0] = (now_ns() - start) / names / 1e3;
    dibs_close(rt);
}

static void once_without(const void *names, double out[])
{
    measure_once(0, *(const unsigned *)names, out);
}

static void once_keeping(const void *names, double out[])
{
    measure_once(KEEP_MS, *(const unsigned *)names, out);
}

static bool run_once(void)
{
    static const struct figure figure = {"time of a pair", "us"};
    static const struct side sides[] = {{"dibs", once_without}, {"keep_ms", once_keeping}};
    static const struct table table = {"keep-once", &figure, 1, sides, 2};
    static struct grid grid;
    unsigned names = bench_scaled(100000);

    if (!rounds_run(&grid, &table, "names used once", &names))
        return false;
    at_most("time of a pair over that without keep_ms", grid_ratio(&grid, 1, 0, 0).median, 1.05, "x");
    return true;
}

/* --------------------------------------------------------------- taking turns */

struct turns {
    atomic_uint arrived;
    atomic_ulong pairs;
    uint32_t keep_ms;
};

static void take_turns(unsigned number, void *memory)
{
    struct turns *turns = memory;
    dibs_runtime *rt = turns->keep_ms ? open_keeping(turns->keep_ms) : bench_open(0);
    unsigned long pairs = 0;

    (void)number;
    pair(rt, "first");
    team_meet(&turns->arrived, 2);
    for (double end = now_ns() + bench_options.round_ms * 1e6; now_ns() < end; pairs++)
        pair(rt, "turns");
    atomic_fetch_add(&turns->pairs, pairs);
    dibs_close(rt);
}

static void measure_turns(uint32_t keep_ms, double out[])
{
    struct turns *turns = team_memory(sizeof *turns);

    turns->keep_ms = keep_ms;
    if (!team_run(2, take_turns, turns, TEAM_LIMIT_S))
        cleanup_fail("two processes that take turns failed");
    out[0] = bench_options.round_ms * 1e3 / (double)atomic_load(&turns->pairs);
}

static void turns_without(const void *unused, double out[])
{
    (void)unused;
    measure_turns(0, out);
}

static void turns_keeping(const void *unused, double out[])
{
    (void)unused;
    measure_turns(KEEP_MS, out);
}

static bool run_turns(void)
{
    static const struct figure figure = {"time of a turn", "us"};
    static const struct side sides[] = {{"dibs", turns_without}, {"keep_ms", turns_keeping}};
    static const struct table table = {"keep-turns", &figure, 1, sides, 2};
    static struct grid grid;

    if (!rounds_run(&grid, &table, "two processes", NULL))
        return false;
    at_most("time of a turn over that without keep_ms", grid_ratio(&grid, 1, 0, 0).median, 1.1, "x");
    return true;
}

/* -------------------------------------------------------------------- recall */

enum { MEDIAN, NINETY_NINE, REFUSED, RECALL_FIGURES };
enum recall { HAND_OVER, RECALL, ONE_TRY };

static const struct figure recall_figures[RECALL_FIGURES] = {
    [MEDIAN] = {"median", "us"},
    [NINETY_NINE] = {"99th percentile", "us"},
    [REFUSED] = {"of one try: refused", ""},
};

struct recalls {
    enum recall way;
    unsigned count;
    atomic_uint arrived, ready, taken;
    double unlocked_at; /* written before the unlock */
    double times[];     /* us; of the taker */
};

/* Each name is used for one recall: one that was recalled is not kept for a while. */
static void name_of(char name[24], unsigned i)
{
    snprintf(name, 24, "recall:%u", i);
}

static void await_waiter(dibs_runtime *rt, const char *name)
{
    dibs_owner owner;

    do {
        pause_us(PAUSE_US);
        must(dibs_query(rt, name, &owner));
    } while (owner.waiters != 1);
    pause_us(PAUSE_US);
}

static void keep_names(struct recalls *recalls)
{
    dibs_runtime *rt = open_keeping(recalls->way == HAND_OVER ? 0 : KEEP_MS);
    char name[24];

    pair(rt, "first");
    team_meet(&recalls->arrived, 2);
    for (unsigned i = 0; i < recalls->count; i++) {
        name_of(name, i);
        for (int use = 1; use < USES; use++)
            pair(rt, name);
        must(dibs_lock(rt, name));
        if (recalls->way == HAND_OVER) {
            atomic_fetch_add(&recalls->ready, 1);
            await_waiter(rt, name);
            recalls->unlocked_at = now_ns();
            must(dibs_unlock(rt, name));
        } else {
            must(dibs_unlock(rt, name));
            pause_us(UINT64_C(2) * PAUSE_US);
            atomic_fetch_add(&recalls->ready, 1);
        }
        team_await(&recalls->taken, i + 1);
    }
    dibs_close(rt);
}

static double take_name(const struct recalls *recalls, dibs_runtime *rt, const char *name)
{
    double asked = now_ns();
    dibs_status status = recalls->way == ONE_TRY ? dibs_trylock(rt, name) : dibs_lock(rt, name);
    double now = now_ns();

    if (status == DIBS_BUSY)
        return -1;
    must(status);
    must(dibs_unlock(rt, name));
    return (now - (recalls->way == HAND_OVER ? recalls->unlocked_at : asked)) / 1e3;
}

static void take_names(struct recalls *recalls)
{
    dibs_runtime *rt = bench_open(0);
    char name[24];

    pair(rt, "other");
    pause_us(SETTLE_US);
    team_meet(&recalls->arrived, 2);
    for (unsigned i = 0; i < recalls->count; i++) {
        name_of(name, i);
        team_await(&recalls->ready, i + 1);
        recalls->times[i] = take_name(recalls, rt, name);
        atomic_fetch_add(&recalls->taken, 1);
    }
    dibs_close(rt);
}

static void recall_names(unsigned number, void *memory)
{
    if (number == 0)
        keep_names(memory);
    else
        take_names(memory);
}

static void measure_recall(enum recall way, unsigned count, double out[])
{
    struct recalls *recalls = team_memory(sizeof *recalls + count * sizeof recalls->times[0]);
    unsigned refused = 0;

    recalls->way = way;
    recalls->count = count;
    if (!team_run(2, recall_names, recalls, TEAM_LIMIT_S))
        cleanup_fail("the recalls failed");
    for (unsigned i = 0; i < count; i++)
        refused += recalls->times[i] < 0;
    out[MEDIAN] = percentile(recalls->times, count, 50);
    out[NINETY_NINE] = percentile(recalls->times, count, 99);
    out[REFUSED] = refused;
}

static void hand_over(const void *count, double out[])
{
    measure_recall(HAND_OVER, *(const unsigned *)count, out);
}

static void recall(const void *count, double out[])
{
    measure_recall(RECALL, *(const unsigned *)count, out);
}

static void one_try(const void *count, double out[])
{
    measure_recall(ONE_TRY, *(const unsigned *)count, out);
}

static bool run_recalls(void)
{
    static const struct side sides[] = {{"hand-over", hand_over}, {"kept", recall}, {"one try", one_try}};
    static const struct table table = {"keep-recall", recall_figures, RECALL_FIGURES, sides, 3};
    static struct grid grid;
    unsigned count = bench_scaled(2000);

    if (!rounds_run(&grid, &table, "two processes", &count))
        return false;
    at_most("an acquire of a kept name over a hand-over at the median", grid_ratio(&grid, 1, MEDIAN, 0).median, 1.5,
            "x");
    at_most("an acquire of a kept name over a hand-over at p99", grid_ratio(&grid, 1, NINETY_NINE, 0).median, 2, "x");
    at_most("tries of a kept name that were refused", grid_value(&grid, 2, REFUSED).high, 0, "");
    return true;
}

/* ----------------------------------------------------------- the keeper's end */

enum { END_MEDIAN, END_MOST, END_BEYOND, END_FIGURES };
enum { AT_ONCE = 25, LEAST_US = 20000, SPAN_US = 25000, BOUND_MS = 4 * SHORT_KEEP_MS + 100, WAIT_MS = 10000 };

static const struct figure end_figures[END_FIGURES] = {
    [END_MEDIAN] = {"median", "ms"},
    [END_MOST] = {"the longest", "ms"},
    [END_BEYOND] = {"later than the bound", ""},
};

/* One keeper and who wants its name afterwards. */
struct end {
    atomic_uint ended; /* set by the keeper */
    double ended_at;   /* written before that */
    int pid;
    unsigned number;
    dibs_runtime *rt; /* of the taker */
    double *ms;       /* the taker's */
    pthread_t thread;
};

struct ends {
    int signal;
    struct end end[AT_ONCE];
};

static bool keeps_one(dibs_runtime *rt)
{
    dibs_stats stats;

    dibs_stats_get(rt, &stats);
    return stats.kept == 1;
}

/* On a busy machine the store may learn of it late. */
static bool store_knows(dibs_runtime *rt, const char *name)
{
    dibs_owner owner;

    must(dibs_query(rt, name, &owner));
    return owner.kept;
}

/* Keeps a name, and ends itself at some time between the store's learning of it and the return of the lease. */
static void keep_and_end(unsigned number, void *memory)
{
    struct ends *ends = memory;
    dibs_runtime *rt = open_keeping(SHORT_KEEP_MS);
    unsigned seed = (unsigned)getpid();
    char name[24];

    name_of(name, number);
    do {
        for (int i = 0; i < USES; i++)
            pair(rt, name);
        pause_us(LEAST_US + (unsigned)rand_r(&seed) % SPAN_US);
    } while (!store_knows(rt, name) || !keeps_one(rt));
    ends->end[number].ended_at = now_ns();
    atomic_store(&ends->end[number].ended, 1);
    kill(getpid(), ends->signal);
    for (;;)
        pause();
}

static void *take_from(void *arg)
{
    struct end *end = arg;
    char name[24];

    name_of(name, end->number);
    team_await(&end->ended, 1);
    must(dibs_timedlock(end->rt, name, WAIT_MS));
    *end->ms = (now_ns() - end->ended_at) / 1e6;
    must(dibs_unlock(end->rt, name));
    return NULL;
}

static void measure_some_ends(int signal, unsigned count, double *ms)
{
    struct ends *ends = team_memory(sizeof *ends);

    ends->signal = signal;
    for (unsigned i = 0; i < count; i++)
        ends->end[i].pid = helper_start(i, keep_and_end, ends);
    dibs_runtime *rt = bench_open(0);
    for (unsigned i = 0; i < count; i++) {
        ends->end[i].number = i;
        ends->end[i].rt = rt;
        ends->end[i].ms = &ms[i];
        ends->end[i].thread = bench_thread(take_from, &ends->end[i]);
    }
    for (unsigned i = 0; i < count; i++)
        pthread_join(ends->end[i].thread, NULL);
    dibs_close(rt);
    for (unsigned i = 0; i < count; i++)
        helper_stop(ends->end[i].pid);
}

static void measure_ends(int signal, unsigned count, double out[])
{
    double *ms = team_memory(count * sizeof *ms);

    for (unsigned i = 0; i < count; i += AT_ONCE)
        measure_some_ends(signal, count - i < AT_ONCE ? count - i : AT_ONCE, &ms[i]);
    out[END_MEDIAN] = median(ms, count); /* sorts them */
    out[END_MOST] = ms[count - 1];
    out[END_BEYOND] = 0;
    for (unsigned i = 0; i < count; i++)
        out[END_BEYOND] += ms[i] > BOUND_MS;
}

static void end_killed(const void *count, double out[])
{
    measure_ends(SIGKILL, *(const unsigned *)count, out);
}

static void end_stopped(const void *count, double out[])
{
    measure_ends(SIGSTOP, *(const unsigned *)count, out);
}

static bool run_ends(void)
{
    static const struct side sides[] = {{"killed", end_killed}, {"stopped", end_stopped}};
    static const struct table table = {"keep-end", end_figures, END_FIGURES, sides, 2};
    static struct grid grid;
    unsigned count = bench_scaled(100);

    if (!rounds_run(&grid, &table, "25 keepers at a time", &count))
        return false;
    for (unsigned side = 0; side < 2; side++) {
        at_most(sides[side].name, grid_value(&grid, side, END_MOST).high, BOUND_MS, " ms");
        at_most("names that were had later", grid_value(&grid, side, END_BEYOND).high, 0, "");
    }
    return true;
}

/* ------------------------------------------------------------------- program */

static const struct {
    const char *name;
    bool (*run)(void);
} tables[] = {
    {"keep", run_pairs}, {"once", run_once}, {"turns", run_turns}, {"recall", run_recalls}, {"end", run_ends}};

static const char *only; /* NULL: all */

static bool run(void)
{
    bool done = true;

    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        if (!only || strcmp(only, tables[i].name) == 0)
            done = tables[i].run() && done;
    return done;
}

static bool is_table(const char *name)
{
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        if (strcmp(name, tables[i].name) == 0)
            return true;
    return false;
}

static int usage(FILE *out, int status)
{
    fputs("Usage: keep [OPTION...]\n"
          "Measures kept leases: what they save, and what they cost others.\n\n"
          "  --only keep|once|turns|recall|end\n"
          "                        only that table\n" BENCH_OPTIONS_USAGE,
          out);
    return status;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {BENCH_OPTIONS, {"only", required_argument, NULL, 'o'}, {0}};

    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (option == 'o' && is_table(optarg))
            only = optarg;
        else if (!bench_option(option, optarg))
            exit(option == 'h' ? usage(stdout, 0) : usage(stderr, 2));
    }
    if (optind < argc)
        exit(usage(stderr, 2));
    bench_run(run);
}
