/*
 * Lock discipline: a cell, the waiters in it, and what lease.h says of the
 * leases listed in it, are guarded by the mutex of the shard that its name
 * falls to. It is a leaf: no other mutex is taken, no store asked and no
 * callback called while it is held.
 *
 * The turn of a cell belongs to one thread at a time (`turn_taken`), or the
 * name is held here (`held`), maybe by no thread for a moment (`parked`), or
 * the cell is free. A waiter sleeps on its own cond until
 *     it is `called` (it has what turn->kind says), or the lease is parked and
 *     it is the first, or it has its `answer`, or closing, or its deadline.
 * A thread that asks the store sleeps on a cond that bid.sleeper shows until
 *     its bid.push is there, or bid.hinted, or closing, or its deadline, which
 *     for the thread with the turn is the cell's `ask_by`.
 *
 * Something is known of a name that is held here, or `said_taken`, or that has
 * an `outage`. Threads with one try wait in `tries` only while nothing is known:
 * then a thread has the turn, and what it is told answers them all at once. One
 * of them is called only where that thread leaves without having been told, and
 * nobody waits for the name.
 *
 * All leases that threads here ask the store for or hold are listed in their
 * cell, and in the shard by their tokens, the fair ones too, so that a grant
 * that the store makes by itself finds its attempt, or is known to be of a lease
 * that is held already. A cell with no turn, no lease and no waiter does not
 * exist.
 */
#include "core/cell.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "core/tokens.h"

#define SHARDS 64
#define LONG_WAIT (1 * DIBS__NS_PER_MS) /* who waited so long is handed a lease before any running thread */

/* On the stack of a thread that waits. All guarded by the shard's mutex, but for cond, turn and since: read-only. */
struct waiter {
    struct waiter *next, *previous;
    struct queue *queue; /* that it stands in; NULL: it was called or answered */
    pthread_cond_t cond;
    bool called;        /* it has the turn, or the lease */
    dibs_status answer; /* what it is to return; DIBS_OK: it waits */
    int64_t since;
    struct dibs__turn *turn;
};

struct queue {
    struct waiter *first, *last; /* guarded by the shard's mutex */
};

struct dibs__cell {
    struct dibs__cell *next;    /* in the shard's bucket; guarded by the shard's mutex */
    struct shard *shard;        /* read-only */
    uint64_t hash;              /* read-only */
    bool turn_taken;            /* guarded by the shard's mutex */
    bool said_taken;            /* by the store, to the thread with the turn; guarded by the shard's mutex */
    bool parked;                /* held by no thread: the first that comes may take it; guarded by the shard's mutex */
    struct dibs__lease *held;   /* one of leases; guarded by the shard's mutex */
    struct dibs__lease *leases; /* each with a reference; guarded by the shard's mutex */
    struct queue waiters;       /* for the name; guarded by the shard's mutex */
    struct queue tries;         /* with one try; guarded by the shard's mutex */
    struct dibs__lease
        *asleep;    /* that the thread with the turn sleeps for; NULL: for none; guarded by the shard's mutex */
    int64_t ask_by; /* when it asks again; only with asleep; guarded by the shard's mutex */
    struct dibs__outage *outage; /* that the thread with the turn rides out; NULL: none; guarded by the shard's mutex */
    int64_t outage_since;        /* by the first of those in a row that found it so; guarded by the shard's mutex */
    size_t name_size;            /* read-only */
    char name[];                 /* read-only */
};

DIBS__MUTEX_CLASS(shard_mutex);

struct shard {
    struct dibs__mutex mutex;
    struct dibs__cell **buckets; /* guarded by mutex */
    size_t bucket_count, count;  /* of buckets, of cells; guarded by mutex */
    struct dibs__tokens tokens;  /* of the leases that are listed in its cells; guarded by mutex */
};

struct dibs__cells {
    const struct dibs__clock *clock; /* read-only */
    const atomic_bool *closing;      /* read-only */
    int64_t handoff;                 /* ns; read-only */
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

static struct dibs__cell *find_or_add(struct shard *shard, uint64_t hash, const char *name, size_t name_size)
{
    struct dibs__cell *cell = find(shard, hash, name, name_size);

    return cell ? cell : add(shard, hash, name, name_size);
}

static void drop_if_unused(struct dibs__cell *cell)
{
    if (!cell->turn_taken && !cell->leases && !cell->waiters.first && !cell->tries.first)
        remove_cell(cell);
}

/* The cell of the lease, with the mutex of its shard, which the caller lets go of. NULL: there is none. */
static struct dibs__cell *lock_cell_of(struct dibs__cells *cells, const struct dibs__lease *lease, struct shard **shard)
{
    uint64_t hash = dibs__hash(lease->name, lease->name_size);

    *shard = shard_of(cells, hash);
    shard_mutex_lock(&(*shard)->mutex);
    return find(*shard, hash, lease->name, lease->name_size);
}

/* ------------------------------------------------------------------- leases */

static void list(struct dibs__cell *cell, struct dibs__lease *lease)
{
    struct dibs__asking *bid = &lease->bid;

    dibs__lease_ref(lease);
    bid->listed = true;
    bid->previous = NULL;
    bid->next = cell->leases;
    if (bid->next)
        bid->next->bid.previous = lease;
    cell->leases = lease;
    dibs__tokens_put(&cell->shard->tokens, lease);
}

/* Where it was listed. The cell may be unused afterwards. */
static void unlist(struct dibs__cell *cell, struct dibs__lease *lease)
{
    struct dibs__asking *bid = &lease->bid;

    if (!bid->listed)
        return;
    if (bid->previous)
        bid->previous->bid.next = bid->next;
    else
        cell->leases = bid->next;
    if (bid->next)
        bid->next->bid.previous = bid->previous;
    bid->listed = false;
    dibs__tokens_take_out(&cell->shard->tokens, lease);
    dibs__lease_unref(lease);
}

/* Whether a thread that wants such a lease may have this one. */
static bool fits(const struct dibs__lease *lease, const struct dibs__turn *turn)
{
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): a cell that is parked has a lease */
    return lease->asked_ms == turn->lease_ms && lease->fixed == turn->fixed;
}

/* A thread takes over the lease that another held: its fence is the next. */
static void take_over(struct dibs__cell *cell, struct dibs__turn *turn)
{
    cell->parked = false;
    atomic_fetch_add_explicit(&cell->held->step, 1, memory_order_relaxed);
    dibs__lease_ref(cell->held);
    turn->kind = DIBS__TURN_HANDED;
    turn->lease = cell->held;
}

/* -------------------------------------------------------------------- turns */

static void enqueue(struct queue *queue, struct waiter *waiter)
{
    waiter->queue = queue;
    waiter->previous = queue->last;
    if (queue->last)
        queue->last->next = waiter;
    else
        queue->first = waiter;
    queue->last = waiter;
}

static void dequeue(struct waiter *waiter)
{
    struct queue *queue = waiter->queue;

    if (!queue)
        return;
    if (waiter->previous)
        waiter->previous->next = waiter->next;
    else
        queue->first = waiter->next;
    if (waiter->next)
        waiter->next->previous = waiter->previous;
    else
        queue->last = waiter->previous;
    waiter->queue = NULL;
}

/* A waiter gets what its turn says by now. */
static void call(struct dibs__cell *cell, struct waiter *waiter)
{
    dequeue(waiter);
    waiter->turn->outage_since = cell->outage ? cell->outage_since : 0;
    if (cell->outage)
        *waiter->turn->outage = *cell->outage;
    waiter->called = true;
    pthread_cond_signal(&waiter->cond);
}

/* A waiter leaves with that status; error: its sentence, NULL: the waiter has its own. */
static void answer(struct waiter *waiter, dibs_status status, const struct dibs__error *error)
{
    dequeue(waiter);
    if (error)
        waiter->turn->outage->error = *error;
    waiter->answer = status;
    pthread_cond_signal(&waiter->cond);
}

/* What the thread with the turn was told: NULL: that the name is taken, or the name was granted. */
static void answer_tries(struct dibs__cell *cell, const struct dibs__error *error)
{
    while (cell->tries.first)
        answer(cell->tries.first, error ? error->status : DIBS_BUSY, error);
}

/* Where memory for it is out, nothing is known of the name. NULL: there is none any more. */
static void note_outage(struct dibs__cell *cell, const struct dibs__outage *outage, int64_t now)
{
    if (outage && !cell->outage) {
        cell->outage = malloc(sizeof *cell->outage);
        cell->outage_since = now;
    }
    if (outage && cell->outage)
        *cell->outage = *outage;
    if (!outage) {
        free(cell->outage);
        cell->outage = NULL;
    }
}

/* Nobody has the turn and nobody holds the name: the next gets the turn, or the cell may be at its end. */
static void pass_on(struct dibs__cell *cell)
{
    struct waiter *next = cell->waiters.first ? cell->waiters.first : cell->tries.first;

    cell->turn_taken = next != NULL;
    if (next) {
        call(cell, next);
        return;
    }
    cell->said_taken = false;
    note_outage(cell, NULL, 0);
    drop_if_unused(cell);
}

/* The same with an attempt that goes on, if it fits: true. */
static bool pass_on_with(struct dibs__cell *cell, struct dibs__lease *lease)
{
    struct waiter *first = cell->waiters.first;

    if (!first || !fits(lease, first->turn))
        return false;
    dibs__lease_ref(lease);
    first->turn->lease = lease;
    cell->turn_taken = true;
    call(cell, first);
    return true;
}

/* The name is not held here any more. */
static void let_go(struct dibs__cell *cell)
{
    cell->held = NULL;
    cell->parked = false;
}

/* A lease that is lost keeps nobody waiting; nor does one that is parked, if it fits. True: the caller has its turn. */
static bool take_at_once(struct dibs__cells *cells, struct dibs__cell *cell, struct dibs__turn *turn)
{
    if (cell->held && dibs__lease_is_lost(cell->held, dibs__now(cells->clock))) {
        let_go(cell);
        if (cell->waiters.first)
            pass_on(cell);
    }
    if (cell->parked && fits(cell->held, turn)) {
        take_over(cell, turn);
        return true;
    }
    if (cell->held || cell->turn_taken)
        return false;
    cell->turn_taken = true;
    return true;
}

static bool is_first_at_parked(const struct dibs__cell *cell, const struct waiter *waiter)
{
    return cell->parked && cell->waiters.first == waiter && fits(cell->held, waiter->turn);
}

static bool over(const struct dibs__cells *cells, const struct dibs__cell *cell, const struct waiter *waiter)
{
    return waiter->called || waiter->answer != DIBS_OK || is_first_at_parked(cell, waiter) ||
           atomic_load(cells->closing) || dibs__now(cells->clock) >= waiter->turn->deadline;
}

static bool is_known(const struct dibs__cell *cell)
{
    return cell->held || cell->said_taken || cell->outage;
}

/* What is known of a name that the caller has not got. */
static dibs_status what_is_known(const struct dibs__cell *cell, struct dibs__turn *turn)
{
    if (!is_known(cell))
        return DIBS_TIMEOUT;
    if (!cell->outage)
        return DIBS_BUSY;
    *turn->outage = *cell->outage;
    return turn->outage->error.status;
}

/* The thread with the turn asks often enough for the one that comes to wait behind it, too. */
static void hurry(struct dibs__cell *cell, const struct dibs__turn *turn, int64_t now)
{
    int64_t by = dibs__after_ms(now, turn->lease_ms / 3);

    if (!cell->asleep || by >= cell->ask_by)
        return;
    cell->ask_by = by;
    pthread_cond_signal(cell->asleep->bid.sleeper);
}

static void enter(struct dibs__cell *cell, struct waiter *waiter)
{
    struct dibs__turn *turn = waiter->turn;

    enqueue(turn->one_try ? &cell->tries : &cell->waiters, waiter);
    if (turn->one_try)
        return;
    if (!turn->waited)
        atomic_fetch_add_explicit(turn->contended, 1, memory_order_relaxed);
    turn->waited = true;
    hurry(cell, turn, waiter->since);
}

/* Lets go of the mutex while it sleeps. */
static dibs_status wait_for_turn(struct dibs__cells *cells, struct dibs__cell *cell, struct dibs__turn *turn)
{
    struct waiter waiter = {.turn = turn, .since = dibs__now(cells->clock)};

    if (dibs__cond_init(&waiter.cond) != 0)
        return DIBS_NO_MEMORY;
    enter(cell, &waiter);
    while (!over(cells, cell, &waiter))
        cells->clock->wait(cells->clock, &waiter.cond, &cell->shard->mutex, turn->deadline);
    pthread_cond_destroy(&waiter.cond);
    if (waiter.called || waiter.answer != DIBS_OK)
        return waiter.answer;
    bool takes_parked = is_first_at_parked(cell, &waiter); /* also when its time is over: else nobody would have it */
    dequeue(&waiter);
    if (takes_parked) {
        take_over(cell, turn);
        return DIBS_OK;
    }
    return atomic_load(cells->closing) ? DIBS_CLOSED : what_is_known(cell, turn);
}

dibs_status dibs__cell_take_turn(struct dibs__cells *cells, struct dibs__turn *turn)
{
    uint64_t hash = dibs__hash(turn->name, turn->name_size);
    struct shard *shard = shard_of(cells, hash);
    dibs_status status = DIBS_OK;

    turn->kind = DIBS__TURN_TO_ASK;
    turn->lease = NULL;
    turn->outage_since = 0;
    shard_mutex_lock(&shard->mutex);
    turn->cell = find_or_add(shard, hash, turn->name, turn->name_size);
    if (!turn->cell)
        status = DIBS_NO_MEMORY;
    else if (!take_at_once(cells, turn->cell, turn))
        status = turn->one_try && is_known(turn->cell) ? what_is_known(turn->cell, turn)
                                                       : wait_for_turn(cells, turn->cell, turn);
    shard_mutex_unlock(&shard->mutex);
    return status;
}

/* -------------------------------------------------------- asking the store */

void dibs__cell_bid(struct dibs__cells *cells, struct dibs__cell *cell, struct dibs__lease *lease)
{
    (void)cells;
    shard_mutex_lock(&cell->shard->mutex);
    list(cell, lease);
    shard_mutex_unlock(&cell->shard->mutex);
}

struct dibs__cell *dibs__cells_bid_fair(struct dibs__cells *cells, struct dibs__lease *lease)
{
    uint64_t hash = dibs__hash(lease->name, lease->name_size);
    struct shard *shard = shard_of(cells, hash);

    shard_mutex_lock(&shard->mutex);
    struct dibs__cell *cell = find_or_add(shard, hash, lease->name, lease->name_size);
    if (cell)
        list(cell, lease);
    shard_mutex_unlock(&shard->mutex);
    return cell;
}

void dibs__cells_bid_behind(struct dibs__cells *cells, struct dibs__lease *lease, struct dibs__lease *next)
{
    struct shard *shard;
    struct dibs__cell *cell = lock_cell_of(cells, lease, &shard);

    if (cell)
        list(cell, next);
    shard_mutex_unlock(&shard->mutex);
}

void dibs__cell_set_token(struct dibs__cells *cells, struct dibs__cell *cell, struct dibs__lease *lease,
                          const char *token)
{
    (void)cells;
    shard_mutex_lock(&cell->shard->mutex);
    dibs__tokens_take_out(&cell->shard->tokens, lease);
    strcpy(lease->token, token);
    dibs__tokens_put(&cell->shard->tokens, lease);
    lease->bid.push = (struct dibs__push){.fence = 0};
    shard_mutex_unlock(&cell->shard->mutex);
}

/* When the thread with the turn asks again, if not before: at its deadline, or as those who wait behind it want it. */
static int64_t ask_by(const struct dibs__cell *cell, int64_t deadline, int64_t now)
{
    int64_t by = deadline;

    for (const struct waiter *at = cell->waiters.first; at; at = at->next) {
        int64_t its = dibs__after_ms(now, at->turn->lease_ms / 3);
        by = its < by ? its : by;
    }
    return by;
}

/* It is the one that the others here wait for. */
static void fall_asleep(struct dibs__cells *cells, struct dibs__cell *cell, struct dibs__lease *lease,
                        const struct dibs__sleep *sleep)
{
    int64_t now = dibs__now(cells->clock);

    note_outage(cell, sleep->outage, now);
    cell->said_taken = !sleep->outage;
    answer_tries(cell, sleep->outage ? &sleep->outage->error : NULL);
    cell->asleep = lease;
    cell->ask_by = ask_by(cell, sleep->deadline, now);
}

/* Requires the shard's mutex; lets go of it while it sleeps. */
static void sleep_for_the_store(struct dibs__cells *cells, struct dibs__cell *cell, struct dibs__lease *lease,
                                const struct dibs__sleep *sleep)
{
    struct dibs__asking *bid = &lease->bid;

    bid->sleeper = sleep->cond;
    while (bid->push.fence == 0 && !bid->hinted && !atomic_load(cells->closing)) {
        int64_t until = cell->asleep == lease ? cell->ask_by : sleep->deadline;
        if (dibs__now(cells->clock) >= until)
            break;
        cells->clock->wait(cells->clock, sleep->cond, &cell->shard->mutex, until);
    }
    bid->sleeper = NULL;
}

struct dibs__push dibs__cell_sleep(struct dibs__cells *cells, struct dibs__cell *cell, struct dibs__lease *lease,
                                   const struct dibs__sleep *sleep)
{
    struct dibs__asking *bid = &lease->bid;

    shard_mutex_lock(&cell->shard->mutex);
    if (!lease->fair)
        fall_asleep(cells, cell, lease, sleep);
    sleep_for_the_store(cells, cell, lease, sleep);
    if (!lease->fair)
        cell->asleep = NULL;
    struct dibs__push push = bid->push;
    bid->push.fence = 0;
    bid->hinted = false;
    shard_mutex_unlock(&cell->shard->mutex);
    return push;
}

void dibs__cell_granted(struct dibs__cells *cells, struct dibs__cell *cell, struct dibs__lease *lease)
{
    struct shard *shard = cell->shard;

    (void)cells;
    shard_mutex_lock(&shard->mutex);
    note_outage(cell, NULL, 0);
    cell->said_taken = false;
    answer_tries(cell, NULL);
    if (atomic_load(&lease->loss_told)) { /* its end came before this */
        unlist(cell, lease);
        pass_on(cell);
    } else {
        cell->held = lease;
        cell->turn_taken = false;
    }
    shard_mutex_unlock(&shard->mutex);
}

/* Those whose patience with the store is over leave with the outage of the thread that found it. */
static void fail_impatient(struct dibs__cell *cell, const struct dibs__error *error, int64_t now)
{
    for (struct waiter *at = cell->waiters.first, *next; at; at = next) {
        next = at->next;
        if (now >= at->turn->patience)
            answer(at, error->status, error);
    }
}

/* What the thread with the turn knows, others need not find out. */
static void hear(struct dibs__cell *cell, const struct dibs__leaving *leaving, int64_t now)
{
    bool failed = leaving->learned == DIBS__LEARNED_FAILURE || leaving->learned == DIBS__LEARNED_OUTAGE;

    cell->said_taken = leaving->learned == DIBS__LEARNED_TAKEN;
    if (cell->said_taken || (failed && leaving->error->status != DIBS_UNAVAILABLE)) /* the store was heard */
        note_outage(cell, NULL, 0);
    if (leaving->learned == DIBS__LEARNED_OUTAGE)
        fail_impatient(cell, leaving->error, now);
    if (failed || cell->said_taken)
        answer_tries(cell, failed ? leaving->error : NULL);
}

bool dibs__cell_give_up(struct dibs__cells *cells, struct dibs__cell *cell, struct dibs__lease *lease,
                        const struct dibs__leaving *leaving)
{
    struct shard *shard = cell->shard;
    bool passed = false;

    shard_mutex_lock(&shard->mutex);
    bool fair = lease && lease->fair;
    if (!fair)
        hear(cell, leaving, dibs__now(cells->clock));
    if (leaving->pass_on && !fair)
        passed = pass_on_with(cell, lease);
    if (lease && !passed)
        unlist(cell, lease);
    if (fair)
        drop_if_unused(cell);
    else if (!passed)
        pass_on(cell);
    shard_mutex_unlock(&shard->mutex);
    return passed;
}

/* ------------------------------------------------------------------ parting */

/* Whether the lease may go on to another thread here, at this time. */
static bool may_be_handed(const struct dibs__cells *cells, const struct dibs__lease *lease, int64_t now)
{
    int64_t half = lease->asked_ms * DIBS__NS_PER_MS / 2;

    return !lease->fixed && now - lease->granted_at < cells->handoff &&
           atomic_load_explicit(&lease->step, memory_order_relaxed) < DIBS__FENCE_STEPS - 1 &&
           !atomic_load_explicit(&lease->extended, memory_order_relaxed) &&
           atomic_load_explicit(&lease->deadline, memory_order_relaxed) - now >= half;
}

/* To the first waiter if it waited for long; else whoever comes first may take it. */
static void hand_on(struct dibs__cell *cell, int64_t now)
{
    struct waiter *first = cell->waiters.first;

    if (now - first->since > LONG_WAIT) {
        take_over(cell, first->turn);
        call(cell, first);
    } else {
        cell->parked = true;
        pthread_cond_signal(&first->cond);
    }
}

enum dibs__parting dibs__cells_part(struct dibs__cells *cells, struct dibs__lease *lease, struct dibs__wanted *next)
{
    enum dibs__parting parting = DIBS__PART_RELEASE;
    struct shard *shard;
    struct dibs__cell *cell = lock_cell_of(cells, lease, &shard);

    if (cell && cell->held == lease && cell->waiters.first) {
        const struct dibs__turn *turn = cell->waiters.first->turn;
        int64_t now = dibs__now(cells->clock);
        *next = (struct dibs__wanted){turn->lease_ms, turn->fixed};
        parting = DIBS__PART_REQUEUE;
        if (may_be_handed(cells, lease, now) && fits(lease, turn)) {
            hand_on(cell, now);
            parting = DIBS__PART_HANDED;
        }
    }
    shard_mutex_unlock(&shard->mutex);
    return parting;
}

bool dibs__cells_end(struct dibs__cells *cells, struct dibs__lease *lease, struct dibs__lease *next)
{
    struct shard *shard;
    struct dibs__cell *cell = lock_cell_of(cells, lease, &shard);
    bool passed = false;

    if (cell) {
        bool was_held = cell->held == lease;
        unlist(cell, lease);
        if (was_held) {
            let_go(cell);
            cell->said_taken = next && next->bid.answered && next->bid.status == DIBS_BUSY;
            passed = next && next->bid.answered && pass_on_with(cell, next);
        }
        if (next && !passed)
            unlist(cell, next);
        if (was_held && !passed)
            pass_on(cell);
        else
            drop_if_unused(cell);
    }
    shard_mutex_unlock(&shard->mutex);
    return passed;
}

/* -------------------------------------------------------- what the store says */

bool dibs__cells_push(struct dibs__cells *cells, const struct dibs__grant *grant)
{
    struct shard *shard = shard_of(cells, dibs__hash(grant->name, strlen(grant->name)));

    shard_mutex_lock(&shard->mutex);
    struct dibs__lease *lease = dibs__tokens_find(&shard->tokens, grant->token);
    if (lease && strcmp(lease->name, grant->name) != 0)
        lease = NULL;
    if (lease) {
        lease->bid.push = (struct dibs__push){grant->number, grant->fence, grant->confirm};
        if (lease->bid.sleeper)
            pthread_cond_signal(lease->bid.sleeper);
    }
    shard_mutex_unlock(&shard->mutex);
    return lease != NULL;
}

static void wake_all_in(const struct queue *queue)
{
    for (struct waiter *at = queue->first; at; at = at->next)
        pthread_cond_signal(&at->cond);
}

static void wake_askers(struct dibs__cell *cell, bool hint)
{
    for (struct dibs__lease *lease = cell->leases; lease; lease = lease->bid.next) {
        lease->bid.hinted = lease->bid.hinted || hint;
        if (lease->bid.sleeper)
            pthread_cond_signal(lease->bid.sleeper);
    }
}

static void wake(struct dibs__cells *cells, bool closing)
{
    for (size_t i = 0; i < SHARDS; i++) {
        struct shard *shard = &cells->shards[i];
        shard_mutex_lock(&shard->mutex);
        for (size_t b = 0; b < shard->bucket_count; b++) {
            for (struct dibs__cell *cell = shard->buckets[b]; cell; cell = cell->next) {
                wake_askers(cell, !closing);
                if (!closing)
                    continue;
                wake_all_in(&cell->waiters);
                wake_all_in(&cell->tries);
            }
        }
        shard_mutex_unlock(&shard->mutex);
    }
}

void dibs__cells_ask_again(struct dibs__cells *cells)
{
    wake(cells, false);
}

void dibs__cells_wake_all(struct dibs__cells *cells)
{
    wake(cells, true);
}

/* ---------------------------------------------------------------- lifecycle */

/* False: one could not be made, and there are none. */
static bool make_mutexes(struct dibs__cells *cells)
{
    size_t made = 0;

    while (made < SHARDS && dibs__mutex_init(&cells->shards[made].mutex) == 0)
        made++;
    if (made == SHARDS)
        return true;
    while (made-- > 0)
        dibs__mutex_destroy(&cells->shards[made].mutex);
    return false;
}

struct dibs__cells *dibs__cells_new(const struct dibs__clock *clock, const atomic_bool *closing, uint32_t handoff_ms)
{
    struct dibs__cells *cells = calloc(1, sizeof *cells);

    if (!cells || !make_mutexes(cells)) {
        free(cells);
        return NULL;
    }
    cells->clock = clock;
    cells->closing = closing;
    cells->handoff = handoff_ms == DIBS_NO_HANDOFF ? 0 : handoff_ms * DIBS__NS_PER_MS;
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
            struct dibs__cell *cell = shard->buckets[bucket];
            while (cell->leases) /* NOLINT(clang-analyzer-unix.Malloc): remove_cell took it out of its bucket */
                unlist(cell, cell->leases);
            remove_cell(cell);
        }
        free(shard->buckets); /* there without a cell where memory ran out */
        dibs__mutex_destroy(&shard->mutex);
    }
    free(cells);
}
