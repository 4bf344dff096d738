#include "ways/way.h"

static const char release[] = "if redis.call('GET', KEYS[1]) == ARGV[1] then "
                              "return redis.call('DEL', KEYS[1]) else return 0 end";

static bool lock(struct racer *me)
{
    while (!way_ask(me, "SET %s %s NX PX %u", me->key, me->thread_name, me->lease_ms))
        if (!way_retry(me, 10))
            return false;
    return true;
}

static void unlock(struct racer *me)
{
    uint64_t before = way_now(me, "before the script");

    if (way_ask(me, "EVAL %s 1 %s %s", release, me->key, me->thread_name) == 1)
        way_deleted(me, before);
}

static const struct scene scenes[] = {
    {.title = "the second holder's thread, in another process, has the same name",
     .racers = 3,
     .limit = 1,
     .lease_ms = 600, /* the lock is there when the first one deletes it, on a busy machine too */
     .work_ms = 1,
     .cues = {{1, "arrive", CUE_WAIT, 0, "enter", 0},
              {0, "work", CUE_WAIT, 1, "work", 0},
              {2, "arrive", CUE_WAIT, 1, "work", 0},
              {1, "work", CUE_WAIT, 2, "enter", 0},
              {2, "leave", CUE_WAIT, 0, "left", 0}},
     .shows = FLAW_COUNT | FLAW_OVERLAP | FLAW_DELETED},
    {.racers = 0},
};

const struct way way_thread_name = {
    .number = 8,
    .name = "thread-name",
    .title = "the thread's name as the owner",
    .text = "The same script compares with the name of the thread. "
            "Threads of two processes have the same names, so the script deletes another's lock: "
            "an owner must be unique in the world (a UUID).",
    .source = __FILE__,
    .lock = lock,
    .unlock = unlock,
    .scenes = scenes,
};
