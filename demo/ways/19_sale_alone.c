#include <stdlib.h>

#include "ways/sale.h"
#include "ways/scenes.h"

/* Reads the stock, and writes what is left: as with any database. */
void sale_buy(struct racer *me)
{
    unsigned stock = SALE_STOCK;
    char left[16];

    way_enter(me);
    if (way_get(me, left, sizeof left, "GET %s:stock:%u", me->key, me->item))
        stock = (unsigned)strtoul(left, NULL, 10);
    if (stock > 0) {
        way_work(me);
        way_ask(me, "SET %s:stock:%u %u EX 60", me->key, me->item, stock - 1);
        way_extra(me, way_ask(me, "INCR %s:sold:%u", me->key, me->item) > SALE_STOCK ? 0 : 1, 1);
    }
    way_leave(me);
}

static void run(struct racer *me)
{
    me->item = me->number / (SALE_BUYERS / SALE_ITEMS);
    sale_buy(me);
}

const struct way way_sale_alone = {
    .number = 19,
    .name = "sale-alone",
    .title = "a flash sale, without a lock",
    .text = "A hundred buyers of four processes want five items, four pieces of each. "
            "Many read the same stock before one of them writes what is left, so more is sold than there is.",
    .source = __FILE__,
    .processes = SALE_PROCESSES,
    .threads = SALE_BUYERS,
    .lease_ms = SALE_LEASE_MS,
    .lockless = true,
    .run = run,
    .extras = {"sold beyond the stock", "sold of the stock"},
    .extras_are_good = {false, true},
    .scenes = scenes_six_at_once,
};
