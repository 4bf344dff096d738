/*
 * What the calling thread holds: a table in thread-local storage, by runtime
 * and name. No other thread ever touches it, so it needs no lock. A few names
 * are looked through one by one; more get an index. Its memory goes with its holds.
 */
#ifndef DIBS_CORE_HOLDS_H
#define DIBS_CORE_HOLDS_H

#include <stdbool.h>

#include "core/lease.h"

struct dibs__hold {
    struct dibs__lease *lease; /* one reference */
    uint64_t runtime;          /* serial */
    uint64_t hash;
    uint64_t fence;
    size_t name_size;
    uint32_t count;
};

/* NULL where the thread does not hold it. The pointer is good until the next add or remove. */
struct dibs__hold *dibs__holds_find(uint64_t runtime, const char *name, size_t name_size);

/* Sees to it that the next add succeeds. False: no memory. */
bool dibs__holds_reserve(void);

/* A hold of count 1; takes over the caller's reference. Requires a reserve before. */
struct dibs__hold *dibs__holds_add(struct dibs__lease *lease, uint64_t fence);

/* Takes it out of the table; the reference is the caller's. */
struct dibs__lease *dibs__holds_remove(struct dibs__hold *hold);

/*
 * The next hold of that runtime, NULL: there are no more. *cursor is
 * DIBS__HOLDS_ALL at the beginning; between two calls the hold that was found
 * may be removed, and nothing be added. The whole walk looks at each hold once.
 */
#define DIBS__HOLDS_ALL UINT32_MAX
struct dibs__hold *dibs__holds_next(uint64_t runtime, uint32_t *cursor);

/*
 * orphaned(lease) is called, by a thread that ends, for each hold it still
 * has, and takes over the reference; so is forgotten(lease) in a forked child,
 * which holds nothing. To be set before the first hold, the same each time.
 * False: no memory, or all keys for data of threads are in use; to be called again.
 */
bool dibs__holds_on_end(void (*orphaned)(struct dibs__lease *lease), void (*forgotten)(struct dibs__lease *lease));

#endif
