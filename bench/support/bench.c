#include "support/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "support/common/cleanup.h"
#include "support/common/naive_lock.h"
#include "support/common/redis_connect.h"
#include "support/common/redis_process.h"
#include "support/team.h"

enum { STACK = 128 * 1024, PORT_TRIES = 3, OTHERS_MOST = 16 };

struct private_redis bench_server;
static struct private_redis others[OTHERS_MOST]; /* the main thread's */
enum bench_transport bench_transport;
const char *bench_url;
int bench_tcp_port;
static char tcp_url[32]; /* read-only once started */
static pid_t starter;    /* read-only once started */

/* ------------------------------------------------------------------ server */

/* Children that fail call this as well: only the program itself has something to clean up. */
static void clean(void *unused)
{
    (void)unused;
    if (getpid() != starter)
        return;
    team_kill();
    private_redis_stop(&bench_server);
    for (int i = 0; i < OTHERS_MOST; i++)
        private_redis_stop(&others[i]);
}

/* On a port of 127.0.0.1, which is returned. Another program may take a port first. */
static int start_server(struct private_redis *server, const char *more)
{
    char config[256];

    for (int i = 0; i < PORT_TRIES; i++) {
        int port = free_port();
        snprintf(config, sizeof config, "port %d\nbind 127.0.0.1\n%s", port, more);
        if (port > 0 && private_redis_start_with(server, config))
            return port;
    }
    cleanup_exit(2);
}

void bench_start(void)
{
    starter = getpid();
    cleanup_install(clean, NULL);
    bench_tcp_port = start_server(&bench_server, "");
    snprintf(tcp_url, sizeof tcp_url, "redis://127.0.0.1:%d", bench_tcp_port);
    bench_use(BENCH_UNIX);
}

int bench_start_another(const char *config)
{
    for (int i = 0; i < OTHERS_MOST; i++)
        if (others[i].pid == 0)
            return start_server(&others[i], config);
    cleanup_fail("more than %d servers", OTHERS_MOST);
}

void bench_join(const char *url)
{
    cleanup_install(clean, NULL);
    bench_use_url(url);
}

void bench_use(enum bench_transport transport)
{
    bench_transport = transport;
    bench_use_url(transport == BENCH_TCP ? tcp_url : bench_server.url);
}

void bench_use_url(const char *url)
{
    bench_url = url;
}

const char *bench_transport_name(enum bench_transport transport)
{
    return transport == BENCH_TCP ? "TCP" : "Unix socket";
}

dibs_runtime *bench_open(uint32_t handoff_ms)
{
    return bench_open_with((dibs_config){.handoff_ms = handoff_ms});
}

dibs_runtime *bench_open_with(dibs_config config)
{
    dibs_runtime *runtime;

    config.urls = &bench_url;
    config.url_count = 1;
    config.command_timeout_ms = 10000; /* on a machine that does other work a slow answer is a figure, not a failure */
    must(dibs_open(&runtime, &config));
    return runtime;
}

redisContext *bench_connect(void)
{
    redisContext *redis = redis_connect(bench_url);

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

void bench_load_script(redisContext *redis, const char *script, char sha[48])
{
    redisReply *reply = naive_command(redis, "SCRIPT LOAD %s", script);

    snprintf(sha, 48, "%s", reply->str);
    freeReplyObject(reply);
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
