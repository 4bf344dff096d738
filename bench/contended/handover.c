/*
 * The hand-over between two processes, against the least that a server can do for it, and the round trips that it is
 * made of. The least, called the floor: a minimal script releases, grants and publishes in one go, and the waiter
 * blocks in recv(2) on a socket of its own. The usual way: the script deletes and publishes, and the waiter then asks.
 */
#include <dibs.h>

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "contended/part.h"
#include "support/bench.h"
#include "support/common/cleanup.h"
#include "support/common/naive_lock.h"
#include "support/common/timing.h"
#include "support/team.h"

enum { HAND_OVERS = 4000, PAUSE_US = 300, QUEUED_LIMIT_MS = 3000 };
enum way { PING, SCRIPT, FLOOR, DIRECT, USUAL, WAYS };

static const char floor_release[] = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end "
                                    "redis.call('SET', KEYS[1], ARGV[2], 'PX', 30000) "
                                    "redis.call('PUBLISH', ARGV[3], ARGV[2]) return 1";

static const char usual_release[] = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end "
                                    "redis.call('DEL', KEYS[1]) redis.call('PUBLISH', ARGV[2], '') return 1";

struct handover {
    atomic_uint arrived;
    atomic_uint listening;      /* how often a waiter of the floor or the usual way was about to listen */
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
    char channel[2][16];                                   /* indexed by the number of the process that listens */
    char token[2][16];                                     /* indexed by the number of the process that owns it */
    char script[48], floor_release[48], usual_release[48]; /* SHA-1 */
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
    for (unsigned i = 0; i < 2; i++) {
        snprintf(player->channel[i], sizeof player->channel[i], "plain:%u", i);
        snprintf(player->token[i], sizeof player->token[i], "token:%u", i);
    }
    player->usual = (struct naive_lock){bench_connect(), "usual", player->token[number], 30000};
    load(player->usual.redis, "return 1", player->script);
    load(player->usual.redis, floor_release, player->floor_release);
    load(player->usual.redis, usual_release, player->usual_release);
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

/* Waits until the waiter was about to listen so often, and then for long enough that the waiter is asleep. */
static void await_listening(struct player *player, unsigned often)
{
    team_await(&player->page->listening, often);
    pause_us(PAUSE_US);
}

static double time_floor(struct player *player, unsigned round)
{
    unsigned me = player->number;

    await_listening(player, 2 * round + 1);
    double start = now_ns();
    freeReplyObject(naive_command(player->usual.redis, "EVALSHA %s 1 floor %s %s %s", player->floor_release,
                                  player->token[me], player->token[!me], player->channel[!me]));
    team_await(&player->page->returned[FLOOR], round + 1);
    return player->page->returned_at - start;
}

static double time_usual(struct player *player, unsigned round)
{
    unsigned me = player->number;

    await_listening(player, 2 * round + 2);
    double start = now_ns();
    freeReplyObject(naive_command(player->usual.redis, "EVALSHA %s 1 usual %s %s", player->usual_release,
                                  player->token[me], player->channel[!me]));
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
    page->times[FLOOR][round] = time_floor(player, round);
    page->times[USUAL][round] = time_usual(player, round);
}

/* Blocks until a message has come that says `text`. */
static void listen_for(struct player *player, const char *text)
{
    atomic_fetch_add(&player->page->listening, 1);
    redisReply *message = bench_next_reply(player->listener);
    if (message->elements != 3 || strcmp(message->element[2]->str, text) != 0)
        cleanup_fail("a lock of plain hiredis was not handed over");
    freeReplyObject(message);
}

static void wait_round(struct player *player)
{
    must(dibs_lock(player->runtime, "handover"));
    returned(player->page, DIRECT);
    listen_for(player, player->token[player->number]);
    returned(player->page, FLOOR);
    listen_for(player, "");
    if (!naive_try(&player->usual))
        cleanup_fail("the lock of the usual way was not free");
    returned(player->page, USUAL);
}

static void hand_over(unsigned number, void *memory)
{
    struct player player;

    meet_player(&player, number, memory);
    if (number == 0) {
        must(dibs_lock(player.runtime, "handover"));
        if (!naive_try(&player.usual))
            cleanup_fail("the lock of plain hiredis is not free");
        freeReplyObject(naive_command(player.usual.redis, "SET floor %s PX 30000", player.token[0]));
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
    static const char *const names[WAYS] = {"PING round trip", "EVALSHA round trip", "floor",
                                            "dibs_unlock to dibs_lock", "PUBLISH, then SET NX"};

    for (unsigned way = 0; way < WAYS; way++) {
        middle[way] = median(page->times[way], HAND_OVERS) / 1e3;
        tail[way] = percentile(page->times[way], HAND_OVERS, 99) / 1e3;
    }
    printf("  %-28s %10s %10s %14s %14s\n", "", "median", "p99", "median / floor", "p99 / floor");
    for (unsigned way = 0; way < WAYS; way++)
        printf("  %-28s %7.1f us %7.1f us %14.2f %14.2f\n", names[way], middle[way], tail[way],
               middle[way] / middle[FLOOR], tail[way] / tail[FLOOR]);
}

static bool show_handover(void *memory)
{
    double middle[WAYS], tail[WAYS];

    show_ways(memory, middle, tail);
    bool holds = at_most("median of the hand-over / median of the floor", middle[DIRECT] / middle[FLOOR], 1.25, "");
    return at_most("p99 of the hand-over / p99 of the floor", tail[DIRECT] / tail[FLOOR], 2, "") && holds;
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
