/* What one master of a quorum does beside locks: whether it may vote, and raised fences. */
#include <stdlib.h>

#include "base/hash.h"
#include "redis/reply.h"
#include "store/redis/codec.h"
#include "store/redis/redis_store.h"

/* -------------------------------------------------------------------- voting */

static void write_vote(const struct dibs__redis_store *store, struct dibs__lock_call *call, const void *context)
{
    const struct dibs__vote *vote = context;
    int64_t not_after = dibs__redis_not_after(store, &call->view, dibs__now(store->config.clock));

    dibs__call_init(&call->call, DIBS__SCRIPT_vote, 1);
    dibs__words_add(&call->call.words, DIBS__KEY_MEMBER, sizeof DIBS__KEY_MEMBER - 1);
    dibs__codec_vote(&call->call, vote, not_after, dibs__codec_run(call->view.id.run_id));
}

void dibs__redis_vote_begin(struct dibs__store *base, struct dibs__op *op)
{
    op->vote->began = dibs__now(dibs__redis_of(base)->config.clock);
    dibs__redis_begin_shared(dibs__redis_of(base), op, write_vote, op->vote);
}

/* *late: nothing was done, because the server's clock is not what we believed. */
static dibs_status read_vote(struct dibs__redis_store *store, struct dibs__vote *vote,
                             const struct dibs__lock_call *call, const redisReply *reply, bool *late,
                             struct dibs__error *error)
{
    if (!dibs__codec_read_vote(vote, late, reply))
        return dibs__reply_error(error, reply, store->endpoint.url.shown, "looking whether it may vote");
    if (*late)
        return dibs__redis_late(store, store->channels[call->channel], call->view.serial, vote->server_us, error);
    vote->process = call->view.id.run_id[0] ? dibs__hash(call->view.id.run_id, DIBS__RUN_ID) : 0;
    /* By the clock that the server votes by from now on, and that may have been set back before. */
    if (vote->known)
        dibs__channel_lower_clock(store->channels[call->channel], call->view.serial,
                                  vote->server_us - vote->began / 1000);
    return DIBS_OK;
}

dibs_status dibs__redis_vote_finish(struct dibs__store *base, struct dibs__op *op, struct dibs__error *error)
{
    struct dibs__redis_store *store = dibs__redis_of(base);
    struct dibs__lock_call *call = dibs__redis_take_call(store, op);
    struct dibs__exchange exchange = {.deadline = op->deadline, .error = error};
    struct dibs__vote *vote = op->vote;
    bool late, repeated;
    dibs_status status;
    int resends = 0;

    if (!call)
        return dibs__lock_call_no_memory(error);
    do {
        late = false;
        status = dibs__redis_run_shared(store, call, write_vote, vote, &exchange, &repeated);
        if (status != DIBS_OK)
            continue;
        status = read_vote(store, vote, call, exchange.reply, &late, error);
        dibs__reply_free(exchange.reply);
    } while (late && dibs__redis_once_more(store, call, status, &resends, op->deadline));
    free(call);
    dibs__redis_note_reply(store, status);
    return status;
}

/* ------------------------------------------------------------- raising a fence */

static void write_raise(const struct dibs__redis_store *store, struct dibs__lock_call *call, const void *context)
{
    const struct dibs__raise *raise = context;

    dibs__lock_call_write(call, DIBS__SCRIPT_raise);
    if (store->config.is_member)
        dibs__call_add_key(&call->call, DIBS__KEY_MEMBER);
    dibs__codec_raise(&call->call, raise->token, raise->fence, raise->lease_ms);
}

void dibs__redis_raise_begin(struct dibs__store *base, struct dibs__op *op)
{
    dibs__redis_begin_shared(dibs__redis_of(base), op, write_raise, &op->raise);
}

/* A raise that comes late finds that the lock is another's, or does what is right: it may be sent again. */
dibs_status dibs__redis_raise_finish(struct dibs__store *base, struct dibs__op *op, struct dibs__error *error)
{
    struct dibs__redis_store *store = dibs__redis_of(base);
    struct dibs__lock_call *call = dibs__redis_take_call(store, op);
    struct dibs__exchange exchange = {.deadline = op->deadline, .error = error};
    bool repeated, raised;

    if (!call)
        return dibs__lock_call_no_memory(error);
    dibs_status status = dibs__redis_run_shared(store, call, write_raise, &op->raise, &exchange, &repeated);
    if (status == DIBS_OK) {
        status = !dibs__codec_read_raise(&raised, exchange.reply)
                     ? dibs__redis_reply_error(store, "raising the fence of", op->name, exchange.reply, error)
                 : raised ? DIBS_OK
                          : DIBS_NOT_HELD;
        dibs__reply_free(exchange.reply);
    }
    free(call);
    dibs__redis_note_reply(store, status);
    return status;
}
