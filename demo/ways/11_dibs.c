#include <dibs.h>

#include "ways/library.h"
#include "ways/scenes.h"

bool library_lock(struct racer *me)
{
    dibs_status status = dibs_lock(me->crew->own, me->name);
    dibs_hold hold;

    if (status == DIBS_UNAVAILABLE) {
        way_refused(me);
        return false;
    }
    if (status != DIBS_OK)
        way_fail("dibs_lock: %s", dibs_last_error());
    me->place = dibs_hold_of(me->crew->own, me->name, &hold) == DIBS_OK ? hold.fence : 0;
    return true;
}

/* No I/O: to be asked before what can't be undone. */
bool library_still(struct racer *me)
{
    library_leased(me, me->name);
    return dibs_check(me->crew->own, me->name) == DIBS_OK;
}

/* For the resource, which refuses a smaller one than it has seen. */
uint64_t library_fence(struct racer *me)
{
    return me->place;
}

void library_unlock(struct racer *me)
{
    uint64_t before;
    dibs_status status;

    library_leased(me, me->name);
    before = way_now(me, "before dibs_unlock");
    status = dibs_unlock(me->crew->own, me->name);
    if (status == DIBS_OK)
        way_deleted(me, before);
    else if (status == DIBS_LOST)
        way_lost(me);
    else if (status != DIBS_UNAVAILABLE) /* the runtime goes on deleting it */
        way_fail("dibs_unlock: %s", dibs_last_error());
}

/* One runtime for all threads of the process. */
void library_prepare(struct crew *crew)
{
    const char *url = way_url(crew, 0);

    library_open(crew, (dibs_config){.urls = &url, .url_count = 1});
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
    .prepare = library_prepare,
    .finish = library_finish,
    .lock = library_lock,
    .unlock = library_unlock,
    .still = library_still,
    .fence = library_fence,
    .scenes = scenes_for_sound_ways,
};
