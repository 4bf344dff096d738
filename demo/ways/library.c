/* What the harness needs of the library besides a way's functions. */
#include "ways/library.h"

void library_open(struct crew *crew, dibs_config config)
{
    dibs_runtime *rt;

    config.lease_ms = crew->lease_ms;
    if (dibs_open(&rt, &config) != DIBS_OK)
        way_fail("dibs_open: %s", dibs_last_error());
    crew->own = rt;
}

void library_finish(struct crew *crew)
{
    dibs_stats stats;

    dibs_stats_get(crew->own, &stats);
    way_commands(crew, stats.store_commands);
    dibs_close(crew->own);
}

void library_leased(struct racer *me, const char *name)
{
    dibs_hold hold;

    if (dibs_hold_of(me->crew->own, name, &hold) == DIBS_OK && hold.remaining_ms > 0)
        way_leased(me, (unsigned)hold.remaining_ms);
}

void library_give_back(struct racer *me, const char *name)
{
    library_leased(me, name);
    dibs_status status = dibs_unlock(me->crew->own, name);
    if (status == DIBS_LOST)
        way_lost(me);
    else if (status != DIBS_OK)
        way_fail("dibs_unlock: %s", dibs_last_error());
}
