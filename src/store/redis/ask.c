/*
 * Asks.
 *
 * All asks of a token go over one channel, so that they are executed in the order in which they were sent. Only if all
 * of them were answered may the next one go over another channel, and only if that is connected while their own is not.
 *
 * With min_replicas or durable, each ask has a channel that nobody else uses meanwhile, because WAIT and WAITAOF block
 * the commands behind them.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "store/redis/redis_store.h"

#define WAIT_GRACE_MS 5 /* time for the reply that WAIT gives at its own timeout */
/*
 * The longest lease that is asked for by plain commands: F must live for two leases, and they do not extend its life of
 * an hour at least.
 */
#define RELOCK_MOST_MS 1800000

/* The bits of `before` of struct dibs__exchange: the commands before GET. */
#define TOOK 1u   /* SET K NX PX */
#define QUEUED 2u /* EXISTS Q */

/* One ask that was begun, or is being finished. */
struct asking {
    struct dibs__lock_call call;
    struct dibs__sending sending;
    int64_t began;      /* when finish was called */
    bool has_exclusive; /* the channel of the call must be given back */
};

/* The ask that was begun, or a new one. NULL: no memory. */
static struct asking *asking_of(struct dibs__redis_store *store, const struct dibs__op *op)
{
    struct asking *asking = op->state;

    if (asking || !(asking = dibs__lock_call_new(sizeof *asking, store, op)))
        return asking;
    asking->sending = (struct dibs__sending){.attempt = op->ask.attempt};
    asking->has_exclusive = false;
    return asking;
}

/* --------------------------------------------------------------- plain commands */

/*
 * A name that this process gave up a moment ago (relocks.c) is asked for by plain commands.
 *
 * acquire.lua makes a fence that is larger than all before, which costs the server twice as much as SET NX. The process
 * that was granted the lock last needs no new fence: as long as F is what that grant left, nobody has been granted the
 * lock since, and the next of the 1,024 steps of that fence is larger than all before. So one write asks three things:
 * does nobody wait (EXISTS Q)? Is the lock free (SET K NX PX)? If so, it is taken. Was nobody granted it since (GET F)?
 * The lock is granted if all three are true. If one is not, everything is left as it was, except K, which requeue.lua
 * gives back to whoever waits, and asks for with a new fence (rule 70 of PROTOCOL.md). A sharer that was the only one
 * does the same.
 */
static dibs_status send_relock(struct dibs__redis_store *store, struct asking *asking, struct dibs__error *error)
{
    struct dibs__attempt *attempt = asking->sending.attempt;
    const struct dibs__key *keys = asking->call.keys;
    char lease[24];
    const char *const exists[] = {"EXISTS", keys[DIBS__KEY_QUEUE].bytes, NULL};
    const char *const set[] = {"SET", keys[DIBS__KEY_LOCK].bytes, attempt->token, "NX", "PX", lease, NULL};
    const char *const get[] = {"GET", keys[DIBS__KEY_FENCE].bytes, NULL};
    const struct dibs__command before[] = {{.words = exists}, {.words = set}};
    const struct dibs__command command = {.words = get, .before = before, .before_count = 2};

    *dibs__put_number(lease, attempt->lease_ms, 10) = '\0';
    dibs__redis_attempt_of(attempt)->may_lack_fence = true;
    return dibs__lock_call_send(store, &asking->call, &command, error);
}

static bool says(const redisReply *reply, uint64_t fence)
{
    char text[24];
    size_t size = (size_t)(dibs__put_number(text, fence, 10) - text);

    return reply->type == REDIS_REPLY_STRING && reply->len == size && memcmp(reply->str, text, size) == 0;
}

/* If the lock was not granted, a script must ask next. */
static dibs_status read_relock(struct dibs__redis_store *store, struct asking *asking,
                               const struct dibs__exchange *exchange)
{
    const struct dibs__relock *relock = &asking->sending.relock;
    struct dibs__attempt *attempt = asking->sending.attempt;
    struct dibs__answer *answer = asking->call.op->ask.answer;
    bool took = exchange->before & TOOK, may_queue = exchange->before & (QUEUED | DIBS__BEFORE_REFUSED);

    attempt->in_store = took;
    asking->call.decided = took && !may_queue && says(exchange->reply, relock->fence);
    if (!asking->call.decided)
        return dibs__error_set(exchange->error, DIBS_UNAVAILABLE, "%s: the lock was wanted elsewhere",
                               store->endpoint.url.shown);
    dibs__redis_attempt_of(attempt)->may_lack_fence = false;
    answer->fence = relock->fence;
    answer->step = relock->step;
    return DIBS_OK;
}

/* ---------------------------------------------------------------- the sending */

/*
 * Whether the ask goes to a server that may know less than the one which said who owns the lock. That owner restores
 * its lease, and is given the time that it had left.
 */
static bool is_left_to_its_owner(const struct dibs__redis_store *store, struct dibs__attempt *attempt,
                                 const struct dibs__link_view *view)
{
    const struct dibs__redis_attempt *store_state = dibs__redis_attempt_of(attempt);

    return store_state->seen_server && store_state->seen_server != view->server &&
           dibs__now(store->config.clock) < store_state->seen_until;
}

static enum dibs__script script_of(const struct dibs__redis_store *store, struct dibs__attempt *attempt)
{
    if (dibs__redis_attempt_of(attempt)->may_lack_fence)
        return DIBS__SCRIPT_requeue;
    if (store->config.is_member)
        return DIBS__SCRIPT_acquire_member;
    return attempt->shared ? DIBS__SCRIPT_acquire_shared : DIBS__SCRIPT_acquire;
}

/* Whether the first ask of the attempt may use plain commands, because all that matters is whether the lock is free. */
static bool may_relock(const struct dibs__redis_store *store, const struct asking *asking)
{
    const struct dibs__attempt *attempt = asking->sending.attempt;
    const struct dibs__link_view *view = &asking->call.view;

    return attempt->number == 0 && !attempt->fair && !asking->sending.leave && attempt->lease_ms <= RELOCK_MOST_MS &&
           !store->config.is_member && !dibs__redis_confirms(store) && !view->cluster &&
           dibs__link_can_be_ended(&view->id);
}

static void choose_form(struct dibs__redis_store *store, struct asking *asking)
{
    struct dibs__attempt *attempt = asking->sending.attempt;
    uint64_t server = asking->call.view.server;

    asking->sending.relock.fence = 0;
    asking->sending.leave = is_left_to_its_owner(store, attempt, &asking->call.view);
    if (!may_relock(store, asking))
        return;
    int64_t now = dibs__now(store->config.clock);
    dibs__redis_mutex_lock(&store->mutex);
    asking->sending.relock = dibs__relocks_take(store->relocks, attempt->name, server, attempt->shared, now);
    dibs__redis_mutex_unlock(&store->mutex);
}

/* error NULL: the ask is only begun, and this never blocks. */
static dibs_status send_ask(struct dibs__redis_store *store, struct asking *asking, struct dibs__error *error)
{
    struct dibs__lock_call *call = &asking->call;
    struct dibs__attempt *attempt = asking->sending.attempt;

    choose_form(store, asking);
    struct dibs__ask_words words = dibs__sending_compose(store, &asking->sending, call);
    if (asking->sending.relock.fence)
        return send_relock(store, asking, error);
    enum dibs__script script = script_of(store, attempt);
    dibs__lock_call_write(call, script, store->config.is_member);
    if (script == DIBS__SCRIPT_requeue)
        dibs__codec_requeue(&call->call.words, attempt->token, &words);
    else
        dibs__codec_acquire(&call->call.words, &words);
    return dibs__lock_call_send(store, call, NULL, error);
}

static bool must_queue(const struct dibs__attempt *attempt)
{
    return attempt->wait && attempt->fair;
}

/* Sends the ask, if the attempt may be asked for on the connection of call->view. */
static dibs_status check_and_send(struct dibs__redis_store *store, struct dibs__lock_call *call,
                                  struct dibs__error *error)
{
    struct asking *asking = (struct asking *)call;
    struct dibs__attempt *attempt = asking->sending.attempt;

    if (dibs__redis_attempt_may_be_overtaken(attempt, &call->view)) {
        dibs__redis_attempt_retire(store, attempt, call->op->ask.answer);
        call->decided = true;
        return dibs__error_set(error, DIBS_UNAVAILABLE, "%s did not confirm that it ended the connection that broke",
                               store->endpoint.url.shown);
    }
    if (must_queue(attempt) && !call->view.may_publish)
        return dibs__redis_attempt_no_right(store, "PUBLISH", error);
    return dibs__redis_check_disk(store, &call->view, error) == DIBS_OK ? send_ask(store, asking, error)
                                                                        : error->status;
}

/* ----------------------------------------------------------------- the answer */

/*
 * Waits for the disk, or for replicas, until that time. answer->why is set if the server was asked, and they do not
 * have the grant.
 */
static dibs_status wait_for(struct dibs__redis_store *store, const struct dibs__lock_call *call, bool on_disk,
                            int64_t until, struct dibs__error *error)
{
    struct dibs__copies copies = {.on_disk = on_disk,
                                  .count = on_disk ? 1 : store->config.min_replicas,
                                  .timeout_ms = dibs__ms_until(until, dibs__now(store->config.clock)),
                                  .shown = store->endpoint.url.shown};
    bool is_short = until == call->op->deadline; /* a time in ms would only say how late the ask was */
    char within[48] = "when the time was over";
    int64_t count = 0;
    bool counted = false;

    if (!is_short)
        snprintf(within, sizeof within, "within %" PRId64 " ms", copies.timeout_ms);
    if (is_short && copies.timeout_ms > INT64_C(2) * WAIT_GRACE_MS)
        copies.timeout_ms -= WAIT_GRACE_MS; /* so that the number comes in time */
    if (copies.timeout_ms > 0) {
        int64_t deadline = dibs__after_ms(call->op->deadline, WAIT_GRACE_MS);
        dibs_status status =
            dibs__call_wait(store->channels[call->channel], call->view.serial, &copies, deadline, &count, error);
        counted = status == DIBS_OK;
        bool cut_off = is_short && status == DIBS_UNAVAILABLE &&
                       dibs__now(store->config.clock) >= deadline; /* the number may come too late */
        if ((status != DIBS_OK && !cut_off) || count >= copies.count)
            return status;
        call->op->ask.answer->why = DIBS__WHY_TOO_FEW_REPLICAS;
    }
    if (on_disk)
        return dibs__error_set(error, DIBS_UNAVAILABLE, "%s did not have the grant on its disk %s", copies.shown,
                               within);
    if (!counted)
        return dibs__error_set(error, DIBS_UNAVAILABLE, "too few replicas acknowledged %s: %s must have %u", within,
                               copies.shown, store->config.min_replicas);
    return dibs__error_set(error, DIBS_UNAVAILABLE, "%" PRId64 " of %u replicas acknowledged %s", count, copies.count,
                           within);
}

/*
 * The lock was granted on that connection. The lock is given back unless the disk, and enough replicas, have the grant.
 * That of a member is left to the quorum: the other members may hold the lock, and then a renewal will count.
 */
static dibs_status confirm(struct dibs__redis_store *store, const struct dibs__lock_call *call,
                           struct dibs__error *error)
{
    struct dibs__attempt *attempt = call->op->ask.attempt;
    struct dibs__answer *answer = call->op->ask.answer;
    int64_t until = dibs__after_ms(dibs__now(store->config.clock), store->config.replica_timeout_ms);
    dibs_status status = DIBS_OK;

    if (until > call->op->deadline)
        until = call->op->deadline;
    if (store->config.durable)
        status = wait_for(store, call, true, until, error);
    if (status == DIBS_OK && store->config.min_replicas > 0)
        status = wait_for(store, call, false, until, error);
    if (status == DIBS_OK)
        return DIBS_OK;
    if (store->config.is_member) {
        answer->why = DIBS__WHY_TOO_FEW_REPLICAS;
        return status;
    }
    dibs__redis_retract(&store->store, attempt->name, attempt->token, attempt->lease_ms, answer->fence);
    dibs__redis_attempt_set_back(attempt);
    answer->retired = DIBS__RETIRED;
    return status;
}

static void doubt(struct dibs__redis_store *store, struct dibs__lock_call *call)
{
    struct dibs__answer *answer = call->op->ask.answer;

    dibs__sending_doubt(store, &((struct asking *)call)->sending, call, answer);
    call->decided = answer->retired != DIBS__NOT_RETIRED;
}

/*
 * Renewals may reach a server later than asks do. If the server that asks went to has been replaced by then, it was
 * another one for renewals too: so the first server is noted.
 */
static dibs_status read_answer(struct dibs__redis_store *store, struct dibs__lock_call *call,
                               struct dibs__exchange *exchange)
{
    struct asking *asking = (struct asking *)call;
    struct dibs__answer *answer = call->op->ask.answer;
    const redisReply *reply = exchange->reply;
    struct dibs__release_reply said;
    dibs_status status;

    if (atomic_load_explicit(&store->first_server, memory_order_relaxed) == 0)
        atomic_store_explicit(&store->first_server, call->view.server, memory_order_relaxed);
    if (asking->sending.relock.fence)
        return read_relock(store, asking, exchange);
    if (dibs__redis_attempt_of(asking->sending.attempt)->may_lack_fence && dibs__codec_read_release(&said, reply) &&
        said.ask) {
        if (said.unfinished)
            dibs__redis_go_on(store, call->op->name);
        reply = said.ask;
    }
    status = dibs__sending_read(store, &asking->sending, call, reply, &call->decided, answer, exchange->error);
    return status == DIBS_OK && dibs__redis_confirms(store) ? confirm(store, call, exchange->error) : status;
}

/* ---------------------------------------------------------------- the channel */

/* Fair asks that are sent one after the other must arrive in that order, so they share the first connection. */
static size_t first_connected(const struct dibs__redis_store *store)
{
    size_t i = 0;

    while (i < DIBS__COMMON && !dibs__channel_is_connected(store->channels[i]))
        i++;
    return i < DIBS__COMMON ? i : 0;
}

/* The channel of the token's asks or, if that is not connected and no ask is in doubt, another one. */
static void choose_channel(struct dibs__redis_store *store, struct asking *asking)
{
    struct dibs__redis_attempt *store_state = dibs__redis_attempt_of(asking->sending.attempt);

    if (store_state->channel == 0 ||
        (!store_state->doubt && !dibs__channel_is_connected(store->channels[store_state->channel - 1])))
        store_state->channel =
            1 + (unsigned)(asking->sending.attempt->fair ? first_connected(store) : dibs__redis_pick(store));
    asking->call.channel = store_state->channel - 1;
}

/* An exclusive channel that nobody uses; channel_count: there is none. */
static size_t find_free(const struct dibs__redis_store *store, bool connected) DIBS__REQUIRES(dibs__redis_mutex)
{
    size_t i = DIBS__COMMON;

    while (i < store->channel_count &&
           (store->in_use[i] || (connected && !dibs__channel_is_connected(store->channels[i]))))
        i++;
    return i;
}

/*
 * Takes an exclusive channel, which must be given back; if possible one that is connected, and with `connected` only
 * such a one. False: none was free until the deadline.
 */
static bool take_exclusive(struct dibs__redis_store *store, struct asking *asking, bool connected, int64_t deadline)
{
    size_t i;

    dibs__redis_mutex_lock(&store->mutex);
    for (;;) {
        i = find_free(store, true);
        if (i == store->channel_count && !connected)
            i = find_free(store, false);
        if (i < store->channel_count || dibs__now(store->config.clock) >= deadline)
            break;
        store->choosy += connected;
        store->config.clock->wait(store->config.clock, &store->exclusive_freed, &store->mutex, deadline);
        store->choosy -= connected;
    }
    if (i < store->channel_count)
        store->in_use[i] = true;
    dibs__redis_mutex_unlock(&store->mutex);
    asking->call.channel = i;
    return asking->has_exclusive = i < store->channel_count;
}

static void give_back(struct dibs__redis_store *store, struct asking *asking)
{
    if (!asking->has_exclusive)
        return;
    asking->has_exclusive = false;
    dibs__redis_mutex_lock(&store->mutex);
    store->in_use[asking->call.channel] = false;
    if (store->choosy > 0) /* the one thread that a signal would wake may need a channel that is connected */
        pthread_cond_broadcast(&store->exclusive_freed);
    else
        pthread_cond_signal(&store->exclusive_freed);
    dibs__redis_mutex_unlock(&store->mutex);
}

/* Has an exclusive channel that nobody uses connected in the background, unless none is free. */
static void want_exclusive(struct dibs__redis_store *store, struct asking *asking)
{
    dibs__redis_mutex_lock(&store->mutex);
    size_t i = asking->call.channel = find_free(store, false);
    dibs__redis_mutex_unlock(&store->mutex);
    if (i < store->channel_count)
        asking->call.tries = dibs__channel_need(store->channels[i]);
}

/*
 * If an earlier ask is in doubt, the token is retired instead, provided that another channel is known to serve: by a
 * look or, if the time is over, by an answer since the operation began.
 */
static bool moves(struct dibs__redis_store *store, struct dibs__lock_call *call)
{
    struct asking *asking = (struct asking *)call;
    struct dibs__attempt *attempt = asking->sending.attempt;
    bool in_time = dibs__now(store->config.clock) < call->op->deadline;
    int64_t heard = atomic_load_explicit(&store->last_reply_at, memory_order_relaxed);

    if (!dibs__redis_another_is_connected(store, call->channel))
        return false;
    if (asking->has_exclusive) {
        give_back(store, asking);
        return take_exclusive(store, asking, true, call->op->deadline);
    }
    if (!dibs__redis_attempt_of(attempt)->doubt) {
        choose_channel(store, asking);
        return true;
    }
    if (in_time || heard >= asking->began)
        dibs__redis_attempt_retire(store, attempt, call->op->ask.answer);
    return false;
}

/* ------------------------------------------------------------------- contract */

/* Takes the channel for an ask that is begun. False: it is not connected, so nothing can be sent yet. */
static bool begin_on_channel(struct dibs__redis_store *store, struct asking *asking)
{
    if (!dibs__redis_confirms(store)) {
        choose_channel(store, asking);
    } else if (!take_exclusive(store, asking, true, 0)) {
        want_exclusive(store, asking);
        return false;
    }
    return dibs__lock_call_standing(store, &asking->call);
}

/* Whether nothing but sending the ask is needed now. If more is needed, that is left to finish. */
static bool needs_only_sending(struct dibs__redis_store *store, struct asking *asking)
{
    struct dibs__attempt *attempt = asking->sending.attempt;
    struct dibs__error unused;

    if (attempt->wait)
        asking->sending.subscription = dibs__subscriber_serial(store->subscriber);
    if (must_queue(attempt) && (!asking->sending.subscription || !asking->call.view.may_publish))
        return false;
    return !dibs__redis_attempt_may_be_overtaken(attempt, &asking->call.view) &&
           dibs__redis_check_disk(store, &asking->call.view, &unused) == DIBS_OK;
}

void dibs__redis_ask_begin(struct dibs__store *base, struct dibs__op *op)
{
    struct dibs__redis_store *store = dibs__redis_of(base);

    struct asking *asking = op->state = asking_of(store, op);
    if (!asking)
        return;
    DIBS__REQUIRE(!asking->call.request && !asking->has_exclusive);
    if (!begin_on_channel(store, asking) || !needs_only_sending(store, asking) ||
        send_ask(store, asking, NULL) != DIBS_OK)
        give_back(store, asking);
}

/*
 * Chooses the channel, and the subscription that will receive a grant, unless the ask is under way already. A fair
 * attempt waits until there is a subscription.
 */
static dibs_status prepare(struct dibs__redis_store *store, struct asking *asking, struct dibs__error *error)
{
    struct dibs__sending *sending = &asking->sending;

    asking->began = dibs__now(store->config.clock);
    if (asking->call.request)
        return DIBS_OK;
    if (!dibs__redis_confirms(store))
        choose_channel(store, asking);
    else if (!take_exclusive(store, asking, false, asking->call.op->deadline))
        return dibs__error_set(error, DIBS_UNAVAILABLE, "all %d connections wait for replicas or the disk",
                               DIBS__EXCLUSIVE);
    if (must_queue(sending->attempt))
        return dibs__subscriber_await(store->subscriber, asking->call.op->deadline, &sending->subscription, error);
    sending->subscription = sending->attempt->wait ? dibs__subscriber_serial(store->subscriber) : 0;
    return DIBS_OK;
}

/*
 * The lock is free, or about to be, but the queue of waiters that died is too long for one script. An acquire that
 * waits asks again soon. A single try continues here until half a command timeout is left, so that the last answer
 * comes in time.
 */
static bool goes_on(const struct dibs__redis_store *store, const struct dibs__op *op, dibs_status status)
{
    bool may = status == DIBS_BUSY && !op->ask.attempt->wait && !store->config.is_member &&
               op->ask.answer->again_ms == DIBS__AT_ONCE_MS;

    return may && dibs__ms_until(op->deadline, dibs__now(store->config.clock)) > store->config.command_timeout_ms / 2;
}

/*
 * An ask whose connection broke is sent again under the same token if the next connection ended the last one: then the
 * first ask either was executed, and the next one finds the token as the owner or in the queue, or it never will be.
 */
dibs_status dibs__redis_ask_finish(struct dibs__store *base, struct dibs__op *op, struct dibs__error *error)
{
    static const struct dibs__lock_call_ops ops = {moves, check_and_send, doubt, read_answer};
    struct dibs__redis_store *store = dibs__redis_of(base);
    struct asking *asking = asking_of(store, op);
    struct dibs__answer *answer = op->ask.answer;

    *answer = (struct dibs__answer){.fence = 0};
    op->state = NULL;
    if (!asking)
        return dibs__lock_call_no_memory(error);
    dibs_status status = prepare(store, asking, error);
    if (status == DIBS_OK)
        do
            status = dibs__lock_call_run(store, &asking->call, &ops, error);
        while (goes_on(store, op, status));
    give_back(store, asking);
    dibs__lock_call_free(&asking->call);
    dibs__redis_attempt_asked(store, op->ask.attempt);
    answer->last_reply_at = atomic_load_explicit(&store->last_reply_at, memory_order_relaxed);
    return status;
}
