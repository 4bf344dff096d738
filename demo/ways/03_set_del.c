#include "ways/way.h"

static bool lock(struct racer *me)
{
    while (!way_ask(me, "SET %s %s NX PX %u", me->key, me->token, me->lease_ms))
        if (!way_retry(me, 10))
            return false;
    return true;
}

static void unlock(struct racer *me)
{
    way_point(me, "before DEL");
    way_delete(me, me->key, me->token);
}

static const struct scene scenes[] = {
    {.title = "work outlasts the lease",
     .racers = 3,
     .limit = 1,
     .lease_ms = 600, /* the second one's lease lasts until the first one deletes, on a busy machine too */
     .work_ms = 1,
     .cues = {{1, "arrive", CUE_WAIT, 0, "enter", 0},
              {0, "work", CUE_WAIT, 1, "work", 0},
              {2, "arrive", CUE_WAIT, 1, "work", 0},
              {1, "work", CUE_WAIT, 2, "enter", 0},
              {2, "leave", CUE_WAIT, 0, "left", 0}},
     .shows = FLAW_COUNT | FLAW_OVERLAP | FLAW_DELETED},
    {.racers = 0},
};

const struct way way_set_del = {
    .number = 3,
    .name = "set-del",
    .title = "SET NX PX, DEL",
    .text = "One command takes the lock and gives it a time to live; DEL releases it. "
            "Work that outlasts the lease lets a second one in, and then the first deletes the second's lock.",
    .source = __FILE__,
    .lock = lock,
    .unlock = unlock,
    .scenes = scenes,
};
