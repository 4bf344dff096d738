#include "ways/way.h"

static const char extend[] = "if redis.call('GET', KEYS[1]) == ARGV[1] then "
                             "return redis.call('PEXPIRE', KEYS[1], ARGV[2]) else return 0 end";
static const char release[] = "if redis.call('GET', KEYS[1]) == ARGV[1] then "
                              "return redis.call('DEL', KEYS[1]) else return 0 end";

/* At 29 s of 30: 20 s more, and so on. */
static void watch(struct racer *helper)
{
    unsigned more = helper->lease_ms * 2 / 3, left = helper->lease_ms - helper->lease_ms / 30 - 1;

    while (way_sleep(helper, left)) {
        way_point(helper, "tick");
        if (way_ask(helper, "EVAL %s 1 %s %s %u", extend, helper->key, helper->token, more) == 0) {
            way_extra(helper, 0, 1);
            way_point(helper, "too late"); /* the thread ends, and the holder works on */
            return;
        }
        way_leased(helper, more);
        left = more - more / 30 - 1;
    }
}

static bool lock(struct racer *me)
{
    while (!way_ask(me, "SET %s %s NX PX %u", me->key, me->token, me->lease_ms))
        if (!way_retry(me, 10))
            return false;
    me->own = way_thread(me, watch);
    return true;
}

static void unlock(struct racer *me)
{
    uint64_t before;

    way_join(me->own);
    before = way_now(me, "before the script");
    if (way_ask(me, "EVAL %s 1 %s %s", release, me->key, me->token) == 1)
        way_deleted(me, before);
}

static const struct scene scenes[] = {
    {.title = "one tick of the watchdog is late",
     .racers = 2,
     .limit = 1,
     .lease_ms = 60,
     .work_ms = 1,
     .cues = {{0, "tick", CUE_WAIT, 1, "work", 0},
              {1, "arrive", CUE_WAIT, 0, "work", 0},
              {0, "work", CUE_WAIT, 0, "too late", 0},
              {1, "leave", CUE_WAIT, 0, "left", 0}},
     .shows = FLAW_COUNT | FLAW_OVERLAP | FLAW_EXTRA},
    {.racers = 0},
};

const struct way way_late_renewal = {
    .number = 10,
    .name = "late-renewal",
    .title = "renewal at 29 s of 30",
    .text = "A thread extends the lease shortly before it ends, if the lock is still its own. "
            "One tick that comes late, and the lease is over: the thread ends, and the holder works on without a lock.",
    .source = __FILE__,
    .lock = lock,
    .unlock = unlock,
    .extras = {"watchdogs that came too late"},
    .scenes = scenes,
};
