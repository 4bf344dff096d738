#include "ways/way.h"

#if defined(DEMO_ZOOKEEPER)
#define THREADED /* the functions that wait for their answer */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zookeeper/zookeeper.h>

struct bell {
    pthread_mutex_t mutex;
    pthread_cond_t rung;
    bool has_rung; /* guarded by mutex */
};

static void ring(zhandle_t *zk, int type, int state, const char *path, void *arg)
{
    struct bell *bell = arg;

    (void)zk, (void)state, (void)path;
    if (!bell || type == ZOO_SESSION_EVENT)
        return;
    pthread_mutex_lock(&bell->mutex);
    bell->has_rung = true;
    pthread_cond_signal(&bell->rung);
    pthread_mutex_unlock(&bell->mutex);
}

static void wait_for(struct bell *bell)
{
    pthread_mutex_lock(&bell->mutex);
    while (!bell->has_rung)
        pthread_cond_wait(&bell->rung, &bell->mutex);
    bell->has_rung = false;
    pthread_mutex_unlock(&bell->mutex);
}

/* The node just in front of one's own; "": one's own is the first. */
static void predecessor(struct racer *me, const char *parent, const char *own, char *out, size_t size)
{
    const char *best = "";
    struct String_vector nodes;

    if (zoo_get_children(me->crew->own, parent, 0, &nodes) != ZOK)
        way_fail("ZooKeeper: the nodes of %s can't be read", parent);
    for (int i = 0; i < nodes.count; i++)
        if (strcmp(nodes.data[i], own) < 0 && strcmp(nodes.data[i], best) > 0)
            best = nodes.data[i];
    snprintf(out, size, "%s%s%s", *best ? parent : "", *best ? "/" : "", best);
    deallocate_String_vector(&nodes);
}

/* An ephemeral node goes when its process does, and its number says whose turn it is: each watches the one in front. */
static bool lock(struct racer *me)
{
    struct bell bell = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false};
    char parent[120], path[140], before[140];
    struct Stat stat;

    snprintf(parent, sizeof parent, "/%s", me->name);
    snprintf(path, sizeof path, "%s/lock-", parent);
    zoo_create(me->crew->own, parent, "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0);
    if (zoo_create(me->crew->own, path, "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL | ZOO_SEQUENCE, me->text,
                   sizeof me->text) != ZOK)
        way_fail("ZooKeeper: %s can't be created", path);
    way_point(me, "queued");
    for (;;) {
        predecessor(me, parent, strrchr(me->text, '/') + 1, before, sizeof before);
        if (!before[0])
            break;
        if (zoo_wexists(me->crew->own, before, ring, &bell, &stat) == ZOK)
            wait_for(&bell);
    }
    if (zoo_exists(me->crew->own, me->text, 0, &stat) != ZOK)
        return false;
    me->place = (uint64_t)stat.czxid;
    return true;
}

static void unlock(struct racer *me)
{
    way_point(me, "before the delete");
    if (zoo_delete(me->crew->own, me->text, -1) != ZOK)
        way_lost(me);
}

/* Larger for each later node. */
static uint64_t fence(struct racer *me)
{
    return me->place;
}

static void prepare(struct crew *crew)
{
    zoo_set_debug_level(0);
    crew->own = zookeeper_init(getenv("DIBS_ZOOKEEPER"), ring, 200, NULL, NULL, 0);
    for (int i = 0; i < 500 && crew->own && zoo_state(crew->own) != ZOO_CONNECTED_STATE; i++)
        usleep(10000);
    if (!crew->own || zoo_state(crew->own) != ZOO_CONNECTED_STATE)
        way_fail("ZooKeeper does not answer");
}

static void finish(struct crew *crew)
{
    zookeeper_close(crew->own);
}

static const char *missing(void)
{
    return getenv("DIBS_ZOOKEEPER") ? NULL : "no ZooKeeper is named by $DIBS_ZOOKEEPER";
}
#else
static const char *missing(void)
{
    return "libzookeeper was missing when this was built";
}
#endif

static const struct scene scenes[] = {
    {.title = "a holder is killed: its node goes with its session",
     .racers = 2,
     .limit = 1,
     .lease_ms = 200,
     .work_ms = 1,
     .cues = {{0, "work", CUE_DIE, 0, NULL, 0}, {1, "arrive", CUE_WAIT, 0, "work", 0}}},
    {.title = "the first in the queue is killed while it waits",
     .racers = 3,
     .limit = 2,
     .lease_ms = 200,
     .work_ms = 1,
     .cues = {{1, "arrive", CUE_WAIT, 0, "work", 0},
              {1, "queued", CUE_DIE, 0, NULL, 0},
              {2, "arrive", CUE_WAIT, 1, "queued", 0},
              {0, "work", CUE_WAIT, 2, "queued", 0}}},
    {.title = "the holder's process is stopped past its session: the counter refuses the older node's number",
     .racers = 2,
     .limit = 1,
     .lease_ms = 200,
     .work_ms = 1,
     .cues = {{1, "arrive", CUE_WAIT, 0, "enter", 0}, {0, "write", CUE_STOP, 1, "left", 0}}},
    {.racers = 0},
};

const struct way way_zookeeper = {
    .number = 17,
    .name = "zookeeper",
    .title = "ZooKeeper",
    .text = "Each creates an ephemeral sequential node and watches only the one in front; the first node has the lock. "
            "A crash removes the node and the order is right, but it needs ZooKeeper, whose writes are slower.",
    .source = __FILE__,
    .sound = true,
    .missing = missing,
#if defined(DEMO_ZOOKEEPER)
    .prepare = prepare,
    .finish = finish,
    .lock = lock,
    .unlock = unlock,
    .fence = fence,
#endif
    .scenes = scenes,
};
