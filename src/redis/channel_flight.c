#include <stdlib.h>
#include <string.h>

#include "base/borrow.h"
#include "redis/channel_parts.h"

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

struct dibs__request *dibs__request_new(struct dibs__channel *channel, struct dibs__error *error)
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

/* Not analysed: only the links of a request that is no longer in flight are written, which nobody else reads. */
void dibs__request_free(struct dibs__channel *channel, struct dibs__request *request) DIBS__UNANALYSED
{
    struct dibs__request *first = atomic_load_explicit(&channel->unused, memory_order_relaxed);

    if (request->reply)
        freeReplyObject(request->reply);
    do
        request->links.next = first;
    while (!atomic_compare_exchange_weak_explicit(&channel->unused, &first, request, memory_order_release,
                                                  memory_order_relaxed));
}

void dibs__flight_free_unused(struct dibs__channel *channel)
{
    for (struct dibs__request *request; (request = take_unused(channel));)
        free(request);
}

/* ------------------------------------------------------------- in flight */

/* Appends a command right before that of the request. False: no memory. */
static bool append_before(struct dibs__channel *channel, struct dibs__request *request,
                          const struct dibs__command *command) DIBS__REQUIRES(channel_mutex)
{
    request->before++;
    return dibs__buffer_command(&channel->out, command->words, command->more);
}

static const struct dibs__command ping = {.words = (const char *[]){"PING", NULL}};
const struct dibs__command dibs__asking = {.words = (const char *[]){"ASKING", NULL}};
const struct dibs__command dibs__caching_no = {.words = (const char *[]){"CLIENT", "CACHING", "NO", NULL}};

/*
 * A server writes to its clients in reverse of the order in which it first had something for each. Behind a PING, the
 * client of this link comes first in that order, and so is written to last. The PING precedes all other commands,
 * because ASKING and CLIENT CACHING NO apply only to the one command behind them.
 */
static bool append_all_before(struct dibs__channel *channel, struct dibs__request *request,
                              const struct dibs__command *command) DIBS__REQUIRES(channel_mutex)
{
    request->before = 0;
    if (command->tells_first && !append_before(channel, request, &ping))
        return false;
    for (unsigned i = 0; i < command->before_count; i++)
        if (!append_before(channel, request, &command->before[i]))
            return false;
    return true;
}

bool dibs__flight_append(struct dibs__channel *channel, struct dibs__request *request,
                         const struct dibs__command *command)
{
    size_t before = channel->out.used;

    channel_mutex_held(&channel->mutex);
    DIBS__REQUIRE(dibs__channel_has_link(channel) && !atomic_load(&request->done));
    if (!append_all_before(channel, request, command) ||
        !dibs__buffer_command(&channel->out, command->words, command->more)) {
        channel->out.used = before;
        return false;
    }
    request->tells_first = command->tells_first;
    request->begin = channel->queued;
    request->expires = dibs__after_ms(dibs__now(channel->endpoint->clock), channel->endpoint->command_timeout_ms);
    channel->queued += channel->out.used - before;
    DIBS__LIST_APPEND(channel->first, request, links);
    atomic_fetch_add_explicit(&channel->in_flight, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&channel->endpoint->in_flight, 1, memory_order_relaxed);
    if (!request->waited_for)
        atomic_fetch_add_explicit(&channel->unattended, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(channel->endpoint->commands, 1, memory_order_relaxed);
    return true;
}

static struct dibs__request *take_first(struct dibs__channel *channel) DIBS__REQUIRES(channel_mutex)
{
    struct dibs__request *request = channel->first;

    DIBS__REQUIRE(request != NULL);
    DIBS__LIST_REMOVE(channel->first, request, links);
    atomic_fetch_sub_explicit(&channel->in_flight, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&channel->endpoint->in_flight, 1, memory_order_relaxed);
    if (!request->waited_for)
        atomic_fetch_sub_explicit(&channel->unattended, 1, memory_order_relaxed);
    return request;
}

void dibs__flight_unlock(struct dibs__channel *channel)
{
    struct dibs__sleeper *woken[DIBS__WOKEN_MAX];
    size_t count = channel->woken_count;

    memcpy(woken, channel->woken, count * sizeof *woken);
    channel->woken_count = 0;
    channel_mutex_unlock(&channel->mutex);
    for (size_t i = 0; i < count; i++)
        dibs__sleeper_wake(woken[i]);
}

/*
 * The request is no longer in flight: its thread goes on, or the scheduler runs its done_fn. After this call, the
 * request must not be used.
 */
static void complete(struct dibs__channel *channel, struct dibs__request *request) DIBS__REQUIRES(channel_mutex)
{
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
        dibs__request_free(channel, request);
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

void dibs__flight_answer(struct dibs__channel *channel, redisReply *reply)
{
    DIBS__REQUIRE(channel->first && channel->woken_count < DIBS__WOKEN_MAX);
    if (channel->first->before > 0) {
        answer_before(channel->first, reply);
        return;
    }
    struct dibs__request *request = take_first(channel);
    if (reply->type == REDIS_REPLY_ERROR)
        atomic_fetch_add_explicit(channel->endpoint->errors, 1, memory_order_relaxed);
    request->reply = reply;
    complete(channel, request);
}

void dibs__flight_fail(struct dibs__channel *channel, uint64_t sent)
{
    channel_mutex_held(&channel->mutex);
    while (channel->first) {
        struct dibs__request *request = take_first(channel);
        request->unknown = request->begin < sent;
        request->why = channel->broken_by.status;
        complete(channel, request);
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

void dibs__flight_run_completions(struct dibs__channel *channel)
{
    struct dibs__request *request;
    struct dibs__error why;

    while ((request = take_finished(channel, &why))) {
        dibs__completion_begin();
        request->done_fn(request->arg, request->reply, &why);
        dibs__completion_end();
        dibs__request_free(channel, request);
    }
}

void dibs__flight_drop_replies(struct dibs__channel *channel)
{
    channel_mutex_held(&channel->mutex);
    for (struct dibs__request *request = channel->finished; request; request = request->links.next) {
        if (!request->reply)
            continue;
        freeReplyObject(request->reply);
        request->reply = NULL;
        request->why = channel->broken_by.status;
    }
}
