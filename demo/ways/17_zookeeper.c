#include <stdio.h>
#include <string.h>

#include "ways/zookeeper.h"

/*
 * Finds the node just in front of one's own: the server numbers nodes in the order in which they came. "": none. False:
 * one's own is not there, because the session has ended.
 */
static bool look_ahead(struct racer *me, char before[ZK_NODE])
{
    struct zk_nodes nodes = zk_nodes(me);
    const char *nearest = NULL;
    bool there = false;

    for (int i = 0; i < nodes.count; i++) {
        const char *node = nodes.names[i];
        there |= strcmp(node, me->text) == 0;
        if (zk_number(node) < zk_number(me->text) && (!nearest || zk_number(nearest) < zk_number(node)))
            nearest = node;
    }
    snprintf(before, ZK_NODE, "%s", nearest ? nearest : "");
    zk_free(&nodes);
    return there;
}

/* An ephemeral node goes when its process does, and its number says whose turn it is: each watches the one in front. */
bool zookeeper_lock(struct racer *me)
{
    char before[ZK_NODE];

    zk_create(me, me->text);
    way_point(me, "queued");
    for (;;) {
        if (!look_ahead(me, before)) {
            zk_create(me, me->text);
        } else if (!before[0]) {
            way_leased(me, zk_session_ms(me));
            return true;
        } else if (!zk_wait(me, before)) {
            zk_delete(me, me->text);
            return false;
        } else {
            way_extra(me, 0, 1);
            way_point(me, "woken");
        }
    }
}

void zookeeper_unlock(struct racer *me)
{
    way_point(me, "before the delete");
    if (!zk_delete(me, me->text))
        way_lost(me);
}

static const struct scene scenes[] = {
    {.title = "the holder's process is stopped for longer than its session, goes on, and writes",
     .racers = 2,
     .limit = 1,
     .lease_ms = 400,
     .work_ms = 1,
     .cues = {{1, "arrive", CUE_WAIT, 0, "enter", 0}, {0, "write", CUE_STOP, 1, "left", 0}},
     .shows = FLAW_COUNT | FLAW_OVERLAP},
    {.racers = 0},
};

const struct way way_zookeeper = {
    .number = 17,
    .name = "zookeeper",
    .title = "ZooKeeper",
    .text =
        "In the session of its process, each racer creates an ephemeral sequential node and watches only the node in "
        "front; the first has the lock, and a crash removes the node. It needs ZooKeeper, whose writes are slower, "
        "and a process that stands still for longer than its session does not know that another is inside.",
    .source = __FILE__,
    .missing = zk_missing,
    .set_up = zk_set_up,
    .tear_down = zk_tear_down,
    .prepare = zk_prepare,
    .finish = zk_finish,
    .lock = zookeeper_lock,
    .unlock = zookeeper_unlock,
    .extras = {"times a racer was woken"},
    .extras_are_good = {true},
    .scenes = scenes,
};
