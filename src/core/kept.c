/* Lock discipline: that of cells.h. No thread waits here. */
#include "core/kept.h"

#include <stdlib.h>

#include "core/asker.h"

#define IN_A_ROW 3                       /* after this many locks of a name the next lease may be kept */
#define LOOK_AFTER (5 * DIBS__NS_PER_MS) /* from the last use of a kept lease until the store is told */
#define MOST 64                          /* at most this many leases of a shard are looked at */
#define HABITS 64                        /* this many names of a shard are remembered; a power of two */
#define AGAIN_FIRST_MS 100               /* no lease of a name is kept for this time after a recall; doubled */
#define AGAIN_MOST_MS 10000              /* with each recall in a row, up to this */
#define STRETCH 20                       /* a lease is kept for at most this many times `keep` after its grant; */
#define STRETCH_REST 5                   /* then no lease of the name is kept for this many times `keep` */
#define RAISE_FIRST 64                   /* the first raise is asked for at this step, so that it comes in time */
#define RAISED_STEPS (DIBS__RAISE * (unsigned)DIBS__FENCE_STEPS)

/* ------------------------------------------------------------------------ habits */

/*
 * What the process has done with a name. Only the hash is stored: another name with the same hash may be taken for it.
 */
struct dibs__habit {
    uint32_t hash;
    uint8_t in_a_row;   /* the number of locks in a row for which nobody elsewhere asked, up to IN_A_ROW */
    uint8_t recalls;    /* the number of recalls in a row, until the pause no longer grows */
    int64_t not_before; /* when a lease of the name may be kept again */
};

bool dibs__kept_begin(struct dibs__cells *cells, uint32_t keep_ms)
{
    for (size_t i = 0; i < DIBS__SHARDS; i++) {
        struct dibs__shard *shard = &cells->shards[i];
        dibs__shard_mutex_lock(&shard->mutex);
        shard->habits = calloc(HABITS, sizeof *shard->habits);
        bool made = shard->habits != NULL;
        dibs__shard_mutex_unlock(&shard->mutex);
        if (!made)
            return false;
    }
    cells->keep = keep_ms * DIBS__NS_PER_MS;
    return true;
}

static struct dibs__habit *place_of(const struct dibs__cell *cell) DIBS__REQUIRES(dibs__shard_mutex)
{
    return &cell->shard->habits[cell->hash % HABITS];
}

/* NULL: the place belongs to another name, which must not be forgotten yet. */
static struct dibs__habit *habit_of(const struct dibs__cell *cell, int64_t now) DIBS__REQUIRES(dibs__shard_mutex)
{
    struct dibs__habit *habit = place_of(cell);

    if (habit->hash == cell->hash)
        return habit;
    if (now < habit->not_before)
        return NULL;
    *habit = (struct dibs__habit){.hash = cell->hash};
    return habit;
}

bool dibs__kept_is_habit(const struct dibs__cells *cells, const struct dibs__cell *cell)
{
    dibs__shard_mutex_held(&cell->shard->mutex);
    const struct dibs__habit *habit = place_of(cell);

    return habit->hash == cell->hash && habit->in_a_row == IN_A_ROW && dibs__now(cells->clock) >= habit->not_before;
}

/*
 * Whether the store is too far away for the lease to be kept. Who takes a kept lease again finds at least half of its
 * length left, and within that a request that is under way, and then a renewal, must be answered.
 */
static bool is_far(const struct dibs__cells *cells, const struct dibs__lease *lease)
{
    return lease->granted_in > dibs__kept_ms((uint32_t)(cells->keep / DIBS__NS_PER_MS)) * DIBS__NS_PER_MS / 4;
}

static void note_lock(const struct dibs__cells *cells, const struct dibs__cell *cell, const struct dibs__lease *lease,
                      int64_t now) DIBS__REQUIRES(dibs__shard_mutex)
{
    struct dibs__habit *habit = habit_of(cell, now);

    if (habit && (lease->contended || lease->keeping.recalled || is_far(cells, lease)))
        habit->in_a_row = 0;
    else if (habit && habit->in_a_row < IN_A_ROW)
        habit->in_a_row++;
}

/* No lease of the name is kept before then. If its place belongs to another name, none of that name is, either. */
static void rest_until(const struct dibs__cell *cell, int64_t now, int64_t until) DIBS__REQUIRES(dibs__shard_mutex)
{
    struct dibs__habit *habit = habit_of(cell, now);

    if (!habit)
        habit = place_of(cell);
    if (habit->not_before < until)
        habit->not_before = until;
}

static void note_recall(const struct dibs__cell *cell, int64_t now) DIBS__REQUIRES(dibs__shard_mutex)
{
    struct dibs__habit *habit = habit_of(cell, now);
    int64_t pause_ms;

    if (!habit)
        rest_until(cell, now, dibs__after_ms(now, AGAIN_FIRST_MS));
    if (!habit || now < habit->not_before) /* the same recall, which may come several times */
        return;
    if (now > dibs__after_ms(habit->not_before, AGAIN_MOST_MS))
        habit->recalls = 0;
    pause_ms = (int64_t)AGAIN_FIRST_MS << habit->recalls;
    if (pause_ms < AGAIN_MOST_MS)
        habit->recalls++;
    habit->in_a_row = 0;
    habit->not_before = dibs__after_ms(now, pause_ms < AGAIN_MOST_MS ? pause_ms : AGAIN_MOST_MS);
}

/* -------------------------------------------------------------------- keep and take */

/*
 * Whether the lease is too old to be kept again. The last `keep` of the stretch is left for the time after this use, so
 * nobody waits for longer than the whole stretch.
 */
static bool is_stretched(const struct dibs__cells *cells, const struct dibs__lease *lease, int64_t now)
{
    return now - lease->granted_at >= (STRETCH - 1) * cells->keep;
}

/* Whether the lease is good enough to be used again. */
static bool is_good(const struct dibs__cells *cells, const struct dibs__lease *lease, int64_t now)
{
    uint32_t kept_ms = dibs__kept_ms((uint32_t)(cells->keep / DIBS__NS_PER_MS));
    int64_t length = kept_ms < lease->asked_ms ? kept_ms : lease->asked_ms;

    return dibs__kept_allows(atomic_load_explicit(&cells->recallable, memory_order_acquire)) &&
           dibs__lease_has_step(lease) && !is_stretched(cells, lease, now) &&
           atomic_load_explicit(&lease->deadline, memory_order_relaxed) - now >= length * DIBS__NS_PER_MS / 2;
}

static bool may_be_kept(const struct dibs__cells *cells, const struct dibs__cell *cell, const struct dibs__lease *lease,
                        int64_t now) DIBS__REQUIRES(dibs__shard_mutex)
{
    return !atomic_load(cells->closing) && lease->token.keeps && !lease->contended && !lease->keeping.recalled &&
           !lease->keeping.forced && !is_far(cells, lease) &&
           atomic_load_explicit(&lease->extended_ms, memory_order_relaxed) == 0 && is_good(cells, lease, now) &&
           (cell->shard->looked_at < MOST ||
            atomic_load_explicit(&lease->keeping.look_at, memory_order_relaxed) != DIBS__NEVER);
}

static int64_t look_after(const struct dibs__cells *cells)
{
    return cells->keep < LOOK_AFTER ? cells->keep : LOOK_AFTER;
}

/*
 * Plans a look at the lease, unless one is due soon anyway, so that a thread in a loop need not set another time in
 * each round. True: one was planned.
 */
static bool plan_look(const struct dibs__cells *cells, const struct dibs__cell *cell, struct dibs__lease *lease,
                      int64_t now) DIBS__REQUIRES(dibs__shard_mutex)
{
    int64_t before = atomic_load_explicit(&lease->keeping.look_at, memory_order_relaxed);

    if (before <= now + 2 * look_after(cells))
        return false;
    if (before == DIBS__NEVER)
        cell->shard->looked_at++;
    atomic_store(&lease->keeping.look_at, now + look_after(cells));
    return true;
}

/* Asks for more steps before the present ones are used up. True: more were asked for. */
static bool want_steps(struct dibs__lease *lease)
{
    unsigned step = atomic_load_explicit(&lease->step, memory_order_relaxed);
    unsigned steps = atomic_load_explicit(&lease->steps, memory_order_relaxed);

    if (step < (steps < DIBS__FENCE_STEPS ? RAISE_FIRST : steps - RAISED_STEPS / 2) ||
        UINT32_MAX - steps < RAISED_STEPS)
        return false;
    return !atomic_load_explicit(&lease->keeping.raise, memory_order_relaxed) &&
           !atomic_exchange(&lease->keeping.raise, true);
}

/*
 * If the lease was kept for as long as it may be, the name rests, so that a client without dibs, which looks from time
 * to time, may find it free.
 */
static void note_stretch(const struct dibs__cells *cells, const struct dibs__cell *cell,
                         const struct dibs__lease *lease, int64_t now) DIBS__REQUIRES(dibs__shard_mutex)
{
    if (lease->token.keeps && is_stretched(cells, lease, now))
        rest_until(cell, now, now + STRETCH_REST * cells->keep);
}

bool dibs__kept_keep(struct dibs__cells *cells, struct dibs__cell *cell, unsigned recallable, int64_t now)
{
    struct dibs__lease *lease = cell->lease;

    dibs__shard_mutex_held(&cell->shard->mutex);
    DIBS__REQUIRE(cell->state == DIBS__CELL_HELD && !cell->waiters);
    if (recallable != atomic_load_explicit(&cells->recallable, memory_order_acquire) ||
        !may_be_kept(cells, cell, lease, now)) {
        note_lock(cells, cell, lease, now);
        note_stretch(cells, cell, lease, now);
        return false;
    }
    cell->state = DIBS__CELL_KEPT;
    lease->keeping.since = now;
    atomic_store_explicit(&lease->unclaimed, true, memory_order_relaxed);
    bool looks = plan_look(cells, cell, lease, now);
    if (want_steps(lease) || looks)
        atomic_store(&lease->keeping.news, true);
    return true;
}

/*
 * Takes the kept lease out of the cell, so that nobody here takes it any longer. Returns it with a reference, the
 * caller's. The cell may be unused afterwards.
 */
static struct dibs__lease *drop(struct dibs__cell *cell) DIBS__REQUIRES(dibs__shard_mutex)
{
    struct dibs__lease *lease = cell->lease;

    DIBS__REQUIRE(cell->state == DIBS__CELL_KEPT);
    dibs__lease_ref(lease);
    atomic_store(&lease->loss_told, true); /* a loss from now on concerns nobody */
    dibs__waiters_mark_free(cell);
    dibs__cell_unlist(cell, lease);
    return lease;
}

bool dibs__kept_take(struct dibs__cells *cells, struct dibs__cell *cell, struct dibs__waiter *waiter)
{
    struct dibs__lease *lease = cell->lease;

    dibs__shard_mutex_held(&cell->shard->mutex);
    int64_t now = dibs__now(cells->clock);
    if (!dibs__waiters_fit(lease, waiter) || !is_good(cells, lease, now)) {
        note_stretch(cells, cell, lease, now);
        waiter->unfit = drop(cell);
        return false;
    }
    dibs__waiters_take_over(cell, waiter);
    waiter->retaken_at = now;
    if (atomic_load_explicit(&lease->keeping.use, memory_order_relaxed) == DIBS__USE_KEPT) {
        atomic_store(&lease->keeping.use, DIBS__USE_HELD);
        atomic_store(&lease->keeping.news, true);
    }
    return true;
}

/* ----------------------------------------------------------------------- given back */

struct dibs__lease *dibs__kept_recall(struct dibs__cells *cells, const char *name, const char *token, bool *give_back)
{
    struct dibs__shard *shard;
    struct dibs__cell *cell;
    struct dibs__lease *lease = dibs__cells_lock_token(cells, name, token, &shard, &cell);

    *give_back = lease && cell->state == DIBS__CELL_KEPT && cell->lease == lease;
    if (lease) {
        dibs__lease_ref(lease);
        note_recall(cell, dibs__now(cells->clock));
        lease->keeping.recalled = true;
    }
    if (*give_back) {
        dibs__lease_unref(drop(cell));
        dibs__cell_drop_if_unused(cell);
    } else if (lease && cell->state == DIBS__CELL_HELD && cell->lease == lease) {
        atomic_store(&lease->keeping.use, DIBS__USE_WANTED);
        atomic_store(&lease->keeping.tell, true);
    }
    dibs__shard_mutex_unlock(&shard->mutex);
    return lease;
}

/* When to look at the lease, which is kept, again. 0: the caller must give it back. */
static int64_t next_look(const struct dibs__cells *cells, struct dibs__lease *lease, int64_t now)
    DIBS__REQUIRES(dibs__shard_mutex)
{
    int64_t unused = now - lease->keeping.since;

    if (unused >= cells->keep)
        return 0;
    if (unused < look_after(cells))
        return lease->keeping.since + look_after(cells);
    atomic_store(&lease->keeping.use, DIBS__USE_KEPT);
    return lease->keeping.since + cells->keep;
}

/*
 * Asks the store from time to time whether others wait: a lease that is used again and again is never reported as kept,
 * and the recall of somebody who wants it may have been lost.
 */
static void ask_whether_wanted(const struct dibs__cells *cells, struct dibs__lease *lease, int64_t now)
    DIBS__REQUIRES(dibs__shard_mutex)
{
    int64_t pause = dibs__kept_ms((uint32_t)(cells->keep / DIBS__NS_PER_MS)) * DIBS__NS_PER_MS / 2;
    int64_t last = lease->keeping.asked_at > 0 ? lease->keeping.asked_at : lease->granted_at;

    if (now - last < pause || atomic_load(&lease->keeping.use) != DIBS__USE_HELD)
        return;
    lease->keeping.asked_at = now;
    atomic_store(&lease->keeping.tell, true);
}

bool dibs__kept_look(struct dibs__cells *cells, struct dibs__lease *lease)
{
    struct dibs__shard *shard;
    struct dibs__cell *cell = dibs__cells_lock(cells, lease->name, lease->name_size, &shard);
    bool its = cell && cell->lease == lease, kept = its && cell->state == DIBS__CELL_KEPT;
    int64_t now = dibs__now(cells->clock), next = kept ? next_look(cells, lease, now) : DIBS__NEVER;

    if (!kept && atomic_exchange(&lease->keeping.look_at, DIBS__NEVER) != DIBS__NEVER)
        shard->looked_at--;
    if (next == 0) {
        note_stretch(cells, cell, lease, now);
        dibs__lease_unref(drop(cell));
        dibs__cell_drop_if_unused(cell);
    } else if (its) {
        ask_whether_wanted(cells, lease, now);
    }
    if (kept && next > 0)
        atomic_store(&lease->keeping.look_at, next);
    dibs__shard_mutex_unlock(&shard->mutex);
    return next == 0;
}

struct dibs__lease *dibs__kept_drop(struct dibs__cells *cells, const char *name, size_t name_size)
{
    struct dibs__shard *shard;
    struct dibs__cell *cell = dibs__cells_lock(cells, name, name_size, &shard);
    struct dibs__lease *lease = cell && cell->state == DIBS__CELL_KEPT ? drop(cell) : NULL;

    if (lease)
        dibs__cell_drop_if_unused(cell);
    dibs__shard_mutex_unlock(&shard->mutex);
    return lease;
}

static struct dibs__cell *find_kept(const struct dibs__shard *shard) DIBS__REQUIRES(dibs__shard_mutex)
{
    for (size_t i = 0; shard->looked_at > 0 && i < shard->bucket_count; i++)
        for (struct dibs__cell *cell = shard->buckets[i]; cell; cell = cell->next)
            if (cell->state == DIBS__CELL_KEPT)
                return cell;
    return NULL;
}

struct dibs__lease *dibs__kept_drop_any(struct dibs__shard *shard)
{
    dibs__shard_mutex_lock(&shard->mutex);
    struct dibs__cell *cell = find_kept(shard);
    struct dibs__lease *lease = cell ? drop(cell) : NULL;
    if (lease)
        dibs__cell_drop_if_unused(cell);
    dibs__shard_mutex_unlock(&shard->mutex);
    return lease;
}

uint64_t dibs__kept_count(struct dibs__cells *cells)
{
    uint64_t count = 0;

    for (size_t i = 0; cells->keep > 0 && i < DIBS__SHARDS; i++) {
        struct dibs__shard *shard = &cells->shards[i];
        dibs__shard_mutex_lock(&shard->mutex);
        for (size_t b = 0; shard->looked_at > 0 && b < shard->bucket_count; b++)
            for (const struct dibs__cell *cell = shard->buckets[b]; cell; cell = cell->next)
                count += cell->state == DIBS__CELL_KEPT;
        dibs__shard_mutex_unlock(&shard->mutex);
    }
    return count;
}
