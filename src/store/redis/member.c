/* What one master of a quorum does besides locks: whether it may vote, and raised fences. */
#include <string.h>

#include "base/hash.h"
#include "redis/reply.h"
#include "store/redis/codec.h"
#include "store/redis/redis_store.h"

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

const struct dibs__lock_call_ops dibs__redis_vote = {.send = send_vote, .read = read_vote};

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

const struct dibs__lock_call_ops dibs__redis_raise = {.send = send_raise, .read = read_raise};
