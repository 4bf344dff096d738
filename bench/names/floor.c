#include "names/floor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/bench.h"
#include "support/common/cleanup.h"
#include "support/common/timing.h"
#include "support/options.h"

enum { NAMES_MOST = 64, CALLS_MOST = 20000, CALLS_LEAST = 3, WARM_UP = 20, TOKEN_MOST = 96 };

/* What acquire.lua does for a name that is free, and nothing else. */
static const char script_of_one[] =
    "local call, K, F = redis.call, KEYS[1], KEYS[2] "
    "if call('EXISTS', K, KEYS[3]) == 0 then "
    "local time, last, hour = call('TIME'), tonumber(call('GET', F)), 3600000000 "
    "local now = time[1] * 1000000 + time[2] "
    "if last and last < now and last - last % hour == now - now % hour and "
    "redis.pcall('INCRBY', F, now - last) == now then call('SET', K, ARGV[1], 'PX', 30000) return now end end "
    "call('SET', F, 1) return 0";

/* The same for many names. All that can be done once for all of them is. */
static const char script_of_all[] =
    "local call, n, hour, reply = redis.call, #ARGV, 3600000000, {} "
    "local time = call('TIME') local now = time[1] * 1000000 + time[2] "
    "local taken = call('EXISTS', unpack(KEYS, 1, n)) + call('EXISTS', unpack(KEYS, 2 * n + 1)) "
    "local lasts = call('MGET', unpack(KEYS, n + 1, 2 * n)) "
    "for i = 1, n do local last = tonumber(lasts[i]) "
    "if taken == 0 and last and last < now and last - last % hour == now - now % hour and "
    "redis.pcall('INCRBY', KEYS[n + i], now - last) == now then "
    "call('SET', KEYS[i], ARGV[i], 'PX', 30000) reply[i] = now "
    "else call('SET', KEYS[n + i], 1) reply[i] = 0 end end return reply";

/* What is sent at once. */
struct batch {
    redisContext *redis;
    char *bytes;
    size_t size;
    unsigned replies;
};

static char locks[NAMES_MOST][32], fences[NAMES_MOST][48], queues[NAMES_MOST][48], tokens[NAMES_MOST][TOKEN_MOST];
static const char *words[4 + 4 * NAMES_MOST];

static void make_texts(void)
{
    for (int i = 0; i < NAMES_MOST; i++) {
        snprintf(locks[i], sizeof locks[i], "lock:account:%d", i);
        snprintf(fences[i], sizeof fences[i], "dibs:fence:{lock:account:%d}", i);
        snprintf(queues[i], sizeof queues[i], "dibs:queue:{lock:account:%d}", i);
        snprintf(tokens[i], TOKEN_MOST, "dibs:bench:localhost:1234:5678:0123456789abcdef0123456789abcdef:%d", 1000 + i);
    }
}

static void add(struct batch *batch, int count)
{
    char *command;
    int size = redisFormatCommandArgv(&command, count, words, NULL);
    char *bytes = size > 0 ? realloc(batch->bytes, batch->size + (size_t)size) : NULL;

    if (!bytes) {
        cleanup_fail("no memory for commands");
        return;
    }
    memcpy(bytes + batch->size, command, (size_t)size);
    batch->bytes = bytes;
    batch->size += (size_t)size;
    batch->replies++;
    redisFreeCommand(command);
}

static void send_batch(const struct batch *batch)
{
    int sent = 0;

    redisAppendFormattedCommand(batch->redis, batch->bytes, batch->size);
    while (!sent)
        if (redisBufferWrite(batch->redis, &sent) != REDIS_OK)
            cleanup_fail("Redis: %s", batch->redis->errstr);
    for (unsigned i = 0; i < batch->replies; i++)
        freeReplyObject(bench_next_reply(batch->redis));
}

/* ------------------------------------------------------------------- the sides */

static void add_set(struct batch *batch, int i)
{
    words[0] = "SET", words[1] = locks[i], words[2] = tokens[i], words[3] = "NX", words[4] = "PX", words[5] = "30000";
    add(batch, 6);
}

static void make_sets(struct batch *batch, int count)
{
    for (int i = 0; i < count; i++)
        add_set(batch, i);
}

/* What dibs sends for names that the process gave up a moment ago. */
static void make_relocks(struct batch *batch, int count)
{
    for (int i = 0; i < count; i++) {
        words[0] = "EXISTS", words[1] = queues[i];
        add(batch, 2);
        add_set(batch, i);
        words[0] = "GET", words[1] = fences[i];
        add(batch, 2);
    }
}

static const char *load(const struct batch *batch, const char *text)
{
    static char sha[48];

    bench_load_script(batch->redis, text, sha);
    return sha;
}

static void make_scripts(struct batch *batch, int count)
{
    words[0] = "EVALSHA", words[1] = load(batch, script_of_one), words[2] = "3";
    for (int i = 0; i < count; i++) {
        words[3] = locks[i], words[4] = fences[i], words[5] = queues[i], words[6] = tokens[i];
        add(batch, 7);
    }
}

static void make_script(struct batch *batch, int count)
{
    char keys[12];

    snprintf(keys, sizeof keys, "%d", 3 * count);
    words[0] = "EVALSHA", words[1] = load(batch, script_of_all), words[2] = keys;
    for (int i = 0; i < count; i++) {
        words[3 + i] = locks[i];
        words[3 + count + i] = fences[i];
        words[3 + 2 * count + i] = queues[i];
        words[3 + 3 * count + i] = tokens[i];
    }
    add(batch, 3 + 4 * count);
}

/* ------------------------------------------------------------------ measuring */

static void make_deletion(struct batch *batch, int count)
{
    words[0] = "DEL";
    for (int i = 0; i < count; i++)
        words[1 + i] = locks[i];
    add(batch, 1 + count);
}

/* The median, in us. */
static double measure_calls(void (*make)(struct batch *batch, int count), int count)
{
    static double times[CALLS_MOST];
    struct batch batch = {.redis = bench_connect()}, deletion = {.redis = batch.redis};
    double until = 0;
    size_t calls = 0;

    make(&batch, count);
    make_deletion(&deletion, count);
    for (int i = 0; calls < CALLS_LEAST || (calls < CALLS_MOST && now_ns() < until); i++) {
        send_batch(&deletion);
        double began = now_ns();
        send_batch(&batch);
        times[calls] = (now_ns() - began) / 1e3;
        if (i == WARM_UP)
            until = now_ns() + bench_options.round_ms * 1e6 / 2;
        calls += i > WARM_UP;
    }
    send_batch(&deletion);
    free(batch.bytes);
    free(deletion.bytes);
    redisFree(batch.redis);
    return median(times, calls);
}

static void measure(void (*make)(struct batch *batch, int count), const void *condition, double out[])
{
    make_texts();
    out[FLOOR_ONE] = measure_calls(make, 1);
    out[FLOOR_SOME] = measure_calls(make, *(const int *)condition);
    out[FLOOR_RATIO] = out[FLOOR_SOME] / out[FLOOR_ONE];
}

static void sets(const void *condition, double out[])
{
    measure(make_sets, condition, out);
}

static void relocks(const void *condition, double out[])
{
    measure(make_relocks, condition, out);
}

static void scripts(const void *condition, double out[])
{
    measure(make_scripts, condition, out);
}

static void one_script(const void *condition, double out[])
{
    measure(make_script, condition, out);
}

static const struct figure figures[FLOOR_FIGURES] = {
    [FLOOR_ONE] = {"one", "us"},
    [FLOOR_SOME] = {"64 together", "us"},
    [FLOOR_RATIO] = {"64 over one", "x"},
};

static const struct side floors[] = {
    {"SET NX PX", sets},
    {"EXISTS SET GET", relocks},
    {"a script each", scripts},
    {"one script", one_script},
};

const struct table names_floor = {"names-floor", figures, FLOOR_FIGURES, floors, 4};
