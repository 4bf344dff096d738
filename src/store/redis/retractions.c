/*
 * The tokens that are being retracted: those of attempts whose outcome is in doubt, and of releases that the server did
 * not confirm. The scheduler deletes each token again and again, until the server says that it is gone for good, or
 * nothing of it can be left. Tokens are sent in batches. Only a few batches may be under way, so that a renewal never
 * waits behind more than those. At a node of a cluster each retraction is sent by itself, since each has a slot of its
 * own.
 *
 * Lock discipline: the store's mutex guards the lists and the entries in them. No command is sent while it is held.
 *
 * An entry is either in a list or in a batch, which belongs to the scheduler thread.
 */
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "redis/reply.h"
#include "store/redis/redis_store.h"

#define AGAIN_FIRST_MS 20
#define AGAIN_LAST_MS 5000
#define TOGETHER_MS 10  /* what is due within this time is sent together */
#define BATCH_MAX 64    /* tokens in one command */
#define BATCHES 4       /* number of commands under way; with their size, this bounds what a renewal waits for */
#define HOPS_AT_ONCE 3  /* how often an entry goes from node to node of a cluster without a pause */
#define HOP_LAST_MS 500 /* the longest pause after that */
#define SLACK_MS 1000   /* how far the server's clock and ours may differ while a lease runs out */
/* Entries whose time is over are dropped together, at most this late, because that takes a look at all of them. */
#define ENDS_MS 1000

/*
 * A token that is being retracted. It belongs to the list that it is in, and so is guarded by the store's mutex, or to
 * its batch, and so to the scheduler thread.
 */
struct retraction {
    DIBS__LINKS(struct retraction) links;   /* in the list */
    struct dibs__route route;               /* read-only once listed, except not_after, which its batch may set to 0 */
    struct dibs__forwarded_retraction what; /* what another node would be given, except its not_after; its texts are
                                               stored behind the struct. Read-only once listed, except asking and
                                               backoff, which is of the pauses between sendings */
    int64_t due;  /* when to look at the entry again; 0: at once; DIBS__NEVER: when there is another connection */
    bool is_done; /* set with the answer to its batch: the token is gone for good, or another node retracts it */
    bool alone;   /* the entry is sent by itself: a batch that it was in was refused, or each entry of this store has a
                     slot of its own */
    bool surpasses; /* set when a batch takes the entry; waiters may leave the lock to the token, because they saw it at
                       another server */
    char texts[];   /* read-only once listed */
};

/*
 * Entries that are sent in one command, because they take the same route. A batch never has more than one command
 * under way. It belongs to the scheduler thread, which also takes the answer (dibs__channel_submit).
 */
struct batch {
    struct dibs__retractions *all; /* read-only */
    bool untracked;   /* the server no longer reports changes of its keys if the command changes them (rule 33) */
    bool all_moved;   /* as of dibs__redis_turned_away */
    bool settled;     /* if the answer comes, nothing of the asks can arrive after it */
    bool lost_script; /* the answer before said that the server had lost the script */
    size_t count;     /* 0: the batch is not under way */
    struct retraction *entries[BATCH_MAX];
};

struct dibs__retractions {
    struct dibs__redis_store *store;                              /* read-only */
    struct retraction *ready DIBS__GUARDED_BY(dibs__redis_mutex); /* a list: due, but not sent yet */
    struct retraction *later DIBS__GUARDED_BY(dibs__redis_mutex); /* a list */
    int64_t later_due DIBS__GUARDED_BY(dibs__redis_mutex);        /* no entry in `later` is due before */
    struct batch batches[BATCHES];                                /* scheduler thread only */
    atomic_size_t count;                                          /* written under mutex; number of all entries */
    struct dibs__channel *carrier; /* scheduler thread only; as at the last attend: takes a batch if the connection of
                                      the asks is gone */
    uint64_t carrier_serial;       /* scheduler thread only; of the carrier's connection then; 0: there was none */
    int64_t changed_at;            /* scheduler thread only; as at the last attend */
};

/* --------------------------------------------------------------------- lists */

static struct retraction *take_first(struct retraction **list)
{
    struct retraction *entry = *list;

    DIBS__LIST_REMOVE(*list, entry, links);
    return entry;
}

/* The entry is in no list. */
static void drop(struct dibs__retractions *all, struct retraction *entry) DIBS__REQUIRES(dibs__redis_mutex)
{
    atomic_fetch_sub(&all->count, 1);
    atomic_fetch_sub(&all->store->config.counters->unconfirmed, 1);
    free(entry);
}

/* When the entry, if it is still waiting then, is dropped because its time is over. */
static int64_t end_of(const struct retraction *entry)
{
    const int64_t step = ENDS_MS * DIBS__NS_PER_MS;

    return (entry->what.ends / step + 1) * step;
}

/* The entry, which is in no list, is sent when it is due, unless its time is over before. */
static void enlist(struct dibs__retractions *all, struct retraction *entry) DIBS__REQUIRES(dibs__redis_mutex)
{
    int64_t end = end_of(entry);

    if (entry->due == 0) {
        DIBS__LIST_APPEND(all->ready, entry, links);
        return;
    }
    entry->due = entry->due < end ? entry->due : end;
    DIBS__LIST_APPEND(all->later, entry, links);
    if (entry->due < all->later_due)
        all->later_due = entry->due;
}

/* Moves the entries that are due by that time to `ready`. */
static void make_due(struct dibs__retractions *all, int64_t by) DIBS__REQUIRES(dibs__redis_mutex)
{
    struct retraction *later = all->later;

    all->later_due = DIBS__NEVER; /* even if `later` is empty, because its entries may have been given away */
    all->later = NULL;
    while (later) {
        struct retraction *entry = take_first(&later);
        entry->due = entry->due <= by ? 0 : entry->due;
        enlist(all, entry);
    }
}

/* There is a new connection: entries that waited for one, or that a server refused, are due. */
static void make_all_due(struct dibs__retractions *all)
{
    dibs__redis_mutex_lock(&all->store->mutex);
    for (struct retraction *at = all->later; at; at = at->links.next)
        dibs__backoff_reset(&at->what.backoff);
    make_due(all, DIBS__NEVER);
    dibs__redis_mutex_unlock(&all->store->mutex);
}

/* ------------------------------------------------------------ the end of a batch */

/* The batch was answered, or not sent. Its entries say when they are due, unless they are done. */
static void end_batch(struct batch *batch)
{
    struct dibs__retractions *all = batch->all;
    const struct dibs__listener *listener = &all->store->config.listener;

    for (size_t i = 0; i < batch->count && batch->untracked; i++)
        listener->changed(listener->context, batch->entries[i]->what.name);
    dibs__redis_mutex_lock(&all->store->mutex);
    for (size_t i = 0; i < batch->count; i++) {
        if (batch->entries[i]->is_done)
            drop(all, batch->entries[i]);
        else
            enlist(all, batch->entries[i]);
    }
    dibs__redis_mutex_unlock(&all->store->mutex);
    batch->count = 0;
}

/* The time after a pause, which is longer each time. */
static int64_t after_pause(const struct dibs__retractions *all, struct retraction *entry)
{
    return dibs__after_ms(dibs__now(all->store->config.clock), dibs__backoff_next(&entry->what.backoff, AGAIN_LAST_MS));
}

/* The batch could not be sent. If there is no connection, its entries wait for the next one. */
static void give_back(struct batch *batch)
{
    struct dibs__link_view view;
    bool connected = dibs__channel_view(batch->all->carrier, &view);

    for (size_t i = 0; i < batch->count; i++)
        batch->entries[i]->due = connected ? after_pause(batch->all, batch->entries[i]) : DIBS__NEVER;
    end_batch(batch);
}

/*
 * What the server said of the entry. A queue that was not served to its end is served further before the token counts
 * as gone. A token that does not have the lock is gone for good once none of its asks can arrive any more.
 */
static void take_code(const struct batch *batch, struct retraction *entry, int64_t server_us,
                      enum dibs__retract_code code)
{
    int64_t not_after = entry->route.not_after;
    bool is_gone = code == DIBS__RETRACT_GONE;

    entry->is_done = is_gone && (batch->settled || (not_after > 0 && server_us > not_after));
    if (code == DIBS__RETRACT_UNFINISHED)
        entry->due = 0;
    else if (is_gone && not_after > 0)
        entry->due = dibs__after_ms(dibs__now(batch->all->store->config.clock), (not_after - server_us) / 1000 + 1);
    else
        entry->due = after_pause(batch->all, entry);
}

/*
 * One entry may be the reason why the server refuses all: the right to its keys is missing, or they are in another
 * slot. A script that the server has lost is sent as text, at once the first time. reply NULL: there is no answer.
 */
static void take_answer(struct batch *batch, const redisReply *reply)
{
    bool lost_script =
        reply && dibs__script_wants_text(DIBS__SCRIPT_retract, reply, &batch->all->store->endpoint.scripts);
    bool refused = reply && !lost_script && batch->count > 1 && dibs__reply_is_final_error(reply);
    bool resends = lost_script && !batch->lost_script;
    int64_t server_us = 0;
    bool answered = reply && dibs__codec_read_retract(reply, batch->count, &server_us);

    for (size_t i = 0; i < batch->count; i++) {
        struct retraction *entry = batch->entries[i];
        entry->alone = entry->alone || refused;
        entry->due = 0; /* in another form */
        if (resends || refused)
            continue;
        enum dibs__retract_code code = answered ? dibs__codec_read_retracted(reply, i) : DIBS__RETRACT_REFUSED;
        if (code == DIBS__RETRACT_REFUSED) /* the slot may be here as a whole by now; else the node redirects anew */
            entry->what.asking = false;
        take_code(batch, entry, server_us, code);
    }
    batch->lost_script = lost_script;
}

/*
 * Forwards the entry to that node; to NULL: to the one that has the slot. Not under the mutex, because the other node
 * has a mutex of the same class.
 */
static void give_away(const struct dibs__retractions *all, const struct retraction *entry, void *to, bool asking)
    DIBS__EXCLUDES(dibs__redis_mutex)
{
    const struct dibs__node_hooks *node = all->store->config.node;
    struct dibs__forwarded_retraction forwarded = entry->what;

    forwarded.not_after = entry->route.not_after;
    forwarded.asking = asking;
    node->forward(node->context, to, &forwarded);
}

/*
 * The node redirected the only entry of a batch. The asks are settled if the batch settles them; one that still arrives
 * at this node is redirected, too. A node that was asked before the slot had moved there may also redirect the entry:
 * then the slot's own node must send it there again.
 */
static void take_redirect(struct batch *batch, const struct dibs__redirect *redirect)
{
    struct retraction *entry = batch->entries[0];

    DIBS__REQUIRE(batch->count == 1);
    entry->what.asking = redirect->asking;
    entry->is_done = redirect->to != NULL;
    if (!entry->is_done) {
        entry->due = after_pause(batch->all, entry);
        return;
    }
    if (batch->settled)
        entry->route.not_after = 0;
    give_away(batch->all, entry, redirect->to, redirect->kind == DIBS__REDIRECT_ASK);
    batch->untracked = false; /* nothing was changed here */
}

static void on_retracted(void *arg, const redisReply *reply, const struct dibs__error *error)
{
    struct batch *batch = arg;
    struct dibs__redirect redirect = {.asking = batch->entries[0]->what.asking};

    (void)error;
    if (reply && dibs__redis_turned_away(batch->all->store->config.node, &redirect, reply, batch->all_moved))
        take_redirect(batch, &redirect);
    else
        take_answer(batch, reply);
    end_batch(batch);
}

/* ----------------------------------------------------------------- the words */

/* Adds the keys of all entries, and then the tokens. */
static void write_words(const struct batch *batch, struct dibs__words *words)
{
    struct dibs__key key;

    for (size_t i = 0; i < batch->count; i++) {
        for (int kind = 0; kind < DIBS__KEYS; kind++) {
            dibs__key_of(&key, (enum dibs__key_kind)kind, batch->all->store->config.key_prefix,
                         batch->entries[i]->what.name);
            dibs__words_add(words, key.bytes, key.size);
        }
    }
    for (size_t i = 0; i < batch->count; i++)
        dibs__codec_retract(words, batch->entries[i]->what.token, batch->entries[i]->surpasses,
                            batch->entries[i]->what.fence);
}

/* --------------------------------------------------------------- the sending */

/* The server must not track what this script reads: for so many keys, that would multiply the script's cost. */
static bool send_retraction(struct batch *batch, struct dibs__channel *channel, const struct dibs__link_view *view)
{
    const struct retraction *first = batch->entries[0];
    struct dibs__redis_store *store = batch->all->store;
    struct dibs__call call = {.script = DIBS__SCRIPT_retract,
                              .key_count = batch->count * DIBS__KEYS,
                              .asking = first->what.asking,
                              .untracked = channel == store->background && !first->what.asking &&
                                           dibs__tracking_is_on(&store->tracking, view->serial)};

    batch->untracked = call.untracked;
    batch->all_moved = view->tells_parted;
    write_words(batch, &call.words);
    bool sent = dibs__call_submit(&call, channel, view, on_retracted, batch);
    dibs__words_free(&call.words);
    return sent;
}

/* The connection broke on which that of the asks was to be ended: this is tried on another. */
static void begin_again(struct batch *batch)
{
    for (size_t i = 0; i < batch->count; i++)
        batch->entries[i]->due = 0;
    end_batch(batch);
}

/* Only a reply that is the number of ended connections, 0 or 1, proves that nothing of the asks can arrive any more. */
static void on_killed(void *arg, const redisReply *reply, const struct dibs__error *error)
{
    struct batch *batch = arg;
    struct dibs__channel *carrier = batch->all->carrier;
    struct dibs__link_view view;

    (void)error;
    if (!reply) {
        begin_again(batch);
        return;
    }
    batch->settled = reply->type == REDIS_REPLY_INTEGER;
    if (!dibs__channel_view(carrier, &view) || !send_retraction(batch, carrier, &view))
        give_back(batch);
}

static bool send_kill(struct batch *batch, const struct dibs__link_view *view)
{
    char id[24];
    const struct dibs__command command = {.words = (const char *const[]){"CLIENT", "KILL", "ID", id, NULL}};

    snprintf(id, sizeof id, "%lld", (long long)batch->entries[0]->route.link.client);
    return dibs__channel_submit(batch->all->carrier, view->serial, &command, on_killed, batch);
}

/*
 * On the connection of the asks, the batch arrives after them; on a later connection of the same channel, it arrives
 * after all connections of that channel that were ended. Otherwise, if the same server still runs, the connection of
 * the asks is ended first; another server, known by its run id, never had that connection. False: the batch could not
 * be sent.
 */
static bool send_batch(struct batch *batch)
{
    const struct dibs__route *route = &batch->entries[0]->route;
    struct dibs__channel *carrier = batch->all->carrier;
    struct dibs__link_view view;

    if (route->channel && dibs__channel_view(route->channel, &view) && view.serial == route->serial) {
        batch->settled = true;
        return send_retraction(batch, route->channel, &view);
    }
    if (!dibs__channel_view(carrier, &view))
        return false;
    if (route->channel == carrier) {
        batch->settled = dibs__view_is_behind(&view, route->serial);
        return send_retraction(batch, carrier, &view);
    }
    bool can_be_ended = dibs__link_can_be_ended(&route->link) && view.id.run_id[0];
    if (route->channel && can_be_ended && strcmp(route->link.run_id, view.id.run_id) == 0)
        return send_kill(batch, &view);
    batch->settled = route->channel ? can_be_ended : route->not_after == 0;
    return send_retraction(batch, carrier, &view);
}

/* ------------------------------------------------------------------- batches */

/* The next entry to be sent. Drops entries whose tokens can't have left anything by now. NULL: there is none. */
static struct retraction *next_ready(struct dibs__retractions *all, int64_t now) DIBS__REQUIRES(dibs__redis_mutex)
{
    while (all->ready && all->ready->what.ends <= now)
        drop(all, take_first(&all->ready));
    return all->ready;
}

/* Whether both can be sent in one command, because they take the same route. */
static bool go_together(const struct retraction *a, const struct retraction *b)
{
    return a->route.channel == b->route.channel && a->route.serial == b->route.serial && !a->alone && !b->alone;
}

/* NULL: all batches are under way. */
static struct batch *find_batch(struct dibs__retractions *all)
{
    size_t i = 0;

    while (i < BATCHES && all->batches[i].count > 0)
        i++;
    return i < BATCHES ? &all->batches[i] : NULL;
}

/* Takes a batch, with entries that are ready. NULL: none is ready, or all batches are under way. */
static struct batch *take_batch(struct dibs__retractions *all, int64_t now)
{
    struct batch *batch = find_batch(all);
    struct retraction *next;

    dibs__redis_mutex_lock(&all->store->mutex);
    if (all->later_due <= now)
        make_due(all, dibs__after_ms(now, TOGETHER_MS));
    while ((next = next_ready(all, now)) && batch && batch->count < BATCH_MAX &&
           (batch->count == 0 || go_together(batch->entries[0], next))) {
        next->surpasses = all->changed_at > 0 && now < dibs__after_ms(all->changed_at, next->what.lease_ms);
        batch->entries[batch->count++] = take_first(&all->ready);
    }
    dibs__redis_mutex_unlock(&all->store->mutex);
    return batch && batch->count > 0 ? batch : NULL;
}

/* ------------------------------------------------------------------ contract */

static void see_connection(struct dibs__retractions *all, struct dibs__channel *carrier)
{
    struct dibs__link_view view;
    uint64_t serial = dibs__channel_view(carrier, &view) ? view.serial : 0;
    bool is_new = serial != 0 && (carrier != all->carrier || serial != all->carrier_serial);

    all->carrier = carrier;
    all->carrier_serial = serial;
    if (is_new)
        make_all_due(all);
}

/* A batch that can't be sent ends at once. */
void dibs__retractions_attend(struct dibs__retractions *all, struct dibs__channel *carrier, int64_t changed_at)
{
    struct batch *batch;

    if (atomic_load(&all->count) == 0)
        return;
    all->changed_at = changed_at;
    see_connection(all, carrier);
    while ((batch = take_batch(all, dibs__now(all->store->config.clock)))) {
        batch->untracked = false;
        if (!send_batch(batch))
            give_back(batch);
    }
}

int64_t dibs__retractions_deadline(struct dibs__retractions *all)
{
    if (atomic_load(&all->count) == 0)
        return DIBS__NEVER;
    dibs__redis_mutex_lock(&all->store->mutex);
    int64_t deadline = all->ready ? 0 : all->later_due;
    dibs__redis_mutex_unlock(&all->store->mutex);
    return find_batch(all) ? deadline : DIBS__NEVER; /* all batches are out: their answers come first */
}

size_t dibs__redis_unconfirmed(struct dibs__store *base)
{
    return atomic_load(&dibs__redis_of(base)->retractions->count);
}

/* Copies the texts. route: of what may still be under way. NULL: no memory. */
static struct retraction *new_entry(const struct dibs__retractions *all, const struct dibs__forwarded_retraction *what,
                                    const struct dibs__route *route)
{
    size_t token_size = strlen(what->token) + 1, name_size = strlen(what->name) + 1;
    struct retraction *entry = calloc(1, sizeof *entry + token_size + name_size);

    if (!entry)
        return NULL;
    entry->route = *route;
    entry->what = *what;
    entry->alone = all->store->config.node != NULL;
    entry->what.token = memcpy(entry->texts, what->token, token_size);
    entry->what.name = memcpy(entry->texts + token_size, what->name, name_size);
    return entry;
}

static void add(struct dibs__retractions *all, struct retraction *entry)
{
    dibs__redis_mutex_lock(&all->store->mutex);
    atomic_fetch_add(&all->count, 1);
    atomic_fetch_add(&all->store->config.counters->unconfirmed, 1);
    enlist(all, entry);
    dibs__redis_mutex_unlock(&all->store->mutex);
    all->store->config.listener.wake(all->store->config.listener.context);
}

/*
 * An ask that is still on its way may arrive a command timeout later, and then begin a lease, or a place in the queue
 * of twice that length.
 */
void dibs__retractions_add(struct dibs__retractions *all, const char *name, const char *token, uint32_t lease_ms,
                           uint64_t fence, const struct dibs__route *route)
{
    static const struct dibs__route nowhere = {.channel = NULL};
    const struct dibs__store_config *config = &all->store->config;
    const struct dibs__forwarded_retraction what = {
        .name = name,
        .token = token,
        .fence = fence,
        .lease_ms = lease_ms,
        .ends = dibs__after_ms(dibs__now(config->clock), config->command_timeout_ms + INT64_C(2) * lease_ms + SLACK_MS),
        .backoff = {.first_ms = AGAIN_FIRST_MS},
    };
    struct retraction *entry = new_entry(all, &what, route ? route : &nowhere);

    if (entry)
        add(all, entry);
}

void dibs__redis_take_forwarded(struct dibs__store *base, const struct dibs__forwarded_retraction *forwarded)
{
    struct dibs__retractions *all = dibs__redis_of(base)->retractions;
    const struct dibs__route route = {.channel = NULL, .not_after = forwarded->not_after};
    struct retraction *entry = new_entry(all, forwarded, &route);

    if (!entry)
        return;
    if (++entry->what.hops > HOPS_AT_ONCE)
        entry->due =
            dibs__after_ms(dibs__now(all->store->config.clock), dibs__backoff_next(&entry->what.backoff, HOP_LAST_MS));
    add(all, entry);
}

/* Moves the entries whose names other nodes have from the list to `away`. */
static void sort_out(struct retraction **list, struct retraction **away, const struct dibs__node_hooks *node)
{
    struct retraction *all = *list;

    *list = NULL;
    while (all) {
        struct retraction *entry = take_first(&all);
        if (node->is_away(node->context, entry->what.name))
            DIBS__LIST_APPEND(*away, entry, links);
        else
            DIBS__LIST_APPEND(*list, entry, links);
    }
}

void dibs__redis_give_strays(struct dibs__store *base)
{
    struct dibs__retractions *all = dibs__redis_of(base)->retractions;
    struct retraction *away = NULL;

    dibs__redis_mutex_lock(&all->store->mutex);
    sort_out(&all->ready, &away, all->store->config.node);
    sort_out(&all->later, &away, all->store->config.node);
    dibs__redis_mutex_unlock(&all->store->mutex);
    while (away) {
        struct retraction *entry = take_first(&away);
        give_away(all, entry, NULL, false);
        dibs__redis_mutex_lock(&all->store->mutex);
        drop(all, entry);
        dibs__redis_mutex_unlock(&all->store->mutex);
    }
}

/* ----------------------------------------------------------------- lifecycle */

struct dibs__retractions *dibs__retractions_new(struct dibs__redis_store *store)
{
    struct dibs__retractions *all = calloc(1, sizeof *all);

    if (!all)
        return NULL;
    all->store = store;
    for (size_t i = 0; i < BATCHES; i++)
        all->batches[i].all = all;
    return all;
}

void dibs__retractions_free(struct dibs__retractions *all)
{
    if (!all)
        return;
    dibs__redis_mutex_lock(&all->store->mutex);
    while (all->ready)
        free(take_first(&all->ready));
    while (all->later)
        free(take_first(&all->later));
    dibs__redis_mutex_unlock(&all->store->mutex);
    free(all);
}
