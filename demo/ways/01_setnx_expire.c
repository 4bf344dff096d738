#include "ways/way.h"

static bool lock(struct racer *me)
{
    while (!way_ask(me, "SETNX %s %s", me->key, me->token))
        if (!way_retry(me, 10))
            return false;
    way_point(me, "between SETNX and EXPIRE");
    way_ask(me, "PEXPIRE %s %u", me->key, me->lease_ms);
    return true;
}

static void unlock(struct racer *me)
{
    way_point(me, "before DEL");
    way_delete(me, me->key, me->token);
}

static const struct scene scenes[] = {
    {.title = "a process is killed between SETNX and EXPIRE",
     .racers = 2,
     .limit = 1,
     .lease_ms = 80,
     .work_ms = 1,
     .patience_ms = 250, /* three leases */
     .cues = {{0, "between SETNX and EXPIRE", CUE_DIE, 0, NULL, 0},
              {1, "arrive", CUE_WAIT, 0, "between SETNX and EXPIRE", 5}},
     .shows = FLAW_LEFT | FLAW_COUNT},
    {.racers = 0},
};

const struct way way_setnx_expire = {
    .number = 1,
    .name = "setnx-expire",
    .title = "SETNX, then EXPIRE",
    .text = "SETNX takes the lock if it is free, and EXPIRE gives it a time to live. "
            "A process that dies between the two leaves a lock that never ends.",
    .source = __FILE__,
    .lock = lock,
    .unlock = unlock,
    .scenes = scenes,
};
