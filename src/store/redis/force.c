/* Takes a lock from its holder, and forgets one that nobody holds. */
#include <stdlib.h>
#include <string.h>

#include "store/redis/codec.h"
#include "store/redis/redis_store.h"

static void write_force(const struct dibs__redis_store *store, struct dibs__lock_call *call, const void *context)
{
    int64_t not_after = dibs__redis_not_after(store, &call->view, dibs__now(store->config.clock));

    dibs__lock_call_write(call, DIBS__SCRIPT_force, false);
    dibs__codec_force(&call->call, not_after, context);
}

/* *late: nothing was done, because the server's clock is not what was believed. */
static dibs_status read_force(struct dibs__redis_store *store, const char *name, const struct dibs__lock_call *call,
                              const redisReply *reply, bool *late, struct dibs__error *error)
{
    struct dibs__force_reply said;

    if (!dibs__codec_read_force(&said, reply))
        return dibs__redis_reply_error(store, "unlocking", name, reply, error);
    *late = said.code == DIBS__FORCE_LATE;
    if (*late)
        return dibs__redis_late(store, store->channels[call->channel], call->view.serial, said.server_us, error);
    if (said.unfinished)
        dibs__redis_go_on(store, name);
    return said.code == DIBS__FORCE_DONE ? DIBS_OK : DIBS_NOT_HELD;
}

/*
 * Ends the hold of the target; tries again if the server's clock was not known. *repeated: an earlier sending may have
 * ended it.
 */
static dibs_status end_hold(struct dibs__redis_store *store, struct dibs__lock_call *call, const char *name,
                            const struct dibs__force_target *target, int64_t deadline, bool *repeated,
                            struct dibs__error *error)
{
    struct dibs__exchange exchange = {.deadline = deadline, .error = error};
    dibs_status status;
    int resends = 0;
    bool late, sent_twice;

    *repeated = false;
    do {
        late = false;
        status = dibs__redis_run_shared(store, call, write_force, target, &exchange, &sent_twice);
        *repeated = *repeated || sent_twice;
        if (status != DIBS_OK)
            continue;
        status = read_force(store, name, call, exchange.reply, &late, error);
        freeReplyObject(exchange.reply);
    } while (late && dibs__redis_once_more(store, call, status, &resends, deadline));
    return status;
}

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

/*
 * Finds the holder first, because a request that names no token, and is stuck on its way, would end the hold of
 * somebody who came later. shown: unless NULL, the hold is ended only if a query shows that token.
 */
static dibs_status end_any_hold(struct dibs__redis_store *store, struct dibs__lock_call *call, const char *name,
                                const char *shown, int64_t deadline, struct dibs__error *error)
{
    dibs_status status;
    bool repeated;

    do {
        struct dibs__exchange exchange = {.deadline = deadline, .error = error};
        struct dibs__query_reply owner;
        status = dibs__redis_look(store, call, name, &owner, &exchange);
        if (status != DIBS_OK)
            return status;
        if (shown && owner.owner && !is_shown_as(&owner, shown)) {
            freeReplyObject(exchange.reply);
            return DIBS_NOT_HELD;
        }
        const struct dibs__force_target target = {owner.owner, owner.owner_size, owner.newest, owner.newest_size,
                                                  owner.newest_fence};
        status = end_hold(store, call, name, &target, deadline, &repeated, error);
        freeReplyObject(exchange.reply);
        if (repeated && call->redirect) /* at another node, the holder may have come after the one that was meant */
            call->redirect->kind = DIBS__REDIRECT_NONE;
        if (status == DIBS_NOT_HELD && repeated && target.token) /* the holder now came after the one that was meant */
            status = DIBS_OK;
    } while (status == DIBS_NOT_HELD && dibs__now(store->config.clock) < deadline);
    if (status == DIBS_NOT_HELD)
        return dibs__error_set(error, DIBS_UNAVAILABLE, "%s: the lock changed hands each time it was looked at",
                               store->endpoint.url.shown);
    return status;
}

dibs_status dibs__redis_force(struct dibs__store *base, struct dibs__op *op, struct dibs__error *error)
{
    struct dibs__redis_store *store = dibs__redis_of(base);
    struct dibs__lock_call *call = dibs__lock_call_new(sizeof *call, store, op);
    const char *token = op->force.token;
    const struct dibs__force_target target = {.token = token, .size = token ? strlen(token) : 0};
    bool repeated;

    if (!call)
        return dibs__lock_call_no_memory(error);
    bool looks = !token || op->force.is_shown;
    dibs_status status =
        looks ? DIBS_NOT_HELD : end_hold(store, call, op->name, &target, op->deadline, &repeated, error);
    if (status == DIBS_NOT_HELD && (looks || may_be_cut_or_escaped(token)))
        status = end_any_hold(store, call, op->name, token, op->deadline, error);
    free(call);
    dibs__redis_note_reply(store, status);
    return status;
}

static void write_forget(const struct dibs__redis_store *store, struct dibs__lock_call *call, const void *context)
{
    (void)store;
    (void)context;
    dibs__lock_call_write(call, DIBS__SCRIPT_forget, false);
}

static dibs_status read_forget(struct dibs__redis_store *store, const struct dibs__op *op,
                               const struct dibs__lock_call *call, const redisReply *reply, struct dibs__error *error)
{
    (void)call;
    if (reply->type != REDIS_REPLY_INTEGER)
        return dibs__redis_reply_error(store, "forgetting", op->name, reply, error);
    return reply->integer == DIBS__FORGET_DONE ? DIBS_OK : DIBS_BUSY;
}

const struct dibs__shared_op dibs__redis_forget = {write_forget, read_forget};
