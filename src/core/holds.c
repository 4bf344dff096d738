#include "core/holds.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/once.h"

#define LINEAR 8 /* a table with room for so many holds, or fewer, has no index */
#define FEW 4    /* so many holds need no memory but the thread-local storage */
#define NOTHING UINT32_MAX

_Static_assert(LINEAR >= FEW && LINEAR % FEW == 0, "a table grows by doubling from FEW");

/*
 * The calling thread's. The number of places in `index` is a power of two, at
 * least twice the number of holds, so linear probing ends. Each place has the
 * number of a hold, or NOTHING.
 */
static _Thread_local struct table {
    struct dibs__hold *holds; /* `few`, or allocated; NULL: there is no hold, and no room for one */
    uint32_t count, cap;
    uint32_t *index; /* NULL: the holds are looked through one by one */
    uint32_t index_mask;
    struct dibs__hold few[FEW];
} table;

_Thread_local struct dibs__hold *dibs__holds_last;

static pthread_key_t end_key; /* read-only once it is made; its destructor runs when a thread that has holds ends */
static void (*on_orphaned)(struct dibs__lease *lease);  /* written with the same value each time */
static void (*on_forgotten)(struct dibs__lease *lease); /* written with the same value each time */

/* ------------------------------------------------------------------- index */

static uint32_t hash_place(const struct table *t, uint32_t hash)
{
    return hash & t->index_mask;
}

static void index_put(struct table *t, uint32_t number)
{
    uint32_t place = hash_place(t, t->holds[number].hash);

    while (t->index[place] != NOTHING)
        place = (place + 1) & t->index_mask;
    t->index[place] = number;
}

static uint32_t index_place_of(const struct table *t, uint32_t number)
{
    uint32_t place = hash_place(t, t->holds[number].hash);

    while (t->index[place] != number)
        place = (place + 1) & t->index_mask;
    return place;
}

/* Knuth, The Art of Computer Programming 3, 6.4, algorithm R: what probing would not find behind the gap moves into it.
 */
static void index_remove(struct table *t, uint32_t number)
{
    uint32_t gap = index_place_of(t, number);

    for (uint32_t at = (gap + 1) & t->index_mask; t->index[at] != NOTHING; at = (at + 1) & t->index_mask) {
        uint32_t home = hash_place(t, t->holds[t->index[at]].hash);
        if (((at - home) & t->index_mask) >= ((at - gap) & t->index_mask)) {
            t->index[gap] = t->index[at];
            gap = at;
        }
    }
    t->index[gap] = NOTHING;
}

static bool make_index(struct table *t, uint32_t cap)
{
    uint32_t places = cap * 2;
    uint32_t *index = malloc(places * sizeof *index);

    if (!index)
        return false;
    for (uint32_t i = 0; i < places; i++)
        index[i] = NOTHING;
    free(t->index);
    t->index = index;
    t->index_mask = places - 1;
    for (uint32_t i = 0; i < t->count; i++)
        index_put(t, i);
    return true;
}

static void drop_index(struct table *t)
{
    free(t->index);
    t->index = NULL;
}

/* -------------------------------------------------------------------- table */

struct dibs__hold *dibs__holds_find(uint64_t runtime, const char *name, size_t name_size)
{
    struct table *t = &table;

    if (!t->index) {
        for (uint32_t i = t->count; i-- > 0;)
            if (dibs__holds_is_it(&t->holds[i], runtime, name, name_size))
                return dibs__holds_last = &t->holds[i];
        return NULL;
    }
    uint32_t hash = (uint32_t)dibs__hash(name, name_size);
    for (uint32_t at = hash_place(t, hash); t->index[at] != NOTHING; at = (at + 1) & t->index_mask) {
        struct dibs__hold *hold = &t->holds[t->index[at]];
        if (hold->hash == hash && dibs__holds_is_it(hold, runtime, name, name_size))
            return dibs__holds_last = hold;
    }
    return NULL;
}

/* Gives the holds another place; the old one is left. NULL: no memory. */
static struct dibs__hold *move_holds(struct table *t, uint32_t cap)
{
    struct dibs__hold *holds = cap > FEW ? malloc(cap * sizeof *holds) : t->few;

    if (holds && t->count > 0)
        memcpy(holds, t->holds, t->count * sizeof *holds);
    return holds;
}

static void leave_place(const struct table *t, struct dibs__hold *place)
{
    if (place != t->few)
        free(place);
}

/* cap: FEW or more by doubling, at least the count, not the present one. False: no memory; nothing has changed. */
static bool resize(struct table *t, uint32_t cap)
{
    DIBS__REQUIRE(cap >= FEW && cap != t->cap && cap >= t->count && (cap & (cap - 1)) == 0);
    struct dibs__hold *old = t->holds, *holds = move_holds(t, cap);

    if (!holds)
        return false;
    t->holds = holds;
    if (cap > LINEAR && !make_index(t, cap)) {
        t->holds = old;
        leave_place(t, holds);
        return false;
    }
    if (cap <= LINEAR)
        drop_index(t);
    t->cap = cap;
    leave_place(t, old);
    dibs__holds_last = NULL;
    return true;
}

bool dibs__holds_reserve(void)
{
    struct table *t = &table;

    if (!pthread_getspecific(end_key)) {
        if (pthread_setspecific(end_key, t) != 0)
            return false;
        dibs__lease_keep_spare();
    }
    if (t->count < t->cap)
        return true;
    return resize(t, t->cap ? t->cap * 2 : FEW);
}

struct dibs__hold *dibs__holds_add(struct dibs__lease *lease, int64_t since)
{
    struct table *t = &table;
    struct dibs__hold *hold = &t->holds[t->count];

    DIBS__REQUIRE(t->count < t->cap);
    DIBS__REQUIRE(!dibs__holds_find(lease->runtime, lease->name, lease->name_size));
    *hold = (struct dibs__hold){
        .lease = lease,
        .hash = (uint32_t)dibs__hash(lease->name, lease->name_size),
        .count = 1,
        .since = since,
    };
    t->count++;
    if (t->index)
        index_put(t, t->count - 1);
    dibs__holds_last = hold;
    return hold;
}

/* Gives memory back. Where there is none to do that with, the table stays as it is. */
static void shrink(struct table *t)
{
    if (t->count == 0) {
        drop_index(t);
        leave_place(t, t->holds);
        t->holds = NULL;
        t->cap = 0;
    } else if (t->cap > FEW && t->count <= t->cap / 4) {
        resize(t, t->cap / 2);
    }
}

struct dibs__lease *dibs__holds_remove(struct dibs__hold *hold)
{
    struct table *t = &table;
    struct dibs__lease *lease = hold->lease;
    uint32_t number = (uint32_t)(hold - t->holds), last = t->count - 1;

    DIBS__REQUIRE(t->count > 0 && number < t->count);
    dibs__holds_last = NULL;
    if (t->index) {
        index_remove(t, number);
        if (number != last)
            t->index[index_place_of(t, last)] = number;
    }
    *hold = t->holds[last];
    t->count--;
    shrink(t);
    return lease;
}

/* From the end on: a removal moves the last hold to the cursor's place, and all holds above that are of other runtimes.
 */
struct dibs__hold *dibs__holds_next(uint64_t runtime, uint32_t *cursor)
{
    uint32_t at = *cursor < table.count ? *cursor : table.count;

    while (at > 0 && table.holds[at - 1].lease->runtime != runtime)
        at--;
    *cursor = at > 0 ? at - 1 : 0;
    return at > 0 ? &table.holds[at - 1] : NULL;
}

/* --------------------------------------------------------- a thread's end */

static void thread_ends(void *unused)
{
    (void)unused;
    while (table.count > 0)
        on_orphaned(dibs__holds_remove(&table.holds[table.count - 1]));
    shrink(&table); /* what was reserved for an acquire that failed */
    dibs__lease_free_spare();
}

static void forget_in_child(void)
{
    while (table.count > 0)
        on_forgotten(dibs__holds_remove(&table.holds[table.count - 1]));
}

static bool make_key(void)
{
    return pthread_key_create(&end_key, thread_ends) == 0;
}

static bool watch_forks(void)
{
    return pthread_atfork(NULL, NULL, forget_in_child) == 0;
}

bool dibs__holds_on_end(void (*orphaned)(struct dibs__lease *lease), void (*forgotten)(struct dibs__lease *lease))
{
    static struct dibs__once key, forks;

    on_orphaned = orphaned;
    on_forgotten = forgotten;
    return dibs__once(&key, make_key) && dibs__once(&forks, watch_forks);
}
