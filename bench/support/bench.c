#include "support/bench.h"

#include <stdlib.h>
#include <unistd.h>

#include "support/common/cleanup.h"
#include "support/common/redis_connect.h"
#include "support/team.h"

enum { STACK = 128 * 1024 };

struct private_redis bench_server;
static pid_t starter; /* read-only once started */

/* ------------------------------------------------------------------ server */

/* Children that fail call this as well: only the program itself has something to clean up. */
static void clean(void *unused)
{
    (void)unused;
    if (getpid() != starter)
        return;
    team_kill();
    private_redis_stop(&bench_server);
}

void bench_start(void)
{
    starter = getpid();
    cleanup_install(clean, NULL);
    if (!private_redis_start(&bench_server))
        cleanup_exit(2);
}

dibs_runtime *bench_open(uint32_t handoff_ms)
{
    const char *urls[] = {bench_server.url};
    dibs_runtime *runtime;

    must(dibs_open(&runtime, &(dibs_config){.urls = urls, .url_count = 1, .handoff_ms = handoff_ms}));
    return runtime;
}

redisContext *bench_connect(void)
{
    redisContext *redis = redis_connect(bench_server.url);

    if (!redis)
        cleanup_exit(2);
    return redis;
}

redisReply *bench_next_reply(redisContext *redis)
{
    void *reply;

    if (redisGetReply(redis, &reply) != REDIS_OK || ((redisReply *)reply)->type == REDIS_REPLY_ERROR)
        cleanup_fail("Redis: a reply could not be read");
    return reply;
}

/* ----------------------------------------------------------------- program */

pthread_t bench_thread(void *(*work)(void *arg), void *arg)
{
    pthread_attr_t attributes;
    pthread_t thread;

    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK);
    if (pthread_create(&thread, &attributes, work, arg) != 0)
        cleanup_fail("no thread could be started");
    pthread_attr_destroy(&attributes);
    return thread;
}

void must(dibs_status status)
{
    if (status != DIBS_OK)
        cleanup_fail("%s: %s", dibs_status_name(status), dibs_last_error());
}

/* -------------------------------------------------------------- statistics */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double percentile(double *values, size_t count, unsigned hundredths)
{
    qsort(values, count, sizeof *values, compare);
    return values[count * hundredths / 100];
}

double median(double *values, size_t count)
{
    return percentile(values, count, 50);
}
