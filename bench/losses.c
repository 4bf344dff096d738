/*
 * How soon a holder knows that it has lost its lock, and a waiter that a client without dibs has released one. Leases
 * of 30 s, which are renewed every 10 s: without a message from the server a loss is known after up to that time.
 *
 *   the event     from before the command that takes the lock away until on_event is told DIBS_EVENT_LOST
 *   dibs_check    the same, until dibs_check says DIBS_LOST
 *   dibs_lock     from before a foreign holder's DEL until the waiting dibs_lock returns
 *
 * In each round 100 locks are held, each for more than 50 ms, and taken away one by one; FLUSHDB, FLUSHALL and eviction
 * take all at once. Where a loss is not known within five seconds, the program fails: no message told of it, and the
 * next renewal would after ten.
 */
#include <dibs.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/bench.h"
#include "support/common/cleanup.h"
#include "support/common/naive_lock.h"
#include "support/common/timing.h"
#include "support/options.h"
#include "support/rounds.h"
#include "support/target.h"

enum { LOCKS = 100, ROUNDS = 10, AGE_MS = 60, KNOWN_MS = 5000, LEASE_MS = 30000, LOOK_US = 50 };

enum figure_number { EVENT, EVENT_P99, CHECK, CHECK_P99, LOSSES, FIGURES };

static const struct figure figures[FIGURES] = {[EVENT] = {"median of the event", "ms"},
                                               [EVENT_P99] = {"p99 of the event", "ms"},
                                               [CHECK] = {"median of dibs_check", "ms"},
                                               [CHECK_P99] = {"p99 of dibs_check", "ms"},
                                               [LOSSES] = {"losses", ""}};

static double told[LOCKS];              /* when the event came; written before `events` is raised */
static atomic_uint events;              /* how many have come in this round */
static double event_ms[LOCKS * ROUNDS]; /* of all losses */
static double check_ms[LOCKS * ROUNDS];
static dibs_runtime *runtime, *other; /* other takes locks by force */
static redisContext *redis;

static void on_event(const dibs_event *event, void *arg)
{
    (void)arg;
    if (event->kind != DIBS_EVENT_LOST || strncmp(event->name, "lock", 4) != 0)
        return;
    unsigned long number = strtoul(event->name + 4, NULL, 10);
    if (number >= LOCKS)
        return;
    told[number] = now_ns();
    atomic_fetch_add(&events, 1);
}

/* --------------------------------------------------------------------- kinds */

struct kind {
    const char *name;
    const char *command; /* with the name of a lock; NULL: dibs_force_unlock */
    bool all;            /* takes all locks at once */
};

static const struct kind kinds[] = {
    {"DEL", "DEL lock:%s", false},
    {"UNLINK", "UNLINK lock:%s", false},
    {"SET by another", "SET lock:%s another", false},
    {"SETEX by another", "SETEX lock:%s 100 another", false},
    {"RENAME", "RENAME lock:%s renamed", false},
    {"PEXPIRE 1", "PEXPIRE lock:%s 1", false},
    {"dibs_force_unlock", NULL, false},
    {"FLUSHDB", "FLUSHDB", true},
    {"FLUSHALL", "FLUSHALL", true},
    {"eviction", "CONFIG SET maxmemory 1", true},
};

static void take_away(const struct kind *kind, const char *name)
{
    if (!kind->command)
        must(dibs_force_unlock(other, name, NULL));
    else if (kind->all)
        freeReplyObject(naive_command(redis, kind->command));
    else
        freeReplyObject(naive_command(redis, kind->command, name));
}

/* -------------------------------------------------------------------- rounds */

/* When dibs_check says that the lock is lost. Fails after KNOWN_MS. Leaves the processor to the others in between. */
static double await_lost(const char *name, double begin)
{
    for (; dibs_check(runtime, name) != DIBS_LOST; usleep(LOOK_US))
        if (now_ns() - begin > KNOWN_MS * 1e6)
            cleanup_fail("%s was not lost within %d ms", name, KNOWN_MS);
    return now_ns();
}

static void await_events(unsigned count, double begin)
{
    for (; atomic_load(&events) < count; usleep(LOOK_US))
        if (now_ns() - begin > KNOWN_MS * 1e6)
            cleanup_fail("no event within %d ms", KNOWN_MS);
}

static void lose_each(const struct kind *kind, unsigned locks, double *event, double *check)
{
    char name[16];

    for (unsigned i = 0; i < locks; i++) {
        snprintf(name, sizeof name, "lock%u", i);
        double begin = now_ns();
        take_away(kind, name);
        check[i] = (await_lost(name, begin) - begin) / 1e6;
        await_events(i + 1, begin);
        event[i] = (told[i] - begin) / 1e6;
    }
}

/* dibs_check looks at one lock after another, so the times of the last ones say how soon all are known. */
static void lose_all(const struct kind *kind, unsigned locks, double *event, double *check)
{
    char name[16];
    double begin = now_ns();

    take_away(kind, NULL);
    for (unsigned i = 0; i < locks; i++) {
        snprintf(name, sizeof name, "lock%u", i);
        check[i] = (await_lost(name, begin) - begin) / 1e6;
    }
    await_events(locks, begin);
    for (unsigned i = 0; i < locks; i++)
        event[i] = (told[i] - begin) / 1e6;
}

static void run_round(const struct kind *kind, unsigned locks, double *event, double *check)
{
    char name[16];

    freeReplyObject(naive_command(redis, "CONFIG SET maxmemory 0"));
    freeReplyObject(naive_command(redis, "FLUSHALL"));
    for (unsigned i = 0; i < locks; i++) {
        snprintf(name, sizeof name, "lock%u", i);
        must(dibs_lock(runtime, name));
    }
    usleep(AGE_MS * 1000); /* what is measured are leases of that age */
    atomic_store(&events, 0);
    (kind->all ? lose_all : lose_each)(kind, locks, event, check);
    for (unsigned i = 0; i < locks; i++) {
        snprintf(name, sizeof name, "lock%u", i);
        if (dibs_unlock(runtime, name) != DIBS_LOST)
            cleanup_fail("%s was not lost", name);
    }
}

static void open_all(void)
{
    redis = bench_connect();
    freeReplyObject(naive_command(redis, "CONFIG SET maxmemory-policy allkeys-random"));
    runtime = bench_open_with((dibs_config){.lease_ms = LEASE_MS, .on_event = on_event});
    other = bench_open(0);
}

static void close_all(void)
{
    freeReplyObject(naive_command(redis, "CONFIG SET maxmemory 0"));
    dibs_close(other);
    dibs_close(runtime);
    redisFree(redis);
}

static void measure(const void *condition, double out[])
{
    const struct kind *kind = condition;
    unsigned locks = bench_options.quick ? 3 : LOCKS, rounds = bench_options.quick ? 1 : ROUNDS, count = 0;

    open_all();
    for (unsigned round = 0; round < rounds; round++, count += locks)
        run_round(kind, locks, event_ms + count, check_ms + count);
    close_all();
    out[EVENT_P99] = percentile(event_ms, count, 99);
    out[EVENT] = median(event_ms, count);
    out[CHECK_P99] = percentile(check_ms, count, 99);
    out[CHECK] = median(check_ms, count);
    out[LOSSES] = count;
}

static bool run_kind(const struct kind *kind)
{
    static const struct side sides[] = {{"dibs", measure}};
    static const struct table table = {"losses", figures, FIGURES, sides, 1};
    static struct grid grid;

    if (!rounds_run(&grid, &table, kind->name, kind))
        return false;
    at_most("median of the event", grid_value(&grid, 0, EVENT).median, 5, "ms");
    at_most("p99 of the event", grid_value(&grid, 0, EVENT_P99).median, 25, "ms");
    at_most("p99 of dibs_check", grid_value(&grid, 0, CHECK_P99).median, 25, "ms");
    return true;
}

/* ----------------------------------------------------------- foreign holders */

enum { FOREIGN = 200, WAITED_MS = 20 };

static const struct figure foreign_figures[] = {{"median of dibs_lock", "ms"}, {"p99 of dibs_lock", "ms"}};

static double got;

static void *wait_for_lock(void *arg)
{
    (void)arg;
    must(dibs_lock(runtime, "foreign"));
    got = now_ns();
    must(dibs_unlock(runtime, "foreign"));
    return NULL;
}

static void measure_foreign(const void *condition, double out[])
{
    static double times[FOREIGN];
    unsigned count = bench_options.quick ? 3 : FOREIGN;

    (void)condition;
    open_all();
    for (unsigned i = 0; i < count; i++) {
        freeReplyObject(naive_command(redis, "SET lock:foreign another"));
        pthread_t thread = bench_thread(wait_for_lock, NULL);
        usleep((i == 0 ? 1000 : WAITED_MS) * 1000); /* at first the server is only asked to tell of changes */
        double begin = now_ns();
        freeReplyObject(naive_command(redis, "DEL lock:foreign"));
        pthread_join(thread, NULL);
        times[i] = (got - begin) / 1e6;
    }
    close_all();
    out[1] = percentile(times, count, 99);
    out[0] = median(times, count);
}

static bool run_foreign(void)
{
    static const struct side sides[] = {{"dibs", measure_foreign}};
    static const struct table table = {"losses", foreign_figures, 2, sides, 1};
    static struct grid grid;

    if (!rounds_run(&grid, &table, "a foreign holder's DEL", NULL))
        return false;
    at_most("median of dibs_lock", grid_value(&grid, 0, 0).median, 2, "ms");
    return true;
}

static bool run(void)
{
    bool good = true;

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        good = run_kind(&kinds[i]) && good;
    return run_foreign() && good;
}

int main(int argc, char **argv)
{
    bench_options.rounds = 1;
    bench_read_options(argc, argv,
                       "Usage: losses [OPTION...]\n"
                       "Measures how soon losses and foreign releases are known.\n\n");
    bench_run(run);
}
