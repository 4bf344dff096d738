#include <string.h>

#include "ways/way.h"

static bool is_first(struct racer *me)
{
    redisReply *reply = way_command(me, "XRANGE %s:queue - + COUNT 1", me->key);
    bool first = reply->elements == 1 && strcmp(reply->element[0]->element[0]->str, me->text) == 0;

    freeReplyObject(reply);
    return first;
}

/* The server numbers the entries, so no client's clock matters. The owner of the first entry has the lock. */
static bool lock(struct racer *me)
{
    way_get(me, me->text, sizeof me->text, "XADD %s:queue * who %s", me->key, me->token);
    way_point(me, "queued");
    while (!is_first(me))
        if (!way_retry(me, 10))
            return false;
    return true;
}

static void unlock(struct racer *me)
{
    way_point(me, "before XDEL");
    way_ask(me, "XDEL %s:queue %s", me->key, me->text);
}

static const struct scene scenes[] = {
    {.title = "the first in the queue is killed: all behind it wait for ever",
     .racers = 2,
     .limit = 1,
     .lease_ms = 80,
     .work_ms = 1,
     .patience_ms = 250, /* three leases */
     .cues = {{0, "queued", CUE_DIE, 0, NULL, 0}, {1, "arrive", CUE_WAIT, 0, "queued", 5}},
     .shows = FLAW_LEFT | FLAW_COUNT},
    {.racers = 0},
};

const struct way way_stream = {
    .number = 16,
    .name = "stream",
    .title = "a queue on a stream",
    .text = "XADD gives each a place by the server's clock, and whoever has the first entry has the lock; XDEL moves "
            "the queue on. The order is right, but nothing ends the place of one that died.",
    .source = __FILE__,
    .no_lease = true,
    .lock = lock,
    .unlock = unlock,
    .scenes = scenes,
};
