#include <stdlib.h>

#include "ways/library.h"

enum { PROCESSES = 4, LEASE_MS = 2000, TAKERS = 100, PARTS = 5, MONEY = 10000 };

static unsigned number_at(struct racer *me, const char *what, unsigned begin)
{
    char text[24];

    return way_get(me, text, sizeof text, "GET %s:%s", me->key, what) ? (unsigned)strtoul(text, NULL, 10) : begin;
}

/* At random, up to twice the average, but the last one takes the rest. */
static unsigned share(struct racer *me, unsigned parts, unsigned money)
{
    return parts == 1 ? money : 1 + (me->number * 7919 + money) % (2 * money / parts - 1);
}

static void take(struct racer *me)
{
    unsigned parts, money, mine;

    way_enter(me);
    parts = number_at(me, "parts", PARTS);
    money = number_at(me, "money", MONEY);
    if (parts > 0) {
        way_work(me);
        mine = share(me, parts, money);
        way_ask(me, "SET %s:parts %u EX 60", me->key, parts - 1);
        way_ask(me, "SET %s:money %u EX 60", me->key, money - mine);
        way_extra(me, way_ask(me, "INCR %s:taken", me->key) > PARTS ? 0 : 1, 1);
        way_extra(me, 2, mine);
    }
    way_leave(me);
}

static void take_locked(struct racer *me)
{
    library_lock(me);
    take(me);
    library_unlock(me);
}

static const struct scene scenes_alone[] = {
    {.title = "six take at the same time, of a packet with five parts",
     .racers = 6,
     .lease_ms = 100,
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

static const struct scene scenes_locked[] = {
    {.title = "six come at the same time, for a packet with five parts",
     .racers = 6,
     .lease_ms = 100,
     .work_ms = 1,
     .cues = {{5, "arrive", CUE_WAIT, 0, "enter", 0}, {0, "work", CUE_WAIT, 5, "arrive", 5}}},
    {.racers = 0},
};

const struct way way_packets_alone = {
    .number = 19,
    .name = "packets-alone",
    .title = "red packets, without a lock",
    .text = "A packet of 100.00 has five parts, and a hundred takers of four processes want one. "
            "Many read the same number of parts, so more parts are taken, and more money, than there are.",
    .source = __FILE__,
    .no_lease = true,
    .processes = PROCESSES,
    .threads = TAKERS,
    .lease_ms = LEASE_MS,
    .lockless = true,
    .run = take,
    .extras = {"parts taken too many", "parts taken of five", "cents taken of 10000 a round"},
    .extras_are_good = {false, true, true},
    .scenes = scenes_alone,
};

const struct way way_packets_dibs = {
    .number = 19,
    .name = "packets-dibs",
    .title = "red packets, behind dibs",
    .text = "The same packet, where a taker holds its lock to read and write what is left. "
            "Five takers have a part, the parts are 100.00 together, and the other takers find nothing.",
    .source = __FILE__,
    .sound = true,
    .processes = PROCESSES,
    .threads = TAKERS,
    .lease_ms = LEASE_MS,
    .prepare = library_prepare,
    .finish = library_finish,
    .run = take_locked,
    .extras = {"parts taken too many", "parts taken of five", "cents taken of 10000 a round"},
    .extras_are_good = {false, true, true},
    .scenes = scenes_locked,
};
