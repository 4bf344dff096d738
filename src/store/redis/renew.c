/*
 * Renewals: many leases in one script, over the background connection. All of
 * this runs on the scheduler's thread, which alone uses that connection.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "redis/reply.h"
#include "store/redis/codec.h"
#include "store/redis/redis_store.h"

#define MEMORY_MS 3500000 /* a server knows a fence for an hour at least (fence.lua): less what its clock is off */

_Static_assert(sizeof(struct dibs__redis_lease) <= sizeof(struct dibs__lease_memo), "what is noted fits into the memo");
_Static_assert(_Alignof(struct dibs__redis_lease) <= _Alignof(struct dibs__lease_memo), "and can lie there");

/* A batch that is out: in one call or, if the server refused that call, in one call for each lease. */
struct renewal {
    struct dibs__redis_store *store;
    struct dibs__batch *batch;
    size_t calls; /* not answered yet; and 1 more while further calls may be begun */
    struct dibs__error failed;
};

/* One sending of renew.lua for `count` leases of the batch, from `first` on. */
struct renewal_call {
    struct renewal *renewal;
    size_t first, count;
    uint64_t serial; /* of the connection that the call went over */
    uint64_t server; /* that the call went to */
    int64_t not_after;
    struct dibs__words words;
    char key_count[12];
    char not_after_text[24]; /* of the extensions, and of what is restored */
    struct {
        struct dibs__key lock, fence;
        struct dibs__renew_texts texts;
    } items[];
};

static struct dibs__renewal *item_of(const struct renewal_call *call, size_t i)
{
    return &call->renewal->batch->items[call->first + i];
}

/* ----------------------------------------------------------------- the words */

static void free_call(struct renewal_call *call)
{
    free(call->words.words);
    free(call->words.sizes);
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
    call->words.most = (int)DIBS__RENEW_WORDS(count);
    call->words.words = calloc(DIBS__RENEW_WORDS(count), sizeof *call->words.words);
    call->words.sizes = calloc(DIBS__RENEW_WORDS(count), sizeof *call->words.sizes);
    if (call->words.words && call->words.sizes)
        return call;
    free_call(call);
    return NULL;
}

/*
 * What an administrator deleted is not restored: only what another server, or
 * one that was restarted, can't know. Past the hour another may have had the
 * lock, and its fence may be forgotten.
 */
static bool may_be_forgotten(const struct renewal_call *call, struct dibs__renewal *item)
{
    const struct dibs__redis_lease *lease = dibs__redis_lease_of(&item->memo);
    int64_t now = dibs__now(call->renewal->store->config.clock);

    return lease->server && call->server && lease->server != call->server &&
           now - lease->confirmed_at < MEMORY_MS * DIBS__NS_PER_MS;
}

/* A retraction from now on must come behind what restores leases: behind this call, and what may still come before. */
static void note_restoring(const struct renewal_call *call, const struct dibs__link_view *view)
{
    struct dibs__redis_store *store = call->renewal->store;

    dibs__redis_mutex_lock(&store->mutex);
    struct dibs__route *restored = &store->restored;
    if (!restored->channel || dibs__view_is_behind(view, restored->serial))
        *restored = (struct dibs__route){.channel = store->background, .serial = view->serial};
    if (call->not_after > restored->not_after)
        restored->not_after = call->not_after;
    dibs__redis_mutex_unlock(&store->mutex);
}

static void add_keys(struct renewal_call *call, size_t i)
{
    const char *prefix = call->renewal->store->key_prefix, *name = item_of(call, i)->name;
    struct dibs__key *lock = &call->items[i].lock, *fence = &call->items[i].fence;

    dibs__key_of(lock, DIBS__KEY_LOCK, prefix, name);
    dibs__key_of(fence, DIBS__KEY_FENCE, prefix, name);
    dibs__words_add(&call->words, lock->bytes, lock->size);
    dibs__words_add(&call->words, fence->bytes, fence->size);
}

static void add_arguments(struct renewal_call *call, size_t i, const struct dibs__link_view *view)
{
    struct dibs__renewal *item = item_of(call, i);
    bool restores = may_be_forgotten(call, item);
    const struct dibs__renew_words lease = {
        .token = item->token,
        .lease_ms = item->lease_ms,
        .fence = item->fence,
        .set_by = item->extension ? call->not_after_text : NULL,
        .restore_by = restores ? call->not_after_text : NULL,
    };

    dibs__codec_renew(&call->words, &lease, &call->items[i].texts);
    if (restores)
        note_restoring(call, view);
}

static void build(struct renewal_call *call, const struct dibs__link_view *view)
{
    dibs__words_begin(&call->words, &call->key_count, call->count * DIBS__RENEW_KEYS);
    snprintf(call->not_after_text, sizeof call->not_after_text, "%" PRId64, call->not_after);
    for (size_t i = 0; i < call->count; i++)
        add_keys(call, i);
    for (size_t i = 0; i < call->count; i++)
        add_arguments(call, i, view);
}

/* ----------------------------------------------------------------- the sending */

static void on_renewed(void *arg, const redisReply *reply, const struct dibs__error *error);

/* To be called after batch->proof was taken. False: there is no connection, or no memory. */
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
    dibs__script_words(DIBS__SCRIPT_renew, &view, with_text, &call->words);
    return dibs__channel_submit(store->background, view.serial,
                                &(struct dibs__command){call->words.count, call->words.words, call->words.sizes},
                                on_renewed, call);
}

/* A call that can't be sent counts as unanswered. A call that is sent may be answered before this returns. */
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

/* One lease may be why the server refuses the whole call: there is no right to its key, or the key is in another slot.
 */
static void send_one_by_one(struct renewal *renewal, size_t first, size_t count)
{
    renewal->batch->proof = dibs__now(renewal->store->config.clock);
    for (size_t i = 0; i < count; i++)
        begin_call(renewal, first + i, 1);
}

/* ----------------------------------------------------------------- the answers */

/* The call may have been executed, or may still be: an extension in the call can cut its lease short later. */
static void note_unanswered(const struct renewal_call *call)
{
    for (size_t i = 0; i < call->count; i++) {
        struct dibs__renewal *item = item_of(call, i);
        struct dibs__redis_lease *lease = dibs__redis_lease_of(&item->memo);
        item->status = call->renewal->failed.status;
        if (!item->extension)
            continue;
        if (item->cut_ms == 0 || item->lease_ms < item->cut_ms)
            item->cut_ms = item->lease_ms;
        if (lease->cut_serial == 0)
            lease->cut_serial = call->serial;
        if (call->not_after > lease->cut_not_after)
            lease->cut_not_after = call->not_after;
    }
}

/*
 * An extension that was never answered can't arrive any more once the server's
 * clock has passed its time, or the server has ended its connection; until then
 * it may cut the lease to its own length.
 */
static void see_what_is_sure(const struct renewal_call *call, struct dibs__renewal *item,
                             const struct dibs__link_view *view, int64_t server_us)
{
    struct dibs__redis_lease *lease = dibs__redis_lease_of(&item->memo);
    bool behind = view && view->serial == call->serial && dibs__view_is_behind(view, lease->cut_serial);

    if (item->cut_ms == 0)
        return;
    if (behind || server_us > lease->cut_not_after) {
        item->cut_ms = 0;
        lease->cut_serial = 0;
        lease->cut_not_after = 0;
    } else if (item->cut_ms < item->lease_ms) {
        item->again_ms = (lease->cut_not_after - server_us) / 1000 + 1;
    }
}

static void take_renewed(const struct renewal_call *call, struct dibs__renewal *item,
                         const struct dibs__link_view *view, int64_t server_us)
{
    struct dibs__redis_lease *lease = dibs__redis_lease_of(&item->memo);

    item->result = DIBS__RENEWED;
    lease->server = call->server;
    lease->confirmed_at = call->renewal->batch->proof;
    see_what_is_sure(call, item, view, server_us);
}

/*
 * One lease may be refused while the others are renewed. A renewal that came too
 * late is sent again with a time by the clock that the server has now.
 */
static void take_results(const struct renewal_call *call, const redisReply *reply, int64_t server_us)
{
    struct dibs__redis_store *store = call->renewal->store;
    struct dibs__link_view view;
    bool standing = dibs__channel_view(store->background, &view);
    struct dibs__error unused;

    for (size_t i = 0; i < call->count; i++) {
        struct dibs__renewal *item = item_of(call, i);
        struct dibs__renew_reply said = dibs__codec_read_renewed(reply, i);
        switch (said.code) {
        case DIBS__RENEW_REFUSED:
            item->status =
                dibs__reply_error(&call->renewal->failed, said.error, store->endpoint.url.shown, "restoring leases");
            break;
        case DIBS__RENEW_LATE:
            item->status = dibs__redis_late(store, store->background, call->serial, said.server_us, &unused);
            break;
        case DIBS__RENEW_GONE:
            item->result = DIBS__GONE;
            break;
        case DIBS__RENEW_DONE:
            take_renewed(call, item, standing ? &view : NULL, server_us);
            break;
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
        note_unanswered(call);
    } else if (dibs__codec_read_renew(reply, call->count, &server_us)) {
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
        batch->items[i].status = DIBS_UNAVAILABLE; /* until the batch is sent */
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

bool dibs__redis_is_unproven(struct dibs__store *base, const struct dibs__lease_memo *memo)
{
    const struct dibs__redis_lease *lease = (const struct dibs__redis_lease *)memo;
    uint64_t server = atomic_load(&dibs__redis_of(base)->renewal_server);

    return server != 0 && lease->server != server;
}
