#include "ways/library.h"
#include "ways/packet.h"
#include "ways/scenes.h"

static void run(struct racer *me)
{
    if (!library_lock(me))
        return;
    packet_take(me);
    library_unlock(me);
}

const struct way way_packets_dibs = {
    .number = 19,
    .name = "packets-dibs",
    .title = "red packets, behind dibs",
    .text = "The same packet, where a taker holds its lock to read and write what is left. "
            "Five takers have a part, the parts are 100.00 together, and the other takers find nothing.",
    .source = __FILE__,
    .sound = true,
    .processes = PACKET_PROCESSES,
    .threads = PACKET_TAKERS,
    .lease_ms = PACKET_LEASE_MS,
    .prepare = library_prepare,
    .finish = library_finish,
    .run = run,
    .extras = {"parts taken too many", "parts taken of five", "cents taken of 10000 a round"},
    .extras_are_good = {false, true, true},
    .scenes = scenes_six_in_turn,
};
