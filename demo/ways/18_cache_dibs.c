#include "ways/cache.h"
#include "ways/library.h"

/* The others wait, and find the value when it is their turn. */
static void run(struct racer *me)
{
    if (cache_has(me))
        return;
    way_point(me, "missed");
    if (!library_lock(me))
        return;
    if (!cache_has(me))
        cache_rebuild(me);
    library_unlock(me);
}

static const struct scene scenes[] = {
    {.title = "the value expires, and two miss it at once",
     .racers = 2,
     .lease_ms = CACHE_LEASE_MS,
     .work_ms = 5,
     .cues = {{0, "missed", CUE_WAIT, 1, "missed", 0}, {1, "missed", CUE_WAIT, 0, "missed", 0}}},
    {.racers = 0},
};

const struct way way_cache_dibs = {
    .number = 18,
    .name = "cache-dibs",
    .title = "a cache, behind dibs",
    .text = "Whoever misses the value takes the lock and looks again. "
            "The first one rebuilds the value, and all the others find it there.",
    .source = __FILE__,
    .sound = true,
    .processes = CACHE_PROCESSES,
    .threads = CACHE_THREADS,
    .lease_ms = CACHE_LEASE_MS,
    .prepare = library_prepare,
    .finish = library_finish,
    .run = run,
    .extras = {"needless rebuilds", "rebuilds that were needed"},
    .extras_are_good = {false, true},
    .scenes = scenes,
};
