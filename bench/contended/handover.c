/*
 * The hand-over between two processes, against the least that a server can do for it, and the round trips that it is
 * made of. The least, called the floor: a minimal script releases, grants and publishes in one go, and the waiter
 * blocks in recv(2) on a socket of its own. The usual way: the script deletes and publishes, and the waiter then asks.
 *
 * Before each hand-over the server is asked something, and there is the same pause before and after that: the longer a
 * waiter has slept and a server was idle, the longer it takes to wake them.
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
#include "support/grid.h"
#include "support/percentiles.h"
#include "support/team.h"

enum { HAND_OVERS = 4000, BLOCKS = 10, PAUSE_US = 300, QUEUED_LIMIT_MS = 3000 };
enum way { FLOOR, DIRECT, SLEEPING, USUAL, HANDING, PING = HANDING, SCRIPT, WAYS }; /* SLEEPING: with DIBS_NO_SPIN */

static const char *const names[WAYS] = {
    [FLOOR] = "floor",           [DIRECT] = "dibs",          [SLEEPING] = "dibs without polling",
    [USUAL] = "PUBLISH; SET NX", [PING] = "PING round trip", [SCRIPT] = "EVALSHA round trip",
};
static const char *const locks[WAYS] = {[DIRECT] = "handover", [SLEEPING] = "handover:sleeping"};

static const char floor_release[] = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end "
                                    "redis.call('SET', KEYS[1], ARGV[2], 'PX', 30000) "
                                    "redis.call('PUBLISH', ARGV[3], ARGV[2]) return 1";

static const char usual_release[] = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end "
                                    "redis.call('DEL', KEYS[1]) redis.call('PUBLISH', ARGV[2], '') return 1";

struct handover {
    atomic_uint arrived;
    atomic_uint listening[WAYS]; /* rounds in which the waiter of the floor or the usual way was about to listen */
    atomic_uint returned[WAYS];  /* rounds in which the waiter had the lock */
    double returned_at;          /* written before `returned` rises */
    double times[WAYS][HAND_OVERS];
};

/* One of the two processes. They hold and wait by turns. */
struct player {
    struct handover *page;
    dibs_runtime *runtime[WAYS]; /* of DIRECT and SLEEPING */
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
    *player = (struct player){.page = page, .number = number, .listener = bench_connect()};
    player->runtime[DIRECT] = bench_open(0);
    player->runtime[SLEEPING] = bench_open_with((dibs_config){.spin_us = DIBS_NO_SPIN});
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
    dibs_close(player->runtime[DIRECT]);
    dibs_close(player->runtime[SLEEPING]);
}

static double time_ping(struct player *player)
{
    double start = now_ns();
    freeReplyObject(naive_command(player->usual.redis, "PING"));
    return now_ns() - start;
}

static double time_script(struct player *player)
{
    double start = now_ns();
    freeReplyObject(naive_command(player->usual.redis, "EVALSHA %s 0", player->script));
    return now_ns() - start;
}

/* Waits until the waiter is in the queue. */
static void await_queued(struct player *player, enum way way)
{
    double limit = now_ns() + QUEUED_LIMIT_MS * 1e6;
    dibs_owner owner;

    do {
        if (now_ns() > limit)
            cleanup_fail("dibs_query shows no waiter, though another process waits: there is nothing to measure");
        pause_us(PAUSE_US);
        must(dibs_query(player->runtime[way], locks[way], &owner));
    } while (owner.waiters != 1);
}

/* Called by the waiter, which now has the lock. */
static void returned(struct handover *page, enum way way)
{
    page->returned_at = now_ns();
    atomic_fetch_add(&page->returned[way], 1);
}

static double time_direct(struct player *player, enum way way, unsigned round)
{
    await_queued(player, way);
    pause_us(PAUSE_US);
    double start = now_ns();
    must(dibs_unlock(player->runtime[way], locks[way]));
    team_await(&player->page->returned[way], round + 1);
    return player->page->returned_at - start;
}

/* Waits until the waiter was about to listen so often, and so long that the waiter sleeps. */
static void await_listening(struct player *player, enum way way, unsigned round)
{
    team_await(&player->page->listening[way], round + 1);
    pause_us(PAUSE_US);
}

static double time_floor(struct player *player, unsigned round)
{
    unsigned me = player->number;

    await_listening(player, FLOOR, round);
    player->page->times[PING][round] = time_ping(player);
    pause_us(PAUSE_US);
    double start = now_ns();
    freeReplyObject(naive_command(player->usual.redis, "EVALSHA %s 1 floor %s %s %s", player->floor_release,
                                  player->token[me], player->token[!me], player->channel[!me]));
    team_await(&player->page->returned[FLOOR], round + 1);
    return player->page->returned_at - start;
}

static double time_usual(struct player *player, unsigned round)
{
    unsigned me = player->number;

    await_listening(player, USUAL, round);
    player->page->times[SCRIPT][round] = time_script(player);
    pause_us(PAUSE_US);
    double start = now_ns();
    freeReplyObject(naive_command(player->usual.redis, "EVALSHA %s 1 usual %s %s", player->usual_release,
                                  player->token[me], player->channel[!me]));
    team_await(&player->page->returned[USUAL], round + 1);
    return player->page->returned_at - start;
}

/* The ways to hand over; each comes first as often as the others. */
static enum way nth_way(unsigned round, unsigned i)
{
    return (enum way)((i + round / 2) % HANDING);
}

static void hold_round(struct player *player, unsigned round)
{
    for (unsigned i = 0; i < HANDING; i++) {
        enum way way = nth_way(round, i);
        player->page->times[way][round] = way == FLOOR   ? time_floor(player, round)
                                          : way == USUAL ? time_usual(player, round)
                                                         : time_direct(player, way, round);
    }
}

/* Blocks until a message has come that says `text`. */
static void listen_for(struct player *player, enum way way, const char *text)
{
    atomic_fetch_add(&player->page->listening[way], 1);
    redisReply *message = bench_next_reply(player->listener);
    if (message->elements != 3 || strcmp(message->element[2]->str, text) != 0)
        cleanup_fail("a lock of plain hiredis was not handed over");
    freeReplyObject(message);
}

static void wait_for(struct player *player, enum way way)
{
    if (way == FLOOR) {
        listen_for(player, way, player->token[player->number]);
    } else if (way == USUAL) {
        listen_for(player, way, "");
        if (!naive_try(&player->usual))
            cleanup_fail("the lock of the usual way was not free");
    } else {
        must(dibs_lock(player->runtime[way], locks[way]));
    }
    returned(player->page, way);
}

static void wait_round(struct player *player, unsigned round)
{
    for (unsigned i = 0; i < HANDING; i++)
        wait_for(player, nth_way(round, i));
}

static void hand_over(unsigned number, void *memory)
{
    struct player player;

    meet_player(&player, number, memory);
    if (number == 0) {
        freeReplyObject(naive_command(player.usual.redis, "DEL usual")); /* of the run before */
        must(dibs_lock(player.runtime[DIRECT], locks[DIRECT]));
        must(dibs_lock(player.runtime[SLEEPING], locks[SLEEPING]));
        if (!naive_try(&player.usual))
            cleanup_fail("the lock of plain hiredis is not free");
        freeReplyObject(naive_command(player.usual.redis, "SET floor %s PX 30000", player.token[0]));
    }
    team_meet(&player.page->arrived, 2);
    for (unsigned round = 0; round < bench_scaled(HAND_OVERS); round++) {
        if (round % 2 == number)
            hold_round(&player, round);
        else
            wait_round(&player, round);
    }
    team_meet(&player.page->arrived, 4);
    part_player(&player);
}

/* The times stand in the order in which they were taken: a block of them is a round of all the ways. */
static void show_blocks(const struct handover *page, unsigned count)
{
    static const struct figure figures[] = {{"median", "us"}, {"p99", "us"}};
    static struct grid grid = {
        .table = "handover", .cell = "all", .sides = WAYS, .figures = 2, .rounds = BLOCKS, .figure = figures};
    double block[HAND_OVERS];
    size_t size = count / BLOCKS;

    grid.transport = bench_transport_name(bench_transport);
    for (unsigned way = 0; way < WAYS; way++) {
        grid.side[way] = names[way];
        for (unsigned i = 0; i < BLOCKS; i++) {
            memcpy(block, page->times[way] + size * i, size * sizeof *block);
            grid.value[way][0][i] = median(block, size);
            grid.value[way][1][i] = percentile(block, size, 99);
        }
    }
    grid_show(&grid);
}

static bool show_handover(void *memory)
{
    struct handover *page = memory;
    double middle[WAYS], tail[WAYS];
    unsigned count = bench_scaled(HAND_OVERS);

    for (unsigned way = 0; way < WAYS; way++)
        for (unsigned i = 0; i < count; i++)
            page->times[way][i] /= 1e3;
    show_blocks(page, count);
    for (unsigned way = 0; way < WAYS; way++) {
        percentiles_csv("handover", bench_transport_name(bench_transport), "all", names[way], page->times[way], count);
        middle[way] = median(page->times[way], count);
        tail[way] = percentile(page->times[way], count, 99);
    }
    bool holds = at_most("median of the hand-over / median of the floor", middle[DIRECT] / middle[FLOOR], 1.25, "x");
    return at_most("p99 of the hand-over / p99 of the floor", tail[DIRECT] / tail[FLOOR], 2, "x") && holds;
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
