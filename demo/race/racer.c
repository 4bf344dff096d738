/* One process of a round, and its threads. */
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "race/race.h"
#include "support/common/timing.h"

enum { SETTLE_US = 2000 };

uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* ------------------------------------------------------------- the counter */

/*
 * KEYS: the counter, the largest fence that it has seen. ARGV: a fence, the keys' life in seconds. Returns the counter,
 * or -1 where the fence is smaller than one that it has seen. Fences may have more digits than a Lua number keeps.
 */
static const char fenced_incr[] = "local seen = redis.call('GET', KEYS[2]) or '0' "
                                  "local fence = ARGV[1] "
                                  "if #fence < #seen or (#fence == #seen and fence < seen) then return -1 end "
                                  "redis.call('SET', KEYS[2], fence, 'EX', ARGV[2]) "
                                  "local count = redis.call('INCR', KEYS[1]) "
                                  "redis.call('EXPIRE', KEYS[1], ARGV[2]) "
                                  "return count";

/* The harness's own commands do not count as the way's. */
static redisReply *uncounted(struct racer *me, redisReply *reply)
{
    atomic_fetch_sub(&me->record->commands, 1);
    return reply;
}

static bool below_limit(struct racer *me)
{
    const struct race *race = me->crew->race;
    redisReply *reply = uncounted(me, way_command(me, "GET %s", race->counter));
    bool below = reply->type != REDIS_REPLY_STRING || strtoll(reply->str, NULL, 10) < race->options.limit;

    freeReplyObject(reply);
    return below;
}

static void raise_counter(struct racer *me)
{
    const struct race *race = me->crew->race;
    uint64_t fence = race->options.fenced && me->way->fence ? me->way->fence(me) : 0, before = clock_ns();
    redisReply *reply;
    bool refused;

    if (fence) {
        reply = uncounted(me, way_command(me, "EVAL %s 2 %s %s:fence %llu %d", fenced_incr, race->counter,
                                          race->counter, (unsigned long long)fence, KEY_LIFE_S));
    } else {
        reply = uncounted(me, way_command(me, "INCR %s", race->counter));
    }
    refused = reply->integer < 0;
    freeReplyObject(reply);
    if (refused)
        record_note(me->record, HAPPENED_REFUSED, clock_ns());
    else
        record_note(me->record, HAPPENED_RAISE, before);
    me->gone |= refused;
}

/* ----------------------------------------------------------------- a racer */

void way_enter(struct racer *me)
{
    struct record *record = me->record;
    uint64_t none = 0, now = clock_ns();

    record->item = me->item;
    record_note(record, HAPPENED_ENTER, now);
    if (!me->way->no_lease && !me->way->lockless)
        atomic_compare_exchange_strong(&record->lease_end, &none, now + me->lease_ms * UINT64_C(1000000));
    atomic_fetch_add(&me->crew->race->inside, 1);
    cues_at(me, "enter");
}

void way_leave(struct racer *me)
{
    cues_at(me, "leave");
    record_note(me->record, HAPPENED_LEAVE, clock_ns());
    atomic_fetch_sub(&me->crew->race->inside, 1);
}

static void be_slow(struct racer *me)
{
    record_note(me->record, HAPPENED_WORK, clock_ns());
    pause_us(me->crew->race->options.work_ms * UINT64_C(1000));
    for (int i = 1; i < STALLS_INSIDE; i++)
        way_point(me, "");
}

void way_work(struct racer *me)
{
    me->worked = true;
    cues_at(me, "work");
    be_slow(me);
    cues_at(me, "write");
}

static void work(struct racer *me)
{
    be_slow(me);
    way_point(me, "check");
    if (me->way->still && !me->way->still(me)) {
        way_lost(me);
        return;
    }
    cues_at(me, "write");
    raise_counter(me);
}

static void lock_once(struct racer *me)
{
    way_enter(me);
    me->worked = below_limit(me);
    cues_at(me, "work");
    if (me->worked)
        work(me);
    way_leave(me);
    me->way->unlock(me);
    record_note(me->record, HAPPENED_LEFT, clock_ns());
    cues_at(me, "left");
}

static void wait_at_gate(const struct race *race)
{
    char none;

    while (read(race->gate, &none, 1) > 0) {
        /* nobody writes: the other end is closed when the round begins */
    }
}

static void race_once(struct racer *me)
{
    if (me->way->run) {
        me->way->run(me);
        if (!me->gone && !record_time(me->record, HAPPENED_GIVE_UP))
            record_note(me->record, HAPPENED_LEFT, clock_ns());
        cues_at(me, "left");
    } else if (me->way->lock(me)) {
        lock_once(me);
    } else if (!me->gone) {
        way_gave_up(me);
    }
}

static void *racer_main(void *arg)
{
    struct racer *me = arg;
    struct race *race = me->crew->race;

    redisReply *reply = uncounted(me, way_command(me, "PING")); /* connects */
    freeReplyObject(reply);
    atomic_fetch_add(&race->ready, 1);
    wait_at_gate(race);
    cues_at(me, "arrive");
    me->arrived = clock_ns();
    record_note(me->record, HAPPENED_ARRIVE, me->arrived);
    race_once(me);
    atomic_fetch_add(&race->done, 1);
    for (unsigned i = 0; i < WAY_SERVERS_MOST; i++)
        if (me->links[i])
            redisFree(me->links[i]);
    return NULL;
}

/* --------------------------------------------------------------- a process */

/* Threads of this process but its main one; 0 where the system does not tell. */
static unsigned other_threads(void)
{
    DIR *tasks = opendir("/proc/self/task");
    unsigned count = 0;

    if (!tasks)
        return 0;
    while (readdir(tasks))
        count++;
    closedir(tasks);
    return count - 3; /* ".", "..", the main thread */
}

static void fill(struct racer *me, struct crew *crew, unsigned number, unsigned place)
{
    struct race *race = crew->race;
    uint64_t seed = race->options.seed ^ ((uint64_t)race->round << 32) ^ number;

    me->way = race->way;
    me->crew = crew;
    me->key = race->key;
    me->name = race->name;
    me->counter = race->counter;
    me->limit = race->options.limit;
    me->number = number;
    me->lease_ms = race->options.lease_ms;
    me->record = &race->records[number];
    me->record->crew = crew->number;
    me->random = next_random(&seed);
    me->clock_off_ms = race->scene && number < SCENE_RACERS ? race->scene->clock_off_ms[number] : 0;
    snprintf(me->token, sizeof me->token, "%s/%u", race->name, number);
    snprintf(me->thread_name, sizeof me->thread_name, "thread-%u", place);
}

static void run_racers(struct crew *crew)
{
    const struct race_options *options = &crew->race->options;
    struct racer *racers = calloc(options->threads, sizeof *racers);
    pthread_t *threads = calloc(options->threads, sizeof *threads);
    unsigned count = 0;

    if (!racers || !threads)
        way_fail("out of memory");
    for (unsigned i = crew->number; i < options->threads; i += options->processes) {
        fill(&racers[count], crew, i, count);
        if (pthread_create(&threads[count], NULL, racer_main, &racers[count]) != 0)
            way_fail("no thread number %u could be started", i + 1);
        count++;
    }
    for (unsigned i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    free(threads);
    free(racers);
}

noreturn void crew_run(struct race *race, unsigned number)
{
    struct crew crew = {race, number, race->options.lease_ms, race->name, NULL};

    if (race->way->prepare)
        race->way->prepare(&crew);
    run_racers(&crew);
    pause_us(SETTLE_US); /* a thread that was joined may still be listed */
    atomic_store(&race->crew_threads[number], other_threads());
    if (race->way->finish)
        race->way->finish(&crew);
    fflush(NULL);
    _exit(0);
}
