/*
 * Threads of one process that all want one lock, and do nothing with it.
 *
 *   hiredis             SET NX PX, again every 10 ms until the lock is free, and a Lua release
 *   dibs                a thread hands the lease over to the next
 *   DIBS_NO_HANDOFF     each acquire goes through the store
 *   DIBS_FAIR           so it does, in the order of the queue
 *   fair floor          the least that a fair lock in a store takes: see there
 *   FIFO mutex          no store: a queue made of a mutex and condition variables
 */
#include <dibs.h>

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "support/bench.h"
#include "support/common/cleanup.h"
#include "support/common/naive_lock.h"
#include "support/common/timing.h"
#include "support/fifo_lock.h"
#include "support/options.h"
#include "support/plain.h"
#include "support/rounds.h"
#include "support/target.h"
#include "support/usage.h"

enum { ROUNDS = 5, THREADS_MOST = 64, LINE = 64, RETRY_US = 10000, POLL_US = 500 };

enum { RATE, TIME, CLIENT, SHARE, LONGEST, FIGURES };

static const struct figure figures[FIGURES] = {
    [RATE] = {"acquires a second", ""},     [TIME] = {"time of an acquire", "us"},
    [CLIENT] = {"client CPU of one", "us"}, [SHARE] = {"least over most acquires", ""},
    [LONGEST] = {"longest wait", "ms"},
};

enum way { RETRY, HAND_OVER, THROUGH_STORE, FAIR, FLOOR, FIFO, WAYS };

/* ------------------------------------------------------------------ threads */

struct contender {
    _Alignas(LINE) atomic_ulong acquires; /* written by the contender alone */
    double longest_ns;                    /* to be read when it has ended */
    pthread_t thread;
    struct plain plain;
    char token[16];
    redisContext *ear; /* of the floor: hears that the lock was granted */
};

static struct contender contenders[THREADS_MOST];
static enum way way;          /* read-only while threads contend */
static dibs_runtime *runtime; /* likewise */
static struct fifo_lock fifo = FIFO_LOCK_INITIALIZER;
static atomic_uint ready;
static atomic_bool measuring, over, inside;

/* -------------------------------------------------------------------- floor */

/*
 * Who wants the lock enters a queue in the store, by a script that grants the lock
 * where it is free; who gives it back grants it to the first in the queue that
 * still listens. A thread is told of the grant by a message, which it sleeps for.
 * With a lease and a fence, and without all else that a waiter may need: nobody
 * leaves the queue, asks again, or is passed over because it stands still.
 */
static const char enter_text[] = "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', 30000) then "
                                 "return redis.call('PUBLISH', 'handoff:' .. ARGV[1], redis.call('INCR', KEYS[3])) end "
                                 "return redis.call('RPUSH', KEYS[2], ARGV[1])";
static const char leave_text[] = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end "
                                 "local next repeat next = redis.call('LPOP', KEYS[2]) "
                                 "until not next or redis.call('PUBSUB', 'NUMSUB', 'handoff:' .. next)[2] > 0 "
                                 "if not next then return redis.call('DEL', KEYS[1]) end "
                                 "redis.call('SET', KEYS[1], next, 'PX', 30000) "
                                 "redis.call('PUBLISH', 'handoff:' .. next, redis.call('INCR', KEYS[3])) return 1";
static char enter_sha[48], leave_sha[48]; /* read-only while threads contend */

static void load_scripts(void)
{
    redisContext *redis = bench_connect();

    bench_load_script(redis, enter_text, enter_sha);
    bench_load_script(redis, leave_text, leave_sha);
    redisFree(redis);
}

static void append(struct contender *contender, const char *sha)
{
    if (redisAppendCommand(contender->plain.redis, "EVALSHA %s 3 {floor} {floor}:queue {floor}:fence %s", sha,
                           contender->token) != REDIS_OK)
        cleanup_fail("no memory");
}

/* The answer tells nothing that the thread must know: it is read before that of the release. */
static void floor_lock(struct contender *contender)
{
    int done = 0;

    append(contender, enter_sha);
    while (!done)
        if (redisBufferWrite(contender->plain.redis, &done) != REDIS_OK)
            cleanup_fail("the server is gone");
    freeReplyObject(bench_next_reply(contender->ear));
}

static void floor_unlock(struct contender *contender)
{
    append(contender, leave_sha);
    freeReplyObject(bench_next_reply(contender->plain.redis));
    redisReply *reply = bench_next_reply(contender->plain.redis);
    if (reply->integer != 1)
        cleanup_fail("the lock of the floor was lost");
    freeReplyObject(reply);
}

static void open_ear(struct contender *contender)
{
    contender->ear = bench_connect();
    freeReplyObject(naive_command(contender->ear, "SUBSCRIBE handoff:%s", contender->token));
}

/* --------------------------------------------------------------- lock, unlock */

static void lock(struct contender *contender)
{
    const dibs_lock_options fair = {.flags = DIBS_FAIR};

    if (way == FIFO)
        fifo_lock(&fifo);
    else if (way == FLOOR)
        floor_lock(contender);
    else if (way == RETRY)
        while (!plain_lock(&contender->plain, "handoff", contender->token))
            pause_us(RETRY_US);
    else
        must(dibs_lock_with(runtime, "handoff", DIBS_WAIT_FOREVER, way == FAIR ? &fair : NULL));
}

static void unlock(struct contender *contender)
{
    if (way == FIFO)
        fifo_unlock(&fifo);
    else if (way == FLOOR)
        floor_unlock(contender);
    else if (way != RETRY)
        must(dibs_unlock(runtime, "handoff"));
    else if (!plain_unlock(&contender->plain, "handoff", contender->token))
        cleanup_fail("the lock of plain hiredis was lost");
}

static void *contend(void *arg)
{
    struct contender *contender = arg;
    unsigned long acquires = 0;

    atomic_fetch_add(&ready, 1);
    do {
        double asked = now_ns();
        lock(contender);
        double waited = now_ns() - asked;
        if (atomic_exchange(&inside, true))
            cleanup_fail("two threads hold the lock");
        atomic_store(&inside, false);
        unlock(contender);
        if (waited > contender->longest_ns && atomic_load_explicit(&measuring, memory_order_relaxed))
            contender->longest_ns = waited;
        atomic_store_explicit(&contender->acquires, ++acquires, memory_order_relaxed);
    } while (!atomic_load_explicit(&over, memory_order_relaxed));
    return NULL;
}

static void start(unsigned threads)
{
    uint32_t handoff_ms = way == THROUGH_STORE ? DIBS_NO_HANDOFF : 0;

    runtime = way == RETRY || way == FLOOR || way == FIFO ? NULL : bench_open(handoff_ms);
    if (way == FLOOR)
        load_scripts();
    for (unsigned i = 0; i < threads; i++) {
        snprintf(contenders[i].token, sizeof contenders[i].token, "%u", i);
        if (way == RETRY || way == FLOOR)
            plain_open(&contenders[i].plain, false);
        if (way == FLOOR)
            open_ear(&contenders[i]);
        contenders[i].thread = bench_thread(contend, &contenders[i]);
    }
    while (atomic_load(&ready) < threads)
        pause_us(POLL_US);
}

/* Returns the longest wait in ns. */
static double end(unsigned threads)
{
    double longest = 0;

    atomic_store(&over, true);
    for (unsigned i = 0; i < threads; i++) {
        pthread_join(contenders[i].thread, NULL);
        longest = contenders[i].longest_ns > longest ? contenders[i].longest_ns : longest;
        if (way == RETRY || way == FLOOR)
            plain_close(&contenders[i].plain);
        redisFree(contenders[i].ear);
    }
    dibs_close(runtime);
    return longest;
}

/* ----------------------------------------------------------------- one side */

static void read_acquires(unsigned threads, double acquires[])
{
    for (unsigned i = 0; i < threads; i++)
        acquires[i] = (double)atomic_load_explicit(&contenders[i].acquires, memory_order_relaxed);
}

static void measure(enum way chosen, unsigned threads, double out[])
{
    double before[THREADS_MOST], after[THREADS_MOST], all = 0, least = INFINITY, most = 0;

    way = chosen;
    start(threads);
    pause_us(UINT64_C(250) * bench_options.round_ms);
    atomic_store(&measuring, true);
    read_acquires(threads, before);
    struct usage begin = usage_now();
    pause_us(UINT64_C(1000) * bench_options.round_ms);
    read_acquires(threads, after);
    struct usage used = usage_between(begin, usage_now());
    for (unsigned i = 0; i < threads; i++) {
        double acquires = after[i] - before[i];
        all += acquires;
        least = acquires < least ? acquires : least;
        most = acquires > most ? acquires : most;
    }
    out[LONGEST] = end(threads) / 1e6;
    if (all == 0)
        return;
    out[RATE] = all / used.wall_ns * 1e9;
    out[TIME] = used.wall_ns / 1e3 / all;
    out[CLIENT] = used.client_ns / 1e3 / all;
    out[SHARE] = least / most;
}

static void measure_retry(const void *threads, double out[])
{
    measure(RETRY, *(const unsigned *)threads, out);
}

static void measure_hand_over(const void *threads, double out[])
{
    measure(HAND_OVER, *(const unsigned *)threads, out);
}

static void measure_through_store(const void *threads, double out[])
{
    measure(THROUGH_STORE, *(const unsigned *)threads, out);
}

static void measure_fair(const void *threads, double out[])
{
    measure(FAIR, *(const unsigned *)threads, out);
}

static void measure_floor(const void *threads, double out[])
{
    measure(FLOOR, *(const unsigned *)threads, out);
}

static void measure_fifo(const void *threads, double out[])
{
    measure(FIFO, *(const unsigned *)threads, out);
}

/* -------------------------------------------------------------------- cells */

static void tell_targets(const struct grid *grid, unsigned threads)
{
    if (threads == THREADS_MOST)
        at_most("time of an acquire over that of the FIFO mutex", grid_ratio(grid, HAND_OVER, TIME, FIFO).median, 0.333,
                "x");
    at_least("acquires a second over DIBS_NO_HANDOFF", grid_ratio(grid, HAND_OVER, RATE, THROUGH_STORE).median, 25,
             "x");
    at_most("longest wait", grid_value(grid, HAND_OVER, LONGEST).high, 50, " ms");
    if (threads != 8)
        return;
    at_least("acquires a second with DIBS_NO_HANDOFF", grid_ratio(grid, THROUGH_STORE, RATE, RETRY).median, 1, "x");
    at_least("acquires a second with DIBS_FAIR", grid_ratio(grid, FAIR, RATE, RETRY).median, 1, "x");
    at_least("least over most with DIBS_NO_HANDOFF", grid_value(grid, THROUGH_STORE, SHARE).median, 0.8, "");
    at_least("least over most with DIBS_FAIR", grid_value(grid, FAIR, SHARE).median, 0.8, "");
}

static bool run(void)
{
    static const unsigned counts[] = {2, 8, THREADS_MOST};
    static const struct side sides[WAYS] = {[RETRY] = {"hiredis every 10 ms", measure_retry},
                                            [HAND_OVER] = {"dibs", measure_hand_over},
                                            [THROUGH_STORE] = {"DIBS_NO_HANDOFF", measure_through_store},
                                            [FAIR] = {"DIBS_FAIR", measure_fair},
                                            [FLOOR] = {"fair floor", measure_floor},
                                            [FIFO] = {"FIFO mutex", measure_fifo}};
    static const struct table table = {"handoff", figures, FIGURES, sides, WAYS};
    static struct grid grid;
    char cell[32];
    bool done = true;

    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        snprintf(cell, sizeof cell, "%u threads", counts[i]);
        if (rounds_run(&grid, &table, cell, &counts[i]))
            tell_targets(&grid, counts[i]);
        else
            done = false;
    }
    return done;
}

int main(int argc, char **argv)
{
    bench_options.rounds = ROUNDS;
    bench_read_options(argc, argv,
                       "Usage: handoff [OPTION...]\n"
                       "Measures threads of one process that all want one lock.\n\n");
    bench_run(run);
}
