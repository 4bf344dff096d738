#include <stdlib.h>

#include "redis/channel_parts.h"

struct dibs__request *dibs__request_new(struct dibs__error *error)
{
    struct dibs__request *request = calloc(1, sizeof *request);

    if (request && dibs__cond_init(&request->cond) != 0) {
        free(request);
        request = NULL;
    }
    if (!request)
        dibs__error_set(error, DIBS_NO_MEMORY, "no memory for a command");
    return request;
}

void dibs__request_free(struct dibs__request *request)
{
    if (request->reply)
        freeReplyObject(request->reply);
    pthread_cond_destroy(&request->cond);
    free(request);
}

bool dibs__flight_append(struct dibs__channel *channel, struct dibs__request *request,
                         const struct dibs__command *command)
{
    size_t before = channel->out.used;

    channel_mutex_held(&channel->mutex);
    DIBS__REQUIRE(dibs__channel_has_link(channel) && !request->done);
    if (!dibs__buffer_command(&channel->out, command->count, command->words, command->sizes))
        return false;
    request->begin = channel->queued;
    request->expires = dibs__after_ms(dibs__now(channel->clock), channel->command_timeout_ms);
    channel->queued += channel->out.used - before;
    if (channel->last)
        channel->last->next = request;
    else
        channel->first = request;
    channel->last = request;
    atomic_fetch_add_explicit(&channel->in_flight, 1, memory_order_relaxed);
    if (!request->waited_for)
        atomic_fetch_add_explicit(&channel->unattended, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(channel->endpoint->commands, 1, memory_order_relaxed);
    return true;
}

static struct dibs__request *take_first(struct dibs__channel *channel) DIBS__REQUIRES(channel_mutex)
{
    struct dibs__request *request = channel->first;

    DIBS__REQUIRE(request != NULL);
    channel->first = request->next;
    if (!channel->first)
        channel->last = NULL;
    request->next = NULL;
    atomic_fetch_sub_explicit(&channel->in_flight, 1, memory_order_relaxed);
    if (!request->waited_for)
        atomic_fetch_sub_explicit(&channel->unattended, 1, memory_order_relaxed);
    return request;
}

/* The request is no longer in flight: wakes its thread, or sees to it that its done_fn is called. */
static void complete(struct dibs__channel *channel, struct dibs__request *request) DIBS__REQUIRES(channel_mutex)
{
    request->done = true;
    if (request->waited_for) {
        pthread_cond_signal(&request->cond);
    } else if (request->done_fn) {
        *channel->finished_end = request;
        channel->finished_end = &request->next;
    } else {
        dibs__request_free(request);
    }
}

void dibs__flight_answer(struct dibs__channel *channel, redisReply *reply)
{
    struct dibs__request *request = take_first(channel);

    if (reply->type == REDIS_REPLY_ERROR)
        atomic_fetch_add_explicit(channel->endpoint->errors, 1, memory_order_relaxed);
    request->reply = reply;
    complete(channel, request);
}

void dibs__flight_fail(struct dibs__channel *channel, uint64_t sent, const struct dibs__error *why)
{
    channel_mutex_held(&channel->mutex);
    while (channel->first) {
        struct dibs__request *request = take_first(channel);
        request->unknown = request->begin < sent;
        if (request->waited_for)
            *request->error = *why;
        complete(channel, request);
    }
}

void dibs__flight_call_finished(struct dibs__channel *channel)
{
    channel_mutex_held(&channel->mutex);
    while (channel->finished) {
        struct dibs__request *request = channel->finished;
        struct dibs__error why = channel->broken_by;
        channel->finished = request->next;
        if (!channel->finished)
            channel->finished_end = &channel->finished;
        channel_mutex_unlock(&channel->mutex);
        request->done_fn(request->arg, request->reply, &why);
        dibs__request_free(request);
        channel_mutex_lock(&channel->mutex);
    }
}
