/*
 * Lock discipline: the store's mutex guards the lists and the entries in them. No command is sent while it is held.
 *
 * An entry is either in a list or in a batch (retract_batch.h), which belongs to the scheduler thread.
 */
#include "store/redis/retractions.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "redis/buffer.h"
#include "store/redis/retract_batch.h"

#define AGAIN_FIRST_MS 20
#define AGAIN_LAST_MS 5000
#define TOGETHER_MS 10  /* what is due within this time is sent together */
#define BATCHES 4       /* number of commands under way; with their size, this bounds what a renewal waits for */
#define HOPS_AT_ONCE 3  /* how often an entry goes from node to node of a cluster without a pause */
#define HOP_LAST_MS 500 /* the longest pause after that */
#define SLACK_MS 1000   /* how far the server's clock and ours may differ while a lease runs out */
/* Entries whose time is over are dropped together, at most this late, because that takes a look at all of them. */
#define ENDS_MS 1000

struct list {
    struct dibs__retraction *first, **end; /* end: valid unless the list is empty */
};

struct dibs__retractions {
    struct dibs__mutex *mutex;                             /* read-only */
    struct dibs__store_config config;                      /* read-only */
    struct list ready DIBS__GUARDED_BY(dibs__redis_mutex); /* due, but not sent yet */
    struct list later DIBS__GUARDED_BY(dibs__redis_mutex);
    int64_t later_due DIBS__GUARDED_BY(dibs__redis_mutex); /* no entry in `later` is due before */
    bool taken[BATCHES];                                   /* scheduler thread only */
    size_t taken_count;                                    /* scheduler thread only */
    struct dibs__retract_batch batches[BATCHES];           /* scheduler thread only */
    atomic_size_t count;                                   /* written under mutex; number of all entries */
    const struct dibs__channel *carrier;                   /* scheduler thread only; as at the last attend */
    uint64_t carrier_serial;                               /* scheduler thread only; of the carrier's connection then */
    uint64_t carriers;        /* scheduler thread only; number of carrier connections so far */
    int64_t changed_at;       /* scheduler thread only; as at the last attend */
    struct dibs__buffer text; /* scheduler thread only; for the words of the batches */
};

/* --------------------------------------------------------------------- lists */

static void append(struct list *list, struct dibs__retraction *entry)
{
    entry->next = NULL;
    *(list->first ? list->end : &list->first) = entry;
    list->end = &entry->next;
}

static struct dibs__retraction *take_first(struct list *list)
{
    struct dibs__retraction *entry = list->first;

    list->first = entry->next;
    return entry;
}

/* The entry is in no list. */
static void drop(struct dibs__retractions *all, struct dibs__retraction *entry) DIBS__REQUIRES(dibs__redis_mutex)
{
    atomic_fetch_sub(&all->count, 1);
    atomic_fetch_sub(&all->config.counters->unconfirmed, 1);
    free(entry);
}

/* When the entry, if it is still waiting then, is dropped because its time is over. */
static int64_t end_of(const struct dibs__retraction *entry)
{
    const int64_t step = ENDS_MS * DIBS__NS_PER_MS;

    return (entry->ends / step + 1) * step;
}

/*
 * The entry is sent again at that time, unless its time is over before. DIBS__NEVER: when there is another connection.
 */
static void put_off(struct dibs__retractions *all, struct dibs__retraction *entry, int64_t due)
    DIBS__REQUIRES(dibs__redis_mutex)
{
    int64_t end = end_of(entry);

    entry->due = due < end ? due : end;
    append(&all->later, entry);
    if (entry->due < all->later_due)
        all->later_due = entry->due;
}

/* Moves the entries that are due by that time to `ready`. */
static void make_due(struct dibs__retractions *all, int64_t by) DIBS__REQUIRES(dibs__redis_mutex)
{
    struct list later = all->later;

    all->later_due = DIBS__NEVER; /* even if `later` is empty, because its entries may have been given away */
    if (!later.first)
        return;
    all->later.first = NULL;
    while (later.first) {
        struct dibs__retraction *entry = take_first(&later);
        if (entry->due <= by)
            append(&all->ready, entry);
        else
            put_off(all, entry, entry->due);
    }
}

/* There is a new connection: entries that waited for one, or that a server refused, are due. */
static void make_all_due(struct dibs__retractions *all)
{
    dibs__redis_mutex_lock(all->mutex);
    for (struct dibs__retraction *at = all->later.first; at; at = at->next)
        dibs__backoff_reset(&at->backoff);
    make_due(all, DIBS__NEVER);
    dibs__redis_mutex_unlock(all->mutex);
}

/* ------------------------------------------------------------------- batches */

/* The next entry to be sent. Drops entries whose tokens can't have left anything by now. NULL: there is none. */
static struct dibs__retraction *next_ready(struct dibs__retractions *all, int64_t now) DIBS__REQUIRES(dibs__redis_mutex)
{
    while (all->ready.first && all->ready.first->ends <= now)
        drop(all, take_first(&all->ready));
    return all->ready.first;
}

static void fill(struct dibs__retractions *all, struct dibs__retract_batch *batch, int64_t now)
    DIBS__REQUIRES(dibs__redis_mutex)
{
    struct dibs__retraction *next;

    batch->count = 0;
    batch->untracked = false;
    while (batch->count < DIBS__RETRACT_BATCH_MAX && (next = next_ready(all, now))) {
        if (batch->count > 0 && !dibs__retract_batch_takes_both(batch->entries[0], next))
            return;
        next->surpasses = all->changed_at > 0 && now < dibs__after_ms(all->changed_at, next->lease_ms);
        batch->entries[batch->count++] = take_first(&all->ready);
    }
}

/* Takes a batch, with entries that are ready. NULL: none is ready, or enough batches are under way. */
static struct dibs__retract_batch *take_batch(struct dibs__retractions *all, int64_t now)
{
    struct dibs__retract_batch *batch = NULL;
    size_t i = 0;

    dibs__redis_mutex_lock(all->mutex);
    if (all->later_due <= now)
        make_due(all, dibs__after_ms(now, TOGETHER_MS));
    if (next_ready(all, now) && all->taken_count < BATCHES) {
        while (all->taken[i])
            i++;
        all->taken[i] = true;
        all->taken_count++;
        batch = &all->batches[i];
        fill(all, batch, now);
    }
    dibs__redis_mutex_unlock(all->mutex);
    return batch;
}

/*
 * Forwards the entry to that node; to NULL: to the one that has the slot. Not under the mutex, because the other node
 * has a mutex of the same class.
 */
static void give_away(const struct dibs__retractions *all, const struct dibs__retraction *entry, void *to, bool asking)
    DIBS__EXCLUDES(dibs__redis_mutex)
{
    const struct dibs__node_hooks *node = all->config.node;
    struct dibs__forwarded_retraction forwarded = {.name = entry->name,
                                                   .token = entry->token,
                                                   .fence = strtoull(entry->fence, NULL, 10),
                                                   .ends = entry->ends,
                                                   .lease_ms = entry->lease_ms,
                                                   .not_after = entry->route.not_after,
                                                   .asking = asking,
                                                   .hops = entry->hops,
                                                   .backoff = entry->backoff};

    node->forward(node->context, to, &forwarded);
}

static void end_one(struct dibs__retractions *all, const struct dibs__retract_batch *batch, size_t i)
    DIBS__REQUIRES(dibs__redis_mutex)
{
    int64_t now = dibs__now(all->config.clock);
    struct dibs__retraction *entry = batch->entries[i];
    const struct dibs__retract_end *end = &batch->ends[i];

    switch (end->ending) {
    case DIBS__RETRACT_CONFIRMED:
    case DIBS__RETRACT_ELSEWHERE:
        drop(all, entry);
        break;
    case DIBS__RETRACT_AT_ONCE:
        append(&all->ready, entry);
        break;
    case DIBS__RETRACT_LATER:
        put_off(all, entry, dibs__after_ms(now, dibs__backoff_next(&entry->backoff, AGAIN_LAST_MS)));
        break;
    case DIBS__RETRACT_AFTER:
        put_off(all, entry, dibs__after_ms(now, end->pause_ms));
        break;
    case DIBS__RETRACT_DISCONNECTED:
        if (batch->carriers == all->carriers)
            put_off(all, entry, DIBS__NEVER);
        else /* another connection came meanwhile, so there is none to wait for */
            append(&all->ready, entry);
        break;
    }
}

static void on_ended(struct dibs__retract_batch *batch)
{
    struct dibs__retractions *all = batch->context;
    const struct dibs__listener *listener = &all->config.listener;

    for (size_t i = 0; i < batch->count; i++) {
        const struct dibs__redirect *redirect = &batch->ends[i].redirect;
        if (batch->ends[i].ending == DIBS__RETRACT_ELSEWHERE)
            give_away(all, batch->entries[i], redirect->to, redirect->kind == DIBS__REDIRECT_ASK);
        else if (batch->untracked)
            listener->changed(listener->context, batch->entries[i]->name);
    }
    dibs__redis_mutex_lock(all->mutex);
    for (size_t i = 0; i < batch->count; i++)
        end_one(all, batch, i);
    dibs__redis_mutex_unlock(all->mutex);
    all->taken[batch - all->batches] = false;
    all->taken_count--;
}

/* ------------------------------------------------------------------ contract */

static void see_connection(struct dibs__retractions *all, struct dibs__channel *carrier)
{
    struct dibs__link_view view;

    if (!dibs__channel_view(carrier, &view) || (carrier == all->carrier && view.serial == all->carrier_serial))
        return;
    all->carrier = carrier;
    all->carrier_serial = view.serial;
    all->carriers++;
    make_all_due(all);
}

void dibs__retractions_attend(struct dibs__retractions *all, struct dibs__channel *carrier, int64_t changed_at)
{
    struct dibs__retract_batch *batch;

    if (dibs__retractions_count(all) == 0)
        return;
    all->changed_at = changed_at;
    see_connection(all, carrier);
    while ((batch = take_batch(all, dibs__now(all->config.clock)))) {
        batch->carrier = carrier;
        batch->carriers = all->carriers;
        dibs__retract_batch_send(batch);
    }
}

int64_t dibs__retractions_deadline(struct dibs__retractions *all)
{
    if (dibs__retractions_count(all) == 0)
        return DIBS__NEVER;
    dibs__redis_mutex_lock(all->mutex);
    int64_t deadline = all->later_due;
    if (all->ready.first)
        deadline = 0;
    dibs__redis_mutex_unlock(all->mutex);
    return all->taken_count == BATCHES ? DIBS__NEVER : deadline; /* all batches are out: their answers come first */
}

size_t dibs__retractions_count(struct dibs__retractions *all)
{
    return atomic_load(&all->count);
}

/*
 * An ask that is still on its way may arrive a command timeout later, and then begin a lease, or a place in the queue
 * of twice that length. NULL: no memory.
 */
static struct dibs__retraction *new_entry(const struct dibs__retractions *all, const char *name, const char *token,
                                          uint32_t lease_ms, uint64_t fence, const struct dibs__route *route)
{
    size_t token_size = strlen(token) + 1, name_size = strlen(name) + 1;
    struct dibs__retraction *entry = calloc(1, sizeof *entry + token_size + name_size);

    if (!entry)
        return NULL;
    if (route)
        entry->route = *route;
    entry->ends =
        dibs__after_ms(dibs__now(all->config.clock), all->config.command_timeout_ms + INT64_C(2) * lease_ms + SLACK_MS);
    entry->backoff.first_ms = AGAIN_FIRST_MS;
    entry->alone = all->config.node != NULL;
    entry->lease_ms = lease_ms;
    snprintf(entry->fence, sizeof entry->fence, "%" PRIu64, fence);
    memcpy(entry->token, token, token_size);
    entry->name = memcpy(entry->token + token_size, name, name_size);
    return entry;
}

/* due: when the entry is sent; 0: at once. */
static void enlist(struct dibs__retractions *all, struct dibs__retraction *entry, int64_t due)
{
    dibs__redis_mutex_lock(all->mutex);
    atomic_fetch_add(&all->count, 1);
    atomic_fetch_add(&all->config.counters->unconfirmed, 1);
    if (due > 0)
        put_off(all, entry, due);
    else
        append(&all->ready, entry);
    dibs__redis_mutex_unlock(all->mutex);
    all->config.listener.wake(all->config.listener.context);
}

void dibs__retractions_add(struct dibs__retractions *all, const char *name, const char *token, uint32_t lease_ms,
                           uint64_t fence, const struct dibs__route *route)
{
    struct dibs__retraction *entry = new_entry(all, name, token, lease_ms, fence, route);

    if (entry)
        enlist(all, entry, 0);
}

void dibs__retractions_take(struct dibs__retractions *all, const struct dibs__forwarded_retraction *forwarded)
{
    const struct dibs__route route = {.channel = NULL, .not_after = forwarded->not_after};
    struct dibs__retraction *entry =
        new_entry(all, forwarded->name, forwarded->token, forwarded->lease_ms, forwarded->fence, &route);
    int64_t due = 0;

    if (!entry)
        return;
    entry->ends = forwarded->ends;
    entry->asking = forwarded->asking;
    entry->hops = forwarded->hops + 1;
    entry->backoff = forwarded->backoff;
    if (entry->hops > HOPS_AT_ONCE)
        due = dibs__after_ms(dibs__now(all->config.clock), dibs__backoff_next(&entry->backoff, HOP_LAST_MS));
    enlist(all, entry, due);
}

/* Moves the entries whose names other nodes have from the list to `away`. */
static void sort_out(struct list *list, struct list *away, const struct dibs__node_hooks *node)
{
    struct list all = *list;

    if (!all.first)
        return;
    list->first = NULL;
    while (all.first) {
        struct dibs__retraction *entry = take_first(&all);
        append(node->is_away(node->context, entry->name) ? away : list, entry);
    }
}

void dibs__retractions_give(struct dibs__retractions *all)
{
    struct list away = {.first = NULL};

    dibs__redis_mutex_lock(all->mutex);
    sort_out(&all->ready, &away, all->config.node);
    sort_out(&all->later, &away, all->config.node);
    dibs__redis_mutex_unlock(all->mutex);
    while (away.first) {
        struct dibs__retraction *entry = take_first(&away);
        give_away(all, entry, NULL, false);
        dibs__redis_mutex_lock(all->mutex);
        drop(all, entry);
        dibs__redis_mutex_unlock(all->mutex);
    }
}

/* ----------------------------------------------------------------- lifecycle */

struct dibs__retractions *dibs__retractions_new(const struct dibs__store_config *config, struct dibs__mutex *mutex)
{
    struct dibs__retractions *all = calloc(1, sizeof *all);

    if (!all)
        return NULL;
    all->config = *config;
    all->mutex = mutex;
    for (size_t i = 0; i < BATCHES; i++) {
        all->batches[i].key_prefix = config->key_prefix;
        all->batches[i].node = config->node;
        all->batches[i].text = &all->text;
        all->batches[i].on_ended = on_ended;
        all->batches[i].context = all;
    }
    return all;
}

void dibs__retractions_free(struct dibs__retractions *all)
{
    if (!all)
        return;
    dibs__redis_mutex_lock(all->mutex);
    while (all->ready.first)
        free(take_first(&all->ready));
    while (all->later.first)
        free(take_first(&all->later));
    dibs__redis_mutex_unlock(all->mutex);
    dibs__buffer_free(&all->text);
    free(all);
}
