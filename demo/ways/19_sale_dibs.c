#include <stdio.h>

#include "ways/library.h"
#include "ways/sale.h"
#include "ways/scenes.h"

/* Each item has a lock of its own, so buyers of different items do not wait for one another. */
static void run(struct racer *me)
{
    me->item = me->number / (SALE_BUYERS / SALE_ITEMS);
    snprintf(me->text, sizeof me->text, "%s:sku:%u", me->name, me->item);
    if (dibs_lock(me->crew->own, me->text) != DIBS_OK)
        way_fail("dibs_lock: %s", dibs_last_error());
    sale_buy(me);
    library_give_back(me, me->text);
}

const struct way way_sale_dibs = {
    .number = 19,
    .name = "sale-dibs",
    .title = "a flash sale, a lock an item",
    .text = "The same sale, where a buyer holds the lock of the item (sku:3) to read and write its stock. "
            "Nothing is sold that is not there, and buyers of different items do not wait for one another.",
    .source = __FILE__,
    .sound = true,
    .processes = SALE_PROCESSES,
    .threads = SALE_BUYERS,
    .lease_ms = SALE_LEASE_MS,
    .prepare = library_prepare,
    .finish = library_finish,
    .run = run,
    .extras = {"sold beyond the stock", "sold of the stock"},
    .extras_are_good = {false, true},
    .scenes = scenes_six_in_turn,
};
