/*
 * Lock discipline
 *
 * The connection and what drives it belong to the scheduler's thread alone, so
 * a message is read and handed on without a lock. Other threads meet it in
 * atomics: `wanted`; `awaited`, after which it looks at `in_vain`, as the
 * scheduler does the other way round; `serial`, which only the scheduler sets to a new
 * number; back to 0 it is set by anybody, which is how a subscription is
 * distrusted: the scheduler then finds one that stands and has no serial; and
 * `confirmed`, which only rises. Whoever confirms a serial looks afterwards
 * whether it stands still: if so, the scheduler will find it confirmed when it
 * comes to tell that it was lost.
 *
 * `mutex` guards how the attempts went. It is a leaf, held for some
 * assignments, never across I/O or a callback. A new serial is set under it, so
 * that who waits misses none. A thread sleeps on `changed` until
 *     serial is not 0, or an attempt that ended meanwhile failed, or the last
 *     was denied (the next is seconds away), or its deadline.
 */
#include "redis/subscriber.h"

#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "redis/reply.h"

#define REOPEN_FIRST_MS 10 /* the backoff: doubled each time, with jitter */
#define REOPEN_LAST_MS 500
#define DENIED_PAUSE_MS 6000 /* with jitter; somebody may grant the right, but not soon */
#define SILENCE_MS 5000      /* then the server is PINGed */

/*
 * From one subscription to the next, where nothing confirms them: doubled each
 * time, with jitter. Where a thread waits for one, half of the command timeout
 * is the most, so that its ask, which may last so long, finds one.
 */
#define DEAF_FIRST_MS 10
#define DEAF_LAST_MS 2000

DIBS__MUTEX_CLASS(subscriber_mutex);

struct dibs__subscriber {
    struct dibs__endpoint *endpoint; /* these five are read-only */
    const struct dibs__clock *clock;
    struct dibs__subscriber_hooks hooks;
    uint32_t connect_timeout_ms, command_timeout_ms;

    struct dibs__link *link;        /* from here to deaf_ms: the scheduler thread's */
    struct dibs__link_id last_id;   /* of the link before */
    bool asked;                     /* SUBSCRIBE was sent on this link */
    bool standing;                  /* and confirmed */
    bool relied_on;                 /* it stood, and no attempt has failed since */
    bool pinged;                    /* PING was sent, and nothing came since */
    uint64_t last_serial;           /* of the subscription that stands, or the last that did */
    int64_t attempt_until;          /* unless it stands by then */
    int64_t heard_at, pinged_until; /* when something came last; when it must have, if PING was sent */
    int64_t reopen_at, reopen_ms;
    int64_t awaited_at;        /* in the place of reopen_at where a thread waits */
    int64_t stood_at, deaf_ms; /* when the last one did; how long the next is put off if it is deaf again */

    atomic_bool wanted;
    atomic_bool awaited;         /* a thread waits, or did since the last one stood */
    atomic_uint in_vain;         /* how many in a row were lost before anything confirmed them; the scheduler writes */
    atomic_uint_fast64_t serial; /* of the subscription that stands and is trusted; 0: none */
    atomic_uint_fast64_t confirmed; /* the last one of which it is known that somebody was heard by it */

    struct dibs__mutex mutex;
    pthread_cond_t changed;
    atomic_uint attempts;       /* that have ended; written under mutex */
    struct dibs__error failure; /* guarded by mutex; of the last attempt, DIBS_OK: it succeeded */
};

/* Whether to make it anew was tried before, and in vain: nothing confirmed that one either. */
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

/* Requires mutex; lets go of it while it sleeps. `seen`: how many attempts had ended when the call began. */
static dibs_status wait_for_one(struct dibs__subscriber *subscriber, unsigned seen, int64_t deadline, uint64_t *serial,
                                struct dibs__error *error)
{
    while ((*serial = atomic_load(&subscriber->serial)) == 0) {
        unsigned ended = atomic_load(&subscriber->attempts);
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
    unsigned seen = atomic_load(&subscriber->attempts); /* before it is wanted: the attempt may fail at once */

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

/* ---------------------------------------------------------- how it turned out */

/* An attempt has ended. why NULL: the subscription stands. */
static void tell_who_waits(struct dibs__subscriber *subscriber, const struct dibs__error *why)
{
    subscriber_mutex_lock(&subscriber->mutex);
    if (why)
        subscriber->failure = *why;
    else
        subscriber->failure.status = DIBS_OK;
    if (!why)
        atomic_store(&subscriber->serial, subscriber->last_serial);
    atomic_fetch_add(&subscriber->attempts, 1);
    pthread_cond_broadcast(&subscriber->changed);
    subscriber_mutex_unlock(&subscriber->mutex);
}

/* A subscription that is lost at once is not made anew at once; the next one that is deaf is, even later. */
static void set_next_attempt(struct dibs__subscriber *subscriber, int64_t now)
{
    int64_t pause = DEAF_FIRST_MS, most = subscriber->command_timeout_ms / 2, doubled;

    if (!is_deaf_again(subscriber))
        subscriber->deaf_ms = DEAF_FIRST_MS;
    else
        pause = dibs__jitter(subscriber->deaf_ms / 2, subscriber->deaf_ms);
    doubled = subscriber->deaf_ms * 2;
    subscriber->deaf_ms = doubled < DEAF_LAST_MS ? doubled : DEAF_LAST_MS;
    subscriber->reopen_ms = REOPEN_FIRST_MS;
    subscriber->reopen_at = dibs__after_ms(now, pause);
    subscriber->awaited_at = dibs__after_ms(now, pause < most ? pause : most);
    subscriber->stood_at = now;
}

static void stand(struct dibs__subscriber *subscriber, int64_t now)
{
    subscriber->standing = true;
    subscriber->last_serial++;
    set_next_attempt(subscriber, now);
    subscriber->relied_on = true;
    atomic_store(&subscriber->awaited, false);
    tell_who_waits(subscriber, NULL);
    if (!is_deaf_again(subscriber))
        subscriber->hooks.missed(subscriber->hooks.context);
}

/* One that was ready has ended the one before, and may be a listener for the server still: the next is to end it. */
static void drop_link(struct dibs__subscriber *subscriber)
{
    atomic_store(&subscriber->serial, 0);
    if (subscriber->link && subscriber->link->state == DIBS__LINK_READY)
        subscriber->last_id = subscriber->link->id;
    dibs__link_free(subscriber->link);
    subscriber->link = NULL;
    subscriber->asked = subscriber->standing = subscriber->pinged = false;
}

/* One that stood is lost, or distrusted: if it was good for anything, the next need not wait. */
static void lose(struct dibs__subscriber *subscriber)
{
    drop_link(subscriber);
    if (atomic_load(&subscriber->confirmed) != subscriber->last_serial) {
        atomic_fetch_add(&subscriber->in_vain, 1);
        return;
    }
    atomic_store(&subscriber->in_vain, 0);
    subscriber->reopen_at = subscriber->awaited_at = dibs__after_ms(subscriber->stood_at, REOPEN_FIRST_MS);
}

/* The first that fails may be the first of many: who sleeps until it is told must hear that it has to ask by itself. */
static void fail_attempt(struct dibs__subscriber *subscriber, const struct dibs__error *why, int64_t now)
{
    int64_t pause = why->status == DIBS_DENIED ? DENIED_PAUSE_MS : subscriber->reopen_ms;
    int64_t doubled = subscriber->reopen_ms * 2;

    drop_link(subscriber);
    subscriber->reopen_at = subscriber->awaited_at = dibs__after_ms(now, dibs__jitter(pause / 2, pause));
    subscriber->reopen_ms = doubled < REOPEN_LAST_MS ? doubled : REOPEN_LAST_MS;
    tell_who_waits(subscriber, why);
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

/* Whether it tells of our channel: the event, the channel, and something of that type. */
static bool is_event(const struct dibs__subscriber *subscriber, const redisReply *reply, const char *event, int type)
{
    return reply->type == REDIS_REPLY_ARRAY && reply->elements == 3 && is_text(reply->element[0], event) &&
           is_text(reply->element[1], subscriber->endpoint->channel) && reply->element[2]->type == type;
}

/* Where it stands nothing but PING is asked: who has no right to that was answered all the same. */
static dibs_status take_error(struct dibs__subscriber *subscriber, const redisReply *reply, struct dibs__error *error)
{
    atomic_fetch_add_explicit(subscriber->endpoint->errors, 1, memory_order_relaxed);
    if (subscriber->standing && dibs__reply_is_error(reply, "NOPERM"))
        return DIBS_OK;
    return dibs__reply_refusal(error, reply, subscriber->endpoint->url.shown,
                               subscriber->standing ? "the subscription" : "SUBSCRIBE to our channel");
}

/* What is neither of these tells nothing: it was heard, that is all. */
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

/* Takes what is there, at most one buffer of it: poll tells of the rest again. */
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
        freeReplyObject(reply);
        if (status != DIBS_OK)
            return status;
    }
    return error->status;
}

/* ------------------------------------------------------------------- driving */

static void begin_attempt(struct dibs__subscriber *subscriber, int64_t now)
{
    struct dibs__error error = {DIBS_OK, ""};

    subscriber->attempt_until = dibs__after_ms(now, subscriber->connect_timeout_ms);
    subscriber->link = dibs__link_start(subscriber->endpoint, DIBS__LINK_SUBSCRIPTIONS, &subscriber->last_id, &error);
    if (!subscriber->link)
        fail_attempt(subscriber, &error, now);
}

/* Requires a link that is ready. Subscribes, and looks whether that was confirmed. */
static dibs_status subscribe(struct dibs__subscriber *subscriber, int64_t now, struct dibs__error *error)
{
    dibs_status status = DIBS_OK;

    if (!subscriber->asked)
        status = ask(subscriber, "SUBSCRIBE", subscriber->endpoint->channel, error);
    subscriber->asked = true;
    if (status == DIBS_OK)
        status = dibs__link_send_out(subscriber->link, error);
    return status == DIBS_OK ? read_in(subscriber, now, error) : status;
}

static void go_on_with_attempt(struct dibs__subscriber *subscriber, int64_t now)
{
    struct dibs__error error = {DIBS_OK, ""};
    dibs_status status = dibs__link_step(subscriber->link, now, subscriber->attempt_until, &error);

    if (status == DIBS_OK && subscriber->link->state == DIBS__LINK_READY)
        status = subscribe(subscriber, now, &error);
    if (subscriber->standing) {
        if (status != DIBS_OK)
            lose(subscriber);
        return;
    }
    if (status == DIBS_OK && now >= subscriber->attempt_until)
        status = dibs__link_give_up(subscriber->link, &error);
    if (status != DIBS_OK)
        fail_attempt(subscriber, &error, now);
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

/* Why a subscription broke is of no interest to anybody: the next attempt tells whether there is one. */
static void go_on_listening(struct dibs__subscriber *subscriber, short ready, int64_t now)
{
    struct dibs__error error;
    dibs_status status = DIBS_OK;

    /* an answer may have come since the poll: one last look */
    if (dibs__link_may_receive(subscriber->link, ready) || was_pinged_in_vain(subscriber, now))
        status = read_in(subscriber, now, &error);
    if (status == DIBS_OK)
        status = ping_after_silence(subscriber, now, &error);
    if (status == DIBS_OK)
        status = dibs__link_send_out(subscriber->link, &error);
    if (status != DIBS_OK || was_pinged_in_vain(subscriber, now) || !is_trusted(subscriber))
        lose(subscriber);
}

/* When the next attempt is to be made. Requires that there is no link. */
static int64_t next_attempt(const struct dibs__subscriber *subscriber)
{
    if (!atomic_load(&subscriber->wanted))
        return DIBS__NEVER;
    return atomic_load(&subscriber->awaited) ? subscriber->awaited_at : subscriber->reopen_at;
}

void dibs__subscriber_attend(struct dibs__subscriber *subscriber, short ready, int64_t now)
{
    if (subscriber->standing)
        go_on_listening(subscriber, ready, now);
    else if (subscriber->link)
        go_on_with_attempt(subscriber, now);
    else if (now >= next_attempt(subscriber))
        begin_attempt(subscriber, now);
}

/* When something is to be done about the link, whatever the socket does. */
static int64_t next_time(struct dibs__subscriber *subscriber)
{
    if (!subscriber->standing)
        return subscriber->attempt_until;
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
    } else {
        *deadline = next_attempt(subscriber);
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
    subscriber->connect_timeout_ms = connect_timeout_ms;
    subscriber->command_timeout_ms = command_timeout_ms;
    subscriber->reopen_ms = REOPEN_FIRST_MS;
    subscriber->deaf_ms = DEAF_FIRST_MS;
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
    pthread_cond_destroy(&subscriber->changed);
    dibs__mutex_destroy(&subscriber->mutex);
    free(subscriber);
}
