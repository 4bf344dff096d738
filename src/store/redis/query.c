/*
 * A look at a lock; and how operations are begun and finished that are one script on a shared channel, and have no
 * state of their own.
 */
#include <stdlib.h>
#include <string.h>

#include "store/redis/codec.h"
#include "store/redis/redis_store.h"

/* A fence may be ahead of the clock by this much, if many grants came within a microsecond. */
#define AHEAD_MOST_US 1000

dibs_status dibs__redis_run_shared(struct dibs__redis_store *store, struct dibs__lock_call *call, dibs__write_fn *write,
                                   const void *context, struct dibs__exchange *exchange, bool *repeated)
{
    bool begun = call->request != NULL;
    dibs_status status = DIBS_OK;
    int resends = 0;

    *repeated = exchange->unknown = false;
    do {
        *repeated = *repeated || exchange->unknown;
        exchange->unknown = false;
        if (!begun) {
            call->channel = dibs__redis_pick(store);
            status = dibs__lock_call_connect(store, call, exchange->deadline, exchange->error);
            if (status == DIBS_UNAVAILABLE && dibs__redis_another_is_connected(store, call->channel))
                continue;
            if (status == DIBS_OK)
                status = dibs__lock_call_check_slots(store, call, exchange->error);
            if (status != DIBS_OK)
                return status;
            write(store, call, context);
            status = dibs__lock_call_send(store, call, NULL, exchange->deadline, exchange->error);
        }
        begun = false;
        if (status == DIBS_OK)
            status = dibs__lock_call_finish(store, call, exchange);
    } while (dibs__redis_once_more(store, call, status, &resends, exchange->deadline));
    return status;
}

/* Takes the call that was begun, or a new one, which the caller must free. NULL: no memory. */
static struct dibs__lock_call *take_call(struct dibs__redis_store *store, struct dibs__op *op)
{
    struct dibs__lock_call *call = op->state;

    op->state = NULL;
    return call ? call : dibs__lock_call_new(sizeof *call, store, op);
}

void dibs__redis_shared_begin(struct dibs__redis_store *store, const struct dibs__shared_op *how, struct dibs__op *op)
{
    struct dibs__lock_call *call = op->state = take_call(store, op);
    struct dibs__error unused;

    if (!call)
        return;
    DIBS__REQUIRE(!call->request);
    call->channel = dibs__redis_pick(store);
    if (!dibs__lock_call_standing(store, call) || dibs__lock_call_check_slots(store, call, &unused) != DIBS_OK)
        return;
    how->write(store, call, op);
    dibs__lock_call_send(store, call, NULL, 0, NULL);
}

dibs_status dibs__redis_shared_finish(struct dibs__redis_store *store, const struct dibs__shared_op *how,
                                      struct dibs__op *op, struct dibs__error *error)
{
    struct dibs__lock_call *call = take_call(store, op);
    struct dibs__exchange exchange = {.deadline = op->deadline, .error = error};
    bool late, repeated;
    dibs_status status;
    int resends = 0;

    if (!call)
        return dibs__lock_call_no_memory(error);
    do {
        status = dibs__redis_run_shared(store, call, how->write, op, &exchange, &repeated);
        if (status != DIBS_OK)
            break;
        status = how->read(store, op, call, exchange.reply, error);
        freeReplyObject(exchange.reply);
        late = status == DIBS_TIMEOUT;
        status = late ? error->status : status;
    } while (late && dibs__redis_once_more(store, call, status, &resends, op->deadline));
    free(call);
    dibs__redis_note_reply(store, status);
    return status;
}

/* ------------------------------------------------------------------- a look */

static void write_query(const struct dibs__redis_store *store, struct dibs__lock_call *call, const void *context)
{
    const struct dibs__query *query = &((const struct dibs__op *)context)->query;

    (void)store;
    dibs__lock_call_write(call, DIBS__SCRIPT_query, false);
    dibs__codec_query(&call->call, query->waiters ? query->waiters->most : 0,
                      query->sharers ? query->sharers->most : 0);
}

/* In the error of a script, the code may come after other words. */
static bool is_of_another_type(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ERROR && strstr(reply->str, "WRONGTYPE");
}

static dibs_status read_owner(struct dibs__redis_store *store, const struct dibs__op *op, const redisReply *reply,
                              struct dibs__query_reply *owner, struct dibs__error *error)
{
    if (dibs__codec_read_query(owner, reply) || (op->query.any_type && is_of_another_type(reply)))
        return DIBS_OK;
    return dibs__redis_reply_error(store, "looking at", op->name, reply, error);
}

dibs_status dibs__redis_look(struct dibs__redis_store *store, struct dibs__lock_call *call, const char *name,
                             struct dibs__query_reply *owner, struct dibs__exchange *exchange)
{
    const struct dibs__op op = {.kind = DIBS__OP_QUERY, .name = name, .query = {.owner = NULL}};
    bool unused;
    dibs_status status = dibs__redis_run_shared(store, call, write_query, &op, exchange, &unused);

    if (status != DIBS_OK)
        return status;
    status = read_owner(store, &op, exchange->reply, owner, exchange->error);
    if (status != DIBS_OK)
        freeReplyObject(exchange->reply);
    return status;
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

static dibs_status read_query(struct dibs__redis_store *store, const struct dibs__op *op,
                              const struct dibs__lock_call *call, const redisReply *reply, struct dibs__error *error)
{
    const struct dibs__query *query = &op->query;
    struct dibs__query_reply owner;

    (void)call;
    if (read_owner(store, op, reply, &owner, error) != DIBS_OK)
        return error->status;
    show_owner(query->owner, &owner);
    show_waiters(query->waiters, reply);
    show_sharers(query->sharers, &owner, reply);
    return DIBS_OK;
}

const struct dibs__shared_op dibs__redis_query = {write_query, read_query};
