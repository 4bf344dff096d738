#include "ways/library.h"

enum { PROCESSES = 4, LEASE_MS = 2000, THREADS = 200 };

static bool cached(struct racer *me)
{
    char value[32];

    return way_get(me, value, sizeof value, "GET %s:value", me->key);
}

/* The slow question to the database. One answer is enough. */
static void rebuild(struct racer *me)
{
    way_enter(me);
    way_extra(me, way_ask(me, "INCR %s:rebuilds", me->key) > 1 ? 0 : 1, 1);
    way_work(me);
    way_ask(me, "SET %s:value 42 EX 60", me->key);
    way_leave(me);
}

static void read_alone(struct racer *me)
{
    if (cached(me))
        return;
    way_point(me, "missed");
    rebuild(me);
}

/* The others wait, and find the value when it is their turn. */
static void read_locked(struct racer *me)
{
    if (cached(me))
        return;
    way_point(me, "missed");
    library_lock(me);
    if (!cached(me))
        rebuild(me);
    library_unlock(me);
}

static const struct scene scenes_alone[] = {
    {.title = "the value expires, and two miss it at once",
     .racers = 2,
     .lease_ms = 100,
     .work_ms = 5,
     .cues = {{0, "missed", CUE_WAIT, 1, "missed", 0}, {1, "missed", CUE_WAIT, 0, "missed", 0}},
     .shows = FLAW_EXTRA | FLAW_OVERLAP},
    {.racers = 0},
};

static const struct scene scenes_locked[] = {
    {.title = "the value expires, and two miss it at once",
     .racers = 2,
     .lease_ms = 100,
     .work_ms = 5,
     .cues = {{0, "missed", CUE_WAIT, 1, "missed", 0}, {1, "missed", CUE_WAIT, 0, "missed", 0}}},
    {.racers = 0},
};

const struct way way_cache_alone = {
    .number = 18,
    .name = "cache-alone",
    .title = "a cache, without a lock",
    .text = "A value expires, and 200 threads of four processes miss it at the same time. "
            "All of them ask the database, which one question was to spare.",
    .source = __FILE__,
    .no_lease = true,
    .processes = PROCESSES,
    .threads = THREADS,
    .lease_ms = LEASE_MS,
    .lockless = true,
    .run = read_alone,
    .extras = {"needless rebuilds", "rebuilds that were needed"},
    .extras_are_good = {false, true},
    .scenes = scenes_alone,
};

const struct way way_cache_dibs = {
    .number = 18,
    .name = "cache-dibs",
    .title = "a cache, behind dibs",
    .text = "Whoever misses the value takes the lock and looks again. "
            "The first one rebuilds the value, and all the others find it there.",
    .source = __FILE__,
    .sound = true,
    .processes = PROCESSES,
    .threads = THREADS,
    .lease_ms = LEASE_MS,
    .prepare = library_prepare,
    .finish = library_finish,
    .run = read_locked,
    .extras = {"needless rebuilds", "rebuilds that were needed"},
    .extras_are_good = {false, true},
    .scenes = scenes_locked,
};
