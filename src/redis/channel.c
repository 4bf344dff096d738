#include "redis/channel.h"

#include <stdlib.h>
#include <string.h>

#include "base/borrow.h"
#include "redis/channel_parts.h"

#define LAST_LOOK_MS 200   /* while there is something to read, a reply that came in time is waited for this long */
#define HANDED_OUT_MS 1000 /* a thread that has taken bytes is waited for this long; it only needs a processor */

static void tell_scheduler(struct dibs__channel *channel) DIBS__EXCLUDES(channel_mutex)
{
    channel->hooks.unattended(channel->hooks.context);
}

/* ------------------------------------------------------------ what is known */

unsigned dibs__channel_load(struct dibs__channel *channel)
{
    return atomic_load_explicit(&channel->in_flight, memory_order_relaxed);
}

bool dibs__channel_is_connected(struct dibs__channel *channel)
{
    return atomic_load_explicit(&channel->standing, memory_order_relaxed);
}

bool dibs__channel_is_waited_for(struct dibs__channel *channel)
{
    return dibs__channel_load(channel) > atomic_load_explicit(&channel->unattended, memory_order_relaxed);
}

void dibs__channel_unlock(struct dibs__channel *channel)
{
    bool tells = channel->tells || channel->finished;

    channel->tells = false;
    dibs__flight_unlock(channel);
    if (tells)
        tell_scheduler(channel);
}

/* If a thread has a role, that thread will notice the end of the link. */
bool dibs__channel_look(struct dibs__channel *channel)
{
    struct dibs__error error;

    channel_mutex_lock(&channel->mutex);
    if (dibs__channel_has_link(channel) && !channel->reading && !channel->writing &&
        dibs__link_look(channel->link) == DIBS__SIGHT_END) {
        dibs__error_set(&error, DIBS_UNAVAILABLE, "the connection to %s broke: the server closed it",
                        channel->endpoint->url.shown);
        dibs__channel_break(channel, &error);
    }
    bool connected = dibs__channel_has_link(channel);
    dibs__channel_unlock(channel);
    return connected;
}

/* ------------------------------------------------------------------ the link */

bool dibs__channel_view(struct dibs__channel *channel, struct dibs__link_view *view)
{
    channel_mutex_lock(&channel->mutex);
    bool connected = dibs__channel_has_link(channel);
    if (connected)
        *view = channel->link->view;
    channel_mutex_unlock(&channel->mutex);
    return connected;
}

void dibs__channel_want(struct dibs__channel *channel)
{
    if (!dibs__channel_is_connected(channel) && !atomic_exchange(&channel->connector.wanted, true))
        tell_scheduler(channel);
}

void dibs__channel_set_clock(struct dibs__channel *channel, uint64_t serial, int64_t least_us, int64_t most_us)
{
    channel_mutex_lock(&channel->mutex);
    if (channel->link && channel->serial == serial) {
        int64_t *ahead_us = &channel->link->view.server_ahead_us;
        *ahead_us = *ahead_us < most_us ? *ahead_us : most_us;
        *ahead_us = *ahead_us > least_us ? *ahead_us : least_us;
    }
    channel_mutex_unlock(&channel->mutex);
}

/* ------------------------------------------------------------------- sending */

/* Sends the command on the link of that serial. False: nothing was sent, and the error is filled. */
static bool send_on(struct dibs__channel *channel, uint64_t serial, struct dibs__request *request,
                    const struct dibs__command *command, int64_t deadline, struct dibs__error *error)
    DIBS__REQUIRES(channel_mutex)
{
    if (!dibs__channel_has_link(channel) || channel->serial != serial) {
        dibs__error_set(error, DIBS_UNAVAILABLE, "the connection to %s broke", channel->endpoint->url.shown);
    } else if (!dibs__flight_append(channel, request, command)) {
        dibs__error_set(error, DIBS_NO_MEMORY, "no memory for a command");
    } else {
        dibs__channel_flush(channel, deadline);
        return true;
    }
    dibs__request_free(channel, request);
    return false;
}

struct dibs__request *dibs__channel_send(struct dibs__channel *channel, uint64_t serial,
                                         const struct dibs__command *command, int64_t deadline,
                                         struct dibs__error *error)
{
    dibs__borrow_begin();
    channel_mutex_lock(&channel->mutex);
    struct dibs__request *request = dibs__request_new(channel, error);
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
    struct dibs__request *request = dibs__request_new(channel, &error);
    if (request) {
        request->done_fn = done;
        request->arg = arg;
    }
    bool sent = request && send_on(channel, serial, request, command, 0, &error);
    channel_mutex_unlock(&channel->mutex);
    dibs__borrow_end();
    return sent;
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
    dibs__request_free(channel, request);
    if (exchange->reply)
        return DIBS_OK;
    channel_mutex_lock(&channel->mutex);
    *error = channel->broken_by;
    error->status = why;
    channel_mutex_unlock(&channel->mutex);
    return error->status;
}

/* ----------------------------------------------------------------- lifecycle */

struct dibs__channel *dibs__channel_new(struct dibs__endpoint *endpoint, const struct dibs__channel_hooks *hooks)
{
    struct dibs__channel *channel = calloc(1, sizeof *channel);

    if (!channel)
        return NULL;
    channel->endpoint = endpoint;
    channel->hooks = *hooks;
    dibs__connector_init(&channel->connector, endpoint, DIBS__LINK_COMMANDS);
    if (dibs__mutex_init(&channel->mutex) != 0)
        goto no_mutex;
    if (dibs__cond_init(&channel->changed) != 0)
        goto no_cond;
    return channel;
no_cond:
    dibs__mutex_destroy(&channel->mutex);
no_mutex:
    free(channel);
    return NULL;
}

void dibs__channel_free(struct dibs__channel *channel)
{
    struct dibs__error closed = {DIBS_CLOSED, "the runtime is closed"};

    if (!channel)
        return;
    channel_mutex_lock(&channel->mutex);
    DIBS__REQUIRE(!channel->reading && !channel->writing && channel->opener != DIBS__OPENER_THREAD);
    dibs__channel_break(channel, &closed);
    channel->broken_by = closed;
    dibs__flight_drop_replies(channel);
    channel_mutex_unlock(&channel->mutex);
    dibs__flight_run_completions(channel);
    channel_mutex_lock(&channel->mutex);
    dibs__flight_free_unused(channel);
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
