#include "redis/channel.h"

#include <stdlib.h>
#include <string.h>

#include "redis/channel_parts.h"

#define LAST_LOOK_MS 200 /* for so long a reply that came in time is waited for while another thread reads it */
#define LOOK_AGAIN_MS 5  /* so often it is looked meanwhile whether that thread has anything to read */

static void tell_scheduler(struct dibs__channel *channel) DIBS__EXCLUDES(channel_mutex)
{
    channel->hooks.unattended(channel->hooks.context);
}

/* ------------------------------------------------------------ what is known */

unsigned dibs__channel_load(struct dibs__channel *channel)
{
    return atomic_load_explicit(&channel->in_flight, memory_order_relaxed);
}

bool dibs__channel_stands(struct dibs__channel *channel)
{
    return atomic_load_explicit(&channel->standing, memory_order_relaxed);
}

bool dibs__channel_is_waited_for(struct dibs__channel *channel)
{
    return dibs__channel_load(channel) > atomic_load_explicit(&channel->unattended, memory_order_relaxed);
}

/* Where a thread has a role, it will meet the end of the link by itself. */
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
    dibs__flight_call_finished(channel);
    bool standing = dibs__channel_has_link(channel);
    channel_mutex_unlock(&channel->mutex);
    return standing;
}

/* ------------------------------------------------------------------ the link */

static void take_view(const struct dibs__channel *channel, struct dibs__link_view *view) DIBS__REQUIRES(channel_mutex)
{
    DIBS__REQUIRE(dibs__channel_has_link(channel));
    view->id = channel->link->id;
    view->server_ahead_us = channel->link->server_ahead_us;
    view->serial = channel->serial;
    view->unended = channel->unended;
    view->may_publish = channel->link->may_publish;
    view->cluster = channel->link->cluster;
    view->server = dibs__link_server(channel->link);
    memcpy(view->shas, channel->link->shas, sizeof view->shas);
}

_Static_assert(sizeof((struct dibs__link_view *)0)->shas == sizeof((struct dibs__link *)0)->shas,
               "a view has room for the shas of a link");

dibs_status dibs__channel_open(struct dibs__channel *channel, int64_t deadline, struct dibs__link_view *view,
                               struct dibs__error *error)
{
    channel_mutex_lock(&channel->mutex);
    dibs_status status = dibs__channel_ensure_open(channel, deadline, error);
    if (status == DIBS_OK)
        take_view(channel, view);
    channel_mutex_unlock(&channel->mutex);
    return status;
}

bool dibs__channel_view(struct dibs__channel *channel, struct dibs__link_view *view)
{
    channel_mutex_lock(&channel->mutex);
    bool standing = dibs__channel_has_link(channel);
    if (standing)
        take_view(channel, view);
    channel_mutex_unlock(&channel->mutex);
    return standing;
}

void dibs__channel_want(struct dibs__channel *channel)
{
    if (!dibs__channel_stands(channel) && !atomic_exchange(&channel->wanted, true))
        tell_scheduler(channel);
}

void dibs__channel_set_clock(struct dibs__channel *channel, uint64_t serial, int64_t server_ahead_us)
{
    channel_mutex_lock(&channel->mutex);
    if (channel->link && channel->serial == serial)
        channel->link->server_ahead_us = server_ahead_us;
    channel_mutex_unlock(&channel->mutex);
}

/* ------------------------------------------------------------------- sending */

/* Appends to the link of that serial, or fills the error. */
static bool append_to(struct dibs__channel *channel, uint64_t serial, struct dibs__request *request,
                      const struct dibs__command *command, struct dibs__error *error) DIBS__REQUIRES(channel_mutex)
{
    if (!dibs__channel_has_link(channel) || channel->serial != serial) {
        dibs__error_set(error, DIBS_UNAVAILABLE, "the connection to %s broke", channel->endpoint->url.shown);
        return false;
    }
    if (dibs__flight_append(channel, request, command))
        return true;
    dibs__error_set(error, DIBS_NO_MEMORY, "no memory for a command");
    return false;
}

/* Whether nobody sends what the socket did not take. True: the scheduler is to be told to. */
static bool leaves_unsent(const struct dibs__channel *channel) DIBS__REQUIRES(channel_mutex)
{
    return dibs__channel_has_unsent(channel) && !channel->writing;
}

struct dibs__request *dibs__channel_send(struct dibs__channel *channel, uint64_t serial,
                                         const struct dibs__command *command, int64_t deadline,
                                         struct dibs__error *error)
{
    struct dibs__request *request = dibs__request_new(error);

    if (!request)
        return NULL;
    channel_mutex_lock(&channel->mutex);
    request->waited_for = true;
    request->away = deadline == 0;
    request->error = error;
    bool sent = append_to(channel, serial, request, command, error);
    if (sent)
        dibs__channel_flush(channel, deadline);
    bool tell = leaves_unsent(channel);
    dibs__flight_call_finished(channel);
    channel_mutex_unlock(&channel->mutex);
    if (tell)
        tell_scheduler(channel);
    if (sent)
        return request;
    dibs__request_free(request);
    return NULL;
}

bool dibs__channel_submit(struct dibs__channel *channel, uint64_t serial, const struct dibs__command *command,
                          dibs__reply_fn *done, void *arg)
{
    struct dibs__error error;
    struct dibs__request *request = dibs__request_new(&error);

    if (!request)
        return false;
    request->done_fn = done;
    request->arg = arg;
    channel_mutex_lock(&channel->mutex);
    bool sent = append_to(channel, serial, request, command, &error);
    if (sent)
        dibs__channel_flush(channel, 0);
    dibs__flight_call_finished(channel);
    channel_mutex_unlock(&channel->mutex);
    if (!sent)
        dibs__request_free(request);
    return sent;
}

/* ------------------------------------------------------------------- waiting */

/*
 * Reads, or sleeps while another thread reads. True: the request is done; false: the deadline has passed. Lets go of
 * the mutex in between.
 */
static bool wait_until_done(struct dibs__channel *channel, struct dibs__request *request, int64_t deadline)
    DIBS__REQUIRES(channel_mutex)
{
    while (!request->done) {
        if (dibs__now(channel->clock) >= deadline)
            return false;
        if (channel->reading || channel->broken) {
            channel->clock->wait(channel->clock, &request->cond, &channel->mutex, deadline);
            continue;
        }
        dibs__channel_flush(channel, deadline);
        if (request->done || channel->reading || channel->broken)
            continue;
        if (dibs__channel_read(channel, deadline) && request->done) {
            channel_mutex_unlock(&channel->mutex);
            tell_scheduler(channel);
            channel_mutex_lock(&channel->mutex);
        }
    }
    return true;
}

/* Another thread reads. Lets go of the mutex while it sleeps. */
static void await_round(struct dibs__channel *channel, int64_t until) DIBS__REQUIRES(channel_mutex)
{
    DIBS__REQUIRE(channel->reading);
    channel->looking++;
    channel->clock->wait(channel->clock, &channel->changed, &channel->mutex, until);
    channel->looking--;
}

/*
 * The time of the caller is over. If that is because the process was stopped,
 * the reply may have come long ago, so what has come is read once more. If the
 * link would be given up for the missing reply, a thread that reads is waited
 * for. Lets go of the mutex in between. True: the scheduler is to be told.
 */
static bool look_once_more(struct dibs__channel *channel, const struct dibs__request *request)
    DIBS__REQUIRES(channel_mutex)
{
    int64_t now = dibs__now(channel->clock);
    int64_t until = now >= request->expires ? dibs__after_ms(now, LAST_LOOK_MS) : now;
    bool tell = false;

    while (!request->done && dibs__channel_has_link(channel) && dibs__channel_has_something(channel)) {
        if (!channel->reading)
            tell = dibs__channel_read(channel, 0);
        else if (dibs__now(channel->clock) < until)
            await_round(channel, dibs__after_ms(dibs__now(channel->clock), LOOK_AGAIN_MS));
        if (dibs__now(channel->clock) >= until)
            break;
    }
    return tell;
}

/* The thread of a request stops waiting. If it was the next to read, another is now. True: tell the scheduler. */
static bool stop_waiting(struct dibs__channel *channel) DIBS__REQUIRES(channel_mutex)
{
    return !channel->reading && dibs__channel_pass_reading_on(channel);
}

/* Nobody takes the reply any more. True: the scheduler is to be told. */
static bool abandon(struct dibs__channel *channel, struct dibs__request *request) DIBS__REQUIRES(channel_mutex)
{
    request->waited_for = false;
    request->error = NULL;
    atomic_fetch_add_explicit(&channel->unattended, 1, memory_order_relaxed);
    return stop_waiting(channel);
}

bool dibs__channel_await(struct dibs__channel *channel, struct dibs__request *request, int64_t until)
{
    bool tell = false;

    channel_mutex_lock(&channel->mutex);
    DIBS__REQUIRE(request->waited_for);
    request->away = false;
    if (!wait_until_done(channel, request, until < request->expires ? until : request->expires))
        tell = look_once_more(channel, request);
    bool done = request->done;
    if (!done) {
        request->away = true;
        tell = stop_waiting(channel) || tell;
    }
    tell = leaves_unsent(channel) || tell;
    dibs__flight_call_finished(channel);
    channel_mutex_unlock(&channel->mutex);
    if (tell)
        tell_scheduler(channel);
    return done;
}

dibs_status dibs__channel_wait(struct dibs__channel *channel, struct dibs__request *request,
                               struct dibs__exchange *exchange)
{
    struct dibs__error *error = exchange->error;
    int64_t deadline = exchange->deadline;
    bool tell = false, done;

    exchange->reply = NULL;
    channel_mutex_lock(&channel->mutex);
    DIBS__REQUIRE(request->waited_for);
    if (request->done && !request->reply && request->error != error)
        *error = *request->error;
    request->error = error;
    request->away = false;
    done = wait_until_done(channel, request, deadline < request->expires ? deadline : request->expires);
    if (!done)
        tell = look_once_more(channel, request);
    if (!request->done && dibs__now(channel->clock) >= request->expires)
        dibs__channel_time_out(channel);
    done = request->done;
    exchange->unknown = done ? request->unknown : true;
    if (done)
        exchange->reply = request->reply;
    else
        tell = abandon(channel, request) || tell;
    tell = leaves_unsent(channel) || tell;
    dibs__flight_call_finished(channel);
    channel_mutex_unlock(&channel->mutex);
    if (tell)
        tell_scheduler(channel);
    if (!done)
        return dibs__error_set(error, DIBS_UNAVAILABLE, "%s did not answer in time", channel->endpoint->url.shown);
    request->reply = NULL;
    dibs__request_free(request);
    return exchange->reply ? DIBS_OK : error->status;
}

/* ----------------------------------------------------------------- lifecycle */

struct dibs__channel *dibs__channel_new(struct dibs__endpoint *endpoint, const struct dibs__clock *clock,
                                        const struct dibs__channel_hooks *hooks, uint32_t connect_timeout_ms,
                                        uint32_t command_timeout_ms)
{
    struct dibs__channel *channel = calloc(1, sizeof *channel);

    if (!channel)
        return NULL;
    channel->endpoint = endpoint;
    channel->clock = clock;
    channel->hooks = *hooks;
    channel->command_timeout_ms = command_timeout_ms;
    dibs__connector_init(&channel->connector, endpoint, DIBS__LINK_COMMANDS, connect_timeout_ms);
    if (dibs__mutex_init(&channel->mutex) != 0)
        goto no_mutex;
    if (dibs__cond_init(&channel->changed) != 0)
        goto no_cond;
    channel_mutex_lock(&channel->mutex);
    channel->finished_end = &channel->finished;
    channel_mutex_unlock(&channel->mutex);
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
    dibs__flight_call_finished(channel);
    dibs__buffer_free(&channel->out);
    dibs__buffer_free(&channel->sending);
    channel_mutex_unlock(&channel->mutex);
    dibs__connector_free(&channel->connector);
    pthread_cond_destroy(&channel->changed);
    dibs__mutex_destroy(&channel->mutex);
    free(channel);
}
