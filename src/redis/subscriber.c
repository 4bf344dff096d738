#include "redis/subscriber_parts.h"

#include <stdlib.h>
#include <string.h>

#include "redis/reply.h"

#define IDLE_MS 50   /* nobody reads for this long after a thread has left, because another may be about to wait; */
#define UNHEARD_MS 2 /* or for this long, if some messages are for no thread in listen */

/* --------------------------------------------------------------- any thread */

uint64_t dibs__subscriber_serial(struct dibs__subscriber *subscriber)
{
    uint64_t serial = atomic_load_explicit(&subscriber->serial, memory_order_acquire);

    if (serial == 0 && !atomic_exchange(&subscriber->connector.wanted, true))
        subscriber->hooks.wake(subscriber->hooks.above);
    return serial;
}

/* Unlocks the mutex while it sleeps. seen: the number of tries that had ended when the call began. */
static dibs_status wait_for_one(struct dibs__subscriber *subscriber, unsigned seen, int64_t deadline, uint64_t *serial,
                                struct dibs__error *error) DIBS__REQUIRES(subscriber_mutex)
{
    while ((*serial = atomic_load(&subscriber->serial)) == 0) {
        unsigned ended = atomic_load(&subscriber->tries);
        bool late = dibs__now(subscriber->endpoint->clock) >= deadline;
        dibs_status failure = subscriber->failure.status;
        if (failure == DIBS_DENIED || (failure != DIBS_OK && (late || ended != seen))) {
            *error = subscriber->failure;
            return failure;
        }
        if (late)
            return dibs__error_set(error, DIBS_UNAVAILABLE, "%s does not answer", subscriber->endpoint->url.shown);
        seen = ended;
        subscriber->endpoint->clock->wait(subscriber->endpoint->clock, &subscriber->changed, &subscriber->mutex,
                                          deadline);
    }
    return DIBS_OK;
}

dibs_status dibs__subscriber_await(struct dibs__subscriber *subscriber, int64_t deadline, uint64_t *serial,
                                   struct dibs__error *error)
{
    unsigned seen =
        atomic_load(&subscriber->tries); /* read before a subscription is wanted, because the try may fail at once */

    *serial = dibs__subscriber_serial(subscriber);
    if (*serial != 0)
        return DIBS_OK;
    if (dibs__now(subscriber->endpoint->clock) < deadline && !atomic_exchange(&subscriber->connector.needed, true) &&
        dibs__subscriber_is_unconfirmed(subscriber))
        subscriber->hooks.wake(subscriber->hooks.above);
    subscriber_mutex_lock(&subscriber->mutex);
    dibs_status status = wait_for_one(subscriber, seen, deadline, serial, error);
    subscriber_mutex_unlock(&subscriber->mutex);
    return status;
}

void dibs__subscriber_distrust(struct dibs__subscriber *subscriber, uint64_t serial)
{
    uint_fast64_t standing = serial;

    if (serial != 0 && atomic_compare_exchange_strong(&subscriber->serial, &standing, 0))
        subscriber->hooks.wake(subscriber->hooks.above);
}

bool dibs__subscriber_confirm(struct dibs__subscriber *subscriber, uint64_t serial)
{
    uint_fast64_t before = atomic_load_explicit(&subscriber->confirmed, memory_order_relaxed);

    while (before < serial && !atomic_compare_exchange_weak(&subscriber->confirmed, &before, serial))
        continue;
    return atomic_load(&subscriber->serial) == serial;
}

/* ------------------------------------------------------------ what is received */

/*
 * After a subscription is made, only PING is sent, and commands about changes and slots. If the server refuses one of
 * these, that is an answer, too.
 */
static dibs_status take_error(struct dibs__subscriber *subscriber, const redisReply *reply, struct dibs__error *error)
    DIBS__REQUIRES(dibs__reading_role)
{
    atomic_fetch_add_explicit(subscriber->endpoint->errors, 1, memory_order_relaxed);
    if (dibs__reply_is_error(reply, "NOPERM") || dibs__slots_explain(subscriber, reply) ||
        dibs__reply_is_error(reply, "ERR unknown command"))
        return DIBS_OK;
    return dibs__reply_refusal(error, reply, subscriber->endpoint->url.shown, "the subscription");
}

/*
 * Takes a message that tells which keys have changed; if all may have, it has no list of keys. False: the reply is
 * about something else.
 */
static bool take_changes(struct dibs__subscriber *subscriber, const redisReply *reply)
    DIBS__REQUIRES(dibs__reading_role)
{
    const struct dibs__subscriber_hooks *hooks = &subscriber->hooks;

    if (dibs__reply_is_event(reply, "subscribe", DIBS__CHANGES, REDIS_REPLY_INTEGER)) {
        atomic_store(&subscriber->hears, subscriber->last_serial);
        hooks->wake(hooks->above);
        return true;
    }
    if (dibs__reply_is_event(reply, "message", DIBS__CHANGES, REDIS_REPLY_NIL)) {
        hooks->changed(hooks->context, NULL, 0);
        return true;
    }
    if (!dibs__reply_is_event(reply, "message", DIBS__CHANGES, REDIS_REPLY_ARRAY))
        return false;
    const redisReply *keys = reply->element[2];
    for (size_t i = 0; i < keys->elements; i++)
        if (keys->element[i]->type == REDIS_REPLY_STRING)
            hooks->changed(hooks->context, keys->element[i]->str, (size_t)keys->element[i]->len);
    return true;
}

/* Replies of other kinds only show that the server is there. */
static dibs_status take(struct dibs__subscriber *subscriber, const redisReply *reply, int64_t now,
                        struct dibs__error *error) DIBS__REQUIRES(dibs__reading_role)
{
    const char *channel = subscriber->endpoint->channel;

    if (dibs__reply_is_event(reply, "message", channel, REDIS_REPLY_STRING)) {
        dibs__subscriber_confirm(subscriber, subscriber->last_serial);
        subscriber->hooks.message(subscriber->hooks.context, reply->element[2]->str, (size_t)reply->element[2]->len);
        return DIBS_OK;
    }
    if (dibs__slots_take(subscriber, reply, now) || take_changes(subscriber, reply))
        return DIBS_OK;
    if (reply->type == REDIS_REPLY_ERROR)
        return take_error(subscriber, reply, error);
    if (dibs__reply_is_event(reply, "unsubscribe", channel, REDIS_REPLY_INTEGER))
        return dibs__error_set(error, DIBS_UNAVAILABLE, "%s ended the subscription", subscriber->endpoint->url.shown);
    return DIBS_OK;
}

dibs_status dibs__subscriber_take(struct dibs__subscriber *subscriber, int64_t now, struct dibs__error *error)
{
    redisReply *reply;

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

dibs_status dibs__subscriber_read(struct dibs__subscriber *subscriber, int64_t now, struct dibs__error *error)
{
    long received = dibs__link_receive(subscriber->link, error);

    if (received <= 0)
        return received < 0 ? error->status : DIBS_OK;
    atomic_store(&subscriber->last_received_at, now);
    return dibs__subscriber_take(subscriber, now, error);
}

/* ---------------------------------------------------------- the reading role */

/* Gives the role to the thread that has waited longest. False: none waits. */
static bool pass_on(struct dibs__subscriber *subscriber) DIBS__REQUIRES(subscriber_mutex)
{
    struct dibs__listening *first = subscriber->first;

    if (!first)
        return false;
    DIBS__LIST_REMOVE(subscriber->first, first, links);
    atomic_store(&first->reads, true);
    subscriber->role_holder = DIBS__ROLE_HOLDER_THREAD;
    dibs__sleeper_wake(&first->wait_event->sleeper);
    return true;
}

/* Not analysed: the role is a variable. */
static void leave_reading(struct dibs__subscriber *subscriber) DIBS__RELEASES(dibs__reading_role)
    DIBS__EXCLUDES(subscriber_mutex) DIBS__UNANALYSED
{
    int64_t now = dibs__now(subscriber->endpoint->clock);

    subscriber_mutex_lock(&subscriber->mutex);
    DIBS__REQUIRE(subscriber->role_holder == DIBS__ROLE_HOLDER_THREAD);
    int64_t idle_until = dibs__after_ms(now, atomic_load(&subscriber->unheard) ? UNHEARD_MS : IDLE_MS);
    bool back = atomic_load(&subscriber->recalled) || atomic_load(&subscriber->serial) == 0;
    bool passed = !back && pass_on(subscriber);
    if (!passed)
        subscriber->role_holder = back ? DIBS__ROLE_HOLDER_SCHEDULER : DIBS__ROLE_HOLDER_NOBODY;
    subscriber->idle_until = idle_until;
    subscriber_mutex_unlock(&subscriber->mutex);
    if (back)
        subscriber->hooks.wake(subscriber->hooks.above);
    else if (!passed)
        subscriber->hooks.wake_by(subscriber->hooks.above, idle_until);
}

bool dibs__subscriber_take_reading(struct dibs__subscriber *subscriber, bool need, int64_t now)
{
    subscriber_mutex_lock(&subscriber->mutex);
    bool thread = subscriber->role_holder == DIBS__ROLE_HOLDER_THREAD;
    bool idle = subscriber->role_holder == DIBS__ROLE_HOLDER_NOBODY && !need && now < subscriber->idle_until;
    if (!thread && !idle)
        subscriber->role_holder = DIBS__ROLE_HOLDER_SCHEDULER;
    atomic_store(&subscriber->recalled, thread && need);
    subscriber_mutex_unlock(&subscriber->mutex);
    if (thread && need)
        dibs__wake_ring(&subscriber->bell);
    return !thread && !idle;
}

/* Not analysed: the role is a variable. */
DIBS__UNANALYSED void dibs__subscriber_end_reading(struct dibs__subscriber *subscriber)
{
    subscriber_mutex_lock(&subscriber->mutex);
    DIBS__REQUIRE(subscriber->role_holder == DIBS__ROLE_HOLDER_SCHEDULER);
    if (subscriber->link && !pass_on(subscriber))
        subscriber->role_holder = DIBS__ROLE_HOLDER_POLL;
    subscriber_mutex_unlock(&subscriber->mutex);
}

/*
 * A thread that leaves the role from now on sees `unheard`. If one left it before, nobody would read for longer, so
 * `idle_until` is brought forward.
 */
void dibs__subscriber_unheard(struct dibs__subscriber *subscriber)
{
    if (atomic_load_explicit(&subscriber->unheard, memory_order_relaxed))
        return;
    int64_t until = dibs__after_ms(dibs__now(subscriber->endpoint->clock), UNHEARD_MS);
    subscriber_mutex_lock(&subscriber->mutex);
    atomic_store(&subscriber->unheard, true);
    bool idle = subscriber->role_holder == DIBS__ROLE_HOLDER_NOBODY && until < subscriber->idle_until;
    if (idle)
        subscriber->idle_until = until;
    subscriber_mutex_unlock(&subscriber->mutex);
    if (idle)
        subscriber->hooks.wake_by(subscriber->hooks.above, until);
}

/* ------------------------------------------------------------------ listening */

/* Reads until the wait event is woken, the time has come, the role is recalled, or the link breaks. */
static void read_for_all(struct dibs__subscriber *subscriber, struct dibs__wait_event *wait_event, int64_t until)
    DIBS__REQUIRES(dibs__reading_role)
{
    int64_t now = 0;

    DIBS__REQUIRE(subscriber->link != NULL);
    while (now < until && !dibs__wait_event_is_woken(wait_event) && !atomic_load(&subscriber->recalled)) {
        struct dibs__error error;
        int64_t by = until;
        struct pollfd fds[2] = {dibs__link_poll(subscriber->link, POLLIN, &by)};
        dibs__wait_event_poll(wait_event, subscriber->endpoint->clock, &subscriber->bell, fds, 1, by);
        now = dibs__now(subscriber->endpoint->clock);
        if (dibs__link_may_receive(subscriber->link, fds[0].revents) &&
            dibs__subscriber_read(subscriber, now, &error) != DIBS_OK) {
            atomic_store(&subscriber->serial, 0);
            return;
        }
    }
}

static void read_with_role(struct dibs__subscriber *subscriber, struct dibs__wait_event *wait_event, int64_t until)
{
    dibs__subscriber_begin_reading(subscriber);
    read_for_all(subscriber, wait_event, until);
    leave_reading(subscriber);
}

/* True: the thread has taken the role. False: the thread is listed. */
static bool take_or_enlist(struct dibs__subscriber *subscriber, struct dibs__listening *me)
{
    subscriber_mutex_lock(&subscriber->mutex);
    bool polled = subscriber->role_holder == DIBS__ROLE_HOLDER_POLL;
    bool reads = polled || subscriber->role_holder == DIBS__ROLE_HOLDER_NOBODY;
    atomic_store(&me->reads, reads);
    if (reads)
        subscriber->role_holder = DIBS__ROLE_HOLDER_THREAD;
    else
        DIBS__LIST_APPEND(subscriber->first, me, links);
    subscriber_mutex_unlock(&subscriber->mutex);
    if (polled) /* so that the scheduler's thread stops polling the link */
        subscriber->hooks.wake(subscriber->hooks.above);
    return reads;
}

/* Called while the thread is listed. True: the thread got the role. */
static bool await_role(struct dibs__subscriber *subscriber, struct dibs__listening *me, int64_t until)
{
    while (!atomic_load(&me->reads) && !dibs__wait_event_is_woken(me->wait_event) &&
           dibs__now(subscriber->endpoint->clock) < until)
        dibs__sleeper_sleep(&me->wait_event->sleeper, subscriber->endpoint->clock, until);
    subscriber_mutex_lock(&subscriber->mutex);
    bool reads = atomic_load(&me->reads);
    if (!reads)
        DIBS__LIST_REMOVE(subscriber->first, me, links);
    subscriber_mutex_unlock(&subscriber->mutex);
    return reads;
}

void dibs__subscriber_listen(struct dibs__subscriber *subscriber, struct dibs__wait_event *wait_event, int64_t until)
{
    struct dibs__listening me = {.wait_event = wait_event};

    do
        if (take_or_enlist(subscriber, &me) || await_role(subscriber, &me, until))
            read_with_role(subscriber, wait_event, until);
    while (!dibs__wait_event_is_woken(wait_event) && dibs__now(subscriber->endpoint->clock) < until);
}

/* ----------------------------------------------------------------- lifecycle */

struct dibs__subscriber *dibs__subscriber_new(struct dibs__endpoint *endpoint,
                                              const struct dibs__subscriber_hooks *hooks)
{
    struct dibs__subscriber *subscriber = calloc(1, sizeof *subscriber);

    if (!subscriber)
        return NULL;
    subscriber->endpoint = endpoint;
    subscriber->hooks = *hooks;
    subscriber->retry.first_ms = DIBS__UNCONFIRMED_FIRST_MS;
    atomic_init(&subscriber->slots.due, DIBS__NEVER);
    dibs__connector_init(&subscriber->connector, endpoint, DIBS__LINK_SUBSCRIPTIONS);
    if (dibs__mutex_init(&subscriber->mutex) != 0)
        goto no_mutex;
    if (dibs__cond_init(&subscriber->changed) != 0)
        goto no_cond;
    if (!dibs__wake_init(&subscriber->bell))
        goto no_bell;
    return subscriber;
no_bell:
    pthread_cond_destroy(&subscriber->changed);
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
    subscriber_mutex_lock(&subscriber->mutex);
    DIBS__REQUIRE(!subscriber->first && subscriber->role_holder != DIBS__ROLE_HOLDER_THREAD);
    subscriber_mutex_unlock(&subscriber->mutex);
    dibs__slots_free(&subscriber->slots);
    dibs__link_free(subscriber->link);
    dibs__connector_free(&subscriber->connector);
    dibs__wake_free(&subscriber->bell);
    pthread_cond_destroy(&subscriber->changed);
    dibs__mutex_destroy(&subscriber->mutex);
    free(subscriber);
}
