#include "ways/zookeeper.h"

/* For the resource, which refuses a smaller one than it has seen: the number of the node. */
static uint64_t fence(struct racer *me)
{
    return zk_number(me->text) + 1;
}

static const struct scene scenes[] = {
    {.title = "a holder is killed: its session ends, its node goes, and the next is in",
     .racers = 2,
     .limit = 1,
     .lease_ms = 400,
     .work_ms = 1,
     .cues = {{0, "work", CUE_DIE, 0, NULL, 0}, {1, "arrive", CUE_WAIT, 0, "work", 0}}},
    {.title =
         "one in the middle of the queue is killed: who is behind it watches the next in front, and does not go in",
     .racers = 4,
     .limit = 3,
     .lease_ms = 400,
     .work_ms = 1,
     .cues = {{1, "arrive", CUE_WAIT, 0, "work", 0},
              {2, "arrive", CUE_WAIT, 1, "queued", 0},
              {3, "arrive", CUE_WAIT, 2, "queued", 0},
              {2, "watching", CUE_WAIT, 3, "watching", 0},
              {2, "watching", CUE_DIE, 0, NULL, 0},
              {0, "work", CUE_WAIT, 3, "woken", 0}}},
    {.title =
         "the holder's process is stopped for longer than its session: the counter refuses the older node's number",
     .racers = 2,
     .limit = 1,
     .lease_ms = 400,
     .work_ms = 1,
     .cues = {{1, "arrive", CUE_WAIT, 0, "enter", 0}, {0, "write", CUE_STOP, 1, "left", 0}}},
    {.title = "one waits while the lock becomes free; another comes later",
     .racers = 3,
     .limit = 3,
     .lease_ms = 400,
     .work_ms = 1,
     .cues = {{1, "arrive", CUE_WAIT, 0, "work", 0},
              {0, "work", CUE_WAIT, 1, "watching", 0},
              {2, "arrive", CUE_WAIT, 0, "leave", 0}}},
    {.racers = 0},
};

const struct way way_zookeeper_fence = {
    .number = 17,
    .name = "zookeeper-fence",
    .title = "ZooKeeper, with a fence",
    .text = "The number of the node goes along with each write, and the resource refuses a number that is smaller than "
            "one that it has seen. Then one who has lost the session without knowing does no harm.",
    .source = __FILE__,
    .sound = true,
    .missing = zk_missing,
    .set_up = zk_set_up,
    .tear_down = zk_tear_down,
    .prepare = zk_prepare,
    .finish = zk_finish,
    .lock = zookeeper_lock,
    .unlock = zookeeper_unlock,
    .fence = fence,
    .extras = {"times a racer was woken"},
    .extras_are_good = {true},
    .scenes = scenes,
};
