/*
 * Renewals: many leases in one script, over the scheduler's own connection. All of
 * this runs on the scheduler's thread, which alone uses that connection.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "redis/reply.h"
#include "store/redis_store.h"

#define WORDS_AN_ITEM 7 /* two keys, five arguments */

/* A batch that is out: in one call, or, where that was refused, in one for each lease. */
struct renewal {
    struct dibs__redis_store *store;
    struct dibs__batch *batch;
    size_t calls; /* that are not answered yet, and one while others may be begun */
    struct dibs__error failed;
};

/* One sending of renew.lua for `count` leases of the batch, from `first` on. */
struct renewal_call {
    struct renewal *renewal;
    size_t first, count;
    uint64_t serial; /* of the connection that it went over, and its server */
    uint64_t server;
    int64_t not_after;
    size_t word_count;
    const char **words;
    size_t *sizes;
    char key_count[12];
    char not_after_text[24]; /* of the extensions, and of what is set again */
    struct {
        struct dibs__key lock, fence_key;
        char lease[12], fence[24];
    } items[];
};

static struct dibs__renewal *item_of(const struct renewal_call *call, size_t i)
{
    return &call->renewal->batch->items[call->first + i];
}

/* ----------------------------------------------------------------- the words */

static void free_call(struct renewal_call *call)
{
    free(call->words);
    free(call->sizes);
    free(call);
}

/* NULL: no memory. */
static struct renewal_call *new_call(struct renewal *renewal, size_t first, size_t count)
{
    struct renewal_call *call = calloc(1, sizeof *call + count * sizeof call->items[0]);

    if (!call)
        return NULL;
    call->renewal = renewal;
    call->first = first;
    call->count = count;
    call->words = calloc(3 + count * WORDS_AN_ITEM, sizeof *call->words);
    call->sizes = calloc(3 + count * WORDS_AN_ITEM, sizeof *call->sizes);
    if (call->words && call->sizes)
        return call;
    free_call(call);
    return NULL;
}

static void add_word(struct renewal_call *call, const char *word, size_t size)
{
    call->words[call->word_count] = word;
    call->sizes[call->word_count++] = size;
}

/* What an administrator deleted is not set again: only what another server, or one that was restarted, can't know. */
static bool may_be_forgotten(const struct renewal_call *call, const struct dibs__renewal *item)
{
    return item->set_again && item->server && call->server && item->server != call->server;
}

static void add_not_after(struct renewal_call *call, bool wanted)
{
    add_word(call, wanted ? call->not_after_text : "", wanted ? strlen(call->not_after_text) : 0);
}

/* A retraction from now on must come behind what sets leases again: behind this, and what may still come before. */
static void note_heal(const struct renewal_call *call, const struct dibs__link_view *view)
{
    struct dibs__redis_store *store = call->renewal->store;
    struct dibs__route *healed = &store->healed;

    dibs__redis_mutex_lock(&store->mutex);
    if (!healed->channel || dibs__view_is_behind(view, healed->serial))
        *healed = (struct dibs__route){.channel = store->background, .serial = view->serial};
    if (call->not_after > healed->not_after)
        healed->not_after = call->not_after;
    dibs__redis_mutex_unlock(&store->mutex);
}

static void add_keys(struct renewal_call *call, size_t i)
{
    const char *prefix = call->renewal->store->key_prefix, *name = item_of(call, i)->name;
    struct dibs__key *lock = &call->items[i].lock, *fence = &call->items[i].fence_key;

    dibs__key_of(lock, DIBS__KEY_LOCK, prefix, name);
    dibs__key_of(fence, DIBS__KEY_FENCE, prefix, name);
    add_word(call, lock->bytes, lock->size);
    add_word(call, fence->bytes, fence->size);
}

static void add_arguments(struct renewal_call *call, size_t i, const struct dibs__link_view *view)
{
    const struct dibs__renewal *item = item_of(call, i);
    char *lease = call->items[i].lease, *fence = call->items[i].fence;
    bool heal = may_be_forgotten(call, item);

    add_word(call, item->token, strlen(item->token));
    add_word(call, lease, (size_t)snprintf(lease, sizeof call->items[i].lease, "%u", item->lease_ms));
    add_word(call, fence, (size_t)snprintf(fence, sizeof call->items[i].fence, "%" PRIu64, item->fence));
    add_not_after(call, item->extension);
    add_not_after(call, heal);
    if (heal)
        note_heal(call, view);
}

static void build(struct renewal_call *call, const struct dibs__link_view *view)
{
    call->word_count = 2;
    snprintf(call->not_after_text, sizeof call->not_after_text, "%" PRId64, call->not_after);
    add_word(call, call->key_count, (size_t)snprintf(call->key_count, sizeof call->key_count, "%zu", call->count * 2));
    for (size_t i = 0; i < call->count; i++)
        add_keys(call, i);
    for (size_t i = 0; i < call->count; i++)
        add_arguments(call, i, view);
}

/* ----------------------------------------------------------------- the sending */

static void on_renewed(void *arg, const redisReply *reply, const struct dibs__error *error);

/* Requires that batch->proof is not later than this. False: there is no connection, or no memory. */
static bool send_call(struct renewal_call *call, bool with_text)
{
    struct dibs__redis_store *store = call->renewal->store;
    struct dibs__link_view view;

    if (!dibs__channel_view(store->background, &view))
        return false;
    call->serial = view.serial;
    call->server = view.server;
    call->not_after = dibs__redis_not_after(store, &view, dibs__now(store->config.clock));
    build(call, &view);
    dibs__script_words(DIBS__SCRIPT_renew, &view, with_text, call->words, call->sizes);
    return dibs__channel_submit(store->background, view.serial,
                                &(struct dibs__command){(int)call->word_count, call->words, call->sizes}, on_renewed,
                                call);
}

/* A call that can't be sent is as one that has no answer. One that is sent may be answered before this returns. */
static void begin_call(struct renewal *renewal, size_t first, size_t count)
{
    struct renewal_call *call = new_call(renewal, first, count);

    renewal->calls++;
    if (call && send_call(call, false))
        return;
    renewal->calls--;
    if (call) {
        free_call(call);
        dibs__error_set(&renewal->failed, DIBS_UNAVAILABLE, "there is no connection to %s",
                        renewal->store->endpoint.url.shown);
    } else {
        dibs__error_set(&renewal->failed, DIBS_NO_MEMORY, "no memory for renewing leases");
    }
}

static void end_one(struct renewal *renewal)
{
    if (--renewal->calls > 0)
        return;
    dibs__redis_heard(renewal->store, renewal->failed.status);
    renewal->batch->done(renewal->batch, &renewal->failed);
    free(renewal);
}

/* One lease may be why the server refuses all of them: its key lacks a right, or is in another slot. */
static void send_one_by_one(struct renewal *renewal, size_t first, size_t count)
{
    renewal->batch->proof = dibs__now(renewal->store->config.clock);
    for (size_t i = 0; i < count; i++)
        begin_call(renewal, first + i, 1);
}

/* ----------------------------------------------------------------- the answers */

/* The call may have been executed, or may still be: an extension in it can cut its lease short later. */
static void note_stuck(const struct renewal_call *call)
{
    for (size_t i = 0; i < call->count; i++) {
        struct dibs__renewal *item = item_of(call, i);
        struct dibs__stuck *stuck = &item->stuck;
        item->status = call->renewal->failed.status;
        if (!item->extension)
            continue;
        if (stuck->lease_ms == 0 || item->lease_ms < stuck->lease_ms)
            stuck->lease_ms = item->lease_ms;
        if (stuck->serial == 0)
            stuck->serial = call->serial;
        if (call->not_after > stuck->not_after)
            stuck->not_after = call->not_after;
    }
}

/*
 * What of a renewed lease is sure. An extension that is stuck can't come any
 * more once the server's clock has passed its time, or the server has ended its
 * connection; until then it may leave the lease no longer than itself.
 */
static void see_what_is_sure(const struct renewal_call *call, struct dibs__renewal *item,
                             const struct dibs__link_view *view, int64_t server_us)
{
    struct dibs__stuck *stuck = &item->stuck;
    bool behind = view && view->serial == call->serial && dibs__view_is_behind(view, stuck->serial);

    item->sure_ms = item->lease_ms;
    if (stuck->lease_ms == 0)
        return;
    if (behind || server_us > stuck->not_after) {
        *stuck = (struct dibs__stuck){0};
    } else if (stuck->lease_ms < item->lease_ms) {
        item->sure_ms = stuck->lease_ms;
        item->again_ms = (stuck->not_after - server_us) / 1000 + 1;
    }
}

/*
 * What renew.lua answered. "Too late" also tells the server's time, by which
 * it is sent again. One lease may be refused, and is why not all have an answer.
 */
static void take_results(const struct renewal_call *call, const redisReply *reply, int64_t server_us)
{
    struct dibs__redis_store *store = call->renewal->store;
    struct dibs__link_view view;
    bool standing = dibs__channel_view(store->background, &view);
    int64_t result;

    for (size_t i = 0; i < call->count; i++) {
        struct dibs__renewal *item = item_of(call, i);
        if (!dibs__reply_integer(reply, i, &result)) {
            item->status = dibs__reply_error(&call->renewal->failed, reply->element[i], store->endpoint.url.shown,
                                             "setting leases again");
        } else if (result < 0) {
            item->status = DIBS_UNAVAILABLE;
            dibs__channel_set_clock(store->background, call->serial, -result - dibs__now(store->config.clock) / 1000);
        } else if (result == 0) {
            item->result = DIBS__GONE;
        } else {
            item->result = DIBS__RENEWED;
            item->server = call->server;
            see_what_is_sure(call, item, standing ? &view : NULL, server_us);
        }
    }
}

static bool is_refusal_of_some(const struct renewal_call *call, const redisReply *reply)
{
    return call->count > 1 && reply->type == REDIS_REPLY_ERROR && dibs__reply_status(reply->str) != DIBS_UNAVAILABLE;
}

static void on_renewed(void *arg, const redisReply *reply, const struct dibs__error *error)
{
    struct renewal_call *call = arg;
    struct renewal *renewal = call->renewal;
    int64_t server_us;

    if (reply && dibs__reply_is_error(reply, "NOSCRIPT") && send_call(call, true))
        return;
    if (!reply) {
        renewal->failed = *error;
        note_stuck(call);
    } else if (dibs__reply_integer(reply, call->count, &server_us) && reply->elements == call->count + 1) {
        take_results(call, reply, server_us);
    } else if (is_refusal_of_some(call, reply)) {
        send_one_by_one(renewal, call->first, call->count);
    } else {
        dibs__reply_error(&renewal->failed, reply, renewal->store->endpoint.url.shown, "renewing leases");
        for (size_t i = 0; i < call->count; i++)
            item_of(call, i)->status = renewal->failed.status;
    }
    free_call(call);
    end_one(renewal);
}

void dibs__redis_renew(struct dibs__store *base, struct dibs__batch *batch)
{
    struct dibs__redis_store *store = dibs__redis_of(base);
    struct renewal *renewal = calloc(1, sizeof *renewal);
    struct dibs__error error;

    for (size_t i = 0; i < batch->count; i++) {
        batch->items[i].result = DIBS__UNANSWERED;
        batch->items[i].status = DIBS_UNAVAILABLE; /* until it is sent */
    }
    batch->proof = dibs__now(store->config.clock);
    if (!renewal) {
        dibs__error_set(&error, DIBS_NO_MEMORY, "no memory for renewing leases");
        batch->done(batch, &error);
        return;
    }
    renewal->store = store;
    renewal->batch = batch;
    renewal->calls = 1;
    begin_call(renewal, 0, batch->count);
    end_one(renewal);
}
