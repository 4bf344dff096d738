/* How a thread waits for replies of several channels at the same time (base/wait.h). */
#include "redis/channel_parts.h"

static enum dibs__reply_state state_of(const struct dibs__channel *channel, const struct dibs__request *request)
    DIBS__REQUIRES(channel_mutex)
{
    if (dibs__request_is_done(request) && !request->reply)
        return DIBS__REPLY_BROKEN;
    if (dibs__request_is_done(request))
        return request->reply->type == REDIS_REPLY_ERROR ? DIBS__REPLY_ERROR : DIBS__REPLY_OVER;
    return dibs__now(channel->endpoint->clock) >= request->expires ? DIBS__REPLY_OVER : DIBS__REPLY_AWAITED;
}

/* The thread stops reading, or waiting for another thread that reads. */
static void leave(struct dibs__channel *channel, struct dibs__request *request, struct dibs__wait *wait)
    DIBS__REQUIRES(channel_mutex)
{
    bool reads = wait->fd.fd >= 0, done = dibs__request_is_done(request);

    wait->fd.fd = -1;
    wait->until = DIBS__NEVER;
    wait->spin = NULL;
    wait->end = NULL;
    request->wait = NULL;
    request->asleep = false;
    request->away = true;
    if (reads)
        dibs__channel_end_reading(channel);
    else if (!done && !channel->reading)
        dibs__channel_pass_reading_on(channel);
}

static void end_wait(struct dibs__wait *wait)
{
    struct dibs__channel *channel = wait->keeper;

    channel_mutex_lock(&channel->mutex);
    leave(channel, wait->thing, wait);
    dibs__channel_unlock(channel);
}

/*
 * The thread reads, unless another one does; then it will be woken. A wait event that tells belongs to no thread, so
 * the scheduler reads.
 */
static void join(struct dibs__channel *channel, struct dibs__request *request, struct dibs__wait *wait)
    DIBS__REQUIRES(channel_mutex)
{
    bool reads = wait->fd.fd >= 0, is_free = !channel->reading, tells = wait->wait_event->tell != NULL;

    DIBS__REQUIRE(dibs__channel_has_link(channel)); /* otherwise the requests in flight have failed */
    request->wait = wait;
    request->away = tells;
    wait->end = end_wait;
    wait->keeper = channel;
    wait->thing = request;
    wait->until = request->expires;
    if (!reads && is_free && !tells)
        reads = dibs__channel_begin_reading(channel);
    request->asleep = !reads;
    if (!reads) {
        channel->tells = channel->tells || is_free;
        return;
    }
    wait->fd = dibs__link_poll(channel->link, POLLIN, &wait->until);
    wait->bell = &channel->bell;
    wait->spin = dibs__channel_spin(channel, request);
}

/* Takes what lies in the socket, unless another thread reads. */
static void look(struct dibs__channel *channel, const struct dibs__request *request) DIBS__REQUIRES(channel_mutex)
{
    if (!dibs__request_is_done(request) && dibs__channel_has_link(channel) && !channel->reading &&
        dibs__channel_has_something(channel))
        dibs__channel_read(channel, NULL, 0);
}

enum dibs__reply_state dibs__channel_progress(struct dibs__channel *channel, struct dibs__request *request,
                                              struct dibs__wait *wait)
{
    channel_mutex_lock(&channel->mutex);
    DIBS__REQUIRE(request->waited_for && (!request->wait || request->wait == wait));
    if (!wait)
        look(channel, request);
    else if (wait->fd.fd >= 0)
        dibs__channel_read_on(channel, wait->fd.revents);
    enum dibs__reply_state state = state_of(channel, request);
    if (wait && state == DIBS__REPLY_AWAITED)
        join(channel, request, wait);
    else if (wait && request->wait)
        leave(channel, request, wait);
    dibs__channel_unlock(channel);
    return state;
}
