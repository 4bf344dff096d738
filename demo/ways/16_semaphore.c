#include "ways/way.h"

enum { ROOM = 2 };

static bool try_enter(struct racer *me)
{
    unsigned long long now = way_time_ms(me);

    way_ask(me, "ZREMRANGEBYSCORE %s:inside -inf %llu", me->key, now - me->lease_ms);
    way_ask(me, "ZADD %s:inside %llu %s", me->key, now, me->token);
    way_point(me, "between ZADD and ZRANK");
    if (way_ask(me, "ZRANK %s:inside %s", me->key, me->token) < ROOM)
        return true;
    way_ask(me, "ZREM %s:inside %s", me->key, me->token);
    return false;
}

static void run(struct racer *me)
{
    while (!try_enter(me))
        if (!way_retry(me, 10)) {
            way_gave_up(me);
            return;
        }
    way_enter(me);
    way_work(me);
    way_leave(me);
    way_ask(me, "ZREM %s:inside %s", me->key, me->token);
}

static const struct scene scenes[] = {
    {.title = "two are inside; the clock of the third is behind, so its place is in front of theirs",
     .racers = 3,
     .lease_ms = 2000,
     .work_ms = 1,
     .clock_off_ms = {0, 0, -500},
     .cues = {{1, "arrive", CUE_WAIT, 0, "enter", 0},
              {2, "arrive", CUE_WAIT, 1, "enter", 0},
              {0, "leave", CUE_WAIT, 2, "enter", 0},
              {1, "leave", CUE_WAIT, 2, "enter", 0}},
     .shows = FLAW_OVERLAP},
    {.title = "two are inside; the clock of the third is ahead, so it thinks that their time is over",
     .racers = 3,
     .lease_ms = 2000,
     .work_ms = 1,
     .clock_off_ms = {0, 0, 3000},
     .cues = {{1, "arrive", CUE_WAIT, 0, "enter", 0},
              {2, "arrive", CUE_WAIT, 1, "enter", 0},
              {0, "leave", CUE_WAIT, 2, "enter", 0},
              {1, "leave", CUE_WAIT, 2, "enter", 0}},
     .shows = FLAW_OVERLAP},
    {.racers = 0},
};

const struct way way_semaphore = {
    .number = 16,
    .name = "semaphore",
    .title = "a semaphore for two, by ZSET",
    .text = "A sorted set has those inside by the time at which each came; the first two of them may stay. "
            "The client's clock says who is among the first and whose time is over, so a third one gets in.",
    .source = __FILE__,
    .room = ROOM,
    .run = run,
    .scenes = scenes,
};
