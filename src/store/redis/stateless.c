/*
 * The operations that have no more state than their call: the query of one lock, and forgetting one; and, at a member
 * of a quorum, whether it may vote, and raising a fence.
 */
#include <string.h>

#include "base/hash.h"
#include "redis/reply.h"
#include "store/redis/redis_store.h"

/* A fence may be ahead of the clock by this much, if many grants came within a microsecond. */
#define AHEAD_MOST_US 1000

/* ----------------------------------------------------------------- the query */

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
    return owner->owner && is_by_dibs(owner) && dibs__token_limit(owner->owner) >= 0;
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

/* ------------------------------------------------------------------- forgetting */

static dibs_status send_forget(struct dibs__redis_store *store, struct dibs__lock_call *call, struct dibs__error *error)
{
    dibs__lock_call_write(call, DIBS__SCRIPT_forget, false);
    return dibs__lock_call_send(store, call, NULL, error);
}

static dibs_status read_forget(struct dibs__redis_store *store, struct dibs__lock_call *call,
                               struct dibs__exchange *exchange)
{
    const redisReply *reply = exchange->reply;

    if (reply->type != REDIS_REPLY_INTEGER)
        return dibs__redis_reply_error(store, "forgetting", call->op->name, reply, exchange->error);
    return reply->integer == DIBS__FORGET_DONE ? DIBS_OK : DIBS_BUSY;
}

/* -------------------------------------------------------------------- voting */

static dibs_status send_vote(struct dibs__redis_store *store, struct dibs__lock_call *call, struct dibs__error *error)
{
    struct dibs__vote *vote = call->op->vote;

    vote->began = dibs__now(store->config.clock);
    dibs__lock_call_write(call, DIBS__SCRIPT_vote, true);
    dibs__codec_vote(&call->call.words, vote, dibs__redis_not_after(store, &call->view, vote->began),
                     dibs__codec_run(call->view.id.run_id));
    return dibs__lock_call_send(store, call, NULL, error);
}

/*
 * What the answer shows of the server's clock counts for all connections to the server: one over which no answer came
 * that shows it would go by what was so when it was made, and clocks run at different paces. Where the server votes by
 * its clock from now on, the clock may have been set back before.
 */
static void note_clock(const struct dibs__redis_store *store, const struct dibs__lock_call *call)
{
    const struct dibs__vote *vote = call->op->vote;
    const char *run_id = call->view.id.run_id;
    int64_t least_us = vote->server_us - dibs__now(store->config.clock) / 1000;
    int64_t most_us = vote->known ? vote->server_us - vote->began / 1000 : INT64_MAX;
    struct dibs__link_view view;

    for (size_t i = 0; i <= store->channel_count; i++) {
        struct dibs__channel *channel = store->channels[i];
        bool is_its_own = i == call->channel;
        if (!dibs__channel_view(channel, &view) || strcmp(view.id.run_id, run_id) != 0 || (!run_id[0] && !is_its_own))
            continue;
        dibs__channel_set_clock(channel, view.serial, least_us, most_us);
    }
}

static dibs_status read_vote(struct dibs__redis_store *store, struct dibs__lock_call *call,
                             struct dibs__exchange *exchange)
{
    struct dibs__channel *channel = store->channels[call->channel];
    struct dibs__vote *vote = call->op->vote;
    bool late = false;

    if (!dibs__codec_read_vote(vote, &late, exchange->reply))
        return dibs__reply_error(exchange->error, exchange->reply, store->endpoint.url.shown,
                                 "looking whether it may vote");
    call->decided = !late;
    if (late)
        return dibs__redis_late(store, channel, call->view.serial, vote->server_us, exchange->error);
    vote->process = call->view.id.run_id[0] ? dibs__hash(call->view.id.run_id, DIBS__RUN_ID) : 0;
    note_clock(store, call);
    return DIBS_OK;
}

/* ------------------------------------------------------------- raising a fence */

static dibs_status send_raise(struct dibs__redis_store *store, struct dibs__lock_call *call, struct dibs__error *error)
{
    const struct dibs__raise *raise = &call->op->raise;

    dibs__lock_call_write(call, DIBS__SCRIPT_raise, store->config.is_member);
    dibs__codec_raise(&call->call.words, raise->token, raise->fence, raise->lease_ms);
    return dibs__lock_call_send(store, call, NULL, error);
}

/* A raise that comes late finds that another token has the lock, or does what is right: it may be sent again. */
static dibs_status read_raise(struct dibs__redis_store *store, struct dibs__lock_call *call,
                              struct dibs__exchange *exchange)
{
    bool raised;

    if (!dibs__codec_read_raise(&raised, exchange->reply))
        return dibs__redis_reply_error(store, "raising the fence of", call->op->name, exchange->reply, exchange->error);
    return raised ? DIBS_OK : DIBS_NOT_HELD;
}

/* ------------------------------------------------------------------- contract */

static const struct dibs__lock_call_ops stateless[DIBS__OP_KINDS] = {
    [DIBS__OP_QUERY] = {.send = send_query, .read = read_query},
    [DIBS__OP_FORGET] = {.send = send_forget, .read = read_forget},
    [DIBS__OP_VOTE] = {.send = send_vote, .read = read_vote},
    [DIBS__OP_RAISE] = {.send = send_raise, .read = read_raise},
};

void dibs__redis_call_begin(struct dibs__store *base, struct dibs__op *op)
{
    struct dibs__redis_store *store = dibs__redis_of(base);
    struct dibs__lock_call *call = op->state = op->state ? op->state : dibs__lock_call_new(sizeof *call, store, op);

    if (!call)
        return;
    DIBS__REQUIRE(!call->request);
    call->channel = dibs__redis_pick(store);
    if (dibs__lock_call_standing(store, call))
        stateless[op->kind].send(store, call, NULL);
}

dibs_status dibs__redis_call_finish(struct dibs__store *base, struct dibs__op *op, struct dibs__error *error)
{
    struct dibs__redis_store *store = dibs__redis_of(base);
    struct dibs__lock_call *call = op->state ? op->state : dibs__lock_call_new(sizeof *call, store, op);

    op->state = NULL;
    if (!call)
        return dibs__lock_call_no_memory(error);
    dibs_status status = dibs__lock_call_run(store, call, &stateless[op->kind], error);
    dibs__lock_call_free(call);
    return status;
}
