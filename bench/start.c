/*
 * What the first lock costs, from nothing to the lock held, against plain hiredis.
 *
 *   dibs        dibs_open + dibs_lock
 *   hiredis     connect + SCRIPT LOAD + EVALSHA of a script with SET NX PX
 *
 * With the scripts known to the server, and after SCRIPT FLUSH before each start. Shown beside the start: its part
 * dibs_open, and the end, which is dibs_unlock + dibs_close against a release by script and redisFree. The time of a
 * round is the median of its starts.
 */
#include <dibs.h>

#include <stdio.h>

#include "support/bench.h"
#include "support/common/cleanup.h"
#include "support/common/naive_lock.h"
#include "support/common/timing.h"
#include "support/options.h"
#include "support/rounds.h"
#include "support/target.h"

enum { STARTS = 200, WARM = 20 };

static const char acquire[] = "return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])";

enum part { START, OPEN, END, PARTS };

static const struct figure figures[PARTS] = {
    [START] = {"start to the first lock", "us"}, [OPEN] = {"open alone", "us"}, [END] = {"end", "us"}};

static redisContext *control; /* sees to the server between the starts */

/* -------------------------------------------------------------------- starts */

static bool key_exists(const char *key)
{
    redisReply *reply = naive_command(control, "EXISTS %s", key);
    bool exists = reply->integer == 1;

    freeReplyObject(reply);
    return exists;
}

static void check_held(const char *key, bool held)
{
    if (key_exists(key) != held)
        cleanup_fail("the key %s is %s", key, held ? "not there" : "still there");
}

static void start_dibs(double part[PARTS])
{
    dibs_runtime *runtime;

    double begin = now_ns();
    must(dibs_open(&runtime, &(dibs_config){.urls = &bench_url, .url_count = 1}));
    double opened = now_ns();
    must(dibs_lock(runtime, "start"));
    double held = now_ns();
    check_held("lock:start", true);
    double ending = now_ns();
    must(dibs_unlock(runtime, "start"));
    dibs_close(runtime);
    part[END] = now_ns() - ending;
    part[OPEN] = opened - begin;
    part[START] = held - begin;
    check_held("lock:start", false);
}

static redisContext *connect_plain(void)
{
    redisContext *redis = bench_transport == BENCH_TCP ? redisConnect("127.0.0.1", bench_tcp_port)
                                                       : redisConnectUnix(bench_server.socket_path);

    if (!redis || redis->err)
        cleanup_fail("no connection to %s", bench_url);
    return redis;
}

static void start_plain(double part[PARTS])
{
    double begin = now_ns();
    redisContext *redis = connect_plain();
    redisReply *sha = naive_command(redis, "SCRIPT LOAD %s", acquire);
    double opened = now_ns();
    redisReply *held = naive_command(redis, "EVALSHA %s 1 naive:start token 30000", sha->str);
    part[START] = now_ns() - begin;
    if (held->type != REDIS_REPLY_STATUS)
        cleanup_fail("the key naive:start is not free");
    freeReplyObject(sha);
    freeReplyObject(held);
    check_held("naive:start", true);
    const struct naive_lock lock = {redis, "naive:start", "token", 30000};
    double ending = now_ns();
    if (naive_release(&lock, NAIVE_SCRIPT, NULL, NULL) != NAIVE_RELEASED)
        cleanup_fail("the key naive:start was lost");
    redisFree(redis);
    part[END] = now_ns() - ending;
    part[OPEN] = opened - begin;
}

/* -------------------------------------------------------------------- rounds */

struct condition {
    const char *name;
    bool forgotten; /* the server does not know the scripts */
};

static void measure(const struct condition *condition, void (*start)(double part[PARTS]), double out[])
{
    static double times[PARTS][STARTS];
    unsigned warm = bench_scaled(WARM), starts = bench_scaled(STARTS);
    double part[PARTS];

    control = bench_connect();
    for (unsigned i = 0; i < warm + starts; i++) {
        if (condition->forgotten)
            freeReplyObject(naive_command(control, "SCRIPT FLUSH"));
        start(part);
        for (int p = 0; p < PARTS && i >= warm; p++)
            times[p][i - warm] = part[p] / 1000;
    }
    for (int p = 0; p < PARTS; p++)
        out[p] = median(times[p], starts);
    redisFree(control);
}

static void measure_plain(const void *condition, double out[])
{
    measure(condition, start_plain, out);
}

static void measure_dibs(const void *condition, double out[])
{
    measure(condition, start_dibs, out);
}

static bool run_cell(const struct condition *condition)
{
    static const struct side sides[] = {{"plain hiredis", measure_plain}, {"dibs", measure_dibs}};
    static const struct table table = {"start", figures, PARTS, sides, 2};
    static struct grid grid;

    if (!rounds_run(&grid, &table, condition->name, condition))
        return false;
    at_most("start to the first lock", grid_ratio(&grid, 1, START, 0).median, 1.3, "x");
    return true;
}

static bool run(void)
{
    bool known = run_cell(&(struct condition){"scripts known", false});

    return run_cell(&(struct condition){"no scripts", true}) && known;
}

int main(int argc, char **argv)
{
    bench_read_options(argc, argv,
                       "Usage: start [OPTION...]\n"
                       "Measures how long it takes from nothing to the first lock held.\n\n");
    bench_run(run);
}
