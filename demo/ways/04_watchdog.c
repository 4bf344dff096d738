#include "ways/way.h"

/* For each lock that is held, one thread, which sets the lease again every millisecond. */
static void watch(struct racer *helper)
{
    while (way_sleep(helper, 1)) {
        way_point(helper, "tick");
        if (way_overwrite(helper, helper->key, helper->token, helper->lease_ms))
            way_extra(helper, 0, 1);
        way_point(helper, "overwritten");
    }
}

static bool lock(struct racer *me)
{
    while (!way_ask(me, "SET %s %s NX PX %u", me->key, me->token, me->lease_ms))
        if (!way_retry(me, 10))
            return false;
    me->own = way_thread(me, watch);
    return true;
}

static void unlock(struct racer *me)
{
    way_join(me->own);
    way_point(me, "before DEL");
    way_delete(me, me->key, me->token);
}

static const struct scene scenes[] = {
    {.title = "the watchdog is slow once: it gives the first one's name to the lock that the second one has by then",
     .racers = 2,
     .limit = 1,
     .lease_ms = 400, /* the second one has the lock when its name is overwritten, on a busy machine too */
     .work_ms = 1,
     .cues = {{1, "arrive", CUE_WAIT, 0, "work", 0},
              {0, "tick", CUE_WAIT, 1, "work", 0},
              {0, "work", CUE_WAIT, 0, "overwritten", 0},
              {1, "work", CUE_WAIT, 0, "write", 0}},
     .shows = FLAW_EXTRA | FLAW_COUNT | FLAW_OVERLAP},
    {.racers = 0},
};

const struct way way_watchdog = {
    .number = 4,
    .name = "watchdog",
    .title = "SET NX PX, a watchdog each",
    .text =
        "A thread for each holder sets the lease again every millisecond, so work may take longer. "
        "That costs a thread and a thousand commands a second for each lock, and SET does not look whose lock it is.",
    .source = __FILE__,
    .lock = lock,
    .unlock = unlock,
    .extras = {"another's lock overwritten"},
    .scenes = scenes,
};
