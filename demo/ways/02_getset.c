#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ways/way.h"

static bool try_lock(struct racer *me)
{
    char until[32], seen[32], old[32];
    unsigned long long end = way_time_ms(me) + me->lease_ms;

    snprintf(until, sizeof until, "%llu", end);
    if (way_ask(me, "SETNX %s %s", me->key, until))
        return true;
    if (!way_get(me, seen, sizeof seen, "GET %s", me->key) || strtoull(seen, NULL, 10) > way_time_ms(me))
        return false;
    way_point(me, "between GET and GETSET");
    if (!way_get(me, old, sizeof old, "GETSET %s %s", me->key, until))
        return true;
    way_point(me, "behind GETSET");
    if (strcmp(old, seen) == 0)
        return true;
    way_extra(me, 0, 1); /* nobody knows: it was too late, and yet its time is the value now */
    return false;
}

static bool lock(struct racer *me)
{
    while (!try_lock(me))
        if (!way_retry(me, 10))
            return false;
    return true;
}

static void unlock(struct racer *me)
{
    way_point(me, "before DEL");
    way_delete(me, me->key, NULL);
}

static const struct scene scenes[] = {
    {.title = "a client's clock is a second ahead",
     .racers = 2,
     .limit = 1,
     .lease_ms = 500,
     .work_ms = 1,
     .clock_off_ms = {0, 1000},
     .cues = {{1, "arrive", CUE_WAIT, 0, "work", 0},
              {0, "work", CUE_WAIT, 1, "work", 0},
              {1, "leave", CUE_WAIT, 0, "left", 0}},
     .shows = FLAW_COUNT | FLAW_OVERLAP | FLAW_DELETED},
    {.title = "two see that a dead holder's time is over, and the second to say so overwrites the first one's time",
     .racers = 3,
     .limit = 1,
     .lease_ms = 80,
     .work_ms = 1,
     .cues = {{0, "work", CUE_DIE, 0, NULL, 0},
              {1, "arrive", CUE_WAIT, 0, "work", 0},
              {2, "arrive", CUE_WAIT, 0, "work", 0},
              {1, "between GET and GETSET", CUE_WAIT, 2, "between GET and GETSET", 0},
              {2, "between GET and GETSET", CUE_WAIT, 1, "behind GETSET", 5},
              {1, "leave", CUE_WAIT, 2, "behind GETSET", 0}},
     .shows = FLAW_EXTRA},
    {.racers = 0},
};

const struct way way_getset = {
    .number = 2,
    .name = "getset",
    .title = "SETNX now + timeout, GETSET",
    .text = "The value is the time when the lock ends; whoever finds that past takes the lock by GETSET, and compares. "
            "It needs clocks that agree, the loser overwrites the winner's time, and anyone may delete the lock.",
    .source = __FILE__,
    .value_ends = true,
    .lock = lock,
    .unlock = unlock,
    .extras = {"another's time overwritten"},
    .scenes = scenes,
};
