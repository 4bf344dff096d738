#include "ways/library.h"

enum { ADDRESS = 1 }; /* where the master is, whichever server that is */

static void prepare(struct crew *crew)
{
    const char *url = way_url(crew, ADDRESS);

    library_open(crew, (dibs_config){.urls = &url, .url_count = 1});
}

static const struct scene scenes[] = {
    {.title = "the promoted replica lacks the lock, and grants it again: the counter refuses the first holder's fence",
     .racers = 2,
     .limit = 1,
     .lease_ms = 600,
     .work_ms = 1,
     .cues = {{0, "arrive", CUE_CUT, 2, NULL, 0},
              {0, "write", CUE_STOP, 1, "left", 0},
              {1, "arrive", CUE_WAIT, 0, "write", 10},
              {1, "arrive", CUE_FELL, 1, NULL, 0},
              {1, "arrive", CUE_PROMOTE, 0, NULL, 0}}},
    {.title = "the promoted replica lacks the lock: its holder sets the lease again before somebody else comes",
     .racers = 2,
     .limit = 1,
     .lease_ms = 600,
     .work_ms = 1,
     .cues = {{0, "arrive", CUE_CUT, 2, NULL, 0},
              {0, "work", CUE_FELL, 1, NULL, 0},
              {0, "work", CUE_PROMOTE, 0, NULL, 0},
              {0, "work", CUE_LOCKED, 2, NULL, 0}, /* the replica */
              {1, "arrive", CUE_WAIT, 0, "check", 0},
              {0, "write", CUE_WAIT, 1, "arrive", 20}}},
    {.racers = 0},
};

const struct way way_dibs_failover = {
    .number = 13,
    .name = "dibs-failover",
    .title = "dibs, a replica, and fencing",
    .text = "A renewal finds that the promoted replica lacks the lease, and restores it where nobody else was granted "
            "the lock. Where somebody was, the larger fence keeps the first holder's late writes out.",
    .source = __FILE__,
    .sound = true,
    .replicas = 1,
    .prepare = prepare,
    .finish = library_finish,
    .lock = library_lock,
    .unlock = library_unlock,
    .still = library_still,
    .fence = library_fence,
    .scenes = scenes,
};
