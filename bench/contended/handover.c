/* The hand-over between two processes, against the round trips that it is made of. */
#include <dibs.h>

#include <stdatomic.h>
#include <stdio.h>

#include "contended/part.h"
#include "support/bench.h"
#include "support/common/cleanup.h"
#include "support/common/naive_lock.h"
#include "support/common/timing.h"
#include "support/team.h"

enum { HAND_OVERS = 4000, PAUSE_US = 300, QUEUED_LIMIT_MS = 3000 };
enum way { PING, SCRIPT, DIRECT, USUAL, WAYS };

static const char usual_release[] = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end "
                                    "redis.call('DEL', KEYS[1]) redis.call('PUBLISH', ARGV[2], '') return 1";

struct handover {
    atomic_uint arrived;
    atomic_uint listening;      /* rounds in which the waiter of the usual way listened */
    atomic_uint returned[WAYS]; /* rounds in which the waiter had the lock */
    double returned_at;         /* written before `returned` rises */
    double times[WAYS][HAND_OVERS];
};

/* One of the two processes. They hold and wait by turns. */
struct player {
    struct handover *page;
    dibs_runtime *runtime;
    struct naive_lock usual;
    redisContext *listener;
    char channel[2][16]; /* indexed by the number of the process that listens */
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

/* Waits until the waiter is in the queue. The pauses that follow are long enough for the waiter to fall asleep. */
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

/* Called by the waiter, which now has the lock. */
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

const struct part handover_part = {
    .name = "handover",
    .title = "hand-over between two processes",
    .processes = 2,
    .limit_s = 120,
    .memory = sizeof(struct handover),
    .work = hand_over,
    .show = show_handover,
    .apart = true,
};
