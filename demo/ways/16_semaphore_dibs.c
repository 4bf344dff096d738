#include "ways/library.h"

enum { ROOM = 2 };

/* The server counts, by its own clock; who dies inside is counted until its lease is over. */
static void run(struct racer *me)
{
    const dibs_lock_options permit = {.flags = DIBS_SHARED, .limit = ROOM};

    if (dibs_lock_with(me->crew->own, me->name, DIBS_WAIT_FOREVER, &permit) != DIBS_OK)
        way_fail("dibs_lock_with: %s", dibs_last_error());
    way_enter(me);
    way_work(me);
    way_leave(me);
    library_give_back(me, me->name);
}

static const struct scene scenes[] = {
    {.title = "two are inside; the third waits until one of them leaves",
     .racers = 3,
     .lease_ms = 2000,
     .work_ms = 1,
     .cues = {{1, "arrive", CUE_WAIT, 0, "enter", 0},
              {2, "arrive", CUE_WAIT, 1, "enter", 0},
              {0, "leave", CUE_QUEUED, 0, NULL, 0},
              {1, "leave", CUE_WAIT, 2, "enter", 0}}},
    {.title = "one of the two inside is killed: the third has its place when its lease is over",
     .racers = 3,
     .lease_ms = 500, /* the second one has its place until the third one comes, on a busy machine too */
     .work_ms = 1,
     .cues = {{1, "arrive", CUE_WAIT, 0, "enter", 0},
              {2, "arrive", CUE_WAIT, 1, "enter", 0},
              {0, "work", CUE_DIE, 0, NULL, 0},
              {1, "leave", CUE_WAIT, 2, "enter", 0}}},
    {.racers = 0},
};

const struct way way_semaphore_dibs = {
    .number = 16,
    .name = "semaphore-dibs",
    .title = "a semaphore for two, by dibs",
    .text = "DIBS_SHARED with a limit: the server counts who is inside, by its own clock, so a third one waits. "
            "Each has a lease of its own, which is renewed; a place that a killed one had is free when that is over.",
    .source = __FILE__,
    .sound = true,
    .room = ROOM,
    .prepare = library_prepare,
    .finish = library_finish,
    .run = run,
    .scenes = scenes,
};
