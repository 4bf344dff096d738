/*
 * What a lock costs that others want as well, against plain hiredis in the same run, and whether the bounds hold.
 *
 *   handover    from the call of dibs_unlock in one process to the return of dibs_lock in another that sleeps, against
 *               a PING round trip; for reference an EVALSHA, and the usual way: release and PUBLISH, then SET NX PX
 *   threads     64 threads of one process on one name, against the same build with DIBS_NO_HANDOFF; for reference the
 *               pairs of SET NX PX + Lua release that one connection makes alone
 *   shares      4 processes of 8 threads on one name: what share of the acquires each process gets
 *   fair        4 processes of 4 threads with DIBS_FAIR: whether all are granted in the order of the queue
 *   idle        1,000 threads that wait for a lock held elsewhere: the commands that this costs
 *
 * Each part runs in processes of its own, which start from nothing. The status is 0 where all the bounds hold.
 *
 * The hand-overs and what they are compared with take turns, one by one, each after the same pause, with the waiter
 * asleep: so all meet the same machine, caches and clock rates. There the server has a core of its own, where there are
 * two. A round trip costs half or less where the kernel happens to put client and server on one core, and two clients
 * can't both be there: left to itself, the PINGs are those of a client beside its server, the hand-overs those of
 * clients elsewhere. A server on another machine shares no core with its clients either. --anywhere shows the other.
 */
#include <dibs.h>

#include <getopt.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/bench.h"
#include "support/cleanup.h"
#include "support/cores.h"
#include "support/naive_lock.h"
#include "support/team.h"

/* ------------------------------------------------------------------ bounds */

static bool verdict(bool holds)
{
    puts(holds ? "holds" : "does not hold");
    return holds;
}

static bool at_most(const char *what, double figure, double bound, const char *unit)
{
    printf("  %-44s %9.2f%s, at most %g: ", what, figure, unit, bound);
    return verdict(figure <= bound);
}

static bool at_least(const char *what, double figure, double bound, const char *unit)
{
    printf("  %-44s %9.2f%s, at least %g: ", what, figure, unit, bound);
    return verdict(figure >= bound);
}

/* ---------------------------------------------------------------- handover */

enum { HAND_OVERS = 4000, PAUSE_US = 300, QUEUED_LIMIT_MS = 3000 };
enum way { PING, SCRIPT, DIRECT, USUAL, WAYS };

static const char usual_release[] = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end "
                                    "redis.call('DEL', KEYS[1]) redis.call('PUBLISH', ARGV[2], '') return 1";

struct handover {
    atomic_uint arrived;
    atomic_uint listening;      /* rounds in which the waiter of the usual way was ready */
    atomic_uint returned[WAYS]; /* rounds in which the waiter had the lock */
    double returned_at;         /* written before that */
    double times[WAYS][HAND_OVERS];
};

/* One of the two processes. They hold and wait by turns. */
struct player {
    struct handover *page;
    dibs_runtime *runtime;
    struct naive_lock usual;
    redisContext *listener;
    char channel[2][16]; /* by the number of the process that listens */
    char token[16];
    char script[48], release[48]; /* SHA-1 */
    unsigned number;
};

static void load(redisContext *redis, const char *text, char sha[48])
{
    redisReply *reply = naive_command(redis, "SCRIPT LOAD %s", text);

    snprintf(sha, 48, "%s", reply->str);
    freeReplyObject(reply);
}

static void meet_player(struct player *player, unsigned number, struct handover *page)
{
    *player = (struct player){.page = page, .number = number, .runtime = bench_open(0), .listener = bench_connect()};
    snprintf(player->token, sizeof player->token, "usual:%u", number);
    for (unsigned i = 0; i < 2; i++)
        snprintf(player->channel[i], sizeof player->channel[i], "usual:%u", i);
    player->usual = (struct naive_lock){bench_connect(), "usual", player->token, 30000};
    load(player->usual.redis, "return 1", player->script);
    load(player->usual.redis, usual_release, player->release);
    freeReplyObject(naive_command(player->listener, "SUBSCRIBE %s", player->channel[number]));
}

static void part_player(struct player *player)
{
    redisFree(player->listener);
    redisFree(player->usual.redis);
    dibs_close(player->runtime);
}

static double time_ping(struct player *player)
{
    pause_us(PAUSE_US);
    double start = now_ns();
    freeReplyObject(naive_command(player->usual.redis, "PING"));
    return now_ns() - start;
}

static double time_script(struct player *player)
{
    pause_us(PAUSE_US);
    double start = now_ns();
    freeReplyObject(naive_command(player->usual.redis, "EVALSHA %s 0", player->script));
    return now_ns() - start;
}

/* The waiter is in the queue; the pauses that follow are long enough for it to fall asleep. */
static void await_queued(struct player *player)
{
    double limit = now_ns() + QUEUED_LIMIT_MS * 1e6;
    dibs_owner owner;

    do {
        if (now_ns() > limit)
            cleanup_fail("dibs_query shows no waiter, though another process waits: there is nothing to measure");
        pause_us(PAUSE_US);
        must(dibs_query(player->runtime, "handover", &owner));
    } while (owner.waiters != 1);
}

/* In the waiter: it has the lock. */
static void returned(struct handover *page, enum way way)
{
    page->returned_at = now_ns();
    atomic_fetch_add(&page->returned[way], 1);
}

static double time_direct(struct player *player, unsigned round)
{
    pause_us(PAUSE_US);
    double start = now_ns();
    must(dibs_unlock(player->runtime, "handover"));
    team_await(&player->page->returned[DIRECT], round + 1);
    return player->page->returned_at - start;
}

static double time_usual(struct player *player, unsigned round)
{
    team_await(&player->page->listening, round + 1);
    pause_us(PAUSE_US);
    double start = now_ns();
    freeReplyObject(naive_command(player->usual.redis, "EVALSHA %s 1 usual %s %s", player->release, player->token,
                                  player->channel[!player->number]));
    team_await(&player->page->returned[USUAL], round + 1);
    return player->page->returned_at - start;
}

static void hold_round(struct player *player, unsigned round)
{
    struct handover *page = player->page;

    await_queued(player);
    page->times[PING][round] = time_ping(player);
    page->times[SCRIPT][round] = time_script(player);
    page->times[DIRECT][round] = time_direct(player, round);
    page->times[USUAL][round] = time_usual(player, round);
}

static void wait_round(struct player *player)
{
    struct handover *page = player->page;
    void *message;

    must(dibs_lock(player->runtime, "handover"));
    returned(page, DIRECT);
    atomic_fetch_add(&page->listening, 1);
    if (redisGetReply(player->listener, &message) != REDIS_OK || !naive_try(&player->usual))
        cleanup_fail("the lock of plain hiredis was not handed over");
    returned(page, USUAL);
    freeReplyObject(message);
}

static void hand_over(unsigned number, void *memory)
{
    struct player player;

    meet_player(&player, number, memory);
    if (number == 0) {
        must(dibs_lock(player.runtime, "handover"));
        if (!naive_try(&player.usual))
            cleanup_fail("the lock of plain hiredis is not free");
    }
    team_meet(&player.page->arrived, 2);
    for (unsigned round = 0; round < HAND_OVERS; round++) {
        if (round % 2 == number)
            hold_round(&player, round);
        else
            wait_round(&player);
    }
    team_meet(&player.page->arrived, 4);
    part_player(&player);
}

static void show_ways(struct handover *page, double middle[WAYS], double tail[WAYS])
{
    static const char *const names[WAYS] = {"PING round trip", "EVALSHA round trip", "dibs_unlock to dibs_lock",
                                            "PUBLISH, then SET NX"};

    printf("  %-28s %10s %10s %14s %14s\n", "", "median", "p99", "median / PING", "p99 / PING");
    for (unsigned way = 0; way < WAYS; way++) {
        middle[way] = median(page->times[way], HAND_OVERS) / 1e3;
        tail[way] = percentile(page->times[way], HAND_OVERS, 99) / 1e3;
        printf("  %-28s %7.1f us %7.1f us %14.2f %14.2f\n", names[way], middle[way], tail[way],
               middle[way] / middle[PING], tail[way] / middle[PING]);
    }
}

static bool show_handover(void *memory)
{
    double middle[WAYS], tail[WAYS];

    show_ways(memory, middle, tail);
    if (tail[PING] > 5 * middle[PING])
        puts("  (this machine is busy with something else: the PINGs themselves would not keep to the bound of the "
             "p99)");
    bool holds = at_most("median of the hand-over / median PING", middle[DIRECT] / middle[PING], 1.3, "");
    return at_most("p99 of the hand-over / median PING", tail[DIRECT] / middle[PING], 5, "") && holds;
}

/* ----------------------------------------------------------------- threads */

enum { THREADS = 64, ROUNDS = 5, ROUND_MS = 1000 };

struct threads {
    double handing_on[ROUNDS], through_store[ROUNDS], plain[ROUNDS]; /* acquires a second */
    double longest_ns;                                               /* wait for a single acquire, with hand-over */
};

struct contender {
    pthread_t thread;
    dibs_runtime *runtime;
    long acquires;
    double longest_ns;
};

static atomic_bool running;

static void *contend(void *arg)
{
    struct contender *contender = arg;

    while (atomic_load_explicit(&running, memory_order_relaxed)) {
        double start = now_ns();
        must(dibs_lock(contender->runtime, "threads"));
        double waited = now_ns() - start;
        must(dibs_unlock(contender->runtime, "threads"));
        contender->acquires++;
        if (waited > contender->longest_ns)
            contender->longest_ns = waited;
    }
    return NULL;
}

/* Acquires a second by all the threads. */
static double contend_for_a_round(dibs_runtime *runtime, double *longest_ns)
{
    struct contender contenders[THREADS];
    long acquires = 0;

    atomic_store(&running, true);
    double start = now_ns();
    for (unsigned i = 0; i < THREADS; i++) {
        contenders[i] = (struct contender){.runtime = runtime};
        contenders[i].thread = bench_thread(contend, &contenders[i]);
    }
    pause_us(ROUND_MS * 1000L);
    atomic_store(&running, false);
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(contenders[i].thread, NULL);
        acquires += contenders[i].acquires;
        if (contenders[i].longest_ns > *longest_ns)
            *longest_ns = contenders[i].longest_ns;
    }
    return (double)acquires / (now_ns() - start) * 1e9;
}

static void not_held_up(void *arg)
{
    (void)arg;
}

static double plain_for_a_round(redisContext *redis)
{
    struct naive_lock lock = {redis, "plain", "plain", 30000};
    double start = now_ns();
    long acquires = 0;

    while (now_ns() - start < ROUND_MS * 1e6) {
        if (!naive_try(&lock) || naive_release(&lock, NAIVE_SCRIPT, not_held_up, NULL) != NAIVE_RELEASED)
            cleanup_fail("the lock of plain hiredis is not free");
        acquires++;
    }
    return (double)acquires / (now_ns() - start) * 1e9;
}

static void crowd(unsigned number, void *memory)
{
    struct threads *page = memory;
    dibs_runtime *handing_on = bench_open(0), *through_store = bench_open(DIBS_NO_HANDOFF);
    redisContext *redis = bench_connect();
    double unused = 0;

    (void)number;
    for (unsigned i = 0; i < ROUNDS; i++) {
        page->plain[i] = plain_for_a_round(redis);
        page->through_store[i] = contend_for_a_round(through_store, &unused);
        page->handing_on[i] = contend_for_a_round(handing_on, &page->longest_ns);
    }
    redisFree(redis);
    dibs_close(through_store);
    dibs_close(handing_on);
}

static bool show_threads(void *memory)
{
    struct threads *page = memory;
    double ratio[ROUNDS];

    for (unsigned i = 0; i < ROUNDS; i++)
        ratio[i] = page->handing_on[i] / page->through_store[i];
    double plain = median(page->plain, ROUNDS);
    double through_store = median(page->through_store, ROUNDS), handing_on = median(page->handing_on, ROUNDS);
    printf("  %-44s %9.0f acquires/s\n", "plain hiredis, one connection alone", plain);
    printf("  %-44s %9.0f acquires/s, %.2f of plain hiredis\n", "DIBS_NO_HANDOFF", through_store,
           through_store / plain);
    printf("  %-44s %9.0f acquires/s, %.2f of plain hiredis\n", "with hand-over", handing_on, handing_on / plain);
    bool holds = at_least("with hand-over / DIBS_NO_HANDOFF", median(ratio, ROUNDS), 20, " times");
    return at_most("longest wait with hand-over", page->longest_ns / 1e6, 50, " ms") && holds;
}

/* ------------------------------------------------------------------ shares */

enum { PROCESSES = 4, SHARERS = 8, SHARE_MS = 5000 };

struct shares {
    atomic_uint arrived;
    atomic_bool over;
    atomic_ulong acquires[PROCESSES];
};

struct sharer {
    pthread_t thread;
    struct shares *page;
    dibs_runtime *runtime;
    unsigned process;
};

static void *take_share(void *arg)
{
    struct sharer *sharer = arg;
    unsigned long acquires = 0;

    team_meet(&sharer->page->arrived, PROCESSES * SHARERS + 1);
    for (;;) {
        must(dibs_lock(sharer->runtime, "shares"));
        bool over = atomic_load(&sharer->page->over);
        must(dibs_unlock(sharer->runtime, "shares"));
        if (over)
            break;
        acquires++;
    }
    atomic_fetch_add(&sharer->page->acquires[sharer->process], acquires);
    return NULL;
}

static void share(unsigned number, void *memory)
{
    struct shares *page = memory;
    struct sharer sharers[SHARERS];
    dibs_runtime *runtime = bench_open(0);

    for (unsigned i = 0; i < SHARERS; i++) {
        sharers[i] = (struct sharer){.page = page, .runtime = runtime, .process = number};
        sharers[i].thread = bench_thread(take_share, &sharers[i]);
    }
    if (number == 0) { /* keeps the time for all */
        team_meet(&page->arrived, PROCESSES * SHARERS + 1);
        pause_us(SHARE_MS * 1000L);
        atomic_store(&page->over, true);
    }
    for (unsigned i = 0; i < SHARERS; i++)
        pthread_join(sharers[i].thread, NULL);
    dibs_close(runtime);
}

static bool show_shares(void *memory)
{
    struct shares *page = memory;
    double total = 0, least = 100, most = 0;

    for (unsigned i = 0; i < PROCESSES; i++)
        total += (double)atomic_load(&page->acquires[i]);
    for (unsigned i = 0; i < PROCESSES; i++) {
        double acquires = (double)atomic_load(&page->acquires[i]), percent = total > 0 ? 100 * acquires / total : 0;
        printf("  process %u %9.0f acquires %6.2f %%\n", i + 1, acquires, percent);
        least = percent < least ? percent : least;
        most = percent > most ? percent : most;
    }
    printf("  in all    %9.0f acquires, %.0f a second\n", total, total * 1000 / SHARE_MS);
    bool holds = at_least("smallest share", least, 15, " %");
    return at_most("largest share", most, 35, " %") && holds;
}

/* -------------------------------------------------------------------- fair */

enum { GRANTS = 10000, QUEUERS = 4, QUEUE_MOST = PROCESSES * QUEUERS - 1 };

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

/* FNV-1a: two different tokens in the place of each other would show, but for one chance in 2^64. */
static uint64_t hash(const redisReply *token)
{
    uint64_t value = UINT64_C(14695981039346656037);

    if (token->type != REDIS_REPLY_STRING)
        cleanup_fail("no token where there should be one");
    for (size_t i = 0; i < token->len; i++)
        value = (value ^ (unsigned char)token->str[i]) * UINT64_C(1099511628211);
    return value;
}

static redisReply *next_reply(redisContext *redis)
{
    void *reply;

    if (redisGetReply(redis, &reply) != REDIS_OK || ((redisReply *)reply)->type == REDIS_REPLY_ERROR)
        cleanup_fail("Redis: no queue could be read");
    return reply;
}

/* In the holder. Both commands in one go, to hold no longer than need be. */
static void look_at_queue(redisContext *redis, struct grant *grant)
{
    redisAppendCommand(redis, "GET lock:fair");
    redisAppendCommand(redis, "ZRANGE dibs:queue:{lock:fair} 0 -1");
    redisReply *token = next_reply(redis), *queue = next_reply(redis);

    if (queue->type != REDIS_REPLY_ARRAY || queue->elements > QUEUE_MOST)
        cleanup_fail("the queue has more entries than there are threads");
    grant->token = hash(token);
    grant->waiting = (unsigned)queue->elements;
    for (size_t i = 0; i < queue->elements; i++)
        grant->queue[i] = hash(queue->element[i]);
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
        if (number < GRANTS) {
            struct grant *grant = &queuer->page->grants[number];
            dibs_hold hold;
            must(dibs_hold_of(queuer->runtime, "fair", &hold));
            grant->fence = hold.fence;
            look_at_queue(redis, grant);
        }
        must(dibs_unlock(queuer->runtime, "fair"));
    } while (number < GRANTS);
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

/* Who waited behind a grant must be granted next, in that order, with rising fences. */
static bool in_order(const struct fair *page, unsigned number)
{
    const struct grant *grant = &page->grants[number];

    for (unsigned i = 0; i < grant->waiting && number + 1 + i < GRANTS; i++)
        if (page->grants[number + 1 + i].token != grant->queue[i])
            return false;
    return number == 0 || page->grants[number - 1].fence < grant->fence;
}

static bool show_fair(void *memory)
{
    const struct fair *page = memory;
    unsigned exceptions = 0, with_queue = 0;
    double places = 0;

    for (unsigned i = 0; i < GRANTS; i++) {
        exceptions += !in_order(page, i);
        with_queue += page->grants[i].waiting > 0;
        places += page->grants[i].waiting;
    }
    printf("  the queue behind a grant: %.1f long in the mean\n", places / GRANTS);
    bool holds = at_least("grants with a queue behind them", 100.0 * with_queue / GRANTS, 90, " %");
    return at_most("grants out of order, of 10,000", exceptions, 0, "") && holds;
}

/* -------------------------------------------------------------------- idle */

enum { IDLERS = 1000, IDLE_S = 10, ASLEEP_LIMIT_MS = 20000 };

struct idle {
    atomic_uint arrived;
    atomic_ulong sent[2];      /* by the runtimes of the two processes, as they count it */
    unsigned long sent_by_all; /* as the server saw it */
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
    } while (stats.contended < IDLERS);
}

/* How many commands the server shows on the monitor up to `mark`, without those that scripts call. */
static unsigned long count_until(redisContext *monitor, const char *mark)
{
    unsigned long count = 0;

    for (;;) {
        redisReply *line = next_reply(monitor);
        bool marked = strstr(line->str, mark) != NULL;
        count += !marked && strstr(line->str, " lua]") == NULL;
        freeReplyObject(line);
        if (marked)
            return count;
    }
}

/* What all clients send meanwhile. MONITOR, as INFO's counters take a script's inner commands for sent ones. */
static unsigned long watch(void)
{
    redisContext *redis = bench_connect(), *monitor = bench_connect();

    freeReplyObject(naive_command(monitor, "MONITOR"));
    freeReplyObject(naive_command(redis, "ECHO the-watch-begins"));
    pause_us(IDLE_S * 1000000L);
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
    for (unsigned i = 0; i < IDLERS; i++)
        threads[i] = bench_thread(idle, runtime);
    await_asleep(runtime);
    unsigned long before = commands(runtime);
    team_meet(&page->arrived, 4);
    team_meet(&page->arrived, 6);
    atomic_store(&page->sent[1], commands(runtime) - before);
    for (unsigned i = 0; i < IDLERS; i++)
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

    printf("  in %d s the waiters' runtime counted %lu commands, the holder's %lu\n", IDLE_S, waiters, holder);
    bool holds = at_most("commands a second, as they count them", (double)(waiters + holder) / IDLE_S, 10, "");
    return at_most("commands a second, as the server saw them", (double)page->sent_by_all / IDLE_S, 10, "") && holds;
}

/* ----------------------------------------------------------------- program */

struct part {
    const char *name, *title;
    unsigned processes, limit_s;
    size_t memory;
    void (*work)(unsigned number, void *memory);
    bool (*show)(void *memory);
    bool apart; /* the server has a core of its own */
};

static const struct part parts[] = {
    {"handover", "hand-over between two processes", 2, 120, sizeof(struct handover), hand_over, show_handover, true},
    {"threads", "64 threads of one process", 1, 60, sizeof(struct threads), crowd, show_threads, false},
    {"shares", "4 processes of 8 threads, 5 s", PROCESSES, 60, sizeof(struct shares), share, show_shares, false},
    {"fair", "4 processes of 4 threads, DIBS_FAIR", PROCESSES, 120, sizeof(struct fair), queue_in_process, show_fair,
     false},
    {"idle", "1,000 threads that wait for 10 s", 2, 120, sizeof(struct idle), stay_idle, show_idle, false},
};

enum { PARTS = sizeof parts / sizeof *parts };

static bool anywhere; /* the server has no core of its own in any part */

static void set_apart(void)
{
    unsigned others = anywhere ? 0 : cores_set_apart(bench_server.pid);

    if (others > 0)
        printf("  the server has a core of its own, its clients have %u other%s\n", others, others > 1 ? "s" : "");
    else
        puts("  the server and its clients run where the system puts them");
}

static bool run_part(const struct part *part)
{
    void *memory = team_memory(part->memory);

    printf("%s: %s\n", part->name, part->title);
    if (part->apart)
        set_apart();
    bool done = team_run(part->processes, part->work, memory, part->limit_s);
    cores_put_back(bench_server.pid);
    bool holds = done ? part->show(memory) : false;
    if (!done)
        puts("  not measured: does not hold");
    putchar('\n');
    fflush(stdout);
    return holds;
}

static int usage(FILE *out, int status)
{
    fputs("Usage: contended [--only PART] [--anywhere]\n"
          "Measures contended locks on a server of its own, and compares with the bounds.\n\n"
          "  --only PART   runs one part only:\n",
          out);
    for (unsigned i = 0; i < PARTS; i++)
        fprintf(out, "                %-10s %s\n", parts[i].name, parts[i].title);
    fputs("  --anywhere    leaves it to the system on which core the server runs\n"
          "  --help        says this\n\nThe status is 0 where all the bounds hold, 1 where one does not.\n",
          out);
    return status;
}

/* NULL: all parts. */
static const struct part *find(const char *name)
{
    for (unsigned i = 0; i < PARTS; i++)
        if (strcmp(parts[i].name, name) == 0)
            return &parts[i];
    fprintf(stderr, "contended: there is no part \"%s\"\n", name);
    exit(usage(stderr, 2));
}

static const struct part *read_options(int argc, char **argv)
{
    static const struct option options[] = {{"only", required_argument, NULL, 'o'},
                                            {"anywhere", no_argument, NULL, 'a'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    const struct part *only = NULL;

    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (option == 'h')
            exit(usage(stdout, 0));
        if (option == 'o')
            only = find(optarg);
        else if (option == 'a')
            anywhere = true;
        else
            exit(usage(stderr, 2));
    }
    if (optind < argc)
        exit(usage(stderr, 2));
    return only;
}

int main(int argc, char **argv)
{
    const struct part *only = read_options(argc, argv);
    bool holds = true;

    bench_start();
    for (unsigned i = 0; i < PARTS; i++)
        if (!only || only == &parts[i])
            holds = run_part(&parts[i]) && holds;
    cleanup_exit(holds ? 0 : 1);
}
