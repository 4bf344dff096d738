/*
 * Lock discipline: that of cells.h. An acquire that asks the store rests, without the mutex, until
 *     something was pushed (asker->push), or
 *     the acquire is hinted (asker->hinted), or
 *     the acquire must ask because of a change (asker->change_pending), and its rest after the last such ask is
 *         over (asker->rest_until), or
 *     the runtime is closing, or
 *     the time comes to ask again (asker->ask_by).
 * Whoever changes one of these wakes asker->wait_event.
 */
#include "core/asker.h"

#include <stdlib.h>
#include <string.h>

#define REST_FIRST_MS 2  /* the longest pause between two asks because of changes; doubled each time */
#define REST_MOST_MS 100 /* up to this, which is about how often a thread asks that is not notified of changes */

/* -------------------------------------------------------------------- begin */

/* Whether the oldest acquire without a grant is a fair one that waits in the store's queue. */
static bool is_waited_for(const struct dibs__cell *cell) DIBS__REQUIRES(dibs__shard_mutex)
{
    const struct dibs__lease *first = cell->asked;

    return first && first->turnless && !first->shared && first->asker->wait_event && first->asker->push.fence == 0;
}

struct dibs__cell *dibs__asker_begin(struct dibs__cells *cells, struct dibs__lease *lease)
{
    struct dibs__shard *shard;
    struct dibs__cell *cell = dibs__cells_lock_or_add(cells, lease->name, lease->name_size, &shard);

    if (cell) {
        lease->asker->behind = lease->turnless && !lease->shared && is_waited_for(cell);
        DIBS__REQUIRE(!lease->listing.previous);
        dibs__lease_ref(lease);
        DIBS__LIST_APPEND(cell->asked, lease, listing);
    }
    dibs__shard_mutex_unlock(&shard->mutex);
    return cell;
}

void dibs__asker_set_token(struct dibs__cell *cell, struct dibs__lease *lease, const struct dibs__token *token)
{
    dibs__shard_mutex_lock(&cell->shard->mutex);
    DIBS__REQUIRE(lease->listing.previous && lease->asker);
    lease->token = *token;
    lease->asker->push = (struct dibs__push){.fence = 0};
    dibs__shard_mutex_unlock(&cell->shard->mutex);
}

/* --------------------------------------------------------------------- rest */

/* When the thread with the turn asks again: at its deadline, or sooner because of a thread that waits behind it. */
static int64_t ask_by(const struct dibs__cell *cell, int64_t deadline, int64_t now) DIBS__REQUIRES(dibs__shard_mutex)
{
    int64_t by = deadline;

    for (const struct dibs__waiter *at = cell->waiters; at; at = at->links.next)
        by = dibs__earlier(by, dibs__after_ms(now, at->wish.lease_ms / 3));
    return by;
}

/* Shows the threads behind the thread with the turn that it rests, for which lease, and why. */
static void show_resting(struct dibs__cells *cells, struct dibs__cell *cell, struct dibs__lease *lease,
                         int64_t deadline, struct dibs__outage *outage) DIBS__REQUIRES(dibs__shard_mutex)
{
    int64_t now = dibs__now(cells->clock);

    DIBS__REQUIRE(cell->state == DIBS__CELL_ASKED && !cell->lease);
    dibs__waiters_note_outage(cell, outage, now);
    cell->said_taken = !outage;
    dibs__waiters_fail_tries(cell, outage);
    cell->lease = lease;
    lease->asker->ask_by = ask_by(cell, deadline, now);
}

/*
 * The thread asks because of a change. If it must do so again soon, somebody may be changing the lock all the time: the
 * thread then rests for longer before the next ask.
 */
static void pace_asks(struct dibs__asker *asker, int64_t now) DIBS__REQUIRES(dibs__shard_mutex)
{
    asker->change_pending = false;
    asker->rest.first_ms = REST_FIRST_MS;
    if (now > dibs__after_ms(asker->rest_until, REST_MOST_MS))
        dibs__backoff_reset(&asker->rest);
    asker->rest_until = dibs__after_ms(now, dibs__backoff_next(&asker->rest, REST_MOST_MS));
}

/* Whether the thread's rest is over. *until: when it ends at the latest. */
static bool is_rested(const struct dibs__cells *cells, const struct dibs__asker *asker, int64_t *until)
    DIBS__REQUIRES(dibs__shard_mutex)
{
    *until = asker->change_pending ? dibs__earlier(asker->rest_until, asker->ask_by) : asker->ask_by;
    return asker->push.fence > 0 || asker->hinted || atomic_load(cells->closing) || dibs__now(cells->clock) >= *until;
}

static struct dibs__push end_rest(struct dibs__cells *cells, struct dibs__cell *cell, struct dibs__lease *lease)
    DIBS__REQUIRES(dibs__shard_mutex)
{
    struct dibs__push push = lease->asker->push;

    push.again = lease->asker->hinted || lease->asker->change_pending;
    lease->asker->wait_event = NULL;
    if (!lease->turnless)
        cell->lease = NULL;
    lease->asker->push.fence = 0;
    lease->asker->hinted = false;
    if (lease->asker->change_pending)
        pace_asks(lease->asker, dibs__now(cells->clock));
    return push;
}

void dibs__asker_rest(struct dibs__cells *cells, struct dibs__cell *cell, struct dibs__lease *lease, int64_t deadline,
                      struct dibs__wait_event *wait_event, struct dibs__outage *outage)
{
    dibs__shard_mutex_lock(&cell->shard->mutex);
    DIBS__REQUIRE(lease->asker && lease->listing.previous && !lease->asker->wait_event);
    lease->asker->ask_by = deadline;
    if (!lease->turnless)
        show_resting(cells, cell, lease, deadline, outage);
    lease->asker->wait_event = wait_event;
    dibs__shard_mutex_unlock(&cell->shard->mutex);
}

bool dibs__asker_rests(struct dibs__cells *cells, struct dibs__cell *cell, struct dibs__lease *lease, bool end,
                       int64_t *until, struct dibs__push *push)
{
    dibs__shard_mutex_lock(&cell->shard->mutex);
    bool rests = !is_rested(cells, lease->asker, until) && !end;
    if (!rests)
        *push = end_rest(cells, cell, lease);
    dibs__shard_mutex_unlock(&cell->shard->mutex);
    return rests;
}

bool dibs__asker_expect_change(struct dibs__cell *cell, struct dibs__lease *lease)
{
    struct dibs__asker *asker = lease->asker;

    dibs__shard_mutex_lock(&cell->shard->mutex);
    bool news = !asker->expects || asker->changed;
    asker->expects = true;
    asker->changed = false;
    dibs__shard_mutex_unlock(&cell->shard->mutex);
    return news;
}

/* ------------------------------------------------------- what the store says */

static struct dibs__lease *find_in(struct dibs__lease *list, uint64_t sequence) DIBS__REQUIRES(dibs__shard_mutex)
{
    while (list && list->token.sequence != sequence)
        list = list->listing.next;
    return list;
}

struct dibs__lease *dibs__cells_lock_token(struct dibs__cells *cells, const char *name, const char *token,
                                           struct dibs__shard **shard, struct dibs__cell **cell)
{
    uint64_t sequence;

    *cell = dibs__cells_lock(cells, name, strlen(name), shard);
    if (!*cell || !dibs__token_sequence(token, &sequence))
        return NULL;
    struct dibs__lease *asked = find_in((*cell)->asked, sequence);
    return asked ? asked : find_in((*cell)->granted, sequence);
}

bool dibs__askers_push(struct dibs__cells *cells, const struct dibs__grant *grant)
{
    struct dibs__shard *shard;
    struct dibs__cell *cell;
    struct dibs__lease *lease = dibs__cells_lock_token(cells, grant->name, grant->token, &shard, &cell);

    if (lease && lease->asker) {
        DIBS__LIST_REMOVE(cell->asked, lease, listing); /* so the lease of the next push is near the front */
        DIBS__LIST_APPEND(cell->asked, lease, listing);
        if (grant->fence == 0)
            lease->asker->hinted = true;
        else
            lease->asker->push = (struct dibs__push){grant->number, grant->fence, grant->confirm, false};
        if (lease->asker->wait_event)
            dibs__wait_event_wake(lease->asker->wait_event);
    }
    dibs__shard_mutex_unlock(&shard->mutex);
    return lease != NULL;
}

static void wake_asker(struct dibs__asker *asker, enum dibs__askers_news news) DIBS__REQUIRES(dibs__shard_mutex)
{
    asker->changed = asker->changed || news != DIBS__ASKERS_CLOSING;
    asker->change_pending = asker->change_pending || news == DIBS__ASKERS_CHANGED;
    asker->hinted = asker->hinted || news == DIBS__ASKERS_MISSED;
    if (asker->wait_event)
        dibs__wait_event_wake(asker->wait_event);
}

size_t dibs__askers_changed(struct dibs__cells *cells, const char *name, struct dibs__lease *held[DIBS__HELD_MOST])
{
    struct dibs__shard *shard;
    struct dibs__cell *cell = dibs__cells_lock(cells, name, strlen(name), &shard);
    size_t count = 0;

    for (struct dibs__lease *lease = cell ? cell->asked : NULL; lease; lease = lease->listing.next)
        if (lease->asker->expects)
            wake_asker(lease->asker, DIBS__ASKERS_CHANGED);
    for (struct dibs__lease *lease = cell ? cell->granted : NULL; lease; lease = lease->listing.next) {
        if (count < DIBS__HELD_MOST) {
            dibs__lease_ref(lease);
            held[count] = lease;
        }
        count++;
    }
    dibs__shard_mutex_unlock(&shard->mutex);
    return count;
}

static void wake_waiters(struct dibs__shard *shard, struct dibs__waiter *list) DIBS__REQUIRES(dibs__shard_mutex)
{
    for (struct dibs__waiter *at = list; at; at = at->links.next)
        dibs__waiters_wake(shard, at);
}

static void wake_cell(struct dibs__cell *cell, enum dibs__askers_news news) DIBS__REQUIRES(dibs__shard_mutex)
{
    for (struct dibs__lease *lease = cell->asked; lease; lease = lease->listing.next)
        wake_asker(lease->asker, news);
    if (news != DIBS__ASKERS_CLOSING)
        return;
    wake_waiters(cell->shard, cell->waiters);
    wake_waiters(cell->shard, cell->tries);
}

void dibs__askers_wake(struct dibs__cells *cells, enum dibs__askers_news news)
{
    for (size_t i = 0; i < DIBS__SHARDS; i++) {
        struct dibs__shard *shard = &cells->shards[i];
        dibs__shard_mutex_lock(&shard->mutex);
        for (size_t b = 0; b < shard->bucket_count; b++)
            for (struct dibs__cell *cell = shard->buckets[b]; cell; cell = cell->next)
                wake_cell(cell, news);
        dibs__waiters_unlock(shard);
    }
}
