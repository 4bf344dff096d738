#include "ways/way.h"

/* Takes the lock, or sleeps and calls itself. */
/* NOLINTNEXTLINE(misc-no-recursion): that is the way */
static bool lock_at(struct racer *me, unsigned depth)
{
    way_extra(me, 0, depth);
    if (way_ask(me, "SET %s %s NX PX %u", me->key, me->token, me->lease_ms))
        return true;
    if (!way_retry(me, 200))
        return false;
    return lock_at(me, depth + 1);
}

static bool lock(struct racer *me)
{
    return lock_at(me, 0);
}

static const char release[] = "if redis.call('GET', KEYS[1]) == ARGV[1] then "
                              "return redis.call('DEL', KEYS[1]) else return 0 end";

static void unlock(struct racer *me)
{
    uint64_t before = way_now(me, "before the script");

    if (way_ask(me, "EVAL %s 1 %s %s", release, me->key, me->token) == 1)
        way_deleted(me, before);
}

static const struct scene scenes[] = {
    {.title = "one is about to sleep while the lock becomes free; another comes later, and is in at once",
     .racers = 3,
     .limit = 3,
     .lease_ms = 600,
     .work_ms = 1,
     .idle_ms = 190,
     .cues = {{1, "arrive", CUE_WAIT, 0, "work", 0},
              {0, "work", CUE_WAIT, 1, "retry", 0},
              {2, "arrive", CUE_WAIT, 0, "left", 0},
              {1, "retry", CUE_WAIT, 2, "left", 0}},
     .shows = FLAW_ORDER | FLAW_IDLE},
    {.racers = 0},
};

const struct way way_sleep_retry = {
    .number = 9,
    .name = "sleep-retry",
    .title = "sleep 200 ms, and call again",
    .text = "Whoever finds the lock taken sleeps for 200 ms and calls the function again. "
            "The lock is free meanwhile, any thread that comes at the right moment is first, and the stack grows.",
    .source = __FILE__,
    .lock = lock,
    .unlock = unlock,
    .extras = {"deepest recursion"},
    .scenes = scenes,
};
