/*
 * Lock discipline
 *
 * The link and what drives it belong to the scheduler's thread alone, so
 * messages are read and passed on without a lock. Other threads share atomics
 * with that thread:
 *
 *     wanted      set by any thread, for good.
 *     awaited     set by a thread that waits; that thread looks at in_vain afterwards. The scheduler looks at these two
 *                 the other way round, so one of both threads sees what the other has done.
 *     serial      set to a new number by the scheduler alone, and to 0 by any thread: that is how a subscription is
 *                 distrusted. The scheduler then finds a subscription that stands and has no serial.
 *     confirmed   only rises. A thread that confirms a serial looks afterwards whether that serial still stands. If it
 *                 does, the scheduler will find it confirmed when it comes to tell that it was lost.
 *
 * `mutex` guards how the tries ended. It is a leaf, held for some assignments,
 * never across I/O or a callback. A new serial is set under it, so that a
 * waiting thread misses none. That thread sleeps on `changed` until
 *     serial is not 0, or a try that ended meanwhile has failed, or the last try
 *     was denied (the next is seconds away), or its deadline.
 */
#include "redis/subscriber.h"

#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "redis/reply.h"

#define DENIED_PAUSE_MS 6000 /* at most, half of it at least; somebody may grant the right, but not soon */
#define SILENCE_MS 5000      /* a link from which nothing came for so long is PINGed */

/*
 * The pauses between subscriptions that nothing confirms. Where a thread waits
 * for a subscription, a pause is half of the command timeout at most, so that
 * an ask of that thread, which may last for all of it, finds one.
 */
#define DEAF_FIRST_MS 10
#define DEAF_LAST_MS 2000

DIBS__MUTEX_CLASS(subscriber_mutex);

struct dibs__subscriber {
    struct dibs__endpoint *endpoint;     /* read-only after new */
    const struct dibs__clock *clock;     /* read-only after new */
    struct dibs__subscriber_hooks hooks; /* read-only after new */
    uint32_t command_timeout_ms;         /* read-only after new */

    struct dibs__connector connector; /* the scheduler thread's */
    struct dibs__link *link;          /* the scheduler thread's; ready; NULL: the connector may make one */
    struct dibs__link_id last_id;     /* the scheduler thread's; of the last link that was ready */
    bool asked;                       /* the scheduler thread's; SUBSCRIBE was sent on this link */
    bool standing;                    /* the scheduler thread's; SUBSCRIBE was confirmed on this link */
    bool relied_on;                   /* the scheduler thread's; a subscription stood, and no try has failed since */
    bool pinged;                      /* the scheduler thread's; PING was sent, and nothing came since */
    uint64_t last_serial;             /* the scheduler thread's; of the last subscription that stood, or stands */
    int64_t heard_at;                 /* the scheduler thread's; when something came last */
    int64_t pinged_until;             /* the scheduler thread's; where pinged: when something must have come */
    int64_t stood_at;                 /* the scheduler thread's; when the last subscription was confirmed */
    int64_t awaited_at;               /* the scheduler thread's; when to try next where a thread waits */
    struct dibs__backoff deaf;        /* the scheduler thread's; of subscriptions that nothing confirms */

    atomic_bool wanted;             /* atomic; there is to be a subscription */
    atomic_bool awaited;            /* atomic; a thread waits, or has waited since the last subscription stood */
    atomic_uint in_vain;            /* atomic; the scheduler's; subscriptions in a row that nothing confirmed */
    atomic_uint_fast64_t serial;    /* atomic; of the subscription that stands and is trusted; 0: none */
    atomic_uint_fast64_t confirmed; /* atomic; the newest subscription of which it is known that the server had it */
    atomic_uint tries;              /* atomic; changed under mutex; how many have ended */

    struct dibs__mutex mutex;
    pthread_cond_t changed;
    struct dibs__error failure DIBS__GUARDED_BY(subscriber_mutex); /* of the last try; DIBS_OK: it succeeded */
};

/* A subscription was made anew because nothing confirmed it, and nothing confirmed the next one either. */
static bool is_deaf_again(const struct dibs__subscriber *subscriber)
{
    return atomic_load(&subscriber->in_vain) > 1;
}

/* --------------------------------------------------------------- any thread */

uint64_t dibs__subscriber_serial(struct dibs__subscriber *subscriber)
{
    uint64_t serial = atomic_load_explicit(&subscriber->serial, memory_order_acquire);

    if (serial == 0 && !atomic_exchange(&subscriber->wanted, true))
        subscriber->hooks.wake(subscriber->hooks.context);
    return serial;
}

/* Lets go of the mutex while it sleeps. seen: how many tries had ended when the call began. */
static dibs_status wait_for_one(struct dibs__subscriber *subscriber, unsigned seen, int64_t deadline, uint64_t *serial,
                                struct dibs__error *error) DIBS__REQUIRES(subscriber_mutex)
{
    while ((*serial = atomic_load(&subscriber->serial)) == 0) {
        unsigned ended = atomic_load(&subscriber->tries);
        bool late = dibs__now(subscriber->clock) >= deadline;
        dibs_status failure = subscriber->failure.status;
        if (failure == DIBS_DENIED || (failure != DIBS_OK && (late || ended != seen))) {
            *error = subscriber->failure;
            return failure;
        }
        if (late)
            return dibs__error_set(error, DIBS_UNAVAILABLE, "%s does not answer", subscriber->endpoint->url.shown);
        seen = ended;
        subscriber->clock->wait(subscriber->clock, &subscriber->changed, &subscriber->mutex, deadline);
    }
    return DIBS_OK;
}

dibs_status dibs__subscriber_await(struct dibs__subscriber *subscriber, int64_t deadline, uint64_t *serial,
                                   struct dibs__error *error)
{
    unsigned seen = atomic_load(&subscriber->tries); /* before a subscription is wanted: the try may fail at once */

    *serial = dibs__subscriber_serial(subscriber);
    if (*serial != 0)
        return DIBS_OK;
    if (dibs__now(subscriber->clock) < deadline && !atomic_exchange(&subscriber->awaited, true) &&
        is_deaf_again(subscriber))
        subscriber->hooks.wake(subscriber->hooks.context);
    subscriber_mutex_lock(&subscriber->mutex);
    dibs_status status = wait_for_one(subscriber, seen, deadline, serial, error);
    subscriber_mutex_unlock(&subscriber->mutex);
    return status;
}

void dibs__subscriber_distrust(struct dibs__subscriber *subscriber, uint64_t serial)
{
    uint_fast64_t standing = serial;

    if (serial != 0 && atomic_compare_exchange_strong(&subscriber->serial, &standing, 0))
        subscriber->hooks.wake(subscriber->hooks.context);
}

bool dibs__subscriber_confirm(struct dibs__subscriber *subscriber, uint64_t serial)
{
    uint_fast64_t before = atomic_load_explicit(&subscriber->confirmed, memory_order_relaxed);

    while (before < serial && !atomic_compare_exchange_weak(&subscriber->confirmed, &before, serial))
        continue;
    return atomic_load(&subscriber->serial) == serial;
}

/* ---------------------------------------------------------- how a try ended */

/* why NULL: the subscription stands. */
static void tell_waiting_threads(struct dibs__subscriber *subscriber, const struct dibs__error *why)
{
    subscriber_mutex_lock(&subscriber->mutex);
    if (why)
        subscriber->failure = *why;
    else
        subscriber->failure.status = DIBS_OK;
    if (!why)
        atomic_store(&subscriber->serial, subscriber->last_serial);
    atomic_fetch_add(&subscriber->tries, 1);
    pthread_cond_broadcast(&subscriber->changed);
    subscriber_mutex_unlock(&subscriber->mutex);
}

/*
 * A subscription stands: when to make the next, should this one be lost. If
 * nothing confirmed the last ones, the server may never hear any, and the pause
 * grows. Otherwise it is short, but there is one.
 */
static void put_off_next(struct dibs__subscriber *subscriber, int64_t now)
{
    bool again = is_deaf_again(subscriber);

    if (!again)
        dibs__backoff_reset(&subscriber->deaf);
    int64_t drawn = dibs__backoff_next(&subscriber->deaf, DEAF_LAST_MS), pause = again ? drawn : DEAF_FIRST_MS;
    int64_t most = subscriber->command_timeout_ms / 2;
    dibs__connector_succeeded(&subscriber->connector, now);
    subscriber->connector.next_at = dibs__after_ms(now, pause);
    subscriber->awaited_at = dibs__after_ms(now, pause < most ? pause : most);
    subscriber->stood_at = now;
}

static void stand(struct dibs__subscriber *subscriber, int64_t now)
{
    DIBS__REQUIRE(subscriber->link && !subscriber->standing);
    subscriber->standing = true;
    subscriber->last_serial++;
    put_off_next(subscriber, now);
    subscriber->relied_on = true;
    atomic_store(&subscriber->awaited, false);
    tell_waiting_threads(subscriber, NULL);
    if (!is_deaf_again(subscriber))
        subscriber->hooks.missed(subscriber->hooks.context);
}

/* The server may still count a link that was ready among the listeners: the next link has the server end it. */
static void drop_link(struct dibs__subscriber *subscriber)
{
    atomic_store(&subscriber->serial, 0);
    if (subscriber->link)
        subscriber->last_id = subscriber->link->id;
    dibs__link_free(subscriber->link);
    subscriber->link = NULL;
    subscriber->asked = subscriber->standing = subscriber->pinged = false;
}

/* A subscription that stood is lost, or distrusted. If it was ever confirmed, the next need not wait. */
static void lose(struct dibs__subscriber *subscriber)
{
    DIBS__REQUIRE(subscriber->standing);
    drop_link(subscriber);
    if (atomic_load(&subscriber->confirmed) != subscriber->last_serial) {
        atomic_fetch_add(&subscriber->in_vain, 1);
        return;
    }
    atomic_store(&subscriber->in_vain, 0);
    subscriber->awaited_at = dibs__after_ms(subscriber->stood_at, DIBS__RECONNECT_FIRST_MS);
    subscriber->connector.next_at = subscriber->awaited_at;
}

/*
 * The first try that fails after a subscription stood may be the first of many.
 * Waiters that sleep until they are told must hear that they have to ask by
 * themselves.
 */
static void fail_try(struct dibs__subscriber *subscriber, const struct dibs__error *why, int64_t now)
{
    drop_link(subscriber);
    dibs__connector_failed(&subscriber->connector, now, DIBS__RECONNECT_LAST_MS);
    if (why->status == DIBS_DENIED)
        subscriber->connector.next_at = dibs__after_ms(now, dibs__jitter(DENIED_PAUSE_MS / 2, DENIED_PAUSE_MS));
    subscriber->awaited_at = subscriber->connector.next_at;
    tell_waiting_threads(subscriber, why);
    if (subscriber->relied_on)
        subscriber->hooks.missed(subscriber->hooks.context);
    subscriber->relied_on = false;
}

/* --------------------------------------------------------------- what is sent */

/* arg NULL: the command has none. */
static dibs_status ask(struct dibs__subscriber *subscriber, const char *command, const char *arg,
                       struct dibs__error *error)
{
    const char *words[2] = {command, arg};
    size_t sizes[2] = {strlen(command), arg ? strlen(arg) : 0};

    if (!dibs__buffer_command(&subscriber->link->out, arg ? 2 : 1, words, sizes))
        return dibs__error_set(error, DIBS_NO_MEMORY, "no memory for a command");
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): there is an endpoint for life */
    atomic_fetch_add_explicit(subscriber->endpoint->commands, 1, memory_order_relaxed);
    return DIBS_OK;
}

/* ------------------------------------------------------------ what is received */

static bool is_text(const redisReply *reply, const char *text)
{
    size_t size = strlen(text);

    return reply->type == REDIS_REPLY_STRING && (size_t)reply->len == size && memcmp(reply->str, text, size) == 0;
}

/* An event of our channel: the event's name, the channel's name, and something of that type. */
static bool is_event(const struct dibs__subscriber *subscriber, const redisReply *reply, const char *event, int type)
{
    return reply->type == REDIS_REPLY_ARRAY && reply->elements == 3 && is_text(reply->element[0], event) &&
           is_text(reply->element[1], subscriber->endpoint->channel) && reply->element[2]->type == type;
}

/* On a subscription that stands, only PING is sent. A refusal for lack of a right is an answer to it, too. */
static dibs_status take_error(struct dibs__subscriber *subscriber, const redisReply *reply, struct dibs__error *error)
{
    atomic_fetch_add_explicit(subscriber->endpoint->errors, 1, memory_order_relaxed);
    if (subscriber->standing && dibs__reply_is_error(reply, "NOPERM"))
        return DIBS_OK;
    return dibs__reply_refusal(error, reply, subscriber->endpoint->url.shown,
                               subscriber->standing ? "the subscription" : "SUBSCRIBE to our channel");
}

/* Other replies tell nothing but that the server is there. */
static dibs_status take(struct dibs__subscriber *subscriber, const redisReply *reply, int64_t now,
                        struct dibs__error *error)
{
    if (subscriber->standing && is_event(subscriber, reply, "message", REDIS_REPLY_STRING)) {
        dibs__subscriber_confirm(subscriber, subscriber->last_serial);
        subscriber->hooks.message(subscriber->hooks.context, reply->element[2]->str, (size_t)reply->element[2]->len);
    } else if (reply->type == REDIS_REPLY_ERROR)
        return take_error(subscriber, reply, error);
    else if (!subscriber->standing && is_event(subscriber, reply, "subscribe", REDIS_REPLY_INTEGER))
        stand(subscriber, now);
    else if (is_event(subscriber, reply, "unsubscribe", REDIS_REPLY_INTEGER))
        return dibs__error_set(error, DIBS_UNAVAILABLE, "%s ended the subscription", subscriber->endpoint->url.shown);
    return DIBS_OK;
}

/* Takes what has come, at most one buffer full: the event loop comes back for the rest. */
static dibs_status read_in(struct dibs__subscriber *subscriber, int64_t now, struct dibs__error *error)
{
    redisReply *reply;
    long received = dibs__link_receive(subscriber->link, error);

    if (received <= 0)
        return received < 0 ? error->status : DIBS_OK;
    subscriber->heard_at = now;
    subscriber->pinged = false;
    while (dibs__link_next_reply(subscriber->link, &reply, error) == DIBS_OK) {
        if (!reply)
            return DIBS_OK;
        dibs_status status = take(subscriber, reply, now, error);
        dibs__reply_free(reply);
        if (status != DIBS_OK)
            return status;
    }
    return error->status;
}

/* ------------------------------------------------------------------- driving */

static void begin_try(struct dibs__subscriber *subscriber, int64_t now)
{
    struct dibs__error error = {DIBS_OK, ""};

    if (dibs__connector_begin(&subscriber->connector, &subscriber->last_id, now, &error) != DIBS_OK)
        fail_try(subscriber, &error, now);
}

/* The link is ready: subscribes, and looks whether the server has confirmed that. */
static dibs_status subscribe(struct dibs__subscriber *subscriber, int64_t now, struct dibs__error *error)
{
    dibs_status status = DIBS_OK;

    DIBS__REQUIRE(subscriber->link != NULL);
    if (!subscriber->asked)
        status = ask(subscriber, "SUBSCRIBE", subscriber->endpoint->channel, error);
    subscriber->asked = true;
    if (status == DIBS_OK)
        status = dibs__link_send_out(subscriber->link, error);
    return status == DIBS_OK ? read_in(subscriber, now, error) : status;
}

/* A try goes on until the subscription stands. The connector's time is that of the whole try. */
static void go_on_trying(struct dibs__subscriber *subscriber, int64_t now)
{
    struct dibs__error error = {DIBS_OK, ""};
    dibs_status status = DIBS_OK;

    if (!subscriber->link) {
        status = dibs__connector_step(&subscriber->connector, now, &error);
        subscriber->link = dibs__connector_take(&subscriber->connector);
    }
    if (subscriber->link)
        status = subscribe(subscriber, now, &error);
    if (subscriber->standing) {
        if (status != DIBS_OK)
            lose(subscriber);
        return;
    }
    if (status == DIBS_OK && subscriber->link && now >= subscriber->connector.until)
        status = dibs__link_give_up(subscriber->link, &error);
    if (status != DIBS_OK)
        fail_try(subscriber, &error, now);
}

static bool was_pinged_in_vain(const struct dibs__subscriber *subscriber, int64_t now)
{
    return subscriber->pinged && now >= subscriber->pinged_until;
}

static dibs_status ping_after_silence(struct dibs__subscriber *subscriber, int64_t now, struct dibs__error *error)
{
    if (subscriber->pinged || now < dibs__after_ms(subscriber->heard_at, SILENCE_MS))
        return DIBS_OK;
    subscriber->pinged = true;
    subscriber->pinged_until = dibs__after_ms(now, subscriber->command_timeout_ms);
    return ask(subscriber, "PING", NULL, error);
}

static bool is_trusted(struct dibs__subscriber *subscriber)
{
    return atomic_load_explicit(&subscriber->serial, memory_order_relaxed) != 0;
}

/*
 * Why a subscription broke is told to nobody: the next try shows whether there
 * is a reason. Before a PING counts as unanswered, the link is read once more,
 * because the answer may have come since the poll.
 */
static void go_on_listening(struct dibs__subscriber *subscriber, short ready, int64_t now)
{
    struct dibs__error error;
    dibs_status status = DIBS_OK;

    if (dibs__link_may_receive(subscriber->link, ready) || was_pinged_in_vain(subscriber, now))
        status = read_in(subscriber, now, &error);
    if (status == DIBS_OK)
        status = ping_after_silence(subscriber, now, &error);
    if (status == DIBS_OK)
        status = dibs__link_send_out(subscriber->link, &error);
    if (status != DIBS_OK || was_pinged_in_vain(subscriber, now) || !is_trusted(subscriber))
        lose(subscriber);
}

/* When the next try is due. Requires that none is going on. */
static int64_t next_try(const struct dibs__subscriber *subscriber)
{
    if (!atomic_load(&subscriber->wanted))
        return DIBS__NEVER;
    return atomic_load(&subscriber->awaited) ? subscriber->awaited_at : subscriber->connector.next_at;
}

void dibs__subscriber_attend(struct dibs__subscriber *subscriber, short ready, int64_t now)
{
    if (subscriber->standing)
        go_on_listening(subscriber, ready, now);
    else if (subscriber->link || subscriber->connector.link)
        go_on_trying(subscriber, now);
    else if (now >= next_try(subscriber))
        begin_try(subscriber, now);
}

/* When something is to be done about a link that is ready, whatever its descriptor does. */
static int64_t next_time(struct dibs__subscriber *subscriber)
{
    if (!subscriber->standing)
        return subscriber->connector.until;
    if (!is_trusted(subscriber))
        return 0;
    return subscriber->pinged ? subscriber->pinged_until : dibs__after_ms(subscriber->heard_at, SILENCE_MS);
}

void dibs__subscriber_interest(struct dibs__subscriber *subscriber, struct pollfd *fd, int64_t *deadline)
{
    *fd = (struct pollfd){.fd = -1};
    *deadline = DIBS__NEVER;
    if (subscriber->link) {
        int64_t until = next_time(subscriber);
        *fd = dibs__link_interest(subscriber->link, deadline);
        *deadline = until < *deadline ? until : *deadline;
    } else if (subscriber->connector.link) {
        dibs__connector_interest(&subscriber->connector, fd, deadline);
    } else {
        *deadline = next_try(subscriber);
    }
}

/* ----------------------------------------------------------------- lifecycle */

struct dibs__subscriber *dibs__subscriber_new(struct dibs__endpoint *endpoint, const struct dibs__clock *clock,
                                              const struct dibs__subscriber_hooks *hooks, uint32_t connect_timeout_ms,
                                              uint32_t command_timeout_ms)
{
    struct dibs__subscriber *subscriber = calloc(1, sizeof *subscriber);

    if (!subscriber)
        return NULL;
    subscriber->endpoint = endpoint;
    subscriber->clock = clock;
    subscriber->hooks = *hooks;
    subscriber->command_timeout_ms = command_timeout_ms;
    subscriber->deaf.first_ms = DEAF_FIRST_MS;
    dibs__connector_init(&subscriber->connector, endpoint, DIBS__LINK_SUBSCRIPTIONS, connect_timeout_ms);
    if (dibs__mutex_init(&subscriber->mutex) != 0)
        goto no_mutex;
    if (dibs__cond_init(&subscriber->changed) != 0)
        goto no_cond;
    return subscriber;
no_cond:
    dibs__mutex_destroy(&subscriber->mutex);
no_mutex:
    free(subscriber);
    return NULL;
}

void dibs__subscriber_free(struct dibs__subscriber *subscriber)
{
    if (!subscriber)
        return;
    dibs__link_free(subscriber->link);
    dibs__connector_free(&subscriber->connector);
    pthread_cond_destroy(&subscriber->changed);
    dibs__mutex_destroy(&subscriber->mutex);
    free(subscriber);
}
