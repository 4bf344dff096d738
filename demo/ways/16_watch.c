#include <stdlib.h>

#include "ways/way.h"

/* No lock: EXEC does nothing if the counter has changed since WATCH. */
static bool try_raise(struct racer *me)
{
    char count[24] = "0";
    redisReply *reply;
    bool done;

    way_ask(me, "WATCH %s", me->counter);
    way_get(me, count, sizeof count, "GET %s", me->counter);
    if (strtoul(count, NULL, 10) >= me->limit) {
        way_ask(me, "UNWATCH");
        return true;
    }
    way_point(me, "between GET and MULTI");
    way_work(me);
    way_ask(me, "MULTI");
    way_ask(me, "INCR %s", me->counter);
    reply = way_command(me, "EXEC");
    done = reply->type == REDIS_REPLY_ARRAY;
    freeReplyObject(reply);
    way_extra(me, done, 1);
    return done;
}

static void run(struct racer *me)
{
    while (!try_raise(me))
        way_point(me, "again");
}

static const struct scene scenes[] = {
    {.title = "a slow one and a quick one: what the slow one did is thrown away, and it starts over",
     .racers = 2,
     .limit = 2,
     .lease_ms = 100,
     .work_ms = 1,
     .cues = {{1, "arrive", CUE_WAIT, 0, "between GET and MULTI", 0}, {0, "write", CUE_WAIT, 1, "left", 0}}},
    {.racers = 0},
};

const struct way way_watch = {
    .number = 16,
    .name = "watch",
    .title = "no lock: WATCH, MULTI, EXEC",
    .text = "Everybody works at once, and EXEC refuses all but the first of those that read the same value. "
            "That is right, and quick where few meet; where many do, most of the work is thrown away, and it helps "
            "only if everything to protect lies in Redis.",
    .source = __FILE__,
    .sound = true,
    .counts = true,
    .lockless = true,
    .run = run,
    .extras = {"work thrown away", "work that counted"},
    .extras_are_good = {true, true},
    .scenes = scenes,
};
