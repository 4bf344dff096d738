#include <stdlib.h>

#include "store/redis/redis_store.h"

void *dibs__lock_call_new(size_t size, const struct dibs__redis_store *store, const struct dibs__op *op)
{
    struct dibs__lock_call *call = malloc(size);

    DIBS__REQUIRE(size >= sizeof *call);
    if (!call)
        return NULL;
    call->request = NULL;
    call->tries = 0;
    call->redirect = op->redirect;
    struct dibs__key *lock = &call->keys[DIBS__KEY_LOCK];
    lock->size = dibs__key_lock(lock->bytes, store->config.key_prefix, op->name ? op->name : "");
    for (int i = DIBS__KEY_LOCK + 1; i < DIBS__KEYS; i++)
        call->keys[i].size = dibs__key_sidecar(call->keys[i].bytes, (enum dibs__key_kind)i, lock->bytes, lock->size);
    return call;
}

dibs_status dibs__lock_call_no_memory(struct dibs__error *error)
{
    return dibs__error_set(error, DIBS_NO_MEMORY, "no memory for a command");
}

void dibs__lock_call_write(struct dibs__lock_call *call, enum dibs__script script, bool with_member)
{
    dibs__call_init(&call->call, script, DIBS__KEYS + with_member);
    for (int i = 0; i < DIBS__KEYS; i++)
        dibs__words_add(&call->call.words, call->keys[i].bytes, call->keys[i].size);
    if (with_member)
        dibs__call_add(&call->call, DIBS__KEY_MEMBER);
}

dibs_status dibs__lock_call_connect(struct dibs__redis_store *store, struct dibs__lock_call *call, int64_t deadline,
                                    struct dibs__error *error)
{
    return dibs__channel_open(store->channels[call->channel], deadline, &call->view, error);
}

bool dibs__lock_call_standing(struct dibs__redis_store *store, struct dibs__lock_call *call)
{
    bool standing = dibs__channel_view(store->channels[call->channel], &call->view);

    if (!standing)
        call->tries = dibs__channel_need(store->channels[call->channel]);
    return standing;
}

dibs_status dibs__lock_call_check_slots(const struct dibs__redis_store *store, const struct dibs__lock_call *call,
                                        struct dibs__error *error)
{
    const char *key = call->keys[DIBS__KEY_LOCK].bytes;
    char quoted[DIBS__QUOTED_MAX];

    if (!call->view.cluster)
        return DIBS_OK;
    if (store->config.is_member)
        return dibs__error_set(error, DIBS_INVALID, "%s is part of a cluster, so it can't be one of a quorum",
                               store->endpoint.url.shown);
    if (!dibs__key_splits(key))
        return DIBS_OK;
    return dibs__error_set(
        error, DIBS_INVALID,
        "%s is part of a cluster: the key %s has a } but no hash tag, so the keys of the lock would lie in "
        "several slots",
        store->endpoint.url.shown, dibs__quote(quoted, key));
}

dibs_status dibs__lock_call_send(struct dibs__redis_store *store, struct dibs__lock_call *call,
                                 const struct dibs__command *plain, int64_t deadline, struct dibs__error *error)
{
    struct dibs__channel *channel = store->channels[call->channel];

    DIBS__REQUIRE(!call->request);
    if (!error) {
        error = &call->error;
        deadline = 0;
    }
    call->call.asking = call->redirect && call->redirect->asking;
    call->is_plain = plain != NULL;
    call->request = plain ? dibs__channel_send(channel, call->view.serial, plain, deadline, error)
                          : dibs__call_begin(&call->call, channel, &call->view, deadline, error);
    return call->request ? DIBS_OK : error->status;
}

dibs_status dibs__lock_call_finish(struct dibs__redis_store *store, struct dibs__lock_call *call,
                                   struct dibs__exchange *exchange)
{
    DIBS__REQUIRE(call->request);
    struct dibs__request *request = call->request;

    call->request = NULL;
    struct dibs__channel *channel = store->channels[call->channel];
    dibs_status status = call->is_plain ? dibs__channel_wait(channel, request, exchange)
                                        : dibs__call_finish(&call->call, channel, &call->view, request, exchange);
    if (status != DIBS_OK || !call->redirect ||
        !dibs__redis_turned_away(store->config.node, call->redirect, exchange->reply))
        return status;
    dibs__error_set(exchange->error, DIBS_UNAVAILABLE, "%s answered: %s", store->endpoint.url.shown,
                    exchange->reply->str);
    freeReplyObject(exchange->reply);
    exchange->reply = NULL;
    return DIBS_UNAVAILABLE;
}

enum dibs__progress dibs__redis_progress(struct dibs__store *base, const struct dibs__op *op, struct dibs__wait *wait)
{
    struct dibs__redis_store *store = dibs__redis_of(base);
    const struct dibs__lock_call *call = op->state;

    if (!call || (!call->request && call->channel >= store->channel_count))
        return DIBS__OP_CONNECTED;
    struct dibs__channel *channel = store->channels[call->channel];
    if (call->request) {
        switch (dibs__channel_progress(channel, call->request, wait)) {
        case DIBS__REPLY_AWAITED:
            return DIBS__OP_AWAITED;
        case DIBS__REPLY_BROKEN:
            return DIBS__OP_BROKEN;
        case DIBS__REPLY_ERROR: /* a node of a cluster may have redirected the call */
            return call->redirect ? DIBS__OP_BROKEN : DIBS__OP_OVER;
        default:
            return DIBS__OP_OVER;
        }
    }
    switch (dibs__channel_opening(channel, call->tries, wait)) {
    case DIBS__OPENING_AWAITED:
        return DIBS__OP_UNSENT;
    case DIBS__OPENING_FAILED:
        return DIBS__OP_FAILED;
    default:
        return DIBS__OP_CONNECTED;
    }
}
