#include "ways/way.h"

enum { MASTERS = 5, MAJORITY = MASTERS / 2 + 1 };

static const char release[] = "if redis.call('GET', KEYS[1]) == ARGV[1] then "
                              "return redis.call('DEL', KEYS[1]) else return 0 end";

static void unlock(struct racer *me)
{
    uint64_t before = way_now(me, "before the scripts");
    unsigned deleted = 0;

    for (unsigned i = 0; i < MASTERS; i++)
        deleted += way_ask_at(me, i, "EVAL %s 1 %s %s", release, me->key, me->token) == 1;
    if (deleted >= MAJORITY)
        way_deleted(me, before);
}

/* One master after the other. A majority must grant the lock, in less time than the lease. */
static bool try_lock(struct racer *me)
{
    uint64_t began = way_time_ms(me);
    unsigned granted = 0;

    for (unsigned i = 0; i < MASTERS; i++)
        granted += way_ask_at(me, i, "SET %s %s NX PX %u", me->key, me->token, me->lease_ms) == 1;
    if (granted >= MAJORITY && way_time_ms(me) - began < me->lease_ms)
        return true;
    unlock(me);
    return false;
}

static bool lock(struct racer *me)
{
    while (!try_lock(me))
        if (!way_retry(me, 10 + me->number % 20)) /* not all at the same time */
            return false;
    return true;
}

static const struct scene scenes[] = {
    {.title = "one of five masters is killed while somebody has the lock: the others still carry it",
     .racers = 2,
     .limit = 2,
     .lease_ms = 500,
     .work_ms = 1,
     .cues = {{0, "work", CUE_FELL, 4, NULL, 0},
              {1, "arrive", CUE_WAIT, 0, "check", 0},
              {0, "write", CUE_WAIT, 1, "retry", 0}}},
    {.title = "three of five masters are killed: nobody gets the lock any more",
     .racers = 2,
     .limit = 1,
     .lease_ms = 80,
     .work_ms = 1,
     .patience_ms = 250, /* three leases */
     .cues = {{0, "leave", CUE_FELL, 2, NULL, 0},
              {0, "leave", CUE_FELL, 3, NULL, 0},
              {0, "leave", CUE_FELL, 4, NULL, 0},
              {1, "arrive", CUE_WAIT, 0, "left", 0}},
     .shows = FLAW_LEFT},
    {.title = "work outlasts the lease, on all five masters",
     .racers = 2,
     .limit = 1,
     .lease_ms = 80,
     .work_ms = 1,
     .cues = {{1, "arrive", CUE_WAIT, 0, "work", 0}, {0, "work", CUE_WAIT, 1, "work", 0}},
     .shows = FLAW_COUNT | FLAW_OVERLAP},
    {.racers = 0},
};

const struct way way_redlock = {
    .number = 12,
    .name = "redlock",
    .title = "Redlock by hand, 5 masters",
    .text = "SET NX PX at five masters one after the other; three of them must grant the lock within the lease. "
            "It survives two dead masters, but costs ten commands, racers that ask at once split the votes, and "
            "the lease still ends while its holder works.",
    .source = __FILE__,
    .masters = MASTERS,
    .lock = lock,
    .unlock = unlock,
    .scenes = scenes,
};
