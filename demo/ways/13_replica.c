#include "ways/way.h"

enum { ADDRESS = 1 }; /* where the master is, whichever server that is */

static const char release[] = "if redis.call('GET', KEYS[1]) == ARGV[1] then "
                              "return redis.call('DEL', KEYS[1]) else return 0 end";

static bool lock(struct racer *me)
{
    while (way_ask_at(me, ADDRESS, "SET %s %s NX PX %u", me->key, me->token, me->lease_ms) != 1)
        if (!way_retry(me, 10))
            return false;
    return true;
}

static void unlock(struct racer *me)
{
    uint64_t before = way_now(me, "before the script");

    if (way_ask_at(me, ADDRESS, "EVAL %s 1 %s %s", release, me->key, me->token) == 1)
        way_deleted(me, before);
}

static const struct scene scenes[] = {
    {.title = "the master dies before its replica hears of the lock, and the replica is promoted",
     .racers = 2,
     .limit = 1,
     .lease_ms = 2000,
     .work_ms = 1,
     .cues = {{0, "arrive", CUE_CUT, 2, NULL, 0},
              {0, "work", CUE_FELL, 1, NULL, 0},
              {0, "work", CUE_PROMOTE, 0, NULL, 0},
              {1, "arrive", CUE_WAIT, 0, "check", 0},
              {0, "write", CUE_WAIT, 1, "work", 0}},
     .shows = FLAW_COUNT | FLAW_OVERLAP},
    {.racers = 0},
};

const struct way way_replica = {
    .number = 13,
    .name = "replica",
    .title = "a master with a replica",
    .text = "The replica is there for when the master dies, and clients then find the replica at the same address. "
            "It may not have heard of a lock that the master granted a moment before: then it grants it once more.",
    .source = __FILE__,
    .replicas = 1,
    .lock = lock,
    .unlock = unlock,
    .scenes = scenes,
};
