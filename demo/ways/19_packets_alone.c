#include <stdlib.h>

#include "ways/packet.h"
#include "ways/scenes.h"

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

void packet_take(struct racer *me)
{
    unsigned parts, money, mine;

    way_enter(me);
    parts = number_at(me, "parts", PACKET_PARTS);
    money = number_at(me, "money", PACKET_MONEY);
    if (parts > 0) {
        way_work(me);
        mine = share(me, parts, money);
        way_ask(me, "SET %s:parts %u EX 60", me->key, parts - 1);
        way_ask(me, "SET %s:money %u EX 60", me->key, money - mine);
        way_extra(me, way_ask(me, "INCR %s:taken", me->key) > PACKET_PARTS ? 0 : 1, 1);
        way_extra(me, 2, mine);
    }
    way_leave(me);
}

const struct way way_packets_alone = {
    .number = 19,
    .name = "packets-alone",
    .title = "red packets, without a lock",
    .text = "A packet of 100.00 has five parts, and a hundred takers of four processes want one. "
            "Many read the same number of parts, so more parts are taken, and more money, than there are.",
    .source = __FILE__,
    .processes = PACKET_PROCESSES,
    .threads = PACKET_TAKERS,
    .lease_ms = PACKET_LEASE_MS,
    .lockless = true,
    .run = packet_take,
    .extras = {"parts taken too many", "parts taken of five", "cents taken of 10000 a round"},
    .extras_are_good = {false, true, true},
    .scenes = scenes_six_at_once,
};
