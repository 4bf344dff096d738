/* What the store knows of an attempt, and what the server says of its asks. */
#include <stdlib.h>

#include "base/random.h"
#include "redis/reply.h"
#include "store/redis/redis_store.h"

/*
 * How often a waiter asks that can't be told of a grant, because the owner is foreign, or nobody listens on the
 * waiter's channel.
 */
#define POLL_LEAST_MS 50
#define POLL_MOST_MS 100
#define STEP_US 100000 /* a server's clock that is ahead of what was believed by more than this was set */
#define TOLD_MS 10000  /* the longest time between two asks of a waiter that is told of changes */

/*
 * After this time a waiter asks once more, so that its grant is told on the channel of its slot. While the slot moves,
 * the other server gives a hint only to waiters with that channel.
 */
#define SLOT_LEAST_MS 500
#define SLOT_MOST_MS 1000

_Static_assert(sizeof(struct dibs__redis_attempt) <= sizeof((struct dibs__attempt_store_state){0}.words),
               "what is noted leaves `outer` alone");
_Static_assert(_Alignof(struct dibs__redis_attempt) <= _Alignof(struct dibs__attempt_store_state), "and can lie there");

/* --------------------------------------------------------------- the outcome */

static void forget_doubt(struct dibs__redis_attempt *store_state)
{
    free(store_state->doubt);
    store_state->doubt = NULL;
}

void dibs__redis_attempt_set_back(struct dibs__attempt *attempt)
{
    struct dibs__redis_attempt *store_state = dibs__redis_attempt_of(attempt);

    forget_doubt(store_state);
    store_state->channel = 0;
    store_state->may_lack_fence = false;
    dibs__attempt_clear(attempt);
}

static void retire_by(struct dibs__redis_store *store, struct dibs__attempt *attempt, const struct dibs__route *route,
                      struct dibs__answer *answer)
{
    dibs__retractions_add(store->retractions, attempt->name, attempt->token, attempt->lease_ms, 0, route);
    dibs__redis_attempt_set_back(attempt);
    answer->retired = DIBS__RETIRED;
}

/*
 * At a member of a quorum, the token may hold the lock at other members, and renewals may set it here. So the token is
 * retracted only when its attempt is concluded.
 */
void dibs__redis_attempt_retire(struct dibs__redis_store *store, struct dibs__attempt *attempt,
                                struct dibs__answer *answer)
{
    DIBS__REQUIRE(dibs__redis_attempt_of(attempt)->doubt);
    if (store->config.is_member)
        answer->retired = DIBS__STUCK;
    else
        retire_by(store, attempt, dibs__redis_attempt_of(attempt)->doubt, answer);
}

bool dibs__redis_attempt_may_be_overtaken(struct dibs__attempt *attempt, const struct dibs__link_view *view)
{
    const struct dibs__route *route = dibs__redis_attempt_of(attempt)->doubt;

    return route && !dibs__view_is_behind(view, route->serial);
}

void dibs__sending_doubt(struct dibs__redis_store *store, const struct dibs__sending *sending,
                         const struct dibs__lock_call *call, struct dibs__answer *answer)
{
    struct dibs__redis_attempt *store_state = dibs__redis_attempt_of(sending->attempt);
    struct dibs__route route = {store->channels[call->channel], call->view.serial, call->view.id, sending->not_after};
    bool goes_on = call->channel < DIBS__COMMON && dibs__link_can_be_ended(&route.link);
    bool is_kept = goes_on || store->config.is_member;

    if (is_kept && !store_state->doubt)
        store_state->doubt = malloc(sizeof route);
    if (!is_kept || !store_state->doubt) {
        retire_by(store, sending->attempt, &route, answer);
        return;
    }
    *store_state->doubt = route;
    if (!goes_on)
        dibs__redis_attempt_retire(store, sending->attempt, answer);
}

void dibs__redis_conclude(struct dibs__store *base, struct dibs__attempt *attempt, bool held)
{
    struct dibs__redis_store *store = dibs__redis_of(base);
    struct dibs__redis_attempt *store_state = dibs__redis_attempt_of(attempt);
    bool retracts = !held && (attempt->in_store || store_state->doubt);

    if (retracts && (store_state->doubt || !store->config.is_member))
        dibs__retractions_add(store->retractions, attempt->name, attempt->token, attempt->lease_ms, 0,
                              store_state->doubt);
    if (retracts && store->config.is_member) /* a top-up may be under way too */
        dibs__redis_retract(base, attempt->name, attempt->token, attempt->lease_ms, 0);
    if (held) {
        forget_doubt(store_state);
        attempt->in_store = false;
    } else {
        dibs__redis_attempt_set_back(attempt);
    }
}

/* --------------------------------------------------------------- the sending */

/*
 * The channel on which a grant will be told; NULL: the token does not queue. This is the channel of the slot, if that
 * is subscribed to, else the runtime's own, whose messages go to all nodes of a cluster.
 */
static const char *choose_channel(struct dibs__redis_store *store, struct dibs__sending *sending,
                                  const struct dibs__lock_call *call)
{
    const struct dibs__key *lock = &call->keys[DIBS__KEY_LOCK];
    const struct dibs__attempt *attempt = sending->attempt;

    sending->slot_serial = 0;
    if (call->view.sharded && attempt->wait) {
        sending->slot = dibs__slot_of(lock->bytes, lock->size);
        sending->slot_serial = dibs__subscriber_slot(store->subscriber, sending->slot, attempt->lease_ms);
    }
    if (!sending->slot_serial && !call->view.may_publish) /* a release under this account could not tell of the grant */
        sending->subscription = 0;
    if (!sending->subscription)
        return NULL;
    if (!sending->slot_serial)
        return store->endpoint.channel;
    dibs__subscriber_slot_channel(store->subscriber, sending->slot, sending->channel);
    return sending->channel;
}

struct dibs__ask_words dibs__sending_compose(struct dibs__redis_store *store, struct dibs__sending *sending,
                                             const struct dibs__lock_call *call)
{
    struct dibs__attempt *attempt = sending->attempt;
    struct dibs__redis_lease *lease = dibs__redis_lease_of(&attempt->lease);

    const char *channel = choose_channel(store, sending, call);
    attempt->number++;
    attempt->proof = dibs__now(store->config.clock);
    *lease = (struct dibs__redis_lease){.server = call->view.server, .confirmed_at = attempt->proof};
    sending->not_after = dibs__redis_not_after(store, &call->view, attempt->proof);
    return (struct dibs__ask_words){
        .token = attempt->token,
        .number = attempt->number,
        .lease_ms = attempt->lease_ms,
        .channel = channel,
        .not_after = sending->not_after,
        .leave = sending->leave,
        .left_fence = dibs__redis_attempt_of(attempt)->seen_fence,
        .run = store->config.is_member ? dibs__codec_run(call->view.id.run_id) : NULL,
        .quorum = dibs__redis_quorum(store),
    };
}

/* ---------------------------------------------------------------- the answer */

static int64_t earlier(int64_t pause_ms, int64_t remaining_ms)
{
    return remaining_ms >= 0 && remaining_ms < pause_ms ? remaining_ms + DIBS__AT_ONCE_MS : pause_ms;
}

dibs_status dibs__redis_attempt_no_right(const struct dibs__redis_store *store, const char *to,
                                         struct dibs__error *error)
{
    return dibs__error_set(error, DIBS_DENIED, "%s: DIBS_FAIR needs the right to %s", store->endpoint.url.shown, to);
}

static void note_owner(struct dibs__redis_store *store, struct dibs__attempt *attempt,
                       const struct dibs__link_view *view, const struct dibs__ask_reply *reply)
{
    struct dibs__redis_attempt *store_state = dibs__redis_attempt_of(attempt);

    if (reply->lives_ms <= 0)
        return;
    store_state->seen_until = dibs__after_ms(dibs__now(store->config.clock), reply->lives_ms);
    store_state->seen_server = view->server;
    store_state->seen_fence = reply->last_fence;
}

/*
 * The time between two asks of a waiter that is told of changes: short enough to keep its place in the queue (rule 9).
 */
static int64_t told_ms(const struct dibs__attempt *attempt)
{
    int64_t ms = attempt->lease_ms / 3;

    return ms > TOLD_MS ? TOLD_MS : ms;
}

/* The server counted the listeners on the channel that the ask named. True: the waiter will be told. */
static bool trust(struct dibs__redis_store *store, const struct dibs__sending *sending, int64_t listeners)
{
    if (sending->slot_serial && listeners == 0)
        dibs__subscriber_distrust_slot(store->subscriber, sending->slot, sending->slot_serial);
    else if (listeners == 0)
        dibs__subscriber_distrust(store->subscriber, sending->subscription);
    if (listeners == 0 || (sending->slot_serial &&
                           !dibs__subscriber_confirm_slot(store->subscriber, sending->slot, sending->slot_serial)))
        return false;
    return dibs__subscriber_confirm(store->subscriber, sending->subscription);
}

/*
 * The time until a waiter that will be told of a grant asks again. soon: it asks earlier once, so that the grant is
 * told on a sharded channel.
 */
static int64_t pushed_ms(const struct dibs__attempt *attempt, bool soon)
{
    int64_t ms = attempt->lease_ms / 3, soon_ms = soon ? dibs__jitter(SLOT_LEAST_MS, SLOT_MOST_MS) : ms;

    return soon_ms < ms ? soon_ms : ms;
}

/* Sets when to ask again if no push comes before. soon: the channel of the slot is about to be subscribed to. */
static dibs_status queue_or_poll(struct dibs__redis_store *store, const struct dibs__sending *sending, bool soon,
                                 const struct dibs__ask_reply *reply, struct dibs__answer *answer,
                                 struct dibs__error *error)
{
    struct dibs__attempt *attempt = sending->attempt;

    answer->why = reply->recalled ? DIBS__WHY_KEPT
                                  : DIBS__WHY_UNTOLD; /* the recall may get lost, so the waiter asks again soon */
    answer->again_ms = earlier(dibs__jitter(POLL_LEAST_MS, POLL_MOST_MS), reply->remaining_ms);
    if (!reply->by_dibs)
        answer->told_ms = earlier(told_ms(attempt), reply->remaining_ms);
    if (!sending->subscription)
        return DIBS_BUSY;
    attempt->in_store = true;
    if (!reply->listeners_known && !sending->slot_serial)
        return attempt->fair ? dibs__redis_attempt_no_right(store, "PUBSUB NUMSUB", error) : DIBS_BUSY;
    if (trust(store, sending, reply->listeners) && reply->by_dibs && !reply->recalled)
        answer->again_ms = earlier(pushed_ms(attempt, soon), reply->remaining_ms);
    return DIBS_BUSY;
}

static dibs_status read_taken(struct dibs__redis_store *store, const struct dibs__sending *sending,
                              const struct dibs__link_view *view, const struct dibs__ask_reply *reply,
                              struct dibs__answer *answer, struct dibs__error *error)
{
    const struct dibs__attempt *attempt = sending->attempt;
    bool soon = view->sharded && attempt->wait && !sending->slot_serial &&
                dibs__subscriber_want_slot(store->subscriber, sending->slot, attempt->lease_ms);

    note_owner(store, sending->attempt, view, reply);
    dibs_status status = queue_or_poll(store, sending, soon, reply, answer, error);
    int64_t seen_until = dibs__redis_attempt_of(sending->attempt)->seen_until;
    int64_t left = dibs__ms_until(seen_until, dibs__now(store->config.clock)) + 1;

    if (sending->leave && left < answer->again_ms) /* a free lock is left to its former owner no longer than that */
        answer->again_ms = left;
    return status;
}

/* An answer settles the asks before it too: the store may know the token. A refusal says nothing about them. */
static void settle_doubt(struct dibs__attempt *attempt)
{
    struct dibs__redis_attempt *store_state = dibs__redis_attempt_of(attempt);

    attempt->in_store = attempt->in_store || store_state->doubt;
    store_state->may_lack_fence = false;
    forget_doubt(store_state);
}

/*
 * Whether the server's clock was set. If the ask was only delayed on its way, the clock is not ahead of what was
 * believed.
 */
static bool has_stepped(const struct dibs__redis_store *store, const struct dibs__link_view *view,
                        const struct dibs__ask_reply *said)
{
    return said->server_us - dibs__now(store->config.clock) / 1000 > view->server_ahead_us + STEP_US;
}

dibs_status dibs__sending_read(struct dibs__redis_store *store, const struct dibs__sending *sending,
                               const struct dibs__lock_call *call, const redisReply *reply, bool *decided,
                               struct dibs__answer *answer, struct dibs__error *error)
{
    struct dibs__attempt *attempt = sending->attempt;
    struct dibs__ask_reply said;

    *decided = true;
    if (!dibs__codec_read_ask(&said, reply)) {
        attempt->in_store = attempt->in_store || dibs__reply_is_of_script(reply); /* which may have written */
        return dibs__redis_reply_error(store, "acquiring", attempt->name, reply, error);
    }
    switch (said.code) {
    case DIBS__ASK_TAKEN:
        settle_doubt(attempt);
        if (store->config.is_member) /* no push will grant the lock */
            attempt->lease = (struct dibs__lease_store_state){.words = {0}};
        return read_taken(store, sending, &call->view, &said, answer, error);
    case DIBS__ASK_GRANTED:
        settle_doubt(attempt);
        attempt->in_store = true;
        if (said.fence == 0)
            return dibs__redis_reply_error(store, "acquiring", attempt->name, reply, error);
        answer->fence = said.fence;
        answer->server_us = said.server_us;
        return DIBS_OK;
    case DIBS__ASK_LATE: /* the server's clock may have been set since the connection was made: the ask is sent again,
                            with a time by the present clock */
        *decided = store->config.is_member && has_stepped(store, &call->view, &said);
        answer->why = *decided ? DIBS__WHY_STEPPED : DIBS__WHY_UNTOLD;
        return dibs__redis_late(store, store->channels[call->channel], call->view.serial, said.server_us, error);
    case DIBS__ASK_NO_VOTE:
        answer->why = DIBS__WHY_NO_VOTE;
        return dibs__error_set(error, DIBS_UNAVAILABLE, "%s may not vote in the quorum now", store->endpoint.url.shown);
    case DIBS__ASK_OVERTAKEN:
    default:
        *decided = false;
        return dibs__error_set(error, DIBS_UNAVAILABLE, "%s rejected the request as expired",
                               store->endpoint.url.shown);
    }
}
