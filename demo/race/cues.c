/*
 * What a scene does to racers at named points. A cue that waits is told by the racer that comes to what the cue waits
 * for.
 */
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "race/failover.h"
#include "race/race.h"
#include "support/common/timing.h"

enum { POLL_US = 200, STUCK_MS = 10000 };

static const struct cue *cue_of(const struct race *race, unsigned which)
{
    return race->scene ? &race->scene->cues[which] : NULL;
}

static void tell(struct race *race, unsigned number, const char *point)
{
    for (unsigned i = 0; i < SCENE_CUES; i++) {
        const struct cue *cue = cue_of(race, i);
        if (cue->passes && cue->whom == number && strcmp(cue->passes, point) == 0)
            atomic_store(&race->cues[i], true);
    }
}

static void wait_for(struct race *race, unsigned which)
{
    uint64_t limit = clock_ns() + STUCK_MS * UINT64_C(1000000);

    while (!atomic_load(&race->cues[which])) {
        if (clock_ns() > limit) {
            atomic_store(&race->stuck, true);
            return;
        }
        pause_us(POLL_US);
    }
    pause_us(race->scene->cues[which].ms * UINT64_C(1000));
}

/* Whether the server has that key of the lock. The harness's own commands do not count as the way's. */
static bool has_key(struct racer *me, unsigned server, const char *format)
{
    bool has = way_ask_at(me, server, format, me->key) == 1;

    atomic_fetch_sub(&me->record->commands, 1);
    return has;
}

static void wait_for_key(struct racer *me, unsigned server, const char *format)
{
    uint64_t limit = clock_ns() + STUCK_MS * UINT64_C(1000000);

    while (!has_key(me, server, format)) {
        if (clock_ns() > limit) {
            atomic_store(&me->crew->race->stuck, true);
            return;
        }
        pause_us(POLL_US);
    }
}

static void stop(struct racer *me)
{
    record_note(me->record, HAPPENED_STOP, clock_ns());
    pthread_kill(pthread_self(), SIGSTOP);
    record_note(me->record, HAPPENED_GO, clock_ns());
}

static void die(struct racer *me)
{
    record_note(me->record, HAPPENED_DIE, clock_ns());
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

static void perform(struct racer *me, unsigned which)
{
    struct race *race = me->crew->race;
    const struct cue *cue = cue_of(race, which);

    switch (cue->what) {
    case CUE_WAIT:
        wait_for(race, which);
        break;
    case CUE_QUEUED:
        wait_for_key(me, cue->whom, "EXISTS dibs:queue:{%s}");
        break;
    case CUE_LOCKED:
        wait_for_key(me, cue->whom, "EXISTS %s");
        break;
    case CUE_DIE:
        die(me);
        break;
    case CUE_STOP:
        stop(me);
        break;
    case CUE_FELL:
        if (race->pids[cue->whom] > 0)
            kill(race->pids[cue->whom], SIGKILL);
        break;
    case CUE_CUT:
        failover_cut(race, cue->whom);
        break;
    case CUE_PROMOTE:
        failover_promote(race);
        break;
    }
}

void cues_at(struct racer *me, const char *point)
{
    struct race *race = me->crew->race;

    if (!race->scene)
        return;
    tell(race, me->number, point);
    for (unsigned i = 0; i < SCENE_CUES; i++) {
        const struct cue *cue = cue_of(race, i);
        if (cue->what && cue->who == me->number && strcmp(cue->at, point) == 0)
            perform(me, i);
    }
}

bool cues_may_go_on(const struct race *race, unsigned crew)
{
    for (unsigned i = 0; race->scene && i < SCENE_CUES; i++) {
        const struct cue *cue = cue_of(race, i);
        if (cue->what == CUE_STOP && cue->who == crew)
            return !cue->passes || atomic_load(&race->cues[i]);
    }
    return true;
}
