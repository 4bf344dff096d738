/* Takes a lock from its holder. */
#include <string.h>

#include "store/redis/redis_store.h"

/* A forced unlock that is being finished. */
struct forcing {
    struct dibs__lock_call call;
    struct dibs__query_reply
        owner;        /* whose hold must end: the token that was given, or as the lock was looked at last */
    redisReply *look; /* has the words of the owner that was looked at */
};

/* ------------------------------------------------------------------- a look */

static dibs_status send_look(struct dibs__redis_store *store, struct dibs__lock_call *call, struct dibs__error *error)
{
    dibs__lock_call_write(call, DIBS__SCRIPT_query, false);
    dibs__codec_query(&call->call.words, 0, 0);
    return dibs__lock_call_send(store, call, NULL, error);
}

static dibs_status read_look(struct dibs__redis_store *store, struct dibs__lock_call *call,
                             struct dibs__exchange *exchange)
{
    struct forcing *forcing = (struct forcing *)call;

    if (!dibs__codec_read_query(&forcing->owner, exchange->reply))
        return dibs__redis_reply_error(store, "looking at", call->op->name, exchange->reply, exchange->error);
    forcing->look = exchange->reply;
    exchange->reply = NULL;
    return DIBS_OK;
}

static const struct dibs__lock_call_ops look_ops = {.send = send_look, .read = read_look};

/* Whether a query may have cut or escaped the token, so that the holder has another one. */
static bool may_be_cut_or_escaped(const char *token)
{
    return strchr(token, '\\') || strlen(token) == sizeof((dibs_owner *)NULL)->token - 1;
}

static bool is_shown_as(const struct dibs__query_reply *owner, const char *token)
{
    char shown[sizeof((dibs_owner *)NULL)->token];

    dibs__redis_show_token(shown, sizeof shown, owner->owner, owner->owner_size);
    return strcmp(shown, token) == 0;
}

/* ------------------------------------------------------- the end of the hold */

static dibs_status send_force(struct dibs__redis_store *store, struct dibs__lock_call *call, struct dibs__error *error)
{
    int64_t not_after = dibs__redis_not_after(store, &call->view, dibs__now(store->config.clock));

    dibs__lock_call_write(call, DIBS__SCRIPT_force, false);
    dibs__codec_force(&call->call.words, not_after, &((struct forcing *)call)->owner);
    return dibs__lock_call_send(store, call, NULL, error);
}

/* If the force came too late, nothing was done, because the server's clock is not what was believed. */
static dibs_status read_force(struct dibs__redis_store *store, struct dibs__lock_call *call,
                              struct dibs__exchange *exchange)
{
    struct dibs__force_reply said;

    if (!dibs__codec_read_force(&said, exchange->reply))
        return dibs__redis_reply_error(store, "unlocking", call->op->name, exchange->reply, exchange->error);
    call->decided = said.late_us == 0;
    if (!call->decided)
        return dibs__redis_late(store, store->channels[call->channel], call->view.serial, said.late_us,
                                exchange->error);
    if (said.unfinished)
        dibs__redis_go_on(store, call->op->name);
    return said.done ? DIBS_OK : DIBS_NOT_HELD;
}

static const struct dibs__lock_call_ops force_ops = {.send = send_force, .read = read_force};

/*
 * Finds the holder first, because a request that names no token, and is stuck on its way, would end the hold of
 * somebody who came later. shown: unless NULL, the hold is ended only if a query shows that token.
 */
static dibs_status end_any_hold(struct dibs__redis_store *store, struct forcing *forcing, const char *shown,
                                struct dibs__error *error)
{
    const struct dibs__query_reply *owner = &forcing->owner;
    const struct dibs__op *op = forcing->call.op;
    dibs_status status;

    do {
        status = dibs__lock_call_run(store, &forcing->call, &look_ops, error);
        if (status != DIBS_OK)
            return status;
        if (shown && owner->owner && !is_shown_as(owner, shown)) {
            freeReplyObject(forcing->look);
            return DIBS_NOT_HELD;
        }
        status = dibs__lock_call_run(store, &forcing->call, &force_ops, error);
        freeReplyObject(forcing->look);
        if (forcing->call.repeated && op->redirect) /* at another node, another may hold the lock by now */
            op->redirect->kind = DIBS__REDIRECT_NONE;
        if (status == DIBS_NOT_HELD && forcing->call.repeated && owner->owner) /* an earlier sending ended the hold */
            status = DIBS_OK;
    } while (status == DIBS_NOT_HELD && dibs__now(store->config.clock) < op->deadline);
    if (status == DIBS_NOT_HELD)
        return dibs__error_set(error, DIBS_UNAVAILABLE, "%s: the lock changed hands each time it was looked at",
                               store->endpoint.url.shown);
    return status;
}

dibs_status dibs__redis_force(struct dibs__store *base, struct dibs__op *op, struct dibs__error *error)
{
    struct dibs__redis_store *store = dibs__redis_of(base);
    struct forcing *forcing = dibs__lock_call_new(sizeof *forcing, store, op);
    const char *token = op->force.token;
    bool looks = !token || op->force.is_shown;
    dibs_status status = DIBS_NOT_HELD;

    if (!forcing)
        return dibs__lock_call_no_memory(error);
    forcing->owner = (struct dibs__query_reply){.owner = token, .owner_size = token ? strlen(token) : 0};
    if (!looks)
        status = dibs__lock_call_run(store, &forcing->call, &force_ops, error);
    op->force.in_doubt = op->force.in_doubt || forcing->call.repeated;
    if (status == DIBS_NOT_HELD && (looks || may_be_cut_or_escaped(token)))
        status = end_any_hold(store, forcing, token, error);
    if (status == DIBS_NOT_HELD && op->force.in_doubt)
        status = dibs__error_set(error, DIBS_UNAVAILABLE,
                                 "%s: another token has the lock; whether it was taken away is not known, because a "
                                 "request was not answered",
                                 store->endpoint.url.shown);
    dibs__lock_call_free(&forcing->call);
    return status;
}
