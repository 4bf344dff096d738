/* The query of one lock. */
#include <string.h>

#include "store/redis/codec.h"
#include "store/redis/redis_store.h"

/* A fence may be ahead of the clock by this much, if many grants came within a microsecond. */
#define AHEAD_MOST_US 1000

static dibs_status send_query(struct dibs__redis_store *store, struct dibs__lock_call *call, struct dibs__error *error)
{
    const struct dibs__query *query = &call->op->query;

    dibs__lock_call_write(call, DIBS__SCRIPT_query, false);
    dibs__codec_query(&call->call.words, query->waiters ? query->waiters->most : 0,
                      query->sharers ? query->sharers->most : 0);
    return dibs__lock_call_send(store, call, NULL, error);
}

/* In the error of a script, the code may come after other words. */
static bool is_of_another_type(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ERROR && strstr(reply->str, "WRONGTYPE");
}

void dibs__redis_show_token(char *out, size_t size, const char *token, size_t token_size)
{
    bool prints = token_size < size;

    for (size_t i = 0; i < token_size; i++)
        prints = prints && token[i] >= ' ' && token[i] <= '~';
    if (prints)
        memcpy(out, token, token_size + 1);
    else
        dibs__escape(out, size, token, token_size);
}

static bool is_by_dibs(const struct dibs__query_reply *owner)
{
    return owner->owner_size > strlen("dibs:") && memcmp(owner->owner, "dibs:", strlen("dibs:")) == 0;
}

/* The fence is the time of the grant, or little more. A fence in the future is from before the clock was set back. */
static int64_t held_ms(int64_t server_us, uint64_t fence)
{
    int64_t held_us = server_us - (int64_t)fence;

    if (fence == 0 || held_us < -AHEAD_MOST_US)
        return -1;
    return held_us < 0 ? 0 : held_us / 1000;
}

/* Whether the owner is the only sharer of the lock, as its token tells. */
static bool is_only_sharer(const struct dibs__query_reply *owner)
{
    const char *mark = owner->owner ? strrchr(owner->owner, DIBS__TOKEN_SHARED) : NULL;

    return mark && is_by_dibs(owner) && mark[1] != '\0' && mark[1 + strspn(mark + 1, "0123456789")] == '\0';
}

static void show_owner(dibs_owner *out, const struct dibs__query_reply *owner)
{
    bool shared = owner->sharers > 0;
    uint64_t fence = shared ? owner->newest_fence : owner->fence;

    if (owner->owner) {
        out->held = true;
        out->held_ms = is_by_dibs(owner) ? held_ms(owner->server_us, fence) : -1;
        dibs__redis_show_token(out->token, sizeof out->token, shared ? owner->newest : owner->owner,
                               shared ? owner->newest_size : owner->owner_size);
        out->remaining_ms = owner->remaining_ms;
    }
    out->sharers = is_only_sharer(owner) ? 1 : owner->sharers;
    out->kept = owner->kept;
    out->fence = fence;
    out->waiters = owner->waiters;
}

static void show_waiters(struct dibs__waiters *waiters, const redisReply *reply)
{
    const redisReply *token;
    int64_t asked_us;

    if (!waiters)
        return;
    waiters->count = 0;
    while (waiters->count < waiters->most && dibs__codec_read_waiter(reply, waiters->count, &token, &asked_us)) {
        dibs_waiter *out = &waiters->items[waiters->count++];
        dibs__redis_show_token(out->token, sizeof out->token, token->str, (size_t)token->len);
        out->asked_ms = asked_us > 0 ? asked_us / 1000 : 0;
    }
}

static void show_sharer(struct dibs__sharers *sharers, const char *token, size_t token_size, int64_t remaining_ms,
                        uint64_t fence, int64_t server_us)
{
    dibs_sharer *out = &sharers->items[sharers->count++];

    dibs__redis_show_token(out->token, sizeof out->token, token, token_size);
    out->remaining_ms = remaining_ms;
    out->fence = fence;
    out->held_ms = held_ms(server_us, fence);
}

/* A sharer that is alone is reported as the owner. */
static void show_sharers(struct dibs__sharers *sharers, const struct dibs__query_reply *owner, const redisReply *reply)
{
    struct dibs__codec_sharer one;

    if (!sharers)
        return;
    sharers->count = 0;
    if (is_only_sharer(owner))
        show_sharer(sharers, owner->owner, owner->owner_size, owner->remaining_ms, owner->fence, owner->server_us);
    while (sharers->count < sharers->most && dibs__codec_read_sharer(reply, sharers->count, &one))
        show_sharer(sharers, one.token->str, (size_t)one.token->len, one.remaining_ms, one.fence, owner->server_us);
}

static dibs_status read_query(struct dibs__redis_store *store, struct dibs__lock_call *call,
                              struct dibs__exchange *exchange)
{
    const struct dibs__query *query = &call->op->query;
    const redisReply *reply = exchange->reply;
    struct dibs__query_reply owner;

    if (!dibs__codec_read_query(&owner, reply) && !(query->any_type && is_of_another_type(reply)))
        return dibs__redis_reply_error(store, "looking at", call->op->name, reply, exchange->error);
    show_owner(query->owner, &owner);
    show_waiters(query->waiters, reply);
    show_sharers(query->sharers, &owner, reply);
    return DIBS_OK;
}

const struct dibs__lock_call_ops dibs__redis_query = {.send = send_query, .read = read_query};
