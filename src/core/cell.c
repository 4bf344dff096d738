/*
 * Lock discipline: a cell and the waiters in it are guarded by the mutex of
 * the shard that its name falls to. It is a leaf: no other mutex is taken, no
 * store asked and no callback called while it is held.
 *
 * The turn of a cell belongs to one thread at a time (`turn_taken`), or the
 * name is held here (`held`), or the cell is free; a cell that is free and has
 * no waiter does not exist. A waiter sleeps on its own cond until
 *     its `called` (it has the turn), or `failed`, or closing, or its deadline.
 * The thread with the turn sleeps on the cell's cond until
 *     `hinted`, or closing, or its deadline.
 */
#include "core/cell.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

#define SHARDS 64

struct waiter {
    struct waiter *next;
    pthread_cond_t cond;
    bool called; /* it has the turn */
    bool failed; /* the store can't be reached, and its patience is over */
    struct dibs__turn *turn;
};

struct dibs__cell {
    struct dibs__cell *next; /* in the shard's bucket */
    struct shard *shard;     /* read-only, as are hash and name */
    uint64_t hash;
    bool turn_taken;
    bool hinted;
    struct dibs__lease *held;
    struct waiter *first, *last;
    struct dibs__error *outage; /* that the thread with the turn rides out; NULL: none */
    pthread_cond_t asker;       /* the thread with the turn sleeps here */
    size_t name_size;
    char name[];
};

struct shard {
    pthread_mutex_t mutex;
    struct dibs__cell **buckets; /* the rest is guarded by mutex */
    size_t bucket_count, count;
};

struct dibs__cells {
    const struct dibs__clock *clock; /* read-only */
    const atomic_bool *closing;
    struct shard shards[SHARDS];
};

/* ------------------------------------------------------------------- table */

static struct shard *shard_of(struct dibs__cells *cells, uint64_t hash)
{
    return &cells->shards[(hash >> 16) % SHARDS];
}

/* Requires the shard's mutex, as all below do that have none of their own. */
static struct dibs__cell *find(struct shard *shard, uint64_t hash, const char *name, size_t name_size)
{
    struct dibs__cell *cell = shard->bucket_count ? shard->buckets[hash & (shard->bucket_count - 1)] : NULL;

    while (cell && (cell->hash != hash || cell->name_size != name_size || memcmp(cell->name, name, name_size) != 0))
        cell = cell->next;
    return cell;
}

static bool rehash(struct shard *shard, size_t bucket_count)
{
    struct dibs__cell **buckets = calloc(bucket_count, sizeof *buckets);

    if (!buckets)
        return false;
    for (size_t i = 0; i < shard->bucket_count; i++) {
        for (struct dibs__cell *cell = shard->buckets[i], *next; cell; cell = next) {
            next = cell->next;
            cell->next = buckets[cell->hash & (bucket_count - 1)];
            buckets[cell->hash & (bucket_count - 1)] = cell;
        }
    }
    free(shard->buckets);
    shard->buckets = buckets;
    shard->bucket_count = bucket_count;
    return true;
}

static struct dibs__cell *add(struct shard *shard, uint64_t hash, const char *name, size_t name_size)
{
    if (shard->count == shard->bucket_count && !rehash(shard, shard->count ? shard->count * 2 : 4))
        return NULL;
    struct dibs__cell *cell = calloc(1, sizeof *cell + name_size + 1);
    if (!cell)
        return NULL;
    if (dibs__cond_init(&cell->asker) != 0) {
        free(cell);
        return NULL;
    }
    cell->shard = shard;
    cell->hash = hash;
    cell->name_size = name_size;
    memcpy(cell->name, name, name_size);
    cell->next = shard->buckets[hash & (shard->bucket_count - 1)];
    shard->buckets[hash & (shard->bucket_count - 1)] = cell;
    shard->count++;
    return cell;
}

static void remove_cell(struct dibs__cell *cell)
{
    struct shard *shard = cell->shard;
    struct dibs__cell **at = &shard->buckets[cell->hash & (shard->bucket_count - 1)];

    while (*at != cell)
        at = &(*at)->next;
    *at = cell->next;
    pthread_cond_destroy(&cell->asker);
    free(cell->outage);
    free(cell);
    if (--shard->count == 0) {
        free(shard->buckets);
        shard->buckets = NULL;
        shard->bucket_count = 0;
    } else if (shard->bucket_count > 4 && shard->count <= shard->bucket_count / 8) {
        rehash(shard, shard->bucket_count / 2);
    }
}

/* -------------------------------------------------------------------- turns */

static void enqueue(struct dibs__cell *cell, struct waiter *waiter)
{
    if (cell->last)
        cell->last->next = waiter;
    else
        cell->first = waiter;
    cell->last = waiter;
}

static void dequeue(struct dibs__cell *cell, struct waiter *waiter)
{
    struct waiter *before = NULL, *at = cell->first;

    for (; at && at != waiter; at = at->next)
        before = at;
    if (!at)
        return;
    if (before)
        before->next = waiter->next;
    else
        cell->first = waiter->next;
    if (cell->last == waiter)
        cell->last = before;
}

/* Nobody has the turn and nobody holds the name: the first waiter gets it, or the cell is at its end. */
static void pass_on(struct dibs__cell *cell)
{
    struct waiter *next = cell->first;

    cell->turn_taken = next != NULL;
    if (!next) {
        remove_cell(cell);
        return;
    }
    dequeue(cell, next);
    next->called = true;
    pthread_cond_signal(&next->cond);
}

/* The name is not held here any more. */
static void let_go(struct dibs__cell *cell)
{
    dibs__lease_unref(cell->held);
    cell->held = NULL;
}

/* True: the calling thread has the turn at once. A lease that is lost keeps nobody waiting. */
static bool take_at_once(struct dibs__cells *cells, struct dibs__cell *cell)
{
    if (cell->held && dibs__lease_is_lost(cell->held, dibs__now(cells->clock))) {
        let_go(cell);
        if (cell->first)
            pass_on(cell);
    }
    if (cell->held || cell->turn_taken)
        return false;
    cell->turn_taken = true;
    return true;
}

static bool over(const struct dibs__cells *cells, const struct waiter *waiter)
{
    return waiter->called || waiter->failed || atomic_load(cells->closing) ||
           dibs__now(cells->clock) >= waiter->turn->deadline;
}

static dibs_status not_by_the_deadline(const struct dibs__cell *cell, struct dibs__turn *turn)
{
    if (!cell->outage)
        return DIBS_BUSY;
    *turn->outage = *cell->outage;
    return turn->outage->status;
}

/* Lets go of the mutex while it sleeps. */
static dibs_status wait_for_turn(struct dibs__cells *cells, struct dibs__cell *cell, struct dibs__turn *turn)
{
    struct waiter waiter = {.turn = turn};

    if (dibs__cond_init(&waiter.cond) != 0)
        return DIBS_NO_MEMORY;
    enqueue(cell, &waiter);
    turn->waited = true;
    atomic_fetch_add_explicit(turn->contended, 1, memory_order_relaxed);
    while (!over(cells, &waiter))
        cells->clock->wait(cells->clock, &waiter.cond, &cell->shard->mutex, turn->deadline);
    pthread_cond_destroy(&waiter.cond);
    if (waiter.called)
        return DIBS_OK;
    if (waiter.failed)
        return turn->outage->status;
    dequeue(cell, &waiter);
    return atomic_load(cells->closing) ? DIBS_CLOSED : not_by_the_deadline(cell, turn);
}

dibs_status dibs__cell_take_turn(struct dibs__cells *cells, struct dibs__turn *turn, struct dibs__cell **out)
{
    uint64_t hash = dibs__hash(turn->name, turn->name_size);
    struct shard *shard = shard_of(cells, hash);
    dibs_status status = DIBS_OK;

    pthread_mutex_lock(&shard->mutex);
    struct dibs__cell *cell = find(shard, hash, turn->name, turn->name_size);
    if (!cell)
        cell = add(shard, hash, turn->name, turn->name_size);
    if (!cell) {
        status = DIBS_NO_MEMORY;
    } else if (!take_at_once(cells, cell)) {
        status = turn->deadline > 0 ? wait_for_turn(cells, cell, turn) : not_by_the_deadline(cell, turn);
    }
    pthread_mutex_unlock(&shard->mutex);
    *out = cell;
    return status;
}

/* Where memory for it is out, others take the name for taken. */
static void note_outage(struct dibs__cell *cell, const struct dibs__error *outage)
{
    if (outage && !cell->outage)
        cell->outage = malloc(sizeof *cell->outage);
    if (outage && cell->outage)
        *cell->outage = *outage;
    if (!outage) {
        free(cell->outage);
        cell->outage = NULL;
    }
}

void dibs__cell_sleep(struct dibs__cells *cells, struct dibs__cell *cell, int64_t deadline,
                      const struct dibs__error *outage)
{
    pthread_mutex_t *mutex = &cell->shard->mutex;

    pthread_mutex_lock(mutex);
    note_outage(cell, outage);
    while (!cell->hinted && !atomic_load(cells->closing) && dibs__now(cells->clock) < deadline)
        cells->clock->wait(cells->clock, &cell->asker, mutex, deadline);
    cell->hinted = false;
    pthread_mutex_unlock(mutex);
}

void dibs__cell_granted(struct dibs__cells *cells, struct dibs__cell *cell, struct dibs__lease *lease)
{
    struct shard *shard = cell->shard;

    (void)cells;
    pthread_mutex_lock(&shard->mutex);
    note_outage(cell, NULL);
    if (atomic_load(&lease->loss_told)) {
        pass_on(cell); /* its end came before this */
    } else {
        dibs__lease_ref(lease);
        cell->held = lease;
        cell->turn_taken = false;
    }
    pthread_mutex_unlock(&shard->mutex);
}

/* Those whose patience with the store is over leave with the outage of the thread that found it. */
static void fail_impatient(struct dibs__cell *cell, const struct dibs__error *outage, int64_t now)
{
    for (struct waiter *at = cell->first, *next; at; at = next) {
        next = at->next;
        if (now < at->turn->patience)
            continue;
        dequeue(cell, at);
        *at->turn->outage = *outage;
        at->failed = true;
        pthread_cond_signal(&at->cond);
    }
}

void dibs__cell_give_up(struct dibs__cells *cells, struct dibs__cell *cell, const struct dibs__error *outage)
{
    struct shard *shard = cell->shard;

    pthread_mutex_lock(&shard->mutex);
    if (outage)
        fail_impatient(cell, outage, dibs__now(cells->clock));
    pass_on(cell);
    pthread_mutex_unlock(&shard->mutex);
}

void dibs__cells_end(struct dibs__cells *cells, struct dibs__lease *lease)
{
    uint64_t hash = dibs__hash(lease->name, lease->name_size);
    struct shard *shard = shard_of(cells, hash);

    pthread_mutex_lock(&shard->mutex);
    struct dibs__cell *cell = find(shard, hash, lease->name, lease->name_size);
    if (cell && cell->held == lease) {
        let_go(cell);
        pass_on(cell);
    }
    pthread_mutex_unlock(&shard->mutex);
}

void dibs__cells_maybe_free(struct dibs__cells *cells, const char *name)
{
    size_t name_size = strlen(name);
    uint64_t hash = dibs__hash(name, name_size);
    struct shard *shard = shard_of(cells, hash);

    pthread_mutex_lock(&shard->mutex);
    struct dibs__cell *cell = find(shard, hash, name, name_size);
    if (cell && cell->turn_taken) {
        cell->hinted = true;
        pthread_cond_signal(&cell->asker);
    }
    pthread_mutex_unlock(&shard->mutex);
}

void dibs__cells_wake_all(struct dibs__cells *cells)
{
    for (size_t i = 0; i < SHARDS; i++) {
        struct shard *shard = &cells->shards[i];
        pthread_mutex_lock(&shard->mutex);
        for (size_t b = 0; b < shard->bucket_count; b++) {
            for (struct dibs__cell *cell = shard->buckets[b]; cell; cell = cell->next) {
                pthread_cond_signal(&cell->asker);
                for (struct waiter *at = cell->first; at; at = at->next)
                    pthread_cond_signal(&at->cond);
            }
        }
        pthread_mutex_unlock(&shard->mutex);
    }
}

/* ---------------------------------------------------------------- lifecycle */

struct dibs__cells *dibs__cells_new(const struct dibs__clock *clock, const atomic_bool *closing)
{
    struct dibs__cells *cells = calloc(1, sizeof *cells);

    if (!cells)
        return NULL;
    cells->clock = clock;
    cells->closing = closing;
    for (size_t i = 0; i < SHARDS; i++)
        pthread_mutex_init(&cells->shards[i].mutex, NULL);
    return cells;
}

void dibs__cells_free(struct dibs__cells *cells)
{
    if (!cells)
        return;
    for (size_t i = 0; i < SHARDS; i++) {
        struct shard *shard = &cells->shards[i];
        while (shard->count > 0) {
            size_t bucket = 0;
            while (!shard->buckets[bucket])
                bucket++;
            dibs__lease_unref(shard->buckets[bucket]->held);
            remove_cell(shard->buckets[bucket]);
        }
        free(shard->buckets); /* there without a cell where memory ran out */
        pthread_mutex_destroy(&shard->mutex);
    }
    free(cells);
}
