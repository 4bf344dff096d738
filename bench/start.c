/*
 * What the first lock costs, from nothing to the lock held, against plain hiredis.
 *
 *   dibs        dibs_open + dibs_lock
 *   hiredis     connect + SCRIPT LOAD + EVALSHA of a script with SET NX PX
 *
 * Over the Unix socket and over TCP loopback; with the scripts known to the server, and after SCRIPT FLUSH before each
 * start. Shown beside the start: its part dibs_open, and the end, which is dibs_unlock + dibs_close against a release
 * by script and redisFree.
 *
 * The starts of both sides alternate. The time of a round is the median of its STARTS starts; shown are the median over
 * the rounds and, for the ratio, the quartiles.
 */
#include <dibs.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/bench.h"
#include "support/common/cleanup.h"
#include "support/common/naive_lock.h"
#include "support/common/timing.h"

enum { ROUNDS = 7, STARTS = 200, WARM = 20 };

static const char acquire[] = "return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])";

enum part { START, OPEN, END, PARTS };

struct setting {
    const char *name;
    const char *url;
    int port;       /* on 127.0.0.1; 0: the server's Unix socket */
    bool forgotten; /* the server does not know the scripts */
};

/* The median of a round's starts, in us. */
struct round {
    double part[PARTS];
};

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

static void start_dibs(const struct setting *setting, double part[PARTS])
{
    dibs_runtime *runtime;

    double begin = now_ns();
    must(dibs_open(&runtime, &(dibs_config){.urls = &setting->url, .url_count = 1}));
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

static void start_plain(const struct setting *setting, double part[PARTS])
{
    double begin = now_ns();
    redisContext *redis =
        setting->port ? redisConnect("127.0.0.1", setting->port) : redisConnectUnix(bench_server.socket_path);
    if (!redis || redis->err)
        cleanup_fail("no connection to %s", setting->url);
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

static void start(const struct setting *setting, bool with_dibs, double part[PARTS])
{
    if (setting->forgotten)
        freeReplyObject(naive_command(control, "SCRIPT FLUSH"));
    if (with_dibs)
        start_dibs(setting, part);
    else
        start_plain(setting, part);
}

/* rounds[0]: hiredis, rounds[1]: dibs. */
static void run_round(const struct setting *setting, struct round *rounds[2])
{
    static double times[2][PARTS][STARTS];
    double part[PARTS];

    for (int i = -2 * WARM; i < 2 * STARTS; i++) {
        int side = (i / 2 + i) & 1; /* they take turns at being the first */
        start(setting, side, part);
        for (int p = 0; p < PARTS && i >= 0; p++)
            times[side][p][i / 2] = part[p] / 1000;
    }
    for (int side = 0; side < 2; side++)
        for (int p = 0; p < PARTS; p++)
            rounds[side]->part[p] = median(times[side][p], STARTS);
}

static double median_of(const struct round rounds[ROUNDS], enum part part)
{
    double values[ROUNDS];

    for (int i = 0; i < ROUNDS; i++)
        values[i] = rounds[i].part[part];
    return median(values, ROUNDS);
}

static void show(const struct setting *setting)
{
    struct round dibs[ROUNDS], plain[ROUNDS];
    double ratio[ROUNDS];

    for (int i = 0; i < ROUNDS; i++) {
        run_round(setting, (struct round *[]){&plain[i], &dibs[i]});
        ratio[i] = dibs[i].part[START] / plain[i].part[START];
    }
    printf("%-24s %9.0f %9.0f   %5.2f  %5.2f..%.2f   %7.0f %7.0f %7.0f\n", setting->name, median_of(plain, START),
           median_of(dibs, START), median(ratio, ROUNDS), percentile(ratio, ROUNDS, 25), percentile(ratio, ROUNDS, 75),
           median_of(dibs, OPEN), median_of(plain, END), median_of(dibs, END));
}

/* ----------------------------------------------------------------------- TCP */

/* One that was free a moment ago; 0: none could be found. */
static int free_port(void)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof name;
    int port = 0, fd = socket(AF_INET, SOCK_STREAM, 0);

    if (fd >= 0 && bind(fd, (struct sockaddr *)&name, size) == 0 &&
        getsockname(fd, (struct sockaddr *)&name, &size) == 0)
        port = ntohs(name.sin_port);
    if (fd >= 0)
        close(fd);
    return port;
}

/* Has the server listen on 127.0.0.1, too. Returns the port; 0: that is not possible while it runs, as before Redis 7.
 */
static int listen_on_tcp(void)
{
    int port = free_port();
    redisReply *reply = redisCommand(control, "CONFIG SET port %d", port);
    bool listens = reply && reply->type == REDIS_REPLY_STATUS;

    if (reply)
        freeReplyObject(reply);
    return listens ? port : 0;
}

int main(void)
{
    char tcp[64];

    bench_start();
    control = bench_connect();
    printf("from nothing to the first lock held, in us\n"
           "                           hiredis      dibs   ratio   quartiles   dibs_open | end: hiredis, dibs\n");
    show(&(struct setting){"Unix socket", bench_server.url, 0, false});
    show(&(struct setting){"Unix socket, no scripts", bench_server.url, 0, true});
    int port = listen_on_tcp();
    snprintf(tcp, sizeof tcp, "redis://127.0.0.1:%d", port);
    if (port) {
        show(&(struct setting){"TCP", tcp, port, false});
        show(&(struct setting){"TCP, no scripts", tcp, port, true});
    } else {
        printf("TCP: this server can't be told to listen\n");
    }
    redisFree(control);
    cleanup_exit(0);
}
