#include "redis/channel.h"

#include <stdlib.h>
#include <string.h>

#include "base/borrow.h"
#include "redis/channel_parts.h"

#define LAST_LOOK_MS 200   /* while there is something to read, a reply that came in time is waited for this long */
#define HANDED_OUT_MS 1000 /* a thread that has taken bytes is waited for this long; it only needs a processor */

/* ---------------------------------------------------------------- requests */

/* As one thread at a time takes requests, the one that it sees first stays where it is until it has taken that one. */
static struct dibs__request *take_unused(struct dibs__channel *channel) DIBS__REQUIRES(channel_mutex)
{
    struct dibs__request *first = atomic_load_explicit(&channel->unused, memory_order_acquire);

    while (first && !atomic_compare_exchange_weak_explicit(&channel->unused, &first, first->links.next,
                                                           memory_order_acquire, memory_order_acquire))
        continue;
    return first;
}

/*
 * Makes a request for a command. NULL: no memory, and the error is filled. Requests are used again, and freed with the
 * channel, because a thread that wakes the thread of a request may do so when that one has already gone on.
 */
static struct dibs__request *new_request(struct dibs__channel *channel, struct dibs__error *error)
    DIBS__REQUIRES(channel_mutex)
{
    struct dibs__request *request = take_unused(channel);

    if (!request)
        request = calloc(1, sizeof *request);
    if (!request) {
        dibs__error_set(error, DIBS_NO_MEMORY, "no memory for a command");
        return NULL;
    }
    request->waited_for = request->away = request->asleep = request->unknown = false;
    atomic_store_explicit(&request->done, false, memory_order_relaxed);
    request->wait = NULL;
    request->reply = NULL;
    request->said_before = 0;
    request->done_fn = NULL;
    return request;
}

/*
 * Gives the request back, and frees its reply. May be called with or without the mutex. Not analysed: only the links of
 * a request that is no longer in flight are written, which nobody else reads.
 */
static void free_request(struct dibs__channel *channel, struct dibs__request *request) DIBS__UNANALYSED
{
    struct dibs__request *first = atomic_load_explicit(&channel->unused, memory_order_relaxed);

    if (request->reply)
        freeReplyObject(request->reply);
    do
        request->links.next = first;
    while (!atomic_compare_exchange_weak_explicit(&channel->unused, &first, request, memory_order_release,
                                                  memory_order_relaxed));
}

/* ------------------------------------------------------------- in flight */

/* Appends a command, and its request to those in flight. Requires a link that is not broken. False: no memory. */
static bool append(struct dibs__channel *channel, struct dibs__request *request, const struct dibs__command *command)
    DIBS__REQUIRES(channel_mutex)
{
    size_t used = channel->out.used;
    bool good = true;

    DIBS__REQUIRE(dibs__channel_has_link(channel) && !atomic_load(&request->done));
    for (unsigned i = 0; i < command->before_count && good; i++)
        good = dibs__buffer_command(&channel->out, command->before[i].words, NULL);
    if (!good || !dibs__buffer_command(&channel->out, command->words, command->more)) {
        channel->out.used = used;
        return false;
    }
    request->before = command->before_count;
    request->tells_first = command->tells_first;
    request->begin = channel->queued;
    dibs__request_set_expiry(channel, request);
    channel->queued += channel->out.used - used;
    DIBS__LIST_APPEND(channel->first, request, links);
    atomic_fetch_add_explicit(&channel->in_flight, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&channel->endpoint->in_flight, 1, memory_order_relaxed);
    if (!request->waited_for)
        atomic_fetch_add_explicit(&channel->unattended, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(channel->endpoint->commands, 1, memory_order_relaxed);
    return true;
}

void dibs__channel_unlock_quietly(struct dibs__channel *channel)
{
    struct dibs__sleeper *woken[DIBS__WOKEN_MAX];
    size_t count = channel->woken_count;

    memcpy(woken, channel->woken, count * sizeof *woken);
    channel->woken_count = 0;
    channel_mutex_unlock(&channel->mutex);
    for (size_t i = 0; i < count; i++)
        dibs__sleeper_wake(woken[i]);
}

void dibs__channel_unlock(struct dibs__channel *channel)
{
    bool tells = channel->tells || channel->finished;

    channel->tells = false;
    dibs__channel_unlock_quietly(channel);
    if (tells)
        channel->hooks.unattended(channel->hooks.context);
}

/*
 * The oldest request is no longer in flight: its thread goes on, or the scheduler runs its done_fn. After this call,
 * that request must not be used.
 */
static void end_first(struct dibs__channel *channel) DIBS__REQUIRES(channel_mutex)
{
    struct dibs__request *request = channel->first;

    DIBS__LIST_REMOVE(channel->first, request, links);
    atomic_fetch_sub_explicit(&channel->in_flight, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&channel->endpoint->in_flight, 1, memory_order_relaxed);
    if (!request->waited_for)
        atomic_fetch_sub_explicit(&channel->unattended, 1, memory_order_relaxed);
    if (request->waited_for) {
        if (request->asleep && request->wait)
            dibs__wait_came(request->wait);
        else if (request->asleep)
            channel->woken[channel->woken_count++] = &request->sleeper;
        atomic_store_explicit(&request->done, true, memory_order_release);
    } else if (request->done_fn) {
        atomic_store_explicit(&request->done, true, memory_order_relaxed);
        DIBS__LIST_APPEND(channel->finished, request, links);
    } else {
        free_request(channel, request);
    }
}

/* Takes the reply to a command that was sent before that of the request. */
static void answer_before(struct dibs__request *request, redisReply *reply) DIBS__REQUIRES(channel_mutex)
{
    bool done = reply->type == REDIS_REPLY_INTEGER ? reply->integer > 0
                                                   : reply->type == REDIS_REPLY_STATUS && strcmp(reply->str, "OK") == 0;

    request->before--;
    if (done)
        request->said_before |= UINT32_C(1) << request->before;
    if (reply->type == REDIS_REPLY_ERROR)
        request->said_before |= DIBS__BEFORE_REFUSED;
    freeReplyObject(reply);
}

void dibs__channel_answer(struct dibs__channel *channel, redisReply *reply)
{
    DIBS__REQUIRE(channel->first && channel->woken_count < DIBS__WOKEN_MAX);
    if (channel->first->before > 0) {
        answer_before(channel->first, reply);
        return;
    }
    if (reply->type == REDIS_REPLY_ERROR)
        atomic_fetch_add_explicit(channel->endpoint->errors, 1, memory_order_relaxed);
    channel->first->reply = reply;
    end_first(channel);
}

void dibs__channel_fail_all(struct dibs__channel *channel, uint64_t sent)
{
    channel_mutex_held(&channel->mutex);
    while (channel->first) {
        channel->first->unknown = channel->first->begin < sent;
        channel->first->why = channel->broken_by.status;
        end_first(channel);
        while (channel->woken_count > 0) /* with the mutex locked, because a broken connection is rare, and any number
                                            of requests may be in flight */
            dibs__sleeper_wake(channel->woken[--channel->woken_count]);
    }
}

/* NULL: there is none. *why is set to why the request failed, if it did. */
static struct dibs__request *take_finished(struct dibs__channel *channel, struct dibs__error *why)
{
    channel_mutex_lock(&channel->mutex);
    struct dibs__request *request = channel->finished;
    if (request) {
        DIBS__LIST_REMOVE(channel->finished, request, links);
        *why = channel->broken_by;
        why->status = request->why;
    }
    channel_mutex_unlock(&channel->mutex);
    return request;
}

void dibs__channel_run_completions(struct dibs__channel *channel)
{
    struct dibs__request *request;
    struct dibs__error why;

    while ((request = take_finished(channel, &why))) {
        dibs__completion_begin();
        request->done_fn(request->arg, request->reply, &why);
        dibs__completion_end();
        free_request(channel, request);
    }
}

/* ------------------------------------------------------------------- sending */

/* Sends the command on the link of that serial. False: nothing was sent, and the error is filled. */
static bool send_on(struct dibs__channel *channel, uint64_t serial, struct dibs__request *request,
                    const struct dibs__command *command, int64_t deadline, struct dibs__error *error)
    DIBS__REQUIRES(channel_mutex)
{
    if (!dibs__channel_has_link(channel) || channel->serial != serial) {
        dibs__error_set(error, DIBS_UNAVAILABLE, "the connection to %s broke", channel->endpoint->url.shown);
    } else if (!append(channel, request, command)) {
        dibs__error_set(error, DIBS_NO_MEMORY, "no memory for a command");
    } else {
        dibs__channel_flush(channel, deadline);
        return true;
    }
    free_request(channel, request);
    return false;
}

struct dibs__request *dibs__channel_send(struct dibs__channel *channel, uint64_t serial,
                                         const struct dibs__command *command, int64_t deadline,
                                         struct dibs__error *error)
{
    dibs__borrow_begin();
    channel_mutex_lock(&channel->mutex);
    struct dibs__request *request = new_request(channel, error);
    if (request) {
        request->waited_for = true;
        request->away = deadline == 0;
    }
    bool sent = request && send_on(channel, serial, request, command, deadline, error);
    dibs__channel_unlock(channel);
    dibs__borrow_end();
    return sent ? request : NULL;
}

bool dibs__channel_submit(struct dibs__channel *channel, uint64_t serial, const struct dibs__command *command,
                          dibs__reply_fn *done, void *arg)
{
    struct dibs__error error;

    dibs__borrow_begin();
    channel_mutex_lock(&channel->mutex);
    struct dibs__request *request = new_request(channel, &error);
    if (request) {
        request->done_fn = done;
        request->arg = arg;
    }
    bool sent = request && send_on(channel, serial, request, command, 0, &error);
    channel_mutex_unlock(&channel->mutex);
    dibs__borrow_end();
    return sent;
}

bool dibs__channel_say(struct dibs__channel *channel, uint64_t serial, const char *const *words)
{
    channel_mutex_lock(&channel->mutex);
    size_t used = channel->out.used;
    bool said = dibs__channel_has_link(channel) && channel->serial == serial &&
                dibs__buffer_command(&channel->out, words, NULL);
    if (said) {
        channel->queued += channel->out.used - used;
        atomic_fetch_add_explicit(channel->endpoint->commands, 1, memory_order_relaxed);
        dibs__channel_flush(channel, 0);
    }
    channel_mutex_unlock(&channel->mutex);
    return said;
}

/* ------------------------------------------------------------------- waiting */

/* One step of waiting: the thread reads, or sleeps while another thread reads. */
static void wait_a_while(struct dibs__channel *channel, struct dibs__request *request, int64_t deadline)
    DIBS__EXCLUDES(channel_mutex)
{
    channel_mutex_lock(&channel->mutex);
    DIBS__REQUIRE(request->waited_for);
    request->away = request->asleep = false;
    if (!channel->broken && !channel->reading && !dibs__request_is_done(request))
        dibs__channel_flush(channel, deadline);
    bool done = dibs__request_is_done(request), sleeps = !done && (channel->reading || channel->broken);
    request->asleep = sleeps;
    if (!done && !sleeps)
        dibs__channel_read(channel, request, deadline);
    dibs__channel_unlock(channel);
    if (sleeps)
        dibs__sleeper_sleep(&request->sleeper, channel->endpoint->clock, deadline);
}

/*
 * Called while another thread reads. Waits until what that thread has taken is handed out, but not beyond the limit. If
 * that thread has taken nothing, waits for DIBS__LOOK_AGAIN_MS. Unlocks the mutex while it sleeps.
 */
static void await_round(struct dibs__channel *channel, const struct dibs__request *request, int64_t limit)
    DIBS__REQUIRES(channel_mutex)
{
    unsigned takes = atomic_load(&channel->takes);
    int64_t until;

    DIBS__REQUIRE(channel->reading);
    channel->looking++;
    do {
        until = dibs__after_ms(dibs__now(channel->endpoint->clock), DIBS__LOOK_AGAIN_MS);
        channel->endpoint->clock->wait(channel->endpoint->clock, &channel->changed, &channel->mutex,
                                       until < limit ? until : limit);
    } while (dibs__channel_is_taking(takes) && atomic_load(&channel->takes) == takes &&
             !dibs__request_is_done(request) && dibs__now(channel->endpoint->clock) < limit);
    channel->looking--;
}

/*
 * Called when the time of the caller is over. The process may have been stopped, and the reply may have come long ago,
 * so what has come is read once more. If another thread has taken bytes and was put off the processor before it handed
 * them out, it is waited for, once. If the link would be given up because the reply is missing, reading and waiting are
 * repeated while there is something to read. A silent server keeps nobody here. Unlocks the mutex in between.
 *
 * No other thread is kept from its reply that long. The threads that a round of reading wakes have yet to be woken when
 * the round ends, with the mutex locked. At that moment nobody has the reading role, so the next step is either another
 * round, which wakes them first, or the end.
 */
static void look_once_more(struct dibs__channel *channel, const struct dibs__request *request)
    DIBS__REQUIRES(channel_mutex)
{
    int64_t now = dibs__now(channel->endpoint->clock), limit = dibs__after_ms(now, HANDED_OUT_MS);
    int64_t until = now >= request->expires ? dibs__after_ms(now, LAST_LOOK_MS) : now;

    while (!dibs__request_is_done(request) && dibs__channel_has_link(channel) && dibs__channel_has_something(channel)) {
        DIBS__REQUIRE(channel->woken_count == 0 || !channel->reading);
        if (!channel->reading)
            dibs__channel_read(channel, NULL, 0);
        else
            await_round(channel, request, limit);
        if (dibs__now(channel->endpoint->clock) >= until)
            break;
    }
}

/* Nobody will take the reply any more. If its thread was the next to read, another thread becomes that. */
static void abandon(struct dibs__channel *channel, struct dibs__request *request) DIBS__REQUIRES(channel_mutex)
{
    request->waited_for = false;
    atomic_fetch_add_explicit(&channel->unattended, 1, memory_order_relaxed);
    if (!channel->reading)
        dibs__channel_pass_reading_on(channel);
}

/*
 * Called when the time for the reply is over. True: the request is done nevertheless. False: nobody will take the
 * reply.
 */
static bool end_without_reply(struct dibs__channel *channel, struct dibs__request *request)
    DIBS__EXCLUDES(channel_mutex)
{
    channel_mutex_lock(&channel->mutex);
    look_once_more(channel, request);
    if (!dibs__request_is_done(request) && dibs__now(channel->endpoint->clock) >= request->expires)
        dibs__channel_time_out(channel);
    bool done = dibs__request_is_done(request);
    if (!done)
        abandon(channel, request);
    dibs__channel_unlock(channel);
    return done;
}

/* Not analysed: the field that is read without the mutex has not changed since this thread sent the command. */
DIBS__UNANALYSED dibs_status dibs__channel_wait(struct dibs__channel *channel, struct dibs__request *request,
                                                struct dibs__exchange *exchange)
{
    struct dibs__error *error = exchange->error;
    int64_t end = dibs__earlier(exchange->deadline, request->expires);

    exchange->reply = NULL;
    while (!dibs__request_is_done(request) && dibs__now(channel->endpoint->clock) < end)
        wait_a_while(channel, request, end);
    if (!dibs__request_is_done(request) && !end_without_reply(channel, request)) {
        exchange->unknown = true;
        return dibs__error_set(error, DIBS_UNAVAILABLE, "%s did not answer in time", channel->endpoint->url.shown);
    }
    exchange->unknown = request->unknown;
    exchange->before = request->said_before;
    exchange->reply = request->reply;
    request->reply = NULL;
    dibs_status why = request->why;
    free_request(channel, request);
    if (exchange->reply)
        return DIBS_OK;
    channel_mutex_lock(&channel->mutex);
    *error = channel->broken_by;
    error->status = why;
    channel_mutex_unlock(&channel->mutex);
    return error->status;
}

/* ----------------------------------------------------------------- lifecycle */

/* Makes the bell before a thread listens, which can't do without. False: no descriptor is left. Not analysed: new. */
DIBS__UNANALYSED static bool make_bell(struct dibs__channel *channel)
{
    return channel->has_bell = dibs__wake_init(&channel->bell);
}

struct dibs__channel *dibs__channel_new(struct dibs__endpoint *endpoint, const struct dibs__channel_hooks *hooks)
{
    struct dibs__channel *channel = calloc(1, sizeof *channel);

    if (!channel)
        return NULL;
    channel->endpoint = endpoint;
    channel->hooks = *hooks;
    dibs__connector_init(&channel->connector, endpoint, hooks->pushed ? DIBS__LINK_SUBSCRIPTIONS : DIBS__LINK_COMMANDS);
    if (dibs__mutex_and_cond_init(&channel->mutex, &channel->changed)) {
        if (!hooks->pushed || make_bell(channel))
            return channel;
        pthread_cond_destroy(&channel->changed);
        dibs__mutex_destroy(&channel->mutex);
    }
    free(channel);
    return NULL;
}

/* Drops the replies of requests that were answered but not completed: these fail like the rest. */
static void drop_replies(struct dibs__channel *channel) DIBS__REQUIRES(channel_mutex)
{
    for (struct dibs__request *request = channel->finished; request; request = request->links.next) {
        if (!request->reply)
            continue;
        freeReplyObject(request->reply);
        request->reply = NULL;
        request->why = channel->broken_by.status;
    }
}

void dibs__channel_free(struct dibs__channel *channel)
{
    struct dibs__error closed = {DIBS_CLOSED, "the runtime is closed"};

    if (!channel)
        return;
    channel_mutex_lock(&channel->mutex);
    DIBS__REQUIRE(!channel->listeners && !channel->reading && !channel->writing &&
                  channel->opener != DIBS__OPENER_THREAD);
    dibs__channel_break(channel, &closed);
    channel->broken_by = closed;
    drop_replies(channel);
    channel_mutex_unlock(&channel->mutex);
    dibs__channel_run_completions(channel);
    channel_mutex_lock(&channel->mutex);
    for (struct dibs__request *request; (request = take_unused(channel));)
        free(request);
    dibs__buffer_free(&channel->out);
    dibs__buffer_free(&channel->sending);
    if (channel->has_bell)
        dibs__wake_free(&channel->bell);
    channel_mutex_unlock(&channel->mutex);
    dibs__connector_free(&channel->connector);
    pthread_cond_destroy(&channel->changed);
    dibs__mutex_destroy(&channel->mutex);
    free(channel);
}
