#include "ways/library.h"

enum { MASTERS = 5, PATIENCE_MS = 1000 /* a master that is killed refuses at once; others may be late */ };

/* Five URLs are a quorum: all masters are asked at the same time. */
static void prepare(struct crew *crew)
{
    const char *urls[MASTERS];

    for (unsigned i = 0; i < MASTERS; i++)
        urls[i] = way_url(crew, i);
    library_open(crew, (dibs_config){.urls = urls,
                                     .url_count = MASTERS,
                                     .connect_timeout_ms = PATIENCE_MS,
                                     .command_timeout_ms = PATIENCE_MS,
                                     .outage_ms = 2 * crew->lease_ms});
}

static const struct scene scenes[] = {
    {.title = "one of five masters is killed while somebody has the lock: the others still carry it",
     .racers = 2,
     .limit = 2,
     .lease_ms = 500,
     .work_ms = 1,
     .cues = {{0, "work", CUE_FELL, 4, NULL, 0},
              {1, "arrive", CUE_WAIT, 0, "check", 0},
              {0, "write", CUE_WAIT, 1, "arrive", 20}}},
    {.title = "three of five masters are killed: an acquire reports that no majority can be reached",
     .racers = 2,
     .limit = 1,
     .lease_ms = 600,
     .work_ms = 1,
     .cues = {{0, "leave", CUE_FELL, 2, NULL, 0},
              {0, "leave", CUE_FELL, 3, NULL, 0},
              {0, "leave", CUE_FELL, 4, NULL, 0},
              {1, "arrive", CUE_WAIT, 0, "left", 0}}},
    {.title = "work takes three times as long as the lease",
     .racers = 2,
     .limit = 1,
     .lease_ms = 600, /* a renewal may be 400 ms late */
     .work_ms = 1800,
     .cues = {{1, "arrive", CUE_WAIT, 0, "enter", 0}}},
    {.title = "the holder's process is stopped past its lease, behind dibs_check: the counter refuses the old fence",
     .racers = 2,
     .limit = 1,
     .lease_ms = 500, /* the second one has the lock as long as it works, on a busy machine too */
     .work_ms = 1,
     .cues = {{1, "arrive", CUE_WAIT, 0, "enter", 0}, {0, "write", CUE_STOP, 1, "left", 0}}},
    {.racers = 0},
};

const struct way way_dibs_quorum = {
    .number = 12,
    .name = "dibs-quorum",
    .title = "dibs, a quorum of 5 masters",
    .text = "The same algorithm, with all masters asked at the same time, leases that are renewed, and fences. "
            "Two of five may fail unnoticed; where three do, callers are told so instead of waiting for ever.",
    .source = __FILE__,
    .sound = true,
    .masters = MASTERS,
    .prepare = prepare,
    .finish = library_finish,
    .lock = library_lock,
    .unlock = library_unlock,
    .still = library_still,
    .fence = library_fence,
    .scenes = scenes,
};
