/* Renewals: many leases in one script, over the scheduler's own connection. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "redis/reply.h"
#include "store/redis_store.h"

/* The words of one renew.lua for a whole batch. */
struct renewal_call {
    struct dibs__redis_store *store;
    struct dibs__batch *batch;
    uint64_t serial; /* of the connection that it went over, and its server */
    uint64_t server;
    size_t count;
    const char *words[3 + DIBS__BATCH_MAX * 7];
    size_t sizes[3 + DIBS__BATCH_MAX * 7];
    char key_count[12];
    char not_after[24]; /* of the extensions, and of what is set again */
    struct {
        struct dibs__key lock, fence_key;
        char lease[12], fence[24];
    } items[];
};

static void add_word(struct renewal_call *call, const char *word, size_t size)
{
    call->words[call->count] = word;
    call->sizes[call->count++] = size;
}

/* What an administrator deleted is not set again: only what another server, or one that was restarted, can't know. */
static bool may_be_forgotten(const struct renewal_call *call, const struct dibs__renewal *item)
{
    return item->set_again && item->server && call->server && item->server != call->server;
}

static void add_not_after(struct renewal_call *call, bool wanted)
{
    add_word(call, wanted ? call->not_after : "", wanted ? strlen(call->not_after) : 0);
}

/* Where no later connection can end this one, the set-again may come until then: a retraction must be later. */
static void note_heal(struct renewal_call *call, int64_t not_after)
{
    if (not_after > 0)
        atomic_store(&call->store->heal_until, not_after);
}

static void build_renewal(struct renewal_call *call, int64_t not_after)
{
    const struct dibs__batch *batch = call->batch;

    call->count = 2;
    snprintf(call->not_after, sizeof call->not_after, "%" PRId64, not_after);
    add_word(call, call->key_count, (size_t)snprintf(call->key_count, sizeof call->key_count, "%zu", batch->count * 2));
    for (size_t i = 0; i < batch->count; i++) {
        struct dibs__key *lock = &call->items[i].lock, *fence = &call->items[i].fence_key;
        dibs__key_of(lock, DIBS__KEY_LOCK, call->store->key_prefix, batch->items[i].name);
        dibs__key_of(fence, DIBS__KEY_FENCE, call->store->key_prefix, batch->items[i].name);
        add_word(call, lock->bytes, lock->size);
        add_word(call, fence->bytes, fence->size);
    }
    for (size_t i = 0; i < batch->count; i++) {
        const struct dibs__renewal *item = &batch->items[i];
        char *lease = call->items[i].lease, *fence = call->items[i].fence;
        add_word(call, item->token, strlen(item->token));
        add_word(call, lease, (size_t)snprintf(lease, sizeof call->items[i].lease, "%u", item->lease_ms));
        add_word(call, fence, (size_t)snprintf(fence, sizeof call->items[i].fence, "%" PRIu64, item->fence));
        bool heal = may_be_forgotten(call, item);
        add_not_after(call, item->extension);
        add_not_after(call, heal);
        if (heal)
            note_heal(call, not_after);
    }
}

static void on_renewed(void *arg, const redisReply *reply, const struct dibs__error *error);

static bool send_renewal(struct renewal_call *call, bool with_text)
{
    struct dibs__redis_store *store = call->store;
    struct dibs__link_view view;

    if (!dibs__channel_view(store->background, &view))
        return false;
    call->serial = view.serial;
    call->server = view.server;
    call->batch->proof = dibs__now(store->config.clock);
    build_renewal(call, dibs__redis_not_after(store, &view, call->batch->proof));
    dibs__script_words(DIBS__SCRIPT_renew, &view, with_text, call->words, call->sizes);
    return dibs__channel_submit(store->background, view.serial,
                                &(struct dibs__command){(int)call->count, call->words, call->sizes}, on_renewed, call);
}

static void end_renewal(struct renewal_call *call, const struct dibs__error *error)
{
    dibs__redis_heard(call->store, error->status);
    call->batch->done(call->batch, error);
    free(call);
}

/*
 * What renew.lua answered. "Too late" also tells the server's time, by which
 * it is sent again. One lease may be refused, and is why not all have an answer.
 */
static void take_results(struct renewal_call *call, const redisReply *reply, struct dibs__error *failed)
{
    struct dibs__redis_store *store = call->store;
    int64_t result;

    failed->status = DIBS_OK;
    for (size_t i = 0; i < call->batch->count; i++) {
        if (!dibs__reply_integer(reply, i, &result)) {
            dibs__reply_error(failed, reply->element[i], store->endpoint.url.shown, "setting leases again");
            continue;
        }
        if (result > 0)
            call->batch->items[i].server = call->server;
        if (result >= 0)
            call->batch->items[i].result = result > 0 ? DIBS__RENEWED : DIBS__GONE;
        else
            dibs__channel_set_clock(store->background, call->serial, -result - dibs__now(store->config.clock) / 1000);
    }
}

static void on_renewed(void *arg, const redisReply *reply, const struct dibs__error *error)
{
    struct renewal_call *call = arg;
    struct dibs__batch *batch = call->batch;
    struct dibs__error failed = *error;

    if (reply && dibs__reply_is_error(reply, "NOSCRIPT") && send_renewal(call, true))
        return;
    if (reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == batch->count) {
        take_results(call, reply, &failed);
    } else if (reply) {
        dibs__reply_error(&failed, reply, call->store->endpoint.url.shown, "renewing leases");
    }
    end_renewal(call, &failed);
}

void dibs__redis_renew(struct dibs__store *base, struct dibs__batch *batch)
{
    struct dibs__redis_store *store = dibs__redis_of(base);
    struct renewal_call *call = calloc(1, sizeof *call + batch->count * sizeof call->items[0]);
    struct dibs__error error;

    for (size_t i = 0; i < batch->count; i++)
        batch->items[i].result = DIBS__UNANSWERED;
    if (!call) {
        dibs__error_set(&error, DIBS_NO_MEMORY, "no memory for renewing leases");
        batch->done(batch, &error);
        return;
    }
    call->store = store;
    call->batch = batch;
    if (send_renewal(call, false))
        return;
    dibs__error_set(&error, DIBS_UNAVAILABLE, "there is no connection to %s", store->endpoint.url.shown);
    end_renewal(call, &error);
}
