/* What one master of a quorum does besides locks: whether it may vote, and raised fences. */
#include "base/hash.h"
#include "redis/reply.h"
#include "store/redis/codec.h"
#include "store/redis/redis_store.h"

/* -------------------------------------------------------------------- voting */

static void write_vote(const struct dibs__redis_store *store, struct dibs__lock_call *call, const void *context)
{
    struct dibs__vote *vote = ((const struct dibs__op *)context)->vote;

    vote->began = dibs__now(store->config.clock);
    dibs__call_init(&call->call, DIBS__SCRIPT_vote, 1);
    dibs__call_add(&call->call, DIBS__KEY_MEMBER);
    dibs__codec_vote(&call->call, vote, dibs__redis_not_after(store, &call->view, vote->began),
                     dibs__codec_run(call->view.id.run_id));
}

static dibs_status read_vote(struct dibs__redis_store *store, const struct dibs__op *op,
                             const struct dibs__lock_call *call, const redisReply *reply, struct dibs__error *error)
{
    struct dibs__vote *vote = op->vote;
    bool late = false;

    if (!dibs__codec_read_vote(vote, &late, reply))
        return dibs__reply_error(error, reply, store->endpoint.url.shown, "looking whether it may vote");
    if (late) {
        dibs__redis_late(store, store->channels[call->channel], call->view.serial, vote->server_us, error);
        return DIBS_TIMEOUT;
    }
    vote->process = call->view.id.run_id[0] ? dibs__hash(call->view.id.run_id, DIBS__RUN_ID) : 0;
    /* The server votes by this clock from now on, and the clock may have been set back before. */
    if (vote->known)
        dibs__channel_lower_clock(store->channels[call->channel], call->view.serial,
                                  vote->server_us - vote->began / 1000);
    return DIBS_OK;
}

const struct dibs__shared_op dibs__redis_vote = {write_vote, read_vote};

/* ------------------------------------------------------------- raising a fence */

static void write_raise(const struct dibs__redis_store *store, struct dibs__lock_call *call, const void *context)
{
    const struct dibs__raise *raise = &((const struct dibs__op *)context)->raise;

    dibs__lock_call_write(call, DIBS__SCRIPT_raise, store->config.is_member);
    dibs__codec_raise(&call->call, raise->token, raise->fence, raise->lease_ms);
}

/* A raise that comes late finds that another token has the lock, or does what is right: it may be sent again. */
static dibs_status read_raise(struct dibs__redis_store *store, const struct dibs__op *op,
                              const struct dibs__lock_call *call, const redisReply *reply, struct dibs__error *error)
{
    bool raised;

    (void)call;
    if (!dibs__codec_read_raise(&raised, reply))
        return dibs__redis_reply_error(store, "raising the fence of", op->name, reply, error);
    return raised ? DIBS_OK : DIBS_NOT_HELD;
}

const struct dibs__shared_op dibs__redis_raise = {write_raise, read_raise};
