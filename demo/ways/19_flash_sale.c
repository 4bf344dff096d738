#include <stdio.h>
#include <stdlib.h>

#include "ways/library.h"

enum { PROCESSES = 4, LEASE_MS = 2000, BUYERS = 100, ITEMS = 5, STOCK = 4 };

/* Reads the stock, and writes what is left: as with any database. */
static void buy(struct racer *me)
{
    char left[16] = "4";
    unsigned stock;

    way_enter(me);
    way_get(me, left, sizeof left, "GET %s:stock:%u", me->key, me->item);
    stock = (unsigned)strtoul(left, NULL, 10);
    if (stock > 0) {
        way_work(me);
        way_ask(me, "SET %s:stock:%u %u EX 60", me->key, me->item, stock - 1);
        way_extra(me, way_ask(me, "INCR %s:sold:%u", me->key, me->item) > STOCK ? 0 : 1, 1);
    }
    way_leave(me);
}

static void buy_alone(struct racer *me)
{
    me->item = me->number / (BUYERS / ITEMS);
    buy(me);
}

/* Each item has a lock of its own, so buyers of different items do not wait for one another. */
static void buy_locked(struct racer *me)
{
    me->item = me->number / (BUYERS / ITEMS);
    snprintf(me->text, sizeof me->text, "%s:sku:%u", me->name, me->item);
    if (dibs_lock(me->crew->own, me->text) != DIBS_OK)
        way_fail("dibs_lock: %s", dibs_last_error());
    buy(me);
    library_leased(me, me->text);
    if (dibs_unlock(me->crew->own, me->text) != DIBS_OK)
        way_fail("dibs_unlock: %s", dibs_last_error());
}

/* All of them want the first item. */
static const struct scene scenes_alone[] = {
    {.title = "six read at the same time that there are four pieces",
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
    {.title = "six come at the same time, for four pieces",
     .racers = 6,
     .lease_ms = 100,
     .work_ms = 1,
     .cues = {{5, "arrive", CUE_WAIT, 0, "enter", 0}, {0, "work", CUE_WAIT, 5, "arrive", 5}}},
    {.racers = 0},
};

const struct way way_sale_alone = {
    .number = 19,
    .name = "sale-alone",
    .title = "a flash sale, without a lock",
    .text = "A hundred buyers of four processes want five items, four pieces of each. "
            "Many read the same stock before one of them writes what is left, so more is sold than there is.",
    .source = __FILE__,
    .no_lease = true,
    .processes = PROCESSES,
    .threads = BUYERS,
    .lease_ms = LEASE_MS,
    .lockless = true,
    .run = buy_alone,
    .extras = {"sold beyond the stock", "sold of the stock"},
    .extras_are_good = {false, true},
    .scenes = scenes_alone,
};

const struct way way_sale_dibs = {
    .number = 19,
    .name = "sale-dibs",
    .title = "a flash sale, a lock an item",
    .text = "The same sale, where a buyer holds the lock of the item (sku:3) to read and write its stock. "
            "Nothing is sold that is not there, and buyers of different items do not wait for one another.",
    .source = __FILE__,
    .sound = true,
    .processes = PROCESSES,
    .threads = BUYERS,
    .lease_ms = LEASE_MS,
    .prepare = library_prepare,
    .finish = library_finish,
    .run = buy_locked,
    .extras = {"sold beyond the stock", "sold of the stock"},
    .extras_are_good = {false, true},
    .scenes = scenes_locked,
};
