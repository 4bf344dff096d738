#include "redis/subscriber_parts.h"

#include <stdlib.h>

#include "base/random.h"
#include "redis/reply.h"

#define CHANGES "__redis__:invalidate" /* the channel on which Redis tells which keys have changed */
#define DENIED_PAUSE_MS 6000 /* longest pause, and twice the shortest; the right may be granted, but not soon */
#define SILENCE_MS 5000      /* a link on which nothing came for this long is PINGed */

/*
 * The pauses between subscriptions that nothing confirms. If a thread waits for a subscription, a pause is at most half
 * of the command timeout, so that an ask of that thread, which may last for all of it, finds a subscription.
 */
#define UNCONFIRMED_FIRST_MS 10
#define UNCONFIRMED_LAST_MS 2000

/* --------------------------------------------------------------- any thread */

uint64_t dibs__subscriber_serial(struct dibs__subscriber *subscriber)
{
    uint64_t serial = dibs__channel_serial(subscriber->channel);

    if (serial == 0 && !atomic_exchange(&subscriber->wanted, true))
        subscriber->hooks.wake(subscriber->hooks.above);
    return serial;
}

dibs_status dibs__subscriber_await(struct dibs__subscriber *subscriber, int64_t deadline, uint64_t *serial,
                                   struct dibs__error *error)
{
    bool late = dibs__now(subscriber->endpoint->clock) >= deadline;
    struct dibs__link_view view;
    unsigned tries = 0;

    *serial = late ? dibs__subscriber_serial(subscriber) : dibs__channel_serial(subscriber->channel);
    if (*serial != 0)
        return DIBS_OK;
    if (!late) {
        atomic_store(&subscriber->wanted, true);
        tries = dibs__channel_need(subscriber->channel);
    }
    dibs_status status = dibs__channel_await(subscriber->channel, tries, deadline, &view, error);
    *serial = status == DIBS_OK ? view.serial : 0;
    return status;
}

void dibs__subscriber_distrust(struct dibs__subscriber *subscriber, uint64_t serial)
{
    dibs__channel_distrust(subscriber->channel, serial);
}

static void raise_to(atomic_uint_fast64_t *newest, uint64_t serial)
{
    uint_fast64_t before = atomic_load_explicit(newest, memory_order_relaxed);

    while (before < serial && !atomic_compare_exchange_weak(newest, &before, serial))
        continue;
}

bool dibs__subscriber_confirm(struct dibs__subscriber *subscriber, uint64_t serial)
{
    raise_to(&subscriber->confirmed, serial);
    return dibs__channel_serial(subscriber->channel) == serial;
}

static void wake_by(const struct dibs__subscriber *subscriber, int64_t when)
{
    if (when != DIBS__NEVER)
        subscriber->hooks.wake_by(subscriber->hooks.above, when);
}

void dibs__subscriber_listen(struct dibs__subscriber *subscriber, struct dibs__wait_event *wait_event, int64_t until)
{
    wake_by(subscriber, dibs__channel_listen(subscriber->channel, wait_event, until));
}

void dibs__subscriber_unheard(struct dibs__subscriber *subscriber)
{
    wake_by(subscriber, dibs__channel_unheard(subscriber->channel));
}

/* ------------------------------------------------------------ what is received */

/*
 * After a subscription is made, only PING is sent, and commands about changes and slots. If the server refuses one of
 * these, that is an answer, too.
 */
static bool is_answer(const struct dibs__subscriber *subscriber, const redisReply *reply)
{
    return reply->type != REDIS_REPLY_ERROR || dibs__reply_is_error(reply, "NOPERM") ||
           dibs__slots_explain(subscriber, reply) || dibs__reply_is_error(reply, "ERR unknown command");
}

/*
 * Takes a message that tells which keys have changed; if all may have, it has no list of keys. False: the reply is
 * about something else.
 */
static bool take_changes(struct dibs__subscriber *subscriber, uint64_t serial, const redisReply *reply)
{
    const struct dibs__subscriber_hooks *hooks = &subscriber->hooks;

    if (dibs__reply_is_event(reply, "subscribe", CHANGES, REDIS_REPLY_INTEGER)) {
        raise_to(&subscriber->hears, serial);
        hooks->wake(hooks->above);
        return true;
    }
    if (dibs__reply_is_event(reply, "message", CHANGES, REDIS_REPLY_NIL)) {
        hooks->changed(hooks->context, NULL, 0);
        return true;
    }
    if (!dibs__reply_is_event(reply, "message", CHANGES, REDIS_REPLY_ARRAY))
        return false;
    const redisReply *keys = reply->element[2];
    for (size_t i = 0; i < keys->elements; i++)
        if (keys->element[i]->type == REDIS_REPLY_STRING)
            hooks->changed(hooks->context, keys->element[i]->str, (size_t)keys->element[i]->len);
    return true;
}

static bool on_pushed(void *context, uint64_t serial, const redisReply *reply, struct dibs__error *error)
{
    struct dibs__subscriber *subscriber = context;
    const struct dibs__endpoint *endpoint = subscriber->endpoint;
    int64_t now = dibs__now(endpoint->clock);

    atomic_store(&subscriber->received_at, now);
    if (dibs__reply_is_event(reply, "message", endpoint->channel, REDIS_REPLY_STRING)) {
        raise_to(&subscriber->confirmed, serial);
        subscriber->hooks.message(subscriber->hooks.context, reply->element[2]->str, (size_t)reply->element[2]->len);
        return true;
    }
    if (dibs__slots_take(subscriber, serial, reply, now) || take_changes(subscriber, serial, reply))
        return true;
    if (dibs__reply_is_event(reply, "unsubscribe", endpoint->channel, REDIS_REPLY_INTEGER))
        dibs__error_set(error, DIBS_UNAVAILABLE, "%s ended the subscription", endpoint->url.shown);
    else if (!is_answer(subscriber, reply))
        dibs__reply_refusal(error, reply, endpoint->url.shown, "the subscription");
    return error->status != DIBS_OK;
}

/* ---------------------------------------------------------- how a link begins and ends */

/* True: a subscription was replaced because nothing confirmed it, and nothing confirmed the next one either. */
static bool is_unconfirmed(const struct dibs__subscriber *subscriber)
{
    return subscriber->unconfirmed_count > 1;
}

/*
 * Called when a subscription was lost that nothing had confirmed. If nothing confirmed the ones before it either, the
 * server may never hear any, and the pause grows. The pause counts from when the subscription was made.
 */
static void put_off_next(struct dibs__subscriber *subscriber)
{
    bool again = is_unconfirmed(subscriber);

    if (!again)
        dibs__backoff_reset(&subscriber->retry);
    int64_t drawn = dibs__backoff_next(&subscriber->retry, UNCONFIRMED_LAST_MS);
    int64_t pause = again ? drawn : UNCONFIRMED_FIRST_MS, most = subscriber->endpoint->command_timeout_ms / 2;
    dibs__channel_put_off(subscriber->channel, dibs__after_ms(subscriber->stood_at, pause),
                          dibs__after_ms(subscriber->stood_at, pause < most ? pause : most));
    subscriber->unconfirmed_count++;
}

/*
 * Deals with the end of the last subscription, once. If it was ever confirmed, the next one need not wait. One that is
 * distrusted has not ended: a message that has come may yet confirm it.
 */
static void deal_with_end(struct dibs__subscriber *subscriber)
{
    uint64_t stood = subscriber->stood;
    struct dibs__link_view view;

    if (stood == 0 || dibs__channel_view(subscriber->channel, &view))
        return;
    subscriber->stood = 0;
    subscriber->hears_asked = false;
    dibs__slots_drop(subscriber);
    if (atomic_load(&subscriber->confirmed) == stood)
        subscriber->unconfirmed_count = 0;
    else
        put_off_next(subscriber);
    dibs__channel_connect_again(subscriber->channel);
}

static void on_opened(void *context, uint64_t serial)
{
    struct dibs__subscriber *subscriber = context;
    int64_t now = dibs__now(subscriber->endpoint->clock);

    DIBS__REQUIRE(subscriber->stood == 0);
    subscriber->stood = serial;
    subscriber->stood_at = now;
    subscriber->relied_on = true;
    atomic_store(&subscriber->received_at, now);
    subscriber_mutex_lock(&subscriber->mutex);
    subscriber->slots.link = serial;
    subscriber_mutex_unlock(&subscriber->mutex);
    if (!is_unconfirmed(subscriber))
        subscriber->hooks.missed(subscriber->hooks.above);
}

/*
 * The first try that fails after there was a subscription may be the first of many. So waiters that sleep until they
 * are told must hear that they have to ask by themselves.
 */
static void on_failed(void *context, const struct dibs__error *error, bool silent)
{
    struct dibs__subscriber *subscriber = context;
    int64_t pause = dibs__jitter(DENIED_PAUSE_MS / 2, DENIED_PAUSE_MS);
    int64_t again_at = dibs__after_ms(dibs__now(subscriber->endpoint->clock), pause);

    (void)silent;
    if (error->status == DIBS_DENIED)
        dibs__channel_put_off(subscriber->channel, again_at, again_at);
    if (subscriber->relied_on)
        subscriber->hooks.missed(subscriber->hooks.above);
    subscriber->relied_on = false;
}

static void on_unattended(void *context)
{
    struct dibs__subscriber *subscriber = context;

    subscriber->hooks.wake(subscriber->hooks.above);
}

/* ------------------------------------------------------------------- driving */

/* While a PING is in flight, the channel looks after its answer. */
static int64_t ping_at(struct dibs__subscriber *subscriber)
{
    return dibs__channel_load(subscriber->channel) > 0
               ? DIBS__NEVER
               : dibs__after_ms(atomic_load(&subscriber->received_at), SILENCE_MS);
}

static bool ping_after_silence(struct dibs__subscriber *subscriber, int64_t now)
{
    const struct dibs__command ping = {.words = (const char *const[]){"PING", NULL}};

    return now < ping_at(subscriber) || dibs__channel_submit(subscriber->channel, subscriber->stood, &ping, NULL, NULL);
}

static bool must_ask_for_changes(const struct dibs__subscriber *subscriber)
{
    return subscriber->hears_wanted && !subscriber->hears_asked;
}

static bool ask_for_changes(struct dibs__subscriber *subscriber)
{
    const char *const words[] = {"SUBSCRIBE", CHANGES, NULL};

    if (!must_ask_for_changes(subscriber))
        return true;
    subscriber->hears_asked = true;
    return dibs__channel_say(subscriber->channel, subscriber->stood, words);
}

/* Gathered, so that there is one write for all, and none under the mutex of the slots. */
static void send_what_is_due(struct dibs__subscriber *subscriber, int64_t now)
{
    dibs__channel_gather();
    bool good = ping_after_silence(subscriber, now) && ask_for_changes(subscriber) && dibs__slots_ask(subscriber, now);
    dibs__channel_send_gathered();
    if (!good)
        dibs__channel_distrust(subscriber->channel, subscriber->stood);
}

void dibs__subscriber_attend(struct dibs__subscriber *subscriber, short ready, int64_t now)
{
    if (atomic_exchange(&subscriber->slots.lost, false))
        subscriber->hooks.missed(subscriber->hooks.above);
    deal_with_end(subscriber);
    dibs__channel_attend(subscriber->channel, atomic_load(&subscriber->wanted), ready, now);
    deal_with_end(subscriber);
    if (subscriber->stood != 0)
        send_what_is_due(subscriber, now);
}

/* When something must be done about the current subscription, whatever its descriptor does. */
static int64_t next_time(struct dibs__subscriber *subscriber)
{
    bool ended = dibs__channel_serial(subscriber->channel) != subscriber->stood;

    if (ended || must_ask_for_changes(subscriber) || atomic_load(&subscriber->slots.lost))
        return 0;
    return dibs__earlier(atomic_load(&subscriber->slots.due), ping_at(subscriber));
}

/* The channel comes first: if a PING is answered just then, its time is over, and that of the next one counts. */
struct pollfd dibs__subscriber_interest(struct dibs__subscriber *subscriber, int64_t *deadline)
{
    struct pollfd fd = dibs__channel_interest(subscriber->channel, atomic_load(&subscriber->wanted), deadline);

    if (subscriber->stood != 0)
        *deadline = dibs__earlier(*deadline, next_time(subscriber));
    return fd;
}

void dibs__subscriber_hurry(struct dibs__subscriber *subscriber)
{
    dibs__channel_hurry(subscriber->channel);
}

bool dibs__subscriber_hear_changes(struct dibs__subscriber *subscriber, uint64_t *serial, int64_t *client)
{
    struct dibs__link_view view;

    subscriber->hears_wanted = true;
    *serial = dibs__subscriber_serial(subscriber);
    if (*serial == 0 || *serial != atomic_load(&subscriber->hears) || !dibs__channel_view(subscriber->channel, &view) ||
        view.serial != *serial)
        return false;
    *client = view.id.client;
    return *client > 0;
}

/* ----------------------------------------------------------------- lifecycle */

struct dibs__subscriber *dibs__subscriber_new(struct dibs__endpoint *endpoint,
                                              const struct dibs__subscriber_hooks *hooks)
{
    struct dibs__subscriber *subscriber = calloc(1, sizeof *subscriber);
    const struct dibs__channel_hooks channel_hooks = {subscriber, on_opened, on_failed, on_unattended, on_pushed};

    if (!subscriber)
        return NULL;
    subscriber->endpoint = endpoint;
    subscriber->hooks = *hooks;
    subscriber->retry.first_ms = UNCONFIRMED_FIRST_MS;
    atomic_init(&subscriber->slots.due, DIBS__NEVER);
    subscriber->channel = dibs__channel_new(endpoint, &channel_hooks);
    if (subscriber->channel && dibs__mutex_init(&subscriber->mutex) == 0)
        return subscriber;
    dibs__channel_free(subscriber->channel);
    free(subscriber);
    return NULL;
}

void dibs__subscriber_free(struct dibs__subscriber *subscriber)
{
    if (!subscriber)
        return;
    dibs__channel_free(subscriber->channel);
    dibs__slots_free(&subscriber->slots);
    dibs__mutex_destroy(&subscriber->mutex);
    free(subscriber);
}
