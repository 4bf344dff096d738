#include "ways/scenes.h"

const struct scene scenes_for_sound_ways[] = {
    {.title = "a holder is killed",
     .racers = 2,
     .limit = 1,
     .lease_ms = 500, /* the second one has the lock as long as it works, on a busy machine too */
     .work_ms = 1,
     .cues = {{0, "work", CUE_DIE, 0, NULL, 0}, {1, "arrive", CUE_WAIT, 0, "work", 0}}},
    {.title = "work takes three times as long as the lease",
     .racers = 2,
     .limit = 1,
     .lease_ms = 600, /* a renewal may be 400 ms late */
     .work_ms = 1800,
     .cues = {{1, "arrive", CUE_WAIT, 0, "enter", 0}}},
    {.title = "the holder's process is stopped past its lease, goes on, and asks dibs_check",
     .racers = 2,
     .limit = 1,
     .lease_ms = 500,
     .work_ms = 1,
     .cues = {{1, "arrive", CUE_WAIT, 0, "enter", 0}, {0, "check", CUE_STOP, 1, "left", 0}}},
    {.title = "the holder's process is stopped past its lease, behind dibs_check: the counter refuses the old fence",
     .racers = 2,
     .limit = 1,
     .lease_ms = 500,
     .work_ms = 1,
     .cues = {{1, "arrive", CUE_WAIT, 0, "enter", 0}, {0, "write", CUE_STOP, 1, "left", 0}}},
    {.title = "one waits while the lock becomes free; another comes later",
     .racers = 3,
     .limit = 3,
     .lease_ms = 3000,
     .work_ms = 1,
     .idle_ms = 900, /* one that waits and is not woken asks again after a third of the lease */
     .cues = {{0, "work", CUE_QUEUED, 0, NULL, 0},
              {1, "arrive", CUE_WAIT, 0, "work", 0},
              {2, "arrive", CUE_WAIT, 0, "left", 50}}},
    {.racers = 0},
};

const struct scene scenes_six_at_once[] = {
    {.title = "six read at the same time how many are left",
     .racers = 6,
     .lease_ms = 2000,
     .work_ms = 1,
     .cues = {{0, "work", CUE_WAIT, 5, "work", 0},
              {1, "work", CUE_WAIT, 5, "work", 0},
              {2, "work", CUE_WAIT, 5, "work", 0},
              {3, "work", CUE_WAIT, 5, "work", 0},
              {4, "work", CUE_WAIT, 5, "work", 0},
              {5, "arrive", CUE_WAIT, 0, "work", 0},
              {5, "arrive", CUE_WAIT, 1, "work", 0},
              {5, "arrive", CUE_WAIT, 2, "work", 0},
              {5, "arrive", CUE_WAIT, 3, "work", 0},
              {5, "arrive", CUE_WAIT, 4, "work", 0}},
     .shows = FLAW_OVERLAP | FLAW_EXTRA},
    {.racers = 0},
};

const struct scene scenes_six_in_turn[] = {
    {.title = "six want to read at the same time how many are left",
     .racers = 6,
     .lease_ms = 2000,
     .work_ms = 1,
     .cues = {{5, "arrive", CUE_WAIT, 0, "enter", 0}, {0, "work", CUE_WAIT, 5, "arrive", 5}}},
    {.racers = 0},
};
