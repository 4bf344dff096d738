#include "core/cells.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "core/outage_budget.h"

_Static_assert((DIBS__SHARDS & (DIBS__SHARDS - 1)) == 0, "a name falls to a shard by bits of its hash");

/* -------------------------------------------------------- the cells of a shard */

static struct dibs__cell *find(const struct dibs__shard *shard, uint64_t hash, const char *name, size_t name_size)
    DIBS__REQUIRES(dibs__shard_mutex)
{
    struct dibs__cell *cell = shard->buckets[hash & (shard->bucket_count - 1)];

    while (cell &&
           (cell->hash != (uint32_t)hash || cell->name_size != name_size || memcmp(cell->name, name, name_size) != 0))
        cell = cell->next;
    return cell;
}

static bool rehash(struct dibs__shard *shard, size_t bucket_count) DIBS__REQUIRES(dibs__shard_mutex)
{
    bool few = bucket_count == DIBS__CELLS_FEW;
    struct dibs__cell **buckets = few ? shard->few : calloc(bucket_count, sizeof(struct dibs__cell *));

    if (!buckets)
        return false;
    if (few)
        memset(buckets, 0, sizeof shard->few);
    for (size_t i = 0; i < shard->bucket_count; i++) {
        for (struct dibs__cell *cell = shard->buckets[i], *next; cell; cell = next) {
            next = cell->next;
            cell->next = buckets[cell->hash & (bucket_count - 1)];
            buckets[cell->hash & (bucket_count - 1)] = cell;
        }
    }
    if (shard->buckets != shard->few)
        free(shard->buckets);
    shard->buckets = buckets;
    shard->bucket_count = bucket_count;
    return true;
}

static struct dibs__cell *add(struct dibs__shard *shard, uint64_t hash, const char *name, size_t name_size)
    DIBS__REQUIRES(dibs__shard_mutex)
{
    if (shard->count == shard->bucket_count && !rehash(shard, shard->count * 2))
        return NULL;
    struct dibs__cell *cell = calloc(1, sizeof *cell + name_size);
    if (!cell)
        return NULL;
    cell->shard = shard;
    cell->hash = (uint32_t)hash;
    cell->name_size = (uint16_t)name_size;
    memcpy(cell->name, name, name_size);
    cell->next = shard->buckets[hash & (shard->bucket_count - 1)];
    shard->buckets[hash & (shard->bucket_count - 1)] = cell;
    shard->count++;
    return cell;
}

static void remove_cell(struct dibs__cell *cell) DIBS__REQUIRES(dibs__shard_mutex)
{
    struct dibs__shard *shard = cell->shard;
    struct dibs__cell **at = &shard->buckets[cell->hash & (shard->bucket_count - 1)];

    while (*at != cell)
        at = &(*at)->next;
    *at = cell->next;
    dibs__outage_set(&cell->outage, NULL);
    free(cell);
    if (--shard->count <= shard->bucket_count / 8 && shard->bucket_count > DIBS__CELLS_FEW)
        rehash(shard, shard->count > 0 ? shard->bucket_count / 2 : DIBS__CELLS_FEW);
}

void dibs__cell_drop_if_unused(struct dibs__cell *cell)
{
    dibs__shard_mutex_held(&cell->shard->mutex);
    DIBS__REQUIRE(!dibs__cell_is_held(cell) || cell->granted);
    if (cell->state == DIBS__CELL_FREE && !cell->asked && !cell->granted && !cell->waiters && !cell->tries)
        remove_cell(cell);
}

/* ------------------------------------------------------------------- locking */

struct dibs__cell *dibs__cells_lock(struct dibs__cells *cells, const char *name, size_t name_size,
                                    struct dibs__shard **shard)
{
    uint64_t hash = dibs__hash(name, name_size);

    *shard = &cells->shards[(hash >> 16) % DIBS__SHARDS];
    dibs__shard_mutex_lock(&(*shard)->mutex);
    return find(*shard, hash, name, name_size);
}

struct dibs__cell *dibs__cells_lock_or_add(struct dibs__cells *cells, const char *name, size_t name_size,
                                           struct dibs__shard **shard)
{
    struct dibs__cell *cell = dibs__cells_lock(cells, name, name_size, shard);

    return cell ? cell : add(*shard, dibs__hash(name, name_size), name, name_size);
}

/* -------------------------------------------------------- the leases of a cell */

void dibs__cell_unlist(struct dibs__cell *cell, struct dibs__lease *lease)
{
    dibs__shard_mutex_held(&cell->shard->mutex);
    if (!lease->listing.previous)
        return;
    DIBS__LIST_REMOVE(*(lease->asker ? &cell->asked : &cell->granted), lease, listing);
    if (atomic_load_explicit(&lease->keeping.look_at, memory_order_relaxed) != DIBS__NEVER) {
        atomic_store(&lease->keeping.look_at, DIBS__NEVER);
        cell->shard->looked_at--;
    }
    dibs__lease_unref(lease);
}

/* ----------------------------------------------------------------- lifecycle */

/* False: a mutex could not be made; those made before are destroyed. */
static bool make_shards(struct dibs__cells *cells) DIBS__UNANALYSED /* no other thread knows the shards yet */
{
    size_t made = 0;

    for (; made < DIBS__SHARDS && dibs__mutex_init(&cells->shards[made].mutex) == 0; made++) {
        cells->shards[made].buckets = cells->shards[made].few;
        cells->shards[made].bucket_count = DIBS__CELLS_FEW;
    }
    if (made == DIBS__SHARDS)
        return true;
    while (made-- > 0)
        dibs__mutex_destroy(&cells->shards[made].mutex);
    return false;
}

struct dibs__cells *dibs__cells_new(const struct dibs__clock *clock, const atomic_bool *closing, uint32_t handoff_ms)
{
    struct dibs__cells *cells = calloc(1, sizeof *cells);

    DIBS__REQUIRE(clock && closing);
    if (!cells || !make_shards(cells)) {
        free(cells);
        return NULL;
    }
    cells->clock = clock;
    cells->closing = closing;
    cells->handoff = handoff_ms == DIBS_NO_HANDOFF ? 0 : handoff_ms * DIBS__NS_PER_MS;
    return cells;
}

static void empty(struct dibs__shard *shard) DIBS__REQUIRES(dibs__shard_mutex)
{
    while (shard->count > 0) {
        size_t bucket = 0;
        while (!shard->buckets[bucket])
            bucket++;
        struct dibs__cell *cell = shard->buckets[bucket];
        DIBS__REQUIRE(!cell->waiters && !cell->tries);
        while (cell->asked) /* NOLINT(clang-analyzer-unix.Malloc): remove_cell took the cell out of its bucket */
            dibs__cell_unlist(cell, cell->asked);
        while (cell->granted)
            dibs__cell_unlist(cell, cell->granted);
        remove_cell(cell);
    }
    if (shard->buckets != shard->few)
        free(shard->buckets);
    free(shard->habits);
}

void dibs__cells_free(struct dibs__cells *cells)
{
    if (!cells)
        return;
    for (size_t i = 0; i < DIBS__SHARDS; i++) {
        struct dibs__shard *shard = &cells->shards[i];
        dibs__shard_mutex_lock(&shard->mutex);
        empty(shard);
        dibs__shard_mutex_unlock(&shard->mutex);
        dibs__mutex_destroy(&shard->mutex);
    }
    free(cells);
}
