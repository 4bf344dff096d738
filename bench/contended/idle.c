/* What it costs that many threads wait for a lock that is held elsewhere. */
#include <dibs.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "contended/part.h"
#include "support/bench.h"
#include "support/common/cleanup.h"
#include "support/common/naive_lock.h"
#include "support/common/timing.h"
#include "support/options.h"
#include "support/team.h"

enum { IDLERS = 1000, IDLE_MS = 10000, ASLEEP_LIMIT_MS = 20000 };

struct idle {
    atomic_uint arrived;
    atomic_ulong sent[2];      /* commands sent, as the runtimes of the two processes count them */
    unsigned long sent_by_all; /* commands that the server saw */
};

static void *idle(void *arg)
{
    must(dibs_lock(arg, "idle"));
    must(dibs_unlock(arg, "idle"));
    return NULL;
}

static void await_asleep(dibs_runtime *runtime)
{
    double limit = now_ns() + ASLEEP_LIMIT_MS * 1e6;
    dibs_stats stats;

    do {
        if (now_ns() > limit)
            cleanup_fail("not all of the threads wait");
        pause_us(1000);
        dibs_stats_get(runtime, &stats);
    } while (stats.contended < bench_scaled(IDLERS));
}

/* How many commands the server shows on the monitor up to `mark`, without those that scripts call. */
static unsigned long count_until(redisContext *monitor, const char *mark)
{
    unsigned long count = 0;

    for (;;) {
        redisReply *line = bench_next_reply(monitor);
        bool marked = strstr(line->str, mark) != NULL;
        count += !marked && strstr(line->str, " lua]") == NULL;
        freeReplyObject(line);
        if (marked)
            return count;
    }
}

/*
 * How many commands all clients send in IDLE_MS. Counted by MONITOR, because the counters of INFO include the
 * commands inside scripts.
 */
static unsigned long watch(void)
{
    redisContext *redis = bench_connect(), *monitor = bench_connect();

    freeReplyObject(naive_command(monitor, "MONITOR"));
    freeReplyObject(naive_command(redis, "ECHO the-watch-begins"));
    pause_us(bench_scaled(IDLE_MS) * UINT64_C(1000));
    freeReplyObject(naive_command(redis, "ECHO the-watch-ends"));
    count_until(monitor, "the-watch-begins");
    unsigned long count = count_until(monitor, "the-watch-ends");
    redisFree(monitor);
    redisFree(redis);
    return count;
}

static unsigned long commands(dibs_runtime *runtime)
{
    dibs_stats stats;

    dibs_stats_get(runtime, &stats);
    return (unsigned long)stats.store_commands;
}

/* Process 0 holds, and watches the server; process 1 waits. */
static void hold_idle(struct idle *page, dibs_runtime *runtime)
{
    must(dibs_lock(runtime, "idle"));
    team_meet(&page->arrived, 2);
    team_meet(&page->arrived, 4);
    unsigned long before = commands(runtime);
    page->sent_by_all = watch();
    atomic_store(&page->sent[0], commands(runtime) - before);
    team_meet(&page->arrived, 6);
    must(dibs_unlock(runtime, "idle"));
}

static void wait_idle(struct idle *page, dibs_runtime *runtime)
{
    static pthread_t threads[IDLERS];

    team_meet(&page->arrived, 2);
    for (unsigned i = 0; i < bench_scaled(IDLERS); i++)
        threads[i] = bench_thread(idle, runtime);
    await_asleep(runtime);
    unsigned long before = commands(runtime);
    team_meet(&page->arrived, 4);
    team_meet(&page->arrived, 6);
    atomic_store(&page->sent[1], commands(runtime) - before);
    for (unsigned i = 0; i < bench_scaled(IDLERS); i++)
        pthread_join(threads[i], NULL);
}

static void stay_idle(unsigned number, void *memory)
{
    dibs_runtime *runtime = bench_open(0);

    if (number == 0)
        hold_idle(memory, runtime);
    else
        wait_idle(memory, runtime);
    dibs_close(runtime);
}

static bool show_idle(void *memory)
{
    struct idle *page = memory;
    unsigned long holder = atomic_load(&page->sent[0]), waiters = atomic_load(&page->sent[1]);

    double seconds = bench_scaled(IDLE_MS) / 1e3;
    printf("  in %g s the waiters' runtime counted %lu commands, the holder's %lu\n", seconds, waiters, holder);
    bool holds = at_most("commands a second by their own count", (double)(waiters + holder) / seconds, 10, "");
    return at_most("commands a second by the server's count", (double)page->sent_by_all / seconds, 10, "") && holds;
}

const struct part idle_part = {
    .name = "idle",
    .title = "1,000 threads that wait for 10 s",
    .processes = 2,
    .limit_s = 120,
    .memory = sizeof(struct idle),
    .work = stay_idle,
    .show = show_idle,
};
