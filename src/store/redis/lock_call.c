#include <stdlib.h>

#include "store/redis/redis_store.h"

void *dibs__lock_call_new(size_t size, const struct dibs__redis_store *store, const struct dibs__op *op)
{
    struct dibs__lock_call *call = malloc(size);

    DIBS__REQUIRE(size >= sizeof *call);
    if (!call)
        return NULL;
    call->request = NULL;
    call->op = op;
    call->tries = 0;
    call->in_doubt = call->repeated = false;
    call->call = (struct dibs__call){.key_count = 0};
    for (int i = 0; i < DIBS__KEYS; i++)
        dibs__key_of(&call->keys[i], (enum dibs__key_kind)i, store->config.key_prefix, op->name ? op->name : "");
    return call;
}

void dibs__lock_call_free(struct dibs__lock_call *call)
{
    if (call)
        dibs__words_free(&call->call.words);
    free(call);
}

dibs_status dibs__lock_call_no_memory(struct dibs__error *error)
{
    return dibs__error_set(error, DIBS_NO_MEMORY, "no memory for a command");
}

void dibs__lock_call_write(struct dibs__lock_call *call, enum dibs__script script, bool with_member)
{
    size_t keys = script == DIBS__SCRIPT_vote ? 0 : DIBS__KEYS; /* a vote is about no lock */

    dibs__words_free(&call->call.words);
    call->call = (struct dibs__call){.script = script, .key_count = keys + with_member};
    call->call.words.bytes = (struct dibs__buffer){.bytes = call->room, .cap = sizeof call->room, .is_lent = true};
    for (size_t i = 0; i < keys; i++)
        dibs__words_add(&call->call.words, call->keys[i].bytes, call->keys[i].size);
    if (with_member)
        dibs__words_add_text(&call->call.words, DIBS__KEY_MEMBER);
}

bool dibs__lock_call_standing(struct dibs__redis_store *store, struct dibs__lock_call *call)
{
    bool standing = dibs__channel_view(store->channels[call->channel], &call->view);

    if (!standing)
        call->tries = dibs__channel_need(store->channels[call->channel]);
    return standing;
}

/* ---------------------------------------------------------------- the sending */

/* Whether a script may use all keys of the lock at once, although the server is part of a cluster. */
static dibs_status check_slots(const struct dibs__redis_store *store, const struct dibs__lock_call *call,
                               struct dibs__error *error)
{
    const char *key = call->keys[DIBS__KEY_LOCK].bytes;
    char quoted[DIBS__QUOTED_MAX];

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
                                 const struct dibs__command *plain, struct dibs__error *error)
{
    struct dibs__channel *channel = store->channels[call->channel];
    int64_t deadline = error ? call->op->deadline : 0;
    struct dibs__error unused;

    DIBS__REQUIRE(!call->request);
    error = error ? error : &unused;
    if (!plain && call->view.cluster && check_slots(store, call, error) != DIBS_OK)
        return error->status;
    call->call.asking = call->op->redirect && call->op->redirect->asking;
    call->is_plain = plain != NULL;
    call->request = plain ? dibs__channel_send(channel, call->view.serial, plain, deadline, error)
                          : dibs__call_begin(&call->call, channel, &call->view, deadline, error);
    return call->request ? DIBS_OK : error->status;
}

/* ---------------------------------------------------------------- the running */

/* Sends the call for the first time, or again. */
static dibs_status connect_and_send(struct dibs__redis_store *store, struct dibs__lock_call *call,
                                    const struct dibs__lock_call_ops *ops, struct dibs__error *error)
{
    if (!ops->moves)
        call->channel = dibs__redis_pick(store);
    dibs_status status = dibs__channel_open(store->channels[call->channel], call->op->deadline, &call->view, error);
    if (status == DIBS_OK)
        return ops->send(store, call, error);
    call->decided = status != DIBS_UNAVAILABLE ||
                    !(ops->moves ? ops->moves(store, call) : dibs__redis_another_is_connected(store, call->channel));
    return status;
}

/* Waits for the reply. Afterwards nothing is under way. */
static dibs_status await_reply(struct dibs__redis_store *store, struct dibs__lock_call *call,
                               struct dibs__exchange *exchange)
{
    struct dibs__channel *channel = store->channels[call->channel];
    struct dibs__request *request = call->request;
    struct dibs__redirect *redirect = call->op->redirect;

    call->request = NULL;
    dibs_status status = call->is_plain ? dibs__channel_wait(channel, request, exchange)
                                        : dibs__call_finish(&call->call, channel, &call->view, request, exchange);
    if (status != DIBS_OK || !redirect ||
        !dibs__redis_turned_away(store->config.node, redirect, exchange->reply,
                                 call->is_plain || call->view.tells_parted))
        return status;
    dibs__error_set(exchange->error, DIBS_UNAVAILABLE, "%s answered: %s", store->endpoint.url.shown,
                    exchange->reply->str);
    freeReplyObject(exchange->reply);
    exchange->reply = NULL;
    return DIBS_UNAVAILABLE;
}

static dibs_status take_reply(struct dibs__redis_store *store, struct dibs__lock_call *call,
                              const struct dibs__lock_call_ops *ops, struct dibs__error *error)
{
    struct dibs__exchange exchange = {.deadline = call->op->deadline, .error = error};
    dibs_status status = await_reply(store, call, &exchange);

    call->in_doubt = exchange.unknown;
    if (call->in_doubt && ops->doubt)
        ops->doubt(store, call);
    if (status != DIBS_OK)
        return status;
    call->decided = true;
    status = ops->read(store, call, &exchange);
    freeReplyObject(exchange.reply);
    return status;
}

dibs_status dibs__lock_call_run(struct dibs__redis_store *store, struct dibs__lock_call *call,
                                const struct dibs__lock_call_ops *ops, struct dibs__error *error)
{
    const struct dibs__redirect *redirect = call->op->redirect;
    dibs_status status;
    int resends = 0;

    call->in_doubt = call->repeated = false;
    do {
        call->repeated = call->repeated || call->in_doubt;
        call->in_doubt = call->decided = false;
        status = call->request ? DIBS_OK : connect_and_send(store, call, ops, error);
        if (status == DIBS_OK)
            status = take_reply(store, call, ops, error);
    } while (status == DIBS_UNAVAILABLE && !call->decided && !(redirect && redirect->kind != DIBS__REDIRECT_NONE) &&
             ++resends <= DIBS__RESENDS && dibs__now(store->config.clock) < call->op->deadline);
    dibs__redis_note_reply(store, status);
    return status;
}

/* ----------------------------------------------------------------- waiting for it */

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
            return op->redirect ? DIBS__OP_BROKEN : DIBS__OP_OVER;
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
