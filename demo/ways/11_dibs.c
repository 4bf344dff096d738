#include <dibs.h>

#include "ways/scenes.h"
#include "ways/way.h"

static bool lock(struct racer *me)
{
    dibs_hold hold;

    if (dibs_lock(me->crew->own, me->name) != DIBS_OK)
        way_fail("dibs_lock: %s", dibs_last_error());
    me->place = dibs_hold_of(me->crew->own, me->name, &hold) == DIBS_OK ? hold.fence : 0;
    return true;
}

/* No I/O: to be asked before what can't be undone. */
static bool still(struct racer *me)
{
    return dibs_check(me->crew->own, me->name) == DIBS_OK;
}

/* For the resource, which refuses a smaller one than it has seen. */
static uint64_t fence(struct racer *me)
{
    return me->place;
}

static void unlock(struct racer *me)
{
    uint64_t before = way_now(me, "before dibs_unlock");
    dibs_status status = dibs_unlock(me->crew->own, me->name);

    if (status == DIBS_OK)
        way_deleted(me, before);
    else if (status == DIBS_LOST)
        way_lost(me);
    else
        way_fail("dibs_unlock: %s", dibs_last_error());
}

/* One runtime for all threads of the process. */
static void prepare(struct crew *crew)
{
    const char *url = way_url(crew, 0);
    dibs_config config = {.urls = &url, .url_count = 1, .lease_ms = crew->lease_ms};
    dibs_runtime *rt;

    if (dibs_open(&rt, &config) != DIBS_OK)
        way_fail("dibs_open: %s", dibs_last_error());
    crew->own = rt;
}

static void finish(struct crew *crew)
{
    dibs_stats stats;

    dibs_stats_get(crew->own, &stats);
    way_commands(crew, stats.store_commands);
    dibs_close(crew->own);
}

const struct way way_dibs = {
    .number = 11,
    .name = "dibs",
    .title = "dibs",
    .text =
        "One scheduler thread renews all leases of a process, the server wakes who waits, and only the owner "
        "releases. A holder that was stopped is told that its lease is gone, and a fence keeps its late writes out.",
    .source = __FILE__,
    .sound = true,
    .prepare = prepare,
    .finish = finish,
    .lock = lock,
    .unlock = unlock,
    .still = still,
    .fence = fence,
    .scenes = scenes_for_sound_ways,
};
