#include <string.h>

#include "ways/way.h"

static const char release[] = "redis.call('ZREM', KEYS[2], ARGV[1]) "
                              "if redis.call('GET', KEYS[1]) == ARGV[1] then "
                              "return redis.call('DEL', KEYS[1]) else return 0 end";

static bool is_first(struct racer *me)
{
    redisReply *reply = way_command(me, "ZRANGE %s:queue 0 0", me->key);
    bool first = reply->elements == 1 && strcmp(reply->element[0]->str, me->token) == 0;

    freeReplyObject(reply);
    return first;
}

/* The first, by the clients' clocks, gets the lock. */
static bool lock(struct racer *me)
{
    way_ask(me, "ZADD %s:queue %llu %s", me->key, (unsigned long long)way_time_ms(me), me->token);
    way_point(me, "queued");
    while (!is_first(me) || !way_ask(me, "SET %s %s NX PX %u", me->key, me->token, me->lease_ms))
        if (!way_retry(me, 10))
            return false;
    return true;
}

static void unlock(struct racer *me)
{
    uint64_t before = way_now(me, "before the script");

    if (way_ask(me, "EVAL %s 2 %s %s:queue %s", release, me->key, me->key, me->token) == 1)
        way_deleted(me, before);
}

static const struct scene scenes[] = {
    {.title = "the clock of the last to come is a second behind: it is next",
     .racers = 3,
     .limit = 3,
     .lease_ms = 1000,
     .work_ms = 1,
     .clock_off_ms = {0, 0, -1000},
     .cues = {{1, "arrive", CUE_WAIT, 0, "work", 0},
              {2, "arrive", CUE_WAIT, 1, "retry", 0},
              {0, "work", CUE_WAIT, 2, "retry", 0}},
     .shows = FLAW_ORDER},
    {.title = "the first in the queue is killed while it waits: all behind it wait for ever",
     .racers = 2,
     .limit = 1,
     .lease_ms = 80,
     .work_ms = 1,
     .patience_ms = 250, /* three leases */
     .cues = {{0, "queued", CUE_DIE, 0, NULL, 0}, {1, "arrive", CUE_WAIT, 0, "queued", 5}},
     .shows = FLAW_LEFT | FLAW_COUNT},
    {.racers = 0},
};

const struct way way_fair_zset = {
    .number = 15,
    .name = "fair-zset",
    .title = "fair by ZSET, by the time",
    .text = "A sorted set has the waiters by the time at which each came, and the first of them takes the lock. "
            "It is the client's clock that says when, so a clock that is behind jumps the queue; "
            "a head that died blocks all others.",
    .source = __FILE__,
    .lock = lock,
    .unlock = unlock,
    .scenes = scenes,
};
