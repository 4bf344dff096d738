/*
 * What an owner of locks holds: a table by runtime and name. A thread's table lies in thread-local storage. A task
 * (task.h) has a table of its own, which a thread uses that has entered the task. One thread at a time uses a table, so
 * it needs no lock. A table with few holds is searched one by one, and needs no allocation for the first of them; a
 * larger table has an index. Allocated memory is freed with the last hold.
 */
#ifndef DIBS_CORE_HOLDS_H
#define DIBS_CORE_HOLDS_H

#include <stdbool.h>
#include <string.h>

#include "base/hash.h"
#include "core/lease.h"

struct dibs__hold {            /* the holding thread's */
    struct dibs__lease *lease; /* with one reference; its fence stays the same as long as the thread has the hold */
    uint32_t hash;             /* the low bits of the name's hash */
    uint32_t count;            /* how many unlocks end the hold; at least 1 */
    int64_t since;             /* when the thread acquired the lock */
};

/* Called by the holding thread, whose count is less than UINT32_MAX. */
static inline void dibs__hold_count_up(struct dibs__hold *hold)
{
    hold->count++;
    uint64_t reentered = atomic_load_explicit(&hold->lease->reentered, memory_order_relaxed);
    atomic_store_explicit(&hold->lease->reentered, reentered + 1, memory_order_relaxed); /* no other thread writes it */
}

#define DIBS__HOLDS_FEW 4 /* this many holds need no memory but the table's */

/*
 * All zero: nothing is held. The number of places in `index` is a power of two, at least twice the number of holds, so
 * linear probing ends. Each place has the number of a hold, or UINT32_MAX.
 */
struct dibs__holds {
    struct dibs__hold *holds; /* `few`, or allocated; NULL: no place was ever reserved */
    uint32_t count, cap;
    uint32_t *index; /* NULL: the holds are searched one by one */
    uint32_t index_mask;
    struct dibs__hold few[DIBS__HOLDS_FEW];
};

/* A table that a thread may enter. */
struct dibs__holder {
    struct dibs__holds holds;
    uint64_t runtime;           /* read-only; all holds are of this runtime */
    struct dibs__holder *outer; /* the entering thread's: the one it entered before; NULL: none */
};

/*
 * From now on the calling thread uses that table for its runtime, until the thread leaves the table. No thread may be
 * in it. Allocates nothing.
 */
void dibs__holder_enter(struct dibs__holder *holder);

/* False: this is not the table that the calling thread entered last, or the thread has left it. */
bool dibs__holder_leave(struct dibs__holder *holder);

/* Leaves the table wherever it is in the thread's nesting. False: the calling thread is not in it. */
bool dibs__holder_leave_anywhere(struct dibs__holder *holder);

/* The innermost table of that runtime that the calling thread has entered. NULL: the thread uses its own table. */
struct dibs__holder *dibs__holder_inside(uint64_t runtime);

/* The table that the calling thread uses for that runtime, and the one that it uses where it has entered none. */
struct dibs__holds *dibs__holds_here(uint64_t runtime);
struct dibs__holds *dibs__holds_own(void);

/* In the table that the calling thread uses. NULL: the name is not held. Valid until the next add or remove. */
struct dibs__hold *dibs__holds_find(uint64_t runtime, const char *name, size_t name_size);

/* The hold that the thread found or added last; NULL: that hold was removed, or its place may have changed. */
extern _Thread_local struct dibs__hold *dibs__holds_last;

static inline bool dibs__holds_is_it(const struct dibs__hold *hold, uint64_t runtime, const char *name,
                                     size_t name_size)
{
    const struct dibs__lease *lease = hold->lease;

    return lease->name_size == name_size && lease->runtime == runtime && dibs__same_bytes(lease->name, name, name_size);
}

/*
 * Like dibs__holds_find if the name is that of the last hold, in a time that does not depend on the number of holds;
 * else NULL, which says nothing. A pair of nested calls is about one name, so the second call, and usually the first,
 * need no more than this.
 */
static inline struct dibs__hold *dibs__holds_find_last(uint64_t runtime, const char *name)
{
    struct dibs__hold *last = dibs__holds_last;

    return last && dibs__holds_is_it(last, runtime, name, strnlen(name, DIBS_NAME_MAX + 1)) ? last : NULL;
}

/* ------------------------ in a table that the calling thread, or no thread, uses */

/* As dibs__holds_find. */
struct dibs__hold *dibs__holds_find_in(struct dibs__holds *holds, uint64_t runtime, const char *name, size_t name_size);

/* Makes room for `count` more holds. False: no memory. */
bool dibs__holds_reserve(struct dibs__holds *holds, uint32_t count);

/* Adds a hold of count 1, which takes over the caller's reference. There must be room for it (dibs__holds_reserve). */
struct dibs__hold *dibs__holds_add(struct dibs__holds *holds, struct dibs__lease *lease, int64_t since);

/* Takes the hold out of the table. Returns its lease; the reference becomes the caller's. */
struct dibs__lease *dibs__holds_remove(struct dibs__holds *holds, struct dibs__hold *hold);

/*
 * The next hold of that runtime; NULL: there are no more. *cursor must be DIBS__HOLDS_ALL at the beginning. Between two
 * calls the hold that was found may be removed, but no hold may be added. The whole walk looks at each hold once.
 */
#define DIBS__HOLDS_ALL UINT32_MAX
struct dibs__hold *dibs__holds_next(const struct dibs__holds *holds, uint64_t runtime, uint32_t *cursor);

/* Frees memory that the present holds do not need. */
void dibs__holds_shrink(struct dibs__holds *holds);

/* In a forked child: forgets what a table holds that no thread of the parent used. */
void dibs__holds_forget(struct dibs__holds *holds);

/*
 * The same for a table that another thread of the parent was using, maybe in the midst of a change: its content is not
 * looked at.
 */
void dibs__holds_abandon(struct dibs__holds *holds);

/* ----------------------------------------------------------------- a thread's end */

/*
 * A thread that ends calls left(holder) for each table that it is in, and orphaned(lease) for each hold of its own. A
 * forked child, which holds nothing, calls kept(holder) for each table that it is in, and forgotten(lease) for each
 * hold in those tables and its own. orphaned and forgotten take over the reference. Must be called before the first
 * hold is added, and with the same functions each time. False: no memory, or all keys for thread-specific data are in
 * use; then dibs__holds_on_end must be called again.
 */
struct dibs__holds_hooks {
    void (*orphaned)(struct dibs__lease *lease);
    void (*forgotten)(struct dibs__lease *lease);
    void (*left)(struct dibs__holder *holder);
    void (*kept)(struct dibs__holder *holder);
};
bool dibs__holds_on_end(const struct dibs__holds_hooks *hooks);

#endif
