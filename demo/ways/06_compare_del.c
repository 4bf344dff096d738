#include <string.h>

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
    char owner[112];

    if (!way_get(me, owner, sizeof owner, "GET %s", me->key) || strcmp(owner, me->token) != 0)
        return; /* not ours any more */
    way_point(me, "between GET and DEL");
    way_delete(me, me->key, me->token);
}

static const struct scene scenes[] = {
    {.title = "the lock changes hands between GET and DEL",
     .racers = 3,
     .limit = 2,
     .lease_ms = 800, /* the first one's GET finds its own token, on a busy machine too */
     .work_ms = 0,
     .cues = {{0, "between GET and DEL", CUE_WAIT, 1, "work", 0},
              {1, "arrive", CUE_WAIT, 0, "enter", 0},
              {2, "arrive", CUE_WAIT, 1, "work", 0},
              {1, "work", CUE_WAIT, 2, "work", 0}},
     .shows = FLAW_COUNT | FLAW_OVERLAP | FLAW_DELETED},
    {.racers = 0},
};

const struct way way_compare_del = {
    .number = 6,
    .name = "compare-del",
    .title = "SET NX PX, GET + compare, DEL",
    .text = "A release looks whether the lock is still its own before it deletes. "
            "These are two commands: between them the lease may end, and then DEL deletes another's lock.",
    .source = __FILE__,
    .lock = lock,
    .unlock = unlock,
    .scenes = scenes,
};
