/*
 * Lock discipline
 *
 * `mutex` guards all of a channel but the fields said to be read-only. It is a
 * leaf, and is let go of before any I/O and before every callback. (To look
 * what lies in the socket, without taking it or waiting for it, is none.)
 *
 * Two roles let one thread at a time do I/O on the link without the mutex:
 * `writing` may send and owns `sending`; `reading` may receive and owns the
 * link's reader. A thread takes a role by setting its flag under the mutex.
 * `opening` is the third: its owner makes the next link while there is none.
 *
 * A link that broke is marked `broken` by whoever finds it so and shut down,
 * which brings the owners of the roles back; who leaves the last role frees
 * it. What was in flight has failed by then.
 *
 * A waiting thread sleeps on its request's cond until
 *     request->done, or nobody is reading (then it reads), or its deadline;
 * one whose time is over while another reads what has come, on `changed` until
 *     a round of reading has ended, or LOOK_AGAIN_MS have passed, again and
 *     again while there is something to read, for LAST_LOOK_MS;
 * one that needs a link sleeps on `changed` until
 *     a link stands, or an attempt that it waited for failed, or its deadline.
 */
#include "redis/channel.h"

#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "redis/reply.h"

#define REOPEN_FIRST_MS 10 /* the scheduler's backoff: doubled each time, with jitter */
#define REOPEN_LAST_MS 500
#define WANTED_LAST_MS 5000  /* the same, for a connection more than there must be */
#define LAST_LOOK_MS 200     /* so long who reads is given to hand out what had come in time */
#define LOOK_AGAIN_MS 5      /* meanwhile it is looked whether who reads has anything */
#define REPLICA_LEAST_MS 500 /* a link to a replica stands for so long at least */

struct dibs__request {
    struct dibs__request *next; /* in flight, or finished */
    int64_t expires;            /* the connection is given up when this has no reply by then */
    uint64_t begin;             /* where in the bytes of the link it begins */
    bool waited_for;            /* a thread takes the reply; else done_fn is called, or nobody cares */
    bool left;                  /* waited_for, but its thread does something else meanwhile: nobody sleeps on cond */
    bool done;
    bool unknown;
    redisReply *reply;
    struct dibs__error *error; /* where a failure is written: the waiting thread's, or own */
    pthread_cond_t cond;
    dibs__reply_fn *done_fn;
    void *arg;
};

DIBS__MUTEX_CLASS(channel_mutex);

struct dibs__channel {
    struct dibs__endpoint *endpoint; /* these five are read-only */
    const struct dibs__clock *clock;
    struct dibs__channel_hooks hooks;
    uint32_t connect_timeout_ms, command_timeout_ms;
    struct dibs__mutex mutex;

    struct dibs__link *link; /* the rest is guarded by mutex, but for what the roles own */
    bool broken, reading, writing, opening;
    unsigned looking;              /* threads that wait for the end of a round of reading */
    bool in_send;                  /* some of `sending` may have been sent */
    struct dibs__error broken_by;  /* why the last link that broke did */
    uint64_t serial;               /* of the link; of the last one where there is none */
    uint64_t unended;              /* serial of the newest link before whose end the server did not confirm; 0: none */
    unsigned attempts;             /* that have ended */
    uint64_t received_before;      /* by the endpoint, when the last attempt began */
    struct dibs__error open_error; /* of the last attempt; DIBS_OK: it succeeded */
    pthread_cond_t changed;
    struct dibs__link_id last_id; /* of the link before */
    struct dibs__link *half_open; /* the scheduler's attempt: set under mutex, then only its thread touches the link */
    int64_t half_open_until;
    int64_t reopen_at, reopen_ms; /* the scheduler thread's */
    bool spare;                   /* the scheduler thread's; the channel is not to be connected at all times */

    struct dibs__buffer out, sending;
    uint64_t queued, handed_out; /* bytes appended, and moved to sending, since the link stands */
    struct dibs__request *first, *last;
    atomic_uint in_flight;                          /* written under mutex */
    atomic_uint unattended;                         /* written under mutex; those of them that no thread waits for */
    atomic_bool standing;                           /* written under mutex; there is a link, not broken */
    atomic_bool wanted;                             /* the scheduler is to make an attempt; cleared when one ended */
    atomic_bool polling;                            /* who reads has not begun to receive yet; written by it alone */
    struct dibs__request *finished, **finished_end; /* with a done_fn to be called, in the order of the replies */
};

/* ----------------------------------------------------------------- requests */

static struct dibs__request *request_new(struct dibs__error *error)
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

static void request_free(struct dibs__request *request)
{
    if (request->reply)
        freeReplyObject(request->reply);
    pthread_cond_destroy(&request->cond);
    free(request);
}

/* Requires mutex. The request has left the flight: wakes its thread, or sees to it that its done_fn is called. */
static void complete(struct dibs__channel *channel, struct dibs__request *request)
{
    request->done = true;
    if (request->waited_for) {
        pthread_cond_signal(&request->cond);
    } else if (request->done_fn) {
        *channel->finished_end = request;
        channel->finished_end = &request->next;
    } else {
        request_free(request);
    }
}

/* Requires mutex; lets go of it while it calls the done_fns of what has finished. */
static void call_finished(struct dibs__channel *channel)
{
    while (channel->finished) {
        struct dibs__request *request = channel->finished;
        struct dibs__error why = channel->broken_by;
        channel->finished = request->next;
        if (!channel->finished)
            channel->finished_end = &channel->finished;
        channel_mutex_unlock(&channel->mutex);
        request->done_fn(request->arg, request->reply, &why);
        request_free(request);
        channel_mutex_lock(&channel->mutex);
    }
}

/* Requires mutex, and that something is in flight. */
static struct dibs__request *take_first(struct dibs__channel *channel)
{
    struct dibs__request *request = channel->first;

    channel->first = request->next;
    if (!channel->first)
        channel->last = NULL;
    request->next = NULL;
    atomic_fetch_sub_explicit(&channel->in_flight, 1, memory_order_relaxed);
    if (!request->waited_for)
        atomic_fetch_sub_explicit(&channel->unattended, 1, memory_order_relaxed);
    return request;
}

/* Requires mutex and a link that stands. Appends the command and its request. */
static bool append(struct dibs__channel *channel, struct dibs__request *request, const struct dibs__command *command)
{
    size_t before = channel->out.used;

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

/* --------------------------------------------------------- the link's end */

/* Requires mutex. Frees a broken link that nobody is using any more. */
static void drop_link(struct dibs__channel *channel)
{
    if (!channel->link || !channel->broken || channel->reading || channel->writing)
        return;
    channel->last_id = channel->link->id;
    dibs__link_free(channel->link);
    channel->link = NULL;
    channel->broken = false;
    channel->out.used = channel->sending.used = 0;
    channel->queued = channel->handed_out = 0;
    pthread_cond_broadcast(&channel->changed);
}

/* Requires mutex. The link is no good: fails all that is in flight. */
static void break_link(struct dibs__channel *channel, const struct dibs__error *why)
{
    if (!channel->link || channel->broken)
        return;
    uint64_t sent = channel->in_send ? channel->handed_out : channel->handed_out - channel->sending.used;
    channel->broken = true;
    atomic_store(&channel->standing, false);
    channel->broken_by = *why;
    dibs__link_shut(channel->link);
    while (channel->first) {
        struct dibs__request *request = take_first(channel);
        request->unknown = request->begin < sent;
        if (request->waited_for)
            *request->error = *why;
        complete(channel, request);
    }
    drop_link(channel);
}

static void time_out(struct dibs__channel *channel)
{
    struct dibs__error why;

    dibs__error_set(&why, DIBS_UNAVAILABLE, "%s did not answer within %u ms", channel->endpoint->url.shown,
                    channel->command_timeout_ms);
    break_link(channel, &why);
}

/* ------------------------------------------------------------- the two roles */

static bool has_unsent(const struct dibs__channel *channel)
{
    return channel->sending.used > 0 || channel->out.used > 0;
}

/*
 * Requires mutex and the writing role; lets go of the mutex in between. Sends
 * what has been appended, waiting for the socket until the deadline (0: not at all).
 */
static void write_out(struct dibs__channel *channel, int64_t deadline)
{
    struct dibs__link *link = channel->link;
    struct dibs__error error;

    while (!channel->broken && has_unsent(channel)) {
        if (channel->sending.used == 0) {
            struct dibs__buffer empty = channel->sending;
            channel->sending = channel->out;
            channel->out = empty;
            channel->handed_out = channel->queued;
        }
        channel->in_send = true;
        channel_mutex_unlock(&channel->mutex);
        long sent = dibs__link_send(link, channel->sending.bytes, channel->sending.used, &error);
        if (sent == 0 && deadline > 0) {
            int64_t until = deadline;
            struct pollfd fd = dibs__link_poll(link, POLLOUT, &until);
            channel->clock->poll(channel->clock, &fd, 1, until);
        }
        bool late = sent == 0 && dibs__now(channel->clock) >= deadline;
        channel_mutex_lock(&channel->mutex);
        channel->in_send = false;
        if (sent < 0)
            break_link(channel, &error);
        else
            dibs__buffer_drop(&channel->sending, (size_t)sent);
        if (late)
            return;
    }
}

/* Requires mutex; lets go of it in between. Writes unless somebody does. */
static void flush(struct dibs__channel *channel, int64_t deadline)
{
    if (channel->writing || channel->broken)
        return;
    channel->writing = true;
    write_out(channel, deadline);
    channel->writing = false;
    drop_link(channel);
}

#define REPLIES_AT_ONCE 64

/* Requires the reading role, not the mutex. Takes complete replies from the reader. False: the bytes are no replies. */
static bool parse(struct dibs__link *link, redisReply *replies[REPLIES_AT_ONCE], size_t *count,
                  struct dibs__error *error)
{
    for (*count = 0; *count < REPLIES_AT_ONCE; ++*count) {
        if (dibs__link_next_reply(link, &replies[*count], error) != DIBS_OK)
            return false;
        if (!replies[*count])
            break;
    }
    return true;
}

/*
 * Requires the reading role, not the mutex. Whether the server has become a
 * replica: the address may lead to another by now. A link that is new is kept,
 * so that a replica is not connected to again and again.
 */
static bool is_demoted(const struct dibs__channel *channel, const struct dibs__link *link, redisReply **replies,
                       size_t count)
{
    bool told = false;

    for (size_t i = 0; i < count && !told; i++)
        told = dibs__reply_tells_of_a_replica(replies[i]);
    return told && dibs__now(channel->clock) >= dibs__after_ms(link->greeted_at, REPLICA_LEAST_MS);
}

/* Requires mutex. Hands replies to the requests they answer. False: there are more than were asked for. */
static bool hand_out(struct dibs__channel *channel, redisReply **replies, size_t count)
{
    size_t i = 0;

    for (; i < count && channel->first; i++) {
        struct dibs__request *request = take_first(channel);
        if (replies[i]->type == REDIS_REPLY_ERROR)
            atomic_fetch_add_explicit(channel->endpoint->errors, 1, memory_order_relaxed);
        request->reply = replies[i];
        complete(channel, request);
    }
    bool all = i == count;
    for (; i < count; i++)
        freeReplyObject(replies[i]);
    return all;
}

/* Requires the reading role, not the mutex. */
static void wait_for_bytes(struct dibs__channel *channel, struct dibs__link *link, int64_t deadline)
{
    if (deadline == 0)
        return;
    struct pollfd fd = dibs__link_poll(link, POLLIN, &deadline);
    atomic_store(&channel->polling, true);
    channel->clock->poll(channel->clock, &fd, 1, deadline);
    atomic_store(&channel->polling, false);
}

/*
 * Requires mutex and the reading role; lets go of the mutex in between. Waits
 * for bytes until the deadline (0: not at all) and hands out what is complete.
 */
static void read_in(struct dibs__channel *channel, int64_t deadline)
{
    struct dibs__link *link = channel->link;
    redisReply *replies[REPLIES_AT_ONCE];
    struct dibs__error error = {DIBS_OK, ""};
    size_t count = REPLIES_AT_ONCE;
    bool good = true, demoted = false;

    channel_mutex_unlock(&channel->mutex);
    wait_for_bytes(channel, link, deadline);
    long received = dibs__link_receive(link, &error);
    while (good && received != 0 && count == REPLIES_AT_ONCE) {
        struct dibs__error garbage;
        good = parse(link, replies, &count, &garbage);
        demoted = demoted || is_demoted(channel, link, replies, count);
        channel_mutex_lock(&channel->mutex);
        if (!hand_out(channel, replies, count) && !channel->broken) {
            good = false;
            dibs__error_set(&garbage, DIBS_STORE_ERROR, "%s sent a reply that nobody asked for",
                            channel->endpoint->url.shown);
        }
        if (!good)
            break_link(channel, &garbage);
        channel_mutex_unlock(&channel->mutex);
    }
    if (demoted)
        dibs__endpoint_failed(channel->endpoint);
    if (demoted && received >= 0)
        dibs__error_set(&error, DIBS_UNAVAILABLE, "%s is a replica", channel->endpoint->url.shown);
    channel_mutex_lock(&channel->mutex);
    if (error.status != DIBS_OK)
        break_link(channel, &error);
    if (channel->looking > 0)
        pthread_cond_broadcast(&channel->changed);
}

/*
 * Requires mutex. The reading role was left: whoever waits next takes it, or the scheduler. True: it is to be told. A
 * request whose thread does something else needs no reader: that thread reads when it comes.
 */
static bool pass_reading_on(struct dibs__channel *channel)
{
    channel->reading = false;
    drop_link(channel);
    for (struct dibs__request *request = channel->first; request; request = request->next) {
        if (request->waited_for && !request->left) {
            pthread_cond_signal(&request->cond);
            return false;
        }
    }
    return atomic_load_explicit(&channel->unattended, memory_order_relaxed) > 0;
}

static bool stands(const struct dibs__channel *channel)
{
    return channel->link && !channel->broken;
}

/*
 * Requires mutex, and a link. Whether what lies in the socket, or was just taken
 * out of it by who reads, may answer a request that is about to time out. While
 * who reads is still polling, it has taken nothing since that look.
 */
static bool has_something(const struct dibs__channel *channel)
{
    return dibs__link_look(channel->link) == DIBS__SIGHT_BYTES || (channel->reading && !atomic_load(&channel->polling));
}

/* Requires mutex; lets go of it in between. Nobody reads. True: the scheduler is to be told that nobody goes on. */
static bool read_what_is_there(struct dibs__channel *channel)
{
    channel->reading = true;
    read_in(channel, 0);
    return pass_reading_on(channel);
}

/* Requires mutex; lets go of it while it sleeps. Another thread reads. */
static void await_round(struct dibs__channel *channel, int64_t until)
{
    channel->looking++;
    channel->clock->wait(channel->clock, &channel->changed, &channel->mutex, until);
    channel->looking--;
}

/*
 * Requires mutex; lets go of it in between. The time of the caller is over,
 * maybe because the process was stopped: then its reply may have come long ago.
 * Where the connection would be given up for it, whoever reads is waited for.
 * True: the scheduler is to be told.
 */
static bool look_once_more(struct dibs__channel *channel, const struct dibs__request *request)
{
    int64_t now = dibs__now(channel->clock);
    int64_t until = now >= request->expires ? dibs__after_ms(now, LAST_LOOK_MS) : now;
    bool tell = false;

    while (!request->done && stands(channel) && has_something(channel)) {
        if (!channel->reading)
            tell = read_what_is_there(channel);
        else if (dibs__now(channel->clock) < until)
            await_round(channel, dibs__after_ms(dibs__now(channel->clock), LOOK_AGAIN_MS));
        if (dibs__now(channel->clock) >= until)
            break;
    }
    return tell;
}

/* ------------------------------------------------------------------ opening */

static uint64_t times_heard(const struct dibs__channel *channel)
{
    return atomic_load_explicit(&channel->endpoint->received, memory_order_relaxed);
}

/* Requires mutex and the opening role; lets go of the mutex to tell the owner. `link` NULL: it failed with error. */
static void end_opening(struct dibs__channel *channel, struct dibs__link *link, const struct dibs__error *error)
{
    bool again = channel->serial > 0, silent = times_heard(channel) == channel->received_before;

    channel->opening = false;
    channel->attempts++;
    atomic_store(&channel->wanted, false);
    if (link) {
        if (again && !link->ended_before)
            channel->unended = channel->serial;
        channel->link = link;
        atomic_store(&channel->standing, true);
        channel->serial++;
        channel->open_error.status = DIBS_OK;
    } else {
        channel->open_error = *error;
    }
    pthread_cond_broadcast(&channel->changed);
    channel_mutex_unlock(&channel->mutex);
    if (link)
        channel->hooks.opened(channel->hooks.context, again);
    else
        channel->hooks.failed(channel->hooks.context, error, silent);
    channel_mutex_lock(&channel->mutex);
}

/* Requires mutex and the opening role; lets go of the mutex. The caller's time is over, the attempt's is not. */
static void leave_to_scheduler(struct dibs__channel *channel, struct dibs__link *link, int64_t until)
{
    channel->half_open = link;
    channel->half_open_until = until;
    channel_mutex_unlock(&channel->mutex);
    channel->hooks.unattended(channel->hooks.context);
    channel_mutex_lock(&channel->mutex);
}

/* Requires mutex and the opening role; lets go of the mutex while it connects. */
static void open_link(struct dibs__channel *channel, int64_t deadline)
{
    struct dibs__link_id before = channel->last_id;
    struct dibs__error error = {DIBS_OK, ""};

    channel->received_before = times_heard(channel);
    channel_mutex_unlock(&channel->mutex);
    int64_t until = dibs__after_ms(dibs__now(channel->clock), channel->connect_timeout_ms);
    struct dibs__link *link = dibs__link_start(channel->endpoint, DIBS__LINK_COMMANDS, &before, &error);
    dibs_status status = error.status;
    if (link)
        status = dibs__link_finish(link, channel->clock, until < deadline ? until : deadline, until, &error);
    if (status == DIBS_TIMEOUT && until <= deadline)
        status = dibs__link_give_up(link, &error);
    if (status != DIBS_OK && status != DIBS_TIMEOUT) {
        dibs__link_free(link);
        link = NULL;
    }
    channel_mutex_lock(&channel->mutex);
    if (status == DIBS_TIMEOUT)
        leave_to_scheduler(channel, link, until);
    else
        end_opening(channel, link, &error);
}

/* Requires mutex; lets go of it in between. */
static dibs_status ensure_open(struct dibs__channel *channel, int64_t deadline, struct dibs__error *error)
{
    unsigned seen = channel->attempts;

    while (!stands(channel)) {
        if (seen != channel->attempts && channel->open_error.status != DIBS_OK) {
            *error = channel->open_error;
            return error->status;
        }
        seen = channel->attempts;
        if (dibs__now(channel->clock) >= deadline)
            return dibs__error_set(error, DIBS_UNAVAILABLE, "%s does not answer", channel->endpoint->url.shown);
        if (!channel->link && !channel->opening) {
            channel->opening = true;
            open_link(channel, deadline);
        } else {
            channel->clock->wait(channel->clock, &channel->changed, &channel->mutex, deadline);
        }
    }
    return DIBS_OK;
}

static void take_view(const struct dibs__channel *channel, struct dibs__link_view *view)
{
    view->id = channel->link->id;
    view->server_ahead_us = channel->link->server_ahead_us;
    view->serial = channel->serial;
    view->unended = channel->unended;
    view->may_publish = channel->link->may_publish;
    view->cluster = channel->link->cluster;
    view->server = dibs__link_server(channel->link);
    memcpy(view->shas, channel->link->shas, sizeof view->shas);
}

dibs_status dibs__channel_open(struct dibs__channel *channel, int64_t deadline, struct dibs__link_view *view,
                               struct dibs__error *error)
{
    channel_mutex_lock(&channel->mutex);
    dibs_status status = ensure_open(channel, deadline, error);
    if (status == DIBS_OK)
        take_view(channel, view);
    channel_mutex_unlock(&channel->mutex);
    return status;
}

bool dibs__channel_view(struct dibs__channel *channel, struct dibs__link_view *view)
{
    channel_mutex_lock(&channel->mutex);
    bool standing = stands(channel);
    if (standing)
        take_view(channel, view);
    channel_mutex_unlock(&channel->mutex);
    return standing;
}

void dibs__channel_set_clock(struct dibs__channel *channel, uint64_t serial, int64_t server_ahead_us)
{
    channel_mutex_lock(&channel->mutex);
    if (channel->link && channel->serial == serial)
        channel->link->server_ahead_us = server_ahead_us;
    channel_mutex_unlock(&channel->mutex);
}

/* ------------------------------------------------------------ a thread's call */

/* Requires mutex. Appends to the connection of that serial, or fills the error. */
static bool append_to(struct dibs__channel *channel, uint64_t serial, struct dibs__request *request,
                      const struct dibs__command *command, struct dibs__error *error)
{
    if (!stands(channel) || channel->serial != serial) {
        dibs__error_set(error, DIBS_UNAVAILABLE, "the connection to %s broke", channel->endpoint->url.shown);
        return false;
    }
    if (append(channel, request, command))
        return true;
    dibs__error_set(error, DIBS_NO_MEMORY, "no memory for a command");
    return false;
}

struct dibs__request *dibs__channel_send(struct dibs__channel *channel, uint64_t serial,
                                         const struct dibs__command *command, int64_t deadline,
                                         struct dibs__error *error)
{
    struct dibs__request *request = request_new(error);

    if (!request)
        return NULL;
    request->waited_for = true;
    request->left = deadline == 0;
    request->error = error;
    channel_mutex_lock(&channel->mutex);
    bool sent = append_to(channel, serial, request, command, error);
    if (sent)
        flush(channel, deadline);
    bool tell = has_unsent(channel) && !channel->writing;
    call_finished(channel);
    channel_mutex_unlock(&channel->mutex);
    if (tell)
        channel->hooks.unattended(channel->hooks.context);
    if (sent)
        return request;
    request_free(request);
    return NULL;
}

/* Requires mutex; lets go of it in between. True when the request is done, false when the deadline has passed. */
static bool wait_until_done(struct dibs__channel *channel, struct dibs__request *request, int64_t deadline)
{
    while (!request->done) {
        if (dibs__now(channel->clock) >= deadline)
            return false;
        if (channel->reading || channel->broken) {
            channel->clock->wait(channel->clock, &request->cond, &channel->mutex, deadline);
            continue;
        }
        flush(channel, deadline);
        if (request->done || channel->reading || channel->broken)
            continue;
        channel->reading = true;
        read_in(channel, deadline);
        if (pass_reading_on(channel) && request->done) {
            channel_mutex_unlock(&channel->mutex);
            channel->hooks.unattended(channel->hooks.context);
            channel_mutex_lock(&channel->mutex);
        }
    }
    return true;
}

/* Requires mutex. Nobody waits for the request any more; its reply will be thrown away. True: the scheduler is to be
 * told. */
static bool abandon(struct dibs__channel *channel, struct dibs__request *request)
{
    request->waited_for = false;
    request->error = NULL;
    atomic_fetch_add_explicit(&channel->unattended, 1, memory_order_relaxed);
    return !channel->reading && pass_reading_on(channel); /* if it was the next to read, another is now */
}

bool dibs__channel_await(struct dibs__channel *channel, struct dibs__request *request, int64_t until)
{
    bool tell = false;

    channel_mutex_lock(&channel->mutex);
    request->left = false;
    if (!wait_until_done(channel, request, until < request->expires ? until : request->expires))
        tell = look_once_more(channel, request);
    bool done = request->done;
    if (!done) {
        request->left = true;
        tell = (!channel->reading && pass_reading_on(channel)) || tell;
    }
    call_finished(channel);
    channel_mutex_unlock(&channel->mutex);
    if (tell)
        channel->hooks.unattended(channel->hooks.context);
    return done;
}

dibs_status dibs__channel_wait(struct dibs__channel *channel, struct dibs__request *request, int64_t deadline,
                               redisReply **reply, bool *unknown, struct dibs__error *error)
{
    bool tell = false, done;

    *reply = NULL;
    channel_mutex_lock(&channel->mutex);
    if (request->done && !request->reply && request->error != error)
        *error = *request->error;
    request->error = error;
    request->left = false;
    done = wait_until_done(channel, request, deadline < request->expires ? deadline : request->expires);
    if (!done)
        tell = look_once_more(channel, request);
    if (!request->done && dibs__now(channel->clock) >= request->expires)
        time_out(channel);
    done = request->done;
    *unknown = done ? request->unknown : true;
    if (done)
        *reply = request->reply;
    else
        tell = abandon(channel, request) || tell;
    call_finished(channel);
    channel_mutex_unlock(&channel->mutex);
    if (tell)
        channel->hooks.unattended(channel->hooks.context);
    if (!done)
        return dibs__error_set(error, DIBS_UNAVAILABLE, "%s did not answer in time", channel->endpoint->url.shown);
    request->reply = NULL;
    request_free(request);
    return *reply ? DIBS_OK : error->status;
}

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

bool dibs__channel_look(struct dibs__channel *channel)
{
    struct dibs__error error;

    channel_mutex_lock(&channel->mutex);
    /* Who is at it will meet the end, if there is one. */
    if (stands(channel) && !channel->reading && !channel->writing &&
        dibs__link_look(channel->link) == DIBS__SIGHT_END) {
        dibs__error_set(&error, DIBS_UNAVAILABLE, "the connection to %s broke: the server closed it",
                        channel->endpoint->url.shown);
        break_link(channel, &error);
    }
    call_finished(channel);
    bool standing = stands(channel);
    channel_mutex_unlock(&channel->mutex);
    return standing;
}

void dibs__channel_want(struct dibs__channel *channel)
{
    if (!dibs__channel_stands(channel) && !atomic_exchange(&channel->wanted, true))
        channel->hooks.unattended(channel->hooks.context);
}

/* ------------------------------------------------------ the scheduler's part */

/* Requires mutex. There is no link, and the scheduler is to make one. */
static bool is_missing(const struct dibs__channel *channel, bool keep_open)
{
    return (keep_open || atomic_load(&channel->wanted)) && !channel->link && !channel->opening;
}

bool dibs__channel_submit(struct dibs__channel *channel, uint64_t serial, const struct dibs__command *command,
                          dibs__reply_fn *done, void *arg)
{
    struct dibs__error error;
    struct dibs__request *request = request_new(&error);

    if (!request)
        return false;
    request->done_fn = done;
    request->arg = arg;
    channel_mutex_lock(&channel->mutex);
    bool sent = append_to(channel, serial, request, command, &error);
    if (sent)
        flush(channel, 0);
    call_finished(channel);
    channel_mutex_unlock(&channel->mutex);
    if (!sent)
        request_free(request);
    return sent;
}

void dibs__channel_interest(struct dibs__channel *channel, bool keep_open, struct pollfd *fd, int64_t *deadline)
{
    *fd = (struct pollfd){.fd = -1};
    *deadline = DIBS__NEVER;
    channel_mutex_lock(&channel->mutex);
    if (channel->half_open) {
        *fd = dibs__link_interest(channel->half_open, deadline);
        if (channel->half_open_until < *deadline)
            *deadline = channel->half_open_until;
    } else if (stands(channel)) {
        bool in_flight = channel->first != NULL;
        short want = 0;
        if (!channel->reading && !channel->writing && (in_flight || keep_open))
            want |= POLLIN;
        if (!channel->writing && has_unsent(channel))
            want |= POLLOUT;
        if (in_flight)
            *deadline = channel->first->expires;
        if (want)
            *fd = dibs__link_poll(channel->link, want, deadline);
    } else if (is_missing(channel, keep_open)) {
        *deadline = channel->reopen_at;
    }
    channel_mutex_unlock(&channel->mutex);
}

/* Requires mutex; lets go of it in between. The scheduler's attempt ended. */
static void end_half_open(struct dibs__channel *channel, bool good, const struct dibs__error *error, int64_t now)
{
    struct dibs__link *link = channel->half_open;
    int64_t last = channel->spare ? WANTED_LAST_MS : REOPEN_LAST_MS, doubled = channel->reopen_ms * 2;

    channel->half_open = NULL;
    if (good) {
        channel->reopen_ms = REOPEN_FIRST_MS;
        channel->reopen_at = dibs__after_ms(now, REOPEN_FIRST_MS); /* one that breaks at once is not made at once */
        end_opening(channel, link, error);
        return;
    }
    dibs__link_free(link);
    channel->reopen_at = dibs__after_ms(now, dibs__jitter(channel->reopen_ms / 2, channel->reopen_ms));
    channel->reopen_ms = doubled < last ? doubled : last;
    end_opening(channel, NULL, error);
}

/* Requires mutex; lets go of it in between. */
static void begin_half_open(struct dibs__channel *channel, int64_t now)
{
    struct dibs__link_id before = channel->last_id;
    struct dibs__error error = {DIBS_OK, ""};

    channel->opening = true;
    channel->received_before = times_heard(channel);
    channel->half_open_until = dibs__after_ms(now, channel->connect_timeout_ms);
    channel_mutex_unlock(&channel->mutex);
    channel->half_open = dibs__link_start(channel->endpoint, DIBS__LINK_COMMANDS, &before, &error);
    channel_mutex_lock(&channel->mutex);
    if (!channel->half_open)
        end_half_open(channel, false, &error, now);
}

/* Requires mutex; lets go of it in between. */
static void go_on_opening(struct dibs__channel *channel, int64_t now)
{
    struct dibs__error error = {DIBS_OK, ""};
    int64_t until = channel->half_open_until;

    channel_mutex_unlock(&channel->mutex);
    dibs_status status = dibs__link_step(channel->half_open, now, until, &error);
    channel_mutex_lock(&channel->mutex);
    bool ready = status == DIBS_OK && channel->half_open->state == DIBS__LINK_READY;
    if (status == DIBS_OK && !ready && now >= until)
        status = dibs__link_give_up(channel->half_open, &error);
    if (ready || status != DIBS_OK)
        end_half_open(channel, ready, &error, now);
}

/* Requires mutex. */
static bool is_overdue(const struct dibs__channel *channel, int64_t now)
{
    return stands(channel) && channel->first && now >= channel->first->expires;
}

/* Requires mutex and a link that stands; lets go of it in between. */
static void go_on_with_link(struct dibs__channel *channel, short ready, int64_t now)
{
    flush(channel, 0);
    /* A thread that writes will read: were the end of the link found here, what it sends would be in doubt. */
    if (stands(channel) && !channel->reading && !channel->writing && dibs__link_may_receive(channel->link, ready)) {
        channel->reading = true;
        read_in(channel, 0);
        pass_reading_on(channel);
    }
    while (is_overdue(channel, now) && has_something(channel)) {
        if (channel->reading) /* whoever does will not be long */
            return;
        read_what_is_there(channel);
    }
    if (is_overdue(channel, now))
        time_out(channel);
}

void dibs__channel_hurry(struct dibs__channel *channel)
{
    channel_mutex_lock(&channel->mutex);
    if (!stands(channel)) /* one that breaks at once is not made at once */
        channel->reopen_at = 0;
    channel_mutex_unlock(&channel->mutex);
}

void dibs__channel_attend(struct dibs__channel *channel, bool keep_open, short ready, int64_t now)
{
    channel_mutex_lock(&channel->mutex);
    channel->spare = !keep_open;
    if (channel->half_open)
        go_on_opening(channel, now);
    else if (stands(channel))
        go_on_with_link(channel, ready, now);
    else if (is_missing(channel, keep_open) && now >= channel->reopen_at)
        begin_half_open(channel, now);
    call_finished(channel);
    channel_mutex_unlock(&channel->mutex);
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
    channel->connect_timeout_ms = connect_timeout_ms;
    channel->command_timeout_ms = command_timeout_ms;
    channel->reopen_ms = REOPEN_FIRST_MS;
    channel->finished_end = &channel->finished;
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
    break_link(channel, &closed);
    call_finished(channel);
    channel_mutex_unlock(&channel->mutex);
    dibs__link_free(channel->half_open);
    dibs__buffer_free(&channel->out);
    dibs__buffer_free(&channel->sending);
    pthread_cond_destroy(&channel->changed);
    dibs__mutex_destroy(&channel->mutex);
    free(channel);
}
