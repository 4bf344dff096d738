#include <stdio.h>
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
    char owner[112] = "nobody";

    way_get(me, owner, sizeof owner, "GET %s", me->key);
    if (strcmp(owner, me->token) != 0)
        way_extra(me, 0, 1); /* a line in the log: "deleting the lock of <owner>" */
    way_point(me, "before DEL");
    way_delete(me, me->key, me->token);
}

/* Each one lets the next in, and then deletes its lock. */
static const struct scene scenes[] = {
    {.title = "work outlasts the lease, four times in a row",
     .racers = 4,
     .limit = 1,
     .lease_ms = 400, /* the second one has the lock when the first one deletes it, on a busy machine too */
     .work_ms = 1,
     .cues = {{1, "arrive", CUE_WAIT, 0, "enter", 0},
              {2, "arrive", CUE_WAIT, 1, "work", 0},
              {3, "arrive", CUE_WAIT, 2, "work", 0},
              {0, "work", CUE_WAIT, 1, "work", 0},
              {1, "work", CUE_WAIT, 2, "enter", 0},
              {2, "leave", CUE_WAIT, 3, "enter", 0}},
     .shows = FLAW_COUNT | FLAW_OVERLAP | FLAW_DELETED | FLAW_EXTRA},
    {.racers = 0},
};

const struct way way_owner_value = {
    .number = 5,
    .name = "owner-value",
    .title = "the owner as value, DEL unchecked",
    .text = "The value names the owner, so a log can tell whose lock was deleted. "
            "It is deleted anyway, and so on down the line.",
    .source = __FILE__,
    .lock = lock,
    .unlock = unlock,
    .extras = {"wrong releases in its log"},
    .scenes = scenes,
};
