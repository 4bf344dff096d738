#include "ways/way.h"

static const char release[] = "if redis.call('GET', KEYS[1]) == ARGV[1] then "
                              "return redis.call('DEL', KEYS[1]) else return 0 end";

static bool lock(struct racer *me)
{
    while (!way_ask(me, "SET %s %s NX PX %u", me->key, me->token, me->lease_ms))
        if (!way_retry(me, 10))
            return false;
    return true;
}

static void unlock(struct racer *me)
{
    uint64_t before = way_now(me, "before the script");

    if (way_ask(me, "EVAL %s 1 %s %s", release, me->key, me->token) == 1)
        way_deleted(me, before);
}

static const struct scene scenes[] = {
    {.title = "work outlasts the lease; the release finds that the lock is another's, and leaves it alone",
     .racers = 2,
     .limit = 1,
     .lease_ms = 80,
     .work_ms = 1,
     .cues = {{1, "arrive", CUE_WAIT, 0, "enter", 0},
              {0, "work", CUE_WAIT, 1, "work", 0},
              {1, "work", CUE_WAIT, 0, "left", 0}},
     .shows = FLAW_COUNT | FLAW_OVERLAP},
    {.title = "the holder's process is stopped past its lease; nothing refuses what it writes when it goes on",
     .racers = 2,
     .limit = 1,
     .lease_ms = 80,
     .work_ms = 1,
     .cues = {{1, "arrive", CUE_WAIT, 0, "work", 0}, {0, "write", CUE_STOP, 1, "left", 0}},
     .shows = FLAW_COUNT | FLAW_OVERLAP},
    {.racers = 0},
};

const struct way way_script = {
    .number = 7,
    .name = "script",
    .title = "SET NX PX, compare + DEL in Lua",
    .text = "One Lua script compares and deletes, so no release ever deletes another's lock. "
            "The lease still ends while its holder works, and nobody tells the holder.",
    .source = __FILE__,
    .lock = lock,
    .unlock = unlock,
    .scenes = scenes,
};
