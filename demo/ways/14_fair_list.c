#include <string.h>

#include "ways/way.h"

static bool try_lock(struct racer *me)
{
    char head[112];

    if (!way_get(me, head, sizeof head, "LINDEX %s:queue 0", me->key) || strcmp(head, me->token) != 0)
        return false;
    return way_ask(me, "SET %s %s NX PX %u", me->key, me->token, me->lease_ms);
}

static bool lock(struct racer *me)
{
    way_ask(me, "RPUSH %s:queue %s", me->key, me->token);
    way_point(me, "queued");
    while (!try_lock(me))
        if (!way_retry(me, 100))
            return false;
    return true;
}

static void unlock(struct racer *me)
{
    char none[112];

    way_get(me, none, sizeof none, "LPOP %s:queue", me->key);
    way_point(me, "between LPOP and DEL");
    way_delete(me, me->key, me->token);
}

static const struct scene scenes[] = {
    {.title = "the first in the queue is killed while it waits: all behind it wait for ever",
     .racers = 2,
     .limit = 1,
     .lease_ms = 80,
     .work_ms = 1,
     .patience_ms = 250, /* three leases */
     .cues = {{0, "queued", CUE_DIE, 0, NULL, 0}, {1, "arrive", CUE_WAIT, 0, "queued", 5}},
     .shows = FLAW_LEFT | FLAW_COUNT},
    {.title = "the lock becomes free just after the next one looked",
     .racers = 2,
     .limit = 2,
     .lease_ms = 600,
     .work_ms = 1,
     .idle_ms = 90,
     .cues = {{1, "arrive", CUE_WAIT, 0, "work", 0},
              {0, "work", CUE_WAIT, 1, "retry", 0},
              {1, "retry", CUE_WAIT, 0, "left", 0}},
     .shows = FLAW_IDLE},
    {.title = "a release is held up between LPOP and DEL, past its lease",
     .racers = 2,
     .limit = 1,
     .lease_ms = 590, /* the second one has the lock when the first one deletes it, on a busy machine too */
     .work_ms = 1,
     .cues = {{0, "between LPOP and DEL", CUE_WAIT, 1, "work", 0},
              {1, "arrive", CUE_WAIT, 0, "enter", 0},
              {1, "leave", CUE_WAIT, 0, "left", 0}},
     .shows = FLAW_DELETED},
    {.racers = 0},
};

const struct way way_fair_list = {
    .number = 14,
    .name = "fair-list",
    .title = "fair by LIST",
    .text = "RPUSH puts each into a queue; whoever is its head takes the lock, and LPOP moves the queue on. "
            "A head that died blocks all others, they look only every 100 ms, and the release is two commands.",
    .source = __FILE__,
    .lock = lock,
    .unlock = unlock,
    .scenes = scenes,
};
