#include "ways/library.h"

enum { ADDRESS = 1 }; /* where the master is, whichever server that is */

/* No lock is granted that only one server knows of. */
static void prepare(struct crew *crew)
{
    const char *url = way_url(crew, ADDRESS);

    library_open(crew, (dibs_config){.urls = &url,
                                     .url_count = 1,
                                     .min_replicas = 1,
                                     .replica_timeout_ms = crew->lease_ms / 2,
                                     .outage_ms = 2 * crew->lease_ms});
}

static const struct scene scenes[] = {
    {.title = "the master dies while somebody has the lock: the promoted replica has it, too",
     .racers = 2,
     .limit = 2,
     .lease_ms = 1000,
     .work_ms = 1,
     .cues = {{0, "work", CUE_FELL, 1, NULL, 0},
              {0, "work", CUE_PROMOTE, 0, NULL, 0},
              {1, "arrive", CUE_WAIT, 0, "check", 0},
              {0, "write", CUE_WAIT, 1, "arrive", 50}}},
    {.title = "no replica hears of the lock: it is given back, and the caller is told so",
     .racers = 1,
     .limit = 0,
     .lease_ms = 60,
     .work_ms = 1,
     .cues = {{0, "arrive", CUE_CUT, 2, NULL, 0}, {0, "arrive", CUE_CUT, 3, NULL, 0}}},
    {.racers = 0},
};

const struct way way_dibs_min_replicas = {
    .number = 13,
    .name = "dibs-min-replicas",
    .title = "dibs, min_replicas = 1",
    .text = "A grant counts only once a replica has acknowledged it, so the replica that is promoted has the lock. "
            "That costs a round trip more for a first acquire; where no replica answers, nobody gets the lock.",
    .source = __FILE__,
    .sound = true,
    .replicas = 2,
    .prepare = prepare,
    .finish = library_finish,
    .lock = library_lock,
    .unlock = library_unlock,
    .still = library_still,
    .fence = library_fence,
    .scenes = scenes,
};
