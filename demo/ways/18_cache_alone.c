#include "ways/cache.h"

bool cache_has(struct racer *me)
{
    char value[32];

    return way_get(me, value, sizeof value, "GET %s:value", me->key);
}

/* The slow question to the database. One answer is enough. */
void cache_rebuild(struct racer *me)
{
    way_enter(me);
    way_extra(me, way_ask(me, "INCR %s:rebuilds", me->key) > 1 ? 0 : 1, 1);
    way_work(me);
    way_ask(me, "SET %s:value 42 EX 60", me->key);
    way_leave(me);
}

static void run(struct racer *me)
{
    if (cache_has(me))
        return;
    way_point(me, "missed");
    cache_rebuild(me);
}

static const struct scene scenes[] = {
    {.title = "the value expires, and two miss it at once",
     .racers = 2,
     .lease_ms = CACHE_LEASE_MS,
     .work_ms = 5,
     .cues = {{0, "missed", CUE_WAIT, 1, "missed", 0},
              {1, "missed", CUE_WAIT, 0, "missed", 0},
              {0, "work", CUE_WAIT, 1, "work", 0},
              {1, "work", CUE_WAIT, 0, "work", 0}},
     .shows = FLAW_EXTRA | FLAW_OVERLAP},
    {.racers = 0},
};

const struct way way_cache_alone = {
    .number = 18,
    .name = "cache-alone",
    .title = "a cache, without a lock",
    .text = "A value expires, and 200 threads of four processes miss it at the same time. "
            "All of them ask the database, which one question was to spare.",
    .source = __FILE__,
    .processes = CACHE_PROCESSES,
    .threads = CACHE_THREADS,
    .lease_ms = CACHE_LEASE_MS,
    .lockless = true,
    .run = run,
    .extras = {"needless rebuilds", "rebuilds that were needed"},
    .extras_are_good = {false, true},
    .scenes = scenes,
};
