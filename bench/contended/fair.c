/* Whether DIBS_FAIR grants in the order of the queue, over several processes. */
#include <dibs.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "contended/part.h"
#include "support/bench.h"
#include "support/common/cleanup.h"
#include "support/options.h"
#include "support/team.h"

enum { PROCESSES = 4, GRANTS = 10000, QUEUERS = 4, QUEUE_MOST = PROCESSES * QUEUERS - 1 };

/* One grant, and the queue behind it, as the holder sees it in the server. Tokens are kept as hashes. */
struct grant {
    uint64_t fence, token;
    unsigned waiting;
    uint64_t queue[QUEUE_MOST];
};

struct fair {
    atomic_uint arrived;
    atomic_uint granted;
    struct grant grants[GRANTS]; /* in the order in which the holders entered */
};

struct queuer {
    pthread_t thread;
    struct fair *page;
    dibs_runtime *runtime;
};

/* FNV-1a. Two tokens have the same hash with a chance of one in 2^64. */
static uint64_t hash(const char *token, size_t size)
{
    uint64_t value = UINT64_C(14695981039346656037);

    for (size_t i = 0; i < size; i++)
        value = (value ^ (unsigned char)token[i]) * UINT64_C(1099511628211);
    return value;
}

/* The token of an entry of the queue, which ends the entry: doc/PROTOCOL.md. */
static uint64_t hash_of_entry(const redisReply *entry)
{
    enum { NUMBERS = 4 }; /* the last is the length of the channel, which stands before the token */
    char *at = entry->str;
    size_t channel_size = 0;

    for (int i = 0; i < NUMBERS; i++)
        channel_size = strtoull(at, &at, 10);
    size_t begin = (size_t)(at - entry->str) + 1 + channel_size;
    if (*at != ' ' || begin >= entry->len)
        cleanup_fail("an entry of the queue is none: %s", entry->str);
    return hash(entry->str + begin, entry->len - begin);
}

/* Notes who waits, by place. The reply is that of HGETALL; the fields that are places are numbers. */
static void note_queue(struct grant *grant, const redisReply *queue)
{
    uint64_t places[QUEUE_MOST];

    grant->waiting = 0;
    for (size_t i = 0; i + 1 < queue->elements; i += 2) {
        const char *field = queue->element[i]->str;
        if (*field < '0' || *field > '9')
            continue;
        uint64_t place = strtoull(field, NULL, 10);
        unsigned at = grant->waiting++;
        if (grant->waiting > QUEUE_MOST)
            cleanup_fail("the queue has more entries than there are threads");
        for (; at > 0 && places[at - 1] > place; at--) {
            places[at] = places[at - 1];
            grant->queue[at] = grant->queue[at - 1];
        }
        places[at] = place;
        grant->queue[at] = hash_of_entry(queue->element[i + 1]);
    }
}

/* Called by the holder. Sends both commands at once, so that the lock is held no longer than necessary. */
static void look_at_queue(redisContext *redis, struct grant *grant)
{
    redisAppendCommand(redis, "GET lock:fair");
    redisAppendCommand(redis, "HGETALL dibs:queue:{lock:fair}");
    redisReply *token = bench_next_reply(redis), *queue = bench_next_reply(redis);

    if (token->type != REDIS_REPLY_STRING || queue->type != REDIS_REPLY_ARRAY)
        cleanup_fail("no token, or no queue, where there should be one");
    grant->token = hash(token->str, token->len);
    note_queue(grant, queue);
    freeReplyObject(token);
    freeReplyObject(queue);
}

static void *queue_up(void *arg)
{
    struct queuer *queuer = arg;
    redisContext *redis = bench_connect();
    unsigned number;

    team_meet(&queuer->page->arrived, PROCESSES * QUEUERS);
    do {
        must(dibs_lock_with(queuer->runtime, "fair", DIBS_WAIT_FOREVER, &(dibs_lock_options){.flags = DIBS_FAIR}));
        number = atomic_fetch_add(&queuer->page->granted, 1);
        if (number < bench_scaled(GRANTS)) {
            struct grant *grant = &queuer->page->grants[number];
            dibs_hold hold;
            must(dibs_hold_of(queuer->runtime, "fair", &hold));
            grant->fence = hold.fence;
            look_at_queue(redis, grant);
        }
        must(dibs_unlock(queuer->runtime, "fair"));
    } while (number < bench_scaled(GRANTS));
    redisFree(redis);
    return NULL;
}

static void queue_in_process(unsigned number, void *memory)
{
    struct queuer queuers[QUEUERS];
    dibs_runtime *runtime = bench_open(0);

    (void)number;
    for (unsigned i = 0; i < QUEUERS; i++) {
        queuers[i] = (struct queuer){.page = memory, .runtime = runtime};
        queuers[i].thread = bench_thread(queue_up, &queuers[i]);
    }
    for (unsigned i = 0; i < QUEUERS; i++)
        pthread_join(queuers[i].thread, NULL);
    dibs_close(runtime);
}

/* The waiters behind a grant must be granted next, in their order, with rising fences. */
static bool in_order(const struct fair *page, unsigned number)
{
    const struct grant *grant = &page->grants[number];

    for (unsigned i = 0; i < grant->waiting && number + 1 + i < bench_scaled(GRANTS); i++)
        if (page->grants[number + 1 + i].token != grant->queue[i])
            return false;
    return number == 0 || page->grants[number - 1].fence < grant->fence;
}

static unsigned exceptions(const struct fair *page)
{
    unsigned count = 0;

    for (unsigned i = 0; i < bench_scaled(GRANTS); i++)
        count += !in_order(page, i);
    return count;
}

static bool is_fair(const void *memory)
{
    return exceptions(memory) == 0;
}

static bool show_fair(void *memory)
{
    const struct fair *page = memory;
    unsigned with_queue = 0, grants = bench_scaled(GRANTS);
    double places = 0;

    for (unsigned i = 0; i < grants; i++) {
        with_queue += page->grants[i].waiting > 0;
        places += page->grants[i].waiting;
    }
    printf("  %u grants, %u of them out of order; the queue behind a grant: %.1f long in the mean\n", grants,
           exceptions(page), places / grants);
    return at_least("grants with a queue behind them", 100.0 * with_queue / grants, 90, " %");
}

const struct part fair_part = {
    .name = "fair",
    .title = "4 processes of 4 threads, DIBS_FAIR",
    .processes = PROCESSES,
    .limit_s = 120,
    .memory = sizeof(struct fair),
    .work = queue_in_process,
    .show = show_fair,
    .right = is_fair,
};
