/*
 * What the calling thread holds: a table in thread-local storage, by runtime
 * and name. No other thread ever touches the table, so it needs no lock. A few
 * holds are looked through one by one, and the first of them need no memory;
 * more of them get an index. What was allocated is freed with the last hold.
 */
#ifndef DIBS_CORE_HOLDS_H
#define DIBS_CORE_HOLDS_H

#include <stdbool.h>
#include <string.h>

#include "base/hash.h"
#include "core/lease.h"

struct dibs__hold {            /* the holding thread's */
    struct dibs__lease *lease; /* with one reference; its fence stays as long as the thread has the hold */
    uint32_t hash;             /* the low bits of the name's */
    uint32_t count;            /* how many unlocks end the hold; at least 1 */
    int64_t since;             /* when the thread acquired the lock */
};

/* NULL: the thread does not hold the name. The pointer is valid until the next add or remove. */
struct dibs__hold *dibs__holds_find(uint64_t runtime, const char *name, size_t name_size);

/* The hold that the thread found or added last; NULL: it was removed, or its place may have changed. */
extern _Thread_local struct dibs__hold *dibs__holds_last;

static inline bool dibs__holds_is_it(const struct dibs__hold *hold, uint64_t runtime, const char *name,
                                     size_t name_size)
{
    const struct dibs__lease *lease = hold->lease;

    return lease->name_size == name_size && lease->runtime == runtime && dibs__same_bytes(lease->name, name, name_size);
}

/*
 * As dibs__holds_find where the name is that of the last hold, whatever the
 * number of holds; else NULL, which says nothing. A pair of nested calls is
 * about one name, so the second call, and mostly the first, need no more.
 */
static inline struct dibs__hold *dibs__holds_find_last(uint64_t runtime, const char *name)
{
    struct dibs__hold *last = dibs__holds_last;

    return last && dibs__holds_is_it(last, runtime, name, strnlen(name, DIBS_NAME_MAX + 1)) ? last : NULL;
}

/* Makes room for one more hold. False: no memory. */
bool dibs__holds_reserve(void);

/* A new hold of count 1, which takes over the caller's reference. There must be room for it (dibs__holds_reserve). */
struct dibs__hold *dibs__holds_add(struct dibs__lease *lease, int64_t since);

/* Takes the hold out of the table. Returns its lease; the reference becomes the caller's. */
struct dibs__lease *dibs__holds_remove(struct dibs__hold *hold);

/*
 * The next hold of that runtime; NULL: there are no more. *cursor is
 * DIBS__HOLDS_ALL at the beginning. Between two calls the hold that was found
 * may be removed, but none may be added. The whole walk looks at each hold once.
 */
#define DIBS__HOLDS_ALL UINT32_MAX
struct dibs__hold *dibs__holds_next(uint64_t runtime, uint32_t *cursor);

/*
 * A thread that ends calls orphaned(lease) for each hold that it still has. A
 * forked child, which holds nothing, calls forgotten(lease) for each. Both take
 * over the reference. To be called before the first hold is added, and with the
 * same functions each time. False: no memory, or all keys for data of threads
 * are in use; then it is to be called again.
 */
bool dibs__holds_on_end(void (*orphaned)(struct dibs__lease *lease), void (*forgotten)(struct dibs__lease *lease));

#endif
