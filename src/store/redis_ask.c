/*
 * What threads ask the server for, and what it says by itself.
 *
 * All asks of a token go over one channel, so that they are executed in the
 * order in which they were sent. Only if all of them were answered may the next
 * go over another channel, where that stands and their own does not. With min_replicas over one that nobody else
 * uses for that time, because WAIT blocks what comes behind it.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "redis/reply.h"
#include "store/push.h"
#include "store/redis_store.h"

#define WAIT_GRACE_MS 5 /* WAIT's own timeout comes first */

/* How often a waiter asks that can't be told: the owner is foreign, or its channel is deaf. */
#define POLL_LEAST_MS 50
#define POLL_MOST_MS 100

/* One ask as it is sent: on which connection, and which subscription will hear of a grant (0: it does not queue). */
struct sending {
    struct dibs__ask *ask;
    size_t channel;
    struct dibs__link_view view;
    uint64_t subscription;
    int64_t not_after;
    bool leave; /* it only joins the queue */
};

void dibs__redis_retract(struct dibs__store *base, const char *name, const char *token, uint32_t lease_ms)
{
    struct dibs__redis_store *store = dibs__redis_of(base);

    dibs__redis_mutex_lock(&store->mutex);
    struct dibs__route route = store->healed; /* what may set the lease again comes before what deletes it */
    dibs__redis_mutex_unlock(&store->mutex);
    dibs__retractions_add(store->retractions, name, token, lease_ms, &route);
}

static void add_ask(struct dibs__lock_call *call, struct dibs__redis_store *store, struct sending *sending)
{
    struct dibs__ask *ask = sending->ask;

    if (!sending->view.may_publish) /* whoever releases, under this account, could not tell */
        sending->subscription = 0;
    ask->number++;
    ask->proof = dibs__now(store->config.clock);
    ask->server = sending->view.server;
    sending->not_after = dibs__redis_not_after(store, &sending->view, ask->proof);
    dibs__lock_call_add(call, ask->token);
    dibs__call_add_number(&call->call, (int64_t)ask->number);
    dibs__call_add_number(&call->call, ask->lease_ms);
    dibs__lock_call_add(call, sending->subscription ? store->endpoint.channel : "");
    dibs__call_add_number(&call->call, sending->not_after);
    if (sending->leave)
        dibs__lock_call_add(call, "leave");
}

static void forget_doubt(struct dibs__ask *ask)
{
    free(ask->doubt);
    ask->doubt = NULL;
}

/*
 * The token is retracted, by the way that its last sending went, and no more
 * asked for: what may still be under way can't be waited for or followed.
 */
static void spend(struct dibs__redis_store *store, struct dibs__ask *ask, const struct dibs__route *route,
                  struct dibs__answer *answer)
{
    dibs__retractions_add(store->retractions, ask->name, ask->token, ask->lease_ms, route);
    forget_doubt(ask);
    ask->in_store = false;
    answer->spent = true;
}

/* Whether the ask can queue: by the subscription that stands; a fair one waits for one. */
static dibs_status subscribe(struct dibs__redis_store *store, struct sending *sending, struct dibs__error *error)
{
    const struct dibs__ask *ask = sending->ask;

    sending->subscription = 0;
    if (ask->wait && ask->fair)
        return dibs__subscriber_await(store->subscriber, ask->deadline, &sending->subscription, error);
    if (ask->wait)
        sending->subscription = dibs__subscriber_serial(store->subscriber);
    return DIBS_OK;
}

static dibs_status no_right(const struct dibs__redis_store *store, const char *to, struct dibs__error *error)
{
    return dibs__error_set(error, DIBS_DENIED, "%s: DIBS_FAIR needs the right to %s", store->endpoint.url.shown, to);
}

/* Whether a sending whose outcome is unknown may still arrive after what is sent on the connection of `view`. */
static bool may_be_overtaken(const struct dibs__ask *ask, const struct dibs__link_view *view)
{
    const struct dibs__route *route = ask->doubt;

    return route && !dibs__view_is_behind(view, route->serial);
}

/*
 * The outcome of the sending is unknown. Where the next connection of the same
 * channel may prove the end of this one, asks go on there under the same
 * token; else that token is spent.
 */
static void doubt(struct dibs__redis_store *store, const struct sending *sending, struct dibs__answer *answer)
{
    struct dibs__ask *ask = sending->ask;
    struct dibs__route route = {store->channels[sending->channel], sending->view.serial, sending->view.id,
                                sending->not_after};
    bool goes_on = sending->channel < DIBS__SHARED && dibs__link_can_be_ended(&route.link);

    if (goes_on && !ask->doubt)
        ask->doubt = malloc(sizeof route);
    if (goes_on && ask->doubt) {
        memcpy(ask->doubt, &route, sizeof route);
        return;
    }
    spend(store, ask, &route, answer);
}

static int64_t earlier(int64_t pause_ms, int64_t pttl)
{
    return pttl >= 0 && pttl < pause_ms ? pttl + 1 : pause_ms;
}

static void note_owner(struct dibs__redis_store *store, const struct sending *sending, int64_t pttl)
{
    sending->ask->seen_until = dibs__after_ms(dibs__now(store->config.clock), pttl);
    sending->ask->seen_server = sending->view.server;
}

/*
 * Whether a server is asked that may know less than the one that said who owns
 * the lock: its holder sets it again, and is given the time that it had.
 */
static bool is_left_to_its_owner(struct dibs__redis_store *store, const struct sending *sending)
{
    const struct dibs__ask *ask = sending->ask;

    return ask->seen_server && ask->seen_server != sending->view.server &&
           dibs__now(store->config.clock) < ask->seen_until;
}

/* What would be free is left to its owner no longer than that. */
static void ask_when_its_time_is_over(struct dibs__redis_store *store, const struct sending *sending,
                                      struct dibs__answer *answer)
{
    int64_t left = dibs__ms_until(sending->ask->seen_until, dibs__now(store->config.clock)) + 1;

    if (sending->leave && left < answer->again_ms)
        answer->again_ms = left;
}

/* What acquire.lua answered where another has the lock: when to ask again, if no push comes before. */
static dibs_status read_taken(struct dibs__redis_store *store, const struct sending *sending, const redisReply *reply,
                              struct dibs__answer *answer, struct dibs__error *error)
{
    int64_t pttl = -1, by_dibs = 0, listeners = 0;

    dibs__reply_integer(reply, 1, &pttl);
    dibs__reply_integer(reply, 2, &by_dibs);
    dibs__reply_integer(reply, 3, &listeners);
    answer->again_ms = earlier(dibs__jitter(POLL_LEAST_MS, POLL_MOST_MS), pttl);
    if (pttl > 0)
        note_owner(store, sending, pttl);
    if (!sending->subscription)
        return DIBS_BUSY;
    sending->ask->in_store = true;
    if (listeners < 0 && sending->ask->fair)
        return no_right(store, "PUBSUB NUMSUB", error);
    if (listeners == 0)
        dibs__subscriber_distrust(store->subscriber, sending->subscription);
    if (listeners > 0 && dibs__subscriber_confirm(store->subscriber, sending->subscription) && by_dibs)
        answer->again_ms = earlier(sending->ask->lease_ms / 3, pttl);
    return DIBS_BUSY;
}

/* An answer settles the asks before it too: the store may know the token. A refusal tells nothing of them. */
static void settle_doubt(struct dibs__ask *ask)
{
    ask->in_store = ask->in_store || ask->doubt;
    forget_doubt(ask);
}

/* What acquire.lua answered. *decided: so that sending it again would not help. */
static dibs_status read_answer(struct dibs__redis_store *store, const struct sending *sending, const redisReply *reply,
                               bool *decided, struct dibs__answer *answer, struct dibs__error *error)
{
    int64_t code, number;

    *decided = true;
    if (!dibs__reply_integer(reply, 0, &code) || !dibs__reply_integer(reply, 1, &number))
        return dibs__redis_reply_error(store, "acquiring", sending->ask->name, reply, error);
    if (code == 0 || code == 1)
        settle_doubt(sending->ask);
    if (code == 0) {
        dibs_status status = read_taken(store, sending, reply, answer, error);
        ask_when_its_time_is_over(store, sending, answer);
        return status;
    }
    if (code == 1) {
        sending->ask->in_store = true;
        if (number <= 0 || number >= DIBS__REPLY_MOST)
            return dibs__redis_reply_error(store, "acquiring", sending->ask->name, reply, error);
        answer->fence = (uint64_t)number;
        return DIBS_OK;
    }
    /* Too late, as the server's clock has it: that was set since this connection began. By its new time, once more. */
    *decided = false;
    if (code == -1)
        dibs__channel_set_clock(store->channels[sending->channel], sending->view.serial,
                                number - dibs__now(store->config.clock) / 1000);
    return dibs__error_set(error, DIBS_UNAVAILABLE, "%s took the request for one that came too late",
                           store->endpoint.url.shown);
}

/* It was granted on that connection: enough replicas must have heard of it, or it is given back. */
static dibs_status wait_for_replicas(struct dibs__redis_store *store, const struct sending *sending,
                                     struct dibs__answer *answer, struct dibs__error *error)
{
    const struct dibs__ask *ask = sending->ask;
    uint32_t wanted = store->config.min_replicas;
    int64_t left = dibs__ms_until(ask->deadline, dibs__now(store->config.clock));
    int64_t timeout_ms = left < store->config.replica_timeout_ms ? left : store->config.replica_timeout_ms;
    int64_t count = -1;

    if (timeout_ms > 0) /* to WAIT, 0 is for ever */
        count = dibs__call_wait(store->channels[sending->channel], sending->view.serial, wanted, timeout_ms,
                                dibs__after_ms(ask->deadline, WAIT_GRACE_MS));
    if (count >= wanted)
        return DIBS_OK;
    dibs__redis_retract(&store->store, ask->name, ask->token, ask->lease_ms);
    answer->spent = true;
    answer->unmet = count >= 0;
    return dibs__error_set(error, DIBS_UNAVAILABLE, "%" PRId64 " of %u replicas acknowledged within %" PRId64 " ms",
                           count > 0 ? count : 0, wanted, timeout_ms);
}

/* One ask on the connection of `sending`. *unknown: it may have been executed. */
static dibs_status ask_once(struct dibs__redis_store *store, struct sending *sending, bool *decided, bool *unknown,
                            struct dibs__answer *answer, struct dibs__error *error)
{
    struct dibs__lock_call call;
    redisReply *reply;

    *decided = false;
    dibs_status status = dibs__lock_call_init(&call, store, DIBS__SCRIPT_acquire, sending->ask->name, error);
    if (status != DIBS_OK)
        return status;
    status = dibs__redis_check_slots(store, &sending->view, call.keys[DIBS__KEY_LOCK].bytes, error);
    if (status == DIBS_OK) {
        add_ask(&call, store, sending);
        status = dibs__call_run(&call.call, store->channels[sending->channel], &sending->view, sending->ask->deadline,
                                &reply, unknown, error);
    }
    dibs__lock_call_free(&call);
    if (status != DIBS_OK)
        return status;
    status = read_answer(store, sending, reply, decided, answer, error);
    freeReplyObject(reply);
    return status == DIBS_OK && store->config.min_replicas > 0 ? wait_for_replicas(store, sending, answer, error)
                                                               : status;
}

/*
 * Asks on one channel, again where its connection broke. That is safe under
 * the same token if the next connection ended the last: the ask then is either
 * done, and finds itself the owner or in the queue, or never will be.
 * *connected: whether there was a connection at last.
 */
static dibs_status ask_on(struct dibs__redis_store *store, size_t channel, struct dibs__ask *ask,
                          struct dibs__answer *answer, bool *connected, struct dibs__error *error)
{
    struct sending sending = {.ask = ask, .channel = channel};
    int resends = 0;
    bool decided;
    dibs_status status = subscribe(store, &sending, error);

    *connected = true;
    if (status != DIBS_OK)
        return status;
    do {
        bool unknown = false;
        status = dibs__channel_open(store->channels[channel], ask->deadline, &sending.view, error);
        *connected = status == DIBS_OK;
        if (status != DIBS_OK)
            break;
        if (may_be_overtaken(ask, &sending.view)) {
            spend(store, ask, ask->doubt, answer);
            return dibs__error_set(error, DIBS_UNAVAILABLE,
                                   "%s did not confirm that it ended the connection that broke",
                                   store->endpoint.url.shown);
        }
        if (ask->wait && ask->fair && !sending.view.may_publish)
            return no_right(store, "PUBLISH", error);
        sending.leave = is_left_to_its_owner(store, &sending);
        status = ask_once(store, &sending, &decided, &unknown, answer, error);
        if (unknown)
            doubt(store, &sending, answer);
    } while (!decided && !answer->spent && dibs__redis_once_more(store, status, &resends, ask->deadline));
    return status;
}

/*
 * The channel of the ask could not be connected since `began`. True: it may go
 * over another. One that is in doubt is given up instead, if another channel is
 * known to serve: by a look, or, where the time is over, by an answer meanwhile.
 */
static bool leaves_channel(struct dibs__redis_store *store, struct dibs__ask *ask, int64_t began,
                           struct dibs__answer *answer)
{
    bool in_time = dibs__now(store->config.clock) < ask->deadline;
    int64_t heard = atomic_load_explicit(&store->config.counters->heard, memory_order_relaxed);

    if (!dibs__redis_another_stands(store, ask->route - 1))
        return false;
    if (!ask->doubt)
        return in_time;
    if (in_time || heard >= began)
        spend(store, ask, ask->doubt, answer);
    return false;
}

static dibs_status ask_shared(struct dibs__redis_store *store, struct dibs__ask *ask, struct dibs__answer *answer,
                              struct dibs__error *error)
{
    int64_t began = dibs__now(store->config.clock);
    dibs_status status;
    bool connected;
    int moves = 0;

    do {
        if (ask->route == 0 || (!ask->doubt && !dibs__channel_stands(store->channels[ask->route - 1])))
            ask->route = (unsigned)dibs__redis_pick(store) + 1;
        status = ask_on(store, ask->route - 1, ask, answer, &connected, error);
    } while (status == DIBS_UNAVAILABLE && !connected && leaves_channel(store, ask, began, answer) &&
             ++moves < DIBS__SHARED);
    return status;
}

/* Over a channel that nobody else uses; where that can't be connected, over the next that is. */
static dibs_status ask_exclusively(struct dibs__redis_store *store, struct dibs__ask *ask, struct dibs__answer *answer,
                                   struct dibs__error *error)
{
    bool connected = true, moved = false;
    dibs_status status;
    size_t channel;

    do {
        moved = !connected;
        if (!dibs__redis_take_exclusive(store, moved, ask->deadline, &channel))
            return dibs__error_set(error, DIBS_UNAVAILABLE, "all %d connections wait for replicas", DIBS__EXCLUSIVE);
        status = ask_on(store, channel, ask, answer, &connected, error);
        dibs__redis_give_back(store, channel);
    } while (status == DIBS_UNAVAILABLE && !connected && !moved && !answer->spent &&
             dibs__redis_another_stands(store, channel));
    return status;
}

dibs_status dibs__redis_acquire(struct dibs__store *base, struct dibs__ask *ask, struct dibs__answer *answer,
                                struct dibs__error *error)
{
    struct dibs__redis_store *store = dibs__redis_of(base);

    *answer = (struct dibs__answer){.fence = 0};
    dibs_status status = store->config.min_replicas > 0 ? ask_exclusively(store, ask, answer, error)
                                                        : ask_shared(store, ask, answer, error);
    dibs__redis_heard(store, status);
    return status;
}

void dibs__redis_conclude(struct dibs__store *base, struct dibs__ask *ask, bool held)
{
    static const struct dibs__route nowhere = {.channel = NULL};

    if (!held && (ask->in_store || ask->doubt))
        dibs__retractions_add(dibs__redis_of(base)->retractions, ask->name, ask->token, ask->lease_ms,
                              ask->doubt ? ask->doubt : &nowhere);
    forget_doubt(ask);
    ask->in_store = false;
}

/* ------------------------------------------------------------------- grants */

/* The server granted a lock. Where nobody waits for it any more it is given back. */
void dibs__redis_on_push(void *context, const char *bytes, size_t size)
{
    struct dibs__redis_store *store = context;
    struct dibs__pushed pushed;

    if (!dibs__push_read(&pushed, store->key_prefix, bytes, size))
        return;
    pushed.grant.confirm = store->config.min_replicas > 0;
    if (!store->config.listener.granted(store->config.listener.context, &pushed.grant))
        dibs__redis_retract(&store->store, pushed.name, pushed.token, DIBS__LEASE_MAX_MS); /* not known here */
}

/* ------------------------------------------------------------------ release */

/*
 * One sending of a release. `sending` NULL: of it alone; else the ask behind it.
 * Not sent a second time: an ask that the end of its connection does not settle.
 */
static dibs_status release_once(struct dibs__redis_store *store, struct dibs__release *release, struct sending *sending,
                                const struct dibs__link_view *view, size_t channel, redisReply **reply, bool *unknown,
                                struct dibs__error *error)
{
    struct dibs__lock_call call;

    dibs_status status =
        dibs__lock_call_init(&call, store, sending ? DIBS__SCRIPT_requeue : DIBS__SCRIPT_release, release->name, error);
    if (status != DIBS_OK)
        return status;
    dibs__lock_call_add(&call, release->token);
    if (sending) {
        sending->view = *view;
        add_ask(&call, store, sending);
    }
    status = dibs__call_run(&call.call, store->channels[channel], view, release->deadline, reply, unknown, error);
    dibs__lock_call_free(&call);
    if (sending && *unknown)
        doubt(store, sending, &release->next_answer);
    return status;
}

/* What requeue.lua says of the ask. */
static void read_next(struct dibs__redis_store *store, struct dibs__release *release, const struct sending *sending,
                      const redisReply *reply)
{
    struct dibs__error unused;
    bool decided;

    if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2)
        release->next_status = read_answer(store, sending, reply->element[1], &decided, &release->next_answer, &unused);
}

/* On one channel, again where its connection broke. *connected: whether there was one at last. */
static dibs_status release_on(struct dibs__redis_store *store, size_t channel, struct dibs__release *release,
                              struct sending *next, redisReply **reply, bool *connected, struct dibs__error *error)
{
    struct dibs__link_view view;
    dibs_status status;
    int resends = 0;
    bool unknown = false;

    do {
        release->again = release->again || unknown;
        unknown = false;
        status = dibs__channel_open(store->channels[channel], release->deadline, &view, error);
        *connected = status == DIBS_OK;
        if (status != DIBS_OK)
            return status;
        if (next && may_be_overtaken(next->ask, &view))
            spend(store, next->ask, next->ask->doubt, &release->next_answer);
        bool ask = next && !release->next_answer.spent;
        status = release_once(store, release, ask ? next : NULL, &view, channel, reply, &unknown, error);
        if (status == DIBS_OK && ask)
            read_next(store, release, next, *reply);
    } while (dibs__redis_once_more(store, status, &resends, release->deadline));
    return status;
}

/*
 * Over another channel where one can't be connected: twice does no harm. But an
 * ask that was sent with it, and may be under way there, is given up for good.
 */
static dibs_status release_shared(struct dibs__redis_store *store, struct dibs__release *release, struct sending *next,
                                  redisReply **reply, struct dibs__error *error)
{
    dibs_status status;
    bool connected, moves;
    int moved = 0;

    do {
        size_t channel = dibs__redis_pick(store);
        if (next) {
            next->channel = channel;
            next->ask->route = (unsigned)channel + 1;
        }
        status = release_on(store, channel, release, next, reply, &connected, error);
        moves = status == DIBS_UNAVAILABLE && !connected && ++moved < DIBS__SHARED &&
                dibs__now(store->config.clock) < release->deadline && dibs__redis_another_stands(store, channel);
        if (moves && next && next->ask->doubt)
            spend(store, next->ask, next->ask->doubt, &release->next_answer);
    } while (moves);
    return status;
}

dibs_status dibs__redis_release(struct dibs__store *base, struct dibs__release *release, struct dibs__error *error)
{
    struct dibs__redis_store *store = dibs__redis_of(base);
    struct sending next = {.ask = release->next};
    redisReply *reply = NULL;
    int64_t code;

    release->again = false;
    release->next_status = DIBS_BUSY; /* not asked: to be asked for at once */
    release->next_answer = (struct dibs__answer){.again_ms = 0};
    bool ask = release->next && store->config.min_replicas == 0;
    if (ask) {
        release->next->deadline = release->deadline;
        release->next_status = DIBS_UNAVAILABLE;
        subscribe(store, &next, error);
    }
    dibs_status status = release_shared(store, release, ask ? &next : NULL, &reply, error);
    if (status == DIBS_OK) {
        if (dibs__reply_integer(reply, 0, &code))
            status = code == 1 ? DIBS_OK : DIBS_NOT_HELD;
        else
            status = dibs__redis_reply_error(store, "releasing", release->name, reply, error);
        freeReplyObject(reply);
    }
    dibs__redis_heard(store, status);
    if (status != DIBS_OK && status != DIBS_NOT_HELD)
        dibs__redis_retract(base, release->name, release->token, release->lease_ms);
    return status;
}
